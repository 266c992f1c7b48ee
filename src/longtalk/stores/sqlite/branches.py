"""Queries of the SQLite store for branch heads and requests.

Each function runs inside the caller's transaction and only reads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from longtalk.stores._paths import Span, clip
from longtalk.stores._rows import meta_from_json
from longtalk.stores.base import BranchHead, KeyedRequest, KeyedTurn, Lease
from longtalk.stores.sqlite.checksums import is_intact
from longtalk.stores.sqlite.database import DamagedData, Database
from longtalk.stores.sqlite.paths import read_pack, read_path, to_key, to_position
from longtalk.stores.sqlite.records import RECORD_ROWS, HeadRecords, decode_latest, decode_rows
from longtalk.stores.sqlite.turns import TURN_DATA, StoredTurn, decode_turn, find_turn_start, join_turns

decode_lease = msgspec.msgpack.Decoder(Lease).decode

_COLUMNS = f"""
c.id, c.created, b.id, b.revision, b.segment, b.base, b.size, b.entry, b.turn, b.records, b.token, b.lease,
b.sealed, b.loose, b.updated, b.written, b.latest, b.checksum, b.stale, c.active, {TURN_DATA}, {RECORD_ROWS}
"""
_NEWEST = f"""
SELECT c.name, b.name, {_COLUMNS}
FROM json_each(?) AS wanted CROSS JOIN conversations c ON c.owner = ? AND c.name = wanted.value
CROSS JOIN branches b ON b.conversation = c.id {join_turns("b.turn")}
WHERE b.id IN (SELECT id FROM branches WHERE conversation = c.id ORDER BY updated DESC, name LIMIT ?)
ORDER BY wanted.key, b.updated DESC, b.name
"""  # noqa: S608
_BRANCH = f"""
SELECT {_COLUMNS}
FROM conversations c LEFT JOIN branches b ON b.conversation = c.id AND b.name = ? {join_turns("b.turn")}
WHERE c.owner = ? AND c.name = ?
"""  # noqa: S608
_REQUESTS = f"""
SELECT r.key, r.body, r.branch, {TURN_DATA}, r.place, r.turn, c.id
FROM conversations c JOIN requests r ON r.conversation = c.id {join_turns("r.turn")}
WHERE c.owner = ? AND c.name = ?
"""  # noqa: S608


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
    written: int
    """The number of entries that were ever added to the branch."""
    latest: bytes | None
    """The records of the head that have no row of their own, encoded. They are newer than those in `records`."""
    checksum: int | None
    stale: bool
    """Whether the path may have entries that are not indexed for search."""
    active: bool
    """Whether the conversation is marked as active."""
    turn_data: bytes | None
    """The last turn on the path, encoded, or None if there is no turn."""
    record_rows: str | None
    """The rows of the records in `records`, as `decode_rows` reads them; None if there are none."""


class Tip(msgspec.Struct, frozen=True):
    """The end of the path that a commit appends to."""

    segment: int
    base: int
    """The position at which the segment starts."""
    size: int
    entry: str | None
    turn: StoredTurn | None
    """The last turn that has an entry on the path, or None if there is no turn."""
    records: HeadRecords
    sealed: int
    """The position before which all entries of the segment are stored in packs."""
    loose: int
    """The size, in bytes of JSON, of the segment's entries that are still rows, from the position `sealed` on."""


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


def read_newest_heads(db: Database, owner: str, conversations: Sequence[str], most: int) -> dict[str, list[BranchHead]]:
    """Return the heads of the branches of some conversations that were changed last, at most `most` of each."""
    found: dict[str, list[BranchHead]] = {}
    for conversation, branch, *row in db.execute(_NEWEST, (json.dumps(conversations), owner, most)):
        found.setdefault(conversation, []).append(read_head(Branch(branch, *row)))
    return found


def check_branch(branch: Branch) -> None:
    """Raise `DamagedData` if the row of a branch has a wrong checksum."""
    row = (
        *(branch.checksum, branch.conversation, branch.name, branch.revision, branch.segment, branch.base, branch.size),
        *(branch.entry, branch.turn, branch.records, branch.latest, branch.token, branch.lease, branch.sealed),
        *(branch.loose, branch.updated, branch.written),
    )
    if not is_intact(*row):
        raise DamagedData(f"the row of branch {branch.name!r} has a wrong checksum")


def read_head(branch: Branch, *, records: bool = True) -> BranchHead:
    """Return the head of a branch. With `records=False`, its records are left out."""
    return BranchHead(
        branch=branch.name,
        revision=branch.revision,
        size=branch.size,
        entry=branch.entry,
        token=branch.token,
        lease=decode_lease(branch.lease) if branch.lease else None,
        turn=decode_turn(branch.turn_data) if branch.turn_data else None,
        records=(*decode_rows(branch.record_rows), *decode_latest(branch.latest)) if records else (),
        created=branch.created,
        updated=branch.updated,
    )


def read_metas(db: Database, path: Sequence[Span[int]], start: int, stop: int) -> dict[int, dict[str, Any]]:
    """Return the app's metadata of the entries at positions `start` to `stop - 1` of a path, by position."""
    found: dict[int, dict[str, Any]] = {}
    for segment, first, end in clip(path, start, stop):
        bounds = to_key(segment, first), to_key(segment, end)
        for key, data in db.execute("SELECT key, meta FROM entry_meta WHERE key >= ? AND key < ? ORDER BY key", bounds):
            found[to_position(key)] = meta_from_json(data)
    return found


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


def read_last_entry_id(db: Database, segment: int, size: int) -> str | None:
    """Return the id of the last entry of a path, or None if the path is empty.

    The path has `size` entries and ends in `segment`.
    """
    return read_pack(db, read_path(db, segment, size, size - 1), size - 1, size).entry(0).id if size else None
