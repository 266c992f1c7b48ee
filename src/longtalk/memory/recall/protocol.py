"""The interface between recall and stores: search terms, the entries that match them, and methods to read entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from longtalk.transcript.pack import Entry, Pack
from longtalk.transcript.standing import Record


class SearchTerm(msgspec.Struct, frozen=True):
    """A term to search for, with all forms in which it may be written."""

    words: tuple[str, ...] = ()
    """Whole words to match. In Chinese, Japanese and Korean, they match anywhere, not only at word boundaries."""
    beginnings: tuple[str, ...] = ()
    """Prefixes to match: any word that begins with one of them matches."""


class Matches(msgspec.Struct, frozen=True):
    """The entries of a branch's path that match a search term."""

    positions: tuple[int, ...] = ()
    """The positions of matching entries on the path, in ascending order."""
    count: int = 0
    """The number of all matching entries. If `positions` does not list all of them, this may be an estimate."""


class Placed(Protocol):
    """A record, and the position of the entry that it is attached to."""

    @property
    def record(self) -> Record: ...

    @property
    def position(self) -> int: ...


class SearchableStore(Protocol):
    """The methods of a store that recall uses."""

    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        """Return the entries at the positions from `start` up to `stop` (exclusive) on a branch's path."""

    def pick(self, owner: str, conversation: str, branch: str, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        """Return one list of entries for each range of positions, (start, stop), on a branch's path."""

    def records(self, owner: str, conversation: str, branch: str, kind: str | None = None) -> Sequence[Placed]:
        """Return all records of a kind on a branch's path, oldest first."""

    def matches(
        self, owner: str, conversation: str, branch: str, terms: Sequence[SearchTerm], most: int
    ) -> list[Matches]:
        """Return, for each term, the entries on a branch's path that match it; if more than `most`, only the newest."""
