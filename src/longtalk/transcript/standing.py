"""The records of a transcript, each decoded once.

A turn looks at the same few records many times: the epoch, the brief, the anchor. `Standing` keeps what they decode to.
A transcript that gets another record passes the decoded values of the others on to its successor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_SPARE = 16


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Data derived from a transcript, such as a summary, attached to the entry up to which it is valid."""

    kind: str
    entry: str
    at: int
    data: bytes
    """The data as JSON, in a format that depends on `kind`."""


class Standing(tuple[Record, ...]):
    """The records of a transcript, oldest first, with their decoded values."""

    _decoded: dict[int, tuple[Record, Any, Any]]
    """By the identity of a record: the record itself, the type that it was decoded as, and the value."""

    def __new__(cls, records: Iterable[Record] = (), before: tuple[Record, ...] = ()) -> Standing:
        """Make one of these records, with what is decoded already of the records `before`."""
        standing = super().__new__(cls, records)
        decoded = before._decoded if isinstance(before, Standing) and before else {}
        if len(decoded) > len(standing) + _SPARE:
            present = {id(record) for record in standing}
            decoded = {key: value for key, value in list(decoded.items()) if key in present}
        standing._decoded = decoded
        return standing

    def read(self, record: Record, as_type: type[T]) -> T | None:
        """Return the data of one of these records, decoded; None if it can't be decoded."""
        known = self._decoded.get(id(record))
        if known is None or known[0] is not record or known[1] != as_type:
            known = self._decoded[id(record)] = (record, as_type, read_record(record, as_type))
        value: T | None = known[2]
        return value

    def read_latest(self, kind: str, as_type: type[T]) -> T | None:
        """Return the newest record of a kind, decoded; None if there is no such record or it can't be decoded."""
        for record in reversed(self):
            if record.kind == kind:
                return self.read(record, as_type)
        return None

    def read_all(self, kind: str, as_type: type[T]) -> list[T]:
        """Return all records of a kind that can be decoded, oldest first."""
        found = [self.read(record, as_type) for record in self if record.kind == kind]
        return [value for value in found if value is not None]


def read_record(record: Record, as_type: type[T]) -> T | None:
    """Return the data of a record, decoded; None if it can't be decoded, perhaps because a later version wrote it."""
    with contextlib.suppress(ValueError, RecursionError):
        return msgspec.json.decode(record.data, type=as_type)
    return None
