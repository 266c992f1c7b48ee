"""Where conversations live: in memory, in JSONL files, in SQLite."""

from __future__ import annotations

import os

from longtalk import folders
from longtalk.stores.base import Store


def default_path() -> str:
    """The SQLite file in the user's data folder."""
    return os.path.join(folders.data(), "conversations.db")


def default() -> Store:
    """The store at `default_path()`. What is made there is the user's own."""
    from longtalk.stores.sqlite import SQLite

    path = default_path()
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    return SQLite(path)
