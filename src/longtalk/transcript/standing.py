"""The records of a transcript, each of which is decoded only once.

A turn reads the same few records many times: the epoch, the brief, the anchor. `Standing` caches their decoded values.
When a record is added to a transcript, the new transcript takes over the values that are already decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from longtalk._util import typed_json

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
    """For each record, by its identity: the record, the type that it was decoded to, and the value."""

    def __new__(cls, records: Iterable[Record] = (), before: tuple[Record, ...] = ()) -> Standing:
        """Create the object from these records. Values already decoded in `before` are reused."""
        standing = super().__new__(cls, records)
        decoded = before._decoded if isinstance(before, Standing) and before else {}
        if len(decoded) > len(standing) + _SPARE:
            present = {id(record) for record in standing}
            decoded = {key: value for key, value in list(decoded.items()) if key in present}
        standing._decoded = decoded
        return standing

    def read(self, record: Record, as_type: type[T]) -> T | None:
        """Return the decoded data of one of these records; None if it can't be decoded."""
        known = self._decoded.get(id(record))
        if known is None or known[0] is not record or known[1] != as_type:
            known = self._decoded[id(record)] = (record, as_type, read_record(record, as_type))
        value: T | None = known[2]
        return value

    def read_latest(self, kind: str, as_type: type[T]) -> T | None:
        """Return the decoded data of the newest record of a kind; None if there is none or it can't be decoded."""
        for record in reversed(self):
            if record.kind == kind:
                known = self._decoded.get(id(record))
                if known is not None and known[0] is record and known[1] == as_type:
                    value: T | None = known[2]
                    return value
                return self.read(record, as_type)
        return None

    def read_all(self, kind: str, as_type: type[T]) -> list[T]:
        """Return all records of a kind that can be decoded, oldest first."""
        found = [record for record in self if record.kind == kind]
        return [value for record in found if (value := self.read(record, as_type)) is not None] if found else []


def read_record(record: Record, as_type: type[T]) -> T | None:
    """Return the data of a record, decoded; None if it can't be decoded, perhaps because a later version wrote it."""
    try:
        return typed_json.decode(record.data, as_type)
    except (ValueError, RecursionError):
        return None
