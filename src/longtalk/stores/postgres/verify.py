"""Integrity checks of a conversation in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from longtalk.stores._rows import meta_from_json
from longtalk.stores.postgres.rows import decode_holder, unescape_text
from longtalk.transcript.pack import has_checksum

_VALUES: dict[str, tuple[str, Callable[[bytes], object]]] = {
    "branch": ("the lease of branch", decode_holder),
    "data on": ("the metadata of conversation", meta_from_json),
    "data on the entry at place": ("the metadata of the entry at position", meta_from_json),
}
"""By kind of row: a description to be followed by the row's name, and a function that decodes the row's value."""


def find_problems(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Describe each missing entry, wrong checksum and unreadable value in a conversation.

    `rows` are the rows that the SQL function `kept` returned for the conversation.
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
            if not has_checksum(data, number):
                found.append(f"the entry at position {position} has a wrong checksum")
        else:
            description, decode = _VALUES[kind]
            try:
                decode(data)
            except ValueError as problem:
                unreadable.append(f"{description} {unescape_text(name)!r} can't be decoded: {problem}")
    missing = [f"entries are missing before position {stop}" for segment, stop in stops.items() if ends[segment] < stop]
    return [*found, *missing, *unreadable]
