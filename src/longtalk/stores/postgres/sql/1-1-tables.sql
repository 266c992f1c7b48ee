-- The tables.

CREATE TABLE {s}.conversations (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    entries bigint NOT NULL,       -- the number of entries on all branches
    meta bytea NOT NULL,           -- the app's metadata, as JSON
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
    base int NOT NULL,             -- the position at which the segment starts
    size int NOT NULL,             -- the number of entries on the path
    entry text,                    -- the id of the last entry
    turn bigint,                   -- the last turn that has an entry on the path
    records bigint[] NOT NULL,     -- the ids of the records in the head
    token bigint NOT NULL,
    holder bytea,                  -- the process that holds the lease, …
    until bigint,                  -- … when the lease expires, …
    held bigint,                   -- … and its token; all three are NULL while there is no lease
    stale boolean NOT NULL,        -- whether the path may have entries that are not indexed for search
    stamps bigint[] NOT NULL,      -- the stamps of the last commits, the newest first
    updated bigint NOT NULL,
    UNIQUE (conversation, name)
) WITH (fillfactor = 70);
CREATE INDEX branches_stale ON {s}.branches (owner, conversation) WHERE stale;

CREATE TABLE {s}.segments (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    conversation bigint NOT NULL,
    up bigint,                     -- the segment that this one continues
    base int NOT NULL,
    indexed int NOT NULL           -- the position before which all entries are indexed for search
);
CREATE INDEX segments_up ON {s}.segments (conversation, up);

CREATE TABLE {s}.entries (
    segment bigint NOT NULL,
    place int NOT NULL,
    owner text COLLATE "C" NOT NULL,
    conversation bigint NOT NULL,
    turn text COLLATE "C" NOT NULL,
    number bigint NOT NULL,        -- the entry's id is turn-number
    parent text,
    kind text NOT NULL,
    role text NOT NULL,
    wire text NOT NULL,
    at bigint NOT NULL,
    mark text NOT NULL,
    bound text NOT NULL,
    tokens bigint NOT NULL,
    crc bigint NOT NULL,           -- the checksum of the JSON
    text text,                     -- what the entry says; NULL after a redaction
    native bytea NOT NULL,
    PRIMARY KEY (segment, place)
);
CREATE INDEX entries_turn ON {s}.entries (conversation, turn, number);

CREATE TABLE {s}.entry_meta (
    segment bigint NOT NULL,
    place int NOT NULL,
    owner text COLLATE "C" NOT NULL,
    meta bytea NOT NULL,           -- the app's metadata of an entry, as JSON
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
    usage bytea[] NOT NULL,        -- the provider's report on each model call, unchanged
    calls int NOT NULL,            -- the number of reports; their totals follow
    input bigint NOT NULL,
    output bigint NOT NULL,
    cached bigint NOT NULL,
    written bigint NOT NULL,
    manifest bytea,                -- the account of what was sent and why, as JSON
    cost double precision,         -- in US dollars; NULL if unknown
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
    place int NOT NULL,            -- the position of the entry that the record is attached to; -1: before the first
    kind text NOT NULL,
    entry text NOT NULL,
    at bigint NOT NULL,
    tokens int,                    -- the approximate length of a brief; NULL for other kinds
    data bytea NOT NULL
);
CREATE INDEX records_place ON {s}.records (segment, place, kind);

CREATE TABLE {s}.words (
    segment bigint NOT NULL,
    place int NOT NULL,
    owner text COLLATE "C" NOT NULL,
    conversation bigint NOT NULL,
    tool boolean NOT NULL,         -- whether the entry is a tool result
    size int NOT NULL,             -- the number of words
    vector tsvector NOT NULL,      -- the words, and one word each for the conversation and the owner
    text text NOT NULL,            -- the words in order
    PRIMARY KEY (segment, place)
);
CREATE INDEX words_vector ON {s}.words USING gin (vector);
