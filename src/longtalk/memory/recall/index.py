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

The index consists of arrays, with a value for each unit, part or term. The time to add a unit does not grow with the
index, and units can be removed from its end, so that another branch can use it from there. An index needs the texts of
units only when they are quoted: it can read them again from where the conversation is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np

from longtalk.memory.brief.corrections import Correction
from longtalk.memory.recall.columns import Array, Column, Postings, Sizes
from longtalk.memory.recall.embeddings import Vectors
from longtalk.memory.recall.parts import detect_traits, split_parts
from longtalk.memory.recall.topics import WINDOW_MESSAGES, TopicTracker
from longtalk.memory.recall.vocabulary import Vocabulary
from longtalk.memory.recall.weights import Weights
from longtalk.memory.terms import extract_terms_with_words

__all__ = ["Hit", "RankedHits", "RecallIndex", "Unit", "Weights"]

ASSISTANT = "assistant"
UNKNOWN = -1.0
"""The length of a sum of vectors that has not been computed."""


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
    chance: float = 0.0
    """The estimated chance that this is relevant to the query, from 0 to 1; 0 if it was not estimated."""


class RankedHits(msgspec.Struct, frozen=True):
    """The hits for a query."""

    hits: tuple[Hit, ...]
    """The hits, best first."""
    need: float
    """The probability that the message needs the hits, from 0 (it needs no earlier message) to 1."""
    asks: bool = True
    """Whether the message asks for something, and does not only state it."""


class RecallIndex:
    """The units of a conversation, indexed for ranking: by words and, with `meaning`, also by embedding vectors.

    The public attributes are for use by `ranking.py` and `segments.py`.
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
        self.skipped_parts = 0
        """The number of parts that were not indexed although their units were."""
        self.vectors = Vectors() if meaning else None
        """The embedding vectors of all words, by the number of the word; None without `meaning`."""
        self.vocabulary = Vocabulary()
        """The distinct terms."""
        self.words = Vocabulary()
        """The distinct words that the terms were made from."""
        self.word_terms = Column(np.int32)
        """For each word, the number of its term."""
        self.names: list[str] = []
        """The names of the participants, in the order of their first messages."""
        self.read_units: Callable[[Sequence[int]], Iterable[Unit]] | None = None
        """Reads the units at some positions, in ascending order, if the index may lack their texts."""
        self.describe_origin: Callable[[int], str] | None = None
        """Returns where the unit at a position comes from, if the units are from several conversations."""
        self.find_correction: Callable[[int, str], Correction | None] | None = None
        """Returns the correction of what a passage at a position says, if lines were corrected or forgotten."""
        self.find_correction_elsewhere: Callable[[int, str], Correction | None] | None = None
        """Returns the same by what was corrected in the other conversation that has the position, if there is one."""
        # By unit.
        self.positions = Column(np.int64)
        self.times = Column(np.int64)
        self.is_assistant = Column(np.bool_)
        self.speakers = Column(np.int32)
        """For each unit, the number of its name in `names`; -1 if it has none."""
        self.lengths = Column(np.int64)
        """For each unit, the number of characters of its text."""
        self.stretches = Column(np.int32)
        """For each unit, the number of its stretch. The units of a stretch follow each other without a gap."""
        self.sessions = Column(np.int32)
        self.topics = Column(np.int32)
        self.first_parts = Column(np.int32)
        self.has_one_part = Column(np.bool_)
        # By part.
        self.part_units = Column(np.int32)
        self.part_starts = Column(np.int32)
        """For each part, the index of its first character in the text of its unit."""
        self.part_stops = Column(np.int32)
        self.traits = Column(np.uint8)
        self.norms = Column(np.float32)
        """For each part, the length of the sum of its words' vectors; `UNKNOWN` if it has not been computed."""
        self.postings = Postings()
        self.part_words = Column(np.int32)
        """For each term in `postings.terms`, the number of the word that it was made from."""
        # By term, for those in `vocabulary`.
        self.part_counts = Column(np.int32)
        """For each term, the number of parts that contain it."""
        self.label_counts = Column(np.int32)
        """For each term, the number of units that have it among their labels."""
        # By label.
        self.label_terms = Column(np.int32)
        self.label_words = Column(np.int32)
        self.label_units = Column(np.int32)
        self._topic_tracker = TopicTracker()
        self._units: dict[int, Unit] = {}
        """Some of the units, by position."""
        self.text_size = 0
        """The number of characters of the texts that the index holds."""
        for unit in units:
            self.add(unit)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def nbytes(self) -> int:
        """The approximate number of bytes of memory that the index uses."""
        columns = [each.nbytes for each in vars(self).values() if isinstance(each, Column | Postings | Vectors)]
        return sum(columns) + self.vocabulary.nbytes + self.words.nbytes + 2 * self.text_size + 300 * len(self._units)

    # Adding and removing

    def add(self, unit: Unit, *, follows: bool = True, fits: Callable[[str], bool] | None = None) -> None:
        """Add the next unit to the index.

        `follows` says that the unit directly follows the previous one in the conversation. If `fits` is given,
        a part of a long assistant message is indexed only if `fits` returns True for its text; if all parts fail, the
        first one is indexed.
        """
        number, is_assistant = len(self), unit.role == ASSISTANT
        spans = split_parts(unit.text, self.weights.part) if is_assistant else [(0, len(unit.text))]
        self.has_one_part.append(len(spans) == 1)
        if fits is not None and len(spans) > 1:
            fitting = [span for span in spans if fits(unit.text[slice(*span)])] or spans[:1]
            self.skipped_parts += len(spans) - len(fitting)
            spans = fitting
        self.stretches.append((int(self.stretches.values[-1]) if number else 0) + (not follows))
        self.positions.append(unit.position)
        self.times.append(unit.at)
        self.is_assistant.append(is_assistant)
        self.speakers.append(self._number_name(unit.name))
        self.lengths.append(len(unit.text))
        self.first_parts.append(len(self.part_units))
        self.hold_unit(unit)
        distinct = self._add_parts(number, unit, spans)
        for term, word in dict(extract_terms_with_words(unit.labels)).items() if unit.labels else ():
            label = self.number_word(word, term)
            self.label_words.append(label)
            self.label_terms.append(self.word_terms.values[label])
            self.label_units.append(number)
            self.label_counts.values[self.word_terms.values[label]] += 1
        self.topics.append(self._topic_tracker.add(unit.at, distinct, opens=not is_assistant))
        self.sessions.append(self._topic_tracker.session)

    def _add_parts(self, number: int, unit: Unit, spans: Sequence[tuple[int, int]]) -> set[int]:
        """Add parts with these spans to the unit with this number, and return their distinct terms."""
        known, is_assistant = self.words.numbers, unit.role == ASSISTANT
        texts = [unit.text[start:stop] for start, stop in spans]
        found = [extract_terms_with_words(text) for text in texts]
        words = [
            known[word] if word in known else self.number_word(word, term) for part in found for term, word in part
        ]
        terms = self.word_terms.values[np.array(words, np.int32)]
        self.part_units.extend([number] * len(spans))
        self.part_starts.extend([start for start, _ in spans])
        self.part_stops.extend([stop for _, stop in spans])
        self.traits.extend([detect_traits(text, is_assistant=is_assistant) for text in texts])
        self.norms.extend([UNKNOWN] * len(spans))
        self.postings.add(terms, [len(part) for part in found])
        self.part_words.extend(words)
        terms_by_part = [{term for term, _ in part} for part in found]
        numbers = self.vocabulary.numbers
        counted = [numbers[term] for part in terms_by_part for term in part]
        np.add.at(self.part_counts.values, np.array(counted, np.int32), 1)
        return {numbers[term] for term in set().union(*terms_by_part)}

    def number_word(self, word: str, term: str) -> int:
        """Return the number of a word, adding the word and its term to the index if they are new."""
        number = self.words.add(word)
        if number == len(self.word_terms):
            self.word_terms.append(self.vocabulary.add(term))
            if self.word_terms.values[-1] == len(self.part_counts):
                self.part_counts.append(0)
                self.label_counts.append(0)
            if self.vectors is not None:
                self.vectors.extend([word])
        return number

    def append_terms(self, terms: list[str], words: list[str], word_terms: Array) -> None:
        """Add terms and words, all of which are new. `word_terms` has the number of the term of each word.

        The caller adds the words to the vectors.
        """
        self.vocabulary.extend(terms)
        self.words.extend(words)
        self.word_terms.extend(word_terms)
        for column in (self.part_counts, self.label_counts):
            column.extend(np.zeros(len(terms)))

    def _number_name(self, name: str) -> int:
        """Return the number of a participant's name, adding it if it is new; -1 if the name is empty."""
        if name and name not in self.names:
            self.names.append(name)
        return self.names.index(name) if name else -1

    def append_columns(
        self,
        *,
        sessions: Array,
        topics: Array,
        part_counts: Array,
        part_words: Array,
        sizes: Array,
        labels: Array,
        **more: Array,
    ) -> None:
        """Add several units, given as columns. The numbers of sessions and topics continue those of the index.

        `part_counts` and `labels` are the numbers of parts and labels of each unit, and `sizes` the number of terms of
        each part. `more` has values for the other columns with these names.
        """
        count, parts = len(self), len(self.part_units)
        numbers = count + np.arange(len(part_counts))
        self.sessions.extend(sessions + (self.sessions.values[-1] if count else -1))
        self.topics.extend(topics + (self.topics.values[-1] if count else -1))
        self.stretches.extend(np.full(len(numbers), self.stretches.values[-1] if count else 0))
        self.first_parts.extend(parts + np.cumsum(part_counts) - part_counts)
        self.part_units.extend(np.repeat(numbers, part_counts))
        self.label_units.extend(np.repeat(numbers, labels))
        part_terms = self.word_terms.values[part_words]
        label_terms = self.word_terms.values[more["label_words"]]
        part_counts_by_term = self.postings.add_many(part_terms, sizes)
        self.part_counts.values[: len(part_counts_by_term)] += part_counts_by_term
        self.part_words.extend(part_words)
        self.label_terms.extend(label_terms)
        for name, values in more.items():
            getattr(self, name).extend(values)
        self.label_counts.values[:] += np.bincount(label_terms, minlength=len(self.label_counts))

    def measure(self, units: int) -> Sizes:
        """Return the sizes that the index has with only its first `units` units."""
        parts = int(self.first_parts.values[units]) if units < len(self) else len(self.part_units)
        part_words = self.postings.count_terms(parts)
        labels = int(np.searchsorted(self.label_units.values, units))
        used = (self.part_words.values[:part_words], self.label_words.values[:labels])
        words = 1 + max(int(each.max(initial=-1)) for each in used)
        terms = 1 + int(self.word_terms.values[:words].max(initial=-1))
        names = 1 + int(self.speakers.values[:units].max(initial=-1))
        return Sizes(units, parts, part_words, labels, words, terms, names)

    def truncate(self, count: int) -> None:
        """Keep only the first `count` units, as if no other had ever been added."""
        if count >= len(self):
            return
        for position in self.positions.values[count:].tolist():
            self._forget_unit(position)
        _, parts, part_words, labels, words, terms, names = self.measure(count)
        for part in range(parts, len(self.part_units)):
            self.part_counts.values[np.unique(self.postings.get_terms(part))] -= 1
        np.subtract.at(self.label_counts.values, self.label_terms.values[labels:], 1)
        self.postings.truncate(parts)
        self.part_words.truncate(part_words)
        for column in (self.part_units, self.part_starts, self.part_stops, self.traits, self.norms):
            column.truncate(parts)
        for column in (self.label_terms, self.label_words, self.label_units):
            column.truncate(labels)
        by_unit = (self.positions, self.times, self.is_assistant, self.speakers, self.lengths, self.stretches)
        for column in (*by_unit, self.sessions, self.topics, self.first_parts, self.has_one_part):
            column.truncate(count)
        self.words.truncate(words)
        self.word_terms.truncate(words)
        self.vocabulary.truncate(terms)
        self.part_counts.truncate(terms)
        self.label_counts.truncate(terms)
        del self.names[names:]
        if self.vectors is not None:
            self.vectors.truncate(words)
        self.restore_topic()

    def restore_topic(self) -> None:
        """Let the topic tracker continue after the last unit."""
        topics, first_parts = self.topics.values, self.first_parts.values
        if not len(topics):
            self._topic_tracker = TopicTracker()
            return
        stops = np.append(first_parts, len(self.part_units))
        recent = range(max(int(np.searchsorted(topics, topics[-1])), len(topics) - WINDOW_MESSAGES), len(topics))
        terms = [
            [term for part in range(stops[i], stops[i + 1]) for term in self.postings.get_terms(part).tolist()]
            for i in recent
        ]
        at = max(0, int(self.times.values.max()))
        self._topic_tracker = TopicTracker.resume(int(self.sessions.values[-1]), int(topics[-1]), at, terms)

    # Texts

    def hold_unit(self, unit: Unit) -> None:
        """Keep the text of a unit."""
        self._forget_unit(unit.position)
        self._units[unit.position] = unit
        self.text_size += len(unit.text)

    def _forget_unit(self, position: int) -> None:
        unit = self._units.pop(position, None)
        self.text_size -= len(unit.text) if unit else 0

    def forget_texts(self) -> None:
        """Drop all texts, which will be read again when they are needed."""
        self._units.clear()
        self.text_size = 0

    def load_units(self, positions: Iterable[int]) -> None:
        """Read the units at these positions, as far as the index lacks them."""
        missing = sorted({position for position in positions if position not in self._units})
        if missing and self.read_units is not None:
            for unit in self.read_units(missing):
                self.hold_unit(unit)

    def get_unit(self, position: int) -> Unit:
        """Return the unit at a position in the conversation."""
        if position not in self._units:
            self.load_units((position,))
        return self._units[position]

    def find_units(self, positions: Iterable[int]) -> list[Unit]:
        """Return the units at these positions, as far as the index has any there."""
        known = set(self.positions.values.tolist()).intersection(positions)
        self.load_units(known)
        return [self._units[position] for position in sorted(known)]

    # Statistics

    @property
    def parts(self) -> float:
        """The approximate number of parts in the whole conversation."""
        return (len(self.part_units) + self.skipped_parts) * max(1.0, self.size / (len(self) or 1))

    def compute_rarities(self, terms: Array) -> Array:
        """Return the weight of each of these terms. The fewer parts contain a term, the higher its weight."""
        counts = np.maximum(self.part_counts.values[terms], self.label_counts.values[terms]).astype(float)
        parts = np.full(len(terms), self.parts)
        if self.shares:
            shares = [self.shares.get(self.vocabulary.terms[term], 0.0) for term in terms.tolist()]
            is_known = np.array(shares) > 0
            counts[is_known] /= np.array(shares)[is_known]
            # Only for terms of the query is it known how often they occur outside the index.
            parts[~is_known] = len(self.part_units) + self.skipped_parts
        rarities: Array = np.log(1 + np.maximum(0.0, parts - counts + 0.5) / (counts + 0.5))
        return rarities
