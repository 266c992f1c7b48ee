"""Requests with an `Idempotency-Key` of which nothing is stored: a repeated one gets the same answer for an hour."""

from __future__ import annotations

import threading
from typing import Any

import openai
import pytest

from longtalk.errors import Overloaded
from longtalk.service.runs import LOG_LIFETIME
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, says
from longtalk.transcript.transcript import now
from tests.service.conftest import Serve
from tests.service.test_runs import Waiting

KEY = {"Idempotency-Key": "k"}
HI = {"role": "user", "content": "Hi."}


def ask(client: openai.OpenAI, surface: str, *, stream: bool = False, store: bool | None = False, **more: Any) -> Any:
    """Ask one of OpenAI's surfaces for an answer of which nothing is stored, and return the answer or its events."""
    options: Any = {"model": "m", "stream": stream, **({} if store is None else {"store": store}), **more}
    if surface == "chat":
        made = client.chat.completions.create(messages=[HI], **options)
    else:
        made = client.responses.create(input="Hi.", **options)
    return [each.to_json() for each in made] if stream else made.to_json()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("surface", "store"), [("chat", False), ("chat", None), ("responses", False)])
def test_a_repeated_request_gets_the_same_answer_in_each_process(
    serve: Serve, surface: str, store: bool | None, stream: bool
) -> None:
    provider, talks, storage = AsyncScripted(says("Once.")), InMemory(), InMemoryStorage()
    processes = [serve(store=talks, storage=storage, m=provider) for _ in range(2)]
    answers = [
        ask(each.client(), surface, stream=stream, store=store, extra_headers=KEY)
        for each in (*processes, processes[0])
    ]
    assert answers[0] == answers[1] == answers[2]
    assert len(provider.requests) == 1
    assert talks.conversations("") == []


@pytest.mark.parametrize("surface", ["chat", "responses"])
def test_a_repeated_request_follows_a_run_that_goes_on_without_its_client(serve: Serve, surface: str) -> None:
    provider, talks, storage = Waiting(), InMemory(), InMemoryStorage()
    first, second = (serve(store=talks, storage=storage, m=provider) for _ in range(2))
    impatient = first.client(timeout=2)
    with pytest.raises(openai.APITimeoutError):
        ask(impatient, surface, extra_headers=KEY)
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda each=each: answers.append(ask(each.client(), surface, extra_headers=KEY)))
        for each in (first, second)
    ]
    for thread in threads:
        thread.start()
    provider.go.set()
    for thread in threads:
        thread.join()
    assert len(answers) == 2
    assert answers[0] == answers[1]
    assert len(provider.requests) == 1


@pytest.mark.parametrize("surface", ["chat", "responses"])
def test_a_request_that_has_failed_runs_again(serve: Serve, surface: str) -> None:
    provider = AsyncScripted(Overloaded("busy", status=503, retryable=False), says("Once."))
    client = serve(m=provider).client()
    with pytest.raises(openai.InternalServerError):
        ask(client, surface, extra_headers=KEY)
    assert "Once." in ask(client, surface, extra_headers=KEY)
    assert ask(client, surface, extra_headers=KEY) == ask(client, surface, extra_headers=KEY)


@pytest.mark.parametrize("surface", ["chat", "responses"])
@pytest.mark.parametrize("headers", [{}, KEY], ids=["without a key", "with a key"])
def test_the_answer_is_stored_nowhere_without_a_key_and_for_an_hour_with_one(
    serve: Serve, surface: str, headers: dict[str, str]
) -> None:
    at = now()
    storage = InMemoryStorage(lambda: at)
    client = serve(storage=storage, m=AsyncScripted(says("Once."), says("Once."))).client()
    ask(client, surface, extra_headers=headers)
    ask(client, surface, stream=True, extra_headers=dict.fromkeys(headers, "other"))
    assert ("Once." in repr(vars(storage))) == bool(headers)
    assert "Hi." not in repr(vars(storage))
    storage.purge(at + 2 * LOG_LIFETIME, logs_before=at + LOG_LIFETIME)
    assert "Once." not in repr(vars(storage))
