"""The contract of a store, and the values that are passed to and from it.

A conversation is a tree of entries. A *branch* names one leaf of the tree. The entries from the root to that leaf are
the branch's *path*, and an entry's *position* is its index on the path. Branches that share ancestors share their
entries; a fork copies nothing. The last entry, revision, lease and records of a branch are its *head*.

A store reads parts of a path, and changes a branch by a `Commit`. A commit is applied completely or not at all, and
only if the branch is at the revision that the commit expects; otherwise `HeadMoved` is raised. A store decides nothing
else. Which process may write, what a turn contains and how to react to a lost race is decided in `branches` and
`conversation`, once for all stores.

Every method takes the owner, and a conversation's id is unique per owner. A conversation of another owner looks exactly
like one that doesn't exist. The JSON of an entry is returned byte for byte as it was stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from longtalk.memory.recall.protocol import Matches, SearchTerm
from longtalk.transcript.pack import Entry, Pack
from longtalk.transcript.transcript import Record, Turn

MAIN = "main"

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


class HeadMoved(Exception):
    """Raised for a commit that expects another revision than the branch has.

    `head` is the current head of the branch, or None if the branch doesn't exist.
    """

    def __init__(self, head: BranchHead | None) -> None:
        super().__init__("the branch is not at the revision that the commit expects")
        self.head = head


class RequestKeyTaken(Exception):
    """Raised for a request whose idempotency key already belongs to another turn of the conversation."""


class Holder(msgspec.Struct, frozen=True):
    """The process that holds a lease. These values let a process on the same host check if the holder is alive."""

    host: str
    boot: str
    """An id that changes when the host restarts."""
    pid: int
    started: int
    """When the process started. This distinguishes processes that had the same process id at different times."""


class Lease(msgspec.Struct, frozen=True):
    """The right of one process to run a turn on a branch until the lease expires."""

    holder: Holder
    until: int
    """When the lease expires, in milliseconds since 1970."""
    token: int
    """A number that increases with each new lease on the branch."""


class KeyedRequest(msgspec.Struct, frozen=True):
    """The idempotency key that the caller gave for a turn, and a digest of the request."""

    key: str
    body: str
    """The digest of the request. A retry with the same key must have the same digest."""


class PlacedRecord(msgspec.Struct, frozen=True):
    """A record, and the position of the entry that it is attached to (-1: before the first entry)."""

    record: Record
    position: int


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One change to a branch."""

    branch: str = MAIN
    expect: int
    """The revision that the branch must have, or 0 if the branch must not exist yet."""
    source: tuple[str, int] | None = None
    """For a new branch: the branch that it forks from, and how many entries of that branch's path it starts with."""
    source_entry: str | None = None
    """The id that the last entry taken from `source` must have, or else `HeadMoved` is raised. None skips the check."""
    cut: int | None = None
    """Truncate the path to this many entries before appending. The entries cut off stay in the tree."""
    entries: tuple[Entry, ...] = ()
    """Entries to append. The parent of the first one is the last entry of the path."""
    turn: Turn | None = None
    """The turn that begins with these entries, or a new version of a turn that is already stored."""
    request: KeyedRequest | None = None
    """The request with an idempotency key that the turn answers."""
    manifest: bytes = b""
    """The manifest of the turn, as JSON. If it is empty, the stored manifest is kept."""
    records: tuple[PlacedRecord, ...] = ()
    obsolete: tuple[Record, ...] = ()
    """Records that the head no longer needs to include. A store may still include them."""
    lease: Lease | None = None
    """The lease on the branch from now on. None releases the current lease."""
    at: int
    """The time of the commit, in milliseconds since 1970."""
    meta: Mapping[str, Any] | None = None
    """New metadata from the app for the conversation. None keeps the stored metadata."""
    entry_meta: Mapping[int, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    """Metadata from the app for some of the new entries, by their index in `entries`."""


class BranchHead(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a branch after its last commit."""

    branch: str
    revision: int
    """A number that increases with each commit on the branch."""
    size: int
    """The number of entries on the branch's path."""
    entry: str | None
    """The id of the last entry, or None if the path is empty."""
    token: int
    """The token of the newest lease that the branch has ever had."""
    lease: Lease | None
    turn: Turn | None
    """The last turn that has an entry on the path, or None if there is no turn."""
    records: tuple[PlacedRecord, ...]
    """The records on the path, oldest first. Of each kind that is `newest_only`, only the newest record is included."""
    created: int
    """When the conversation was created."""
    updated: int
    """When the branch was last changed."""


class KeyedTurn(msgspec.Struct, frozen=True):
    """A turn that was requested with an idempotency key."""

    request: KeyedRequest
    branch: str
    """A branch that has the turn on its path: preferably the branch that the turn was made on."""
    turn: Turn
    position: int
    """The position of the turn's first entry."""


class ConversationInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a conversation that a list of conversations shows."""

    id: str
    created: int
    updated: int
    entries: int
    """The number of entries in the whole tree, on all branches."""
    branches: tuple[str, ...]
    meta: dict[str, Any]


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that a search found."""

    conversation: str
    branch: str
    """A branch that has the entry on its path."""
    position: int = msgspec.field(name="place")
    entry: str
    role: str
    at: int
    text: str


class DeletionReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of entries, turns, records and branches that the deletion of a conversation removed."""

    conversation: str
    entries: int
    turns: int
    records: int
    branches: int
    at: int


class Store(Protocol):
    """A place where conversations are kept.

    Each method is one transaction and may be called from any thread. A store that can serve only one caller at a time
    sets `serial = True`; async code then calls the store from a single thread.
    """

    # Reading

    def head(self, owner: str, conversation: str, branch: str = MAIN) -> BranchHead | None:
        """Return the head of a branch, or None if the branch doesn't exist."""
        ...

    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        """Return the entries at positions `start` to `stop - 1` of a path, or as many of them as exist."""
        ...

    def pick(self, owner: str, conversation: str, branch: str, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        """Return the entries of several ranges of a path, as one list per range.

        Each range is a pair of start and stop. The ranges must be in order and must not overlap.
        """
        ...

    def turns(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> list[tuple[int, Turn]]:
        """Return the turns that begin at positions `start` to `stop - 1` of a path, each with its position."""
        ...

    def manifest(self, owner: str, conversation: str, turn: str) -> bytes:
        """Return the manifest of a turn as it was committed, or empty bytes if the turn has no manifest."""
        ...

    def manifests(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[str, bytes]:
        """Return the manifests of the turns that begin at positions `start` to `stop - 1` of a path, by turn id."""
        ...

    def records(self, owner: str, conversation: str, branch: str, kind: str | None = None) -> list[PlacedRecord]:
        """Return all records on a path, or all records of one kind, oldest first.

        Records that were replaced by a newer record are included, except those of kinds with `may_discard_replaced`,
        which the store may have discarded.
        """
        ...

    def metas(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        """Return the app's metadata of the entries at positions `start` to `stop - 1` of a path, by position."""
        ...

    def keyed_turn(self, owner: str, conversation: str, key: str) -> KeyedTurn | None:
        """Return the turn that was requested with this idempotency key, or None if there is no such turn."""
        ...

    def keyed_turns(self, owner: str, conversation: str) -> list[KeyedTurn]:
        """Return all turns that were requested with an idempotency key, ordered by key."""
        ...

    def branches(self, owner: str, conversation: str) -> list[BranchHead]:
        """Return the heads of all branches of a conversation, ordered by branch name, without their records."""
        ...

    def info(self, owner: str, conversation: str) -> ConversationInfo | None:
        """Return the facts about a conversation that a list shows, or None if the conversation doesn't exist."""
        ...

    def conversations(
        self,
        owner: str,
        *,
        limit: int = 50,
        after: tuple[int, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> list[ConversationInfo]:
        """Return the owner's conversations, the most recently changed first, and by id where the times are equal.

        `after` is the time and id of the last conversation of the previous page. With `meta`, only conversations whose
        metadata has all of these values are returned.
        """
        ...

    def candidates(
        self, owner: str, terms: Collection[str], limit: int, *, conversation: str | None = None
    ) -> list[SearchHit]:
        """Return at most `limit` entries that contain any of these words, the best matches first.

        Chinese, Japanese and Korean terms match any part of a text. Words in the memory cards of an answer match too,
        although the text of the search hit doesn't include the cards.
        """
        ...

    def matches(
        self, owner: str, conversation: str, branch: str, terms: Sequence[SearchTerm], most: int
    ) -> list[Matches]:
        """Return, for each term, the last `most` positions of a path that match it, and the number of all matches.

        The number may be an estimate if there are more than `most` matches. Words in the memory cards of an answer
        count; tool results don't.
        """
        ...

    # Writing

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        """Apply a commit and return the new head of the branch.

        Raises `HeadMoved` if the branch is not at the expected revision, and `RequestKeyTaken` if another turn already
        has the request's idempotency key.
        """
        ...

    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        """Extend the lease with this token. Return False if the branch has no lease or another one."""
        ...

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        """Replace the app's metadata of a conversation, or of the given entry.

        Returns False if the conversation or the entry doesn't exist. The revisions of branches don't change.
        """
        ...

    def delete(self, owner: str, conversation: str) -> DeletionReceipt | None:
        """Delete a conversation and everything derived from it.

        Returns a receipt, or None if the conversation doesn't exist.
        """
        ...

    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        """Replace the JSON of an entry permanently. Return False if the entry doesn't exist.

        The entry's metadata is removed, and so are the records that may quote the entry: those that are attached to it
        or to a later entry and whose kind says `quotes_entries`. Each branch that contains the entry gets a new
        revision, so that a turn that was based on the old JSON can't be committed.
        """
        ...

    def verify(self, owner: str, conversation: str) -> list[str]:
        """Return a description of each problem in the stored data, such as a missing entry or a wrong checksum."""
        ...

    def close(self) -> None:
        """Release connections and caches. The store can't be used afterwards."""
        ...


def check_commit(head: BranchHead | None, commit: Commit, source: BranchHead | None = None) -> None:
    """Raise `HeadMoved` unless a commit expects this head, and `ValueError` if the commit is invalid for this head.

    `source` is the head of the branch that a new branch forks from. The store has to check `Commit.source_entry`
    itself.
    """
    if (head.revision if head else 0) != commit.expect:
        raise HeadMoved(head)
    size = head.size if head else 0
    if head is None and commit.source is not None:
        if source is not None and commit.source_entry is not None and commit.source[1] > source.size:
            # The source was truncated after the caller read it.
            raise HeadMoved(source)
        if source is None or not 0 <= commit.source[1] <= source.size:
            name, size = commit.source
            raise ValueError(f"can't fork after {size} entries of the branch {name!r}: it doesn't have that many")
        size = commit.source[1]
    if commit.cut is not None and not 0 <= commit.cut <= size:
        raise ValueError(f"can't cut a path of {size} entries to {commit.cut} entries")
    if head is not None and commit.source is not None:
        raise ValueError(f"the branch {commit.branch!r} exists already, so the commit can't have a source")
    check_commit_fields(commit)


def check_commit_fields(commit: Commit) -> None:
    """Raise `ValueError` if the fields of a commit contradict each other, regardless of the stored data."""
    if any(not 0 <= i < len(commit.entries) for i in commit.entry_meta):
        raise ValueError("entry_meta has an index that is not in entries")
    if commit.turn is None and (commit.request is not None or commit.manifest):
        raise ValueError("a commit with a request or a manifest needs a turn")


def check_record_positions(records: Sequence[PlacedRecord], size: int) -> None:
    """Raise `ValueError` if a record's position is not on a path of `size` entries."""
    for placed in records:
        if not -1 <= placed.position < size:
            raise ValueError(f"a record can't be attached to position {placed.position} of {size} entries")


def check_entry_id(entry: Entry) -> None:
    """Raise `ValueError` unless an entry's id consists of its turn's id, a hyphen and a number."""
    if not entry.id.startswith(f"{entry.turn}-") or not _NUMBER.fullmatch(entry.id, len(entry.turn) + 1):
        raise ValueError(f"{entry.id!r} is not the id of an entry of the turn {entry.turn!r}")


def check_parents(parent: str | None, entries: Sequence[Entry]) -> None:
    """Raise `ValueError` unless each entry's parent is the entry before it.

    `parent` is the id of the entry before the first, or None if there is none.
    """
    for entry in entries:
        if entry.parent != parent:
            raise ValueError(f"the parent of {entry.id!r} is {entry.parent!r}, but the entry before it is {parent!r}")
        parent = entry.id


def meta_matches(meta: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether the metadata has all of these values. Values are compared as JSON, so true differs from 1."""

    def text(value: Any) -> str:
        return json.dumps(value, sort_keys=True)

    return all(key in meta and text(meta[key]) == text(value) for key, value in wanted.items())
