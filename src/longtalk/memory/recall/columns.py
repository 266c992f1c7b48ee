"""Columns: arrays that grow at the end at constant amortized cost, and the postings of the terms of an index."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from longtalk.transcript.ranges import SpanSet

__all__ = ["Array", "Column", "Postings", "Sizes", "are_in", "find_groups", "find_highest"]

Array: TypeAlias = NDArray[Any]

_MIN_TAIL = 8_192  # terms that are searched one by one before the postings are sorted again
_MAX_TAIL_SHARE = 1 / 64  # the same, as a share of the terms that are sorted


class Sizes(NamedTuple):
    """The numbers of units, parts, words in all parts, labels, distinct words and terms, and names of an index."""

    units: int
    parts: int
    part_words: int
    labels: int
    words: int
    terms: int
    names: int


class Column:
    """A one-dimensional array that grows at the end. `values` is a view, valid until the column changes."""

    __slots__ = ("_data", "_size")

    def __init__(self, dtype: DTypeLike) -> None:
        self._data: Array = np.empty(16, dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def values(self) -> Array:
        """The values of the column, in the order in which they were added."""
        return self._data[: self._size]

    @property
    def nbytes(self) -> int:
        """The number of bytes of memory that the column uses."""
        return self._data.nbytes

    def append(self, value: float) -> None:
        """Add a value."""
        if self._size == len(self._data):
            self._reserve(1)
        self._data[self._size] = value
        self._size += 1

    def extend(self, values: Sequence[float] | Array) -> None:
        """Add several values."""
        self._reserve(len(values))
        self._data[self._size : self._size + len(values)] = values
        self._size += len(values)

    def truncate(self, size: int) -> None:
        """Keep only the first `size` values."""
        self._size = min(self._size, size)

    def pick(self, places: Array) -> Column:
        """Return a column with the values at these places."""
        found = Column(self._data.dtype)
        found.extend(self.values[places])
        return found

    def _reserve(self, count: int) -> None:
        needed = self._size + count
        if needed > len(self._data):
            grown = np.empty(max(needed, len(self._data) * 3 // 2), self._data.dtype)
            grown[: self._size] = self.values
            self._data = grown


class Postings:
    """For each term, the parts that contain it, each with the number of occurrences.

    The terms of the parts are in `terms`, one part after the other, and `starts` has the index of each part's first
    term. Most of them are sorted by term; the newest ones are searched directly until there are many of them.
    """

    __slots__ = ("_counts", "_parts", "_sorted_parts", "_sorted_terms", "_starts", "starts", "terms")

    def __init__(self) -> None:
        self.terms = Column(np.int32)
        self.starts = Column(np.int64)
        self._sorted_terms = 0
        """How many terms are sorted. If the postings were truncated, the sorted arrays have more; these are ignored."""
        self._sorted_parts = 0
        self._starts: Array = np.zeros(1, np.int64)
        self._parts: Array = np.empty(0, np.int32)
        self._counts: Array = np.empty(0, np.int32)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def nbytes(self) -> int:
        """The number of bytes of memory that the postings use."""
        arrays = (self.terms, self.starts, self._starts, self._parts, self._counts)
        return sum(each.nbytes for each in arrays)

    def add(self, terms: Array, sizes: Sequence[int] | Array) -> None:
        """Add parts: all of their terms, and the number of terms of each part."""
        self.starts.extend(len(self.terms) + np.cumsum(sizes) - sizes)
        self.terms.extend(terms)

    def add_many(self, terms: Array, sizes: Array) -> Array:
        """Add many parts, and return for each term up to the highest one the number of them that contain it."""
        are_first = not len(self.starts)
        self.add(terms, sizes)
        if are_first and len(terms):
            self._sort()
            return np.diff(self._starts)
        return np.diff(sort_pairs(terms, sizes)[0])

    def count_terms(self, parts: int) -> int:
        """Return the number of terms in the first `parts` parts, counting repeated ones."""
        return int(self.starts.values[parts]) if parts < len(self.starts) else len(self.terms)

    def truncate(self, parts: int) -> None:
        """Keep only the first `parts` parts."""
        if parts < len(self.starts):
            self.terms.truncate(self.count_terms(parts))
            self.starts.truncate(parts)
            self._sorted_parts = min(self._sorted_parts, parts)
            self._sorted_terms = min(self._sorted_terms, len(self.terms))

    def get_terms(self, part: int) -> Array:
        """Return the terms of a part in order, with repetitions."""
        starts = self.starts.values
        return self.terms.values[starts[part] : starts[part + 1] if part + 1 < len(starts) else None]

    def get_sizes(self) -> Array:
        """Return the number of terms of each part."""
        return np.diff(self.starts.values, append=len(self.terms))

    def find(self, term: int) -> tuple[Array, Array]:
        """Return the parts that contain a term, in order, and its number of occurrences in each."""
        tail = self.terms.values[self._sorted_terms :]
        if len(tail) > max(_MIN_TAIL, self._sorted_terms * _MAX_TAIL_SHARE):
            self._sort()
            tail = tail[:0]
        parts, counts = self._parts[:0], self._counts[:0]
        if term + 1 < len(self._starts):
            first, last = self._starts[term], self._starts[term + 1]
            parts, counts = self._parts[first:last], self._counts[first:last]
            if len(parts) and parts[-1] >= self._sorted_parts:
                valid = int(np.searchsorted(parts, self._sorted_parts))
                parts, counts = parts[:valid], counts[:valid]
        found = np.flatnonzero(tail == term)
        if len(found):
            where = np.searchsorted(self.starts.values, found + self._sorted_terms, "right") - 1
            new, firsts = find_groups(where)
            new_counts = np.diff(firsts, append=len(where))
            parts, counts = np.concatenate((parts, new)), np.concatenate((counts, new_counts))
        return parts, counts

    def is_empty(self) -> bool:
        """Return True if no part has a term."""
        return not len(self.terms)

    def pick(self, parts: Array) -> Postings:
        """Return the postings of these parts alone, numbered from 0. `parts` is sorted."""
        return _PickedPostings(self, parts)

    def _sort(self) -> None:
        """Sort all terms."""
        self._starts, self._parts, self._counts = sort_pairs(self.terms.values, self.get_sizes())
        self._sorted_terms, self._sorted_parts = len(self.terms), len(self.starts)


class _PickedPostings(Postings):
    """Some parts of other postings, in which they are looked up."""

    __slots__ = ("_all", "_picked", "_places")

    def __init__(self, postings: Postings, parts: Array) -> None:
        super().__init__()
        self._all = postings
        self._picked = parts
        self._places: Array = np.full(len(postings), -1, np.int32)
        self._places[parts] = np.arange(len(parts))

    def get_terms(self, part: int) -> Array:
        return self._all.get_terms(int(self._picked[part]))

    def get_sizes(self) -> Array:
        starts = self._all.starts.values
        sizes: Array = starts.take(self._picked + 1, mode="clip") - starts[self._picked]
        if len(sizes) and self._picked[-1] == len(starts) - 1:
            sizes[-1] = len(self._all.terms) - starts[-1]
        return sizes

    def is_empty(self) -> bool:
        return not self.get_sizes().any()

    def find(self, term: int) -> tuple[Array, Array]:
        parts, counts = self._all.find(term)
        places = self._places[parts]
        is_picked = places >= 0
        return places[is_picked], counts[is_picked]


def sort_pairs(terms: Array, sizes: Array) -> tuple[Array, Array, Array]:
    """Return where each term starts in the other two arrays, the parts that contain each term, and how often they do.

    `terms` has the terms of all parts, and `sizes` the number of terms of each part.
    """
    stop, shift = int(terms.max(initial=-1)) + 1, len(sizes).bit_length()
    # Smaller numbers are sorted faster.
    kind = np.uint32 if stop.bit_length() + shift <= 32 else np.uint64
    pairs: Array = np.left_shift(terms.astype(kind), kind(shift)) | np.repeat(np.arange(len(sizes), dtype=kind), sizes)
    pairs.sort()
    distinct, firsts = find_groups(pairs)
    starts = np.searchsorted(distinct, np.left_shift(np.arange(stop + 1, dtype=kind), kind(shift)))
    parts: Array = distinct & kind((1 << shift) - 1)
    return starts, parts.astype(np.int32), np.diff(firsts, append=len(pairs)).astype(np.int32)


def find_groups(values: Array) -> tuple[Array, Array]:
    """Return the distinct values of a sorted array, and the index of the first one of each."""
    is_first = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=is_first[1:])
    firsts = np.flatnonzero(is_first)
    return values[firsts], firsts


def are_in(numbers: Array, wanted: Container[int]) -> Array:
    """Return, for each of these numbers, whether it is in a container."""
    if not isinstance(wanted, SpanSet):
        return np.array([number in wanted for number in numbers.tolist()], np.bool_)
    if not wanted.starts:
        return np.zeros(len(numbers), np.bool_)
    spans = np.searchsorted(wanted.starts, numbers, "right") - 1
    found: Array = (spans >= 0) & (numbers < np.array(wanted.stops)[spans])
    return found


def find_highest(values: Array, most: int) -> Array:
    """Return the indexes of the `most` highest values, in ascending order. Among equal values, the first ones count."""
    least = np.partition(values, len(values) - most)[len(values) - most]
    above = np.flatnonzero(values > least)
    return np.sort(np.concatenate((above, np.flatnonzero(values == least)[: most - len(above)])))
