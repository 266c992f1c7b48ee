"""Stores that pass each call on to another store, and change or break some of them."""

from __future__ import annotations

from typing import Any

from longtalk.stores.base import Store


class StoreProxy:
    """A store that passes all calls on. A subclass replaces some."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class DyingStore(StoreProxy):
    """A store that accepts some writes and then raises `KeyboardInterrupt`. From then on, nothing is cleaned up."""

    def __init__(self, store: Store, writes: int) -> None:
        super().__init__(store)
        self._left = writes

    def write(self, *arguments: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return self._store.write(*arguments)

    def delete(self, *arguments: Any) -> Any:
        return None if self._left < 0 else self._store.delete(*arguments)
