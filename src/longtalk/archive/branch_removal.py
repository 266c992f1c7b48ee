"""Delete one branch of a stored conversation, with all that no other branch shares.

Stores delete whole conversations only. So the conversation is deleted and written again without the branch, under the
locks that a copy uses, while a second copy of it guards against a process that dies in between.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from longtalk.archive.tree import find_last_branch
from longtalk.errors import Busy, CorruptStore, InputError, NotFound
from longtalk.stores.base import MAIN, DeletionReceipt, HeadMoved, KeyedTurn, Store
from longtalk.stores.leases import is_free
from longtalk.transcript.transcript import new_id, now
from longtalk.transfer.conversation_export import split_branches
from longtalk.transfer.restore import make_mark, remove, write_new
from longtalk.transfer.snapshot import Snapshot, read_snapshot


def delete_branch(store: Store, owner: str, conversation: str, branch: str) -> DeletionReceipt:
    """Delete a branch, and return a receipt that counts what only this branch had.

    Raise `NotFound` if there is no such branch, `InputError` for the main branch and for the one on which the
    conversation goes on, and `Busy` while a turn is running.
    """
    while True:
        there = read_snapshot(store, owner, conversation)
        if there is None or branch not in there.paths:
            raise NotFound(f"Conversation {conversation!r} not found, or it has no branch {branch!r}.")
        _check_unused(there, owner, branch)
        rest = _leave_out(there, branch)
        guard = _with_id(there, f"{conversation} (while a branch is deleted, {new_id()[:6]})")
        write_new(store, owner, guard, make_mark())
        try:
            remove(store, owner, there)
        except HeadMoved:
            # Nothing is deleted yet: undo the mark, and decide again.
            store.describe(owner, conversation, there.export.meta)
            store.delete(owner, guard.id)
            continue
        write_new(store, owner, rest, make_mark())
        made = read_snapshot(store, owner, conversation)
        if made is None or made.comparison_key() != rest.comparison_key():
            raise CorruptStore(f"Conversation {conversation!r} could not be written again: it is kept as {guard.id!r}.")
        store.delete(owner, guard.id)
        return _make_receipt(there, rest, branch)


def _check_unused(there: Snapshot, owner: str, branch: str) -> None:
    if branch == MAIN:
        raise InputError("The main branch can't be deleted: delete another branch, or the whole conversation.")
    if branch == find_last_branch(there.heads):
        raise InputError(
            f"Conversation {there.id!r} goes on on the branch {branch!r}, so it can't be deleted: continue another "
            "branch first, or delete the whole conversation."
        )
    if not all(is_free(head, owner, there.id) for head in there.heads):
        raise Busy(f"A turn is running in {there.id!r}: delete the branch when it has ended.", until=0)


def _with_id(there: Snapshot, name: str) -> Snapshot:
    """Return a conversation under another id."""
    return Snapshot(
        msgspec.structs.replace(there.export, id=name),
        tuple(there.paths.values()),
        manifests=there.manifests,
        requests=there.requests,
        updated=there.updated,
        heads=there.heads,
    )


def _leave_out(there: Snapshot, branch: str) -> Snapshot:
    """Return a conversation without one of its branches."""
    paths = [path for name, path in there.paths.items() if name != branch]
    turns = {turn.id: path.name for path in reversed(paths) for turn in path.turns}
    requests: list[KeyedTurn] = []
    for keyed in there.requests:
        if keyed.turn.id in turns:
            is_lost = keyed.branch == branch
            requests.append(msgspec.structs.replace(keyed, branch=turns[keyed.turn.id]) if is_lost else keyed)
    return Snapshot(
        msgspec.structs.replace(there.export, branches=tuple(paths) if len(paths) == 1 else split_branches(paths)),
        paths,
        manifests={turn: data for turn, data in there.manifests.items() if turn in turns},
        requests=requests,
        updated={name: at for name, at in there.updated.items() if name != branch},
        heads=[head for head in there.heads if head.branch != branch],
    )


def _make_receipt(there: Snapshot, rest: Snapshot, branch: str) -> DeletionReceipt:
    turns, records = set(), Counter[object]()
    for path in rest.paths.values():
        turns |= {turn.id for turn in path.turns}
        records |= Counter(path.records)
    gone = there.paths[branch]
    return DeletionReceipt(
        conversation=there.id,
        entries=there.entries - rest.entries,
        turns=len({turn.id for turn in gone.turns} - turns),
        records=(Counter[object](gone.records) - records).total(),
        branches=1,
        at=now(),
    )
