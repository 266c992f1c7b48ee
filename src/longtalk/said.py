"""What was said, for reading: the entries of a conversation with their texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from longtalk import state as states
from longtalk.errors import InputError
from longtalk.pack import Entry
from longtalk.seal import BoundSeal, Seal
from longtalk.transcript import Turn
from longtalk.wires import NAMES, WIRES, said
from longtalk.wires.base import View


class Said(msgspec.Struct, frozen=True):
    """An entry of a conversation, for reading."""

    id: str
    turn: str
    role: str
    text: str
    at: int
    """When, in milliseconds since 1970."""
    native: bytes
    """Its exact JSON."""
    mark: str = ""
    """What is odd about it: `interrupted`, `length`, `closed` …"""
    meta: Mapping[str, Any] = {}
    """The app's own data on it."""
    wire: str = ""
    """Whose JSON it is."""
    status: str = ""
    """What became of its turn."""


def history(state: bytes, *, seal: Seal | BoundSeal | None = None, max_state: int = states.MAX_BYTES) -> list[Said]:
    """All that was said in the conversation that a state holds."""
    transcript = states.decode(seal.open(state) if seal else state, wires=NAMES, max_bytes=max_state)
    return read(transcript, transcript.turns)


def read(
    entries: Iterable[Entry], turns: Iterable[Turn] = (), metas: Mapping[int, Mapping[str, Any]] | None = None
) -> list[Said]:
    """Entries for reading, with what became of their turns, and the app's own data on some of them by their number."""
    known = metas or {}
    statuses = {turn.id: turn.status for turn in turns}
    return [
        Said(
            id=entry.id,
            turn=entry.turn,
            role=entry.role,
            text=said(entry),
            at=entry.at,
            native=entry.native,
            mark=entry.mark,
            meta=known.get(i, {}),
            wire=entry.wire,
            status=statuses.get(entry.turn, ""),
        )
        for i, entry in enumerate(entries)
    ]


def terms_of(text: str) -> list[str]:
    """What to search for: words, and what stands in double quotes as one phrase."""
    return ["".join(pair) for pair in re.findall(r'"([^"]+)"|([^\s"]+)', text)]


def check_pairs(entries: Iterable[Entry]) -> None:
    """Raise `ValueError` unless entries can be read, each call has its result and each result its call."""
    waiting: tuple[str, ...] = ()
    for entry in entries:
        try:
            waiting = waiting_behind(entry, waiting)
        except ValueError as problem:
            raise ValueError(f"{entry.id!r} {problem}") from None


def waiting_behind(entry: Entry, waiting: tuple[str, ...]) -> tuple[str, ...]:
    """The calls that wait for a result behind an entry, given those before it. Raises `ValueError`."""
    if entry.wire not in NAMES:
        # Nobody here sends it.
        return waiting
    seen = WIRES[entry.wire].view(entry.native) if entry.wire in WIRES else View(entry.role)
    if seen.call_id and seen.call_id not in waiting:
        raise ValueError("is the result of a call that nobody made")
    if waiting and not seen.call_id:
        raise ValueError(f"comes before the result of {waiting[0]!r}")
    left = list(waiting)
    if seen.call_id:
        left.remove(seen.call_id)
    return (*left, *[call.id for call in seen.calls])


def check_meta(value: object) -> None:
    """Raise `InputError` unless this can be an app's own data."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"An app's own data is a mapping with names, such as {{'title': 'Bows'}}, not {value!r}.")


def check_name(value: object, what: str, *, empty: bool = False) -> None:
    """Raise `InputError` unless this can name something."""
    if not isinstance(value, str) or not (value or empty):
        raise InputError(f"The {what} of a conversation is text, not {value!r}.")
