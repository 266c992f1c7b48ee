"""Nearness in meaning: the words related to those of a query, and the parts near to it.

The vector of a part is the sum of the vectors of its words. So its product with the vector of a query is the sum of the
products of its words with it: no vectors are held, only the pieces of the distinct words, and for each part the length
of its vector.
"""

from __future__ import annotations

import numpy as np

from longtalk.memory.recall.columns import Array, find_groups
from longtalk.memory.recall.embeddings import Vectors, measure_lengths, sum_groups
from longtalk.memory.recall.index import UNKNOWN, RecallIndex

__all__ = ["Meaning", "compare", "complete_norms"]

_MAX_RELATED = 12  # terms for each word
_PARTS_AT_ONCE = 1_000  # whose vectors are added up at the same time
_DECIMALS = 4  # to which similarities are rounded; further ones vary with the number of words that are compared at once


def complete_norms(index: RecallIndex) -> None:
    """Compute the lengths of the vectors of parts that were added since the last call, if the index has vectors."""
    if index.vectors is None:
        return
    missing = np.flatnonzero(index.norms.values == UNKNOWN)
    sizes = index.postings.get_sizes()
    for first in range(0, len(missing), _PARTS_AT_ONCE):
        parts = missing[first : first + _PARTS_AT_ONCE]
        counts = sizes[parts]
        shifts = index.postings.starts.values[parts] - (np.cumsum(counts) - counts)
        words = index.part_words.values[np.repeat(shifts, counts) + np.arange(counts.sum())]
        distinct, numbers = np.unique(words, return_inverse=True)
        index.norms.values[parts] = measure_lengths(sum_groups(index.vectors.add_up(distinct)[numbers], counts))


class Meaning:
    """How near the words and the parts of an index are to the words of a query, by the vectors of the index."""

    def __init__(self, index: RecallIndex, vectors: Vectors, words: list[str]) -> None:
        complete_norms(index)
        self._index = index
        # All products are computed at once: those with each word of the query, and with the query as a whole.
        products = vectors.multiply(vectors.embed([*words, " ".join(words)]))
        lengths = vectors.lengths.clip(min=1e-9)
        self.by_word: Array = (products[:, :-1] / lengths[:, None]).round(_DECIMALS)
        """The similarity of each word of the index to each word of the query, from -1 to 1: a row for each word."""
        sums = sum_groups(np.take(products[:, -1], index.part_words.values), index.postings.get_sizes())
        self.similarities: Array = (sums / index.norms.values.clip(min=1e-9)).round(_DECIMALS)
        """The similarity of each part to the query, from -1 to 1."""

    def find_related_terms(self, least: float) -> list[list[tuple[int, float]]]:
        """Return, for each word of the query, the numbers and similarities of the terms closest in meaning, best first.

        At most `_MAX_RELATED` are returned for each, and only those with a similarity of at least `least` (0 to 1). A
        term has the meaning of the first word that it was made from.
        """
        # Terms are numbered by their first words.
        _, firsts = find_groups(np.maximum.accumulate(self._index.word_terms.values))
        ranked = [pick_highest(each, _MAX_RELATED) for each in self.by_word[firsts].T]
        return [[(term, similarity) for term, similarity in best if similarity >= least] for best in ranked]

    def find_nearness(self, most: int) -> Array:
        """Return the nearness of each part to the query, from 0 (the average) to 1 (the nearest part).

        All but the `most` nearest parts get 0, as do those below average.
        """
        near: Array = np.zeros(len(self.similarities))
        mean, nearest = float(self.similarities.mean()), float(self.similarities.max())
        for part, similarity in pick_highest(self.similarities, most):
            if similarity > mean:
                near[part] = (similarity - mean) / (nearest - mean)
        return near


def compare(index: RecallIndex, words: list[str]) -> Meaning | None:
    """Return how near an index is to the words of a query; None if it has no vectors, or one of both has no words."""
    if index.vectors is None or not words or not len(index.word_terms):
        return None
    return Meaning(index, index.vectors, words)


def pick_highest(values: Array, most: int) -> list[tuple[int, float]]:
    """Return the highest values, at most `most` of them, each with its index, highest first."""
    highest = np.arange(len(values))
    if len(values) > most:
        # Only values that may be among the highest are sorted.
        highest = np.flatnonzero(values >= np.partition(values, len(values) - most)[len(values) - most])
    order = highest[(-values[highest]).argsort(kind="stable")[:most]]
    return [(int(i), float(values[i])) for i in order]
