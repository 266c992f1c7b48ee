"""Reads of a Redis store that see one state of a conversation, however many round trips they take.

A read of several round trips ends with a check that the conversation wasn't deleted and created again in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from longtalk.stores._paths import Span
from longtalk.stores.base import BranchHead
from longtalk.stores.redis.command import Command
from longtalk.stores.redis.connection import Client
from longtalk.stores.redis.tree import (
    ConversationGone,
    Damaged,
    Keys,
    Tree,
    decode_head,
    decode_tree,
)

MAX_TIPS = 10_000
"""The maximum number of branches whose last segment this process remembers."""
MANY_BRANCHES = 16
"""The number of branches from which on the tree of a conversation is kept for the next read."""

_Result = TypeVar("_Result")


class TreeReader:
    """Reads the trees of conversations, and what belongs to one state of a tree."""

    def __init__(self, client: Client, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._tips: dict[tuple[str, str], tuple[int, int]] = {}
        """The last segment of each branch and its start, as this process last saw them, by conversation and branch."""

        self._large_tree: tuple[str, Tree | None] = ("", None)
        """The last tree with many branches, by the tag of its conversation."""

    def _get_keys(self, owner: str, conversation: str) -> Keys:
        return Keys(self._prefix, owner, conversation)

    def _remember_tip(self, keys: Keys, branch: str, segment: int, start: int) -> None:
        """Remember the last segment of a branch and the segment's start, as a guess for the next call."""
        if len(self._tips) >= MAX_TIPS:
            self._tips.clear()
        self._tips[keys.tag, branch] = segment, start

    def _decode_head(self, keys: Keys, branch: str, reply: Any) -> BranchHead | None:
        """Decode the head of a branch from a script's reply, and remember the branch's last segment."""
        if not reply:
            return None
        self._remember_tip(keys, branch, int(reply[1]), int(reply[2]))
        return decode_head(branch, reply)

    def _read_tree(self, keys: Keys) -> Tree | None:
        tree = decode_tree(self._client.read(Command("HGETALL", (), [keys.conversation]))[0])
        if tree is not None and len(tree.branches) >= MANY_BRANCHES:
            self._large_tree = keys.tag, tree
        return tree

    def _read_tree_of_paths(self, keys: Keys) -> Tree | None:
        """Return the tree of a conversation, of which only the paths of its branches may be used.

        The last large tree is reused until a path changes: to read it for each branch would take the square of their
        number. Its leases may have changed.
        """
        tag, tree = self._large_tree
        if tree is not None and tag == keys.tag and self._is_unchanged(keys, tree):
            return tree
        return self._read_tree(keys)

    def _read_consistently(
        self, keys: Keys, read_from: Callable[[Tree | None], _Result], *, with_leases: bool = False
    ) -> _Result:
        """Call `read_from` with the tree of a conversation, or None if it doesn't exist, and return the result.

        Without `with_leases`, the leases in the tree may be old.
        If the conversation is deleted, or replaced by a new one with the same id, in the meantime, start over.
        """
        while True:
            tree = self._read_tree(keys) if with_leases else self._read_tree_of_paths(keys)
            result: _Result | None = None
            with suppress(ConversationGone):
                result = read_from(tree)
            born = self._client.read(Command("HGET", ("born",), [keys.conversation]))[0] if tree else None
            if born == (tree.born if tree else None) and result is not None:
                return result

    def _read_spans(self, keys: Keys, tree: Tree, spans: Sequence[Span[int]]) -> list[list[bytes]]:
        """Return the stored entries of these spans, as one list per span, in one round trip."""
        commands = [
            Command("LRANGE", (start - first, stop - first - 1), [keys.get_entries_key(segment)])
            for segment, start, stop in spans
            for first in (tree.segments[segment].start,)
        ]
        parts: list[list[bytes]] = self._client.read(*commands)
        if any(len(values) != span.stop - span.start for span, values in zip(spans, parts, strict=True)):
            current = self._read_tree(keys)
            if current is not None and current.born == tree.born:
                raise Damaged("some entries are missing")
            raise ConversationGone
        return parts

    def _read_trees(self, owner: str, names: Sequence[str]) -> list[Tree | None]:
        keys = [self._get_keys(owner, name).conversation for name in names]
        return [decode_tree(fields) for fields in self._client.scatter([Command("HGETALL", (), [key]) for key in keys])]

    def _is_unchanged(self, keys: Keys, tree: Tree) -> bool:
        """Return whether a conversation is unchanged since its tree was read."""
        current = self._client.read(Command("HMGET", ("born", "version"), [keys.conversation]))[0]
        return bool(current == [tree.born, tree.version])
