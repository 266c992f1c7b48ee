"""Conversations that outgrow the model's window go on, in the same call. The sync twin of this file is generated."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from longtalk import AsyncChat, KeepLast, TokenBudget
from longtalk.context.epochs import read_windows
from longtalk.errors import ContextOverflow, InputError, PinRefused
from longtalk.events import Done, Notice
from longtalk.policies import Compactor, DropOldest, OverTokens, Size, WindowShare
from longtalk.state.codec import decode
from longtalk.testing import AsyncScripted, says, validate
from longtalk.wires import HTTP_WIRES, NAMES, WIRES
from tests.support.matrix import EVERY_WIRE

pytestmark = pytest.mark.anyio

WORDS = "So many words about bows and strings. "


def too_long(window: int | None = None, tokens: int | None = None) -> ContextOverflow:
    error = ContextOverflow("too long", status=400, body=b"{}")
    error.window, error.tokens = window, tokens
    return error


def sent(provider: Any, i: int = -1) -> list[dict[str, Any]]:
    validate(provider.requests[i], wire=provider.wire.name)
    body = json.loads(provider.requests[i])
    messages: list[dict[str, Any]] = next(body[name] for name in ("messages", "input", "contents") if name in body)
    return messages


def kinds(reply: Any) -> list[str]:
    return [notice.kind for notice in reply.notices]


async def talk(chat: Any, turns: int, state: bytes | None = None) -> Any:
    for number in range(turns):
        reply = await chat.send(f"{number}: {WORDS * 10}", state=state)
        state = reply.state
    return reply


@pytest.mark.parametrize("refusal", [too_long(2_000, 2_500), too_long(2_000), too_long(None, 2_500), too_long()])
async def test_a_refusal_teaches_the_window_and_the_same_call_goes_on(refusal: ContextOverflow) -> None:
    provider = AsyncScripted(*[says(WORDS * 5)] * 12, refusal, says("Here we are."), says("And on."))
    chat = AsyncChat(provider)
    before = await talk(chat, 12)
    reply = await chat.send("Still there?", state=before.state)
    assert reply.text == "Here we are."
    assert "window" in kinds(reply)
    assert 1 < len(sent(provider)) < len(sent(provider, -2))
    assert sent(provider)[-1]["content"] == "Still there?"
    assert len(decode(reply.state, wires=NAMES)) == 26
    # It is remembered: the next call is not refused again.
    reply = await chat.send("And now?", state=reply.state)
    assert reply.text == "And on."
    provider.check()


async def test_a_stream_goes_on_too_and_tells_before_the_answer() -> None:
    provider = AsyncScripted(*[says(WORDS * 5)] * 12, too_long(2_000, 2_500), says("Here we are."))
    chat = AsyncChat(provider)
    before = await talk(chat, 12)
    events = [event async for event in chat.stream("Still there?", state=before.state)]
    assert isinstance(events[0], Notice)
    assert events[0].kind == "window"
    assert isinstance(events[-1], Done)
    assert events[-1].reply.text == "Here we are."


async def test_a_request_that_is_too_long_is_retried_once() -> None:
    provider = AsyncScripted(*[says(WORDS * 5)] * 6, too_long(2_000, 2_500), too_long(900, 1_000))
    chat = AsyncChat(provider)
    before = await talk(chat, 6)
    with pytest.raises(ContextOverflow) as caught:
        await chat.send("Still there?", state=before.state)
    assert caught.value.window == 900
    assert caught.value.state == before.state
    provider.check()


async def test_a_known_window_is_never_exceeded() -> None:
    provider = AsyncScripted(*[says(WORDS * 5)] * 40, window=2_000)
    chat = AsyncChat(provider)
    state = None
    for number in range(40):
        reply = await chat.send(f"{number}: {WORDS * 10}", state=state)
        state = reply.state
        assert reply.context.tokens <= 2_000
    assert len(decode(reply.state, wires=NAMES)) == 80


async def test_room_is_kept_for_the_answer() -> None:
    provider = AsyncScripted(*[says("ok")] * 40, window=2_000)
    chat = AsyncChat(provider, options={"max_tokens": 1_200})
    state = None
    for number in range(20):
        reply = await chat.send(f"{number}: {WORDS * 10}", state=state)
        state = reply.state
        # More than half of a window is never kept free.
        assert reply.context.tokens <= 1_000


@pytest.mark.parametrize("wire", EVERY_WIRE)
async def test_ten_thousand_events_without_a_turn(wire: str) -> None:
    provider = AsyncScripted(says("I see.", wire=wire), wire=WIRES[wire], window=8_000)
    chat = AsyncChat(provider)
    state = await chat.note("event 0")
    transcript = decode(state, wires=NAMES)
    event = transcript[0]
    for number in range(1, 10_000):
        native = event.native.replace(b"event 0", b"event %d" % number)
        transcript = transcript.append_to_turn(f"n{number}", [msgspec.structs.replace(event, native=native)])
    from longtalk.state.codec import encode

    reply = await chat.send("What happened?", state=encode(transcript))
    assert kinds(reply) == ["shortened"]
    assert "events are left out" in reply.notices[0].text
    texts = json.dumps(sent(provider))
    assert "event 0\\n" in texts
    assert "event 9999\\n" in texts
    assert "event 5000\\n" not in texts
    assert "What happened?" in texts
    assert reply.context.tokens <= 8_000
    assert len(decode(reply.state, wires=NAMES)) == 10_002


@pytest.mark.parametrize("wire", sorted(HTTP_WIRES))
async def test_a_tool_result_of_300_000_characters(wire: str) -> None:
    def read_file(path: str) -> str:
        """Read a file."""
        return f"BEGIN {WORDS * 8_000} END"[:300_000] + path

    call = says(None, calls=[("c1", "read_file", {"path": "x"})], wire=wire)
    provider = AsyncScripted(call, says("Long.", wire=wire), says("Yes.", wire=wire), wire=WIRES[wire], window=16_000)
    chat = AsyncChat(provider, tools=[read_file])
    reply = await chat.send("Read it.")
    assert kinds(reply) == ["shortened"]
    texts = json.dumps(sent(provider))
    assert "BEGIN" in texts
    assert "characters are left out here" in texts
    assert reply.context.tokens <= 16_000
    assert max(len(entry.native) for entry in decode(reply.state, wires=NAMES)) > 300_000
    # It stays as it was sent: the next request begins with this one.
    await chat.send("Was it long?", state=reply.state)
    assert "characters are left out here" in json.dumps(sent(provider)) or len(sent(provider)) == 1


async def test_a_message_larger_than_the_window_is_refused_before_the_call() -> None:
    provider = AsyncScripted(says("Hi."), window=2_000)
    chat = AsyncChat(provider)
    before = await chat.send("Hello.")
    with pytest.raises(ContextOverflow, match="shorten the message") as caught:
        await chat.send(WORDS * 2_000, state=before.state)
    assert caught.value.window == 2_000
    assert (caught.value.tokens or 0) > 10_000
    assert caught.value.state == before.state
    assert len(provider.requests) == 1


async def test_a_message_that_a_server_calls_too_long_is_its_own_error() -> None:
    provider = AsyncScripted(too_long(2_000, 30_000))
    with pytest.raises(ContextOverflow, match="too long"):
        await AsyncChat(provider).send(WORDS * 2_000)
    assert len(provider.requests) == 1


async def test_after_a_refusal_as_too_long_the_provider_decides_about_a_longer_message() -> None:
    provider = AsyncScripted(says("Hello."), too_long(), says("Short."), says("Still here."))
    chat = AsyncChat(provider)
    reply = await chat.send(WORDS * 30)
    reply = await chat.send("And now?", state=reply.state)
    # A proxy may have been in the way. What was learned from it must not end the conversation.
    reply = await chat.send(WORDS * 3_000, state=reply.state)
    assert reply.text == "Still here."
    assert "over_limit" in kinds(reply)
    provider.check()


@pytest.mark.parametrize("repeats", [20, 3_000])
async def test_after_a_refusal_a_window_that_was_given_limits_what_is_counted(repeats: int) -> None:
    silent = says("Short.", usage={"prompt_tokens": 0})
    provider = AsyncScripted(silent, too_long(), silent, silent)
    chat = AsyncChat(provider, window=8_000)
    reply = await talk(chat, 2)
    if repeats == 20:
        assert (await chat.send(WORDS * repeats, state=reply.state)).text == "Short."
    else:
        with pytest.raises(ContextOverflow):
            await chat.send(WORDS * repeats, state=reply.state)


async def test_a_smaller_window_that_the_caller_gives_later_is_kept() -> None:
    provider = AsyncScripted(says(WORDS), too_long(6_000, 7_000), says(WORDS), says("Well."))
    reply = await talk(AsyncChat(provider), 2)
    reply = await AsyncChat(provider, window=150).send("And now?", state=reply.state)
    assert reply.context.tokens <= 150


async def test_what_the_user_says_is_sent_whole_also_over_the_budget() -> None:
    provider = AsyncScripted(says("a"), says("b"))
    chat = AsyncChat(provider, policy=TokenBudget(500))
    before = await chat.send("Hello.")
    reply = await chat.send(WORDS * 200, state=before.state)
    assert kinds(reply) == ["over_limit"]
    assert [message["content"] for message in sent(provider)] == [WORDS * 200]


async def test_a_share_of_an_unknown_window_is_that_of_32_000() -> None:
    provider = AsyncScripted(*[says("ok")] * 55)
    chat = AsyncChat(provider, policy=WindowShare(0.1, to=0.05))
    reply = await talk(chat, 55)
    assert reply.context is not None
    assert 1_000 < reply.context.tokens <= 3_200
    assert reply.context.manifest[0].reason == "over 10% of the window"


async def test_the_limits_are_looked_at_after_the_answer_too() -> None:
    provider = AsyncScripted(says("a"), says(WORDS * 300), says("c"))
    chat = AsyncChat(provider, policy=TokenBudget(1_000), carry="context")
    reply = await chat.send("two", state=(await chat.send("one")).state)
    # The answer made it too long: what went before it has left the state already.
    assert reply.shed is not None
    assert len(decode(reply.state, wires=NAMES)) == 2


class Failing(msgspec.Struct, frozen=True):
    """Works before the call, and fails after the answer."""

    def fires(self, size: Size) -> bool:
        if size.messages == 2:
            raise ValueError("no idea")
        return False


async def test_a_compaction_that_fails_costs_no_answer() -> None:
    policy = Compactor(Failing(), (DropOldest(),), OverTokens(1))
    reply = await AsyncChat(AsyncScripted(says("a")), policy=policy).send("one")
    assert reply.text == "a"
    assert kinds(reply) == ["compaction_failed"]
    assert "no idea" in reply.notices[0].text


async def test_a_window_that_can_not_be_true_is_not_believed() -> None:
    provider = AsyncScripted(*[says(WORDS * 5)] * 6, too_long(3, 2_500), says("on"))
    chat = AsyncChat(provider, policy=KeepLast(50))
    before = await talk(chat, 6)
    reply = await chat.send("Still there?", state=before.state)
    assert reply.text == "on"
    assert len(sent(provider)) > 1


async def test_the_refused_request_is_told_with_what_is_not_conversation() -> None:
    chat = AsyncChat(AsyncScripted(), window=2_000)
    with pytest.raises(
        ContextOverflow, match=r"tokens \([\d,]+ tokens are system text, tools and instruction\), and the window"
    ):
        await chat.send("Hello.", system=WORDS * 400)
    with pytest.raises(ContextOverflow) as caught:
        await chat.send(WORDS * 400, system="Be brief.")
    assert "system text" not in str(caught.value)


async def test_a_window_that_the_caller_knows_is_never_exceeded() -> None:
    chat = AsyncChat(AsyncScripted(*[says(WORDS * 5)] * 40), window=2_000)
    told, state = [], None
    for number in range(40):
        reply = await chat.send(f"{number}: {WORDS * 10}", state=state)
        state = reply.state
        assert reply.context.tokens <= 2_000
        told += kinds(reply)
    assert set(told) == {"window"}


async def test_the_callers_window_takes_precedence_over_the_known_window() -> None:
    for ours, given, cut in ((2_000, 20_000, False), (20_000, 2_000, True), (2_000, None, True)):
        provider = AsyncScripted(*[says(WORDS * 5)] * 20, window=ours)
        chat = AsyncChat(provider, window=given)
        await talk(chat, 20)
        assert (len(sent(provider)) < 39) is cut


async def test_a_window_that_was_learnt_goes_before_it() -> None:
    provider = AsyncScripted(*[says(WORDS * 5)] * 12, too_long(2_000, 2_500), *[says(WORDS * 5)] * 20)
    chat = AsyncChat(provider, window=20_000)
    before = await talk(chat, 12)
    reply = await chat.send("Still there?", state=before.state)
    assert read_windows(decode(reply.state, wires=NAMES)) == {"scripted:model": 2_000}
    state = reply.state
    for number in range(19):
        reply = await chat.send(f"{number}: {WORDS * 10}", state=state)
        state = reply.state
        assert reply.context.tokens <= 2_000


async def test_a_refusal_that_names_no_window_leaves_the_one_that_was_given() -> None:
    provider = AsyncScripted(*[says(WORDS * 5)] * 12, too_long(None, 9_000), says("ok"))
    chat = AsyncChat(provider, window=8_000)
    before = await talk(chat, 12)
    reply = await chat.send("Still there?", state=before.state)
    assert set(read_windows(decode(reply.state, wires=NAMES)).values()) == {8_000}
    assert 1 < len(sent(provider)) < 25


async def test_a_share_is_of_the_window_that_was_given() -> None:
    provider = AsyncScripted(*[says("ok")] * 30)
    chat = AsyncChat(provider, policy=WindowShare(0.5), window=4_000)
    state = None
    for number in range(30):
        reply = await chat.send(f"{number}: {WORDS * 10}", state=state)
        state = reply.state
        assert reply.context.tokens <= 2_000
        assert kinds(reply) == []
    assert reply.context.manifest[0].reason == "over 50% of the window"


async def test_a_pin_has_to_leave_room_in_the_window_that_was_given() -> None:
    provider = AsyncScripted(says("a"))
    reply = await AsyncChat(provider).send(WORDS * 100)
    await AsyncChat(provider, window=20_000).pin(reply.turn_id, state=reply.state)
    with pytest.raises(PinRefused, match="over 750 tokens, which is the size that the policy cuts to"):
        await AsyncChat(provider, window=1_500).pin(reply.turn_id, state=reply.state)


@pytest.mark.parametrize("window", [0, -1, 1.5, 8_000.0, "8000", True, False, float("nan"), [8_000]])
async def test_what_is_no_window_is_refused(window: Any) -> None:
    with pytest.raises(InputError, match="`window`, in tokens, must be an integer of at least 1, not ") as caught:
        AsyncChat(AsyncScripted(), window=window)
    assert repr(window) in str(caught.value)
