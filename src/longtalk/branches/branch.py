"""A branch in a store, with a cache of what this process has read. `turn_writer.py` writes turns to it.

Loading returns a transcript with the entries that the present epoch sends; the other entries stay in the store. The
result is cached. If the branch has changed since, the first commit of the next turn fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from longtalk._util.concurrency import call_store
from longtalk.context.epochs import Epoch, find_epoch
from longtalk.context.exclusions import list_excluded_positions
from longtalk.context.measure import has_all_pins, list_pinned_positions
from longtalk.context.suffixes import withhold_foreign
from longtalk.errors import NotFound
from longtalk.memory.profile.lines import PRIVATE
from longtalk.memory.summary import Summary
from longtalk.policies.base import Policy, fingerprint_policy
from longtalk.stores.base import BranchHead, Commit, HeadMoved, PlacedRecord, Store
from longtalk.stores.leases import HeldLease, is_called_from_tool, is_free
from longtalk.transcript.pack import EMPTY, Pack, join_slices
from longtalk.transcript.ranges import Ranges
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.standing import Standing, read_record
from longtalk.transcript.transcript import Entry, Record, Transcript, Turns, now

FRESH = 16
"""The maximum number of entries that stay unpacked in the cache."""


class AsyncBranch:
    """A branch of a conversation in a store."""

    def __init__(
        self, store: Store, owner: str, conversation: str, branch: str, policy: Policy, *, create: bool = True
    ) -> None:
        self.store = store
        self.owner = owner
        self.conversation = conversation
        self.branch = branch
        self.policy = policy
        self.create = create
        """Whether a missing branch is created; if False, a missing branch is an error."""
        self._seen: tuple[BranchHead | None, Transcript] | None = None

    async def call(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call a method of the store on this conversation."""
        return await call_store(self.store, lambda: method(self.owner, self.conversation, *args))

    async def head(self) -> BranchHead | None:
        """Return the head of the branch, read from the store; None if the branch does not exist.

        Raise `NotFound` instead if the branch may not be created.
        """
        head: BranchHead | None = await self.call(self.store.head, self.branch)
        if head is None and not self.create:
            raise NotFound(f"Conversation {self.conversation!r} not found, or it has no branch {self.branch!r}.")
        return head

    async def entries(self) -> list[Entry]:
        """Return all entries of the branch, read from the store."""
        head = await self.head()
        if head is None:
            return []
        pack: Pack = await self.call(self.store.read, self.branch, 0, head.size)
        return pack.entries()

    async def load(self, *, whole: bool = False) -> tuple[BranchHead | None, Transcript]:
        """Return the head of the branch, and a transcript with the entries that the next turn needs (`whole`: all)."""
        seen = self._seen
        if seen is None or (whole and seen[1].shed.entries):
            head = await self.head()
            # Another thread may clear the cache at any moment.
            seen = self._seen = (head, Transcript() if head is None else await self._read(head, whole=whole))
        return seen

    def get_branch(self, branch: str) -> AsyncBranch:
        """Return another branch of the same conversation."""
        return AsyncBranch(self.store, self.owner, self.conversation, branch, self.policy, create=self.create)

    def forget(self) -> None:
        """Clear the cache, because another writer has changed the branch."""
        self._seen = None

    def is_free(self, head: BranchHead | None) -> bool:
        return head is None or is_free(head, self.owner, self.conversation)

    def is_inside(self) -> bool:
        """Return True if the caller is a tool that a turn on this branch is running."""
        return is_called_from_tool(self.owner, self.conversation, self.branch)

    def make_held_lease(self, token: int) -> HeldLease:
        return HeldLease(self.store, self.owner, self.conversation, self.branch, token)

    def write(self, commit: Commit) -> BranchHead:
        """Write a commit in this thread. Raise `HeadMoved` if the branch is not at the expected revision."""
        try:
            return self.store.write(self.owner, self.conversation, commit)
        except HeadMoved:
            self.forget()
            raise

    def attach(self, change: Callable[[Transcript], Transcript]) -> None:
        """Add records to the branch in this thread, even while a turn is running. `change` sees only the records."""
        while (head := self.store.head(self.owner, self.conversation, self.branch)) is not None:
            records = tuple(each.record for each in head.records)
            bare = Transcript(records=Standing(records), shed=Ranges(entries=((0, head.size),)))
            new = [
                place_record(msgspec.structs.replace(record, entry=record.entry or head.entry or ""), head.size - 1)
                for record in change(bare).records
                if record not in records
            ]
            commit = Commit(branch=self.branch, expect=head.revision, records=tuple(new), lease=head.lease, at=now())
            with contextlib.suppress(HeadMoved):
                self.write(commit)
                return

    def remember(self, head: BranchHead, transcript: Transcript) -> None:
        """Cache the head and the transcript of the branch after a turn."""
        # A turn stores derived records beside those of its transcript.
        derived = [each.record for each in head.records if kind_of(each.record.kind).is_derived]
        if derived:
            own = [record for record in transcript.records if not kind_of(record.kind).is_derived]
            transcript = transcript.with_records((*derived, *own))
        transcript = transcript.with_records(map(withhold_foreign, transcript.records))
        self._seen = (head, _trim_and_pack(transcript, head, self._list_needed_spans(transcript, head.size)))

    def _list_needed_spans(self, transcript: Transcript, size: int) -> list[tuple[int, int]]:
        """Return the spans of entries that the next turn needs: those that the present epoch sends."""
        epoch = transcript.records.read_latest("epoch", Epoch)
        if (
            epoch is None
            or epoch.policy != fingerprint_policy(self.policy)
            or not has_all_pins(epoch, list_pinned_positions(transcript))
            or epoch.excluded != list_excluded_positions(transcript)
        ):
            return [(0, size)]
        positions = [0, *[position for span in epoch.pinned for position in span], epoch.raw]
        if positions != sorted(positions) or epoch.raw >= size:
            # The epoch was imported and does not match the branch.
            return [(0, size)]
        return [span for span in (*epoch.pinned, (epoch.raw, size)) if span[0] < span[1]]

    async def _read(self, head: BranchHead, *, whole: bool) -> Transcript:
        bare = Transcript(records=Standing(placed.record for placed in head.records))
        spans = [(0, head.size)] if whole else self._list_needed_spans(bare, head.size)
        packs = [await self.call(self.store.read, self.branch, *span) for span in spans]
        read = msgspec.structs.replace(
            bare,
            pack=join_slices([(pack, 0, len(pack)) for pack in packs]) if packs else EMPTY,
            turns=Turns(fresh=(head.turn,)) if head.turn else Turns(),
            revision=head.revision,
            created=head.created,
            updated=head.updated,
            shed=_find_gaps(spans),
        )
        epoch = bare.records.read_latest("epoch", Epoch)
        if read.shed.entries and epoch != find_epoch(read, fingerprint_policy(self.policy)):
            # An epoch that separates a result from its call is not used, so the whole branch is needed.
            return await self._read(head, whole=True)
        return read


def _find_gaps(spans: Sequence[tuple[int, int]]) -> Ranges:
    """Return the ranges before and between these spans, which stay in the store when the spans are read."""
    gaps = pairwise((0, *[position for span in spans for position in span]))
    return Ranges(entries=tuple((start, stop - start) for start, stop in list(gaps)[::2] if start < stop))


def _trim_and_pack(transcript: Transcript, head: BranchHead, spans: Sequence[tuple[int, int]]) -> Transcript:
    """Return the transcript cut to these spans.

    Fresh entries are packed only occasionally, because packing copies all.
    """
    pack, index_of = transcript.pack, transcript.index_of
    fresh, shed = transcript.fresh, transcript.shed
    trims = sum([stop - start for start, stop in spans]) < len(transcript)
    if fresh and (trims or len(fresh) > FRESH):
        index, tail, crc = pack.grow(fresh)
        pack, fresh = Pack(index, b"".join((memoryview(pack.array)[:-1], tail)), crc), ()
    if trims:
        pack, shed = join_slices([(pack, index_of(start), index_of(stop)) for start, stop in spans]), _find_gaps(spans)
    last = transcript.turns.last
    turns = Turns(fresh=() if last is None else (last,))
    return msgspec.structs.replace(transcript, pack=pack, fresh=fresh, turns=turns, revision=head.revision, shed=shed)


def place_record(record: Record, position: int) -> PlacedRecord:
    """Return the record with its position.

    A summary is placed no later than the last entry that it covers, and a mark of privacy before the first entry.
    """
    if record.kind == PRIVATE:
        return PlacedRecord(record, -1)
    summary = read_record(record, Summary) if record.kind == "summary" else None
    return PlacedRecord(record, position if summary is None else min(position, summary.stop - 1))
