"""Cut a stored branch after or before an entry; a new branch keeps what is cut off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from longtalk._util.concurrency import call_store
from longtalk.branches.append import LeasedWriter
from longtalk.branches.branch import AsyncBranch
from longtalk.branches.operations import create_branch_at, find_range, wait_for_turn
from longtalk.stores.base import BranchHead, Commit, HeadMoved
from longtalk.transcript.transcript import Entry, now


async def rewind_branch(stored: AsyncBranch, to: str) -> str:
    """Cut the branch after an entry or a turn. Return the name of a new branch that keeps the entries cut off."""
    return await _rewind(stored, lambda said: find_range(said, to)[1])


async def rewind_before(stored: AsyncBranch, entry: str) -> str:
    """Cut the branch before an entry or a turn, even the first one. Return the branch that keeps the rest."""
    return await _rewind(stored, lambda said: find_range(said, entry)[0])


async def _rewind(stored: AsyncBranch, find: Callable[[Sequence[Entry]], int]) -> str:
    """Cut the branch to a number of entries, which `find` returns. Return the branch that keeps the rest."""
    while True:
        stored.forget()
        head, _ = await stored.load()
        size = find(await stored.entries())
        if head is None or not stored.is_free(head):
            await wait_for_turn(stored)
            continue
        # A lease keeps other writers away, so that the new branch has all that is cut off.
        writer = LeasedWriter(stored, head)
        first = Commit(branch=stored.branch, expect=0, at=head.updated)
        try:
            held: BranchHead = await call_store(
                stored.store, partial(writer.write_one, first, head.revision, lasts=True)
            )
            # It is as old as what it keeps, so the conversation goes on on the branch that was cut.
            kept = await create_branch_at(stored, None, head.size, head.entry, at=head.updated)
            if kept is not None:
                last = Commit(branch=stored.branch, expect=0, cut=size, at=now())
                await call_store(stored.store, partial(writer.go_on, last, held.revision, lasts=False))
        except HeadMoved:
            continue
        finally:
            writer.drop()
        stored.forget()
        if kept is not None:
            return kept.branch
