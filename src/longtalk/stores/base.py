"""Where conversations live when the caller does not keep them: the contract of a store.

A conversation is a tree of entries. A *branch* is a name for one of its leaves, and the entries from the root to it are
the branch's *path*; branches that share ancestors share their entries, nothing is copied. An entry's *place* is the
number of entries before it on its path.

A store reads a path in parts, and changes a branch by a `Commit`, whole or not at all, if the branch is at the revision
that the commit expects. That is all it decides. Who may write, what is in a turn and what to do when somebody was
faster is decided above it (`conversation.py`), once for all stores.

Every method names the owner, and an id is one of its owner's: what belongs to somebody else can't be told from what
does not exist. The JSON of an entry is bytes in, bytes out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from longtalk.pack import Entry, Pack
from longtalk.transcript import Record, Turn

MAIN = "main"
REPLACED = ("anchor", "attempt", "epoch", "handle", "memory", "meter", "pins", "receipt", "summary", "window")
"""Kinds of records of which a path uses the newest alone."""
ALONE = ("epoch", "memory")
"""Kinds of records that a branch keeps to itself, at its end: what it writes later, one that left it does not see."""
BRIEF = ("anchor", "meter")
"""Kinds of records of which a store need not keep those that were replaced."""
BARE = ("anchor", "meter", "pins", "receipt", "window")
"""Kinds of records that hold nothing that an entry says."""

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


class Moved(Exception):
    """The branch is not at the revision that a commit expects. `head` is where it is; None if there is none."""

    def __init__(self, head: Head | None) -> None:
        super().__init__("the branch has moved on")
        self.head = head


class KeyTaken(Exception):
    """Another turn of this conversation was asked for with the same key."""


class Holder(msgspec.Struct, frozen=True):
    """A process that runs a turn, such that another one on the same host can tell whether it still lives."""

    host: str
    boot: str
    pid: int
    started: int


class Lease(msgspec.Struct, frozen=True):
    """Who runs a turn on a branch, and until when nobody else may."""

    holder: Holder
    until: int
    """In milliseconds since 1970."""
    token: int
    """Grows with each lease of the branch."""


class Request(msgspec.Struct, frozen=True):
    """The caller's own key for a turn, and a digest of what it asked for."""

    key: str
    body: str


class Placed(msgspec.Struct, frozen=True):
    """A record, and the place of the entry up to which it holds (-1 when there is none)."""

    record: Record
    place: int


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a branch."""

    branch: str = MAIN
    expect: int
    """The revision that the branch has; 0 when it must not exist yet."""
    source: tuple[str, int] | None = None
    """For a branch that does not exist: another one, and how many entries of its path it begins with."""
    behind: str | None = None
    """The id of the last of those; `Moved` if it is another one by now. None: whatever it is."""
    cut: int | None = None
    """Go on from so many entries of the path: those behind stay in the tree, and are not on this branch any more."""
    entries: tuple[Entry, ...] = ()
    """Behind the last one of the path: the first one's parent is its head."""
    turn: Turn | None = None
    """A turn that begins with these entries, or the next version of one that is there."""
    request: Request | None = None
    """What the turn was asked for with."""
    manifest: bytes = b""
    """What the turn has sent, and why, as JSON; nothing leaves what is there."""
    records: tuple[Placed, ...] = ()
    done: tuple[Record, ...] = ()
    """Records that the head need not show any more. A store may go on showing them."""
    lease: Lease | None = None
    """Who may write from now on; None lets go of it."""
    at: int
    """When, in milliseconds since 1970."""
    meta: Mapping[str, Any] | None = None
    """The app's own data on the conversation, from now on."""
    entry_meta: Mapping[int, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    """The app's own data on some of the entries, by their number among these."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Where a branch stands."""

    branch: str
    revision: int
    """Grows with each commit on the branch."""
    size: int
    """How many entries its path has."""
    entry: str | None
    """The id of the last one."""
    token: int
    """Of the newest lease there ever was."""
    lease: Lease | None
    turn: Turn | None
    """The last one that has an entry on the path."""
    records: tuple[Placed, ...]
    """Those on the path, oldest first; of the kinds in `REPLACED` the newest."""
    created: int
    """When the conversation began."""
    updated: int
    """When the branch was changed last."""


class Asked(msgspec.Struct, frozen=True):
    """A turn that was asked for with a key."""

    request: Request
    branch: str
    """One that has it on its path: the one that it was made on, while that does."""
    turn: Turn
    place: int
    """Of its first entry."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in a list."""

    id: str
    created: int
    updated: int
    entries: int
    """In all of its branches."""
    branches: tuple[str, ...]
    meta: dict[str, Any]


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that was found."""

    conversation: str
    branch: str
    """One that has it on its path."""
    place: int
    entry: str
    role: str
    at: int
    text: str


class Sought(msgspec.Struct, frozen=True):
    """Something to look for, in whichever of its forms it is written."""

    words: tuple[str, ...] = ()
    """Whole words. Of Chinese, Japanese and Korean any part of a text."""
    beginnings: tuple[str, ...] = ()
    """What a word may begin with."""


class Holding(msgspec.Struct, frozen=True):
    """Which entries of a path hold what was sought."""

    places: tuple[int, ...] = ()
    """In order."""
    count: int = 0
    """How many there are; about so many, where not all of them are among the places."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed for good."""

    conversation: str
    entries: int
    turns: int
    records: int
    branches: int
    at: int


class Store(Protocol):
    """Keeps conversations. Its methods may be called from any thread. Each one is one transaction.

    One that takes one caller at a time anyhow says so with `serial = True`: who is async then calls it from one thread.
    """

    # Reading

    def head(self, owner: str, conversation: str, branch: str = MAIN) -> Head | None: ...

    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        """The entries start … stop of a path. Those that are not there any more are not given."""
        ...

    def pick(self, owner: str, conversation: str, branch: str, ranges: Sequence[tuple[int, int]]) -> list[list[Entry]]:
        """The entries of several parts of a path at once. The parts are in order, and none overlaps another."""
        ...

    def turns(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> list[tuple[int, Turn]]:
        """The turns whose first entry is at places start … stop of a path, with that place."""
        ...

    def manifest(self, owner: str, conversation: str, turn: str) -> bytes:
        """What a turn has sent, as it was committed; nothing when that was not."""
        ...

    def manifests(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[str, bytes]:
        """The manifests of the turns whose first entry is at places start … stop of a path, of those that have one."""
        ...

    def records(self, owner: str, conversation: str, branch: str, kind: str | None = None) -> list[Placed]:
        """All records on a path, or those of a kind, oldest first, also those that were replaced, but for `BRIEF`."""
        ...

    def metas(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> dict[int, dict[str, Any]]:
        """The app's own data on the entries start … stop of a path, by their place."""
        ...

    def asked(self, owner: str, conversation: str, key: str) -> Asked | None:
        """The turn that was asked for with this key."""
        ...

    def requests(self, owner: str, conversation: str) -> list[Asked]:
        """All turns that were asked for with a key, by key."""
        ...

    def branches(self, owner: str, conversation: str) -> list[Head]:
        """All branches by name, without their records."""
        ...

    def summary(self, owner: str, conversation: str) -> Summary | None:
        """What a list says of a conversation."""
        ...

    def conversations(
        self,
        owner: str,
        *,
        limit: int = 50,
        after: tuple[int, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> list[Summary]:
        """Those changed last come first, by id where that is equal; behind the one of this time and id.

        With `meta`, those that have these values among the app's own data.
        """
        ...

    def candidates(
        self, owner: str, terms: Collection[str], limit: int, *, conversation: str | None = None
    ) -> list[Hit]:
        """Entries that hold some of these words, the best first; Chinese, Japanese and Korean in any part of a text.

        The cards of an answer are found too, and are not in the text of a hit.
        """
        ...

    def holding(self, owner: str, conversation: str, branch: str, sought: Sequence[Sought], most: int) -> list[Holding]:
        """For each thing that is sought, where on a path it is said: the newest `most` places, and how many there are.

        The cards of an answer count. What tools gave does not.
        """
        ...

    # Writing

    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        """Raises `Moved` when the branch is elsewhere, `KeyTaken` when another turn has the request's key."""
        ...

    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        """Hold a lease for longer. False when somebody else has it."""
        ...

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        """Replace the app's own data on a conversation, or on an entry. False: not there. No branch moves."""
        ...

    def delete(self, owner: str, conversation: str) -> Receipt | None:
        """Remove a conversation and all that stems from it; None when there is none."""
        ...

    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        """Put other JSON in the place of an entry's own, for good. False: not there.

        The app's own data on it and the records that may quote it (not those in `BARE`) go too. The branches that have
        it get another revision, so that nobody goes on with what they remember.
        """
        ...

    def verify(self, owner: str, conversation: str) -> list[str]:
        """What is wrong with how a conversation is kept: what can't be read, checksums that do not hold."""
        ...

    def close(self) -> None: ...


def checked(head: Head | None, commit: Commit, source: Head | None = None) -> None:
    """Raise `Moved` unless the commit expects this head, `ValueError` for one that makes no sense.

    What `Commit.behind` names is the store's to look up.
    """
    if (head.revision if head else 0) != commit.expect:
        raise Moved(head)
    size = head.size if head else 0
    if head is None and commit.source is not None:
        if source is not None and commit.behind is not None and commit.source[1] > source.size:
            # It was cut meanwhile.
            raise Moved(source)
        if source is None or not 0 <= commit.source[1] <= source.size:
            raise ValueError("a branch can't begin where there is nothing")
        size = commit.source[1]
    if commit.cut is not None and not 0 <= commit.cut <= size:
        raise ValueError("a path can't be cut behind its end")
    if head is not None and commit.source is not None:
        raise ValueError("a branch that is there has its source")
    sensible(commit)


def sensible(commit: Commit) -> None:
    """Raise `ValueError` for a commit that makes no sense whatever is there."""
    if any(not 0 <= i < len(commit.entries) for i in commit.entry_meta):
        raise ValueError("there is no entry to keep data on")
    if commit.turn is None and (commit.request is not None or commit.manifest):
        raise ValueError("a request and a manifest need their turn")


def numbered(entry: Entry) -> None:
    """Raise `ValueError` unless an entry's id is its turn's and a number."""
    if not entry.id.startswith(f"{entry.turn}-") or not _NUMBER.fullmatch(entry.id, len(entry.turn) + 1):
        raise ValueError(f"{entry.id!r} is not the id of an entry of the turn {entry.turn!r}")


def has(meta: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether an app's own data has all of these values, as JSON: true is not 1."""

    def text(value: Any) -> str:
        return json.dumps(value, sort_keys=True)

    return all(key in meta and text(meta[key]) == text(value) for key, value in wanted.items())


def linked(parent: str | None, entries: Sequence[Entry]) -> None:
    """Raise `ValueError` unless each entry's parent is the one before it."""
    for entry in entries:
        if entry.parent != parent:
            raise ValueError(f"the parent of {entry.id!r} is {entry.parent!r}, and the entry before it is {parent!r}")
        parent = entry.id
