"""The ranking of one query against a recall index. `index.py` explains what the score depends on and why.

The parts of the score are computed for the whole index at once and kept in arrays of their own, by unit or by part:
the words of the query and those of the best matches (`TermScores`), pairs of words, topics, sessions, days, nearness in
meaning. What a neighbour lends is by unit and what a part's own words add is by part, so that only the matching parts
of a long message are ranked.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container
from itertools import pairwise

import numpy as np

from longtalk.memory.recall.columns import Array, are_in, find_groups, find_highest
from longtalk.memory.recall.gain import Evidence, estimate_need
from longtalk.memory.recall.index import RecallIndex
from longtalk.memory.recall.meaning import compare
from longtalk.memory.recall.parts import STANDING, TIMED
from longtalk.memory.recall.query import EPOCH, get_year, parse_query
from longtalk.memory.terms import split_words, stem

__all__ = ["Ranking", "are_in_days", "find_years", "shift"]

_MAX_RANKED = 2_000  # parts to rank, even if more match
_MAX_TERMS_PER_END = 24  # of a long message, this many terms from the beginning and from the end are used
_MAX_REFINED = 100  # best parts whose word pairs are compared with those of the query
_MAX_FEEDBACK_PARTS = 8  # best parts whose terms are added to the query
_MAX_FEEDBACK_TERMS = 10  # terms to add to the query
_MAX_NEAREST = 400  # parts that may count as near in meaning
_GROUP_SCORES = 3  # best scores in a topic or session whose mean counts for all of its units
_DAY = 86_400
_NO_MATCHES: tuple[Array, Array] = (np.empty(0, np.int32), np.empty(0))
_DECIMALS = 9  # of weights that are compared
_MIN_QUERY_WEIGHT = 1.3
"""The minimum weight of a query that does not refer back, in units of a term that occurs only once.

A query with less weight is treated as small talk.
"""


class TermScores:
    """The scores for some terms, summed over the terms: borrowed ones by unit, and what own words add by part."""

    def __init__(self, units: int, parts: int) -> None:
        self.borrowed: Array = np.zeros(units)
        self.own: Array = np.zeros(parts)
        self.matches: Array = np.zeros(parts, np.bool_)
        """For each part, whether it contains one of the terms."""


class Ranking:
    """The scores of the parts of an index for one query. `now` is the time of the query in seconds."""

    def __init__(self, index: RecallIndex, query: str, now: int) -> None:
        self.index = index
        self.weights = index.weights
        self.units, self.parts = len(index), len(index.part_units)
        self._read_columns()
        self.query = parse_query(query, now=now, years=find_years(index.times.values))
        assistant = 1.0 if self.query.about_assistant else self.weights.assistant
        self.role_weights = np.where(self._is_assistant, assistant, 1.0)
        self._borrowing = self._list_borrowing()
        self.words = TermScores(self.units, self.parts)
        self.feedback = TermScores(self.units, self.parts)
        self.pairs: Array = np.zeros(self.parts)
        """For each part, the score for pairs of words that it has in common with the query."""
        self.topics: Array = np.zeros(self.units)
        """For each unit, the score for good matches in its topic; the same for `sessions` and `days`."""
        self.sessions: Array = np.zeros(self.units)
        self.days: Array = np.zeros(self.units)
        self.covered, self.term_counts, self.rarest = (np.zeros(self.parts) for _ in range(3))
        """For each part, the weight of the query's terms that it contains, their number, and the highest weight."""
        self.has_assistant = bool(self._is_assistant.any())
        self.named, query_terms = self._split_names()
        numbers = [index.vocabulary.numbers.get(term, -1) for term in query_terms]
        words = [self.query.words[term] for term in query_terms]
        self.meaning = compare(index, words)
        related = self.meaning.find_related_terms(self.weights.min_similarity) if self.meaning else [[] for _ in words]
        self._score_terms(query_terms, numbers, related)
        self.first_scores = self.score_parts()
        self._refine_best()
        self._score_surroundings()

    def _read_columns(self) -> None:
        """Read the properties of units and parts that ranking uses."""
        index, weights = self.index, self.weights
        self._part_units = index.part_units.values
        self._first_parts = index.first_parts.values
        self._is_assistant = index.is_assistant.values
        self._has_one_part = index.has_one_part.values
        sizes = index.postings.get_sizes()
        mean = int(sizes.sum()) / max(1, self.parts) or 1.0
        self._damping: Array = weights.saturation * (1 - weights.length + weights.length * sizes / mean)
        """For each part, how soon further occurrences of a term stop adding to the score."""

    def _list_borrowing(self) -> list[tuple[int, Array]]:
        """Return pairs of an offset and, for each unit, the share of the score at this offset that it borrows."""
        index, weights = self.index, self.weights
        factors = np.minimum(1.0, weights.long_text / np.maximum(1, index.lengths.values))
        lends = np.where(self._is_assistant, weights.assistant_lends, 1.0)
        sessions, stretches = index.sessions.values, index.stretches.values
        found = []
        for offset, share in weights.borrow:
            if abs(offset) < self.units:
                borrowers, lenders = shift(offset)
                together = (sessions[borrowers] == sessions[lenders]) & (stretches[borrowers] == stretches[lenders])
                found.append((offset, np.where(together, share * factors[borrowers] * lends[lenders], 0.0)))
        return found

    # Terms

    def _split_names(self) -> tuple[set[int], list[str]]:
        """Return the numbers of the participants whom the query names, and the other terms of the query.

        If the query has no other terms, its names are returned as terms too.
        """
        names: dict[str, set[int]] = {}
        for number, name in enumerate(self.index.names):
            for word in split_words(name):
                names.setdefault(stem(word), set()).add(number)
        distinct = list(dict.fromkeys(self.query.terms))
        if len(distinct) > 2 * _MAX_TERMS_PER_END:
            distinct = [*distinct[:_MAX_TERMS_PER_END], *distinct[-_MAX_TERMS_PER_END:]]
        named: set[int] = set().union(*(names[term] for term in distinct if term in names))
        return named, [term for term in distinct if term not in names] or distinct

    def _score_terms(self, terms: list[str], numbers: list[int], related: list[list[tuple[int, float]]]) -> None:
        """Add the scores for the terms of the query, and for the `related` terms of each, which are close in meaning.

        If a term is not in the index (its number is -1), terms that are spelled similarly are used in its place.
        """
        chosen: list[dict[int, float]] = []
        for term, number, near in zip(terms, numbers, related, strict=True):
            if number >= 0:
                variants = {number: 1.0}
            else:
                similar = self.index.vocabulary.find_similar(term)
                variants = {each: self.weights.misspelled * nearness for each, nearness in similar}
            for each, nearness in near:
                variants.setdefault(each, self.weights.related * nearness)
            chosen.append(variants)
        rarities = self._compute_rarities({term for variants in chosen for term in variants})
        for variants in chosen:
            matching = self._add_scores(self.words, variants, rarities)
            if len(matching):
                rarity = max(rarities[term] for term in variants)
                self.covered[matching] += rarity
                self.term_counts[matching] += 1
                self.rarest[matching] = np.maximum(self.rarest[matching], rarity)
        self.known_weight = sum(rarities[number] for number in numbers if number >= 0)
        # A term that is not in the index gets the highest weight.
        highest = math.log(2 + 2 * self.index.parts)
        self.term_weights = [rarities[number] if number >= 0 else highest for number in numbers]
        """The weight of each term of the query."""
        self.query_weight = sum(self.term_weights)

    def _compute_rarities(self, terms: Collection[int]) -> dict[int, float]:
        """Return the weight of each of these terms."""
        rarities = self.index.compute_rarities(np.fromiter(terms, np.int64, len(terms)))
        return dict(zip(terms, rarities.tolist(), strict=True))

    def _add_scores(self, scores: TermScores, variants: dict[int, float], rarities: dict[int, float]) -> Array:
        """Add the scores for one term, and return the parts that match it.

        `variants` maps the numbers of matching terms to their weights, and `rarities` to their rarities.

        Each part gets the better of two scores: its own best match, or the best that a neighbour lends.
        """
        matching, values = self._match_variants(variants, rarities)
        if len(matching):
            lent = self._lend(self.find_best_by_unit(matching, values))
            scores.borrowed += lent
            scores.own[matching] += np.maximum(0.0, values - lent[self._part_units[matching]])
            scores.matches[matching] = True
        return matching

    def _match_variants(self, variants: dict[int, float], rarities: dict[int, float]) -> tuple[Array, Array]:
        """Return the parts that contain one of these terms, in order, and the score of the best match of each."""
        found: list[tuple[Array, Array]] = []
        for term, weight in variants.items():
            weight *= rarities[term]
            parts, counts = self.index.postings.find(term)
            found.append((parts, weight * (self.weights.saturation + 1) * counts / (counts + self._damping[parts])))
            if self.index.label_counts.values[term]:
                # Labels weigh like a user's words.
                units = self.index.label_units.values[self.index.label_terms.values == term]
                found.append((self._first_parts[units], weight / self.role_weights[units]))
        if len(found) == 1:
            parts, values = found[0]
        else:
            parts, values = (np.concatenate(each) for each in zip(*found, strict=True)) if found else _NO_MATCHES
            order = parts.argsort(kind="stable")
            parts, firsts = find_groups(parts[order])
            values = np.maximum.reduceat(values[order], firsts) if len(parts) else values
        positive = values > 0
        return (parts, values) if positive.all() else (parts[positive], values[positive])

    def find_best_by_unit(self, parts: Array, values: Array) -> Array:
        """Return the best value of each unit, 0 for a unit without one. `parts` is sorted."""
        best: Array = np.zeros(self.units)
        units, firsts = find_groups(self._part_units[parts])
        best[units] = np.maximum.reduceat(values, firsts)
        return best

    def _lend(self, best: Array) -> Array:
        """Return, for each unit, the best score that it can borrow from a neighbour. `best` has each unit's own."""
        lent: Array = np.zeros(self.units)
        for offset, factors in self._borrowing:
            borrowers, lenders = shift(offset)
            np.maximum(lent[borrowers], best[lenders] * factors, out=lent[borrowers])
        return lent

    # Scores

    def score_parts(self) -> tuple[Array, Array]:
        """Return each part that has a score, and the scores: parts that match, and one-part units that only borrow."""
        borrowed = self.words.borrowed + self.feedback.borrowed + self.topics + self.sessions + self.days
        has_score = self.words.matches | self.feedback.matches
        has_score[self._first_parts[self._has_one_part & (borrowed > 0)]] = True
        parts = np.flatnonzero(has_score)
        units = self._part_units[parts]
        own = self.words.own[parts] + self.pairs[parts] + self.feedback.own[parts]
        scores = (own + borrowed[units]) * self.role_weights[units]
        if len(parts) > _MAX_RANKED:
            best = find_highest(scores, _MAX_RANKED)
            parts, scores = parts[best], scores[best]
        return parts, scores

    def _refine_best(self) -> None:
        """Add scores for word pairs of the query in the best parts, and for other words typical of these parts."""
        parts, scores = self.first_scores
        best = _sort_highest(scores, _MAX_REFINED)
        parts, scores = parts[best], scores[best]
        numbers = [self.index.vocabulary.numbers.get(term, -1) for term in self.query.terms]
        query_pairs = sorted({(a, b) for a, b in pairwise(numbers) if a >= 0 and b >= 0})
        if query_pairs and len(parts):
            gains = self._score_pairs(parts, np.array(query_pairs, np.int64))
            self.pairs[parts] += gains
            scores = scores + gains
        best = _sort_highest(scores, _MAX_FEEDBACK_PARTS, parts)
        shared = self._find_shared_terms(parts[best], scores[best], numbers)
        for term in shared:
            self._add_scores(self.feedback, {term: self.weights.feedback}, shared)

    def _score_pairs(self, parts: Array, query_pairs: Array) -> Array:
        """Return the score of each of these parts for the pairs of adjacent terms that it shares with the query."""
        terms, owners = self._gather_terms(parts)
        size = len(self.index.part_counts)
        weights = self.weights.pair * self.index.compute_rarities(query_pairs.ravel()).reshape(-1, 2).sum(axis=1)
        query_codes = query_pairs[:, 0] * size + query_pairs[:, 1]
        codes = terms[:-1] * size + terms[1:]
        shared = np.flatnonzero((owners[1:] == owners[:-1]) & np.isin(codes, query_codes))
        # A pair counts once in each part.
        found = np.unique(np.stack((owners[shared], np.searchsorted(query_codes, codes[shared]))), axis=1)
        return np.bincount(found[0], weights=weights[found[1]], minlength=len(parts))

    def _gather_terms(self, parts: Array) -> tuple[Array, Array]:
        """Return the terms of these parts, one part after the other, and for each term the index of its part."""
        found = [self.index.postings.get_terms(part) for part in parts.tolist()]
        owners = np.repeat(np.arange(len(found)), [len(each) for each in found])
        return np.concatenate(found).astype(np.int64) if found else owners, owners

    def _find_shared_terms(self, parts: Array, scores: Array, query_terms: list[int]) -> dict[int, float]:
        """Return the terms that weigh most in `parts`, except those of the query, each with its rarity."""
        terms, owners = self._gather_terms(parts)
        sizes = np.bincount(owners, minlength=len(parts))
        distinct, where = np.unique(terms, return_inverse=True)
        shared = np.bincount(where, weights=(scores / (1 + sizes))[owners], minlength=len(distinct))
        # Rounded, so that the order of sums can't decide between terms with the same weight.
        rarities = self.index.compute_rarities(distinct)
        shared = (shared * rarities).round(_DECIMALS)
        shared[np.isin(distinct, query_terms)] = -1.0
        order = np.argsort(-shared, kind="stable")[:_MAX_FEEDBACK_TERMS]
        return {int(distinct[i]): float(rarities[i]) for i in order if shared[i] >= 0}

    def _score_surroundings(self) -> None:
        """Add scores for units in a topic or session with good matches, and for units of days that the query names."""
        index, weights = self.index, self.weights
        parts, scores = self.score_parts()
        borrows = (self.words.borrowed + self.feedback.borrowed) > 0
        units = self._part_units[parts]
        for groups, weight, gains in (
            (index.topics.values, weights.topic, self.topics),
            (index.sessions.values, weights.session, self.sessions),
        ):
            sums: Array = np.zeros(self.units)
            found, best = _sum_best(groups[units], scores)
            sums[found] = best
            gains[borrows] = weight / _GROUP_SCORES * sums[groups[borrows]]
        highest = float(scores.max(initial=0.0)) or 1.0
        for first, last in self.query.days:
            named = are_in_days(index.times.values, first, last)
            self.days[named] += highest * weights.day * (1.0 if first == last else 0.5)

    def compute_final_scores(self) -> tuple[Array, Array]:
        """Return parts and their final scores, which also take account of speaker, traits and length."""
        index, weights = self.index, self.weights
        parts, scores = self._add_nearness(*self.score_parts())
        traits = index.traits.values[parts]
        if self.named:
            is_named = np.isin(index.speakers.values[self._part_units[parts]], list(self.named))
            scores = np.where(is_named, scores * weights.speaker, scores)
        if self.query.asks_when:
            scores = np.where(traits & TIMED, scores * weights.time, scores)
        if self.has_assistant:
            scores = np.where(traits & STANDING, scores * weights.standing, scores)
        sizes = index.part_stops.values[parts] - index.part_starts.values[parts]
        return parts, scores / (weights.base_length + sizes) ** weights.brevity

    def _add_nearness(self, parts: Array, scores: Array) -> tuple[Array, Array]:
        """Scale the scores to at most 1 and add the weighted similarity in meaning. Without vectors, change nothing."""
        if self.meaning is None:
            return parts, scores
        total: Array = np.zeros(self.parts)
        total[parts] = scores / (float(scores.max(initial=0.0)) or 1.0)
        has_score: Array = np.zeros(self.parts, np.bool_)
        has_score[parts] = True
        near = self.meaning.find_nearness(_MAX_NEAREST)
        matching = np.flatnonzero(near > 0)
        if len(matching):
            lent = self._lend(self.find_best_by_unit(matching, near[matching]))
            first_parts = self._first_parts[self._has_one_part]
            near[first_parts] = np.maximum(near[first_parts], lent[self._has_one_part])
        total += self.weights.meaning * near * self.role_weights[self._part_units]
        parts = np.flatnonzero(has_score | (near > 0))
        return parts, total[parts]

    def estimate_need(self, exclude: Container[int]) -> float:
        """Return the probability that the message needs hits outside `exclude`, from 0 to 1."""
        positions = self.index.positions.values
        is_named, query = bool(self.named), self.query
        if query.is_question and not are_in(positions[self.days > 0], exclude).all():
            return 1.0  # the query names a day with messages
        rarest = math.log(1 + self.index.parts)
        least = 0.0 if is_named or query.refers_back else _MIN_QUERY_WEIGHT * rarest
        if not self.query_weight or self.query_weight < least:
            return 0.0
        paired = np.flatnonzero(self.pairs)
        return estimate_need(
            Evidence(
                match=self._find_best(*self.first_scores, exclude) / self.query_weight,
                known=self.known_weight / self.query_weight,
                pairs=self._find_best(paired, self.pairs[paired], exclude) / rarest,
                question_share=query.question_share,
                names_speaker=is_named,
                refers_back=query.refers_back,
            )
        )

    def _find_best(self, parts: Array, scores: Array, exclude: Container[int]) -> float:
        """Return the best score of these parts, without those of the units at the positions in `exclude`."""
        positions = self.index.positions.values[self._part_units[parts]]
        return float(scores[~are_in(positions, exclude)].max(initial=0.0))


def are_in_days(times: Array, first: int, last: int) -> Array:
    """Return, for each time, whether it is known and in the days from `first` to `last`, which are ordinals."""
    found: Array = (times >= (first - EPOCH) * _DAY) & (times < (last + 1 - EPOCH) * _DAY) & (times != 0)
    return found


def find_years(times: Array) -> range:
    """Return the years from the first of these times to the last one. A time of 0 is unknown."""
    if not times.all():
        times = times[times != 0]
    days = (EPOCH + int(each) // _DAY for each in (times.min(), times.max())) if len(times) else ()
    years = [get_year(day) for day in days]
    return range(years[0], years[1] + 1) if years else range(0)


def shift(offset: int) -> tuple[slice, slice]:
    """Return the slices of all units that have a neighbour at this offset, and of these neighbours."""
    whole, rest = slice(None, -abs(offset)), slice(abs(offset), None)
    return (whole, rest) if offset > 0 else (rest, whole)


def _sort_highest(scores: Array, most: int, parts: Array | None = None) -> Array:
    """Return the indexes of the `most` highest scores, highest first; among equal scores, the earlier part is first."""
    if parts is not None:
        return np.lexsort((parts, -scores))[:most]
    best = find_highest(scores, most) if len(scores) > most else np.arange(len(scores))
    order: Array = best[np.argsort(-scores[best], kind="stable")]
    return order


def _sum_best(groups: Array, scores: Array) -> tuple[Array, Array]:
    """Return the distinct groups, and the sum of the best scores of each. The groups are in order."""
    found, firsts = find_groups(groups)
    sums: Array = np.zeros(len(found))
    scores = scores.copy()
    for _ in range(_GROUP_SCORES if len(found) else 0):
        best = np.maximum.reduceat(scores, firsts)
        sums += best
        # The next round is for the best score among the others.
        places = np.flatnonzero(scores == np.repeat(best, np.diff(firsts, append=len(scores))))
        scores[places[find_groups(groups[places])[1]]] = 0.0
    return found, sums
