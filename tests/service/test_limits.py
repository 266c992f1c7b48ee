"""Limits of the service, and input that is meant to harm it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.service import limits
from longtalk.service.errors import ApiError
from longtalk.service.holds import Hold
from longtalk.service.http import measure_depth
from longtalk.service.limits import SLOT, RateLimiter, TurnSlots
from longtalk.service.settings import Limits, Settings
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.service.storage.protocol import Document
from longtalk.stores.leases import identify_this_process
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, says
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Serve
from tests.service.test_runs import Waiting


class Clock:
    """A clock of one process, in milliseconds."""

    def __init__(self) -> None:
        self.at = 1_000_000

    def __call__(self) -> int:
        return self.at


def count(limiter: RateLimiter, owner: str = "ada", times: int = 1) -> int:
    """Count requests, and return how many of them were allowed."""

    async def ask() -> int:
        allowed = 0
        for _ in range(times):
            with contextlib.suppress(ApiError):
                await limiter.count_request(owner)
                allowed += 1
        return allowed

    return asyncio.run(ask())


def test_requests_are_limited_per_owner_and_come_back_with_time() -> None:
    clock = Clock()
    limiter = RateLimiter(Limits(requests_per_minute=2), InMemoryStorage(clock), clock, clock)
    assert count(limiter, times=2) == 2
    with pytest.raises(ApiError) as caught:
        asyncio.run(limiter.count_request("ada"))
    assert (caught.value.status, caught.value.headers["retry-after"]) == (429, "30")
    assert count(limiter, "bob") == 1
    clock.at += 29_000
    assert count(limiter) == 0
    clock.at += 1_100
    assert count(limiter, times=2) == 1


@given(
    most=st.integers(1, 400),
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60), st.integers(0, 20_000)), max_size=20),
)
def test_processes_together_allow_no_more_requests_than_the_limit(most: int, steps: list[tuple[int, int, int]]) -> None:
    clocks = [Clock(), Clock(), Clock()]
    for number, clock in enumerate(clocks):
        # No two clocks show the same time.
        clock.at += 700 * number
    storage, limits = InMemoryStorage(clocks[0]), Limits(requests_per_minute=most)
    limiters = [RateLimiter(limits, storage, clock, clock) for clock in clocks]
    began, allowed = clocks[0].at, 0
    for process, times, pause in steps:
        allowed += count(limiters[process], times=times)
        filled = (clocks[0].at - began + 1_400) * most / 60_000
        assert allowed <= most + filled
        for clock in clocks:
            clock.at += pause


@pytest.mark.parametrize("others", [1, 2], ids=["by the same process", "by another process"])
def test_after_a_clock_was_set_back_requests_come_back_within_a_minute(others: int) -> None:
    clock, timer = Clock(), Clock()
    storage, limits = InMemoryStorage(clock), Limits(requests_per_minute=60)
    limiters = [RateLimiter(limits, storage, clock, timer) for _ in range(others)]
    assert count(limiters[0], times=61) == 60
    clock.at -= 900_000
    allowed = []
    for _ in range(3):
        allowed.append(count(limiters[-1], times=20))
        clock.at += 10_000
        timer.at += 10_000
    assert allowed[0] == 0
    assert allowed[1] <= 10
    assert 9 <= allowed[2] <= 10


def test_what_one_process_has_allowed_counts_in_the_others() -> None:
    clock = Clock()
    storage, limits = InMemoryStorage(clock), Limits(requests_per_minute=300)
    limiters = [RateLimiter(limits, storage, clock, clock) for _ in range(3)]
    allowed = [count(limiter, times=200) for limiter in limiters]
    assert allowed == [200, 100, 0]


def test_most_requests_are_counted_without_the_storage() -> None:
    storage = InMemoryStorage()
    limiter = RateLimiter(Limits(requests_per_minute=6_000), storage)
    assert count(limiter, times=1_000) == 1_000
    assert storage._version <= 12


class SlowStorage(InMemoryStorage):
    """A storage that takes some milliseconds for each document that is read."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.clock, self.delay = clock, 0

    def get(self, kind: str, key: str) -> Document | None:
        found = super().get(kind, key)
        self.clock.at += self.delay
        return found


def test_a_request_that_is_refused_late_does_not_pass() -> None:
    storage = SlowStorage(clock := Clock())
    limiter = RateLimiter(Limits(requests_per_minute=600), storage, clock, clock)
    assert count(limiter, times=600) == 600
    storage.delay = 150
    assert count(limiter) == 0


def test_many_owners_take_no_more_memory_than_few() -> None:
    clock = Clock()
    limiter = RateLimiter(Limits(requests_per_minute=120), InMemoryStorage(clock), clock, clock)
    for i in range(10_001):
        clock.at += 10_000
        count(limiter, str(i))
    assert len(limiter._leases) < 10


def test_a_slot_is_held_by_one_turn_and_free_again_when_it_ends_or_its_process_dies() -> None:
    storage = InMemoryStorage()
    processes = [TurnSlots(Limits(concurrent_turns=3), storage) for _ in range(2)]

    def take(number: int, owner: str = "ada") -> Hold:
        slot = asyncio.run(processes[number].take(owner))
        assert slot is not None
        return slot

    held = [take(0), take(1), take(0)]
    assert len({slot.key for slot in held}) == 3
    with pytest.raises(ApiError) as caught:
        take(1)
    assert (caught.value.status, caught.value.headers["retry-after"]) == (429, "2")
    assert take(0, "bob")
    held[0].release()
    assert take(1).key == held[0].key
    dead = msgspec.structs.replace(identify_this_process(), started=1)
    storage.put(SLOT, held[1].key, msgspec.json.encode(dead))
    assert take(0).key == held[1].key
    assert asyncio.run(processes[1].try_take("ada")) is None


class Renewals(InMemoryStorage):
    """A storage in which nothing expires, and that says when a slot was to be renewed."""

    def __init__(self) -> None:
        super().__init__(Clock())
        self.renewed = threading.Event()

    def put(self, kind: str, key: str, value: bytes, **conditions: Any) -> Any:
        stored = super().put(kind, key, value, **conditions)
        if conditions.get("expect"):
            self.renewed.set()
        return stored


@pytest.mark.parametrize("taken", [False, True], ids=["held", "taken by another turn"])
def test_a_slot_is_renewed_and_released_only_by_the_turn_that_holds_it(
    monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    monkeypatch.setattr(limits, "LIFETIME", 30)
    storage = Renewals()

    async def hold() -> None:
        async with TurnSlots(Limits(concurrent_turns=1), storage).hold("ada"):
            if taken:
                storage.put(SLOT, storage.list_documents(SLOT)[0].key, b"another turn")
            assert await asyncio.to_thread(storage.renewed.wait, 20)

    asyncio.run(hold())
    left = [document.value for document in storage.list_documents(SLOT)]
    assert left == ([b"another turn"] if taken else [])


def test_a_slot_that_another_turn_has_just_taken_is_left_to_it() -> None:
    storage = Renewals()

    async def hold() -> None:
        async with TurnSlots(Limits(concurrent_turns=1), storage).hold("ada"):
            storage.put(SLOT, storage.list_documents(SLOT)[0].key, b"another turn")

    asyncio.run(hold())
    assert [document.value for document in storage.list_documents(SLOT)] == [b"another turn"]


def test_the_service_counts_requests(serve: Serve) -> None:
    client = serve(settings=Settings(limits=Limits(requests_per_minute=1))).client()
    client.models.list()
    with pytest.raises(openai.RateLimitError):
        client.models.list()


def test_an_owner_runs_only_so_many_turns_at_once_in_all_processes(serve: Serve, tmp_path: Path) -> None:
    provider = Waiting(*[says("One two.")] * 8)
    settings = Settings(limits=Limits(concurrent_turns=3))
    services = [serve(store=SQLite(tmp_path / "t.db"), settings=settings, m=provider) for _ in range(2)]
    clients = [served.client() for served in services]
    answers: list[str] = []

    def ask(client: openai.OpenAI) -> None:
        try:
            answers.append(client.responses.create(model="m", input="Count.", background=True).status or "")
        except openai.RateLimitError:
            answers.append("refused")

    threads = [threading.Thread(target=ask, args=(clients[number % 2],)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["queued"] * 3 + ["refused"] * 5
    provider.go.set()
    for served in services:
        while served.service.runs.active:
            time.sleep(0.01)
    # All slots are free again.
    assert services[0].service.storage.list_documents(SLOT) == []
    assert clients[1].responses.create(model="m", input="Count.").output_text == "One two."


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
