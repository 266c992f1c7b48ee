"""Amazon's event streams: whole events out of any chunks, and what is broken is told."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import strategies as st

from longtalk.errors import BadAnswer
from longtalk.providers.sdk.aws_eventstream import FrameParser
from tests.support.clouds import make_chunk_frame, make_frame, pack_frame
from tests.support.properties import holds

EVENTS = [b'{"type":"ping"}', b'{"type" : "odd", "n":1.0,"half":"\\ud83d"}', '{"text":"東京 😀"}'.encode()]
SENT = b"".join(map(make_chunk_frame, EVENTS))


def test_events_come_out_as_they_were_packed() -> None:
    assert FrameParser().feed(SENT) == EVENTS


@holds(st.lists(st.integers(0, len(SENT)), max_size=20))
def test_however_the_bytes_are_cut(cuts: list[int]) -> None:
    frames = FrameParser()
    pieces = [SENT[start:end] for start, end in pairwise(sorted({0, len(SENT), *cuts}))]
    assert [event for piece in pieces for event in frames.feed(piece)] == EVENTS
    assert frames.end() == []


@holds(st.integers(0, len(SENT) - 1), st.integers(1, 255))
def test_a_byte_that_has_changed_never_goes_unseen(place: int, change: int) -> None:
    sent = bytearray(SENT)
    sent[place] ^= change
    frames = FrameParser()
    try:
        found = frames.feed(bytes(sent)) + frames.end()
    except BadAnswer:
        return
    # A frame that claims to be longer waits for the rest of it.
    assert len(found) < len(EVENTS)
    assert found == EVENTS[: len(found)]


@pytest.mark.parametrize(
    ("headers", "payload", "kind", "message"),
    [
        (
            {"message_type": "exception", "exception_type": "throttlingException"},
            b'{"message":"Slow down."}',
            "rate_limit_error",
            "Slow down.",
        ),
        ({"message_type": "exception", "exception_type": "validationException"}, b"{}", "invalid_request_error", None),
        ({"message_type": "error", "error_code": "internal", "error_message": "Oh."}, b"", "internal", "Oh."),
        ({"message_type": "exception", "exception_type": "modelTimeoutException"}, b"No.", None, "No."),
    ],
)
def test_trouble_is_an_event_as_anthropic_sends_it(
    headers: dict[str, str], payload: bytes, kind: str | None, message: str | None
) -> None:
    (event,) = FrameParser().feed(make_frame(payload, **headers))
    code = headers.get("exception_type", "")
    assert json.loads(event) == {"type": "error", "error": {"type": kind or code, "message": message or code}}


def test_frames_without_an_event_are_passed_over() -> None:
    # A header that is a number, one that is true, one that is a time: none of them is text.
    odd = b"\1a\4\0\0\0\1\1b\0\1c\x08" + bytes(8)
    assert FrameParser().feed(make_frame(b"{}", event_type="initial-response")) == []
    assert FrameParser().feed(pack_frame(odd, b'{"metadata":1}')) == []


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"<html>This is no frame.</html>", "invalid length"),
        (bytes(16), "invalid length"),
        (make_frame(b'{"bytes":"!"}'), "without an event"),
        (make_frame(b'"text"'), "without an event"),
        (make_frame(b"{}")[:-1] + b"x", "checksum"),
    ],
)
def test_what_is_no_frame_is_a_bad_answer(sent: bytes, why: str) -> None:
    with pytest.raises(BadAnswer, match=why):
        FrameParser().feed(sent)


def test_headers_that_are_cut_off_are_a_bad_answer() -> None:
    with pytest.raises(BadAnswer, match="incomplete headers"):
        FrameParser().feed(pack_frame(b"\1a\7\0\x50text", b""))
