"""Paths in the SQLite store: the spans of segments that a path consists of, and the path's entries.

The newest entries of a segment are rows; older entries are stored together in packs. `read_pack` doesn't build entry
objects: it slices and joins packs as they are stored, and turns rows into columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from longtalk.stores._paths import Span, clip
from longtalk.stores._rows import pack_from_rows
from longtalk.stores.sqlite.checksums import compute_checksum, is_intact
from longtalk.stores.sqlite.database import DamagedData, Database
from longtalk.stores.sqlite.schema import POSITION_BITS
from longtalk.transcript.pack import EMPTY, Entry, Pack, join_slices
from longtalk.transcript.pack_index import PackIndex, read_column

MAX_ROW_BYTES = 128 * 1024
"""The maximum size, in bytes of JSON, of a segment's rows. Beyond that, the oldest rows are moved into packs."""
PACK_BYTES = 64 * 1024
"""The size, in bytes of JSON, at which a pack is full. The rest of its last turn is still added, up to a limit."""
MAX_PATH = 1 << POSITION_BITS
"""The number of positions that a key can express. A path must have fewer entries than that."""

_COLUMNS = "turn, number, parent, kind, role, wire, at, mark, bound, tokens, native"
_ROWS = f"SELECT {_COLUMNS} FROM entries WHERE key >= ? AND key < ? ORDER BY key"  # noqa: S608
_CHECKED_ROWS = f"SELECT checksum, key, {_COLUMNS} FROM entries WHERE key >= ? AND key < ? ORDER BY key"  # noqa: S608
_PACKS = """
SELECT key, form, crc, columns, array FROM packs
WHERE key < :stop AND key >= coalesce((SELECT max(key) FROM packs WHERE key >= :zero AND key <= :start), :start)
    AND key + count > :start
ORDER BY key
"""
_PACK = """
SELECT key, count, form, crc, columns, array FROM packs WHERE key >= ? AND key <= ? ORDER BY key DESC LIMIT 1
"""
_PATH = """
WITH RECURSIVE path (id, up, base, stop) AS (
    SELECT id, up, base, :size FROM segments WHERE id = :segment
    UNION ALL
    SELECT s.id, s.up, s.base, path.base FROM path JOIN segments s ON s.id = path.up
    WHERE path.base > :start
)
SELECT id, base, stop FROM path
"""
_MOVE_TURNS = """
INSERT INTO turns (id, name, data, manifest, turn_checksum, manifest_checksum)
SELECT key, turn, turn_data, manifest, turn_checksum, manifest_checksum FROM entries
WHERE key >= ? AND key < ? AND turn_data IS NOT NULL
"""

_index_decoder = msgspec.msgpack.Decoder(PackIndex)
_encode = msgspec.msgpack.Encoder().encode


def to_key(segment: int, position: int) -> int:
    """Return the database key of the entry at a position of a segment."""
    return segment << POSITION_BITS | position


def to_position(key: int) -> int:
    """Return the position of the entry that has this database key."""
    return key & MAX_PATH - 1


def split_key(key: int) -> tuple[int, int]:
    """Return the segment and the position of the entry that has this database key."""
    return key >> POSITION_BITS, key & MAX_PATH - 1


def read_path(db: Database, segment: int, size: int, start: int = -1) -> list[Span[int]]:
    """Return the first `size` entries of the path that ends in `segment`, as spans from the root on.

    With `start`, spans before the one that contains this position are left out.
    """
    rows = db.execute(_PATH, {"segment": segment, "size": size, "start": start})
    return [Span(*row) for row in rows][::-1]


def read_pack(db: Database, path: Sequence[Span[int]], start: int, stop: int) -> Pack:
    """Return the entries at positions `start` to `stop - 1` of a path as one pack."""
    slices: list[tuple[Pack, int, int]] = []
    for span in clip(path, start, stop):
        slices += _read_slices(db, *span)
    if len(slices) == 1 and slices[0][2] - slices[0][1] == len(slices[0][0]):
        return slices[0][0]
    return join_slices(slices) if slices else EMPTY


def _read_slices(db: Database, segment: int, start: int, stop: int) -> list[tuple[Pack, int, int]]:
    """Return packs that contain the entries at positions `start` to `stop - 1` of a segment.

    Each pack comes with the start and stop of the range of its entries that belong to the result.
    """
    slices: list[tuple[Pack, int, int]] = []
    zero, key, end = to_key(segment, 0), to_key(segment, start), to_key(segment, stop)
    for first, form, crc, columns, data in db.execute(_PACKS, {"start": key, "stop": end, "zero": zero}):
        pack = decode_pack(form, crc, columns, data)
        slices.append((pack, key - first, min(len(pack), end - first)))
        key = first + slices[-1][2]
    if key < end:
        rows = _read_rows(db, key, end)
        slices.append((pack_from_rows(rows), 0, len(rows)))
    return slices


def read_ranges(db: Database, path: Sequence[Span[int]], ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
    """Return the entries of several ranges of a path, as one list per range.

    A pack that contains entries of several consecutive ranges is read only once.
    """
    found: list[list[Entry]] = []
    pack, first = EMPTY, 0
    for start, stop in ranges:
        entries: list[Entry] = []
        for span in clip(path, start, stop):
            key, end = to_key(span.segment, span.start), to_key(span.segment, span.stop)
            while key < end:
                if not first <= key < first + len(pack):
                    row = db.execute(_PACK, (to_key(span.segment, 0), key)).fetchone()
                    if row is None or key >= row[0] + row[1]:
                        entries += _read_row_entries(db, key, end)
                        break
                    first, pack = row[0], decode_pack(*row[2:])
                indexes = range(key - first, min(end - first, len(pack)))
                entries += map(pack.entry, indexes)
                key += len(indexes)
        found.append(entries)
    return found


def _read_rows(db: Database, start: int, stop: int) -> list[tuple[Any, ...]]:
    """Return the rows with the keys `start` to `stop - 1`. Raise `DamagedData` if any of them is missing."""
    rows: list[tuple[Any, ...]] = db.execute(_ROWS, (start, stop)).fetchall()
    if len(rows) != stop - start:
        raise DamagedData(f"some entries from position {to_position(start)} to {to_position(stop - 1)} are missing")
    return rows


def _read_row_entries(db: Database, start: int, stop: int) -> list[Entry]:
    """Return the entries with the keys `start` to `stop - 1`, which must be stored as rows."""
    return [
        Entry(
            id=f"{turn}-{number}",
            parent=parent,
            turn=turn,
            kind=kind,
            role=role,
            wire=wire,
            native=native,
            at=at,
            mark=mark or "",
            bound=bound or "",
            tokens=tokens,
        )
        for turn, number, parent, kind, role, wire, at, mark, bound, tokens, native in _read_rows(db, start, stop)
    ]


def pack_oldest_rows(db: Database, segment: int, sealed: int, size: int, *, compress: bool) -> tuple[int, int]:
    """Move the oldest rows of a segment into packs until the remaining rows are within the size limit.

    All entries before position `sealed` are in packs already, and `size` is the position after the last entry. Returns
    the new value of `sealed`, and the size of the remaining rows in bytes of JSON.
    """
    zero = to_key(segment, 0)
    rows = db.execute(
        "SELECT turn, length(native) FROM entries WHERE key >= ? AND key < ? ORDER BY key", (zero + sealed, zero + size)
    ).fetchall()
    loose = sum(length for _, length in rows)
    # Rows are not compressed, so a store that compresses moves them into packs sooner.
    enough, limit = (PACK_BYTES // 2, MAX_ROW_BYTES // 2) if compress else (PACK_BYTES, MAX_ROW_BYTES)
    i = 0
    while loose > limit:
        first, pack_size = i, 0
        # Keep a turn in one pack, unless the pack would become larger than `limit`.
        while i < len(rows) and (pack_size < enough or (rows[i][0] == rows[i - 1][0] and pack_size < limit)):
            pack_size += rows[i][1]
            i += 1
        _pack_rows(db, zero + sealed + first, zero + sealed + i, compress=compress)
        loose -= pack_size
    return sealed + i, loose


def _pack_rows(db: Database, start: int, stop: int, *, compress: bool) -> None:
    """Move the rows with the keys `start` to `stop - 1` into one pack, and the turns in them to the table `turns`."""
    rows = db.execute(_CHECKED_ROWS, (start, stop)).fetchall()
    pack = pack_from_rows([row[2:] for row in rows])
    extra = dict(
        db.execute(
            "SELECT key - ?1, extra FROM entries WHERE key >= ?1 AND key < ?2 AND extra IS NOT NULL", (start, stop)
        ).fetchall()
    )
    data = bytes(pack.array)
    row = start, len(pack), int(compress), pack.crc, _encode(pack.index)
    # If an entry is damaged, so is its pack.
    checksum = compute_checksum(*row) ^ (not all(is_intact(*each) for each in rows))
    db.execute(
        "INSERT INTO packs (key, count, form, crc, columns, checksum, extra, array) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (*row, checksum, _encode(extra) if extra else None, compress_bytes(data) if compress else data),
    )
    db.execute(_MOVE_TURNS, (start, stop))
    db.execute("DELETE FROM entries WHERE key >= ? AND key < ?", (start, stop))


def decode_pack(form: int, crc: int, columns: bytes, data: bytes) -> Pack:
    """Decode a pack from columns of the table `packs`. Raise `DamagedData` if the columns can't be decoded."""
    try:
        index = _index_decoder.decode(columns)
        data = decompress_bytes(data) if form else data
        size = 1 + sum(read_column("I", index.sizes))
    except ValueError as problem:
        raise DamagedData(f"pack data can't be decoded: {problem}") from None
    if len(data) != size:
        raise DamagedData(f"pack data has {len(data)} bytes instead of {size}")
    return Pack(index, data, crc)


def compress_bytes(data: bytes) -> bytes:
    """Compress data with zstd."""
    compressed: bytes = _import_zstd().compress(data)
    return compressed


def decompress_bytes(data: bytes) -> bytes:
    """Decompress data with zstd. Raise `ValueError` if the data is invalid."""
    try:
        decompressed: bytes = _import_zstd().decompress(data)
    except _import_zstd().ZstdError as problem:
        raise ValueError(str(problem)) from None
    return decompressed


def _import_zstd() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from backports import zstd
    return zstd
