"""The contract of a store, and the values that are passed to and from it.

A conversation is a tree of entries. A *branch* names one leaf of the tree. The entries from the root to that leaf are
the branch's *path*, and an entry's *position* is its index on the path. Branches that share ancestors share their
entries; a fork copies nothing. The last entry, revision, lease and records of a branch are its *head*.

A store reads parts of a path, and changes a branch by a `Commit`. A commit is applied completely or not at all, and
only if the branch is at the revision that the commit expects; otherwise `HeadMoved` is raised. Everything else is
decided outside the store, in the packages `branches` and `conversation`: which process may write, what a turn contains,
and how to react if another process has written first.

Every method but `owners` takes the owner, and a conversation's id is unique per owner. A conversation of another owner
looks exactly like one that doesn't exist. The JSON of an entry is returned byte for byte as it was stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from longtalk.memory.recall.protocol import Matches, SearchTerm
from longtalk.transcript.pack import Entry, Pack
from longtalk.transcript.transcript import Record, Turn

MAIN = "main"


class HeadMoved(Exception):
    """Raised if the branch of a commit, or the branch from which it forks, is not in the state that the commit expects.

    `head` is the current head of that branch, or None if the branch doesn't exist.
    """

    def __init__(self, head: BranchHead | None) -> None:
        super().__init__("the branch is not at the revision that the commit expects")
        self.head = head


class RequestKeyTaken(Exception):
    """Raised if the idempotency key in a commit already belongs to another turn of the conversation."""


class Holder(msgspec.Struct, frozen=True):
    """The process that holds a lease, described so that processes on the same host can check whether it is alive."""

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
    """The digest of the request. A retry with the same key must have the same digest.

    After a redaction it is empty, since it could be used to confirm a guess of the redacted text; then any request with
    the key counts as a retry.
    """


class PlacedRecord(msgspec.Struct, frozen=True):
    """A record, and the position of the entry that it is attached to (-1: before the first entry)."""

    record: Record
    position: int


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One change to a branch, which is applied completely or not at all."""

    branch: str = MAIN
    expect: int
    """The revision that the branch must have, or 0 if the branch must not exist yet."""
    source: tuple[str, int] | None = None
    """For a new branch: the branch that it forks from, and how many entries of that branch's path it starts with."""
    source_entry: str | None = None
    """The expected id of the last entry taken from `source`; any other id raises `HeadMoved`. None: don't check."""
    cut: int | None = None
    """Truncate the path to this many entries before appending. The entries cut off stay in the tree."""
    entries: tuple[Entry, ...] = ()
    """Entries to append. The parent of the first one must be the last entry of the path, after any cut."""
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
    """The lease that the branch has after the commit. None releases the current lease."""
    at: int
    """The time of the commit, in milliseconds since 1970."""
    meta: Mapping[str, Any] | None = None
    """The app's metadata that replaces that of the conversation. None keeps the stored metadata."""
    entry_meta: Mapping[int, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    """Metadata from the app for some of the new entries, by their index in `entries`."""


class BranchHead(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a branch, as its last commit left it."""

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
    """A branch whose path includes the turn, preferably the branch on which the turn was made.

    If no path includes the turn any more, this is the branch on which it was made.
    """
    turn: Turn
    position: int
    """The position of the turn's first entry on the path of `branch`."""


class ConversationInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation in a list: its id, times, size, branches and metadata."""

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
    """Confirmation that a conversation was deleted: how many entries, turns, records and branches it had."""

    conversation: str
    entries: int
    turns: int
    records: int
    branches: int
    at: int


class Store(Protocol):
    """A place where conversations are kept.

    Each method is one transaction and may be called from any thread. A store that can serve only one caller at a time
    sets `serial = True`; async code then calls the store from a single thread. A store that serves N callers at a time
    sets `parallel = N`; async code then calls it from at most N threads of its own.

    A store whose data may lack checksums, because an earlier version wrote it, has a method `uncovered(owner,
    conversation)`, which returns a description of each part of a conversation that `verify` can't check.
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

    def heads(self, owner: str, conversations: Sequence[str], most: int) -> dict[str, list[BranchHead]]:
        """Return the heads of several conversations, with their records, by the conversation's id.

        Of each conversation, these are the heads of at most `most` branches: those that were changed last, then by
        name. Conversations that don't exist are left out.
        """
        ...

    def info(self, owner: str, conversation: str) -> ConversationInfo | None:
        """Return the times, size, branches and metadata of a conversation, or None if it doesn't exist."""
        ...

    def conversations(
        self,
        owner: str,
        *,
        limit: int = 50,
        after: tuple[int, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> list[ConversationInfo]:
        """Return at most `limit` of the owner's conversations, most recently changed first, then by id.

        `after` is the `updated` time and the id of the last conversation on the previous page. With `meta`, only
        conversations whose metadata contains all of these keys and values are returned.
        """
        ...

    def owners(self) -> list[str]:
        """Return the names of all owners that have a conversation, sorted. The cost grows with their number."""
        ...

    def conversations_with(self, owner: str, kind: str) -> list[str]:
        """Return the ids of the owner's conversations that have a branch whose head includes a record of this kind."""
        ...

    def candidates(
        self, owner: str, terms: Collection[str], limit: int, *, conversation: str | None = None
    ) -> list[SearchHit]:
        """Return at most `limit` entries that contain any of these words, best matches first.

        With `conversation`, search only that conversation; otherwise, search all conversations of the owner.

        A term that ends with `*` also matches longer words: `viol*` finds "violin". Chinese, Japanese and Korean terms
        match any part of a text. Words in the memory cards of an answer match too, although the text of the search hit
        doesn't include the cards.
        """
        ...

    def matches(
        self, owner: str, conversation: str, branch: str, terms: Sequence[SearchTerm], most: int
    ) -> list[Matches]:
        """For each term, return the last `most` matching positions of a path and the total number of matches.

        The number may be an estimate if there are more than `most` matches. Words in the memory cards of an answer
        count; tool results don't.
        """
        ...

    # Writing

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        """Apply a commit and return the new head of the branch.

        Raises `HeadMoved` if the branch is not at the expected revision, `RequestKeyTaken` if another turn already has
        the request's idempotency key, and `ValueError` if the commit is invalid.
        """
        ...

    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        """Extend the lease that has this token to the time `until`. Return False if the branch has no such lease."""
        ...

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        """Replace the app's metadata of a conversation or, if `entry` is given, of that entry.

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

        The entry's metadata is removed, and so are the records that may quote the entry: those of `quotes_entries`
        kinds that are attached to it or to a later entry. A provider may have quoted the entry in the error of any
        turn, so each error in the conversation becomes `[redacted]`. The digest of the request for the entry's turn
        becomes empty. Each branch that contains the entry gets a new revision, so that a turn based on the old JSON
        can't be committed.
        """
        ...

    def verify(self, owner: str, conversation: str) -> list[str]:
        """Return a description of each problem in the stored data, such as a missing entry or a wrong checksum."""
        ...

    def close(self) -> None:
        """Release connections and caches. The store can't be used afterwards."""
        ...
