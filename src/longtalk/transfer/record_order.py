"""Reconstruct the order in which the records of a conversation were written, from their order on each branch.

For some kinds only the newest record counts, so a copy has to write records in the original order. A record attached to
an entry that several branches share is written once for all of them. Records of a kind that is visible only on its own
branch (`own_branch_only`) are written once for each branch that has them, since a copy creates all branches before it
adds records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from longtalk.stores.base import PlacedRecord
from longtalk.transcript.record_kinds import kind_of
from longtalk.transfer.conversation_export import BranchPart
from longtalk.transfer.snapshot import Snapshot, select_current_records, select_permanent_records


class _RecordToWrite(NamedTuple):
    """A record to write. Equal values on different branches stand for one shared record, which is written once."""

    owner: str
    """The branch to write to: the one that added the entry or, for `own_branch_only`, the one that has the record."""
    placed: PlacedRecord
    repeat: int
    """The number of equal records that precede this one on the branch."""


def order_missing_records(
    new: Snapshot, branches: Sequence[BranchPart], have: Mapping[str, Sequence[PlacedRecord]]
) -> list[tuple[str, PlacedRecord]]:
    """Return the records of `new` that the store lacks, in their original order, each with the branch to write it to.

    `branches` are the parts of the conversation as stored; `have` has the records that are already stored, by branch.
    """
    parts = {part.name: part for part in branches}
    # For kinds whose replaced records may be discarded, only the newest record of each branch matters.
    differs: set[str] = set()
    for name, path in new.paths.items():
        ours, theirs = select_current_records(path.records), select_current_records(have.get(name, ()))
        differs |= {kind for kind in {*ours, *theirs} if ours.get(kind) != theirs.get(kind)}
    there: set[_RecordToWrite] = set()
    newest: set[_RecordToWrite] = set()
    queues: dict[str, list[_RecordToWrite]] = {}
    for name, path in new.paths.items():
        queues[name] = _list_records(parts, name, path.records)
        there |= set(_list_records(parts, name, select_permanent_records(have.get(name, ()))))
        newest |= set({record.placed.record.kind: record for record in queues[name]}.values())

    def is_missing(record: _RecordToWrite) -> bool:
        kind = record.placed.record.kind
        if kind in differs:
            return record in newest
        return record not in there and not kind_of(kind).may_discard_replaced

    return [(branch, record.placed) for branch, record in _merge_queues(queues) if is_missing(record)]


def _list_records(
    branches: Mapping[str, BranchPart], branch: str, records: Sequence[PlacedRecord]
) -> list[_RecordToWrite]:
    """Return the records that `branch` sees, each with the branch that it is written to."""
    seen: Counter[tuple[str, PlacedRecord]] = Counter()
    found: list[_RecordToWrite] = []
    for placed in records:
        owner = (
            branch if kind_of(placed.record.kind).own_branch_only else _find_owner(branches, branch, placed.position)
        )
        found.append(_RecordToWrite(owner, placed, seen[owner, placed]))
        seen[owner, placed] += 1
    return found


def _find_owner(branches: Mapping[str, BranchPart], branch: str, position: int) -> str:
    """Return the branch that added the entry at this position of `branch`; for -1, the branch with the first entry."""
    part = branches[branch]
    while part.source is not None and position < part.start:
        part = branches[part.source[0]]
    return part.name


def _merge_queues(queues: Mapping[str, Sequence[_RecordToWrite]]) -> list[tuple[str, _RecordToWrite]]:
    """Merge queues of records into one order in which each record occurs once, paired with a branch that has it.

    The order within each queue is kept. If two queues have the same records in different orders, the order of the first
    queue is used. The time grows with the total length of the queues.
    """
    names, lists = list(queues), list(queues.values())
    holders: dict[_RecordToWrite, list[int]] = {}
    for i, queue in enumerate(lists):
        for record in queue:
            holders.setdefault(record, []).append(i)
    next_index = [0] * len(lists)
    is_next: Counter[_RecordToWrite] = Counter()
    ready: list[int] = []  # a heap: for each record that is next in every queue that has it, the first of these queues
    taken: set[_RecordToWrite] = set()

    def find_next(i: int) -> None:
        while next_index[i] < len(lists[i]) and lists[i][next_index[i]] in taken:
            next_index[i] += 1
        if next_index[i] < len(lists[i]):
            record = lists[i][next_index[i]]
            is_next[record] += 1
            if is_next[record] == len(holders[record]):
                heappush(ready, holders[record][0])

    for i in range(len(lists)):
        find_next(i)
    merged: list[tuple[str, _RecordToWrite]] = []
    first = 0
    while len(merged) < len(holders):
        while next_index[first] == len(lists[first]):
            first += 1
        # If no record is ready, take the next of the first queue.
        chosen = heappop(ready) if ready else first
        record = lists[chosen][next_index[chosen]]
        merged.append((names[chosen], record))
        taken.add(record)
        for i in holders[record]:
            if lists[i][next_index[i]] == record:
                find_next(i)
    return merged
