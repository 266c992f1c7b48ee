"""The vocabulary of an index: its numbered terms or words, and a search for terms with a similar spelling.

A term of a query that does not occur in the conversation is often a different spelling of one that does. So known terms
that share most of their trigrams with the unknown term are used in its place, with less weight.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from longtalk.memory.recall.columns import Array, Column

__all__ = ["Vocabulary"]

_MIN_SIMILARITY = 0.5  # share of common trigrams
_MIN_CHARS = 4  # shorter terms would be similar to too many others
_MAX_SIMILAR = 3  # terms to use in place of an unknown one
_CHAR_BITS = 21  # of a code point


class Vocabulary:
    """The terms of an index, numbered by their first occurrence. Trigrams are computed when they are first searched."""

    __slots__ = ("_sizes", "_trigram_terms", "_trigrams", "numbers", "terms")

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.terms: list[str] = []
        self._trigrams = Column(np.int64)
        self._trigram_terms = Column(np.int32)
        """For each trigram, the number of its term."""
        self._sizes = Column(np.int32)
        """By term: the number of its trigrams."""

    @property
    def nbytes(self) -> int:
        """The approximate number of bytes of memory that the vocabulary uses."""
        return 150 * len(self.terms) + self._trigrams.nbytes + self._trigram_terms.nbytes

    def add(self, term: str) -> int:
        """Return the number of a term, adding the term if it is new."""
        known = self.numbers.get(term)
        if known is not None:
            return known
        number = self.numbers[term] = len(self.numbers)
        self.terms.append(term)
        return number

    def extend(self, terms: list[str]) -> None:
        """Add several terms, all of which are new."""
        self.numbers.update(zip(terms, range(len(self.terms), len(self.terms) + len(terms)), strict=True))
        self.terms += terms

    def truncate(self, size: int) -> None:
        """Keep only the first `size` terms."""
        for term in self.terms[size:]:
            del self.numbers[term]
        del self.terms[size:]
        self._sizes.truncate(size)
        kept = int(self._sizes.values.sum())
        self._trigrams.truncate(kept)
        self._trigram_terms.truncate(kept)

    def find_similar(self, term: str) -> list[tuple[int, float]]:
        """Return the numbers and similarities (0 to 1) of the terms spelled most similarly to this one, best first."""
        if len(term) < _MIN_CHARS:
            return []
        self._index_trigrams()
        trigrams, _ = split_trigrams([term])
        found = self._trigrams.values == trigrams[0]
        for trigram in trigrams[1:]:
            found |= self._trigrams.values == trigram
        shared = np.bincount(self._trigram_terms.values[found], minlength=len(self.terms))
        numbers = np.flatnonzero(shared)
        similarities = 2 * shared[numbers] / (len(trigrams) + self._sizes.values[numbers])
        best = np.argsort(-similarities, kind="stable")[:_MAX_SIMILAR]
        return [(int(numbers[i]), float(similarities[i])) for i in best if similarities[i] >= _MIN_SIMILARITY]

    def _index_trigrams(self) -> None:
        """Compute the trigrams of the terms that were added since the last call."""
        first = len(self._sizes)
        if first < len(self.terms):
            trigrams, sizes = split_trigrams(self.terms[first:])
            self._trigrams.extend(trigrams)
            self._trigram_terms.extend(np.repeat(np.arange(first, len(self.terms)), sizes))
            self._sizes.extend(sizes)


def split_trigrams(terms: Sequence[str]) -> tuple[Array, Array]:
    """Return the distinct trigrams of each term as numbers, one term after the other, and how many each term has.

    A trigram may include a mark before the beginning of the term or after its end. Short terms have none.
    """
    marked = [f"^{term}$" if len(term) >= _MIN_CHARS else "" for term in terms]
    chars = np.frombuffer("".join(marked).encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)
    of_chars = np.repeat(np.arange(len(marked)), [len(each) for each in marked])
    if len(chars) < 3:
        return chars[:0], np.zeros(len(terms), np.int64)
    codes = (chars[:-2] << 2 * _CHAR_BITS) | (chars[1:-1] << _CHAR_BITS) | chars[2:]
    whole = of_chars[:-2] == of_chars[2:]
    codes, of_codes = codes[whole], of_chars[:-2][whole]
    order = np.lexsort((codes, of_codes))
    codes, of_codes = codes[order], of_codes[order]
    distinct = np.ones(len(codes), bool)
    distinct[1:] = (codes[1:] != codes[:-1]) | (of_codes[1:] != of_codes[:-1])
    return codes[distinct], np.bincount(of_codes[distinct], minlength=len(terms))
