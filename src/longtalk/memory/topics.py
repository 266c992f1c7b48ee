"""Topics: a conversation as segments, told by pauses and by the words that are shared.

A segment ends where the talk rests for hours, and where a message brings up words of which the last ones had nearly
none. Segments are told while the conversation grows: what comes later never moves one that was told before. Short
messages ("yes, do that") say nothing of a topic and stay where they are.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable

import msgspec

from longtalk.memory.terms import worded

__all__ = ["PAUSE", "Segment", "Topics", "segments"]

PAUSE = 3 * 3600
"""Seconds without a word after which a new session begins."""
_WINDOW = 8  # messages whose words are those of the topic at hand
_TELLING = 4  # different terms a message must have to open a topic
_SHARED = 0.2  # of its terms that belong to the topic, below which it opens another


class Topics:
    """Numbers the sessions and the segments of a conversation, message by message."""

    __slots__ = ("_at", "_known", "_recent", "segment", "session")

    def __init__(self) -> None:
        self.session = -1
        """Counts the pauses: messages of one session were said in one sitting."""
        self.segment = -1
        """Counts the topics. A new session is a new segment too."""
        self._at = 0
        self._recent: deque[frozenset[str]] = deque()
        self._known: Counter[str] = Counter()

    def add(self, at: int, terms: Collection[str], *, opens: bool = True) -> int:
        """The segment of the next message, said at `at`, in seconds. `opens`: whether it may begin a topic."""
        distinct = frozenset(terms)
        if self.session < 0 or at - self._at > PAUSE:
            self.session += 1
            self._begin()
        elif opens and self._strange(distinct):
            self._begin()
        self._at = max(self._at, at)
        self._remember(distinct)
        return self.segment

    def _begin(self) -> None:
        self.segment += 1
        self._recent.clear()
        self._known.clear()

    def _strange(self, terms: frozenset[str]) -> bool:
        """Whether hardly any of these words belong to the topic at hand, if it has begun to have some."""
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
    """A part of a conversation that is about one thing."""

    first: int
    """The number of its first message …"""
    count: int
    """… and how many there are."""
    at: int
    until: int
    """When it began and ended, as told."""
    words: tuple[str, ...]
    """A few that tell it from the others."""


def segments(said: Iterable[tuple[int, str, str]], *, words: int = 5) -> list[Segment]:
    """The segments of a conversation. Of each message: when it was said, in milliseconds, its role, and its text."""
    topics = Topics()
    parts: list[list[tuple[int, int]]] = []
    counts: list[Counter[str]] = []
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for number, (at, role, text) in enumerate(said):
        found = worded(text) if role != "tool" else []
        if topics.add(at // 1000, [term for term, _ in found], opens=role not in ("assistant", "tool")) == len(parts):
            parts.append([])
            counts.append(Counter())
        parts[-1].append((number, at))
        counts[-1].update(term for term, _ in found)
        for term, word in found:
            forms[term][word] += 1
    having = Counter(term for count in counts for term in count)

    def telling(count: Counter[str]) -> tuple[str, ...]:
        value = {term: times * math.log(1 + len(counts) / having[term]) for term, times in count.items()}
        best = sorted((term for term in value if not term.isdecimal()), key=lambda term: (-value[term], term))[:words]
        return tuple(forms[term].most_common(1)[0][0] for term in best)

    return [
        Segment(first=part[0][0], count=len(part), at=part[0][1], until=part[-1][1], words=telling(count))
        for part, count in zip(parts, counts, strict=True)
    ]
