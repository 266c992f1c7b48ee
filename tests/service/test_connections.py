"""Slow clients: those that never end a request or never read a response are disconnected, and hold little memory."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from collections.abc import Callable, Iterator

import httpx2
import pytest

from longtalk.service import connections
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve, Served
from tests.service.test_hostile import read_peak, read_statuses, reset_peak
from tests.service.test_runs import Waiting

_POST = b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
_UPGRADE = (
    b"GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
_LONG = "x" * 3_000_000 + " One"


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give clients a fraction of a second where they usually have a minute."""
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(connections, "STALL_SECONDS", 0.3)


def open_socket(served: Served) -> socket.socket:
    """Return a connection that takes in little before its client reads."""
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    opened.settimeout(20)
    opened.connect(("127.0.0.1", int(served.url.rpartition(":")[2])))
    return opened


def receive(connection: socket.socket, count: int) -> int:
    """Read so many bytes, and return how many came before the end."""
    received = 0
    while received < count and (data := connection.recv(count - received)):
        received += len(data)
    return received


def receive_all(connection: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(65536):
            received += data
    return received


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def count_connections(served: Served) -> int:
    return len(served._server.server_state.connections)


def test_a_response_does_not_wait_for_the_client_to_acknowledge_its_head(serve: Serve) -> None:
    served = serve()
    with open_socket(served) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert receive(connection, 15) == 15
        (open_connection,) = served._server.server_state.connections
        opened = open_connection.transport.get_extra_info("socket")
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# Requests


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize(
    "begun",
    [
        b"POST /v1/resp",
        _POST + b"A: ",
        _POST + b"Content-Length: 1000\r\n\r\n{",
        _POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
    ],
    ids=["line", "headers", "body", "chunks"],
)
def test_a_request_that_does_not_end_is_refused_in_time(serve: Serve, begun: bytes) -> None:
    served = serve()
    with open_socket(served) as connection:
        connection.sendall(begun)
        answer = receive_all(connection)
    assert read_statuses(answer) == [408]
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_timeout"
    assert httpx2.get(f"{served.url}/readyz").status_code == 200


@pytest.mark.usefixtures("strict")
def test_bytes_that_come_one_by_one_do_not_keep_a_request_open(serve: Serve) -> None:
    with open_socket(serve()) as connection:
        connection.sendall(_POST + b"Content-Length: 1000\r\n\r\n")
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - began < 20:
                connection.sendall(b" ")
                time.sleep(0.05)
        assert time.monotonic() - began < 5


@pytest.mark.usefixtures("strict")
def test_a_large_request_has_the_time_that_it_needs(serve: Serve) -> None:
    body = json.dumps({"model": "m", "input": "x" * 10_000}).encode()
    with open_socket(serve(m=AsyncScripted(says("Yes.")))) as connection:
        connection.sendall(_POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
        for number in range(0, len(body), 1_000):
            connection.sendall(body[number : number + 1_000])
            time.sleep(0.06)
        assert read_statuses(receive_all(connection)) == [200]


@pytest.mark.usefixtures("strict")
def test_a_connection_without_a_request_is_closed(serve: Serve) -> None:
    with open_socket(serve()) as connection:
        assert receive_all(connection) == b""


@pytest.mark.usefixtures("strict")
def test_a_part_of_the_next_request_does_not_end_a_response(serve: Serve) -> None:
    provider = Waiting()
    body = b'{"model":"m","input":"Count.","stream":true}'
    with open_socket(serve(m=provider)) as connection:
        connection.sendall(_POST + b"Content-Length: %d\r\n\r\n%s" % (len(body), body) + b"GET /v1/mod")
        assert provider.began.wait(20)
        time.sleep(1)
        provider.go.set()
        answer = receive_all(connection)
    assert b"[DONE]" in answer
    assert read_statuses(answer)[0] == 200


# Responses


@pytest.fixture
def long(serve: Serve) -> Iterator[tuple[Served, str]]:
    """Start a service in which a response with three megabytes of events waits for its end."""
    provider = Waiting(says(_LONG, pieces=3_000), says("Later."))
    served = serve(m=provider)
    made = httpx2.post(f"{served.url}/v1/responses", json={"model": "m", "input": "Write.", "background": True}).json()
    assert provider.began.wait(60)
    yield served, made["id"]
    provider.go.set()


def follow(served: Served, response: str) -> socket.socket:
    """Return a connection to which a response is streamed from its beginning, and read the first bytes."""
    connection = open_socket(served)
    connection.sendall(b"GET /v1/responses/%s?stream=true HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % response.encode())
    assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
    return connection


def test_clients_that_never_read_their_streams_hold_little_memory(long: tuple[Served, str]) -> None:
    served, response = long
    with contextlib.ExitStack() as stack:
        reset_peak()
        before = read_peak()
        for _ in range(20):
            stack.enter_context(follow(served, response))
        time.sleep(0.5)
        assert count_connections(served) >= 20
        assert read_peak() - before < 40_000_000
        assert httpx2.get(f"{served.url}/v1/responses/{response}").json()["status"] == "in_progress"


@pytest.mark.usefixtures("strict")
def test_a_client_that_never_reads_its_stream_is_disconnected_and_the_response_goes_on(
    long: tuple[Served, str],
) -> None:
    served, response = long
    with follow(served, response):
        assert count_connections(served)
        wait_until(lambda: not count_connections(served))
    with follow(served, response) as connection:
        assert receive(connection, 100_000) == 100_000
    assert served.client().responses.retrieve(response).status == "in_progress"


@pytest.mark.usefixtures("strict")
def test_a_client_that_reads_slowly_gets_all_of_its_stream(long: tuple[Served, str]) -> None:
    served, response = long
    with follow(served, response) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
        # The service sends much more at once than is read in the time that it waits.
        for _ in range(30):
            assert receive(connection, 20_000) == 20_000
            time.sleep(0.05)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_000_000)
        assert receive(connection, 2_000_000) == 2_000_000


@pytest.mark.usefixtures("strict")
def test_a_websocket_that_is_never_read_is_disconnected_and_its_response_goes_on(serve: Serve) -> None:
    served = serve(m=AsyncScripted(says(_LONG, pieces=3_000)))
    body = b'{"type":"response.create","model":"m","input":"Write."}'
    with open_socket(served) as connection:
        connection.sendall(_UPGRADE)
        received = connection.recv(1_000)
        connection.sendall(b"\x81%c\0\0\0\0%s" % (0x80 | len(body), body))
        while not (found := re.search(rb'"id":"(resp_\w+)"', received)):
            received += (data := connection.recv(100))
            assert data, received
        assert count_connections(served)
        wait_until(lambda: not count_connections(served))
    made = found[1].decode()
    wait_until(lambda: served.client().responses.retrieve(made).status == "completed")
