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
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import add, itemgetter
from typing import Annotated, Literal, TypeAlias

import msgspec

from longtalk import _json

MAX_ENTRIES = 1_000_000
MAX_SHAPES = 128
MAX_COUNT = 2**53 - 1
"""The largest number that every language reads back as it was written."""
OWN = "longtalk"
"""The grammar of events and of system messages inside a conversation, which each wire renders in its own way."""

ANSWERS = ("assistant", "tool")
"""The roles of what follows a message and never begins an exchange."""

# More than this is proved entry by entry: it takes longer and no memory.
_AT_ONCE = 4 * 1024 * 1024

Kind = Literal["message", "event"]
Plain: TypeAlias = Callable[[str, str], bool]
"""Whether an entry of this role and wire can be sent as it is."""


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
    bound: str = ""
    """Of an answer with blocks that only its provider can read: where they are valid (see `Context.bound`)."""
    tokens: int = 0
    """How long it is, as counted when it was added; 0 when nobody did."""


class Index(msgspec.Struct, frozen=True, array_like=True):
    """What a pack knows of its entries, column by column. Numbers are little-endian."""

    parent: str | None = None
    """The parent of the first entry."""
    turns: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_ENTRIES)] = ()
    """Neighbours of one turn: its id …"""
    firsts: bytes = b""
    """… the number of the first of them, in 32 bits …"""
    counts: bytes = b""
    """… and how many they are, in 32 bits."""
    shapes: Annotated[tuple[tuple[Kind, str, str], ...], msgspec.Meta(max_length=MAX_SHAPES)] = ()
    """The combinations of kind, role and wire that occur …"""
    shape: bytes = b""
    """… and which of them each entry has, a byte each."""
    sizes: bytes = b""
    """Bytes of JSON and of the comma or bracket behind it, in 32 bits."""
    times: bytes = b""
    """`Entry.at`, in 64 bits."""
    marks: Annotated[dict[int, str], msgspec.Meta(max_length=MAX_ENTRIES)] = {}
    bounds: Annotated[dict[int, str], msgspec.Meta(max_length=MAX_ENTRIES)] = {}
    totals: bytes = b""
    """Tokens of each entry and all before it, in 64 bits; none in a state from before they were counted."""
    parents: Annotated[dict[int, str], msgspec.Meta(max_length=MAX_ENTRIES)] = {}
    """The parent of an entry that does not follow on the one before it: something between them has left."""


class Pack:
    """Entries at rest. `array` is a JSON array of the natives, `crc` its checksum without the closing bracket."""

    __slots__ = ("_ends", "_numbers", "_starts", "_totals", "array", "crc", "index")

    def __init__(self, index: Index, array: bytes | memoryview, crc: int) -> None:
        self.index = index
        self.array = array
        self.crc = crc
        self._starts: list[int] | None = None
        self._ends: list[int] | None = None
        self._totals = index.totals
        self._numbers: list[list[int]] | None = None

    def __len__(self) -> int:
        return len(self.index.shape)

    def check(self, wires: frozenset[str]) -> None:
        """Raise `ValueError` unless index and array fit together; `LookupError` for a wire that is not in `wires`."""
        index, size = self.index, len(self)
        counts, sizes = column("I", index.counts), column("I", index.sizes)
        if (
            not size == len(sizes) == sum(counts) == len(index.times) / 8
            or len(index.totals) not in (0, 8 * size)
            or not len(index.turns) == len(counts) == len(index.firsts) / 4
        ):
            raise ValueError("the columns of its index differ in length")
        if 0 in counts or not all(0 <= i < size for i in (*index.marks, *index.bounds, *index.parents)):
            raise ValueError("its index is out of range")
        if max(map(add, column("I", index.firsts), counts), default=0) > 2**32:
            raise ValueError("the number of an entry is out of range")
        totals = column("Q", index.totals).tolist()
        if totals != sorted(totals) or max(totals[-1:], default=0) > MAX_COUNT:
            raise ValueError("its tokens can't be true")
        # 47 bits of milliseconds last until the year 6429: whoever makes a date of one can rely on it.
        if not index.times[6::8].count(0) == index.times[7::8].count(0) == size or not index.times[5::8].isascii():
            raise ValueError("a time is out of range")
        if size and max(index.shape) >= len(index.shapes):
            raise ValueError("its index names a shape that it does not hold")
        for _, _, wire in index.shapes:
            if wire not in wires:
                raise LookupError(wire)
        if len(self.array) != (1 + sum(sizes) if size else 2) or (size and not sizes[-1]):
            raise ValueError("its entries are not where its index says")
        self._prove(sizes.tolist())
        for i in self._of(lambda _, wire: wire == OWN, 0, size):
            entry = self.entry(i)
            members = _json.value(entry.native)
            if not isinstance(members.get("text"), str) or (entry.kind == "event" and "source" not in members):
                raise ValueError("an event or a system message has no text")

    def _prove(self, sizes: list[int]) -> None:
        """Raise `ValueError` unless each entry is one JSON object, in its place, and nothing else is there."""
        data, starts = self.array, self.offsets()
        if len(self) and bytes(itemgetter(0, *starts[:-1])(data)) != b"[" + b"{" * len(self):
            raise ValueError("an entry is not a JSON object")
        if len(data) <= _AT_ONCE:
            fits = [length + 1 for length in _json.lengths(data)] == sizes
        else:
            borders = b"".join(data[start - 2 : start] for start in starts[1:])
            fits = borders == b"}," * (len(self) - 1) + b"}]"
            for i in range(len(self)):
                _json.prove(self._natives(i, i + 1))
        if not fits:
            raise ValueError("its entries are not where its index says")

    def offsets(self) -> list[int]:
        """Where each entry begins in the array, and where one more would."""
        if self._starts is None:
            self._starts = list(accumulate(column("I", self.index.sizes), initial=1))
        return self._starts

    def _natives(self, start: int, stop: int) -> memoryview:
        """The JSON of neighbours, with the commas between them."""
        starts = self.offsets()
        return memoryview(self.array)[starts[start] : starts[stop] - 1]

    def tokens(self, stop: int) -> int:
        """The tokens of all entries before this one."""
        return int.from_bytes(self.totals()[8 * stop - 8 : 8 * stop], "little") if stop else 0

    def totals(self) -> bytes:
        """The column of that name. What was never counted is guessed from its size."""
        if len(self._totals) != 8 * len(self):
            sizes = column("I", self.index.sizes)
            self._totals = packed(array("Q", accumulate(guess(size) for size in sizes)))
        return self._totals

    def _id(self, i: int) -> tuple[str, str]:
        ends = self._run_ends()
        run = bisect_right(ends, i)
        turn, first = self.index.turns[run], int.from_bytes(self.index.firsts[4 * run : 4 * run + 4], "little")
        return turn, f"{turn}-{first + i - (ends[run - 1] if run else 0)}"

    def parent(self, i: int) -> str | None:
        if i in self.index.parents:
            return self.index.parents[i]
        return self._id(i - 1)[1] if i else self.index.parent

    def _run_ends(self) -> list[int]:
        """Where the neighbours of each turn end."""
        if self._ends is None:
            self._ends = list(accumulate(column("I", self.index.counts)))
        return self._ends

    def _special(self, start: int, stop: int, first: int) -> list[dict[int, str]]:
        """Marks, bounds and parents of entries start … stop, as those of entries that begin at `first`."""
        tables = (self.index.marks, self.index.bounds, self.index.parents)
        if self._numbers is None:
            self._numbers = [sorted(table) for table in tables]
        return [
            {first + i - start: table[i] for i in numbers[bisect_left(numbers, start) : bisect_left(numbers, stop)]}
            for table, numbers in zip(tables, self._numbers, strict=True)
        ]

    def entries(self) -> list[Entry]:
        return [self.entry(i) for i in range(len(self))]

    def entry(self, i: int) -> Entry:
        native = bytes(self._natives(i, i + 1))
        index = self.index
        kind, role, wire = index.shapes[index.shape[i]]
        turn, id = self._id(i)  # noqa: A001
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

    def groups(self, start: int) -> Iterator[tuple[str, int, bool, bool]]:
        """Neighbours of one turn, from `start` on: its id, their number, whether they open an exchange, and whether
        they are all events."""
        index, ends = self.index, self._run_ends()
        events = bytes(i for i, (kind, _, _) in enumerate(index.shapes) if kind == "event")
        for run in range(bisect_right(ends, start), len(ends)):
            stop = ends[run]
            opens = index.shapes[index.shape[start]][1] not in ANSWERS
            yield index.turns[run], stop - start, opens, not index.shape[start:stop].strip(events)
            start = stop

    def walk(self, start: int, stop: int, plain: Plain) -> Iterator[tuple[int, memoryview | Entry]]:
        """See `Transcript.walk`: long runs of plain entries are one slice of the array."""
        special = {i for i in (*self.index.marks, *self.index.bounds) if start <= i < stop}
        special.update(self._of(lambda role, wire: not plain(role, wire), start, stop))
        for i in (*sorted(special), stop):
            if start < i:
                yield start, self._natives(start, i)
            if i < stop:
                yield i, self.entry(i)
            start = i + 1

    def _of(self, wanted: Plain, start: int, stop: int) -> Iterator[int]:
        """Which of the entries start … stop have a role and a wire that are wanted."""
        codes = bytes(code for code, (_, role, wire) in enumerate(self.index.shapes) if wanted(role, wire))
        if codes:
            for match in re.finditer(b"[%s]" % re.escape(codes), self.index.shape[start:stop]):
                yield start + match.start()

    def grow(self, entries: Sequence[Entry]) -> tuple[Index, bytes, int]:
        """This pack with more entries behind it: its index, what is in the place of the last bracket, its checksum."""
        if not entries:
            return self.index, b"]", self.crc
        index, size = self.index, len(self)
        turns, firsts, counts = list(index.turns), column("I", index.firsts), column("I", index.counts)
        shapes, shape = list(index.shapes), bytearray(index.shape)
        marks, bounds, parents = dict(index.marks), dict(index.bounds), dict(index.parents)
        before = self._id(size - 1)[1] if size else entries[0].parent
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
        grown = Index(
            parent=index.parent if size else entries[0].parent,
            turns=tuple(turns),
            firsts=packed(firsts),
            counts=packed(counts),
            shapes=tuple(shapes),
            shape=bytes(shape),
            sizes=index.sizes + packed(array("I", [len(native) + 1 for native in natives])),
            times=index.times + packed(array("q", [entry.at for entry in entries])),
            marks=marks,
            bounds=bounds,
            totals=self.totals() + packed(array("Q", tokens)),
            parents=parents,
        )
        return grown, more + b"]", zlib.crc32(more, self.crc)


def woven(slices: Sequence[tuple[Pack, int, int]]) -> Pack:
    """A pack of the entries start … stop of others, in this order, for about what copying their bytes costs."""
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
        first, count = column("I", index.firsts[4 * low : 4 * high]), column("I", index.counts[4 * low : 4 * high])
        before = start - (ends[low - 1] if low else 0)
        first[0] += before
        count[0] -= before
        count[-1] -= ends[high - 1] - stop
        goes_on = size > 0 and turns[-1] == index.turns[low] and firsts[-1] + counts[-1] == first[0]
        if goes_on:
            counts[-1] += count[0]
        turns += index.turns[low + goes_on : high]
        firsts += first[goes_on:]
        counts += count[goes_on:]

        table = bytearray(256)
        for code in dict.fromkeys(index.shape[start:stop]):
            table[code] = codes.setdefault(index.shapes[code], len(codes)) % 256
        shape += index.shape[start:stop].translate(table)

        for found, some in zip((marks, bounds, parents), pack._special(start, stop, size), strict=True):
            found.update(some)
        parents.pop(size, None)
        linked = pack.parent(start)
        if not size:
            parent = linked
        elif linked is not None and linked != last:
            parents[size] = linked
        last = pack._id(stop - 1)[1]

        more = (totals[-1] if size else 0) - pack.tokens(start)
        counted = column("Q", pack.totals()[8 * start : 8 * stop])
        totals += array("Q", [total + more for total in counted]) if more else counted
        sizes += index.sizes[4 * start : 4 * stop]
        times += index.times[8 * start : 8 * stop]
        natives.append(pack._natives(start, stop))
    if len(codes) > MAX_SHAPES or max(totals[-1:], default=0) > MAX_COUNT:
        raise ValueError("together they hold more than a state can")
    # In one go: the array is most of it, and each step would copy it once more.
    data = b"".join((b"[", *[part for native in natives for part in (b",", native)][1:], b"]"))
    index = Index(
        parent=parent,
        turns=tuple(turns),
        firsts=packed(firsts),
        counts=packed(counts),
        shapes=tuple(codes),
        shape=bytes(shape),
        sizes=bytes(sizes),
        times=bytes(times),
        marks=marks,
        bounds=bounds,
        totals=packed(totals),
        parents=parents,
    )
    return Pack(index, data, checksum(data))


def guess(size: int) -> int:
    """About how many tokens so many bytes of JSON are."""
    return size // 4 + 1


def checksum(data: bytes | memoryview) -> int:
    """The `crc` that a pack with this array has."""
    return zlib.crc32(memoryview(data)[:-1])


EMPTY = Pack(Index(), b"[]", checksum(b"[]"))


def column(code: str, data: bytes) -> array[int]:
    """Numbers from the bytes of a column."""
    numbers = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def packed(numbers: array[int]) -> bytes:
    """Numbers as the bytes of a column."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()
