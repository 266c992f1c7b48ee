"""Turns that go on without their client: background, resume, cancel, repeated requests."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio.to_thread
import httpx2
import openai
import pytest

from longtalk.errors import Overloaded, StoreError
from longtalk.service.claims import KIND
from longtalk.service.errors import ApiError
from longtalk.service.event_writer import PARKED
from longtalk.service.run import Run, RunName
from longtalk.service.runs import Runs
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.service.storage.protocol import Append
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve


class Waiting(AsyncScripted):
    """A provider that sends a part of its first answer, and the rest when it is told to."""

    def __init__(self, *steps: Any, **options: Any) -> None:
        steps = steps or (says("One two three.", pieces=3), says("Later."), says("Last."))
        super().__init__(*steps, **options)
        self.go = threading.Event()
        self.began = threading.Event()

    async def stream(self, body: bytes) -> Any:
        async for data in super().stream(body):
            yield data
            if b"One" in data:
                self.began.set()
                await anyio.to_thread.run_sync(self.go.wait, abandon_on_cancel=True)


def test_a_background_response_is_found_and_cancelled_and_the_chain_goes_on(serve: Serve) -> None:
    provider = Waiting()
    client = serve(m=provider).client()
    made = client.responses.create(model="m", input="Count.", background=True)
    assert made.status in ("queued", "in_progress")
    assert provider.began.wait(60)
    assert client.responses.retrieve(made.id).status == "in_progress"
    ended = client.responses.cancel(made.id)
    assert ended.status == "cancelled"
    assert "One" in ended.output_text
    assert client.responses.cancel(made.id).status == "cancelled"
    after = client.responses.create(model="m", input="Go on.", previous_response_id=made.id)
    assert after.output_text == "Later."


def test_a_busy_conversation_is_a_conflict_that_clients_try_again(serve: Serve) -> None:
    provider = Waiting()
    served = serve(m=provider)
    client = served.client()
    talk = client.conversations.create()
    client.responses.create(model="m", input="Count.", conversation=talk.id, background=True)
    assert provider.began.wait(60)
    with pytest.raises(openai.ConflictError) as caught:
        client.responses.create(model="m", input="Me too.", conversation=talk.id)
    assert caught.value.code == "conversation_locked"
    assert int(caught.value.response.headers["retry-after"]) >= 1
    provider.go.set()
    assert served.client(max_retries=5).responses.create(model="m", input="Now.", conversation=talk.id).output_text


def test_the_same_key_makes_one_turn_and_another_body_is_refused(serve: Serve) -> None:
    provider = AsyncScripted(says("One."))
    client = serve(m=provider).client()
    header = {"Idempotency-Key": "k1"}
    first = client.responses.create(model="m", input="Hi.", extra_headers=header)
    second = client.responses.create(model="m", input="Hi.", extra_headers=header)
    assert (second.id, second.output_text, len(provider.requests)) == (first.id, "One.", 1)
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        client.responses.create(model="m", input="Other.", extra_headers=header)
    assert caught.value.code == "idempotency_key_reused"


def test_a_repeated_request_without_a_key_is_the_same_one_until_it_is_delivered(serve: Serve) -> None:
    provider = Waiting()
    served = serve(m=provider)
    with served.client().responses.create(model="m", input="Count.", stream=True) as stream:
        first = next(iter(stream)).response.id  # type: ignore[union-attr]
    provider.go.set()
    repeated = {"x-stainless-retry-count": "1"}
    again = served.client().responses.create(model="m", input="Count.", stream=True, extra_headers=repeated)
    ids = {event.response.id for event in again if hasattr(event, "response")}
    assert (ids, len(provider.requests)) == ({first}, 1)
    other = served.client().responses.create(model="m", input="Count.", extra_headers=repeated)
    assert (other.id != first, len(provider.requests)) == (True, 2)


def test_many_equal_requests_at_once_with_a_key_make_one_turn(serve: Serve) -> None:
    provider = Waiting()
    served = serve(m=provider)
    client = served.client(max_retries=8)
    ids: list[str] = []

    def ask() -> None:
        ids.append(client.responses.create(model="m", input="Count.", extra_headers={"Idempotency-Key": "k"}).id)

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    assert provider.began.wait(60)
    provider.go.set()
    for thread in threads:
        thread.join()
    assert (len(ids), len(set(ids)), len(provider.requests)) == (20, 1, 1)


class SlowToForget(InMemoryStorage):
    """A storage that takes a while to delete what is known of a run."""

    def delete(self, kind: str, key: str, *, expect: int | None = None) -> bool:
        if kind == KIND:
            time.sleep(0.1)
        return super().delete(kind, key, expect=expect)


class FailsOnce(InMemoryStorage):
    """A storage that fails once: when a run is begun, or when its end is stored."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self._when = when

    def put(self, kind: str, key: str, value: bytes, **conditions: Any) -> Any:
        self._fail(kind)
        return super().put(kind, key, value, **conditions)

    def append_all(self, appends: Sequence[Append], *, delete: Sequence[tuple[str, str]] = ()) -> frozenset[str]:
        self._fail("end" if delete else "events")
        return super().append_all(appends, delete=delete)

    def _fail(self, when: str) -> None:
        if when == self._when:
            self._when = ""
            raise StoreError("The storage can't be reached.")


@pytest.mark.parametrize("when", ["run_log", "end"])
def test_when_the_storage_works_again_the_same_request_goes_on(serve: Serve, when: str) -> None:
    storage = FailsOnce(when)
    provider = AsyncScripted(Overloaded("busy", status=529, retryable=False), says("Now."))
    client = serve(m=provider, storage=storage).client()

    def ask() -> str:
        try:
            *_, last = client.responses.create(
                model="m", input="Hi.", stream=True, extra_headers={"Idempotency-Key": "k1"}
            )
        except openai.InternalServerError:
            return "unavailable"
        return str(last.type)

    before = ["unavailable"] if when == "run_log" else []
    answers = [ask() for _ in range(len(before) + 2)]
    assert answers == [*before, "response.failed", "response.completed"]
    assert storage.list_documents(KIND) == []


@pytest.mark.parametrize("storage", [InMemoryStorage, SlowToForget])
def test_after_a_failure_the_same_request_goes_on(serve: Serve, storage: type[InMemoryStorage]) -> None:
    provider = AsyncScripted(Overloaded("busy", status=529, retryable=False), says("Now."))
    client = serve(m=provider, storage=storage()).client()
    header = {"Idempotency-Key": "k1"}
    with pytest.raises(openai.InternalServerError):
        client.responses.create(model="m", input="Hi.", extra_headers=header)
    made = client.responses.create(model="m", input="Hi.", extra_headers=header)
    assert made.output_text == "Now."
    assert len(client.responses.input_items.list(made.id).data) == 1


class StopsMeanwhile(InMemoryStorage):
    """A storage that stops the process when the log of a run is made, or looked for."""

    runs: Runs

    def put(self, kind: str, key: str, value: bytes, **conditions: Any) -> Any:
        if kind == "run_log":
            self.runs._stopping.set()
        return super().put(kind, key, value, **conditions)


@pytest.mark.parametrize("taken_over", [False, True], ids=["started", "taken over"])
def test_a_run_that_is_being_started_when_the_process_stops_does_not_begin(taken_over: bool) -> None:
    storage, name, played = StopsMeanwhile(), RunName("ada", "r"), list[Run]()
    runs = storage.runs = Runs(storage)

    async def play(run: Run) -> None:
        played.append(run)

    async def start() -> None:
        if taken_over:
            storage.put(PARKED, name.to_key(), b"a turn")
            assert await runs.take_over(name, play, parked=True) is None
        else:
            with pytest.raises(ApiError, match="stopping"):
                await runs.start(name, play, parked=b"a turn")
        await runs._writer.settle(name)
        await runs.stop(1)
        await runs.aclose()

    asyncio.run(start())
    assert (played, storage.list_documents(KIND)) == ([], [])
    assert len(storage.list_documents(PARKED)) == taken_over


@pytest.mark.parametrize("path", ["responses", "chat/completions"])
def test_a_client_that_did_not_wait_for_its_answer_gets_it_when_it_repeats_its_request_without_a_key(
    serve: Serve, path: str
) -> None:
    provider = Waiting()
    served = serve(m=provider)
    message = {"role": "user", "content": "Count."}
    body = {"model": "m", "input": "Count."} if path == "responses" else {"model": "m", "messages": [message]}
    with httpx2.Client(base_url=f"{served.url}/v1/") as client:
        post = partial(client.post, path, json={**body, "store": True})
        with pytest.raises(httpx2.ReadTimeout):
            post(timeout=0.5)
        provider.go.set()
        while served.service.runs.active:
            time.sleep(0.01)
        again = post(headers={"x-stainless-retry-count": "1"}).json()
        assert "One two three." in str(again)
        assert len(provider.requests) == 1
        # This one was delivered, so the next one is a new request.
        assert "Later." in str(post(headers={"x-stainless-retry-count": "1"}).json())
