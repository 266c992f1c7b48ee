"""A store in the memory of this process, for tests and for conversations that needn't outlive the process.

`TreeStore` implements the reading methods for all stores that hold each conversation as a `ConversationTree`.
"""

from __future__ import annotations

import heapq
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import log
from typing import Any

from longtalk.memory.recall.protocol import Matches, SearchTerm
from longtalk.stores._tree import ConversationTree
from longtalk.stores._words import words
from longtalk.stores.base import (
    MAIN,
    BranchHead,
    Commit,
    ConversationInfo,
    DeletionReceipt,
    KeyedTurn,
    PlacedRecord,
    SearchHit,
    meta_matches,
)
from longtalk.transcript.pack import EMPTY, Entry, Pack
from longtalk.transcript.transcript import Turn


class TreeStore(ABC):
    """The base of stores that hold each conversation as a `ConversationTree`. It implements the reading methods."""

    @abstractmethod
    def _reading(self, owner: str, conversation: str) -> AbstractContextManager[ConversationTree | None]:
        """Lock a conversation and yield its tree, or None if the conversation doesn't exist."""

    @abstractmethod
    def _names(self, owner: str) -> list[str]:
        """Return the ids of the owner's conversations."""

    def _each(self, owner: str) -> Iterator[tuple[str, ConversationTree]]:
        """Yield the id and the tree of each of the owner's conversations. A tree is locked while the caller uses it."""
        for name in self._names(owner):
            with self._reading(owner, name) as ledger:
                if ledger:
                    yield name, ledger

    def head(self, owner: str, conversation: str, branch: str = MAIN) -> BranchHead | None:
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

    def records(self, owner: str, conversation: str, branch: str, kind: str | None = None) -> list[PlacedRecord]:
        with self._reading(owner, conversation) as ledger:
            return ledger.records(branch, kind) if ledger else []

    def metas(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        with self._reading(owner, conversation) as ledger:
            return ledger.metas(branch, start, stop) if ledger else {}

    def keyed_turn(self, owner: str, conversation: str, key: str) -> KeyedTurn | None:
        with self._reading(owner, conversation) as ledger:
            return ledger.keyed_turn(key) if ledger else None

    def keyed_turns(self, owner: str, conversation: str) -> list[KeyedTurn]:
        with self._reading(owner, conversation) as ledger:
            return ledger.keyed_turns() if ledger else []

    def branches(self, owner: str, conversation: str) -> list[BranchHead]:
        with self._reading(owner, conversation) as ledger:
            return ledger.branches() if ledger else []

    def info(self, owner: str, conversation: str) -> ConversationInfo | None:
        with self._reading(owner, conversation) as ledger:
            return ledger.info(conversation) if ledger else None

    def conversations(
        self,
        owner: str,
        *,
        limit: int = 50,
        after: tuple[int, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> list[ConversationInfo]:
        found = [ledger.info(name) for name, ledger in self._each(owner)]
        found = [each for each in found if meta_matches(each.meta, meta or {})]
        if after is not None:
            found = [each for each in found if (-each.updated, each.id) > (-after[0], after[1])]
        return heapq.nsmallest(max(0, limit), found, key=lambda summary: (-summary.updated, summary.id))

    def candidates(
        self, owner: str, terms: Collection[str], limit: int, *, conversation: str | None = None
    ) -> list[SearchHit]:
        texts: list[tuple[SearchHit, str]] = []
        if conversation is None:
            for name, ledger in self._each(owner):
                texts += ledger.found(name)
        else:
            with self._reading(owner, conversation) as one:
                texts += one.found(conversation) if one else ()
        return best(texts, terms, limit)

    def matches(
        self, owner: str, conversation: str, branch: str, sought: Sequence[SearchTerm], most: int
    ) -> list[Matches]:
        with self._reading(owner, conversation) as ledger:
            return held(ledger.spoken(branch) if ledger else (), sought, most)


class InMemory(TreeStore):
    """A store that keeps all conversations in the memory of this process. They are lost when the process ends."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owners: dict[str, dict[str, ConversationTree]] = {}

    def __repr__(self) -> str:
        return "InMemory()"

    @contextmanager
    def _reading(self, owner: str, conversation: str) -> Iterator[ConversationTree | None]:
        with self._lock:
            yield self._owners.get(owner, {}).get(conversation)

    def _names(self, owner: str) -> list[str]:
        with self._lock:
            return list(self._owners.get(owner, ()))

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        with self._reading(owner, conversation) as known:
            ledger = known or ConversationTree()
            head = ledger.write(commit)
            self._owners.setdefault(owner, {})[conversation] = ledger
            return head

    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        with self._reading(owner, conversation) as ledger:
            return ledger is not None and ledger.renew(branch, token, until)

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        with self._reading(owner, conversation) as ledger:
            return ledger is not None and ledger.describe(meta, entry)

    def delete(self, owner: str, conversation: str) -> DeletionReceipt | None:
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
        """Do nothing: there is nothing to release."""


def held(spoken: Iterable[tuple[int, str]], sought: Sequence[SearchTerm], most: int) -> list[Matches]:
    """Return, for each term, the last `most` positions that match it, and the number of all matches.

    `spoken` yields the positions of entries with their normalized words, newest first.
    """
    forms = [tuple(filter(str.strip, _forms(each))) for each in sought]
    positions: list[list[int]] = [[] for _ in sought]
    for position, spaced in spoken:
        for some, found in zip(forms, positions, strict=True):
            if any(form in spaced for form in some):
                found.append(position)
    return [Matches(tuple(reversed(found[: max(0, most)])), len(found)) for found in positions]


def _forms(sought: SearchTerm) -> Iterator[str]:
    """Yield the strings to look for in normalized words. A term's `beginnings` have no space after them."""
    yield from map(words, sought.words)
    yield from (words(beginning).rstrip(" ") for beginning in sought.beginnings)


def best(texts: Iterable[tuple[SearchHit, str]], terms: Collection[str], limit: int) -> list[SearchHit]:
    """Return the `limit` best hits that contain any of the terms, ranked by BM25, then newest first."""
    sought = [term for term in dict.fromkeys(map(words, terms)) if term.strip()]
    found: list[tuple[SearchHit, int, list[int]]] = []
    number = total = 0
    for hit, spaced in texts:
        counts = [spaced.count(term) for term in sought]
        size = spaced.count(" ")
        number, total = number + 1, total + size
        if any(counts):
            found.append((hit, size, counts))
    having = [sum(1 for _, _, counts in found if counts[i]) for i in range(len(sought))]
    rarity = [log(1 + (number - some + 0.5) / (some + 0.5)) for some in having]

    def rank(each: tuple[SearchHit, int, list[int]]) -> tuple[float, int, str, int]:
        hit, size, counts = each
        length = 1.2 * (0.25 + 0.75 * size * number / total)
        score = sum(rare * count / (count + length) for rare, count in zip(rarity, counts, strict=True))
        return -score, -hit.at, hit.conversation, hit.position

    return [hit for hit, _, _ in heapq.nsmallest(max(0, limit), found, key=rank)]
