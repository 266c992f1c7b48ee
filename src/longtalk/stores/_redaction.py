"""Helpers for redaction, which also removes what turns may quote of the entry.

That is the texts of errors, the responses, and the digest of the request for the entry's turn.
"""

from __future__ import annotations

import msgspec

from longtalk.transcript.transcript import Turn

REDACTED = "[redacted]"


def get_turn_id(entry: str) -> str:
    """Return the id of the turn that an entry belongs to, which is part of the entry's id."""
    return entry.rpartition("-")[0]


def redact_turn(turn: Turn) -> Turn:
    """Return a turn without the text of its error and without its responses, which may quote any earlier entry."""
    return msgspec.structs.replace(turn, error=turn.error and REDACTED, responses=())
