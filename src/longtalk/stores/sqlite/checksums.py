"""Checksums of rows in the SQLite store.

Each row that is written has a checksum of its columns, so that `verify` finds what has changed since. Rows of earlier
versions have none (NULL) until they are written again. If a row with a wrong checksum is changed, its checksum stays
wrong, so that the damage is not hidden.

Not included are columns that only serve search (`stale`, `indexed`) and columns for later versions (`extra`). The JSON
of a pack has a checksum of its own, `crc`, and the checksums of a turn and its manifest are separate, because a turn
moves between tables and is written again without its manifest. To the checksum of a record its id is added, because
ids say which record is newer, and SQLite assigns them.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from longtalk.stores.sqlite.database import Database

COLUMNS = {
    "conversations": ("owner", "name", "created", "updated", "meta", "active"),
    "branches": (
        *("conversation", "name", "revision", "segment", "base", "size", "entry", "turn", "records", "latest", "token"),
        *("lease", "sealed", "loose", "updated", "written"),
    ),
    "segments": ("conversation", "up", "base"),
    "entries": (
        *("key", "turn", "number", "parent", "kind", "role", "wire", "at", "mark", "bound", "tokens", "native"),
    ),
    "packs": ("key", "count", "form", "crc", "columns"),
    "entry_meta": ("key", "meta"),
    "runs": ("key", "turn", "number"),
    "turn_keys": ("conversation", "name", "id", "number"),
    "requests": ("conversation", "key", "body", "branch", "turn", "place"),
    "records": ("segment", "place", "kind", "data"),
}
"""By table: the columns that the column `checksum` covers, in order."""

_encode = msgspec.msgpack.Encoder().encode


def compute_checksum(*values: Any) -> int:
    """Return the checksum of the values of a row, in the order of `COLUMNS`."""
    return zlib.crc32(_encode(values))


def is_intact(checksum: int | None, *values: Any) -> bool:
    """Return whether a row has the right checksum, or none."""
    return checksum is None or checksum == compute_checksum(*values)


def replace_checksum(old: int | None, before: Sequence[Any], after: Sequence[Any]) -> int:
    """Return the checksum of a row that changes from the values `before` to `after`.

    `old` is its checksum before. If that is wrong, the new one is wrong, too.
    """
    return compute_checksum(*after) ^ (not is_intact(old, *before))


def update_row(db: Database, table: str, id: int, **changes: Any) -> None:  # noqa: A002
    """Change columns of a row of `branches` or `conversations`, together with its checksum.

    If the row doesn't exist, nothing happens.
    """
    columns = COLUMNS[table]
    row = db.execute(f"SELECT checksum, {', '.join(columns)} FROM {table} WHERE id = ?", (id,)).fetchone()  # noqa: S608
    if row is None:
        return
    old, *before = row
    after = dict(zip(columns, before, strict=True)) | changes
    names = ", ".join(f"{name} = ?" for name in changes)
    db.execute(
        f"UPDATE {table} SET {names}, checksum = ? WHERE id = ?",  # noqa: S608
        (*changes.values(), replace_checksum(old, before, [*after.values()]), id),
    )
