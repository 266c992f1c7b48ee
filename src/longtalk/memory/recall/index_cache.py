"""A cache of recall indexes in this process.

An index is removed from the cache while it is in use, so that no other thread adds to it, and put back afterwards. What
the cached index of a conversation has in common with the branch or the state that is searched is kept, and the rest is
removed from its end. So all branches of a conversation share an index as far as they share their entries.

The cache is bounded by the memory that it uses and by the number of its indexes, and drops the least recently used ones
first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple, TypeAlias

from longtalk.memory.recall.index import RecallIndex
from longtalk.transcript.standing import Record

__all__ = ["CachedIndex", "IndexCache"]

_MAX_BYTES = 96_000_000
_MAX_INDEXES = 500
_MAX_TEXT = 4_000_000  # characters of texts that an index keeps between two turns
_MAX_MARKS = 16

Key: TypeAlias = tuple[Hashable, ...]
"""The key of an index: items that identify the conversation, followed by the branch as the last item."""


class SegmentKey(NamedTuple):
    """What identifies a stored segment: its stop, the entry and time of its record, and the checksum of its data."""

    stop: int
    entry: str
    at: int
    checksum: int


class CachedIndex(RecallIndex):
    """The index of a whole conversation, with the data needed to check how much of it is still valid."""

    def __init__(self, key: Key, *, meaning: bool = False) -> None:
        super().__init__(meaning=meaning)
        self.key = key
        self.digests: dict[int, tuple[str, int]] = {}
        """For an index of a branch: the id and the checksum of each entry that is in no segment, by its position."""
        self.segments: list[SegmentKey] = []
        """For an index of a branch: the stored segments of the first entries, in order."""
        self.new_segments: tuple[tuple[Record, int], ...] = ()
        """Records with the segments that are not stored yet, each with its position."""
        self.marks: list[tuple[int, int]] = []
        """For an index of a state: pairs of a number of entries and the checksum of the pack that had them."""
        self.count = 0
        """The number of entries that the index was built from."""
        self.extra = 0
        """The number of units at the end that are no entries, and are removed after the turn."""

    def truncate_entries(self, count: int, position: int | None = None) -> None:
        """Keep only the first `count` entries. `position` is that of the first one to remove, if it is not `count`."""
        self.truncate(int(self.positions.values.searchsorted(count if position is None else position)))
        self.digests = {each: digest for each, digest in self.digests.items() if each < count}
        self.segments = [segment for segment in self.segments if segment.stop <= count]
        self.marks = [mark for mark in self.marks if mark[0] <= count]
        self.count = min(self.count, count)

    def add_mark(self, count: int, checksum: int) -> None:
        """Note the checksum of the pack with the first `count` entries."""
        self.marks = [*[mark for mark in self.marks if mark[0] < count], (count, checksum)][-_MAX_MARKS:]


class IndexCache:
    """A cache of the most recently used indexes of conversations, safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexes: OrderedDict[Key, CachedIndex] = OrderedDict()
        self._bytes: dict[Key, int] = {}

    def take(self, key: Key, *, meaning: bool = False) -> CachedIndex:
        """Take the index of a branch out of the cache, or the last used one of another branch, or make a new one.

        The last item of the key is the branch.
        """
        with self._lock:
            others = (other for other in reversed(self._indexes) if other[:-1] == key[:-1])
            found = key if key in self._indexes else next(others, None)
            if found is None:
                return CachedIndex(key, meaning=meaning)
            index = self._indexes.pop(found)
            del self._bytes[found]
        index.key = key
        return index

    def put(self, index: CachedIndex) -> None:
        """Put an index back into the cache, and drop the least recently used ones if they are too many or too large."""
        index.truncate(len(index) - index.extra)
        index.extra = 0
        index.read_units = None
        if index.text_size > _MAX_TEXT:
            index.forget_texts()
        with self._lock:
            self._indexes[index.key] = index
            self._indexes.move_to_end(index.key)
            self._bytes[index.key] = index.nbytes
            total = sum(self._bytes.values())
            while len(self._indexes) > 1 and (total > _MAX_BYTES or len(self._indexes) > _MAX_INDEXES):
                dropped, _ = self._indexes.popitem(last=False)
                total -= self._bytes.pop(dropped)
