"""Check that a conversation is split into topics by pauses and by vocabulary."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from longtalk.memory.recall.topics import PAUSE, TopicTracker, find_topics
from longtalk.memory.terms import extract_terms

BREAD = (
    "My sourdough bread never rises in the oven",
    "Let the sourdough dough rest for longer before the oven",
    "How warm must the dough be while the bread rises?",
)
BIKE = (
    "The chain of my bicycle slips when I change gears",
    "Worn gears let a bicycle chain slip; look at the cassette",
)


def number_topics(texts: list[str], at: int = 0) -> list[int]:
    topics = TopicTracker()
    return [topics.add(at, extract_terms(text)) for text in texts]


def test_messages_with_common_words_are_one_topic() -> None:
    assert number_topics(list(BREAD)) == [0, 0, 0]


def test_other_words_begin_a_topic() -> None:
    assert number_topics([*BREAD, *BIKE]) == [0, 0, 0, 1, 1]


def test_short_messages_stay_in_their_topic() -> None:
    assert number_topics([*BREAD, "Great, thanks!", "Yes, do it", *BREAD]) == [0] * 8


def test_a_message_that_may_not_begin_a_topic_stays_in_the_last_one() -> None:
    topics = TopicTracker()
    topics.add(0, extract_terms(BREAD[0]))
    assert topics.add(0, extract_terms(BIKE[0]), opens=False) == 0


def test_a_pause_begins_a_session_and_a_topic() -> None:
    topics = TopicTracker()
    topics.add(1_000, extract_terms(BREAD[0]))
    topics.add(1_000 + PAUSE, extract_terms(BREAD[1]))
    assert (topics.session, topics.topic) == (0, 0)
    topics.add(1_001 + 2 * PAUSE, extract_terms(BREAD[2]))
    assert (topics.session, topics.topic) == (1, 1)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.lists(st.sampled_from("abcdefghijkl"), max_size=6)), max_size=30))
def test_numbers_only_grow_and_by_one(texts: list[tuple[int, list[str]]]) -> None:
    topics = TopicTracker()
    found = [topics.add(at, list(words)) for at, words in texts]
    assert all(0 <= after - before <= 1 for before, after in pairwise(found))
    assert topics.session <= topics.topic


def test_topics_have_times_counts_and_words() -> None:
    texts = [(1_000, "user", text) for text in BREAD] + [
        (2_000, "tool", "oven " * 99),
        (9 * 3_600_000, "user", BIKE[0]),
    ]
    bread, bike = find_topics([*texts, (9 * 3_600_000 + 1, "assistant", f"{BIKE[1]} in 2024")], words=3)
    assert (bread.first, bread.count, bread.at, bread.until) == (0, 4, 1_000, 2_000)
    assert (bike.first, bike.count) == (4, 2)
    assert bread.words == ("bread", "dough", "oven")
    assert bike.words == ("bicycle", "chain", "gears")
    assert find_topics([]) == []
