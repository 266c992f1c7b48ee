"""Limits of the service, and input that is meant to harm it."""

from __future__ import annotations

import socket
from typing import Any

import httpx2
import openai
import pytest

from longtalk.service.errors import ApiError
from longtalk.service.http import measure_depth
from longtalk.service.limits import RateLimiter
from longtalk.service.settings import Limits, Settings
from longtalk.testing import AsyncScripted, says
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Serve
from tests.service.test_runs import Waiting


def test_requests_are_limited_per_owner_and_come_back_with_time() -> None:
    at = 0.0
    limiter = RateLimiter(Limits(requests_per_minute=2), clock=lambda: at)
    limiter.count_request("ada")
    limiter.count_request("ada")
    with pytest.raises(ApiError) as caught:
        limiter.count_request("ada")
    assert (caught.value.status, caught.value.headers["retry-after"]) == (429, "30")
    limiter.count_request("bob")
    at = 30.0
    limiter.count_request("ada")
    with pytest.raises(ApiError):
        limiter.count_request("ada")


def test_many_owners_take_no_more_memory_than_few() -> None:
    at = 0.0
    limiter = RateLimiter(Limits(requests_per_minute=60), clock=lambda: at)
    for i in range(10_001):
        at = i * 10.0
        limiter.count_request(str(i))
    assert len(limiter._buckets) < 10


def test_the_service_counts_requests(serve: Serve) -> None:
    client = serve(settings=Settings(limits=Limits(requests_per_minute=1))).client()
    client.models.list()
    with pytest.raises(openai.RateLimitError):
        client.models.list()


def test_an_owner_runs_only_so_many_turns_at_once(serve: Serve) -> None:
    provider = Waiting()
    client = serve(settings=Settings(limits=Limits(concurrent_turns=1)), m=provider).client()
    client.responses.create(model="m", input="Count.", background=True)
    assert provider.began.wait(60)
    with pytest.raises(openai.RateLimitError):
        client.responses.create(model="m", input="Me too.")
    provider.go.set()


def test_a_body_that_is_too_large_is_refused_before_it_is_read(serve: Serve) -> None:
    url = serve(settings=Settings(limits=Limits(body_bytes=1000))).url
    answer = httpx2.post(f"{url}/v1/responses", content=b"x" * 1001)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")

    def stream() -> Any:
        for _ in range(100):
            yield b"x" * 100

    assert httpx2.post(f"{url}/v1/responses", content=stream()).status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"7",
        b"{",
        b'{"input": "\xff"}',
        b'{"input": ' + b"[" * 100_000,
        b'{"input": [' * 1_000,
        b'{"input": [7]}',
        b'{"input": [{"type": "message"}]}',
        b'{"input": [{"role": "user", "content": []}]}',
        b'{"input": [{"type": "function_call_output", "call_id": "none", "output": "x"}]}',
        b'{"input": [{"role": "assistant", "content": "x"}]}',
        b'{"input": "x", "model": 7}',
        b'{"input": "x", "model": "\\u0000"}',
        b'{"input": "x", "tools": [{"type": "function", "name": "a b"}]}',
        b'{"input": "x", "tools": [{"type": "function", "name": "a", "parameters": {"type": "array"}}]}',
        b'{"input": "x", "text": {"format": {"type": "json_schema", "schema": {"type": "array"}}}}',
        b'{"input": "x", "text": {"format": 7}}',
        b'{"input": "x", "tool_choice": {"type": "x"}, "tools": [{"type": "function", "name": "a"}]}',
        b'{"input": "x", "previous_response_id": "resp_x", "conversation": "y"}',
        b'{"input": "x", "conversation": ""}',
        b'{"input": "x", "background": true, "store": false}',
        b'{"input": "x", "metadata": {"a": null}}',
    ],
)
def test_a_body_that_makes_no_sense_is_a_clear_error(serve: Serve, body: bytes) -> None:
    served = serve(m=AsyncScripted(wire=HTTP_WIRES["anthropic"]))
    body = body.replace(b'{"input"', b'{"model": "m", "input"', 1) if b'"model"' not in body else body
    answer = httpx2.post(f"{served.url}/v1/responses", content=body)
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]["message"]
    assert served.service.store.conversations("") == []


@pytest.mark.parametrize(
    ("body", "depth"),
    [
        (b"7", 0),
        (b"[]", 1),
        (b'{"a": [[1], {}], "b": 2}', 3),
        (b'{"a": "[[[[", "b": "\\"[[["}', 1),
        (b'{"a": "[[[', 1),
        (b'"' + b'\\"' * 1_000_000, 0),
        (b"[" * 1_000_000, 1_000_000),
        (b"[]," * 1_000_000, 1),
    ],
)
def test_the_depth_of_json_is_measured_outside_strings(body: bytes, depth: int) -> None:
    assert measure_depth(body) == depth


def test_a_body_that_is_nested_deeper_than_the_limit_is_refused(serve: Serve) -> None:
    url = serve(settings=Settings(limits=Limits(json_depth=4))).url
    answer = httpx2.post(f"{url}/v1/responses", content=b'{"model": "m", "input": [{"a": {"b": {"c": 1}}}]}')
    assert (answer.status_code, "4 levels" in answer.json()["error"]["message"]) == (400, True)


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\n",
        b"\x00\xff\r\n\r\n",
    ],
)
def test_after_requests_that_are_not_http_the_service_is_as_before(serve: Serve, raw: bytes) -> None:
    served = serve(m=AsyncScripted(says("Hi.")))
    host, _, port = served.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        try:
            connection.sendall(raw)
            connection.settimeout(2)
            connection.recv(1000)
        except OSError:
            pass
    assert served.client().responses.create(model="m", input="Hi.").output_text == "Hi."


@pytest.mark.parametrize("name", ["..%2f..%2fetc", "%00", "a%2Fb", "%F0%9F%98%80", "x" * 3000, "%ff"])
def test_odd_ids_are_not_found(serve: Serve, name: str) -> None:
    url = serve().url
    for path in (f"/v1/conversations/{name}", f"/v1/responses/{name}", f"/v1/conversations/{name}/items/{name}"):
        assert httpx2.get(url + path).status_code == 404
