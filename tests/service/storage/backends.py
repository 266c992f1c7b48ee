"""The backends of the service's storage, each of which opens any number of storages in the same place."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.service.storage.postgres import PostgresStorage
from longtalk.service.storage.protocol import Storage
from longtalk.service.storage.redis import RedisStorage
from longtalk.service.storage.sqlite import SQLiteStorage
from longtalk.stores.postgres.store import Postgres
from longtalk.stores.redis.store import Redis
from longtalk.transcript.transcript import new_id, now
from tests.support import postgres_server, redis_server
from tests.support.matrix import thin

Opener = Callable[..., Storage]
"""Opens a storage. All storages that it opens have the same documents and logs. `clock` may be given."""

BACKENDS = thin(["memory", "sqlite", "postgres", "redis", "cluster"], "memory", "sqlite", "postgres", "redis")
SHARED = BACKENDS[1:]
"""The backends that several processes can use at the same time."""


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = 1_000_000

    def __call__(self) -> int:
        return self.time


@contextmanager
def opening(backend: str, folder: Path) -> Iterator[Opener]:
    """Provide a function that opens storages in an empty place. They are closed at the end."""
    opened: list[Storage] = []

    def open_storage(clock: Callable[[], int] = now) -> Storage:
        if backend == "memory" and opened:
            return opened[0]
        opened.append(make(clock))
        return opened[-1]

    path = folder / f"{new_id()}.db"
    if backend == "postgres":
        empty_postgres()

    def make(clock: Callable[[], int]) -> Storage:
        if backend == "memory":
            return InMemoryStorage(clock)
        if backend == "sqlite":
            return SQLiteStorage(path, clock=clock)
        if backend == "postgres":
            return PostgresStorage(postgres_store()._pool, postgres_store()._schema, clock=clock)
        return RedisStorage(redis_store(backend)._client, prefix, clock=clock)

    prefix = new_id()
    try:
        yield open_storage
    finally:
        for storage in opened:
            storage.close()


@cache
def redis_store(backend: str) -> Redis:
    """Return a store of this process on a single server or on a cluster."""
    server = redis_server.single() if backend == "redis" else redis_server.cluster()
    store = Redis(server.url)
    atexit.register(store.close)
    return store


@cache
def postgres_store() -> Postgres:
    """Return a store of this process. A new schema for each test would cost more than the tests."""
    store = postgres_server.server().store()
    PostgresStorage(store._pool, store._schema).close()
    atexit.register(store.close)
    return store


def empty_postgres() -> None:
    tables = [f"{postgres_store()._schema}.service_{name}" for name in ("documents", "events")]
    postgres_store()._pool.run(lambda connection: connection.execute(f"TRUNCATE {', '.join(tables)}".encode()))
