"""Every error names the exact place in the request, with a code of the public API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from longtalk.service.app import create_app
from longtalk.service.settings import Settings
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Served

R, C, K = "/v1/responses", "/v1/conversations", "/v1/chat/completions"
PAY = {"type": "function", "name": "pay", "parameters": {"type": "object", "properties": {}}}
CHAT_PAY = {"type": "function", "function": {"name": "pay"}}
HI = {"role": "user", "content": "Hi."}
LONG = "k" * 65


def part(**fields: Any) -> dict[str, Any]:
    return {"input": [HI, {"role": "user", "content": [{"type": "input_text", "text": "A"}, fields]}]}


def item(**fields: Any) -> dict[str, Any]:
    return {"input": [HI, fields]}


RESPONSES: list[tuple[dict[str, Any], str, str]] = [
    ({"foo": 1}, "foo", "unknown_parameter"),
    ({"input": 5}, "input", "invalid_value"),
    ({"input": [5]}, "input[0]", "invalid_type"),
    (item(content="x"), "input[1].role", "missing_required_parameter"),
    (item(role="x", content="x"), "input[1].role", "invalid_value"),
    (item(role="user"), "input[1].content", "missing_required_parameter"),
    (item(role="user", content=5), "input[1].content", "invalid_type"),
    (item(role="user", content=[5]), "input[1].content[0]", "invalid_type"),
    (item(type="zz"), "input[1].type", "unsupported_parameter"),
    (part(type="zz"), "input[1].content[1].type", "unsupported_parameter"),
    (part(type="input_text"), "input[1].content[1].text", "missing_required_parameter"),
    (part(type="input_text", text=5), "input[1].content[1].text", "invalid_type"),
    (part(type="input_image"), "input[1].content[1].image_url", "invalid_value"),
    (part(type="input_image", image_url="file:///x"), "input[1].content[1].image_url", "invalid_value"),
    (part(type="input_image", image_url="https://x.org", detail="x"), "input[1].content[1].detail", "invalid_value"),
    (part(type="input_file", file_id="f"), "input[1].content[1].file_id", "unsupported_parameter"),
    (item(type="function_call_output", output="x"), "input[1].call_id", "missing_required_parameter"),
    (item(type="function_call_output", call_id="a", output=5), "input[1].output", "invalid_type"),
    (item(type="function_call_output", call_id="a", output="x"), "input[1].call_id", "invalid_value"),
    (item(type="custom_tool_call_output", call_id="a", output="x"), "input[1].call_id", "invalid_value"),
    (item(type="function_call", call_id="a", name="b", arguments=5), "input[1].arguments", "invalid_type"),
    (item(type="reasoning", summary=5), "input[1].summary", "invalid_type"),
    (item(type="compaction", encrypted_content="zz"), "input[1]", "invalid_value"),
    (item(type="item_reference", id="msg_x"), "input[1].id", "not_found"),
    ({"input": [HI, {"role": "assistant", "content": "A"}]}, "input", "invalid_value"),
    ({"temperature": 3}, "temperature", "decimal_above_max_value"),
    ({"temperature": "x"}, "temperature", "invalid_type"),
    ({"max_output_tokens": 0}, "max_output_tokens", "integer_below_min_value"),
    ({"top_logprobs": 21}, "top_logprobs", "integer_above_max_value"),
    ({"top_logprobs": 5}, "top_logprobs", "unsupported_parameter"),
    ({"truncation": "x"}, "truncation", "invalid_value"),
    ({"reasoning": {"effort": "x"}}, "reasoning.effort", "invalid_value"),
    ({"reasoning": {"x": 1}}, "reasoning.x", "unknown_parameter"),
    ({"text": {"verbosity": "x"}}, "text.verbosity", "invalid_value"),
    ({"text": {"format": {"type": "x"}}}, "text.format.type", "invalid_value"),
    ({"text": {"format": {"type": "json_schema", "name": "a b"}}}, "text.format.name", "invalid_value"),
    ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema", "invalid_value"),
    ({"tools": {}}, "tools", "invalid_type"),
    ({"tools": [PAY, {"type": "function"}]}, "tools[1].name", "missing_required_parameter"),
    ({"tools": [PAY, {"type": "function", "name": "a b"}]}, "tools[1].name", "invalid_value"),
    ({"tools": [PAY, {**PAY, "name": "b", "description": 5}]}, "tools[1].description", "invalid_type"),
    ({"tools": [PAY, {**PAY, "name": "b", "parameters": "x"}]}, "tools[1].parameters", "invalid_function_parameters"),
    ({"tools": [PAY, PAY]}, "tools[1].name", "invalid_value"),
    ({"tools": [PAY, {"type": "web_search"}]}, "tools[1].type", "unsupported_value"),
    ({"tools": [PAY], "tool_choice": "x"}, "tool_choice", "invalid_value"),
    ({"tools": [PAY], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice", "invalid_value"),
    ({"tools": [PAY], "tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice", "invalid_value"),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    ({"include": ["reasoning.encrypted_content", "x"]}, "include[1]", "invalid_value"),
    ({"metadata": {f"{i}": "" for i in range(17)}}, "metadata", "object_above_max_properties"),
    ({"metadata": {LONG: "x"}}, f"metadata.{LONG[:64]}", "string_above_max_length"),
    ({"metadata": {"k": "v" * 513}}, "metadata.k", "string_above_max_length"),
    ({"metadata": {"k": 5}}, "metadata.k", "invalid_type"),
    ({"previous_response_id": "resp_x"}, "previous_response_id", "previous_response_not_found"),
    (
        {"previous_response_id": "resp_x", "conversation": "c"},
        "previous_response_id",
        "mutually_exclusive_parameters",
    ),
    ({"conversation": "conv_AAAAAAAAAAAAAAAAAAAAAA"}, "conversation", "not_found"),
    ({"background": True, "store": False}, "background", "invalid_value"),
    ({"prompt": {"id": "p"}}, "prompt", "unsupported_parameter"),
    ({"context_management": [{"type": "x"}]}, "context_management[0].type", "invalid_value"),
    ({"model": "zz"}, "model", "model_not_found"),
]
CHATS: list[tuple[dict[str, Any], str, str]] = [
    ({"messages": []}, "messages", "invalid_value"),
    ({"messages": [HI, {"role": "x", "content": "x"}]}, "messages[1].role", "invalid_value"),
    ({"messages": [HI, {"role": "user"}]}, "messages[1].content", "invalid_value"),
    ({"messages": [HI, {"role": "user", "content": [{"type": "x"}]}]},
     "messages[1].content[0].type", "unsupported_parameter"),
    ({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text"}]}]},
     "messages[1].content[0].text", "missing_required_parameter"),
    ({"messages": [{"role": "system", "content": "S"}, HI, {"role": "tool", "tool_call_id": "q", "content": "x"}]},
     "messages[2].tool_call_id", "invalid_value"),
    ({"n": 2}, "n", "unsupported_value"),
    ({"logprobs": True}, "logprobs", "unsupported_parameter"),
    ({"stop": ["a"] * 5}, "stop", "array_above_max_length"),
    ({"logit_bias": {"a": 500}}, "logit_bias", "decimal_above_max_value"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens", "invalid_parameter_combination"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
    ({"response_format": {"type": "x"}}, "response_format.type", "invalid_value"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "invalid_type"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
     "response_format.json_schema.schema", "invalid_value"),
    ({"tools": [CHAT_PAY, {"type": "x"}]}, "tools[1].type", "unsupported_value"),
    ({"tools": [CHAT_PAY, {"type": "function", "function": {}}]},
     "tools[1].function.name", "missing_required_parameter"),
    ({"tools": [CHAT_PAY, CHAT_PAY]}, "tools[1].function.name", "invalid_value"),
    ({"metadata": {"a": 1}}, "metadata.a", "invalid_type"),
]  # fmt: skip
OTHERS: list[tuple[str, str, Any, str, str]] = [
    ("POST", C, {"metadata": {"k": 5}}, "metadata.k", "invalid_type"),
    ("POST", C, {"items": [HI] * 21}, "items", "array_above_max_length"),
    ("POST", C, {"items": [HI, {"role": "x"}]}, "items[1].role", "invalid_value"),
    ("POST", C + "/{conversation}", {}, "metadata", "missing_required_parameter"),
    ("POST", C + "/{conversation}/items", {}, "items", "missing_required_parameter"),
    ("POST", C + "/{conversation}/items", {"items": []}, "items", "array_below_min_length"),
    (
        "POST",
        C + "/{conversation}/items",
        {"items": [HI, {"type": "function_call_output", "call_id": "q", "output": "x"}]},
        "items[1].call_id",
        "invalid_value",
    ),
    ("GET", C + "/{conversation}/items/msg_x", None, "id", "not_found"),
    ("GET", C + "/{conversation}/items?limit=0", None, "limit", "invalid_value"),
    ("GET", C + "/{conversation}/items?order=x", None, "order", "invalid_value"),
    ("GET", C + "/{conversation}/items?after=x", None, "after", "invalid_value"),
    ("GET", C + "/{conversation}/items?include=x", None, "include[0]", "invalid_value"),
    ("GET", R + "/{response}?stream=x", None, "stream", "invalid_value"),
    ("GET", R + "/{response}?stream=true&starting_after=x", None, "starting_after", "invalid_value"),
    ("GET", R + "/resp_x", None, "id", "not_found"),
    ("POST", R + "/input_tokens", {"model": "m", "input": "x", "temperature": 1}, "temperature", "unknown_parameter"),
    ("GET", "/v1/models/zz", None, "model", "model_not_found"),
]


@pytest.fixture(scope="module")
def http() -> Iterator[httpx2.Client]:
    """Return a client of a service that all tests share: nothing that is refused changes it."""
    providers = {"m": AsyncScripted(*[says("Hi.")] * 9)}
    served = Served(create_app(Settings(), store=InMemory(), providers=providers))
    with httpx2.Client(base_url=served.url, trust_env=False) as client:
        yield client
    served.stop()


def check(answer: httpx2.Response, param: str, code: str) -> None:
    error = answer.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code), error["message"]
    assert answer.status_code == (404 if code in ("not_found", "model_not_found") else 400)
    assert error["message"].endswith((".", ")"))


@pytest.mark.parametrize(("body", "param", "code"), RESPONSES)
def test_an_error_of_a_response_names_the_place(http: httpx2.Client, body: Any, param: str, code: str) -> None:
    check(http.post(R, json={"model": "m", "input": "Hi.", **body}), param, code)


@pytest.mark.parametrize(("body", "param", "code"), CHATS)
def test_an_error_of_a_chat_completion_names_the_place(http: httpx2.Client, body: Any, param: str, code: str) -> None:
    check(http.post(K, json={"model": "m", "messages": [HI], **body}), param, code)


@pytest.mark.parametrize(("method", "path", "body", "param", "code"), OTHERS)
def test_an_error_of_another_route_names_the_place(
    http: httpx2.Client, method: str, path: str, body: Any, param: str, code: str
) -> None:
    made = http.post(C, json={}).json()
    if "{response}" in path:
        path = path.replace("{response}", http.post(R, json={"model": "m", "input": "Hi."}).json()["id"])
    check(http.request(method, path.replace("{conversation}", made["id"]), json=body), param, code)
