"""Test that no answer is sent again with a memory card that states what was corrected or forgotten."""

from __future__ import annotations

import json

import pytest

from longtalk import Conversation, Memory
from longtalk.memory.brief.lines import Line
from longtalk.policies import KeepAll
from longtalk.reply import Reply
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted, says, validate
from longtalk.wires import HTTP_WIRES
from tests.support.card_model import CardModel, make_answer

CARD = '{"+facts":["The strings cost 62 euros"]}'
LONG = "It is said that the arm should be heavy and slow near the bridge of the violin. " * 4
SMALL = Memory(recall=0, limit=1_000, recent=1_000)


def talk(provider: Scripted, policy: Memory = SMALL, store: InMemory | None = None) -> Conversation:
    return Conversation("lesson", model=provider, store=store or InMemory(), policy=policy)


def talk_until_noted(held: Conversation) -> tuple[str, Line]:
    """Talk until an answer has a memory card. Return the id of its turn, and the line that it states."""
    for number in range(20):
        reply = held.send(f"Number {number}: {LONG}")
        if reply.brief:
            return reply.turn_id, reply.brief[-1]
    raise AssertionError("no card")


@pytest.mark.parametrize("wire", sorted(HTTP_WIRES))
@pytest.mark.parametrize("how", ["replace", "revoke"])
def test_a_pinned_answer_is_sent_without_the_card_that_states_the_old_line(how: str, wire: str) -> None:
    provider = CardModel(make_answer("Good strings.", CARD), wire=wire)
    held = talk(provider)
    turn, line = talk_until_noted(held)
    held.pin(turn)
    if how == "replace":
        held.brief.replace(line.id, "The strings cost 68 euros")
    else:
        held.brief.revoke(line.id)
    for message in ("And now?", "Go on."):
        held.send(message)
        sent = provider.requests[-1].decode()
        validate(provider.requests[-1], wire=wire)
        assert "62 euros" not in sent
        assert "Good strings." in sent
        assert ("68 euros" in sent) == (how == "replace")
    assert "62 euros" in held.export("json")


def test_recent_exchanges_stay_when_a_line_of_their_cards_is_corrected() -> None:
    provider = CardModel(make_answer("Good strings.", CARD))
    held = talk(provider, Memory(recall=0))
    turn, line = talk_until_noted(held)
    held.brief.replace(line.id, "The strings cost 68 euros")
    reply = held.send("And now?")
    sent = provider.requests[-1].decode()
    assert "62 euros" not in sent
    assert "Good strings." in sent
    assert reply.context is not None
    (run,) = [run for run in reply.context.manifest if run.reason == "memory card left out"]
    assert (held.history()[run.first].turn, run.verdict) == (turn, "sent")


def list_gone(reply: Reply) -> set[int]:
    """Return the positions of the messages that a request leaves out."""
    assert reply.context is not None
    return {i for run in reply.context.manifest if run.is_gone for i in range(run.first, run.last + 1)}


def test_only_the_exchange_whose_card_states_a_forgotten_line_leaves_the_request() -> None:
    provider = CardModel(make_answer("Good strings.", CARD))
    held = talk(provider, Memory(recall=0))
    turn, line = talk_until_noted(held)
    before = list_gone(held.send("And now?"))
    noted = {entry.position for entry in held.history() if entry.turn == turn}
    earlier = {i for i in range(min(noted)) if i not in before}
    assert before.isdisjoint(noted)
    assert earlier
    held.brief.revoke(line.id)
    for message in ("And then?", "Go on."):
        reply = held.send(message)
        assert list_gone(reply) == before | noted
        assert "62 euros" not in provider.requests[-1].decode()
        (run,) = [run for run in reply.context.manifest if run.first in noted]  # type: ignore[union-attr]
        assert {*range(run.first, run.last + 1)} == noted
        assert (run.verdict, run.reason) == ("left_out", "noted a forgotten line")


def test_a_call_of_the_memory_tool_is_sent_without_what_was_corrected() -> None:
    noted = says("", calls=[("c1", "update_memory", {"changes": {"fact": ["The strings cost 62 euros"]}})])
    provider = Scripted(noted, says("Good strings."), says("Fine."), says("Fine."))
    held = talk(provider, Memory(recall=0, capture="tool"))
    held.send("What do you think of them?")
    line = next(line for line in held.brief.lines() if "62" in line.text)
    held.brief.replace(line.id, "The strings cost 68 euros")
    held.send("And now?")
    sent = provider.requests[-1].decode()
    validate(provider.requests[-1])
    assert "62 euros" not in sent
    assert "68 euros" in sent
    assert "Good strings." in sent


def test_another_policy_sends_the_answer_as_it_came() -> None:
    provider = CardModel(make_answer("Good strings.", CARD))
    held = talk(provider, store=(store := InMemory()))
    _, line = talk_until_noted(held)
    held.brief.replace(line.id, "The strings cost 68 euros")
    Conversation("lesson", model=provider, store=store, policy=KeepAll()).send("And now?")
    answers = [each["content"] for each in json.loads(provider.requests[-1])["messages"] if each["role"] == "assistant"]
    assert answers[-1].endswith(f"<MEMORY_CARD>{CARD}</MEMORY_CARD>")
