"""Segments of a conversation tree in memory, and the branches, records and keys that refer to them."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from longtalk.memory.recall.labels import get_searchable_text
from longtalk.stores._paths import Span, trace_path
from longtalk.stores._words import normalize_words
from longtalk.stores.base import KeyedRequest, Lease, SearchHit
from longtalk.transcript.pack import Entry
from longtalk.transcript.transcript import Record
from longtalk.wires import text_if_readable


class Segment:
    """The entries that one branch added after the first `start` entries of the path that ends in `base`."""

    __slots__ = ("base", "entries", "has_own_records", "metas", "start", "turn_starts", "words")

    def __init__(self, base: Segment | None = None, start: int = 0) -> None:
        self.base: Segment | None = base
        self.start: int = start
        self.has_own_records: bool = False
        """Whether the segment has a record that only the segment's own branch may see."""
        self.entries: list[Entry] = []
        self.turn_starts: list[tuple[int, str]] = []
        """The position and the turn id of each turn whose first entry is in this segment."""
        self.metas: dict[int, bytes] = {}
        """The app's metadata of entries, as JSON, by position."""
        self.words: dict[int, tuple[str, str]] = {}
        """The text of each entry that was searched before, and the normalized words of the text, by position."""

    @property
    def stop(self) -> int:
        """The position after the last entry of the segment."""
        return self.start + len(self.entries)


Path = list[Span[Segment]]


class Branch(msgspec.Struct):
    """A branch of a conversation tree. Its path ends with the last entry of `segment`."""

    name: str
    segment: Segment
    revision: int
    updated: int
    token: int = 0
    lease: Lease | None = None


class AttachedRecord(NamedTuple):
    """A record in a conversation tree, attached to the entry at `position` (-1: before the first entry of the path)."""

    segment: Segment
    position: int
    record: Record


class KeyedTurnRef(NamedTuple):
    """The id and location of a turn that was requested with an idempotency key.

    `branch` and `position` say where the turn was first committed. The branch may have been cut since then, so that it
    no longer includes the turn.
    """

    request: KeyedRequest
    branch: str
    turn: str
    position: int


def read_words(segment: Segment, position: int) -> tuple[str, str]:
    """Return the text of an entry and its normalized words, for searching. Both are cached in the segment."""
    if position not in segment.words:
        entry = segment.entries[position - segment.start]
        segment.words[position] = (text_if_readable(entry), normalize_words(get_searchable_text(entry)))
    return segment.words[position]


def make_hit(segment: Segment, position: int, conversation: str, branch: str) -> tuple[SearchHit, str]:
    """Return the entry at a position as a search hit on `branch`, with the entry's normalized words."""
    entry = segment.entries[position - segment.start]
    text, words = read_words(segment, position)
    hit = SearchHit(
        conversation=conversation,
        branch=branch,
        position=position,
        entry=entry.id,
        role=entry.role,
        at=entry.at,
        text=text,
    )
    return hit, words


def find_path(segment: Segment | None, stop: int) -> Path:
    """Return the first `stop` entries of the path that ends in `segment`, as spans from the root on."""
    return trace_path(segment, min(stop, segment.stop) if segment else 0, lambda each: (each.start, each.base))


def find_last_entry(path: Path) -> str | None:
    """Return the id of the last entry of a path, or None if the path is empty."""
    for segment, start, stop in reversed(path):
        if start < stop:
            return segment.entries[stop - segment.start - 1].id
    return None
