"""Topics: a conversation as segments, told by pauses and by the words that are shared.

A segment ends where the talk rests for hours, and where a message brings up words of which the last ones had nearly
none. Segments are told while the conversation grows: what comes later never moves one that was told before. Short
messages ("yes, do that") say nothing of a topic and stay where they are.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection

__all__ = ["PAUSE", "Topics"]

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
