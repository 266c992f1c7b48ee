"""Where conversations live: in memory, in JSONL files, in SQLite."""

from __future__ import annotations

from longtalk.stores.base import Store


def default() -> Store:
    """A SQLite file in the user's data folder."""
    from longtalk.cli.chat import default_path
    from longtalk.stores.sqlite import SQLite

    path = default_path().with_name("conversations.db")
    path.parent.mkdir(parents=True, exist_ok=True)
    return SQLite(path)
