"""Calls that the caller runs, with servers that check every rule. The sync twin of this file is generated."""

from __future__ import annotations

from typing import Any

import pytest

from longtalk import AsyncChat, Reply, ToolOutput, external_tool
from longtalk.policies import KeepAll, KeepLast, Memory, TokenBudget
from tests.support import strict_anthropic, strict_chat, strict_gemini, strict_responses

pytestmark = pytest.mark.anyio

PAY = external_tool("pay", "Pay.", {"type": "object", "properties": {"q": {"type": "string"}}})
THINK = {"thinking": {"type": "adaptive"}, "max_tokens": 2000}
SERVERS: dict[str, tuple[Any, str, str, dict[str, Any]]] = {
    "chat": (strict_chat.StrictChat, "openai-chat:m", strict_chat.KEY, {}),
    "anthropic": (strict_anthropic.StrictAnthropic, "anthropic:claude-strict", strict_anthropic.KEY, THINK),
    "gemini": (strict_gemini.StrictGemini, f"gemini:{strict_gemini.MODEL}", strict_gemini.KEY, {}),
    "responses": (strict_responses.StrictResponses, "openai:gpt-strict", strict_responses.KEY, {}),
    "responses by id": (
        *(strict_responses.StrictResponses, "openai:gpt-strict", strict_responses.KEY),
        {"previous_response_id": "auto"},
    ),
    "conversation": (
        *(strict_responses.StrictResponses, "openai:gpt-strict", strict_responses.KEY),
        {"conversation": "auto"},
    ),
}


def lookup(q: str = "") -> str:
    """Look something up."""
    return f"about {q}"


@pytest.mark.parametrize("policy", [KeepAll(), KeepLast(1), TokenBudget(150), Memory()])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", SERVERS)
async def test_an_exchange_of_several_turns_breaks_no_rule(name: str, stream: bool, policy: Any) -> None:
    kind, model, key, options = SERVERS[name]
    with kind() as server:
        url = server.url.removesuffix("/v1") if name == "anthropic" else server.url
        settings = {"tools": [PAY, lookup], "policy": policy, "options": options, "api_key": key}

        async def send(message: Any, state: bytes | None) -> Reply:
            async with AsyncChat(model, base_url=url, **settings) as chat:
                if not stream:
                    return await chat.send(message, state=state, system="S")
                events = [event async for event in chat.stream(message, state=state, system="S")]
                return events[-1].reply  # type: ignore[no-any-return, union-attr]

        turns, state = 0, None
        for text in ("#think #tools x", "Thanks.", "#think #tool #tools y", "Bye."):
            reply = await send(text, state)
            while reply.calls:
                turns += 1
                outputs = [ToolOutput(call.id, "paid") for call in reply.calls]
                reply = await send(outputs, reply.state)
            state = reply.state
            assert reply.finish_reason == "stop"
        assert turns >= 2
        assert server.violations == []
