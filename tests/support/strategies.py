"""Hypothesis strategies for arbitrary JSON bytes and arbitrary transcripts."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import strategies as st

from longtalk.transcript.transcript import Entry, Record, Transcript, Turn, link_entries
from longtalk.wires.neutral import event, system

WIRE = "openai-chat"
OTHER = "another"
WIRES = frozenset((WIRE, OTHER, "longtalk"))
LATEST = 2**47 - 1
"""The latest time that a state can store, in the year 6429."""

moments = st.integers(0, LATEST)
_space = st.sampled_from([b"", b"", b"", b" ", b"\n", b"\t\r\n "])
_numbers = st.one_of(
    st.sampled_from([b"0", b"-0", b"1e2", b"1E+2", b"1.0", b"1.50", b"12345678901234567", b"-1e-7", b"1" * 40]),
    st.integers().map(lambda n: b"%d" % n),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda x: repr(x).encode()),
)
# The inside of a JSON string: plain text, escapes, half surrogate pairs, and bytes that are not UTF-8.
_inner = st.one_of(
    st.text(max_size=8).map(lambda text: json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")),
    st.text(max_size=8).map(lambda text: json.dumps(text)[1:-1].encode()),
    st.sampled_from(
        [
            b"\\u00e9",
            b"\\ud83d\\ude00",
            b"\\ud83d",
            b"\\uDE00",
            b"\\\\ud83d",
            b"\\\\\\ud800",
            b"\\ud83d\\ud83d\\ude00",
            b"\\/",
            b"\\u0000",
            b"\xff\xfe",
            b"\xed\xa0\x80",
            b"},{",
            b'}],\\"model\\":\\"x',
        ]
    ),
)
strings = st.lists(_inner, max_size=4).map(lambda parts: b'"' + b"".join(parts) + b'"')


def _array(items: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    padded = st.tuples(_space, items, _space).map(b"".join)
    return st.lists(padded, max_size=4).map(lambda found: b"[" + b",".join(found) + b"]")


def _object(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    # Keys may be in any order and may be repeated.
    member = st.tuples(_space, strings, _space, st.just(b":"), _space, values, _space).map(b"".join)
    return st.lists(member, max_size=4).map(lambda found: b"{" + b",".join(found) + b"}")


values = st.recursive(
    st.one_of(st.sampled_from([b"null", b"true", b"false"]), _numbers, strings),
    lambda inner: st.one_of(_array(inner), _object(inner)),
    max_leaves=8,
)
objects = _object(values)
natives = st.one_of(
    _object(st.one_of(_numbers, strings)),
    st.sampled_from(
        [
            b'{"role":"user","content":"hello"}',
            b'{ "content" : "caf\\u00e9",\n"role":"user", "x":1e2, "y":12345678901234567 }',
            b'{"role":"assistant","role":"user","content":[{"type":"text","text":"},{"}]}',
            b'{"role":"assistant","content":null,"tool_calls":[{"id":"c1","extra":{"\\ud83d":"\\uDE00"}}]}',
            b'{"role":"tool","tool_call_id":"c1","content":"\xff\xfe"}',
        ]
    ),
)


def any_value(names: Sequence[str], texts: Sequence[str]) -> st.SearchStrategy[bytes]:
    """Return a strategy for JSON objects with these member names and texts, whose values may have any type."""
    leaves = st.sampled_from(
        [b"null", b"true", b"0", b"1e999", b"9" * 5_000, b'""', b'"\\ud83d"', b'"{"', b'"{\\"a\\":1e999}"']
    )
    words = st.sampled_from([json.dumps(text).encode() for text in texts])
    keys = st.sampled_from([*names, "\udcff"])

    def join(members: dict[str, bytes]) -> bytes:
        return (
            b"{"
            + b",".join(b'"%s":%s' % (key.encode("utf-8", "surrogateescape"), value) for key, value in members.items())
            + b"}"
        )

    def extend(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
        lists = st.lists(inner, max_size=3).map(lambda found: b"[" + b",".join(found) + b"]")
        return lists | st.dictionaries(keys, inner, max_size=4).map(join)

    return st.dictionaries(keys, st.recursive(leaves | words, extend, max_leaves=8), max_size=5).map(join)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """Draw a message of one of two wires, a system message or an event, which is not yet linked to other entries."""
    at = draw(moments)
    kind = draw(st.sampled_from(["message", "message", "message", "system", "event"]))
    if kind == "event":
        return event(draw(st.text(max_size=20)), source=draw(st.text(max_size=5)), at=at)
    if kind == "system":
        return system(draw(st.text(max_size=20)), at=at)
    return Entry(
        role=draw(st.sampled_from(["user", "assistant", "tool", "system"])),
        wire=draw(st.sampled_from([WIRE, WIRE, OTHER])),
        native=draw(natives),
        at=at,
        mark=draw(st.sampled_from(["", "", "", "length", "empty", "closed"])),
        tokens=draw(st.integers(0, 100)),
    )


_readable = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
turns = st.builds(
    Turn,
    id=_readable,
    status=st.sampled_from(["running", "complete", "interrupted", "failed"]),
    model=_readable,
    started=moments,
    ended=moments,
    finish=st.sampled_from(["stop", "length"]),
    usage=st.lists(st.binary(max_size=8), max_size=3).map(tuple),
    responses=st.lists(st.binary(max_size=8), max_size=3).map(tuple),
    preamble=st.sampled_from(["", "0123456789abcdef"]),
    error=_readable,
)
records = st.builds(Record, kind=_readable, entry=_readable, at=moments, data=st.binary(max_size=20))


@st.composite
def additions(draw: st.DrawFn) -> tuple[Sequence[Entry], Turn | None]:
    """Draw the entries that one call adds, and their turn, or None for an event."""
    return draw(st.lists(entries(), max_size=4)), draw(st.one_of(st.none(), turns))


def add_linked(transcript: Transcript, added: Sequence[Entry], turn: Turn | None, first: int = 0) -> Transcript:
    """Return the transcript with these entries linked and appended."""
    name = turn.id if turn else "note"
    return transcript.add(link_entries(transcript.head, name, first, added), turn=turn)


@st.composite
def transcripts(draw: st.DrawFn) -> Transcript:
    """Draw a transcript of several turns whose entries are not packed."""
    transcript = Transcript()
    for added, turn in draw(st.lists(additions(), max_size=5)):
        transcript = add_linked(transcript, added, turn, first=draw(st.integers(0, 3)))
    return Transcript(
        fresh=transcript.fresh,
        turns=transcript.turns,
        records=tuple(draw(st.lists(records, max_size=2))),
        revision=draw(st.integers(0, 2**63 - 1)),
        created=draw(st.integers(-(2**63), 2**63 - 1)),
        updated=draw(st.integers(-(2**63), 2**63 - 1)),
    )
