"""Cases that hold for every provider that answers, also for a model whose words nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from longtalk.events import Text
from longtalk.providers.base import Capabilities
from longtalk.reply import Reply
from longtalk.state import decode, encode
from longtalk.testing.provider_cases import Case, Desk, Watched, into, parts_of, shown, streaming, turn, ways
from longtalk.testing.report import holds, same
from longtalk.testing.validate import unmarked
from longtalk.wires import NAMES, WIRES

TALK: list[Case] = []

SYSTEM = "You are a music teacher. Answer in one sentence."
HELLO = "Hello, I am Ada and I play the violin."
MESSAGES = (HELLO, "What do I play?", "And who am I?", "Thank you. Name another instrument.")


@into(TALK)
def it_says_who_it_is(desk: Desk) -> None:
    provider, other = desk.provider(), desk.provider()
    holds(provider.wire is WIRES.get(provider.wire.name), f"{provider.wire!r} is no wire")
    name, colon, model = provider.label.partition(":")
    holds(name and bool(colon) == bool(model), f"the label {provider.label!r} is not provider:model")
    same(model, provider.model, "the model behind the label's colon")
    holds(isinstance(provider.account, str) and provider.account, f"the account is {provider.account!r}")
    if desk.make is not None:
        same(other.account, provider.account, "the account of the same provider, made again")
    holds(isinstance(provider.capabilities, Capabilities), f"the capabilities are {provider.capabilities!r}")
    holds(isinstance(provider.defaults, Mapping), f"the defaults are {provider.defaults!r}")
    taken = [option for option in provider.defaults if option in provider.wire.reserved]
    same(taken, [], "options among the defaults that a chat sets by itself")


@into(TALK)
def a_turn_is_answered_with_text(desk: Desk) -> None:
    reply = desk.chat(desk.provider()).send(HELLO, system=SYSTEM)
    _check_answer(reply)


@into(TALK)
def a_streamed_turn_shows_the_text_of_its_reply(desk: Desk) -> None:
    provider = streaming(desk.provider())
    reply, text = shown(desk.chat(provider), HELLO, system=SYSTEM)
    _check_answer(reply)
    same(text, reply.text, "what was shown of a streamed answer")
    holds(provider.streams and not provider.answers, "a stream was not streamed")


@into(TALK)
def every_request_is_valid(desk: Desk) -> None:
    provider = desk.provider()
    chat = desk.chat(provider)
    state = chat.note("Ada has just tuned her violin.", source="tuner")
    for stream in ways(provider):
        state = turn(chat, HELLO, state=state, system=SYSTEM, instruction="It is noon.", stream=stream).state
    provider.check_requests()


@into(TALK)
def each_request_begins_with_the_one_before(desk: Desk) -> None:
    provider = desk.provider()
    desk.sends_all(provider)
    for stream in ways(provider):
        provider.requests.clear()
        _talk(desk, provider, stream=stream)
        # One that was tried again, since the server was busy, counts once.
        requests = list(dict.fromkeys(map(unmarked, provider.requests)))
        same(len(requests), len(MESSAGES), "different requests for as many messages")
        for shorter, longer in pairwise(requests):
            holds(longer.startswith(shorter.removesuffix(b"]}")), "a request does not begin with the one before")


@into(TALK)
def what_it_said_goes_back_as_it_came(desk: Desk) -> None:
    provider = desk.provider()
    desk.sends_all(provider)
    chat = desk.chat(provider)
    first = chat.send(HELLO, system=SYSTEM)
    chat.send("What do I play?", state=first.state, system=SYSTEM)
    holds(first.message is not None, "there is no message")
    for part in parts_of(first.message.native, provider.wire.name):  # type: ignore[union-attr]
        holds(part in provider.answers[0], f"stored is not what came: {part[:200]!r}")
        holds(part in unmarked(provider.requests[-1]), f"sent back is not what came: {part[:200]!r}")


@into(TALK)
def turns_of_both_kinds_follow_each_other(desk: Desk) -> None:
    provider = desk.provider()
    chat, state = desk.chat(provider), None
    for number, message in enumerate(MESSAGES):
        reply = turn(chat, message, state=state, system=SYSTEM, stream=ways(provider)[-1] and bool(number % 2))
        _check_answer(reply)
        state = reply.state
    provider.check_requests()
    same(len(decode(state or b"", wires=NAMES)), 2 * len(MESSAGES), "entries of the conversation")


@into(TALK)
def a_state_goes_on_with_a_provider_made_anew(desk: Desk) -> None:
    one = desk.provider()
    first = desk.chat(one).send(HELLO, system=SYSTEM)
    transcript = decode(first.state, wires=NAMES)
    same(decode(encode(transcript), wires=NAMES), transcript, "a state, written and read")
    other = desk.provider()
    for provider in (one, other):
        _check_answer(desk.chat(provider).send("What do I play?", state=first.state, system=SYSTEM))
    # What somebody has gone on with may have to be told anew.
    if not desk.keeps(one):
        same(other.requests[-1], one.requests[-1], "the request of a provider that was made anew")


@into(TALK)
def a_stream_that_is_closed_keeps_what_was_said(desk: Desk) -> None:
    provider = streaming(desk.provider())
    chat, text = desk.chat(provider), ""
    with chat.stream("Tell me a very long story.", system=SYSTEM) as stream:
        for event in stream:
            if isinstance(event, Text):
                text = event.text
                break
    reply = stream.reply
    same(reply.finish, "interrupted", "how a closed stream ends")
    holds(text and reply.text.startswith(text), "what was shown before a stream was closed is lost")
    holds(next(provider.streams[-1], None) is None, "the provider's stream goes on after it was closed")
    _check_answer(chat.send("Thank you.", state=reply.state, system=SYSTEM))
    _check_answer(turn(chat, "Thank you.", state=reply.state, system=SYSTEM, stream=True))
    provider.check_requests()


@into(TALK)
def usage_is_reported(desk: Desk) -> None:
    provider = desk.provider()
    for stream in ways(provider):
        replies = _talk(desk, provider, stream=stream)
        for reply in replies:
            same(len(reply.raw_usage), 1, "reports of usage for one call")
            usage = reply.usage
            holds(usage.input > 0 and usage.output > 0, f"a turn took no tokens: {usage}")
            holds(0 <= usage.cached <= usage.input, f"more was read from the cache than sent: {usage}")
        first, *_, last = (reply.usage.input for reply in replies)
        holds(last > first or not provider.wire.measures, f"a longer request took no more tokens: {first}, then {last}")


@into(TALK)
def several_threads_are_answered_at_once(desk: Desk) -> None:
    provider = desk.provider()
    chat = desk.chat(provider)
    streams = [ways(provider)[number % len(ways(provider))] for number in range(4)]
    with ThreadPoolExecutor(len(streams)) as pool:
        for reply in pool.map(lambda stream: turn(chat, HELLO, system=SYSTEM, stream=stream), streams):
            _check_answer(reply)


@into(TALK)
def it_is_closed_twice(desk: Desk) -> None:
    unused, used = desk.provider(), desk.provider()
    desk.chat(used).send(HELLO, system=SYSTEM)
    for provider in (unused, used):
        provider.close()
        provider.close()


def _talk(desk: Desk, provider: Watched, *, stream: bool) -> list[Reply]:
    """A conversation of several turns."""
    chat, state = desk.chat(provider), None
    replies: list[Reply] = []
    for message in MESSAGES:
        replies.append(turn(chat, message, state=state, system=SYSTEM, stream=stream))
        state = replies[-1].state
    return replies


def _check_answer(reply: Reply) -> None:
    holds(reply.text.strip(), "the answer has no text")
    holds(reply.finish in ("stop", "length"), f"the answer ended with {reply.finish!r}")
