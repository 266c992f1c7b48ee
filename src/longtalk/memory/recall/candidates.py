"""Candidates: the entries of a long conversation that are worth a closer look for a message.

Candidates are chosen by words alone, so a store can find them itself (`Store.matches`), and a scan of a transcript can
too (`scan.py`). An entry scores for each word of the message that it contains, more for rarer words, and less for words
that only its neighbours contain. Only the best entries are read and indexed, so the work does not grow with the
conversation.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from longtalk.memory.recall.index import RecallIndex, Unit
from longtalk.memory.recall.protocol import Matches, SearchTerm
from longtalk.memory.recall.query import EPOCH, Query, parse_query, year_of
from longtalk.memory.terms import fold, list_spellings
from longtalk.transcript.pack import Entry

__all__ = ["EntrySource", "index_candidates"]

_HELD = 1_000  # most entries examined for one word
_FREQUENT = 400  # a word in more entries than this counts only in entries that other words have found
_RUNNING = 3  # entries kept for the frequent words, as a multiple of the entries wanted
_TERMS = 24  # words used from the beginning of a long message, and as many from its end
_MISSPELT = 4  # unknown words that are searched for by their first letters
_ALIKE = 40  # most entries examined for one of these
_ON_A_DAY = 100  # most entries taken from a named day or period
_PROBES = 16  # entries read at once when searching for a time
_GAP = 3  # entries closer than this are read together with those between them
_LENT = ((0, 1.0), (1, 0.7), (2, 0.5), (-1, 0.5), (-2, 0.3))  # share of a match that an entry at this offset gets
_DAY = 86_400_000


class EntrySource(Protocol):
    """A conversation whose entries can be searched and read in parts."""

    size: int

    def pick(self, ranges: Sequence[tuple[int, int]]) -> Sequence[Sequence[Entry]]:
        """Return the entries of the conversation in each range, in the order of the ranges."""
        ...

    def position(self, i: int) -> int:
        """Return the position in the whole conversation of the i-th entry of this source."""
        ...

    def matches(self, sought: Sequence[SearchTerm], most: int) -> list[Matches]: ...


def index_candidates(
    path: EntrySource, message: str, *, now: int, most: int, unit: Callable[[int, Entry], Unit | None]
) -> RecallIndex:
    """Return an index of about `most` entries that may be relevant to the message.

    `now` is the time of the message in milliseconds. `unit` turns an entry, given its position, into a unit of the
    index, or returns None for an entry that is never recalled.
    """
    if not path.size:
        return RecallIndex()
    ends = [entry.at for part in path.pick([(0, 1), (max(1, path.size - 1), path.size)]) for entry in part]
    years = range(year_of(EPOCH + ends[0] // _DAY), year_of(EPOCH + ends[-1] // _DAY) + 1) if ends else range(0)
    question = parse_query(message, now=now // 1000, years=years)
    terms = _asked(question)
    sought = [SearchTerm(*map(tuple, list_spellings(*each))) for each in terms]
    held = path.matches(sought, _HELD)
    guesses = _guesses(terms, held)
    alike = [i for each in (path.matches(guesses, _ALIKE) if guesses else ()) for i in each.positions]
    found = {0, path.size - 1, *choose_entries(held, path.size, most), *alike, *_dated(path, question)}
    index = RecallIndex(size=path.size)
    forms = [form for each in (*sought, *guesses) for form in (*each.words, *each.beginnings)]
    taken = _take(path, sorted(i for i in found if i < path.size), index, unit, forms)
    for (term, _), each in zip(terms, held, strict=True):
        share = sum(i in taken for i in each.positions) / (each.count or 1)
        if share:
            index.shares[term] = share
    return index


def choose_entries(held: Sequence[Matches], size: int, most: int) -> list[int]:
    """Return the indexes of at most `most` entries that contain, or are near, the most and rarest terms, best first.

    `held` has the matches of each term, and `size` is the number of all entries. Among equals, the newest come first.
    """
    scores: dict[int, float] = defaultdict(float)
    rarest = sorted(held, key=lambda each: each.count)
    while rarest and (len(rarest[0].positions) <= _FREQUENT or len(scores) < most):
        each, near = rarest.pop(0), set[int]()
        worth = _rarity(each.count, size)
        for offset, share in _LENT:
            more = {i + offset for i in each.positions} - near
            near |= more
            for i in more:
                scores[i] += worth * share
    running = _best(scores, _RUNNING * most if rarest else most)
    for each in rarest:
        worth, positions = _rarity(each.count, size), set(each.positions)
        for i in running:
            scores[i] += worth * next((share for offset, share in _LENT if i - offset in positions), 0.0)
    return _best({i: scores[i] for i in running}, most)


def _rarity(count: int, size: int) -> float:
    return math.log(1 + max(0.0, size - count + 0.5) / (count + 0.5))


def _best(scores: Mapping[int, float], most: int) -> list[int]:
    newest = sorted((i for i in scores if i >= 0), reverse=True)
    return sorted(newest, key=scores.__getitem__, reverse=True)[:most]


def _asked(question: Query) -> list[tuple[str, str]]:
    """Return the distinct terms to search for, with their words; for a long message, only the first and last ones."""
    terms = list(dict.fromkeys(question.terms))
    some = terms if len(terms) <= 2 * _TERMS else [*terms[:_TERMS], *terms[-_TERMS:]]
    return [(term, question.words[term]) for term in some]


def _guesses(terms: Sequence[tuple[str, str]], held: Sequence[Matches]) -> list[SearchTerm]:
    """Return searches by the first letters of some terms that were not found, because they may be misspelled."""
    unknown = [term for (term, _), each in zip(terms, held, strict=True) if not each.count]
    return [SearchTerm((), (term[:3],)) for term in unknown if len(term) > 3 and term.isalpha()][:_MISSPELT]


def _dated(path: EntrySource, question: Query) -> list[int]:
    """Return the indexes of the first entries in each day or period that the message names."""
    found: list[int] = []
    for first, last in question.days:
        start = _since(path, (first - EPOCH) * _DAY)
        stop = min(_since(path, (last + 1 - EPOCH) * _DAY), start + _ON_A_DAY)
        found += range(start, stop)
    return found


def _since(path: EntrySource, at: int) -> int:
    """Return the index of the first entry at or after the time `at`, in milliseconds; `path.size` if there is none."""
    low, high = 0, path.size
    while low < high:
        # Read several at once: a store may be far away.
        step = max(1, (high - low) // _PROBES)
        probes = range(low, high, step)
        before = sum(all(entry.at < at for entry in part) for part in path.pick([(i, i + 1) for i in probes]))
        if not before:
            break
        low, high = probes[before - 1] + 1, probes[before] if before < len(probes) else high
    return low


def _take(
    path: EntrySource,
    wanted: Sequence[int],
    index: RecallIndex,
    unit: Callable[[int, Entry], Unit | None],
    forms: Sequence[str],
) -> set[int]:
    """Add the wanted entries, and the entries in small gaps between them, to an index.

    Return the indexes of all entries that were read. `forms` are the spellings of the terms: parts of long answers that
    contain none of them are not indexed.
    """

    def fits(text: str) -> bool:
        small = fold(text)
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
        for position, entry in enumerate(entries, first):
            taken.add(position)
            made = unit(path.position(position), entry)
            if made is not None:
                index.add(made, follows=follows, fits=fits)
                follows = True
    return taken
