"""Taking what a model has noted into the brief: from cards, or by its tool.

A card that can't be read, has too much in it or says nothing of use changes nothing, and counts as an ask in vain. When
too many of the last asks were, another way is taken with the next epoch: tools are a part of what is cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from longtalk.memory.book import Book, Card, Way, book_of, kept
from longtalk.memory.brief import Line, apply
from longtalk.memory.card import CATCH_UP, keys, read_card, request, within
from longtalk.memory.operations import Operation, operations
from longtalk.memory.schema import Brief
from longtalk.tokens import Counter
from longtalk.tools import Tool, tool
from longtalk.transcript import Transcript
from longtalk.wires import said

NAME = "update_memory"
_TURNS = 2
"""How often another way is tried: there, and back again."""
_READ = 200
"""Entries in which the origin of a line is looked for, at most."""

_replace = msgspec.structs.replace


def asking(config: Brief, way: Way, *, catch_up: bool) -> str:
    """What asks for a card, or for a call of the tool."""
    if way == "tool":
        what = CATCH_UP if catch_up else "what this turn changes"
        return f"Before you answer, call {NAME} once with {what}. Do not mention it."
    return request(_says(config), lists=_lists(config), catch_up=catch_up)


def asked_for(text: str) -> Card:
    """Which card a text asks for that stands behind a message."""
    asks = "<MEMORY_CARD>" in text or f"call {NAME} once" in text
    return "" if not asks else "catch_up" if CATCH_UP in text else "small"


def tool_of(config: Brief) -> Tool:
    """The tool by which a model can note something."""

    def update_memory(changes: Annotated[dict[str, Any], "The changes, by key."]) -> dict[str, Any]:
        return changes

    example = '{"changes": {"goal": "…", "+facts": ["…"]}}'
    text = f"Note what matters later in this conversation, as {example}. {keys(_says(config), lists=_lists(config))}"
    return tool(update_memory, name=NAME, description=text, idempotent=True)


def _says(config: Brief) -> dict[str, str]:
    return {field.key: field.name.replace("_", " ") for field in config.schema.fields}


def _lists(config: Brief) -> list[str]:
    return [field.key for field in config.schema.fields if field.kind == "list"]


def take_cards(
    transcript: Transcript, cards: Sequence[str], config: Brief, counter: Counter, *, asked: str, at: int
) -> tuple[Transcript, bool]:
    """A transcript that has taken in the cards of its last answer, and whether one of them was good for anything.

    `asked` says for which card the model was asked.
    """
    heard = False
    gone: tuple[Line, ...] = ()
    for content in cards:
        read = read_card(content)
        if isinstance(read, str):
            continue
        made = within(read[0], counter, catch_up=asked == "catch_up")
        refused = read[1] if len(made) == len(read[0]) else [*read[1], "It is too long."]
        taken = _take(transcript, made, refused, config, counter, covers=True, at=at, gone=gone)
        if taken is not None:
            transcript, heard = taken, True
            gone = book_of(taken).dropped
    return transcript, heard


def take_call(
    transcript: Transcript, changes: object, config: Brief, counter: Counter, *, asked: str, at: int
) -> tuple[Transcript, str]:
    """A transcript that has taken in a call of the tool, and why it has not; nothing if it has.

    One that nobody has `asked` for tells of no more than it says.
    """
    made, refused = operations(changes)
    taken = _take(transcript, made, refused, config, counter, covers=bool(asked), at=at)
    return taken or transcript, "" if taken else " ".join(refused) or "Nothing of it could be noted."


def _take(
    transcript: Transcript,
    made: list[Operation],
    refused: list[str],
    config: Brief,
    counter: Counter,
    *,
    covers: bool,
    at: int,
    gone: tuple[Line, ...] = (),
) -> Transcript | None:
    """A transcript with these changes; None if they are good for nothing."""
    if refused and not made:
        return None
    book = book_of(transcript)
    # What is said now is newer than all that was said, whatever the clock says.
    at = max(at, 1 + max((line.seen for line in book.notes.lines), default=0))
    applied = apply(book.notes, made, config, counter, entry=transcript.head or "", at=at)
    if made and len(applied.refused) >= len(made) and applied.notes == book.notes:
        return None
    book = _replace(
        book,
        notes=_replace(applied.notes, lines=tuple(_from(applied.notes.lines, book, transcript))),
        covers=transcript.size if covers else book.covers,
        asks=0 if covers else book.asks,
        dropped=(*gone, *applied.removed, *applied.dropped),
    )
    return kept(transcript, book)


def _from(lines: Sequence[Line], book: Book, transcript: Transcript) -> Sequence[Line]:
    """Lines, of which those that are new know which entry they came from: the one that shares most words with them."""
    known = {line.id for line in book.notes.lines}
    if all(line.id in known for line in lines):
        return lines
    from longtalk.memory.terms import terms

    first = max(transcript.here(book.covers), len(transcript) - _READ, 0)
    texts = [(transcript[i].id, frozenset(terms(said(transcript[i])))) for i in range(first, len(transcript) - 1)]
    return [
        line if line.id in known else _replace(line, entry=_origin(frozenset(terms(line.text)), texts, line.entry))
        for line in lines
    ]


def _origin(words: frozenset[str], texts: Sequence[tuple[str, frozenset[str]]], otherwise: str) -> str:
    shared = [(len(words & held), entry) for entry, held in texts]
    most = max((number for number, _ in shared), default=0)
    if not words or 2 * most < len(words):
        return otherwise
    return next(entry for number, entry in shared if number == most)


def count_ask(transcript: Transcript, *, heard: bool, raw: int, way: Way, other: bool) -> tuple[Transcript, Way | None]:
    """A transcript that knows how an ask went, and which way is taken from the next epoch on if that changes now.

    `raw` is where the exchanges begin that are sent as they are; `other` says that there is another way.
    """
    book = book_of(transcript)
    tally = book.tally.asked(failed=not heard)
    asks = 0 if heard else book.asks_since(raw) + 1
    book = _replace(book, marks=tally.marks, raw=raw, asks=asks, dropped=book.dropped if heard else ())
    turned: Way | None = None
    if tally.too_many and other and (book.way or way) == way and book.turned < _TURNS:
        turned = "sentinel" if way == "tool" else "tool"
        book = _replace(book, way=turned, turned=book.turned + 1, marks="")
    return kept(transcript, book), turned
