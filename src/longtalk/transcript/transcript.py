"""The transcript: the entries of one branch in order. Entries are appended but never changed.

An `Entry` is one message or event; its `native` is the exact JSON of the message. A `Turn` describes how an exchange
came about: status, model, usage. A `Record` holds derived data, such as a summary or what a server rejects, and is
attached to the entry up to which it is valid. A `Transcript` combines the three as one immutable value; adding to it
returns a new transcript. Entries and turns that come from a state stay packed until they are accessed (`pack.py`,
`turns.py`), so loading a long conversation costs little more than copying its bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

import msgspec

from longtalk.transcript.lookalikes import mark_lookalike
from longtalk.transcript.pack import ANSWERS, CHECKED, EMPTY, Entry, Pack, Plain, join_slices
from longtalk.transcript.ranges import Ranges
from longtalk.transcript.standing import Record, Standing
from longtalk.transcript.turns import Finish as Finish
from longtalk.transcript.turns import Turn, Turns, TurnStatus
from longtalk.transcript.turns import TurnIndex as TurnIndex

__all__ = ["Entry", "Record", "Transcript", "Turn", "TurnStatus", "Turns", "new_id", "now"]


class Transcript(msgspec.Struct, frozen=True, eq=False):
    """The immutable entries, turns and records of one branch. Methods that add to them return a new transcript."""

    pack: Pack = EMPTY
    """The entries that were read from a state, in packed form."""
    fresh: tuple[Entry, ...] = ()
    """The entries that were added after those in `pack`."""
    turns: Turns = Turns()
    records: Standing = Standing()
    revision: int = 0
    """The number of states made of this conversation; it increases with each new state."""
    created: int = 0
    updated: int = 0
    shed: Ranges = Ranges()
    """The ranges of entries and turns that were removed from this transcript and handed to the caller to keep."""

    def __len__(self) -> int:
        return self.pack.size + len(self.fresh)

    def __getitem__(self, i: int) -> Entry:
        packed = self.pack.size
        i = i + packed + len(self.fresh) if i < 0 else i
        if i >= packed:
            return self.fresh[i - packed]
        if i < 0:
            raise IndexError(i)
        return self.pack.entry(i)

    def role(self, i: int) -> str:
        """Return the role of the entry at index `i`, or an empty string if there is none."""
        packed = self.pack.size
        if 0 <= i < packed:
            index = self.pack.index
            return index.shapes[index.shape[i]][1]
        return self.fresh[i - packed].role if packed <= i < packed + len(self.fresh) else ""

    @property
    def last(self) -> Entry | None:
        """The last entry; None if there are no entries."""
        return self.fresh[-1] if self.fresh else self.pack.last

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
        size = self.pack.size + len(self.fresh)
        return self.shed.to_position(size) if self.shed.entries else size

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
        last = self.fresh[-1] if self.fresh else self.pack.last
        return self.pack.index.parent if last is None else last.id

    @property
    def tail(self) -> int:
        """The number of entries before the answers and tool results at the end, or of all if there are only such."""
        packed, tail = self.pack.size, len(self.fresh)
        while tail and self.fresh[tail - 1].role in ANSWERS:
            tail -= 1
        tail += packed
        while 0 < tail <= packed and self.pack.entry(tail - 1).role in ANSWERS:
            tail -= 1
        return tail or packed + len(self.fresh)

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

    def append_to_turn(self, id: str, entries: Sequence[Entry], *, turn: Turn | None = None) -> Transcript:  # noqa: A002
        """Return this transcript with `entries` added to the turn with this id, and `turn` added as by `add`.

        The numbers of the entries continue those of the turn's entries.
        """
        last = self.fresh[-1] if self.fresh else self.pack.last
        number = int(last.id.rpartition("-")[2]) + 1 if last is not None and last.turn == id else 0
        parent = self.pack.index.parent if last is None else last.id
        return self.add(link_entries(parent, id, number, entries), turn=turn)

    def add_record(self, kind: str, data: bytes, *, replace: bool = False) -> Transcript:
        """Return this transcript with a record attached to its last entry.

        With `replace`, the new record replaces all older records of its kind.
        """
        new = Record(kind=kind, entry=self.head or "", at=now(), data=data)
        older = [record for record in self.records if record.kind != kind] if replace else self.records
        return msgspec.structs.replace(self, records=Standing((*older, new), self.records))

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
        pack = self.pack
        packed, total = pack.size, 0
        if start < packed:
            total = max(0, pack.tokens(min(stop, packed)) - (pack.tokens(start) if start else 0))
        if stop > packed:
            for entry in self.fresh[max(0, start - packed) : stop - packed]:
                total += entry.tokens
        return total

    def walk(self, start: int, stop: int, plain: Plain) -> list[tuple[int, memoryview | bytes | Entry]]:
        """Return the entries from position `start` up to but not including `stop`, with their positions.

        Entries that can be sent unchanged, according to `plain`, are returned as JSON; consecutive ones may be joined
        by commas. All other entries, and those whose `mark` or `bound` is set, are returned as `Entry`: the caller
        decides what to send.
        """
        packed = self.pack.size
        found = self.pack.walk(start, min(stop, packed), plain)
        known: dict[tuple[str, str], bool] = {}
        for i in range(max(start, packed), stop):
            entry = self.fresh[i - packed]
            shape = entry.role, entry.wire
            is_plain = known.get(shape)
            if is_plain is None:
                is_plain = known[shape] = plain(*shape)
            as_is = is_plain and entry.mark in ("", CHECKED) and not entry.bound
            found.append((i, entry.native if as_is else entry))
        return found

    @property
    def is_checked(self) -> bool:
        """Whether the conversation's first entry is here and says that all look-alikes after it are marked."""
        if not len(self) or self.position(0):
            return False
        mark = self.pack.index.marks.get(0, "") if len(self.pack) else self.fresh[0].mark
        return CHECKED in mark.split()

    def wires(self) -> set[str]:
        """Return the names of the wires (message formats) of all entries in this transcript."""
        found = set(map(itemgetter(2), self.pack.index.shapes))
        for entry in self.fresh:
            found.add(entry.wire)
        return found


def link_entries(parent: str | None, turn: str, first: int, entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries as part of a turn, with ids numbered from `first` and each entry linked to the one before it.

    `parent` is the id of the entry before the first one. Look-alikes are marked.
    """
    linked = []
    for number, entry in enumerate(entries, first):
        entry = mark_lookalike(entry, is_first=parent is None)
        linked.append(msgspec.structs.replace(entry, id=f"{turn}-{number}", parent=parent, turn=turn))
        parent = linked[-1].id
    return tuple(linked)


def new_id() -> str:
    """Return a new random id of 60 bits, in letters and digits that are hard to misread."""
    bits = int.from_bytes(os.urandom(8), "little")
    return "".join(["abcdefghijkmnpqrstuvwxyz23456789"[bits >> shift & 31] for shift in range(0, 60, 5)])


def now() -> int:
    """Return the current time in milliseconds since 1970; 0 if the clock is before that, as states can't hold less."""
    return max(0, time.time_ns() // 1_000_000)
