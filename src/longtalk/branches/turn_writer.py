"""Write a turn to a branch in a store, step by step, under a lease.

Each commit is made once. If Ctrl-C strikes after the store has made a commit but before it returns, the writer finds
the commit by its traces. If another writer has taken over the branch, the turn continues on a branch of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from longtalk._util.concurrency import call_store
from longtalk.branches.branch import AsyncBranch, place_record
from longtalk.context.manifest import encode_manifest
from longtalk.errors import Deleted
from longtalk.notices import Notice
from longtalk.stores._redaction import redact_turn
from longtalk.stores.base import BranchHead, Commit, HeadMoved, KeyedRequest, RequestKeyTaken
from longtalk.stores.leases import (
    count_as_held,
    drop_lease,
    hold_lease,
    identify_this_process,
    make_lease,
    mark_tool_running,
)
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import Entry, Transcript, Turn, new_id, now
from longtalk.turn.draft import Draft


class AsyncTurnWriter:
    """Writes one turn, step by step, under a lease."""

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
        self._held = stored.make_held_lease((head.token if head else 0) + 1)
        self._request = request
        self._meta = meta
        self._saved = 0
        self._unconfirmed: Commit | None = None
        """A commit that the store may or may not have made; None if all is known."""
        self._redacted = False
        self._is_old = False
        """Whether the cached transcript differs from what the store has."""

    @property
    def branch(self) -> str:
        """The branch that the turn is written to: another one than it began on, if another writer has taken over."""
        return self._stored.branch

    async def save(self, draft: Draft) -> tuple[Notice, ...]:
        """Commit what is new in the draft. The first commit raises `HeadMoved` if another writer was faster."""
        # A cancelled commit continues in its thread; the next one waits for it there, and knows its outcome.
        saved: Draft = await call_store(self._stored.store, lambda: self._save(draft))
        return saved.notices[len(draft.notices) :]

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
                # The turn ends before its first commit, and another writer has continued.
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
                if not draft.running:
                    # Also if the store refused the commit: the turn is over.
                    self._release()

    def _commit(self, draft: Draft) -> Draft:
        fresh = draft.transcript.fresh[self._old :]
        new = fresh[self._saved :]
        # What closes an earlier turn goes first, and is no part of this one.
        first = next((i for i, entry in enumerate(new) if entry.turn == draft.turn.id), len(new))
        earlier = self._find_interrupted_turn(draft)
        if first or earlier is not None:
            draft = self._write(draft, new[:first], earlier, lasts=True)
            if first == len(new) and draft.running:
                return draft
        # A turn that goes on after an event, or with another answer, has no entry at first.
        turn_ids = {entry.turn for entry in fresh}
        is_there = draft.turn.id in turn_ids or (self._before is not None and draft.turn.id == self._before.id)
        draft = self._write(draft, new[first:], draft.turn if is_there else None, lasts=draft.running)
        if not draft.running:
            self._ended = True
        return draft

    def _find_interrupted_turn(self, draft: Draft) -> Turn | None:
        """Return the turn before this one if it was left running and this commit marks it as interrupted."""
        before = self._before
        if before is None or before.id == draft.turn.id:
            return None
        turns = draft.transcript.turns[-2:]
        return next((turn for turn in turns if turn.id == before.id and turn.status != before.status), None)

    def _write(self, draft: Draft, entries: Sequence[Entry], turn: Turn | None, *, lasts: bool) -> Draft:
        own = turn is not None and turn.id == draft.turn.id
        fresh = draft.transcript.fresh[self._old :]
        positions = {entry.id: self._base + i for i, entry in enumerate(fresh)}
        # Those of a turn that is not there yet wait for it.
        records = [record for record in draft.transcript.records if record not in self._known] if own else []
        if self._redacted:
            records = [record for record in records if not kind_of(record.kind).quotes_entries]
            turn = turn and redact_turn(turn)
        there = set(draft.transcript.records)
        commit = Commit(
            branch=self._stored.branch,
            expect=self._expect,
            entries=tuple(entries),
            turn=turn,
            request=self._request if own else None,
            manifest=encode_manifest(draft.context, draft.transcript, draft.cost)
            if own and not lasts and draft.context
            else b"",
            obsolete=tuple(record for record in self._known if record.kind == "aside" and record not in there),
            records=tuple(place_record(record, positions.get(record.entry, self._base - 1)) for record in records),
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

    def _remember_commit(self, commit: Commit, head: BranchHead, *, own: bool) -> None:
        """Update what is known to be in the store after a commit."""
        saved = self._saved + len(commit.entries)
        known = self._known.union(each.record for each in commit.records).difference(commit.obsolete)
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
        """Find out whether a commit was made, if Ctrl-C struck between the store's commit and its return."""
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
        """Return True if this turn still holds the lease on a branch."""
        return head.lease is not None and (head.lease.token, head.lease.holder) == (
            self._held.token,
            identify_this_process(),
        )

    def _is_summarised(self, head: BranchHead) -> bool:
        """Return True if the only change on a branch is the outcome of a summary in the background."""
        new = [each.record.kind for each in head.records if each.record not in self._known]
        return head.revision == self._expect + 1 and "attempt" in new

    def around(self) -> AbstractContextManager[None]:
        """Return the context manager that a tool of this turn runs in."""
        return mark_tool_running(self._held)

    def _write_commit(self, commit: Commit) -> BranchHead:
        """Write a commit and hold its lease, so that this process never takes the lease for one that was dropped."""
        with count_as_held(self._held):
            self._unconfirmed = commit
            head = self._stored.write(commit)
            if commit.lease is not None:
                self._hold()
        return head

    def _write_to_own_branch(self, draft: Draft, commit: Commit) -> tuple[Draft, BranchHead]:
        """Write a commit, and all later ones of this turn, to a new branch, since another turn has taken over."""
        self._release()
        if self._stored.store.info(self._stored.owner, self._stored.conversation) is None:
            raise Deleted(f"The conversation {self._stored.conversation!r} was deleted while its turn ran.")
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
        text = f"Another writer has continued this conversation meanwhile. This answer is on the branch {name!r}."
        return draft.notice(Notice("fenced_out", text)), head

    def _find_source_branch(self, commit: Commit) -> str:
        """Return a branch that has what was saved before; after a rewind that may be another one."""
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
        # Another writer may have tried for the same token, and got it.
        if self._holds:
            drop_lease(self._held)
        self._holds = False
