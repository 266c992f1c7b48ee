"""A cache of recall indexes in this process, for recall by meaning, which needs an index of the whole conversation.

An index is removed from the cache while it is in use, so that no other thread adds to it, and put back afterwards. A
checksum of the entries shows whether an index is still valid. If it is not, after a redaction or because the caller has
another state of the conversation, a new index is built. A branch can reuse the index of another branch if all entries
in that index are also its own first entries. The cache holds the most recently used indexes, and with them the text of
their conversations.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeAlias

from longtalk.memory.recall.index import RecallIndex, Unit
from longtalk.transcript.pack import Entry, Pack

__all__ = ["CachedIndex", "IndexCache"]

_MAX_INDEXES = 8

Key: TypeAlias = tuple[Hashable, ...]
"""The key of an index: items that identify the conversation, followed by the branch as the last item."""


class CachedIndex(RecallIndex):
    """The index of a whole conversation, with the data needed to check whether the index is still valid."""

    def __init__(self, key: Key) -> None:
        super().__init__(meaning=True)
        self.key = key
        self.count = 0
        """The number of entries that the index was built from."""
        self.checksum = 0
        """The checksum of the JSON of these entries."""


class IndexCache:
    """A cache of the most recently used indexes of conversations, safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexes: OrderedDict[Key, CachedIndex] = OrderedDict()

    def take(
        self, key: Key, pack: Pack, to_unit: Callable[[int, Entry], Unit | None], to_position: Callable[[int], int]
    ) -> CachedIndex:
        """Take the index of a branch out of the cache, add the entries that it lacks, and return it.

        If the cache has no valid index for this branch, nor one of another branch that can be reused, return a new
        index. `pack` has the entries of the branch. `to_unit` takes an entry and its position, and returns a unit, or
        None if the entry must not be recalled. `to_position` returns the position in the conversation of the i-th entry
        of the pack.
        """
        with self._lock:
            own = self._indexes.pop(key, None)
            others = [index for other, index in reversed(self._indexes.items()) if other[:-1] == key[:-1]]
            index = next((index for index in (own, *others) if index is not None and _is_valid_for(index, pack)), None)
            if index is not None and index is not own:
                del self._indexes[index.key]
        if index is None:
            index = CachedIndex(key)
        index.key = key
        for i in range(index.count, len(pack)):
            unit = to_unit(to_position(i), pack.entry(i))
            if unit is not None:
                index.add(unit)
        index.count, index.checksum = len(pack), _compute_checksum(pack, len(pack))
        return index

    def put(self, index: CachedIndex) -> None:
        """Put an index back into the cache, and drop the least recently used indexes if there are too many."""
        with self._lock:
            self._indexes[index.key] = index
            self._indexes.move_to_end(index.key)
            while len(self._indexes) > _MAX_INDEXES:
                self._indexes.popitem(last=False)


def _is_valid_for(index: CachedIndex, pack: Pack) -> bool:
    """Return True if the index was built from the first entries of the pack, unchanged."""
    return index.count <= len(pack) and _compute_checksum(pack, index.count) == index.checksum


def _compute_checksum(pack: Pack, count: int) -> int:
    """Return a checksum of the JSON of the first `count` entries in the pack."""
    return zlib.crc32(memoryview(pack.array)[: pack.offsets()[count] - 1]) if count else 0
