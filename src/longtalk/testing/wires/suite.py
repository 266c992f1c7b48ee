"""A conformance suite for wires: a wire that passes can be used with Longtalk.

```python
check_wire(WIRE, [Step(body, events)]).raise_for_failures()
```

Each step is an answer of the provider, once as the body of a response and once as the events of a stream. The first one
should have text and no tool calls. With pytest, use `@pytest.mark.parametrize("case", CASES, ids=str)` and call
`case.run(WIRE, steps)`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from longtalk._sync.chat.chat import Chat
from longtalk._sync.providers.scripted.provider import Scripted
from longtalk._util import json_bytes
from longtalk.errors import InputError
from longtalk.providers.scripted.script import Step
from longtalk.state.codec import decode
from longtalk.testing.report import Report, assert_equal, assert_present, assert_raises, assert_true, run_all
from longtalk.testing.wires.validate import validate, without_cache_marks
from longtalk.transcript.transcript import Entry
from longtalk.usage import Usage
from longtalk.wires import HTTP_WIRES, NAMES, WIRES
from longtalk.wires.convert import CallIdMap, convert_entry
from longtalk.wires.protocol import Answer, Preamble, Quirks, Wire

_TEXTS = ("Hello.", 'a "quoted" <b> \\ line\nand another', "日本語 🎻", "{}")


@dataclass(frozen=True)
class Case:
    """One case of the suite."""

    name: str
    check: Callable[[Wire, Sequence[Step]], None]

    def __str__(self) -> str:
        return self.name

    def run(self, wire: Wire, answers: Sequence[Step]) -> None:
        """Run the case. Raises `AssertionError` if the wire fails it."""
        self.check(wire, answers)


CASES: list[Case] = []
"""All cases, in the order in which they run."""


def check_wire(wire: Wire, answers: Sequence[Step]) -> Report:
    """Run all cases and return the report. `answers` are answers of the provider, at least one of them with text."""
    if not answers:
        raise InputError("check_wire needs answers of the provider: pass at least one Step(body, events).")
    return run_all(CASES, lambda case: case.run(wire, answers), subject="wire")


def _add(check: Callable[[Wire, Sequence[Step]], None]) -> None:
    CASES.append(Case(check.__name__, check))


def _build(wire: Wire, pieces: Sequence[bytes], *, stream: bool = False) -> bytes:
    return wire.build_request(
        model="model",
        preamble=Preamble(system="Be brief."),
        pieces=pieces,
        mark=len(pieces),
        options=wire.defaults,
        quirks=Quirks(),
        stream=stream,
    )


def _parse(wire: Wire, step: Step) -> tuple[Answer, bytes]:
    answer = wire.parse(step.body)
    return answer, assert_present(answer.native, "the message of an answer")


def _accumulate(wire: Wire, events: Sequence[object]) -> tuple[str, Answer, bool]:
    accumulator = wire.new_accumulator()
    text = "".join(accumulator.feed(event) for event in events if isinstance(event, bytes))
    is_done = accumulator.done
    return text, accumulator.answer(interrupted=not is_done), is_done


@_add
def it_is_the_wire_of_its_name(wire: Wire, answers: Sequence[Step]) -> None:  # noqa: ARG001
    assert_true(WIRES.get(wire.name) is wire, f"WIRES[{wire.name!r}] is not this wire: is its entry point installed?")


@_add
def what_a_user_says_is_read_back(wire: Wire, answers: Sequence[Step]) -> None:  # noqa: ARG001
    for text in _TEXTS:
        seen = wire.view(wire.write_user(text))
        assert_equal((seen.role, seen.text), ("user", text), "a user's message")


@_add
def the_result_of_a_call_is_read_back(wire: Wire, answers: Sequence[Step]) -> None:  # noqa: ARG001
    for text in _TEXTS[:3]:
        for error in (False, True):
            seen = wire.view(wire.write_result("call_1", text, error=error, name="look"))
            assert_equal((seen.role, seen.call_id), ("tool", "call_1"), "the role and the call of a result")
            assert_true(text in seen.text, f"the text of a result is {seen.text!r} instead of {text!r}")


@_add
def a_request_contains_its_messages_byte_for_byte(wire: Wire, answers: Sequence[Step]) -> None:  # noqa: ARG001
    for stream in (False, True):
        for text in _TEXTS:
            message = wire.write_user(text)
            body = _build(wire, [message], stream=stream)
            validate(body, wire=wire.name)
            assert_true(message[1:-1] in without_cache_marks(body), f"not in the request: {message!r}")
            assert_true(b"Be brief." in body, "the system text is not in the request")


@_add
def instructions_and_quotes_are_messages(wire: Wire, answers: Sequence[Step]) -> None:  # noqa: ARG001
    for message in (wire.write_instruction("Be brief."), wire.quote("memory", "They met.")):
        assert_true(isinstance(json.loads(message), dict), f"not a JSON object: {message!r}")
        validate(_build(wire, [wire.write_user("Hello."), message]), wire=wire.name)


@_add
def an_answer_goes_back(wire: Wire, answers: Sequence[Step]) -> None:
    for step in answers:
        answer, native = _parse(wire, step)
        assert_equal(wire.view(native).text, answer.view.text, "the text of an answer that was stored")
        entry = Entry(role="assistant", wire=wire.name, native=native, at=0)
        piece = native if wire.is_plain("assistant") else wire.render(entry, Quirks())
        pieces = [wire.write_user("Hello."), assert_present(piece, "an answer as it is sent")]
        results = [wire.write_result(call.id, "found", error=False, name=call.name) for call in answer.view.calls]
        validate(_build(wire, [*pieces, *results, wire.write_user("Go on.")]), wire=wire.name)


@_add
def a_streamed_answer_equals_the_whole_one(wire: Wire, answers: Sequence[Step]) -> None:
    for step in answers:
        whole, _ = _parse(wire, step)
        text, streamed, is_done = _accumulate(wire, step.events)
        assert_true(is_done, "the answer is not done after its last event")
        assert_equal(text, whole.view.text, "the text of a stream")
        assert_equal(streamed.view.text, whole.view.text, "the text of a streamed answer")
        assert_equal(
            [(call.name, json.loads(call.arguments)) for call in streamed.view.calls],
            [(call.name, json.loads(call.arguments)) for call in whole.view.calls],
            "the calls of a streamed answer",
        )
        assert_equal(streamed.finish, whole.finish, "why a streamed answer ended")


@_add
def a_stream_may_end_anywhere(wire: Wire, answers: Sequence[Step]) -> None:
    for step in answers:
        whole, _ = _parse(wire, step)
        for stop in range(len(step.events)):
            text, cut, _ = _accumulate(wire, step.events[:stop])
            assert_true(whole.view.text.startswith(text), f"the text after {stop} events is {text!r}")
            if cut.native is not None:
                wire.view(cut.native)


@_add
def what_is_no_json_object_is_refused(wire: Wire, answers: Sequence[Step]) -> None:  # noqa: ARG001
    for data in (b"", b"[]", b"null", b"<html>", b"{"):
        assert_raises(ValueError, lambda data=data: wire.parse(data), f"parse({data!r})")  # type: ignore[misc]
        assert_raises(ValueError, lambda data=data: wire.view(data), f"view({data!r})")  # type: ignore[misc]


@_add
def a_usage_report_that_can_t_be_read_counts_nothing(wire: Wire, answers: Sequence[Step]) -> None:  # noqa: ARG001
    for data in (b"null", b"[]", b"{}", b'"many"'):
        usage = wire.read_usage(data)
        assert_true(isinstance(usage, Usage), f"read_usage({data!r}) is {usage!r}")
        assert_equal((usage.input or 0, usage.output or 0), (0, 0), f"read_usage({data!r})")


@_add
def a_redacted_message_has_another_text(wire: Wire, answers: Sequence[Step]) -> None:
    _, native = _parse(wire, answers[0])
    for message in (wire.write_user("secret words"), native):
        redacted = wire.redact(message, "[redacted]")
        assert_equal(wire.view(redacted).text, "[redacted]", "the text of a redacted message")
        assert_equal(wire.view(redacted).role, wire.view(message).role, "the role of a redacted message")


@_add
def a_conversation_comes_from_another_wire_and_goes_to_it(wire: Wire, answers: Sequence[Step]) -> None:
    _, native = _parse(wire, answers[0])
    for other in HTTP_WIRES.values():
        said = Entry(role="user", wire=other.name, native=other.write_user("Hello."), at=0)
        moved = assert_present(convert_entry(said, wire, CallIdMap()), f"a message of {other.name}")
        assert_equal(wire.view(moved.native).text, "Hello.", f"a message of {other.name}")
        answer = Entry(role="assistant", wire=wire.name, native=native, at=0)
        there = assert_present(convert_entry(answer, other, CallIdMap()), f"an answer on {other.name}")
        assert_equal(other.view(there.native).text, wire.view(native).text, f"an answer on {other.name}")
        back = assert_present(convert_entry(there, wire, CallIdMap()), f"an answer of {other.name}")
        assert_equal(wire.view(back.native).text, wire.view(native).text, f"an answer of {other.name}")


@_add
def a_chat_holds_a_conversation(wire: Wire, answers: Sequence[Step]) -> None:
    wanted = wire.parse(answers[0].body).view.text
    for stream in (False, True):
        provider = Scripted(answers[0], answers[0], wire=wire)
        chat = Chat(provider)
        state = None
        for _ in range(2):
            if stream:
                events = chat.stream("Hello.", state=state)
                list(events)
                reply = events.reply
            else:
                reply = chat.send("Hello.", state=state)
            assert_equal(reply.text, wanted, "the text of a reply")
            state = reply.state
        for request in provider.requests:
            validate(request, wire=wire.name)
            json_bytes.check_object(request)
        assert_equal(len(decode(state or b"", wires=NAMES)), 4, "entries of the conversation")
