"""What happened: entries on one branch, root to head. Nothing here is ever rewritten.

An `Entry` is one message or event, its `native` the exact JSON bytes of its wire. A `Turn` says how an exchange
was made: status, model, usage. A `Record` holds something derived (a summary, what a server refuses …) and is
attached to the entry up to which it holds. A `Transcript` is the three together, as one immutable value:
adding gives a new one. Entries that were read from a state stay packed until somebody looks at them
(`pack.py`), so that carrying a long conversation along costs little more than copying its bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from longtalk.pack import EMPTY, Entry, Pack

__all__ = ["Entry", "Record", "Transcript", "Turn", "TurnStatus", "new_id", "now"]

TurnStatus = Literal["running", "complete", "interrupted", "failed"]


class Turn(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How one exchange was made."""

    id: str
    status: TurnStatus
    model: str
    """Who answered, as `provider:model`."""
    started: int
    ended: int = 0
    finish: str = ""
    """Why the answer ended: see `Answer.finish`."""
    usage: tuple[bytes, ...] = ()
    """What the provider reported for each model call, as it came."""
    preamble: str = ""
    """A digest of the system text and tools, to notice when they change."""
    error: str = ""


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
    turns: tuple[Turn, ...] = ()
    records: tuple[Record, ...] = ()
    revision: int = 0
    """Counts the states that were made of this conversation."""
    created: int = 0
    updated: int = 0

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

    __hash__ = None  # type: ignore[assignment]

    def _key(self) -> tuple[object, ...]:
        return self.turns, self.records, self.revision, self.created, self.updated

    @property
    def head(self) -> str | None:
        """The id of the last entry."""
        return self[-1].id if len(self) else self.pack.index.parent

    def add(self, entries: Iterable[Entry] = (), *, turn: Turn | None = None) -> Transcript:
        """This transcript with entries at its end and a turn begun, or replaced by its next version."""
        turns = self.turns
        if turn is not None:
            turns = turns[:-1] if turns and turns[-1].id == turn.id else turns
            turns = (*turns, turn)
        return msgspec.structs.replace(self, fresh=(*self.fresh, *entries), turns=turns)

    def record(self, kind: str, data: bytes) -> Transcript:
        """This transcript with a record that holds up to its head."""
        made = Record(kind=kind, entry=self.head or "", at=now(), data=data)
        return msgspec.structs.replace(self, records=(*self.records, made))

    def revise(self) -> Transcript:
        """This transcript as its next revision, stamped with the time."""
        at = now()
        return msgspec.structs.replace(self, revision=self.revision + 1, created=self.created or at, updated=at)

    def exchanges(self) -> list[tuple[int, int]]:
        """The exchanges as (first, past the last) positions. Events belong to the message after them."""
        found: list[tuple[int, int]] = []
        start = position = 0
        for _, count, events_only in self._groups():
            position += count
            if not events_only:
                found.append((start, position))
                start = position
        if start < position:
            found.append((start, position))
        return found

    def _groups(self) -> Iterator[tuple[str, int, bool]]:
        """Neighbours of one turn: its id, their number, and whether they are all events."""
        turn, count, events_only = "", 0, True
        groups = [*self.pack.groups(), *((e.turn, 1, e.kind == "event") for e in self.fresh)]
        for next_turn, next_count, next_events_only in groups:
            if next_turn != turn and count:
                yield turn, count, events_only
                count, events_only = 0, True
            turn, count, events_only = next_turn, count + next_count, events_only and next_events_only
        if count:
            yield turn, count, events_only

    def splice(
        self, start: int, stop: int, wire: str, render: Callable[[Entry], bytes | None]
    ) -> list[bytes | memoryview]:
        """The JSON of entries start … stop, ready to be joined by commas into a request's array.

        Entries of this wire go as they are. Of the others, and of those that carry a mark, `render` says
        what to send, or None to leave them out.
        """
        packed = len(self.pack)
        pieces = self.pack.splice(min(start, packed), min(stop, packed), wire, render)
        for entry in self.fresh[max(start - packed, 0) : max(stop - packed, 0)]:
            piece = entry.native if entry.wire == wire and not entry.mark else render(entry)
            if piece is not None:
                pieces.append(piece)
        return pieces

    def packed(self) -> Pack:
        """All entries at rest."""
        return self.pack.extend(self.fresh)


def chain(parent: str | None, turn: str, first: int, entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Entries as consecutive ones of a turn: numbered, each the parent of the next."""
    linked = []
    for number, entry in enumerate(entries, first):
        linked.append(msgspec.structs.replace(entry, id=f"{turn}-{number}", parent=parent, turn=turn))
        parent = linked[-1].id
    return tuple(linked)


def new_id() -> str:
    """An id for a turn: 60 random bits in letters and digits that can't be misread."""
    bits = int.from_bytes(os.urandom(8), "little")
    return "".join(["abcdefghijkmnpqrstuvwxyz23456789"[bits >> shift & 31] for shift in range(0, 60, 5)])


def now() -> int:
    """The time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
