"""A process that stops: turns end in time or are handed over, streams come to their end, and nothing is lost."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from longtalk.service.settings import Settings
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve, Served
from tests.service.fleet import TEXT, run_fleet
from tests.service.test_faults import (
    BODY,
    address,
    count_turns,
    get_numbers,
    open_client,
    read_events,
    read_until_delta,
    server,
)
from tests.service.test_runs import Waiting

__all__ = ["address", "server"]
AT_ONCE = Settings(shutdown_seconds=0)
KEY = {"Idempotency-Key": "k"}


@pytest.fixture
def one(serve: Serve, tmp_path: Path) -> tuple[Served, Waiting]:
    """Start a service that hands its turns over as soon as it stops."""
    provider = Waiting()
    return serve(store=SQLite(tmp_path / "talks.db"), settings=AT_ONCE, m=provider), provider


@pytest.fixture
def start_next(serve: Serve, tmp_path: Path) -> Callable[[], tuple[openai.OpenAI, AsyncScripted]]:
    """Return a function that starts the service again, on the same store."""

    def start() -> tuple[openai.OpenAI, AsyncScripted]:
        provider = AsyncScripted(says("All of it."), says("Later."))
        return serve(store=SQLite(tmp_path / "talks.db"), m=provider).client(), provider

    return start


Next = Callable[[], tuple[openai.OpenAI, AsyncScripted]]


def stream_until_stop(served: Served, path: str, body: dict[str, Any], text: bytes) -> Iterator[bytes]:
    """Ask for a stream, stop the service when it has sent `text`, and yield the lines of the stream to its end."""
    stopping = threading.Thread(target=served.stop)
    with httpx2.stream("POST", f"{served.url}{path}", json=body, headers=KEY, timeout=60) as answer:
        for line in answer.iter_lines():
            yield line.encode()
            if text in line.encode() and not stopping.ident:
                stopping.start()
    stopping.join()


def test_a_response_that_is_cut_off_ends_as_interrupted_and_the_same_request_continues_it(
    one: tuple[Served, Waiting], start_next: Next
) -> None:
    lines = [line for line in stream_until_stop(one[0], "/v1/responses", BODY, b"One") if line.startswith(b"data:")]
    assert lines.pop() == b"data: [DONE]"
    last = json.loads(lines[-1][5:])
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "interrupted")
    client, _ = start_next()
    found = client.responses.retrieve(last["response"]["id"])
    assert found.error is not None
    assert (found.status, found.error.code, found.output_text) == ("failed", "interrupted", "One t")
    again: list[Any] = list(client.responses.create(**BODY, extra_headers=KEY))  # type: ignore[call-overload]
    assert (again[-1].response.id, again[-1].response.output_text) == (found.id, "All of it.")
    assert count_turns(client, found.id) == 1


def test_a_background_response_goes_on_when_the_service_starts_again(
    one: tuple[Served, Waiting], start_next: Next
) -> None:
    body = {**BODY, "background": True}
    lines = [line for line in stream_until_stop(one[0], "/v1/responses", body, b"One") if line.startswith(b"data: {")]
    events = [json.loads(line[5:]) for line in lines]
    assert events[-1]["type"] == "response.output_text.delta"
    client, provider = start_next()
    made, number = events[0]["response"]["id"], events[-1]["sequence_number"]
    rest: list[Any] = list(client.responses.retrieve(made, stream=True, starting_after=number))
    assert [event.sequence_number for event in rest] == list(range(number + 1, number + 1 + len(rest)))
    assert (rest[-1].response.status, rest[-1].response.output_text) == ("completed", "All of it.")
    assert client.responses.retrieve(made).output_text == "All of it."
    assert (count_turns(client, made), len(provider.requests)) == (1, 1)


@pytest.mark.parametrize("stream", [False, True])
def test_a_completion_that_is_cut_off_is_continued_by_the_same_request(
    one: tuple[Served, Waiting], start_next: Next, stream: bool
) -> None:
    served, provider = one
    body = {"model": "m", "messages": [{"role": "user", "content": "Count."}], "stream": stream, "store": True}
    path = "/v1/chat/completions"
    if stream:
        lines = [line for line in stream_until_stop(served, path, body, b"One") if line.startswith(b"data:")]
        assert json.loads(lines[-1][5:])["error"]["code"] == "interrupted"
    else:
        stopping = threading.Thread(target=lambda: (provider.began.wait(60), served.stop()))
        stopping.start()
        answer = httpx2.post(f"{served.url}{path}", json=body, headers=KEY, timeout=60)
        stopping.join()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "interrupted")
        assert answer.headers["retry-after"] == "1"
    client, _ = start_next()
    given: Any = body
    made = client.chat.completions.create(**given, extra_headers=KEY)
    if stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in made if chunk.choices)
    else:
        text = made.choices[0].message.content
    assert text == "All of it."


def test_a_turn_of_our_own_surface_that_is_cut_off_is_continued_by_the_same_request(
    one: tuple[Served, Waiting], start_next: Next
) -> None:
    served, _ = one
    talk = httpx2.post(f"{served.url}/longtalk/v1/conversations", json={"id": "talk"}).json()["id"]
    path, body = f"/longtalk/v1/conversations/{talk}/turns", {"model": "m", "message": "Count.", "stream": True}
    lines = [line for line in stream_until_stop(served, path, body, b"One") if line.startswith(b"data:")]
    assert json.loads(lines[-1][5:])["error"]["code"] == "interrupted"
    client, _ = start_next()
    url = str(client.base_url).removesuffix("/v1/")
    again = httpx2.post(f"{url}{path}", json={**body}, headers=KEY, timeout=60)
    last = [line for line in again.text.splitlines() if line.startswith("data:")][-1]
    turn = json.loads(last[5:])["turn"]
    assert (turn["status"], [entry["role"] for entry in turn["entries"]]) == ("complete", ["user", "assistant"])


def test_a_response_over_a_websocket_is_finished_before_the_connection_is_closed(serve: Serve) -> None:
    provider = Waiting()
    served = serve(m=provider, settings=Settings(shutdown_seconds=60))
    address = served.url.replace("http", "ws") + "/v1/responses"
    with connect(address) as idle, connect(address) as socket:
        socket.send(json.dumps({"type": "response.create", "model": "m", "input": "Count."}))
        assert provider.began.wait(60)
        stopping = threading.Thread(target=served.stop)
        stopping.start()
        with pytest.raises(ConnectionClosed) as ended:
            idle.recv(60)
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == 1012
        provider.go.set()
        events = []
        with pytest.raises(ConnectionClosed):
            while True:
                events.append(json.loads(socket.recv(60)))
        assert (events[-1]["type"], events[-1]["response"]["status"]) == ("response.completed", "completed")
    stopping.join()


def test_a_service_that_stops_begins_no_turn_and_is_not_ready(serve: Serve) -> None:
    provider = Waiting()
    served = serve(m=provider)
    made = served.client().responses.create(model="m", input="Count.", background=True)
    assert provider.began.wait(60)
    # A connection that is open already can still ask.
    with httpx2.Client(base_url=served.url) as client:
        assert client.get("/readyz").status_code == 200
        served.service.runs._stopping.set()
        assert client.get("/readyz").json() == {"status": "stopping"}
        answer = client.post("/v1/responses", json={"model": "m", "input": "Me too."})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "stopping")
        provider.go.set()
        assert made.status == "queued"


@pytest.mark.slow
def test_a_process_that_is_stopped_hands_its_turns_over(address: str) -> None:
    with (
        run_fleet(address, 2, Settings(shutdown_seconds=1)) as (fleet, provider),
        open_client(fleet.url) as client,
    ):
        url = fleet.urls[0]
        port = int(url.rpartition(":")[2])
        background = {**BODY, "background": True}
        with (
            httpx2.stream("POST", f"{url}/v1/responses", json=background, timeout=60) as parked,
            httpx2.stream("POST", f"{url}/v1/responses", json=BODY, headers=KEY, timeout=60) as cut,
        ):
            streams = read_events(parked), read_events(cut)
            events, others = map(read_until_delta, streams)
            process = fleet.signal(port)
            # Both streams come to their end.
            events += streams[0]
            others += streams[1]
        assert process.wait(60) in (0, -signal.SIGTERM)
        assert (others[-1]["type"], others[-1]["response"]["error"]["code"]) == ("response.failed", "interrupted")
        provider.go.set()
        made, last = events[0]["response"]["id"], events[-1]["sequence_number"]
        followed = f"{fleet.url}/v1/responses/{made}?stream=true&starting_after={last}"
        with httpx2.stream("GET", followed, timeout=60) as answer:
            events += read_events(answer)
        assert get_numbers(events) == list(range(len(events)))
        assert [item["content"][0]["text"] for item in events[-1]["response"]["output"]] == [TEXT]
        again: list[Any] = list(client.responses.create(**BODY, extra_headers=KEY))  # type: ignore[call-overload]
        assert (again[-1].response.id, again[-1].response.output_text) == (others[0]["response"]["id"], TEXT)
        assert [count_turns(client, each) for each in (made, again[-1].response.id)] == [1, 1]


@pytest.mark.slow
def test_a_second_signal_ends_a_process_at_once(tmp_path: Path) -> None:
    with run_fleet(str(tmp_path / "talks.db"), 2, Settings(shutdown_seconds=600)) as (fleet, provider):
        url = fleet.urls[0]
        port = int(url.rpartition(":")[2])
        body = {**BODY, "background": True}
        with httpx2.stream("POST", f"{url}/v1/responses", json=body, timeout=60) as answer:
            made = read_until_delta(read_events(answer))[0]["response"]["id"]
            process = fleet.signal(port)
            wait_until_refused(url)
            fleet.signal(port)
            assert process.wait(60) == 128 + signal.SIGTERM
        provider.go.set()
        with open_client(fleet.urls[1]) as client:
            *_, last = client.responses.retrieve(made, stream=True)
            found: Any = last
            assert found.response.output_text == TEXT


def wait_until_refused(url: str) -> None:
    """Wait until no connection is accepted."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            httpx2.get(f"{url}/healthz", timeout=5)
        except httpx2.TransportError:
            return
    raise subprocess.TimeoutExpired(url, 60)
