"""Candidates: which entries of a long conversation are worth a closer look for a message.

Words alone decide, so that whoever keeps the conversation can find them (`Store.holding`, `scan.py`): an entry counts
for each word of the message that it holds, the rarer the more, and a part of that for what its neighbours hold. What is
read and indexed then does not grow with the conversation.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import nlargest
from typing import Protocol

from longtalk.memory.question import EPOCH, Question, read, year_of
from longtalk.memory.recall import Index, Unit
from longtalk.memory.terms import folded, spelt
from longtalk.pack import Entry
from longtalk.stores.base import Holding, Sought

__all__ = ["Path", "candidates"]

_HELD = 1_000  # entries of a word that are looked at
_FREQUENT = 400  # entries of a word from which on it only counts where others have been found
_RUNNING = 3  # times as many as are wanted that stay in the running where only frequent words are left
_TERMS = 24  # words at the beginning of a message, and at its end, that count
_MISSPELT = 4  # words nobody used that are looked for by how they begin
_ALIKE = 40  # entries that are looked at for one of those
_ON_A_DAY = 100  # entries of a time that is named
_GAP = 3  # entries so near to each other are read with what is between them
_LENT = ((1, 0.7), (2, 0.5), (-1, 0.5), (-2, 0.3))
_DAY = 86_400_000


class Path(Protocol):
    """A conversation that can be looked at here and there."""

    size: int

    def entries(self, start: int, stop: int) -> Iterable[Entry]: ...

    def place(self, i: int) -> int:
        """The place in the whole conversation of the i-th entry here."""
        ...

    def holding(self, sought: Sequence[Sought], most: int) -> list[Holding]: ...


def candidates(path: Path, message: str, *, now: int, most: int, unit: Callable[[int, Entry], Unit | None]) -> Index:
    """An index of what may fit the message: about `most` of the entries. `now` is in milliseconds."""
    if not path.size:
        return Index()
    ends = [entry.at for i in (0, path.size - 1) for entry in path.entries(i, i + 1)]
    years = range(year_of(EPOCH + ends[0] // _DAY), year_of(EPOCH + ends[-1] // _DAY) + 1) if ends else range(0)
    question = read(message, now=now // 1000, years=years)
    terms = _asked(question)
    sought = [Sought(*map(tuple, spelt(*each))) for each in terms]
    held = path.holding(sought, _HELD)
    guesses = _guesses(terms, held)
    alike = [i for each in (path.holding(guesses, _ALIKE) if guesses else ()) for i in each.places]
    found = {0, path.size - 1, *chosen(held, path.size, most), *alike, *_dated(path, question)}
    index = Index(size=path.size)
    forms = [form for each in (*sought, *guesses) for form in (*each.words, *each.beginnings)]
    taken = _take(path, sorted(i for i in found if i < path.size), index, unit, forms)
    for (term, _), each in zip(terms, held, strict=True):
        share = sum(i in taken for i in each.places) / (each.count or 1)
        if 0 < share < 1:
            index.shares[term] = share
    return index


def chosen(held: Sequence[Holding], size: int, most: int) -> list[int]:
    """The entries that hold, or are near, most of what is sought; the newest of those that are equally good."""
    scores: dict[int, float] = defaultdict(float)
    for each in sorted(held, key=lambda each: each.count):
        rarity = math.log(1 + max(0.0, size - each.count + 0.5) / (each.count + 0.5))
        places: Iterable[int] = each.places
        if len(each.places) > _FREQUENT and len(scores) >= most:
            if len(scores) > _RUNNING * most:
                leading = nlargest(_RUNNING * most, scores, key=lambda i: (scores[i], i))
                scores = defaultdict(float, {i: scores[i] for i in leading})
            near = {i + offset for i in scores for offset in (0, -1, -2, 1, 2)}
            places = near.intersection(each.places)
        best: dict[int, float] = {}
        for i in places:
            best[i] = 1.0
            for offset, share in _LENT:
                if best.get(i + offset, 0.0) < share:
                    best[i + offset] = share
        for i, share in best.items():
            scores[i] += rarity * share
    return nlargest(most, (i for i in scores if i >= 0), key=lambda i: (scores[i], i))


def _asked(question: Question) -> list[tuple[str, str]]:
    """The terms to look for, with their words: of a long message those at its beginning and at its end."""
    terms = list(dict.fromkeys(question.terms))
    some = terms if len(terms) <= 2 * _TERMS else [*terms[:_TERMS], *terms[-_TERMS:]]
    return [(term, question.words[term]) for term in some]


def _guesses(terms: Sequence[tuple[str, str]], held: Sequence[Holding]) -> list[Sought]:
    """How words that nobody used begin: they may be spelt otherwise."""
    unknown = [term for (term, _), each in zip(terms, held, strict=True) if not each.count]
    return [Sought((), (term[:3],)) for term in unknown if len(term) > 3 and term.isalpha()][:_MISSPELT]


def _dated(path: Path, question: Question) -> list[int]:
    """Entries of the days that are named: the first ones of each time."""
    found: list[int] = []
    for first, last in question.days:
        start = _since(path, (first - EPOCH) * _DAY)
        stop = min(_since(path, (last + 1 - EPOCH) * _DAY), start + _ON_A_DAY)
        found += range(start, stop)
    return found


def _since(path: Path, at: int) -> int:
    """The first entry that was not before this time."""
    low, high = 0, path.size
    while low < high:
        middle = (low + high) // 2
        if all(entry.at < at for entry in path.entries(middle, middle + 1)):
            low = middle + 1
        else:
            high = middle
    return low


def _take(
    path: Path,
    wanted: Sequence[int],
    index: Index,
    unit: Callable[[int, Entry], Unit | None],
    forms: Sequence[str],
) -> set[int]:
    """Add entries to an index, with what is between those that are near to each other. Returns which."""

    def fits(text: str) -> bool:
        small = folded(text)
        return any(form in small for form in forms)

    taken: set[int] = set()
    start = 0
    for k, i in enumerate(wanted):
        if k + 1 < len(wanted) and wanted[k + 1] - i <= _GAP:
            continue
        first, follows = wanted[start], False
        for place, entry in enumerate(path.entries(first, i + 1), first):
            taken.add(place)
            made = unit(path.place(place), entry)
            if made is not None:
                index.add(made, follows=follows, fits=fits)
                follows = True
        start = k + 1
    return taken
