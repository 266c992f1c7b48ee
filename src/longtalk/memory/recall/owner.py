"""Recall over several conversations of an owner: one index of the entries that may be relevant, wherever they are.

The conversations are searched as if they were one: the others in order, and then the conversation itself. So a word is
as rare as it is in all of them, and the scores of their messages can be compared. Positions in other conversations are
below `FIRST_OTHER`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import msgspec

from longtalk.memory.brief.corrections import Correction, make_correction_finder
from longtalk.memory.recall.candidates import index_candidates
from longtalk.memory.recall.index import RecallIndex
from longtalk.memory.recall.protocol import Matches, SearchableStore, SearchTerm
from longtalk.memory.recall.query import parse_query
from longtalk.memory.recall.units import to_unit
from longtalk.memory.terms import list_spellings
from longtalk.transcript.pack import Entry

FIRST_OTHER = -(10**9)
"""Positions below this one stand for entries of other conversations."""
_MAX_ENTRIES = 200
"""The maximum number of entries that are read and indexed, besides those next to them."""


class Part(msgspec.Struct, frozen=True):
    """A branch of a conversation that is searched, up to a number of entries."""

    owner: str
    conversation: str
    branch: str
    size: int


def list_words(message: str) -> list[str]:
    """Return the words by which a full-text search finds conversations that may be relevant to a message."""
    words = parse_query(message).words
    forms = [form for term, word in words.items() for form in list_spellings(term, word)[0]]
    return list(dict.fromkeys(forms))[:64]


def index_conversations(
    store: SearchableStore,
    others: Sequence[Part],
    own: Part,
    message: str,
    *,
    now: int,
    describe: Callable[[str], str],
    corrections: Mapping[str, Sequence[Correction]],
    meaning: bool = False,
) -> RecallIndex:
    """Return an index of the entries of a conversation and of others that may be relevant to the message.

    `describe` returns what to call another conversation, given its id, and `corrections` has what was corrected there,
    by its id. `now` is the time of the message in
    milliseconds. The entries are found by words; with `meaning`, they are ranked by meaning too.
    """
    source = _Conversations(store, [*others, own])
    index = index_candidates(source, message, now=now, most=_MAX_ENTRIES, to_unit=to_unit, meaning=meaning)

    def describe_origin(position: int) -> str:
        part = source.find_other(position)
        return "this conversation" if part is None else describe(part.conversation)

    @cache
    def make_finder(conversation: str) -> Callable[[str], Correction | None]:
        return make_correction_finder(corrections.get(conversation, ()))

    def find_correction(position: int, text: str) -> Correction | None:
        part = source.find_other(position)
        return None if part is None else make_finder(part.conversation)(text)

    index.describe_origin = describe_origin
    index.find_correction_elsewhere = find_correction
    return index


class _Conversations:
    """An `EntrySource` for several branches, one after the other. The last of them is the conversation itself."""

    def __init__(self, store: SearchableStore, parts: Sequence[Part]) -> None:
        self._store = store
        self._parts = parts
        self._starts = [sum(part.size for part in parts[:i]) for i in range(len(parts))]
        self.size = sum(part.size for part in parts)

    def to_position(self, i: int) -> int:
        own = self._starts[-1]
        return i - own if i >= own else FIRST_OTHER - own + i

    def find_other(self, position: int) -> Part | None:
        """Return the other conversation that has the entry at this position; None for the conversation itself."""
        if position >= FIRST_OTHER:
            return None
        i = position - FIRST_OTHER + self._starts[-1]
        return next(
            part for part, start in zip(self._parts, self._starts, strict=True) if start <= i < start + part.size
        )

    def pick(self, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        found: list[list[Entry]] = [[] for _ in ranges]
        for part, start in zip(self._parts, self._starts, strict=True):
            stop = start + part.size
            wanted = [(i, max(first, start), min(end, stop)) for i, (first, end) in enumerate(ranges)]
            wanted = [each for each in wanted if each[1] < each[2]]
            if wanted:
                names = part.owner, part.conversation, part.branch
                picked = self._store.pick(*names, [(first - start, end - start) for _, first, end in wanted])
                for (i, _, _), entries in zip(wanted, picked, strict=True):
                    found[i] += entries
        return found

    def matches(self, terms: Sequence[SearchTerm], most: int) -> list[Matches]:
        positions: list[list[int]] = [[] for _ in terms]
        counts = [0] * len(terms)
        for part, start in zip(self._parts, self._starts, strict=True):
            if not part.size:
                continue
            names = part.owner, part.conversation, part.branch
            for i, match in enumerate(self._store.matches(*names, terms, most)):
                own = [start + position for position in match.positions if position < part.size]
                positions[i] += own
                counts[i] += max(match.count - (len(match.positions) - len(own)), len(own))
        return [Matches(tuple(each[-most:]), count) for each, count in zip(positions, counts, strict=True)]
