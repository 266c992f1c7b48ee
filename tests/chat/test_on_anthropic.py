"""Conversations over the Anthropic wire with a server that checks every rule. The sync twin is generated."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from longtalk import AsyncChat
from longtalk.errors import (
    Overloaded,
    RequestRefused,
    StreamCut,
    TurnFailed,
    Unreachable,
)
from longtalk.events import Checkpoint, Done, Text, ToolCall
from longtalk.policies import KeepLast
from longtalk.state.codec import decode
from longtalk.wires import NAMES
from tests.support.matrix import thin
from tests.support.strict_anthropic import KEY, OTHER_KEY, Fault, StrictAnthropic

pytestmark = pytest.mark.anyio

THINK = {"thinking": {"type": "adaptive"}, "max_tokens": 2000}


@pytest.fixture
def server() -> Iterator[StrictAnthropic]:
    with StrictAnthropic() as strict:
        yield strict


def chat(server: StrictAnthropic, **settings: Any) -> AsyncChat:
    settings = {"tools": [lookup, fetch], "options": THINK, "api_key": KEY, **settings}
    return AsyncChat("anthropic:claude-strict", base_url=server.url.removesuffix("/v1"), **settings)


def lookup(q: str = "") -> str:
    """Look something up."""
    return f"about {q}"


def fetch(q: str = "") -> str:
    """Fetch something."""
    return "   " if "blank" in q else f"fetched {q}"


async def test_a_conversation_with_thinking_and_tools_goes_on(server: StrictAnthropic) -> None:
    async with chat(server) as c:
        first = await c.send("#tools What is a bow?", system="S", instruction="It is noon.")
        second = await c.send("#think And a string?", state=first.state, system="S")
        third = await c.send("Thank you.", state=second.state, system="S")
    assert server.violations == []
    assert server.dropped == []
    assert third.finish_reason == "stop"
    assert b"It is noon." in server.requests[-1]
    assert third.usage.cached > 0


@pytest.mark.parametrize("flags", ["#odd #think", "#odd #tool", "#odd #server", "#redacted", "#odd #think #tools"])
@pytest.mark.parametrize("stream", [False, True])
async def test_blocks_come_back_byte_for_byte(server: StrictAnthropic, flags: str, stream: bool) -> None:
    async with chat(server) as c:
        if stream:
            events = [event async for event in c.stream(f"{flags} x")]
            state = events[-1].reply.state  # type: ignore[union-attr]
        else:
            state = (await c.send(f"{flags} x")).state
        await c.send("y", state=state)
    assert server.violations == []
    *issued, _ = server.issued
    assert issued
    assert [block for block in issued if block not in server.requests[-1]] == []


async def test_a_changed_preamble_leaves_the_thinking_behind_and_says_so(server: StrictAnthropic) -> None:
    async with chat(server) as c:
        first = await c.send("#think #tool x", system="One.")
        second = await c.send("#think y", state=first.state, system="Two.")
        third = await c.send("z", state=second.state, system="Two.")
    assert server.violations == []
    assert [notice.kind for notice in second.notices] == ["preamble_changed"]
    kept = [block["type"] for m in server.body()["messages"] for block in m["content"]]
    # What was thought under the first text is gone, what was thought under the second is there.
    assert kept.count("thinking") == 1
    assert decode(third.state, wires=NAMES)[1].native.count(b'"thinking"') >= 1


async def test_going_back_to_the_first_preamble_brings_its_thinking_back(server: StrictAnthropic) -> None:
    async with chat(server) as c:
        first = await c.send("#think x", system="One.")
        await c.send("y", state=first.state, system="Two.")
        await c.send("y", state=first.state, system="One.")
    assert server.violations == []
    assert [b'"thinking"' in request.split(b'"messages"')[1] for request in server.requests] == [False, False, True]


@pytest.mark.parametrize("thinking", [{"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1024}])
async def test_a_turn_that_goes_on_under_another_preamble_keeps_its_rounds_and_repeats_none(
    server: StrictAnthropic, thinking: dict[str, Any]
) -> None:
    async with chat(server, options={**THINK, "thinking": thinking}) as c:
        checkpoints = [
            event async for event in c.stream("#think #tool #tools x", system="One.") if isinstance(event, Checkpoint)
        ]
        before = len(server.requests)
        reply = await c.send(None, state=checkpoints[1].state, system="Two.")
    assert server.violations == []
    assert reply.finish_reason == "stop"
    resumed = server.body(before)
    assert [block["type"] for message in resumed["messages"] for block in message["content"]] == [
        *("text", "tool_use", "tool_result"),
    ]
    # Without the thinking that a budget requires, the provider accepts only a request that asks for none.
    assert resumed["thinking"] == (thinking if thinking["type"] == "adaptive" else {"type": "disabled"})
    assert len(server.requests) == before + 2


async def test_thinking_behind_a_prefix_that_is_dropped_is_left_out(server: StrictAnthropic) -> None:
    state: bytes | None = None
    async with chat(server, policy=KeepLast(2, sliding=True)) as c:
        for turn in range(8):
            flags = ["#think", "#think #tool", "#tools #redacted"][turn % 3]
            state = (await c.send(f"{flags} {turn}", state=state, system="S")).state
    assert server.violations == []
    assert server.dropped == []
    assert len(server.body()["messages"]) < 14


async def test_another_account_gets_no_thinking_of_the_first(server: StrictAnthropic) -> None:
    async with chat(server) as c:
        first = await c.send("#think x")
    async with chat(server, api_key=OTHER_KEY) as c:
        await c.send("y", state=first.state)
    assert (server.violations, server.dropped) == ([], [])
    assert b'"signature"' not in server.requests[-1]


async def test_thinking_that_the_server_refuses_is_left_out_permanently(
    server: StrictAnthropic,
) -> None:
    async with chat(server) as c:
        first = await c.send("#think x")
        server.faults.append(
            Fault.error(400, "messages.1.content.0: Invalid `signature` in `thinking` block. It is bound to another.")
        )
        second = await c.send("#think y", state=first.state)
        third = await c.send("z", state=second.state)
    assert [notice.kind for notice in second.notices] == ["server_refused"]
    assert [request.split(b'"messages"')[1].count(b'"signature"') for request in server.requests] == [0, 1, 0, 1]
    assert third.notices == ()


async def test_a_provider_that_pauses_is_asked_to_go_on(server: StrictAnthropic) -> None:
    async with chat(server) as c:
        reply = await c.send("#pause #server x")
        await c.send("y", state=reply.state)
    assert server.violations == []
    assert reply.finish_reason == "stop"


async def test_a_turn_that_was_cut_off_in_a_pause_goes_on(server: StrictAnthropic) -> None:
    async with chat(server) as c:
        async with c.stream("#pause #server x") as stream:
            async for event in stream:
                if isinstance(event, Checkpoint):
                    break
        reply = await c.send(None, state=event.state)  # type: ignore[union-attr]
    assert server.violations == []
    assert reply.finish_reason == "stop"


async def test_an_answer_cut_by_length_goes_on(server: StrictAnthropic) -> None:
    async with chat(server) as c:
        reply = await c.send("#long x")
        assert reply.finish_reason == "length"
        await c.send("y", state=reply.state)
    assert server.violations == []


async def test_an_empty_result_is_accepted(server: StrictAnthropic) -> None:
    def silent() -> str:
        """Says nothing."""
        return "  "

    async with chat(server, tools=[silent]) as c:
        await c.send("#tool x")
    assert server.violations == []


async def test_events_and_instructions_are_accepted_everywhere(server: StrictAnthropic) -> None:
    async with chat(server) as c:
        state = await c.note("Ada is here", source="door")
        for i in range(3):
            reply = await c.send(f"#think #tool {i}", state=state, system="S", instruction=f"turn {i}")
            state = await c.note(f"event {i}", state=reply.state)
    assert server.violations == []
    assert server.dropped == []


@pytest.mark.parametrize("stop", range(0, 60, 3))
async def test_stopping_anywhere_leaves_a_valid_conversation(server: StrictAnthropic, stop: int) -> None:
    async with chat(server) as c:
        seen = 0
        async with c.stream("#think #tools #server #tool x", system="S") as stream:
            async for event in stream:
                seen += 1
                if seen > stop or isinstance(event, Done):
                    break
        reply = await c.send("#think y", state=stream.reply.state, system="S")
        await c.send("z", state=reply.state, system="S")
    assert server.violations == []


# Each turn sends all before it, so the cost grows with the square of their number.
@pytest.mark.parametrize("turns", thin([60, 150], 60))
async def test_a_long_conversation_breaks_no_rule(server: StrictAnthropic, turns: int) -> None:
    story = random.Random(7)
    flags = [
        "",
        "#think",
        "#tool",
        "#tools",
        "#server",
        "#redacted",
        "#long",
        "#pause #server",
        "#odd",
        "#think #tool #tools",
    ]
    state: bytes | None = None
    system = "You teach the violin."
    async with chat(server) as c:
        for turn in range(turns):
            message = f"{' '.join(story.sample(flags, 2))} turn {turn}"
            system = f"You teach the viola, {turn}." if turn % 60 == 59 else system
            instruction = f"It is {turn} o'clock." if turn % 7 == 0 else None
            kind = story.choice(["send", "stream", "stop", "note"])
            if kind == "note":
                state = await c.note(f"event {turn}", state=state)
            if kind in ("send", "note"):
                state = (await c.send(message, state=state, system=system, instruction=instruction)).state
                continue
            left = story.randrange(40) if kind == "stop" else 10**6
            async with c.stream(message, state=state, system=system, instruction=instruction) as stream:
                async for _ in stream:
                    left -= 1
                    if left < 0:
                        break
            state = stream.reply.state
    assert server.violations == []
    assert server.dropped == []
    assert len(server.requests) >= turns


# Faults: whatever happens at whatever place, nothing is lost and the next turn is valid

FAULTS = {
    "busy": (Fault.error(429, "slow down", **{"retry-after": "0"}), None),
    "trouble": (Fault.error(500, "sorry"), None),
    "overloaded": (Fault.error(529, "Overloaded"), None),
    "reset": (Fault.cut(0), None),
    "page": (Fault.page(), None),
    "refused": (Fault.error(400, "no such thing"), RequestRefused),
    "too long": (Fault.error(400, "prompt is too long: 210000 tokens > 200000 maximum"), None),
    "nonsense": (Fault.nonsense(), TurnFailed),
    "wrong type": (Fault.content_type("text/html"), None),
    "cut": (Fault.cut(300), None),
    "cut later": (Fault.cut(700), None),
    "stall": (Fault.stall(60), Unreachable),
    "stall later": (Fault.stall(60, 400), (Unreachable, StreamCut)),
    "error event": (Fault.error_event(2), None),
    "error event later": (Fault.error_event(9), None),
}


# test_faults.py tries every place on another wire: where in an exchange a fault comes is the business of the turn.
@pytest.mark.parametrize("position", thin([0, 1, 2], 1))
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_at_any_place_loses_nothing(
    server: StrictAnthropic, monkeypatch: pytest.MonkeyPatch, name: str, stream: bool, position: int
) -> None:
    if name.startswith("stall"):
        # Long enough for a server on a busy machine to send all that comes before the stall.
        monkeypatch.setattr("longtalk.providers.http.provider.SILENCE_SECONDS", 2.0)
    ran = []

    def count(q: str = "") -> str:
        """Counts."""
        ran.append(q)
        return q

    fault, expected = FAULTS[name]
    async with chat(server, tools=[count]) as c:
        before = await c.send("Hello.", system="S")
        state: bytes | None = before.state
        server.faults.extend([*[Fault()] * position, fault])
        shown = ""
        try:
            if stream:
                async for event in c.stream("#think #tool #tool x", state=state, system="S"):
                    shown += event.text if isinstance(event, Text) else ""
                    if isinstance(event, Done):
                        state = event.reply.state
            else:
                state = (await c.send("#think #tool #tool x", state=state, system="S")).state
        except TurnFailed as problem:
            assert expected is None or isinstance(problem, expected)
            state = problem.state
            kept = decode(state or b"", wires=NAMES)
            assert len(kept) >= 2
            if problem.partial is None:
                assert (state, ran) == (before.state, [])
            else:
                assert sum(entry.role == "tool" for entry in kept) >= len(ran)
        else:
            assert expected is None or name in ("wrong type", "stall later")
        server.faults.clear()
        finished = len(ran)
        reply = await c.send("#think y", state=state, system="S")
        await c.send("z", state=reply.state, system="S")
    assert server.violations == []
    assert len(ran) == finished


async def test_an_error_inside_a_stream_is_typed_and_keeps_what_was_said(server: StrictAnthropic) -> None:
    server.faults.append(Fault.error_event(8))
    async with chat(server) as c:
        with pytest.raises(Overloaded) as caught:
            async for _ in c.stream("Tell me a long story, please, about a violin and its bow."):
                pass
    assert caught.value.partial is not None


async def test_a_conversation_of_another_wire_goes_on(server: StrictAnthropic) -> None:
    from longtalk.testing import AsyncScripted, says

    state = (await AsyncChat(AsyncScripted(says("a"))).send("x")).state
    async with chat(server) as c:
        reply = await c.send("#thinking y", state=state)
        assert "converted" in [notice.kind for notice in reply.notices]
        again = await c.send("#thinking z", state=reply.state)
    assert "converted" not in [notice.kind for notice in again.notices]


async def test_a_stream_tells_its_calls(server: StrictAnthropic) -> None:
    async with chat(server) as c:
        events = [event async for event in c.stream("#tools x")]
    calls = [event for event in events if isinstance(event, ToolCall)]
    assert len(calls) == 2
    assert all(isinstance(json.loads(call.arguments), dict) for call in calls)
