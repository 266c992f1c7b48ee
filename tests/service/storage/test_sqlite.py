"""The service's storage in SQLite files: where its tables are, and who gets them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from longtalk import Conversation
from longtalk.errors import InputError
from longtalk.service.storage import sqlite
from longtalk.service.storage.factory import open_storage
from longtalk.service.storage.sqlite import SQLiteStorage
from longtalk.stores.jsonl.store import JSONL
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import Scripted, says


def list_tables(store: SQLite) -> set[str]:
    return store._file.read(lambda db: {name for (name,) in db.execute("SELECT name FROM sqlite_schema").fetchall()})


def test_only_a_service_gets_the_tables(tmp_path: Path) -> None:
    with closing(SQLite(tmp_path / "talks.db")) as store:
        assert not [name for name in list_tables(store) if "service" in name]
        with closing(open_storage(store)) as storage:
            storage.put("kind", "key", b"value")
            assert {"service_documents", "service_events"} <= list_tables(store)


def test_the_store_and_its_storage_share_a_file_and_go_on_without_each_other(tmp_path: Path) -> None:
    store = SQLite(tmp_path / "talks.db", synchronous="full")
    storage = open_storage(store)
    storage.put("kind", "key", b"value")
    store.close()
    assert storage.get("kind", "key")
    storage.close()
    with closing(SQLite(tmp_path / "talks.db")) as store, closing(open_storage(store)) as storage:
        assert storage.get("kind", "key")
    assert os.listdir(tmp_path) == ["talks.db"]


def test_tables_of_a_newer_version_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "MIGRATIONS", (*sqlite.MIGRATIONS, "CREATE TABLE service_more (x)"))
        SQLiteStorage(tmp_path / "talks.db").close()
    with pytest.raises(InputError, match="Upgrade Longtalk"):
        SQLiteStorage(tmp_path / "talks.db")
    SQLite(tmp_path / "talks.db").close()


def test_tables_of_an_older_version_are_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SQLiteStorage(tmp_path / "talks.db")) as storage:
        storage.put("kind", "key", b"value")
    monkeypatch.setattr(sqlite, "MIGRATIONS", (*sqlite.MIGRATIONS, "CREATE TABLE service_more (x)"))
    with closing(SQLiteStorage(tmp_path / "talks.db")) as storage:
        assert storage.get("kind", "key")


def test_a_storage_in_memory_is_refused() -> None:
    with pytest.raises(InputError, match="InMemoryStorage"):
        SQLiteStorage(":memory:")


@pytest.mark.parametrize("way", ["purged", "deleted"])
def test_purged_and_deleted_events_are_no_longer_in_the_files(tmp_path: Path, way: str) -> None:
    with closing(SQLiteStorage(tmp_path / "talks.db")) as storage:
        storage.append("run", 0, [b"the secret words"])
        if way == "purged":
            storage.purge(0, logs_before=2**60)
        else:
            storage.delete_log("run")
        assert not any(b"the secret words" in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize("work", ["list", "append"])
def test_the_cost_of_a_call_does_not_depend_on_what_else_is_stored(tmp_path: Path, work: str) -> None:
    def count_steps(call: Callable[[], object]) -> int:
        steps = 0

        def step() -> bool:
            nonlocal steps
            steps += 1
            return False

        connection = storage._file.db
        assert isinstance(connection, apsw.Connection)
        connection.set_progress_handler(step, 10)
        call()
        connection.set_progress_handler(None)
        return steps

    with closing(SQLiteStorage(tmp_path / "talks.db")) as storage:
        calls: dict[str, Callable[[], object]] = {
            "list": lambda: storage.list_documents("kind", prefix="a"),
            "append": lambda: storage.append("run", 1, [b"b"]),
        }
        storage.put("kind", "a", b"")
        storage.append("run", 0, [b"a"])
        for number in range(300):
            storage.put("kind", f"b{number}", b"")
            storage.append("other", number, [b"a"])
        assert count_steps(calls[work]) < 40


def test_a_jsonl_store_keeps_the_services_file_apart(tmp_path: Path) -> None:
    with closing(JSONL(tmp_path / "talks")) as store:
        with closing(open_storage(store)) as storage:
            storage.put("kind", "key", b"value")
        for owner in ("", "service.db", "service"):
            Conversation("talk", model=Scripted(says("yes")), store=store, owner=owner).send("hello")
            assert [each.id for each in store.conversations(owner)] == ["talk"]
        assert store.list_damaged_files() == []
        assert stat.S_IMODE((tmp_path / "talks" / "service.db").stat().st_mode) == 0o600
        with closing(open_storage(store)) as storage:
            assert storage.get("kind", "key")
