"""The state of a stored conversation, for a chat that goes on apart from it. The sync twin is generated."""

from __future__ import annotations

import json

import pytest

from longtalk import AsyncChat, AsyncConversation
from longtalk.errors import NotFound
from longtalk.policies import KeepLast
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, says

pytestmark = pytest.mark.anyio


async def test_a_chat_goes_on_after_any_turn_and_the_conversation_stays_as_it_is() -> None:
    provider = AsyncScripted(*map(says, ("One.", "Two.", "Three.", "Apart.", "Also apart.")))
    store = InMemory()
    talk = AsyncConversation("a", model=provider, store=store)
    turns = [(await talk.send(f"Question {number}")).turn_id for number in range(3)]
    before = store.head("", "a")
    chat = AsyncChat(provider)
    await chat.send("And?", state=await talk.state())
    assert [message["content"] for message in json.loads(provider.requests[-1])["messages"]] == [
        "Question 0",
        "One.",
        "Question 1",
        "Two.",
        "Question 2",
        "Three.",
        "And?",
    ]
    await chat.send("Or?", state=await talk.state(turns[0]))
    assert len(json.loads(provider.requests[-1])["messages"]) == 3
    assert store.head("", "a") == before


async def test_the_epoch_of_an_earlier_turn_is_the_one_that_it_had() -> None:
    provider = AsyncScripted(*[says(f"Answer {number}.") for number in range(9)])
    talk = AsyncConversation("a", model=provider, store=InMemory(), policy=KeepLast(2))
    turns = [(await talk.send(f"Question {number}")).turn_id for number in range(7)]
    await AsyncChat(provider, policy=KeepLast(2)).send("And?", state=await talk.state(turns[3]))
    assert json.loads(provider.requests[-1])["messages"] == [
        {"role": "user", "content": "Question 3"},
        {"role": "assistant", "content": "Answer 3."},
        {"role": "user", "content": "And?"},
    ]


async def test_a_turn_that_is_not_there_is_an_error() -> None:
    provider = AsyncScripted(says("One."))
    talk = AsyncConversation("a", model=provider, store=InMemory())
    with pytest.raises(NotFound):
        await talk.state()
    await talk.send("Hi.")
    with pytest.raises(NotFound):
        await talk.state("nothing")
