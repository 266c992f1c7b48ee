"""Deleting what has not changed for some time: never under a running turn. The sync twin of this file is generated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longtalk import AsyncArchive, AsyncConversation
from longtalk.stores.base import DeletionReceipt, Store
from longtalk.stores.in_memory import InMemory
from longtalk.stores.jsonl.store import JSONL
from longtalk.stores.leases import is_free
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, says
from longtalk.transcript.transcript import now
from tests.support.matrix import STORES

pytestmark = pytest.mark.anyio

LATER = 10**13


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    kinds: dict[str, Any] = {
        "memory": InMemory,
        "jsonl": lambda: JSONL(tmp_path),
        "sqlite": lambda: SQLite(tmp_path / "t"),
    }
    made = kinds[request.param]()
    yield made
    made.close()


class Expires(AsyncScripted):
    """A provider that tries to delete the conversation while it answers."""

    def __init__(self, store: Store, *texts: str) -> None:
        super().__init__(*map(says, texts))
        self.archive = AsyncArchive(store)
        self.receipts: list[DeletionReceipt | None] = []

    async def send(self, body: bytes) -> bytes:
        self.receipts.append(await self.archive.expire("c", before=LATER))
        return await super().send(body)


async def test_only_what_has_not_changed_since_is_deleted(store: Store) -> None:
    await AsyncConversation("c", model=AsyncScripted(says("a")), store=store).send("x")
    archive = AsyncArchive(store)
    (info,) = await archive.conversations()
    assert await archive.expire("c", before=info.updated) is None
    assert await archive.expire("none", before=LATER) is None
    receipt = await archive.expire("c", before=info.updated + 1)
    assert receipt is not None
    assert receipt.entries == 2
    assert await archive.conversations() == []


async def test_a_conversation_with_a_running_turn_stays(store: Store) -> None:
    provider = Expires(store, "a")
    reply = await AsyncConversation("c", model=provider, store=store).send("x")
    assert (provider.receipts, reply.text) == ([None], "a")


async def test_a_running_turn_on_another_branch_keeps_it_too_and_leaves_all_branches_free(store: Store) -> None:
    talk = AsyncConversation("c", model=AsyncScripted(says("a"), says("b")), store=store)
    first = await talk.send("x")
    provider = Expires(store, "c")
    await talk.fork(name="side")
    (before,) = await AsyncArchive(store).conversations()
    side = AsyncConversation("c", model=provider, store=store, branch="side")
    await side.send("y")
    assert provider.receipts == [None]
    head = store.head("", "c", "main")
    assert head is not None
    assert (head.lease, head.updated <= before.updated) == (None, True)
    assert (await talk.send("z")).text == "b"
    assert first.text == "a"


async def test_no_turn_can_begin_while_a_conversation_is_being_deleted(tmp_path: Path) -> None:
    class Watched(SQLite):
        was_free: bool | None = None

        def delete(self, owner: str, conversation: str) -> DeletionReceipt | None:
            head = self.head(owner, conversation)
            assert head is not None
            self.was_free = is_free(head, owner, conversation)
            return super().delete(owner, conversation)

    store = Watched(tmp_path / "t.db")
    await AsyncConversation("c", model=AsyncScripted(says("a")), store=store).send("x")
    assert await AsyncArchive(store).expire("c", before=now() + 1000) is not None
    assert store.was_free is False
    store.close()
