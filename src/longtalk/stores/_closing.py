"""Stores as context managers: `with SQLite(path) as store:` closes the store at the end of the block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

S = TypeVar("S", bound="ClosedOnExit")


class ClosedOnExit(ABC):
    """A base class of stores that are closed at the end of a `with` block."""

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release connections and caches."""
