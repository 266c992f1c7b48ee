"""The brief: a structured note that goes along with requests, kept up to date by operations.

`apply` makes notes of notes. It refuses what makes no sense, says why, and goes on with the rest. What is said again is
the same line, but counts as said now. See `operations.py` for what can be asked for, `schema.py` for the fields that an
app declares, `notes.py` for the lines and how they are written, `fit.py` for what stays when the budget is short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from longtalk.memory.fit import fit
from longtalk.memory.notes import Line, Notes, cleaned, decode, encode, line_id, normal, wire
from longtalk.memory.operations import MOST, Operation, operations, quote
from longtalk.memory.schema import GENERAL, Brief, Field, Schema
from longtalk.tokens import Counter

__all__ = [
    "GENERAL",
    "Applied",
    "Brief",
    "Field",
    "Line",
    "Notes",
    "Operation",
    "Schema",
    "apply",
    "decode",
    "encode",
    "operations",
    "wire",
]

_REVOKED = 200
"""Revoked lines that are remembered."""

_replace = msgspec.structs.replace


class Applied(msgspec.Struct, frozen=True):
    """What became of notes."""

    notes: Notes
    dropped: tuple[Line, ...] = ()
    """Lines that there is no room for, and those that were cut, whole: to be archived, so that they are found again."""
    removed: tuple[Line, ...] = ()
    """Lines that operations took away, or put another text in the place of."""
    refused: tuple[str, ...] = ()
    """Why something was not done, in words."""


def apply(
    notes: Notes,
    changes: Sequence[Operation],
    config: Brief,
    counter: Counter,
    *,
    entry: str = "",
    at: int = 0,
) -> Applied:
    """Notes after these changes, within the budget as this counter counts. The app's own have no entry.

    Without changes it makes notes fit another configuration or another counter, or those that came from elsewhere.
    """
    book = _Book(notes, config.schema, entry, at)
    for change in _counting(changes):
        book.do(change)
    if (texts := sum(map(_size, changes))) > MOST:
        book.refused.append(f"Of {texts} texts only the first {MOST} count.")
    lines, dropped = fit(book.in_order(notes), config, counter)
    notes = Notes(_numbered(lines, at), tuple(book.revoked)[-_REVOKED:])
    return Applied(notes, tuple(dropped), tuple(book.gone.values()), tuple(book.refused))


def _numbered(lines: Sequence[Line], at: int) -> tuple[Line, ...]:
    """Lines, where those of this card are numbered as they follow each other, without gaps."""
    new = sorted((line for line in lines if line.seen == at), key=lambda line: line.place)
    ranks = {line.id: rank for rank, line in enumerate(new)}
    return tuple(_replace(line, place=ranks.get(line.id, line.place)) for line in lines)


def _size(change: Operation) -> int:
    return max(1, len(change.texts))


def _counting(changes: Sequence[Operation]) -> Iterator[Operation]:
    """The changes that count: as many as have so many texts."""
    left = MOST
    for change in changes:
        if left > 0:
            yield change if len(change.texts) <= left else _replace(change, texts=change.texts[:left])
        left -= _size(change)


def ids_of(line: Line) -> tuple[str, ...]:
    """What a line is known by, in its field and in any."""
    plain = normal(line.text)
    return line.id, line_id(line.field, plain), line_id("", plain)


class _Book:
    """Notes while they are changed."""

    def __init__(self, notes: Notes, schema: Schema, entry: str, at: int) -> None:
        self.schema, self.entry, self.at = schema, entry, at
        self.said = 0
        """How many texts this card has put into the notes, or said again."""
        self.lines = {line.id: line for line in notes.lines}
        self.revoked = dict.fromkeys(notes.revoked)
        self.gone: dict[str, Line] = {}
        """What was taken away. Said again by the same card, it was never gone."""
        self.refused: list[str] = []
        self.plain = {line.id: normal(line.text) for line in notes.lines}
        # A line is known by its whole text and, if it was cut, by what is left of it.
        self.known = {line_id(line.field, self.plain[line.id]): line.id for line in notes.lines}
        self.known |= {line.id: line.id for line in notes.lines}

    def in_order(self, notes: Notes) -> list[Line]:
        """The lines as they were, and then the new ones."""
        places = {line.id: i for i, line in enumerate(notes.lines)}
        size = len(places)
        return sorted(self.lines.values(), key=lambda line: places.get(line.id, size + line.place))

    def do(self, change: Operation) -> None:
        field = self.schema.find(change.field)
        if field is None and (change.field or change.op not in ("remove", "resolve", "revoke")):
            self.refused.append(f"There is no field {quote(change.field)}.")
        elif change.op in ("remove", "resolve", "revoke"):
            self._take_away(change, field)
        elif field is not None:
            self._write(change, field)

    def _write(self, change: Operation, field: Field) -> None:
        if change.op == "clear":
            self._leave(field, ())
        elif change.op not in ("set", "add", "plain"):
            self.refused.append(f"There is no operation {quote(change.op)}.")
        elif not (texts := [text for text in map(cleaned, change.texts) if text]):
            self.refused.append(f"{quote(change.op)} takes a text for {field.name!r}.")
        elif field.kind == "list":
            whole = change.op == "set" or (change.op == "plain" and field.whole)
            self._put(field, texts, instead=whole)
        elif len(texts) == 1:
            self._put(field, texts, instead=True)
        else:
            self.refused.append(f"{field.name!r} takes one text, not {len(texts)}.")

    def _put(self, field: Field, texts: list[str], *, instead: bool) -> None:
        """Add what a field does not have yet; instead of what it has, if told so."""
        ids = [self._say(field, text) for text in texts]
        if instead and any(ids):
            self._leave(field, ids)

    def _say(self, field: Field, text: str) -> str:
        """Add a line, or note that it was said again. The id it goes by; empty if it was refused."""
        plain = normal(text)
        made = line_id(field.name, plain)
        anywhere = line_id("", plain)
        if self.entry and (made in self.revoked or anywhere in self.revoked):
            self.refused.append(f"{quote(text)} was revoked.")
            return ""
        self.revoked.pop(made, None)
        self.revoked.pop(anywhere, None)
        known = self.known.setdefault(made, made)
        line = self.lines.get(known) or self.gone.pop(known, None)
        if line is None:
            line = Line(made, field.name, text, self.entry, self.at)
            self.plain[made] = plain
        self.lines[known] = _replace(line, seen=max(line.seen, self.at), place=self.said)
        self.said += 1
        return known

    def _leave(self, field: Field, ids: Iterable[str]) -> None:
        """Take away all lines of a field but these."""
        kept = set(ids)
        for line in list(self.lines.values()):
            if line.field == field.name and line.id not in kept:
                self._drop(line)

    def _drop(self, line: Line) -> None:
        self.gone[line.id] = self.lines.pop(line.id)

    def _take_away(self, change: Operation, field: Field | None) -> None:
        if not change.texts and field is not None and field.kind == "text":
            self._leave(field, ())
        elif not change.texts:
            self.refused.append(f"{quote(change.op)} takes the text of a line.")
        home = field
        for text in change.texts:
            line = self._find(text, field)
            if line is None:
                continue
            home = self.schema.find(line.field)
            self._drop(line)
            if change.op == "revoke":
                self.revoked |= dict.fromkeys(ids_of(line))
        if change.op == "resolve" and (answer := cleaned(change.answer)):
            self._answer(answer, home)

    def _find(self, text: str, field: Field | None) -> Line | None:
        """The line with this text, or with this beginning or id if there is but one."""
        plain = normal(cleaned(text))
        fields = [field] if field else self.schema.fields
        names = {each.name for each in fields}
        ids = {self.known.get(line_id(name, plain), "") for name in names} | {text.strip()}
        found = [self.lines[i] for i in ids if i in self.lines and self.lines[i].field in names]
        if not found and plain:
            found = [each for i, each in self.lines.items() if each.field in names and self.plain[i].startswith(plain)]
        if len(found) == 1:
            return found[0]
        self.refused.append(f"{len(found) or 'No'} line{'s' * bool(found)} can be meant by {quote(text)}.")
        return None

    def _answer(self, answer: str, field: Field | None) -> None:
        """Keep the answer to what was resolved: also if the question is gone already."""
        names = [field.answers] if field else [each.answers for each in self.schema.fields if each.answers]
        home = self.schema.find(names[0]) if names else None
        if home is None:
            self.refused.append(f"No field keeps the answer {quote(answer)}.")
        else:
            self._put(home, [answer], instead=False)
