"""Add turns to a stored branch without a model call, under a lease, so that no other turn comes between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

import msgspec

from longtalk._util.concurrency import call_store
from longtalk.branches.branch import AsyncBranch
from longtalk.branches.operations import load_free
from longtalk.errors import Busy
from longtalk.stores.base import BranchHead, Commit, HeadMoved
from longtalk.stores.leases import begin_write, drop_lease, end_write, hold_lease, identify_this_process, make_lease
from longtalk.transcript.transcript import Entry, Transcript, now


async def append_turns(stored: AsyncBranch, change: Callable[[Transcript], Transcript]) -> Sequence[Entry]:
    """Add to the branch the turns that `change` adds to its transcript, after waiting for a running turn.

    Each turn is one commit. If the process dies in between, the turns written so far are stored, each of them complete.
    """
    while True:
        head, before = await load_free(stored)
        after = change(before)
        writer = LeasedWriter(stored, head)
        write = partial(writer.write, _make_commits(stored.branch, before, after))
        try:
            written: BranchHead = await call_store(stored.store, write)
        except HeadMoved:
            # Another writer was faster, but nothing has been written yet.
            continue
        stored.remember(written, after)
        return after.fresh[len(before.fresh) :]


def _make_commits(branch: str, before: Transcript, after: Transcript) -> list[Commit]:
    """Return a commit for each new turn.

    The first commit contains changes to the turn before them, if there are any.
    """
    turns = {turn.id: turn for turn in after.turns}
    last = before.turns[-1] if len(before.turns) else None
    new = {name: tuple(group) for name, group in groupby(after.fresh[len(before.fresh) :], lambda entry: entry.turn)}
    if last is not None and turns[last.id] != last:
        # The earlier turn was left running.
        new = {last.id: (), **new}
    return [Commit(branch=branch, expect=0, entries=each, turn=turns.get(name), at=now()) for name, each in new.items()]


class LeasedWriter:
    """A writer for several commits between which no other process can write to the branch."""

    def __init__(self, stored: AsyncBranch, head: BranchHead | None) -> None:
        self._stored = stored
        self._revision = head.revision if head else 0
        self._held = stored.make_held_lease((head.token if head else 0) + 1)

    def write(self, commits: Sequence[Commit]) -> BranchHead:
        """Write the commits in this thread, and return the new head. Raise `HeadMoved` if the first one fails."""
        try:
            head = self.write_one(commits[0], self._revision, lasts=len(commits) > 1)
            for i, commit in enumerate(commits[1:], 2):
                head = self.go_on(commit, head.revision, lasts=i < len(commits))
        finally:
            self.drop()
        return head

    def drop(self) -> None:
        """Stop holding the lease, if the last commit has not released it."""
        drop_lease(self._held)

    def write_one(self, commit: Commit, expect: int, *, lasts: bool) -> BranchHead:
        """Write a commit in this thread, with the lease if it `lasts`. Raise `HeadMoved` if it is not as expected."""
        lease = make_lease(self._held.token) if lasts else None
        try:
            begin_write(self._held)
            head = self._stored.write(msgspec.structs.replace(commit, expect=expect, lease=lease))
            if lasts:
                hold_lease(self._held)
        finally:
            end_write(self._held)
        return head

    def go_on(self, commit: Commit, expect: int, *, lasts: bool) -> BranchHead:
        """Write a later commit, even if an entry was redacted or a summary added in the meantime."""
        while True:
            try:
                return self.write_one(commit, expect, lasts=lasts)
            except HeadMoved as moved:
                lease = moved.head.lease if moved.head else None
                if moved.head is None or lease is None:
                    raise _taken_over(self._stored, 0) from None
                if (lease.token, lease.holder) != (self._held.token, identify_this_process()):
                    raise _taken_over(self._stored, lease.until) from None
                expect = moved.head.revision


def _taken_over(stored: AsyncBranch, until: int) -> Busy:
    what = (
        f"Another writer has continued {stored.conversation!r} while it was being changed: read the history to see "
        "what was stored."
    )
    return Busy(what, until=until)
