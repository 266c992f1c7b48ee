"""The facts that a small model finds in the user's messages, as a memory card."""

from __future__ import annotations

import json

import pytest

from longtalk.memory.brief.schema import Brief, Field, Schema
from longtalk.memory.cards.facts import make_card, render_facts_prompt

SAID = ("My name is Ada.", "I live in Bergen.", "Tell me about rivers.")


def make(*facts: object, config: Brief | None = None) -> object:
    card = make_card(json.dumps({"facts": facts}), SAID, config or Brief())
    return json.loads(card) if card else None


def test_facts_that_a_message_states_are_added_as_quotes() -> None:
    assert make("My name is Ada", "I live in Bergen") == {
        "+fact": ['The user: "My name is Ada"', 'The user: "I live in Bergen"']
    }


def test_questions_are_left_out() -> None:
    assert make("Tell me about rivers?", "I live in Bergen") == {"+fact": ['The user: "I live in Bergen"']}


def test_facts_that_no_message_states_are_left_out() -> None:
    assert make("The user is a 25-year-old woman", "The user works as a software developer", 7, "") == {}


def test_a_brief_without_a_field_for_facts_gets_them_in_its_first_list() -> None:
    config = Brief(schema=Schema((Field("mood", kind="text"), Field("pieces"), Field("plans"))))
    assert make("I live in Bergen", config=config) == {"+pieces": ['The user: "I live in Bergen"']}


def test_a_brief_without_lists_gets_none() -> None:
    assert make("I live in Bergen", config=Brief(schema=Schema((Field("mood", kind="text"),)))) is None


@pytest.mark.parametrize("answer", ["", "{", "[]", "7", "{}", '{"facts": 7}', '{"facts": null}'])
def test_an_answer_that_can_not_be_read_makes_no_card(answer: str) -> None:
    assert make_card(answer, SAID, Brief()) == ""


def test_the_prompt_has_each_message_on_a_line() -> None:
    assert "\n- My name is Ada.\n- I live in Bergen.\n" in render_facts_prompt(SAID)
