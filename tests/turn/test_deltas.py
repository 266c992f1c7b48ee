"""Reasoning and pieces of calls in a streamed turn. The sync twin of this file is generated."""

from __future__ import annotations

from typing import Any

import pytest

from longtalk import AsyncChat, Memory
from longtalk.events import Reasoning, Text, ToolCall, ToolCallDelta
from longtalk.testing import AsyncScripted, says
from longtalk.wires import WIRES

pytestmark = pytest.mark.anyio


def lookup(q: str) -> str:
    """Look something up."""
    return f"about {q}"


async def collect(stream: Any) -> list[Any]:
    return [event async for event in stream]


async def test_a_stream_shows_reasoning_apart_from_the_text() -> None:
    provider = AsyncScripted(says("Yes.", fields={"reasoning_content": "Is it so?"}))
    events = await collect(AsyncChat(provider).stream("x"))
    assert [event for event in events if isinstance(event, Reasoning)] == [Reasoning("Is it so?", is_raw=True)]
    assert "".join(event.text for event in events if isinstance(event, Text)) == "Yes."


@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic"])
async def test_the_pieces_of_a_call_come_before_the_call(wire: str) -> None:
    call = says(calls=[("c1", "lookup", {"q": "bows"})], wire=wire)
    provider = AsyncScripted(call, says("Found.", wire=wire), wire=WIRES[wire])
    events = await collect(AsyncChat(provider, tools=[lookup]).stream("x"))
    kinds = [type(event) for event in events if isinstance(event, ToolCall | ToolCallDelta)]
    assert kinds == [*[ToolCallDelta] * (len(kinds) - 1), ToolCall]
    pieces = [event for event in events if isinstance(event, ToolCallDelta)]
    whole = next(event for event in events if isinstance(event, ToolCall))
    assert {(piece.index, piece.id, piece.name) for piece in pieces} == {(0, whole.id, whole.name)}
    assert "".join(piece.arguments for piece in pieces).encode() == whole.arguments


@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic"])
async def test_the_tool_that_updates_the_brief_is_not_shown(wire: str) -> None:
    update = says(calls=[("c", "update_memory", {"changes": {"goal": "Sing"}})], wire=wire)
    provider = AsyncScripted(update, says("All right.", wire=wire), wire=WIRES[wire])
    chat = AsyncChat(provider, policy=Memory(recall=0, limit=0, recent=0, capture="tool"))
    events = await collect(chat.stream("Hello"))
    assert b"update_memory" in provider.requests[0]
    assert not [event for event in events if isinstance(event, ToolCallDelta | ToolCall)]
