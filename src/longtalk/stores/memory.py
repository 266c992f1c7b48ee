"""Conversations in the memory of this process: for tests, and for talks that nobody needs tomorrow.

`Ledgers` is what every store that holds its conversations as ledgers has in common: the reading half of the contract.
"""

from __future__ import annotations

import heapq
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import log
from typing import Any

from longtalk.pack import EMPTY, Entry, Pack
from longtalk.stores.base import MAIN, Asked, Commit, Head, Hit, Holding, Placed, Receipt, Sought, Summary, has
from longtalk.stores.ledger import Ledger, words
from longtalk.transcript import Turn


class Ledgers(ABC):
    """Reads conversations that are ledgers."""

    @abstractmethod
    def _reading(self, owner: str, conversation: str) -> AbstractContextManager[Ledger | None]:
        """A conversation that nobody changes meanwhile; None when there is none."""

    @abstractmethod
    def _names(self, owner: str) -> list[str]:
        """The conversations of an owner."""

    def _each(self, owner: str) -> Iterator[tuple[str, Ledger]]:
        """The conversations of an owner, each while nobody changes it."""
        for name in self._names(owner):
            with self._reading(owner, name) as ledger:
                if ledger:
                    yield name, ledger

    def head(self, owner: str, conversation: str, branch: str = MAIN) -> Head | None:
        with self._reading(owner, conversation) as ledger:
            return ledger.head(branch) if ledger else None

    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        with self._reading(owner, conversation) as ledger:
            return ledger.read(branch, start, stop) if ledger else EMPTY

    def pick(self, owner: str, conversation: str, branch: str, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        with self._reading(owner, conversation) as ledger:
            return [ledger.between(branch, *each) if ledger else [] for each in ranges]

    def turns(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> list[tuple[int, Turn]]:
        with self._reading(owner, conversation) as ledger:
            return ledger.turns(branch, start, stop) if ledger else []

    def manifest(self, owner: str, conversation: str, turn: str) -> bytes:
        with self._reading(owner, conversation) as ledger:
            return ledger.manifest(turn) if ledger else b""

    def manifests(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[str, bytes]:
        with self._reading(owner, conversation) as ledger:
            return ledger.manifests(branch, start, stop) if ledger else {}

    def records(self, owner: str, conversation: str, branch: str, kind: str | None = None) -> list[Placed]:
        with self._reading(owner, conversation) as ledger:
            return ledger.records(branch, kind) if ledger else []

    def metas(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        with self._reading(owner, conversation) as ledger:
            return ledger.metas(branch, start, stop) if ledger else {}

    def asked(self, owner: str, conversation: str, key: str) -> Asked | None:
        with self._reading(owner, conversation) as ledger:
            return ledger.asked(key) if ledger else None

    def requests(self, owner: str, conversation: str) -> list[Asked]:
        with self._reading(owner, conversation) as ledger:
            return ledger.requests() if ledger else []

    def branches(self, owner: str, conversation: str) -> list[Head]:
        with self._reading(owner, conversation) as ledger:
            return ledger.branches() if ledger else []

    def summary(self, owner: str, conversation: str) -> Summary | None:
        with self._reading(owner, conversation) as ledger:
            return ledger.summary(conversation) if ledger else None

    def conversations(
        self,
        owner: str,
        *,
        limit: int = 50,
        after: tuple[int, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> list[Summary]:
        found = [ledger.summary(name) for name, ledger in self._each(owner)]
        found = [each for each in found if has(each.meta, meta or {})]
        if after is not None:
            found = [each for each in found if (-each.updated, each.id) > (-after[0], after[1])]
        return heapq.nsmallest(max(0, limit), found, key=lambda summary: (-summary.updated, summary.id))

    def candidates(
        self, owner: str, terms: Collection[str], limit: int, *, conversation: str | None = None
    ) -> list[Hit]:
        texts: list[tuple[Hit, str]] = []
        if conversation is None:
            for name, ledger in self._each(owner):
                texts += ledger.found(name)
        else:
            with self._reading(owner, conversation) as one:
                texts += one.found(conversation) if one else ()
        return best(texts, terms, limit)

    def holding(self, owner: str, conversation: str, branch: str, sought: Sequence[Sought], most: int) -> list[Holding]:
        with self._reading(owner, conversation) as ledger:
            return held(ledger.spoken(branch) if ledger else (), sought, most)


class Memory(Ledgers):
    """All in this process, and gone with it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owners: dict[str, dict[str, Ledger]] = {}

    def __repr__(self) -> str:
        return "Memory()"

    @contextmanager
    def _reading(self, owner: str, conversation: str) -> Iterator[Ledger | None]:
        with self._lock:
            yield self._owners.get(owner, {}).get(conversation)

    def _names(self, owner: str) -> list[str]:
        with self._lock:
            return list(self._owners.get(owner, ()))

    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        with self._reading(owner, conversation) as known:
            ledger = known or Ledger()
            head = ledger.write(commit)
            self._owners.setdefault(owner, {})[conversation] = ledger
            return head

    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        with self._reading(owner, conversation) as ledger:
            return ledger is not None and ledger.renew(branch, token, until)

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        with self._reading(owner, conversation) as ledger:
            return ledger is not None and ledger.describe(meta, entry)

    def delete(self, owner: str, conversation: str) -> Receipt | None:
        with self._lock:
            owned = self._owners.get(owner, {})
            ledger = owned.pop(conversation, None)
            if not owned:
                self._owners.pop(owner, None)
            return ledger.receipt(conversation) if ledger else None

    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        with self._reading(owner, conversation) as ledger:
            if not ledger or not ledger.holds(entry):
                return False
            ledger.redact(entry, native)
            return True

    def verify(self, owner: str, conversation: str) -> list[str]:
        with self._reading(owner, conversation) as ledger:
            return ledger.problems() if ledger else []

    def close(self) -> None:
        """Nothing to let go of."""


def held(spoken: Iterable[tuple[int, str]], sought: Sequence[Sought], most: int) -> list[Holding]:
    """Which places hold what is sought. `spoken` are places with their `words`, the newest first."""
    forms = [tuple(filter(str.strip, _forms(each))) for each in sought]
    places: list[list[int]] = [[] for _ in sought]
    for place, spaced in spoken:
        for some, found in zip(forms, places, strict=True):
            if any(form in spaced for form in some):
                found.append(place)
    return [Holding(tuple(reversed(found[: max(0, most)])), len(found)) for found in places]


def _forms(sought: Sought) -> Iterator[str]:
    """What to look for among `words`: a beginning has no space behind it."""
    yield from map(words, sought.words)
    yield from (words(beginning).rstrip(" ") for beginning in sought.beginnings)


def best(texts: Iterable[tuple[Hit, str]], terms: Collection[str], limit: int) -> list[Hit]:
    """Those that hold some of the terms, the best first (BM25), and the newest of those that are equally good."""
    sought = [term for term in dict.fromkeys(map(words, terms)) if term.strip()]
    found: list[tuple[Hit, int, list[int]]] = []
    number = total = 0
    for hit, spaced in texts:
        counts = [spaced.count(term) for term in sought]
        size = spaced.count(" ")
        number, total = number + 1, total + size
        if any(counts):
            found.append((hit, size, counts))
    having = [sum(1 for _, _, counts in found if counts[i]) for i in range(len(sought))]
    rarity = [log(1 + (number - some + 0.5) / (some + 0.5)) for some in having]

    def rank(each: tuple[Hit, int, list[int]]) -> tuple[float, int, str, int]:
        hit, size, counts = each
        length = 1.2 * (0.25 + 0.75 * size * number / total)
        score = sum(rare * count / (count + length) for rare, count in zip(rarity, counts, strict=True))
        return -score, -hit.at, hit.conversation, hit.place

    return [hit for hit, _, _ in heapq.nsmallest(max(0, limit), found, key=rank)]
