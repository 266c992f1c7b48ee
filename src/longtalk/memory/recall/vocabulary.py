"""The vocabulary of an index: its terms by number, and a search for terms with a similar spelling.

A term that does not occur in the conversation is often a different spelling of one that does. Terms that share most of
their trigrams with it match in its place, with less weight.
"""

from __future__ import annotations

from array import array
from collections import Counter

__all__ = ["Vocabulary"]

_ALIKE = 0.5  # share of trigrams from which two terms are alike
_SHORTEST = 4  # letters below which everything is alike
_MOST = 3  # terms that stand for one


class Vocabulary:
    """The numbered terms of an index. Their trigrams are computed on the first search for similar spellings."""

    __slots__ = ("_grams", "_sizes", "numbers", "terms")

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.terms: list[str] = []
        self._grams: dict[str, array[int]] = {}
        self._sizes = array("L")  # by term: its trigrams

    def number(self, term: str) -> int:
        """Return the number of a term, adding the term if it is new."""
        known = self.numbers.get(term)
        if known is not None:
            return known
        number = self.numbers[term] = len(self.numbers)
        self.terms.append(term)
        return number

    def similar(self, term: str) -> list[tuple[int, float]]:
        """Return the numbers of terms spelled similarly to this one, with their similarity, best first."""
        if len(term) < _SHORTEST:
            return []
        self._spell()
        wanted = trigrams(term)
        shared: Counter[int] = Counter()
        for gram in wanted:
            shared.update(self._grams.get(gram, ()))
        near = [(number, 2 * count / (len(wanted) + self._sizes[number])) for number, count in shared.items()]
        return sorted((one for one in near if one[1] >= _ALIKE), key=lambda one: (-one[1], one[0]))[:_MOST]

    def _spell(self) -> None:
        """Compute the trigrams of the terms that were added since the last call."""
        for number in range(len(self._sizes), len(self.terms)):
            term = self.terms[number]
            found = trigrams(term) if len(term) >= _SHORTEST else ()
            self._sizes.append(len(found))
            for gram in found:
                self._grams.setdefault(gram, array("L")).append(number)


def trigrams(term: str) -> set[str]:
    """Return the trigrams of a term, with a mark before its beginning and after its end."""
    marked = f"^{term}$"
    return {marked[i : i + 3] for i in range(len(marked) - 2)}
