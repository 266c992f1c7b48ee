"""Paths through the segments of a conversation, for all stores that use segments.

A conversation is a tree of entries, and each entry belongs to a segment. Every branch has its own segment, which starts
after some entries of another segment. A path consists of one span from each segment on the way from the root to the
branch's own segment. A fork or a cut starts a new segment, so nothing is copied or moved, and a position in a segment
always means the same entry. Each store chooses how to represent a segment: as a number or as an object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from longtalk.transcript.record_kinds import kind_of

S = TypeVar("S")
R = TypeVar("R")


class Span(NamedTuple, Generic[S]):
    """The entries at positions `start` to `stop - 1` of a path, all of which belong to one segment.

    Unless the path was shortened by `clip`, `start` is the position at which the segment starts.
    """

    segment: S
    start: int
    stop: int


def trace_path(segment: S | None, size: int, get_base: Callable[[S], tuple[int, S | None]]) -> list[Span[S]]:
    """Return the first `size` entries of the path that ends in `segment`, as spans from the root on.

    `get_base` returns the position at which a segment starts, and the segment that it continues (None for a root).
    """
    path: list[Span[S]] = []
    while segment is not None:
        start, base = get_base(segment)
        path.append(Span(segment, start, max(start, size)))
        segment, size = base, min(size, start)
    return path[::-1]


def clip(path: Sequence[Span[S]], start: int, stop: int) -> list[Span[S]]:
    """Return the part of a path from position `start` to `stop - 1`. A span that crosses the border is cut there."""
    return [
        Span(segment, max(start, first), min(stop, end))
        for segment, first, end in path
        if max(start, first) < min(stop, end)
    ]


def is_on_path(path: Sequence[Span[S]], segment: S, position: int) -> bool:
    """Return whether the entry at `position`, which belongs to `segment`, is on a path.

    Position -1, before the first entry, counts as on the path if the segment is.
    """
    return any(span.segment == segment and position < span.stop for span in path)


def find_segment(path: Sequence[Span[S]], position: int) -> S:
    """Return the segment that the entry at `position` of a path belongs to. For -1, return the first segment."""
    return next((span.segment for span in reversed(path) if span.start <= position), path[0].segment)


def find_base(path: Sequence[Span[S]], start: int, has_own_records: Callable[[S], bool]) -> S:
    """Return the segment of a path that a new segment, starting at position `start`, should continue.

    This is the last segment that has entries before `start`. Later segments are skipped, because otherwise each cut
    would add another span to the path. A segment that begins exactly at `start` is not skipped if `has_own_records`
    says that it has a record that only its own branch may see.
    """
    bases = (span.segment for span in reversed(path) if span.start < start + has_own_records(span.segment))
    return next(bases, path[0].segment)


def list_head_records(records: Sequence[R], get_kind: Callable[[R], str]) -> list[R]:
    """Return the records that belong to the head of a branch, oldest first.

    `records` are all records on the branch's path, oldest first. Of each `newest_only` kind, the head includes only the
    newest record; of the other kinds, all.
    """
    newest_first: list[R] = []
    replaced: set[str] = set()
    for record in reversed(records):
        kind = get_kind(record)
        if kind not in replaced:
            newest_first.append(record)
            if kind_of(kind).newest_only:
                replaced.add(kind)
    return newest_first[::-1]
