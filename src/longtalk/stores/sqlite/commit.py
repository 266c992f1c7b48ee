"""Commits in the SQLite store.

Each function runs inside the caller's write transaction, so an exception leaves nothing written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from longtalk.stores._paths import Span, find_base, find_segment
from longtalk.stores._rows import to_ascii_json
from longtalk.stores.base import BranchHead, Commit, HeadMoved, PlacedRecord, RequestKeyTaken
from longtalk.stores.checks import check_commit, check_parents, check_record_positions
from longtalk.stores.sqlite.branches import (
    Branch,
    decode_turn,
    find_head_record_ids,
    find_turn_start,
    read_branch,
    read_head,
    read_last_entry_id,
    read_last_turn,
    read_records,
)
from longtalk.stores.sqlite.database import DamagedData, Database
from longtalk.stores.sqlite.paths import MAX_PATH, MAX_ROW_BYTES, pack_oldest_rows, read_path, to_key
from longtalk.transcript.pack import Entry, checksum
from longtalk.transcript.pack_index import MAX_COUNT
from longtalk.transcript.record_kinds import KINDS, kind_of
from longtalk.transcript.transcript import Turn

_encode = msgspec.msgpack.Encoder().encode

_INSERT_ENTRY = """
INSERT INTO entries (key, turn, number, parent, kind, role, wire, at, mark, bound, tokens, native, crc)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_INSERT_TURN = """
INSERT INTO turns (conversation, name, data, manifest) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_INSERT_BRANCH = """
INSERT INTO branches (revision, segment, base, size, entry, turn, records, token, lease, sealed, loose, stale, updated,
    conversation, name)
VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_UPDATE_BRANCH = """
UPDATE branches SET revision = revision + 1, segment = ?, base = ?, size = ?, entry = ?, turn = ?, records = ?,
    token = ?, lease = ?, sealed = ?, loose = ?, stale = stale OR ?, updated = ?
WHERE id = ? AND revision = ?
"""


class Tip(NamedTuple):
    """The end of the path that a commit appends to."""

    segment: int
    base: int
    """The position at which the segment starts."""
    size: int
    entry: str | None
    turn: int | None
    """The row id of the last turn that has an entry on the path, or None if there is no turn."""
    turn_data: bytes | None
    """The last turn on the path, encoded, or None if there is no turn."""
    record_ids: str
    """The row ids of the records in `records`, as a JSON array."""
    records: tuple[PlacedRecord, ...]
    sealed: int
    """The position before which all entries of the segment are stored in packs."""
    loose: int
    """The size, in bytes of JSON, of the segment's entries that are still rows, from the position `sealed` on."""


def apply_commit(db: Database, owner: str, name: str, commit: Commit, *, compress: bool) -> BranchHead:
    """Apply a commit and return the new head of its branch. See `Store.write` for the exceptions.

    With `compress`, entries are compressed when they are moved into packs.
    """
    conversation, branch = read_branch(db, owner, name, commit.branch)
    head = read_head(db, branch) if branch else None
    source = read_branch(db, owner, name, commit.source[0])[1] if commit.source and not branch else None
    check_commit(head, commit, read_head(db, source, records=False) if source else None)
    if source and commit.source and commit.source_entry not in (None, _read_source_entry(db, source, commit)):
        raise HeadMoved(read_head(db, source))
    meta = None if commit.meta is None else to_ascii_json(commit.meta)
    if conversation is None:
        conversation = _insert_conversation(db, owner, name, commit, meta)
    else:
        db.execute(
            "UPDATE conversations SET updated = max(updated, ?), entries = entries + ?, meta = coalesce(?, meta)"
            " WHERE id = ?",
            (commit.at, len(commit.entries), meta, conversation),
        )
    tip = _prepare_tip(db, conversation, branch, head, source, commit)
    tip = _isolate_own_records(db, conversation, tip, commit)
    size = tip.size + len(commit.entries)
    runs = _insert_entries(db, tip, commit)
    turn, turn_data, late = _store_turns(db, conversation, tip, runs, commit)
    ids, records, shared = _store_records(db, conversation, tip, size, commit)

    sealed, loose = tip.sealed, tip.loose + sum([len(entry.native) for entry in commit.entries])
    if loose > (MAX_ROW_BYTES // 2 if compress else MAX_ROW_BYTES):
        sealed, loose = pack_oldest_rows(db, tip.segment, sealed, size, compress=compress)
    last = commit.entries[-1].id if commit.entries else tip.entry
    token = max(head.token if head else 0, commit.lease.token if commit.lease else 0)
    lease = _encode(commit.lease) if commit.lease else None
    stale = bool(commit.entries) or branch is None or tip.segment != branch.segment
    row = (tip.segment, tip.base, size, last, turn, ids, token, lease, sealed, loose, stale, commit.at)
    if branch is None:
        db.execute(_INSERT_BRANCH, (*row, conversation, commit.branch))
    else:
        db.execute(_UPDATE_BRANCH, (*row, branch.id, commit.expect))
        if db.changes() != 1:
            raise DamagedData(f"the row of branch {commit.branch!r} changed during a transaction")
    if shared or late:
        refresh_heads(db, conversation, skip=commit.branch)
    return BranchHead(
        branch=commit.branch,
        revision=commit.expect + 1,
        size=size,
        entry=last,
        token=token,
        lease=commit.lease,
        turn=decode_turn(turn_data) if turn_data else None,
        records=records,
        created=head.created if head else _read_created(db, conversation),
        updated=commit.at,
    )


def refresh_heads(db: Database, conversation: int, *, skip: str | None = None) -> None:
    """Recompute the records and the last turn in each branch head of a conversation, except that of branch `skip`."""
    rows = db.execute(
        "SELECT id, segment, size FROM branches WHERE conversation = ? AND name IS NOT ?", (conversation, skip)
    ).fetchall()
    for id, segment, size in rows:  # noqa: A001
        path = read_path(db, segment, size)
        turn, _ = read_last_turn(db, path) or (None, None)
        db.execute("UPDATE branches SET records = ?, turn = ? WHERE id = ?", (find_head_record_ids(db, path), turn, id))


def _read_source_entry(db: Database, source: Branch, commit: Commit) -> str | None:
    """Return the id of the last entry that a new branch takes from `source`, or None if the commit doesn't check it."""
    return read_last_entry_id(db, source.segment, commit.source[1]) if commit.source and commit.source_entry else None


def _insert_conversation(db: Database, owner: str, name: str, commit: Commit, meta: bytes | None) -> int:
    db.execute(
        "INSERT INTO conversations (owner, name, created, updated, entries, meta) VALUES (?, ?, ?, ?, ?, ?)",
        (owner, name, commit.at, commit.at, len(commit.entries), meta or b"{}"),
    )
    return db.last_insert_rowid()


def _read_created(db: Database, conversation: int) -> int:
    at: int = db.execute("SELECT created FROM conversations WHERE id = ?", (conversation,)).get
    return at


def _prepare_tip(
    db: Database,
    conversation: int,
    branch: Branch | None,
    head: BranchHead | None,
    source: Branch | None,
    commit: Commit,
) -> Tip:
    """Return the tip that a commit appends to. For a new branch or a cut, create a new segment."""
    size = branch.size if branch else commit.source[1] if commit.source else 0
    start = size if commit.cut is None else commit.cut
    if branch is not None and head is not None and start == size:
        return Tip(
            *(branch.segment, branch.base, size, branch.entry, branch.turn, branch.turn_data),
            *(branch.records, head.records, branch.sealed, branch.loose),
        )
    origin = branch or source
    up = None
    if origin is not None:
        path = read_path(db, origin.segment, origin.size)
        # Even a path that is cut to no entries keeps the records that are attached before its first entry.
        up = find_base(path, start, lambda each: _has_own_records(db, each))
    segment = _insert_segment(db, conversation, up, start)
    path = read_path(db, segment, start)
    turn, turn_data = read_last_turn(db, path) or (None, None)
    ids = find_head_record_ids(db, path)
    entry = read_last_entry_id(db, up, start) if up is not None else None
    return Tip(segment, start, start, entry, turn, turn_data, ids, read_records(db, ids), start, 0)


def _insert_segment(db: Database, conversation: int, up: int | None, base: int) -> int:
    db.execute(
        "INSERT INTO segments (conversation, up, base, indexed) VALUES (?, ?, ?, ?)", (conversation, up, base, base)
    )
    return db.last_insert_rowid()


def _has_own_records(db: Database, segment: int) -> bool:
    """Return whether a segment has a record that only the segment's own branch may see."""
    kinds = json.dumps([kind.name for kind in KINDS if kind.own_branch_only])
    query = "SELECT EXISTS (SELECT 1 FROM records WHERE segment = ? AND kind IN (SELECT value FROM json_each(?)))"
    return bool(db.execute(query, (segment, kinds)).get)


def _isolate_own_records(db: Database, conversation: int, tip: Tip, commit: Commit) -> Tip:
    """Return `tip`, moved to a new segment if records of the commit must be hidden from other branches.

    This is needed if a record is meant for this branch only and another branch forks off after the record's position.
    """
    own = [placed.position for placed in commit.records if kind_of(placed.record.kind).own_branch_only]
    if not own or _find_last_fork(db, conversation, tip) <= min(own):
        return tip
    segment = _insert_segment(db, conversation, tip.segment, tip.size)
    return tip._replace(segment=segment, base=tip.size, sealed=tip.size, loose=0)


def _find_last_fork(db: Database, conversation: int, tip: Tip) -> int:
    """Return the last position at which another segment forks off the tip's segment, or -1 if no segment does."""
    position: int = db.execute(
        "SELECT coalesce(max(base), -1) FROM segments WHERE conversation = ? AND up = ?", (conversation, tip.segment)
    ).get
    return position


def _insert_entries(db: Database, tip: Tip, commit: Commit) -> list[tuple[int, str, int]]:
    """Insert the entries of a commit, and return the runs that begin among them.

    A run is a sequence of entries of one turn with consecutive numbers. Each is returned as a tuple of the position of
    its first entry, the turn's id, and the number of that entry in the turn.
    """
    check_parents(tip.entry, commit.entries)
    if tip.size + len(commit.entries) >= MAX_PATH:
        raise ValueError(f"a path can have at most {MAX_PATH - 1} entries: start a new conversation")
    last, following = "", -1
    if tip.entry is not None and tip.size > tip.base:
        last, _, count = tip.entry.rpartition("-")
        following = int(count) + 1
    runs: list[tuple[int, str, int]] = []
    rows = []
    for position, entry in enumerate(commit.entries, tip.size):
        number = _parse_entry_number(entry)
        if entry.turn != last or number != following:
            runs.append((position, entry.turn, number))
        last, following = entry.turn, number + 1
        rows.append(
            (
                *(to_key(tip.segment, position), entry.turn, number, entry.parent, entry.kind, entry.role, entry.wire),
                *(entry.at, entry.mark, entry.bound, entry.tokens, entry.native, checksum(entry.native)),
            )
        )
    db.executemany(_INSERT_ENTRY, rows)
    for i, meta in commit.entry_meta.items():
        db.execute("INSERT INTO entry_meta VALUES (?, ?)", (to_key(tip.segment, tip.size + i), to_ascii_json(meta)))
    return runs


def _parse_entry_number(entry: Entry) -> int:
    """Return the number of an entry within its turn.

    Raises `ValueError` if the entry's id, time or token count is invalid.
    """
    number = entry.id[len(entry.turn) + 1 :]
    if entry.id != f"{entry.turn}-{number}" or not number.isdecimal() or str(int(number[:12])) != number:
        raise ValueError(f"entry id {entry.id!r} must be the turn's id {entry.turn!r}, a hyphen and a number")
    if not 0 <= entry.tokens <= MAX_COUNT or not 0 <= entry.at <= MAX_COUNT or int(number) >= 2**32 - 1:
        raise ValueError(f"the token count, time or number of entry {entry.id!r} is out of range")
    return int(number)


def _store_turns(
    db: Database, conversation: int, tip: Tip, runs: Sequence[tuple[int, str, int]], commit: Commit
) -> tuple[int | None, bytes | None, bool]:
    """Store the turn and the runs of a commit.

    Returns the row id and the encoded value of the last turn on the path, and whether an earlier commit had already
    stored entries of the commit's turn without the turn itself. In that case, other branches may contain these entries,
    and their last turn may change too.
    """
    new = commit.turn
    known: dict[str, tuple[int, bytes | None]] = {}
    if tip.turn is not None and tip.turn_data is not None:
        known[decode_turn(tip.turn_data).id] = tip.turn, tip.turn_data
    fresh = set()
    for name in {*[name for _, name, _ in runs], *([new.id] if new else [])}.difference(known):
        data = _encode(new) if new and new.id == name else None
        db.execute(_INSERT_TURN, (conversation, name, data, commit.manifest or None if data else None))
        if db.changes():
            fresh.add(name)
            known[name] = db.last_insert_rowid(), data
        else:
            sql = "SELECT id, data FROM turns WHERE conversation = ? AND name = ?"
            known[name] = db.execute(sql, (conversation, name)).fetchone()
    for position, name, number in runs:
        db.execute("INSERT INTO runs VALUES (?, ?, ?)", (to_key(tip.segment, position), known[name][0], number))
    late = False
    if new is not None:
        is_new = new.id in fresh
        id, stored = known[new.id]  # noqa: A001
        if not is_new:
            known[new.id] = id, encode_turn(new, stored)
            db.execute(
                "UPDATE turns SET data = ?, manifest = coalesce(?, manifest) WHERE id = ?",
                (known[new.id][1], commit.manifest or None, id),
            )
        late = stored is None
        first = next((position for position, name, _ in runs if name == new.id), None)
        if late or (commit.request and not is_new):
            first = find_turn_start(db, id, read_path(db, tip.segment, tip.size + len(commit.entries)))
        if first is None and (stored is None or is_new):
            raise ValueError(f"turn {new.id!r} has no entries: commit it together with its first entry")
        _store_request(db, conversation, id, first, commit)
        if tip.turn == id:
            tip = tip._replace(turn_data=known[new.id][1])
    if late:
        return *(read_last_turn(db, read_path(db, tip.segment, tip.size + len(commit.entries))) or (None, None)), True
    last = next((known[name] for _, name, _ in reversed(runs) if known[name][1]), (tip.turn, tip.turn_data))
    return *last, False


def encode_turn(turn: Turn, stored: bytes | None) -> bytes:
    """Encode a turn. Keep fields that a newer version of Longtalk added to `stored`, the version it replaces."""
    data = _encode(turn)
    if stored is None or stored[0] == data[0]:
        return data
    fields = msgspec.msgpack.decode(data)
    return _encode([*fields, *msgspec.msgpack.decode(stored)[len(fields) :]])


def _store_request(db: Database, conversation: int, turn: int, position: int | None, commit: Commit) -> None:
    """Store the idempotency key of a turn's request. Raise `RequestKeyTaken` if another turn has this key."""
    request = commit.request
    if request is None:
        return
    sql = "SELECT turn FROM requests WHERE conversation = ? AND key = ?"
    known = db.execute(sql, (conversation, request.key)).get
    if known is None:
        db.execute(
            "INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?)",
            (conversation, request.key, request.body, commit.branch, turn, position or 0),
        )
    elif known != turn:
        raise RequestKeyTaken(request.key)


def _store_records(
    db: Database, conversation: int, tip: Tip, size: int, commit: Commit
) -> tuple[str, tuple[PlacedRecord, ...], bool]:
    """Store the records of a commit, and leave records that the commit declares obsolete out of the head.

    Returns the row ids of the records in the new head as a JSON array, these records, and whether a new record may be
    visible on other branches.
    """
    new = commit.records
    if not new and not commit.obsolete:
        return tip.record_ids, tip.records, False
    in_head = dict(zip(json.loads(tip.record_ids), tip.records, strict=True))
    if commit.obsolete:
        in_head = {row_id: placed for row_id, placed in in_head.items() if placed.record not in commit.obsolete}
    if not new:
        return json.dumps(list(in_head)), tuple(in_head.values()), False
    check_record_positions(new, size)
    lowest = min(placed.position for placed in new)
    path = [Span(tip.segment, tip.base, size)] if lowest >= tip.base else read_path(db, tip.segment, size, lowest)
    last_fork = _find_last_fork(db, conversation, tip)
    for placed in new:
        kind_name = placed.record.kind
        kind = kind_of(kind_name)
        replaced = [row_id for row_id, old in in_head.items() if kind.newest_only and old.record.kind == kind_name]
        segment = tip.segment if kind.own_branch_only else find_segment(path, placed.position)
        row = (segment, placed.position, kind_name, _encode(placed.record))
        db.execute("INSERT INTO records (segment, place, kind, data) VALUES (?, ?, ?, ?)", row)
        new_id = db.last_insert_rowid()
        for row_id in replaced:
            old = in_head.pop(row_id)
            if kind.may_discard_replaced and tip.base <= old.position >= last_fork:
                db.execute("DELETE FROM records WHERE id = ?", (row_id,))
        in_head[new_id] = placed
    shared = lowest < tip.base or last_fork > lowest
    return json.dumps(list(in_head)), tuple(in_head.values()), shared
