"""How much is recalled: the expected gain against the price."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.memory.recall.gain import (
    QUESTION_TOKENS,
    Allowance,
    Evidence,
    choose_share,
    estimate_need,
    limit_recall,
)

GOOD = Evidence(match=0.9, known=1.0, pairs=0.5, question_share=1.0, names_speaker=False, refers_back=True)


@pytest.mark.parametrize(
    "worse",
    [
        {"match": 0.3},
        {"match": 0.0},
        {"known": 0.4},
        {"pairs": 0.0},
        {"question_share": 0.3},
        {"question_share": 0.0},
        {"refers_back": False},
    ],
)
def test_the_less_speaks_for_it_the_less_is_a_message_thought_to_need_recall(worse: dict[str, float]) -> None:
    assert 0 <= estimate_need(msgspec.structs.replace(GOOD, **worse)) < estimate_need(GOOD) < 1


def test_a_message_without_a_match_needs_nothing() -> None:
    assert estimate_need(msgspec.structs.replace(GOOD, match=0.0, names_speaker=True)) == 0


def test_a_message_that_likely_needs_recall_gets_the_whole_budget_and_an_unlikely_one_nothing() -> None:
    assert choose_share(1.0) == choose_share(0.67) == 1
    assert choose_share(0.03) == choose_share(0.0) == 0
    assert 0 < choose_share(0.2) < choose_share(0.5) < 1


def test_where_answers_are_cheap_less_is_spent_on_making_them_better() -> None:
    assert 0.5 < choose_share(0.6, output=2.0) < choose_share(0.6, output=4.0) < choose_share(0.6, output=5.0) < 1
    assert choose_share(0.67, output=8.0) == 1


def test_a_credit_that_is_spent_leaves_some_tokens_for_questions_alone() -> None:
    spent = Allowance(credit=-50.0)
    tokens, why = limit_recall(1_000, 0.9, spent)
    assert tokens == QUESTION_TOKENS
    assert why.startswith("90% likely to be needed: up to 1,000 of 1,000 tokens, cut to 300, because")
    assert 0 < limit_recall(1_000, 0.2, spent)[0] < tokens
    assert limit_recall(1_000, 0.9, spent, asks=False)[0] <= 0


def test_without_a_gate_only_the_room_limits_recall() -> None:
    assert limit_recall(1_000, 0.0, Allowance(credit=-50.0), gate=False)[0] == 1_000
    tokens, why = limit_recall(1_000, 0.0, Allowance(room=120), gate=False)
    assert (tokens, "120" in why) == (120, True)


@given(
    st.integers(1, 5_000),
    st.floats(0, 1),
    st.none() | st.integers(-100, 5_000),
    st.none() | st.floats(-1e6, 1e6),
    st.booleans(),
    st.booleans(),
)
def test_the_budget_and_the_room_are_never_exceeded(
    budget: int, need: float, room: int | None, credit: float | None, gate: bool, asks: bool
) -> None:
    tokens, why = limit_recall(budget, need, Allowance(room=room, credit=credit), gate=gate, asks=asks)
    assert tokens <= budget
    assert room is None or tokens <= max(0, room)
    assert why
