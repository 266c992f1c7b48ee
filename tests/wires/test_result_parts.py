"""Results with parts: each wire writes what its provider accepts, and refuses the rest."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from longtalk.errors import InputError
from longtalk.transcript.transcript import Entry
from longtalk.wires import WIRES
from longtalk.wires.convert import list_lost_content
from longtalk.wires.describe import describe

IMAGES: dict[str, Any] = {
    "openai-chat": {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    "openai-responses": {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
    "gemini": {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
}


def write(wire: str, content: Any) -> Any:
    native = WIRES[wire].write_result("c1", content, error=False, name="look")
    view = WIRES[wire].view(native)
    assert (view.role, view.call_id) == ("tool", "c1")
    return json.loads(native), view.text


def test_a_result_of_anthropic_holds_blocks() -> None:
    native, text = write("anthropic", ["Look: ", IMAGES["anthropic"], " "])
    assert native["content"][0]["content"] == [{"type": "text", "text": "Look: "}, IMAGES["anthropic"]]
    assert text == "Look: "


def test_a_result_of_anthropic_without_content_has_none() -> None:
    assert "content" not in write("anthropic", [])[0]["content"][0]


def test_a_result_of_the_responses_api_holds_input_parts() -> None:
    native, text = write("openai-responses", ["Look: ", IMAGES["openai-responses"]])
    assert native["output"] == [{"type": "input_text", "text": "Look: "}, IMAGES["openai-responses"]]
    assert text == "Look: "


def test_a_result_of_gemini_holds_data_beside_its_text() -> None:
    native, text = write("gemini", ["Look:", {"text": "a cat"}, IMAGES["gemini"]])
    response = native["parts"][0]["functionResponse"]
    assert (response["response"], response["parts"]) == ({"result": "Look:\n\na cat"}, [IMAGES["gemini"]])
    assert text == "Look:\n\na cat"


def test_a_result_of_chat_completions_holds_text_parts() -> None:
    native, text = write("openai-chat", ["Look: ", {"type": "text", "text": "a cat"}])
    assert native["content"] == [{"type": "text", "text": "Look: "}, {"type": "text", "text": "a cat"}]
    assert text == "Look: a cat"


@pytest.mark.parametrize(
    ("wire", "part"),
    [
        ("openai-chat", IMAGES["openai-chat"]),
        ("openai-responses", {"type": "input_audio"}),
        ("gemini", {"executableCode": {}}),
    ],
)
def test_a_part_that_a_result_can_not_hold_is_refused(wire: str, part: Any) -> None:
    with pytest.raises(InputError, match=f"A tool result of {wire} can't hold a part of the kind"):
        write(wire, [part])


@pytest.mark.parametrize("wire", ["anthropic", "gemini", "openai-responses"])
def test_an_image_in_a_result_is_described_and_reported_as_lost_elsewhere(wire: str) -> None:
    native = WIRES[wire].write_result("c1", [IMAGES[wire]], error=False, name="look")
    assert describe(native, WIRES[wire].view(native)) == "[image]"
    entry = Entry(role="tool", wire=wire, native=native, at=0)
    assert list_lost_content([entry], WIRES["openai-chat"]) == ["images in tool results"]
    text = WIRES[wire].write_result("c1", ["a cat"], error=False, name="look")
    assert list_lost_content([msgspec.structs.replace(entry, native=text)], WIRES["openai-chat"]) == []


@pytest.mark.parametrize("wire", sorted(set(WIRES) - set(IMAGES)))
def test_a_result_of_an_agent_is_text(wire: str) -> None:
    assert write(wire, ["one", "two"])[1] == "one\n\ntwo"
    with pytest.raises(InputError, match="only text"):
        write(wire, [{"type": "text", "text": "one"}])
