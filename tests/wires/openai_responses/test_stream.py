"""Responses, streamed: events become the items that a whole answer would have had."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk._util import json_bytes
from longtalk.providers.http.sse import EventParser
from longtalk.testing import says, validate
from longtalk.transcript.transcript import Entry
from longtalk.wires.openai_responses.stream import ResponsesAccumulator
from longtalk.wires.openai_responses.wire import WIRE
from longtalk.wires.protocol import Answer, Preamble, Quirks, ReportedError

USER = WIRE.write_user("Hello.")
THOUGHT = b'{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA"}'
SAID = b'{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"a\\u00e9"}]}'
CALL = b'{"type":"function_call","id":"fc_1","call_id":"call_1","name":"add","arguments":"{}", "x": 1e2}'
LATER = b'{ "type" : "later_item", "what" : [1.50, "\\ud83d"] }'


def made(kind: str, **fields: bytes | int | str) -> bytes:
    members = {key: value if isinstance(value, bytes) else json.dumps(value).encode() for key, value in fields.items()}
    return json_bytes.build({"type": json.dumps(f"response.{kind}").encode(), **members, "sequence_number": b"7"})


def added(index: int, item: bytes) -> bytes:
    return made("output_item.added", output_index=index, item=item)


def done(index: int, item: bytes) -> bytes:
    return made("output_item.done", output_index=index, item=item)


def delta(index: int, text: bytes, part: int = 0, kind: str = "output_text") -> bytes:
    return made(f"{kind}.delta", item_id="i", output_index=index, content_index=part, delta=text)


def end(status: str = "completed", output: bytes = b"[]", **more: bytes) -> bytes:
    response = {"id": b'"r"', "status": b'"%s"' % status.encode(), "error": b"null", "output": output, **more}
    return made(status, response=json_bytes.build(response))


CREATED = made("created", response=b'{"status":"in_progress","error":null,"output":[]}')


def fed(events: Iterable[bytes]) -> tuple[ResponsesAccumulator, str]:
    items = WIRE.new_accumulator()
    return items, "".join([items.feed(data) for data in events])


def kept(*events: bytes, interrupted: bool = False) -> list[bytes]:
    """The items that these events make."""
    native = fed(events)[0].answer(interrupted=interrupted).native
    return [] if native is None else json_bytes.items(json_bytes.fields(native)["output"])


def acceptable(answer: Answer) -> None:
    """Whether a conversation with this answer, its calls closed, is one that the provider takes."""
    entries = [] if answer.native is None or answer.empty else [answer.native]
    pieces = [WIRE.render(Entry(role="assistant", wire=WIRE.name, native=entry, at=0), Quirks()) for entry in entries]
    results = [WIRE.write_result(call.id, "Not run.", error=True) for call in answer.view.calls]
    sent = WIRE.build_request(
        model="m",
        preamble=Preamble(),
        pieces=[USER, *[piece for piece in pieces if piece is not None], *results, USER],
        mark=0,
        options=WIRE.defaults,
        quirks=Quirks(),
        stream=True,
    )
    validate(sent, wire=WIRE.name)


# Any answer, cut anywhere

_texts = st.text(max_size=12) | st.sampled_from(["\U0001f3bb", "\\ud83d", 'é"\n', "a\U0001f3bb\U0001f3bb"])


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[Any], list[bytes]]:
    """Items, and the events that spell them; texts with escapes of which any may be split."""
    items: list[bytes] = []
    events: list[bytes] = [CREATED]
    for index in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["thought", "said", "refused", "called", "later"]))
        if kind in ("said", "refused"):
            key, name = ("text", "output_text") if kind == "said" else ("refusal", "refusal")
            texts = draw(st.lists(_texts, min_size=1, max_size=2))
            content = [{"type": name, key: text} for text in texts]
            item = json.dumps({"type": "message", "id": f"m{index}", "role": "assistant", "content": content}).encode()
            events.append(added(index, b'{"type":"message","id":"m%d","role":"assistant","content":[]}' % index))
            for part, text in enumerate(texts):
                units = [text[i : i + 1] for i in range(len(text))]
                for unit in units:
                    spelt = json.dumps(unit).encode()
                    halves = [spelt[:7] + b'"', b'"' + spelt[7:]] if len(spelt) == 14 else [spelt]
                    events += [delta(index, half, part, name) for half in halves]
        else:
            item = {"thought": THOUGHT, "called": CALL.replace(b"call_1", b"call_%d" % index), "later": LATER}[kind]
            events.append(added(index, item))
        if draw(st.booleans()):
            events.append(b'{"type":"response.later.thing","output_index":%d,"delta":"x","item":5}' % index)
        items.append(item)
        events.append(done(index, item))
    listed = b"[" + b",".join(items) + b"]"
    events.append(end(output=draw(st.sampled_from([listed, b"[]"])), usage=b'{"input_tokens": 3}'))
    return items, events


@given(answers())
def test_items_are_kept_as_they_were_when_they_were_done(answer: tuple[list[bytes], list[bytes]]) -> None:
    items, events = answer
    accumulator, text = fed(events)
    made = accumulator.answer()
    assert made.native == b'{"output":[' + b",".join(items) + b"]}"
    assert made.view.text == text
    assert made.usage == b'{"input_tokens": 3}'
    assert accumulator.done
    response = b'{"id":"r","status":"completed","error":null,"output":[%s],"usage":{"input_tokens": 3}}'
    assert WIRE.parse(response % b",".join(items)) == made


@given(answers(), st.data())
def test_bytes_split_anywhere_give_the_same_answer(
    answer: tuple[list[bytes], list[bytes]], data: st.DataObject
) -> None:
    items, events = answer
    stream = b"".join(b"event: x\r\ndata: " + event + b"\r\n\r\n" for event in events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    parser, found = EventParser(), []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += parser.feed(stream[start:stop])
    assert [*found, *parser.end()] == events
    assert kept(*found) == items


@given(answers(), st.integers(0, 60))
def test_what_had_come_when_a_stream_was_cut_goes_back(answer: tuple[list[bytes], list[bytes]], cut: int) -> None:
    _, events = answer
    accumulator, text = fed(events[:cut])
    made = accumulator.answer(interrupted=True)
    assert made.finish == "interrupted"
    acceptable(made)
    if made.native is None:
        assert not text.strip()
    else:
        # Half a pair waits for its other half, and is dropped when that never comes.
        assert made.view.text in (text, text + "\ufffd")
    # Looking at it changes nothing.
    assert accumulator.answer(interrupted=True) == made


@pytest.mark.parametrize(
    "step",
    [
        says("Hello, you.", wire=WIRE.name),
        says(
            "Hm.",
            calls=[("c1", "add", {"a": 1}), ("c2", "add", "{")],
            fields={"reasoning": ["gAAA"], "phase": "x"},
            wire=WIRE.name,
        ),
        says(None, wire=WIRE.name, finish="max_output_tokens"),
    ],
)
def test_a_streamed_answer_equals_the_whole_one(step: Any) -> None:
    assert fed(step.events)[0].answer() == WIRE.parse(step.body)


# Texts


def test_an_emoji_that_is_split_between_deltas_is_said_once_it_is_whole() -> None:
    items = WIRE.new_accumulator()
    assert items.feed(delta(0, b'"a\\ud83c"')) == "a"
    assert items.feed(delta(0, b'"\\udfbb!"')) == "\U0001f3bb!"


def test_half_an_emoji_at_which_a_stream_was_cut_is_dropped() -> None:
    (message,) = kept(added(0, SAID), delta(0, b'"a\\ud83c"'), interrupted=True)
    assert json.loads(message)["content"] == [{"type": "output_text", "text": "a", "annotations": []}]


def test_half_an_emoji_at_the_end_is_shown_when_the_text_is_whole() -> None:
    _, text = fed([delta(0, b'"a\\ud83c"'), done(0, SAID), end()])
    assert text == "a\ufffd"


def test_a_text_that_only_comes_whole_is_said_then() -> None:
    assert fed([done(0, SAID), end()])[1] == "aé"
    assert fed([added(0, SAID), done(0, SAID), end()])[1] == "aé"
    assert fed([added(0, SAID), delta(0, b'"a\\u00e9"'), done(0, SAID), end()])[1] == "aé"


def test_a_delta_that_is_no_text_is_passed_over() -> None:
    assert fed([delta(0, b"5"), made("output_text.delta", output_index=0)])[1] == ""


# Items


def test_items_stand_in_the_order_of_their_places() -> None:
    assert kept(done(2, CALL), done(0, THOUGHT), done(1, SAID), end()) == [THOUGHT, SAID, CALL]


def test_items_without_a_place_stand_in_the_order_in_which_they_came() -> None:
    events = [
        made("output_item.added", item=b'{"type":"message"}'),
        made("output_text.delta", delta=b'"a"'),
        made("output_item.done", item=SAID),
        made("output_item.added", item=CALL),
        made("output_item.done", item=CALL),
        made("output_item.done", item=LATER),
        end(),
    ]
    assert kept(*events) == [SAID, CALL, LATER]
    assert kept(*events[:2], interrupted=True) != []


def test_items_that_only_come_at_the_end_are_taken_from_there() -> None:
    listed = b"[ " + SAID + b" ]"
    accumulator, _ = fed([CREATED, end(output=listed)])
    assert accumulator.answer().native == b'{"output":' + listed + b"}"


def test_a_message_that_was_never_said_to_be_done_is_kept() -> None:
    (message,) = kept(added(0, SAID), delta(0, b'"a"'), end())
    assert json.loads(message)["content"][0]["text"] == "a"


def test_what_a_server_has_stored_is_known_from_the_end_of_its_answer() -> None:
    accumulator, _ = fed([done(0, SAID), end(store=b"true")])
    assert accumulator.answer().native == b'{"store":true,"output":[' + SAID + b"]}"
    # What was cut off was not stored.
    assert b'"store"' not in (accumulator.answer(interrupted=True).native or b"")


def test_of_a_cut_stream_whole_items_and_the_begun_message_are_kept() -> None:
    begun = (
        b'{"id":"msg_2","type":"message","status":"in_progress","role":"assistant","phase":"commentary","content":[]}'
    )
    events = [done(0, THOUGHT), done(1, CALL), done(2, THOUGHT), added(3, begun), delta(3, b'"Wel"'), added(4, CALL)]
    *whole, message = kept(*events, interrupted=True)
    assert whole == [THOUGHT, CALL, THOUGHT]
    assert json.loads(message) == {
        **json.loads(begun),
        "status": "incomplete",
        "content": [{"type": "output_text", "text": "Wel", "annotations": []}],
    }
    assert kept(*events[:4], interrupted=True) == [THOUGHT, CALL]
    assert kept(done(0, THOUGHT), added(1, CALL), interrupted=True) == []


# Beginning and end


@pytest.mark.parametrize("kind", ["created", "in_progress", "queued"])
def test_an_answer_has_not_begun_with_what_leads_in(kind: str) -> None:
    items, _ = fed([made(kind, response=b'{"error":null}'), b"", b"[DONE]"])
    assert not items.started
    items.feed(added(0, SAID))
    items.feed(made(kind))
    assert items.started


@pytest.mark.parametrize(("status", "finish"), [("completed", "stop"), ("incomplete", "length")])
def test_an_answer_is_whole_when_the_stream_says_so(status: str, finish: str) -> None:
    items, _ = fed([done(0, SAID)])
    assert not items.done
    items.feed(end(status))
    assert items.done
    assert items.answer().finish == finish


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (b'{"type":"error","code":"x","message":"no","param":null}', b'"message":"no"'),
        (b'{"type":"error","error":{"message":"no"}}', b'"message":"no"'),
        (b'{"error":{"message":"no"}}', b'"message":"no"'),
        (made("failed", response=b'{"error":{"code":"server_error","message":"no"}}'), b'"message":"no"'),
        (made("failed", response=b'{"error":null}'), b"without an explanation"),
        (made("failed"), b"without an explanation"),
    ],
)
def test_an_error_is_reported_and_what_came_before_is_kept(event: bytes, error: bytes) -> None:
    items, _ = fed([done(0, SAID)])
    with pytest.raises(ReportedError) as caught:
        items.feed(event)
    assert error in caught.value.error
    assert items.answer(interrupted=True).native == b'{"output":[' + SAID + b"]}"


@given(
    st.lists(st.binary(max_size=20) | st.sampled_from([b"{}", b"5", b'{"type":5}', made("completed"), added(0, b"1")]))
)
def test_garbage_is_a_value_error_and_never_costs_what_had_come(events: list[bytes]) -> None:
    items, _ = fed([done(0, SAID)])
    for data in events:
        with contextlib.suppress(ValueError):
            items.feed(data)
    assert items.answer(interrupted=True).view.text == "aé"
