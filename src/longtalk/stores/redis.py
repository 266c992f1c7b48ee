"""Conversations in Redis or Valkey, on one server or on a cluster, for many machines.

All of a conversation lies in one slot, and what a turn costs does not depend on how long it is: each half of a turn
is one script on the server, in one round trip (`redis_scripts.py` says what lies where). When a master dies, calls
wait until its replica has taken over, and go on.

    store = Redis("redis://localhost:6379")

"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from longtalk.errors import InputError, StoreError
from longtalk.stores.base import Commit, Head, KeyTaken, Moved, Receipt, sensible
from longtalk.stores.ledger import plain
from longtalk.stores.redis_link import Command, Link, NotReplicated
from longtalk.stores.redis_read import Reader
from longtalk.stores.redis_remove import delete, places_of, redact
from longtalk.stores.redis_scripts import RENEW, WRITE
from longtalk.stores.redis_tree import Keys, Tree
from longtalk.stores.redis_write import Changes, Plan, arguments, new_mark

__all__ = ["NotReplicated", "Redis", "StoreError"]


class Redis(Reader):
    """A store at an address: `redis://`, or `rediss://` for TLS. Whether it is a cluster, the server says.

    `prefix` is what its keys begin with. With `replicas`, each change waits until so many of them have it, for
    `wait_ms` milliseconds at most (`NotReplicated`). `patience` is for how many seconds a call goes on trying when the
    server does not answer, or another one is about to take over.
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

    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        sensible(commit)
        keys, mark = self._keys(owner, conversation), new_mark()
        # What begins a conversation is put on its owner's list first; whoever was faster with that does no harm.
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
                raise Moved(self._head(keys, commit.branch, given[0]))
            if status == b"cold":
                hot, gen = self._lists.heat(owner, conversation), given[0]
            elif status == b"segment":
                self._tip(keys, commit.branch, int(given[0]), 0)
            elif status == b"plan":
                planned = True
            elif status != b"again":
                _refuse(status, commit)

    def _made(self, keys: Keys, commit: Commit, found: Any, *, safe: bool) -> Head:
        if not safe:
            raise NotReplicated(
                "This was written, but too few replicas have said in time that they have it."
                " Ask again with the same key: it makes no second turn."
            )
        head = self._head(keys, commit.branch, found)
        if head is None:
            raise Moved(None)
        # Somebody may have gone on behind it before it was known that it is there: who comes next is told.
        return msgspec.structs.replace(head, revision=commit.expect + 1)

    def _planned(
        self, owner: str, conversation: str, keys: Keys, commit: Commit, mark: bytes
    ) -> tuple[bytes, list[Any], bool]:
        tree = self._tree(keys)
        if tree is None:
            if commit.expect:
                raise Moved(None)
            raise ValueError("a branch can't begin where there is nothing")
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
        """Change something, if nothing else changes meanwhile. Returns what it was; None: there was nothing."""
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
        keys, data = self._keys(owner, conversation), plain(meta)

        def make(tree: Tree) -> Changes | None:
            changes = Changes(keys, tree)
            if entry is None:
                changes.add("HSET", keys.c, "meta", data)
                return changes
            places = places_of(self._link, keys, tree, entry)
            for segment, place, _ in places:
                changes.add("HSET", keys.x, f"{segment}:{place}", data)
            return changes if places else None

        return self._apply(keys, make) is not None

    def delete(self, owner: str, conversation: str) -> Receipt | None:
        keys = self._keys(owner, conversation)
        receipts: list[Receipt] = []

        def make(tree: Tree) -> Changes | None:
            if born and born[0] != tree.born:
                # It is gone, and the answer that said so got lost: this is another one that has its name.
                return None
            born.append(tree.born)
            receipt, changes = delete(self._link, keys, tree, conversation)
            receipts.append(receipt)
            nonces.append(tree.text("hot"))
            return changes

        born: list[bytes] = []
        nonces: list[bytes] = []
        self._apply(keys, make)
        # Also where there was none: who deleted it may have got no further. Where an answer was lost, it is gone too.
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
    """Raise what the script has found wrong with a commit."""
    if status == b"taken" and commit.request:
        raise KeyTaken(commit.request.key)
    if status == b"parent":
        raise ValueError(f"the parent of {commit.entries[0].id!r} is not the entry before it")
    if status == b"turn" and commit.turn:
        raise ValueError(f"the turn {commit.turn.id!r} can't begin without an entry")
    raise ValueError("a record can't hold up to an entry that is not there")
