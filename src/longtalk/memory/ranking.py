"""One message against an index: the sums behind recall. See `recall` for what counts and why.

Scores grow in two layers: `bases` by unit, what it borrows of its neighbours, and `extras` by part, what the part's
own words are worth beyond that. So a long message costs no more than the parts of it that match.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Iterable
from heapq import nlargest
from itertools import pairwise
from typing import TYPE_CHECKING

from longtalk.memory.question import read, year_of

if TYPE_CHECKING:
    from longtalk.memory.recall import Index

__all__ = ["ASSISTANT", "MOST", "STANDING", "TIMED", "UNREAD", "Ranking"]

ASSISTANT = "assistant"
MOST = 255
"""Times a term counts in one part."""
TIMED, STANDING = 1, 2
"""Traits of a part: it says when; it states a standing wish."""
UNREAD = 4
"""In place of them: nobody has looked yet."""
_KEPT = 2_000  # parts that are in the running, of any number that match
_MANY = 4_000  # parts that are looked at for one word
_BEST = 100  # parts that are looked at closely
_MODELS = 8  # parts that words are taken from
_TAKEN = 10  # words that are taken
_NEAREST = 400  # parts that are near in meaning
# The share of what is sought that the best match must have: none of the budget up to the first, all from the second. A
# message that says that it refers back, or names a participant, is taken at its word; any other has to prove it.
_BACK, _NEW = (0.2, 0.4), (0.35, 0.6)
_LITTLE = 1.3  # such a message seeks at least as much as so many words that were said once: less is small talk


class Ranking:
    """The scores of one message."""

    def __init__(self, index: Index, query: str, now: int) -> None:
        self.index = index
        self.weights = index.weights
        days = index.days
        years = range(year_of(min(days)), year_of(max(days)) + 1) if days else range(0)
        self.question = read(query, now=now, years=years)
        self.by_role = (1.0, 1.0 if self.question.to_you else self.weights.assistant)
        self.bases: dict[int, float] = defaultdict(float)
        self.extras: dict[int, float] = defaultdict(float)
        self.dated: set[int] = set()
        self.named, asked = self._who()
        matched = zip(asked, self._close(asked), strict=True)
        for term, close in sorted(matched, key=lambda one: -self._weight(one[0])):
            self._ask(term, close)
        self.meant = " ".join(self.question.words[term] for term in asked)
        self.sought = sum(map(self._weight, asked))
        self.plain = self.scored()
        self._look_closely()
        self._surroundings()

    def scored(self) -> list[tuple[int, float]]:
        """Parts and their scores: those that match themselves, and all of units that are one part."""
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
        """The scores with all that counts beside the words: who says it, how, and at what length."""
        index, weights = self.index, self.weights
        standing = weights.standing if index.assisted else 1.0
        found = []
        for part, score in self._by_meaning(self.scored()):
            traits = index.trait(part)
            if index.units[index.owners[part]].name in self.named:
                score *= weights.speaker
            if self.question.when and traits & TIMED:
                score *= weights.time
            if traits & STANDING:
                score *= standing
            start, stop = index.spans[part]
            found.append((part, score / (weights.even + stop - start) ** weights.brevity))
        return found

    def _by_meaning(self, scored: list[tuple[int, float]]) -> list[tuple[int, float]]:
        """The scores with nearness in meaning, where there are vectors: both from 0 to 1, and added."""
        index = self.index
        if index.vectors is None:
            return scored
        highest = max((score for _, score in scored), default=0.0) or 1.0
        found = defaultdict(float, ((part, score / highest) for part, score in scored))
        for part, nearness in self._near():
            found[part] += self.weights.meaning * nearness * self.by_role[index.spoken[index.owners[part]]]
        return list(found.items())

    def _near(self) -> Iterable[tuple[int, float]]:
        """The parts that are near in meaning, or whose neighbours are."""
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
        """How much of a budget is worth spending, told by how much of what is sought the best match has."""
        index = self.index
        if any(index.units[number].place not in exclude for number in self.dated):
            return 1.0  # it names a day on which something was said
        back = bool(self.named or self.question.back)
        if not self.sought or (not back and self.sought < _LITTLE * math.log(1 + index.parts)):
            return 0.0
        best = max((score for part, score in self.plain if index.place_of(part) not in exclude), default=0.0)
        silent, sure = _BACK if back else _NEW
        return min(1.0, max(0.0, (best / self.sought - silent) / (sure - silent)))

    def _who(self) -> tuple[set[str], list[str]]:
        """The participants that are named, and the terms that are left."""
        names = self.index.names
        different = list(dict.fromkeys(self.question.terms))
        asked = [term for term in different if term not in names]
        named: set[str] = set().union(*(names[term] for term in different if term in names))
        return named, asked or different

    def _close(self, asked: list[str]) -> list[list[tuple[int, float]]]:
        """For each term, those that are close in meaning, where there are vectors."""
        words = self.index.words
        if words is None:
            return [[] for _ in asked]
        return words.close([self.question.words[term] for term in asked], self.weights.close)

    def _ask(self, term: str, close: list[tuple[int, float]]) -> None:
        """Match a term, and those that are close to it; for one that nobody used, those that are spelt alike."""
        vocabulary, weights = self.index.vocabulary, self.weights
        known = vocabulary.numbers.get(term)
        if known is None:
            variants = {number: weights.alike * nearness for number, nearness in vocabulary.alike(term)}
        else:
            variants = {known: 1.0}
        for number, nearness in close:
            variants.setdefault(number, weights.soft * nearness)
        if variants:
            self._match(variants)

    def _weight(self, term: str) -> float:
        """How much a term tells that may be one nobody used."""
        known = self.index.vocabulary.numbers.get(term)
        return math.log(2 + 2 * self.index.parts) if known is None else self.index.rarity(known)

    def _match(self, variants: dict[int, float]) -> None:
        """Add what a term gives that may have variants: the best that a part has, or that its neighbours lend."""
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
        """The parts that have a term, with what it is worth there (BM25), where that is more than they have."""
        index, k1, b = self.index, self.weights.saturation, self.weights.length
        weight *= index.rarity(term) * (k1 + 1)
        fixed, growing = k1 * (1 - b), k1 * b * len(index.owners) / index.total
        lengths = index.terms
        for packed in self._postings(term):
            part, times = packed >> 8, packed & MOST
            value = weight * times / (times + fixed + growing * len(lengths[part]))
            if value > own.get(part, 0.0):
                own[part] = value

    def _postings(self, term: int) -> Iterable[int]:
        """Where a term is. One that is nearly everywhere only counts for the best that rarer ones have found, and for
        their neighbours; if they found nothing, where it was said last."""
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
        places = ((part, bisect_left(found, part << 8)) for part in parts)
        return [found[at] for part, at in places if at < len(found) and found[at] >> 8 == part]

    def _find_labels(self, term: int, weight: float, own: dict[int, float]) -> None:
        """The same for what units are labelled with: their first part has it, at a user's weight."""
        index = self.index
        for number in index.labelled.get(term, ()):
            value = weight * index.rarity(term) / self.by_role[index.spoken[number]]
            if value > own.get(index.firsts[number], 0.0):
                own[index.firsts[number]] = value

    def _lent(self, best: dict[int, float]) -> dict[int, float]:
        """By unit, the best it can borrow of its neighbours."""
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
        """At the best parts: words that stand side by side in both, and, lightly, further words that they share."""
        index = self.index
        best = nlargest(_BEST, self.plain, key=_order)
        numbers = [index.vocabulary.numbers.get(term, -1) for term in self.question.terms]
        wanted = {(a, b) for a, b in pairwise(numbers) if a >= 0 and b >= 0}
        for place, (part, score) in enumerate(best if wanted else ()):
            stream = index.terms[part]
            for a, b in wanted.intersection(pairwise(stream)):
                gain = self.weights.pair * (index.rarity(a) + index.rarity(b))
                self.extras[part] += gain
                best[place] = (part, score := score + gain)
        models = nlargest(_MODELS, best, key=_order)
        for term in self._shared(models, set(numbers)):
            self._match({term: self.weights.feedback})

    def _shared(self, models: list[tuple[int, float]], asked: set[int]) -> list[int]:
        """The terms that these parts have most of, without those that were asked."""
        shared: dict[int, float] = defaultdict(float)
        for part, score in models:
            stream = self.index.terms[part]
            for term in stream:
                if term not in asked:
                    shared[term] += score / (1 + len(stream))
        return sorted(shared, key=lambda term: (-shared[term] * self.index.rarity(term), term))[:_TAKEN]

    def _surroundings(self) -> None:
        """Favour the topic and the session that hold the best matches, and what was said on the days that are named."""
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
        for first, last in self.question.days:
            self._on(first, last, highest * self.weights.day * (1.0 if first == last else 0.5))

    def _on(self, first: int, last: int, gain: float) -> None:
        """Favour what was said from one day to another."""
        days = self.index.days
        for day in days if last - first > len(days) else range(first, last + 1):
            for number in days.get(day, ()) if first <= day <= last else ():
                self.bases[number] += gain
                self.dated.add(number)


def _order(scored: tuple[int, float]) -> tuple[float, int]:
    """By score; of equal ones the earlier first."""
    return scored[1], -scored[0]
