"""A store in the memory of this process, for tests and for conversations that needn't outlive the process.

`TreeStore` implements the reading methods for all stores that hold each conversation as a `ConversationTree`.
"""

from __future__ import annotations

import heapq
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import log
from typing import Any, TypeVar

from longtalk.memory.recall.protocol import Matches, SearchTerm
from longtalk.stores._closing import ClosedOnExit
from longtalk.stores._tree import ConversationTree
from longtalk.stores._words import normalize_term, normalize_words
from longtalk.stores.base import (
    MAIN,
    BranchHead,
    Commit,
    ConversationInfo,
    DeletionReceipt,
    KeyedTurn,
    PlacedRecord,
    SearchHit,
)
from longtalk.stores.checks import meta_matches
from longtalk.transcript.pack import EMPTY, Entry, Pack
from longtalk.transcript.transcript import Turn

T = TypeVar("T")


class TreeStore(ClosedOnExit, ABC):
    """The base class of stores that hold conversations as `ConversationTree`s. It implements the reading methods."""

    @abstractmethod
    def _use_tree(self, owner: str, conversation: str, work: Callable[[ConversationTree | None], T]) -> T:
        """Lock a conversation, call `work` with its tree, and return the result. The tree is None if there is none.

        A lock must not be held across a `yield`: after Ctrl-C, it would stay taken while the exception is handled.
        """

    @abstractmethod
    def _list_ids(self, owner: str) -> list[str]:
        """Return the ids of the owner's conversations."""

    def _use_trees(self, owner: str, work: Callable[[str, ConversationTree], T]) -> list[T]:
        """Call `work` with the id and the locked tree of each of the owner's conversations, and return the results."""
        return [result for name in self._list_ids(owner) for result in self._use_existing(owner, name, work)]

    def _use_existing(self, owner: str, conversation: str, work: Callable[[str, ConversationTree], T]) -> list[T]:
        """Call `work` with the id and the locked tree of a conversation, and return the result in a list.

        If the conversation doesn't exist, the list is empty.
        """
        return self._use_tree(owner, conversation, lambda tree: [work(conversation, tree)] if tree else [])

    def head(self, owner: str, conversation: str, branch: str = MAIN) -> BranchHead | None:
        return self._use_tree(owner, conversation, lambda tree: tree.head(branch) if tree else None)

    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        return self._use_tree(owner, conversation, lambda tree: tree.read(branch, start, stop) if tree else EMPTY)

    def pick(self, owner: str, conversation: str, branch: str, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        return self._use_tree(
            owner, conversation, lambda tree: [tree.read_entries(branch, *each) if tree else [] for each in ranges]
        )

    def turns(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> list[tuple[int, Turn]]:
        return self._use_tree(owner, conversation, lambda tree: tree.turns(branch, start, stop) if tree else [])

    def manifest(self, owner: str, conversation: str, turn: str) -> bytes:
        return self._use_tree(owner, conversation, lambda tree: tree.manifest(turn) if tree else b"")

    def manifests(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[str, bytes]:
        return self._use_tree(owner, conversation, lambda tree: tree.manifests(branch, start, stop) if tree else {})

    def records(self, owner: str, conversation: str, branch: str, kind: str | None = None) -> list[PlacedRecord]:
        return self._use_tree(owner, conversation, lambda tree: tree.records(branch, kind) if tree else [])

    def metas(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        return self._use_tree(owner, conversation, lambda tree: tree.metas(branch, start, stop) if tree else {})

    def keyed_turn(self, owner: str, conversation: str, key: str) -> KeyedTurn | None:
        return self._use_tree(owner, conversation, lambda tree: tree.keyed_turn(key) if tree else None)

    def keyed_turns(self, owner: str, conversation: str) -> list[KeyedTurn]:
        return self._use_tree(owner, conversation, lambda tree: tree.keyed_turns() if tree else [])

    def branches(self, owner: str, conversation: str) -> list[BranchHead]:
        return self._use_tree(owner, conversation, lambda tree: tree.branches() if tree else [])

    def heads(self, owner: str, conversations: Sequence[str], most: int) -> dict[str, list[BranchHead]]:
        return {
            name: heads
            for each in conversations
            for name, heads in self._use_existing(owner, each, lambda name, tree: (name, tree.newest_heads(most)))
        }

    def info(self, owner: str, conversation: str) -> ConversationInfo | None:
        return self._use_tree(owner, conversation, lambda tree: tree.info(conversation) if tree else None)

    def conversations(
        self,
        owner: str,
        *,
        limit: int = 50,
        after: tuple[int, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> list[ConversationInfo]:
        infos = self._use_trees(owner, lambda name, tree: tree.info(name))
        infos = [info for info in infos if meta_matches(info.meta, meta or {})]
        if after is not None:
            infos = [info for info in infos if (-info.updated, info.id) > (-after[0], after[1])]
        return heapq.nsmallest(max(0, limit), infos, key=lambda info: (-info.updated, info.id))

    def conversations_with(self, owner: str, kind: str) -> list[str]:
        def has_kind(name: str, tree: ConversationTree) -> tuple[str, bool]:
            return name, any(tree.records(head.branch, kind) for head in tree.branches())

        return [name for name, found in self._use_trees(owner, has_kind) if found]

    def candidates(
        self, owner: str, terms: Collection[str], limit: int, *, conversation: str | None = None
    ) -> list[SearchHit]:
        def list_hits(name: str, tree: ConversationTree) -> list[tuple[SearchHit, str]]:
            return list(tree.iterate_hits(name))

        if conversation is None:
            hits = self._use_trees(owner, list_hits)
        else:
            hits = self._use_existing(owner, conversation, list_hits)
        return rank_hits(chain.from_iterable(hits), terms, limit)

    def matches(
        self, owner: str, conversation: str, branch: str, terms: Sequence[SearchTerm], most: int
    ) -> list[Matches]:
        return self._use_tree(
            owner, conversation, lambda tree: match_terms(tree.iterate_words(branch) if tree else (), terms, most)
        )


class InMemory(TreeStore):
    """A store that keeps all conversations in the memory of this process. They are lost when the process ends."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owners: dict[str, dict[str, ConversationTree]] = {}

    def __repr__(self) -> str:
        return "InMemory()"

    def _use_tree(self, owner: str, conversation: str, work: Callable[[ConversationTree | None], T]) -> T:
        with self._lock:
            return work(self._get_tree(owner, conversation))

    def _get_tree(self, owner: str, conversation: str) -> ConversationTree | None:
        return self._owners.get(owner, {}).get(conversation)

    def _list_ids(self, owner: str) -> list[str]:
        with self._lock:
            return list(self._owners.get(owner, ()))

    def owners(self) -> list[str]:
        with self._lock:
            return sorted(self._owners)

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        with self._lock:
            tree = self._get_tree(owner, conversation) or ConversationTree()
            head = tree.write(commit)
            self._owners.setdefault(owner, {})[conversation] = tree
            return head

    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        return self._use_tree(owner, conversation, lambda tree: tree is not None and tree.renew(branch, token, until))

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        return self._use_tree(owner, conversation, lambda tree: tree is not None and tree.describe(meta, entry))

    def delete(self, owner: str, conversation: str) -> DeletionReceipt | None:
        with self._lock:
            owned = self._owners.get(owner, {})
            tree = owned.pop(conversation, None)
            if not owned:
                self._owners.pop(owner, None)
            return tree.make_receipt(conversation) if tree else None

    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        with self._lock:
            tree = self._get_tree(owner, conversation)
            if not tree or not tree.has_entry(entry):
                return False
            tree.redact(entry, native)
            return True

    def verify(self, owner: str, conversation: str) -> list[str]:
        return self._use_tree(owner, conversation, lambda tree: tree.find_problems() if tree else [])

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def match_terms(entries: Iterable[tuple[int, str]], terms: Sequence[SearchTerm], most: int) -> list[Matches]:
    """For each term, return the last `most` matching positions and the total number of matches.

    `entries` yields the positions of entries with their normalized words, newest first.
    """
    forms_by_term = [tuple(filter(str.strip, _list_forms(term))) for term in terms]
    positions_by_term: list[list[int]] = [[] for _ in terms]
    for position, words in entries:
        for forms, positions in zip(forms_by_term, positions_by_term, strict=True):
            if any(form in words for form in forms):
                positions.append(position)
    return [Matches(tuple(reversed(each[: max(0, most)])), len(each)) for each in positions_by_term]


def _list_forms(term: SearchTerm) -> Iterator[str]:
    """Yield the strings to look for. A term matches normalized words that contain any of these strings.

    The strings for the term's `beginnings` don't end with a space, so that they match longer words too.
    """
    yield from map(normalize_words, term.words)
    yield from (normalize_words(beginning).rstrip(" ") for beginning in term.beginnings)


def rank_hits(texts: Iterable[tuple[SearchHit, str]], terms: Collection[str], limit: int) -> list[SearchHit]:
    """Return at most `limit` hits that contain any of the terms, ranked by BM25, then newest first.

    `texts` yields all entries to search, each with its normalized words.
    """
    forms = [form for form in dict.fromkeys(map(normalize_term, terms)) if form.strip()]
    matching: list[tuple[SearchHit, int, list[int]]] = []
    entry_count = total_size = 0
    for hit, words in texts:
        counts = [words.count(form) for form in forms]
        size = words.count(" ")
        entry_count, total_size = entry_count + 1, total_size + size
        if any(counts):
            matching.append((hit, size, counts))
    entries_with_form = [sum(1 for _, _, counts in matching if counts[i]) for i in range(len(forms))]
    rarity = [log(1 + (entry_count - count + 0.5) / (count + 0.5)) for count in entries_with_form]

    def rank(match: tuple[SearchHit, int, list[int]]) -> tuple[float, int, str, int]:
        hit, size, counts = match
        length = 1.2 * (0.25 + 0.75 * size * entry_count / total_size)
        score = sum(rare * count / (count + length) for rare, count in zip(rarity, counts, strict=True))
        return -score, -hit.at, hit.conversation, hit.position

    return [hit for hit, _, _ in heapq.nsmallest(max(0, limit), matching, key=rank)]
