"""Deletes a conversation that has not changed for some time, unless a turn runs on it.

A lease on every branch is taken before the conversation is deleted, so a turn can't begin in between: it finds the
branch busy, and then no conversation.
"""

from __future__ import annotations

import contextlib

from longtalk.stores.base import BranchHead, Commit, DeletionReceipt, HeadMoved, Store
from longtalk.stores.leases import HeldLease, begin_write, drop_lease, end_write, hold_lease, is_free, make_lease


def expire(store: Store, owner: str, conversation: str, before: int) -> DeletionReceipt | None:
    """Delete a conversation whose last change was before a time in milliseconds since 1970.

    Returns None if it stays: it has changed since, a turn runs on it, or it does not exist.
    """
    info = store.info(owner, conversation)
    if info is None or info.updated >= before:
        return None
    held: list[tuple[HeldLease, BranchHead]] = []
    receipt = None
    try:
        for head in store.branches(owner, conversation):
            if not is_free(head, owner, conversation):
                return None
            lease = HeldLease(store, owner, conversation, head.branch, head.token + 1)
            try:
                begin_write(lease)
                held.append((lease, _write(lease, head, lasts=True)))
                hold_lease(lease)
            except HeadMoved:
                return None
            finally:
                end_write(lease)
        receipt = store.delete(owner, conversation)
    finally:
        for lease, head in held:
            drop_lease(lease)
            if receipt is None:
                with contextlib.suppress(HeadMoved):
                    _write(lease, head, lasts=False)
    return receipt


def _write(lease: HeldLease, head: BranchHead, *, lasts: bool) -> BranchHead:
    """Take or release the lease of a branch. The time of its last change stays."""
    given = make_lease(lease.token) if lasts else None
    commit = Commit(branch=head.branch, expect=head.revision, lease=given, at=head.updated)
    return lease.store.write(lease.owner, lease.conversation, commit)
