"""What an answer is filed under: the lines of the cards in it. They are found like its own words, and never shown."""

from __future__ import annotations

from collections.abc import Sequence

from longtalk.memory.card import read_card
from longtalk.memory.operations import Operation
from longtalk.pack import Entry
from longtalk.wires import said
from longtalk.wires.base import View, view_of

__all__ = ["findable", "labels_of"]


def labels_of(entry: Entry) -> str:
    """What the cards of an answer say, a line each; nothing where there is none that can be read."""
    return "\n".join(line for each in changes_in(entry) for line in (*each.texts, each.answer) if line)


def changes_in(entry: Entry) -> list[Operation]:
    """What the cards of an answer change."""
    if entry.role != "assistant" or b"_card" not in entry.native.lower():
        return []
    view = _view(entry)
    read = [read_card(card) for card in view.cards] if view else []
    return [operation for each in read if not isinstance(each, str) for operation in each[0]]


def _view(entry: Entry) -> View | None:
    try:
        return view_of(entry)
    except (ValueError, LookupError, TypeError):
        return None


def findable(entry: Entry) -> str:
    """All that an entry is found by: what it says, and its labels."""
    text, labels = said(entry), labels_of(entry)
    return f"{text}\n{labels}" if labels else text


def quoting(entry: Entry, later: Sequence[Entry]) -> list[tuple[Entry, str]]:
    """The later entries that may quote one, since they share words with it, and what may stay of each.

    Those are answers with cards, which keep the rest, and what was recalled for a model that asked for it.
    """
    from longtalk.memory.terms import terms

    words = frozenset(terms(said(entry)))
    found: list[tuple[Entry, str]] = []
    for each in later:
        text, rest = (labels_of(each), said(each)) if each.role == "assistant" else (_recalled(each), "")
        if text and words & frozenset(terms(text)):
            found.append((each, rest))
    return found


def _recalled(entry: Entry) -> str:
    """What the tool `recall` has brought."""
    from longtalk.memory.units import TAG

    view = _view(entry) if b"recalled>" in entry.native else None
    return view.text if view and view.call_id and view.text.startswith(f"<{TAG}>") else ""
