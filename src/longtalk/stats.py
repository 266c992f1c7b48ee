"""Conversations in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from longtalk.attempts import Attempt
from longtalk.manifest import read
from longtalk.portable import Talk
from longtalk.prices import summed
from longtalk.records import read_record
from longtalk.wires import reported
from longtalk.wires.base import Usage


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """What there is, in numbers. Entries and turns that branches share count once."""

    conversations: int = 0
    branches: int = 0
    entries: int = 0
    bytes: int = 0
    """Of the JSON of all entries."""
    turns: Mapping[str, int] = {}
    """By status."""
    models: Mapping[str, int] = {}
    """Turns by who answered."""
    usage: Usage = Usage()
    """Tokens of all model calls, as reported."""
    cost: float = 0.0
    """US dollars for the turns and summaries of which that is known, at the prices of their day."""
    unpriced: int = 0
    """Turns and summaries of a model whose price is not known."""

    def __add__(self, other: Stats) -> Stats:
        return Stats(
            conversations=self.conversations + other.conversations,
            branches=self.branches + other.branches,
            entries=self.entries + other.entries,
            bytes=self.bytes + other.bytes,
            turns=_added(self.turns, other.turns),
            models=_added(self.models, other.models),
            usage=self.usage + other.usage,
            cost=summed((self.cost, other.cost)),
            unpriced=self.unpriced + other.unpriced,
        )


def counted(talk: Talk, manifests: Mapping[str, bytes]) -> Stats:
    """A conversation in numbers, given the manifests of its turns."""
    entries = [entry for limb in talk.limbs for entry in limb.entries]
    turns = {turn.id: turn for limb in talk.limbs for turn in limb.turns}
    wires = {entry.turn: entry.wire for entry in entries if entry.role == "assistant"}
    costs = {turn: read(manifests.get(turn, b"")).cost for turn in turns}
    reports = [(raw, wires.get(turn.id, "")) for turn in turns.values() for raw in turn.usage]
    # Summaries that were made while nobody waited are in no turn.
    records = [each.record for limb in talk.limbs for each in limb.records if each.record.kind == "attempt"]
    apart = [each for each in (read_record(record, Attempt) for record in records) if each is not None and each.usage]
    reports += [(raw.encode(), "") for each in apart for raw in each.usage]
    return Stats(
        conversations=1,
        branches=len(talk.limbs),
        entries=len(entries),
        bytes=sum(len(entry.native) for entry in entries),
        turns=_tally(turn.status for turn in turns.values()),
        models=_tally(turn.model for turn in turns.values()),
        usage=sum((reported(raw, wire) for raw, wire in reports), Usage()),
        cost=summed(cost for cost in (*costs.values(), *[each.cost for each in apart]) if cost is not None),
        unpriced=sum(costs[turn.id] is None for turn in turns.values() if turn.usage or turn.id in wires)
        + sum(each.cost is None for each in apart),
    )


def _tally(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _added(some: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return _tally((Counter(some) + Counter(more)).elements())
