"""The service's storage in PostgreSQL: lost connections, poolers, restarts and migrations."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from longtalk.errors import InputError
from longtalk.service.storage import postgres
from longtalk.service.storage.factory import open_storage
from longtalk.service.storage.postgres import PostgresStorage
from longtalk.service.storage.protocol import LogPage
from longtalk.stores.postgres.store import Postgres
from tests.support.postgres_proxy import Proxy
from tests.support.postgres_server import end_connections, get_schema, server


@pytest.fixture
def store() -> Iterator[Postgres]:
    with closing(server().store()) as store:
        yield store


@pytest.fixture
def storage(store: Postgres) -> Iterator[PostgresStorage]:
    with closing(open_storage(store)) as storage:
        assert isinstance(storage, PostgresStorage)
        yield storage


def list_tables(store: Postgres) -> set[str]:
    rows = store._pool.run(
        lambda connection: connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s", (get_schema(store),)
        ).fetchall()
    )
    return {name for (name,) in rows}


def test_only_a_service_gets_the_tables(store: Postgres) -> None:
    assert not [name for name in list_tables(store) if "service" in name]
    open_storage(store).close()
    assert {"service_documents", "service_events", "service_migrations"} <= list_tables(store)


def test_many_processes_can_create_the_tables_at_once(store: Postgres) -> None:
    storages: list[PostgresStorage] = []
    threads = [
        threading.Thread(target=lambda: storages.append(PostgresStorage(store._pool, store._schema))) for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(storages) == 5
    for storage in storages:
        storage.close()


def test_tables_of_a_newer_version_are_refused(store: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(postgres, "VERSION", postgres.VERSION + 1)
        open_storage(store).close()
    with pytest.raises(InputError, match="Upgrade Longtalk"):
        open_storage(store)


def test_a_key_that_is_too_long_is_refused(storage: PostgresStorage) -> None:
    key = "".join(chr(0x100 + number % 0x5000) for number in range(9000))
    with pytest.raises(InputError, match="too long"):
        storage.put("kind", key, b"")


def test_what_was_done_before_the_connection_was_lost_is_not_done_again() -> None:
    with (
        Proxy(server().folder) as proxy,
        closing(Postgres(proxy.url, schema=server().schema(), connections=1)) as store,
        closing(open_storage(store)) as storage,
    ):
        proxy.lose_answer()
        claimed = storage.put("kind", "key", b"mine", expect=0)
        assert claimed is not None
        assert storage.get("kind", "key") == claimed
        proxy.lose_answer()
        assert storage.put("kind", "key", b"again", expect=claimed.version) is not None
        proxy.lose_answer()
        storage.append("run", 0, [b"a", b"b"])
        proxy.lose_answer()
        storage.append("run", 2, [b"c"], ended=True)
        proxy.lose_request()
        assert storage.read("run") == LogPage((b"a", b"b", b"c"), ended=True)
        assert proxy.lost == 5


def test_behind_a_pooler_changes_are_polled() -> None:
    proxy = Proxy(server().folder, pools=True)
    with (
        proxy,
        closing(Postgres(proxy.url, schema=server().schema())) as store,
        closing(open_storage(store)) as storage,
    ):
        assert [storage.poll_changes(60) for _ in range(3)] == [None] * 3
        storage.append("run", 0, [b"a"])
        assert storage.poll_changes(60) is None
        timer = threading.Timer(0.01, storage.close)
        timer.start()
        while storage.poll_changes(60) is None:
            pass
        timer.join()


def test_after_a_lost_connection_any_run_may_have_changed(storage: PostgresStorage) -> None:
    assert storage.poll_changes(0) is None
    end_connections()
    storage.append("missed", 0, [b"a"])
    assert storage.poll_changes(60) is None
    while (changed := storage.poll_changes(0)) is None:
        pass
    assert changed == frozenset()
    storage.append("run", 0, [b"a"])
    assert storage.poll_changes(60) == {"run"}


def test_a_server_that_restarts_is_waited_for(storage: PostgresStorage) -> None:
    assert storage.poll_changes(0) is None
    storage.append("run", 0, [b"a"])
    server().restart()
    storage.append("run", 1, [b"b"])
    assert storage.read("run") == LogPage((b"a", b"b"), ended=False)
    while storage.poll_changes(0) is not None:
        pass
    while storage.poll_changes(0) is None:
        pass
    storage.append("other", 0, [b"a"])
    assert storage.poll_changes(60) == {"other"}


def test_a_silent_connection_is_checked(storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "CHECK_SECONDS", 0.02)
    assert storage.poll_changes(0) is None
    assert storage.poll_changes(60) is None
    storage.append("run", 0, [b"a"])
    while not (changed := storage.poll_changes(60)):
        pass
    assert changed == {"run"}
