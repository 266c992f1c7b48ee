"""Counting the next request, and shortening a conversation on request. The sync twin is generated."""

from __future__ import annotations

import json
from typing import Any

import pytest

from longtalk import AsyncChat, external_tool
from longtalk.policies import KeepAll, KeepLast, Memory, Policy, Summarize
from longtalk.state.codec import decode
from longtalk.testing import AsyncScripted, says, validate
from longtalk.turn.message import ToolOutput
from longtalk.wires import HTTP_WIRES, NAMES

pytestmark = pytest.mark.anyio

LONG = "word " * 120
SUMMARY = "Ada plays the violin and asked five questions about it."


async def hold(policy: Policy, wire: str = "openai-chat") -> tuple[AsyncChat, AsyncScripted, bytes]:
    """Return a chat with six exchanges, and its state."""
    answers = [says(f"Answer {number}. {LONG}", wire=wire) for number in range(6)]
    provider = AsyncScripted(*answers, says(SUMMARY, wire=wire), says("Last.", wire=wire), wire=HTTP_WIRES[wire])
    chat = AsyncChat(provider, policy=policy)
    state = b""
    for number in range(6):
        state = (await chat.send(f"Question {number}? {LONG}", state=state)).state
    return chat, provider, state


def roles(state: bytes) -> list[str]:
    return [entry.role for entry in decode(state, wires=NAMES)]


@pytest.mark.parametrize("wire", HTTP_WIRES)
async def test_a_summary_stands_for_what_the_policy_leaves_out(wire: str) -> None:
    chat, provider, state = await hold(Summarize(4_000, to=800), wire)
    done = await chat.compact(state=state)
    assert roles(done.state)[0] == "event"
    assert len(done.state) < len(state) / 2
    assert done.usage.input > 0
    await chat.send("Go on.", state=done.state)
    validate(provider.requests[-1], wire=wire)
    assert SUMMARY.encode() in provider.requests[-1]
    assert b"Question 0?" not in provider.requests[-1]
    assert b"Question 5?" in provider.requests[-1]


@pytest.mark.parametrize(("policy", "kept"), [(KeepAll(), 12), (KeepLast(4), 4)])
async def test_a_policy_without_summaries_makes_no_model_call(policy: Policy, kept: int) -> None:
    chat, provider, state = await hold(policy)
    done = await chat.compact(state=state)
    assert (len(roles(done.state)), len(provider.requests), done.usage.input) == (kept, 6, 0)


async def test_memory_keeps_a_summary_of_what_no_card_covers() -> None:
    _, provider, state = await hold(KeepAll())
    done = await AsyncChat(provider, policy=Memory(recent=300)).compact(state=state)
    (head,) = [entry for entry in decode(done.state, wires=NAMES) if entry.kind == "event"]
    assert SUMMARY.encode() in head.native
    assert len(roles(done.state)) < 12


async def test_calls_that_wait_for_the_caller_still_wait_afterwards() -> None:
    pay = external_tool("pay", "Pay.", {"type": "object", "properties": {}})
    provider = AsyncScripted(says("Yes."), says(None, calls=[("c1", "pay", {})]), says("Paid."))
    chat = AsyncChat(provider, policy=KeepLast(1), tools=[pay])
    state = (await chat.send("Ready?")).state
    state = (await chat.send("Pay.", state=state)).state
    done = await chat.compact(state=state)
    reply = await chat.send([ToolOutput("c1", "done")], state=done.state)
    assert reply.text == "Paid."
    assert [message["role"] for message in json.loads(provider.requests[-1])["messages"]] == [
        "user",
        "assistant",
        "tool",
    ]


async def test_counting_sends_nothing_and_grows_with_what_would_be_sent() -> None:
    chat, provider, state = await hold(KeepAll())
    before = len(provider.requests)
    alone = await chat.count_tokens("Hi.")
    with_system = await chat.count_tokens("Hi.", system=LONG)
    with_history = await chat.count_tokens("Hi.", state=state)
    assert alone < with_system < with_history
    assert len(provider.requests) == before


async def test_the_count_is_that_of_the_request_under_the_policy() -> None:
    counts: dict[str, Any] = {}
    for policy in (KeepAll(), KeepLast(2)):
        chat, _, state = await hold(policy)
        counts[repr(policy)] = await chat.count_tokens("Hi.", state=state)
    short, long = sorted(counts.values())
    assert short < long / 2
