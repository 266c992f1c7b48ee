"""Cases that every provider must pass, no matter what its model answers."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from longtalk.events import Text
from longtalk.providers.base import Capabilities
from longtalk.reply import Reply
from longtalk.state.codec import decode, encode
from longtalk.testing.providers.harness import (
    Case,
    Harness,
    RecordingProvider,
    add_to,
    list_exact_parts,
    list_stream_modes,
    require_streaming,
    run_turn,
    stream_turn,
)
from longtalk.testing.report import assert_equal, assert_true
from longtalk.testing.wires.validate import without_cache_marks
from longtalk.wires import NAMES, WIRES
from longtalk.wires.registry import find_family

CONVERSATION_CASES: list[Case] = []

SYSTEM = "You are a music teacher. Answer in one sentence."
HELLO = "Hello, I am Ada and I play the violin."
MESSAGES = (HELLO, "What do I play?", "And who am I?", "Thank you. Name another instrument.")


@add_to(CONVERSATION_CASES)
def a_provider_describes_itself(harness: Harness) -> None:
    provider, other = harness.provider(), harness.provider()
    assert_true(provider.wire is WIRES.get(provider.wire.name), f"{provider.wire!r} is not one of WIRES")
    name, colon, model = provider.label.partition(":")
    assert_true(name and bool(colon) == bool(model), f"the label {provider.label!r} is not provider:model")
    assert_equal(model, provider.model, "the model after the label's colon")
    assert_true(isinstance(provider.account, str) and provider.account, f"the account is {provider.account!r}")
    if harness.make is not None:
        assert_equal(other.account, provider.account, "the account of a second provider with the same settings")
    assert_true(isinstance(provider.capabilities, Capabilities), f"the capabilities are {provider.capabilities!r}")
    assert_true(isinstance(provider.defaults, Mapping), f"the defaults are {provider.defaults!r}")
    taken = [option for option in provider.defaults if option in provider.wire.reserved]
    assert_equal(taken, [], "default options that only a chat may set")


@add_to(CONVERSATION_CASES)
def a_turn_is_answered_with_text(harness: Harness) -> None:
    reply = harness.chat(harness.provider()).send(HELLO, system=SYSTEM)
    _check_answer(reply)


@add_to(CONVERSATION_CASES)
def a_streamed_turn_shows_the_text_of_its_reply(harness: Harness) -> None:
    provider = require_streaming(harness.provider())
    reply, text = stream_turn(harness.chat(provider), HELLO, system=SYSTEM)
    _check_answer(reply)
    assert_equal(text, reply.text, "the text of the events")
    assert_true(provider.streams and not provider.answers, "the provider's `stream` was not used")


@add_to(CONVERSATION_CASES)
def every_request_is_valid(harness: Harness) -> None:
    provider = harness.provider()
    chat = harness.chat(provider)
    state = chat.note("Ada has just tuned her violin.", source="tuner")
    for stream in list_stream_modes(provider):
        state = run_turn(chat, HELLO, state=state, system=SYSTEM, instruction="It is noon.", stream=stream).state
    provider.check_requests()


@add_to(CONVERSATION_CASES)
def each_request_extends_the_previous_one(harness: Harness) -> None:
    provider = harness.provider()
    harness.require_full_requests(provider)
    for stream in list_stream_modes(provider):
        provider.requests.clear()
        _run_conversation(harness, provider, stream=stream)
        # A request that was retried because the server was busy counts once.
        requests = list(dict.fromkeys(map(without_cache_marks, provider.requests)))
        assert_equal(len(requests), len(MESSAGES), "different requests, one for each message")
        for shorter, longer in pairwise(requests):
            assert_true(longer.startswith(shorter.removesuffix(b"]}")), "a request does not extend the previous one")


@add_to(CONVERSATION_CASES)
def answers_are_sent_back_unchanged(harness: Harness) -> None:
    provider = harness.provider()
    harness.require_full_requests(provider)
    chat = harness.chat(provider)
    first = chat.send(HELLO, system=SYSTEM)
    chat.send("What do I play?", state=first.state, system=SYSTEM)
    assert_true(first.message is not None, "the reply has no message")
    for part in list_exact_parts(first.message.native, find_family(provider.wire)):  # type: ignore[union-attr]
        assert_true(part in provider.answers[0], f"stored, but not in the answer: {part[:200]!r}")
        assert_true(part in without_cache_marks(provider.requests[-1]), f"not sent back: {part[:200]!r}")


@add_to(CONVERSATION_CASES)
def whole_and_streamed_turns_can_alternate(harness: Harness) -> None:
    provider = harness.provider()
    chat, state = harness.chat(provider), None
    for number, message in enumerate(MESSAGES):
        reply = run_turn(
            chat, message, state=state, system=SYSTEM, stream=list_stream_modes(provider)[-1] and bool(number % 2)
        )
        _check_answer(reply)
        state = reply.state
    provider.check_requests()
    assert_equal(len(decode(state or b"", wires=NAMES)), 2 * len(MESSAGES), "entries of the conversation")


@add_to(CONVERSATION_CASES)
def a_new_provider_continues_from_a_state(harness: Harness) -> None:
    one = harness.provider()
    first = harness.chat(one).send(HELLO, system=SYSTEM)
    transcript = decode(first.state, wires=NAMES)
    assert_equal(decode(encode(transcript), wires=NAMES), transcript, "a state that was encoded and decoded")
    other = harness.provider()
    for provider in (one, other):
        _check_answer(harness.chat(provider).send("What do I play?", state=first.state, system=SYSTEM))
    # A provider that keeps the conversation itself may need all of it here: `one` has already continued it.
    if not harness.keeps_conversation(one):
        assert_equal(other.requests[-1], one.requests[-1], "the request of a new provider")


@add_to(CONVERSATION_CASES)
def a_closed_stream_keeps_its_text(harness: Harness) -> None:
    provider = require_streaming(harness.provider())
    chat, text = harness.chat(provider), ""
    with chat.stream("Tell me a very long story.", system=SYSTEM) as stream:
        for event in stream:
            if isinstance(event, Text):
                text = event.text
                break
    reply = stream.reply
    assert_equal(reply.finish_reason, "interrupted", "the finish reason of a closed stream")
    assert_true(text and reply.text.startswith(text), "the text from before a stream was closed is lost")
    assert_true(next(provider.streams[-1], None) is None, "the provider's stream continues after it was closed")
    _check_answer(chat.send("Thank you.", state=reply.state, system=SYSTEM))
    _check_answer(run_turn(chat, "Thank you.", state=reply.state, system=SYSTEM, stream=True))
    provider.check_requests()


@add_to(CONVERSATION_CASES)
def usage_is_reported(harness: Harness) -> None:
    provider = harness.provider()
    for stream in list_stream_modes(provider):
        replies = _run_conversation(harness, provider, stream=stream)
        for reply in replies:
            assert_equal(len(reply.raw_usage), 1, "reports of usage for one call")
            usage = reply.usage
            assert_true(usage.input > 0 and usage.output > 0, f"a turn without tokens: {usage}")
            assert_true(0 <= usage.cached <= usage.input, f"more cached tokens than input tokens: {usage}")
        first, *_, last = (reply.usage.input for reply in replies)
        assert_true(
            last > first or not provider.wire.reports_request_size,
            f"a longer request did not use more tokens: {first}, then {last}",
        )


@add_to(CONVERSATION_CASES)
def several_threads_can_send_at_once(harness: Harness) -> None:
    provider = harness.provider()
    chat = harness.chat(provider)
    streams = [list_stream_modes(provider)[number % len(list_stream_modes(provider))] for number in range(4)]
    with ThreadPoolExecutor(len(streams)) as pool:
        for reply in pool.map(lambda stream: run_turn(chat, HELLO, system=SYSTEM, stream=stream), streams):
            _check_answer(reply)


@add_to(CONVERSATION_CASES)
def a_provider_can_be_closed_twice(harness: Harness) -> None:
    unused, used = harness.provider(), harness.provider()
    harness.chat(used).send(HELLO, system=SYSTEM)
    for provider in (unused, used):
        provider.close()
        provider.close()


def _run_conversation(harness: Harness, provider: RecordingProvider, *, stream: bool) -> list[Reply]:
    """Run a conversation of several turns and return the replies."""
    chat, state = harness.chat(provider), None
    replies: list[Reply] = []
    for message in MESSAGES:
        replies.append(run_turn(chat, message, state=state, system=SYSTEM, stream=stream))
        state = replies[-1].state
    return replies


def _check_answer(reply: Reply) -> None:
    assert_true(reply.text.strip(), "the answer has no text")
    assert_true(reply.finish_reason in ("stop", "length"), f"the answer ended with {reply.finish_reason!r}")
