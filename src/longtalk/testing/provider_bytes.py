"""Cases with a server that does as it is told: bytes both ways, tool calls, and streams as they come."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from unittest import SkipTest

from longtalk import _json
from longtalk.events import Text
from longtalk.providers.script import Step, says
from longtalk.testing.provider_cases import (
    Case,
    Desk,
    Stage,
    act,
    echo,
    into,
    parts_of,
    shown,
    streaming,
    turn,
    ways,
)
from longtalk.testing.provider_script import Act
from longtalk.testing.report import holds, same
from longtalk.testing.validate import unmarked, validate
from longtalk.wires.base import view_of

BYTES: list[Case] = []

STORY = "Once upon a time there was a vïolin in 東京 😀."
ODD = rb'{"b":1.0,"a":[ 1e2,"caf\u00e9 \/ \ud83d",12345678901234567890,null],"b2" : -0}'
"""A value that nobody knows, written as no encoder would."""

_PLACES = {
    "openai-chat": rb'"role":"assistant"|"type":"function"',
    "anthropic": rb'"type":"(?:text|tool_use)"',
    "openai-responses": rb'"type":"(?:message|output_text|function_call)"',
    "gemini": rb'"(?:name|text)":"[^"]*"',
}
"""Behind these, in messages, blocks and calls, there may be more members."""


def _odd(data: bytes, wire: str) -> bytes:
    return re.sub(_PLACES[wire], lambda found: found[0] + b',"x_odd":' + ODD, data)


def _look(q: str) -> str:
    """Look something up."""
    return f"about {q}"


def _calls(wire: str, text: str | None = "Let me look.") -> Step:
    """Two calls at once."""
    return says(text, calls=[("call_1", "_look", {"q": "bows"}), ("call_2", "_look", {"q": "strings"})], wire=wire)


@into(BYTES, scripted=True)
def a_request_arrives_as_it_was_made(desk: Desk) -> None:
    stage = desk.stage(echo)
    for stream in ways(stage.provider):
        stage.script.requests.clear()
        message = f'{STORY} \x7f \u2028 "quoted" and \\ escaped, </b>'
        turn(desk.chat(stage.provider), message, stream=stream)
        same(len(stage.script.requests), 1, "requests that arrived")
        # What stands around the messages may be the provider's own.
        holds(stage.provider.wire.user(message)[1:-1] in unmarked(stage.script.requests[0]), "the message is changed")


@into(BYTES, scripted=True)
def a_body_comes_back_as_it_was_sent(desk: Desk) -> None:
    stage = desk.stage()
    body = _odd(says(STORY, wire=stage.wire).body, stage.wire).replace(b"{", b"{ \n", 1)
    stage.script.add(Act(body))
    same(stage.call(stream=False), [body], "the body")


@into(BYTES, scripted=True)
def events_come_as_they_were_sent(desk: Desk) -> None:
    stage = desk.stage()
    streaming(stage.provider)
    sent = act(says(STORY, wire=stage.wire, pieces=9), stream=True).events or ()
    events = tuple(_odd(data, stage.wire) for data in sent)
    for size, chatty in ((0, False), (1, False), (7, False), (0, True), (5, True)):
        stage.script.add(Act(events=events, size=size, chatty=chatty))
        same(stage.call(stream=True), list(events), f"events, sent by {size or 'all'} bytes, comments: {chatty}")


@into(BYTES, scripted=True)
def an_answer_may_be_long(desk: Desk) -> None:
    stage = desk.stage()
    step = says(STORY * 20_000, wire=stage.wire, pieces=2)
    for stream in ways(stage.provider):
        played = act(step, stream=stream)
        stage.script.add(played)
        wanted = [played.body] if played.events is None else list(played.events)
        holds(stage.call(stream=stream) == wanted, f"a long answer comes back otherwise (streamed: {stream})")


@into(BYTES, scripted=True)
def what_nobody_knows_goes_back_as_it_came(desk: Desk) -> None:
    stage = desk.stage()
    desk.sends_all(stage.provider)
    tools = [_look] if stage.provider.capabilities.tools else []
    step = _calls(stage.wire) if tools else says(STORY, wire=stage.wire)
    for stream in ways(stage.provider):
        stage.script.requests.clear()
        played = act(step, stream=stream)
        events = None if played.events is None else tuple(_odd(data, stage.wire) for data in played.events)
        stage.script.add(Act(_odd(played.body, stage.wire), events))
        stage.says(*["Thank you."] * (2 if tools else 1), stream=stream)
        chat = desk.chat(stage.provider, tools=tools)
        reply = turn(chat, "Hello.", stream=stream)
        turn(chat, "Thank you.", state=reply.state, stream=stream)
        wanted = _odd(step.body, stage.wire).count(ODD)
        found = stage.script.requests[-1].count(ODD)
        holds(found >= wanted, f"of {wanted} members that nobody knows {found} went back (streamed: {stream})")
    stage.provider.check_requests()


@into(BYTES, scripted=True)
def a_streamed_answer_is_the_answer(desk: Desk) -> None:
    stage = desk.stage()
    streaming(stage.provider)
    step = says(STORY, wire=stage.wire, pieces=9)
    stage.script.add(act(step, stream=False), act(step, stream=True))
    chat = desk.chat(stage.provider)
    whole = chat.send("Tell me a story.")
    streamed, text = shown(chat, "Tell me a story.")
    same(whole.text, STORY, "the text of an answer")
    same(streamed.text, STORY, "the text of a streamed answer")
    same(text, STORY, "what was shown of it")
    same(streamed.raw_usage, whole.raw_usage, "the usage of a streamed answer")
    same(_keys(streamed.message.native), _keys(whole.message.native), "its members")  # type: ignore[union-attr]


@into(BYTES, scripted=True)
def calls_made_together_are_answered_in_order(desk: Desk) -> None:
    stage = desk.stage()
    if not stage.provider.capabilities.tools:
        raise SkipTest("the provider says that it takes no tools")
    for stream in ways(stage.provider):
        stage.script.requests.clear()
        stage.script.add(act(_calls(stage.wire, None), stream=stream))
        stage.says("Done.", stream=stream)
        reply = turn(desk.chat(stage.provider, tools=[_look]), "Look.", stream=stream)
        results = [view_of(entry) for entry in reply.entries if entry.role == "tool"]
        same([seen.text for seen in results], ["about bows", "about strings"], "results")
        same([seen.call_id for seen in results], ["call_1", "call_2"], "the calls that they answer")
        request = stage.script.requests[-1]
        validate(request, wire=stage.wire)
        places = [request.find(text) for text in (b"Look.", b"call_1", b"about bows", b"about strings")]
        holds(min(places) >= 0 and places == sorted(places), "calls and results arrive in another order")


@into(BYTES, scripted=True)
def an_answer_is_sent_back_part_by_part(desk: Desk) -> None:
    stage = desk.stage()
    desk.sends_all(stage.provider)
    for stream in ways(stage.provider):
        stage.script.requests.clear()
        stage.says(STORY, "And so on.", "The end.", stream=stream)
        chat, state = desk.chat(stage.provider), None
        natives: list[bytes] = []
        for message in ("Tell me a story.", "Go on.", "Go on."):
            reply = turn(chat, message, state=state, stream=stream)
            natives.append(reply.message.native if reply.message else b"")
            state = reply.state
        for number, native in enumerate(natives[:-1]):
            for part in parts_of(native, stage.wire):
                holds(part in unmarked(stage.script.requests[number + 1]), f"this did not go back: {part[:200]!r}")
        for shorter, longer in pairwise(map(unmarked, stage.script.requests)):
            holds(longer.startswith(shorter.removesuffix(b"]}")), "a request that arrived has another beginning")


@into(BYTES, scripted=True)
def text_is_shown_before_the_answer_is_whole(desk: Desk) -> None:
    stage = desk.stage()
    held = told(stage, hold=True)
    with desk.chat(stage.provider).stream("Tell me a story.") as stream:
        first = next((event for event in stream if isinstance(event, Text)), None)
        stage.script.go.set()
        rest = "".join(event.text for event in stream if isinstance(event, Text))
    holds(first is not None and rest and not stage.script.overdue, "no text came before the whole answer was there")
    same((first.text if first else "") + rest, STORY, f"the text of {len(held.events or ())} events")


@into(BYTES, scripted=True)
def a_stream_that_is_closed_ends_the_answer(desk: Desk) -> None:
    stage = desk.stage()
    told(stage, hold=True)
    with desk.chat(stage.provider).stream("Tell me a story.") as stream:
        next((event for event in stream if isinstance(event, Text)), None)
    same(stream.reply.finish, "interrupted", "how a closed stream ends")
    holds(
        stage.script.left.wait(stage.script.patience),
        "the server still has somebody to answer after the stream was closed",
    )


@into(BYTES, scripted=True)
def turns_at_once_do_not_mix(desk: Desk) -> None:
    stage = desk.stage(echo)
    chat = desk.chat(stage.provider)

    def talk(name: str) -> None:
        state = None
        for number in range(4):
            message = f"{name} {number}"
            reply = turn(chat, message, state=state, stream=ways(stage.provider)[-1] and bool(number % 2))
            same(reply.text, f"You said: {message}", "what one of several threads was answered")
            state = reply.state

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(talk, ("Ada", "Bertha", "Clara", "Dora")))


def told(stage: Stage, *, hold: bool = False, cut: bool = False) -> Act:
    """A story is told up to its first words; then the server waits, or the line breaks."""
    streaming(stage.provider)
    events = act(says(STORY, wire=stage.wire, pieces=9), stream=True).events or ()
    accumulator, first = stage.provider.wire.accumulator(), 0
    while first < len(events) and not accumulator.feed(events[first]):
        first += 1
    played = Act(events=events, hold=first + 1) if hold else Act(events=events[: first + 1], cut=cut)
    stage.script.add(played)
    return played


def _keys(native: bytes) -> list[str]:
    return sorted(_json.fields(native))
