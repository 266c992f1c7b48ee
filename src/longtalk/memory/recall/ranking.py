"""The ranking of one query against a recall index. `index.py` explains what the score depends on and why.

A score is the sum of two layers: `bases` has, for each unit, what the unit borrows from its neighbours, and `extras`
has, for each part, what the part's own words add to that. So a long message costs only as much work as its matching
parts.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Iterable
from heapq import nlargest
from itertools import pairwise

from longtalk.memory.recall.index import MAX_TERM_COUNT, STANDING, TIMED, Hit, RankedHits, RecallIndex
from longtalk.memory.recall.query import parse_query, year_of

__all__ = ["Ranking", "rank"]

_KEPT = 2_000  # most parts that are ranked, however many match
_MANY = 4_000  # most parts examined for one word
_BEST = 100  # parts examined closely
_MODELS = 8  # best parts that provide words for feedback
_TAKEN = 10  # words taken from them
_NEAREST = 400  # most parts that are near in meaning
# The share of the query's weight that the best match must have: up to the first number no budget is spent, from the
# second number on all of it. A query that refers back or names a participant needs less than any other.
_BACK, _NEW = (0.2, 0.4), (0.35, 0.6)
_LITTLE = 1.3  # least weight of a query that does not refer back, in words that occur once: less is small talk


class Ranking:
    """The scores of all parts of an index for one query."""

    def __init__(self, index: RecallIndex, query: str, now: int) -> None:
        self.index = index
        self.weights = index.weights
        days = index.days
        years = range(year_of(min(days)), year_of(max(days)) + 1) if days else range(0)
        self.query = parse_query(query, now=now, years=years)
        self.by_role = (1.0, 1.0 if self.query.about_assistant else self.weights.assistant)
        self.bases: dict[int, float] = defaultdict(float)
        self.extras: dict[int, float] = defaultdict(float)
        self.dated: set[int] = set()
        self.named, asked = self._who()
        matched = zip(asked, self._close(asked), strict=True)
        for term, close in sorted(matched, key=lambda one: -self._weight(one[0])):
            self._ask(term, close)
        self.meant = " ".join(self.query.words[term] for term in asked)
        self.sought = sum(map(self._weight, asked))
        self.plain = self.scored()
        self._look_closely()
        self._surroundings()

    def scored(self) -> list[tuple[int, float]]:
        """Return parts with their scores: those that match the query, and the only parts of units that borrow."""
        extras, bases = self.extras, self.bases
        owners, firsts, single, spoken = self.index.owners, self.index.firsts, self.index.single, self.index.spoken
        by_role = self.by_role
        found = []
        for part, extra in extras.items():
            number = owners[part]
            found.append((part, (extra + bases.get(number, 0.0)) * by_role[spoken[number]]))
        for number, base in bases.items():
            if single[number] and firsts[number] not in extras:
                found.append((firsts[number], base * by_role[spoken[number]]))
        return found if len(found) <= _KEPT else nlargest(_KEPT, found, key=_order)

    def final(self) -> list[tuple[int, float]]:
        """Return parts with their final scores, which also depend on the speaker, the traits and the length."""
        index, weights = self.index, self.weights
        standing = weights.standing if index.assisted else 1.0
        found = []
        for part, score in self._by_meaning(self.scored()):
            traits = index.trait(part)
            if index.units[index.owners[part]].name in self.named:
                score *= weights.speaker
            if self.query.asks_when and traits & TIMED:
                score *= weights.time
            if traits & STANDING:
                score *= standing
            start, stop = index.spans[part]
            found.append((part, score / (weights.even + stop - start) ** weights.brevity))
        return found

    def _by_meaning(self, scored: list[tuple[int, float]]) -> list[tuple[int, float]]:
        """Return the scores, scaled to at most 1, plus the weighted nearness in meaning; unchanged without vectors."""
        index = self.index
        if index.vectors is None:
            return scored
        highest = max((score for _, score in scored), default=0.0) or 1.0
        found = defaultdict(float, ((part, score / highest) for part, score in scored))
        for part, nearness in self._near():
            found[part] += self.weights.meaning * nearness * self.by_role[index.spoken[index.owners[part]]]
        return list(found.items())

    def _near(self) -> Iterable[tuple[int, float]]:
        """Return the parts that are near to the query in meaning, or whose neighbours are, with their nearness."""
        index = self.index
        near = dict(index.vectors.near(self.meant, _NEAREST)) if index.vectors is not None and self.meant else {}
        best: dict[int, float] = {}
        for part, nearness in near.items():
            best[index.owners[part]] = max(nearness, best.get(index.owners[part], 0.0))
        for number, nearness in self._lent(best).items():
            if index.single[number]:
                part = index.firsts[number]
                near[part] = max(nearness, near.get(part, 0.0))
        return near.items()

    def need(self, exclude: Container[int]) -> float:
        """Return the share of the budget to spend on hits outside `exclude`, from 0 to 1.

        It grows with the share of the query's weight that the best match reaches.
        """
        index = self.index
        if any(index.units[number].position not in exclude for number in self.dated):
            return 1.0  # the query names a day with messages
        back = bool(self.named or self.query.refers_back)
        if not self.sought or (not back and self.sought < _LITTLE * math.log(1 + index.parts)):
            return 0.0
        best = max((score for part, score in self.plain if index.position_of(part) not in exclude), default=0.0)
        silent, sure = _BACK if back else _NEW
        return min(1.0, max(0.0, (best / self.sought - silent) / (sure - silent)))

    def _who(self) -> tuple[set[str], list[str]]:
        """Return the participants that the query names, and the remaining terms of the query.

        If all terms are names, they are also returned as terms.
        """
        names = self.index.names
        different = list(dict.fromkeys(self.query.terms))
        asked = [term for term in different if term not in names]
        named: set[str] = set().union(*(names[term] for term in different if term in names))
        return named, asked or different

    def _close(self, asked: list[str]) -> list[list[tuple[int, float]]]:
        """Return, for each term of the query, the indexed terms that are close in meaning; none without vectors."""
        words = self.index.words
        if words is None:
            return [[] for _ in asked]
        return words.close([self.query.words[term] for term in asked], self.weights.close)

    def _ask(self, term: str, close: list[tuple[int, float]]) -> None:
        """Add the scores of a term and of those close in meaning; for an unknown term, of those spelled similarly."""
        vocabulary, weights = self.index.vocabulary, self.weights
        known = vocabulary.numbers.get(term)
        if known is None:
            variants = {number: weights.alike * nearness for number, nearness in vocabulary.similar(term)}
        else:
            variants = {known: 1.0}
        for number, nearness in close:
            variants.setdefault(number, weights.soft * nearness)
        if variants:
            self._match(variants)

    def _weight(self, term: str) -> float:
        """Return the weight of a term. A term that is not in the index gets the highest weight."""
        known = self.index.vocabulary.numbers.get(term)
        return math.log(2 + 2 * self.index.parts) if known is None else self.index.rarity(known)

    def _match(self, variants: dict[int, float]) -> None:
        """Add the scores of a term with its variants, given as the weight of each variant by its number.

        Each part gets the better of two scores: its own best match, or the best that a neighbour lends.
        """
        own: dict[int, float] = {}
        for term, weight in variants.items():
            self._find(term, weight, own)
            self._find_labels(term, weight, own)
        owners = self.index.owners
        best: dict[int, float] = {}
        for part, value in own.items():
            number = owners[part]
            if value > best.get(number, 0.0):
                best[number] = value
        lent = self._lent(best)
        for number, value in lent.items():
            self.bases[number] += value
        for part, value in own.items():
            more = value - lent.get(owners[part], 0.0)
            self.extras[part] += more if more > 0.0 else 0.0

    def _find(self, term: int, weight: float, own: dict[int, float]) -> None:
        """Raise the scores in `own` to the weighted BM25 score of a term, for each part that contains the term."""
        index, k1, b = self.index, self.weights.saturation, self.weights.length
        weight *= index.rarity(term) * (k1 + 1)
        fixed, growing = k1 * (1 - b), k1 * b * len(index.owners) / index.total
        lengths = index.terms
        for packed in self._postings(term):
            part, times = packed >> 8, packed & MAX_TERM_COUNT
            value = weight * times / (times + fixed + growing * len(lengths[part]))
            if value > own.get(part, 0.0):
                own[part] = value

    def _postings(self, term: int) -> Iterable[int]:
        """Return the parts that contain a term, each packed together with the number of occurrences.

        A very frequent term counts only in the best parts that rarer terms have found and in their neighbours; if rarer
        terms found none, only in the last parts that contain it.
        """
        index = self.index
        found = index.postings[term]
        if len(found) <= _MANY:
            return found
        best = {index.owners[part] for part, _ in nlargest(_BEST, self.scored(), key=_order)}
        near = {number + offset for number in best for offset in (-2, -1, 0, 1, 2)}
        firsts, count, units = index.firsts, len(index.owners), len(index)
        parts = [
            part
            for i in sorted(near)
            if 0 <= i < units
            for part in range(firsts[i], firsts[i + 1] if i + 1 < units else count)
        ]
        if not parts:
            return found[-_MANY:]
        positions = ((part, bisect_left(found, part << 8)) for part in parts)
        return [found[at] for part, at in positions if at < len(found) and found[at] >> 8 == part]

    def _find_labels(self, term: int, weight: float, own: dict[int, float]) -> None:
        """Raise the scores in `own` for units with this term among their labels, which weighs like a user's word."""
        index = self.index
        for number in index.labelled.get(term, ()):
            value = weight * index.rarity(term) / self.by_role[index.spoken[number]]
            if value > own.get(index.firsts[number], 0.0):
                own[index.firsts[number]] = value

    def _lent(self, best: dict[int, float]) -> dict[int, float]:
        """Return, for each unit with matching neighbours, the best score that it borrows from one of them."""
        index, weights = self.index, self.weights
        sessions, stretches, borrows, spoken = index.sessions, index.stretches, index.borrows, index.spoken
        count = len(index.units)
        lent: dict[int, float] = {}
        for number, value in best.items():
            session, stretch = sessions[number], stretches[number]
            if spoken[number]:
                value *= weights.lends
            for offset, share in weights.borrow:
                to = number - offset
                if 0 <= to < count and sessions[to] == session and stretches[to] == stretch:
                    given = value * share * borrows[to]
                    if given > lent.get(to, 0.0):
                        lent[to] = given
        return lent

    def _look_closely(self) -> None:
        """Add scores for word pairs that the query shares with the best parts, and for words common to these parts."""
        index = self.index
        best = nlargest(_BEST, self.plain, key=_order)
        numbers = [index.vocabulary.numbers.get(term, -1) for term in self.query.terms]
        wanted = {(a, b) for a, b in pairwise(numbers) if a >= 0 and b >= 0}
        for position, (part, score) in enumerate(best if wanted else ()):
            stream = index.terms[part]
            for a, b in wanted.intersection(pairwise(stream)):
                gain = self.weights.pair * (index.rarity(a) + index.rarity(b))
                self.extras[part] += gain
                best[position] = (part, score := score + gain)
        models = nlargest(_MODELS, best, key=_order)
        for term in self._shared(models, set(numbers)):
            self._match({term: self.weights.feedback})

    def _shared(self, models: list[tuple[int, float]], asked: set[int]) -> list[int]:
        """Return the terms with the highest weight in these parts, without the terms of the query."""
        shared: dict[int, float] = defaultdict(float)
        for part, score in models:
            stream = self.index.terms[part]
            for term in stream:
                if term not in asked:
                    shared[term] += score / (1 + len(stream))
        return sorted(shared, key=lambda term: (-shared[term] * self.index.rarity(term), term))[:_TAKEN]

    def _surroundings(self) -> None:
        """Add scores for units in a topic or session with good matches, and for the days that the query names."""
        index = self.index
        scored = self.scored()
        for groups, weight in ((index.segments, self.weights.topic), (index.sessions, self.weights.session)):
            best: dict[int, list[float]] = defaultdict(list)
            for part, score in scored:
                best[groups[index.owners[part]]].append(score)
            means = {group: weight * sum(sorted(found)[-3:]) / 3 for group, found in best.items()}
            for number in self.bases:
                self.bases[number] += means.get(groups[number], 0.0)
        highest = max((score for _, score in scored), default=1.0) or 1.0
        for first, last in self.query.days:
            self._on(first, last, highest * self.weights.day * (1.0 if first == last else 0.5))

    def _on(self, first: int, last: int, gain: float) -> None:
        """Add `gain` to the scores of all units from the day `first` to the day `last`."""
        days = self.index.days
        for day in days if last - first > len(days) else range(first, last + 1):
            for number in days.get(day, ()) if first <= day <= last else ():
                self.bases[number] += gain
                self.dated.add(number)


def _order(scored: tuple[int, float]) -> tuple[float, int]:
    """Return a sort key for a part and its score: the higher score is greater; of equal scores, the earlier part."""
    return scored[1], -scored[0]


def rank(index: RecallIndex, query: str, *, now: int = 0, exclude: Container[int] = ()) -> RankedHits:
    """Return the hits for a query, best first, without messages at the positions in `exclude`.

    `now` is the time of the query in seconds.
    """
    if not index.total:
        return RankedHits((), 0.0)
    ranking = Ranking(index, query, now)
    hits = []
    for part, score in ranking.final():
        if (position := index.position_of(part)) not in exclude:
            hits.append(Hit(position, score, *index.spans[part]))
    hits.sort(key=lambda hit: (-hit.score, hit.position, hit.start))
    return RankedHits(tuple(hits), ranking.need(exclude))
