"""The vocabulary of an index: its numbered terms, and a search for terms with a similar spelling.

A term of a query that does not occur in the conversation is often a different spelling of one that does. So known terms
that share most of their trigrams with the unknown term are used in its place, with less weight.
"""

from __future__ import annotations

from array import array
from collections import Counter

__all__ = ["Vocabulary"]

_MIN_SIMILARITY = 0.5  # share of common trigrams
_MIN_CHARS = 4  # shorter terms would be similar to too many others
_MAX_SIMILAR = 3  # terms to use in place of an unknown one


class Vocabulary:
    """The numbered terms of an index. Their trigrams are computed on the first search for similar spellings."""

    __slots__ = ("_terms_by_trigram", "_trigram_counts", "numbers", "terms")

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.terms: list[str] = []
        self._terms_by_trigram: dict[str, array[int]] = {}
        self._trigram_counts = array("L")  # by term: the number of its trigrams

    def add(self, term: str) -> int:
        """Return the number of a term, adding the term if it is new."""
        known = self.numbers.get(term)
        if known is not None:
            return known
        number = self.numbers[term] = len(self.numbers)
        self.terms.append(term)
        return number

    def find_similar(self, term: str) -> list[tuple[int, float]]:
        """Return the numbers and similarities (0 to 1) of the terms spelled most similarly to this one, best first."""
        if len(term) < _MIN_CHARS:
            return []
        self._index_trigrams()
        trigrams = split_trigrams(term)
        shared: Counter[int] = Counter()
        for trigram in trigrams:
            shared.update(self._terms_by_trigram.get(trigram, ()))
        sizes = self._trigram_counts
        matches = [(number, 2 * count / (len(trigrams) + sizes[number])) for number, count in shared.items()]
        similar = [match for match in matches if match[1] >= _MIN_SIMILARITY]
        return sorted(similar, key=lambda match: (-match[1], match[0]))[:_MAX_SIMILAR]

    def _index_trigrams(self) -> None:
        """Compute the trigrams of the terms that were added since the last call."""
        for number in range(len(self._trigram_counts), len(self.terms)):
            term = self.terms[number]
            trigrams = split_trigrams(term) if len(term) >= _MIN_CHARS else ()
            self._trigram_counts.append(len(trigrams))
            for trigram in trigrams:
                self._terms_by_trigram.setdefault(trigram, array("L")).append(number)


def split_trigrams(term: str) -> set[str]:
    """Return the trigrams of a term, with a mark before its beginning and after its end."""
    marked = f"^{term}$"
    return {marked[i : i + 3] for i in range(len(marked) - 2)}
