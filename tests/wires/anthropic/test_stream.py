"""Anthropic Messages, streamed: events become the blocks that a whole answer would have had."""

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from longtalk import Chat
from longtalk.errors import StreamCut
from longtalk.testing import Scripted, Step
from longtalk.testing.wires.anthropic import check
from longtalk.usage import Usage
from longtalk.wires.anthropic.stream import AnthropicAccumulator
from longtalk.wires.anthropic.wire import WIRE
from longtalk.wires.protocol import Answer, Preamble, Quirks, ReportedError
from tests.support.properties import examples

USER = WIRE.write_user("Hello.")
START = (
    b'{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],'
    b'"stop_reason":null,"usage":{"input_tokens":25,"cache_read_input_tokens":7,"output_tokens":1}}}'
)
STOP = b'{"type":"message_stop"}'
PING = b'{"type": "ping"}'


def written(value: bytes | dict[str, Any]) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def begin(block: bytes | dict[str, Any], index: int = 0) -> bytes:
    return b'{"type":"content_block_start","index":%d,"content_block":%s}' % (index, written(block))


def delta(value: bytes | dict[str, Any], index: int = 0) -> bytes:
    return b'{"type":"content_block_delta","index":%d,"delta":%s}' % (index, written(value))


def end(index: int = 0) -> bytes:
    return b'{"type":"content_block_stop","index":%d}' % index


def ends(reason: str | None = "end_turn", usage: bytes = b'{"output_tokens":5}') -> bytes:
    said = b'{"stop_reason":%s,"stop_sequence":null}' % json.dumps(reason).encode()
    return b'{"type":"message_delta","delta":%s,"usage":%s}' % (said, usage)


def text(said: bytes | str, index: int = 0) -> bytes:
    said = said if isinstance(said, bytes) else json.dumps(said).encode()
    return delta(b'{"type":"text_delta","text":%s}' % said, index)


def spelt(piece: str, index: int = 0) -> bytes:
    return delta({"type": "input_json_delta", "partial_json": piece}, index)


EMPTY_TEXT = {"type": "text", "text": ""}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def fed(events: Iterable[bytes]) -> tuple[AnthropicAccumulator, str]:
    blocks = WIRE.new_accumulator()
    return blocks, "".join([blocks.feed(data) for data in events])


def built(*events: bytes, reason: str = "end_turn") -> list[Any]:
    """The content that these events make."""
    native = fed([START, *events, ends(reason), STOP])[0].answer().native
    assert native is not None
    content: list[Any] = json.loads(native)["content"]
    return content


def whole(*events: bytes) -> bytes:
    native = fed([START, *events, ends(), STOP])[0].answer().native
    assert native is not None
    return native


def acceptable(answer: Answer) -> None:
    """Whether a conversation with this answer, its calls closed, is one that the provider takes."""
    answers = [] if answer.native is None else [answer.native]
    results = [WIRE.write_result(call.id, "Not run.", error=True) for call in answer.view.calls]
    sent = WIRE.build_request(
        model="m",
        preamble=Preamble(system="Teach."),
        pieces=[USER, *answers, *results, USER],
        mark=2 + len(answers) + len(results),
        options=WIRE.defaults,
        quirks=Quirks(),
        stream=True,
    )
    check(json.loads(sent))


# Any blocks, cut into any deltas

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=5
)
# With halves of emoji among the characters, as models send them.
CHARACTERS = st.one_of(
    st.characters(exclude_categories=("Cs",)), st.sampled_from(["😀", "\\", '"', " ", "\ud83d", "\ude00"])
)
TEXTS = st.lists(CHARACTERS, max_size=9).map("".join)
INPUTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=3)
TAKEN = ("type", "text", "thinking", "data", "citations", "citation", "signature", "input", "id", "name", "content")
UNKNOWN = st.dictionaries(
    st.text().filter(lambda key: key not in (*TAKEN, "partial_json", "tool_use_id", "cache_control")),
    VALUES,
    max_size=2,
)
NAMES = st.sampled_from(["add", "look_up", "web_search"])
NUMBERS = st.integers(0, 2)


def said_in_json(text: str, *, ascii_only: bool) -> list[str]:
    """The body of a JSON string in the smallest pieces that can stand alone; half an emoji only as an escape."""
    body = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
    body = re.sub("[\ud800-\udfff]", lambda m: f"\\u{ord(m[0]):04x}", body)
    return re.findall(r"\\u....|\\.|[^\\]", body, re.S)


def cut(draw: st.DrawFn, text: str) -> list[bytes]:
    """A text as JSON strings that make it up when they are joined."""
    atoms = said_in_json(text, ascii_only=draw(st.booleans()))
    where = sorted(draw(st.lists(st.integers(0, len(atoms)), max_size=4)))
    pairs = zip([0, *where], [*where, len(atoms)], strict=True)
    return [f'"{"".join(atoms[first:last])}"'.encode() for first, last in pairs]


class Said:
    """A block, the JSON of its input as it is spelt, and the events that say it."""

    def __init__(self, block: dict[str, Any], begun: dict[str, Any], deltas: list[bytes], spelt: str = "") -> None:
        self.block, self.begun, self.deltas, self.spelt = block, begun, deltas, spelt

    def events(self, index: int) -> list[bytes]:
        return [begin(self.begun, index), *(delta(value, index) for value in self.deltas), end(index)]


@st.composite
def said(draw: st.DrawFn, number: int) -> list[Said]:
    """One block, or the call and the result of a tool of the provider."""
    kind = draw(st.sampled_from(["text", "cited", "thinking", "redacted", "call", "search", "new", "compaction"]))
    more = draw(UNKNOWN)
    if kind in ("text", "cited"):
        text, citations = draw(TEXTS), draw(st.lists(VALUES, max_size=2)) if kind == "cited" else []
        deltas = [b'{"type":"text_delta","text":%s}' % piece for piece in cut(draw, text)]
        places = sorted(draw(st.integers(0, len(deltas))) for _ in citations)
        for place, citation in reversed(list(zip(places, citations, strict=True))):
            deltas.insert(place, written({"type": "citations_delta", "citation": citation}))
        begun = {"type": "text", **({"citations": []} if kind == "cited" else {}), "text": "", **more}
        return [Said({**begun, "text": text, **({"citations": citations} if citations else {})}, begun, deltas)]
    if kind == "thinking":
        text, signature = draw(TEXTS), draw(st.text("abc=", min_size=1))
        deltas = [b'{"type":"thinking_delta","thinking":%s}' % piece for piece in cut(draw, text)]
        deltas.append(written({"type": "signature_delta", "signature": signature}))
        begun = {"type": "thinking", "thinking": "", "signature": "", **more}
        return [Said({**begun, "thinking": text, "signature": signature}, begun, deltas)]
    if kind in ("call", "search"):
        taken = draw(INPUTS)
        spelt = json.dumps(taken, indent=draw(st.sampled_from([None, 1])), ensure_ascii=draw(st.booleans()))
        deltas = [b'{"type":"input_json_delta","partial_json":%s}' % piece for piece in cut(draw, spelt)]
        if not taken and draw(st.booleans()):
            spelt, deltas = "", [b'{"type":"input_json_delta","partial_json":""}'] * draw(NUMBERS)
        of = (
            ("tool_use", "toolu")
            if kind == "call"
            else draw(st.sampled_from([("server_tool_use", "srvtoolu"), ("mcp_tool_use", "mcptoolu")]))
        )
        begun = {"type": of[0], "id": f"{of[1]}_{number}", "name": draw(NAMES), "input": {}, **more}
        call = Said({**begun, "input": taken}, begun, deltas, spelt)
        if kind == "call":
            return [call]
        result = {"type": "web_search_tool_result", "tool_use_id": begun["id"], "content": draw(VALUES), **more}
        return [call, Said(result, result, [])]
    if kind == "redacted":
        block = {"type": "redacted_thinking", "data": draw(st.text("abc=", min_size=1)), **more}
        return [Said(block, block, [])]
    if kind == "compaction":
        begun = {"type": "compaction", "content": None, **more}
        content = draw(st.none() | TEXTS)
        return [Said({**begun, "content": content}, begun, [written({"type": "compaction_delta", "content": content})])]
    begun = {"type": "hologram", **more}
    grown = draw(UNKNOWN)
    return [Said({**begun, **grown}, begun, [written({"type": "hologram_delta", key: grown[key]}) for key in grown])]


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Said], list[bytes]]:
    """Blocks, and the events of a stream that says them."""
    blocks = [block for number in range(draw(st.integers(0, 4))) for block in draw(said(number))]
    events = [START]
    for index, block in enumerate(blocks):
        events += block.events(index)
    for place in draw(st.lists(st.integers(0, len(events)), max_size=2)):
        events.insert(place, draw(st.sampled_from([PING, b'{"type":"news","index":0,"delta":"x","usage":[5]}'])))
    return blocks, [*events, ends(), STOP]


def same(value: Any) -> Any:
    """As JSON has it: two halves of an emoji side by side are one."""
    return json.loads(json.dumps(value))


def is_blank(block: dict[str, Any]) -> bool:
    return block["type"] == "text" and not block["text"].strip()


def readable(text: str) -> str:
    return re.sub("[\ud800-\udfff]", "\ufffd", same(text))


@given(streams())
def test_any_blocks_cut_into_any_deltas_are_put_together_again(stream: tuple[list[Said], list[bytes]]) -> None:
    said, events = stream
    blocks, _ = fed(events)
    answer = blocks.answer()
    assert answer.native is not None
    made = json.loads(answer.native)
    expected = [block.block for block in said if not is_blank(block.block)]
    assert made == {"role": "assistant", "content": same(expected)}
    assert [list(block) for block in made["content"]] == [list(block) for block in same(expected)]
    assert answer.empty is not bool(expected)
    assert blocks.done


@given(streams())
def test_the_input_of_a_call_is_what_the_model_spelt(stream: tuple[list[Said], list[bytes]]) -> None:
    said, events = stream
    calls = fed(events)[0].answer().view.calls
    # A half pair outside of the escapes of the input itself can't be written in any other way.
    expected = [block.spelt or "{}" for block in said if block.block["type"] == "tool_use"]
    assert [call.arguments for call in calls] == [readable(spelt).encode() for spelt in expected]


@given(streams())
def test_the_texts_that_a_stream_adds_are_the_text_of_the_answer(stream: tuple[list[Said], list[bytes]]) -> None:
    said, events = stream
    texts = [readable(block.block["text"]) for block in said if block.block["type"] == "text"]
    blocks, added = fed(events)
    assert added == "".join(texts)
    assert blocks.answer().view.text == "".join(text for text in texts if text.strip())


@given(streams())
def test_a_streamed_answer_equals_the_whole_one(stream: tuple[list[Said], list[bytes]]) -> None:
    said, events = stream
    content = written([block.block for block in said])  # type: ignore[arg-type]
    parsed = WIRE.parse(b'{"content":%s,"stop_reason":"end_turn"}' % content)
    streamed = fed(events)[0].answer()
    assert json.loads(streamed.native or b"") == json.loads(parsed.native or b"")
    assert (streamed.view.text, streamed.finish, streamed.empty, streamed.opaque) == (
        parsed.view.text,
        parsed.finish,
        parsed.empty,
        parsed.opaque,
    )


@given(streams())
def test_what_had_come_when_a_stream_was_cut_is_none_or_an_answer_that_the_provider_takes(
    stream: tuple[list[Said], list[bytes]],
) -> None:
    said, events = stream
    blocks = WIRE.new_accumulator()
    acceptable(blocks.answer(interrupted=True))
    whole_ones = 0
    for data in events:
        blocks.feed(data)
        whole_ones += b"content_block_stop" in data[:30]
        answer = blocks.answer(interrupted=True)
        assert answer.finish == "interrupted"
        assert (answer.native is None) is answer.empty
        acceptable(answer)
        calls = [block.block["id"] for block in said[:whole_ones] if block.block["type"] == "tool_use"]
        assert [call.id for call in answer.view.calls] == calls


@given(streams())
def test_a_text_that_was_cut_is_what_had_been_said_of_it(stream: tuple[list[Said], list[bytes]]) -> None:
    _, events = stream
    blocks, added = WIRE.new_accumulator(), ""
    for data in events:
        added += blocks.feed(data)
        shown = blocks.answer(interrupted=True).view.text
        # A blank text is shown as it comes and left out of the answer.
        assert re.sub(r"\s", "", shown) == re.sub(r"\s", "", added)


@pytest.mark.slow
@given(streams())
def test_looking_at_an_answer_under_way_does_not_change_it(stream: tuple[list[Said], list[bytes]]) -> None:
    _, events = stream
    looked_at = WIRE.new_accumulator()
    for data in events:
        looked_at.feed(data)
        assert looked_at.answer(interrupted=True) == looked_at.answer(interrupted=True)
        assert looked_at.answer() == looked_at.answer()
    assert looked_at.answer() == fed(events)[0].answer()


# Blocks


def test_a_block_keeps_the_order_of_its_keys_and_the_bytes_of_what_came_whole() -> None:
    native = whole(
        begin(b'{"zeta":1e2,"text":"","type":"text","k\\u00e9":{ "b":12345678901234567, "a":"\\/" }}'),
        text(b'"caf\\u00e9"'),
        text(b'"\\/"'),
        end(),
    )
    assert native == (
        b'{"role":"assistant","content":[{"zeta":1e2,"text":"caf\\u00e9\\/","type":"text",'
        b'"k\xc3\xa9":{ "b":12345678901234567, "a":"\\/" }}]}'
    )


def test_a_text_that_is_there_from_the_beginning_is_said_and_goes_on() -> None:
    blocks, added = fed([START, begin({"type": "text", "text": "Hel"}), text("lo."), end(), ends(), STOP])
    assert added == blocks.answer().view.text == "Hello."


def test_blocks_stand_in_the_order_of_their_numbers() -> None:
    events = [begin(EMPTY_TEXT, 1), begin(EMPTY_TEXT, 0), text("b", 1), text("a", 0), text("c", 1), end(1), end(0)]
    assert [block["text"] for block in built(*events)] == ["a", "bc"]


def test_a_delta_of_a_block_that_never_began_does_no_harm() -> None:
    assert built(text("a"), end()) == [{"text": "a"}]
    assert built(end(5)) == []


def test_thoughts_are_joined_and_the_last_signature_counts() -> None:
    (block,) = built(
        begin({"type": "thinking", "thinking": "", "signature": ""}),
        delta({"type": "thinking_delta", "thinking": "Let me"}),
        delta({"type": "thinking_delta", "thinking": " see."}),
        delta({"type": "signature_delta", "signature": "EqQB/=="}),
        end(),
    )
    assert block == {"type": "thinking", "thinking": "Let me see.", "signature": "EqQB/=="}


def test_thoughts_that_are_not_shown_are_kept_by_their_signature() -> None:
    blocks, added = fed(
        [
            START,
            begin({"type": "thinking", "thinking": "", "signature": ""}),
            delta({"type": "signature_delta", "signature": "Eq"}),
            end(),
            begin({"type": "text", "text": ""}, 1),
            delta({"type": "text_delta", "text": "So"}, 1),
        ]
    )
    answer = blocks.answer(interrupted=True)
    thinking = b'{"type":"thinking","thinking":"","signature":"Eq"}'
    assert answer.native == b'{"role":"assistant","content":[%s,{"type":"text","text":"So"}]}' % thinking
    assert (answer.opaque, added) == (True, "So")


def test_a_model_that_was_stopped_while_it_was_thinking_has_said_nothing() -> None:
    blocks, _ = fed(
        [
            START,
            begin({"type": "thinking", "thinking": "", "signature": ""}),
            delta({"type": "signature_delta", "signature": "Eq"}),
            end(),
        ]
    )
    assert blocks.answer(interrupted=True).native is None


@pytest.mark.parametrize("held", [b"", b',"citations":null', b',"citations":[]', b',"citations":[ ]'])
def test_citations_are_appended_as_they_came(held: bytes) -> None:
    native = whole(
        begin(b'{"type":"text","text":""%s}' % held),
        delta(b'{"type":"citations_delta","citation":{ "n":1e2 }}'),
        text("a"),
        delta(b'{"type":"citations_delta","citation":{"n":"\\u00e9"}}'),
        end(),
    )
    assert b'"citations":[{ "n":1e2 },{"n":"\\u00e9"}]' in native


def test_citations_stand_behind_those_that_were_there() -> None:
    (block,) = built(
        begin({"type": "text", "text": "a", "citations": [{"n": 1}]}),
        delta({"type": "citations_delta", "citation": {"n": 2}}),
        end(),
    )
    assert block["citations"] == [{"n": 1}, {"n": 2}]


def test_an_unknown_delta_sets_the_fields_that_it_names() -> None:
    (block,) = built(begin({"type": "text", "text": "a"}), delta({"type": "colour_delta", "colour": "red"}), end())
    assert block == {"type": "text", "text": "a", "colour": "red"}


# Calls


def test_the_input_of_a_call_is_byte_for_byte_what_was_spelt() -> None:
    pieces = ['{"b": 1e2,', ' "n": 12345678901234567', ', "caf\\u00e9": "\\/"', ',"b" :2 }']
    blocks, _ = fed([START, begin(CALL), *map(spelt, pieces), end(), ends("tool_use"), STOP])
    answer = blocks.answer()
    assert answer.view.calls[0].arguments == "".join(pieces).encode()
    assert b'"input":{"b": 1e2, "n": 12345678901234567, "caf\\u00e9": "\\/","b" :2 }}' in (answer.native or b"")
    assert answer.finish == "calls"


@pytest.mark.parametrize("pieces", [[], [""], ["", ""], ["{}"], ["", "{", "}"]])
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_call_without_arguments_has_an_empty_input(pieces: list[str], interrupted: bool) -> None:
    blocks, _ = fed([START, begin(CALL), *map(spelt, pieces), end(), ends("tool_use")])
    answer = blocks.answer(interrupted=interrupted)
    assert json.loads(answer.native or b"{}")["content"] == [CALL]


def test_an_input_that_is_there_from_the_beginning_is_kept_as_it_came() -> None:
    native = whole(begin(b'{"type":"tool_use","id":"t","name":"f","input":{ "a":1e2 }}'), end())
    assert WIRE.view(native).calls[0].arguments == b'{ "a":1e2 }'


@pytest.mark.parametrize("wrong", ['{"a": ', '{"a": 1}}', "[1]", "5", "null", "nonsense \\ud83d"])
def test_an_input_that_is_no_object_goes_back_as_what_it_is(wrong: str) -> None:
    (call,) = built(begin(CALL), *map(spelt, wrong), end(), reason="tool_use")
    assert call == {**CALL, "input": {"INVALID_JSON": wrong}}


@pytest.mark.parametrize("wrong", [b"null", b"5", b'["x"]', b"{}"])
def test_a_piece_of_input_that_is_no_text_is_left_out(wrong: bytes) -> None:
    events = [spelt('{"a":'), delta(b'{"type":"input_json_delta","partial_json":%s}' % wrong), spelt("1}")]
    assert WIRE.view(whole(begin(CALL), *events, end())).calls[0].arguments == b'{"a":1}'


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
@pytest.mark.parametrize("pieces", [[], [""], ['{"a": 1, "b'], ['{"a": ', "1"]])
@pytest.mark.parametrize("stops", [[], [end(1)]])
def test_a_call_for_whose_input_there_was_no_room_is_none(reason: str, pieces: list[str], stops: list[bytes]) -> None:
    events = [begin({"type": "text", "text": "Adding."}), end(), begin(CALL, 1), *(spelt(piece, 1) for piece in pieces)]
    blocks, _ = fed([START, *events, *stops, ends(reason), STOP])
    answer = blocks.answer()
    assert (answer.finish, answer.view.calls) == ("length", ())
    assert json.loads(answer.native or b"{}")["content"] == [{"type": "text", "text": "Adding."}]


def test_a_call_that_was_whole_before_there_was_no_more_room_is_kept() -> None:
    events = [begin(CALL), spelt('{"a": 1}'), end(), begin({**CALL, "id": "toolu_2"}, 1), spelt('{"a', 1), end(1)]
    answer = fed([START, *events, ends("max_tokens"), STOP])[0].answer()
    assert [call.id for call in answer.view.calls] == ["toolu_1"]
    assert answer.finish == "calls"


def test_a_thought_for_which_there_was_no_room_is_left_out() -> None:
    events = [begin({"type": "thinking", "thinking": "", "signature": ""})]
    events += [delta({"type": "thinking_delta", "thinking": "Let"}), end()]
    assert fed([START, *events, ends("max_tokens"), STOP])[0].answer().empty


# What was cut


def test_a_call_under_way_is_not_kept_although_its_input_is_whole() -> None:
    blocks, _ = fed([START, begin(EMPTY_TEXT), text("a"), end(), begin(CALL, 1), spelt('{"a": 1}', 1)])
    assert blocks.answer(interrupted=True).view.calls == ()
    blocks.feed(end(1))
    assert [call.id for call in blocks.answer(interrupted=True).view.calls] == ["toolu_1"]


@pytest.mark.parametrize("wrong", ['{"a": ', "5"])
def test_a_call_that_was_whole_and_wrong_is_not_kept_when_the_answer_was_cut(wrong: str) -> None:
    blocks, _ = fed([START, begin(CALL), spelt(wrong), end()])
    assert blocks.answer(interrupted=True).native is None


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "thinking", "thinking": "Hm."},
        SEARCH,
        {**SEARCH, "type": "mcp_tool_use"},
    ],
)
def test_of_an_answer_that_was_cut_nothing_is_kept_that_cannot_be_sent_back(block: dict[str, Any]) -> None:
    blocks, _ = fed([START, begin(block), end(), begin({"type": "text", "text": "a"}, 1)])
    answer = blocks.answer(interrupted=True)
    assert json.loads(answer.native or b"{}")["content"] == [{"type": "text", "text": "a"}]
    acceptable(answer)


def test_a_call_of_the_provider_is_kept_with_its_result() -> None:
    blocks, _ = fed([START, begin(SEARCH), spelt('{"q":1}'), end(), begin(FOUND, 1)])
    assert blocks.answer(interrupted=True).native is None
    blocks.feed(end(1))
    answer = blocks.answer(interrupted=True)
    assert json.loads(answer.native or b"{}")["content"] == [{**SEARCH, "input": {"q": 1}}, FOUND]


def test_the_result_of_a_call_in_an_earlier_answer_is_kept() -> None:
    blocks, _ = fed([START, begin(FOUND), end()])
    assert json.loads(blocks.answer(interrupted=True).native or b"{}")["content"] == [FOUND]


@pytest.mark.parametrize(
    "events",
    [
        [],
        [START],
        [START, begin(EMPTY_TEXT)],
        [START, begin(EMPTY_TEXT), text(" \n")],
        [START, begin({"type": "thinking", "thinking": ""}), delta({"type": "thinking_delta", "thinking": "Hm"})],
        [START, begin({"type": "hologram", "beams": []})],
    ],
)
def test_an_answer_that_was_cut_before_anything_was_said_is_none(events: list[bytes]) -> None:
    assert fed(events)[0].answer(interrupted=True).native is None


def test_a_cut_stream_keeps_what_was_said_and_the_next_turn_works() -> None:
    said = (START, begin(EMPTY_TEXT), text("One, "), text("two"))
    content = b'{"content":[{"type":"text","text":"Fine."}],"stop_reason":"end_turn"}'
    provider = Scripted(Step(b"", said), Step(content), wire=WIRE)
    chat = Chat(provider)
    with pytest.raises(StreamCut) as caught:
        list(chat.stream("Count."))
    chat.send("Go on.", state=caught.value.state)
    sent = json.loads(provider.requests[1])
    check(sent)
    assert sent["messages"][1] == {"role": "assistant", "content": [{"type": "text", "text": "One, two"}]}


# Half an emoji


def test_an_emoji_that_is_split_between_deltas_is_said_once_it_is_whole() -> None:
    blocks, _ = fed([START, begin(EMPTY_TEXT)])
    assert blocks.feed(text(b'"a\\ud83d"')) == "a"
    assert blocks.feed(text(b'""')) == ""
    assert blocks.answer(interrupted=True).native == b'{"role":"assistant","content":[{"type":"text","text":"a"}]}'
    assert blocks.feed(text(b'"\\ude00b"')) == "😀b"
    assert b'"text":"a\\ud83d\\ude00b"' in (blocks.answer().native or b"")


def test_half_an_emoji_at_the_end_of_a_block_is_shown_as_unreadable_and_kept_as_it_came() -> None:
    events = [begin(EMPTY_TEXT), text(b'"a\\ud83d"'), end(), begin(EMPTY_TEXT, 1), text(b'"\\ude00"', 1), end(1)]
    blocks, added = fed([START, *events, ends(), STOP])
    assert added == blocks.answer().view.text == "a\ufffd\ufffd"
    assert b'"text":"a\\ud83d"' in (blocks.answer().native or b"")


def test_an_escaped_backslash_before_a_u_is_no_half_emoji() -> None:
    blocks, added = fed([START, begin(EMPTY_TEXT), text(b'"\\\\ud83d"')])
    assert added == blocks.answer(interrupted=True).view.text == "\\ud83d"


def test_an_emoji_that_is_split_between_the_pieces_of_an_input_is_whole() -> None:
    pieces = [b'"{\\"a\\":\\"\\ud83d"', b'"\\ude00\\"}"']
    deltas = [delta(b'{"type":"input_json_delta","partial_json":%s}' % piece) for piece in pieces]
    assert WIRE.view(whole(begin(CALL), *deltas, end())).calls[0].arguments == '{"a":"😀"}'.encode()


# Around the blocks


def test_usage_is_merged_and_not_summed() -> None:
    usage = b'{"output_tokens" : 5, "cache_read_input_tokens":null,"input_tokens":26,"x":1e2,"new":null}'
    blocks, _ = fed([START, ends(None, b'{"output_tokens":2}'), ends("end_turn", usage), STOP])
    raw = blocks.answer().usage
    assert raw == b'{"input_tokens":26,"cache_read_input_tokens":7,"output_tokens":5,"x":1e2,"new":null}'
    assert WIRE.read_usage(raw) == Usage(33, 5, 7)


def test_an_answer_without_usage_has_none() -> None:
    events = [b'{"type":"message_start","message":{}}', ends("end_turn", b"null"), STOP]
    assert fed(events)[0].answer().usage is None


def test_an_interrupted_answer_keeps_the_usage_that_was_reported() -> None:
    answer = fed([START])[0].answer(interrupted=True)
    assert answer.native is None
    assert WIRE.read_usage(answer.usage or b"") == Usage(32, 1, 7)


def test_an_answer_is_whole_when_the_stream_says_so() -> None:
    blocks = WIRE.new_accumulator()
    for data in (START, begin(EMPTY_TEXT), text("a"), end(), ends()):
        blocks.feed(data)
        assert not blocks.done
    blocks.feed(STOP)
    assert blocks.done


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "filtered"),
        ("pause_turn", "paused"),
        ("tool_use", "stop"),
        ("something new", "stop"),
        (None, "stop"),
    ],
)
def test_why_a_streamed_answer_ended_is_told_before_it_stops(reason: str | None, finish: str) -> None:
    events = [START, begin(EMPTY_TEXT), text("a"), end(), ends(reason), b'{"type":"message_delta","delta":{}}', STOP]
    assert fed(events)[0].answer().finish == finish


@pytest.mark.parametrize(
    "nothing",
    [
        PING,
        b"",
        b"  ",
        b"[DONE]",
        b"{}",
        b'{"type":null}',
        b'{"type":"news"}',
        b'{"type":"news","index":"x","delta":5,"message":null,"content_block":[],"usage":"x"}',
        b'{"type":"news","x":"\\ud83d","delta":null,"usage":{"output_tokens":99}}',
        b'{"type":"ping","error":null}',
        b'{"type":"content_block_stop","index":7}',
    ],
)
def test_an_event_that_says_nothing_changes_nothing(nothing: bytes) -> None:
    events = [START, begin(EMPTY_TEXT), text("a"), text("b"), end(), ends(), STOP]
    noisy = [event for data in events for event in (nothing, data, nothing)]
    (blocks, added), (plain, _) = fed(noisy), fed(events)
    assert added == "ab"
    assert blocks.answer() == plain.answer()


# Errors and garbage


@pytest.mark.parametrize(
    "error",
    [
        b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}',
        b'{"type":"error"}',
        b'{"error":{"message" : "boom","code":1e2}}',
        b'{"type":"error","error":{"x":"\\ud83d"}}',
    ],
)
def test_an_error_inside_a_stream_is_reported_and_what_came_before_is_kept(error: bytes) -> None:
    blocks, _ = fed([START, begin(EMPTY_TEXT), text("a")])
    with pytest.raises(ReportedError) as caught:
        blocks.feed(error)
    assert caught.value.error == error
    assert blocks.answer(interrupted=True).native == b'{"role":"assistant","content":[{"type":"text","text":"a"}]}'


@pytest.mark.parametrize(
    "garbage",
    [
        b"x",
        b"[]",
        b"1",
        b"null",
        b'"x"',
        b"{",
        b"\xff",
        b'{"type":"message_start","message":null}',
        b'{"type":"content_block_start","index":0,"content_block":[]}',
        b'{"type":"content_block_delta","index":0,"delta":"x"}',
        b'{"type":"content_block_delta","index":0,"delta":null}',
        b'{"type":"message_delta","delta":[]}',
    ],
)
def test_an_event_that_is_none_is_a_value_error(garbage: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        WIRE.new_accumulator().feed(garbage)
    assert not isinstance(caught.value, ReportedError)


EVENTS = st.sampled_from(
    [
        "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
        "message_stop", "ping", "news", None, 5,
    ]
)  # fmt: skip
WORDS = st.sampled_from(
    [
        "type", "index", "text", "thinking", "signature", "data", "partial_json", "citation", "citations", "input",
        "id", "name", "tool_use_id", "content", "usage", "stop_reason", "error", "x",
    ]
)  # fmt: skip
KINDS = st.sampled_from(
    [
        "text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "tool_result", "text_delta",
        "input_json_delta", "max_tokens", "{", "}", "",
    ]
)  # fmt: skip
ODD = st.recursive(
    SCALARS | KINDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(WORDS, ODD, max_size=4)


def odd_event(kind: Any, index: Any, value: Any) -> bytes:
    event = {"type": kind, "index": index, "delta": value, "content_block": value, "message": value, "usage": value}
    return json.dumps(event).encode()


ODD_EVENTS = st.one_of(
    st.binary(),
    ODD.map(lambda value: json.dumps(value).encode()),
    st.builds(odd_event, EVENTS, st.sampled_from([0, 0, 1, None, "0", [], 1.5, True]), OBJECTS | ODD),
    st.just(begin(CALL)),
)


@examples(75, 450)
@given(st.lists(ODD_EVENTS, max_size=5))
@example([b'{"type":"content_block_start","index":[],"content_block":{}}'])
@example([begin({"type": "tool_result", "content": ["x"]}), end()])
@example([begin({"type": "text", "text": 5}), text("a"), delta({"type": "text_delta", "text": None})])
@example([begin({"type": "text", "citations": 5}), delta({"citation": None})])
@example([begin(CALL), delta({"partial_json": 5}), end()])
@example([begin({"type": "server_tool_use"}), end(), begin({"type": "x"}, 1), end(1)])
@example([delta(b'{"x":' + b"[" * 1500 + b"]" * 1500 + b"}")])
def test_garbage_is_a_value_error_and_nothing_else_and_never_costs_what_had_come(events: list[bytes]) -> None:
    blocks = WIRE.new_accumulator()
    for data in events:
        try:
            blocks.feed(data)
        except ValueError:
            break
    for interrupted in (False, True):
        native = blocks.answer(interrupted=interrupted).native
        assert native is None or isinstance(json.loads(native.decode("utf-8", "replace")), dict)
