"""Commits in the SQLite store.

Each function runs inside the caller's write transaction, so an exception leaves nothing written.
"""

from __future__ import annotations

import msgspec

from longtalk.stores._paths import Span, find_base
from longtalk.stores._rows import to_ascii_json
from longtalk.stores.base import BranchHead, Commit, HeadMoved, KeyedRequest, RequestKeyTaken
from longtalk.stores.checks import check_commit, check_parents
from longtalk.stores.sqlite.branches import (
    Branch,
    Tip,
    check_branch,
    read_branch,
    read_head,
    read_last_entry_id,
)
from longtalk.stores.sqlite.checksums import compute_checksum, update_row
from longtalk.stores.sqlite.conversations import insert_conversation, note_commit
from longtalk.stores.sqlite.database import PENDING_PURGE, DamagedData, Database
from longtalk.stores.sqlite.paths import MAX_PATH, MAX_ROW_BYTES, pack_oldest_rows, read_path, to_key
from longtalk.stores.sqlite.records import (
    HeadRecords,
    find_head_record_ids,
    find_last_fork,
    has_own_records,
    move_latest_to_rows,
    read_records,
    store_records,
)
from longtalk.stores.sqlite.turns import (
    MAX_NATIVE,
    StoredTurn,
    decode_turn,
    encode_turn,
    find_runs,
    find_turn_start,
    read_last_turn,
    read_turn,
    store_turn_keys,
    update_turn,
    with_checksums,
)
from longtalk.transcript.pack import Entry
from longtalk.transcript.pack_index import MAX_COUNT
from longtalk.transcript.record_kinds import kind_of

_encode = msgspec.msgpack.Encoder().encode

_INSERT_ENTRY = """
INSERT INTO entries (key, turn, number, parent, kind, role, wire, at, mark, bound, tokens, native,
    checksum, turn_data, turn_checksum, manifest, manifest_checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_INSERT_BRANCH = f"""
INSERT INTO branches (stale, conversation, name, revision, segment, base, size, entry, turn, records, latest, token,
    lease, sealed, loose, updated, written, checksum)
VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
RETURNING ({PENDING_PURGE})
"""  # noqa: S608
_UPDATE_BRANCH = f"""
UPDATE branches SET revision = ?, segment = ?, base = ?, size = ?, entry = ?, turn = ?, records = ?, latest = ?,
    token = ?, lease = ?, sealed = ?, loose = ?, updated = ?, written = ?, checksum = ?
WHERE id = ? AND revision = ?
RETURNING ({PENDING_PURGE})
"""  # noqa: S608
_UPDATE_STALE_BRANCH = _UPDATE_BRANCH.replace("SET", "SET stale = 1,")


def apply_commit(
    db: Database, owner: str, name: str, commit: Commit, *, compress: bool
) -> tuple[BranchHead, int | None]:
    """Apply a commit. Return the new head of its branch, and the value of `PENDING_PURGE`, which saves another query.

    See `Store.write` for the exceptions. With `compress`, entries are compressed when they are moved into packs.
    """
    conversation, branch = read_branch(db, owner, name, commit.branch)
    head = read_head(branch) if branch else None
    if branch is not None:
        check_branch(branch)
    source = read_branch(db, owner, name, commit.source[0])[1] if commit.source and not branch else None
    check_commit(head, commit, read_head(source, records=False) if source else None)
    if source and commit.source and commit.source_entry not in (None, _read_source_entry(db, source, commit)):
        raise HeadMoved(read_head(source))
    meta = None if commit.meta is None else to_ascii_json(commit.meta)
    if conversation is None:
        conversation = insert_conversation(db, owner, name, commit.at, meta)
    else:
        note_commit(db, owner, conversation, branch, commit.at, meta)
    tip = _prepare_tip(db, conversation, branch, head, source, commit)
    tip = _isolate_own_records(db, conversation, tip, commit)
    size = tip.size + len(commit.entries)
    turn, late = _store_entries(db, conversation, tip, commit)
    records, shared = store_records(db, conversation, Span(tip.segment, tip.base, tip.size), tip.records, commit)

    sealed, loose = tip.sealed, tip.loose + sum([len(entry.native) for entry in commit.entries])
    if loose > (MAX_ROW_BYTES // 2 if compress else MAX_ROW_BYTES):
        sealed, loose = pack_oldest_rows(db, tip.segment, sealed, size, compress=compress)
    last = commit.entries[-1].id if commit.entries else tip.entry
    token = max(head.token if head else 0, commit.lease.token if commit.lease else 0)
    lease = _encode(commit.lease) if commit.lease else None
    stale = bool(commit.entries) or branch is None or tip.segment != branch.segment
    written = len(commit.entries) + (branch.written if branch else 0)
    row = (
        *(commit.expect + 1, tip.segment, tip.base, size, last, turn and turn.id, records.ids, records.latest, token),
        *(lease, sealed, loose, commit.at, written),
    )
    checksum = compute_checksum(conversation, commit.branch, *row)
    if branch is None:
        returned = db.execute(_INSERT_BRANCH, (conversation, commit.branch, *row, checksum)).fetchall()
    else:
        # SQLite writes an index if the update names one of its columns, even if its value stays the same.
        update = _UPDATE_BRANCH if branch.stale or not stale else _UPDATE_STALE_BRANCH
        returned = db.execute(update, (*row, checksum, branch.id, commit.expect)).fetchall()
    if len(returned) != 1:
        raise DamagedData(f"the row of branch {commit.branch!r} changed during a transaction")
    if shared or late:
        refresh_heads(db, conversation, skip=commit.branch)
    new_head = BranchHead(
        branch=commit.branch,
        revision=commit.expect + 1,
        size=size,
        entry=last,
        token=token,
        lease=commit.lease,
        turn=decode_turn(turn.data) if turn and turn.data else None,
        records=records.placed,
        created=head.created if head else _read_created(db, conversation),
        updated=commit.at,
    )
    return new_head, returned[0][0]


def refresh_heads(db: Database, conversation: int, *, skip: str | None = None) -> None:
    """Recompute the records and the last turn in each branch head of a conversation, except that of branch `skip`."""
    move_latest_to_rows(db, conversation, skip=skip)
    rows = db.execute(
        "SELECT id, segment, size FROM branches WHERE conversation = ? AND name IS NOT ?", (conversation, skip)
    ).fetchall()
    for id, segment, size in rows:  # noqa: A001
        path = read_path(db, segment, size)
        turn = read_last_turn(db, path)
        update_row(db, "branches", id, records=find_head_record_ids(db, path), turn=turn and turn.id)


def _read_source_entry(db: Database, source: Branch, commit: Commit) -> str | None:
    """Return the id of the last entry that a new branch takes from `source`, or None if the commit doesn't check it."""
    return read_last_entry_id(db, source.segment, commit.source[1]) if commit.source and commit.source_entry else None


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
        turn = None if branch.turn is None else StoredTurn(branch.turn, branch.turn_data)
        return Tip(
            *(branch.segment, branch.base, size, branch.entry, turn),
            *(HeadRecords(branch.records, branch.latest, head.records), branch.sealed, branch.loose),
        )
    origin = branch or source
    up = None
    if origin is not None:
        move_latest_to_rows(db, conversation)
        path = read_path(db, origin.segment, origin.size)
        # Even a path that is cut to no entries keeps the records that are attached before its first entry.
        up = find_base(path, start, lambda each: has_own_records(db, each))
    segment = _insert_segment(db, conversation, up, start)
    path = read_path(db, segment, start)
    turn = read_last_turn(db, path)
    ids = find_head_record_ids(db, path)
    entry = read_last_entry_id(db, up, start) if up is not None else None
    records = HeadRecords(ids, None, read_records(db, ids, None))
    return Tip(segment, start, start, entry, turn, records, start, 0)


def _insert_segment(db: Database, conversation: int, up: int | None, base: int) -> int:
    row = conversation, up, base
    db.execute(
        "INSERT INTO segments (conversation, up, base, indexed, checksum) VALUES (?, ?, ?, ?, ?)",
        (*row, base, compute_checksum(*row)),
    )
    return db.last_insert_rowid()


def _isolate_own_records(db: Database, conversation: int, tip: Tip, commit: Commit) -> Tip:
    """Return `tip`, moved to a new segment if records of the commit must be hidden from other branches.

    This is needed if a record is meant for this branch only and another branch forks off after the record's position.
    """
    if not commit.records:
        return tip
    own = [placed.position for placed in commit.records if kind_of(placed.record.kind).own_branch_only]
    if not own or find_last_fork(db, conversation, tip.segment) <= min(own):
        return tip
    segment = _insert_segment(db, conversation, tip.segment, tip.size)
    return msgspec.structs.replace(tip, segment=segment, base=tip.size, sealed=tip.size, loose=0)


def _store_entries(db: Database, conversation: int, tip: Tip, commit: Commit) -> tuple[StoredTurn | None, bool]:
    """Store the entries, the turn and the request of a commit.

    Returns the last turn on the path, and whether an earlier commit had already stored entries of the commit's turn
    without the turn itself. In that case, other branches may contain these entries, and their last turn may change too.
    """
    check_parents(tip.entry, commit.entries)
    size = tip.size + len(commit.entries)
    if size >= MAX_PATH:
        raise ValueError(f"a branch can have at most {MAX_PATH - 1} entries: start a new conversation")
    numbers = [_parse_entry_number(entry) for entry in commit.entries]
    runs = find_runs(tip.entry if tip.size > tip.base else None, commit, numbers, tip.size)
    known: dict[str, StoredTurn] = {}
    if tip.turn is not None and tip.turn.data is not None:
        known[decode_turn(tip.turn.data).id] = tip.turn
    fresh = store_turn_keys(db, conversation, tip.segment, runs, known)
    new, manifest = commit.turn, commit.manifest or None
    late = False
    in_entry: dict[int, tuple[bytes, int, bytes | None, int]] = {}
    if new is not None:
        old = known.get(new.id) or read_turn(db, conversation, new.id) or StoredTurn(-1, None)
        is_new = new.id in fresh
        late = old.data is None and not is_new
        first = None
        for run in runs:
            if run.turn == new.id:
                first = run.position
                break
        if late or (commit.request and not is_new):
            first = find_turn_start(db, old.id, read_path(db, tip.segment, size))
        if first is None and late:
            raise ValueError(f"turn {new.id!r} has no entries: commit it together with its first entry")
        if is_new and first is not None and len(commit.entries[first - tip.size].native) <= MAX_NATIVE:
            data = encode_turn(new)
            known[new.id] = StoredTurn(old.id, data)
            in_entry[first] = with_checksums(old.id, new.id, data, manifest)
        else:
            known[new.id] = update_turn(db, old, new, manifest)
        if commit.request is not None:
            _store_request(db, conversation, old.id, first, commit.branch, commit.request)
    rows = []
    for position, (entry, number) in enumerate(zip(commit.entries, numbers, strict=True), tip.size):
        row = (
            *(to_key(tip.segment, position), entry.turn, number, entry.parent, entry.kind, entry.role, entry.wire),
            *(entry.at, entry.mark, entry.bound, entry.tokens, entry.native),
        )
        rows.append((*row, compute_checksum(*row), *in_entry.get(position, (None, None, None, None))))
    db.executemany(_INSERT_ENTRY, rows)
    for i, meta in commit.entry_meta.items():
        meta_row = to_key(tip.segment, tip.size + i), to_ascii_json(meta)
        db.execute("INSERT INTO entry_meta VALUES (?, ?, ?)", (*meta_row, compute_checksum(*meta_row)))
    if late:
        return read_last_turn(db, read_path(db, tip.segment, size)), True
    for run in reversed(runs):
        if known[run.turn].data:
            return known[run.turn], False
    last = tip.turn
    for turn in known.values():
        if last is not None and turn.id == last.id:
            return turn, False
    return last, False


def _parse_entry_number(entry: Entry) -> int:
    """Return the number of an entry within its turn.

    Raises `ValueError` if the entry's id, time or token count is invalid.
    """
    number = entry.id[len(entry.turn) + 1 :]
    if entry.id != f"{entry.turn}-{number}" or not number.isdecimal() or str(int(number[:12])) != number:
        raise ValueError(f"entry id {entry.id!r} must be the turn's id {entry.turn!r}, a hyphen and a number")
    if not 0 <= entry.tokens <= MAX_COUNT or not 0 <= entry.at <= MAX_COUNT or int(number) >= 2**32 - 1:
        raise ValueError(
            f"the token count {entry.tokens}, the time {entry.at} or the number of entry {entry.id!r} is out of range"
        )
    return int(number)


def _store_request(
    db: Database, conversation: int, turn: int, position: int | None, branch: str, request: KeyedRequest
) -> None:
    """Store the idempotency key of a turn's request. Raise `RequestKeyTaken` if another turn has this key."""
    row = conversation, request.key, request.body, branch, turn, position or 0
    db.execute(
        "INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (conversation, key) DO NOTHING",
        (*row, compute_checksum(*row)),
    )
    sql = "SELECT turn FROM requests WHERE conversation = ? AND key = ?"
    if not db.changes() and db.execute(sql, (conversation, request.key)).get != turn:
        raise RequestKeyTaken(request.key)
