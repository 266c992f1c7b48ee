"""`longtalk serve` as real processes: several workers on one store, and SIGTERM in the middle of a stream."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from longtalk.testing import says
from tests.cli.helpers import LONGTALK, streamed
from tests.support.loopback import Answer, Loopback, sse

pytestmark = pytest.mark.slow


class Program:
    """A running `longtalk serve`."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [*LONGTALK, "serve", "--port", str(port), "-m", "ollama:x", *arguments]
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self.open: list[openai.OpenAI | openai.Stream[Any]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        for _ in range(1200):
            try:
                assert httpx2.get(f"{self.url}/readyz").status_code == 200
                return
            except httpx2.TransportError:
                time.sleep(0.05)
        raise AssertionError(self.lines)

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines += self.process.stderr

    def client(self) -> openai.OpenAI:
        """Return a client, which is closed at the end of the test."""
        made = openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)
        self.open.append(made)
        return made

    def stop(self) -> int:
        """Stop the program with SIGTERM, and return its exit status."""
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(60)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status


Start = Callable[..., Program]


@pytest.fixture
def start(environment: dict[str, str], loopback: Loopback, tmp_path: Path) -> Iterator[Start]:
    started: list[Program] = []

    def run(*arguments: str, **variables: str) -> Program:
        store = ["--store", str(tmp_path / "t.db")]
        program = Program([*store, *arguments], {**environment, "OLLAMA_HOST": loopback.url, **variables})
        started.append(program)
        return program

    yield run
    for program in started:
        for each in reversed(program.open):
            each.close()
        if program.process.poll() is None:
            program.process.kill()
            program.wait()


def paused(text: str, release: threading.Event) -> Answer:
    """Return an answer that stops in its middle until it is released."""
    chunks = sse(*says(text, pieces=2).events)  # type: ignore[arg-type]

    def give() -> Iterator[bytes]:
        yield from chunks[:2]
        release.wait(60)
        yield from chunks[2:]

    given: Any = give()
    return Answer(chunks=given)


def read_until_text(program: Program) -> tuple[str, Iterator[Any]]:
    """Start a response, and read its stream up to the first text. Return the response's id and the rest."""
    made = program.client().responses.create(model="ollama:x", input="Count.", stream=True)
    program.open.append(made)
    stream = iter(made)
    first: Any = next(stream)
    next(event for event in stream if event.type == "response.output_text.delta")
    return first.response.id, stream


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stream_that_is_open_at_sigterm_comes_to_its_end(
    start: Start, loopback: Loopback, release: threading.Event, workers: int
) -> None:
    loopback.say(paused("One two three four.", release))
    program = start("--workers", str(workers))
    _, stream = read_until_text(program)
    program.process.send_signal(signal.SIGTERM)
    while True:
        try:
            httpx2.get(f"{program.url}/healthz", timeout=5)
        except httpx2.TransportError:
            break
    release.set()
    *_, last = stream
    assert (last.type, last.response.output_text) == ("response.completed", "One two three four.")
    assert program.wait() in (0, -signal.SIGTERM)


def test_a_turn_that_does_not_end_in_time_is_ended_and_keeps_what_was_said(
    start: Start, loopback: Loopback, release: threading.Event
) -> None:
    loopback.say(paused("One two three four.", release))
    program = start(LONGTALK_SHUTDOWN_SECONDS="1")
    id, _ = read_until_text(program)  # noqa: A001
    began = time.monotonic()
    assert program.stop() in (0, -signal.SIGTERM)
    assert time.monotonic() - began < 30
    release.set()
    again = start()
    kept = again.client().responses.retrieve(id)
    assert kept.status in ("cancelled", "incomplete", "failed")
    assert "One two" in kept.output_text
    again.stop()


def test_several_workers_share_the_store_and_end_together(start: Start, loopback: Loopback) -> None:
    loopback.say(*[streamed("With pleasure.")] * 12)
    program = start("--workers", "2")
    children = Path(f"/proc/{program.process.pid}/task/{program.process.pid}/children")
    last: Any = openai.omit
    for i in range(12):
        # A client of its own has a connection of its own, which any worker may accept.
        with program.client() as client:
            last = client.responses.create(model="ollama:x", input=f"{i}", previous_response_id=last).id
    with program.client() as client:
        items = client.responses.input_items.list(last, limit=100)
    assert items.data
    assert loopback.requests[-1].count(b"With pleasure.") == 11
    workers = children.read_text().split() if children.exists() else []
    assert program.stop() in (0, -signal.SIGTERM)
    assert len(workers) >= 2 or not children.exists()
    # The tracker of multiprocessing, which is among them, ends a moment after its parent.
    until = time.monotonic() + 20
    while left := [pid for pid in workers if Path(f"/proc/{pid}/cmdline").exists()]:
        assert time.monotonic() < until, left
        time.sleep(0.05)
    logged = [json.loads(line) for line in program.lines if line.startswith("{")]
    assert sum(line["path"] == "/v1/responses" for line in logged) == 12


@pytest.mark.parametrize(("trusted", "client"), [("127.0.0.1", "203.0.113.9"), ("", "127.0.0.1")])
def test_the_address_of_a_client_is_taken_from_trusted_proxies_only(start: Start, trusted: str, client: str) -> None:
    program = start(LONGTALK_TRUSTED_PROXIES=trusted, LONGTALK_ROOT_PATH="/llm")
    answer = httpx2.get(f"{program.url}/v1/models", headers={"x-forwarded-for": "203.0.113.9"})
    assert answer.status_code == 200
    program.stop()
    logged = [json.loads(line) for line in program.lines if line.startswith("{")]
    assert logged[-1]["client"] == client
