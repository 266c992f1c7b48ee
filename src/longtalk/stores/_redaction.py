"""Helpers for redaction, which also removes the texts of errors and the digest of the request for the entry's turn."""

from __future__ import annotations

import msgspec

from longtalk.transcript.transcript import Turn

REDACTED = "[redacted]"


def get_turn_id(entry: str) -> str:
    """Return the id of the turn that an entry belongs to, which is part of the entry's id."""
    return entry.rpartition("-")[0]


def redact_turn(turn: Turn) -> Turn:
    """Return a turn without the text of its error, which may quote any entry of the conversation."""
    return msgspec.structs.replace(turn, error=REDACTED) if turn.error else turn
