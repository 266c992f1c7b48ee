"""Write a turn to a branch in a store, step by step, under a lease.

Each commit is made once. If Ctrl-C arrives after the store has made a commit but before the call returns, the writer
recognizes the commit by its data. If another writer has taken over the branch, the turn continues on a separate branch.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import msgspec

from longtalk._util.concurrency import call_store
from longtalk.branches.branch import AsyncBranch, place_record
from longtalk.branches.settings import find_settings, note_turn
from longtalk.context.manifest import encode_manifest
from longtalk.context.suffixes import withhold_foreign
from longtalk.errors import Deleted
from longtalk.memory.profile.lines import PRIVATE
from longtalk.notices import Notice
from longtalk.stores._redaction import redact_turn
from longtalk.stores.base import BranchHead, Commit, HeadMoved, KeyedRequest, PlacedRecord, RequestKeyTaken
from longtalk.stores.leases import (
    begin_write,
    drop_lease,
    end_write,
    hold_lease,
    identify_this_process,
    make_lease,
    mark_tool_running,
)
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import Entry, Record, Transcript, Turn, new_id, now
from longtalk.turn.draft import Draft


class AsyncTurnWriter:
    """A writer for the steps of one turn on a stored branch, under a lease."""

    def __init__(
        self,
        stored: AsyncBranch,
        head: BranchHead | None,
        transcript: Transcript,
        *,
        request: KeyedRequest | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self._began = self._ended = False
        self._holds = False
        self._lock = threading.Lock()
        self._stored = stored
        self._base = transcript.size
        self._old = len(transcript.fresh)
        self._known = set(transcript.records)
        self._expect = head.revision if head else 0
        self._before = head.turn if head else None
        self._settings = find_settings(each.record for each in head.records) if head else None
        self._held = stored.make_held_lease((head.token if head else 0) + 1)
        self._request = request
        self._meta = meta
        self._saved = 0
        self._derived: tuple[PlacedRecord, ...] = ()
        self._unconfirmed: Commit | None = None
        """A commit of which it is unknown whether the store has made it; None if there is none."""
        self._redacted = False
        self._is_old = False
        """Whether the cached transcript differs from the one in the store."""

    @property
    def branch(self) -> str:
        """The branch that the turn is written to. It is a new branch if another writer has taken over the first one."""
        return self._stored.branch

    async def save(self, draft: Draft) -> tuple[Notice, ...]:
        """Commit what is new in the draft. The first commit raises `HeadMoved` if another writer was faster."""
        # A cancelled commit continues in its thread; the next one waits for it there, and knows its outcome.
        saved: Draft = await call_store(self._stored.store, partial(self._save, draft))
        return saved.notices[len(draft.notices) :]

    async def release(self) -> None:
        """End the lease without ending the turn, so that another process can continue the turn at once."""
        await call_store(self._stored.store, self._give_back)

    def _give_back(self) -> None:
        # A cancelled commit continues in its thread: wait for it.
        with self._lock:
            held, stored = self._held, self._stored
            if self._ended or not self._holds:
                return
            self._ended = True
            self._release()
            stored.forget()
            stored.store.renew(stored.owner, stored.conversation, stored.branch, held.token, 0)

    def store_derived(self, records: Sequence[PlacedRecord]) -> None:
        """Store these records with the last commit of the turn. They are derived from entries before the turn."""
        self._derived = tuple(records)

    def _save(self, draft: Draft) -> Draft:
        with self._lock:
            if self._unconfirmed is not None:
                self._settle(self._unconfirmed, draft)
            if self._ended:
                return draft
            try:
                return self._commit(draft)
            except HeadMoved:
                if draft.running:
                    raise
                # The turn ends before its first commit, and another writer has continued the branch.
                return draft
            except Deleted:
                self._ended = True
                raise
            except RequestKeyTaken:
                if draft.worked:
                    self._request = None
                    return self._commit(draft)
                if self._began:
                    self._write(draft, (), None, lasts=False)
                self._stored.forget()
                self._release()
                raise
            finally:
                if draft.turn.status != "running":
                    # Also if the store refused the commit: the turn is over.
                    self._release()

    def _commit(self, draft: Draft) -> Draft:
        fresh = draft.transcript.fresh[self._old :]
        new = fresh[self._saved :]
        # What closes an earlier turn goes first, and is no part of this one.
        first = 0
        while first < len(new) and new[first].turn != draft.turn.id:
            first += 1
        before = self._before
        earlier = self._find_interrupted_turn(draft) if before is not None and before.status == "running" else None
        if first or earlier is not None:
            draft = self._write(draft, new[:first], earlier, lasts=True)
            if first == len(new) and draft.running:
                return draft
        # A turn that goes on after an event, or with another answer, has no entry at first.
        is_there = first < len(new) or (self._before is not None and draft.turn.id == self._before.id)
        is_there = is_there or draft.turn.id in [entry.turn for entry in fresh]
        lasts = draft.turn.status == "running"
        draft = self._write(draft, new[first:], draft.turn if is_there else None, lasts=lasts)
        if not lasts:
            self._ended = True
        return draft

    def _find_interrupted_turn(self, draft: Draft) -> Turn | None:
        """Return the previous turn if it was left running and this commit marks it as interrupted, else None."""
        before = self._before
        if before is None or before.id == draft.turn.id:
            return None
        turns = draft.transcript.turns[-2:]
        return next((turn for turn in turns if turn.id == before.id and turn.status != before.status), None)

    def _write(self, draft: Draft, entries: Sequence[Entry], turn: Turn | None, *, lasts: bool) -> Draft:
        own = turn is not None and turn.id == draft.turn.id
        present = [withhold_foreign(record) for record in draft.transcript.records]
        gone = self._known.difference(present)
        # Those of a turn that is not there yet wait for it.
        records = [record for record in present if record not in self._known] if own else []
        manifest = b""
        if own and not lasts and draft.context is not None:
            new, calls, settings = note_turn(draft, self._settings, self._known)
            manifest = encode_manifest(draft.context, draft.transcript, draft.cost, calls=calls, settings=settings)
            # Before the others, of which stores keep the last ones where they cost least.
            records = [*new, *records]
        derived = self._derived if own and not lasts else ()
        if self._redacted:
            derived = ()
            records = [record for record in records if not kind_of(record.kind).quotes_entries]
            turn = turn and redact_turn(turn)
        commit = Commit(
            branch=self._stored.branch,
            expect=self._expect,
            entries=tuple(entries),
            turn=turn,
            request=self._request if own else None,
            manifest=manifest,
            obsolete=tuple([record for record in gone if record.kind == "aside"]) if gone else (),
            records=(*derived, *(self._place_records(draft, records) if records else ())),
            lease=make_lease(self._held.token) if lasts else None,
            at=now(),
            entry_meta={0: self._meta} if own and entries and self._meta else {},
        )
        head: BranchHead | None = None
        while head is None:
            try:
                head = self._write_commit(commit)
            except HeadMoved as moved:
                if not self._began:
                    raise
                if moved.head is None or not self._is_held_on(moved.head):
                    draft, head = self._write_to_own_branch(draft, commit)
                    break
                kept_records, turn = commit.records, commit.turn
                if not self._is_summarised(moved.head):
                    # The lease is still ours, so an entry was redacted. Derived records may quote it.
                    self._redacted = True
                    kept_records = tuple(each for each in kept_records if not kind_of(each.record.kind).quotes_entries)
                    turn = turn and redact_turn(turn)
                commit = msgspec.structs.replace(commit, expect=moved.head.revision, records=kept_records, turn=turn)
                self._is_old = True
        self._remember_commit(commit, head, own=own)
        if not lasts and self._is_old:
            self._stored.forget()
        elif not lasts:
            self._stored.remember(head, draft.transcript)
        return draft

    def _place_records(self, draft: Draft, records: Sequence[Record]) -> tuple[PlacedRecord, ...]:
        """Return records with their positions."""
        positions = {entry.id: self._base + i for i, entry in enumerate(draft.transcript.fresh[self._old :])}
        return tuple([place_record(record, positions.get(record.entry, self._base - 1)) for record in records])

    def _remember_commit(self, commit: Commit, head: BranchHead, *, own: bool) -> None:
        """Record which entries and records the store has after a commit."""
        saved = self._saved + len(commit.entries)
        known = self._known
        if commit.records or commit.obsolete:
            known = known.union([each.record for each in commit.records]).difference(commit.obsolete)
        # From here on nothing is called, so Ctrl-C can't part what belongs together.
        self._began = True
        self._expect = head.revision
        self._saved = saved
        self._known = known
        if own:
            self._request = None
            self._meta = None if commit.entries else self._meta
        elif commit.turn is not None:
            self._before = commit.turn
        self._unconfirmed = None

    def _settle(self, commit: Commit, draft: Draft) -> None:
        """Find out whether the store made a commit that was interrupted by Ctrl-C."""
        stored = self._stored
        head = stored.store.head(stored.owner, stored.conversation, commit.branch)
        last = commit.entries[-1].id if commit.entries else head and head.entry
        if head is None or (head.revision, head.updated, head.entry) != (commit.expect + 1, commit.at, last):
            self._unconfirmed = None
            return
        stored.forget()
        if commit.lease is None:
            self._ended = True
        else:
            self._hold()
        self._remember_commit(commit, head, own=commit.turn is not None and commit.turn.id == draft.turn.id)

    def _is_held_on(self, head: BranchHead) -> bool:
        """Return True if this turn still holds the lease on the branch with this head."""
        return head.lease is not None and (head.lease.token, head.lease.holder) == (
            self._held.token,
            identify_this_process(),
        )

    def _is_summarised(self, head: BranchHead) -> bool:
        """Return True if the only change to the branch is the outcome of a background summary, or a mark of privacy."""
        new = [each.record.kind for each in head.records if each.record not in self._known]
        return head.revision == self._expect + 1 and ("attempt" in new or PRIVATE in new)

    def around(self) -> AbstractContextManager[None]:
        """Return a context manager in which a tool of this turn is run."""
        return mark_tool_running(self._held)

    def _write_commit(self, commit: Commit) -> BranchHead:
        """Write a commit and hold its lease, so that this process never takes the lease for one that was dropped."""
        try:
            begin_write(self._held)
            self._unconfirmed = commit
            head = self._stored.write(commit)
            if commit.lease is not None:
                self._hold()
        finally:
            end_write(self._held)
        return head

    def _write_to_own_branch(self, draft: Draft, commit: Commit) -> tuple[Draft, BranchHead]:
        """Write a commit and all later ones of this turn to a new branch, because another writer has taken over."""
        self._release()
        if self._stored.store.info(self._stored.owner, self._stored.conversation) is None:
            raise Deleted(
                f"The conversation {self._stored.conversation!r} was deleted while its turn was running, so the "
                "answer was not stored."
            )
        name = f"{self._stored.branch}~{draft.turn.id}"
        source = (self._find_source_branch(commit), self._base + self._saved)
        lease = commit.lease and make_lease(1)
        while True:
            self._stored = self._stored.get_branch(name)
            self._held = self._stored.make_held_lease(1)
            try:
                head = self._write_commit(
                    msgspec.structs.replace(commit, branch=name, expect=0, source=source, lease=lease)
                )
                break
            except HeadMoved:
                name = f"{name}-{new_id()[:6]}"
        text = f"Another writer has continued this conversation in the meantime. This answer is on the branch {name!r}."
        return draft.notice(Notice("fenced_out", text)), head

    def _find_source_branch(self, commit: Commit) -> str:
        """Return a branch that has the entries saved so far. After a rewind, it need not be the commit's own."""
        stored, size = self._stored, self._base + self._saved
        parent = commit.entries[0].parent if commit.entries else None
        heads = stored.store.branches(stored.owner, stored.conversation) if parent else []
        for name in (stored.branch, *[head.branch for head in heads]):
            pack = stored.store.read(stored.owner, stored.conversation, name, size - 1, size)
            if len(pack) and pack.entry(0).id == parent:
                return name
        return stored.branch

    def _hold(self) -> None:
        if not self._holds:
            hold_lease(self._held)
        self._holds = True

    def _release(self) -> None:
        # Another writer may have tried to get the same token, and may have got it.
        if self._holds:
            drop_lease(self._held)
        self._holds = False
