"""Candidates: which entries of a long conversation are worth a closer look for a message.

Words alone decide, so that whoever keeps the conversation can find them (`Store.holding`, `scan.py`): an entry counts
for each word of the message that it holds, the rarer the more, and a part of that for what its neighbours hold. What is
read and indexed then does not grow with the conversation.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
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
_PROBES = 16  # entries that are looked at together for a time
_GAP = 3  # entries so near to each other are read with what is between them
_LENT = ((0, 1.0), (1, 0.7), (2, 0.5), (-1, 0.5), (-2, 0.3))  # of a match to the entry so far behind it, best first
_DAY = 86_400_000


class Path(Protocol):
    """A conversation that can be looked at here and there."""

    size: int

    def pick(self, ranges: Sequence[tuple[int, int]]) -> Sequence[Sequence[Entry]]:
        """The entries of several parts, in order."""
        ...

    def place(self, i: int) -> int:
        """The place in the whole conversation of the i-th entry here."""
        ...

    def holding(self, sought: Sequence[Sought], most: int) -> list[Holding]: ...


def candidates(path: Path, message: str, *, now: int, most: int, unit: Callable[[int, Entry], Unit | None]) -> Index:
    """An index of what may fit the message: about `most` of the entries. `now` is in milliseconds."""
    if not path.size:
        return Index()
    ends = [entry.at for part in path.pick([(0, 1), (max(1, path.size - 1), path.size)]) for entry in part]
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
        if share:
            index.shares[term] = share
    return index


def chosen(held: Sequence[Holding], size: int, most: int) -> list[int]:
    """The entries that hold, or are near, most of what is sought; the newest of those that are equally good."""
    scores: dict[int, float] = defaultdict(float)
    rarest = sorted(held, key=lambda each: each.count)
    while rarest and (len(rarest[0].places) <= _FREQUENT or len(scores) < most):
        each, near = rarest.pop(0), set[int]()
        worth = _rarity(each.count, size)
        for offset, share in _LENT:
            more = {i + offset for i in each.places} - near
            near |= more
            for i in more:
                scores[i] += worth * share
    running = _best(scores, _RUNNING * most if rarest else most)
    for each in rarest:
        worth, places = _rarity(each.count, size), set(each.places)
        for i in running:
            scores[i] += worth * next((share for offset, share in _LENT if i - offset in places), 0.0)
    return _best({i: scores[i] for i in running}, most)


def _rarity(count: int, size: int) -> float:
    return math.log(1 + max(0.0, size - count + 0.5) / (count + 0.5))


def _best(scores: Mapping[int, float], most: int) -> list[int]:
    newest = sorted((i for i in scores if i >= 0), reverse=True)
    return sorted(newest, key=scores.__getitem__, reverse=True)[:most]


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
        # Several at once: a store may be far away.
        step = max(1, (high - low) // _PROBES)
        probes = range(low, high, step)
        before = sum(all(entry.at < at for entry in part) for part in path.pick([(i, i + 1) for i in probes]))
        if not before:
            break
        low, high = probes[before - 1] + 1, probes[before] if before < len(probes) else high
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

    ranges: list[tuple[int, int]] = []
    for i in wanted:
        if ranges and i - ranges[-1][1] < _GAP:
            ranges[-1] = (ranges[-1][0], i + 1)
        else:
            ranges.append((i, i + 1))
    taken: set[int] = set()
    for (first, _), entries in zip(ranges, path.pick(ranges), strict=True):
        follows = False
        for place, entry in enumerate(entries, first):
            taken.add(place)
            made = unit(path.place(place), entry)
            if made is not None:
                index.add(made, follows=follows, fits=fits)
                follows = True
    return taken
