"""Reconstruct the order in which the records of a conversation were written, from their order on each branch.

For some kinds only the newest record counts, so a copy has to write records in the original order. A record attached to
an entry that several branches share is written once for all of them. Records of a kind that is visible only on its own
branch (`own_branch_only`) are written once for each branch that has them, since a copy creates all branches before it
adds records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
    queue is used.
    """
    remaining = {name: list(reversed(queue)) for name, queue in queues.items()}
    occurrences = Counter(record for queue in queues.values() for record in queue)
    is_next: Counter[_RecordToWrite] = Counter(queue[-1] for queue in remaining.values() if queue)
    merged: list[tuple[str, _RecordToWrite]] = []
    while any(remaining.values()):
        # Take a record that is next in every queue that has it. If there is none, take the next of the first queue.
        name = next(
            (name for name, queue in remaining.items() if queue and is_next[queue[-1]] == occurrences[queue[-1]]),
            next(name for name, queue in remaining.items() if queue),
        )
        record = remaining[name][-1]
        merged.append((name, record))
        for queue in remaining.values():
            if queue and queue[-1] == record:
                queue.pop()
                if queue:
                    is_next[queue[-1]] += 1
            elif record in queue:
                queue.remove(record)
    return merged
