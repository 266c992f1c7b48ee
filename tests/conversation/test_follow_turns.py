"""Turns that follow a given turn, and messages in the exact JSON of another wire."""

from __future__ import annotations

from typing import Any

import pytest

from longtalk import AsyncConversation
from longtalk.conversation.request import TurnRequest
from longtalk.errors import InputError, NotFound
from longtalk.events import Done, Started
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, says, validate
from longtalk.transfer.append import read_messages
from longtalk.turn.message import ParsedMessage
from longtalk.wires import HTTP_WIRES

pytestmark = pytest.mark.anyio


async def play(talk: AsyncConversation, given: TurnRequest) -> tuple[list[Any], Any]:
    events = [event async for event in talk.start(given)]
    return events, events[-1].reply


async def test_a_started_turn_says_when_its_message_is_saved() -> None:
    store = InMemory()
    talk = AsyncConversation("a", model=AsyncScripted(says("Hi.")), store=store)
    events = talk.start(TurnRequest(message="Hello."))
    first = await anext(events)
    head = store.head("", "a")
    assert head is not None
    assert head.turn is not None
    assert (first, head.turn.status) == (Started(head.turn.id, "main", head.turn.started), "running")
    assert [type(event) async for event in events][-1] is Done


async def test_a_turn_that_follows_the_last_one_stays_on_the_branch() -> None:
    talk = AsyncConversation("a", model=AsyncScripted(says("One."), says("Two.")), store=InMemory())
    first = await talk.send("1")
    await play(talk, TurnRequest(message="2", after=first.turn_id))
    assert await talk.branches() == ["main"]
    assert [entry.text for entry in await talk.history()] == ["1", "One.", "2", "Two."]


async def test_a_note_between_two_turns_does_not_part_them() -> None:
    talk = AsyncConversation("a", model=AsyncScripted(says("One."), says("Two.")), store=InMemory())
    first = await talk.send("1")
    await talk.note("The bell rings.")
    await play(talk, TurnRequest(message="2", after=first.turn_id))
    assert await talk.branches() == ["main"]


async def test_a_turn_that_follows_an_earlier_one_is_on_a_branch_of_its_own() -> None:
    provider = AsyncScripted(says("One."), says("Two."), says("Other."))
    talk = AsyncConversation("a", model=provider, store=InMemory())
    first = await talk.send("1")
    await talk.send("2")
    _, reply = await play(talk, TurnRequest(message="2b", after=first.turn_id, key="k"))
    assert [notice.kind for notice in reply.notices] == ["branched"]
    assert b"Two." not in provider.requests[-1]
    assert [entry.text for entry in await talk.history()] == ["1", "One.", "2", "Two."]
    again, _ = await play(talk, TurnRequest(message="2b", after=first.turn_id, key="k"))
    assert [type(event).__name__ for event in again] == ["Started", "Text", "Done"]
    assert len(provider.requests) == 3


async def test_a_turn_can_not_follow_one_that_is_not_there() -> None:
    talk = AsyncConversation("a", model=AsyncScripted(says("One.")), store=InMemory())
    await talk.send("1")
    with pytest.raises(NotFound):
        await play(talk, TurnRequest(message="2", after="nothing"))


@pytest.mark.parametrize("own", HTTP_WIRES)
async def test_a_message_of_another_wire_is_kept_as_it_came_and_sent_in_the_provider_s_form(own: str) -> None:
    native = b'{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello  \\u00e9"}],"x":1}'
    entries = read_messages([native], HTTP_WIRES["openai-responses"])
    provider = AsyncScripted(says("Hi.", wire=own), says("Again.", wire=own), wire=HTTP_WIRES[own])
    talk = AsyncConversation("a", model=provider, store=InMemory())
    given = TurnRequest(message=ParsedMessage(tuple(entries)), key="k")
    await play(talk, given)
    await talk.send("More.")
    for request in provider.requests:
        validate(request, wire=own)
        assert "Hello  é".encode() in request or b"Hello  \\u00e9" in request
    assert (await talk.history())[0].native == native
    events, _ = await play(talk, given)
    assert (len(provider.requests), type(events[-1])) == (2, Done)


async def test_a_message_that_edits_an_earlier_one_is_answered_on_a_new_branch() -> None:
    talk = AsyncConversation("a", model=AsyncScripted(says("One."), says("Two.")), store=InMemory())
    first = await talk.send("1")
    events, reply = await play(talk, TurnRequest(message="1b", edits=first.turn_id, turn="chosenturnid", key="k"))
    assert (events[0].turn, events[0].branch) == ("chosenturnid", reply.branch)
    assert reply.branch != "main"
    assert [entry.text for entry in await talk._archive.history("a", branch=reply.branch)] == ["1b", "Two."]
    assert [entry.text for entry in await talk.history()] == ["1", "One."]


async def test_a_turn_that_regenerates_an_answer_is_on_a_new_branch_and_is_repeated_by_its_key() -> None:
    provider = AsyncScripted(says("One."), says("Two."))
    talk = AsyncConversation("a", model=provider, store=InMemory())
    first = await talk.send("1")
    request = TurnRequest(message=None, regenerates=first.turn_id, turn="chosenturnid", key="k")
    _, reply = await play(talk, request)
    assert [entry.text for entry in await talk._archive.history("a", branch=reply.branch)] == ["1", "Two."]
    events, again = await play(talk, request)
    assert (events[0].turn, again.text, again.branch) == ("chosenturnid", "Two.", reply.branch)
    assert len(await talk.branches()) == 2


def test_a_request_names_one_place_only() -> None:
    with pytest.raises(InputError, match="Only one of"):
        TurnRequest(message="1", edits="a", after="b")
    with pytest.raises(InputError, match="leave the message out"):
        TurnRequest(message="1", regenerates="a")
