"""Ranges of positions in the whole conversation: those that a state has shed, and those that a shed part holds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Annotated

import msgspec

from longtalk.transcript.pack_index import MAX_COUNT, MAX_ENTRIES

Span = tuple[int, int]
"""A range of consecutive positions, as (start, stop); `stop` is not included."""
Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Counted = Annotated[tuple[tuple[Number, Number], ...], msgspec.Meta(max_length=MAX_ENTRIES)]
"""Ranges of consecutive positions, each as (start, number of positions)."""


class Ranges(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """The ranges of entries and turns that were moved out of a state (shed), by position in the whole conversation.

    Adjacent ranges are merged. Records are never shed.
    """

    number: Number = 0
    """In a state, the number of parts that were shed; in a part, its own number, counted from 1."""
    chain: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?\Z")] = ""
    """In a state, the last link of the digest chain through its shed parts; in a part, the link before this part."""
    entries: Counted = ()
    turns: Counted = ()

    @cached_property
    def _shed_before(self) -> list[int]:
        """The number of shed entries before each range of entries and, as the last item, in all ranges."""
        return list(accumulate((count for _, count in self.entries), initial=0))

    @cached_property
    def _indexes(self) -> list[int]:
        """For each range of entries, the index in the transcript of the entry after it."""
        return [first - shed for (first, _), shed in zip(self.entries, self._shed_before, strict=False)]

    @cached_property
    def _ends(self) -> list[int]:
        """For each range of entries, the position after its last entry."""
        return [first + count for first, count in self.entries]

    def to_position(self, i: int) -> int:
        """Return the position in the whole conversation of the entry at index `i` of a transcript with these ranges."""
        return i + self._shed_before[bisect_right(self._indexes, i)]

    def to_index(self, position: int) -> int:
        """Return the index of the entry at a position in the whole conversation; if it was shed, of the next entry."""
        k = bisect_right(self._ends, position)
        return (min(position, self.entries[k][0]) if k < len(self.entries) else position) - self._shed_before[k]

    def check(self, entries: int, turns: int, *, part: bool) -> None:
        """Raise `ValueError` unless these ranges fit a transcript with the given numbers of entries and turns.

        A shed part (`part=True`) must have exactly the entries and turns in the ranges. A state must have all entries
        and turns before and between the ranges.
        """
        missing = 0
        for spans, size in ((self.entries, entries), (self.turns, turns)):
            end = count = 0
            for first, length in spans:
                # Ranges that touch must have been merged, and only the first range may start at 0.
                if not length or first < end + (end > 0):
                    raise ValueError("the ranges of shed entries or turns are not in order")
                # In a state, every entry before the range that was not shed must be present.
                if not part and first - count > size:
                    raise ValueError(
                        "the ranges of shed entries or turns don't fit the entries and turns that are present"
                    )
                end, count = first + length, count + length
            if end > MAX_COUNT or (part and count != size):
                raise ValueError("the ranges of shed entries or turns don't fit the entries and turns that are present")
            missing += count
        if part:
            fits = self.number > 0 and missing > 0 and bool(self.chain) == (self.number > 1)
        else:
            fits = self.number <= missing and bool(self.number) == bool(missing) == bool(self.chain)
        if not fits:
            raise ValueError("the number and the digest chain of the shed parts don't match the ranges")


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Return the spans in ascending order, with adjacent and overlapping spans merged and empty spans dropped."""
    found: list[Span] = []
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        elif start < stop:
            found.append((start, stop))
    return found


class SpanSet:
    """The set of all numbers in some spans."""

    def __init__(self, spans: Iterable[Span]) -> None:
        merged = merge_spans(spans)
        self.starts = [start for start, _ in merged]
        """The first number of each span, in ascending order. The spans do not overlap."""
        self.stops = [stop for _, stop in merged]

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        i = bisect_right(self.starts, number) - 1
        return i >= 0 and number < self.stops[i]


def to_positions(spans: Iterable[Span], missing: Sequence[Span]) -> list[Span]:
    """Convert spans of indexes in a transcript to spans of positions in the whole conversation.

    `missing` are the spans of positions that the transcript has shed.
    """
    found: list[Span] = []
    gap = before = 0
    for start, stop in spans:
        while start < stop:
            while gap < len(missing) and missing[gap][0] - before <= start:
                before += missing[gap][1] - missing[gap][0]
                gap += 1
            end = min(stop, missing[gap][0] - before) if gap < len(missing) else stop
            found.append((start + before, end + before))
            start = end
    return found
