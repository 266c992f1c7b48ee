"""Indexes of whole conversations, kept in this process for their next turn: recall by meaning needs all of it.

An index is taken off the shelf while it is used, so that nobody else adds to it meanwhile, and put back behind that.
Whether it is still of the same conversation, its bytes say: after a redaction or for another state it is made anew, and
so it is on another branch, unless that goes on where this one is. The shelf keeps the few that were used last, and with
them what was said in them.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeAlias

from longtalk.memory.recall import Index, Unit
from longtalk.pack import Entry, Pack

__all__ = ["Shelf", "Whole"]

_MOST = 8

Key: TypeAlias = tuple[Hashable, ...]
"""What an index is of: the conversation, and at the end the branch."""


class Whole(Index):
    """The index of a whole conversation."""

    def __init__(self, key: Key) -> None:
        super().__init__(meaning=True)
        self.key = key
        self.count = 0
        """Entries that were taken in."""
        self.checksum = 0
        """Of their JSON."""


class Shelf:
    """A few indexes, by what they are of."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, Whole] = OrderedDict()

    def take(
        self, key: Key, pack: Pack, unit: Callable[[int, Entry], Unit | None], place: Callable[[int], int]
    ) -> Whole:
        """The index of a branch of a conversation, up to date. It may have been that of another branch before."""
        with self._lock:
            own = self._kept.pop(key, None)
            others = [index for other, index in reversed(self._kept.items()) if other[:-1] == key[:-1]]
            index = next((index for index in (own, *others) if index is not None and _fits(index, pack)), None)
            if index is not None and index is not own:
                del self._kept[index.key]
        if index is None:
            index = Whole(key)
        index.key = key
        for i in range(index.count, len(pack)):
            made = unit(place(i), pack.entry(i))
            if made is not None:
                index.add(made)
        index.count, index.checksum = len(pack), _checksum(pack, len(pack))
        return index

    def put(self, index: Whole) -> None:
        """Put an index back."""
        with self._lock:
            self._kept[index.key] = index
            self._kept.move_to_end(index.key)
            while len(self._kept) > _MOST:
                self._kept.popitem(last=False)


def _fits(index: Whole, pack: Pack) -> bool:
    """Whether all that is in an index is at the beginning of this."""
    return index.count <= len(pack) and _checksum(pack, index.count) == index.checksum


def _checksum(pack: Pack, count: int) -> int:
    """Of the JSON of the first entries."""
    return zlib.crc32(memoryview(pack.array)[: pack.offsets()[count] - 1]) if count else 0
