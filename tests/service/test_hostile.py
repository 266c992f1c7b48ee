"""Input that is meant to harm the service: refused clearly, in bounded memory, and the service is as before."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from longtalk.service.app import ENDPOINTS, create_app
from longtalk.service.settings import Settings
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted
from tests.service.conftest import Served

# Loading certificates for each request would take most of the time.
_CLIENT = httpx2.Client(trust_env=False, verify=False, timeout=20)
_HEAD = b"POST /v1/conversations HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
_LAST = b"Host: 127.0.0.1\r\nConnection: close\r\n\r\n"
_SMUGGLED = b"POST /v1/conversations HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """Start one service for all of this module: each test must leave it as it was."""
    global _CLIENT
    # A worker that takes tests of others may come back to this module.
    _CLIENT = httpx2.Client(trust_env=False, verify=False, timeout=20)
    running = Served(create_app(Settings(), store=InMemory(), providers={"m": AsyncScripted()}))
    yield running
    _CLIENT.close()
    running.stop()


@pytest.fixture(autouse=True)
def as_before(served: Served) -> Iterator[None]:
    """Check that nothing was stored, and that the service goes on."""
    yield
    assert _CLIENT.get(f"{served.url}/readyz").json() == {"status": "ok"}
    assert served.service.store.conversations("") == []
    assert served.service.runs.active == []


def connect(served: Served) -> socket.socket:
    host, _, port = served.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def exchange(served: Served, raw: bytes) -> bytes:
    """Send requests, the last of which ends the connection, and return all that the service answers."""
    answer = b""
    with connect(served) as connection, contextlib.suppress(ConnectionError):
        with contextlib.suppress(ConnectionError):
            connection.sendall(raw)
        while data := connection.recv(65536):
            answer += data
    return answer


def read_statuses(answer: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", answer)]


# Size


def read_peak() -> int:
    """Return the largest memory of this process since `reset_peak`, in bytes."""
    (found,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found) * 1024


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def test_a_body_of_100_megabytes_is_refused_in_bounded_memory(served: Served) -> None:
    reset_peak()
    before = read_peak()
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    with connect(served) as connection:
        connection.sendall(_HEAD.replace(b"conversations", b"responses") + b"Transfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(chunk)
            connection.sendall(b"0\r\n\r\n")
        status = connection.recv(100)
    assert status.startswith(b"HTTP/1.1 413 ")
    assert read_peak() - before < 80_000_000


def test_a_body_that_is_announced_as_too_large_is_refused_before_it_is_sent(served: Served) -> None:
    with connect(served) as connection:
        connection.sendall(_HEAD.replace(b"conversations", b"responses") + b"Content-Length: 100000000\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"".join(b"A%d: b\r\n" % i for i in range(5000)) + b"\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nA: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /v1/" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
    ids=["many headers", "a large header", "a long path"],
)
def test_a_head_that_is_too_large_is_refused(served: Served, head: bytes) -> None:
    answer = exchange(served, head)
    assert read_statuses(answer) == [431]
    announced = re.search(rb"content-length: (\d+)", answer)
    assert announced is not None
    assert json.loads(answer.partition(b"\r\n\r\n")[2][: int(announced[1])])["error"]["code"] == "too_large"


@pytest.mark.parametrize("endless", [b"A: b\r\n" * 10_000, b"a" * 60_000], ids=["headers", "a header"])
def test_a_head_without_end_is_refused_in_bounded_memory(served: Served, endless: bytes) -> None:
    with connect(served) as connection:
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nB: ")
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 50_000_000:
                sent += connection.send(endless)
    assert sent < 50_000_000


# Requests that a proxy could take for two


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        b"Content-Length: 2\r\nContent-Length: 60\r\n\r\n{}",
        b"Content-Length: 2, 60\r\n\r\n{}",
        b"Content-Length: +2\r\n\r\n{}",
        b"Content-Length: -2\r\n\r\n{}",
        b"Content-Length: 0x2\r\n\r\n{}",
        b"Content-Length : 2\r\n\r\n{}",
        b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}0\r\n\r\n",
        b"A: b\r\n\tContent-Length: 2\r\n\r\n{}",
        b"A: b\rContent-Length: 2\r\n\r\n{}",
        b"A\0: b\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
def test_a_request_with_an_unclear_end_is_refused_and_ends_the_connection(served: Served, framing: bytes) -> None:
    statuses = read_statuses(exchange(served, _HEAD.replace(b"POST", b"PUT") + framing + _SMUGGLED))
    assert len(statuses) == 1
    assert 400 <= statuses[0] < 500


# Slow clients


def test_clients_that_never_finish_their_requests_block_no_one(served: Served) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(100):
            waiting = stack.enter_context(connect(served))
            waiting.sendall(_HEAD + (b"Content-Length: 1000\r\n\r\n{" if number % 2 else b"A: "))
        assert _CLIENT.get(f"{served.url}/v1/models").status_code == 200


# Paths, methods, hosts


@pytest.mark.parametrize(
    "target",
    [
        b"/v1/conversations/..%2f..%2fetc%2fpasswd",
        b"/v1/conversations/%2e%2e/models",
        b"/v1/../v1/keys",
        b"//v1/models",
        b"/v1/conversations/%00",
        b"/v1/conversations/%ed%a0%80",
        b"/v1/conversations/%c0%ae",
        b"/v1/conversations/" + b"x" * 5000,
        b"/v1/responses/resp_" + b"0" * 5000,
        b"/v1/responses/resp_aaaaaaaaaaaa~" + b"_" * 40,
        b"/v1/conversations/x/items/%2f",
        b"/v1/models/..%2f..",
        b"/v1/conversations/;/items",
        b"/\xff",
        b"/v1/\0",
    ],
)
@pytest.mark.parametrize("method", [b"GET", b"DELETE"])
def test_odd_paths_and_ids_are_a_clear_error(served: Served, method: bytes, target: bytes) -> None:
    statuses = read_statuses(exchange(served, method + b" " + target + b" HTTP/1.1\r\n" + _LAST))
    assert len(statuses) == 1
    assert statuses[0] in (400, 404, 405)


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PATCH", "FOO", "get", "PROPFIND", "PRI"])
def test_other_methods_are_refused(served: Served, method: str) -> None:
    raw = f"{method} /v1/models HTTP/1.1\r\n".encode() + _LAST
    (status,) = read_statuses(exchange(served, raw))
    assert 400 <= status < 500


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example]",
        "[::1].evil.example",
        "[evil]",
        "127.0.0.1@evil.example",
        "evil.example#localhost",
        "localhost,evil.example",
        "",
        "127.0.0.1\r\nHost: evil.example",
    ],
)
def test_a_name_that_is_not_that_of_this_machine_is_refused(served: Served, host: str) -> None:
    raw = f"POST /v1/conversations HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}"
    (status,) = read_statuses(exchange(served, raw.encode()))
    assert status in (400, 403)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
@pytest.mark.parametrize("path", ["/v1/conversations", "/v1/responses", "/v1/chat/completions"])
def test_a_form_on_a_page_of_another_site_makes_nothing(served: Served, kind: str, path: str) -> None:
    headers = {"Origin": "https://evil.example", "Content-Type": kind}
    body = {"model": "m", "input": "x", "messages": [{"role": "user", "content": "x"}]}
    answer = _CLIENT.post(served.url + path, headers=headers, content=json.dumps(body))
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_not_allowed")


# Values


_ODD_BODIES: list[Any] = [
    '{"model": "m", "input": "x", "temperature": 1e999}',
    '{"model": "m", "input": "x", "temperature": -5}',
    '{"model": "m", "input": "x", "max_output_tokens": 1' + "0" * 400 + "}",
    '{"model": "m", "input": "x", "max_output_tokens": -1}',
    '{"model": "m", "input": "x", "top_logprobs": 99999999999999999999}',
    '{"model": "m", "input": "x", "metadata": {"a": "' + "b" * 600 + '"}}',
    '{"model": "\\ud800", "input": "x"}',
    '{"model": "m", "input": "\\ud800"}',
    '{"model": "m", "input": [{"role": "user", "content": "\\udfff"}]}',
    '{"model": "m", "input": "x", "metadata": {"\\ud800": "b"}}',
    '{"model": "m", "input": "x", "conversation": "\\ud800"}',
    '{"model": "m", "input": "x", "previous_response_id": "\\ud800"}',
    '{"model": "m", "input": "x", "instructions": "\\ud800"}',
    '{"model": "m", "input": NaN}',
    '{"model": "m", "input": "x", "input": 7}',
    '{"model": "m", "input": "\x00"}',
]


_NO_JSON = {
    "deep lists": b'{"input":' + b"[" * 100_000,
    "deep objects": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    "deep in raw JSON": b'{"model":"m","input":"x","metadata":{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}}",
    "no UTF-8": b'{"model":"m","input":"\xff\xfe"}',
    "no UTF-8 in a key": b'{"\xc3":1}',
    "UTF-16": '{"model":"m","input":"x"}'.encode("utf-16"),
    "zeros": b"\0" * 1_000,
    "compressed": gzip.compress(b'{"model":"m","input":"x"}'),
}
_READ_BODIES = [(method, path) for method, path, _ in ENDPOINTS if method in ("POST", "PUT", "PATCH")]


@pytest.mark.parametrize("kind", _NO_JSON)
def test_what_is_no_json_is_refused_by_every_route(served: Served, kind: str) -> None:
    for method, path in _READ_BODIES:
        answer = _CLIENT.request(method, served.url + re.sub(r"\{\w+\}", "x", path), content=_NO_JSON[kind])
        assert answer.status_code in (400, 404), (method, path, answer.text)
        assert answer.json()["error"]["message"]


@pytest.mark.parametrize("body", _ODD_BODIES, ids=range(len(_ODD_BODIES)))
def test_odd_values_are_a_clear_error(served: Served, body: str) -> None:
    answer = _CLIENT.post(f"{served.url}/v1/responses", content=body)
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "number", ["1" * 5000, "--5", "\u00b2", "\u0663", "1e5", "", "-", "0x1", "99999999999999999999"]
)
@pytest.mark.parametrize("query", ["limit", "starting_after"])
def test_odd_numbers_in_a_query_are_a_clear_error(served: Served, query: str, number: str) -> None:
    path = "conversations/x/items" if query == "limit" else "responses/resp_aaaaaaaaaaaac1111111111111111111111"
    answer = _CLIENT.get(f"{served.url}/v1/{path}", params={query: number, "stream": "true"})
    assert answer.status_code in (400, 404)


@pytest.mark.parametrize("count", [b"\xb2", b"9" * 5000, b"-1", b"1.5"])
def test_odd_numbers_in_a_header_do_no_harm(served: Served, count: bytes) -> None:
    headers = {b"x-stainless-retry-count": count}
    answer = _CLIENT.post(f"{served.url}/v1/responses", headers=headers, json={"model": "none", "input": "x"})
    assert answer.status_code == 404
