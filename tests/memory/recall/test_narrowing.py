"""Test the narrowing of long conversations: only what may be relevant is ranked, and the result is nearly the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from longtalk.memory.recall import narrowing
from longtalk.memory.recall.index import RecallIndex, Unit
from longtalk.memory.recall.narrowing import narrow, select_units
from longtalk.memory.recall.reranking import rank
from tests.support.properties import examples

DAY = 86_400
START = 1_700_000_000  # 14 November 2023
FILLER = "We talked about the weather, the garden and the tram.".split()  # noqa: SIM905


def make_units(count: int, facts: dict[int, str]) -> list[Unit]:
    """Return messages of small talk, some of them replaced with facts."""
    return [
        Unit(i, "assistant" if i % 2 else "user", facts.get(i, " ".join(FILLER[i % 5 :])), START + i * DAY)
        for i in range(count)
    ]


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrowing, "MAX_UNITS", 50)
    monkeypatch.setattr(narrowing, "_KEPT_UNITS", 12)
    monkeypatch.setattr(narrowing, "_FREQUENT", 20)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize(
    ("query", "position"),
    [
        ("Where do I keep the spare bow?", 40),
        ("Where is my spaire bow?", 40),
        ("What did we say about the tram on 2023-12-04?", 20),
        ("Did you recommend a luthier?", 91),
    ],
)
def test_a_fact_is_found_in_a_long_conversation(query: str, position: int) -> None:
    facts = {40: "The spare bow is in the blue wardrobe.", 91: "I recommend the luthier in the harbour."}
    index = RecallIndex(make_units(200, facts))
    assert len(narrow(index, query, 0)) <= 12
    first = rank(index, query).hits[0]
    assert first.position == position
    assert first.stop - first.start == len(index.get_unit(position).text)


@pytest.mark.usefixtures("small_limits")
def test_a_message_that_shares_no_word_finds_nothing() -> None:
    found = rank(RecallIndex(make_units(200, {})), "Zyxwv qponm?")
    assert found.hits == ()
    assert found.need == 0


@pytest.mark.usefixtures("small_limits")
def test_an_answer_comes_along_with_its_question() -> None:
    facts = {60: "Where does your sister rehearse?", 61: "In an old factory."}
    units = [Unit(i, "user", facts.get(i, " ".join(FILLER)), START) for i in range(200)]
    assert 61 in [hit.position for hit in rank(RecallIndex(units), "Where does the sister rehearse?").hits]


@pytest.mark.usefixtures("small_limits")
def test_a_short_conversation_and_one_with_vectors_are_ranked_whole() -> None:
    short = RecallIndex(make_units(50, {}))
    assert narrow(short, "the tram", 0) is short
    long = RecallIndex(make_units(60, {}))
    long.vectors = RecallIndex(meaning=True).vectors
    assert narrow(long, "the tram", 0) is long


def test_a_term_weighs_as_much_in_a_selection_as_in_the_whole() -> None:
    index = RecallIndex(make_units(200, {40: "The spare bow is in the blue wardrobe."}))
    some = select_units(index, np.array([3, 40, 41, 90]))
    terms = np.arange(len(index.vocabulary.terms))
    assert some.parts == index.parts
    assert some.compute_rarities(terms).tolist() == index.compute_rarities(terms).tolist()


def test_units_with_a_gap_between_them_do_not_lend_to_each_other() -> None:
    texts = ["Where does your sister rehearse?", "Soup.", "In an old factory.", "Fine."]
    index = RecallIndex([Unit(i, "user", text, START) for i, text in enumerate(texts)])
    question = "Where does the sister rehearse?"
    assert 3 not in [hit.position for hit in rank(select_units(index, np.array([0, 3])), question).hits]
    assert 2 in [hit.position for hit in rank(select_units(index, np.array([0, 1, 2])), question).hits]


WORDS = ("violin", "bow", "sister", "Lisbon", "tram", "soup", "always", "Tuesday", "the", "in")
UNITS = st.lists(
    st.builds(
        Unit,
        st.just(0),
        st.sampled_from(["user", "assistant"]),
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=80).map(" ".join),
        st.integers(0, 9).map(lambda day: START + day * DAY),
        st.sampled_from(["", "Ada", "Ben"]),
        st.sampled_from(["", "travel", "music"]),
    ),
    min_size=1,
    max_size=12,
)


@given(UNITS, st.lists(st.sampled_from((*WORDS, "Ada", "travel", "viola", "2023-11-15")), max_size=4).map(" ".join))
@examples(40, 600)
def test_a_selection_of_all_units_is_ranked_like_the_whole(units: list[Unit], query: str) -> None:
    units = sorted(units, key=lambda unit: unit.at)
    index = RecallIndex([replace(each, position=i) for i, each in enumerate(units)])
    assert rank(select_units(index, np.arange(len(index))), query) == rank(index, query)
