"""A plain implementation of the recall index and its ranking, with loops and dictionaries, to check the arrays."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Container, Iterable
from heapq import nlargest
from itertools import pairwise

from longtalk.memory.recall.gain import Evidence, estimate_need
from longtalk.memory.recall.index import ASSISTANT, Unit
from longtalk.memory.recall.parts import STANDING, TIMED, detect_traits, split_parts
from longtalk.memory.recall.query import EPOCH, get_year, parse_query
from longtalk.memory.recall.topics import TopicTracker
from longtalk.memory.recall.weights import Weights
from longtalk.memory.terms import extract_terms_with_words, split_words, stem

MAX_TERM_COUNT = 255
UNKNOWN_TRAITS = 4
_MIN_SIMILARITY = 0.5
_MIN_CHARS = 4
_MAX_SIMILAR = 3


class Vocabulary:
    """The numbered terms of an index. Their trigrams are computed on the first search for similar spellings."""

    __slots__ = ("_terms_by_trigram", "_trigram_counts", "numbers", "terms")

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.terms: list[str] = []
        self._terms_by_trigram: dict[str, array[int]] = {}
        self._trigram_counts = array("L")  # by term: the number of its trigrams

    def add(self, term: str) -> int:
        """Return the number of a term, adding the term if it is new."""
        known = self.numbers.get(term)
        if known is not None:
            return known
        number = self.numbers[term] = len(self.numbers)
        self.terms.append(term)
        return number

    def find_similar(self, term: str) -> list[tuple[int, float]]:
        """Return the numbers and similarities (0 to 1) of the terms spelled most similarly to this one, best first."""
        if len(term) < _MIN_CHARS:
            return []
        self._index_trigrams()
        trigrams = split_trigrams(term)
        shared: Counter[int] = Counter()
        for trigram in trigrams:
            shared.update(self._terms_by_trigram.get(trigram, ()))
        sizes = self._trigram_counts
        matches = [(number, 2 * count / (len(trigrams) + sizes[number])) for number, count in shared.items()]
        similar = [match for match in matches if match[1] >= _MIN_SIMILARITY]
        return sorted(similar, key=lambda match: (-match[1], match[0]))[:_MAX_SIMILAR]

    def _index_trigrams(self) -> None:
        """Compute the trigrams of the terms that were added since the last call."""
        for number in range(len(self._trigram_counts), len(self.terms)):
            term = self.terms[number]
            trigrams = split_trigrams(term) if len(term) >= _MIN_CHARS else ()
            self._trigram_counts.append(len(trigrams))
            for trigram in trigrams:
                self._terms_by_trigram.setdefault(trigram, array("L")).append(number)


def split_trigrams(term: str) -> set[str]:
    """Return the trigrams of a term, with a mark before its beginning and after its end."""
    marked = f"^{term}$"
    return {marked[i : i + 3] for i in range(len(marked) - 2)}


class PlainIndex:
    """The units of a conversation, indexed for ranking by words.

    The public attributes are for use by `ranking.py`.
    """

    def __init__(
        self,
        units: Iterable[Unit] = (),
        *,
        weights: Weights | None = None,
    ) -> None:
        self.weights = weights or Weights()
        self.units: list[Unit] = []
        self.vocabulary = Vocabulary()
        self.names: dict[str, set[str]] = {}
        """For each term that is part of a participant's name, the names that contain it."""
        self.days: dict[int, list[int]] = {}
        """For each day, as an ordinal, the numbers of its units."""
        self.has_assistant = False
        """Whether any message is from an assistant."""
        # By term: the parts that contain it, each packed as part << 8 | number of occurrences.
        self.postings: list[array[int]] = []
        # By term: the units that have it among their labels.
        self.labelled: dict[int, array[int]] = {}
        # By unit: its stretch (units that follow each other without a gap), session, topic, first part, factor for
        # borrowing, whether it has only one part, and whether it is from the assistant.
        self.stretches = array("L")
        self.sessions = array("L")
        self.topics = array("L")
        self.first_parts = array("L")
        self.borrow_factors = array("d")
        self.has_one_part = bytearray()
        self.is_assistant = bytearray()
        # By part: its unit, its span of characters, its terms, its traits.
        self.part_units = array("L")
        self.spans: list[tuple[int, int]] = []
        self.terms: list[array[int]] = []
        self.traits = bytearray()
        self.term_count = 0
        """The total number of terms in all parts, counting repeated ones."""
        self._topic_tracker = TopicTracker()
        self._unit_numbers: dict[int, int] = {}
        for unit in units:
            self.add(unit)

    def __len__(self) -> int:
        return len(self.units)

    def add(self, unit: Unit, *, follows: bool = True) -> None:
        """Add the next unit to the index."""
        number = self._unit_numbers[unit.position] = len(self.units)
        self.stretches.append((self.stretches[-1] if number else 0) + (not follows))
        self.units.append(unit)
        self.first_parts.append(len(self.part_units))
        self.borrow_factors.append(min(1.0, self.weights.long_text / (len(unit.text) or 1)))
        spans = split_parts(unit.text, self.weights.part) if unit.role == ASSISTANT else [(0, len(unit.text))]
        self.has_one_part.append(len(spans) == 1)
        self.is_assistant.append(unit.role == ASSISTANT)
        self.has_assistant = self.has_assistant or unit.role == ASSISTANT
        all_terms: list[tuple[str, str]] = []
        for start, stop in spans:
            text = unit.text[start:stop]
            all_terms += (part_terms := extract_terms_with_words(text))
            self.spans.append((start, stop))
            self.traits.append(UNKNOWN_TRAITS)
            self._add_part(number, part_terms)
        for term, word in dict(extract_terms_with_words(unit.labels)).items() if unit.labels else ():
            self.labelled.setdefault(self._add_term(term, word), array("L")).append(number)
        distinct_terms = {term for term, _ in all_terms}
        self.topics.append(self._topic_tracker.add(unit.at, distinct_terms, opens=unit.role != ASSISTANT))
        self.sessions.append(self._topic_tracker.session)
        for word in split_words(unit.name):
            self.names.setdefault(stem(word), set()).add(unit.name)
        if unit.at:
            self.days.setdefault(EPOCH + unit.at // 86_400, []).append(number)

    def _add_part(self, number: int, terms: list[tuple[str, str]]) -> None:
        """Add the next part to the unit with this number. `terms` has the terms of the part, each with its word."""
        part = len(self.part_units)
        self.part_units.append(number)
        known = self.vocabulary.numbers
        numbers = array("L", [known[t] if t in known else self._add_term(t, word) for t, word in terms])
        self.terms.append(numbers)
        self.term_count += len(numbers)
        for term, times in Counter(numbers).items():
            self.postings[term].append(part << 8 | min(times, MAX_TERM_COUNT))

    def _add_term(self, term: str, word: str) -> int:
        """Return the number of a term, adding the term and its word to the index if the term is new."""
        number = self.vocabulary.add(term)
        if number == len(self.postings):
            self.postings.append(array("Q"))
        return number

    def get_traits(self, part: int) -> int:
        """Return the traits of a part as a bit set, computing them on first use."""
        if self.traits[part] == UNKNOWN_TRAITS:
            unit, (start, stop) = self.units[self.part_units[part]], self.spans[part]
            self.traits[part] = detect_traits(unit.text[start:stop], is_assistant=unit.role == ASSISTANT)
        return self.traits[part]

    def get_unit(self, position: int) -> Unit:
        """Return the unit at a position in the conversation."""
        return self.units[self._unit_numbers[position]]

    def get_position(self, part: int) -> int:
        """Return the position in the conversation of the unit that a part belongs to."""
        return self.units[self.part_units[part]].position

    def compute_rarity(self, term: int) -> float:
        """Return the weight of a term. The fewer parts contain the term, the higher its weight."""
        count: float = max(len(self.postings[term]), len(self.labelled.get(term, ())))
        return math.log(1 + max(0.0, self.parts - count + 0.5) / (count + 0.5))

    @property
    def parts(self) -> int:
        """The number of parts."""
        return len(self.part_units)


class PlainRanking:
    """The scores of the parts of an index for one query. `now` is the time of the query in seconds."""

    def __init__(self, index: PlainIndex, query: str, now: int) -> None:
        self.index = index
        self.weights = index.weights
        days = index.days
        years = range(get_year(min(days)), get_year(max(days)) + 1) if days else range(0)
        self.query = parse_query(query, now=now, years=years)
        self.role_weights = (1.0, 1.0 if self.query.about_assistant else self.weights.assistant)
        self.bases: dict[int, float] = defaultdict(float)
        self.extras: dict[int, float] = defaultdict(float)
        self.pairs: dict[int, float] = defaultdict(float)
        self.units_on_days: set[int] = set()
        self.named, query_terms = self._split_names()
        for term in query_terms:
            self._score_term(term)
        self.query_weight = sum(map(self._weigh_term, query_terms))
        known_terms = [term for term in query_terms if term in index.vocabulary.numbers]
        self.known_weight = sum(map(self._weigh_term, known_terms))
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
        return scored if len(scored) <= 2_000 else nlargest(2_000, scored, key=_score_key)

    def compute_final_scores(self) -> list[tuple[int, float]]:
        """Return parts with their final scores, which also take account of speaker, traits and length."""
        index, weights = self.index, self.weights
        standing_factor = weights.standing if index.has_assistant else 1.0
        scored = []
        for part, score in self.score_parts():
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

    def estimate_need(self, exclude: Container[int]) -> float:
        """Return the probability that the message needs hits outside `exclude`, from 0 to 1."""
        index, query = self.index, self.query
        if query.is_question and any(index.units[number].position not in exclude for number in self.units_on_days):
            return 1.0  # the query names a day with messages
        rarest = math.log(1 + index.parts)
        least = 0.0 if self.named or query.refers_back else 1.3 * rarest
        if not self.query_weight or self.query_weight < least:
            return 0.0
        matches, pairs = [
            max((score for part, score in scores if index.get_position(part) not in exclude), default=0.0)
            for scores in (self.first_scores, self.pairs.items())
        ]
        return estimate_need(
            Evidence(
                match=matches / self.query_weight,
                known=self.known_weight / self.query_weight,
                pairs=pairs / rarest,
                question_share=query.question_share,
                names_speaker=bool(self.named),
                refers_back=query.refers_back,
            )
        )

    def _split_names(self) -> tuple[set[str], list[str]]:
        """Return the names of the participants that the query mentions, and the other terms of the query.

        If the query has no other terms, its names are returned as terms too.
        """
        names = self.index.names
        distinct = list(dict.fromkeys(self.query.terms))
        distinct = distinct if len(distinct) <= 48 else [*distinct[:24], *distinct[-24:]]
        query_terms = [term for term in distinct if term not in names]
        named: set[str] = set().union(*(names[term] for term in distinct if term in names))
        return named, query_terms or distinct

    def _score_term(self, term: str) -> None:
        """Add the scores for a term of the query, or for terms that are spelled similarly."""
        vocabulary, weights = self.index.vocabulary, self.weights
        known = vocabulary.numbers.get(term)
        if known is None:
            variants = {number: weights.misspelled * nearness for number, nearness in vocabulary.find_similar(term)}
        else:
            variants = {known: 1.0}
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
        for packed in index.postings[term]:
            part, times = packed >> 8, packed & MAX_TERM_COUNT
            value = weight * times / (times + fixed + growing * len(lengths[part]))
            if value > own.get(part, 0.0):
                own[part] = value

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
        best = nlargest(100, self.first_scores, key=_score_key)
        numbers = [index.vocabulary.numbers.get(term, -1) for term in self.query.terms]
        query_pairs = {(a, b) for a, b in pairwise(numbers) if a >= 0 and b >= 0}
        for i, (part, score) in enumerate(best if query_pairs else ()):
            part_terms = index.terms[part]
            for a, b in query_pairs.intersection(pairwise(part_terms)):
                gain = self.weights.pair * (index.compute_rarity(a) + index.compute_rarity(b))
                self.extras[part] += gain
                self.pairs[part] += gain
                best[i] = (part, score := score + gain)
        feedback_parts = nlargest(8, best, key=_score_key)
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
        weighed = {term: round(shared[term] * self.index.compute_rarity(term), 9) for term in shared}
        ranked = sorted(shared, key=lambda term: (-weighed[term], term))
        return ranked[:10]

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
