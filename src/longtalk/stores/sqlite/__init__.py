"""The SQLite store: all conversations in one file, which many threads and processes can share."""

from longtalk.stores.sqlite.store import SQLite

__all__ = ["SQLite"]
