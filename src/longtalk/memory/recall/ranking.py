"""The ranking of one query against a recall index. `index.py` explains what the score depends on and why.

The score of a part is the sum of two numbers: `bases` has, for each unit, the score that it borrows from its
neighbours, and `extras` has, for each part, the additional score of its own words. So only the matching parts of a long
message have to be processed.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Iterable
from heapq import nlargest
from itertools import pairwise

from longtalk.memory.recall.index import MAX_TERM_COUNT, STANDING, TIMED, Hit, RankedHits, RecallIndex
from longtalk.memory.recall.query import get_year, parse_query

__all__ = ["Ranking", "rank"]

_MAX_RANKED = 2_000  # parts to rank, even if more match
_MAX_POSTINGS = 4_000  # parts to examine for one term
_MAX_REFINED = 100  # best parts whose word pairs are compared with those of the query
_MAX_FEEDBACK_PARTS = 8  # best parts whose terms are added to the query
_MAX_FEEDBACK_TERMS = 10  # terms to add to the query
_MAX_NEAREST = 400  # parts that may count as near in meaning
# How much of the query's weight the best match must reach: below the first number, none of the budget is spent; from
# the second number on, all of it. The numbers are lower for a query that refers back or names a participant.
_THRESHOLDS_BACK, _THRESHOLDS_NEW = (0.2, 0.4), (0.35, 0.6)
# A statement rarely needs what was said before: only a good match is sent with it, in at most this share of the budget.
_THRESHOLDS_STATEMENT, _MAX_STATEMENT_SHARE = (0.5, 0.9), 0.3
_MIN_QUERY_WEIGHT = 1.3
"""The minimum weight of a query that does not refer back, in units of a term that occurs only once.

A query with less weight is treated as small talk.
"""


class Ranking:
    """The scores of the parts of an index for one query. `now` is the time of the query in seconds."""

    def __init__(self, index: RecallIndex, query: str, now: int) -> None:
        self.index = index
        self.weights = index.weights
        days = index.days
        years = range(get_year(min(days)), get_year(max(days)) + 1) if days else range(0)
        self.query = parse_query(query, now=now, years=years)
        self.role_weights = (1.0, 1.0 if self.query.about_assistant else self.weights.assistant)
        self.bases: dict[int, float] = defaultdict(float)
        self.extras: dict[int, float] = defaultdict(float)
        self.units_on_days: set[int] = set()
        self.named, query_terms = self._split_names()
        related_terms = zip(query_terms, self._find_related_terms(query_terms), strict=True)
        for term, related in sorted(related_terms, key=lambda pair: -self._weigh_term(pair[0])):
            self._score_term(term, related)
        self.query_words = " ".join(self.query.words[term] for term in query_terms)
        self.query_weight = sum(map(self._weigh_term, query_terms))
        self.first_scores = self.score_parts()
        self._refine_best()
        self._score_surroundings()

    def score_parts(self) -> list[tuple[int, float]]:
        """Return each part that has a score, with its score: parts that match, and one-part units that only borrow."""
        extras, bases = self.extras, self.bases
        index, role_weights = self.index, self.role_weights
        part_units, first_parts = index.part_units, index.first_parts
        has_one_part, is_assistant = index.has_one_part, index.is_assistant
        scored = []
        for part, extra in extras.items():
            number = part_units[part]
            scored.append((part, (extra + bases.get(number, 0.0)) * role_weights[is_assistant[number]]))
        for number, base in bases.items():
            if has_one_part[number] and first_parts[number] not in extras:
                scored.append((first_parts[number], base * role_weights[is_assistant[number]]))
        return scored if len(scored) <= _MAX_RANKED else nlargest(_MAX_RANKED, scored, key=_score_key)

    def compute_final_scores(self) -> list[tuple[int, float]]:
        """Return parts with their final scores, which also take account of speaker, traits and length."""
        index, weights = self.index, self.weights
        standing_factor = weights.standing if index.has_assistant else 1.0
        scored = []
        for part, score in self._add_nearness(self.score_parts()):
            traits = index.get_traits(part)
            if index.units[index.part_units[part]].name in self.named:
                score *= weights.speaker
            if self.query.asks_when and traits & TIMED:
                score *= weights.time
            if traits & STANDING:
                score *= standing_factor
            start, stop = index.spans[part]
            scored.append((part, score / (weights.base_length + stop - start) ** weights.brevity))
        return scored

    def _add_nearness(self, scored: list[tuple[int, float]]) -> list[tuple[int, float]]:
        """Return the scores, scaled to at most 1, with the weighted semantic similarity added.

        If the index has no vectors, the scores are returned unchanged.
        """
        index = self.index
        if index.vectors is None:
            return scored
        highest = max((score for _, score in scored), default=0.0) or 1.0
        scores = defaultdict(float, ((part, score / highest) for part, score in scored))
        for part, nearness in self._find_near_parts():
            role_weight = self.role_weights[index.is_assistant[index.part_units[part]]]
            scores[part] += self.weights.meaning * nearness * role_weight
        return list(scores.items())

    def _find_near_parts(self) -> Iterable[tuple[int, float]]:
        """Return the parts that are near to the query in meaning, or have such neighbours, each with its nearness."""
        index = self.index
        if index.vectors is None or not self.query_words:
            return ()
        near = dict(index.vectors.find_nearest(self.query_words, _MAX_NEAREST))
        best: dict[int, float] = {}
        for part, nearness in near.items():
            best[index.part_units[part]] = max(nearness, best.get(index.part_units[part], 0.0))
        for number, nearness in self._compute_lent_scores(best).items():
            if index.has_one_part[number]:
                part = index.first_parts[number]
                near[part] = max(nearness, near.get(part, 0.0))
        return near.items()

    def compute_budget_share(self, exclude: Container[int]) -> float:
        """Return the share of the budget to spend on hits outside `exclude`, from 0 to 1.

        The better the best match, relative to the weight of the query, the higher the share. Statements get less than
        questions.
        """
        index = self.index
        asks = self.query.is_question
        if asks and any(index.units[number].position not in exclude for number in self.units_on_days):
            return 1.0  # the query names a day with messages
        refers_back = bool(self.named or self.query.refers_back)
        least = 0.0 if refers_back else _MIN_QUERY_WEIGHT * math.log(1 + index.parts)
        if not self.query_weight or self.query_weight < least:
            return 0.0
        best = max((score for part, score in self.first_scores if index.get_position(part) not in exclude), default=0.0)
        match = best / self.query_weight
        if not asks:
            return min(_MAX_STATEMENT_SHARE, _interpolate(match, *_THRESHOLDS_STATEMENT))
        return _interpolate(match, *(_THRESHOLDS_BACK if refers_back else _THRESHOLDS_NEW))

    def _split_names(self) -> tuple[set[str], list[str]]:
        """Return the names of the participants that the query mentions, and the other terms of the query.

        If the query has no other terms, its names are returned as terms too.
        """
        names = self.index.names
        distinct = list(dict.fromkeys(self.query.terms))
        query_terms = [term for term in distinct if term not in names]
        named: set[str] = set().union(*(names[term] for term in distinct if term in names))
        return named, query_terms or distinct

    def _find_related_terms(self, query_terms: list[str]) -> list[list[tuple[int, float]]]:
        """Return, for each term of the query, the numbers of indexed terms close in meaning, with their similarity.

        If the index has no vectors, there are none.
        """
        words = self.index.words
        if words is None:
            return [[] for _ in query_terms]
        return words.find_similar([self.query.words[term] for term in query_terms], self.weights.min_similarity)

    def _score_term(self, term: str, related: list[tuple[int, float]]) -> None:
        """Add the scores for a term of the query, and for the `related` terms, which are close in meaning.

        If the term is not in the index, terms that are spelled similarly are used in its place.
        """
        vocabulary, weights = self.index.vocabulary, self.weights
        known = vocabulary.numbers.get(term)
        if known is None:
            variants = {number: weights.misspelled * nearness for number, nearness in vocabulary.find_similar(term)}
        else:
            variants = {known: 1.0}
        for number, nearness in related:
            variants.setdefault(number, weights.related * nearness)
        if variants:
            self._add_scores(variants)

    def _weigh_term(self, term: str) -> float:
        """Return the weight of a term of the query. A term that is not in the index gets the highest weight."""
        known = self.index.vocabulary.numbers.get(term)
        return math.log(2 + 2 * self.index.parts) if known is None else self.index.compute_rarity(known)

    def _add_scores(self, variants: dict[int, float]) -> None:
        """Add the scores for one term of the query. `variants` maps the numbers of matching terms to their weights.

        Each part gets the better of two scores: its own best match, or the best that a neighbour lends.
        """
        own: dict[int, float] = {}
        for term, weight in variants.items():
            self._score_postings(term, weight, own)
            self._score_labels(term, weight, own)
        part_units = self.index.part_units
        best: dict[int, float] = {}
        for part, value in own.items():
            number = part_units[part]
            if value > best.get(number, 0.0):
                best[number] = value
        lent = self._compute_lent_scores(best)
        for number, value in lent.items():
            self.bases[number] += value
        for part, value in own.items():
            more = value - lent.get(part_units[part], 0.0)
            self.extras[part] += more if more > 0.0 else 0.0

    def _score_postings(self, term: int, weight: float, own: dict[int, float]) -> None:
        """Raise the score in `own` of each part that contains a term to the weighted BM25 score, if that is higher."""
        index, k1, b = self.index, self.weights.saturation, self.weights.length
        weight *= index.compute_rarity(term) * (k1 + 1)
        fixed, growing = k1 * (1 - b), k1 * b * len(index.part_units) / index.term_count
        lengths = index.terms
        for packed in self._select_postings(term):
            part, times = packed >> 8, packed & MAX_TERM_COUNT
            value = weight * times / (times + fixed + growing * len(lengths[part]))
            if value > own.get(part, 0.0):
                own[part] = value

    def _select_postings(self, term: int) -> Iterable[int]:
        """Return the parts that contain a term, each packed with its number of occurrences as in `index.postings`.

        A very frequent term is looked up only in the best parts that rarer terms have found, and in their neighbours.
        If rarer terms have found none, only the last parts that contain the frequent term are returned.
        """
        index = self.index
        postings = index.postings[term]
        if len(postings) <= _MAX_POSTINGS:
            return postings
        best = {index.part_units[part] for part, _ in nlargest(_MAX_REFINED, self.score_parts(), key=_score_key)}
        nearby = {number + offset for number in best for offset in (-2, -1, 0, 1, 2)}
        first_parts, part_count, unit_count = index.first_parts, len(index.part_units), len(index)
        parts = [
            part
            for i in sorted(nearby)
            if 0 <= i < unit_count
            for part in range(first_parts[i], first_parts[i + 1] if i + 1 < unit_count else part_count)
        ]
        if not parts:
            return postings[-_MAX_POSTINGS:]
        candidates = ((part, bisect_left(postings, part << 8)) for part in parts)
        return [postings[i] for part, i in candidates if i < len(postings) and postings[i] >> 8 == part]

    def _score_labels(self, term: int, weight: float, own: dict[int, float]) -> None:
        """Raise the scores in `own` for units that have this term as a label. Labels weigh like a user's words."""
        index = self.index
        for number in index.labelled.get(term, ()):
            value = weight * index.compute_rarity(term) / self.role_weights[index.is_assistant[number]]
            if value > own.get(index.first_parts[number], 0.0):
                own[index.first_parts[number]] = value

    def _compute_lent_scores(self, best: dict[int, float]) -> dict[int, float]:
        """Return, for each unit with matching neighbours, the best score that it can borrow from one of them.

        `best` has the best score of each matching unit.
        """
        index, weights = self.index, self.weights
        sessions, stretches = index.sessions, index.stretches
        borrow_factors, is_assistant = index.borrow_factors, index.is_assistant
        count = len(index.units)
        lent: dict[int, float] = {}
        for number, value in best.items():
            session, stretch = sessions[number], stretches[number]
            if is_assistant[number]:
                value *= weights.assistant_lends
            for offset, share in weights.borrow:
                borrower = number - offset
                if 0 <= borrower < count and sessions[borrower] == session and stretches[borrower] == stretch:
                    lent_value = value * share * borrow_factors[borrower]
                    if lent_value > lent.get(borrower, 0.0):
                        lent[borrower] = lent_value
        return lent

    def _refine_best(self) -> None:
        """Add scores for word pairs of the query in the best parts, and for other words typical of these parts."""
        index = self.index
        best = nlargest(_MAX_REFINED, self.first_scores, key=_score_key)
        numbers = [index.vocabulary.numbers.get(term, -1) for term in self.query.terms]
        query_pairs = {(a, b) for a, b in pairwise(numbers) if a >= 0 and b >= 0}
        for i, (part, score) in enumerate(best if query_pairs else ()):
            part_terms = index.terms[part]
            for a, b in query_pairs.intersection(pairwise(part_terms)):
                gain = self.weights.pair * (index.compute_rarity(a) + index.compute_rarity(b))
                self.extras[part] += gain
                best[i] = (part, score := score + gain)
        feedback_parts = nlargest(_MAX_FEEDBACK_PARTS, best, key=_score_key)
        for term in self._find_shared_terms(feedback_parts, set(numbers)):
            self._add_scores({term: self.weights.feedback})

    def _find_shared_terms(self, parts: list[tuple[int, float]], query_terms: set[int]) -> list[int]:
        """Return the terms that weigh most in `parts` (each with its score), except the terms of the query."""
        shared: dict[int, float] = defaultdict(float)
        for part, score in parts:
            part_terms = self.index.terms[part]
            for term in part_terms:
                if term not in query_terms:
                    shared[term] += score / (1 + len(part_terms))
        ranked = sorted(shared, key=lambda term: (-shared[term] * self.index.compute_rarity(term), term))
        return ranked[:_MAX_FEEDBACK_TERMS]

    def _score_surroundings(self) -> None:
        """Add scores for units in a topic or session with good matches, and for units of days that the query names."""
        index = self.index
        scored = self.score_parts()
        for groups, weight in ((index.topics, self.weights.topic), (index.sessions, self.weights.session)):
            best: dict[int, list[float]] = defaultdict(list)
            for part, score in scored:
                best[groups[index.part_units[part]]].append(score)
            means = {group: weight * sum(sorted(values)[-3:]) / 3 for group, values in best.items()}
            for number in self.bases:
                self.bases[number] += means.get(groups[number], 0.0)
        highest = max((score for _, score in scored), default=1.0) or 1.0
        for first, last in self.query.days:
            self._score_days(first, last, highest * self.weights.day * (1.0 if first == last else 0.5))

    def _score_days(self, first: int, last: int, gain: float) -> None:
        """Add `gain` to the scores of all units from day `first` to day `last` (ordinals, inclusive)."""
        days = self.index.days
        for day in days if last - first > len(days) else range(first, last + 1):
            for number in days.get(day, ()) if first <= day <= last else ():
                self.bases[number] += gain
                self.units_on_days.add(number)


def _score_key(scored: tuple[int, float]) -> tuple[float, int]:
    """Return a sort key for a part and its score. The higher score is greater; of equal scores, the earlier part."""
    return scored[1], -scored[0]


def rank(index: RecallIndex, query: str, *, now: int = 0, exclude: Container[int] = ()) -> RankedHits:
    """Return the hits for a query, best first, without messages at the positions in `exclude`.

    `now` is the time of the query in seconds.
    """
    if not index.term_count:
        return RankedHits((), 0.0)
    ranking = Ranking(index, query, now)
    hits = []
    for part, score in ranking.compute_final_scores():
        if (position := index.get_position(part)) not in exclude:
            hits.append(Hit(position, score, *index.spans[part]))
    hits.sort(key=lambda hit: (-hit.score, hit.position, hit.start))
    return RankedHits(tuple(hits), ranking.compute_budget_share(exclude))


def _interpolate(value: float, low: float, high: float) -> float:
    """Return where a value is between two others: 0 at `low` and below, 1 at `high` and above."""
    return min(1.0, max(0.0, (value - low) / (high - low)))
