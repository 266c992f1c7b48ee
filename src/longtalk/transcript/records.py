"""Decode records: data derived from a transcript, each as JSON in the format of its kind."""

from __future__ import annotations

import contextlib
from typing import TypeVar

import msgspec

from longtalk.transcript.transcript import Record, Transcript

T = TypeVar("T")


def read_latest(transcript: Transcript, kind: str, as_type: type[T]) -> T | None:
    """Return the newest record of a kind, decoded; None if there is no such record or it can't be decoded."""
    for record in reversed(transcript.records):
        if record.kind == kind:
            return read_record(record, as_type)
    return None


def read_record(record: Record, as_type: type[T]) -> T | None:
    """Return the data of a record, decoded; None if it can't be decoded, perhaps because a later version wrote it."""
    with contextlib.suppress(ValueError, RecursionError):
        return msgspec.json.decode(record.data, type=as_type)
    return None
