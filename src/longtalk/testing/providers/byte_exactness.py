"""Cases that need a scripted server: unchanged bytes in both directions, tool calls, and streamed text."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from unittest import SkipTest

from longtalk._util import json_bytes
from longtalk.events import Text
from longtalk.providers.scripted.script import Step, says
from longtalk.testing.providers.harness import (
    Case,
    Harness,
    ScriptedServer,
    add_to,
    echo,
    list_exact_parts,
    list_stream_modes,
    require_streaming,
    run_turn,
    stream_turn,
    to_response,
)
from longtalk.testing.providers.script import ScriptedResponse
from longtalk.testing.report import assert_equal, assert_present, assert_true
from longtalk.testing.wires.validate import validate, without_cache_marks
from longtalk.wires.entries import view_entry

BYTE_CASES: list[Case] = []

STORY = "Once upon a time there was a vïolin in 東京 😀."
ODD = rb'{"b":1.0,"a":[ 1e2,"caf\u00e9 \/ \ud83d",12345678901234567890,null],"b2" : -0}'
"""JSON formatted as no encoder would write it. A provider that decodes and re-encodes it changes its bytes."""

_INSERTION_POINTS = {
    "openai-chat": rb'"role":"assistant"|"type":"function"',
    "anthropic": rb'"type":"(?:text|tool_use)"',
    "openai-responses": rb'"type":"(?:message|output_text|function_call)"',
    "gemini": rb'"(?:name|text)":"[^"]*"',
}
"""For each wire, a pattern that matches in each message, block and call. Unknown members are inserted after it."""


def _add_unknown_members(data: bytes, wire: str) -> bytes:
    """Return a response body or event with an unknown member added to each message, block and call."""
    return re.sub(_INSERTION_POINTS[wire], lambda found: found[0] + b',"x_odd":' + ODD, data)


def look_up(q: str) -> str:
    """Look up a word."""
    return f"about {q}"


def _make_tool_calls(wire: str, text: str | None = "Let me look.") -> Step:
    """Return a model's answer with two tool calls."""
    return says(text, calls=[("call_1", "look_up", {"q": "bows"}), ("call_2", "look_up", {"q": "strings"})], wire=wire)


@add_to(BYTE_CASES, scripted=True)
def a_request_arrives_unchanged(harness: Harness) -> None:
    server = harness.server(echo)
    for stream in list_stream_modes(server.provider):
        server.script.requests.clear()
        message = f'{STORY} \x7f \u2028 "quoted" and \\ escaped, </b>'
        run_turn(harness.chat(server.provider), message, stream=stream)
        assert_equal(len(server.script.requests), 1, "requests that arrived")
        # The provider may add fields around the messages.
        assert_true(
            server.provider.wire.write_user(message)[1:-1] in without_cache_marks(server.script.requests[0]),
            "the message has changed",
        )


@add_to(BYTE_CASES, scripted=True)
def a_body_is_returned_unchanged(harness: Harness) -> None:
    server = harness.server()
    body = _add_unknown_members(says(STORY, wire=server.wire).body, server.wire).replace(b"{", b"{ \n", 1)
    server.script.add(ScriptedResponse(body))
    assert_equal(server.call(stream=False), [body], "the body")


@add_to(BYTE_CASES, scripted=True)
def events_are_returned_unchanged(harness: Harness) -> None:
    server = harness.server()
    require_streaming(server.provider)
    sent = to_response(says(STORY, wire=server.wire, pieces=9), stream=True).events or ()
    events = tuple(_add_unknown_members(data, server.wire) for data in sent)
    for size, chatty in ((0, False), (1, False), (7, False), (0, True), (5, True)):
        server.script.add(ScriptedResponse(events=events, size=size, chatty=chatty))
        assert_equal(
            server.call(stream=True), list(events), f"events, sent by {size or 'all'} bytes, comments: {chatty}"
        )


@add_to(BYTE_CASES, scripted=True)
def a_long_answer_is_returned_whole(harness: Harness) -> None:
    server = harness.server()
    step = says(STORY * 20_000, wire=server.wire, pieces=2)
    for stream in list_stream_modes(server.provider):
        response = to_response(step, stream=stream)
        server.script.add(response)
        wanted = [response.body] if response.events is None else list(response.events)
        assert_true(server.call(stream=stream) == wanted, f"a long answer has changed (streamed: {stream})")


@add_to(BYTE_CASES, scripted=True)
def unknown_fields_are_sent_back_unchanged(harness: Harness) -> None:
    server = harness.server()
    harness.require_full_requests(server.provider)
    tools = [look_up] if server.provider.capabilities.tools else []
    step = _make_tool_calls(server.wire) if tools else says(STORY, wire=server.wire)
    for stream in list_stream_modes(server.provider):
        server.script.requests.clear()
        response = to_response(step, stream=stream)
        events = (
            None
            if response.events is None
            else tuple(_add_unknown_members(data, server.wire) for data in response.events)
        )
        server.script.add(ScriptedResponse(_add_unknown_members(response.body, server.wire), events))
        server.add_answers(*["Thank you."] * (2 if tools else 1), stream=stream)
        chat = harness.chat(server.provider, tools=tools)
        reply = run_turn(chat, "Hello.", stream=stream)
        run_turn(chat, "Thank you.", state=reply.state, stream=stream)
        wanted = _add_unknown_members(step.body, server.wire).count(ODD)
        found = server.script.requests[-1].count(ODD)
        assert_true(found >= wanted, f"{found} of {wanted} unknown members were sent back (streamed: {stream})")
    server.provider.check_requests()


@add_to(BYTE_CASES, scripted=True)
def a_streamed_answer_equals_the_whole_answer(harness: Harness) -> None:
    server = harness.server()
    require_streaming(server.provider)
    step = says(STORY, wire=server.wire, pieces=9)
    server.script.add(to_response(step, stream=False), to_response(step, stream=True))
    chat = harness.chat(server.provider)
    whole = chat.send("Tell me a story.")
    streamed, text = stream_turn(chat, "Tell me a story.")
    assert_equal(whole.text, STORY, "the text of an answer")
    assert_equal(streamed.text, STORY, "the text of a streamed answer")
    assert_equal(text, STORY, "the text of its events")
    assert_equal(streamed.raw_usage, whole.raw_usage, "the usage of a streamed answer")
    message, expected = assert_present(streamed.message, "a message"), assert_present(whole.message, "a message")
    assert_equal(_list_keys(message.native), _list_keys(expected.native), "the members of a streamed answer")


@add_to(BYTE_CASES, scripted=True)
def parallel_calls_are_answered_in_order(harness: Harness) -> None:
    server = harness.server()
    if not server.provider.capabilities.tools:
        raise SkipTest("the provider declares that it does not support tools")
    for stream in list_stream_modes(server.provider):
        server.script.requests.clear()
        server.script.add(to_response(_make_tool_calls(server.wire, None), stream=stream))
        server.add_answers("Done.", stream=stream)
        reply = run_turn(harness.chat(server.provider, tools=[look_up]), "Look.", stream=stream)
        results = [view_entry(entry) for entry in reply.entries if entry.role == "tool"]
        assert_equal([seen.text for seen in results], ["about bows", "about strings"], "results")
        assert_equal([seen.call_id for seen in results], ["call_1", "call_2"], "the ids of the answered calls")
        request = server.script.requests[-1]
        validate(request, wire=server.wire)
        places = [request.find(text) for text in (b"Look.", b"call_1", b"about bows", b"about strings")]
        assert_true(min(places) >= 0 and places == sorted(places), "calls and results arrive in the wrong order")


@add_to(BYTE_CASES, scripted=True)
def each_part_of_an_answer_is_sent_back(harness: Harness) -> None:
    server = harness.server()
    harness.require_full_requests(server.provider)
    for stream in list_stream_modes(server.provider):
        server.script.requests.clear()
        server.add_answers(STORY, "And so on.", "The end.", stream=stream)
        chat, state = harness.chat(server.provider), None
        natives: list[bytes] = []
        for message in ("Tell me a story.", "Go on.", "Go on."):
            reply = run_turn(chat, message, state=state, stream=stream)
            natives.append(reply.message.native if reply.message else b"")
            state = reply.state
        for number, native in enumerate(natives[:-1]):
            for part in list_exact_parts(native, server.wire):
                assert_true(
                    part in without_cache_marks(server.script.requests[number + 1]),
                    f"not sent back: {part[:200]!r}",
                )
        for shorter, longer in pairwise(map(without_cache_marks, server.script.requests)):
            assert_true(longer.startswith(shorter.removesuffix(b"]}")), "a request does not extend the previous one")


@add_to(BYTE_CASES, scripted=True)
def text_is_streamed_before_the_answer_ends(harness: Harness) -> None:
    server = harness.server()
    response = begin_story(server, hold=True)
    with harness.chat(server.provider).stream("Tell me a story.") as stream:
        first = next((event for event in stream if isinstance(event, Text)), None)
        server.script.go.set()
        rest = "".join(event.text for event in stream if isinstance(event, Text))
    assert_true(
        first is not None and rest and not server.script.timed_out, "no text was streamed before the end of the answer"
    )
    assert_equal((first.text if first else "") + rest, STORY, f"the text of {len(response.events or ())} events")


@add_to(BYTE_CASES, scripted=True)
def closing_a_stream_closes_the_connection(harness: Harness) -> None:
    server = harness.server()
    begin_story(server, hold=True)
    with harness.chat(server.provider).stream("Tell me a story.") as stream:
        next((event for event in stream if isinstance(event, Text)), None)
    assert_equal(stream.reply.finish_reason, "interrupted", "the finish reason of a closed stream")
    assert_true(
        server.script.disconnected.wait(server.script.patience),
        "the connection is still open after the stream was closed",
    )


@add_to(BYTE_CASES, scripted=True)
def concurrent_turns_do_not_mix(harness: Harness) -> None:
    server = harness.server(echo)
    chat = harness.chat(server.provider)

    def converse(name: str) -> None:
        state = None
        for number in range(4):
            message = f"{name} {number}"
            reply = run_turn(
                chat, message, state=state, stream=list_stream_modes(server.provider)[-1] and bool(number % 2)
            )
            assert_equal(reply.text, f"You said: {message}", "the answer in one of several threads")
            state = reply.state

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(converse, ("Ada", "Bertha", "Clara", "Dora")))


def begin_story(server: ScriptedServer, *, hold: bool = False, cut: bool = False) -> ScriptedResponse:
    """Add a response to the script that streams a story and stops after the first piece of its text.

    With `hold`, the server waits there and then streams the rest. With `cut`, it closes the connection without ending
    the stream properly. With neither, it ends the stream there.
    """
    require_streaming(server.provider)
    events = to_response(says(STORY, wire=server.wire, pieces=9), stream=True).events or ()
    accumulator, first = server.provider.wire.new_accumulator(), 0
    while first < len(events) and not accumulator.feed(events[first]):
        first += 1
    response = (
        ScriptedResponse(events=events, hold=first + 1)
        if hold
        else ScriptedResponse(events=events[: first + 1], cut=cut)
    )
    server.script.add(response)
    return response


def _list_keys(native: bytes) -> list[str]:
    return sorted(json_bytes.fields(native))
