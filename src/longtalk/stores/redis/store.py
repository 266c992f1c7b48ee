"""The Redis store: conversations on a Redis or Valkey server, or on a cluster, shared by many machines.

All keys of a conversation are in one slot (`scripts.py` describes them). The cost of a turn doesn't depend on the
length of the conversation: the commit that begins a turn and the commit that ends it are one script each, in one round
trip. If a master fails, calls wait until a replica has taken over, and then continue.

    store = Redis("redis://localhost:6379")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from longtalk.errors import InputError, StoreError
from longtalk.stores._rows import to_utf8_json
from longtalk.stores.base import (
    BranchHead,
    Commit,
    DeletionReceipt,
    HeadMoved,
    RequestKeyTaken,
    check_commit,
    check_commit_fields,
)
from longtalk.stores.redis.commit import Changes, Plan, arguments, new_mark
from longtalk.stores.redis.connection import Command, Link, NotReplicated
from longtalk.stores.redis.read import Reader
from longtalk.stores.redis.remove import delete, places_of, redact
from longtalk.stores.redis.scripts import RENEW, WRITE
from longtalk.stores.redis.tree import Keys, Tree

__all__ = ["NotReplicated", "Redis", "StoreError"]


class Redis(Reader):
    """A store on a Redis or Valkey server or cluster, at a `redis://` address, or `rediss://` for TLS.

    A cluster is detected automatically. All keys begin with `prefix`. With `replicas`, each change waits up to
    `wait_ms` milliseconds until that many replicas acknowledge it; if they don't, `NotReplicated` is raised. `patience`
    is how many seconds a call keeps trying while the server doesn't answer or a replica is about to take over.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "longtalk",
        replicas: int = 0,
        wait_ms: int = 1000,
        patience: float = 15.0,
    ) -> None:
        if "{" in prefix or "}" in prefix:
            raise InputError(f"A prefix has no braces, as they say where a key lies: {prefix!r}.")
        if replicas < 0 or wait_ms <= 0 or patience < 0:
            raise InputError("replicas and patience can't be negative, and wait_ms is at least 1.")
        super().__init__(Link(url, patience=patience, replicas=replicas, wait_ms=wait_ms), prefix)

    def __repr__(self) -> str:
        return f"Redis({self._link!r}, prefix={self._prefix!r})"

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        check_commit_fields(commit)
        keys, mark = self._keys(owner, conversation), new_mark()
        # A new conversation has to be on its owner's list before it is created. It may be added twice without harm.
        begins = commit.expect == 0 and commit.source is None
        hot, gen = (self._lists.heat(owner, conversation), b"0") if begins else (b"", b"")
        planned = commit.source is not None
        while True:
            if planned:
                status, given, safe = self._planned(owner, conversation, keys, commit, mark)
            else:
                segment = self._tips.get((keys.tag, commit.branch), (1, 0))[0]
                told = arguments(commit, segment=segment, mark=mark, hot=hot, gen=gen)
                command = Command(WRITE, told, [*keys.all, keys.entries(segment)])
                (status, *given), safe = self._link.change(keys.c, command)
            if status == b"done":
                return self._made(keys, commit, given[0], safe=safe)
            if status == b"moved":
                raise HeadMoved(self._head(keys, commit.branch, given[0]))
            if status == b"cold":
                hot, gen = self._lists.heat(owner, conversation), given[0]
            elif status == b"segment":
                self._tip(keys, commit.branch, int(given[0]), 0)
            elif status == b"plan":
                planned = True
            elif status != b"again":
                _refuse(status, commit)

    def _made(self, keys: Keys, commit: Commit, found: Any, *, safe: bool) -> BranchHead:
        if not safe:
            raise NotReplicated(
                "This was written, but too few replicas have said in time that they have it."
                " Ask again with the same key: it makes no second turn."
            )
        head = self._head(keys, commit.branch, found)
        if head is None:
            raise HeadMoved(None)
        # If the reply was lost, another commit may have followed this one. Report the revision of this commit, so that
        # the caller's next commit raises HeadMoved.
        return msgspec.structs.replace(head, revision=commit.expect + 1)

    def _planned(
        self, owner: str, conversation: str, keys: Keys, commit: Commit, mark: bytes
    ) -> tuple[bytes, list[Any], bool]:
        """Apply a commit by a plan.

        Returns the status, the rest of the script's reply, and whether enough replicas acknowledged the commit.
        """
        tree = self._tree(keys)
        if tree is None:
            check_commit(None, commit)
            raise ValueError(f"the conversation {conversation!r} was deleted during the commit")
        branch = tree.branches.get(commit.branch)
        if branch is not None and branch.made(mark):
            changes = Changes(keys, tree)
        else:
            plan = Plan(self._link, keys, tree, commit, mark)
            try:
                changes = plan.make()
            except (LookupError, ValueError):
                if self._is_still(keys, tree):
                    raise
                return b"again", [], True
            if not tree.text("hot"):
                plan.heat(self._lists.heat(owner, conversation))
        (status, *given), safe = self._link.change(keys.c, changes.command(commit.branch))
        return status, given, safe

    def _apply(self, keys: Keys, make: Callable[[Tree], Changes | None]) -> Tree | None:
        """Apply the changes that `make` returns for the tree. Start over if the conversation changes meanwhile.

        Returns the tree before the changes, or None if the conversation doesn't exist or `make` returned None.
        """
        while (tree := self._tree(keys)) is not None:
            try:
                changes = make(tree)
            except LookupError:
                if self._is_still(keys, tree):
                    raise
                continue
            if changes is None:
                return None
            (status, *_), safe = self._link.change(keys.c, changes.command())
            if status == b"done":
                if not safe:
                    raise NotReplicated("This was done, but too few replicas have said in time that they have it.")
                return tree
        return None

    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        keys = self._keys(owner, conversation)
        return bool(self._link.change(keys.c, Command(RENEW, [branch, token, until], [keys.c]))[0])

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        keys, data = self._keys(owner, conversation), to_utf8_json(meta)

        def make(tree: Tree) -> Changes | None:
            changes = Changes(keys, tree)
            if entry is None:
                changes.add("HSET", keys.c, "meta", data)
                return changes
            positions = places_of(self._link, keys, tree, entry)
            for segment, position, _ in positions:
                changes.add("HSET", keys.x, f"{segment}:{position}", data)
            return changes if positions else None

        return self._apply(keys, make) is not None

    def delete(self, owner: str, conversation: str) -> DeletionReceipt | None:
        keys = self._keys(owner, conversation)
        receipts: list[DeletionReceipt] = []

        def make(tree: Tree) -> Changes | None:
            if born and born[0] != tree.born:
                # The first attempt succeeded but its reply was lost. This is a new conversation with the same id.
                return None
            born.append(tree.born)
            receipt, changes = delete(self._link, keys, tree, conversation)
            receipts.append(receipt)
            nonces.append(tree.text("hot"))
            return changes

        born: list[bytes] = []
        nonces: list[bytes] = []
        self._apply(keys, make)
        # Clean up the list even if no conversation was found: an earlier deletion may have crashed before this step. A
        # receipt is valid even if `_apply` returned None, because then only the reply to the deletion was lost.
        self._lists.forget(owner, conversation, nonces[-1] if nonces else b"")
        self._words.clear()
        return receipts[-1] if receipts else None

    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        keys = self._keys(owner, conversation)
        done = self._apply(keys, lambda tree: redact(self._link, keys, tree, entry, native))
        self._words.clear()
        return done is not None

    def close(self) -> None:
        self._link.close()
        self._words.clear()


def _refuse(status: bytes, commit: Commit) -> None:
    """Raise the exception for the status with which the script has refused a commit."""
    if status == b"taken" and commit.request:
        raise RequestKeyTaken(commit.request.key)
    if status == b"parent":
        raise ValueError(f"the parent of {commit.entries[0].id!r} is not the entry before it")
    if status == b"turn" and commit.turn:
        raise ValueError(f"the turn {commit.turn.id!r} can't begin without an entry")
    raise ValueError("a record can't hold up to an entry that is not there")
