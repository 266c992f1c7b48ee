"""Integrity checks of a conversation in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from longtalk.stores._rows import meta_from_json
from longtalk.stores.postgres.rows import decode_holder, unescape_text
from longtalk.transcript.pack import checksum

_DECODERS: dict[str, Callable[[bytes], object]] = {
    "branch": decode_holder,
    "data on": meta_from_json,
    "data on the entry at place": meta_from_json,
}


def find_problems(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Return a description of each problem in the rows of the SQL function `kept`.

    Problems are missing entries, wrong checksums and unreadable values.
    """
    found: list[str] = []
    unread: list[str] = []
    # By segment: the position of the next entry, and the position after the last.
    ends: dict[int, int] = {}
    stops: dict[int, int] = {}
    for what, segment, position, number, name, data in rows:
        if what == "segment":
            ends[segment], stops[segment] = position, number
        elif what == "entry":
            if position != ends[segment]:
                found.append(f"entries are missing before place {position}")
            ends[segment] = position + 1
            if number != checksum(data):
                found.append(f"the entry at place {position}: its checksum does not hold")
        else:
            try:
                _DECODERS[what](data)
            except ValueError as problem:
                unread.append(f"the {what} {unescape_text(name)!r}: {problem}")
    missing = [f"entries are missing before place {stop}" for segment, stop in stops.items() if ends[segment] < stop]
    return [*found, *missing, *unread]
