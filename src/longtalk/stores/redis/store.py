"""The Redis store: conversations on a Redis or Valkey server, or on a cluster, shared by many machines.

All keys of a conversation are in one slot (`scripts.py` describes them). The cost of a turn doesn't depend on the
length of the conversation: the commit that begins a turn and the commit that ends it are one script each, in one round
trip. If a master fails, calls wait until a replica has taken over, and then continue.

    store = Redis("redis://localhost:6379")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

import msgspec

from longtalk.errors import InputError, StoreError
from longtalk.stores._closing import ClosedOnExit
from longtalk.stores._rows import to_utf8_json
from longtalk.stores.base import BranchHead, Commit, DeletionReceipt, HeadMoved, RequestKeyTaken, Store
from longtalk.stores.checks import check_commit, check_commit_fields
from longtalk.stores.redis.command import Command
from longtalk.stores.redis.commit import Changes, build_write_arguments, make_mark
from longtalk.stores.redis.connection import Client, NotReplicated
from longtalk.stores.redis.planner import CommitPlanner
from longtalk.stores.redis.read import Reader
from longtalk.stores.redis.remove import find_entry, plan_deletion, plan_redaction
from longtalk.stores.redis.scripts import RENEW, WRITE
from longtalk.stores.redis.tree import Keys, Tree

__all__ = ["NotReplicated", "Redis", "StoreError"]

_T = TypeVar("_T")


def _refuse_surrogates(kind: type[_T]) -> type[_T]:
    """Let every method of a store raise `InputError` for a name with unpaired surrogates, which can't be sent."""

    def refuse(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def checked(*args: Any, **named: Any) -> Any:
            try:
                return method(*args, **named)
            except UnicodeEncodeError as problem:
                raise InputError(
                    f"{problem.object[:60]!r} can't be stored: it has unpaired surrogates, so it is not valid Unicode."
                ) from None

        return checked

    for name in vars(Store):
        if not name.startswith("_"):
            setattr(kind, name, refuse(getattr(kind, name)))
    return kind


@_refuse_surrogates
class Redis(Reader, ClosedOnExit):
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
            raise InputError(f"A prefix can't contain braces, because they determine a key's slot: {prefix!r}.")
        if replicas < 0 or wait_ms <= 0 or patience < 0:
            raise InputError(
                f"replicas ({replicas}) and patience ({patience}) can't be negative, "
                f"and wait_ms ({wait_ms}) must be at least 1."
            )
        super().__init__(Client(url, patience=patience, replicas=replicas, wait_ms=wait_ms), prefix)

    def __repr__(self) -> str:
        return f"Redis({self._client!r}, prefix={self._prefix!r})"

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        check_commit_fields(commit)
        keys, mark = self._get_keys(owner, conversation), make_mark()
        # A new conversation has to be on its owner's list before it is created. It may be added twice without harm.
        may_be_new = commit.expect == 0 and commit.source is None
        nonce, gen = (self._lists.mark_hot(owner, conversation), b"0") if may_be_new else (b"", b"")
        needs_plan = commit.source is not None
        while True:
            if needs_plan:
                status, reply, is_replicated = self._write_planned(owner, conversation, keys, commit, mark)
            else:
                segment = self._tips.get((keys.tag, commit.branch), (1, 0))[0]
                arguments = build_write_arguments(commit, segment=segment, mark=mark, nonce=nonce, gen=gen)
                command = Command(WRITE, arguments, [*keys.all, keys.get_entries_key(segment)])
                (status, *reply), is_replicated = self._client.change(command)
            if status == b"done":
                return self._get_new_head(keys, commit, reply[0], is_replicated=is_replicated)
            if status == b"moved":
                raise HeadMoved(self._decode_head(keys, commit.branch, reply[0]))
            if status == b"cold":
                nonce, gen = self._lists.mark_hot(owner, conversation), reply[0]
            elif status == b"segment":
                self._remember_tip(keys, commit.branch, int(reply[0]), 0)
            elif status == b"plan":
                needs_plan = True
            elif status != b"again":
                _raise_refusal(status, commit)

    def _get_new_head(self, keys: Keys, commit: Commit, reply: Any, *, is_replicated: bool) -> BranchHead:
        """Return the head of a branch after a commit. Raise `NotReplicated` if too few replicas acknowledged it."""
        if not is_replicated:
            raise NotReplicated(
                "The commit was written, but too few replicas acknowledged it in time."
                " Request the turn again with the same key: that doesn't create a second turn."
            )
        head = self._decode_head(keys, commit.branch, reply)
        if head is None:
            raise HeadMoved(None)
        # If the reply was lost, another commit may have followed this one. Report the revision of this commit, so that
        # the caller's next commit raises HeadMoved.
        return msgspec.structs.replace(head, revision=commit.expect + 1)

    def _write_planned(
        self, owner: str, conversation: str, keys: Keys, commit: Commit, mark: bytes
    ) -> tuple[bytes, list[Any], bool]:
        """Apply a commit that needs a plan (see `commit.py`).

        Returns the status, the rest of the script's reply, and whether enough replicas acknowledged the commit.
        """
        tree = self._read_tree(keys)
        if tree is None:
            check_commit(None, commit)
            raise ValueError(f"conversation {conversation!r} was deleted during the commit")
        branch = tree.branches.get(commit.branch)
        if branch is not None and branch.has_commit(mark):
            # The commit was applied and its reply was lost: only read the head.
            changes = Changes(keys, tree)
        else:
            planner = CommitPlanner(self._client, keys, tree, commit, mark)
            try:
                changes = planner.build_changes()
            except (LookupError, ValueError):
                if self._is_unchanged(keys, tree):
                    raise
                return b"again", [], True
            if not tree.get_bytes("hot"):
                planner.mark_hot(self._lists.mark_hot(owner, conversation))
        (status, *reply), is_replicated = self._client.change(changes.to_command(commit.branch))
        return status, reply, is_replicated

    def _apply(self, keys: Keys, plan: Callable[[Tree], Changes | None]) -> bool:
        """Apply the changes that `plan` returns for the current tree, and start over if the tree changes meanwhile.

        Returns False if the conversation doesn't exist or `plan` returned None.
        """
        while (tree := self._read_tree(keys)) is not None:
            try:
                changes = plan(tree)
            except LookupError:
                if self._is_unchanged(keys, tree):
                    raise
                continue
            if changes is None:
                return False
            (status, *_), is_replicated = self._client.change(changes.to_command())
            if status == b"done":
                if not is_replicated:
                    raise NotReplicated(
                        "The change was written, but too few replicas acknowledged it in time."
                        " It is lost if the master fails before a replica has it."
                    )
                return True
        return False

    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        keys = self._get_keys(owner, conversation)
        return bool(self._client.change(Command(RENEW, [branch, token, until], [keys.conversation]))[0])

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        keys, data = self._get_keys(owner, conversation), to_utf8_json(meta)

        def plan(tree: Tree) -> Changes | None:
            changes = Changes(keys, tree)
            if entry is None:
                changes.add("HSET", keys.conversation, "meta", data)
                return changes
            positions = find_entry(self._client, keys, tree, entry)
            for segment, position, _ in positions:
                changes.add("HSET", keys.metas, f"{segment}:{position}", data)
            return changes if positions else None

        return self._apply(keys, plan)

    def delete(self, owner: str, conversation: str) -> DeletionReceipt | None:
        keys = self._get_keys(owner, conversation)
        receipts: list[DeletionReceipt] = []

        def plan(tree: Tree) -> Changes | None:
            if born and born[0] != tree.born:
                # The first attempt succeeded but its reply was lost. This is a new conversation with the same id.
                return None
            born.append(tree.born)
            receipt, changes = plan_deletion(self._client, keys, tree, conversation)
            receipts.append(receipt)
            nonces.append(tree.get_bytes("hot"))
            return changes

        born: list[bytes] = []
        nonces: list[bytes] = []
        self._apply(keys, plan)
        # Clean up the list even if no conversation was found: an earlier deletion may have crashed before this step. A
        # receipt is valid even if `_apply` returned False, because then only the reply to the deletion was lost.
        self._lists.remove(owner, conversation, nonces[-1] if nonces else b"")
        self._texts.clear()
        return receipts[-1] if receipts else None

    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        keys = self._get_keys(owner, conversation)
        is_redacted = self._apply(keys, lambda tree: plan_redaction(self._client, keys, tree, entry, native))
        self._texts.clear()
        return is_redacted

    def close(self) -> None:
        self._client.close()
        self._texts.clear()


def _raise_refusal(status: bytes, commit: Commit) -> None:
    """Raise the exception for the status with which the script `WRITE` refused a commit."""
    if status == b"taken" and commit.request:
        raise RequestKeyTaken(commit.request.key)
    if status == b"parent":
        raise ValueError(
            f"the parent of entry {commit.entries[0].id!r} is not the last entry of branch {commit.branch!r}"
        )
    if status == b"turn" and commit.turn:
        raise ValueError(f"turn {commit.turn.id!r} has no entries: commit it together with its first entry")
    raise ValueError("can't attach a record at a position that is not on the path")
