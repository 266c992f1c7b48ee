"""What recall needs from a store or transcript: search terms, the entries that match them, and how to read entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from longtalk.transcript.pack import Entry, Pack


class SearchTerm(msgspec.Struct, frozen=True):
    """A term to search for, with all forms in which it may be written."""

    words: tuple[str, ...] = ()
    """Whole words to match. In Chinese, Japanese and Korean text, they match any part of the text."""
    beginnings: tuple[str, ...] = ()
    """Prefixes of words to match."""


class Matches(msgspec.Struct, frozen=True):
    """The entries of a branch's path that match a search term."""

    positions: tuple[int, ...] = ()
    """The positions of matching entries on the path, in ascending order."""
    count: int = 0
    """The number of all matching entries; an estimate if `positions` does not list all of them."""


class SearchableStore(Protocol):
    """The methods of a store that recall uses."""

    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        """Return the entries from `start` to `stop` (exclusive) of a branch's path."""

    def pick(self, owner: str, conversation: str, branch: str, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        """Return the entries in several ranges of a branch's path, one list per range."""

    def matches(
        self, owner: str, conversation: str, branch: str, terms: Sequence[SearchTerm], most: int
    ) -> list[Matches]:
        """Return, for each term, the newest entries on a branch's path that match it, at most `most` of them."""
