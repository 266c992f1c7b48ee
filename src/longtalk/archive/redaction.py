"""What takes the place of redacted content."""

from __future__ import annotations

from longtalk.transcript.pack import Entry
from longtalk.wires import redact

REDACTED = "[redacted]"


def is_redacted(entry: Entry) -> bool:
    """Return True if the whole content of an entry was erased."""
    return replace_content(entry, REDACTED) == entry.native


def replace_content(entry: Entry, text: str) -> bytes:
    """Return the JSON of an entry with its content replaced by `text`."""
    try:
        return redact(entry, text)
    except (LookupError, ValueError):
        # The wire is unknown, so Longtalk can neither read nor send this entry.
        return b"{}"
