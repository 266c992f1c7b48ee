"""In which order the records of a conversation were made, told from the order on each of its branches.

Of some kinds the newest record counts, so a copy has to write them in this order. A record of an entry that branches
share is there once for all of them; what a branch keeps to itself (`ALONE`) is written for each that sees it, since in
a copy all branches are there before their records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from longtalk.portable import Limb
from longtalk.stores.base import ALONE, BRIEF, Placed
from longtalk.whole import Whole, lasting, shown

_Made = tuple[str, Placed, int]
"""A record that is written once: the branch that holds its entry, itself, and how many of the same were before it."""


def merged(new: Whole, limbs: Sequence[Limb], have: Mapping[str, Sequence[Placed]]) -> list[tuple[str, Placed]]:
    """The records to write, each with a branch to write it on, given those that branches have already.

    `limbs` are the branches as what each added to the others where the records are written.
    """
    parts = {limb.name: limb for limb in limbs}
    # Of kinds of which a store need not keep what was replaced, the newest of each branch, if one is not there.
    differs = {
        kind
        for kind in BRIEF
        if any(shown(path.records).get(kind) != shown(have.get(name, ())).get(kind) for name, path in new.paths.items())
    }
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
            made in newest if made[1].record.kind in differs else made not in there and made[1].record.kind not in BRIEF
        )
    ]


def _made(limbs: Mapping[str, Limb], branch: str, records: Sequence[Placed]) -> list[_Made]:
    seen: Counter[tuple[str, Placed]] = Counter()
    made: list[_Made] = []
    for placed in records:
        holder = branch if placed.record.kind in ALONE else _holder(limbs, branch, placed.place)
        made.append((holder, placed, seen[holder, placed]))
        seen[holder, placed] += 1
    return made


def _holder(limbs: Mapping[str, Limb], branch: str, place: int) -> str:
    """The branch that has added the entry at a place of a path; for -1, the one that the path begins on."""
    limb = limbs[branch]
    while limb.source is not None and place < limb.start:
        limb = limbs[limb.source[0]]
    return limb.name


def _order(queues: Mapping[str, Sequence[_Made]]) -> list[tuple[str, _Made]]:
    """All of them once, such that each queue is in order, with a queue that has it."""
    left = {name: list(reversed(queue)) for name, queue in queues.items()}
    waits = Counter(made for queue in queues.values() for made in queue)
    ahead: Counter[_Made] = Counter(queue[-1] for queue in left.values() if queue)
    found: list[tuple[str, _Made]] = []
    while any(left.values()):
        # One that is the next wherever it is; where branches tell different stories, any.
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
