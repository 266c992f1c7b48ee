"""Integrity checks of the SQLite store.

`find_problems` looks at one conversation: the checksums of its rows, gaps in its entries, and whether everything can be
read. `find_file_damage` makes the checks that need the whole file: SQLite's own check of pages and indexes, and a
search for rows with a wrong checksum. `find_strays` tells which of these rows are missing from a conversation, because
the column that says where they belong has changed.

Of the word index, only the structure is checked, not the words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import apsw

from longtalk.stores._rows import meta_from_json
from longtalk.stores.sqlite.branches import (
    decode_lease,
    find_conversation_id,
    read_branch,
    read_head,
    read_keyed_turns,
    read_last_entry_id,
    read_metas,
)
from longtalk.stores.sqlite.checksums import COLUMNS, is_intact
from longtalk.stores.sqlite.conversations import read_info
from longtalk.stores.sqlite.database import UNREADABLE, DamagedData, Database
from longtalk.stores.sqlite.paths import decode_pack, read_path, split_key, to_key, to_position
from longtalk.stores.sqlite.records import decode_latest, decode_record, read_all_records
from longtalk.stores.sqlite.schema import POSITION_BITS
from longtalk.stores.sqlite.turns import decode_turn, read_turns
from longtalk.transcript.pack import Pack, checksum, has_checksum

MAX_LINES = 10
"""The maximum number of problems that are reported of SQLite's own check."""

_SEGMENTS = "SELECT id FROM segments WHERE conversation = ?"
_NEEDED = """
SELECT id, base, max(base,
    coalesce((SELECT max(size) FROM branches b WHERE b.conversation = s.conversation AND b.segment = s.id), 0),
    coalesce((SELECT max(base) FROM segments t WHERE t.conversation = s.conversation AND t.up = s.id), 0))
FROM segments s WHERE conversation = ? ORDER BY id
"""
_TURNS = """
SELECT t.id, t.name, t.data, t.turn_checksum, t.manifest, t.manifest_checksum
FROM turn_keys k JOIN turns t ON t.id = k.id WHERE k.conversation = ?
"""
_UNCOVERED_TURNS = """
SELECT count(*) FROM turn_keys k LEFT JOIN entries e ON e.key = k.id LEFT JOIN turns t ON t.id = k.id
WHERE k.conversation = ? AND coalesce(e.turn_data, t.data) IS NOT NULL
    AND coalesce(e.turn_checksum, t.turn_checksum) IS NULL
"""


_Row = tuple[str, int, list[Any]]
"""A row with a wrong checksum: its table, its checksum, and its values."""


class FileDamage(NamedTuple):
    """Damage to a file."""

    problems: list[str]
    """What SQLite's own check reports."""
    rows: list[_Row]


class _Table(NamedTuple):
    """How `verify` reads a table."""

    label: str
    """What a row is."""
    name: str
    """The column that names a row."""
    parent: str
    """The column that says where a row belongs: a conversation, a segment, or a key that begins with a segment."""
    decoders: Mapping[str, tuple[str, Callable[[bytes], object]]] = MappingProxyType({})
    """By column: what its values are, and a function that decodes them."""
    checksum: str = "checksum"
    """The SQL expression for the checksum of the columns in `COLUMNS`."""

    @property
    def condition(self) -> str:
        """The condition for rows of a conversation."""
        if self.parent in ("id", "conversation"):
            return f"{self.parent} = ?"
        return f"{self.parent}{f' >> {POSITION_BITS}' if self.parent == 'key' else ''} IN ({_SEGMENTS})"


_TABLES = {
    "conversations": _Table("conversation", "name", "id", {"meta": ("the metadata of conversation", meta_from_json)}),
    "branches": _Table(
        *("branch", "name", "conversation"),
        {"lease": ("the lease of branch", decode_lease), "latest": ("a record of branch", decode_latest)},
    ),
    "segments": _Table("segment", "id", "conversation"),
    "turn_keys": _Table("the position of turn", "name", "conversation"),
    "requests": _Table("request", "key", "conversation"),
    "records": _Table("record", "id", "segment", {"data": ("record", decode_record)}, "checksum - id"),
    "entry_meta": _Table(
        "the metadata of an entry, with the key", "key", "key", {"meta": ("the metadata of entry", meta_from_json)}
    ),
    "runs": _Table("entries of a turn, with the key", "key", "key"),
}


def find_problems(db: Database, owner: str, conversation: str) -> list[str]:
    """Describe each problem in the rows of a conversation. See `Store.verify`."""
    number = find_conversation_id(db, owner, conversation)
    if number is None:
        return []
    found: list[str] = []
    for table in _TABLES:
        _collect(found, f"the table {table!r}", _check_rows(db, number, table))
    _collect(found, "the table 'turns'", _check_turns(db.execute(_TURNS, (number,))))
    for segment, base, stop in db.execute(_NEEDED, (number,)).fetchall():
        _collect(found, f"segment {segment}", _check_segment(db, segment, base, stop))
    if not found:
        _collect(found, "the conversation", _check_reading(db, owner, conversation, number))
    return found


def find_file_damage(db: Database) -> FileDamage:
    """Return the damage that only a look at the whole file shows."""
    found = FileDamage([], [])
    lines = (f"the file is damaged: {line}" for (line,) in db.execute(f"PRAGMA integrity_check({MAX_LINES})"))
    _collect(found.problems, "the file", (line for line in lines if not line.endswith(": ok")))
    for table in _TABLES:
        _collect(found.problems, f"the table {table!r}", _collect_damaged_rows(db, table, found.rows))
    return found


def find_uncovered(db: Database, number: int) -> list[str]:
    """Describe the rows of a conversation that have no checksum, because an earlier version wrote them."""
    counts = {
        table: db.execute(
            f"SELECT count(*) FROM {table} WHERE checksum IS NULL AND {_TABLES[table].condition}",  # noqa: S608
            (number,),
        ).get
        for table in _TABLES
    }
    for table in ("entries", "packs"):
        condition = _TABLES["runs"].condition
        sql = f"SELECT count(*) FROM {table} WHERE checksum IS NULL AND {condition}"  # noqa: S608
        counts[table] = db.execute(sql, (number,)).get
    counts["turns"] = db.execute(_UNCOVERED_TURNS, (number,)).get
    return [
        f"{count} {'row' if count == 1 else 'rows'} of the table {table!r}, written before rows had checksums"
        for table, count in counts.items()
        if count
    ]


def _collect(found: list[str], what: str, problems: Iterable[str]) -> None:
    """Add problems to a list, and a problem if looking for them fails."""
    try:
        for problem in problems:
            found.append(problem)  # noqa: PERF402
    except (DamagedData, apsw.CorruptError, apsw.SQLError, *UNREADABLE) as problem:
        found.append(f"{what} can't be read: {problem}")


# Rows


def _check_rows(db: Database, number: int, table: str) -> Iterator[str]:
    """Yield the rows of a conversation in a table that can't be decoded, or that have a wrong checksum."""
    columns = COLUMNS[table]
    label, name, _, decoders, stored_checksum = _TABLES[table]
    sql = f"SELECT {name}, {stored_checksum}, {', '.join(columns)} FROM {table} WHERE {_TABLES[table].condition}"  # noqa: S608
    rows = 0
    for id, stored, *values in db.execute(sql, (number,)):  # noqa: A001
        rows += 1
        problems = [
            problem
            for column, (what, decode) in decoders.items()
            for problem in _describe_undecodable(f"{what} {id!r}", values[columns.index(column)], decode)
        ]
        if not problems and not is_intact(stored, *values):
            problems.append(f"{label} {id!r} has a wrong checksum")
        yield from problems
    if not rows and table in ("branches", "segments"):
        yield f"the conversation has no {table}"


def _check_turns(rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    """Yield the turns and manifests that can't be decoded, or that have a wrong checksum."""
    for id, name, data, turn_checksum, manifest, manifest_checksum in rows:  # noqa: A001
        if problems := list(_describe_undecodable(f"turn {name!r}", data, decode_turn)):
            yield from problems
        elif not is_intact(turn_checksum, id, name, data):
            yield f"turn {name!r} has a wrong checksum"
        if not is_intact(manifest_checksum, id, manifest):
            yield f"the manifest of turn {name!r} has a wrong checksum"


def _describe_undecodable(what: str, data: bytes | None, decode: Callable[[bytes], object]) -> Iterator[str]:
    try:
        if data is not None:
            decode(data)
    except UNREADABLE as problem:
        yield f"{what} can't be decoded: {problem}"


def _check_segment(db: Database, segment: int, base: int, stop: int) -> Iterator[str]:
    """Yield the problems in the entries of a segment: missing or unreadable entries, wrong checksums."""
    bounds = to_key(segment, 0), to_key(segment + 1, 0)
    # The key that the next entry must have; None after a pack that can't be read.
    end: int | None = to_key(segment, base)
    packs = db.execute(
        "SELECT checksum, key, count, form, crc, columns, array FROM packs WHERE key >= ? AND key < ? ORDER BY key",
        bounds,
    )
    for stored, key, count, *row in packs:
        yield from _describe_gap(end, key)
        try:
            _check_pack(decode_pack(*row), count)
            if not is_intact(stored, key, count, *row[:-1]):
                raise ValueError("its checksum is wrong")
            end = key + count
        except (DamagedData, *UNREADABLE) as problem:
            yield f"the pack that begins at position {to_position(key)} is damaged: {problem}"
            end = None
    columns = ", ".join(COLUMNS["entries"])
    more = "turn_data, turn_checksum, manifest, manifest_checksum"
    sql = f"SELECT crc, checksum, {more}, {columns} FROM entries WHERE key >= ? AND key < ? ORDER BY key"  # noqa: S608
    for crc, stored, data, turn_checksum, manifest, manifest_checksum, *row in db.execute(sql, bounds):
        key, turn, native = row[0], row[1], row[-1]
        yield from _describe_gap(end, key)
        end = key + 1
        if not is_intact(stored, *row) or (crc is not None and not has_checksum(native, crc)):
            yield f"the entry at position {to_position(key)} has a wrong checksum"
        yield from _check_turns([(key, turn, data, turn_checksum, manifest, manifest_checksum)])
    if end is not None and end < to_key(segment, stop):
        yield from _describe_gap(end, to_key(segment, stop))


def _describe_gap(expected: int | None, key: int) -> list[str]:
    """Describe the gap before `key` if it is not the `expected` key. If that is None (unknown), report no gap."""
    return [] if expected in (None, key) else [f"entries are missing before position {to_position(key)}"]


def _check_pack(pack: Pack, count: int) -> None:
    """Raise an exception unless a pack has `count` readable entries and the right checksum."""
    if len(pack) != count:
        raise ValueError(f"it has {len(pack)} entries instead of {count}")
    if pack.array[-1:] != b"]" or checksum(pack.array) != pack.crc:
        raise ValueError("its checksum is wrong")
    for i in range(count):
        pack.entry(i)


# Reading


def _check_reading(db: Database, owner: str, conversation: str, number: int) -> Iterator[str]:
    """Read everything of a conversation except its entries. Yield what is missing; let errors of reading pass."""
    read_info(db, owner, conversation)
    read_keyed_turns(db, owner, conversation)
    names = db.execute("SELECT name FROM branches WHERE conversation = ? ORDER BY name", (number,)).fetchall()
    for (name,) in names:
        _, branch = read_branch(db, owner, conversation, name)
        if branch is None:
            yield f"branch {name!r} can't be found by its name"
            continue
        path = read_path(db, branch.segment, branch.size)
        if not path or path[0].start != 0 or path[-1].segment != branch.segment:
            yield f"segments of branch {name!r} are missing"
        if len(read_head(branch).records) < len(json.loads(branch.records)):
            yield f"records of branch {name!r} are missing"
        if branch.entry != read_last_entry_id(db, branch.segment, branch.size):
            yield f"branch {name!r} doesn't end with entry {branch.entry!r}"
        read_turns(db, path, 0, branch.size)
        read_all_records(db, path, branch.latest, None)
        read_metas(db, path, 0, branch.size)


# Rows that are stored elsewhere


def _collect_damaged_rows(db: Database, table: str, found: list[_Row]) -> Iterator[str]:
    """Add the rows of a table that have a wrong checksum to `found`. Yield nothing, but let errors of reading pass."""
    columns = f"{_TABLES[table].checksum}, {', '.join(COLUMNS[table])}"
    sql = f"SELECT {columns} FROM {table} NOT INDEXED WHERE checksum IS NOT NULL"  # noqa: S608
    found += [(table, stored, values) for stored, *values in db.execute(sql) if not is_intact(stored, *values)]
    yield from ()


def find_strays(db: Database, rows: Iterable[_Row], owner: str, conversation: str) -> Iterator[str]:
    """Yield those of the damaged rows of a file that belong to no conversation, or should belong to this one."""
    number = find_conversation_id(db, owner, conversation)
    segments = [id for (id,) in db.execute(_SEGMENTS, (number,))]  # noqa: A001
    own = {"conversation": [number], "segment": segments, "key": segments}
    known = {id for (id,) in db.execute("SELECT id FROM conversations NOT INDEXED")}  # noqa: A001
    known_segments = {id for (id,) in db.execute("SELECT id FROM segments NOT INDEXED")}  # noqa: A001
    for table, stored, values in rows:
        if table == "conversations":
            is_other_owner, is_other_name = values[0] != owner, values[1] != conversation
            if number is None and (
                (is_other_owner and is_intact(stored, owner, *values[1:]))
                or (is_other_name and is_intact(stored, values[0], conversation, *values[2:]))
            ):
                yield f"conversation {conversation!r} is stored under another name or owner"
            continue
        by = _TABLES[table].parent
        i = COLUMNS[table].index(by)
        parent, position = split_key(values[i]) if by == "key" and isinstance(values[i], int) else (values[i], 0)
        if parent in own[by]:
            continue
        if parent not in (known if by == "conversation" else known_segments):
            yield f"a row of the table {table!r} belongs to no conversation"
        elif any(
            is_intact(stored, *values[:i], to_key(right, position) if by == "key" else right, *values[i + 1 :])
            for right in own[by]
        ):
            yield f"a row of the table {table!r} belongs to the conversation, but is stored under another one"
