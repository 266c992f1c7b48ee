"""A stored conversation never calls its store on the event loop, which such a call would block for other turns."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from longtalk import AsyncConversation, Memory, Recall
from longtalk.memory.recall import search
from longtalk.memory.recall.index_cache import IndexCache
from longtalk.stores.base import Store
from longtalk.stores.jsonl import JSONL
from longtalk.stores.sqlite import SQLite
from longtalk.testing import AsyncScripted, says
from tests.support.store_proxies import StoreProxy
from tests.support.summary_model import anyio_backend  # noqa: F401

MEMORY = Memory(limit=0, recent=0, outline=0, recall=Recall(400, gate=False))


class Recorder(StoreProxy):
    """Notes the thread of each call, by the name of the method."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.calls: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append((name, threading.get_ident()))
            return found(*arguments, **named)

        return call

    def list_blocking(self) -> set[str]:
        """Return the methods that were called on this thread, which runs the event loop."""
        return {name for name, thread in self.calls if thread == threading.get_ident()}


@pytest.fixture(params=[SQLite, JSONL])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    # As in a new process, where recall has to read the texts that it quotes.
    monkeypatch.setattr(search, "_INDEX_CACHE", IndexCache())
    return Recorder(request.param(tmp_path / ("talks.db" if request.param is SQLite else "talks")))


@pytest.mark.anyio
async def test_no_turn_calls_the_store_on_the_event_loop(store: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncConversation(
        "bow", model=AsyncScripted(*[says("Heavy.")] * 20), store=store, policy=MEMORY
    ) as talk:
        for number in range(20):
            await talk.send(f"The violin of uncle number {number} is in Bergen. " + "It hangs there. " * 200)
    monkeypatch.setattr(search, "_INDEX_CACHE", IndexCache())

    def look(at: str) -> str:
        """Look at something."""
        return at

    model = AsyncScripted(
        says(calls=[("call_1", "recall", {"query": "the violin of uncle number 7"})]),
        says("In Bergen."),
        says("Yes."),
        says("Now too."),
    )
    async with AsyncConversation("bow", model=model, store=store, policy=MEMORY, tools=[look]) as talk:
        reply = await talk.send("Where is the violin of uncle number 3?")
        assert reply.context is not None
        assert reply.context.recall
        async with talk.stream("And the one of uncle number 4?") as stream:
            async for _ in stream:
                pass
        await (await talk.fork()).send("And now?")
    called = {name for name, _ in store.calls}
    assert {"pick", "read", "records", "write"} <= called
    assert store.list_blocking() == set()
