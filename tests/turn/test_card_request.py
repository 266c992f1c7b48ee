"""Memory cards of models that can't add them to their answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from longtalk import Chat, Memory
from longtalk.errors import Overloaded
from longtalk.events import Text
from longtalk.observation import Observation
from longtalk.providers.base import Capabilities
from longtalk.testing import Scripted, says, validate
from longtalk.wires import HTTP_WIRES, WIRES

EACH = pytest.mark.parametrize("wire", HTTP_WIRES)
EVERY_TURN = Memory(limit=0, recent=0, recall=0)
FOUND = json.dumps({"facts": ["My name is Ada", "I live on the moon"]})


def provide(*steps: Any, cards: Any = "request", wire: str = "openai-chat") -> Scripted:
    provider = Scripted(*steps, wire=WIRES[wire])
    provider.capabilities = Capabilities(cards=cards, structured_output=True)
    return provider


@EACH
def test_a_card_is_requested_after_the_answer_and_updates_the_brief(wire: str) -> None:
    with provide(says("Hello Ada.", wire=wire), says(FOUND, wire=wire), wire=wire) as provider:
        chat = Chat(provider, policy=EVERY_TURN)
        reply = chat.send("My name is Ada.", system="Be kind.")
        assert reply.text == "Hello Ada."
        assert [entry.role for entry in reply.entries] == ["user", "assistant"]
        brief = chat.brief.text(state=reply.state)
    assert 'The user: "My name is Ada"' in brief
    assert "moon" not in brief
    answered, asked = provider.requests
    assert b"MEMORY_CARD" not in answered + asked
    assert b"My name is Ada." in asked
    assert b"maxItems" in asked
    validate(asked, wire=wire)


def test_a_stream_shows_only_the_answer() -> None:
    with provide(says("Hello Ada."), says(FOUND)) as provider:
        chat = Chat(provider, policy=EVERY_TURN)
        stream = chat.stream("My name is Ada.")
        assert "".join(event.text for event in stream if isinstance(event, Text)) == "Hello Ada."
        assert stream.reply is not None
        assert "Ada" in chat.brief.text(state=stream.reply.state)


@pytest.mark.parametrize("step", [says("No."), says("", finish="length"), Overloaded("busy"), OSError("gone")])
def test_a_request_that_fails_costs_no_answer_and_counts_as_a_failure(step: Any) -> None:
    with provide(says("Hello Ada."), step) as provider:
        chat = Chat(provider, policy=EVERY_TURN)
        reply = chat.send("My name is Ada.")
        assert reply.text == "Hello Ada."
        assert chat.brief.text(state=reply.state) == ""
        assert chat.brief.tally(state=reply.state).failures == 1


def test_the_usage_of_both_calls_counts_and_both_are_reported() -> None:
    seen: list[Observation] = []
    with provide(says("Hello Ada."), says(FOUND)) as provider:
        reply = Chat(provider, policy=EVERY_TURN, on_event=seen.append).send("My name is Ada.")
    assert [each.kind for each in seen if each.kind != "epoch"] == ["model_call", "card", "turn"]
    assert (reply.usage.input, reply.usage.output) == (20, 10)


def test_a_model_that_makes_up_facts_is_not_asked_for_cards_and_a_notice_says_so_once() -> None:
    with provide(says("Hello Ada."), says("Fine."), cards="none") as provider:
        chat = Chat(provider, policy=EVERY_TURN)
        first = chat.send("My name is Ada.")
        second = chat.send("How are you?", state=first.state)
    assert [notice.kind for notice in first.notices if notice.kind == "no_cards"] == ["no_cards"]
    assert "no_cards" not in [notice.kind for notice in second.notices]
    assert b"MEMORY_CARD" not in b"".join(provider.requests)
    assert chat.brief.text(state=second.state) == ""
