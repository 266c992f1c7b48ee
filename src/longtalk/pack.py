"""Entries at rest: their JSON as one array, with an index in columns.

The array splices straight into a request, and growing it leaves what was there untouched, checksum included.
An `Entry` is built only when somebody asks for it. `check` proves that an index and an array from outside fit
together and that no entry reaches out of its place, which would let it write into the request around it.
"""

from __future__ import annotations

import re
import sys
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Literal

import msgspec

from longtalk import _json

Kind = Literal["message", "event"]


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One immutable thing in a transcript."""

    id: str = ""
    parent: str | None = None
    turn: str = ""
    """The turn that made it; for an event the call that added it."""
    kind: Kind = "message"
    role: str
    """user, assistant, tool, system; event for an event."""
    wire: str
    """Whose grammar `native` follows: a wire's name, or `longtalk` for what each wire renders in its own way."""
    native: bytes
    """The exact JSON bytes."""
    at: int
    """When, in milliseconds since 1970."""
    mark: str = ""
    """What is special: an answer's "length", "filtered", "interrupted" or "empty"; a result's "error" or "closed"."""


class Index(msgspec.Struct, frozen=True, array_like=True):
    """What a pack knows of its entries, column by column."""

    parent: str | None = None
    """The parent of the first entry."""
    runs: tuple[tuple[str, int, int], ...] = ()
    """Neighbours of one turn: its id, the number of the first, how many."""
    shapes: tuple[tuple[Kind, str, str], ...] = ()
    """The combinations of kind, role and wire that occur …"""
    shape: bytes = b""
    """… and which of them each entry has, a byte each."""
    lengths: bytes = b""
    """Bytes of JSON, as 32-bit numbers, little-endian."""
    times: bytes = b""
    """`Entry.at`, as 64-bit numbers, little-endian."""
    marks: dict[int, str] = {}


class Pack:
    """Entries at rest. `array` is a JSON array of the natives, `crc` its checksum without the closing bracket."""

    __slots__ = ("_lengths", "_run_ends", "_starts", "array", "crc", "index")

    def __init__(self, index: Index, array: bytes | memoryview, crc: int) -> None:
        self.index = index
        self.array = array
        self.crc = crc
        self._starts: list[int] | None = None

    def __len__(self) -> int:
        return len(self.index.shape)

    def check(self, wires: frozenset[str]) -> None:
        """Raise `ValueError` unless index and array fit together; `LookupError` for a wire that is not in `wires`."""
        index, size = self.index, len(self)
        lengths = _column("I", index.lengths)
        if not size == len(lengths) == sum(count for _, _, count in index.runs) == len(_column("q", index.times)):
            raise ValueError("the columns of its index differ in length")
        if any(count < 1 or first < 0 for _, first, count in index.runs) or any(i >= size for i in index.marks):
            raise ValueError("its index is out of range")
        if size and max(index.shape) >= len(index.shapes):
            raise ValueError("its index names a shape that it does not hold")
        for _, _, wire in index.shapes:
            if wire not in wires:
                raise LookupError(wire)
        if _json.lengths(self.array) != lengths.tolist() or len(self.array) != sum(lengths) + max(size, 1) + 1:
            raise ValueError("its entries are not where its index says")
        if bytes(map(self.array.__getitem__, self._offsets())).count(b"{") != size:
            raise ValueError("an entry is not a JSON object")

    def _offsets(self) -> list[int]:
        if self._starts is None:
            self._lengths = _column("I", self.index.lengths)
            self._run_ends = list(accumulate(count for _, _, count in self.index.runs))
            # One byte of bracket before the first, one of comma after each.
            self._starts = list(accumulate((n + 1 for n in self._lengths[:-1]), initial=1)) if len(self) else []
        return self._starts

    def _id(self, i: int) -> tuple[str, str]:
        run = bisect_right(self._run_ends, i)
        turn, first, count = self.index.runs[run]
        return turn, f"{turn}-{first + i - (self._run_ends[run] - count)}"

    def entry(self, i: int) -> Entry:
        start = self._offsets()[i]
        index = self.index
        kind, role, wire = index.shapes[index.shape[i]]
        turn, id = self._id(i)  # noqa: A001
        return Entry(
            id=id,
            parent=self._id(i - 1)[1] if i else index.parent,
            turn=turn,
            kind=kind,
            role=role,
            wire=wire,
            native=bytes(self.array[start : start + self._lengths[i]]),
            at=int.from_bytes(index.times[8 * i : 8 * i + 8], "little", signed=True),
            mark=index.marks.get(i, ""),
        )

    def groups(self) -> Iterator[tuple[str, int, bool]]:
        """Neighbours of one turn: its id, their number, and whether they are all events."""
        index, start = self.index, 0
        events = bytes(i for i, (kind, _, _) in enumerate(index.shapes) if kind == "event")
        for turn, _, count in index.runs:
            yield turn, count, not index.shape[start : start + count].strip(events)
            start += count

    def splice(
        self, start: int, stop: int, wire: str, render: Callable[[Entry], bytes | None]
    ) -> list[bytes | memoryview]:
        """See `Transcript.splice`: long runs of this wire's entries are one slice of the array."""
        if start >= stop:
            return []
        starts, view = self._offsets(), memoryview(self.array)
        index = self.index
        special = {i for i in index.marks if start <= i < stop}
        foreign = bytes(i for i, shape in enumerate(index.shapes) if shape[2] != wire)
        if foreign:
            found = re.finditer(b"[" + re.escape(foreign) + b"]", index.shape[start:stop])
            special.update(start + match.start() for match in found)
        pieces: list[bytes | memoryview] = []
        for i in (*sorted(special), stop):
            if start < i:
                pieces.append(view[starts[start] : starts[i - 1] + self._lengths[i - 1]])
            if i < stop:
                piece = render(self.entry(i))
                if piece is not None:
                    pieces.append(piece)
            start = i + 1
        return pieces

    def extend(self, entries: Sequence[Entry]) -> Pack:
        """This pack and more entries behind it."""
        if not entries:
            return self
        index, size = self.index, len(self)
        runs, shapes = list(index.runs), list(index.shapes)
        codes = {shape: code for code, shape in enumerate(shapes)}
        shape, marks = bytearray(index.shape), dict(index.marks)
        for i, entry in enumerate(entries, size):
            number = int(entry.id[len(entry.turn) + 1 :])
            if runs and runs[-1][0] == entry.turn and runs[-1][1] + runs[-1][2] == number:
                runs[-1] = (entry.turn, runs[-1][1], runs[-1][2] + 1)
            else:
                runs.append((entry.turn, number, 1))
            key = (entry.kind, entry.role, entry.wire)
            if key not in codes:
                codes[key] = len(shapes)
                shapes.append(key)
            shape.append(codes[key])
            if entry.mark:
                marks[i] = entry.mark
        natives = [entry.native for entry in entries]
        more = (b"," if size else b"") + b",".join(natives)
        return Pack(
            Index(
                parent=index.parent if size else entries[0].parent,
                runs=tuple(runs),
                shapes=tuple(shapes),
                shape=bytes(shape),
                lengths=index.lengths + _bytes("I", map(len, natives)),
                times=index.times + _bytes("q", (entry.at for entry in entries)),
                marks=marks,
            ),
            b"".join((memoryview(self.array)[:-1], more, b"]")),
            zlib.crc32(more, self.crc),
        )


def checksum(data: bytes | memoryview) -> int:
    """The `crc` that a pack with this array has."""
    return zlib.crc32(memoryview(data)[:-1])


EMPTY = Pack(Index(), b"[]", checksum(b"[]"))


def _column(code: str, data: bytes) -> array[int]:
    column = array(code)
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _bytes(code: str, numbers: Iterator[int]) -> bytes:
    column = array(code, numbers)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()
