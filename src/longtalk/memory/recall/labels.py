"""Labels: the texts of the memory cards in an answer. They make the answer easier to find and are never shown."""

from __future__ import annotations

from collections.abc import Sequence

from longtalk.memory.brief.operations import Operation
from longtalk.memory.cards.prompt import read_card
from longtalk.transcript.pack import Entry
from longtalk.wires import text_if_readable
from longtalk.wires.entries import view_entry
from longtalk.wires.views import MessageView

__all__ = ["get_searchable_text", "read_card_labels"]


def read_card_labels(entry: Entry) -> str:
    """Return the texts of the memory cards in an answer, one per line; empty if it has no readable card."""
    return "\n".join(line for each in read_card_operations(entry) for line in (*each.texts, each.answer) if line)


def read_card_operations(entry: Entry) -> list[Operation]:
    """Return the operations in the memory cards of an answer; an empty list if it has no readable card."""
    if entry.role != "assistant" or b"_card" not in entry.native.lower():
        return []
    view = _read_view(entry)
    read = [read_card(card) for card in view.cards] if view else []
    return [operation for each in read if not isinstance(each, str) for operation in each[0]]


def _read_view(entry: Entry) -> MessageView | None:
    """Return the parsed message of an entry, or None if the entry is malformed or its wire is unknown."""
    try:
        return view_entry(entry)
    except (ValueError, LookupError, TypeError):
        return None


def get_searchable_text(entry: Entry) -> str:
    """Return the text in which a search looks for words: the text of an entry and its labels."""
    text, labels = text_if_readable(entry), read_card_labels(entry)
    return f"{text}\n{labels}" if labels else text


def find_quotes(entry: Entry, later: Sequence[Entry]) -> list[tuple[Entry, str]]:
    """Return the entries in `later` that may quote an entry, in a memory card or in a result of the `recall` tool.

    A card or result may quote the entry if they share a word. Each returned entry comes with the part of its text that
    can be kept: an answer without its cards, and "" for a result of the `recall` tool.
    """
    from longtalk.memory.terms import extract_terms

    entry_terms = frozenset(extract_terms(text_if_readable(entry)))
    quoting: list[tuple[Entry, str]] = []
    for later_entry in later:
        if later_entry.role == "assistant":
            text, kept_text = read_card_labels(later_entry), text_if_readable(later_entry)
        else:
            text, kept_text = _get_recalled_text(later_entry), ""
        if text and entry_terms & frozenset(extract_terms(text)):
            quoting.append((later_entry, kept_text))
    return quoting


def _get_recalled_text(entry: Entry) -> str:
    """Return the text of an entry if it is a result of the `recall` tool, else ""."""
    from longtalk.memory.recall.config import TAG

    view = _read_view(entry) if b"recalled>" in entry.native else None
    return view.text if view and view.call_id and view.text.startswith(f"<{TAG}>") else ""
