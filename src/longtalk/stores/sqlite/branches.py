"""Queries of the SQLite store for branch heads, turns, records and requests.

Each function runs inside the caller's transaction and only reads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from longtalk.stores._paths import Span, clip, list_head_records
from longtalk.stores._rows import meta_from_json
from longtalk.stores.base import BranchHead, KeyedRequest, KeyedTurn, Lease, PlacedRecord
from longtalk.stores.sqlite.database import Database
from longtalk.stores.sqlite.paths import read_pack, read_path, split_key, to_key, to_position
from longtalk.transcript.transcript import Record, Turn

decode_lease = msgspec.msgpack.Decoder(Lease).decode
decode_turn = msgspec.msgpack.Decoder(Turn).decode
_decode_record = msgspec.msgpack.Decoder(Record).decode

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
    """A row of the table `branches`, joined with the rows of the branch's conversation and last turn."""

    name: str
    conversation: int
    """The row id of the conversation."""
    created: int
    id: int
    revision: int
    segment: int
    base: int
    """The position at which the branch's segment starts."""
    size: int
    entry: str | None
    turn: int | None
    """The row id of the last turn that has an entry on the path, or None if there is no turn."""
    records: str
    """The row ids of the records that the head includes, as a JSON array."""
    token: int
    lease: bytes | None
    sealed: int
    """The position before which all entries of the segment are stored in packs."""
    loose: int
    """The size, in bytes of JSON, of the segment's entries that are still rows, from the position `sealed` on."""
    updated: int
    turn_data: bytes | None
    """The last turn on the path, encoded, or None if there is no turn."""


def find_conversation_id(db: Database, owner: str, conversation: str) -> int | None:
    """Return the row id of a conversation, or None if the conversation doesn't exist."""
    sql = "SELECT id FROM conversations WHERE owner = ? AND name = ?"
    number: int | None = db.execute(sql, (owner, conversation)).get
    return number


def read_branch(db: Database, owner: str, conversation: str, name: str) -> tuple[int | None, Branch | None]:
    """Return the row id of a conversation and its branch `name`. Each of them is None if it doesn't exist."""
    row = db.execute(_BRANCH, (name, owner, conversation)).fetchone()
    if row is None:
        return None, None
    return row[0], None if row[2] is None else Branch(name, *row)


def read_head(db: Database, branch: Branch, *, records: bool = True) -> BranchHead:
    """Return the head of a branch. With `records=False`, its records are left out."""
    return BranchHead(
        branch=branch.name,
        revision=branch.revision,
        size=branch.size,
        entry=branch.entry,
        token=branch.token,
        lease=decode_lease(branch.lease) if branch.lease else None,
        turn=decode_turn(branch.turn_data) if branch.turn_data else None,
        records=read_records(db, branch.records) if records else (),
        created=branch.created,
        updated=branch.updated,
    )


def read_records(db: Database, ids: str) -> tuple[PlacedRecord, ...]:
    """Return the records with these row ids, oldest first. `ids` is a JSON array."""
    if ids == "[]":
        return ()
    return tuple([PlacedRecord(_decode_record(data), position) for position, data in db.execute(_RECORDS, (ids,))])


def find_head_record_ids(db: Database, path: Sequence[Span[int]]) -> str:
    """Return the row ids of the records that the head of a branch with this path includes, as a JSON array."""
    rows: list[tuple[int, str]] = []
    for segment, _, stop in path:
        rows += db.execute("SELECT id, kind FROM records WHERE segment = ? AND place < ?", (segment, stop))
    return json.dumps([number for number, _ in list_head_records(sorted(rows), lambda row: row[1])])


def read_all_records(db: Database, path: Sequence[Span[int]], kind: str | None) -> list[PlacedRecord]:
    """Return all records on a path, or all records of one kind, oldest first."""
    found: list[tuple[int, int, bytes]] = []
    for segment, _, stop in path:
        sql = "SELECT id, place, data FROM records WHERE segment = ?1 AND place < ?2 AND (?3 IS NULL OR kind = ?3)"
        found += db.execute(sql, (segment, stop, kind)).fetchall()
    return [PlacedRecord(_decode_record(data), position) for _, position, data in sorted(found)]


def find_value_problems(db: Database, conversation: int) -> list[str]:
    """Describe each turn, lease and record of a conversation that can't be decoded."""
    problems: list[str] = []
    for label, sql, decode in (
        ("turn", "SELECT name, data FROM turns WHERE conversation = ? AND data IS NOT NULL", decode_turn),
        (
            "the lease of branch",
            "SELECT name, lease FROM branches WHERE conversation = ? AND lease IS NOT NULL",
            decode_lease,
        ),
        (
            "record",
            "SELECT r.id, r.data FROM segments s JOIN records r ON r.segment = s.id WHERE s.conversation = ?",
            _decode_record,
        ),
    ):
        for name, data in db.execute(sql, (conversation,)):
            try:
                decode(data)
            except ValueError as problem:
                problems.append(f"{label} {name!r} can't be decoded: {problem}")
    return problems


def read_metas(db: Database, path: Sequence[Span[int]], start: int, stop: int) -> dict[int, dict[str, Any]]:
    """Return the app's metadata of the entries at positions `start` to `stop - 1` of a path, by position."""
    found: dict[int, dict[str, Any]] = {}
    for segment, first, end in clip(path, start, stop):
        bounds = to_key(segment, first), to_key(segment, end)
        for key, data in db.execute("SELECT key, meta FROM entry_meta WHERE key >= ? AND key < ? ORDER BY key", bounds):
            found[to_position(key)] = meta_from_json(data)
    return found


def read_last_turn(db: Database, path: Sequence[Span[int]]) -> tuple[int, bytes] | None:
    """Return the row id and the encoded value of the last turn on a path, or None if the path has no turn."""
    for segment, start, stop in reversed(path):
        row: tuple[int, bytes] | None = db.execute(
            "SELECT t.id, t.data FROM runs r JOIN turns t ON t.id = r.turn"
            " WHERE r.key >= ? AND r.key < ? AND t.data IS NOT NULL ORDER BY r.key DESC LIMIT 1",
            (to_key(segment, start), to_key(segment, stop)),
        ).fetchone()
        if row is not None:
            return row
    return None


def find_turn_start(db: Database, turn: int, path: Sequence[Span[int]]) -> int | None:
    """Return the position of a turn's first entry on a path, or None if no entry of the turn is on the path."""
    ends = {segment: stop for segment, _, stop in path}
    keys = [split_key(key) for (key,) in db.execute("SELECT key FROM runs WHERE turn = ?", (turn,))]
    return min((position for segment, position in keys if position < ends.get(segment, 0)), default=None)


def read_keyed_turns(db: Database, owner: str, conversation: str, key: str | None = None) -> list[KeyedTurn]:
    """Return the turns of a conversation that were requested with an idempotency key, ordered by key.

    With `key`, return only the turn that was requested with this key.
    """
    sql = f"{_REQUESTS} ORDER BY r.key" if key is None else f"{_REQUESTS} AND r.key = ?"
    rows = db.execute(sql, (owner, conversation) if key is None else (owner, conversation, key)).fetchall()
    if not rows:
        return []
    heads = "SELECT name, segment, size FROM branches WHERE conversation = ? ORDER BY name"
    ends = {name: (segment, size) for name, segment, size in db.execute(heads, (rows[0][-1],)).fetchall()}
    paths: dict[str, list[Span[int]]] = {}
    found: list[KeyedTurn] = []
    for request_key, body, made_on, data, start, turn, _ in rows:
        branch, position = made_on, start
        # Prefer the branch on which the turn was made, as long as its path still contains the turn.
        for name in sorted(ends, key=lambda name: (name != made_on, name)):
            path = paths[name] = paths.get(name) or read_path(db, *ends[name])
            first = find_turn_start(db, turn, path)
            if first is not None:
                branch, position = name, first
                break
        found.append(KeyedTurn(KeyedRequest(request_key, body), branch, decode_turn(data), position))
    return found


def read_turns(db: Database, path: Sequence[Span[int]], start: int, stop: int) -> list[tuple[int, Turn]]:
    """Return the turns that begin at positions `start` to `stop - 1` of a path, each with its position."""
    return [(position, decode_turn(data)) for position, _, data in _read_turn_column(db, path, start, stop, "data")]


def read_manifests(db: Database, path: Sequence[Span[int]], start: int, stop: int) -> dict[str, bytes]:
    """Return the manifests of the turns that begin at positions `start` to `stop - 1` of a path, by turn id."""
    return {name: data for _, name, data in _read_turn_column(db, path, start, stop, "manifest") if data}


def _read_turn_column(
    db: Database, path: Sequence[Span[int]], start: int, stop: int, column: Literal["data", "manifest"]
) -> list[tuple[int, str, bytes]]:
    """Return the position, id and `column` of each turn that begins at positions `start` to `stop - 1` of a path."""
    found: list[tuple[int, str, bytes]] = []
    for segment, first, end in clip(path, start, stop):
        rows = db.execute(
            f"SELECT r.key, t.id, t.name, t.{column}, (SELECT count(*) FROM runs WHERE turn = t.id)"  # noqa: S608
            " FROM runs r JOIN turns t ON t.id = r.turn"
            " WHERE r.key >= ? AND r.key < ? AND t.data IS NOT NULL ORDER BY r.key",
            (to_key(segment, first), to_key(segment, end)),
        ).fetchall()
        for key, turn, name, data, runs in rows:
            position = to_position(key)
            if runs == 1 or find_turn_start(db, turn, path) == position:
                found.append((position, name, data))
    return found


def read_last_entry_id(db: Database, segment: int, size: int) -> str | None:
    """Return the id of the last entry of a path, or None if the path is empty.

    The path has `size` entries and ends in `segment`.
    """
    return read_pack(db, read_path(db, segment, size, size - 1), size - 1, size).entry(0).id if size else None
