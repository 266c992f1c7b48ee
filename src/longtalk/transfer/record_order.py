"""Reconstruct the order in which the records of a conversation were written, from their order on each branch.

For some kinds only the newest record counts, so a copy has to write records in the original order. A record attached to
an entry that several branches share is written once for all of them. A record of a kind that each branch keeps for
itself (`own_branch_only`) is written for every branch that sees it, since a copy creates all branches before it adds
records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from longtalk.stores.base import PlacedRecord
from longtalk.transcript.record_kinds import kind_of
from longtalk.transfer.conversation_export import BranchPart
from longtalk.transfer.snapshot import Snapshot, lasting, shown

_Made = tuple[str, PlacedRecord, int]
"""A record to write: the branch that holds its entry, the record, and the number of equal records before it."""


def merged(
    new: Snapshot, branches: Sequence[BranchPart], have: Mapping[str, Sequence[PlacedRecord]]
) -> list[tuple[str, PlacedRecord]]:
    """Return the records that the store lacks, in their original order, each with the branch to write it to.

    `branches` are the parts of the stored conversation; `have` lists the records that each branch already has.
    """
    parts = {part.name: part for part in branches}
    # For kinds whose replaced records may be discarded, only the newest of each branch matters.
    differs: set[str] = set()
    for name, path in new.paths.items():
        ours, theirs = shown(path.records), shown(have.get(name, ()))
        differs |= {kind for kind in {*ours, *theirs} if ours.get(kind) != theirs.get(kind)}
    there: set[_Made] = set()
    newest: set[_Made] = set()
    queues: dict[str, list[_Made]] = {}
    for name, path in new.paths.items():
        queues[name] = _made(parts, name, path.records)
        there |= set(_made(parts, name, lasting(have.get(name, ()))))
        newest |= set({made[1].record.kind: made for made in queues[name]}.values())
    return [
        (branch, made[1])
        for branch, made in _order(queues)
        if (
            made in newest
            if made[1].record.kind in differs
            else made not in there and not kind_of(made[1].record.kind).may_discard_replaced
        )
    ]


def _made(branches: Mapping[str, BranchPart], branch: str, records: Sequence[PlacedRecord]) -> list[_Made]:
    """Return the records of a branch in the form of `_Made`."""
    seen: Counter[tuple[str, PlacedRecord]] = Counter()
    made: list[_Made] = []
    for placed in records:
        holder = branch if kind_of(placed.record.kind).own_branch_only else _holder(branches, branch, placed.position)
        made.append((holder, placed, seen[holder, placed]))
        seen[holder, placed] += 1
    return made


def _holder(branches: Mapping[str, BranchPart], branch: str, place: int) -> str:
    """Return the branch that added the entry at a position; for position -1, the first branch of the path."""
    part = branches[branch]
    while part.source is not None and place < part.start:
        part = branches[part.source[0]]
    return part.name


def _order(queues: Mapping[str, Sequence[_Made]]) -> list[tuple[str, _Made]]:
    """Merge queues of records into one order in which each record occurs once, paired with a branch that has it.

    The order of each queue is kept.
    """
    left = {name: list(reversed(queue)) for name, queue in queues.items()}
    waits = Counter(made for queue in queues.values() for made in queue)
    ahead: Counter[_Made] = Counter(queue[-1] for queue in left.values() if queue)
    found: list[tuple[str, _Made]] = []
    while any(left.values()):
        # Prefer a record that is next in every queue that has it; if the queues disagree, take any.
        name = next(
            (name for name, queue in left.items() if queue and ahead[queue[-1]] == waits[queue[-1]]),
            next(name for name, queue in left.items() if queue),
        )
        made = left[name][-1]
        found.append((name, made))
        for queue in left.values():
            if queue and queue[-1] == made:
                queue.pop()
                if queue:
                    ahead[queue[-1]] += 1
            elif made in queue:
                queue.remove(made)
    return found
