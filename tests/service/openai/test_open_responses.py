"""The Responses API against the types of the public Open Responses specification."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openresponses_types.types as specified
import pytest

from longtalk.testing import AsyncScripted, says
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Serve

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}
CALL = [("call_1", "get_weather", {"location": "Bergen"})]
EVENTS = {
    next(iter(kind.model_fields["type"].annotation)).value: kind
    for name, kind in vars(specified).items()
    if name.endswith("StreamingEvent")
}
NULLABLE = (
    "frequency_penalty",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "presence_penalty",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
)
PNG = "data:image/png;base64,iVBORw0KGgo="


@pytest.fixture
def http() -> Iterator[httpx2.Client]:
    with httpx2.Client(trust_env=False) as client:
        yield client


def provider(*steps: dict[str, Any], wire: str) -> AsyncScripted:
    return AsyncScripted(*[says(wire=wire, **step) for step in steps], wire=HTTP_WIRES[wire])


def read_events(text: str) -> list[dict[str, Any]]:
    """Return the data of the events of a stream, which must end with [DONE]."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def check_events(text: str) -> Any:
    """Check each event of a stream, and return the response that it ends with."""
    events = read_events(text)
    for event in events:
        EVENTS[event["type"]].model_validate(event)
    return events[-1]["response"]


def check_response(body: Any) -> specified.ResponseResource:
    return specified.ResponseResource.model_validate(body)


REQUESTS: list[dict[str, Any]] = [
    {"input": "Hi."},
    {
        "input": [
            {"type": "message", "role": "system", "content": "Be brief."},
            {"type": "message", "role": "user", "content": "I'm Ada."},
            {"type": "message", "role": "assistant", "content": "Hello, Ada."},
            {"type": "message", "role": "user", "content": "Who am I?"},
        ]
    },
    {
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": PNG}],
            }
        ]
    },
    {
        "input": "Hi.",
        "instructions": "Be brief.",
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 100,
        "tools": [WEATHER],
        "tool_choice": "auto",
        "metadata": {"a": "b"},
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "truncation": "disabled",
        "service_tier": "default",
    },
    {"input": "Hi.", **dict.fromkeys(NULLABLE), "text": {"format": {"type": "text"}, "verbosity": None}},
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_answers_have_the_specified_form(serve: Serve, http: httpx2.Client, wire: str, stream: bool) -> None:
    url = serve(m=provider(*[{"text": "Hello there."}] * len(REQUESTS), wire=wire)).url
    for body in REQUESTS:
        answer = http.post(f"{url}/v1/responses", json={"model": "m", "stream": stream, **body})
        assert answer.status_code == 200, answer.text
        made = check_response(check_events(answer.text) if stream else answer.json())
        assert (made.status, made.output[0].type) == ("completed", "message")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_calls_and_what_follows_them_have_the_specified_form(
    serve: Serve, http: httpx2.Client, wire: str, stream: bool
) -> None:
    url = serve(m=provider({"calls": CALL}, {"text": "64 degrees."}, wire=wire)).url
    choice = {"type": "function", "name": "get_weather"}
    body = {"model": "m", "input": "Weather?", "tools": [WEATHER], "tool_choice": choice, "stream": stream}
    answer = http.post(f"{url}/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    first = check_events(answer.text) if stream else answer.json()
    if stream:
        kinds = {event["type"] for event in read_events(answer.text)}
        assert {"response.function_call_arguments.delta", "response.function_call_arguments.done"} <= kinds
    check_response(first)
    [call] = [item for item in first["output"] if item["type"] == "function_call"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "64 degrees and clear"}
    second = http.post(
        f"{url}/v1/responses", json={"model": "m", "previous_response_id": first["id"], "input": [result]}
    )
    assert second.status_code == 200, second.text
    assert check_response(second.json()).status == "completed"


def test_reasoning_options_are_repeated_whole(serve: Serve, http: httpx2.Client) -> None:
    url = serve(m=provider({"text": "Hello."}, wire="openai-responses")).url
    body = {"model": "m", "input": "Hi.", "reasoning": {"effort": "low"}, "text": {"verbosity": "low"}}
    made = check_response(http.post(f"{url}/v1/responses", json=body).json())
    assert made.reasoning is not None
    assert (made.reasoning.effort, made.reasoning.summary) == ("low", None)


def test_a_compaction_has_the_specified_form(serve: Serve, http: httpx2.Client) -> None:
    url = serve(m=provider({"text": "Hello."}, {"text": "A summary."}, wire="openai-chat")).url
    first = http.post(f"{url}/v1/responses", json={"model": "m", "input": "Hi."}).json()
    answer = http.post(f"{url}/v1/responses/compact", json={"model": "m", "previous_response_id": first["id"]})
    assert answer.status_code == 200, answer.text
    specified.CompactResource.model_validate(answer.json())


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_listed_items_have_the_specified_form(serve: Serve, http: httpx2.Client, wire: str) -> None:
    url = serve(m=provider({"calls": CALL}, {"text": "64 degrees."}, wire=wire)).url
    conversation = http.post(f"{url}/v1/conversations", json={}).json()["id"]
    body = {"model": "m", "conversation": conversation, "tools": [WEATHER]}
    http.post(f"{url}/v1/responses", json={**body, "input": "Weather?"})
    result = {"type": "function_call_output", "call_id": "call_1", "output": "64 degrees"}
    http.post(f"{url}/v1/responses", json={**body, "input": [result]})
    listed = http.get(f"{url}/v1/conversations/{conversation}/items").json()["data"]
    forms = {
        "message": specified.Message,
        "function_call": specified.FunctionCall,
        "function_call_output": specified.FunctionCallOutput,
    }
    assert {item["type"] for item in listed} == set(forms)
    for item in listed:
        forms[item["type"]].model_validate(item)
