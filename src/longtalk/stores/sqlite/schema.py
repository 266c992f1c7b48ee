"""The tables of the SQLite store.

Entries belong to segments. A segment contains the entries that one branch has added since it was created or cut. The
position of an entry is the number of entries before it on the path, so a segment that starts after 40 entries contains
the positions from 40 on. Columns named `place` hold positions. In `entries`, `packs`, `entry_meta` and `runs`, the
number of a segment and a position form one integer, the `key`. The newest entries of a segment are rows of `entries`;
older entries are sealed, many of them in one row of `packs`.

Numbers of conversations and segments are never reused. A row of the word index can therefore never refer to an entry of
another owner.

`MIGRATIONS` are numbered by their position, and `PRAGMA user_version` says how many of them a file has had. The columns
named `extra` are reserved for later versions: their values are kept as they are.
"""

from __future__ import annotations

APPLICATION = 0x4C54414C
"""The `application_id` that marks a SQLite file as a Longtalk store, for this package and for the command `file`."""

POSITION_BITS = 28
"""The number of low bits of a key that hold the position. The bits above them hold the number of the segment."""

_FIRST = """
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    meta BLOB NOT NULL,
    extra BLOB,
    UNIQUE (owner, name)
);
CREATE INDEX conversations_newest ON conversations (owner, updated);

CREATE TABLE branches (
    id INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    base INTEGER NOT NULL,    -- where the segment begins
    size INTEGER NOT NULL,
    entry TEXT,               -- the last one
    turn INTEGER,             -- the last one that has an entry on the path
    records TEXT NOT NULL,    -- the ids of those that its head shows, as JSON
    token INTEGER NOT NULL,
    lease BLOB,
    sealed INTEGER NOT NULL,  -- the place up to which the segment is in packs
    loose INTEGER NOT NULL,   -- bytes of JSON behind it
    stale INTEGER NOT NULL,   -- whether it may hold what was not made ready for search
    updated INTEGER NOT NULL,
    extra BLOB,
    UNIQUE (conversation, name)
);
CREATE INDEX branches_stale ON branches (conversation) WHERE stale;

CREATE TABLE segments (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL,
    up INTEGER,               -- the segment that holds what is before its first entry
    base INTEGER NOT NULL,
    indexed INTEGER NOT NULL, -- the place up to which it can be searched
    extra BLOB
);
CREATE INDEX segments_up ON segments (conversation, up);

CREATE TABLE entries (
    key INTEGER PRIMARY KEY,
    turn TEXT NOT NULL,
    number INTEGER NOT NULL,  -- its id is turn-number
    parent TEXT,
    kind TEXT NOT NULL,
    role TEXT NOT NULL,
    wire TEXT NOT NULL,
    at INTEGER NOT NULL,
    mark TEXT NOT NULL,
    bound TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    native BLOB NOT NULL,
    extra BLOB
);

CREATE TABLE packs (
    key INTEGER PRIMARY KEY,  -- of the first entry
    count INTEGER NOT NULL,
    form INTEGER NOT NULL,    -- 0: the array as it is, 1: with zstd
    crc INTEGER NOT NULL,
    extra BLOB,               -- that of its entries, by their number in it
    columns BLOB NOT NULL,    -- `pack.Index`
    array BLOB NOT NULL
);

CREATE TABLE entry_meta (
    key INTEGER PRIMARY KEY,
    meta BLOB NOT NULL
);

CREATE TABLE turns (
    id INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL,
    name TEXT NOT NULL,
    data BLOB,                -- none for a call that only added events
    UNIQUE (conversation, name)
);

CREATE TABLE runs (
    key INTEGER PRIMARY KEY,  -- where entries of a turn begin
    turn INTEGER NOT NULL,
    number INTEGER NOT NULL   -- the first one's
);
CREATE INDEX runs_turn ON runs (turn);

CREATE TABLE requests (
    conversation INTEGER NOT NULL,
    key TEXT NOT NULL,
    body TEXT NOT NULL,
    branch TEXT NOT NULL,
    turn INTEGER NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (conversation, key)
) WITHOUT ROWID;

CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    segment INTEGER NOT NULL,
    place INTEGER NOT NULL,
    kind TEXT NOT NULL,
    data BLOB NOT NULL        -- `transcript.Record`
);
CREATE INDEX records_place ON records (segment, place, kind);

CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value NOT NULL
) WITHOUT ROWID;
INSERT INTO settings VALUES ('reading', 1);

-- Contentless, and not of the kind that deletes by number alone: that one leaves the words in the file.
CREATE VIRTUAL TABLE words USING fts5 (scope, text, content = '', tokenize = 'unicode61 remove_diacritics 2');
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
INSERT INTO words (words, rank) VALUES ('rank', 'bm25(0.0, 1.0)');
"""

_SECOND = """
ALTER TABLE turns ADD COLUMN manifest BLOB;
ALTER TABLE entries ADD COLUMN crc INTEGER;    -- of its JSON
DROP INDEX conversations_newest;
CREATE INDEX conversations_newest ON conversations (owner, updated DESC, name);
"""

MIGRATIONS = (_FIRST, _SECOND)
"""The SQL that upgrades the schema to each version, oldest first. New migrations are appended; none is ever changed."""
