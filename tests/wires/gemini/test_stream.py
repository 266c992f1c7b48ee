"""Gemini, streamed: every part of every chunk, as it came."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.providers.http.sse import EventParser
from longtalk.testing.wires.gemini import check
from longtalk.usage import Usage
from longtalk.wires.gemini.stream import GeminiAccumulator
from longtalk.wires.gemini.wire import WIRE
from longtalk.wires.protocol import Answer, Preamble, Quirks, ReportedError
from tests.support.properties import examples

SIGNED = {"thoughtSignature": "c2ln"}


def chunk(*parts: bytes, reason: str | None = None, usage: bytes = b"") -> bytes:
    ends = b',"finishReason":"%s"' % reason.encode() if reason else b""
    counts = b',"usageMetadata":%s' % usage if usage else b""
    return b'{"candidates":[{"content":{"parts":[%s],"role":"model"}%s}]%s}' % (b",".join(parts), ends, counts)


STOP = b'{"candidates":[{"finishReason":"STOP"}]}'


def fed(events: Iterable[bytes]) -> tuple[GeminiAccumulator, str]:
    parts = WIRE.new_accumulator()
    return parts, "".join([parts.feed(data) for data in events])


def acceptable(answer: Answer) -> None:
    """Whether a conversation with this answer, its calls closed, is one that the provider takes."""
    answers = [] if answer.native is None or answer.empty else [answer.native]
    results = [WIRE.write_result(call.id, "Not run.", error=True, name=call.name) for call in answer.view.calls]
    pieces = [WIRE.write_user("Hi."), *answers, *results, WIRE.write_user("Go on.")]
    sent = WIRE.build_request(
        model="m", preamble=Preamble(), pieces=pieces, mark=0, options={}, quirks=Quirks(), stream=True
    )
    check(json.loads(sent))


# Any parts, in any chunks, in any bytes

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)
UNKNOWN = st.dictionaries(st.sampled_from(["odd", "é", "groundingChunk"]), VALUES, max_size=2)
KINDS = st.one_of(
    st.builds(lambda text: {"text": text}, st.text(max_size=6)),
    st.builds(lambda text: {"text": text, "thought": True}, st.text(min_size=1, max_size=6)),
    st.builds(
        lambda given, args: {"functionCall": {**given, "name": "look", "args": args}},
        st.sampled_from([{}, {"id": "c1"}]),
        st.dictionaries(st.text(max_size=3), VALUES, max_size=2),
    ),
    st.just({"executableCode": {"language": "PYTHON", "code": "1"}}),
    st.just({"later": 1}),
)
PARTS = st.builds(
    lambda part, unknown, signed, ascii_only: json.dumps(
        {**part, **unknown, **signed}, ensure_ascii=ascii_only
    ).encode(),
    KINDS,
    UNKNOWN,
    st.sampled_from([{}, {}, SIGNED]),
    st.booleans(),
)


def is_blank(part: bytes) -> bool:
    members = json.loads(part)
    return members.get("text") == "" and "thoughtSignature" not in members


@examples(50, 300)
@given(st.lists(st.lists(PARTS, max_size=3), max_size=5), st.integers(1, 60), st.sampled_from([b"\n", b"\r\n"]))
def test_any_split_of_the_bytes_gives_the_same_answer(chunks: list[list[bytes]], size: int, end: bytes) -> None:
    events = [*(chunk(*parts) for parts in chunks), STOP, b'{"usageMetadata":{"promptTokenCount":3}}']
    raw = b"".join(b"data: " + data + end + end for data in events)
    reader = EventParser()
    came = [data for at in range(0, len(raw), size) for data in reader.feed(raw[at : at + size])]
    accumulator, text = fed([*came, *reader.end()])
    answer = accumulator.answer()
    kept = [part for parts in chunks for part in parts if not is_blank(part)]
    assert answer.native == b'{"role":"model","parts":[' + b",".join(kept) + b"]}"
    assert text == answer.view.text
    assert answer.opaque == any(b'"thoughtSignature"' in part for part in kept)
    assert (answer.usage, accumulator.done) == (b'{"promptTokenCount":3}', True)


@given(st.lists(PARTS, max_size=6), st.integers(0, 6))
def test_an_answer_that_breaks_off_anywhere_can_be_sent_back(parts: list[bytes], stop: int) -> None:
    accumulator, text = fed([chunk(part) for part in parts[:stop]])
    assert not accumulator.done
    answer = accumulator.answer(interrupted=True)
    assert answer.finish == "interrupted"
    assert answer.view.text == text
    assert (answer.native is None) == answer.empty
    acceptable(answer)


def test_streamed_and_whole_are_the_same_parts() -> None:
    parts = [b'{"text":"a"}', b'{"functionCall":{"name":"look","args":{}}}', b'{"text":"","thoughtSignature":"c2ln"}']
    streamed, _ = fed([*map(chunk, parts), STOP])
    whole = WIRE.parse(chunk(*parts, reason="STOP"))
    assert streamed.answer() == whole


def test_an_answer_is_whole_when_it_has_a_reason_and_more_may_follow() -> None:
    parts, text = fed([chunk(b'{"text":"a"}', reason="STOP")])
    assert parts.done
    text += parts.feed(chunk(b'{"text":"b"}', reason="STOP", usage=b'{"candidatesTokenCount":2}'))
    parts.feed(b"")
    parts.feed(b"[DONE]")
    answer = parts.answer()
    assert (text, answer.view.text, answer.finish) == ("ab", "ab", "stop")


def test_the_last_counts_are_right() -> None:
    counts = [b'{"promptTokenCount":9}', b'{"promptTokenCount":9,"candidatesTokenCount":4,"thoughtsTokenCount":null}']
    parts, _ = fed([chunk(b'{"text":"a"}', usage=counts[0]), chunk(reason="STOP", usage=counts[1])])
    usage = parts.answer().usage
    assert usage is not None
    assert WIRE.read_usage(usage) == Usage(input=9, output=4)


def test_half_an_emoji_waits_for_its_other_half() -> None:
    parts, _ = fed([])
    shown = [parts.feed(chunk(b'{"text":"a\\ud83d"}')), parts.feed(chunk(b'{"text":"\\ude00b"}'))]
    assert shown == ["a", "😀b"]
    left = [parts.feed(chunk(b'{"text":"\\ud83d"}')), parts.feed(chunk(b'{"later":1}')), parts.feed(STOP)]
    assert left == ["", "\ufffd", ""]
    native = parts.answer().native
    assert native is not None
    assert native.count(b"\\ud83d") == 2


def test_thoughts_are_not_told() -> None:
    _, text = fed([chunk(b'{"text":"Hm.","thought":true}'), chunk(b'{"text":"Hi."}')])
    assert text == "Hi."


@pytest.mark.parametrize(
    "data",
    [b'{"error":{"code":503,"message":"busy"}}', b'{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{}}'],
)
def test_an_error_in_a_stream_is_reported_as_it_came(data: bytes) -> None:
    parts, _ = fed([chunk(b'{"text":"a"}')])
    with pytest.raises(ReportedError) as caught:
        parts.feed(data)
    assert caught.value.error == data
    assert parts.answer(interrupted=True).view.text == "a"


@pytest.mark.parametrize("data", [b"<html>", b"5", b'{"candidates":5}', chunk(b"5"), chunk(b'{"text":"b"}', b"null")])
def test_what_is_no_chunk_is_refused_and_takes_nothing_away(data: bytes) -> None:
    parts, _ = fed([chunk(b'{"text":"a"}')])
    with pytest.raises(ValueError, match="not JSON"):
        parts.feed(data)
    assert parts.answer(interrupted=True).native == b'{"role":"model","parts":[{"text":"a"}]}'


def test_a_failure_without_an_answer_is_reported_unless_it_was_stopped() -> None:
    ended = {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "print(x"}]}
    parts, _ = fed([json.dumps(ended).encode()])
    with pytest.raises(ReportedError, match="error") as caught:
        parts.answer()
    assert b"print(x" in caught.value.error
    assert parts.answer(interrupted=True).native is None


def test_only_the_first_candidate_is_told() -> None:
    both: dict[str, Any] = {"candidates": [{"index": i, "content": {"parts": [{"text": str(i)}]}} for i in (0, 1)]}
    _, text = fed([json.dumps(both).encode()])
    assert text == "0"
