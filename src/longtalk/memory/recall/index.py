"""The recall index, which ranks earlier messages by relevance to a new one, deterministically and without a model.

Units (messages) are added to a `RecallIndex` one by one: user messages as a whole, longer assistant messages in parts.
The score of a part is BM25 over its terms, extended for conversations:

- Neighbours: a message answers the previous one, so it *borrows* the matches of that one and, with less weight, of
  others nearby in the same session. For each term only the best match counts: the message's own or a borrowed one.
- Speakers: if the query names a participant, the name is not a search term, but that participant's messages score
  higher. An assistant's words weigh less than the user's, unless the query is about the assistant.
- Time: if the query names a day, messages of that day score higher; if it asks for a time, texts that mention one do.
- Context: pairs of adjacent words that a message has in common with the query add to its score. So do good matches in
  the same topic or session and, slightly, words that it has in common with the best matches.
- Standing wishes (always, never, prefer) rank higher, long texts lower.

The time to add a unit does not grow with the index. Ranking examines only units that have a term in common with the
query, and their neighbours.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from longtalk.memory.recall.embeddings import Vectors
from longtalk.memory.recall.query import EPOCH, mentions_time, states_standing_wish
from longtalk.memory.recall.topics import TopicTracker
from longtalk.memory.recall.vocabulary import Vocabulary
from longtalk.memory.terms import extract_terms_with_words, split_words, stem

__all__ = ["Hit", "RankedHits", "RecallIndex", "Unit", "Weights", "split_parts"]

ASSISTANT = "assistant"
MAX_TERM_COUNT = 255
"""The maximum number of occurrences of a term that are counted in one part."""
TIMED, STANDING = 1, 2
"""Traits of a part: it mentions a time, or it states a standing wish."""
UNKNOWN_TRAITS = 4
"""The value for a part whose traits have not been computed yet."""

_LINE = re.compile(r"[^\n]*\n+|[^\n]+")


class Unit(msgspec.Struct, frozen=True):
    """A message as plain text, the unit in which recall indexes a conversation."""

    position: int
    """The position of the message in the conversation."""
    role: str
    text: str
    at: int = 0
    """The time of the message, in seconds since 1970; 0 if unknown."""
    name: str = ""
    """The name of the speaker, if the message has one; else empty."""
    labels: str = ""
    """Additional text by which the message can be found. It weighs as much as a user's words and is never shown."""


class Hit(msgspec.Struct, frozen=True):
    """A match for the query: the characters from `start` to `stop` of the message at `position`."""

    position: int
    score: float
    start: int
    stop: int


class RankedHits(msgspec.Struct, frozen=True):
    """The hits for a query."""

    hits: tuple[Hit, ...]
    """The hits, best first."""
    budget_share: float
    """The share of the budget to spend on the hits, from 0 (the query needs no earlier message) to 1."""


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """The weights of the ranking. The defaults suit chats with assistants and conversations between people."""

    assistant: float = 0.3
    """Weight of an assistant's words, relative to a user's."""
    part: int = 300
    """Approximate number of characters in each part of an assistant's message."""
    saturation: float = 1.2
    """BM25's k1: the lower, the sooner further occurrences of a term stop adding to the score."""
    length: float = 0.5
    """BM25's b: how much long texts are penalized."""
    borrow: tuple[tuple[int, float], ...] = ((-1, 0.7), (-2, 0.5), (1, 0.5), (2, 0.3))
    """Pairs of an offset and a factor: a unit borrows the score of the neighbour at this offset, times this factor."""
    assistant_lends: float = 0.3
    """Factor for scores that are borrowed from an assistant's message."""
    long_text: int = 320
    """Length in characters above which a unit borrows less."""
    speaker: float = 2.5
    """Factor for messages of a participant whom the query names."""
    pair: float = 0.3
    """Weight of a pair of adjacent words that is also in the query, relative to the two words on their own."""
    feedback: float = 0.1
    """Weight of a word that the best matches have in common but the query lacks."""
    misspelled: float = 0.5
    """Weight of a known word that is spelled similarly to an unknown word of the query."""
    topic: float = 0.05
    """Share of the best scores in a topic that is added to each matching unit of the topic."""
    session: float = 0.2
    """Share of the best scores in a session that is added to each matching unit of the session."""
    day: float = 0.5
    """Bonus for units of a day that the query names, relative to the best score; half of it for a longer period."""
    time: float = 1.3
    """Factor for texts that mention a time, if the query asks for a time."""
    standing: float = 1.5
    """Factor for texts that state a user's standing wish, if the conversation has an assistant."""
    base_length: int = 200
    """Number of characters added to the length of a text before `brevity` is applied."""
    brevity: float = 0.4
    """A score is divided by the length of the text to the power of this number, so that shorter texts rank higher."""
    related: float = 0.7
    """Weight of a word that is related in meaning to a word of the query. Used only with vectors."""
    min_similarity: float = 0.35
    """Minimum similarity for a word to count as related in meaning. Used only with vectors."""
    meaning: float = 0.5
    """Weight of the text nearest in meaning, if the best match by words has weight 1. Used only with vectors."""


class RecallIndex:
    """The units of a conversation, indexed for ranking: by words and, with `meaning`, also by embedding vectors.

    The public attributes are for use by `ranking.py`.
    """

    def __init__(
        self,
        units: Iterable[Unit] = (),
        *,
        weights: Weights | None = None,
        meaning: bool = False,
        size: int = 0,
    ) -> None:
        self.weights = weights or Weights()
        self.size = size
        """If the index holds only some entries: the number of entries in the whole conversation, else 0."""
        self.shares: dict[str, float] = {}
        """If the index has only some entries: for each term of the query, the share of its matches that it has."""
        self.vectors = Vectors() if meaning else None
        """The embedding vectors of all parts, by the number of the part; None without `meaning`."""
        self.words = Vectors() if meaning else None
        """The embedding vectors of all terms, by the number of the term; None without `meaning`."""
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
        self.skipped_parts = 0
        """The number of parts that were not indexed although their units were."""
        self._topic_tracker = TopicTracker()
        self._unit_numbers: dict[int, int] = {}
        for unit in units:
            self.add(unit)

    def __len__(self) -> int:
        return len(self.units)

    def add(self, unit: Unit, *, follows: bool = True, fits: Callable[[str], bool] | None = None) -> None:
        """Add the next unit to the index.

        `follows` says that the unit directly follows the previous one in the conversation. If `fits` is given,
        a part of a long assistant message is indexed only if `fits` returns True for its text; if all parts fail, the
        first one is indexed.
        """
        number = self._unit_numbers[unit.position] = len(self.units)
        self.stretches.append((self.stretches[-1] if number else 0) + (not follows))
        self.units.append(unit)
        self.first_parts.append(len(self.part_units))
        self.borrow_factors.append(min(1.0, self.weights.long_text / (len(unit.text) or 1)))
        spans = split_parts(unit.text, self.weights.part) if unit.role == ASSISTANT else [(0, len(unit.text))]
        self.has_one_part.append(len(spans) == 1)
        if fits is not None and len(spans) > 1:
            fitting = [span for span in spans if fits(unit.text[slice(*span)])] or spans[:1]
            self.skipped_parts += len(spans) - len(fitting)
            spans = fitting
        self.is_assistant.append(unit.role == ASSISTANT)
        self.has_assistant = self.has_assistant or unit.role == ASSISTANT
        all_terms: list[tuple[str, str]] = []
        for start, stop in spans:
            text = unit.text[start:stop]
            all_terms += (part_terms := extract_terms_with_words(text))
            self.spans.append((start, stop))
            self.traits.append(UNKNOWN_TRAITS)
            self._add_part(number, part_terms)
            if self.vectors is not None:
                self.vectors.add(" ".join(word for _, word in part_terms))
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
            if self.words is not None:
                self.words.add(word)
        return number

    def get_traits(self, part: int) -> int:
        """Return the traits of a part as a bit set, computing them on first use."""
        if self.traits[part] == UNKNOWN_TRAITS:
            unit, (start, stop) = self.units[self.part_units[part]], self.spans[part]
            self.traits[part] = detect_traits(unit, unit.text[start:stop])
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
        parts = self.parts
        if self.shares:
            share = self.shares.get(self.vocabulary.terms[term])
            if share is not None:
                count /= share
            else:
                # Only for terms of the query is it known how often they occur outside the index.
                parts = len(self.part_units) + self.skipped_parts
        return math.log(1 + max(0.0, parts - count + 0.5) / (count + 0.5))

    @property
    def parts(self) -> float:
        """The approximate number of parts in the whole conversation."""
        return (len(self.part_units) + self.skipped_parts) * max(1.0, self.size / (len(self.units) or 1))


def detect_traits(unit: Unit, text: str) -> int:
    """Return the traits of a part of a unit as a bit set of `TIMED` and `STANDING`."""
    return TIMED * mentions_time(text) | STANDING * (unit.role != ASSISTANT and states_standing_wish(text))


def split_parts(text: str, size: int) -> list[tuple[int, int]]:
    """Split a text into parts of about `size` characters, at line ends if possible, and return their spans."""
    spans: list[tuple[int, int]] = []
    start = end = 0
    for line in _LINE.finditer(text):
        if end > start and line.end() - start > size:
            spans.append((start, end))
            start = end
        end = line.end()
        while end - start > 2 * size:
            spans.append((start, start + size))
            start += size
    return [*spans, (start, end)] if end > start or not spans else spans
