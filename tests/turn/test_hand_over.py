"""A turn that one process leaves to another. The service does this when it stops, so only async streams have it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from longtalk import AsyncChat, AsyncConversation
from longtalk.conversation.request import TurnRequest
from longtalk.events import Text
from longtalk.stores.base import Store
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, says
from longtalk.transfer.append import read_messages
from longtalk.turn.message import ParsedMessage
from longtalk.wires import WIRES


class Silent(AsyncScripted):
    """A provider whose first answer stops after two pieces, as if the model needed very long."""

    async def stream(self, body: bytes) -> Any:
        pieces = 0
        async for event in super().stream(body):
            yield event
            pieces += b'"content": "' in event or b'"content":"' in event
            if len(self.requests) == 1 and pieces >= 2:
                await asyncio.sleep(3600)


async def leave(stream: Any, *, hands_over: bool) -> None:
    """Read a stream in a task until its first text, and cancel the task."""
    begun = asyncio.Event()

    async def read() -> None:
        async for event in stream:
            if isinstance(event, Text):
                begun.set()

    task = asyncio.ensure_future(read())
    await begun.wait()
    if hands_over:
        stream.hand_over()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def ask(store: Store, provider: AsyncScripted) -> Any:
    said = read_messages([b'{"role": "user", "content": "Tell me."}'], WIRES["openai-chat"])
    talk = AsyncConversation("c", model=provider, store=store)
    return talk.start(TurnRequest(message=ParsedMessage(tuple(said), ()), key="k"))


def test_a_turn_that_is_handed_over_is_left_running_for_the_same_request() -> None:
    async def run() -> None:
        store, provider = InMemory(), Silent(says("Once upon a time."), says("The end."))
        await leave(ask(store, provider), hands_over=True)
        head = store.head("", "c", "main")
        assert head is not None
        assert head.turn is not None
        assert head.turn.status == "running"
        assert head.lease is not None
        assert head.lease.until == 0
        again = ask(store, provider)
        async for _ in again:
            pass
        assert (again.reply.text, again.reply.turn_id) == ("The end.", head.turn.id)
        assert len(store.keyed_turns("", "c")) == 1

    asyncio.run(run())


def test_a_turn_that_is_cancelled_and_not_handed_over_has_ended() -> None:
    async def run() -> None:
        store = InMemory()
        stream = ask(store, Silent(says("Once upon a time.")))
        await leave(stream, hands_over=False)
        head = store.head("", "c", "main")
        assert head is not None
        assert head.turn is not None
        assert head.turn.status == "interrupted"
        assert stream.reply.finish_reason == "interrupted"

    asyncio.run(run())


def test_a_stream_that_has_ended_is_not_changed_by_handing_it_over() -> None:
    async def run() -> None:
        stream = AsyncChat(AsyncScripted(says("Hi."))).stream("x")
        async for _ in stream:
            pass
        stream.hand_over()
        assert stream.reply.text == "Hi."
        assert stream.reply.finish_reason == "stop"

    asyncio.run(run())
