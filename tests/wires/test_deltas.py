"""The pieces of reasoning and of tool calls in a stream, on each wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.events import PartEnd, Reasoning, ToolCallDelta
from longtalk.testing import says
from longtalk.wires import WIRES
from longtalk.wires.deltas import Deltas


def collect(wire: str, *events: dict[str, Any] | bytes) -> list[Reasoning | ToolCallDelta]:
    """Return the pieces of reasoning and of calls; `test_part_ends` has the ends of parts."""
    accumulator = WIRES[wire].new_accumulator()
    for event in events:
        accumulator.feed(event if isinstance(event, bytes) else json.dumps(event).encode())
    return [each for each in accumulator.deltas.take() if not isinstance(each, PartEnd)]


def chunk(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def call_piece(index: int, arguments: str, **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": more.pop("name")} if "name" in more else {})
    return chunk(tool_calls=[{"index": index, "function": function, **more}])


_KINDS = ("reasoning_summary_text", "reasoning_text")


# OpenAI Chat Completions


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_chat_reasoning_is_shown_under_either_name(key: str) -> None:
    found = collect(
        "openai-chat",
        chunk(role="assistant", content=None, **{key: ""}),
        chunk(**{key: "Let me "}),
        chunk(content=None, **{key: "see."}),
        chunk(content="Yes.", **{key: None}),
    )
    assert found == [Reasoning("Let me ", is_raw=True), Reasoning("see.", is_raw=True)]


def test_chat_reasoning_that_is_sent_twice_is_shown_once() -> None:
    details = [{"type": "reasoning.text", "text": "hm"}]
    assert collect("openai-chat", chunk(reasoning="hm", reasoning_details=details)) == [Reasoning("hm", is_raw=True)]
    assert collect("openai-chat", chunk(reasoning="hm", reasoning_content="hm")) == [Reasoning("hm", is_raw=True)]


def test_pieces_of_chat_calls_have_their_calls_id_and_name() -> None:
    found = collect(
        "openai-chat",
        call_piece(0, "", id="c1", type="function", name="add"),
        call_piece(0, '{"a"'),
        call_piece(1, "{}", id="c2", type="function", name="now"),
        call_piece(0, ":1}"),
    )
    assert found == [
        ToolCallDelta(0, "c1", "add", ""),
        ToolCallDelta(0, "c1", "add", '{"a"'),
        ToolCallDelta(1, "c2", "now", "{}"),
        ToolCallDelta(0, "c1", "add", ":1}"),
    ]


def test_chat_calls_that_share_an_index_are_told_apart() -> None:
    found = collect("openai-chat", call_piece(0, "{}", id="a", name="f"), call_piece(0, "{}", id="b", name="f"))
    assert found == [ToolCallDelta(0, "a", "f", "{}"), ToolCallDelta(1, "b", "f", "{}")]


def test_a_piece_of_a_call_waits_until_the_name_is_known() -> None:
    found = collect("openai-chat", call_piece(0, '{"a"', id="c1"), call_piece(0, ":1}", name="add"))
    assert found == [ToolCallDelta(0, "c1", "add", '{"a":1}')]


def test_further_choices_are_not_shown() -> None:
    assert collect("openai-chat", {"choices": [{"index": 1, "delta": {"reasoning": "x"}}]}) == []


# OpenAI Responses


def test_responses_summaries_are_shown_with_a_blank_line_between_their_parts() -> None:
    def piece(part: int, text: str) -> dict[str, Any]:
        kind = "response.reasoning_summary_text.delta"
        return {"type": kind, "item_id": "rs", "output_index": 0, "summary_index": part, "delta": text}

    def begin(part: int) -> dict[str, Any]:
        summary = {"type": "summary_text", "text": ""}
        kind = "response.reasoning_summary_part.added"
        return {"type": kind, "item_id": "rs", "output_index": 0, "summary_index": part, "part": summary}

    found = collect("openai-responses", begin(0), piece(0, "On"), piece(0, "e."), begin(1), piece(1, "Two."))
    assert "".join(each.text for each in found if isinstance(each, Reasoning)) == "One.\n\nTwo."


def test_responses_reasoning_text_is_shown() -> None:
    event = {"type": "response.reasoning_text.delta", "output_index": 0, "content_index": 0, "delta": "hm"}
    assert collect("openai-responses", event) == [Reasoning("hm", is_raw=True)]


def test_a_summary_and_the_reasoning_itself_are_told_apart() -> None:
    parts = ({"type": f"response.{kind}.delta", "output_index": 0, "delta": "hm"} for kind in _KINDS)
    assert collect("openai-responses", *parts) == [Reasoning("hm"), Reasoning("hm", is_raw=True)]


def test_pieces_of_responses_calls_have_the_calls_own_id() -> None:
    item = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": ""}
    kind = "response.function_call_arguments.delta"
    found = collect(
        "openai-responses",
        {"type": "response.output_item.added", "output_index": 1, "item": item},
        {"type": kind, "item_id": "fc_1", "output_index": 1, "delta": '{"a":'},
        {"type": kind, "item_id": "fc_1", "output_index": 1, "delta": "1}"},
    )
    assert found == [ToolCallDelta(0, "c1", "add", text) for text in ("", '{"a":', "1}")]


# Anthropic


def test_thinking_and_calls_of_anthropic_are_shown() -> None:
    def begin(index: int, block: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_start", "index": index, "content_block": block}

    def grow(index: int, **delta: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": delta}

    found = collect(
        "anthropic",
        begin(0, {"type": "thinking", "thinking": "", "signature": ""}),
        grow(0, type="thinking_delta", thinking="hm"),
        grow(0, type="signature_delta", signature="c2ln"),
        begin(1, {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}),
        grow(1, type="input_json_delta", partial_json='{"query":"x"}'),
        begin(2, {"type": "tool_use", "id": "t1", "name": "add", "input": {}}),
        grow(2, type="input_json_delta", partial_json='{"a":1}'),
        begin(3, {"type": "thinking", "thinking": "so", "signature": ""}),
    )
    assert found == [
        Reasoning("hm"),
        ToolCallDelta(0, "t1", "add", ""),
        ToolCallDelta(0, "t1", "add", '{"a":1}'),
        Reasoning("\n\n"),
        Reasoning("so"),
    ]


# Gemini


def test_thoughts_of_gemini_are_shown() -> None:
    def thought(text: str, **more: Any) -> dict[str, Any]:
        parts = [{"text": text, "thought": True, **more}]
        return {"candidates": [{"content": {"parts": parts, "role": "model"}, "index": 0}]}

    found = collect("gemini", thought("Let me "), thought("see."), thought("", thoughtSignature="eA=="))
    assert found == [Reasoning("Let me "), Reasoning("see.")]


def test_calls_of_gemini_arrive_whole_and_have_no_pieces() -> None:
    step = says("Well.", calls=[("c1", "add", {"a": 1})], wire="gemini")
    assert collect("gemini", *[data for data in step.events if isinstance(data, bytes)]) == []


# All


@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic"])
def test_the_pieces_of_a_call_make_its_arguments(wire: str) -> None:
    step = says("Well.", calls=[("c1", "add", {"a": 1}), ("c2", "now", {"q": "é😀"})], wire=wire)
    calls: dict[int, str] = {}
    for piece in collect(wire, *[data for data in step.events if isinstance(data, bytes)]):
        assert isinstance(piece, ToolCallDelta)
        calls[piece.index] = calls.get(piece.index, "") + piece.arguments
    assert [json.loads(text) for text in calls.values()] == [{"a": 1}, {"q": "é😀"}]


@given(st.text(max_size=20), st.data())
def test_a_text_cut_anywhere_between_escapes_is_whole_again(text: str, data: st.DataObject) -> None:
    escaped = json.dumps(text)[1:-1]
    # Cuts between the units that a server writes: characters and escapes, also inside a surrogate pair.
    units, i = [], 0
    while i < len(escaped):
        size = 1 if escaped[i] != "\\" else 6 if escaped[i + 1] == "u" else 2
        units.append(escaped[i : i + size])
        i += size
    deltas = Deltas()
    while units:
        count = data.draw(st.integers(1, len(units)))
        piece, units = "".join(units[:count]), units[count:]
        deltas.add_reasoning(f'"{piece}"'.encode())
        deltas.add_call(0, name=b'"f"', arguments=f'"{piece}"'.encode())
    found = deltas.take()
    assert "".join(each.text for each in found if isinstance(each, Reasoning)) == text
    assert "".join(each.arguments for each in found if isinstance(each, ToolCallDelta)) == text
