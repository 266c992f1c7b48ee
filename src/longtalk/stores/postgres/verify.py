"""Integrity checks of a conversation in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from longtalk.stores._rows import meta_from_json
from longtalk.stores.postgres.rows import decode_holder, unescape_text
from longtalk.transcript.pack import checksum

_VALUES: dict[str, tuple[str, Callable[[bytes], object]]] = {
    "branch": ("the lease of the branch", decode_holder),
    "data on": ("the metadata of the conversation", meta_from_json),
    "data on the entry at place": ("the metadata of the entry at position", meta_from_json),
}
"""By kind of row: a description, which the row's name completes, and a function that decodes the value."""


def find_problems(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Describe each problem in a conversation, given the rows of the SQL function `kept`.

    Problems are missing entries, wrong checksums and unreadable values.
    """
    found: list[str] = []
    unreadable: list[str] = []
    # By segment: the position of the next entry, and the position after the last.
    ends: dict[int, int] = {}
    stops: dict[int, int] = {}
    for kind, segment, position, number, name, data in rows:
        if kind == "segment":
            ends[segment], stops[segment] = position, number
        elif kind == "entry":
            if position != ends[segment]:
                found.append(f"entries are missing before position {position}")
            ends[segment] = position + 1
            if number != checksum(data):
                found.append(f"the entry at position {position} has a wrong checksum")
        else:
            description, decode = _VALUES[kind]
            try:
                decode(data)
            except ValueError as problem:
                unreadable.append(f"{description} {unescape_text(name)!r} can't be decoded: {problem}")
    missing = [f"entries are missing before position {stop}" for segment, stop in stops.items() if ends[segment] < stop]
    return [*found, *missing, *unreadable]
