"""Topics: split a conversation at long pauses and where the vocabulary changes.

A topic ends at a pause of several hours, or before a message that has almost no words in common with the previous ones.
Messages are processed one by one, and later messages never move an earlier boundary. A short message ("yes, do that")
begins a topic only after a pause.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Hashable, Iterable

import msgspec

from longtalk.memory.terms import extract_terms_with_words

__all__ = ["PAUSE", "WINDOW_MESSAGES", "Topic", "TopicTracker", "find_topics"]

PAUSE = 3 * 3600
"""The number of seconds without a message after which a new session begins."""
WINDOW_MESSAGES = 8
"""The number of last messages whose terms define the current topic."""
_MIN_MESSAGES = 6
"""The number of messages below which a topic goes on, in conversations of at least the square of this."""
_MIN_TERMS = 4  # a message with fewer distinct terms does not begin a topic
_MIN_SHARED = 0.2  # a message begins a topic if it has less than this share of its terms in common with the window


class TopicTracker:
    """An object that numbers the sessions and topics of a conversation, given its messages in order."""

    __slots__ = ("_at", "_known", "_recent", "session", "topic")

    def __init__(self) -> None:
        self.session = -1
        """The number of the current session, from 0. A session ends at a long pause."""
        self.topic = -1
        """The number of the current topic, from 0. A new session also begins a new topic."""
        self._at = 0
        self._recent: deque[frozenset[Hashable]] = deque()
        self._known: Counter[Hashable] = Counter()

    @classmethod
    def resume(cls, session: int, topic: int, at: int, recent: Iterable[Collection[Hashable]]) -> TopicTracker:
        """Return a tracker that continues a conversation.

        `at` is the time of the latest message, and `recent` has the terms of the last messages of the topic: all, or
        at least `WINDOW_MESSAGES`.
        """
        tracker = cls()
        tracker.session, tracker.topic, tracker._at = session, topic, at
        for terms in recent:
            tracker._remember(frozenset(terms))
        return tracker

    def add(self, at: int, terms: Collection[Hashable], *, opens: bool = True) -> int:
        """Add the next message and return the number of its topic.

        `at` is the time of the message in seconds. With `opens=False` the message begins a topic only after a pause.
        """
        distinct = frozenset(terms)
        if self.session < 0 or at - self._at > PAUSE:
            self.session += 1
            self._begin_topic()
        elif opens and self._is_new_topic(distinct):
            self._begin_topic()
        self._at = max(self._at, at)
        self._remember(distinct)
        return self.topic

    def _begin_topic(self) -> None:
        self.topic += 1
        self._recent.clear()
        self._known.clear()

    def _is_new_topic(self, terms: frozenset[Hashable]) -> bool:
        """Return True if there are enough terms to judge and hardly any of them occur in the last messages."""
        if len(terms) < _MIN_TERMS or len(self._known) < _MIN_TERMS:
            return False
        return sum(term in self._known for term in terms) < _MIN_SHARED * len(terms)

    def _remember(self, terms: frozenset[Hashable]) -> None:
        self._recent.append(terms)
        self._known.update(terms)
        if len(self._recent) > WINDOW_MESSAGES:
            for term in self._recent.popleft():
                self._known[term] -= 1
                if not self._known[term]:
                    del self._known[term]


def _is_telling(term: str) -> bool:
    """Return False for numbers and single Latin letters."""
    return not term.isdecimal() and not (len(term) == 1 and term.isascii())


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of consecutive messages about one subject."""

    first: int
    """The index of the first message of the topic."""
    count: int
    """The number of messages in the topic."""
    at: int
    """The time of the topic's first message, in milliseconds."""
    until: int
    """The time of the topic's last message, in milliseconds."""
    words: tuple[str, ...]
    """A few words that distinguish the topic from the other topics."""


def find_topics(messages: Iterable[tuple[int, str, str]], *, words: int = 5) -> list[Topic]:
    """Return the topics of a conversation, in order.

    Each message is given as its time in milliseconds, its role and its text. For each topic, at most `words`
    characteristic words are picked. In a conversation of many short sessions, neighbours form one topic.
    """
    messages = list(messages)
    least = min(_MIN_MESSAGES, len(messages) // _MIN_MESSAGES)
    tracker = TopicTracker()
    topic = -1
    parts: list[list[tuple[int, int]]] = []
    counts: list[Counter[str]] = []
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for i, (at, role, text) in enumerate(messages):
        found_terms = extract_terms_with_words(text) if role != "tool" else []
        opens = role not in ("assistant", "tool")
        number = tracker.add(at // 1000, {term for term, _ in found_terms}, opens=opens)
        if number != topic and (not parts or len(parts[-1]) >= least):
            parts.append([])
            counts.append(Counter())
        topic = number
        parts[-1].append((i, at))
        counts[-1].update(term for term, _ in found_terms)
        for term, word in found_terms:
            forms[term][word] += 1
    topic_counts = Counter(term for count in counts for term in count)

    def pick_words(count: Counter[str]) -> tuple[str, ...]:
        value = {term: times * math.log(1 + len(counts) / topic_counts[term]) for term, times in count.items()}
        best = sorted(filter(_is_telling, value), key=lambda term: (-value[term], term))[:words]
        return tuple(forms[term].most_common(1)[0][0] for term in best)

    return [
        Topic(first=part[0][0], count=len(part), at=part[0][1], until=part[-1][1], words=pick_words(count))
        for part, count in zip(parts, counts, strict=True)
    ]
