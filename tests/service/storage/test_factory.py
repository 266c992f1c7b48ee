"""The storage that the service opens for a store."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from longtalk.errors import InputError
from longtalk.service.storage.factory import open_storage
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.service.storage.sqlite import SQLiteStorage
from longtalk.stores.in_memory import InMemory
from longtalk.stores.jsonl.store import JSONL
from longtalk.stores.sqlite.store import SQLite


def test_files_have_their_storage_in_sqlite(tmp_path: Path) -> None:
    for store in (SQLite(tmp_path / "talks.db"), JSONL(tmp_path / "talks")):
        with closing(store), closing(open_storage(store)) as storage:
            assert isinstance(storage, SQLiteStorage)


def test_stores_in_memory_have_their_storage_in_memory() -> None:
    for store in (InMemory(), SQLite(":memory:")):
        with closing(store), closing(open_storage(store)) as storage:
            assert isinstance(storage, InMemoryStorage)


def test_a_store_of_another_package_is_refused() -> None:
    other: Any = object()
    with pytest.raises(InputError, match="object"):
        open_storage(other)
