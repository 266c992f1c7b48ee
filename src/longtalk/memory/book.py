"""What memory holds at one point of a conversation: a record of its branch, replaced whenever something changes.

Beside the notes it keeps how far cards have told of the conversation, and how asking for cards goes. The records that
were replaced stay in a store: with the lines that fell out, each in the record that let it go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from longtalk import _json
from longtalk.memory.card import Tally
from longtalk.memory.notes import Line, Notes
from longtalk.ranges import Ranges
from longtalk.records import latest
from longtalk.transcript import Record, Transcript

KIND = "memory"
"""Of the record."""
Way: TypeAlias = Literal["sentinel", "tool"]
"""How a model gives what is to be kept: in a card at the end of its answer, or by a tool."""
Card: TypeAlias = Literal["", "small", "catch_up"]
"""A card that is asked for: on this turn, or on all that no card has told of. Or none."""
_LINES = 500
"""That a book may have: no schema has room for more."""
ASKS = 2
"""After so many asks without a card something else has to stand for the conversation."""


class Book(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Notes, and how they came about."""

    notes: Notes = Notes()
    covers: int = 0
    """So many entries of the conversation cards have told of."""
    raw: int = 0
    """Where the exchanges began that were sent as they are when a card was asked for last …"""
    asks: int = 0
    """… and how many asks in a row have brought none while they did."""
    marks: str = ""
    """How the last asks went, as `Tally` has it."""
    way: Way | None = None
    """How cards come from the next epoch on, if otherwise than the app says."""
    turned: int = 0
    """How often that has changed."""
    edition: int = 0
    """Counts the times that the app took something away: no request shows that any more."""
    dropped: tuple[Line, ...] = ()
    """Lines that fell out with the last change."""

    def asks_since(self, raw: int) -> int:
        """How many asks in a row have brought no card while exchanges were sent as they are from here on."""
        return self.asks if self.raw == raw else 0

    @property
    def tally(self) -> Tally:
        return Tally(self.marks)


def book_of(transcript: Transcript) -> Book:
    """What memory holds at the end of a transcript."""
    found = latest(transcript, KIND, Book)
    return found if found is not None and _is_sound(found, transcript) else Book()


def book_in(records: Iterable[Record], size: int) -> Book:
    """What memory holds behind so many entries, by the records that hold there."""
    missing = Ranges(entries=((0, size),) if size else ())
    return book_of(Transcript(records=tuple(records), shed=missing))


def kept(transcript: Transcript, book: Book) -> Transcript:
    """A transcript whose memory holds this."""
    return transcript.record(KIND, _json.encode(book), instead=True)


def _is_sound(book: Book, transcript: Transcript) -> bool:
    """Whether a book can be of this conversation: it may have come from elsewhere."""
    ids = {line.id for line in book.notes.lines}
    return (
        len(ids) == len(book.notes.lines) <= _LINES
        and 0 <= book.covers <= transcript.size
        and len(book.marks) <= Tally.WINDOW
    )


def without_since(book: Book, at: int, place: int) -> Book:
    """A book without what a model has noted since this time, when an entry was said that is now redacted."""
    lines = tuple(line for line in book.notes.lines if not line.entry or line.at < at)
    notes = msgspec.structs.replace(book.notes, lines=lines)
    covers = min(book.covers, place)
    return msgspec.structs.replace(book, notes=notes, covers=covers, edition=book.edition + 1, dropped=())
