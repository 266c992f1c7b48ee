"""Paths through the segments of a conversation, as pure values that several stores share.

A conversation is a tree of entries, and each entry belongs to a segment. Every branch has its own segment, which starts
after some entries of another segment. A path consists of one span of each segment, from the root to the branch's own
segment. A fork or a cut starts a new segment, so nothing is copied or moved, and a position in a segment always means
the same entry. Each store chooses how to represent a segment: as a number or as an object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from longtalk.transcript.record_kinds import kind_of

S = TypeVar("S")
R = TypeVar("R")


class Span(NamedTuple, Generic[S]):
    """The entries at positions `start` to `stop - 1` of a path, all of which belong to one segment.

    In a complete path, `start` is the position at which the segment starts.
    """

    segment: S
    start: int
    stop: int


def trace_path(segment: S | None, size: int, get_base: Callable[[S], tuple[int, S | None]]) -> list[Span[S]]:
    """Return the path of `size` entries that ends in a segment, from the root on.

    `get_base` returns the position at which a segment starts, and the segment that it continues (None for a root).
    """
    path: list[Span[S]] = []
    while segment is not None:
        start, base = get_base(segment)
        path.append(Span(segment, start, max(start, size)))
        segment, size = base, min(size, start)
    return path[::-1]


def clip(path: Sequence[Span[S]], start: int, stop: int) -> list[Span[S]]:
    """Return the parts of a path's spans that contain the entries at positions `start` to `stop - 1`."""
    return [
        Span(segment, max(start, first), min(stop, end))
        for segment, first, end in path
        if max(start, first) < min(stop, end)
    ]


def is_on_path(path: Sequence[Span[S]], segment: S, position: int) -> bool:
    """Return whether a path contains this position of a segment. Position -1 means before the first entry."""
    return any(span.segment == segment and position < span.stop for span in path)


def find_segment(path: Sequence[Span[S]], position: int) -> S:
    """Return the segment of a path that contains a position. For position -1, return the first segment."""
    return next((span.segment for span in reversed(path) if span.start <= position), path[0].segment)


def find_base(path: Sequence[Span[S]], start: int, has_own_records: Callable[[S], bool]) -> S:
    """Return the segment that a new segment, which starts at position `start` of a path, should continue.

    Segments that add nothing to the path before this position are skipped. Otherwise, every further cut would make the
    path longer. A segment that starts at this position is not skipped if it has a record that only its own branch may
    see (`has_own_records`).
    """
    bases = (span.segment for span in reversed(path) if span.start < start + has_own_records(span.segment))
    return next(bases, path[0].segment)


def list_head_records(records: Sequence[R], get_kind: Callable[[R], str]) -> list[R]:
    """Return the records that belong to the head of a branch, oldest first.

    `records` are all records on the branch's path, oldest first. Of each kind that is `newest_only`, the head includes
    only the newest record.
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
