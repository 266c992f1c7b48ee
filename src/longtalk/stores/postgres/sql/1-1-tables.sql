-- The tables.

CREATE TABLE {s}.conversations (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    entries bigint NOT NULL,       -- in all of its branches
    meta bytea NOT NULL,           -- the app's own data, as JSON
    UNIQUE (owner, name)
) WITH (fillfactor = 70);
CREATE INDEX conversations_newest ON {s}.conversations (owner, updated DESC, name);

CREATE TABLE {s}.branches (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    conversation bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    segment bigint NOT NULL,
    base int NOT NULL,             -- where the segment begins
    size int NOT NULL,             -- how many entries the path has
    entry text,                    -- the last one
    turn bigint,                   -- the last one that has an entry on the path
    records bigint[] NOT NULL,     -- those that its head shows
    token bigint NOT NULL,
    holder bytea,                  -- who runs a turn …
    until bigint,                  -- … until when no other process may …
    held bigint,                   -- … and by which token; none of the three while no turn runs
    stale boolean NOT NULL,        -- whether it may hold what was not made ready for search
    stamps bigint[] NOT NULL,      -- of the last commits, the newest first
    updated bigint NOT NULL,
    UNIQUE (conversation, name)
) WITH (fillfactor = 70);
CREATE INDEX branches_stale ON {s}.branches (owner, conversation) WHERE stale;

CREATE TABLE {s}.segments (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    conversation bigint NOT NULL,
    up bigint,                     -- the segment that holds what is before its first entry
    base int NOT NULL,
    indexed int NOT NULL           -- the place up to which it can be searched
);
CREATE INDEX segments_up ON {s}.segments (conversation, up);

CREATE TABLE {s}.entries (
    segment bigint NOT NULL,
    place int NOT NULL,
    owner text COLLATE "C" NOT NULL,
    conversation bigint NOT NULL,
    turn text COLLATE "C" NOT NULL,
    number bigint NOT NULL,        -- its id is turn-number
    parent text,
    kind text NOT NULL,
    role text NOT NULL,
    wire text NOT NULL,
    at bigint NOT NULL,
    mark text NOT NULL,
    bound text NOT NULL,
    tokens bigint NOT NULL,
    crc bigint NOT NULL,           -- of its JSON
    text text,                     -- what it says, or the outline of a long answer; none after a redaction
    native bytea NOT NULL,
    PRIMARY KEY (segment, place)
);
CREATE INDEX entries_turn ON {s}.entries (conversation, turn, number);

CREATE TABLE {s}.entry_meta (
    segment bigint NOT NULL,
    place int NOT NULL,
    owner text COLLATE "C" NOT NULL,
    meta bytea NOT NULL,           -- the app's own data on an entry, as JSON
    PRIMARY KEY (segment, place)
);

CREATE TABLE {s}.turns (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    conversation bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    status text NOT NULL,
    model text NOT NULL,
    started bigint NOT NULL,
    ended bigint NOT NULL,
    finish text NOT NULL,
    preamble text NOT NULL,
    error text NOT NULL,
    usage bytea[] NOT NULL,        -- what the provider reported for each model call, as it came
    calls int NOT NULL,            -- how many those are, and what they say in all:
    input bigint NOT NULL,
    output bigint NOT NULL,
    cached bigint NOT NULL,
    written bigint NOT NULL,
    manifest bytea,                -- what it has sent, and why, as JSON
    cost double precision,         -- US dollars; none when that is not known
    UNIQUE (conversation, name)
);

CREATE TABLE {s}.requests (
    conversation bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    body text NOT NULL,
    branch text NOT NULL,
    turn bigint NOT NULL,
    place int NOT NULL,
    PRIMARY KEY (conversation, key)
);

CREATE TABLE {s}.records (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    conversation bigint NOT NULL,
    segment bigint NOT NULL,
    place int NOT NULL,            -- the entry up to which it holds; -1 before the first
    kind text NOT NULL,
    entry text NOT NULL,
    at bigint NOT NULL,
    tokens int,                    -- of a brief: how long it is, roughly
    data bytea NOT NULL
);
CREATE INDEX records_place ON {s}.records (segment, place, kind);

CREATE TABLE {s}.words (
    segment bigint NOT NULL,
    place int NOT NULL,
    owner text COLLATE "C" NOT NULL,
    conversation bigint NOT NULL,
    tool boolean NOT NULL,         -- whether a tool gave it
    size int NOT NULL,             -- how many words it has
    vector tsvector NOT NULL,      -- its words, and the conversation and the owner as words of their own
    text text NOT NULL,            -- its words in order
    PRIMARY KEY (segment, place)
);
CREATE INDEX words_vector ON {s}.words USING gin (vector);
