"""Turns: how exchanges came about, one by one and stored in columns.

Turns that come from a state stay in columns until they are accessed, so loading a long conversation costs little.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, overload

import msgspec

from longtalk.transcript.pack_index import MAX_ENTRIES, pack_column, read_column

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
    """The fields of the provider's responses besides the message and the usage, in the format of `responses.py`."""


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
            raise ValueError("the columns of the turns differ in length")
        if sum(counts) != len(self.reports) or max(shape, default=-1) >= len(self.shapes):
            raise ValueError("a turn refers to a value that the index does not have")
        responses = sum(read_column("I", self.response_counts))
        if len(self.response_counts) not in (0, 4 * size) or responses != len(self.responses):
            raise ValueError("a turn refers to a response that the index does not have")

    def turn(self, i: int, first: int | None = None, first_response: int | None = None) -> Turn:
        """Return the turn at position `i`.

        `first` and `first_response` are the positions of its first usage report and response, if they are known.
        """
        status, model, finish, preamble, error = self.shapes[int.from_bytes(self.shape[4 * i : 4 * i + 4], "little")]
        return Turn(
            id=self.ids[i],
            status=status,
            model=model,
            started=int.from_bytes(self.started[8 * i : 8 * i + 8], "little", signed=True),
            ended=int.from_bytes(self.ended[8 * i : 8 * i + 8], "little", signed=True),
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
    """Return the values of the turn at position `i`. `counts` has the number of values of each turn, in 32 bits."""
    count = int.from_bytes(counts[4 * i : 4 * i + 4], "little")
    if first is None:
        is_last = 4 * i + 4 == len(counts)
        first = len(values) - count if is_last else sum(read_column("I", counts[: 4 * i]))
    return values[first : first + count]


class Turns(Sequence[Turn]):
    """The turns of a transcript, as a sequence. Turns that come from a state are decoded on demand.

    The sequence consists of the first `packed` turns of `index` (all by default), followed by `fresh`.
    """

    __slots__ = ("_fresh", "_index", "_last", "_packed")

    def __init__(self, index: TurnIndex = TurnIndex(), fresh: tuple[Turn, ...] = (), *, packed: int = -1) -> None:  # noqa: B008
        self._index = index
        self._packed = len(index.ids) if packed < 0 else packed
        self._fresh = fresh
        self._last = fresh[-1] if fresh else None

    def __len__(self) -> int:
        return self._packed + len(self._fresh)

    @overload
    def __getitem__(self, i: int) -> Turn: ...
    @overload
    def __getitem__(self, i: slice) -> tuple[Turn, ...]: ...
    def __getitem__(self, i: int | slice) -> Turn | tuple[Turn, ...]:
        if isinstance(i, slice):
            return tuple(self[j] for j in range(*i.indices(len(self))))
        i = i + self._packed + len(self._fresh) if i < 0 else i
        if i >= self._packed:
            return self._fresh[i - self._packed]
        if i < 0:
            raise IndexError(i)
        return self._index.turn(i)

    @property
    def last(self) -> Turn | None:
        """The last turn; None if there are no turns."""
        if self._last is None and self._packed:
            self._last = self._index.turn(self._packed - 1)
        return self._last

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
        if fresh:
            fresh = fresh[:-1] if fresh[-1].id == turn.id else fresh
        elif packed and self._index.ids[packed - 1] == turn.id:
            packed -= 1
        return Turns(self._index, (*fresh, turn), packed=packed)

    def to_index(self) -> TurnIndex:
        """Return all turns in the form that a state stores."""
        return self._index.grow(self._packed, self._fresh)


def _escape_surrogates(text: str) -> str:
    """Return the text with lone surrogates escaped, as UTF-8 can't encode them. File names in errors may have some."""
    return text.encode("utf-8", "backslashreplace").decode()
