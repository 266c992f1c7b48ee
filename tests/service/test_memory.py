"""What a service keeps in memory of turns that have ended: nothing."""

from __future__ import annotations

import gc
import threading
from typing import Any
from weakref import WeakSet

import openai
import pytest

from longtalk.service import runs
from longtalk.service.run import Run
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve


def test_a_service_keeps_neither_runs_nor_streams_that_have_ended(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_runs: WeakSet[Run] = WeakSet()
    streams: WeakSet[Any] = WeakSet()
    count = 0

    class Noted(Run):
        def __init__(self, *given: Any, **options: Any) -> None:
            nonlocal count
            super().__init__(*given, **options)
            made_runs.add(self)
            count += 1

    monkeypatch.setattr(runs, "Run", Noted)
    served = serve(m=AsyncScripted(*[says("A word."), says("Another word.", pieces=2)] * 6))
    open_stream = served.service.open_stream

    async def open_noted(order: Any) -> Any:
        stream = await open_stream(order)
        streams.add(stream)
        return stream

    served.service.open_stream = open_noted
    client, previous = served.client(), None
    for _ in range(3):
        with client.responses.stream(model="m", input="Go on.", previous_response_id=previous or openai.omit) as said:
            for _event in said:
                pass
            previous = said.get_final_response().id
        client.responses.create(model="m", input="Go on.")
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Go on."}])
    served.stop()
    gc.collect()
    assert count == 9
    assert not list(streams)
    assert not list(made_runs)


def test_free_memory_is_returned_to_the_system_after_a_run_has_ended(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    returned = threading.Event()
    monkeypatch.setattr("longtalk.service.service._MEMORY_SECONDS", 0.01)
    monkeypatch.setattr("longtalk.service.service.return_free_memory", returned.set)
    client = serve(m=AsyncScripted(says("A word."))).client()
    client.responses.create(model="m", input="Hello.")
    assert returned.wait(60)
