"""Test the head of a request: it fits its budget, and it covers what it says."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from longtalk.memory.brief.apply import apply
from longtalk.memory.brief.lines import BriefContent
from longtalk.memory.brief.operations import parse_operations
from longtalk.memory.brief.record import BriefRecord
from longtalk.memory.brief.schema import Brief
from longtalk.memory.head import build_head
from longtalk.memory.summary import TAG, Summary
from longtalk.tokens import Estimator, count_message
from longtalk.tokens.families import FAMILIES
from longtalk.transcript.transcript import Entry
from longtalk.wires import HTTP_WIRES, WIRES
from tests.support.languages import draw_answer, draw_question
from tests.support.properties import holds

CHAT = WIRES["openai-chat"]


def exchange(question: str, answer: str) -> list[Entry]:
    native = json.dumps({"role": "assistant", "content": answer}).encode()
    return [
        Entry(role="user", wire=CHAT.name, native=CHAT.write_user(question), at=0),
        Entry(role="assistant", wire=CHAT.name, native=native, at=0),
    ]


def make_record(*facts: str, covers: int = 0, counter: Estimator | None = None) -> BriefRecord:
    operations, _ = parse_operations({"+facts": list(facts)})
    content = apply(BriefContent(), operations, Brief(), counter or Estimator()).content
    return BriefRecord(content=content, covers=covers)


def build(
    record: BriefRecord,
    *exchanges: list[Entry],
    counter: Estimator | None = None,
    wire: str = "openai-chat",
    budget: int = 100,
    previous: Summary | None = None,
    keep_outlines: bool = False,
) -> Summary:
    """Return the head that replaces these exchanges, after those that `previous` has replaced."""
    start = previous.stop if previous else 0
    spans = [(start + 2 * i, start + 2 * i + 2) for i in range(len(exchanges))]
    return build_head(
        record,
        Brief(),
        counter or Estimator(),
        WIRES[wire],
        previous=previous,
        dropped=spans,
        exchanges=dict(zip(spans, exchanges, strict=True)),
        outline_budget=budget,
        keep_outlines=keep_outlines,
    )


# The budget


@holds(
    st.lists(st.tuples(draw_question(), draw_answer()), min_size=1, max_size=4),
    st.lists(draw_question(), max_size=8),
    st.sampled_from(FAMILIES),
    st.sampled_from(sorted(HTTP_WIRES)),
    st.integers(70, 140),
    few=150,
    many=3_000,
)
def test_the_last_exchange_is_outlined_within_the_budget_in_any_language(
    said: list[tuple[str, str]], facts: list[str], family: str, wire: str, budget: int
) -> None:
    counter = Estimator(family)
    head = build(
        make_record(*facts, counter=counter),
        *(exchange(*pair) for pair in said),
        counter=counter,
        wire=wire,
        budget=budget,
    )
    assert "\nUser: " in head.text
    assert "\nYou:\n" in head.text
    assert head.outlined[-1] == (2 * len(said) - 2, 2 * len(said))
    assert head.tokens == count_message(WIRES[wire].quote(TAG, head.text), counter)
    assert head.tokens <= Brief().budget + budget


def test_a_question_that_is_too_long_leaves_room_for_the_answer() -> None:
    head = build(make_record(), exchange("每天把第十二小节练习两遍，" * 40, "先不要揉弦。" * 40), budget=80)
    assert "User: 每天" in head.text
    assert "You:\n先不要揉弦" in head.text
    assert head.tokens <= 80


def test_an_exchange_without_text_does_not_hide_older_ones() -> None:
    head = build(make_record(), exchange("Which bow?", "The old bow."), exchange("", ""))
    assert "The old bow." in head.text
    assert head.covers == ((0, 2),)


# What it covers


def test_without_brief_and_outlines_it_covers_nothing() -> None:
    assert build(make_record(), exchange("Which bow?", "The old bow."), budget=0).covers == ()


def test_it_covers_an_outlined_exchange_only_as_long_as_the_outline_is_there() -> None:
    first = build(make_record(), exchange("Which bow?", "The old bow."))
    assert first.covers == first.outlined == ((0, 2),)
    second = build(make_record(), exchange("Which string?", "The low one."), previous=first)
    assert "The old bow." not in second.text
    assert second.covers == ((2, 4),)


def test_a_card_made_while_an_outline_was_there_covers_its_exchange() -> None:
    first = build(make_record(), exchange("Which bow?", "The old bow."))
    second = build(make_record("the old bow", covers=3), exchange("Which string?", "The low one."), previous=first)
    assert second.covers == ((0, 4),)
    assert second.outlined == ((2, 4),)


def test_it_covers_what_cards_cover_as_long_as_the_brief_has_lines() -> None:
    old = exchange("Which bow?", "The old bow.")
    assert build(make_record("the old bow", covers=2), old, budget=0).covers == ((0, 2),)
    assert build(make_record("the old bow", covers=0), old, budget=0).covers == ()
    assert build(make_record(covers=2), old, budget=0).covers == ()


def test_a_new_brief_keeps_the_outlines_and_what_they_cover() -> None:
    first = build(make_record(), exchange("Which bow?", "The old bow."))
    second = build(make_record("Ada is 12"), previous=first, keep_outlines=True)
    assert "The old bow." in second.text
    assert second.covers == second.outlined == ((0, 2),)
