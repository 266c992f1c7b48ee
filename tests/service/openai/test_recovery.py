"""Responses whose process has died, in one process: `die` leaves what a killed process leaves."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import msgspec
import openai
import pytest

from longtalk.errors import StoreError
from longtalk.service.event_writer import PARKED
from longtalk.service.openai import recovery
from longtalk.service.run import RunName
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.testing import says
from tests.service.conftest import Serve, Served
from tests.service.openai.test_context import LONG, SUMMARY
from tests.service.test_runs import Waiting

KEY = {"Idempotency-Key": "k"}


class Life:
    """A service whose process dies when it is told to, and the client of the next one."""

    def __init__(self, served: Served, provider: Waiting) -> None:
        self.served, self.provider = served, provider
        self.client: Any = served.client(max_retries=8)
        self.runs = served.service.runs

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = self.runs._watcher._loop
        return loop

    def begin(self, **more: Any) -> str:
        """Begin a response, and return its id once its first text is stored."""
        with self.client.responses.create(model="m", input="Count.", stream=True, extra_headers=KEY, **more) as stream:
            for event in stream:
                if event.type == "response.created":
                    made: str = event.response.id
                if event.type == "response.output_text.delta":
                    break
        run = self.runs.find(RunName("", made))
        assert run is not None
        wait_until(lambda: run.stored == len(run.events))
        return made

    def die(self, *, keep_parked: bool = True) -> None:
        """Leave all runs as a process does that is killed: claims and leases without a holder, logs without an end."""
        for run in self.runs.active:
            is_parked, run.is_parked = run.is_parked, True
            self.loop.call_soon_threadsafe(run.hand_over)
            wait_until(lambda run=run: run.ended)
            if not (is_parked and keep_parked):
                self.served.service.storage.delete(PARKED, run.name.to_key())
        self.provider.go.set()

    def follow(self, made: str, after: int = -1) -> list[Any]:
        return list(self.client.responses.retrieve(made, stream=True, starting_after=after))


def wait_until(condition: Any) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.fixture
def life(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Life:
    # Only what a client asks for is recovered, unless a test does it itself.
    monkeypatch.setattr(recovery, "_SECONDS", 3600)
    provider = Waiting(says("One two three.", pieces=3), says("All of it."), says("Later."))
    return Life(serve(m=provider), provider)


def test_a_background_response_goes_on_when_it_is_read(life: Life) -> None:
    made = life.begin(background=True)
    life.die()
    assert life.client.responses.retrieve(made).status in ("queued", "in_progress", "completed")
    events = life.follow(made)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[-1].response.status, events[-1].response.output_text) == ("completed", "All of it.")
    # The text that was being streamed ends as incomplete, and is no part of the response.
    ended = [event.item.status for event in events if event.type == "response.output_item.done"]
    assert ended == ["incomplete", "completed"]
    assert life.served.service.storage.list_documents(PARKED) == []


def test_a_background_response_goes_on_without_a_client(life: Life) -> None:
    made = life.begin(background=True)
    life.die()
    asyncio.run_coroutine_threadsafe(recovery._recover_parked(life.served.service), life.loop).result(60)
    wait_until(lambda: not life.runs.active)
    assert life.client.responses.retrieve(made).output_text == "All of it."


def test_a_response_in_the_foreground_ends_as_interrupted_for_all_until_it_is_asked_for_again(life: Life) -> None:
    made = life.begin()
    life.die()
    first = life.follow(made)
    assert (first[-1].type, first[-1].response.error.code) == ("response.failed", "interrupted")
    assert [event.to_json() for event in life.follow(made)] == [event.to_json() for event in first]
    found = life.client.responses.retrieve(made)
    assert (found.status, found.error.code, found.output_text) == ("failed", "interrupted", "One t")
    again = life.client.responses.create(model="m", input="Count.", stream=True, extra_headers=KEY)
    assert list(again)[-1].response.output_text == "All of it."
    found = life.client.responses.retrieve(made)
    assert (found.id, found.status, found.error) == (made, "completed", None)


@pytest.mark.parametrize("background", [False, True])
def test_a_dead_response_that_is_cancelled_is_not_taken_up(life: Life, background: bool) -> None:
    made = life.begin(background=background)
    life.die()
    assert life.client.responses.cancel(made).status == "cancelled"
    assert life.follow(made)[-1].response.status == "cancelled"
    assert len(life.provider.requests) == 1
    # What was said is kept, as in the conversation of a live response that is cancelled.
    kept = life.client.responses.retrieve(made)
    assert (kept.status, kept.output_text, kept.output[0].status) == ("cancelled", "One t", "incomplete")
    after = life.client.responses.create(model="m", input="On.", previous_response_id=made)
    assert b"One t" in life.provider.requests[-1]
    assert after.output_text == "All of it."


def test_a_background_response_whose_model_is_gone_ends_as_failed(life: Life) -> None:
    made = life.begin(background=True)
    life.die()
    del life.served.service.models._given["m"]
    ended = life.follow(made)[-1]
    assert (ended.type, ended.response.status) == ("response.failed", "failed")
    with pytest.raises(openai.NotFoundError):
        life.client.responses.create(model="m", input="On.")


def test_a_background_response_that_was_deleted_is_not_made_again(life: Life) -> None:
    made = life.begin(background=True)
    life.die()
    life.client.responses.delete(made)
    with pytest.raises(openai.NotFoundError):
        life.follow(made)
    assert len(life.provider.requests) == 1
    assert life.served.service.storage.list_documents(PARKED) == []


def test_what_is_parked_under_a_name_that_no_response_has_is_forgotten(life: Life) -> None:
    storage, name = life.served.service.storage, RunName("", "nonsense")
    storage.put(PARKED, name.to_key(), msgspec.json.encode(recovery.ParkedResponse("", name.id, b"{}", None, "", True)))
    asyncio.run(recovery._recover_parked(life.served.service))
    assert storage.list_documents(PARKED) == []


def test_while_the_storage_fails_it_is_tried_again(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Fails(InMemoryStorage):
        failed = 0

        def list_documents(self, kind: str, **bounds: Any) -> Any:
            if kind == PARKED:
                self.failed += 1
                raise StoreError("The storage can't be reached.")
            return super().list_documents(kind, **bounds)

    monkeypatch.setattr(recovery, "_SECONDS", 0.01)
    storage = Fails()
    with caplog.at_level(logging.WARNING, "longtalk"):
        serve(storage=storage, m=Waiting())
        wait_until(lambda: storage.failed > 2)
    assert "responses of other processes can't be checked: StoreError" in caplog.text


def test_a_compaction_is_shown_once_when_another_process_goes_on(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_SECONDS", 3600)
    long = [says(LONG) for _ in range(4)]
    provider = Waiting(*long, says(SUMMARY), says("One two three.", pieces=3), says("All of it."))
    life = Life(serve(m=provider), provider)
    last = None
    for _ in range(4):
        last = life.client.responses.create(model="m", input=LONG, previous_response_id=last).id
    compacts = [{"type": "compaction", "compact_threshold": 1_200}]
    made = life.begin(background=True, previous_response_id=last, context_management=compacts)
    life.die()
    ended = life.follow(made)[-1].response
    assert [item.type for item in ended.output] == ["compaction", "message"]
    assert life.client.responses.retrieve(made).output == ended.output
