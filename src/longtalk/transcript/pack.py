"""Packs: many entries stored as one JSON array, with an index of their properties in columns.

The array can be inserted into a request unchanged. Appending entries leaves the existing bytes unchanged, so the
checksum is extended rather than computed again. An `Entry` is built only on demand. A pack from outside is checked by
`longtalk.transcript.pack_check`.
"""

from __future__ import annotations

import re
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TypeAlias

import msgspec

from longtalk.transcript.pack_index import MAX_COUNT, MAX_SHAPES, Kind, PackIndex, pack_column, read_column

OWN = "longtalk"
"""The wire name of events and system messages, which have no provider's format: each wire renders them in its own way.
"""

ANSWERS = ("assistant", "tool")
"""The roles of entries that never begin an exchange."""

Plain: TypeAlias = Callable[[str, str], bool]
"""A function that takes a role and a wire name, and returns True if entries with both can be sent unchanged."""

VERBATIM = "verbatim"
"""In the mark of an answer: its end looks like a memory card and is text."""
LOOKALIKE = "lookalike"
"""In the mark of a message or result: it contains what looks like a tag of Longtalk's (`_util/lookalikes.py`)."""
CHECKED = "checked"
"""In the mark of a conversation's first entry: every entry from it on that needs the mark `LOOKALIKE` has it."""
_WORDS = (VERBATIM, LOOKALIKE, CHECKED)


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One immutable message or event of a transcript."""

    id: str = ""
    parent: str | None = None
    turn: str = ""
    """The id of the turn that added the entry; for an event, the id of the call to the library that added it."""
    kind: Kind = "message"
    role: str
    """`user`, `assistant`, `tool` or `system`; `event` for an event."""
    wire: str
    """The name of the wire (message format) of `native`; `longtalk` for content that each wire renders in its own way.
    """
    native: bytes
    """The exact JSON bytes of the message."""
    at: int
    """When the entry was made, in milliseconds since 1970."""
    mark: str = ""
    """A special condition; empty for most entries.

    It is "length", "filtered", "interrupted" or "empty" for an answer, and "error" or "closed" for a tool result. The
    words "verbatim", "lookalike" and "checked" may follow, or stand alone.
    """
    bound: str = ""
    """For an answer with blocks that only its provider can read: a fingerprint of the context in which they are valid.

    See `Context.bound`. It is empty for other entries.
    """
    tokens: int = 0
    """The number of tokens, counted when the entry was added; 0 if it is unknown."""

    @property
    def is_verbatim(self) -> bool:
        """Whether the end of the answer looks like a memory card but is part of its text."""
        return VERBATIM in self.mark.split()

    @property
    def is_lookalike(self) -> bool:
        """Whether the text contains something that looks like a tag of Longtalk's."""
        return LOOKALIKE in self.mark.split()

    @property
    def condition(self) -> str:
        """What is wrong with the entry, such as "error", by the first word of its mark; empty if nothing is."""
        first = self.mark.partition(" ")[0]
        return "" if first in _WORDS else first

    def with_mark(self, word: str) -> Entry:
        """Return the entry with a word added to its mark, unless the mark has it."""
        if word in self.mark.split():
            return self
        return msgspec.structs.replace(self, mark=f"{self.mark} {word}".strip())


class Pack:
    """A pack of entries. `array` is the JSON array of their messages, and `crc` its checksum (see `checksum`)."""

    __slots__ = ("_ends", "_last", "_numbers", "_starts", "_totals", "array", "crc", "index", "size")

    def __init__(self, index: PackIndex, array: bytes | memoryview, crc: int) -> None:
        self.index = index
        self.array = array
        self.crc = crc
        self.size = len(index.shape)
        """The number of entries."""
        self._last: Entry | None = None
        self._starts: list[int] | None = None
        self._ends: list[int] | None = None
        self._totals = index.totals
        self._numbers: list[list[int]] | None = None

    def __len__(self) -> int:
        return self.size

    def offsets(self) -> list[int]:
        """Return the offset of each entry in the array, followed by the offset of the end."""
        if self._starts is None:
            self._starts = list(accumulate(read_column("I", self.index.sizes), initial=1))
        return self._starts

    def natives(self, start: int, stop: int) -> memoryview:
        """Return the JSON of the entries from position `start` up to but not including `stop`, separated by commas."""
        starts = self.offsets()
        return memoryview(self.array)[starts[start] : starts[stop] - 1]

    def tokens(self, stop: int) -> int:
        """Return the total number of tokens of all entries before position `stop`."""
        totals = self._totals if len(self._totals) == 8 * self.size else self.totals()
        return int.from_bytes(totals[8 * stop - 8 : 8 * stop], "little") if stop else 0

    def totals(self) -> bytes:
        """Return the `totals` column of the index, estimated from entry sizes if tokens were never counted."""
        if len(self._totals) != 8 * self.size:
            sizes = read_column("I", self.index.sizes)
            self._totals = pack_column(array("Q", accumulate(estimate_tokens(size) for size in sizes)))
        return self._totals

    def _turn_and_id(self, i: int) -> tuple[str, str]:
        """Return the id of the turn of the entry at position `i`, and the id of the entry."""
        ends = self._run_ends()
        run = bisect_right(ends, i)
        turn, first = self.index.turns[run], int.from_bytes(self.index.firsts[4 * run : 4 * run + 4], "little")
        return turn, f"{turn}-{first + i - (ends[run - 1] if run else 0)}"

    def id(self, i: int) -> str:
        """Return the id of the entry at position `i`."""
        return self._turn_and_id(i)[1]

    def parent(self, i: int) -> str | None:
        """Return the id of the parent of the entry at position `i`, or None for the first entry of a conversation."""
        if i in self.index.parents:
            return self.index.parents[i]
        return self._turn_and_id(i - 1)[1] if i else self.index.parent

    def _run_ends(self) -> list[int]:
        """Return the end position of each run of consecutive entries that belong to the same turn."""
        if self._ends is None:
            self._ends = list(accumulate(read_column("I", self.index.counts)))
        return self._ends

    def _special(self, start: int, stop: int, first: int) -> list[dict[int, str]]:
        """Return the marks, bounds and parents of the entries from `start` to `stop`, as dicts by position.

        The positions are shifted so that `start` becomes `first`.
        """
        tables = (self.index.marks, self.index.bounds, self.index.parents)
        if self._numbers is None:
            self._numbers = [sorted(table) for table in tables]
        return [
            {first + i - start: table[i] for i in numbers[bisect_left(numbers, start) : bisect_left(numbers, stop)]}
            for table, numbers in zip(tables, self._numbers, strict=True)
        ]

    def entries(self) -> list[Entry]:
        """Return all entries of the pack."""
        return [self.entry(i) for i in range(len(self))]

    def entry(self, i: int) -> Entry:
        """Return the entry at position `i`."""
        native = bytes(self.natives(i, i + 1))
        index = self.index
        kind, role, wire = index.shapes[index.shape[i]]
        turn, id = self._turn_and_id(i)  # noqa: A001
        return Entry(
            id=id,
            parent=self.parent(i),
            turn=turn,
            kind=kind,
            role=role,
            wire=wire,
            native=native,
            at=int.from_bytes(index.times[8 * i : 8 * i + 8], "little"),
            mark=index.marks.get(i, ""),
            bound=index.bounds.get(i, ""),
            tokens=max(0, self.tokens(i + 1) - self.tokens(i)),
        )

    @property
    def last(self) -> Entry | None:
        """The last entry, built once; None if the pack is empty."""
        if self._last is None and self.size:
            self._last = self.entry(self.size - 1)
        return self._last

    def groups(self, start: int) -> Iterator[tuple[str, int, bool, bool]]:
        """Yield the runs of consecutive entries that belong to the same turn, from position `start` on.

        Each run is a tuple: the id of the turn, the number of entries, True if the run can begin an exchange, and True
        if it consists of events only.
        """
        index, ends = self.index, self._run_ends()
        events = bytes(i for i, (kind, _, _) in enumerate(index.shapes) if kind == "event")
        for run in range(bisect_right(ends, start), len(ends)):
            stop = ends[run]
            opens = index.shapes[index.shape[start]][1] not in ANSWERS
            yield index.turns[run], stop - start, opens, not index.shape[start:stop].strip(events)
            start = stop

    def walk(self, start: int, stop: int, plain: Plain) -> list[tuple[int, memoryview | bytes | Entry]]:
        """Return the entries from `start` to `stop` as `Transcript.walk` does.

        Consecutive entries that can be sent unchanged are returned together, as one slice of the array.
        """
        if start >= stop:
            return []
        index = self.index
        found: list[tuple[int, memoryview | bytes | Entry]] = []
        special: set[int] = set()
        if index.marks or index.bounds:
            special.update([i for i in (*index.marks, *index.bounds) if start <= i < stop])
            if index.marks.get(0) == CHECKED and 0 not in index.bounds:
                special.discard(0)
        for _, role, wire in index.shapes:
            if not plain(role, wire):
                special.update(self.find(lambda role, wire: not plain(role, wire), start, stop))
                break
        for i in (*sorted(special), stop):
            if start < i:
                found.append((start, self.natives(start, i)))
            if i < stop:
                found.append((i, self.entry(i)))
            start = i + 1
        return found

    def find(self, wanted: Plain, start: int, stop: int) -> Iterator[int]:
        """Yield the positions from `start` to `stop` of the entries whose role and wire satisfy `wanted`."""
        codes = bytes(code for code, (_, role, wire) in enumerate(self.index.shapes) if wanted(role, wire))
        if codes:
            for match in re.finditer(b"[%s]" % re.escape(codes), self.index.shape[start:stop]):
                yield start + match.start()

    def grow(self, entries: Sequence[Entry]) -> tuple[PackIndex, bytes, int]:
        """Return the changes when entries are appended: the new index, the bytes to add, and the new checksum.

        The added bytes replace the closing bracket of the array.
        """
        if not entries:
            return self.index, b"]", self.crc
        index, size = self.index, len(self)
        turns, firsts, counts = list(index.turns), read_column("I", index.firsts), read_column("I", index.counts)
        shapes, shape = list(index.shapes), bytearray(index.shape)
        marks, bounds, parents = dict(index.marks), dict(index.bounds), dict(index.parents)
        before = self._turn_and_id(size - 1)[1] if size else entries[0].parent
        codes = {shape: code for code, shape in enumerate(shapes)}
        for i, entry in enumerate(entries, size):
            number = int(entry.id[len(entry.turn) + 1 :])
            if turns and turns[-1] == entry.turn and firsts[-1] + counts[-1] == number:
                counts[-1] += 1
            else:
                turns.append(entry.turn)
                firsts.append(number)
                counts.append(1)
            key = (entry.kind, entry.role, entry.wire)
            if key not in codes:
                codes[key] = len(shapes)
                shapes.append(key)
            shape.append(codes[key])
            if entry.mark:
                marks[i] = entry.mark
            if entry.bound:
                bounds[i] = entry.bound
            if entry.parent is not None and entry.parent != before:
                parents[i] = entry.parent
            before = entry.id
        natives = [entry.native for entry in entries]
        tokens = list(accumulate([entry.tokens for entry in entries], initial=self.tokens(size)))[1:]
        more = (b"," if size else b"") + b",".join(natives)
        grown = PackIndex(
            parent=index.parent if size else entries[0].parent,
            turns=tuple(turns),
            firsts=pack_column(firsts),
            counts=pack_column(counts),
            shapes=tuple(shapes),
            shape=bytes(shape),
            sizes=index.sizes + pack_column(array("I", [len(native) + 1 for native in natives])),
            times=index.times + pack_column(array("q", [entry.at for entry in entries])),
            marks=marks,
            bounds=bounds,
            totals=self.totals() + pack_column(array("Q", tokens)),
            parents=parents,
        )
        return grown, more + b"]", zlib.crc32(more, self.crc)


def join_slices(slices: Sequence[tuple[Pack, int, int]]) -> Pack:
    """Return one pack with the entries of several slices, in this order, at about the cost of copying their bytes.

    Each slice is a pack with the positions where the slice starts and stops.
    """
    if len(slices) == 1 and slices[0][1:] == (0, len(slices[0][0])):
        return slices[0][0]
    turns: list[str] = []
    firsts, counts, totals = array("I"), array("I"), array("Q")
    codes: dict[tuple[Kind, str, str], int] = {}
    shape, sizes, times = bytearray(), bytearray(), bytearray()
    marks: dict[int, str] = {}
    bounds: dict[int, str] = {}
    parents: dict[int, str] = {}
    natives: list[memoryview] = []
    parent = last = None
    for pack, start, stop in slices:
        if start == stop:
            continue
        index, size, ends = pack.index, len(shape), pack._run_ends()
        low, high = bisect_right(ends, start), bisect_left(ends, stop) + 1
        first = read_column("I", index.firsts[4 * low : 4 * high])
        count = read_column("I", index.counts[4 * low : 4 * high])
        before = start - (ends[low - 1] if low else 0)
        first[0] += before
        count[0] -= before
        count[-1] -= ends[high - 1] - stop
        continues = size > 0 and turns[-1] == index.turns[low] and firsts[-1] + counts[-1] == first[0]
        if continues:
            counts[-1] += count[0]
        turns += index.turns[low + continues : high]
        firsts += first[continues:]
        counts += count[continues:]

        table = bytearray(256)
        for code in dict.fromkeys(index.shape[start:stop]):
            table[code] = codes.setdefault(index.shapes[code], len(codes)) % 256
        shape += index.shape[start:stop].translate(table)

        for merged, special in zip((marks, bounds, parents), pack._special(start, stop, size), strict=True):
            merged.update(special)
        parents.pop(size, None)
        linked = pack.parent(start)
        if not size:
            parent = linked
        elif linked is not None and linked != last:
            parents[size] = linked
        last = pack._turn_and_id(stop - 1)[1]

        shift = (totals[-1] if size else 0) - pack.tokens(start)
        counted = read_column("Q", pack.totals()[8 * start : 8 * stop])
        totals += array("Q", [total + shift for total in counted]) if shift else counted
        sizes += index.sizes[4 * start : 4 * stop]
        times += index.times[8 * start : 8 * stop]
        natives.append(pack.natives(start, stop))
    if len(codes) > MAX_SHAPES or max(totals[-1:], default=0) > MAX_COUNT:
        raise ValueError("the joined packs have more kinds of entries or more tokens than a state can hold")
    # Join everything at once: the array is large, and each step would copy it again.
    data = b"".join((b"[", *[part for native in natives for part in (b",", native)][1:], b"]"))
    index = PackIndex(
        parent=parent,
        turns=tuple(turns),
        firsts=pack_column(firsts),
        counts=pack_column(counts),
        shapes=tuple(codes),
        shape=bytes(shape),
        sizes=bytes(sizes),
        times=bytes(times),
        marks=marks,
        bounds=bounds,
        totals=pack_column(totals),
        parents=parents,
    )
    return Pack(index, data, checksum(data))


def estimate_tokens(size: int) -> int:
    """Return a rough estimate of the number of tokens in JSON that is `size` bytes long."""
    return size // 4 + 1


def checksum(data: bytes | memoryview) -> int:
    """Return the checksum of the JSON array of a pack, computed without its closing bracket."""
    return zlib.crc32(memoryview(data)[:-1])


def has_checksum(native: bytes, crc: int) -> bool:
    """Return whether the JSON of a single entry has this checksum, which leaves out its last byte.

    The last byte is checked by itself: it closes an object.
    """
    return checksum(native) == crc and (native[:1] != b"{" or native[-1:] == b"}")


EMPTY = Pack(PackIndex(), b"[]", checksum(b"[]"))
