"""Passages: parts of entries that recall quotes, and the record that counts in how many turns it did.

The record `KIND` belongs to one epoch. It has the text of a passage as soon as the next epoch may quote it, because the
entries of older exchanges are not at hand when that begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

KIND = "passages"
MAX_COUNTED = 8
"""The number of passages that are counted for each turn: the best ones."""
_MAX_KEPT = 24
"""The maximum number of passages in a record: those of the most turns, and then the newest."""


class Passage(msgspec.Struct, frozen=True, array_like=True):
    """A part of an entry that was recalled: the characters from `start` to `stop` of the text at `position`."""

    position: int
    start: int
    stop: int
    turns: int = 1
    """The number of turns of an epoch in which it was recalled."""
    text: str = ""
    """The passage as it is quoted, with date and speaker; empty if it is not needed."""

    def contains(self, other: Passage) -> bool:
        """Return True if this passage contains all of another one."""
        return self.position == other.position and self.start <= other.start and other.stop <= self.stop


class RecalledPassages(msgspec.Struct, frozen=True):
    """The passages that were recalled in an epoch."""

    epoch: int
    """The start of the epoch."""
    passages: tuple[Passage, ...] = ()

    def add(self, found: Sequence[Passage], least: float) -> RecalledPassages:
        """Return the record with the passages that were recalled in one more turn.

        Texts are kept of those that were recalled in more than `least` turns.
        """
        known = {(each.position, each.start): each for each in self.passages}
        for new in found:
            # Entries of other conversations, and lines that are in no entry, have negative positions.
            if new.position >= 0:
                old = known.pop((new.position, new.start), None)
                turns = 1 if old is None else old.turns + 1
                text = new.text if turns > least else ""
                known[new.position, new.start] = msgspec.structs.replace(new, turns=turns, text=text)
        kept = set(sorted(known, key=lambda key: known[key].turns)[-_MAX_KEPT:])
        passages = tuple([each for key, each in known.items() if key in kept])
        return msgspec.structs.replace(self, passages=passages)

    def list_promoted(self, least: float) -> list[Passage]:
        """Return the passages that were recalled in more than `least` turns, those of the most turns first."""
        found = [each for each in self.passages if each.turns > least and each.text]
        return sorted(found, key=lambda each: -each.turns)
