"""What takes the place of redacted content."""

from __future__ import annotations

from longtalk.transcript.pack import Entry
from longtalk.wires import redact

REDACTED = "[redacted]"


def replace_content(entry: Entry, text: str) -> bytes:
    """Return the JSON of an entry with its content replaced by `text`."""
    try:
        return redact(entry, text)
    except (LookupError, ValueError):
        # The wire is unknown, so Longtalk can neither read nor send this entry.
        return b"{}"
