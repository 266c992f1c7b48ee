"""What an app does to a brief: all of it or nothing, and what was taken away is in no request any more.

The app's lines have no entry that they came from. It says what it wants, so nothing is guessed: what can't be done
raises `InputError` with the reasons, and then nothing has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from longtalk.errors import InputError
from longtalk.memory.book import Book, book_of, kept
from longtalk.memory.brief import apply, ids_of, wire
from longtalk.memory.notes import Line, line_id, normal
from longtalk.memory.operations import MOST, Operation
from longtalk.memory.schema import Brief
from longtalk.tokens import Counter
from longtalk.transcript import Transcript, now

_LONGEST = 4_000
"""Characters of a text, at most: of a line far fewer are sent."""
_FEW = 5
"""Reasons that are told at once."""

_replace = msgspec.structs.replace


def changed(transcript: Transcript, changes: Sequence[Operation], config: Brief, counter: Counter) -> Transcript:
    """A transcript whose brief the app has changed so."""
    _check(changes)
    book = book_of(transcript)
    # What is said now is newer than all that was said, also in the same millisecond.
    at = max(now(), 1 + max((line.seen for line in book.notes.lines), default=0))
    applied = apply(book.notes, changes, config, counter, at=at)
    if applied.refused:
        names = ", ".join(field.name for field in config.schema.fields)
        more = f" And {len(applied.refused) - _FEW} more." if len(applied.refused) > _FEW else ""
        raise InputError(f"{' '.join(applied.refused[:_FEW])}{more} The fields are {names}.")
    if applied.notes == book.notes:
        return transcript
    return kept(transcript, _without(book, applied.removed, notes=applied.notes, dropped=applied.dropped))


def revoked(transcript: Transcript, line: str, config: Brief, counter: Counter, gone: Iterable[Line]) -> Transcript:
    """A transcript without a line, which only the app may say again. `gone` are those that are not there any more."""
    book = book_of(transcript)
    if any(each.id == line for each in book.notes.lines):
        return changed(transcript, [Operation.revoke(line)], config, counter)
    # What has fallen out may still stand at the head of requests, and the model may say it again.
    found = next((each for each in gone if each.id == line), None)
    if found is None:
        raise InputError(f"There is no line {line!r} in this brief: its lines know their ids.")
    ids = dict.fromkeys((*book.notes.revoked, *ids_of(found)))
    return kept(transcript, _without(book, (found,), notes=_replace(book.notes, revoked=tuple(ids)), dropped=()))


def _without(book: Book, removed: Sequence[Line], **members: Any) -> Book:
    """A book after a change by the app that has taken these away."""
    members["dropped"] = (*removed, *members["dropped"])
    return _replace(book, edition=book.edition + bool(removed), **members)


def first_brief(brief: object) -> list[Operation]:
    """The changes that a mapping of fields to texts, or lists of texts, stands for."""
    if not isinstance(brief, Mapping):
        raise InputError(f"`brief` is a mapping of fields to texts, such as {{'goal': '…'}}, not {brief!r}.")
    made = []
    for field, texts in brief.items():
        listed = texts if isinstance(texts, list | tuple) else (texts,)
        made.append(Operation.set(field, *listed) if listed else Operation.clear(field))
    _check(made)
    return made


def _check(changes: Sequence[Operation]) -> None:
    """Raise `InputError` for what is no text, or too much."""
    for change in changes:
        if not isinstance(change.field, str):
            raise InputError(f"A field of the brief is called by its name, not by {type(change.field).__name__}.")
        for text in (*change.texts, change.answer):
            if not isinstance(text, str):
                raise InputError(f"A line of the brief is text, not {type(text).__name__}.")
            if len(text) > _LONGEST:
                raise InputError(f"A text of {len(text):,} characters is no line of a brief: {_LONGEST:,} at most.")
    if (texts := sum(len(change.texts) for change in changes)) > MOST:
        raise InputError(f"{texts:,} texts are too many for a brief: {MOST} at once.")


def text_of(book: Book, config: Brief, counter: Counter) -> str:
    """The brief as a request carries it; nothing without lines."""
    return wire(apply(book.notes, [], config, counter).notes, config)


def gone_from(books: Iterable[Book]) -> tuple[Line, ...]:
    """The lines that fell out, were cut or were taken away, the newest last, given all that memory ever held."""
    found: dict[str, Line] = {}
    last = Book()
    for book in books:
        if book.dropped != last.dropped:
            for line in book.dropped:
                found.pop(line.id, None)
                found[line.id] = line
        last = book
    whole = {line_id(line.field, normal(line.text)) for line in last.notes.lines}
    there = {line.id for line in last.notes.lines if line.id in whole}
    return tuple(line for line in found.values() if line.id not in there)
