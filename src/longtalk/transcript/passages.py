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

    def overlaps(self, other: Passage) -> bool:
        """Return True if this passage and another one have text in common."""
        return self.position == other.position and self.start < other.stop and other.start < self.stop


class RecalledPassages(msgspec.Struct, frozen=True):
    """The passages that were recalled in an epoch."""

    epoch: int
    """The start of the epoch."""
    passages: tuple[Passage, ...] = ()

    def add(self, found: Sequence[Passage], least: float) -> RecalledPassages:
        """Return the record with the passages that were recalled in one more turn.

        `found` has them, best first. Of those that overlap, the newest or else the best is kept, with one turn
        more than any other had. Texts are kept of those that were recalled in more than `least` turns.
        """
        added: list[Passage] = []
        for new in found:
            # Entries of other conversations, and lines that are in no entry, have negative positions.
            if new.position >= 0 and not any(new.overlaps(each) for each in added):
                turns = 1 + max((each.turns for each in self.passages if each.overlaps(new)), default=0)
                added.append(msgspec.structs.replace(new, turns=turns, text=new.text if turns > least else ""))
        known = [each for each in self.passages if not any(each.overlaps(new) for new in added)]
        known += added
        kept = sorted(range(len(known)), key=lambda i: known[i].turns)[-_MAX_KEPT:]
        return msgspec.structs.replace(self, passages=tuple([known[i] for i in sorted(kept)]))

    def list_promoted(self, least: float) -> list[Passage]:
        """Return the passages that were recalled in more than `least` turns, those of the most turns first."""
        found = [each for each in self.passages if each.turns > least and each.text]
        return sorted(found, key=lambda each: -each.turns)
