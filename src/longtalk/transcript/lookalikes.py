"""Mark entries whose text holds a look-alike of a tag, once, when they are added to a conversation.

A request then costs nothing for the others, and is not searched. The entries of an earlier version have no marks; see
`Transcript.is_checked`.
"""

from __future__ import annotations

from longtalk._util.lookalikes import neutralize_json
from longtalk.transcript.pack import CHECKED, LOOKALIKE, OWN, Entry

NEUTRALIZED = ("user", "tool")
"""The roles of the messages whose look-alikes are made harmless. An answer is sent as it came."""


def mark_lookalike(entry: Entry, *, is_first: bool = False) -> Entry:
    """Return an entry, marked if its text contains a look-alike of a tag.

    With `is_first`, the entry is the first of a conversation, and also gets the mark `CHECKED`.
    """
    if entry.role in NEUTRALIZED and entry.wire != OWN and neutralize_json(entry.native) != entry.native:
        entry = entry.with_mark(LOOKALIKE)
    return entry.with_mark(CHECKED) if is_first else entry
