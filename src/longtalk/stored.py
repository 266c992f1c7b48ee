"""A branch in a store, as one object of this process sees it: what it has read, and the turn that it writes.

Reading gives a transcript with the entries that the present epoch sends; the others stay in the store. What was read
is kept, and the first commit of the next turn tells whether it is still true.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

import msgspec

from longtalk._io import in_store
from longtalk.draft import Draft
from longtalk.epochs import Epoch, current, fingerprint
from longtalk.errors import Deleted
from longtalk.events import Notice
from longtalk.manifest import kept
from longtalk.pack import EMPTY, Pack, woven
from longtalk.policies import Policy
from longtalk.ranges import Ranges
from longtalk.records import latest, read_record
from longtalk.sent import all_there, pinned
from longtalk.stores.base import BARE, Commit, Head, KeyTaken, Moved, Placed, Request, Store
from longtalk.stores.leases import Held, drop, hold, inside, is_free, is_inside, lease, me, trying
from longtalk.summaries import Summary
from longtalk.transcript import Entry, Record, Transcript, Turn, Turns, new_id, now

FRESH = 16
"""So many entries stay unpacked."""


class AsyncStored:
    """A branch of a conversation in a store."""

    def __init__(self, store: Store, owner: str, conversation: str, branch: str, policy: Policy) -> None:
        self.store = store
        self.owner = owner
        self.conversation = conversation
        self.branch = branch
        self.policy = policy
        self._seen: tuple[Head | None, Transcript] | None = None

    async def call(self, method: Callable[..., Any], *args: Any) -> Any:
        """A method of the store, on this conversation."""
        return await in_store(self.store, lambda: method(self.owner, self.conversation, *args))

    async def head(self) -> Head | None:
        """Where the branch stands, by what the store says now."""
        head: Head | None = await self.call(self.store.head, self.branch)
        return head

    async def entries(self) -> list[Entry]:
        """All that is on the branch now."""
        head = await self.head()
        if head is None:
            return []
        pack: Pack = await self.call(self.store.read, self.branch, 0, head.size)
        return pack.entries()

    async def load(self, *, whole: bool = False) -> tuple[Head | None, Transcript]:
        """Where the branch stands, and what the next turn needs of it, or all of it."""
        seen = self._seen
        if seen is None or (whole and seen[1].shed.entries):
            head = await self.head()
            # Another thread may forget it right away.
            seen = self._seen = (head, Transcript() if head is None else await self._read(head, whole=whole))
        return seen

    def on(self, branch: str) -> AsyncStored:
        """Another branch of the same conversation."""
        return AsyncStored(self.store, self.owner, self.conversation, branch, self.policy)

    def forget(self) -> None:
        """Somebody else has changed the branch."""
        self._seen = None

    def is_free(self, head: Head | None) -> bool:
        return head is None or is_free(head, self.held(0))

    def is_inside(self) -> bool:
        """Whether this is called from a tool of a turn on this branch."""
        return is_inside(self.held(0))

    def held(self, token: int) -> Held:
        return Held(self.store, self.owner, self.conversation, self.branch, token)

    def write(self, commit: Commit) -> Head:
        """Change the branch, in this thread. Raises `Moved` when it is not where it was."""
        try:
            return self.store.write(self.owner, self.conversation, commit)
        except Moved:
            self.forget()
            raise

    def attach(self, change: Callable[[Transcript], Transcript]) -> None:
        """Put records beside the branch, in this thread, whoever runs a turn on it. `change` sees the records alone."""
        while (head := self.store.head(self.owner, self.conversation, self.branch)) is not None:
            records = tuple(each.record for each in head.records)
            bare = Transcript(records=records, shed=Ranges(entries=((0, head.size),)))
            made = [
                placed(msgspec.structs.replace(record, entry=record.entry or head.entry or ""), head.size - 1)
                for record in change(bare).records
                if record not in records
            ]
            commit = Commit(branch=self.branch, expect=head.revision, records=tuple(made), lease=head.lease, at=now())
            with contextlib.suppress(Moved):
                self.write(commit)
                return

    def remember(self, head: Head, transcript: Transcript) -> None:
        """What the branch is now."""
        self._seen = (head, _folded(transcript, head, self._needed(transcript, head.size)))

    def _needed(self, transcript: Transcript, size: int) -> list[tuple[int, int]]:
        """The places of the entries that the next turn needs: those that the present epoch sends."""
        epoch = latest(transcript, "epoch", Epoch)
        if epoch is None or epoch.policy != fingerprint(self.policy) or not all_there(epoch, pinned(transcript)):
            return [(0, size)]
        places = [0, *[place for span in epoch.pinned for place in span], epoch.raw]
        if places != sorted(places) or epoch.raw >= size:
            # It came from elsewhere, and is not true.
            return [(0, size)]
        return [span for span in (*epoch.pinned, (epoch.raw, size)) if span[0] < span[1]]

    async def _read(self, head: Head, *, whole: bool) -> Transcript:
        records = tuple(placed.record for placed in head.records)
        bare = Transcript(records=records)
        spans = [(0, head.size)] if whole else self._needed(bare, head.size)
        packs = [await self.call(self.store.read, self.branch, *span) for span in spans]
        read = msgspec.structs.replace(
            bare,
            pack=woven([(pack, 0, len(pack)) for pack in packs]) if packs else EMPTY,
            turns=Turns(fresh=(head.turn,)) if head.turn else Turns(),
            revision=head.revision,
            created=head.created,
            updated=head.updated,
            shed=_without(spans),
        )
        epoch = latest(bare, "epoch", Epoch)
        if read.shed.entries and epoch != current(read, fingerprint(self.policy)):
            # Nobody sends by an epoch that takes a result from its call: all of it is needed.
            return await self._read(head, whole=True)
        return read


def _without(spans: Sequence[tuple[int, int]]) -> Ranges:
    """What stays in the store when these are read: all that stands before and between them."""
    gaps = pairwise((0, *[place for span in spans for place in span]))
    return Ranges(entries=tuple((start, stop - start) for start, stop in list(gaps)[::2] if start < stop))


def _folded(transcript: Transcript, head: Head, spans: Sequence[tuple[int, int]]) -> Transcript:
    """A transcript with these entries. Those that are fresh are packed now and then: that copies all of it."""
    pack, here = transcript.pack, transcript.here
    fresh, shed = transcript.fresh, transcript.shed
    trims = sum(stop - start for start, stop in spans) < len(transcript)
    if fresh and (trims or len(fresh) > FRESH):
        index, tail, crc = pack.grow(fresh)
        pack, fresh = Pack(index, b"".join((memoryview(pack.array)[:-1], tail)), crc), ()
    if trims:
        pack, shed = woven([(pack, here(start), here(stop)) for start, stop in spans]), _without(spans)
    turns = Turns(fresh=transcript.turns[-1:])
    return msgspec.structs.replace(transcript, pack=pack, fresh=fresh, turns=turns, revision=head.revision, shed=shed)


def placed(record: Record, place: int) -> Placed:
    """A record at a place, or where it says by itself that it holds."""
    summary = read_record(record, Summary) if record.kind == "summary" else None
    return Placed(record, place if summary is None else min(place, summary.stop - 1))


class AsyncWriter:
    """Writes one turn, step by step, under a lease."""

    def __init__(
        self,
        stored: AsyncStored,
        head: Head | None,
        transcript: Transcript,
        *,
        request: Request | None = None,
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
        self._held = stored.held((head.token if head else 0) + 1)
        self._request = request
        self._meta = meta
        self._saved = 0
        self._redacted = False
        self._is_old = False
        """Whether what was read is not what the store has."""

    def __del__(self) -> None:
        self._let_go()

    @property
    def branch(self) -> str:
        """Where the turn is written: another one than it began on, if somebody has taken over."""
        return self._stored.branch

    async def save(self, draft: Draft) -> tuple[Notice, ...]:
        """Commit what is new. Raises `Moved` from the first one if somebody was faster."""
        # One that is cancelled goes on in its thread; the next one waits for it there, and knows what it did.
        saved: Draft = await in_store(self._stored.store, lambda: self._save(draft))
        return saved.notices[len(draft.notices) :]

    def _save(self, draft: Draft) -> Draft:
        with self._lock:
            if self._ended:
                return draft
            try:
                return self._commit(draft)
            except Moved:
                if draft.running:
                    raise
                # It ends before it has begun, and somebody else has gone on.
                return draft
            except Deleted:
                self._ended = True
                raise
            except KeyTaken:
                if draft.worked:
                    self._request = None
                    return self._commit(draft)
                if self._began:
                    self._write(draft, (), None, lasts=False)
                self._stored.forget()
                self._let_go()
                raise
            finally:
                if not draft.running:
                    # Also when the store did not take it: nobody works on it any more.
                    self._let_go()

    def _commit(self, draft: Draft) -> Draft:
        fresh = draft.transcript.fresh[self._old :]
        new = fresh[self._saved :]
        # What closes an earlier turn goes first, and is no part of this one.
        first = next((i for i, entry in enumerate(new) if entry.turn == draft.turn.id), len(new))
        earlier = self._earlier(draft)
        if first or earlier is not None:
            draft = self._write(draft, new[:first], earlier, lasts=True)
            if first == len(new) and draft.running:
                return draft
        # A turn that goes on after an event, or with another answer, has no entry at first.
        made = {entry.turn for entry in fresh}
        is_there = draft.turn.id in made or (self._before is not None and draft.turn.id == self._before.id)
        draft = self._write(draft, new[first:], draft.turn if is_there else None, lasts=draft.running)
        if not draft.running:
            self._ended = True
        return draft

    def _earlier(self, draft: Draft) -> Turn | None:
        """The turn before this one, if it was left running and counts as interrupted from now on."""
        before = self._before
        if before is None or before.id == draft.turn.id:
            return None
        turns = draft.transcript.turns[-2:]
        return next((turn for turn in turns if turn.id == before.id and turn.status != before.status), None)

    def _write(self, draft: Draft, entries: Sequence[Entry], turn: Turn | None, *, lasts: bool) -> Draft:
        own = turn is not None and turn.id == draft.turn.id
        fresh = draft.transcript.fresh[self._old :]
        places = {entry.id: self._base + i for i, entry in enumerate(fresh)}
        # Those of a turn that is not there yet wait for it.
        records = [record for record in draft.transcript.records if record not in self._known] if own else []
        if self._redacted:
            records = [record for record in records if record.kind in BARE]
        there = set(draft.transcript.records)
        commit = Commit(
            branch=self._stored.branch,
            expect=self._expect,
            entries=tuple(entries),
            turn=turn,
            request=self._request if own else None,
            manifest=kept(draft.context, draft.transcript, draft.cost) if own and not lasts and draft.context else b"",
            done=tuple(record for record in self._known if record.kind == "aside" and record not in there),
            records=tuple(placed(record, places.get(record.entry, self._base - 1)) for record in records),
            lease=lease(self._held.token) if lasts else None,
            at=now(),
            entry_meta={0: self._meta} if own and entries and self._meta else {},
        )
        head: Head | None = None
        while head is None:
            try:
                head = self._put(commit)
            except Moved as moved:
                if not self._began:
                    raise
                if moved.head is None or not self._is_held_on(moved.head):
                    draft, head = self._write_aside(draft, commit)
                    break
                made = commit.records
                if not self._is_summarised(moved.head):
                    # Nobody has taken over: something was redacted. What this turn derives may quote it.
                    self._redacted = True
                    made = tuple(each for each in made if each.record.kind in BARE)
                commit = msgspec.structs.replace(commit, expect=moved.head.revision, records=made)
                self._is_old = True
        self._began = True
        self._expect = head.revision
        self._saved += len(entries)
        self._known.update(records)
        self._known.difference_update(commit.done)
        if own:
            self._request = None
            self._meta = None if entries else self._meta
        elif turn is not None:
            self._before = turn
        if not lasts and self._is_old:
            self._stored.forget()
        elif not lasts:
            self._stored.remember(head, draft.transcript)
        return draft

    def _is_held_on(self, head: Head) -> bool:
        """Whether this turn is still the one that runs on a branch."""
        return head.lease is not None and (head.lease.token, head.lease.holder) == (self._held.token, me())

    def _is_summarised(self, head: Head) -> bool:
        """Whether all that has happened on a branch is that a summary was put beside it, or came to nothing."""
        new = [each.record.kind for each in head.records if each.record not in self._known]
        return head.revision == self._expect + 1 and "attempt" in new

    def around(self) -> AbstractContextManager[None]:
        """What holds while a tool of this turn runs."""
        return inside(self._held)

    def _put(self, commit: Commit) -> Head:
        """Write it, and hold its lease: nobody in this process takes it for one that was dropped in between."""
        with trying(self._held):
            head = self._stored.write(commit)
            if commit.lease is not None:
                self._hold()
        return head

    def _write_aside(self, draft: Draft, commit: Commit) -> tuple[Draft, Head]:
        """Somebody has taken over: what was made since, and what comes, lands on a branch of its own."""
        self._let_go()
        if self._stored.store.summary(self._stored.owner, self._stored.conversation) is None:
            raise Deleted(f"The conversation {self._stored.conversation!r} was deleted while its turn ran.")
        name = f"{self._stored.branch}~{draft.turn.id}"
        source = (self._source(commit), self._base + self._saved)
        held = commit.lease and lease(1)
        while True:
            self._stored = self._stored.on(name)
            self._held = self._stored.held(1)
            try:
                head = self._put(msgspec.structs.replace(commit, branch=name, expect=0, source=source, lease=held))
                break
            except Moved:
                name = f"{name}-{new_id()[:6]}"
        text = f"Somebody else has gone on with this conversation meanwhile. This answer is on the branch {name!r}."
        return draft.notice(Notice("fenced_out", text)), head

    def _source(self, commit: Commit) -> str:
        """A branch that has what was saved before: after a rewind that may be another one."""
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
            hold(self._held)
        self._holds = True

    def _let_go(self) -> None:
        # Another writer may have tried for the same token, and got it.
        if self._holds:
            drop(self._held)
        self._holds = False
