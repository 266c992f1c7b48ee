"""Turns in the SQLite store.

`turn_keys` has the id of each turn, which is the key of the turn's first entry; turns of the first two layouts have
smaller ids. The turn itself, a `Turn` with its manifest, is in the row of that entry, so that storing it costs no page.
It is in the table `turns` if the entry is large, has moved into a pack, or was stored before the turn.

A turn's entries are a *run* if they are consecutive on a segment. `runs` has all runs, except those that begin with the
entry that is the turn's id.

Each function runs inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from longtalk.stores._paths import Span, clip
from longtalk.stores.base import Commit
from longtalk.stores.sqlite.checksums import compute_checksum
from longtalk.stores.sqlite.database import Database
from longtalk.stores.sqlite.paths import MAX_PATH, split_key, to_key, to_position
from longtalk.transcript.transcript import Turn

MAX_NATIVE = 2048
"""The maximum size of the JSON of an entry whose row has its turn too: the end of a turn writes that row again."""

TURN_DATA = "coalesce(e.turn_data, t.data)"
"""The encoded turn, in a query with `join_turns`."""

decode_turn = msgspec.msgpack.Decoder(Turn).decode
"""Decodes a turn. Raises `ValueError` if that is not possible."""
_encode = msgspec.msgpack.Encoder().encode


def join_turns(id: str) -> str:  # noqa: A002
    """Return the SQL that joins the row of an entry, `e`, and the row of `turns`, `t`, that have the turn `id`."""
    return f"LEFT JOIN entries e ON e.key = {id} LEFT JOIN turns t ON t.id = {id}"


_TURN = f"SELECT k.id, {TURN_DATA} FROM turn_keys k {join_turns('k.id')} WHERE k.conversation = ? AND k.name = ?"  # noqa: S608
_INSERT_KEY = """
INSERT INTO turn_keys (conversation, name, id, number, checksum) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (conversation, name) DO NOTHING
"""
_UPDATE_IN_ENTRY = """
UPDATE entries SET turn_data = ?1, turn_checksum = ?2, manifest = coalesce(?3, manifest),
    manifest_checksum = iif(?3 IS NULL, manifest_checksum, ?4)
WHERE key = ?5 AND turn_data IS NOT NULL
"""
_UPSERT = """
INSERT INTO turns (data, turn_checksum, manifest, manifest_checksum, id, name) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET data = excluded.data, turn_checksum = excluded.turn_checksum,
    manifest = coalesce(excluded.manifest, manifest),
    manifest_checksum = iif(excluded.manifest IS NULL, manifest_checksum, excluded.manifest_checksum)
"""
_LAST_TURN = f"""
SELECT key, key, turn_data FROM entries WHERE key >= ?1 AND key < ?2 AND turn_data IS NOT NULL
UNION ALL
SELECT id, id, data FROM turns WHERE id >= ?1 AND id < ?2 AND data IS NOT NULL
UNION ALL
SELECT r.key, r.turn, {TURN_DATA} FROM runs r {join_turns("r.turn")}
WHERE r.key >= ?1 AND r.key < ?2 AND {TURN_DATA} IS NOT NULL
ORDER BY 1 DESC LIMIT 1
"""  # noqa: S608
_TURNS = f"""
SELECT key, key, turn, {{in_entry}}, NOT EXISTS (SELECT 1 FROM runs WHERE turn = entries.key)
FROM entries WHERE key >= ?1 AND key < ?2 AND turn_data IS NOT NULL
UNION ALL
SELECT id, id, name, {{in_turn}}, NOT EXISTS (SELECT 1 FROM runs WHERE turn = turns.id)
FROM turns WHERE id >= ?1 AND id < ?2 AND data IS NOT NULL
UNION ALL
SELECT r.key, r.turn, coalesce(t.name, e.turn), coalesce(e.{{in_entry}}, t.{{in_turn}}),
    r.turn < {MAX_PATH} AND (SELECT count(*) FROM runs WHERE turn = r.turn) = 1
FROM runs r {join_turns("r.turn")} WHERE r.key >= ?1 AND r.key < ?2 AND {TURN_DATA} IS NOT NULL
ORDER BY 1
"""  # noqa: S608
_COLUMNS = {"data": _TURNS.format(in_entry="turn_data", in_turn="data")}
_COLUMNS["manifest"] = _TURNS.format(in_entry="manifest", in_turn="manifest")


class Run(msgspec.Struct, frozen=True):
    """A sequence of entries of one turn with consecutive numbers, on one segment."""

    position: int
    """The position of the first entry."""
    turn: str
    number: int
    """The number of the first entry in its turn."""


class StoredTurn(msgspec.Struct, frozen=True):
    """A turn of a conversation."""

    id: int
    data: bytes | None
    """The turn, encoded, or None if only its entries are stored."""


# Reading


def read_turn(db: Database, conversation: int, name: str) -> StoredTurn | None:
    """Return a turn of a conversation, or None if no entry of the turn was ever stored."""
    row = db.execute(_TURN, (conversation, name)).fetchone()
    return StoredTurn(*row) if row else None


def read_last_turn(db: Database, path: Sequence[Span[int]]) -> StoredTurn | None:
    """Return the last turn on a path, or None if the path has no turn."""
    for segment, start, stop in reversed(path):
        row = db.execute(_LAST_TURN, (to_key(segment, start), to_key(segment, stop))).fetchone()
        if row is not None:
            return StoredTurn(*row[1:])
    return None


def find_turn_start(db: Database, turn: int, path: Sequence[Span[int]]) -> int | None:
    """Return the position of a turn's first entry on a path, or None if no entry of the turn is on the path."""
    ends = {segment: stop for segment, _, stop in path}
    keys = [key for (key,) in db.execute("SELECT key FROM runs WHERE turn = ?", (turn,))]
    # An id below MAX_PATH is not a key.
    runs = [split_key(key) for key in ([turn, *keys] if turn >= MAX_PATH else keys)]
    return min([position for segment, position in runs if position < ends.get(segment, 0)], default=None)


def read_turns(db: Database, path: Sequence[Span[int]], start: int, stop: int) -> list[tuple[int, Turn]]:
    """Return the turns that begin at positions `start` to `stop - 1` of a path, each with its position."""
    return [(position, decode_turn(data)) for position, _, data in _read_column(db, path, start, stop, "data")]


def read_manifests(db: Database, path: Sequence[Span[int]], start: int, stop: int) -> dict[str, bytes]:
    """Return the manifests of the turns that begin at positions `start` to `stop - 1` of a path, by turn id."""
    return {name: data for _, name, data in _read_column(db, path, start, stop, "manifest") if data}


def _read_column(
    db: Database, path: Sequence[Span[int]], start: int, stop: int, column: Literal["data", "manifest"]
) -> list[tuple[int, str, bytes]]:
    """Return the position, id and `column` of each turn that begins at positions `start` to `stop - 1` of a path."""
    found: list[tuple[int, str, bytes]] = []
    for segment, first, end in clip(path, start, stop):
        rows = db.execute(_COLUMNS[column], (to_key(segment, first), to_key(segment, end))).fetchall()
        for key, turn, name, data, alone in rows:
            position = to_position(key)
            if alone or find_turn_start(db, turn, path) == position:
                found.append((position, name, data))
    return found


def find_runs(last: str | None, commit: Commit, numbers: Sequence[int], position: int) -> list[Run]:
    """Return the runs that begin with an entry of a commit.

    `numbers` are the numbers of the entries in their turns, `position` is the position of the first entry, and `last`
    is the id of the entry before it on the same segment, or None if the segment has none.
    """
    following = "", -1
    if last is not None:
        turn, _, number = last.rpartition("-")
        following = turn, int(number) + 1
    runs: list[Run] = []
    for i, entry in enumerate(commit.entries):
        if (entry.turn, numbers[i]) != following:
            runs.append(Run(position + i, entry.turn, numbers[i]))
        following = entry.turn, numbers[i] + 1
    return runs


# Writing


def store_turn_keys(
    db: Database, conversation: int, segment: int, runs: Sequence[Run], known: dict[str, StoredTurn]
) -> set[str]:
    """Store the runs of a commit and the ids of turns that are new. Return the names of these turns.

    `known` are turns that are stored already. All other turns that have a run are added to it.
    """
    fresh = set()
    others = []
    for run in runs:
        key, name, number = to_key(segment, run.position), run.turn, run.number
        if name not in known:
            row = conversation, name, key, number
            db.execute(_INSERT_KEY, (*row, compute_checksum(*row)))
            if db.changes():
                fresh.add(name)
                known[name] = StoredTurn(key, None)
                continue
            known[name] = read_turn(db, conversation, name) or StoredTurn(key, None)
        other = key, known[name].id, number
        others.append((*other, compute_checksum(*other)))
    db.executemany("INSERT INTO runs VALUES (?, ?, ?, ?)", others)
    return fresh


def update_turn(
    db: Database, old: StoredTurn, turn: Turn, manifest: bytes | None, *, damaged: bool = False
) -> StoredTurn:
    """Store a turn whose first entry is stored already. Return the turn as it is stored.

    `old` is the stored version of the turn. If `manifest` is None, the stored manifest is kept. With `damaged`, the
    turn keeps a wrong checksum.
    """
    data = encode_turn(turn, old.data)
    row = with_checksums(old.id, turn.id, data, manifest, damaged=damaged)
    db.execute(_UPDATE_IN_ENTRY, (*row, old.id))
    if not db.changes():
        db.execute(_UPSERT, (*row, old.id, turn.id))
    return StoredTurn(old.id, data)


def with_checksums(
    id: int,  # noqa: A002
    name: str,
    data: bytes,
    manifest: bytes | None,
    *,
    damaged: bool = False,
) -> tuple[bytes, int, bytes | None, int]:
    """Return a turn and its manifest, encoded, each followed by its checksum. If `damaged`, the turn's is wrong."""
    return data, compute_checksum(id, name, data) ^ damaged, manifest, compute_checksum(id, manifest)


def encode_turn(turn: Turn, stored: bytes | None = None) -> bytes:
    """Encode a turn. If it replaces `stored`, keep the fields there that a newer version of Longtalk has written."""
    data = _encode(turn)
    if stored is None or stored[0] == data[0]:
        return data
    fields = msgspec.msgpack.decode(data)
    return _encode([*fields, *msgspec.msgpack.decode(stored)[len(fields) :]])
