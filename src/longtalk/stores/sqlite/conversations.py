"""The rows of the table `conversations`: times, sizes, metadata, and the list of an owner's conversations.

A commit doesn't change the row of a conversation that is marked as active. The time of its last change is then the
newest of the column `updated` and of its branches. Reading the list looks at each active conversation of the owner, so
an owner has at most `MAX_ACTIVE` of them; when there would be more, all are settled: their rows get their times.

Each function runs inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longtalk.stores._rows import meta_from_json
from longtalk.stores.base import ConversationInfo
from longtalk.stores.checks import meta_matches
from longtalk.stores.sqlite.branches import Branch
from longtalk.stores.sqlite.checksums import compute_checksum, update_row
from longtalk.stores.sqlite.database import Database

MAX_ACTIVE = 256
"""The maximum number of an owner's conversations that are marked as active."""

_LATEST = 2**62
_CHANGED = "max(updated, (SELECT max(b.updated) FROM branches b WHERE b.conversation = conversations.id))"
_SETTLED = f"SELECT id, {_CHANGED} FROM conversations WHERE owner = ? AND active"  # noqa: S608
_LIST = f"""
WITH changed AS MATERIALIZED (
    SELECT id, name, created, {_CHANGED} AS updated, meta FROM conversations WHERE owner = :owner AND active
)
SELECT id, name, created, updated, meta FROM conversations
WHERE owner = :owner AND NOT active AND updated <= :at AND (updated < :at OR name > :name)
UNION ALL
SELECT id, name, created, updated, meta FROM changed WHERE updated <= :at AND (updated < :at OR name > :name)
ORDER BY updated DESC, name
"""  # noqa: S608


# Reading


def read_info(db: Database, owner: str, name: str) -> ConversationInfo | None:
    """Return a conversation as a list shows it, or None if the conversation doesn't exist."""
    sql = "SELECT id, name, created, updated, meta FROM conversations WHERE owner = ? AND name = ?"
    row = db.execute(sql, (owner, name)).fetchone()
    return _make_info(db, *row) if row else None


def list_conversations(
    db: Database, owner: str, limit: int, after: tuple[int, str] | None, wanted: Mapping[str, Any]
) -> list[ConversationInfo]:
    """Return conversations of an owner, most recently changed first. See `Store.conversations`."""
    at, name = after or (_LATEST, "")
    found: list[ConversationInfo] = []
    for row in db.execute(_LIST, {"owner": owner, "at": at, "name": name}):
        if len(found) >= limit:
            break
        if not wanted or meta_matches(meta_from_json(row[-1]), wanted):
            found.append(_make_info(db, *row))
    return found


def count_entries(db: Database, conversation: int) -> int:
    """Return the number of entries of a conversation, on all branches."""
    count: int = db.execute("SELECT total(written) FROM branches WHERE conversation = ?", (conversation,)).get
    return int(count)


def _make_info(db: Database, number: int, name: str, created: int, updated: int, meta: bytes) -> ConversationInfo:
    sql = "SELECT name, updated, written FROM branches WHERE conversation = ? ORDER BY name"
    branches = db.execute(sql, (number,)).fetchall()
    return ConversationInfo(
        id=name,
        created=created,
        updated=max([updated, *(at for _, at, _ in branches)]),
        entries=sum(written for _, _, written in branches),
        branches=tuple(each for each, _, _ in branches),
        meta=meta_from_json(meta),
    )


# Writing


def insert_conversation(db: Database, owner: str, name: str, at: int, meta: bytes | None) -> int:
    """Insert a conversation whose first commit is made at the time `at`, and return its row id."""
    _make_room(db, owner)
    row = (owner, name, at, at, meta or b"{}", 1)
    columns = "owner, name, created, updated, meta, active, checksum"
    sql = f"INSERT INTO conversations ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
    db.execute(sql, (*row, compute_checksum(*row)))
    return db.last_insert_rowid()


def note_commit(
    db: Database, owner: str, conversation: int, branch: Branch | None, at: int, meta: bytes | None
) -> None:
    """Note that a commit is made at the time `at` on a branch, or on a new branch. Store `meta`, unless it is None."""
    if branch is None or not branch.active:
        _make_room(db, owner)
        update_row(db, "conversations", conversation, active=1)
    if branch is not None and at < branch.updated:
        # The clock was set back, or the commit is a copy. The time of the last change doesn't go back.
        updated = db.execute(
            "SELECT max(updated, ?) FROM conversations WHERE id = ?", (branch.updated, conversation)
        ).get
        update_row(db, "conversations", conversation, updated=updated)
    if meta is not None:
        update_row(db, "conversations", conversation, meta=meta)


def _make_room(db: Database, owner: str) -> None:
    """Settle the active conversations of an owner if one more would be too many."""
    if db.execute("SELECT count(*) FROM conversations WHERE owner = ? AND active", (owner,)).get >= MAX_ACTIVE:
        for number, updated in db.execute(_SETTLED, (owner,)).fetchall():
            update_row(db, "conversations", number, updated=updated, active=0)


_OWNERS = """
WITH RECURSIVE owners (name) AS (
    SELECT min(owner) FROM conversations
    UNION ALL
    SELECT (SELECT min(c.owner) FROM conversations c WHERE c.owner > o.name) FROM owners o WHERE o.name IS NOT NULL
)
SELECT name FROM owners WHERE name IS NOT NULL
"""
"""Each owner is found by one look-up in the index of owners."""


def list_owners(db: Database) -> list[str]:
    """Return the names of all owners, sorted. See `Store.owners`."""
    return [name for (name,) in db.execute(_OWNERS)]
