"""Permanent removal of data from the SQLite store: deleting conversations and redacting entries.

SQLite overwrites the space that it frees (`secure_delete`), in the tables and in the word index. The caller then
empties the write-ahead log with `File.purge_log`.
"""

from __future__ import annotations

import json

import msgspec

from longtalk.stores._paths import Span
from longtalk.stores._redaction import get_turn_id, redact_turn
from longtalk.stores.base import DeletionReceipt
from longtalk.stores.sqlite.branches import find_conversation_id
from longtalk.stores.sqlite.checksums import COLUMNS, compute_checksum, is_intact, replace_checksum, update_row
from longtalk.stores.sqlite.commit import refresh_heads
from longtalk.stores.sqlite.conversations import count_entries
from longtalk.stores.sqlite.database import Database, note_pending_purge
from longtalk.stores.sqlite.paths import compress_bytes, decode_pack, split_key, to_key
from longtalk.stores.sqlite.records import count_latest
from longtalk.stores.sqlite.search import (
    INDEX_VERSION,
    add_to_index,
    make_scope,
    read_index_version,
    remove_from_index,
    reset_index,
)
from longtalk.stores.sqlite.turns import TURN_DATA, StoredTurn, decode_turn, join_turns, update_turn
from longtalk.transcript.pack import checksum
from longtalk.transcript.pack_index import PackIndex, pack_column, read_column
from longtalk.transcript.record_kinds import KINDS
from longtalk.transcript.transcript import now

_SIZES = PackIndex.__struct_fields__.index("sizes")
"""The position of the column `sizes` in the encoded index of a pack."""

_LATER_SEGMENTS = """
WITH RECURSIVE later (id) AS (
    SELECT id FROM segments WHERE conversation = :conversation AND up = :segment AND base > :place
    UNION ALL
    SELECT s.id FROM later JOIN segments s ON s.conversation = :conversation AND s.up = later.id
)
"""
_TURNS = f"""
SELECT k.id, {TURN_DATA}, k.name, coalesce(e.turn_checksum, t.turn_checksum) FROM turn_keys k {join_turns("k.id")}
WHERE k.conversation = ?
"""  # noqa: S608
_TURN_RUNS = """
SELECT id, number FROM turn_keys WHERE conversation = ?1 AND name = ?2 AND number IS NOT NULL
UNION ALL
SELECT r.key, r.number FROM turn_keys k JOIN runs r ON r.turn = k.id WHERE k.conversation = ?1 AND k.name = ?2
"""
_REQUESTS = f"""
SELECT checksum, {", ".join(COLUMNS["requests"])} FROM requests
WHERE conversation = ?1 AND turn IN (SELECT id FROM turn_keys WHERE conversation = ?1 AND name = ?2)
"""  # noqa: S608
_QUOTES = "kind NOT IN (SELECT value FROM json_each(:not_quoting))"


def delete_conversation(db: Database, owner: str, name: str) -> DeletionReceipt | None:
    """Delete a conversation and return a receipt, or None if the conversation doesn't exist. See `Store.delete`."""
    number = find_conversation_id(db, owner, name)
    if number is None:
        return None
    entries = count_entries(db, number)
    segments = db.execute("SELECT id, base, indexed FROM segments WHERE conversation = ?", (number,)).fetchall()
    if read_index_version(db) != INDEX_VERSION:
        reset_index(db)
        segments = [(segment, base, base) for segment, base, _ in segments]
    records = count_latest(db, number)
    turns = sum(data is not None for _, data, *_ in db.execute(_TURNS, (number,)))
    for segment, base, indexed in segments:
        remove_from_index(db, make_scope(owner, number), Span(segment, base, indexed))
        bounds = to_key(segment, 0), to_key(segment + 1, 0)
        for table in ("entries", "packs", "entry_meta", "runs"):
            db.execute(f"DELETE FROM {table} WHERE key >= ? AND key < ?", bounds)  # noqa: S608
        db.execute("DELETE FROM records WHERE segment = ?", (segment,))
        records += db.changes()
    branches = db.execute("SELECT count(*) FROM branches WHERE conversation = ?", (number,)).get
    db.execute("DELETE FROM turns WHERE id IN (SELECT id FROM turn_keys WHERE conversation = ?)", (number,))
    for table in ("turn_keys", "requests", "branches", "segments"):
        db.execute(f"DELETE FROM {table} WHERE conversation = ?", (number,))  # noqa: S608
    db.execute("DELETE FROM conversations WHERE id = ?", (number,))
    note_pending_purge(db)
    return DeletionReceipt(
        conversation=name, entries=entries, turns=turns, records=records, branches=branches, at=now()
    )


def redact_entry(db: Database, owner: str, name: str, entry: str, native: bytes) -> bool:
    """Replace the JSON of an entry. Return False if the entry doesn't exist. See `Store.redact`.

    If different entries on two branches have the same id, both are replaced.
    """
    number = find_conversation_id(db, owner, name)
    keys = find_entry_keys(db, number, entry)
    if number is None or not keys:
        return False
    if read_index_version(db) != INDEX_VERSION:
        reset_index(db)
    not_quoting = json.dumps([kind.name for kind in KINDS if not kind.quotes_entries])
    for key in keys:
        _replace_entry(db, make_scope(owner, number), key, native)
        segment, position = split_key(key)
        db.execute("DELETE FROM entry_meta WHERE key = ?", (key,))
        where = {"conversation": number, "segment": segment, "place": position, "not_quoting": not_quoting}
        db.execute(f"DELETE FROM records WHERE segment = :segment AND place >= :place AND {_QUOTES}", where)  # noqa: S608
        db.execute(f"{_LATER_SEGMENTS} DELETE FROM records WHERE segment IN later AND {_QUOTES}", where)  # noqa: S608
    _redact_turns(db, number, get_turn_id(entry))
    for id, revision in db.execute("SELECT id, revision FROM branches WHERE conversation = ?", (number,)).fetchall():  # noqa: A001
        update_row(db, "branches", id, revision=revision + 1)
    refresh_heads(db, number)
    note_pending_purge(db)
    return True


def _redact_turns(db: Database, conversation: int, turn: str) -> None:
    """Remove the texts of errors and the responses of a conversation, and the digests of the requests for one turn."""
    for id, data, name, old in db.execute(_TURNS, (conversation,)).fetchall():  # noqa: A001
        if data is None:
            continue
        stored = decode_turn(data)
        if (redacted := redact_turn(stored)) != stored:
            update_turn(db, StoredTurn(id, data), redacted, None, damaged=not is_intact(old, id, name, data))
    for old, *before in db.execute(_REQUESTS, (conversation, turn)).fetchall():
        new = replace_checksum(old, before, [*before[:2], "", *before[3:]])
        sql = "UPDATE requests SET body = '', checksum = ? WHERE conversation = ? AND key = ?"
        db.execute(sql, (new, *before[:2]))


def find_entry_keys(db: Database, conversation: int | None, entry: str) -> list[int]:
    """Return the keys of all entries with this id. Different entries on different branches may have the same id."""
    turn, _, count = entry.rpartition("-")
    if conversation is None or not count.isdecimal() or not count.isascii() or len(count) > 10:
        return []
    rows = db.execute(_TURN_RUNS, (conversation, turn)).fetchall()
    keys = [key + int(count) - first for key, first in rows if int(count) >= first]
    return [key for key in keys if _has_id(db, key, entry)]


def _has_id(db: Database, key: int, entry: str) -> bool:
    """Return whether the entry with this key exists and has this id."""
    row = db.execute("SELECT turn, number FROM entries WHERE key = ?", (key,)).fetchone()
    if row is not None:
        return entry == f"{row[0]}-{row[1]}"
    pack = _find_pack_row(db, key)
    return pack is not None and decode_pack(*pack[2:6]).entry(key - pack[0]).id == entry


def _find_pack_row(db: Database, key: int) -> tuple[int, int, int, int, bytes, bytes, int | None] | None:
    """Return the row of the pack that contains the entry with this key, or None if no pack contains it."""
    sql = "SELECT key, count, form, crc, columns, array, checksum FROM packs WHERE key <= ? ORDER BY key DESC LIMIT 1"
    row: tuple[int, int, int, int, bytes, bytes, int | None] | None = db.execute(sql, (key,)).fetchone()
    return row if row is not None and key < row[0] + row[1] else None


def _replace_entry(db: Database, scope: str, key: int, native: bytes) -> None:
    """Replace the JSON of the entry with this key, and update the search index."""
    segment, position = split_key(key)
    span = Span(segment, position, position + 1)
    indexed = position < db.execute("SELECT indexed FROM segments WHERE id = ?", (segment,)).get
    if indexed:
        remove_from_index(db, scope, span)
    columns = ", ".join(COLUMNS["entries"])
    row = db.execute(f"SELECT checksum, {columns} FROM entries WHERE key = ?", (key,)).fetchone()  # noqa: S608
    if row is None:
        _replace_in_pack(db, key, native)
    else:
        old, *before = row
        sql = "UPDATE entries SET native = ?, crc = NULL, checksum = ? WHERE key = ?"
        db.execute(sql, (native, replace_checksum(old, before, [*before[:-1], native]), key))
    if indexed:
        add_to_index(db, scope, span)


def _replace_in_pack(db: Database, key: int, native: bytes) -> None:
    """Replace the JSON of the entry with this key in the pack that contains the entry."""
    row = _find_pack_row(db, key)
    if row is None:
        return
    first, count, form, crc, columns, data, old = row
    array = bytes(decode_pack(form, crc, columns, data).array)
    is_damaged = checksum(array) != crc or not is_intact(old, first, count, form, crc, columns)
    # Decode the index as a list, so that columns that a newer version added are kept.
    index = msgspec.msgpack.decode(columns)
    sizes = read_column("I", index[_SIZES])
    i = key - first
    start = 1 + sum(sizes[:i])
    array = array[:start] + native + array[start + sizes[i] - 1 :]
    sizes[i] = len(native) + 1
    index[_SIZES] = pack_column(sizes)
    new = first, count, form, checksum(array), msgspec.msgpack.encode(index)
    db.execute(
        "UPDATE packs SET crc = ?, columns = ?, checksum = ?, array = ? WHERE key = ?",
        (*new[3:], compute_checksum(*new) ^ is_damaged, compress_bytes(array) if form else array, first),
    )
