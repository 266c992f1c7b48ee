"""What a provider says about the parts of its answer besides their text: in a stream, and in a stored answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from longtalk import Chat, Memory
from longtalk.events import PartEnd, Text
from longtalk.testing import Scripted, Step, says
from longtalk.transcript.transcript import Entry
from longtalk.wires import WIRES
from longtalk.wires.blocks import TextBlock, list_blocks
from longtalk.wires.part_ends import read_anthropic_text, read_chat_message, read_item

CITED = {"type": "url_citation", "url": "https://x.org", "title": "X", "start_index": 0, "end_index": 2}


def write_event(kind: str, **more: Any) -> bytes:
    return json.dumps({"type": kind, **more}).encode()


def make_step(*items: dict[str, Any]) -> Step:
    """Return an answer of a Responses provider that streams these items whole."""
    events = [write_event("response.created", response={})]
    events += [write_event("response.output_item.done", output_index=i, item=item) for i, item in enumerate(items)]
    response = {"id": "r", "status": "completed", "output": list(items)}
    return Step(body=b"{}", events=(*events, write_event("response.completed", response=response)))


def test_the_parts_of_a_message_are_one_text_and_citations_count_from_its_beginning() -> None:
    parts = [{"type": "output_text", "text": "Well: ", "annotations": []}]
    parts += [{"type": "output_text", "text": "ok", "annotations": [CITED, {"type": "file_path", "index": 1}]}]
    end = read_item(
        {"type": "message", "content": [*parts, {"type": "refusal", "refusal": "No."}], "phase": "final_answer"}
    )
    assert end is not None
    assert (end.text, end.phase, end.refusal) == ("Well: ok", "final_answer", "No.")
    assert end.citations == ({**CITED, "start_index": 6, "end_index": 8}, {"type": "file_path", "index": 1})


def test_only_messages_and_reasoning_have_an_end() -> None:
    assert read_item({"type": "function_call", "call_id": "c"}) is None
    end = read_item(
        {"type": "reasoning", "summary": [{"text": "A"}], "content": [{"text": "B"}], "encrypted_content": "s"}
    )
    assert end == PartEnd("reasoning", "A", "B", sealed="s")


def test_citations_of_anthropic_that_name_an_address_are_citations_of_an_address() -> None:
    cited = [
        {"type": "web_search_result_location", "url": "https://x.org", "title": "X", "cited_text": "…"},
        {"type": "search_result_location", "source": "https://y.org", "title": None},
        {"type": "char_location", "document_index": 0},
    ]
    end = read_anthropic_text({"type": "text", "text": "ok", "citations": cited})
    assert end.citations == (CITED, {**CITED, "url": "https://y.org", "title": ""})


def test_citations_of_neighbouring_blocks_count_from_the_beginning_of_the_message() -> None:
    cited = [{"type": "web_search_result_location", "url": "https://x.org", "title": "X"}]
    content = [{"type": "text", "text": "Well: "}, {"type": "text", "text": "ok", "citations": cited}]
    native = json.dumps({"role": "assistant", "content": content}).encode()
    (block,) = list_blocks(Entry(role="assistant", wire="anthropic", native=native, at=0))
    assert block == TextBlock("Well: ok", ({**CITED, "start_index": 6, "end_index": 8},))


@pytest.mark.parametrize("calls", [[], [{"id": "c"}]])
def test_a_chat_message_has_its_citations_of_addresses_with_calls_and_without(calls: list[Any]) -> None:
    given = {"type": "url_citation", "url_citation": {key: CITED[key] for key in CITED if key != "type"}}
    end = read_chat_message({"annotations": [given, {"type": "other"}], "tool_calls": calls}, "ok")
    assert end.citations == (CITED,)


def test_a_part_ends_after_its_text_even_if_the_filter_of_cards_holds_some_back() -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "1 <"}]}
    chat = Chat(Scripted(make_step(message), wire=WIRES["openai-responses"]), policy=Memory())
    events = [each for each in chat.stream("Hi.") if isinstance(each, Text | PartEnd)]
    assert events == [Text("1 "), Text("<"), PartEnd("message", "1 <")]


def test_a_card_is_in_neither_the_text_nor_the_refusal_of_a_part() -> None:
    card = "<MEMORY_CARD>{}</MEMORY_CARD>"
    assert PartEnd("message", "Hi." + card, refusal="No." + card).without_cards() == PartEnd(
        "message", "Hi.", refusal="No."
    )


def test_the_parts_of_other_providers_end_only_after_citations() -> None:
    for wire in ("openai-chat", "anthropic", "gemini"):
        chat = Chat(Scripted(says("Hi.", wire=wire), wire=WIRES[wire]))
        assert not any(isinstance(event, PartEnd) for event in chat.stream("Hi."))
