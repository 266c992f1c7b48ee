"""Where conversations live: in memory, in JSONL files, in SQLite."""

from __future__ import annotations

import os

from longtalk import folders
from longtalk.stores.base import Store


def default() -> Store:
    """A SQLite file in the user's data folder."""
    from longtalk.stores.sqlite import SQLite

    os.makedirs(folders.data(), exist_ok=True)
    return SQLite(os.path.join(folders.data(), "conversations.db"))
