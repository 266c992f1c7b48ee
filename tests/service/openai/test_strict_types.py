"""Everything that the service sends has the types of openai-python, in their strict form, over every wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from openai.types import Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.conversations import (
    Conversation,
    ConversationDeletedResource,
    ConversationItem,
    ConversationItemList,
)
from openai.types.responses import CompactedResponse, ResponseItem, ResponsesServerEvent
from openai.types.responses.input_token_count_response import InputTokenCountResponse

from longtalk.errors import Overloaded, RateLimited, RequestRefused
from longtalk.service.app import ENDPOINTS
from longtalk.testing import AsyncScripted, Step, says
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Serve
from tests.service.openai.strict_types import check, check_events, check_response
from tests.service.test_runs import Waiting

PAY = {"type": "function", "name": "pay", "parameters": {"type": "object", "properties": {"sum": {"type": "integer"}}}}
PATCH = {"type": "custom", "name": "patch"}
NAMESPACE = {"type": "namespace", "name": "bank", "description": "Money.", "tools": [PAY]}
THOUGHTS = {
    "openai-chat": {"reasoning_content": "Hm."},
    "anthropic": {"thinking": ["Hm."]},
    "gemini": {"thinking": ["Hm."]},
    "openai-responses": {"reasoning": ["c2VhbGVk"]},
}
CUT = {
    "openai-chat": "length",
    "anthropic": "max_tokens",
    "gemini": "MAX_TOKENS",
    "openai-responses": "max_output_tokens",
}
CALLS = [
    ("c1", "pay", {"sum": 5}),
    ("c2", "pay", {}),
    ("c3", "patch", {"input": "+ x"}),
    ("c4", "bank__pay", {"sum": 1}),
]


def list_steps(wire: str) -> list[Step]:
    """Return answers of all forms."""
    thinks = says("Hello.", fields=THOUGHTS[wire], wire=wire)
    if wire == "openai-chat":
        # Servers send what the model thinks before its text.
        thinks = Step(thinks.body, (thinks.events[0], thinks.events[-4], *thinks.events[1:-4], *thinks.events[-3:]))
    steps = [
        says("Hello there, Ada.", wire=wire),
        thinks,
        says("I'll pay.", calls=CALLS, wire=wire),
        says("Hello th", finish=CUT[wire], wire=wire),
        says("", wire=wire),
    ]
    return [*steps, says(None, fields={"refusal": "No."})] if wire == "openai-chat" else steps


BODY = {
    "model": "m",
    "input": [{"role": "user", "content": "Hi."}],
    "tools": [PAY, PATCH, NAMESPACE],
    "instructions": "Be brief.",
    "reasoning": {"summary": "auto"},
    "text": {"format": {"type": "text"}},
    "metadata": {"a": "b"},
}


@pytest.fixture
def http() -> Iterator[httpx2.Client]:
    with httpx2.Client(trust_env=False) as client:
        yield client


def read_events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
    events = [json.loads(line) for line in lines]
    assert not names or names == [event["type"] for event in events]
    return events


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_responses_and_their_events(serve: Serve, http: httpx2.Client, wire: str) -> None:
    steps = list_steps(wire)
    url = serve(m=AsyncScripted(*[step for step in steps for _ in range(2)], wire=HTTP_WIRES[wire])).url
    for _ in steps:
        whole = http.post(f"{url}/v1/responses", json=BODY).json()
        check_response(whole)
        assert http.get(f"{url}/v1/responses/{whole['id']}").json() == whole
        replayed = http.get(f"{url}/v1/responses/{whole['id']}", params={"stream": "true"})
        again = check_events(read_events(replayed.text), replayed=True)
        streamed = check_events(read_events(http.post(f"{url}/v1/responses", json={**BODY, "stream": True}).text))
        assert http.get(f"{url}/v1/responses/{streamed['id']}").json() == streamed
        assert again == whole
        shapes = [[item["type"] for item in made["output"]] for made in (whole, streamed)]
        assert shapes[0] == shapes[1]
        listed = http.get(f"{url}/v1/responses/{whole['id']}/input_items").json()
        check(ConversationItemList, listed)
        for item in listed["data"]:
            check(ResponseItem, item)


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_conversations_and_their_items(serve: Serve, http: httpx2.Client, wire: str) -> None:
    results = [
        *({"type": "function_call_output", "call_id": each, "output": "done"} for each in ("c1", "c2", "c4")),
        {"type": "custom_tool_call_output", "call_id": "c3", "output": "patched"},
    ]
    calls = says("I'll pay.", calls=CALLS, fields=THOUGHTS[wire], wire=wire)
    url = serve(m=AsyncScripted(calls, says("Done.", wire=wire), wire=HTTP_WIRES[wire])).url + "/v1/conversations"
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    items = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "This."}, image]},
        {"role": "assistant", "content": "I see."},
    ]
    made = http.post(url, json={"items": items, "metadata": {"a": "b"}}).json()
    check(Conversation, made)
    talk = f"{url}/{made['id']}"
    check(Conversation, http.get(talk).json())
    check(Conversation, http.post(talk, json={"metadata": {"c": "d"}}).json())
    added = http.post(f"{talk}/items", json={"items": [{"role": "user", "content": "And this."}]}).json()
    check(ConversationItemList, added)
    path = url.replace("conversations", "responses")
    body = {"model": "m", "tools": [PAY, PATCH, NAMESPACE], "conversation": made["id"]}
    assert http.post(path, json={**body, "input": "Pay."}).status_code == 200
    told = http.post(path, json={**body, "input": results})
    assert told.status_code == 200, told.text
    listed = http.get(f"{talk}/items", params={"order": "asc"}).json()
    check(ConversationItemList, listed)
    kinds = [item["type"] for item in listed["data"]]
    for item in listed["data"]:
        assert check(ConversationItem, item)
        check(ConversationItem, http.get(f"{talk}/items/{item['id']}").json())
    assert kinds[-9:-5] == ["function_call", "function_call", "custom_tool_call", "function_call"]
    outputs = ["function_call_output", "function_call_output", "custom_tool_call_output", "function_call_output"]
    assert kinds[-5:] == [*outputs, "message"]
    inputs = http.get(f"{path}/{told.json()['id']}/input_items", params={"order": "asc"}).json()
    assert [item["type"] for item in inputs["data"]] == outputs
    check(Conversation, http.delete(f"{talk}/items/{listed['data'][0]['id']}").json())
    check(ConversationDeletedResource, http.delete(talk).json())


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_chat_completions_and_chunks(serve: Serve, http: httpx2.Client, wire: str) -> None:
    steps = list_steps(wire)
    url = serve(m=AsyncScripted(*[step for step in steps for _ in range(2)], wire=HTTP_WIRES[wire])).url
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {}}} for name in ("pay", "patch", "bank__pay")
    ]
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi."}], "tools": tools}
    for _ in steps:
        whole = http.post(f"{url}/v1/chat/completions", json=body).json()
        check(ChatCompletion, whole)
        more = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = read_events(http.post(f"{url}/v1/chat/completions", json={**body, **more}).text)
        text, calls = "", {}
        for chunk in chunks:
            for choice in chunk["choices"]:
                choice["delta"].pop("reasoning_content", None)
                text += choice["delta"].get("content") or ""
                for call in choice["delta"].get("tool_calls", ()):
                    calls[call["index"]] = calls.get(call["index"], "") + call["function"]["arguments"]
            check(ChatCompletionChunk, chunk)
        assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1
        assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
        assert chunks[-1]["usage"]["total_tokens"] > 0
        message = whole["choices"][0]["message"]
        assert text == (message["content"] or "")
        assert chunks[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
        wanted = [json.loads(call["function"]["arguments"]) for call in message.get("tool_calls") or ()]
        assert [json.loads(calls[i]) for i in sorted(calls)] == wanted
        assert sorted(calls) == list(range(len(wanted)))


def test_a_response_in_the_background_cancelled_and_failed(serve: Serve, http: httpx2.Client) -> None:
    provider = Waiting()
    url = serve(m=provider, broken=AsyncScripted(ValueError("no"), ValueError("no"))).url + "/v1/responses"
    made = http.post(url, json={**BODY, "background": True}).json()
    check_response(made)
    assert provider.began.wait(60)
    check_response(http.get(f"{url}/{made['id']}").json())
    ended = http.post(f"{url}/{made['id']}/cancel").json()
    assert check_response(ended).status == "cancelled"
    assert http.get(f"{url}/{made['id']}").json() == ended
    check_events(read_events(http.get(f"{url}/{made['id']}", params={"stream": "true"}).text))
    failed = read_events(http.post(url, json={**BODY, "model": "broken", "stream": True}).text)
    assert check_events(failed)["status"] == "failed"


@pytest.mark.parametrize(
    ("problem", "code", "message"),
    [
        (RateLimited("slow down", status=429, retryable=False), "rate_limit_exceeded", "slow down"),
        (RequestRefused("no such model", status=400), "invalid_prompt", "no such model"),
        (Overloaded("busy: wait", status=529, retryable=False), "server_error", "busy: wait"),
        (OSError("/data/secret"), "server_error", "The service failed. Its log has the details."),
    ],
)
def test_a_failed_response_has_the_same_error_in_its_stream_and_later(
    serve: Serve, http: httpx2.Client, problem: Exception, code: str, message: str
) -> None:
    url = serve(m=AsyncScripted(problem)).url + "/v1/responses"
    ended = check_events(read_events(http.post(url, json={**BODY, "stream": True}).text))
    assert (ended["status"], ended["error"]) == ("failed", {"code": code, "message": message})
    assert http.get(f"{url}/{ended['id']}").json() == ended


def test_compaction_counts_models_and_deletion(serve: Serve, http: httpx2.Client) -> None:
    url = serve(m=AsyncScripted(says("Hello."), says("A summary."))).url + "/v1"
    first = http.post(f"{url}/responses", json=BODY).json()
    check(CompactedResponse, http.post(f"{url}/responses/compact", json={"model": "m", "input": "Hi."}).json())
    check(
        InputTokenCountResponse, http.post(f"{url}/responses/input_tokens", json={"model": "m", "input": "Hi."}).json()
    )
    models = http.get(f"{url}/models").json()
    assert models.keys() == {"object", "data"}
    for model in models["data"]:
        check(Model, model)
        check(Model, http.get(f"{url}/models/{model['id']}").json())
    deleted = http.delete(f"{url}/responses/{first['id']}").json()
    assert deleted == {"id": first["id"], "object": "response", "deleted": True}


def test_errors_have_their_four_fields_on_every_route(serve: Serve, http: httpx2.Client) -> None:
    url = serve(m=AsyncScripted()).url
    for method, path, _ in ENDPOINTS:
        for verb, body in ((method, b"{"), ("TRACE", b"")):
            to = url + path.replace(":path", "").replace("{", "a").replace("}", "b")
            made = http.request(verb, to, content=body)
            if made.status_code >= 400:
                error = made.json()["error"]
                assert error.keys() == {"message", "type", "param", "code"}, (method, path)
                assert isinstance(error["message"], str)
                assert isinstance(error["type"], str)


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_events_and_errors_of_a_connection(serve: Serve, wire: str) -> None:
    client: Any = serve(m=AsyncScripted(*list_steps(wire)[:3], wire=HTTP_WIRES[wire])).client()
    with client.responses.connect() as connection:

        def receive() -> list[Any]:
            events = []
            while not events or events[-1]["type"] not in ("response.completed", "response.incomplete", "error"):
                events.append(json.loads(connection.recv_bytes()))
            return events

        for _ in range(3):
            connection.send({"type": "response.create", **BODY})
            check_events(receive())
        connection.send({"type": "response.create", "previous_response_id": "resp_no"})
        [error] = receive()
        check(ResponsesServerEvent, error)
        assert (error["status"], error["error"]["code"]) == (400, "previous_response_not_found")
