"""What happened: entries on one branch, root to head. Nothing here is ever rewritten.

An `Entry` is one message or event, its `native` the exact JSON bytes of its wire. A `Turn` says how an exchange
was made: status, model, usage. A `Record` holds something derived (a summary, what a server refuses …) and is
attached to the entry up to which it holds. A `Transcript` is the three together, as one immutable value:
adding gives a new one. Entries and turns that were read from a state stay packed until somebody looks at them
(`pack.py`, `Turns`), so that carrying a long conversation along costs little more than copying its bytes.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal, overload

import msgspec

from longtalk.pack import ANSWERS, EMPTY, MAX_ENTRIES, Entry, Pack, Plain, column, packed, woven
from longtalk.ranges import Ranges

__all__ = ["Entry", "Record", "Transcript", "Turn", "TurnStatus", "Turns", "new_id", "now"]

TurnStatus = Literal["running", "complete", "interrupted", "failed"]
Finish = Literal["stop", "calls", "paused", "length", "filtered", "interrupted", "failed"]
"""Why an answer ended: it was said, it calls tools, it will go on, it was cut off in one of four ways."""


class Turn(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How one exchange was made."""

    id: str
    status: TurnStatus
    model: str
    """Who answered, as `provider:model`."""
    started: int
    ended: int = 0
    finish: Finish = "stop"
    """Why it ended."""
    usage: tuple[bytes, ...] = ()
    """What the provider reported for each model call, as it came."""
    preamble: str = ""
    """A digest of the system text and tools, to notice when they change."""
    error: str = ""


class TurnIndex(msgspec.Struct, frozen=True, array_like=True):
    """Turns at rest, column by column. Numbers are little-endian."""

    ids: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_ENTRIES)] = ()
    shapes: Annotated[tuple[tuple[TurnStatus, str, Finish, str, str], ...], msgspec.Meta(max_length=MAX_ENTRIES)] = ()
    """The combinations of status, model, finish, preamble and error that occur …"""
    shape: bytes = b""
    """… and which of them each turn has, in 32 bits."""
    started: bytes = b""
    """In 64 bits."""
    ended: bytes = b""
    """In 64 bits."""
    reports: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=MAX_ENTRIES)] = ()
    """`Turn.usage` of all turns …"""
    counts: bytes = b""
    """… and how many of these each turn has, in 32 bits."""

    def check(self) -> None:
        """Raise `ValueError` unless the columns fit together."""
        shape, counts = column("I", self.shape), column("I", self.counts)
        size = len(self.ids)
        if not size == len(shape) == len(counts) == len(self.started) / 8 == len(self.ended) / 8:
            raise ValueError("the columns of its turns differ in length")
        if sum(counts) != len(self.reports) or max(shape, default=-1) >= len(self.shapes):
            raise ValueError("its turns name what it does not hold")

    def turn(self, i: int) -> Turn:
        status, model, finish, preamble, error = self.shapes[column("I", self.shape[4 * i : 4 * i + 4])[0]]
        counts = column("I", self.counts[: 4 * i + 4])
        end = sum(counts)
        return Turn(
            id=self.ids[i],
            status=status,
            model=model,
            started=column("q", self.started[8 * i : 8 * i + 8])[0],
            ended=column("q", self.ended[8 * i : 8 * i + 8])[0],
            finish=finish,
            usage=self.reports[end - counts[-1] : end],
            preamble=preamble,
            error=error,
        )

    def grow(self, size: int, turns: Sequence[Turn]) -> TurnIndex:
        """The first `size` turns, and more behind them."""
        if size == len(self.ids) and not turns:
            return self
        codes = {shape: code for code, shape in enumerate(self.shapes)}
        shapes = [(turn.status, turn.model, turn.finish, turn.preamble, _writable(turn.error)) for turn in turns]
        shape = array("I", [codes.setdefault(key, len(codes)) for key in shapes])
        held = self.reports[: sum(column("I", self.counts[: 4 * size]))]
        return TurnIndex(
            ids=(*self.ids[:size], *[turn.id for turn in turns]),
            shapes=tuple(codes),
            shape=self.shape[: 4 * size] + packed(shape),
            started=self.started[: 8 * size] + packed(array("q", [turn.started for turn in turns])),
            ended=self.ended[: 8 * size] + packed(array("q", [turn.ended for turn in turns])),
            reports=(*held, *[report for turn in turns for report in turn.usage]),
            counts=self.counts[: 4 * size] + packed(array("I", [len(turn.usage) for turn in turns])),
        )


class Turns(Sequence[Turn]):
    """The turns of a transcript. Those from a state are built when somebody asks for them."""

    __slots__ = ("_fresh", "_index", "_kept")

    def __init__(self, index: TurnIndex = TurnIndex(), fresh: tuple[Turn, ...] = (), *, kept: int = -1) -> None:  # noqa: B008
        self._index = index
        self._kept = len(index.ids) if kept < 0 else kept
        self._fresh = fresh

    def __len__(self) -> int:
        return self._kept + len(self._fresh)

    @overload
    def __getitem__(self, i: int) -> Turn: ...
    @overload
    def __getitem__(self, i: slice) -> tuple[Turn, ...]: ...
    def __getitem__(self, i: int | slice) -> Turn | tuple[Turn, ...]:
        if isinstance(i, slice):
            return tuple(self[j] for j in range(*i.indices(len(self))))
        i = i + len(self) if i < 0 else i
        if not 0 <= i < len(self):
            raise IndexError(i)
        return self._index.turn(i) if i < self._kept else self._fresh[i - self._kept]

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Turns) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def add(self, turn: Turn) -> Turns:
        """These turns with one more, or with the last one replaced by its next version."""
        kept, fresh = self._kept, self._fresh
        if len(self) and self[-1].id == turn.id:
            kept, fresh = (kept, fresh[:-1]) if fresh else (kept - 1, fresh)
        return Turns(self._index, (*fresh, turn), kept=kept)

    def packed(self) -> TurnIndex:
        """All turns at rest."""
        return self._index.grow(self._kept, self._fresh)


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something derived from the transcript, attached to the entry up to which it holds."""

    kind: str
    entry: str
    at: int
    data: bytes
    """JSON, in a form of the kind's own."""


class Transcript(msgspec.Struct, frozen=True, eq=False):
    """The entries on one branch with their turns and records."""

    pack: Pack = EMPTY
    """What a state held."""
    fresh: tuple[Entry, ...] = ()
    """What was added since."""
    turns: Turns = Turns()
    records: tuple[Record, ...] = ()
    revision: int = 0
    """Counts the states that were made of this conversation."""
    created: int = 0
    updated: int = 0
    shed: Ranges = Ranges()
    """What was handed out to the caller and is not here any more."""

    def __len__(self) -> int:
        return len(self.pack) + len(self.fresh)

    def __getitem__(self, i: int) -> Entry:
        i = i + len(self) if i < 0 else i
        if not 0 <= i < len(self):
            raise IndexError(i)
        packed = len(self.pack)
        return self.pack.entry(i) if i < packed else self.fresh[i - packed]

    def __iter__(self) -> Iterator[Entry]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transcript):
            return NotImplemented
        return self._key() == other._key() and list(self) == list(other)

    def __ne__(self, other: object) -> bool:
        # A struct brings one of its own, which would compare identities.
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def _key(self) -> tuple[object, ...]:
        return self.turns, self.records, self.revision, self.created, self.updated, self.shed

    @property
    def size(self) -> int:
        """How many entries the conversation has, with those that were handed out."""
        return self.place(len(self))

    def place(self, i: int) -> int:
        """The place in the whole conversation of what is the i-th here."""
        for first, count in self.shed.entries:
            if i < first:
                break
            i += count
        return i

    def here(self, place: int) -> int:
        """Where in this transcript the entry of that place is; for one that was handed out, the next that is here."""
        missing = 0
        for first, count in self.shed.entries:
            if place < first + count:
                return min(place, first) - missing
            missing += count
        return place - missing

    @property
    def head(self) -> str | None:
        """The id of the last entry."""
        return self[-1].id if len(self) else self.pack.index.parent

    @property
    def tail(self) -> int:
        """How many entries there are up to the user's last message; all of them where only answers are here."""
        tail = len(self)
        while tail and self[tail - 1].role in ANSWERS:
            tail -= 1
        return tail or len(self)

    def add(self, entries: Iterable[Entry] = (), *, turn: Turn | None = None) -> Transcript:
        """This transcript with entries at its end and a turn begun, or replaced by its next version."""
        turns = self.turns if turn is None else self.turns.add(turn)
        return msgspec.structs.replace(self, fresh=(*self.fresh, *entries), turns=turns)

    def before(self, stop: int) -> Transcript:
        """The first entries alone."""
        packed = len(self.pack)
        if stop >= packed:
            return msgspec.structs.replace(self, fresh=self.fresh[: stop - packed])
        return msgspec.structs.replace(self, pack=woven([(self.pack, 0, stop)]), fresh=())

    def append(self, turn: str, entries: Sequence[Entry]) -> Transcript:
        """This transcript with entries of a turn at its end, numbered behind those that it has there."""
        last = self[-1] if len(self) else None
        number = int(last.id.rpartition("-")[2]) + 1 if last is not None and last.turn == turn else 0
        return self.add(chain(self.head, turn, number, entries))

    def record(self, kind: str, data: bytes, *, instead: bool = False) -> Transcript:
        """This transcript with a record that holds up to its head, in addition to older ones of its kind or instead."""
        made = Record(kind=kind, entry=self.head or "", at=now(), data=data)
        older = [record for record in self.records if not instead or record.kind != kind]
        return msgspec.structs.replace(self, records=(*older, made))

    def revise(self) -> Transcript:
        """This transcript as its next revision, stamped with the time."""
        at = now()
        return msgspec.structs.replace(self, revision=self.revision + 1, created=self.created or at, updated=at)

    def exchanges(self, start: int = 0) -> list[tuple[int, int]]:
        """The exchanges from `start` on, as (first, past the last). Events belong to the message after them.

        `start` is where an exchange begins.
        """
        found: list[tuple[int, int]] = []
        position, said, turn = start, False, ""
        packed = len(self.pack)
        fresh = self.fresh[max(0, start - packed) :]
        groups = [(entry.turn, 1, entry.role not in ANSWERS, entry.kind == "event") for entry in fresh]
        for group, count, opens, events_only in (*self.pack.groups(min(start, packed)), *groups):
            if said and opens and group != turn:
                found.append((start, position))
                start, said = position, False
            turn, position, said = group, position + count, said or not events_only
        if start < position:
            found.append((start, position))
        return found

    def tokens(self, start: int, stop: int) -> int:
        """The tokens of entries start … stop."""
        packed = len(self.pack)
        held = self.pack.tokens(min(stop, packed)) - self.pack.tokens(min(start, packed))
        return max(0, held) + sum(entry.tokens for entry in self.fresh[max(0, start - packed) : max(0, stop - packed)])

    def walk(self, start: int, stop: int, plain: Plain) -> Iterator[tuple[int, memoryview | bytes | Entry]]:
        """Entries start … stop with their positions: what can be sent as it is as JSON, neighbours joined by commas.

        The others, and those that carry a mark or a bound, come as entries, for the caller to decide on.
        """
        packed = len(self.pack)
        yield from self.pack.walk(min(start, packed), min(stop, packed), plain)
        for i in range(max(start, packed), stop):
            entry = self.fresh[i - packed]
            as_is = plain(entry.role, entry.wire) and not entry.mark and not entry.bound
            yield i, entry.native if as_is else entry

    def wires(self) -> set[str]:
        """The wires that its entries speak."""
        return {wire for _, _, wire in self.pack.index.shapes} | {entry.wire for entry in self.fresh}


def chain(parent: str | None, turn: str, first: int, entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Entries as consecutive ones of a turn: numbered, each the parent of the next."""
    linked = []
    for number, entry in enumerate(entries, first):
        linked.append(msgspec.structs.replace(entry, id=f"{turn}-{number}", parent=parent, turn=turn))
        parent = linked[-1].id
    return tuple(linked)


def _writable(text: str) -> str:
    """An error may quote what is not Unicode, such as the name of a file."""
    return text.encode("utf-8", "backslashreplace").decode()


def new_id() -> str:
    """An id for a turn: 60 random bits in letters and digits that can't be misread."""
    bits = int.from_bytes(os.urandom(8), "little")
    return "".join(["abcdefghijkmnpqrstuvwxyz23456789"[bits >> shift & 31] for shift in range(0, 60, 5)])


def now() -> int:
    """The time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
