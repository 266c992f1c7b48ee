"""Narrowing: of a very long conversation, only the units that share rare words with the query are ranked.

To score a unit for each word of the query takes time that grows with the conversation. So above a size, a rough score
decides first which units are worth it: the rarities of the words that a unit or a neighbour contains. It is computed
for all words at once, and for frequent ones only while too few units have been found.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from longtalk.memory.recall.columns import Array, Column, find_highest
from longtalk.memory.recall.index import RecallIndex
from longtalk.memory.recall.query import Query, parse_query
from longtalk.memory.recall.ranking import are_in_days, find_years, shift

__all__ = ["MAX_UNITS", "narrow", "select_units"]

MAX_UNITS = 10_000
"""The maximum number of units that are all ranked, if recall is by words."""
_KEPT_UNITS = 2_500
_FREQUENT = 2_000
"""A term in more parts than this counts only as long as fewer units than are kept have a score."""


def narrow(index: RecallIndex, query: str, now: int) -> RecallIndex:
    """Return an index of the units that may be relevant to a query; the same index if all are to be ranked.

    `now` is the time of the query in seconds. An index with vectors is never narrowed, because what is near in meaning
    may share no word with the query.
    """
    if len(index) <= MAX_UNITS or index.vectors is not None:
        return index
    scores = _score_units(index, parse_query(query, now=now, years=find_years(index.times.values)))
    kept = np.flatnonzero(scores > 0)
    if len(kept) > _KEPT_UNITS:
        kept = kept[find_highest(scores[kept], _KEPT_UNITS)]
    return select_units(index, kept)


def _score_units(index: RecallIndex, query: Query) -> Array:
    """Return a rough score of each unit for a query."""
    weights = index.weights
    own = _score_terms(index, query)
    lent = own * np.where(index.is_assistant.values, np.float32(weights.assistant_lends), np.float32(1))
    scores = own.copy()
    for offset, share in weights.borrow:
        borrowers, lenders = shift(offset)
        scores[borrowers] += np.float32(share) * lent[lenders]
    if not query.about_assistant:
        scores *= np.where(index.is_assistant.values, np.float32(weights.assistant), np.float32(1))
    highest = float(scores.max(initial=0.0)) or 1.0
    for first, last in query.days:
        scores[are_in_days(index.times.values, first, last)] += highest * weights.day
    return scores


def _score_terms(index: RecallIndex, query: Query) -> Array:
    """Return, for each unit, the rarities of the query's terms that it contains, or of terms that are spelled alike."""
    numbers: set[int] = set()
    for term in dict.fromkeys(query.terms):
        known = index.vocabulary.numbers.get(term)
        numbers.update([known] if known is not None else [each for each, _ in index.vocabulary.find_similar(term)])
    terms = np.array(sorted(numbers), np.int64)
    rarities = index.compute_rarities(terms)
    order = np.argsort(-rarities, kind="stable")
    scores: Array = np.zeros(len(index), np.float32)
    for term, rarity in zip(terms[order].tolist(), rarities[order].tolist(), strict=True):
        if index.part_counts.values[term] > _FREQUENT and np.count_nonzero(scores) >= _KEPT_UNITS:
            break
        units = index.part_units.values[index.postings.find(term)[0]]
        if index.label_counts.values[term]:
            labelled = index.label_units.values[index.label_terms.values == term]
            units = np.concatenate((units, labelled))
        # A unit that contains the term several times scores once.
        scores[units] += rarity
    return scores


def select_units(index: RecallIndex, units: Array) -> RecallIndex:
    """Return an index of some units for one ranking. Weights of terms are those in the whole index.

    `units` are the numbers of the units, in order. What the selected index lacks are the texts.
    """
    firsts = index.first_parts.values
    counts = firsts.take(units + 1, mode="clip") - firsts[units]
    if len(units) and units[-1] == len(index) - 1:
        counts[-1] = len(index.part_units) - firsts[-1]
    part_units = np.repeat(np.arange(len(units)), counts)
    parts = np.arange(len(part_units)) + (firsts[units] - np.cumsum(counts) + counts)[part_units]
    labels = np.flatnonzero(np.isin(index.label_units.values, units)) if len(index.label_units) else units[:0]
    found = copy(index)
    found.size, found.skipped_parts = 0, round(index.parts) - len(parts)
    for name in ("positions", "times", "is_assistant", "speakers", "lengths", "has_one_part"):
        setattr(found, name, getattr(index, name).pick(units))
    for name in ("part_starts", "part_stops", "traits", "norms"):
        setattr(found, name, getattr(index, name).pick(parts))
    found.part_units = _make_column(part_units)
    found.first_parts = _make_column(np.cumsum(counts) - counts)
    # Units with a gap between them are no neighbours.
    gaps = np.diff(units, prepend=-1) > 1
    found.stretches = _number_runs(gaps, index.stretches.values[units])
    found.sessions = _number_runs(False, index.sessions.values[units])
    found.topics = _number_runs(False, index.topics.values[units])
    found.postings = index.postings.pick(parts)
    found.label_terms, found.label_words = index.label_terms.pick(labels), index.label_words.pick(labels)
    found.label_units = _make_column(np.searchsorted(units, index.label_units.values[labels]))
    return found


def _make_column(values: Array) -> Column:
    found = Column(np.int32)
    found.extend(values)
    return found


def _number_runs(begins: Array | bool, values: Array) -> Column:
    """Return the number of the run of each value, from 0. A run begins where `begins` says so or the value changes."""
    changes = np.diff(values, prepend=values[:1]) != 0
    return _make_column(np.cumsum(changes | begins))
