"""The terms of an index, by number, and those that are spelt nearly alike.

A term that nobody used is often one that somebody spelt otherwise. Terms that share most of their trigrams stand for
it, at less weight.
"""

from __future__ import annotations

from array import array
from collections import Counter

__all__ = ["Vocabulary"]

_ALIKE = 0.5  # share of trigrams from which two terms are alike
_SHORTEST = 4  # letters below which everything is alike
_MOST = 3  # terms that stand for one


class Vocabulary:
    """Terms by number. How they are spelt is looked at when that is first asked for."""

    __slots__ = ("_grams", "_sizes", "numbers", "terms")

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.terms: list[str] = []
        self._grams: dict[str, array[int]] = {}
        self._sizes = array("L")  # by term: its trigrams

    def number(self, term: str) -> int:
        """The number of a term, a new one if it is new."""
        known = self.numbers.get(term)
        if known is not None:
            return known
        number = self.numbers[term] = len(self.numbers)
        self.terms.append(term)
        return number

    def alike(self, term: str) -> list[tuple[int, float]]:
        """The numbers of the terms that are spelt nearly as this one, with how nearly; best first."""
        if len(term) < _SHORTEST:
            return []
        self._spell()
        wanted = grams(term)
        shared: Counter[int] = Counter()
        for gram in wanted:
            shared.update(self._grams.get(gram, ()))
        near = [(number, 2 * count / (len(wanted) + self._sizes[number])) for number, count in shared.items()]
        return sorted((one for one in near if one[1] >= _ALIKE), key=lambda one: (-one[1], one[0]))[:_MOST]

    def _spell(self) -> None:
        """Take the new terms apart."""
        for number in range(len(self._sizes), len(self.terms)):
            term = self.terms[number]
            found = grams(term) if len(term) >= _SHORTEST else ()
            self._sizes.append(len(found))
            for gram in found:
                self._grams.setdefault(gram, array("L")).append(number)


def grams(term: str) -> set[str]:
    """The trigrams of a term, its beginning and its end marked."""
    marked = f"^{term}$"
    return {marked[i : i + 3] for i in range(len(marked) - 2)}
