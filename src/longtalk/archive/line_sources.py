"""The messages that lines of a brief come from."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from longtalk.archive.history import HistoryEntry
from longtalk.memory.brief.lines import Line


class LineSource(msgspec.Struct, frozen=True, kw_only=True):
    """The message that a line of the brief comes from."""

    line: str
    """The id of the line."""
    entry: str
    position: int
    states: bool
    """Whether the message says what the line says; else the line was noted in it, about what was said earlier."""


def find_line_sources(entries: Sequence[HistoryEntry], lines: Sequence[Line]) -> list[LineSource]:
    """Return the sources of those lines that come from an entry of a branch, given all entries of it.

    That is the entry that the line names, if it has half of the words of the line. Else it is the earlier message with
    most of these words, if one has more than half, or else the named entry.
    """
    from longtalk.memory.terms import extract_terms

    places = {entry.id: i for i, entry in enumerate(entries)}
    terms: dict[int, frozenset[str]] = {}

    def count(i: int, wanted: frozenset[str]) -> int:
        if i not in terms:
            terms[i] = frozenset(extract_terms(entries[i].text))
        return len(terms[i] & wanted)

    found = []
    for line in lines:
        own = places.get(line.entry)
        if own is None:
            continue
        wanted = frozenset(extract_terms(line.text))
        best, states = own, 2 * count(own, wanted) >= len(wanted)
        if not states:
            best = max(range(own), key=lambda i, wanted=wanted: count(i, wanted), default=own)  # type: ignore[misc]
            states = 2 * count(best, wanted) > len(wanted)
        entry = entries[best if states else own]
        found.append(LineSource(line=line.id, entry=entry.id, position=entry.position, states=states))
    return found
