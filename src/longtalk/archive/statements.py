"""Which messages say what a line of a brief says, or what it said before it was corrected or forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log

import msgspec

from longtalk.archive.history import HistoryEntry
from longtalk.memory.brief.corrections import Correction, prefers_old
from longtalk.memory.brief.lines import Line


class LineStatements(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a branch that say what a line says."""

    line: str
    """The id of the line."""
    text: str
    entry: str
    """The entry that it came from; empty if the app wrote it."""
    says: tuple[int, ...] = ()
    """The positions of the messages that say what the line says; empty if it was removed."""
    outdated: tuple[int, ...] = ()
    """The positions of the messages that still say what the line corrects or, if it was removed, what it said."""
    changed: int = 0
    """When it was removed, in milliseconds since 1970; 0 for a line that is there."""
    now: str = ""
    """What holds instead, if it was corrected."""
    forgotten: bool = False
    """Whether it was forgotten, so that what says it is not recalled."""


def find_statements(
    entries: Sequence[HistoryEntry],
    lines: Iterable[Line],
    removed: Iterable[Line],
    corrections: Sequence[Correction],
    changed: Mapping[str, int],
) -> list[LineStatements]:
    """Return the messages that say what each line says, given all entries of a branch.

    A message says a line if it has more than half of its words, as recall judges it, or the rarest of them, or if the
    line was noted in its exchange and it has one of them. One that may be outdated needs only half. `changed` has the
    times at which the removed lines were removed, by their ids.
    """
    messages = _Messages(entries)
    found = []
    for line in lines:
        old = {place for each in corrections if each.text == line.text for place in messages.find(each.old, each.text)}
        says, outdated = messages.find(line), tuple(sorted(old))
        found.append(LineStatements(line=line.id, text=line.text, entry=line.entry, says=says, outdated=outdated))
    known = {(each.old.id, each.old.text): each for each in corrections}
    for line in removed:
        correction = known.get((line.id, line.text))
        now = correction.text if correction else ""
        found.append(
            LineStatements(
                line=line.id,
                text=line.text,
                entry=line.entry,
                outdated=messages.find(line, now),
                changed=changed.get(line.id, 0),
                now=now,
                forgotten=correction is not None and not now,
            )
        )
    return found


class _Messages:
    """The messages of a branch by their terms, which are determined once for all lines."""

    def __init__(self, entries: Sequence[HistoryEntry]) -> None:
        from longtalk.memory.terms import extract_terms

        self._entries = entries
        self._terms = [frozenset(extract_terms(entry.text)) for entry in entries]
        self._places: dict[str, list[int]] = {}
        for i, terms in enumerate(self._terms):
            for term in terms:
                self._places.setdefault(term, []).append(i)

    def find(self, line: Line, now: str | None = None) -> tuple[int, ...]:
        """Return the positions of the messages that say what a line says.

        With `now`, which holds instead, half of the words are enough, if a message has more of the old ones.
        """
        turn, old, new = line.entry.rpartition("-")[0], _extract(line.text), _extract(now or "")
        least = len(old) + (now is None)
        weights = {term: log(1 + len(self._entries) / len(found)) for term in old if (found := self._places.get(term))}
        whole = sum(weights.values())
        found = []
        for i in sorted({i for term in weights for i in self._places[term]}):
            shared = self._terms[i] & old
            is_near = bool(turn) and self._entries[i].turn == turn
            has_most = 2 * len(shared) >= least or 2 * sum(weights[term] for term in shared) >= whole
            if (is_near or has_most) and prefers_old(self._terms[i], old, new):
                found.append(self._entries[i].position)
        return tuple(found)


def _extract(text: str) -> frozenset[str]:
    from longtalk.memory.terms import extract_terms

    return frozenset(extract_terms(text))
