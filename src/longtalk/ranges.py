"""Places in the whole conversation: what a state misses, and what a part of it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from longtalk.pack import MAX_COUNT, MAX_ENTRIES

Span = tuple[int, int]
"""Neighbours, as (first, past the last)."""
Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Counted = Annotated[tuple[tuple[Number, Number], ...], msgspec.Meta(max_length=MAX_ENTRIES)]
"""Neighbours, as (first, number)."""


class Ranges(msgspec.Struct, frozen=True, array_like=True):
    """Parts of a transcript, by their place in the whole; neighbours are one. Records never leave a state."""

    number: Number = 0
    """How often something was handed out."""
    chain: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?\Z")] = ""
    """A digest of all that was, each with the digest before it."""
    entries: Counted = ()
    turns: Counted = ()

    def check(self, entries: int, turns: int, *, part: bool) -> None:
        """Raise `ValueError` unless this fits so many entries and turns: of a part those that it names, of a state
        those that are left."""
        missing = 0
        for spans, size in ((self.entries, entries), (self.turns, turns)):
            end = count = 0
            for first, length in spans:
                # Only the first of them may begin where nothing stands before it.
                if not length or first < end + (end > 0):
                    raise ValueError("its ranges are not in order")
                # Of a state: all that stands before it and did not leave has to be here.
                if not part and first - count > size:
                    raise ValueError("its ranges are out of range")
                end, count = first + length, count + length
            if end > MAX_COUNT or (part and count != size):
                raise ValueError("its ranges are out of range")
            missing += count
        if part:
            fits = self.number > 0 and missing > 0 and bool(self.chain) == (self.number > 1)
        else:
            fits = self.number <= missing and bool(self.number) == bool(missing) == bool(self.chain)
        if not fits:
            raise ValueError("its number and its chain don't fit what has left")


def merged(spans: Iterable[Span]) -> list[Span]:
    """Spans in order and with neighbours made one."""
    found: list[Span] = []
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        elif start < stop:
            found.append((start, stop))
    return found


def places(spans: Iterable[Span], missing: Sequence[Span]) -> list[Span]:
    """Where in the whole those are that have these positions where something is missing."""
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
