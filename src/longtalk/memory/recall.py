"""Recall: which of the things said before fit a message, best first. Pure, deterministic, without a model.

An `Index` takes the units of a conversation one by one: whole user messages, and longer assistant messages in parts. A
message is compared with them by its terms (BM25), with what conversations need beside it:

- A turn answers the one before it, so it *borrows* that one's terms, and less of those further off, within a session.
  For each term the best match counts, its own or a borrowed one, never their sum.
- Who speaks: a participant named in the message is not a term but someone whose words are favoured. An assistant's
  words weigh less than the user's, unless the message is about them.
- When: days named in the message favour what was said then; questions for a time favour texts that tell one.
- What is near: words that stand side by side in both, the topic that holds the best matches, and, lightly, words that
  the best matches share.
- Standing wishes (always, never, prefer) come sooner, long texts later.

Adding a unit costs the same however many there are. Ranking looks only at units that share a term or are near one.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Container, Iterable

import msgspec

from longtalk.memory.question import EPOCH, instructs, tells_time
from longtalk.memory.ranking import ASSISTANT, MOST, STANDING, TIMED, UNREAD, Ranking
from longtalk.memory.terms import stem, worded, words
from longtalk.memory.topics import Topics
from longtalk.memory.vectors import Vectors
from longtalk.memory.vocabulary import Vocabulary

__all__ = ["Hit", "Index", "Ranked", "Unit", "Weights", "parts"]

_LINE = re.compile(r"[^\n]*\n+|[^\n]+")


class Unit(msgspec.Struct, frozen=True):
    """One thing said: a message, as text."""

    place: int
    """Where it is in the conversation; later is higher."""
    role: str
    text: str
    at: int = 0
    """When, in seconds since 1970; 0 if unknown."""
    name: str = ""
    """Who, where roles alone don't tell."""
    labels: str = ""
    """What it is filed under: found as if a user had said it, and never shown."""


class Hit(msgspec.Struct, frozen=True):
    """A unit, or a part of it, that fits."""

    place: int
    score: float
    start: int
    stop: int


class Ranked(msgspec.Struct, frozen=True):
    """What fits a message."""

    hits: tuple[Hit, ...]
    """Best first."""
    need: float
    """How much of a budget is worth spending on it, from 0 to 1. Nothing when the message does not refer to what was
    said, or only to what is excluded."""


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """What counts how much. The defaults fit chats and talks between people alike."""

    assistant: float = 0.3
    """Of an assistant's words, against a user's."""
    part: int = 300
    """Characters of a part of an assistant's message, about."""
    saturation: float = 1.2
    length: float = 0.5
    """BM25's k1 and b."""
    borrow: tuple[tuple[int, float], ...] = ((-1, 0.7), (-2, 0.5), (1, 0.5), (2, 0.3))
    """How much of the match of a unit so far off counts as one's own."""
    lends: float = 0.3
    """How much of what it could lend an assistant's message does."""
    long: int = 320
    """Characters above which a unit borrows less."""
    speaker: float = 2.5
    """Of the words of a participant who is named."""
    pair: float = 0.3
    """Of two words side by side, against each for itself."""
    feedback: float = 0.1
    """Of a word that the best matches share."""
    alike: float = 0.5
    """Of a word that is spelt alike."""
    topic: float = 0.05
    session: float = 0.2
    """Of the best matches nearby."""
    day: float = 0.5
    """Of a day that is named, against the best match; half of it for a longer time."""
    time: float = 1.3
    """Of a text that tells a time, where one is asked for."""
    standing: float = 1.5
    """Of a user's standing wish, where there is an assistant to have it."""
    even: int = 200
    brevity: float = 0.4
    """A score is divided by its characters and so many more, to this power."""
    soft: float = 0.7
    close: float = 0.35
    """Of a word that is close in meaning, and how close it must be; with vectors."""
    meaning: float = 0.5
    """Of the nearest text, against the best match of words; with vectors."""


class Index:
    """The units of a conversation, ready to be ranked. Grows by `add`. With `meaning`, vectors count beside words.

    What is public here is for `ranking`, which reads it all."""

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
        """How many units the conversation has, where these are some of them."""
        self.shares: dict[str, float] = {}
        """By term that is sought, where some units are left out: which share of those that have it is here."""
        self.vectors = Vectors() if meaning else None
        """Of parts."""
        self.words = Vectors() if meaning else None
        """Of terms."""
        self.units: list[Unit] = []
        self.vocabulary = Vocabulary()
        self.names: dict[str, set[str]] = {}
        """By term: the participants it names."""
        self.days: dict[int, list[int]] = {}
        """By day: the units said on it."""
        self.assisted = False
        """Whether an assistant takes part."""
        # By term: part << 8 | how often.
        self.postings: list[array[int]] = []
        # By term: the units that are labelled with it.
        self.labelled: dict[int, array[int]] = {}
        # By unit: its stretch, session and segment, its first part, how well it borrows, whether it is one part,
        # whether an assistant spoke.
        self.stretches = array("L")
        self.sessions = array("L")
        self.segments = array("L")
        self.firsts = array("L")
        self.borrows = array("d")
        self.single = bytearray()
        self.spoken = bytearray()
        # By part: its unit, where it is in it, its terms, what it is like.
        self.owners = array("L")
        self.spans: list[tuple[int, int]] = []
        self.terms: list[array[int]] = []
        self.traits = bytearray()
        self.total = 0
        """The number of all terms."""
        self.unread = 0
        """Parts that are not here, of units that are."""
        self._topics = Topics()
        self._places: dict[int, int] = {}
        for unit in units:
            self.add(unit)

    def __len__(self) -> int:
        return len(self.units)

    def add(self, unit: Unit, *, follows: bool = True, fits: Callable[[str], bool] | None = None) -> None:
        """Take in the next thing said. `follows`: whether it is the next, and none between was left out. `fits`: which
        parts of an assistant's message are worth looking at; the others only count."""
        number = self._places[unit.place] = len(self.units)
        self.stretches.append((self.stretches[-1] if number else 0) + (not follows))
        self.units.append(unit)
        self.firsts.append(len(self.owners))
        self.borrows.append(min(1.0, self.weights.long / (len(unit.text) or 1)))
        spans = parts(unit.text, self.weights.part) if unit.role == ASSISTANT else [(0, len(unit.text))]
        self.single.append(len(spans) == 1)
        if fits is not None and len(spans) > 1:
            fitting = [span for span in spans if fits(unit.text[slice(*span)])] or spans[:1]
            self.unread += len(spans) - len(fitting)
            spans = fitting
        self.spoken.append(unit.role == ASSISTANT)
        self.assisted = self.assisted or unit.role == ASSISTANT
        told: list[tuple[str, str]] = []
        for start, stop in spans:
            text = unit.text[start:stop]
            told += (found := worded(text))
            self.spans.append((start, stop))
            self.traits.append(UNREAD)
            self._take(number, found)
            if self.vectors is not None:
                self.vectors.add(" ".join(word for _, word in found))
        for term, word in dict(worded(unit.labels)).items() if unit.labels else ():
            self.labelled.setdefault(self._number(term, word), array("L")).append(number)
        self.segments.append(self._topics.add(unit.at, [term for term, _ in told], opens=unit.role != ASSISTANT))
        self.sessions.append(self._topics.session)
        for word in words(unit.name):
            self.names.setdefault(stem(word), set()).add(unit.name)
        if unit.at:
            self.days.setdefault(EPOCH + unit.at // 86_400, []).append(number)

    def _take(self, number: int, found: list[tuple[str, str]]) -> None:
        """The next part: of which unit, and its terms."""
        part = len(self.owners)
        self.owners.append(number)
        known = self.vocabulary.numbers
        numbers = array("L", [known[t] if t in known else self._number(t, word) for t, word in found])
        self.terms.append(numbers)
        self.total += len(numbers)
        for term, times in Counter(numbers).items():
            self.postings[term].append(part << 8 | min(times, MOST))

    def _number(self, term: str, word: str) -> int:
        """The number of a term, which may be new."""
        number = self.vocabulary.number(term)
        if number == len(self.postings):
            self.postings.append(array("Q"))
            if self.words is not None:
                self.words.add(word)
        return number

    def trait(self, part: int) -> int:
        """What a part is like; told when it is first asked for."""
        if self.traits[part] == UNREAD:
            unit, (start, stop) = self.units[self.owners[part]], self.spans[part]
            self.traits[part] = traits(unit, unit.text[start:stop])
        return self.traits[part]

    def at(self, place: int) -> Unit:
        """The unit of a place."""
        return self.units[self._places[place]]

    def place_of(self, part: int) -> int:
        """The place of a part's unit."""
        return self.units[self.owners[part]].place

    def rarity(self, term: int) -> float:
        """How much a term tells: more, the fewer parts have it."""
        count: float = max(len(self.postings[term]), len(self.labelled.get(term, ())))
        parts = self.parts
        if self.shares:
            share = self.shares.get(self.vocabulary.terms[term])
            # How often a term is elsewhere is only known of those that are sought.
            count, parts = (count, len(self.owners) + self.unread) if share is None else (count / share, parts)
        return math.log(1 + max(0.0, parts - count + 0.5) / (count + 0.5))

    @property
    def parts(self) -> float:
        """How many parts the conversation has, about."""
        return (len(self.owners) + self.unread) * max(1.0, self.size / (len(self.units) or 1))

    def rank(self, query: str, *, now: int = 0, exclude: Container[int] = ()) -> Ranked:
        """What fits the message, best first; of the places in `exclude` nothing. `now` is when it was said."""
        if not self.total:
            return Ranked((), 0.0)
        ranking = Ranking(self, query, now)
        hits = []
        for part, score in ranking.final():
            if (place := self.place_of(part)) not in exclude:
                hits.append(Hit(place, score, *self.spans[part]))
        hits.sort(key=lambda hit: (-hit.score, hit.place, hit.start))
        return Ranked(tuple(hits), ranking.need(exclude))


def traits(unit: Unit, text: str) -> int:
    """What a part of a unit is like."""
    return TIMED * tells_time(text) | STANDING * (unit.role != ASSISTANT and instructs(text))


def parts(text: str, size: int) -> list[tuple[int, int]]:
    """A text in parts of about `size` characters, at the ends of lines where there are some."""
    found: list[tuple[int, int]] = []
    start = end = 0
    for line in _LINE.finditer(text):
        if end > start and line.end() - start > size:
            found.append((start, end))
            start = end
        end = line.end()
        while end - start > 2 * size:
            found.append((start, start + size))
            start += size
    return [*found, (start, end)] if end > start or not found else found
