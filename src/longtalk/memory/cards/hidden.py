"""Find the calls of the memory tool in a conversation, so that streams, history and Markdown can hide them.

An app may have a tool of the same name. A call is one of the library's own if its result is one of the texts below.
"""

from __future__ import annotations

from collections.abc import Sequence

from longtalk.memory.cards.capture import TOOL_NAME
from longtalk.transcript.pack import Entry
from longtalk.wires.entries import view_entry
from longtalk.wires.views import MessageView

NOTED = "Noted."
"""The result of a call that changed the brief. It must not change, because stored results are recognized by it."""
NOT_NOTED = "Not noted: "
"""The beginning of the result of a call that was refused. It must not change either."""


def find_memory_calls(entries: Sequence[Entry]) -> dict[int, frozenset[str]]:
    """Return the ids of the memory tool's calls, by the index of the answer that makes a call or of its result."""
    found: dict[int, set[str]] = {}
    open_calls: dict[str, int] = {}
    for i, entry in enumerate(entries):
        if entry.role == "assistant":
            view = _read_view(entry) if TOOL_NAME.encode() in entry.native else None
            open_calls = {call.id: i for call in view.calls if call.name == TOOL_NAME} if view else {}
        elif entry.role == "tool" and open_calls:
            view = _read_view(entry)
            if view and view.call_id in open_calls and (view.text == NOTED or view.text.startswith(NOT_NOTED)):
                for place in (i, open_calls.pop(view.call_id)):
                    found.setdefault(place, set()).add(view.call_id)
    return {i: frozenset(ids) for i, ids in found.items()}


def is_hidden(entry: Entry, ids: frozenset[str]) -> bool:
    """Return True if an entry only makes calls with these ids, or is the result of such a call."""
    if not ids or entry.role == "tool":
        return bool(ids)
    view = _read_view(entry)
    return view is not None and not (view.text.strip() or view.refusal) and all(call.id in ids for call in view.calls)


def _read_view(entry: Entry) -> MessageView | None:
    """Return the parsed message of an entry, or None if the entry is malformed or its wire is unknown."""
    try:
        return view_entry(entry)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
