"""The transcript: the entries of one branch in order. Entries are appended but never changed.

An `Entry` is one message or event; its `native` is the exact JSON of the message. A `Turn` describes how an exchange
came about: status, model, usage. A `Record` holds derived data, such as a summary or what a server rejects, and is
attached to the entry up to which it is valid. A `Transcript` combines the three as one immutable value; adding to it
returns a new transcript. Entries and turns that come from a state stay packed until they are accessed (`pack.py`,
`Turns`), so loading a long conversation costs little more than copying its bytes.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal, overload

import msgspec

from longtalk.transcript.pack import ANSWERS, EMPTY, Entry, Pack, Plain, join_slices
from longtalk.transcript.pack_index import MAX_ENTRIES, pack_column, read_column
from longtalk.transcript.ranges import Ranges
from longtalk.transcript.standing import Record, Standing

__all__ = ["Entry", "Record", "Transcript", "Turn", "TurnStatus", "Turns", "new_id", "now"]

TurnStatus = Literal["running", "complete", "interrupted", "failed"]
Finish = Literal["stop", "calls", "paused", "length", "filtered", "interrupted", "failed"]
"""Why an answer ended: it was complete, called tools, was paused, or was cut short in one of four ways."""


class Turn(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One turn of a conversation: its status, model, times and usage."""

    id: str
    status: TurnStatus
    model: str
    """The model that answered, as `provider:model`."""
    started: int
    ended: int = 0
    finish: Finish = "stop"
    """Why the answer ended."""
    usage: tuple[bytes, ...] = ()
    """The raw usage reports of the provider, one for each model call."""
    preamble: str = ""
    """A digest of the system text and the tools, used to detect when they change."""
    error: str = ""
    responses: tuple[bytes, ...] = ()
    """What the provider's responses said besides the message and the usage, in the form of `responses.py`."""


class TurnIndex(msgspec.Struct, frozen=True, array_like=True):
    """Turns stored in columns. Each column has one item per turn unless noted. Numbers are little-endian."""

    ids: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_ENTRIES)] = ()
    shapes: Annotated[tuple[tuple[TurnStatus, str, Finish, str, str], ...], msgspec.Meta(max_length=MAX_ENTRIES)] = ()
    """The different combinations of status, model, finish, preamble and error that the turns have."""
    shape: bytes = b""
    """For each turn, the index of its combination in `shapes`, in 32 bits."""
    started: bytes = b""
    """For each turn, `Turn.started` in 64 bits."""
    ended: bytes = b""
    """For each turn, `Turn.ended` in 64 bits."""
    reports: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=MAX_ENTRIES)] = ()
    """The usage reports (`Turn.usage`) of all turns, in order."""
    counts: bytes = b""
    """For each turn, the number of its usage reports, in 32 bits."""
    responses: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=MAX_ENTRIES)] = ()
    """The responses (`Turn.responses`) of all turns, in order."""
    response_counts: bytes = b""
    """For each turn, the number of its responses, in 32 bits; empty if no turn has any."""

    def check(self) -> None:
        """Raise `ValueError` unless the columns of the index fit together."""
        shape, counts = read_column("I", self.shape), read_column("I", self.counts)
        size = len(self.ids)
        if not size == len(shape) == len(counts) == len(self.started) / 8 == len(self.ended) / 8:
            raise ValueError("the columns of its turns differ in length")
        if sum(counts) != len(self.reports) or max(shape, default=-1) >= len(self.shapes):
            raise ValueError("its turns refer to values that it does not hold")
        responses = sum(read_column("I", self.response_counts))
        if len(self.response_counts) not in (0, 4 * size) or responses != len(self.responses):
            raise ValueError("its turns refer to responses that it does not hold")

    def turn(self, i: int, first: int | None = None, first_response: int | None = None) -> Turn:
        """Return the turn at position `i`.

        `first` and `first_response` are the positions of its first usage report and response, if they are known.
        """
        status, model, finish, preamble, error = self.shapes[read_column("I", self.shape[4 * i : 4 * i + 4])[0]]
        return Turn(
            id=self.ids[i],
            status=status,
            model=model,
            started=read_column("q", self.started[8 * i : 8 * i + 8])[0],
            ended=read_column("q", self.ended[8 * i : 8 * i + 8])[0],
            finish=finish,
            usage=_take(self.reports, self.counts, i, first),
            preamble=preamble,
            error=error,
            responses=_take(self.responses, self.response_counts, i, first_response),
        )

    def grow(self, size: int, turns: Sequence[Turn]) -> TurnIndex:
        """Return an index of the first `size` turns of this index, followed by `turns`."""
        if size == len(self.ids) and not turns:
            return self
        codes = {shape: code for code, shape in enumerate(self.shapes)}
        shapes = [
            (turn.status, turn.model, turn.finish, turn.preamble, _escape_surrogates(turn.error)) for turn in turns
        ]
        shape = array("I", [codes.setdefault(key, len(codes)) for key in shapes])
        reports = self.reports[: sum(read_column("I", self.counts[: 4 * size]))]
        responses = (
            *self.responses[: sum(read_column("I", self.response_counts[: 4 * size]))],
            *[response for turn in turns for response in turn.responses],
        )
        response_counts = pack_column(array("I", [len(turn.responses) for turn in turns]))
        return TurnIndex(
            ids=(*self.ids[:size], *[turn.id for turn in turns]),
            shapes=tuple(codes),
            shape=self.shape[: 4 * size] + pack_column(shape),
            started=self.started[: 8 * size] + pack_column(array("q", [turn.started for turn in turns])),
            ended=self.ended[: 8 * size] + pack_column(array("q", [turn.ended for turn in turns])),
            reports=(*reports, *[report for turn in turns for report in turn.usage]),
            counts=self.counts[: 4 * size] + pack_column(array("I", [len(turn.usage) for turn in turns])),
            responses=responses,
            response_counts=(self.response_counts[: 4 * size] or bytes(4 * size)) + response_counts
            if responses
            else b"",
        )


def _take(values: tuple[bytes, ...], counts: bytes, i: int, first: int | None) -> tuple[bytes, ...]:
    """Return the values of the turn at position `i`, if `counts` has the number of values of each turn, in 32 bits."""
    count = int.from_bytes(counts[4 * i : 4 * i + 4], "little")
    if first is None:
        is_last = 4 * i + 4 == len(counts)
        first = len(values) - count if is_last else sum(read_column("I", counts[: 4 * i]))
    return values[first : first + count]


class Turns(Sequence[Turn]):
    """The turns of a transcript, as a sequence. Turns that come from a state are decoded on demand.

    The sequence consists of the first `packed` turns of `index` (all by default), followed by `fresh`.
    """

    __slots__ = ("_fresh", "_index", "_packed")

    def __init__(self, index: TurnIndex = TurnIndex(), fresh: tuple[Turn, ...] = (), *, packed: int = -1) -> None:  # noqa: B008
        self._index = index
        self._packed = len(index.ids) if packed < 0 else packed
        self._fresh = fresh

    def __len__(self) -> int:
        return self._packed + len(self._fresh)

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
        return self._index.turn(i) if i < self._packed else self._fresh[i - self._packed]

    def __iter__(self) -> Iterator[Turn]:
        first = first_response = 0
        for i in range(self._packed):
            turn = self._index.turn(i, first, first_response)
            first, first_response = first + len(turn.usage), first_response + len(turn.responses)
            yield turn
        yield from self._fresh

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Turns) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def add(self, turn: Turn) -> Turns:
        """Return these turns with `turn` appended; if the last turn has the same id, `turn` replaces it."""
        packed, fresh = self._packed, self._fresh
        if len(self) and self[-1].id == turn.id:
            packed, fresh = (packed, fresh[:-1]) if fresh else (packed - 1, fresh)
        return Turns(self._index, (*fresh, turn), packed=packed)

    def to_index(self) -> TurnIndex:
        """Return all turns in the form that a state stores."""
        return self._index.grow(self._packed, self._fresh)


class Transcript(msgspec.Struct, frozen=True, eq=False):
    """The immutable entries, turns and records of one branch. Methods that add to them return a new transcript."""

    pack: Pack = EMPTY
    """The entries that were read from a state, in packed form."""
    fresh: tuple[Entry, ...] = ()
    """The entries that were added after those in `pack`."""
    turns: Turns = Turns()
    records: Standing = Standing()
    revision: int = 0
    """How many states of this conversation have been made; it increases with each new state."""
    created: int = 0
    updated: int = 0
    shed: Ranges = Ranges()
    """The ranges of entries and turns that were removed from this transcript and handed to the caller to keep."""

    def __post_init__(self) -> None:
        if type(self.records) is not Standing:
            msgspec.structs.force_setattr(self, "records", Standing(self.records))

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
        # The inherited `__ne__` of a struct compares identities.
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def _key(self) -> tuple[object, ...]:
        return self.turns, self.records, self.revision, self.created, self.updated, self.shed

    @property
    def size(self) -> int:
        """The number of entries in the whole conversation, including those that this transcript has shed."""
        return self.position(len(self))

    def position(self, i: int) -> int:
        """Return the position in the whole conversation of the entry at index `i` of this transcript."""
        return self.shed.to_position(i) if self.shed.entries else i

    def index_of(self, position: int) -> int:
        """Return the index in this transcript of the entry at a position in the whole conversation.

        If that entry was shed, return the index of the next entry that was not.
        """
        return self.shed.to_index(position) if self.shed.entries else position

    @property
    def head(self) -> str | None:
        """The id of the last entry of the conversation, even if it was shed; None if there are no entries."""
        return self[-1].id if len(self) else self.pack.index.parent

    @property
    def tail(self) -> int:
        """The number of entries before the answers and tool results at the end; all if there are no other entries."""
        tail = len(self)
        while tail and self[tail - 1].role in ANSWERS:
            tail -= 1
        return tail or len(self)

    def add(self, entries: Iterable[Entry] = (), *, turn: Turn | None = None) -> Transcript:
        """Return this transcript with `entries` appended and `turn` added.

        If the last turn has the same id, `turn` replaces it.
        """
        turns = self.turns if turn is None else self.turns.add(turn)
        return msgspec.structs.replace(self, fresh=(*self.fresh, *entries), turns=turns)

    def truncate(self, stop: int) -> Transcript:
        """Return this transcript with only its first `stop` entries, and with all its turns and records."""
        packed = len(self.pack)
        if stop >= packed:
            return msgspec.structs.replace(self, fresh=self.fresh[: stop - packed])
        return msgspec.structs.replace(self, pack=join_slices([(self.pack, 0, stop)]), fresh=())

    def append_to_turn(self, turn: str, entries: Sequence[Entry]) -> Transcript:
        """Return this transcript with `entries` added to a turn. Their numbers continue those of the turn's entries."""
        last = self[-1] if len(self) else None
        number = int(last.id.rpartition("-")[2]) + 1 if last is not None and last.turn == turn else 0
        return self.add(link_entries(self.head, turn, number, entries))

    def add_record(self, kind: str, data: bytes, *, replace: bool = False) -> Transcript:
        """Return this transcript with a record attached to its last entry.

        With `replace`, the new record replaces all older records of its kind.
        """
        new = Record(kind=kind, entry=self.head or "", at=now(), data=data)
        older = [record for record in self.records if not replace or record.kind != kind]
        return self.with_records((*older, new))

    def with_records(self, records: Iterable[Record]) -> Transcript:
        """Return this transcript with these records in place of its own."""
        return msgspec.structs.replace(self, records=Standing(records, self.records))

    def revise(self) -> Transcript:
        """Return the next revision of this transcript, stamped with the current time."""
        at = now()
        return msgspec.structs.replace(self, revision=self.revision + 1, created=self.created or at, updated=at)

    def exchanges(self, start: int = 0) -> list[tuple[int, int]]:
        """Return the exchanges from position `start` on, each as a pair of positions (start, stop).

        `start` must be the position of the first entry of an exchange. Events belong to the same exchange as the
        message after them.
        """
        found: list[tuple[int, int]] = []
        position, has_message, turn = start, False, ""
        packed = len(self.pack)
        fresh = self.fresh[max(0, start - packed) :]
        groups = [(entry.turn, 1, entry.role not in ANSWERS, entry.kind == "event") for entry in fresh]
        for group, count, opens, events_only in (*self.pack.groups(min(start, packed)), *groups):
            if has_message and opens and group != turn:
                found.append((start, position))
                start, has_message = position, False
            turn, position, has_message = group, position + count, has_message or not events_only
        if start < position:
            found.append((start, position))
        return found

    def tokens(self, start: int, stop: int) -> int:
        """Return the number of tokens of the entries from position `start` up to but not including `stop`."""
        packed = len(self.pack)
        in_pack = self.pack.tokens(min(stop, packed)) - self.pack.tokens(min(start, packed))
        return max(0, in_pack) + sum(
            entry.tokens for entry in self.fresh[max(0, start - packed) : max(0, stop - packed)]
        )

    def walk(self, start: int, stop: int, plain: Plain) -> Iterator[tuple[int, memoryview | bytes | Entry]]:
        """Yield the entries from position `start` up to but not including `stop`, with their positions.

        Entries that can be sent unchanged, according to `plain`, are yielded as JSON; consecutive ones may be joined by
        commas. All other entries, and those whose `mark` or `bound` is set, are yielded as `Entry`: the caller decides
        what to send.
        """
        packed = len(self.pack)
        yield from self.pack.walk(min(start, packed), min(stop, packed), plain)
        for i in range(max(start, packed), stop):
            entry = self.fresh[i - packed]
            as_is = plain(entry.role, entry.wire) and not entry.mark and not entry.bound
            yield i, entry.native if as_is else entry

    def wires(self) -> set[str]:
        """Return the names of the wires (message formats) of all entries in this transcript."""
        return {wire for _, _, wire in self.pack.index.shapes} | {entry.wire for entry in self.fresh}


def link_entries(parent: str | None, turn: str, first: int, entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries as part of a turn, with ids numbered from `first` and each entry linked to the one before it.

    `parent` is the id of the entry before the first one.
    """
    linked = []
    for number, entry in enumerate(entries, first):
        linked.append(msgspec.structs.replace(entry, id=f"{turn}-{number}", parent=parent, turn=turn))
        parent = linked[-1].id
    return tuple(linked)


def _escape_surrogates(text: str) -> str:
    """Return the text with lone surrogates escaped, as UTF-8 can't encode them. File names in errors may have some."""
    return text.encode("utf-8", "backslashreplace").decode()


def new_id() -> str:
    """Return a new random id of 60 bits, in letters and digits that are hard to misread."""
    bits = int.from_bytes(os.urandom(8), "little")
    return "".join(["abcdefghijkmnpqrstuvwxyz23456789"[bits >> shift & 31] for shift in range(0, 60, 5)])


def now() -> int:
    """Return the current time in milliseconds since 1970; 0 if the clock is before that, as states can't hold less."""
    return max(0, time.time_ns() // 1_000_000)
