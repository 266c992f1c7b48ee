"""Topics: split a conversation into segments at long pauses and where the vocabulary changes.

A segment ends before a pause of hours, or where a message shares almost no words with the previous ones. Segments are
found as the conversation grows; later messages never move an earlier boundary. Short messages ("yes, do that") begin a
segment only after a pause.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable

import msgspec

from longtalk.memory.terms import extract_terms_with_words

__all__ = ["PAUSE", "Segment", "Topics", "segments"]

PAUSE = 3 * 3600
"""A new session begins after this many seconds without a message."""
_WINDOW = 8  # the last messages, whose words define the current topic
_TELLING = 4  # distinct terms that a message needs to begin a topic
_SHARED = 0.2  # share of a message's terms below which it begins a new topic


class Topics:
    """A counter that assigns each message of a conversation, in order, to a numbered session and segment."""

    __slots__ = ("_at", "_known", "_recent", "segment", "session")

    def __init__(self) -> None:
        self.session = -1
        """The number of the current session, from 0. A session ends at a long pause."""
        self.segment = -1
        """The number of the current segment, from 0. A new session also begins a new segment."""
        self._at = 0
        self._recent: deque[frozenset[str]] = deque()
        self._known: Counter[str] = Counter()

    def add(self, at: int, terms: Collection[str], *, opens: bool = True) -> int:
        """Add the next message and return the number of its segment.

        `at` is the time of the message in seconds. With `opens=False` the message begins a segment only after a pause.
        """
        distinct = frozenset(terms)
        if self.session < 0 or at - self._at > PAUSE:
            self.session += 1
            self._begin()
        elif opens and self._is_new_topic(distinct):
            self._begin()
        self._at = max(self._at, at)
        self._remember(distinct)
        return self.segment

    def _begin(self) -> None:
        self.segment += 1
        self._recent.clear()
        self._known.clear()

    def _is_new_topic(self, terms: frozenset[str]) -> bool:
        """Return True if there are enough terms to judge, and hardly any of them occurred in the last messages."""
        if len(terms) < _TELLING or len(self._known) < _TELLING:
            return False
        return sum(term in self._known for term in terms) < _SHARED * len(terms)

    def _remember(self, terms: frozenset[str]) -> None:
        self._recent.append(terms)
        self._known.update(terms)
        if len(self._recent) > _WINDOW:
            for term in self._recent.popleft():
                self._known[term] -= 1
                if not self._known[term]:
                    del self._known[term]


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a conversation that is about one topic."""

    first: int
    """The index of the first message of the segment."""
    count: int
    """The number of messages in the segment."""
    at: int
    """The time of the segment's first message, in milliseconds."""
    until: int
    """The time of the segment's last message, in milliseconds."""
    words: tuple[str, ...]
    """A few words that distinguish the segment from the other segments."""


def segments(said: Iterable[tuple[int, str, str]], *, words: int = 5) -> list[Segment]:
    """Return the segments of a conversation.

    Each message is given as its time in milliseconds, its role and its text. `words` is the number of characteristic
    words to pick for each segment.
    """
    topics = Topics()
    parts: list[list[tuple[int, int]]] = []
    counts: list[Counter[str]] = []
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for number, (at, role, text) in enumerate(said):
        found = extract_terms_with_words(text) if role != "tool" else []
        if topics.add(at // 1000, [term for term, _ in found], opens=role not in ("assistant", "tool")) == len(parts):
            parts.append([])
            counts.append(Counter())
        parts[-1].append((number, at))
        counts[-1].update(term for term, _ in found)
        for term, word in found:
            forms[term][word] += 1
    having = Counter(term for count in counts for term in count)

    def distinctive_words(count: Counter[str]) -> tuple[str, ...]:
        value = {term: times * math.log(1 + len(counts) / having[term]) for term, times in count.items()}
        best = sorted((term for term in value if not term.isdecimal()), key=lambda term: (-value[term], term))[:words]
        return tuple(forms[term].most_common(1)[0][0] for term in best)

    return [
        Segment(first=part[0][0], count=len(part), at=part[0][1], until=part[-1][1], words=distinctive_words(count))
        for part, count in zip(parts, counts, strict=True)
    ]
