"""Retention: what has not changed for some days is deleted, if the settings say so."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from longtalk import Archive, Conversation
from longtalk.service.access import OWNER
from longtalk.service.ids import new_conversation_id
from longtalk.service.retention import LEASE, LEASE_MS, Retention
from longtalk.service.settings import RetentionRule, RetentionSettings, Settings
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, Scripted, says
from longtalk.transcript.transcript import now
from tests.service.conftest import Serve

DAY = 24 * 3_600_000


class World:
    """A store with a conversation and a chain of each of two owners, and a clock."""

    def __init__(self, settings: RetentionSettings) -> None:
        self.store = InMemory()
        self.days = 0.0
        self.storage = InMemoryStorage(self.clock)
        self.retention = Retention(settings, self.store, self.storage, self.clock)
        self.chain = new_conversation_id(chain=True)
        for owner in ("ada", "bob"):
            self.storage.put(OWNER, owner, b"")
            for id in ("lesson", self.chain):  # noqa: A001
                Conversation(id, model=Scripted(says("Hi.")), owner=owner, store=self.store).send("Hello.")

    def clock(self) -> int:
        return now() + int(self.days * DAY)

    def run_after(self, days: float) -> int:
        self.days = days
        return asyncio.run(self.retention.run())

    def list(self, owner: str) -> set[str]:
        return {each.id for each in Archive(self.store, owner=owner).conversations()}


def test_nothing_is_deleted_by_default() -> None:
    world = World(Settings().retention)
    assert world.run_after(10_000) == 0
    assert world.list("ada") == {"lesson", world.chain}


def test_what_has_not_changed_for_some_days_is_deleted() -> None:
    world = World(RetentionSettings(days=30))
    assert world.run_after(29.9) == 0
    assert world.run_after(30.1) == 4
    assert world.list("ada") == world.list("bob") == set()


def test_chains_can_have_a_shorter_time() -> None:
    world = World(RetentionSettings(days=30, chain_days=1))
    assert world.run_after(1.1) == 2
    assert world.list("ada") == {"lesson"}
    assert world.run_after(31) == 2


def test_only_chains_are_deleted_if_only_they_have_a_time() -> None:
    world = World(RetentionSettings(chain_days=1))
    assert world.run_after(1000) == 2
    assert world.list("ada") == {"lesson"}


def test_an_owner_can_have_a_rule_of_their_own() -> None:
    world = World(RetentionSettings(days=1, owners={"ada": RetentionRule()}))
    assert world.run_after(2) == 2
    assert (world.list("ada"), world.list("bob")) == ({"lesson", world.chain}, set())


def test_one_process_at_a_time_deletes() -> None:
    world = World(RetentionSettings(days=1))
    other = Retention(RetentionSettings(days=1), world.store, world.storage, world.clock)
    world.run_after(0.5)
    world.days = 0.5 + LEASE_MS / 2 / DAY
    assert asyncio.run(other.run()) == 0
    Conversation("late", model=Scripted(says("Hi.")), owner="ada", store=world.store).send("Hello.")
    world.days = 2
    assert asyncio.run(other.run()) == 5


def test_a_process_that_was_so_late_that_another_one_deletes_stops_deleting(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(RetentionSettings(days=1))
    for i in range(150):
        Conversation(f"c{i}", model=Scripted(says("Hi.")), owner="ada", store=world.store).send("Hello.")
    list_page = world.store.conversations

    def take_lease_and_list(*args: Any, **options: Any) -> Any:
        world.storage.put(LEASE, "retention", b"")
        return list_page(*args, **options)

    monkeypatch.setattr(world.store, "conversations", take_lease_and_list)
    assert world.run_after(2) == 100


def test_more_conversations_than_a_page_are_deleted() -> None:
    world = World(RetentionSettings(days=1))
    for i in range(150):
        Conversation(f"c{i}", model=Scripted(says("Hi.")), owner="ada", store=world.store).send("Hello.")
    assert world.run_after(2) == 154


def test_the_log_names_what_was_deleted_without_its_content(caplog: pytest.LogCaptureFixture) -> None:
    world = World(RetentionSettings(days=1))
    with caplog.at_level(logging.INFO, "longtalk"):
        world.run_after(2)
    assert "retention deleted conversation 'lesson' of owner 'ada': 2 entries" in caplog.text
    assert "Hello" not in caplog.text


def test_the_service_knows_the_owners_who_have_used_it(serve: Serve) -> None:
    served = serve(m=AsyncScripted(says("Hi.")))
    service: Any = served.service
    made = served.client().responses.create(model="m", input="Hello.")
    later = Retention(RetentionSettings(chain_days=1), service.store, service.storage, lambda: now() + 2 * DAY)
    assert asyncio.run(later.run()) == 1
    assert service.store.conversations("") == []
    assert made.output_text == "Hi."
