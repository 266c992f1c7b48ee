"""Items of all sorts as input: what is wrong is named, and nothing of it is dropped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from longtalk.service.errors import ApiError
from longtalk.service.openai.input_items import check_chat_message, check_items

USER = {"role": "user", "content": "Hi."}
FINE: list[Any] = [
    USER,
    {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
    {"type": "message", "role": "assistant", "phase": "commentary", "content": [{"type": "output_text", "text": "b"}]},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}]},
    {"role": "user", "content": [{"type": "input_image", "image_url": "https://example.com/a.png"}]},
    {
        "role": "user",
        "content": [{"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}],
    },
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}]},
    {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"},
    {"type": "custom_tool_call_output", "call_id": "c", "output": "x"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": "AA=="},
    {"type": "compaction", "encrypted_content": "AA=="},
    {"type": "item_reference", "id": "msg_1"},
    {"id": "msg_1"},
    {"id": "msg_1", "type": None},
]
WRONG: list[tuple[Any, str]] = [
    (5, ""),
    (None, ""),
    ({"type": "dream"}, ".type"),
    ({"type": "web_search_call", "id": "ws_1"}, ".type"),
    ({"type": 5, **USER}, ".type"),
    ({"content": "Hi."}, ".role"),
    ({"role": "king", "content": "Hi."}, ".role"),
    ({"role": "user"}, ".content"),
    ({"role": "user", "content": ""}, ".content"),
    ({"role": "user", "content": []}, ".content"),
    ({"role": "user", "content": ["Hi."]}, ".content[0]"),
    ({"role": "user", "content": [{"type": "input_smell"}]}, ".content[0].type"),
    ({"role": "user", "content": [{"text": "Hi."}]}, ".content[0].type"),
    ({"role": "user", "content": [{"type": "input_text"}]}, ".content[0].text"),
    ({"role": "user", "content": [{"type": "input_image"}]}, ".content[0].image_url"),
    (
        {"role": "user", "content": [{"type": "input_image", "image_url": "file:///etc/passwd"}]},
        ".content[0].image_url",
    ),
    ({"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]}, ".content[0].file_id"),
    ({"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}, ".content[0].file_id"),
    ({"role": "user", "content": [{"type": "input_file"}]}, ".content[0].file_data"),
    ({"role": "assistant", "content": "Hi.", "phase": "first"}, ".phase"),
    ({"type": "function_call", "name": "f", "arguments": "{}"}, ".call_id"),
    ({"type": "function_call", "call_id": "c", "arguments": "{}"}, ".name"),
    ({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}, ".arguments"),
    ({"type": "function_call_output", "call_id": "c"}, ".output"),
    ({"type": "function_call_output", "call_id": "c", "output": 5}, ".output"),
    ({"type": "reasoning", "summary": "Hm."}, ".summary"),
    ({"type": "compaction"}, ".encrypted_content"),
    ({"type": "item_reference"}, ".id"),
]


@pytest.mark.parametrize("item", FINE)
def test_an_item_that_the_api_knows_is_accepted(item: Any) -> None:
    check_items([json.dumps(item).encode()], "input")


@pytest.mark.parametrize(("item", "place"), WRONG)
def test_a_wrong_item_is_refused_by_its_path(item: Any, place: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_items([json.dumps(each).encode() for each in (USER, item)], "input")
    assert (caught.value.status, caught.value.param) == (400, f"input[1]{place}")
    assert caught.value.message.startswith(f"`input[1]{place}` ")


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"role": "king", "content": "Hi."}, ".role"),
        ({"role": "user", "content": ""}, ".content"),
        ({"role": "tool", "content": "x"}, ".tool_call_id"),
        ({"role": "user", "content": [5]}, ".content[0]"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///a"}}]},
            ".content[0].image_url.url",
        ),
        ({"role": "user", "content": [{"type": "file", "file": {"file_id": "file_1"}}]}, ".content[0].file.file_id"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": "file:///a"}]}, ".content[0].image_url"),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "file:///a"}]}, ".content[0].type"),
        ({"role": "user", "content": [{"type": "video_url", "video_url": {"url": "file:///a"}}]}, ".content[0].type"),
    ],
)
def test_a_wrong_chat_message_is_refused_by_its_path(message: Any, place: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_chat_message(message, "messages[0]")
    assert caught.value.param == f"messages[0]{place}"
