"""The SQLite store: conversations in one file, for many threads and processes.

The cost of a turn doesn't depend on the length of the conversation. A branch's row describes its head, the newest
entries are rows, and older entries are stored together in packs, which are copied into a request as they are. A fork
starts a new segment and copies nothing. Each method is one transaction, and concurrent writes wait for each other.

    store = SQLite("conversations.db")
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from longtalk.errors import InputError, StoreError
from longtalk.memory.recall.protocol import Matches, SearchTerm
from longtalk.stores._closing import ClosedOnExit
from longtalk.stores._paths import Span
from longtalk.stores._rows import meta_from_json, to_ascii_json
from longtalk.stores.base import (
    MAIN,
    BranchHead,
    Commit,
    ConversationInfo,
    DeletionReceipt,
    KeyedTurn,
    PlacedRecord,
    SearchHit,
)
from longtalk.stores.sqlite.branches import (
    decode_lease,
    find_conversation_id,
    read_branch,
    read_head,
    read_keyed_turns,
    read_metas,
    read_newest_heads,
)
from longtalk.stores.sqlite.checksums import compute_checksum, update_row
from longtalk.stores.sqlite.commit import apply_commit
from longtalk.stores.sqlite.conversations import list_conversations, list_owners, read_info
from longtalk.stores.sqlite.database import Database, File, Synchronous
from longtalk.stores.sqlite.paths import read_pack, read_path, read_ranges
from longtalk.stores.sqlite.records import list_conversations_with, read_all_records
from longtalk.stores.sqlite.remove import delete_conversation, find_entry_keys, redact_entry
from longtalk.stores.sqlite.search import find_candidates, find_matches, index_batch, is_stale, make_scope
from longtalk.stores.sqlite.sharing import acquire_file, release_file
from longtalk.stores.sqlite.turns import join_turns, read_manifests, read_turns
from longtalk.stores.sqlite.verify import find_file_damage, find_problems, find_strays, find_uncovered
from longtalk.transcript.pack import EMPTY, Entry, Pack
from longtalk.transcript.transcript import Turn

__all__ = ["SQLite", "StoreError"]

_encode = msgspec.msgpack.Encoder().encode

_PAUSE = 20
"""How many times as long as a check of the whole file `verify` waits before the next one.

Otherwise, verifying each conversation of a file would take time that grows with the square of the file's size.
"""
_MANIFEST = f"""
SELECT coalesce(e.manifest, t.manifest) FROM conversations c
JOIN turn_keys k ON k.conversation = c.id AND k.name = ? {join_turns("k.id")} WHERE c.owner = ? AND c.name = ?
"""  # noqa: S608


class SQLite(ClosedOnExit):
    """A store in the SQLite file `path`, or in memory if `path` is ":memory:".

    A commit survives the end of the process. With `synchronous="full"` it also survives a power cut, but takes some
    milliseconds longer; commits that are made at the same time share this wait. With `compress=True`, older entries are
    compressed when they are packed together; they then take about a third of the space and are slower to read.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, synchronous: Synchronous = "normal", compress: bool = False
    ) -> None:
        if synchronous not in ("normal", "full"):
            raise InputError(f'synchronous must be "normal" or "full", not {synchronous!r}.')
        self._compress = compress
        self.serial = synchronous == "normal"
        """Whether async code should call the store from a single thread.

        False with `synchronous="full"`, because several threads can then share one wait for the disk.
        """
        self._next_file_check = 0.0
        """When `verify` may check the whole file again, by the monotonic clock."""
        self._shared_file: File | None = acquire_file(os.fspath(path), synchronous)

    def __repr__(self) -> str:
        return f"SQLite({self._shared_file.path if self._shared_file else 'closed'!r})"

    @property
    def _file(self) -> File:
        if self._shared_file is None:
            raise InputError("This store is closed. Open the file again with a new SQLite(path).")
        return self._shared_file

    # Reading

    def head(self, owner: str, conversation: str, branch: str = MAIN) -> BranchHead | None:
        def work(db: Database) -> BranchHead | None:
            _, found = read_branch(db, owner, conversation, branch)
            return read_head(found) if found else None

        return self._file.read(work)

    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        def work(db: Database) -> Pack:
            _, found = read_branch(db, owner, conversation, branch)
            first, end = max(start, 0), min(stop, found.size if found else 0)
            if found is None or first >= end:
                return EMPTY
            if first >= found.base:
                return read_pack(db, [Span(found.segment, found.base, found.size)], first, end)
            return read_pack(db, read_path(db, found.segment, found.size, first), first, end)

        return self._file.read(work)

    def pick(self, owner: str, conversation: str, branch: str, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        def work(db: Database) -> list[list[Entry]]:
            _, found = read_branch(db, owner, conversation, branch)
            if found is None or not ranges:
                return [[] for _ in ranges]
            return read_ranges(db, read_path(db, found.segment, found.size, ranges[0][0]), ranges)

        return self._file.read(work)

    def turns(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> list[tuple[int, Turn]]:
        def work(db: Database) -> list[tuple[int, Turn]]:
            _, found = read_branch(db, owner, conversation, branch)
            return read_turns(db, read_path(db, found.segment, found.size), start, stop) if found else []

        return self._file.read(work)

    def manifest(self, owner: str, conversation: str, turn: str) -> bytes:
        return self._file.read(lambda db: db.execute(_MANIFEST, (turn, owner, conversation)).get) or b""

    def manifests(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[str, bytes]:
        def work(db: Database) -> dict[str, bytes]:
            _, found = read_branch(db, owner, conversation, branch)
            return read_manifests(db, read_path(db, found.segment, found.size), start, stop) if found else {}

        return self._file.read(work)

    def records(self, owner: str, conversation: str, branch: str, kind: str | None = None) -> list[PlacedRecord]:
        def work(db: Database) -> list[PlacedRecord]:
            _, found = read_branch(db, owner, conversation, branch)
            return read_all_records(db, read_path(db, found.segment, found.size), found.latest, kind) if found else []

        return self._file.read(work)

    def metas(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        def work(db: Database) -> dict[int, dict[str, Any]]:
            _, found = read_branch(db, owner, conversation, branch)
            return read_metas(db, read_path(db, found.segment, found.size), start, stop) if found else {}

        return self._file.read(work)

    def keyed_turn(self, owner: str, conversation: str, key: str) -> KeyedTurn | None:
        found = self._file.read(lambda db: read_keyed_turns(db, owner, conversation, key))
        return found[0] if found else None

    def keyed_turns(self, owner: str, conversation: str) -> list[KeyedTurn]:
        return self._file.read(lambda db: read_keyed_turns(db, owner, conversation))

    def branches(self, owner: str, conversation: str) -> list[BranchHead]:
        def work(db: Database) -> list[BranchHead]:
            names = db.execute(
                "SELECT b.name FROM conversations c JOIN branches b ON b.conversation = c.id"
                " WHERE c.owner = ? AND c.name = ? ORDER BY b.name",
                (owner, conversation),
            )
            found = [read_branch(db, owner, conversation, name)[1] for (name,) in names.fetchall()]
            return [read_head(each, records=False) for each in found if each]

        return self._file.read(work)

    def heads(self, owner: str, conversations: Sequence[str], most: int) -> dict[str, list[BranchHead]]:
        return self._file.read(lambda db: read_newest_heads(db, owner, list(conversations), most))

    def info(self, owner: str, conversation: str) -> ConversationInfo | None:
        return self._file.read(lambda db: read_info(db, owner, conversation))

    def conversations(
        self,
        owner: str,
        *,
        limit: int = 50,
        after: tuple[int, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> list[ConversationInfo]:
        wanted = meta_from_json(to_ascii_json(meta or {}))
        return self._file.read(lambda db: list_conversations(db, owner, limit, after, wanted))

    def owners(self) -> list[str]:
        return self._file.read(list_owners)

    def conversations_with(self, owner: str, kind: str) -> list[str]:
        return self._file.read(lambda db: list_conversations_with(db, owner, kind))

    def candidates(
        self, owner: str, terms: Collection[str], limit: int, *, conversation: str | None = None
    ) -> list[SearchHit]:
        self._index_new_entries(owner, conversation)
        return self._file.read(lambda db: find_candidates(db, owner, terms, limit, conversation))

    def matches(
        self, owner: str, conversation: str, branch: str, terms: Sequence[SearchTerm], most: int
    ) -> list[Matches]:
        self._index_new_entries(owner, conversation)

        def work(db: Database) -> list[Matches]:
            number, found = read_branch(db, owner, conversation, branch)
            if number is None or found is None:
                return [Matches() for _ in terms]
            return find_matches(db, make_scope(owner, number), read_path(db, found.segment, found.size), terms, most)

        return self._file.read(work)

    def _index_new_entries(self, owner: str, conversation: str | None) -> None:
        """Index the entries that a search needs, in batches, so that writers don't have to wait for all of them."""
        more = self._file.read(lambda db: is_stale(db, owner, conversation))
        while more:
            more = self._file.write(lambda db: index_batch(db, owner, conversation))

    # Writing

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        return self._file.write_and_purge(
            partial(apply_commit, owner=owner, name=conversation, commit=commit, compress=self._compress)
        )

    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        def work(db: Database) -> bool:
            _, found = read_branch(db, owner, conversation, branch)
            lease = found and found.lease and decode_lease(found.lease)
            if not found or not lease or lease.token != token:
                return False
            renewed = _encode(msgspec.structs.replace(lease, until=until))
            update_row(db, "branches", found.id, lease=renewed)
            return True

        return self._file.write(work)

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        data = to_ascii_json(meta)

        def work(db: Database) -> bool:
            number = find_conversation_id(db, owner, conversation)
            if entry is None:
                if number is not None:
                    update_row(db, "conversations", number, meta=data)
                return number is not None
            keys = find_entry_keys(db, number, entry)
            for key in keys:
                db.execute(
                    "INSERT OR REPLACE INTO entry_meta VALUES (?, ?, ?)", (key, data, compute_checksum(key, data))
                )
            return bool(keys)

        return self._file.write(work)

    def delete(self, owner: str, conversation: str) -> DeletionReceipt | None:
        receipt = self._file.write(lambda db: delete_conversation(db, owner, conversation))
        if receipt:
            self._file.purge_log()
        return receipt

    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        found = self._file.write(lambda db: redact_entry(db, owner, conversation, entry, native))
        if found:
            self._file.purge_log()
        return found

    def verify(self, owner: str, conversation: str) -> list[str]:
        def work(db: Database) -> list[str]:
            found = find_problems(db, owner, conversation)
            start = time.monotonic()
            if start >= self._next_file_check:
                damage = find_file_damage(db)
                found += [*damage.problems, *find_strays(db, damage.rows, owner, conversation)]
                if not damage.problems and not damage.rows:
                    self._next_file_check = start + _PAUSE * (time.monotonic() - start)
            return found

        return self._file.read(work)

    def uncovered(self, owner: str, conversation: str) -> list[str]:
        """Return a description of each part of a conversation that was written before rows had checksums."""

        def work(db: Database) -> list[str]:
            number = find_conversation_id(db, owner, conversation)
            return find_uncovered(db, number) if number is not None else []

        return self._file.read(work)

    def close(self) -> None:
        file, self._shared_file = self._shared_file, None
        if file is not None:
            release_file(file)
