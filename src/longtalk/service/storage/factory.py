"""Opens the storage that belongs to a store: the service keeps its documents and event logs where conversations are."""

from __future__ import annotations

from longtalk._util.private_files import make_private_folder
from longtalk.errors import InputError
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.service.storage.postgres import PostgresStorage
from longtalk.service.storage.protocol import Storage
from longtalk.service.storage.redis import RedisStorage
from longtalk.service.storage.sqlite import SQLiteStorage
from longtalk.stores.base import Store
from longtalk.stores.in_memory import InMemory
from longtalk.stores.jsonl.store import JSONL
from longtalk.stores.postgres.store import Postgres
from longtalk.stores.redis.store import Redis
from longtalk.stores.sqlite.database import MEMORY
from longtalk.stores.sqlite.store import SQLite

FILE = "service.db"
"""The SQLite file of the service in the folder of a JSONL store."""


def open_storage(store: Store) -> Storage:
    """Open the service's storage in the place where a store keeps its conversations.

    For a store in memory this is a new storage in memory. Close the storage before the store, whose connections it
    uses. Raises `InputError` if there is no storage for this kind of store.
    """
    if isinstance(store, InMemory) or (isinstance(store, SQLite) and store._file.path == MEMORY):
        return InMemoryStorage()
    if isinstance(store, SQLite):
        return SQLiteStorage(store._file.path, synchronous=store._file.synchronous)
    if isinstance(store, JSONL):
        make_private_folder(store._folder)
        return SQLiteStorage(store._folder / FILE)
    if isinstance(store, Postgres):
        return PostgresStorage(store._pool, store._schema)
    if isinstance(store, Redis):
        return RedisStorage(store._client, store._prefix)
    raise InputError(
        f"A service can't keep its data in a store of the type {type(store).__name__}: "
        "use SQLite, JSONL, PostgreSQL or Redis."
    )
