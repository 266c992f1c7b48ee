"""Turns that are stopped half-way. The sync twin of this file is generated."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

import pytest

import longtalk
from longtalk import AsyncChat, AsyncStream
from longtalk._util.concurrency import run_shielded
from longtalk.events import Checkpoint, Done, Text, ToolCall
from longtalk.state.codec import decode
from longtalk.testing import AsyncScripted, says, validate
from longtalk.wires import NAMES

pytestmark = pytest.mark.anyio

STORY = says("Once upon a time", pieces=8)
CALLS = says("Let me see.", calls=[("c1", "lookup", {"q": "a"}), ("c2", "lookup", {"q": "b"})])


def lookup(q: str) -> str:
    """Look something up."""
    return f"about {q}"


async def next_turn_is_valid(state: bytes | None) -> list[bytes]:
    provider = AsyncScripted(says("ok"))
    await AsyncChat(provider, tools=[lookup]).send("next", state=state)
    validate(provider.requests[0])
    return provider.requests


async def test_a_stream_that_is_closed_keeps_what_was_said() -> None:
    async with AsyncChat(AsyncScripted(STORY)).stream("x") as stream:
        async for event in stream:
            if isinstance(event, Text) and event.text == " u":
                break
    assert stream.reply.finish_reason == "interrupted"
    assert stream.reply.text == "Once u"
    entry = decode(stream.reply.state, wires=NAMES)[-1]
    assert (entry.role, entry.mark) == ("assistant", "interrupted")
    await next_turn_is_valid(stream.reply.state)


async def test_a_stream_that_is_closed_before_the_first_word_keeps_the_message() -> None:
    stream = AsyncChat(AsyncScripted(STORY)).stream("x")
    await stream.aclose()
    assert [entry.role for entry in decode(stream.reply.state, wires=NAMES)] == ["user"]
    await next_turn_is_valid(stream.reply.state)


async def test_an_error_in_the_callers_code_keeps_what_was_said() -> None:
    stream = AsyncChat(AsyncScripted(STORY)).stream("x")
    with pytest.raises(ZeroDivisionError):
        async with stream:
            async for event in stream:
                if isinstance(event, Text):
                    raise ZeroDivisionError
    assert stream.reply.text == "On"
    await next_turn_is_valid(stream.reply.state)


async def test_a_stream_that_is_dropped_still_had_its_reply() -> None:
    stream = AsyncChat(AsyncScripted(STORY)).stream("x")
    async for event in stream:
        if isinstance(event, Text):
            break
    reply = stream.reply
    del stream
    gc.collect()
    await next_turn_is_valid(reply.state)


async def test_closing_twice_changes_nothing() -> None:
    stream = AsyncChat(AsyncScripted(STORY)).stream("x")
    await anext(stream)
    await stream.aclose()
    reply = stream.reply
    await stream.aclose()
    assert stream.reply is reply


async def test_a_finished_stream_is_not_interrupted_by_closing_it() -> None:
    async with AsyncChat(AsyncScripted(STORY)).stream("x") as stream:
        async for _ in stream:
            pass
    assert stream.reply.finish_reason == "stop"


async def test_calls_that_were_not_run_are_closed_as_not_run() -> None:
    async with AsyncChat(AsyncScripted(CALLS), tools=[lookup]).stream("x") as stream:
        async for event in stream:
            if isinstance(event, ToolCall):
                break
    results = [entry for entry in stream.reply.entries if entry.role == "tool"]
    assert [entry.mark for entry in results] == ["closed", "closed"]
    assert all(b"Not run" in entry.native for entry in results)
    await next_turn_is_valid(stream.reply.state)


@pytest.mark.parametrize("stop", range(40))
async def test_stopping_after_any_event_leaves_a_valid_conversation(stop: int) -> None:
    seen = 0
    async with AsyncChat(AsyncScripted(CALLS, STORY), tools=[lookup]).stream("x") as stream:
        async for event in stream:
            if seen == stop:
                break
            seen += 1
            if isinstance(event, Checkpoint):
                await next_turn_is_valid(event.state)
    await next_turn_is_valid(stream.reply.state)
    assert stream.reply.finish_reason == ("stop" if seen < stop or isinstance(event, Done) else "interrupted")


PACKAGE = os.path.dirname(longtalk.__file__) + os.sep
ENDINGS = (
    *(each.__name__ for each in (AsyncStream._fail, AsyncStream._end, AsyncStream._keep, run_shielded)),
    *("aclose", "close", "__aexit__", "__exit__"),
)
"""Where a strike does not count: a cancel scope that is struck while it is entered or left stays open, and ends the
whole test when its time is up. An ending that is struck is ended by the next look at `reply`, as after Ctrl-C twice."""


class Struck(BaseException):
    """Like Ctrl-C, but the test runner leaves it alone."""


class Striker:
    """Raises at the n-th line that the library's own code executes, as a signal would."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: Any, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        return self.line

    def line(self, frame: Any, event: str, arg: Any) -> Any:
        if event == "line" and frame.f_code.co_name not in ENDINGS:
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise Struck
        return self.line


async def struck_at(at: int) -> bool:
    """Play a turn with tools and strike it; whether it was hit before its end. Whatever happens, nothing breaks."""
    stream = AsyncChat(AsyncScripted(CALLS, STORY), tools=[lookup]).stream("x")
    before = sys.gettrace()
    striker = Striker(at)
    said = ""
    sys.settrace(striker)
    try:
        async for event in stream:
            if isinstance(event, Text):
                said += event.text
    except Struck:
        pass
    finally:
        sys.settrace(before)
    reply = stream.reply
    text = "".join(
        json_text for entry in reply.entries if entry.role == "assistant" for json_text in [stream_text(entry.native)]
    )
    assert text.startswith(said)
    await next_turn_is_valid(reply.state)
    await stream.aclose()
    return striker.left <= 0


def stream_text(native: bytes) -> str:
    from longtalk.wires.openai_chat.wire import WIRE

    return WIRE.view(native).text


@pytest.mark.slow
async def test_a_strike_at_any_line_leaves_a_valid_conversation_that_has_all_that_was_shown() -> None:
    # A strike inside a collection of other tests' garbage would be ignored, with a warning.
    gc.collect()
    gc.disable()
    try:
        at = 1
        while await struck_at(at):
            at += 1 if at < 400 else 7
    finally:
        gc.enable()
    assert at > 300
