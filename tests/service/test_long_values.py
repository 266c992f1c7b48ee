"""A value of a request, however long, is cut before an error or a log repeats it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import httpx2
import msgspec
import pytest

from longtalk.service.app import create_app
from longtalk.service.errors import quote, shorten
from longtalk.service.native.table import ROUTES
from longtalk.service.settings import Settings
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, says
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Served

LONG = "long-" * 10_000
LONG_IN_HEAD = LONG[:30_000]
_RESPONSE = "resp_aaaaaaaaaaaahAAAAAAAAAAAAAAAAAAAAAA"
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
TOOL = {"type": "function", "name": "pay", "description": "Pay.", "parameters": {"type": "object", "properties": {}}}
FORMAT = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
BODIES: list[tuple[str, dict[str, Any]]] = [
    (
        "/v1/responses",
        {
            "model": "m",
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]},
            ],
            "include": ["reasoning.encrypted_content"],
            "metadata": {"a": "b"},
            "tools": [TOOL],
            "tool_choice": {"type": "function", "name": "pay"},
            "reasoning": {"effort": "low", "summary": "auto"},
            "text": {"format": FORMAT, "verbosity": "low"},
            "truncation": "auto",
            "service_tier": "auto",
            "context_management": [{"type": "compaction", "compact_threshold": 2_000}],
            "prompt_cache_options": {"mode": "implicit"},
        },
    ),
    ("/v1/responses", {"model": "m", "input": "x", "previous_response_id": _RESPONSE}),
    ("/v1/responses", {"model": "m", "input": "x", "conversation": {"id": "conv_AAAAAAAAAAAAAAAAAAAAAA"}}),
    (
        "/v1/responses",
        {
            "model": "m",
            "input": [
                {"type": "function_call_output", "call_id": "c", "output": "x"},
                {"type": "item_reference", "id": "msg_aaaaaaaaaaaa_0"},
                {"type": "compaction", "encrypted_content": "a"},
            ],
        },
    ),
    (
        "/v1/chat/completions",
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Hi."}, IMAGE]},
            ],
            "metadata": {"a": "b"},
            "tools": [{"type": "function", "function": TOOL}],
            "tool_choice": {"type": "function", "function": {"name": "pay"}},
            "response_format": {"type": "json_schema", "json_schema": FORMAT},
            "stop": ["x"],
            "reasoning_effort": "low",
            "logit_bias": {"1": 1},
            "stream_options": {"include_usage": True},
            "modalities": ["text"],
        },
    ),
    (
        "/v1/chat/completions",
        {
            "model": "m",
            "messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}],
            "conversation": "conv_AAAAAAAAAAAAAAAAAAAAAA",
        },
    ),
    ("/v1/conversations", {"metadata": {"a": "b"}, "items": [{"type": "message", "role": "user", "content": "Hi."}]}),
    (
        "/longtalk/v1/turns",
        {
            "model": "m",
            "policy": "Memory()",
            "message": [{"type": "text", "text": "Hi."}, IMAGE],
            "tools": [{"name": "pay", "parameters": {"type": "object"}}],
            "options": {"tool_choice": "auto", "verbosity": "low"},
            "output": {"type": "object"},
            "brief": {"facts": ["x"]},
        },
    ),
    ("/longtalk/v1/turns", {"model": "m", "outputs": [{"call_id": "c", "text": "x"}], "state": "AAAA"}),
    ("/longtalk/v1/conversations", {"id": "a", "title": "t", "meta": {"a": "b"}}),
]


def vary(value: Any) -> Iterator[Any]:
    """Yield a value with one of its names or texts after the other made long."""
    if isinstance(value, str):
        yield LONG
    elif isinstance(value, list):
        for i, each in enumerate(value):
            yield from ([*value[:i], other, *value[i + 1 :]] for other in vary(each))
    elif isinstance(value, dict):
        yield value | {LONG: 1}
        for name, each in value.items():
            yield {LONG if key == name else key: item for key, item in value.items()}
            yield from (value | {name: other} for other in vary(each))


@pytest.fixture(scope="module")
def http() -> Iterator[httpx2.Client]:
    models = {f"m{i}": AsyncScripted(wire=wire) for i, wire in enumerate(HTTP_WIRES.values())}
    served = Served(
        create_app(Settings(), store=InMemory(), providers={"m": AsyncScripted(*[says("{}")] * 500), **models})
    )
    with httpx2.Client(base_url=served.url, trust_env=False, verify=False, timeout=30) as client:
        yield client
    served.stop()


@pytest.fixture
def check(http: httpx2.Client, caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, "longtalk")

    def check(method: str, path: str, **more: Any) -> bool:
        """Make a request, and check that a refusal and all logs are short. Return whether it was refused."""
        caplog.clear()
        answer = http.request(method, path, **more)
        assert answer.status_code != 500
        if answer.status_code >= 400:
            assert len(answer.content) < 2_000
            assert set(answer.json()) == {"error"}
        logged = [each.getMessage() for each in caplog.records if each.name.startswith("longtalk")]
        assert all(len(each) < 2_000 for each in logged)
        return answer.status_code >= 400

    return check


@pytest.mark.parametrize(("path", "body"), BODIES, ids=range(len(BODIES)))
def test_no_value_of_a_body_is_repeated_whole_in_an_error(check: Any, path: str, body: dict[str, Any]) -> None:
    refused = [check("POST", path, content=msgspec.json.encode(each)) for each in vary(body)]
    # Texts, data and schemas may be long.
    assert sum(refused) >= len(refused) / 2


@pytest.mark.parametrize("wire", range(len(HTTP_WIRES)))
def test_no_value_that_a_provider_lacks_is_repeated_whole(check: Any, wire: int) -> None:
    for field in ("stop", "user", "prompt_cache_key", "reasoning_effort", "service_tier"):
        body = {"model": f"m{wire}", "messages": [{"role": "user", "content": LONG[:10]}], field: LONG, "n": 1}
        check("POST", "/v1/chat/completions", json=body | {"conversation": "conv_AAAAAAAAAAAAAAAAAAAAAA"})


def test_no_id_in_a_path_is_repeated_whole(check: Any) -> None:
    paths = [f"{route.full_path}" for route in ROUTES if route.method == "GET" and route.names]
    paths += ["/v1/models/{id}", "/v1/responses/{id}", "/v1/conversations/{id}", "/v1/conversations/{id}/items/{item}"]
    for path in paths:
        filled = path.replace("{conversation}", LONG_IN_HEAD[:200])
        for name in ("{id}", "{item}", "{turn}", "{branch}", "{entry}", "{line}", "{key}", "{provider}"):
            filled = filled.replace(name, LONG_IN_HEAD)
        check("GET", filled)
        check("GET", path.replace("{conversation}", LONG_IN_HEAD).replace("{", "a").replace("}", ""))
    assert check("GET", "/" + LONG_IN_HEAD)
    assert check("DELETE", "/v1/responses/resp_" + LONG_IN_HEAD)


def test_no_parameter_of_a_query_is_repeated_whole(check: Any) -> None:
    for path in ("/v1/conversations/a/items", "/v1/responses/resp_aaaaaaaaaaaahAAAAAAAAAAAAAAAAAAAAAA"):
        for name in ("include", "order", "limit", "after", "stream", "starting_after"):
            check("GET", path, params={name: LONG_IN_HEAD})
    for route in ROUTES:
        if route.method == "GET":
            for name in (LONG_IN_HEAD, *(field.name for field in msgspec.structs.fields(route.query))):
                check("GET", route.full_path, params={name: LONG_IN_HEAD})
    assert check("GET", "/longtalk/v1/search", params=[("q", "a"), (LONG_IN_HEAD, "b"), (LONG_IN_HEAD, "c")])


@pytest.mark.parametrize(
    "name",
    ["Host", "Origin", "Longtalk-Conversation", "Longtalk-Owner", "Idempotency-Key", "Authorization", "X-Request-Id"],
)
def test_no_header_is_repeated_whole(check: Any, name: str) -> None:
    body = {"model": "none", "messages": [{"role": "user", "content": "Hi."}]}
    assert check("POST", "/v1/chat/completions", json=body, headers={name: LONG_IN_HEAD})


def test_a_long_text_is_cut_where_it_is_quoted_and_in_the_middle_of_a_message() -> None:
    assert quote("a'b") == '"a\'b"'
    assert quote("x" * 100) == "'" + "x" * 100 + "'"
    assert quote("x" * 101) == "'" + "x" * 100 + "'…"
    assert shorten("abc", 3) == "abc"
    assert shorten("begin" + "x" * 1000 + "end", 20) == "beginxxxx…xxxxxxxend"
    assert len(shorten("x" * 1001, 1000)) == 1000
