"""Paths of a store in SQLite: which parts of which segments they are, and their entries as one pack.

A read never builds an entry: sealed packs are cut and joined as they lie, and rows become columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from longtalk.pack import EMPTY, Entry, Index, Pack, checksum, column, woven
from longtalk.stores.rows import from_rows
from longtalk.stores.sqlite_file import Damaged, Database
from longtalk.stores.sqlite_schema import PLACES

SEAL_AT = 128 * 1024
"""Bytes of JSON in rows at the end of a segment, from which on the oldest are sealed."""
SEAL = 64 * 1024
"""Bytes of JSON of one pack: it ends with the turn that passes this."""
LONGEST = 1 << PLACES

_COLUMNS = "turn, number, parent, kind, role, wire, at, mark, bound, tokens, native"
_ROWS = f"SELECT {_COLUMNS} FROM entries WHERE key >= ? AND key < ? ORDER BY key"  # noqa: S608
_PACKS = """
SELECT key, form, crc, columns, array FROM packs
WHERE key < :stop AND key >= coalesce((SELECT max(key) FROM packs WHERE key >= :zero AND key <= :start), :start)
    AND key + count > :start
ORDER BY key
"""
_PACK = """
SELECT key, count, form, crc, columns, array FROM packs WHERE key >= ? AND key <= ? ORDER BY key DESC LIMIT 1
"""
_WALK = """
WITH RECURSIVE path (id, up, base, stop) AS (
    SELECT id, up, base, :size FROM segments WHERE id = :segment
    UNION ALL
    SELECT s.id, s.up, s.base, path.base FROM path JOIN segments s ON s.id = path.up
    WHERE path.base > :start
)
SELECT id, base, stop FROM path
"""
_NEEDED = """
SELECT id, base, max(base,
    coalesce((SELECT max(size) FROM branches b WHERE b.conversation = s.conversation AND b.segment = s.id), 0),
    coalesce((SELECT max(base) FROM segments t WHERE t.conversation = s.conversation AND t.up = s.id), 0))
FROM segments s WHERE conversation = ? ORDER BY id
"""

_index = msgspec.msgpack.Decoder(Index)
_encode = msgspec.msgpack.Encoder().encode


class Span(NamedTuple):
    """The part start … stop of a path that lies in one segment."""

    segment: int
    start: int
    stop: int


def key(segment: int, place: int) -> int:
    return segment << PLACES | place


def place_of(key: int) -> int:
    return key & LONGEST - 1


def spans(db: Database, segment: int, size: int, start: int = -1) -> list[Span]:
    """The path of so many entries that ends in this segment, from the root on or from the one that holds `start`."""
    rows = db.execute(_WALK, {"segment": segment, "size": size, "start": start})
    return [Span(*row) for row in rows][::-1]


def pack(db: Database, path: Sequence[Span], start: int, stop: int) -> Pack:
    """The entries start … stop of a path."""
    slices: list[tuple[Pack, int, int]] = []
    for segment, first, end in path:
        if max(start, first) < min(stop, end):
            slices += _slices(db, segment, max(start, first), min(stop, end))
    if len(slices) == 1 and slices[0][2] - slices[0][1] == len(slices[0][0]):
        return slices[0][0]
    return woven(slices) if slices else EMPTY


def _slices(db: Database, segment: int, start: int, stop: int) -> list[tuple[Pack, int, int]]:
    """Packs, and which of their entries together are start … stop of a segment."""
    found: list[tuple[Pack, int, int]] = []
    zero = key(segment, 0)
    at = zero + start
    for first, form, crc, columns, data in db.execute(_PACKS, {"start": at, "stop": zero + stop, "zero": zero}):
        sealed = unsealed(form, crc, columns, data)
        found.append((sealed, at - first, min(len(sealed), zero + stop - first)))
        at = first + found[-1][2]
    if at < zero + stop:
        rows = db.execute(_ROWS, (at, zero + stop)).fetchall()
        if len(rows) != zero + stop - at:
            raise Damaged("entries are missing")
        found.append((from_rows(rows), 0, len(rows)))
    return found


def picked(db: Database, path: Sequence[Span], ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
    """The entries of several parts of a path. A pack that some of them lie in is read once."""
    found: list[list[Entry]] = []
    sealed, first = EMPTY, 0
    for start, stop in ranges:
        entries: list[Entry] = []
        for segment, base, end in path:
            at, until = key(segment, max(start, base)), key(segment, min(stop, end))
            while at < until:
                if not first <= at < first + len(sealed):
                    row = db.execute(_PACK, (key(segment, 0), at)).fetchone()
                    if row is None or at >= row[0] + row[1]:
                        entries += _loose(db, at, until)
                        break
                    first, sealed = row[0], unsealed(*row[2:])
                some = range(at - first, min(until - first, len(sealed)))
                entries += map(sealed.entry, some)
                at += len(some)
        found.append(entries)
    return found


def _loose(db: Database, start: int, stop: int) -> list[Entry]:
    """Entries that lie in rows."""
    rows = db.execute(_ROWS, (start, stop)).fetchall()
    if len(rows) != stop - start:
        raise Damaged("entries are missing")
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
        for turn, number, parent, kind, role, wire, at, mark, bound, tokens, native in rows
    ]


def seal(db: Database, segment: int, sealed: int, size: int, *, compress: bool) -> tuple[int, int]:
    """Make packs of the oldest rows of a segment: the place up to which it is sealed now, and the bytes behind."""
    zero = key(segment, 0)
    rows = db.execute(
        "SELECT turn, length(native) FROM entries WHERE key >= ? AND key < ? ORDER BY key", (zero + sealed, zero + size)
    ).fetchall()
    loose = sum(length for _, length in rows)
    # Who wants it small wants it soon: rows are not compressed.
    enough, limit = (SEAL // 2, SEAL_AT // 2) if compress else (SEAL, SEAL_AT)
    i = 0
    while loose > limit:
        first, held = i, 0
        # A turn is not torn, unless it would make a pack of more than twice the length.
        while i < len(rows) and (held < enough or (rows[i][0] == rows[i - 1][0] and held < limit)):
            held += rows[i][1]
            i += 1
        _seal(db, zero + sealed + first, zero + sealed + i, compress=compress)
        loose -= held
    return sealed + i, loose


def _seal(db: Database, start: int, stop: int, *, compress: bool) -> None:
    rows = db.execute(_ROWS, (start, stop)).fetchall()
    made = from_rows(rows)
    extra = dict(
        db.execute(
            "SELECT key - ?1, extra FROM entries WHERE key >= ?1 AND key < ?2 AND extra IS NOT NULL", (start, stop)
        ).fetchall()
    )
    data = bytes(made.array)
    db.execute(
        "INSERT INTO packs (key, count, form, crc, extra, columns, array) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            *(start, len(made), int(compress), made.crc),
            *(_encode(extra) if extra else None, _encode(made.index), squeezed(data) if compress else data),
        ),
    )
    db.execute("DELETE FROM entries WHERE key >= ? AND key < ?", (start, stop))


def unsealed(form: int, crc: int, columns: bytes, data: bytes) -> Pack:
    """A pack from its row."""
    try:
        index = _index.decode(columns)
        data = stretched(data) if form else data
        size = 1 + sum(column("I", index.sizes))
    except ValueError as problem:
        raise Damaged(f"a pack can't be read: {problem}") from None
    if len(data) != size:
        raise Damaged("a pack is not as long as it says")
    return Pack(index, data, crc)


def problems(db: Database, conversation: int) -> list[str]:
    """What is wrong with the entries of a conversation: missing or not readable, checksums that do not hold."""
    found: list[str] = []
    for segment, base, stop in db.execute(_NEEDED, (conversation,)).fetchall():
        bounds = key(segment, 0), key(segment + 1, 0)
        # Where the next entry has to be; unknown behind a pack that can't be read.
        end: int | None = key(segment, base)
        packs = db.execute(
            "SELECT key, count, form, crc, columns, array FROM packs WHERE key >= ? AND key < ? ORDER BY key", bounds
        )
        for at, count, *held in packs:
            found += _gap(end, at)
            try:
                _prove(unsealed(*held), count)
                end = at + count
            except (Damaged, ValueError, LookupError) as problem:
                found.append(f"the pack that begins at place {place_of(at)}: {problem}")
                end = None
        rows = db.execute("SELECT key, native, crc FROM entries WHERE key >= ? AND key < ? ORDER BY key", bounds)
        for at, native, crc in rows:
            found += _gap(end, at)
            end = at + 1
            if crc not in (None, checksum(native)):
                found.append(f"the entry at place {at & (1 << PLACES) - 1}: its checksum does not hold")
        if end is not None and end < key(segment, stop):
            found += _gap(end, key(segment, stop))
    return found


def _gap(end: int | None, at: int) -> list[str]:
    return [] if end in (None, at) else [f"entries are missing before place {place_of(at)}"]


def _prove(sealed: Pack, count: int) -> None:
    """Raise `ValueError` or `LookupError` unless a pack holds so many entries, as they were written."""
    if len(sealed) != count or sealed.array[-1:] != b"]" or checksum(sealed.array) != sealed.crc:
        raise ValueError("its checksum does not hold")
    for i in range(count):
        sealed.entry(i)


def squeezed(data: bytes) -> bytes:
    done: bytes = _zstd().compress(data)
    return done


def stretched(data: bytes) -> bytes:
    try:
        done: bytes = _zstd().decompress(data)
    except _zstd().ZstdError as problem:
        raise ValueError(str(problem)) from None
    return done


def _zstd() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from backports import zstd
    return zstd
