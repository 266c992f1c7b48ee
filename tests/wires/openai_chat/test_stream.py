"""Chat Completions, streamed: pieces become the message that a whole answer would have been."""

import contextlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from longtalk.testing import says, validate
from longtalk.usage import Usage
from longtalk.wires.openai_chat.stream import ChatAccumulator
from longtalk.wires.openai_chat.wire import WIRE
from longtalk.wires.protocol import Answer, Preamble, Quirks, ReportedError
from tests.support.properties import examples

USER = WIRE.write_user("Hello.")


def chunk(delta: bytes | dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    delta = delta if isinstance(delta, bytes) else json.dumps(delta).encode()
    rest = "".join(f",{json.dumps(key)}:{json.dumps(value)}" for key, value in more.items())
    choice = b'{"index":0,"delta":%s,"finish_reason":%s}' % (delta, json.dumps(finish).encode())
    return b'{"id":"r","object":"chat.completion.chunk","choices":[%s]%s}' % (choice, rest.encode())


def fed(events: Iterable[bytes]) -> tuple[ChatAccumulator, str]:
    pieces = WIRE.new_accumulator()
    return pieces, "".join([pieces.feed(data) for data in events])


def whole(*deltas: bytes | dict[str, Any]) -> bytes:
    """The message that these deltas make."""
    pieces, _ = fed([*map(chunk, deltas), b"[DONE]"])
    native = pieces.answer().native
    assert native is not None
    return native


def acceptable(answer: Answer) -> None:
    """Whether a conversation with this answer, its calls closed, is one that servers take."""
    answers = [] if answer.native is None or answer.empty else [answer.native]
    results = [WIRE.write_result(call.id, "Not run.", error=True) for call in answer.view.calls]
    validate(
        WIRE.build_request(
            model="m",
            preamble=Preamble(),
            pieces=[USER, *answers, *results, USER],
            mark=0,
            options={},
            quirks=Quirks(),
            stream=True,
        )
    )


# Any message, cut into any pieces

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=6
)
# With halves of emoji among the characters, as models send them.
TEXTS = st.lists(
    st.one_of(st.characters(exclude_categories=("Cs",)), st.sampled_from(["😀", "\\", '"', "\ud83d", "\ude00"])),
    max_size=9,
).map("".join)
UNKNOWN = st.text().filter(
    lambda key: (
        key
        not in (
            "role",
            "content",
            "refusal",
            "reasoning",
            "reasoning_content",
            "audio",
            "tool_calls",
            "reasoning_details",
        )
    )
)
CALLS = st.fixed_dictionaries(
    {
        "id": st.text(min_size=1),
        "type": st.just("function"),
        "function": st.fixed_dictionaries(
            {
                "name": st.text(min_size=1),
                "arguments": st.one_of(TEXTS, st.dictionaries(st.text(), SCALARS, max_size=2).map(json.dumps)),
            }
        ),
    }
)


def calls_with_ids_of_their_own(calls: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**call, "id": f"{call['id']}_{i}"} for i, call in enumerate(calls)]


MESSAGES = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.one_of(st.none(), TEXTS)},
    optional={
        "reasoning_content": TEXTS,
        "refusal": st.one_of(st.none(), TEXTS),
        "tool_calls": st.lists(CALLS, min_size=1, max_size=3).map(calls_with_ids_of_their_own),
    },
)


def escaped(text: str, *, ascii_only: bool) -> list[str]:
    """The body of a JSON string in the smallest pieces that can stand alone."""
    return re.findall(r"\\u....|\\.|[^\\]", json.dumps(text, ensure_ascii=ascii_only)[1:-1], re.S)


def utf8(body: str) -> str:
    """As it can go over the wire: half an emoji only as an escape."""
    return re.sub("[\ud800-\udfff]", lambda m: f"\\u{ord(m[0]):04x}", body)


def cut(draw: st.DrawFn, text: str) -> list[str]:
    """A text as JSON strings that make it up when they are joined."""
    atoms = escaped(text, ascii_only=draw(st.booleans()))
    where = sorted(draw(st.lists(st.integers(0, len(atoms)), max_size=4)))
    return [
        '"' + utf8("".join(atoms[start:end])) + '"'
        for start, end in zip([0, *where], [*where, len(atoms)], strict=True)
    ]


@st.composite
def streams(draw: st.DrawFn) -> tuple[dict[str, Any], list[bytes]]:
    """A message, and the events of a stream that says it."""
    message = draw(MESSAGES)
    message |= draw(st.dictionaries(UNKNOWN, VALUES.filter(lambda value: value is not None), max_size=2))
    channels: list[list[str]] = []
    for key, value in message.items():
        if key == "tool_calls":
            for index, call in enumerate(value):
                first, *rest = cut(draw, call["function"]["arguments"])
                begun = {**call, "index": index, "function": {**call["function"], "arguments": "?"}}
                begins = json.dumps(begun).replace('"arguments": "?"', f'"arguments": {first}')
                goes_on = [f'{{"index": {index}, "function": {{"arguments": {piece}}}}}' for piece in rest]
                channels.append([f'"tool_calls": [{piece}]' for piece in (begins, *goes_on)])
        elif key in ("content", "reasoning_content", "refusal") and value is not None:
            channels.append([f"{json.dumps(key)}: {piece}" for piece in cut(draw, value)])
        else:
            channels.append([f"{json.dumps(key)}: {json.dumps(value)}"])
    # Every channel begins in its place; after that they mix as they like.
    members: list[str] = []
    open_channels: list[list[str]] = []
    for channel in channels:
        members.append(channel.pop(0))
        open_channels.append(channel)
        while any(open_channels) and draw(st.booleans()):
            members.append(draw(st.sampled_from([c for c in open_channels if c])).pop(0))
    while any(open_channels):
        members.append(draw(st.sampled_from([c for c in open_channels if c])).pop(0))
    events = [chunk(f"{{{member}}}".encode()) for member in members]
    return message, [*events, chunk({}, "stop"), b"[DONE]"]


def same(text: Any) -> Any:
    """As JSON has it: two halves of an emoji side by side are one."""
    return json.loads(json.dumps(text))


@given(streams())
def test_any_message_cut_into_any_pieces_is_put_together_again(stream: tuple[dict[str, Any], list[bytes]]) -> None:
    message, events = stream
    pieces, text = fed(events)
    answer = pieces.answer()
    assert answer.native is not None
    built = json.loads(answer.native)
    assert built == same(message)
    assert list(built) == list(message)
    assert text == answer.view.text
    assert pieces.done


@given(streams())
def test_what_had_come_when_a_stream_was_cut_is_a_message_that_servers_take(
    stream: tuple[dict[str, Any], list[bytes]],
) -> None:
    _, events = stream
    pieces, text = WIRE.new_accumulator(), ""
    acceptable(pieces.answer(interrupted=True))
    for data in events[:-1]:
        text += pieces.feed(data)
        answer = pieces.answer(interrupted=True)
        acceptable(answer)
        assert answer.finish == "interrupted"
        assert answer.view.text == text


@given(streams())
def test_looking_at_an_answer_under_way_does_not_change_it(stream: tuple[dict[str, Any], list[bytes]]) -> None:
    _, events = stream
    looked_at = WIRE.new_accumulator()
    for data in events:
        looked_at.feed(data)
        looked_at.answer(interrupted=True)
    assert looked_at.answer() == fed(events)[0].answer()


@given(st.dictionaries(UNKNOWN, VALUES, min_size=1, max_size=3), st.booleans())
def test_what_arrives_whole_under_an_unknown_key_keeps_its_bytes(unknown: dict[str, Any], pretty: bool) -> None:
    values = {key: json.dumps(value, indent=1 if pretty else None).encode() for key, value in unknown.items()}
    delta = b"{" + b",".join(json.dumps(key).encode() + b" : " + value for key, value in values.items()) + b"}"
    native = whole({"role": "assistant", "content": "x"}, delta)
    assert all(b":" + value in native for value in values.values())


@pytest.mark.parametrize("step", [says("Hello there."), says("é😀", fields={"x": {"b": 1, "a": [1.5]}}, pieces=2)])
def test_a_streamed_answer_equals_the_whole_one(step) -> None:
    streamed, answer = fed(step.events)[0].answer(), WIRE.parse(step.body)
    assert (streamed.native, streamed.view, streamed.finish) == (answer.native, answer.view, answer.finish)


# Keys


def test_keys_stand_in_the_order_in_which_they_first_came() -> None:
    native = whole({"zeta": 1}, {"content": "a"}, {"role": "assistant", "alpha": 2}, {"content": "b", "zeta": 3})
    assert native == b'{"zeta":3,"content":"ab","role":"assistant","alpha":2}'


def test_of_an_unknown_key_the_last_value_wins_and_null_never_does() -> None:
    native = whole({"x": {"a": 1}}, {"x": "one"}, {"x": "two"}, {"x": None}, {"y": None}, {"z": None}, {"z": ""})
    assert json.loads(native) == {"role": "assistant", "x": "two", "y": None, "z": ""}


def test_numbers_are_not_summed() -> None:
    assert json.loads(whole({"n": 1, "created": 5}, {"n": 1, "created": 5}))["n"] == 1


def test_exact_numbers_and_escapes_are_kept() -> None:
    native = whole(
        b'{"content":"caf\\u00e9"}', b'{"a":1e2,"b":12345678901234567,"k\\u00e9":"\\/"}', b'{"content":"\\/"}'
    )
    assert native == b'{"role":"assistant","content":"caf\\u00e9\\/","a":1e2,"b":12345678901234567,"k\xc3\xa9":"\\/"}'


@pytest.mark.parametrize("later", [{"role": "assistant"}, {"role": None}, {"role": ""}, {}])
def test_a_role_in_every_chunk_or_an_empty_one_does_no_harm(later: dict[str, Any]) -> None:
    deltas = [{"role": "assistant", "content": "a"}, {**later, "content": "b"}, {**later, "content": "c"}]
    assert whole(*deltas) == b'{"role":"assistant","content":"abc"}'


@pytest.mark.parametrize("first", [{}, {"role": None}, {"role": ""}])
def test_a_stream_without_a_role_is_the_assistants(first: dict[str, Any]) -> None:
    assert whole({**first, "content": "a"}, {**first, "content": "b"}) == b'{"role":"assistant","content":"ab"}'


def test_a_null_content_stays_null_until_there_is_text() -> None:
    assert whole({"content": None}, {"content": None}) == b'{"role":"assistant","content":null}'
    assert whole({"content": None}, {"content": "a"}, {"content": None}) == b'{"role":"assistant","content":"a"}'


def test_reasoning_and_refusal_and_audio_are_joined_too() -> None:
    native = whole(
        {
            "reasoning": "a",
            "reasoning_content": "c",
            "refusal": "e",
            "audio": {"id": "1", "data": "g", "expires_at": 1},
        },
        {"reasoning": "b", "reasoning_content": "d", "refusal": "f", "audio": {"data": "h", "expires_at": 2}},
        {"audio": {"transcript": "i"}},
        {"audio": {"transcript": "j"}},
    )
    assert json.loads(native) == {
        "role": "assistant",
        "reasoning": "ab",
        "reasoning_content": "cd",
        "refusal": "ef",
        "audio": {"id": "1", "data": "gh", "expires_at": 2, "transcript": "ij"},
    }


# Parts


def test_parts_are_kept_as_they_came_and_texts_between_them_become_parts() -> None:
    thinking, text = (
        b'{ "type":"thinking","thinking":[{"type":"text","text":"hm"}] }',
        b'{"type":"text","text":"b","x":1e2}',
    )
    events = [
        chunk(b'{"content":""}'),
        chunk(b'{"content":[%s]}' % thinking),
        chunk(b'{"content":[%s,"stray"]}' % text),
        chunk(b'{"content":"c"}'),
        chunk(b'{"content":"d"}'),
        b"[DONE]",
    ]
    pieces, said = fed(events)
    answer = pieces.answer()
    assert answer.native == (
        b'{"role":"assistant","content":[%s,%s,"stray",{"type":"text","text":"cd"}]}' % (thinking, text)
    )
    assert said == answer.view.text == "bcd"


def test_text_before_parts_comes_first() -> None:
    native = whole({"content": "a"}, {"content": [{"type": "text", "text": "b"}]}, {"content": "c"})
    assert [part["text"] for part in json.loads(native)["content"]] == ["a", "b", "c"]


# Half an emoji


def test_an_emoji_that_is_split_between_chunks_is_said_once_it_is_whole() -> None:
    pieces = WIRE.new_accumulator()
    assert pieces.feed(chunk(b'{"content":"a\\ud83d"}')) == "a"
    assert pieces.feed(chunk(b'{"content":""}')) == ""
    assert pieces.feed(chunk(b'{"content":"\\ude00b"}')) == "😀b"
    assert pieces.answer().native == b'{"role":"assistant","content":"a\\ud83d\\ude00b"}'


def test_half_an_emoji_inside_a_text_is_shown_as_unreadable_and_kept_as_it_came() -> None:
    pieces, text = fed([chunk(b'{"content":"a\\ud83d"}'), chunk(b'{"content":"b"}')])
    assert text == "a\ufffdb"
    assert pieces.answer().native == b'{"role":"assistant","content":"a\\ud83db"}'


def test_an_escaped_backslash_before_a_u_is_no_half_emoji() -> None:
    pieces, text = fed([chunk(b'{"content":"\\\\ud83d"}'), chunk(b'{"content":"\\\\\\ud83d"}'), b"[DONE]"])
    assert text == "\\ud83d\\\ufffd"
    assert pieces.answer().native == b'{"role":"assistant","content":"\\\\ud83d\\\\\\ud83d"}'


def test_half_an_emoji_at_the_very_end_is_kept_and_shown_when_the_stream_is_whole() -> None:
    events = [chunk(b'{"content":"a\\ud83d"}'), chunk({}, "stop"), b"[DONE]"]
    pieces, text = fed(events)
    assert pieces.answer().native == b'{"role":"assistant","content":"a\\ud83d"}'
    assert text == pieces.answer().view.text == "a\ufffd"


def test_half_an_emoji_at_which_a_stream_was_cut_is_dropped() -> None:
    # It would never be whole, and strict servers refuse a request that holds it.
    events = [chunk(b'{"reasoning_content":"\\\\\\uD83D","content":"a\\ud83d"}')]
    pieces, text = fed(events)
    assert pieces.answer(interrupted=True).native == b'{"role":"assistant","reasoning_content":"\\\\","content":"a"}'
    assert text == "a"


# Calls

ARGUMENTS = ['{"', "name", '": "', "a", '"}']
TOGETHER = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "".join(ARGUMENTS)}}
OTHER = {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}}


def calls(*deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return json.loads(whole(*({"tool_calls": [delta]} for delta in deltas)))["tool_calls"]


def begin(call: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**call, **more, "function": {"name": call["function"]["name"], "arguments": ""}}


@pytest.mark.parametrize(
    ("first", "later", "name_later"),
    [
        ({"index": 0}, {"index": 0}, {}),
        ({"index": 0}, {"index": 0, "id": "c1"}, {}),
        ({"index": 0}, {"index": 0, "id": None, "type": None}, {"name": None}),
        ({"index": 0}, {"index": 0, "id": "", "type": "function"}, {"name": ""}),
        ({"index": 0}, {"index": 0, "id": "c1", "type": "function"}, {"name": "f"}),
        ({"index": 0}, {}, {}),
        ({}, {}, {}),
        ({}, {"id": "c1"}, {}),
        ({}, {"id": ""}, {"name": ""}),
        ({}, {"id": None}, {"name": None}),
        ({"index": None}, {"index": None}, {}),
    ],
    ids=str,
)
def test_the_pieces_of_a_call_are_joined_however_a_server_labels_them(
    first: dict[str, Any], later: dict[str, Any], name_later: dict[str, Any]
) -> None:
    pieces = [{**later, "function": {**name_later, "arguments": piece}} for piece in ARGUMENTS]
    assert calls(begin(TOGETHER, **first), *pieces) == [TOGETHER]
    ends = begin(OTHER, **({"index": 1} if first.get("index") == 0 else first))
    ends["function"]["arguments"] = "{}"
    assert calls(begin(TOGETHER, **first), *pieces, ends) == [TOGETHER, OTHER]


@pytest.mark.parametrize("label", [{"index": 0}, {}, {"index": None}], ids=str)
def test_calls_that_arrive_whole_are_told_apart_by_their_ids(label: dict[str, Any]) -> None:
    assert calls({**TOGETHER, **label}, {**OTHER, **label}) == [TOGETHER, OTHER]
    both = whole({"tool_calls": [{**TOGETHER, **label}, {**OTHER, **label}]})
    assert json.loads(both)["tool_calls"] == [TOGETHER, OTHER]


def test_calls_without_index_and_id_are_told_apart_by_their_names() -> None:
    bare = [{"function": call["function"]} for call in (TOGETHER, OTHER)]
    built = calls(*bare)
    assert [call["function"] for call in built] == [TOGETHER["function"], OTHER["function"]]
    assert len({call["id"] for call in built}) == 2


def test_calls_that_all_have_index_0_go_on_at_the_newest_one() -> None:
    pieces = [{"index": 0, "function": {"arguments": piece}} for piece in ARGUMENTS]
    built = calls(
        begin(OTHER, index=0), {"index": 0, "function": {"arguments": "{}"}}, begin(TOGETHER, index=0), *pieces
    )
    assert built == [OTHER, TOGETHER]


def test_interleaved_calls_are_told_apart_by_index_or_by_id() -> None:
    for one, two in [
        ({"index": 0}, {"index": 1}),
        ({"id": "c1"}, {"id": "c2"}),
        ({"index": 0, "id": "c1"}, {"index": 0, "id": "c2"}),
    ]:
        mixed = [{**one, "function": {"arguments": piece}} for piece in ARGUMENTS]
        mixed.insert(2, {**two, "function": {"arguments": "{"}})
        mixed.insert(4, {**two, "function": {"arguments": "}"}})
        assert calls(begin(TOGETHER, **one), begin(OTHER, **two), *mixed) == [TOGETHER, OTHER]


def test_an_id_that_changes_under_one_number_without_a_name_is_no_new_call() -> None:
    built = calls(begin(TOGETHER, index=0), {"index": 0, "id": "other", "function": {"arguments": "{}"}})
    assert [call["function"] for call in built] == [{"name": "f", "arguments": "{}"}]


def test_arguments_that_come_as_an_object_stay_one() -> None:
    native = whole(b'{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":{ "a":1e2 }}}]}')
    assert b'"arguments":{ "a":1e2 }' in native
    assert WIRE.view(native).calls[0].arguments == b'{ "a":1e2 }'


def test_unknown_fields_of_a_call_are_kept() -> None:
    native = whole(
        b'{"tool_calls":[{"index":0,"id":"c","extra":{ "sig":"\\u00e9" },"function":{"name":"f","arguments":"{"}}]}',
        b'{"tool_calls":[{"index":0,"function":{"arguments":"}","strict":true}}]}',
    )
    assert native == (
        b'{"role":"assistant","tool_calls":[{"id":"c","extra":{ "sig":"\\u00e9" },'
        b'"function":{"name":"f","arguments":"{}","strict":true}}]}'
    )


def test_a_list_of_calls_that_never_came_is_left_out() -> None:
    assert whole({"content": "a", "tool_calls": None}) == b'{"role":"assistant","content":"a"}'


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [('{"a": 1}', True), ("{}", True), ({"a": 1}, True), ('{"a": 1', False), ("", False), ("[]", False), ("1", False)],
)
def test_of_an_interrupted_answer_only_whole_calls_are_kept(arguments: Any, kept: bool) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    pieces, _ = fed([chunk({"content": "a", "tool_calls": [call], "x": 1})])
    answer = pieces.answer(interrupted=True)
    assert [call.name for call in answer.view.calls] == ["f"] * kept
    assert list(json.loads(answer.native or b"{}")) == ["role", "content", *(["tool_calls"] if kept else []), "x"]


@pytest.mark.parametrize("missing", ["id", "name"])
def test_a_call_without_id_or_name_is_not_whole(missing: str) -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    call.pop(missing, None)
    call["function"].pop(missing, None)
    pieces, _ = fed([chunk({"tool_calls": [{"index": 0, **call}]})])
    assert pieces.answer(interrupted=True).native is None


# Details of reasoning, as OpenRouter streams them


def test_details_of_reasoning_are_joined_by_index_and_keep_it() -> None:
    native = whole(
        {"reasoning_details": [{"type": "reasoning.text", "text": "Let", "format": "x", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": " me", "format": "x", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.text", "signature": "sig", "format": "x", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "b", "format": "x", "index": 1}]},
    )
    assert json.loads(native)["reasoning_details"] == [
        {"type": "reasoning.text", "text": "Let me", "format": "x", "index": 0, "signature": "sig"},
        {"type": "reasoning.text", "text": "b", "format": "x", "index": 1},
    ]


def test_details_of_another_type_under_the_same_index_are_another_block() -> None:
    details = [
        {"type": "reasoning.summary", "summary": "a", "index": 0},
        {"type": "reasoning.summary", "summary": "b", "index": 0},
        {"type": "reasoning.encrypted", "data": "x", "id": "rs_1", "index": 0},
        {"type": "reasoning.summary", "summary": "c", "index": 0},
        {"type": "reasoning.encrypted", "data": "y", "id": "rs_2", "index": 0},
    ]
    native = whole(*({"reasoning_details": [detail]} for detail in details))
    assert json.loads(native)["reasoning_details"] == [{**details[0], "summary": "ab"}, *details[2:]]


# Around the message


def test_usage_comes_in_the_last_chunk_or_in_every_one() -> None:
    last = b'{"choices":[],"usage":{"prompt_tokens" : 3, "completion_tokens":2,"x":1e2}}'
    pieces, _ = fed(
        [chunk({"content": "a"}, usage=None), chunk({}, "stop", usage={"prompt_tokens": 1}), last, b"[DONE]"]
    )
    usage = pieces.answer().usage
    assert usage == b'{"prompt_tokens" : 3, "completion_tokens":2,"x":1e2}'
    assert WIRE.read_usage(usage) == Usage(3, 2)


def test_an_answer_without_usage_has_none() -> None:
    assert fed([chunk({"content": "a"}, "stop", usage=None)])[0].answer().usage is None


def test_an_interrupted_answer_keeps_the_usage_that_was_reported() -> None:
    pieces, _ = fed([chunk({"content": ""}, usage={"prompt_tokens": 1})])
    answer = pieces.answer(interrupted=True)
    assert (answer.native, answer.usage) == (None, b'{"prompt_tokens": 1}')


@pytest.mark.parametrize(
    ("events", "done"),
    [
        ([chunk({"content": "a"})], False),
        ([chunk({"content": "a"}), chunk({}, "stop")], True),
        ([chunk({"content": "a"}, "length")], True),
        ([chunk({"content": "a"}, ""), chunk({}, None)], False),
        ([chunk({"content": "a"}), b"[DONE]"], True),
        ([], False),
    ],
)
def test_an_answer_is_whole_when_it_has_a_reason_or_the_stream_says_so(events: list[bytes], done: bool) -> None:
    assert fed(events)[0].done is done


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "filtered"), ("tool_calls", "stop")],
)
def test_why_a_streamed_answer_ended_is_kept_when_the_stream_is_cut_after_it(reason: str, finish: str) -> None:
    assert fed([chunk({"content": "a"}), chunk({}, reason)])[0].answer().finish == finish


@pytest.mark.parametrize(
    "nothing",
    [
        b'{"choices":null}',
        b'{"choices":[]}',
        b"{}",
        b'{"choices":[{"index":0,"delta":null,"finish_reason":null}]}',
        b'{"choices":[{"index":0}]}',
        b'{"choices":[],"prompt_filter_results":[{"prompt_index":0}]}',
        b'{"choices":[{"index":1,"delta":{"content":"other"},"finish_reason":"stop"}]}',
        b'{"choices":[],"error":null,"usage":null}',
        b"",
        b"  ",
    ],
)
def test_a_chunk_that_says_nothing_changes_nothing(nothing: bytes) -> None:
    pieces, text = fed([nothing, chunk({"content": "a"}), nothing, chunk({"content": "b"}), nothing])
    assert text == "ab"
    assert not pieces.done
    assert pieces.answer().native == b'{"role":"assistant","content":"ab"}'


def test_only_the_first_choice_is_heard() -> None:
    event = (
        b'{"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":"stop"},{"index":0,"delta":{"content":"a"}}]}'
    )
    pieces, text = fed([event])
    assert (text, pieces.done) == ("a", False)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [chunk({"role": "assistant"})],
        [chunk({"role": "assistant", "content": ""})],
        [chunk({"role": "assistant", "content": None, "refusal": None, "annotations": [], "reasoning": ""})],
        [chunk({"role": "assistant", "content": ""}), chunk({"tool_calls": [begin(TOGETHER, index=0)]})],
    ],
)
def test_an_answer_that_was_cut_before_anything_was_said_is_none(events: list[bytes]) -> None:
    assert fed(events)[0].answer(interrupted=True).native is None


def test_reasoning_that_was_cut_is_kept_and_known_as_empty() -> None:
    answer = fed([chunk({"role": "assistant", "content": None, "reasoning_content": "hm"})])[0].answer(interrupted=True)
    assert answer.native == b'{"role": "assistant", "content": null, "reasoning_content": "hm"}'.replace(b" ", b"")
    assert answer.empty


# Errors and garbage


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (b'{"error":{"message" : "boom","code":1e2}}', b'{"message" : "boom","code":1e2}'),
        (b'{"error":"boom"}', b'"boom"'),
        (
            b'{"id":"r","error":{"code":502},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}',
            b'{"code":502}',
        ),
        (b'{"choices":null,"error":{"x":"\\ud83d"}}', b'{"x":"\\ud83d"}'),
        (b'{"type":"error","error":{"type":"overloaded_error"}}', b'{"type":"overloaded_error"}'),
    ],
)
def test_an_error_inside_a_stream_is_reported_and_what_came_before_is_kept(event: bytes, error: bytes) -> None:
    pieces, _ = fed([chunk({"content": "a"})])
    with pytest.raises(ReportedError) as caught:
        pieces.feed(event)
    assert caught.value.error == error
    assert pieces.answer(interrupted=True).native == b'{"role":"assistant","content":"a"}'


@pytest.mark.parametrize(
    "garbage",
    [
        b"x",
        b"[]",
        b"1",
        b"null",
        b'"x"',
        b"{",
        b'{"choices":{}}',
        b'{"choices":[1]}',
        b'{"choices":[{"delta":[]}]}',
        b"\xff",
    ],
)
def test_a_chunk_that_is_none_is_a_value_error(garbage: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        WIRE.new_accumulator().feed(garbage)


WORDS = st.sampled_from(
    [
        "choices", "delta", "index", "finish_reason", "usage", "error", "role", "content", "type", "text", "refusal",
        "tool_calls", "id", "function", "name", "arguments", "audio", "data", "reasoning", "reasoning_details", "x",
    ]
)  # fmt: skip
ODD = st.recursive(
    st.one_of(SCALARS, st.sampled_from(["", "c1", "{}", "assistant", "stop", 0, 1])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


def odd_chunk(delta: Any, index: Any, finish: Any) -> bytes:
    return json.dumps({"choices": [{"delta": delta, "index": index, "finish_reason": finish}]}).encode()


ODD_CHUNKS = st.one_of(
    st.binary(),
    ODD.map(lambda value: json.dumps(value).encode()),
    st.builds(odd_chunk, st.dictionaries(WORDS, ODD, max_size=4), st.sampled_from([0, 0, None, "0", 1]), ODD),
    st.just(chunk({"role": "assistant", "content": "a", "tool_calls": [{"index": 0, **TOGETHER}]})),
)


@examples(75, 450)
@given(st.lists(ODD_CHUNKS, max_size=4))
@example([b'{"choices":[{"delta":{"tool_calls":[{"id":"a","function":null}]}}]}'])
@example([b'{"choices":[{"delta":{"tool_calls":{}}}]}'])
@example([b'{"choices":[{"delta":{"x":' + b"[" * 1500 + b"]" * 1500 + b"}}]}"])
def test_garbage_is_a_value_error_and_nothing_else_and_never_costs_what_had_come(events: list[bytes]) -> None:
    pieces = WIRE.new_accumulator()
    for data in events:
        try:
            pieces.feed(data)
        except ValueError:
            break
    with contextlib.suppress(ValueError):
        pieces.answer()
    answer = pieces.answer(interrupted=True)
    assert answer.native is None or isinstance(json.loads(answer.native.decode("utf-8", "replace")), dict)
