"""Candidates: the entries of a long conversation that may be relevant to a message and are worth ranking.

Candidates are chosen by words alone, so a store can find them itself (`Store.matches`), and so can a scan of a
transcript (`scan.py`). An entry scores for each word of the message that it or a neighbour contains: more for rarer
words, and less if only a neighbour contains the word. Only the best entries are read and indexed, so the work does not
grow with the conversation.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from longtalk.memory.recall.index import RecallIndex, Unit
from longtalk.memory.recall.protocol import Matches, SearchTerm
from longtalk.memory.recall.query import EPOCH, Query, get_year, parse_query
from longtalk.memory.terms import fold, list_spellings
from longtalk.transcript.pack import Entry

__all__ = ["EntrySource", "index_candidates"]

_MAX_MATCHES = 1_000  # entries to examine for one term
_FREQUENT = 400  # a term in more entries than this scores only in entries that other terms have found
_KEPT_FACTOR = 3  # times the wanted number of entries are kept until frequent terms have been scored
_MAX_TERMS_PER_END = 24  # of a long message, this many terms from the beginning and from the end are used
_MAX_GUESSES = 4  # terms without a match that are searched for again by their first letters
_MAX_GUESS_MATCHES = 40  # entries to examine for one such term
_MAX_ENTRIES_PER_PERIOD = 100  # entries to take from a day or period that the message names
_PROBES = 16  # entries to read at once when searching for a point in time
_MAX_GAP = 3  # for entries closer together than this, those in between are read as well
_NEIGHBOUR_SHARES = ((0, 1.0), (1, 0.7), (2, 0.5), (-1, 0.5), (-2, 0.3))
"""Pairs of an offset and a share: an entry at this offset from a matching entry gets this share of its score."""
_DAY = 86_400_000


class EntrySource(Protocol):
    """A conversation whose entries can be searched and read in parts."""

    size: int

    def pick(self, ranges: Sequence[tuple[int, int]]) -> Sequence[Sequence[Entry]]:
        """Return one list of entries for each range of indexes, (start, stop)."""
        ...

    def to_position(self, i: int) -> int:
        """Return the position in the whole conversation of the i-th entry of this source."""
        ...

    def matches(self, terms: Sequence[SearchTerm], most: int) -> list[Matches]:
        """Return, for each term, the indexes of the entries that match it; if more than `most`, only the newest."""
        ...


def index_candidates(
    source: EntrySource,
    message: str,
    *,
    now: int,
    most: int,
    to_unit: Callable[[int, Entry], Unit | None],
    meaning: bool = False,
) -> RecallIndex:
    """Return an index of about `most` entries that may be relevant to the message.

    `now` is the time of the message in milliseconds. `to_unit` takes an entry and its position, and returns a unit for
    the index, or None if the entry must not be recalled. With `meaning`, the index also ranks by meaning.
    """
    if not source.size:
        return RecallIndex(meaning=meaning)
    ends = [entry.at for part in source.pick([(0, 1), (max(1, source.size - 1), source.size)]) for entry in part]
    years = range(get_year(EPOCH + ends[0] // _DAY), get_year(EPOCH + ends[-1] // _DAY) + 1) if ends else range(0)
    query = parse_query(message, now=now // 1000, years=years)
    terms = _select_terms(query)
    search_terms = [SearchTerm(*map(tuple, list_spellings(term, word))) for term, word in terms]
    matches = source.matches(search_terms, _MAX_MATCHES)
    guesses = _guess_spellings(terms, matches)
    guess_matches = source.matches(guesses, _MAX_GUESS_MATCHES) if guesses else []
    chosen = {0, source.size - 1, *choose_entries(matches, source.size, most), *_find_dated_entries(source, query)}
    chosen.update(i for match in guess_matches for i in match.positions)
    index = RecallIndex(size=source.size, meaning=meaning)
    forms = [form for term in (*search_terms, *guesses) for form in (*term.words, *term.beginnings)]
    indexed = _index_entries(source, sorted(i for i in chosen if i < source.size), index, to_unit, forms)
    for (term, _), match in zip(terms, matches, strict=True):
        share = sum(i in indexed for i in match.positions) / (match.count or 1)
        if share:
            index.shares[term] = share
    return index


def choose_entries(matches: Sequence[Matches], size: int, most: int) -> list[int]:
    """Return the indexes of the entries with the highest scores, best first, at most `most` of them.

    An entry scores for each term that it or a neighbour contains, more for rarer terms. `matches` has the matches of
    each term, and `size` is the number of all entries. Among equal scores, the newest entry comes first.
    """
    scores: dict[int, float] = defaultdict(float)
    rarest = sorted(matches, key=lambda match: match.count)
    while rarest and (len(rarest[0].positions) <= _FREQUENT or len(scores) < most):
        match, reached = rarest.pop(0), set[int]()
        rarity = _compute_rarity(match.count, size)
        for offset, share in _NEIGHBOUR_SHARES:
            new = {i + offset for i in match.positions} - reached
            reached |= new
            for i in new:
                scores[i] += rarity * share
    candidates = _select_best(scores, _KEPT_FACTOR * most if rarest else most)
    for match in rarest:
        rarity, positions = _compute_rarity(match.count, size), set(match.positions)
        for i in candidates:
            scores[i] += rarity * next((share for offset, share in _NEIGHBOUR_SHARES if i - offset in positions), 0.0)
    return _select_best({i: scores[i] for i in candidates}, most)


def _compute_rarity(count: int, size: int) -> float:
    """Return the weight of a term that occurs in `count` of `size` entries. Rarer terms weigh more."""
    return math.log(1 + max(0.0, size - count + 0.5) / (count + 0.5))


def _select_best(scores: Mapping[int, float], most: int) -> list[int]:
    """Return the indexes of the `most` highest scores, best first. Among equal scores, the newest entry comes first."""
    newest = sorted((i for i in scores if i >= 0), reverse=True)
    return sorted(newest, key=scores.__getitem__, reverse=True)[:most]


def _select_terms(query: Query) -> list[tuple[str, str]]:
    """Return the distinct terms to search for, each with its word. Of a long message, use only the first and last."""
    terms = list(dict.fromkeys(query.terms))
    if len(terms) > 2 * _MAX_TERMS_PER_END:
        terms = [*terms[:_MAX_TERMS_PER_END], *terms[-_MAX_TERMS_PER_END:]]
    return [(term, query.words[term]) for term in terms]


def _guess_spellings(terms: Sequence[tuple[str, str]], matches: Sequence[Matches]) -> list[SearchTerm]:
    """Return searches by first letters for some terms without a match, because these may be misspelled."""
    unknown = [term for (term, _), match in zip(terms, matches, strict=True) if not match.count]
    return [SearchTerm((), (term[:3],)) for term in unknown if len(term) > 3 and term.isalpha()][:_MAX_GUESSES]


def _find_dated_entries(source: EntrySource, query: Query) -> list[int]:
    """Return the indexes of the first entries, up to a maximum, of each day or period that the message names."""
    found: list[int] = []
    for first, last in query.days:
        start = _find_first_since(source, (first - EPOCH) * _DAY)
        stop = min(_find_first_since(source, (last + 1 - EPOCH) * _DAY), start + _MAX_ENTRIES_PER_PERIOD)
        found += range(start, stop)
    return found


def _find_first_since(source: EntrySource, at: int) -> int:
    """Return the index of the first entry at or after a time in milliseconds; `source.size` if there is none."""
    low, high = 0, source.size
    while low < high:
        # Each read may be a round trip to a remote store, so one read probes several entries.
        step = max(1, (high - low) // _PROBES)
        probes = range(low, high, step)
        before = sum(all(entry.at < at for entry in part) for part in source.pick([(i, i + 1) for i in probes]))
        if not before:
            break
        low, high = probes[before - 1] + 1, probes[before] if before < len(probes) else high
    return low


def _index_entries(
    source: EntrySource,
    wanted: Sequence[int],
    index: RecallIndex,
    to_unit: Callable[[int, Entry], Unit | None],
    forms: Sequence[str],
) -> set[int]:
    """Add the wanted entries, and the entries in small gaps between them, to a recall index.

    Return the indexes of all entries that were read. `forms` has the spellings of the search terms: parts of long
    answers that contain none of them are not indexed.
    """

    def fits(text: str) -> bool:
        folded = fold(text)
        return any(form in folded for form in forms)

    ranges: list[tuple[int, int]] = []
    for i in wanted:
        if ranges and i - ranges[-1][1] < _MAX_GAP:
            ranges[-1] = (ranges[-1][0], i + 1)
        else:
            ranges.append((i, i + 1))
    indexed: set[int] = set()
    for (first, _), entries in zip(ranges, source.pick(ranges), strict=True):
        follows = False
        for position, entry in enumerate(entries, first):
            indexed.add(position)
            unit = to_unit(source.to_position(position), entry)
            if unit is not None:
                index.add(unit, follows=follows, fits=None if index.vectors is not None else fits)
                follows = True
    return indexed
