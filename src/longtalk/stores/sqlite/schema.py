"""The tables of the SQLite store.

Entries belong to segments. A segment contains the entries that one branch has added since it was created or cut. The
position of an entry is the number of entries before it on the path, so a segment that starts after 40 entries contains
the positions from 40 on. Columns named `place` hold positions. In `entries`, `packs`, `entry_meta` and `runs`, the
number of a segment and a position form one integer, the `key`. The newest entries of a segment are rows of `entries`;
older entries are stored in rows of `packs`, many in each.

A commit changes as few pages as possible: the row of its branch, the end of `entries`, and at the beginning of a turn
`turn_keys`. Conversations that were changed lately are `active`: the list of conversations takes their times from
their branches, so that `conversations_newest` isn't changed by each commit.

Numbers of conversations and segments are never reused. A row of the word index can therefore never refer to an entry of
another owner.

`MIGRATIONS` are applied in order, and `PRAGMA user_version` is the number of those that were applied to a file. The
columns named `extra` are reserved for later versions: their values are kept as they are.
"""

from __future__ import annotations

APPLICATION = 0x4C54414C
"""The `application_id` that marks a SQLite file as a Longtalk store, for this package and for the `file` command."""

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
    base INTEGER NOT NULL,    -- the position at which the segment starts
    size INTEGER NOT NULL,
    entry TEXT,               -- the id of the last entry
    turn INTEGER,             -- the last turn that has an entry on the path
    records TEXT NOT NULL,    -- the ids of the records in the head, as a JSON array
    token INTEGER NOT NULL,
    lease BLOB,
    sealed INTEGER NOT NULL,  -- the position before which all entries of the segment are in packs
    loose INTEGER NOT NULL,   -- the size of the entries from `sealed` on, in bytes of JSON
    stale INTEGER NOT NULL,   -- whether the path may have entries that are not indexed for search
    updated INTEGER NOT NULL,
    extra BLOB,
    UNIQUE (conversation, name)
);
CREATE INDEX branches_stale ON branches (conversation) WHERE stale;

CREATE TABLE segments (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL,
    up INTEGER,               -- the segment that this one continues
    base INTEGER NOT NULL,
    indexed INTEGER NOT NULL, -- the position before which all entries are indexed for search
    extra BLOB
);
CREATE INDEX segments_up ON segments (conversation, up);

CREATE TABLE entries (
    key INTEGER PRIMARY KEY,
    turn TEXT NOT NULL,
    number INTEGER NOT NULL,  -- the entry's id is turn-number
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
    key INTEGER PRIMARY KEY,  -- the key of the first entry
    count INTEGER NOT NULL,
    form INTEGER NOT NULL,    -- 0: the array is not compressed, 1: compressed with zstd
    crc INTEGER NOT NULL,
    extra BLOB,               -- the column `extra` of the entries, by their index in the pack
    columns BLOB NOT NULL,    -- a `PackIndex`
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
    data BLOB,                -- a `Turn`; NULL for a call that only added events
    UNIQUE (conversation, name)
);

CREATE TABLE runs (
    key INTEGER PRIMARY KEY,  -- the key of the first entry of a run
    turn INTEGER NOT NULL,
    number INTEGER NOT NULL   -- the number of that entry in its turn
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
    data BLOB NOT NULL        -- a `Record`
);
CREATE INDEX records_place ON records (segment, place, kind);

CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value NOT NULL
) WITHOUT ROWID;
INSERT INTO settings VALUES ('reading', 1);

-- A contentless table without `contentless_delete`, which would leave deleted words in the file.
CREATE VIRTUAL TABLE words USING fts5 (scope, text, content = '', tokenize = 'unicode61 remove_diacritics 2');
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
INSERT INTO words (words, rank) VALUES ('rank', 'bm25(0.0, 1.0)');
"""

_SECOND = """
ALTER TABLE turns ADD COLUMN manifest BLOB;
ALTER TABLE entries ADD COLUMN crc INTEGER;    -- the checksum of the JSON
DROP INDEX conversations_newest;
CREATE INDEX conversations_newest ON conversations (owner, updated DESC, name);
"""

_THIRD = """
-- What every commit changes is in the branch's row, so that a commit writes few pages.
ALTER TABLE branches ADD COLUMN written INTEGER NOT NULL DEFAULT 0; -- how many entries were ever added to the branch
ALTER TABLE branches ADD COLUMN latest BLOB; -- records of the head that have no row: [position, `Record`], oldest first
UPDATE branches SET written = c.entries FROM conversations c WHERE c.id = branches.conversation
    AND branches.id = (SELECT min(id) FROM branches b WHERE b.conversation = c.id);
ALTER TABLE conversations DROP COLUMN entries;

-- While a conversation is active, its branches may be newer than its column `updated`.
ALTER TABLE conversations ADD COLUMN active INTEGER NOT NULL DEFAULT 0;
CREATE INDEX conversations_active ON conversations (owner) WHERE active;

-- A turn's id is the key of its first entry, and `turns` has only the turns that are not in the row of that entry.
CREATE TABLE turn_keys (
    conversation INTEGER NOT NULL,
    name TEXT NOT NULL,
    id INTEGER NOT NULL,
    number INTEGER,           -- the number of the first entry in its turn; NULL if `runs` has all runs of the turn
    PRIMARY KEY (conversation, name)
) WITHOUT ROWID;
INSERT INTO turn_keys (conversation, name, id) SELECT conversation, name, id FROM turns;
CREATE TABLE other_turns (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    data BLOB,
    manifest BLOB
);
INSERT INTO other_turns SELECT id, name, data, manifest FROM turns;
DROP TABLE turns;
ALTER TABLE other_turns RENAME TO turns;
ALTER TABLE entries ADD COLUMN turn_data BLOB; -- the `Turn` that begins with the entry
ALTER TABLE entries ADD COLUMN manifest BLOB;
"""

_CHECKSUMS = """
-- A checksum of each row (see `checksums.py`). NULL in rows of earlier versions.
ALTER TABLE conversations ADD COLUMN checksum INTEGER;
ALTER TABLE branches ADD COLUMN checksum INTEGER;
ALTER TABLE segments ADD COLUMN checksum INTEGER;
ALTER TABLE entries ADD COLUMN checksum INTEGER; -- includes the JSON, so `crc` is NULL
ALTER TABLE entries ADD COLUMN turn_checksum INTEGER;
ALTER TABLE entries ADD COLUMN manifest_checksum INTEGER;
ALTER TABLE packs ADD COLUMN checksum INTEGER;
ALTER TABLE entry_meta ADD COLUMN checksum INTEGER;
ALTER TABLE turns ADD COLUMN turn_checksum INTEGER;
ALTER TABLE turns ADD COLUMN manifest_checksum INTEGER;
ALTER TABLE runs ADD COLUMN checksum INTEGER;
ALTER TABLE turn_keys ADD COLUMN checksum INTEGER;
ALTER TABLE requests ADD COLUMN checksum INTEGER;
ALTER TABLE records ADD COLUMN checksum INTEGER;
"""

MIGRATIONS = (_FIRST, _SECOND, _THIRD, _CHECKSUMS)
"""The SQL that upgrades the schema to each version. Append new migrations; existing ones must keep their effect."""
