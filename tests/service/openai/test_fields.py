"""Each field that OpenAI's client can send is translated, done by the service, or refused by its name."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, get_type_hints

import httpx2
import msgspec
import openai
import pytest
from openai.types import shared_params
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params as response_params
from openai.types.responses import response_text_config_param as text_params

from longtalk import Archive, Conversation, KeepLast
from longtalk.providers.registry import PROVIDERS
from longtalk.service.errors import ApiError
from longtalk.service.openai import fields, request_parts
from longtalk.service.openai.create_chat import CreateChat
from longtalk.service.openai.create_response import CreateResponse
from longtalk.service.settings import Settings
from longtalk.testing import AsyncScripted, Scripted, says
from longtalk.wires import HTTP_WIRES, WIRES
from tests.service.conftest import Serve

TOOL = {"type": "function", "name": "pay", "parameters": {"type": "object", "properties": {}}}
CHAT_TOOL = {"type": "function", "function": {"name": "pay", "parameters": {"type": "object", "properties": {}}}}
SURFACES: dict[str, Any] = {
    "responses": (CreateResponse, fields.RESPONSE_FIELDS, {"input": "Hi.", "tools": [TOOL]}),
    "chat": (CreateChat, fields.CHAT_FIELDS, {"messages": [{"role": "user", "content": "Hi."}], "tools": [CHAT_TOOL]}),
}
SENT = {
    "responses": get_type_hints(response_params.ResponseCreateParamsStreaming),
    "chat": get_type_hints(chat_params.CompletionCreateParamsStreaming),
}
"""The fields that the installed client knows."""
VALUES: dict[str, list[Any]] = {
    "frequency_penalty": [0.5],
    "logit_bias": [{"50256": -100}],
    "max_completion_tokens": [99],
    "max_output_tokens": [99],
    "max_tokens": [99],
    "parallel_tool_calls": [False],
    "presence_penalty": [0.5],
    "prompt_cache_key": ["k"],
    "prompt_cache_options": [{"mode": "explicit"}, {"ttl": "12h"}],
    "prompt_cache_retention": ["24h"],
    "reasoning": [
        *({"effort": each} for each in ("none", "minimal", "low", "medium", "high", "xhigh", "max")),
        *({"summary": "detailed"}, {"generate_summary": "concise"}, {"context": "all_turns"}, {"mode": "pro"}),
    ],
    "reasoning_effort": ["none", "minimal", "low", "medium", "high", "xhigh", "max"],
    "response_format": [{"type": "json_object"}],
    "safety_identifier": ["s"],
    "seed": [7],
    "service_tier": ["flex", "priority"],
    "stop": ["END"],
    "temperature": [0.25],
    "text": [{"format": {"type": "json_object"}}, {"verbosity": "low"}],
    "tool_choice": ["required", "none"],
    "top_p": [0.5],
    "user": ["u"],
    "verbosity": ["high"],
}
PROVIDERS_BEHIND = {
    **{
        f"scripted:{name}": SimpleNamespace(label="scripted:m", model="m", wire=wire)
        for name, wire in HTTP_WIRES.items()
    },
    **{
        name: SimpleNamespace(label=f"{name}:m", model="m", wire=WIRES[address.wire])
        for name, address in PROVIDERS.items()
    },
    "offered": SimpleNamespace(label="offered:m", model="m", wire=HTTP_WIRES["openai-chat"]),
    "old gemini": SimpleNamespace(label="gemini:gemini-2.5-pro", model="gemini-2.5-pro", wire=HTTP_WIRES["gemini"]),
}


def decode(kind: Any, body: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(body), type=kind)


def make_options(surface: str, name: str, value: Any, behind: Any) -> Any:
    """Return the options that a field becomes, or the name of the field that is refused."""
    kind, _, body = SURFACES[surface]
    try:
        return decode(kind, {**body, name: value}).make_options(behind)
    except ApiError as problem:
        assert (problem.status, problem.code) == (400, "unsupported_parameter")
        assert behind.label in problem.message
        return problem.param


@pytest.mark.parametrize("surface", SURFACES)
def test_the_table_has_the_fields_of_the_client_and_of_the_request(surface: str) -> None:
    kind, table, _ = SURFACES[surface]
    assert SENT[surface].keys() - table.keys() == set()
    assert {field.name for field in msgspec.structs.fields(kind)} == table.keys()


@pytest.mark.parametrize(
    ("part", "known"),
    [
        (request_parts.Reasoning, shared_params.Reasoning),
        (request_parts.Text, text_params.ResponseTextConfigParam),
        (request_parts.PromptCacheOptions, response_params.PromptCacheOptions),
        (request_parts.StreamOptions, response_params.StreamOptions),
    ],
)
def test_objects_have_the_fields_of_the_client(part: Any, known: Any) -> None:
    assert {field.name for field in msgspec.structs.fields(part)} == get_type_hints(known).keys()


@pytest.mark.parametrize("behind", PROVIDERS_BEHIND)
@pytest.mark.parametrize("surface", SURFACES)
def test_a_field_for_the_provider_is_translated_or_refused_by_its_name(surface: str, behind: str) -> None:
    _, table, _ = SURFACES[surface]
    for name in (name for name, treatment in table.items() if treatment == fields.PROVIDER):
        for value in VALUES[name]:
            made = make_options(surface, name, value, PROVIDERS_BEHIND[behind])
            if isinstance(made, str):
                assert made.partition(".")[0] == name
            else:
                assert made, f"{name} = {value!r} is dropped"


@pytest.mark.parametrize("behind", PROVIDERS_BEHIND)
@pytest.mark.parametrize("surface", SURFACES)
def test_hints_are_never_refused(surface: str, behind: str) -> None:
    _, table, _ = SURFACES[surface]
    for name in (name for name, treatment in table.items() if treatment == fields.HINT and name in VALUES):
        assert isinstance(make_options(surface, name, VALUES[name][0], PROVIDERS_BEHIND[behind]), dict)


@pytest.mark.parametrize(
    ("behind", "name", "value", "made"),
    [
        ("openai", "reasoning", {"effort": "high"}, {"reasoning": {"effort": "high"}}),
        ("openai-chat", "reasoning", {"effort": "high"}, {"reasoning_effort": "high"}),
        ("ollama", "reasoning", {"effort": "high"}, {"reasoning_effort": "high"}),
        ("anthropic", "reasoning", {"effort": "max"}, {"output_config": {"effort": "max"}}),
        ("anthropic", "reasoning", {"effort": "none"}, {"thinking": {"type": "disabled"}}),
        ("anthropic", "reasoning", {"effort": "minimal"}, "reasoning.effort"),
        ("gemini", "reasoning", {"effort": "low"}, {"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}}}),
        (
            "old gemini",
            "reasoning",
            {"effort": "none"},
            {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}},
        ),
        *((name, "reasoning", {"effort": "high"}, "reasoning.effort") for name in ("local", "compatible", "lmstudio")),
        ("claude-cli", "reasoning", {"effort": "high"}, "reasoning.effort"),
        ("gemini", "reasoning", {"summary": "auto"}, {}),
        ("openai", "text", {"verbosity": "low"}, {"text": {"verbosity": "low"}}),
        ("openrouter", "text", {"verbosity": "low"}, {"verbosity": "low"}),
        *((name, "text", {"verbosity": "low"}, "text.verbosity") for name in ("vllm", "anthropic", "gemini", "local")),
        ("local", "text", {"verbosity": "medium"}, {}),
        ("groq", "service_tier", "flex", {"service_tier": "flex"}),
        ("mistral", "service_tier", "flex", "service_tier"),
        ("mistral", "service_tier", "auto", {}),
        ("ollama", "tool_choice", "required", "tool_choice"),
        ("local", "tool_choice", {"type": "function", "name": "pay"}, "tool_choice"),
        ("mistral", "prompt_cache_key", "k", {}),
        ("openai", "prompt_cache_key", "k", {"prompt_cache_key": "k"}),
        ("compatible", "prompt_cache_retention", "24h", "prompt_cache_retention"),
    ],
)
def test_a_field_becomes_what_the_provider_knows(behind: str, name: str, value: Any, made: Any) -> None:
    assert make_options("responses", name, value, PROVIDERS_BEHIND[behind]) == made


def test_errors_name_fields_of_chat_completions_as_the_client_does() -> None:
    agent = PROVIDERS_BEHIND["codex-cli"]
    for name, value in (
        ("reasoning_effort", "low"),
        ("response_format", {"type": "json_object"}),
        ("verbosity", "low"),
    ):
        assert make_options("chat", name, value, agent) == name
    for name in ("max_tokens", "max_completion_tokens"):
        assert make_options("chat", name, 9, agent) == name
    assert make_options("chat", "seed", 7, PROVIDERS_BEHIND["mistral"]) == {"random_seed": 7}


def test_what_the_settings_send_to_a_server_the_client_can_change() -> None:
    given = decode(CreateResponse, {"input": "Hi.", "reasoning": {"effort": "low"}})
    server: Any = PROVIDERS_BEHIND["compatible"]
    assert given.make_options(server, {"reasoning_effort": "high"}) == {"reasoning_effort": "low"}


def test_a_choice_of_tool_and_one_call_at_a_time_go_together_for_anthropic() -> None:
    body = {"input": "Hi.", "tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    made = decode(CreateResponse, body).make_options(PROVIDERS_BEHIND["anthropic"])
    assert made == {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}}


REFUSALS = [
    *(("responses", name, {}) for name, how in fields.RESPONSE_FIELDS.items() if how == fields.REFUSED),
    *(("chat", name, {}) for name, how in fields.CHAT_FIELDS.items() if how == fields.REFUSED),
    ("responses", "nonsense", 1),
    ("chat", "nonsense", 1),
    ("responses", "include", ["message.output_text.logprobs"]),
    ("responses", "stream_options", {"nonsense": True}),
    ("responses", "prompt_cache_options", {"prewarm": True}),
    ("responses", "reasoning", {"effort": "huge"}),
    ("responses", "reasoning", {"depth": 3}),
    ("responses", "text", {"format": {"type": "xml"}}),
    ("responses", "text", {"format": {"type": "json_schema", "schema": {}}}),
    ("responses", "text", {"format": {}}),
    ("responses", "truncation", "sometimes"),
    ("responses", "service_tier", "gold"),
    ("responses", "temperature", 3),
    ("responses", "top_logprobs", 3),
    ("responses", "tool_choice", "maybe"),
    ("responses", "max_tool_calls", 0),
    ("chat", "verbosity", "loud"),
    ("chat", "modalities", ["audio"]),
    ("chat", "n", 2),
    ("chat", "response_format", {"type": "json_schema", "json_schema": {"name": "a"}}),
    ("chat", "response_format", {"type": "xml"}),
    ("chat", "stream_options", {"nonsense": True}),
]


def test_what_is_not_supported_is_a_400_that_names_the_field(serve: Serve) -> None:
    url = serve(m=AsyncScripted()).url
    paths = {"responses": "/v1/responses", "chat": "/v1/chat/completions"}
    with httpx2.Client() as http:
        for surface, name, value in REFUSALS:
            made = http.post(url + paths[surface], json={**SURFACES[surface][2], "model": "m", name: value})
            assert (made.status_code, name) == (400, re.split(r"\W", made.json()["error"]["param"])[0]), made.text


LONG = "I have read the whole letter, line by line. " * 60


def test_with_truncation_disabled_a_request_that_is_too_long_is_refused_and_else_shortened(serve: Serve) -> None:
    provider = AsyncScripted(*[says(LONG)] * 9, window=2_000)
    client: Any = serve(m=provider).client()
    talk = client.conversations.create()
    for _ in range(2):
        client.responses.create(model="m", input=LONG, conversation=talk.id, truncation="auto")
    assert provider.requests[1].count(b"line by line") < 60 * 3 * 2
    items = [{"role": role, "content": LONG} for role in ("user", "assistant", "user", "assistant", "user")]
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="m", input=items, truncation="disabled")
    assert caught.value.code == "context_length_exceeded"
    assert client.responses.create(model="m", input="Hi.", truncation="disabled").status == "completed"


def test_truncation_of_one_request_is_not_stored_with_the_conversation(serve: Serve) -> None:
    served = serve(settings=Settings(policy="KeepLast(7)"), m=AsyncScripted(says("Hello."), window=9_000))
    client: Any = served.client()
    talk = client.conversations.create()
    client.responses.create(model="m", input="Hi.", conversation=talk.id, truncation="disabled")
    archive = Archive(served.service.store)
    settings = archive.settings(talk.id)
    assert settings is not None
    assert settings.policy == KeepLast(7)
    with Conversation.open(talk.id, store=served.service.store, model=Scripted(says("Yes."))) as opened:
        assert opened.send("Still there?").text == "Yes."


def test_tools_of_the_service_run_at_most_as_often_as_max_tool_calls_says(serve: Serve) -> None:
    asks = [says(None, calls=[(f"c{i}", "recall", {"query": "violin"})]) for i in range(2)]
    provider = AsyncScripted(*asks, says("I don't know."))
    client: Any = serve(settings=Settings(policy="Memory()"), m=provider).client()
    made = client.responses.create(model="m", input="What do I play?", tools=[TOOL], max_tool_calls=1)
    assert (made.output_text, made.max_tool_calls) == ("I don't know.", 1)
    assert b"only 1 tool calls are allowed" not in provider.requests[1]
    assert b"only 1 tool calls are allowed" in provider.requests[2]
