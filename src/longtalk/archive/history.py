"""The history of a conversation: its entries as readable text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from longtalk.memory.cards.hidden import find_memory_calls, is_hidden
from longtalk.state import codec as states
from longtalk.state.sealing import BoundSeal, Seal
from longtalk.transcript.pack import Entry
from longtalk.transcript.transcript import Turn
from longtalk.wires import NAMES, text_if_readable


class HistoryEntry(msgspec.Struct, frozen=True):
    """One entry of a conversation, with its text extracted from the provider's JSON."""

    id: str
    turn: str
    role: str
    text: str
    at: int
    """The time when the entry was created, in milliseconds since 1970."""
    native: bytes
    """The exact JSON of the message."""
    mark: str = ""
    """A special condition such as `interrupted`, `length` or `closed`; empty for most entries."""
    meta: Mapping[str, Any] = {}
    """The metadata that the app has stored for this entry."""
    wire: str = ""
    """The name of the wire (message format) of `native`."""
    status: str = ""
    """The status of the turn that the entry belongs to; empty if the turn is unknown."""


def history(
    state: bytes, *, seal: Seal | BoundSeal | None = None, max_state: int = states.MAX_BYTES
) -> list[HistoryEntry]:
    """Return the conversation in a state as readable entries.

    A sealed state needs the `seal` that it was sealed with. `max_state` is the maximum size of the uncompressed state,
    in bytes.
    """
    transcript = states.decode(seal.open(state) if seal else state, wires=NAMES, max_bytes=max_state)
    return to_history(transcript, transcript.turns)


def to_history(
    entries: Iterable[Entry], turns: Iterable[Turn] = (), metas: Mapping[int, Mapping[str, Any]] | None = None
) -> list[HistoryEntry]:
    """Return these entries in readable form, without the calls of the memory tool and their results.

    `turns` are the turns that the entries belong to; they provide the `status`. `metas` has the metadata of entries, by
    position.
    """
    known, entries = metas or {}, list(entries)
    hidden = find_memory_calls(entries)
    statuses = {turn.id: turn.status for turn in turns}
    return [
        HistoryEntry(
            id=entry.id,
            turn=entry.turn,
            role=entry.role,
            text=text_if_readable(entry),
            at=entry.at,
            native=entry.native,
            mark=entry.condition,
            meta=known.get(i, {}),
            wire=entry.wire,
            status=statuses.get(entry.turn, ""),
        )
        for i, entry in enumerate(entries)
        if not is_hidden(entry, hidden.get(i, frozenset()))
    ]


def parse_terms(text: str) -> list[str]:
    """Split a search text into terms: text in double quotes is one phrase, and every other word is a term."""
    return ["".join(pair) for pair in re.findall(r'"([^"]+)"|([^\s"]+)', text)]
