"""Server-sent events: any stream in any chunks gives the events that the standard's own rules give."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from longtalk.providers.http.sse import EventParser

BOM = b"\xef\xbb\xbf"


def reference(stream: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the data of the closed events of a stream, and of an event that the server left open.

    Written from "Interpreting an event stream" of the HTML standard, a byte at a time.
    """
    if stream.startswith(BOM):
        stream = stream[len(BOM) :]
    lines, line, i = [], bytearray(), 0
    while i < len(stream):
        byte = stream[i : i + 1]
        if byte in (b"\r", b"\n"):
            lines.append(bytes(line))
            line.clear()
            if stream[i : i + 2] == b"\r\n":
                i += 1
        else:
            line += byte
        i += 1
    events: list[bytes] = []
    data = b""

    def process(line: bytes) -> None:
        nonlocal data
        if not line:
            if data:
                events.append(data[:-1])
            data = b""
        elif not line.startswith(b":"):
            field, _, value = line.partition(b":")
            if field == b"data":
                data += (value[1:] if value.startswith(b" ") else value) + b"\n"

    for each in lines:
        process(each)
    closed = len(events)
    if line:
        process(bytes(line))
    process(b"")
    return events[:closed], events[closed:]


def read(chunks: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    events = EventParser()
    return [data for chunk in chunks for data in events.feed(chunk)], events.end()


def split(stream: bytes, cuts: list[int]) -> list[bytes]:
    where = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(where)]


ENDS = [b"\r", b"\n", b"\r\n", b"\n\n"]
DATA = [b"data", b":", b": ", b" ", b"data:", b"data: ", b"data: x", b"x", BOM, b"\xc3", b"\0", b"[DONE]"]
OTHERS = [b"event: e", b"id: 1", b"retry: 5", b": comment", b"Data: no", b"data : no", b"datax: no"]
TOKENS = st.sampled_from([*ENDS, *DATA, *OTHERS])
STREAMS = st.one_of(st.lists(TOKENS, max_size=16).map(b"".join), st.binary())


@given(STREAMS, st.lists(st.integers(0, 60), max_size=8))
@example(BOM + b"data: x", [1, 2])
@example(b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [8, 10])
@example(b"data\n\ndata\ndata\n\ndata:", [])
@example(b"data\r\r", [5])
@example(b"data\r\n\r\n", [5, 7])
def test_any_stream_in_any_chunks_is_read_as_the_standard_says(stream: bytes, cuts: list[int]) -> None:
    assert read(split(stream, cuts)) == reference(stream)


@given(STREAMS)
def test_a_stream_may_come_byte_by_byte(stream: bytes) -> None:
    assert read([stream[i : i + 1] for i in range(len(stream))]) == reference(stream)


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b'data: {"a":1}\n\ndata: [DONE]\n\n', [b'{"a":1}', b"[DONE]"]),
        (b"data:x\n\n", [b"x"]),
        (b"data:  x\n\n", [b" x"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data\n\n", [b""]),
        (b": OPENROUTER PROCESSING\n\ndata: x\n\n", [b"x"]),
        (b"event: message\nid: 7\nretry: 100\ndata: x\n\n", [b"x"]),
        (b"retry: 100\n\n", []),
        (b"\n\n\n", []),
        (BOM + b"data: x\r\n\r\n", [b"x"]),
        (b"data: \xff\xfe\n\n", [b"\xff\xfe"]),
        (b"", []),
    ],
)
def test_what_servers_send(stream: bytes, events: list[bytes]) -> None:
    assert read([stream]) == (events, [])


def test_an_event_is_given_as_soon_as_it_is_closed() -> None:
    events = EventParser()
    assert events.feed(b"data: a\n") == []
    assert events.feed(b"\n") == [b"a"]
    assert events.feed(b"data: b\n\ndata: c") == [b"b"]
    assert events.feed(b"\r\r") == [b"c"]
    assert events.feed(b"\ndata: d\r") == []
    assert events.feed(b"\r") == [b"d"]


def test_an_event_that_the_server_forgot_to_close_is_given_at_the_end() -> None:
    assert read([b"data: a\n\nda", b"ta: [DONE]"]) == ([b"a"], [b"[DONE]"])
    assert read([b"data: [DONE]\r"]) == ([], [b"[DONE]"])


def test_a_line_without_an_end_is_put_together_once() -> None:
    # However small its chunks: what has no end yet is only kept, and joined when the end has come.
    events = EventParser()
    for _ in range(1000):
        assert events.feed(b"data: x" if not events._rest else b"x") == []
    assert len(events._rest) == 1000
    assert events.feed(b"\n\n") == [b"x" * 1000]
    assert not any(events._rest)
