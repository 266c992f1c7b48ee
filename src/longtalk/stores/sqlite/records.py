"""Records in the SQLite store.

A record is a row of `records`, attached to a position of a segment. The newest records of a branch can also be in the
branch's own row, in the column `latest`, if no other branch sees them and a later record will replace them: the row is
written by each commit anyway, so they cost no page. They are newer than all other records of the head. Before another
branch may see them, or a row is added after them, `move_latest_to_rows` turns them into rows.

Each function runs inside the caller's transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from longtalk.stores._paths import Span, find_segment, list_head_records
from longtalk.stores.base import Commit, PlacedRecord
from longtalk.stores.checks import check_record_positions
from longtalk.stores.sqlite.checksums import compute_checksum, update_row
from longtalk.stores.sqlite.database import Database
from longtalk.stores.sqlite.paths import read_path
from longtalk.transcript.record_kinds import KINDS, kind_of
from longtalk.transcript.transcript import Record

# A record that quotes entries must have a row, in which a redaction finds it.
_DISCARDABLE = tuple(
    kind
    for kind in KINDS
    if kind.newest_only and kind.may_discard_replaced and not kind.own_branch_only and not kind.quotes_entries
)
"""The kinds whose records the row of a branch may contain."""

decode_record = msgspec.msgpack.Decoder(Record).decode
_decode_pairs = msgspec.msgpack.Decoder(list[tuple[int, bytes]]).decode
_encode = msgspec.msgpack.Encoder().encode

_RECORDS = """
SELECT place, data FROM records WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id
"""
_INSERT = """
INSERT INTO records (id, segment, place, kind, data, checksum)
SELECT id, ?, ?, ?, ?, ? + id FROM (SELECT coalesce(max(id), 0) + 1 AS id FROM records)
"""
_WITH_LATEST = """
SELECT id, segment, size, records, latest FROM branches
WHERE conversation = ? AND name IS NOT ? AND latest IS NOT NULL
"""
_CONVERSATIONS_WITH = """
SELECT c.name FROM conversations c WHERE c.owner = ?1 AND EXISTS (
    SELECT 1 FROM branches b, json_each(b.records) j JOIN records r ON r.id = j.value
    WHERE b.conversation = c.id AND r.kind = ?2
)
"""
_LATEST_OF_OWNER = """
SELECT c.name, b.latest FROM conversations c JOIN branches b ON b.conversation = c.id
WHERE c.owner = ? AND b.latest IS NOT NULL
"""

RECORD_ROWS = """
CASE b.records WHEN '[]' THEN NULL ELSE (
    SELECT group_concat(place || ' ' || hex(data), ',' ORDER BY id) FROM records
    WHERE id IN (SELECT value FROM json_each(b.records))
) END
"""
"""The rows of the records of the branch `b`, for a query that reads the branch: each commit would need another one."""


class HeadRecords(msgspec.Struct, frozen=True):
    """The records of a branch head, oldest first."""

    ids: str
    """The row ids of the first of `placed`, as a JSON array."""
    latest: bytes | None
    """The rest of `placed`, which have no row of their own, encoded."""
    placed: tuple[PlacedRecord, ...]


# Reading


def read_records(db: Database, ids: str, latest: bytes | None) -> tuple[PlacedRecord, ...]:
    """Return the records of a head, oldest first: those with the row ids `ids`, a JSON array, and those in `latest`."""
    rows = db.execute(_RECORDS, (ids,)) if ids != "[]" else ()
    return tuple([PlacedRecord(decode_record(data), position) for position, data in (*rows, *_split_latest(latest))])


def decode_rows(rows: str | None) -> list[PlacedRecord]:
    """Decode the result of `RECORD_ROWS`. Raise `ValueError` if that is not possible."""
    pairs = [row.split(" ") for row in rows.split(",")] if rows else []
    return [PlacedRecord(decode_record(bytes.fromhex(data)), int(position)) for position, data in pairs]


def decode_latest(latest: bytes | None) -> list[PlacedRecord]:
    """Decode the column `latest` of a branch. Raise `ValueError` if that is not possible."""
    return [PlacedRecord(decode_record(data), position) for position, data in _split_latest(latest)]


def _split_latest(latest: bytes | None) -> list[tuple[int, bytes]]:
    """Return the position and the encoded value of each record in the column `latest` of a branch."""
    return _decode_pairs(latest) if latest else []


def find_head_record_ids(db: Database, path: Sequence[Span[int]]) -> str:
    """Return the row ids of the records that the head of a branch with this path includes, as a JSON array."""
    rows: list[tuple[int, str]] = []
    for segment, _, stop in path:
        rows += db.execute("SELECT id, kind FROM records WHERE segment = ? AND place < ?", (segment, stop))
    return json.dumps([number for number, _ in list_head_records(sorted(rows), lambda row: row[1])])


def read_all_records(
    db: Database, path: Sequence[Span[int]], latest: bytes | None, kind: str | None
) -> list[PlacedRecord]:
    """Return all records on a path, or all records of one kind, oldest first.

    `latest` is the column of the branch that has this path.
    """
    found: list[tuple[int, int, bytes]] = []
    for segment, _, stop in path:
        sql = "SELECT id, place, data FROM records WHERE segment = ?1 AND place < ?2 AND (?3 IS NULL OR kind = ?3)"
        found += db.execute(sql, (segment, stop, kind)).fetchall()
    newest = [placed for placed in decode_latest(latest) if kind in (None, placed.record.kind)]
    return [*(PlacedRecord(decode_record(data), position) for _, position, data in sorted(found)), *newest]


def list_conversations_with(db: Database, owner: str, kind: str) -> list[str]:
    """Return the conversations that have a record of this kind in a head. See `Store.conversations_with`."""
    names = [name for (name,) in db.execute(_CONVERSATIONS_WITH, (owner, kind))]
    if kind_of(kind) in _DISCARDABLE:
        rows = db.execute(_LATEST_OF_OWNER, (owner,))
        names += [name for name, latest in rows if any(each.record.kind == kind for each in decode_latest(latest))]
    return list(dict.fromkeys(names))


def count_latest(db: Database, conversation: int) -> int:
    """Return how many records of a conversation have no row of their own."""
    rows = db.execute(_WITH_LATEST, (conversation, None)).fetchall()
    return sum(len(_split_latest(latest)) for *_, latest in rows)


def has_own_records(db: Database, segment: int) -> bool:
    """Return whether a segment has a record that only the segment's own branch may see."""
    kinds = json.dumps([kind.name for kind in KINDS if kind.own_branch_only])
    query = "SELECT EXISTS (SELECT 1 FROM records WHERE segment = ? AND kind IN (SELECT value FROM json_each(?)))"
    return bool(db.execute(query, (segment, kinds)).get)


def find_last_fork(db: Database, conversation: int, segment: int) -> int:
    """Return the last position at which another segment forks off a segment, or -1 if no segment does."""
    position: int = db.execute(
        "SELECT coalesce(max(base), -1) FROM segments WHERE conversation = ? AND up = ?", (conversation, segment)
    ).get
    return position


# Writing


def move_latest_to_rows(db: Database, conversation: int, *, skip: str | None = None) -> None:
    """Give the latest records of each branch of a conversation, except branch `skip`, rows of their own."""
    for branch, segment, size, ids, latest in db.execute(_WITH_LATEST, (conversation, skip)).fetchall():
        path = read_path(db, segment, size)
        rows = json.loads(ids)
        for position, data in _split_latest(latest):
            rows.append(_insert(db, find_segment(path, position), position, decode_record(data).kind, data))
        update_row(db, "branches", branch, records=json.dumps(rows), latest=None)


def _insert(db: Database, segment: int, position: int, kind: str, data: bytes) -> int:
    """Insert a row and return its id."""
    row = segment, position, kind, data
    db.execute(_INSERT, (*row, compute_checksum(*row)))
    return db.last_insert_rowid()


def store_records(
    db: Database, conversation: int, tip: Span[int], head: HeadRecords, commit: Commit
) -> tuple[HeadRecords, bool]:
    """Store the records of a commit, and leave records that the commit declares obsolete out of the head.

    `tip` is the last span of the branch's path and `head` its records, both before the commit. Returns the records of
    the new head, and whether a new record may be visible on other branches.
    """
    if not commit.records and not commit.obsolete:
        return head, False
    size = tip.stop + len(commit.entries)
    check_record_positions(commit.records, size)
    ids = [] if head.ids == "[]" else json.loads(head.ids)
    rows = {id: placed for id, placed in zip(ids, head.placed, strict=False) if placed.record not in commit.obsolete}  # noqa: A001
    kinds = {placed.record.kind for placed in commit.records}
    held = zip(head.placed[len(ids) :], _split_latest(head.latest), strict=True)
    latest = [(placed, data) for placed, (_, data) in held if placed.record.kind not in kinds]
    new = [(placed, _encode(placed.record)) for placed in commit.records]
    first = _find_first_for_branch(commit.records, tip.stop)
    as_rows, in_branch = new[:first], new[first:]
    discards = any(placed.record.kind in kinds and _is_discardable(placed) for placed in rows.values())
    last_fork = find_last_fork(db, conversation, tip.segment) if as_rows or discards else -1
    shared = False
    path = [tip]
    if as_rows:
        # No other branch sees a record of a kind that is for its own branch only.
        visible = [placed.position for placed, _ in as_rows if not kind_of(placed.record.kind).own_branch_only]
        lowest = min(visible, default=size)
        shared = lowest < tip.start or last_fork > lowest
        if shared:
            move_latest_to_rows(db, conversation, skip=commit.branch)
        # Records of the head are ordered by age, so the latest ones can't stay behind these rows.
        as_rows, latest = [*latest, *as_rows], []
        lowest = min(placed.position for placed, _ in as_rows)
        path = [tip._replace(stop=size)] if lowest >= tip.start else read_path(db, tip.segment, size, lowest)
    for i, (placed, data) in enumerate((*as_rows, *in_branch)):
        name = placed.record.kind
        kind = kind_of(name)
        replaced = [id for id, old in rows.items() if kind.newest_only and old.record.kind == name]  # noqa: A001
        if i < len(as_rows):
            segment = tip.segment if kind.own_branch_only else find_segment(path, placed.position)
            rows[_insert(db, segment, placed.position, name, data)] = placed
        else:
            latest = [each for each in latest if each[0].record.kind != name] + [(placed, data)]
        for id in replaced:  # noqa: A001
            old = rows.pop(id)
            if kind.may_discard_replaced and tip.start <= old.position >= last_fork:
                db.execute("DELETE FROM records WHERE id = ?", (id,))
    encoded = _encode([(placed.position, data) for placed, data in latest]) if latest else None
    row_ids = json.dumps(list(rows)) if rows else "[]"
    return HeadRecords(row_ids, encoded, (*rows.values(), *[placed for placed, _ in latest])), shared


def _find_first_for_branch(records: Sequence[PlacedRecord], size: int) -> int:
    """Return the index from which on all records of a commit can be stored in the branch's own row.

    The path had `size` entries before the commit. No other branch sees the entries that the commit adds.
    """
    first = len(records)
    while first and records[first - 1].position >= size and _is_discardable(records[first - 1]):
        first -= 1
    return first


def _is_discardable(placed: PlacedRecord) -> bool:
    """Return whether a record is useless to every branch once a newer one of its kind replaces it."""
    return kind_of(placed.record.kind) in _DISCARDABLE
