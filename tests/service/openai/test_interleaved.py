"""Answers in which reasoning, text and calls alternate: what a stream ends with is what is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.events import PartEnd, Reasoning, Text, ToolCall, ToolCallDelta
from longtalk.service.openai.client_tools import list_forms
from longtalk.service.openai.items import to_output_items
from longtalk.service.openai.response_events import ResponseEvents
from longtalk.testing import AsyncScripted, Step, says
from longtalk.transcript.transcript import Entry
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Serve

PAY = {"type": "function", "name": "pay", "parameters": {"type": "object", "properties": {}}}
WIRES = ["openai-responses", "anthropic", "gemini"]
CITATION = {"type": "url_citation", "url": "https://x.org", "title": "X"}
Block = tuple[str, str]
"""The kind of a block, and its text."""


def make_step(wire: str, blocks: list[Block]) -> Step:
    """Return an answer of these blocks, in this order."""
    events = {"openai-responses": _responses, "anthropic": _anthropic, "gemini": _gemini}[wire](blocks)
    return Step(body=b"{}", events=tuple(json.dumps(event).encode() for event in events))


def _responses(blocks: list[Block]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {}}]
    items: list[dict[str, Any]] = []
    for i, (kind, text) in enumerate(blocks):
        place = {"output_index": i, "item_id": f"i{i}"}
        item: dict[str, Any] = {"id": f"i{i}", "status": "completed"}
        pieces: list[dict[str, Any]] = []
        if kind in ("reasoning", "raw", "both"):
            summary = [{"type": "summary_text", "text": text}] if text and kind != "raw" else []
            content = [{"type": "reasoning_text", "text": text}] if text and kind != "reasoning" else []
            item |= {"type": "reasoning", "summary": summary, "content": content, "encrypted_content": f"sealed{i}"}
            for part in summary:
                pieces.append({"type": "response.reasoning_summary_part.added", "summary_index": 0, "part": part})
                pieces.append({"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": text})
            for part in content:
                pieces.append({"type": "response.content_part.added", "content_index": 0, "part": part})
                pieces.append({"type": "response.reasoning_text.delta", "content_index": 0, "delta": text})
        elif kind == "text":
            cited = [{**CITATION, "start_index": 0, "end_index": len(text)}]
            part = {"type": "output_text", "text": text, "annotations": cited}
            item |= {"type": "message", "role": "assistant", "content": [part], "phase": "commentary"}
            pieces = [{"type": "response.output_text.delta", "content_index": 0, "delta": text}]
        elif kind == "refusal":
            item |= {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": text}]}
            pieces = [{"type": "response.refusal.delta", "content_index": 0, "delta": text}]
        elif kind == "text and refusal":
            parts = [{"type": "output_text", "text": text}, {"type": "refusal", "refusal": text}]
            item |= {"type": "message", "role": "assistant", "content": parts}
            pieces = [
                {"type": "response.output_text.delta", "content_index": 0, "delta": text},
                {"type": "response.refusal.delta", "content_index": 1, "delta": text},
            ]
        elif kind == "call":
            item |= {"type": "function_call", "call_id": f"c{i}", "name": "pay", "arguments": "{}"}
            pieces = [{"type": "response.function_call_arguments.delta", "delta": "{}"}]
        else:
            item |= {"type": "web_search_call"}
        begun = {**item, "status": "in_progress"} | ({"arguments": ""} if kind == "call" else {})
        begun |= {name: [] for name in ("content", "summary") if name in item}
        events.append({"type": "response.output_item.added", "output_index": i, "item": begun})
        events += [{**piece, **place} for piece in pieces]
        events.append({"type": "response.output_item.done", "output_index": i, "item": item})
        items.append(item)
    counts = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    done = {"id": "r", "status": "completed", "output": items, "usage": counts}
    return [*events, {"type": "response.completed", "response": done}]


def _anthropic(blocks: list[Block]) -> list[dict[str, Any]]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"role": "assistant", "usage": usage}}]
    for i, (kind, text) in enumerate(blocks):
        begun: dict[str, Any] = {"type": "server_tool_use", "id": f"s{i}", "name": "web_search", "input": {}}
        deltas: list[dict[str, Any]] = []
        if kind == "reasoning":
            begun = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": text},
                {"type": "signature_delta", "signature": "signed"},
            ]
        elif kind in ("text", "refusal"):
            cited = {"type": "web_search_result_location", "url": "https://x.org", "title": "X", "cited_text": "…"}
            begun = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": text}, {"type": "citations_delta", "citation": cited}]
        elif kind == "call":
            begun = {"type": "tool_use", "id": f"c{i}", "name": "pay", "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": "{}"}]
        events.append({"type": "content_block_start", "index": i, "content_block": begun})
        events += [{"type": "content_block_delta", "index": i, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": i})
    reason = "tool_use" if any(kind == "call" for kind, _ in blocks) else "end_turn"
    return [*events, {"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]


def _gemini(blocks: list[Block]) -> list[dict[str, Any]]:
    parts: dict[str, Any] = {
        "reasoning": lambda text: {"text": text, "thought": True},
        "call": lambda text: {"functionCall": {"name": "pay", "args": {}}},
        "other": lambda text: {"executableCode": {"language": "PYTHON", "code": text}},
    }
    made = [parts.get(kind, lambda text: {"text": text})(text) for kind, text in blocks]
    chunks: list[dict[str, Any]] = [
        {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]} for part in made
    ]
    counts = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    return [*chunks, {"candidates": [{"index": 0, "finishReason": "STOP"}], "usageMetadata": counts}]


def play(wire: str, step: Step, *, encrypted: bool) -> tuple[list[Any], list[Any]]:
    """Return the output of the streamed response, and that of the stored one."""
    events = ResponseEvents("r", "t", model="m", echo={}, tools=list_forms([PAY]), created=0, encrypted=encrypted)
    accumulator = HTTP_WIRES[wire].new_accumulator()
    for data in step.events:
        assert isinstance(data, bytes)
        text = accumulator.feed(data)
        deltas = accumulator.deltas.take()
        for event in (
            *(each for each in deltas if isinstance(each, Reasoning)),
            *([Text(text)] if text else []),
            *(each for each in deltas if isinstance(each, PartEnd)),
            *(each for each in deltas if isinstance(each, ToolCallDelta)),
        ):
            events.feed(event)
    answer = accumulator.answer()
    for call in answer.view.calls:
        events.feed(ToolCall(call.id, call.name, call.arguments))
    events.end("completed", refusal=answer.view.refusal)
    entry = Entry(role="assistant", wire=wire, native=answer.native or b"", at=0)
    return events.output, to_output_items([entry], "t", tools=list_forms([PAY]), encrypted=encrypted)


@pytest.mark.parametrize("wire", WIRES)
@given(data=st.data())
def test_blocks_in_any_order_are_streamed_as_they_are_stored(wire: str, data: st.DataObject) -> None:
    raw = ["raw", "both"] if wire == "openai-responses" else []
    kind = st.sampled_from(["reasoning", "text", "call", "other", *raw])
    text = st.sampled_from(["Hm.", "So\n\n", "\nWell", "\n\n", " ", "é😀"])
    blocks = data.draw(st.lists(st.tuples(kind, text), max_size=6))
    if wire == "openai-responses" and data.draw(st.booleans()):
        blocks.append(("refusal", "No."))
    if wire == "anthropic":
        # The wire leaves out white space between blocks, which a stream has shown by then.
        blocks = [block for block in blocks if block[0] != "text" or block[1].strip()]
    step = make_step(wire, blocks)
    streamed, stored = play(wire, step, encrypted=True)
    assert streamed == stored
    plain = play(wire, step, encrypted=False)
    assert plain[0] == plain[1]
    assert plain[1] == [{name: each[name] for name in each if name != "encrypted_content"} for each in stored]


@pytest.mark.parametrize("wire", WIRES)
def test_reasoning_after_text_is_an_item_of_its_own(serve: Serve, wire: str) -> None:
    blocks = [("reasoning", "Hm."), ("text", "One."), ("reasoning", "And?"), ("text", "Two.")]
    client = serve(m=AsyncScripted(make_step(wire, blocks), wire=HTTP_WIRES[wire])).client()
    events: list[Any] = list(client.responses.create(model="m", input="Hi.", stream=True))
    last = events[-1].response
    assert [item.type for item in last.output] == ["reasoning", "message"] * 2
    assert [item.summary[0].text for item in last.output[::2]] == ["Hm.", "And?"]
    assert [item.content[0].text for item in last.output[1::2]] == ["One.", "Two."]
    assert client.responses.retrieve(last.id) == last
    replayed: list[Any] = list(client.responses.retrieve(last.id, stream=True))
    assert replayed[-1].response == last


@pytest.mark.parametrize("wire", WIRES)
def test_text_after_a_call_is_the_same_in_the_stream_and_when_stored(serve: Serve, wire: str) -> None:
    blocks = [("text", "I pay."), ("call", ""), ("text", "Paid?")]
    client: Any = serve(m=AsyncScripted(make_step(wire, blocks), wire=HTTP_WIRES[wire])).client()
    events = list(client.responses.create(model="m", input="Hi.", tools=[PAY], stream=True))
    last = events[-1].response
    kinds = ["message", "function_call"] if wire == "gemini" else ["message", "function_call", "message"]
    assert [item.type for item in last.output] == kinds
    assert client.responses.retrieve(last.id).output == last.output


def test_a_refusal_after_text_is_part_of_its_message(serve: Serve) -> None:
    step = make_step("openai-responses", [("text", "I could."), ("text and refusal", "I won't.")])
    client = serve(m=AsyncScripted(step, wire=HTTP_WIRES["openai-responses"])).client()
    events: list[Any] = list(client.responses.create(model="m", input="Hi.", stream=True))
    last = events[-1].response
    parts = [[part.type for part in message.content] for message in last.output]
    assert parts == [["output_text"], ["output_text", "refusal"]]
    assert client.responses.retrieve(last.id) == last


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic", "openai-chat"])
def test_citations_are_in_the_stream_and_in_all_later_reads(serve: Serve, wire: str) -> None:
    place = {"start_index": 0, "end_index": 4}
    if wire == "openai-chat":
        cited = {"type": "url_citation", "url_citation": {"url": "https://x.org", "title": "X", **place}}
        step = says("One.", fields={"annotations": [cited]})
    else:
        step = make_step(wire, [("reasoning", "Hm."), ("text", "One.")])
    client: Any = serve(m=AsyncScripted(step, wire=HTTP_WIRES[wire])).client()
    talk = client.conversations.create()
    events = list(client.responses.create(model="m", input="Hi.", stream=True, conversation=talk.id))
    added = [each.annotation for each in events if each.type == "response.output_text.annotation.added"]
    (found,) = events[-1].response.output[-1].content[0].annotations
    expected = {**CITATION, **place}
    assert [each.to_dict() for each in added] == [expected]
    assert found.to_dict() == expected
    assert client.responses.retrieve(events[-1].response.id) == events[-1].response
    assert client.conversations.items.list(talk.id).data[0].content[0].annotations == [found]
    replayed = list(client.responses.retrieve(events[-1].response.id, stream=True))
    assert replayed[-1].response == events[-1].response


def test_citations_before_a_call_are_in_the_stream_and_in_all_later_reads(serve: Serve) -> None:
    cited = {"type": "url_citation", "url_citation": {"url": "https://x.org", "title": "X"}}
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
    deltas: list[Any] = [{"content": "One."}, {"annotations": [cited]}, {"tool_calls": [call]}]
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    step = Step(body=b"{}", events=(*(json.dumps(each).encode() for each in chunks), b"[DONE]"))
    client: Any = serve(m=AsyncScripted(step)).client()
    events = list(client.responses.create(model="m", input="Hi.", tools=[PAY], stream=True))
    last = events[-1].response
    assert [item.type for item in last.output] == ["message", "function_call"]
    added = [each.annotation for each in events if each.type == "response.output_text.annotation.added"]
    (found,) = last.output[0].content[0].annotations
    assert [each.to_dict() for each in added] == [found.to_dict()] == [{**CITATION, "start_index": 0, "end_index": 4}]
    assert [each.item for each in events if each.type == "response.output_item.done"] == last.output
    assert client.responses.retrieve(last.id) == last


def test_the_phase_of_each_message_is_kept(serve: Serve) -> None:
    step = make_step("openai-responses", [("text", "I look."), ("text", "Found.")])
    client: Any = serve(m=AsyncScripted(step, step, wire=HTTP_WIRES["openai-responses"])).client()
    events = list(client.responses.create(model="m", input="Hi.", stream=True))
    last = events[-1].response
    assert [item.phase for item in last.output] == ["commentary"] * 2
    assert [each.item.phase for each in events if each.type == "response.output_item.done"] == ["commentary"] * 2
    assert client.responses.retrieve(last.id) == last
    sent = [
        {"role": "user", "content": "Hi."},
        *(item.to_dict() for item in last.output),
        {"role": "user", "content": "A"},
    ]
    again = client.responses.create(model="m", input=sent)
    listed = client.responses.input_items.list(again.id, order="asc").data
    assert [getattr(item, "phase", None) for item in listed] == [None, "commentary", "commentary", None]


def test_all_encrypted_reasoning_is_included_where_it_is_asked_for(serve: Serve) -> None:
    blocks = [("reasoning", "Hm."), ("reasoning", ""), ("text", "One."), ("reasoning", ""), ("text", "Two.")]
    step = make_step("openai-responses", blocks)
    client: Any = serve(m=AsyncScripted(step, wire=HTTP_WIRES["openai-responses"])).client()
    include = ["reasoning.encrypted_content"]
    made = client.responses.create(model="m", input="Hi.", include=include)
    assert [item.type for item in made.output] == ["reasoning", "reasoning", "message", "reasoning", "message"]
    sealed = [item.encrypted_content for item in made.output if item.type == "reasoning"]
    assert sealed == ["sealed0", "sealed1", "sealed3"]
    assert client.responses.retrieve(made.id, include=include) == made
    plain = client.responses.retrieve(made.id)
    assert [item.id for item in plain.output] == [item.id for item in made.output]
    assert all(item.encrypted_content is None for item in plain.output if item.type == "reasoning")


def test_the_ids_of_items_are_the_same_everywhere_with_encrypted_reasoning_and_without(serve: Serve) -> None:
    blocks = [("reasoning", "Hm."), ("reasoning", ""), ("text", "One."), ("reasoning", ""), ("text", "Two.")]
    step = make_step("openai-responses", blocks)
    client: Any = serve(m=AsyncScripted(step, step, wire=HTTP_WIRES["openai-responses"])).client()
    for include in ([], ["reasoning.encrypted_content"]):
        talk = client.conversations.create()
        body = {"model": "m", "input": "Hi.", "conversation": talk.id, "include": include}
        events = list(client.responses.create(stream=True, **body))
        last = events[-1].response
        done = [each.item for each in events if each.type == "response.output_item.done"]
        assert done == last.output
        sealed = [item.encrypted_content for item in done if item.type == "reasoning"]
        assert sealed == (["sealed0", "sealed1", "sealed3"] if include else [None] * 3)
        assert client.responses.retrieve(last.id, include=include) == last
        ids = [item.id for item in last.output]
        for again in ([], ["reasoning.encrypted_content"]):
            assert [item.id for item in client.responses.retrieve(last.id, include=again).output] == ids
            listed = client.conversations.items.list(talk.id, order="asc", include=again).data[1:]
            assert [item.id for item in listed] == ids
            found = client.conversations.items.retrieve(ids[0], conversation_id=talk.id, include=again)
            assert found.encrypted_content == listed[0].encrypted_content == ("sealed0" if again else None)
