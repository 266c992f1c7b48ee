"""Conversations in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from longtalk.portable import Talk
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

    def __add__(self, other: Stats) -> Stats:
        return Stats(
            conversations=self.conversations + other.conversations,
            branches=self.branches + other.branches,
            entries=self.entries + other.entries,
            bytes=self.bytes + other.bytes,
            turns=_added(self.turns, other.turns),
            models=_added(self.models, other.models),
            usage=self.usage + other.usage,
        )


def counted(talk: Talk) -> Stats:
    """A conversation in numbers."""
    entries = [entry for limb in talk.limbs for entry in limb.entries]
    turns = {turn.id: turn for limb in talk.limbs for turn in limb.turns}
    wires = {entry.turn: entry.wire for entry in entries if entry.role == "assistant"}
    reports = [(raw, wires.get(turn.id, "")) for turn in turns.values() for raw in turn.usage]
    return Stats(
        conversations=1,
        branches=len(talk.limbs),
        entries=len(entries),
        bytes=sum(len(entry.native) for entry in entries),
        turns=_tally(turn.status for turn in turns.values()),
        models=_tally(turn.model for turn in turns.values()),
        usage=sum((reported(raw, wire) for raw, wire in reports), Usage()),
    )


def _tally(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _added(some: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return _tally((Counter(some) + Counter(more)).elements())
