"""What an answer is filed under: the lines of the cards in it. They are found like its own words, and never shown."""

from __future__ import annotations

from collections.abc import Sequence

from longtalk.memory.card import read_card
from longtalk.memory.operations import Operation
from longtalk.pack import Entry
from longtalk.wires import said
from longtalk.wires.base import view_of

__all__ = ["findable", "labels_of"]


def labels_of(entry: Entry) -> str:
    """What the cards of an answer say, a line each; nothing where there is none that can be read."""
    return "\n".join(line for each in changes_in(entry) for line in (*each.texts, each.answer) if line)


def changes_in(entry: Entry) -> list[Operation]:
    """What the cards of an answer change."""
    if entry.role != "assistant" or b"_card" not in entry.native.lower():
        return []
    read = [read_card(card) for card in _cards(entry)]
    return [operation for each in read if not isinstance(each, str) for operation in each[0]]


def _cards(entry: Entry) -> tuple[str, ...]:
    try:
        return view_of(entry).cards
    except (ValueError, LookupError, TypeError):
        return ()


def findable(entry: Entry) -> str:
    """All that an entry is found by: what it says, and its labels."""
    text, labels = said(entry), labels_of(entry)
    return f"{text}\n{labels}" if labels else text


def quoting(entry: Entry, later: Sequence[Entry]) -> list[Entry]:
    """The later answers whose cards may quote an entry: those that share words with it."""
    from longtalk.memory.terms import terms

    words = frozenset(terms(said(entry)))
    return [each for each in later if (lines := labels_of(each)) and words & frozenset(terms(lines))]
