"""The scripted provider: what it is told to say, what it was asked, and where the two do not fit."""

import json
from typing import Any

import anyio
import pytest

from longtalk import AsyncChat, Chat
from longtalk.errors import RequestRefused, StreamCut
from longtalk.events import Text
from longtalk.testing import AsyncScripted, Scripted, Step, UnexpectedCall, UnusedSteps, says
from longtalk.wires import WIRES
from longtalk.wires.openai_chat.wire import WIRE
from longtalk.wires.protocol import Wire


def test_the_scripted_provider_gives_its_steps_in_order_and_records_requests() -> None:
    provider = Scripted(says("One."), says("Two."))
    assert [WIRE.parse(provider.send(body)).view.text for body in (b"first", b"second")] == ["One.", "Two."]
    assert provider.requests == [b"first", b"second"]


def test_a_call_beyond_the_script_is_an_error_that_shows_the_request() -> None:
    provider = Scripted(says("One."))
    provider.send(b"first")
    with pytest.raises(UnexpectedCall, match=r"request 2; add one\. .* b'second'"):
        provider.send(b"second")
    with pytest.raises(UnexpectedCall, match="request 3"):
        list(provider.stream(b"third"))
    assert provider.requests == [b"first", b"second", b"third"]


def test_steps_can_be_added_later() -> None:
    provider = Scripted()
    provider.add(says("One."), says("Two."))
    assert b"One." in provider.send(b"")
    assert b"Two." in provider.send(b"")


def test_unused_steps_are_an_error() -> None:
    provider = Scripted(says("One."), says("Two."), says("Three."))
    provider.send(b"")
    with pytest.raises(UnusedSteps, match="2 steps"):
        provider.check()


def test_as_a_context_manager_the_scripted_provider_checks_at_the_end() -> None:
    with pytest.raises(UnusedSteps), Scripted(says("One.")):
        pass
    with Scripted(says("One.")) as provider:
        provider.send(b"")


def test_as_a_context_manager_the_scripted_provider_hides_no_other_error() -> None:
    with pytest.raises(ZeroDivisionError), Scripted(says("One.")):
        raise ZeroDivisionError


def test_the_errors_of_a_script_are_failed_assertions() -> None:
    assert issubclass(UnexpectedCall, AssertionError)
    assert issubclass(UnusedSteps, AssertionError)


def test_an_exception_as_a_step_is_raised_in_its_place() -> None:
    provider = Scripted(RequestRefused("no"), KeyboardInterrupt(), says("Fine."))
    with pytest.raises(RequestRefused):
        provider.send(b"")
    with pytest.raises(KeyboardInterrupt):
        next(provider.stream(b""))
    assert b"Fine." in provider.send(b"")


def test_an_exception_among_the_events_is_raised_after_those_before_it() -> None:
    events = says("One two three.").events
    provider = Scripted(Step(b"", (*events[:2], StreamCut("cut"), *events[2:])))
    heard = []
    with pytest.raises(StreamCut):
        for data in provider.stream(b""):
            heard.append(data)  # noqa: PERF402
    assert heard == list(events[:2])


def test_a_chat_can_use_the_scripted_provider() -> None:
    with Scripted(says("One."), says("Two.")) as provider:
        chat = Chat(provider)
        reply = chat.send("Hello.")
        assert reply.text == "One."
        texts = [event.text for event in chat.stream("And?", state=reply.state) if isinstance(event, Text)]
        assert "".join(texts) == "Two."
    assert json.loads(provider.requests[0])["messages"] == [{"role": "user", "content": "Hello."}]
    assert json.loads(provider.requests[1])["stream"] is True


def test_an_async_chat_can_use_the_async_scripted_provider() -> None:
    async def talk() -> str:
        async with AsyncScripted(says("One."), says("Two.")) as provider, AsyncChat(provider) as chat:
            reply = await chat.send("Hello.")
            stream = chat.stream("And?", state=reply.state)
            return reply.text + "".join([event.text async for event in stream if isinstance(event, Text)])

    assert anyio.run(talk) == "One.Two."


@pytest.mark.parametrize(
    "step",
    [
        says("Hello there, Ada."),
        says("", finish="length"),
        says(None, calls=[("c1", "add", {"a": 1}), ("c2", "add", '{"broken')]),
        says("I'll look.", calls=[("c1", "add", {})], fields={"reasoning_content": "hm", "x": {"b": 1, "a": 2}}),
        says("😀é", pieces=5, usage={"prompt_tokens": 7, "completion_tokens": 8}),
    ],
)
def test_a_step_says_the_same_whole_and_streamed(step: Step) -> None:
    same(step, WIRE)


@pytest.mark.parametrize("finish", [None, "completed", "max_output_tokens"])
@pytest.mark.parametrize("text", [None, "", "😀é and more"])
def test_a_step_of_the_responses_wire_is_the_same_whole_and_streamed(text: str | None, finish: str | None) -> None:
    calls = [("c1", "add", {"a": 1}), ("c2", "add", '{"broken')]
    fields = {"reasoning": ["gAAA", "gBBB"], "phase": "commentary"}
    wire = WIRES["openai-responses"]
    same(says(text, wire=wire.name, finish=finish), wire)
    step = says(text, calls=calls, fields=fields, finish=finish, usage={"input_tokens": 7}, wire=wire.name)
    same(step, wire)
    answer = wire.parse(step.body)
    assert [(call.id, call.arguments) for call in answer.view.calls] == [("c1", b'{"a":1}'), ("c2", b'{"broken')]
    assert answer.native is not None
    assert answer.native.count(b'"encrypted_content"') == 2
    assert answer.native.count(b'"phase"') == (text is not None)
    assert wire.read_usage(answer.usage or b"").input == 7


def same(step: Step, wire: Wire) -> None:
    pieces = wire.new_accumulator()
    text = "".join([pieces.feed(data) for data in step.events if isinstance(data, bytes)])
    assert pieces.done
    assert pieces.answer() == wire.parse(step.body)
    assert text == wire.parse(step.body).view.text


@pytest.mark.parametrize(
    "made",
    [
        {"text": "Hello there, Ada.", "pieces": 1},
        {"text": None, "calls": [("c1", "add", {"a": 1}), ("", "add", '{"broken'), ("", "add", "5")]},
        {"text": "Hm.", "calls": [("c1", "add", {})], "fields": {"thinking": ["so"]}, "pieces": 1},
        {"text": "a", "pieces": 1, "finish": "MAX_TOKENS", "usage": {"promptTokenCount": 7}},
        {"text": None},
    ],
)
def test_a_step_of_the_gemini_wire_is_the_same_whole_and_streamed(made: dict[str, Any]) -> None:
    wire, step = WIRES["gemini"], says(**made, wire="gemini")
    pieces = wire.new_accumulator()
    for data in step.events:
        assert isinstance(data, bytes)
        pieces.feed(data)
    assert pieces.done
    assert pieces.answer() == wire.parse(step.body)


def test_the_signature_of_a_streamed_text_comes_behind_it() -> None:
    step = says("abc", fields={"thinking": ["so"]}, wire="gemini")
    pieces = WIRES["gemini"].new_accumulator()
    text = "".join([pieces.feed(data) for data in step.events if isinstance(data, bytes)])
    answer = pieces.answer()
    assert (text, answer.opaque) == ("abc", True)
    assert answer.native is not None
    assert json.loads(answer.native)["parts"][-1] == {"text": "", "thoughtSignature": "c2lnbmVk"}
    assert WIRES["gemini"].parse(step.body).opaque


def test_a_text_comes_in_as_many_pieces_as_asked_for() -> None:
    pieces = WIRE.new_accumulator()
    texts = [pieces.feed(data) for data in says("abcdef", pieces=3).events if isinstance(data, bytes)]
    assert [text for text in texts if text] == ["ab", "cd", "ef"]
