"""Entries as what can be recalled of them: what users, assistants and apps said.

What a tool gave is no unit: it is long, whoever wrote it is a stranger, and what mattered of it is in the answer behind
it. Neither are instructions of the app inside a conversation: what is recalled has nobody's authority.
"""

from __future__ import annotations

import re

from longtalk import _json
from longtalk.memory.labels import labels_of
from longtalk.memory.recall import Unit
from longtalk.memory.sentinel import neutralised
from longtalk.pack import Entry
from longtalk.wires import said

__all__ = ["TAG", "safe", "unit_of"]

TAG = "recalled"
"""What encloses all that is recalled."""
_ROLES = frozenset(("user", "assistant", "event"))
_TAG = re.compile(rf"<(?=\s*/?\s*({TAG}|memory|brief|outline|summary|earlier_\w+|instruction|system|event)\b)", re.I)
_NAME = 64  # characters of a name


def unit_of(place: int, entry: Entry) -> Unit | None:
    """An entry as a unit; None for what is never recalled, or says nothing."""
    if entry.role not in _ROLES:
        return None
    text, labels = safe(said(entry)), labels_of(entry)
    if not text.strip():
        return None
    return Unit(place, entry.role, text, entry.at // 1000, _name(entry), labels)


def safe(text: str) -> str:
    """A text that is no more than one: it ends no tag around it, and is no card."""
    return _TAG.sub("&lt;", neutralised(text)) if "<" in text else text


def _name(entry: Entry) -> str:
    """Who said it, where the message tells: several people may speak as users."""
    if entry.role != "user" or b'"name"' not in entry.native:
        return ""
    name = _json.value(entry.native).get("name")
    return " ".join(safe(name[:_NAME]).split()) if isinstance(name, str) else ""
