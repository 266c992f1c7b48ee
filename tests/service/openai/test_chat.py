"""Chat Completions, through OpenAI's own client."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from longtalk.errors import RateLimited
from longtalk.testing import AsyncScripted, says, validate
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Serve

PAY = {
    "type": "function",
    "function": {"name": "pay", "description": "Pay.", "parameters": {"type": "object", "properties": {}}},
}
HISTORY = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "I'm Ada."},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Who am I?"},
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_a_completion_without_a_conversation_keeps_nothing(serve: Serve, wire: str, stream: bool) -> None:
    provider = AsyncScripted(says("You are Ada.", wire=wire), wire=HTTP_WIRES[wire])
    served = serve(m=provider)
    client: Any = served.client()
    if stream:
        chunks = list(
            client.chat.completions.create(
                model="m", messages=HISTORY, stream=True, stream_options={"include_usage": True}
            )
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
        assert chunks[-1].usage.total_tokens == 15
    else:
        made = client.chat.completions.create(model="m", messages=HISTORY)
        text = made.choices[0].message.content
        assert (made.choices[0].finish_reason, made.usage.total_tokens) == ("stop", 15)
    assert text == "You are Ada."
    validate(provider.requests[0], wire=wire)
    assert b"I'm Ada." in provider.requests[0]
    assert b"Be brief." in provider.requests[0]
    assert served.service.store.conversations("") == []


@pytest.mark.parametrize("with_key", [False, True])
def test_what_is_not_to_be_stored_reads_the_conversation_and_writes_nothing(serve: Serve, with_key: bool) -> None:
    provider = AsyncScripted(says("Hello, Ada."), *[says("You are Ada.")] * 2)
    served = serve(m=provider)
    client: Any = served.client()
    question = {"model": "m", "messages": [{"role": "user", "content": "Who am I?"}], "store": False}
    client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "I'm Ada."}], extra_headers={"Longtalk-Conversation": "a"}
    )
    before = served.service.store.head("", "a")
    for name in ("a", "new"):
        headers = {"Idempotency-Key": f"k-{name}"} if with_key else {}
        made = client.chat.completions.with_raw_response.create(
            **question, extra_headers={"Longtalk-Conversation": name, **headers}
        )
        assert "longtalk-conversation" not in made.headers
    assert [b"I'm Ada." in request for request in provider.requests[1:]] == [True, False]
    assert served.service.store.head("", "a") == before
    assert [each.id for each in served.service.store.conversations("")] == ["a"]


def test_a_key_with_another_conversation_in_the_header_is_another_request(serve: Serve) -> None:
    client: Any = serve(m=AsyncScripted(says("One."))).client()
    given = {"model": "m", "messages": [{"role": "user", "content": "Hi."}]}
    header = {"Idempotency-Key": "k"}
    client.chat.completions.create(**given, extra_headers={"Longtalk-Conversation": "a", **header})
    with pytest.raises(openai.UnprocessableEntityError):
        client.chat.completions.create(**given, extra_headers={"Longtalk-Conversation": "b", **header})


@pytest.mark.parametrize("way", ["body", "header"])
def test_with_a_conversation_only_the_new_message_is_sent(serve: Serve, way: str) -> None:
    provider = AsyncScripted(says("Hello, Ada."), says("You are Ada."))
    client: Any = serve(m=provider).client()
    where = (
        {"extra_body": {"conversation": "a"}} if way == "body" else {"extra_headers": {"Longtalk-Conversation": "a"}}
    )
    for text in ("I'm Ada.", "Who am I?"):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}], **where)
    assert [message["content"] for message in json.loads(provider.requests[1])["messages"]] == [
        "I'm Ada.",
        "Hello, Ada.",
        "Who am I?",
    ]


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_the_client_runs_functions(serve: Serve, wire: str, stream: bool, stateful: bool) -> None:
    calls = says(None, calls=[("c1", "pay", {"a": 1}), ("c2", "pay", {"b": 2})], wire=wire)
    provider = AsyncScripted(calls, says("Paid.", wire=wire), wire=HTTP_WIRES[wire])
    client: Any = serve(m=provider).client()
    options: dict[str, Any] = {"model": "m", "tools": [PAY]}
    if stateful:
        options["extra_body"] = {"conversation": "a"}
    asked = [{"role": "user", "content": "Pay."}]
    if stream:
        with client.chat.completions.stream(messages=asked, **options) as events:
            message = events.get_final_completion().choices[0].message
    else:
        message = client.chat.completions.create(messages=asked, **options).choices[0].message
    made = [(call.id, call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]
    assert made == [("c1", "pay", {"a": 1}), ("c2", "pay", {"b": 2})]
    results = [{"role": "tool", "tool_call_id": call.id, "content": f"done {call.id}"} for call in message.tool_calls]
    before = [] if stateful else [*asked, json.loads(message.model_dump_json(exclude_none=True, exclude={"parsed"}))]
    for call in before[1]["tool_calls"] if before else ():
        call["function"].pop("parsed_arguments", None)
    answer = client.chat.completions.create(messages=[*before, *results], **options)
    assert answer.choices[0].message.content == "Paid."
    validate(provider.requests[1], wire=wire)
    assert b"done c2" in provider.requests[1]


def test_an_answer_that_was_stored_names_its_conversation(serve: Serve) -> None:
    served = serve(m=AsyncScripted(says("Hello.")))
    raw = served.client().chat.completions.with_raw_response.create(
        model="m", messages=[{"role": "user", "content": "Hi."}], store=True
    )
    name = raw.headers["longtalk-conversation"]
    assert [info.id for info in served.service.store.conversations("")] == [name]


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_of_the_provider_before_its_answer_has_a_status(serve: Serve, stream: bool) -> None:
    problem = RateLimited("slow down", status=429, retry_after=7, retryable=False)
    client: Any = serve(m=AsyncScripted(problem)).client()
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi."}], stream=stream)
    assert caught.value.response.headers["retry-after"] == "7"


@pytest.mark.parametrize(
    ("field", "value"),
    [("n", 2), ("logprobs", True), ("modalities", ["audio"]), ("functions", []), ("messages", [])],
)
def test_what_can_not_be_done_is_refused_by_name(serve: Serve, field: str, value: Any) -> None:
    client: Any = serve(m=AsyncScripted()).client()
    body = {"messages": [{"role": "user", "content": "Hi."}], field: value}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="m", messages=body.pop("messages"), extra_body=body)
    assert caught.value.param == field


@pytest.mark.parametrize("id", ["conv_" + "a" * 22, "chain_" + "a" * 22])
def test_an_unknown_id_in_the_form_of_the_service_is_not_found(serve: Serve, id: str) -> None:  # noqa: A002
    served = serve(m=AsyncScripted(says("Hello.", wire="openai-chat")))
    client: Any = served.client()
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="m", messages=HISTORY[-1:], extra_body={"conversation": id})
    assert caught.value.code == "not_found"
    assert served.service.store.info("", id) is None


def test_a_model_whose_provider_has_no_key_is_unavailable_and_named(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MISTRAL_API_KEY", raising=False)
    client: Any = serve(m=AsyncScripted()).client()
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="mistral:any", messages=HISTORY[-1:])
    assert (caught.value.status_code, caught.value.code) == (503, "provider_key_missing")
    assert "no API key for the provider 'mistral'" in str(caught.value)
    assert "api_key=" not in str(caught.value)


def test_an_unknown_model_is_not_found(serve: Serve) -> None:
    client: Any = serve(m=AsyncScripted()).client()
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="no-such", messages=[{"role": "user", "content": "Hi."}])
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
