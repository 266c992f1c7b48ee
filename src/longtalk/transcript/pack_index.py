"""The index of a pack: the properties of its entries, stored in columns instead of one object per entry."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from operator import mul
from typing import Annotated, Literal

import msgspec

MAX_ENTRIES = 1_000_000
MAX_SHAPES = 128
MAX_ID_RATIO = 16
"""The maximum ratio of the total length of all entry ids to the total length of the entries."""
MAX_COUNT = 2**53 - 1
"""The largest integer that JSON parsers in every language read back exactly."""

Kind = Literal["message", "event"]


class PackIndex(msgspec.Struct, frozen=True, array_like=True):
    """The properties of the entries of a pack, in columns. Numbers are little-endian.

    Consecutive entries of one turn form a run: `turns`, `firsts` and `counts` have one item per run, the other columns
    have one item per entry.
    """

    parent: str | None = None
    """The id of the parent of the first entry, or None if it has no parent."""
    turns: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_ENTRIES)] = ()
    """For each run, the id of its turn."""
    firsts: bytes = b""
    """For each run, the number of its first entry within the turn, in 32 bits."""
    counts: bytes = b""
    """For each run, the number of its entries, in 32 bits."""
    shapes: Annotated[tuple[tuple[Kind, str, str], ...], msgspec.Meta(max_length=MAX_SHAPES)] = ()
    """The different combinations of kind, role and wire that the entries have."""
    shape: bytes = b""
    """For each entry, the index of its combination in `shapes`, in one byte."""
    sizes: bytes = b""
    """For each entry, the number of bytes of its JSON plus the comma or bracket after it, in 32 bits."""
    times: bytes = b""
    """For each entry, its time (`Entry.at`) in 64 bits."""
    marks: Annotated[dict[int, str], msgspec.Meta(max_length=MAX_ENTRIES)] = {}
    """The marks (`Entry.mark`) of the entries that have one, by position."""
    bounds: Annotated[dict[int, str], msgspec.Meta(max_length=MAX_ENTRIES)] = {}
    """The bounds (`Entry.bound`) of the entries that have one, by position."""
    totals: bytes = b""
    """For each entry, the total number of tokens up to and including it, in 64 bits.

    Empty in states from versions that did not count tokens.
    """
    parents: Annotated[dict[int, str], msgspec.Meta(max_length=MAX_ENTRIES)] = {}
    """By position, the parent ids of entries whose parent is not the entry before them, because it was shed."""

    def check_ids(self, counts: Iterable[int], content: int) -> None:
        """Raise `ValueError` if the ids of the entries take far more memory than the index and `content` bytes of JSON.

        Each entry's id contains the id of its turn, so many entries of a turn with a long id have as many long ids.
        """
        ids = sum(map(mul, map(len, self.turns), counts))
        if ids > MAX_ID_RATIO * (content + len(self.sizes) + len(self.times)) + sum(map(len, self.turns)):
            raise ValueError("the ids of the entries are much longer than the entries")


def read_column(code: str, data: bytes) -> array[int]:
    """Return the numbers in the bytes of a column. `code` is the type code of the `array` module."""
    numbers = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def pack_column(numbers: array[int]) -> bytes:
    """Return the bytes of a column of numbers. On big-endian machines, `numbers` is byte-swapped in place."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()
