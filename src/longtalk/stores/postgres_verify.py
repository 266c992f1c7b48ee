"""What is wrong with how a conversation is kept in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from longtalk.pack import checksum
from longtalk.stores.postgres_rows import holder_of, text_out
from longtalk.stores.rows import meta_out

_READ: dict[str, Callable[[bytes], object]] = {
    "branch": holder_of,
    "data on": meta_out,
    "data on the entry at place": meta_out,
}


def problems(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Entries that are missing, checksums that do not hold, what can't be read: of the rows of the function `kept`."""
    found: list[str] = []
    unread: list[str] = []
    # Where the next entry has to be.
    ends: dict[int, int] = {}
    stops: dict[int, int] = {}
    for what, segment, place, number, name, data in rows:
        if what == "segment":
            ends[segment], stops[segment] = place, number
        elif what == "entry":
            if place != ends[segment]:
                found.append(f"entries are missing before place {place}")
            ends[segment] = place + 1
            if number != checksum(data):
                found.append(f"the entry at place {place}: its checksum does not hold")
        else:
            try:
                _READ[what](data)
            except ValueError as problem:
                unread.append(f"the {what} {text_out(name)!r}: {problem}")
    missing = [f"entries are missing before place {stop}" for segment, stop in stops.items() if ends[segment] < stop]
    return [*found, *missing, *unread]
