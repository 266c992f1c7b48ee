"""Several processes of the service on one store: what one began, another shows, follows, ends and continues."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve, Served
from tests.service.test_runs import Waiting


@pytest.fixture
def two(serve: Serve, tmp_path: Path) -> tuple[Served, Served, Waiting]:
    """Start two services on one file, which know nothing else of each other."""
    provider = Waiting()
    path = tmp_path / "talks.db"
    return serve(store=SQLite(path), m=provider), serve(store=SQLite(path), m=provider), provider


def test_a_stream_can_be_resumed_in_another_process(two: tuple[Served, Served, Waiting]) -> None:
    one, other, provider = two
    events: list[Any] = []
    with one.client().responses.create(model="m", input="Count.", stream=True) as stream:
        for event in stream:
            events.append(event)
            if event.type == "response.output_text.delta":
                break
    rest: list[Any] = []

    def follow() -> None:
        last = events[-1].sequence_number
        rest.extend(other.client().responses.retrieve(events[0].response.id, stream=True, starting_after=last))

    thread = threading.Thread(target=follow)
    thread.start()
    provider.go.set()
    thread.join(30)
    numbers = [event.sequence_number for event in (*events, *rest)]
    assert numbers == list(range(len(numbers)))
    assert rest[-1].response.output_text == "One two three."


def test_a_response_can_be_cancelled_in_another_process(two: tuple[Served, Served, Waiting]) -> None:
    one, other, provider = two
    made = one.client().responses.create(model="m", input="Count.", background=True)
    assert provider.began.wait(60)
    ended = other.client().responses.cancel(made.id)
    assert (ended.status, "One" in ended.output_text) == ("cancelled", True)


def test_equal_requests_with_a_key_at_two_processes_make_one_turn(two: tuple[Served, Served, Waiting]) -> None:
    one, other, provider = two
    provider.go.set()
    ids: list[str] = []

    def ask(served: Served) -> None:
        client = served.client(max_retries=8)
        ids.append(client.responses.create(model="m", input="Count.", extra_headers={"Idempotency-Key": "k"}).id)

    threads = [threading.Thread(target=ask, args=(served,)) for served in (one, other) * 5]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(ids), len(set(ids)), len(provider.requests)) == (10, 1, 1)


_CHILD = textwrap.dedent(
    """
    import sys, time
    from longtalk.stores.sqlite.store import SQLite
    from longtalk.service.app import create_app
    from longtalk.service.settings import Settings
    from tests.service.conftest import Served
    from tests.service.test_runs import Waiting

    served = Served(create_app(Settings(), store=SQLite(sys.argv[1]), providers={"m": Waiting()}))
    print(served.url, flush=True)
    time.sleep(60)
    """
)


@pytest.mark.slow
def test_after_a_process_was_killed_the_same_request_goes_on_elsewhere(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "talks.db"
    provider = AsyncScripted(says("All of it."))
    other = serve(store=SQLite(path), m=provider)
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": "."},
    ) as child:
        assert child.stdout is not None
        url = child.stdout.readline().strip()
        body = {"model": "m", "input": "Count.", "stream": True}
        header = {"Idempotency-Key": "k"}
        with httpx2.stream("POST", f"{url}/v1/responses", json=body, headers=header, timeout=30) as answer:
            lines = answer.iter_lines()
            first = json.loads(next(line for line in lines if line.startswith("data:"))[5:])
            next(line for line in lines if "output_text.delta" in line)
            child.send_signal(signal.SIGKILL)
            child.wait()
    client = other.client(max_retries=8)
    events: list[Any] = list(client.responses.create(**body, extra_headers=header))  # type: ignore[call-overload]
    assert events[-1].response.id == first["response"]["id"]
    assert events[-1].response.output_text == "All of it."
    assert len(client.responses.input_items.list(first["response"]["id"]).data) == 1


def test_an_unknown_model_in_a_chain_changes_nothing(two: tuple[Served, Served, Waiting]) -> None:
    one, other, provider = two
    provider.go.set()
    made = one.client().responses.create(model="m", input="Count.")
    with pytest.raises(openai.NotFoundError):
        other.client().responses.create(model="none", input="On.", previous_response_id=made.id)
    assert other.client().responses.create(model="m", input="On.", previous_response_id=made.id).output_text == "Later."
