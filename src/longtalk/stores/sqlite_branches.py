"""Where branches of a store in SQLite stand: their heads, turns and records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from longtalk.stores.base import REPLACED, Asked, Head, Lease, Placed, Request
from longtalk.stores.rows import meta_out
from longtalk.stores.sqlite_file import Database
from longtalk.stores.sqlite_paths import Span, key, pack, place_of, spans
from longtalk.stores.sqlite_schema import PLACES
from longtalk.transcript import Record, Turn

lease_of = msgspec.msgpack.Decoder(Lease).decode
turn_of = msgspec.msgpack.Decoder(Turn).decode
_record_of = msgspec.msgpack.Decoder(Record).decode

_BRANCH = """
SELECT c.id, c.created, b.id, b.revision, b.segment, b.base, b.size, b.entry, b.turn, b.records, b.token, b.lease,
    b.sealed, b.loose, b.updated, t.data
FROM conversations c LEFT JOIN branches b ON b.conversation = c.id AND b.name = ? LEFT JOIN turns t ON t.id = b.turn
WHERE c.owner = ? AND c.name = ?
"""
_RECORDS = """
SELECT place, data FROM records WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id
"""
_REQUESTS = """
SELECT r.key, r.body, r.branch, t.data, r.place, t.id, c.id
FROM conversations c JOIN requests r ON r.conversation = c.id JOIN turns t ON t.id = r.turn
WHERE c.owner = ? AND c.name = ?
"""


class Branch(msgspec.Struct, frozen=True):
    """A branch's row, and its last turn's."""

    name: str
    conversation: int
    created: int
    id: int
    revision: int
    segment: int
    base: int
    size: int
    entry: str | None
    turn: int | None
    records: str
    token: int
    lease: bytes | None
    sealed: int
    loose: int
    updated: int
    turned: bytes | None


def number_of(db: Database, owner: str, conversation: str) -> int | None:
    """The number of a conversation."""
    sql = "SELECT id FROM conversations WHERE owner = ? AND name = ?"
    number: int | None = db.execute(sql, (owner, conversation)).get
    return number


def branch_at(db: Database, owner: str, conversation: str, name: str) -> tuple[int | None, Branch | None]:
    """The number of a conversation, and one of its branches."""
    row = db.execute(_BRANCH, (name, owner, conversation)).fetchone()
    if row is None:
        return None, None
    return row[0], None if row[2] is None else Branch(name, *row)


def head_of(db: Database, branch: Branch, *, records: bool = True) -> Head:
    return Head(
        branch=branch.name,
        revision=branch.revision,
        size=branch.size,
        entry=branch.entry,
        token=branch.token,
        lease=lease_of(branch.lease) if branch.lease else None,
        turn=turn_of(branch.turned) if branch.turned else None,
        records=records_of(db, branch.records) if records else (),
        created=branch.created,
        updated=branch.updated,
    )


def records_of(db: Database, ids: str) -> tuple[Placed, ...]:
    """The records that a branch's row names."""
    if ids == "[]":
        return ()
    return tuple([Placed(_record_of(data), place) for place, data in db.execute(_RECORDS, (ids,))])


def records_on(db: Database, path: Sequence[Span]) -> str:
    """The records that the head of a path shows, as the row of a branch names them."""
    found: list[int] = []
    newest: dict[str, int] = {}
    for segment, _, stop in path:
        rows = db.execute("SELECT id, kind FROM records WHERE segment = ? AND place < ?", (segment, stop))
        for id, kind in rows:  # noqa: A001
            if kind in REPLACED:
                newest[kind] = max(id, newest.get(kind, 0))
            else:
                found.append(id)
    return json.dumps(sorted([*found, *newest.values()]))


def all_records(db: Database, path: Sequence[Span], kind: str | None) -> list[Placed]:
    """All records on a path, or those of a kind, oldest first."""
    found: list[tuple[int, int, bytes]] = []
    for segment, _, stop in path:
        sql = "SELECT id, place, data FROM records WHERE segment = ?1 AND place < ?2 AND (?3 IS NULL OR kind = ?3)"
        found += db.execute(sql, (segment, stop, kind)).fetchall()
    return [Placed(_record_of(data), place) for _, place, data in sorted(found)]


def unreadable(db: Database, conversation: int) -> list[str]:
    """The turns, records and data of a conversation that can't be read."""
    found: list[str] = []
    for what, sql, read in (
        ("turn", "SELECT name, data FROM turns WHERE conversation = ? AND data IS NOT NULL", turn_of),
        ("branch", "SELECT name, lease FROM branches WHERE conversation = ? AND lease IS NOT NULL", lease_of),
        (
            "record",
            "SELECT r.id, r.data FROM segments s JOIN records r ON r.segment = s.id WHERE s.conversation = ?",
            _record_of,
        ),
    ):
        for name, data in db.execute(sql, (conversation,)):
            try:
                read(data)
            except ValueError as problem:
                found.append(f"the {what} {name!r}: {problem}")
    return found


def metas_between(db: Database, path: Sequence[Span], start: int, stop: int) -> dict[int, dict[str, Any]]:
    """The app's own data on the entries start … stop of a path, by their place."""
    found: dict[int, dict[str, Any]] = {}
    for segment, first, end in path:
        bounds = key(segment, max(start, first)), key(segment, min(stop, end))
        for at, data in db.execute("SELECT key, meta FROM entry_meta WHERE key >= ? AND key < ? ORDER BY key", bounds):
            found[place_of(at)] = meta_out(data)
    return found


def turn_on(db: Database, path: Sequence[Span]) -> tuple[int, bytes] | None:
    """The last turn that has an entry on a path: its number and itself."""
    for segment, start, stop in reversed(path):
        row: tuple[int, bytes] | None = db.execute(
            "SELECT t.id, t.data FROM runs r JOIN turns t ON t.id = r.turn"
            " WHERE r.key >= ? AND r.key < ? AND t.data IS NOT NULL ORDER BY r.key DESC LIMIT 1",
            (key(segment, start), key(segment, stop)),
        ).fetchone()
        if row is not None:
            return row
    return None


def begins(db: Database, turn: int, path: Sequence[Span]) -> int | None:
    """The place of the first entry of a turn on a path."""
    ends = {segment: stop for segment, _, stop in path}
    found = [
        place
        for (at,) in db.execute("SELECT key FROM runs WHERE turn = ?", (turn,))
        if (place := place_of(at)) < ends.get(at >> PLACES, 0)
    ]
    return min(found, default=None)


def requests(db: Database, owner: str, conversation: str, *wanted: str) -> list[Asked]:
    """The turns of a conversation that were asked for with a key, by key; with `wanted`, the one of that key."""
    sql = f"{_REQUESTS} AND r.key = ?" if wanted else f"{_REQUESTS} ORDER BY r.key"
    rows = db.execute(sql, (owner, conversation, *wanted)).fetchall()
    if not rows:
        return []
    heads = "SELECT name, segment, size FROM branches WHERE conversation = ? ORDER BY name"
    ends = {name: (segment, size) for name, segment, size in db.execute(heads, (rows[0][-1],)).fetchall()}
    paths: dict[str, list[Span]] = {}
    found: list[Asked] = []
    for name, body, branch, data, place, turn, _ in rows:
        where = branch, place
        # The one that it was made on, while that has it.
        for each in sorted(ends, key=lambda end: (end != branch, end)):
            path = paths[each] = paths.get(each) or spans(db, *ends[each])
            first = begins(db, turn, path)
            if first is not None:
                where = each, first
                break
        found.append(Asked(Request(name, body), where[0], turn_of(data), where[1]))
    return found


def turns_between(db: Database, path: Sequence[Span], start: int, stop: int) -> list[tuple[int, Turn]]:
    """The turns that begin at places start … stop of a path."""
    return [(place, turn_of(data)) for place, _, data in _begun(db, path, start, stop, "data")]


def manifests_between(db: Database, path: Sequence[Span], start: int, stop: int) -> dict[str, bytes]:
    """The manifests of the turns that begin at places start … stop of a path, of those that have one."""
    return {name: data for _, name, data in _begun(db, path, start, stop, "manifest") if data}


def _begun(
    db: Database, path: Sequence[Span], start: int, stop: int, what: Literal["data", "manifest"]
) -> list[tuple[int, str, bytes]]:
    """Where turns begin at places start … stop of a path, their names, and a column of their rows."""
    found: list[tuple[int, str, bytes]] = []
    for segment, first, end in path:
        first, end = max(start, first), min(stop, end)
        if first >= end:
            continue
        rows = db.execute(
            f"SELECT r.key, t.id, t.name, t.{what}, (SELECT count(*) FROM runs WHERE turn = t.id)"  # noqa: S608
            " FROM runs r JOIN turns t ON t.id = r.turn"
            " WHERE r.key >= ? AND r.key < ? AND t.data IS NOT NULL ORDER BY r.key",
            (key(segment, first), key(segment, end)),
        ).fetchall()
        for at, turn, name, data, runs in rows:
            place = place_of(at)
            if runs == 1 or begins(db, turn, path) == place:
                found.append((place, name, data))
    return found


def entry_at(db: Database, segment: int, size: int) -> str | None:
    """The id of the last of so many entries of the path that ends in this segment."""
    return pack(db, spans(db, segment, size, size - 1), size - 1, size).entry(0).id if size else None
