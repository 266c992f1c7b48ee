"""Reading records: what was derived from a transcript, in a form of the kind's own."""

from __future__ import annotations

import contextlib
from typing import TypeVar

import msgspec

from longtalk.transcript import Record, Transcript

T = TypeVar("T")


def latest(transcript: Transcript, kind: str, of: type[T]) -> T | None:
    """The newest record of a kind, if it can be read."""
    for record in reversed(transcript.records):
        if record.kind == kind:
            return read_record(record, of)
    return None


def read_record(record: Record, of: type[T]) -> T | None:
    """What a record says; None if it can't be read: it may have come from elsewhere."""
    with contextlib.suppress(ValueError, RecursionError):
        return msgspec.json.decode(record.data, type=of)
    return None
