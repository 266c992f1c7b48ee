"""Units of recall, made from entries: messages of users and assistants, and events.

Tool results are left out: they are long and come from untrusted sources, and the answer that follows repeats what
matters. System messages that the app put into the conversation are left out too, because recalled text must not act as
an instruction.
"""

from __future__ import annotations

from longtalk._util import json_bytes
from longtalk._util.lookalikes import neutralize
from longtalk.memory.recall.index import Unit
from longtalk.memory.recall.labels import read_card_labels
from longtalk.transcript.pack import Entry
from longtalk.wires import text_if_readable

__all__ = ["escape_tags", "to_unit"]

_ROLES = frozenset(("user", "assistant", "event"))
_MAX_NAME_CHARS = 64  # characters of a name


def to_unit(position: int, entry: Entry) -> Unit | None:
    """Return an entry as a unit of recall, or None if the entry must not be recalled or has no text."""
    if entry.role not in _ROLES:
        return None
    text, labels = escape_tags(text_if_readable(entry)), read_card_labels(entry)
    if not text.strip():
        return None
    return Unit(position, entry.role, text, entry.at // 1000, _read_speaker_name(entry), labels)


def escape_tags(text: str) -> str:
    """Return a text in which nothing reads as a tag of Longtalk's, and nothing can close the tag around it."""
    return neutralize(text)


def _read_speaker_name(entry: Entry) -> str:
    """Return the name of the user who wrote a message, or "" if the message has no name."""
    if entry.role != "user" or b'"name"' not in entry.native:
        return ""
    name = json_bytes.value(entry.native).get("name")
    return " ".join(escape_tags(name[:_MAX_NAME_CHARS]).split()) if isinstance(name, str) else ""
