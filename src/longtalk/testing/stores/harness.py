"""The building blocks of the store suite: the harness of a case, and a driver that writes and reads a conversation.

Each case is a function that takes a `Harness` and raises `AssertionError` if the store breaks the contract of
`longtalk.stores.base`. Run all cases with `longtalk.testing.stores.suite.check_store`, or one by one with pytest.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias
from unittest import SkipTest

from longtalk._util import json_bytes
from longtalk.stores.base import MAIN, BranchHead, Commit, Holder, KeyedTurn, PlacedRecord, Store
from longtalk.testing.report import assert_equal, assert_present
from longtalk.transcript import record_kinds
from longtalk.transcript.pack import Entry, checksum
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import Record, Turn, link_entries, new_id

Check: TypeAlias = "Callable[[Harness], None]"
Reopen: TypeAlias = Callable[[Store], Store]

_clock = count(1_790_000_000_000, 1_000)
ME = Holder("a host", "a boot", 7, 8)
NEWEST_ONLY = tuple(kind.name for kind in record_kinds.KINDS if kind.newest_only)
KEPT_WHEN_REPLACED = tuple(kind for kind in NEWEST_ONLY if not kind_of(kind).may_discard_replaced)
WRITTEN_KINDS = ("brief", *KEPT_WHEN_REPLACED)
"""The kinds of records that the cases write."""

ODD_JSON = (
    b"{}",
    b'{"role":"user","content":"a","content":"b","n":1.0,"m":1E+2,"o":-0}',
    b'{ "role" : "user",\n\t"content" : "\\u0041\\/" ,\r\n"x":[ ] }',
    '{"content":"ünï 東京 😀 \u2028 \x7f"}'.encode(),
    b'{"content":"half \\ud83d, a nought \\u0000, \\ude00\\ud83d"}',
    b'{"content":"not unicode \xff\xfe\xc3("}',
    b'{"content":"' + b"\xf0\x9f\x98" + b'"}',
    b'{"sum":"00000000"}',
    b'{"big":123456789012345678901234567890,"small":1e-400}',
    b'{"content":"' + b"x" * 1_000_000 + b'"}',
    b'{"a":' * 200 + b"1" + b"}" * 200,
)
"""JSON in unusual forms, as servers and files may contain it, and bytes that are almost JSON."""


@dataclass(frozen=True)
class Harness:
    """The environment of one case: a store, and the ids of two owners that have no conversations yet."""

    store: Store
    reopen: Reopen | None = None
    owner: str = field(default_factory=lambda: f"owner-{new_id()}")
    other: str = field(default_factory=lambda: f"other-{new_id()}")

    def conversation(self, id: str = "talk", *, owner: str | None = None) -> ConversationDriver:  # noqa: A002
        return ConversationDriver(self.store, self.owner if owner is None else owner, id)


@dataclass(frozen=True)
class ConversationDriver:
    """Methods for cases to write and read one conversation in a store."""

    store: Store
    owner: str
    id: str

    def head(self, branch: str = MAIN) -> BranchHead:
        return assert_present(self.store.head(self.owner, self.id, branch), f"the branch {branch!r}")

    def keyed_turn(self, key: str) -> KeyedTurn:
        return assert_present(self.store.keyed_turn(self.owner, self.id, key), f"the turn of the key {key!r}")

    def write(self, branch: str = MAIN, **fields: Any) -> BranchHead:
        """Write a commit with these fields and return the new head. `expect` defaults to the current revision."""
        if "expect" not in fields:
            head = self.store.head(self.owner, self.id, branch)
            fields["expect"] = head.revision if head else 0
        return self.store.write(self.owner, self.id, Commit(**{"branch": branch, "at": next(_clock), **fields}))

    def say(self, *texts: str, branch: str = MAIN, **fields: Any) -> BranchHead:
        """Commit a complete turn with these texts, alternately by the user and the assistant. Return the new head."""
        return self.write(branch, **self.make_turn(self.find_parent(branch, **fields), *texts), **fields)

    def make_turn(self, parent: str | None, *texts: str, status: str = "complete") -> dict[str, Any]:
        """Return the fields of a commit that adds a turn with these texts after the entry with the id `parent`."""
        at, id = next(_clock), new_id()  # noqa: A001
        roles = ("user", "assistant")
        entries = [make_message(text, role=roles[i % 2], at=at) for i, text in enumerate(texts)]
        return {"entries": link_entries(parent, id, 0, entries), "turn": Turn(id, status, "test:model", at)}  # type: ignore[arg-type]

    def find_parent(
        self, branch: str = MAIN, *, source: tuple[str, int] | None = None, cut: int | None = None, **_: Any
    ) -> str | None:
        """Return the id of the entry after which a commit with these fields appends; None if there is none."""
        head = self.store.head(self.owner, self.id, branch)
        name, size = (branch, head.size if head else 0) if source is None else source
        size = size if cut is None else cut
        return self.entries(name)[size - 1].id if size else None

    def entries(self, branch: str = MAIN, start: int = 0, stop: int | None = None) -> list[Entry]:
        pack = self.store.read(self.owner, self.id, branch, start, self.head(branch).size if stop is None else stop)
        assert_equal(checksum(pack.array), pack.crc, "the checksum of a pack is not that of its array")
        return pack.entries()

    def texts(self, branch: str = MAIN) -> list[str]:
        return [json_bytes.value(entry.native)["content"] for entry in self.entries(branch)]

    def list_head_records(self, branch: str = MAIN) -> list[tuple[str, int]]:
        """Return the data and position of each record that the head of a branch includes."""
        return [(placed.record.data.decode(), placed.position) for placed in self.head(branch).records]

    def list_records(self, kind: str, branch: str = MAIN) -> list[tuple[str, int]]:
        """Return the data and position of each record of this kind on the path of a branch."""
        found = self.store.records(self.owner, self.id, branch, kind)
        return [(placed.record.data.decode(), placed.position) for placed in found]

    def metas(self, branch: str = MAIN, start: int = 0, stop: int = 10_000) -> dict[int, dict[str, Any]]:
        """Return the app's metadata of the entries at positions `start` to `stop - 1` of a path, by position."""
        return self.store.metas(self.owner, self.id, branch, start, stop)

    def make_record(self, kind: str, data: str, position: int, *, branch: str = MAIN) -> PlacedRecord:
        """Return a new record attached to the entry at this position. Position -1 means before the first entry."""
        entry = self.entries(branch)[position].id if position >= 0 else ""
        return PlacedRecord(Record(kind, entry, next(_clock), data.encode()), position)

    def read_all(self, *keys: str) -> dict[str, Any]:
        """Return everything that the store reports about this conversation, including turns with these request keys."""
        store, owner, id = self.store, self.owner, self.id  # noqa: A001
        heads = store.branches(owner, id)
        turns = {entry.turn for head in heads for entry in self.entries(head.branch)}
        return {
            "branches": heads,
            "heads": [store.head(owner, id, head.branch) for head in heads],
            "entries": [self.entries(head.branch) for head in heads],
            "turns": [store.turns(owner, id, head.branch, 0, head.size) for head in heads],
            "records": [store.records(owner, id, head.branch, kind) for head in heads for kind in WRITTEN_KINDS],
            "metas": [self.metas(head.branch) for head in heads],
            "manifests": {turn: store.manifest(owner, id, turn) for turn in sorted(turns)},
            "asked": [store.keyed_turn(owner, id, key) for key in keys],
            "requests": store.keyed_turns(owner, id),
            "problems": store.verify(owner, id),
            "summary": [found for found in store.conversations(owner, limit=1_000) if found.id == id],
        }


@dataclass(frozen=True)
class Case:
    """A test of one promise of the store contract.

    `run` raises `AssertionError` if a store breaks the promise, and `SkipTest` if the case can't run with it.
    """

    name: str
    check: Check
    reopens: bool = False
    """Whether the case needs `reopen`, which closes a store and opens it again."""
    forks: bool = False
    """Whether the case needs `os.fork`."""

    def run(self, make: Callable[[], Store], *, reopen: Reopen | None = None) -> None:
        if self.reopens and reopen is None:
            raise SkipTest("this case needs a function that opens the store again; pass reopen=")
        if self.forks and not hasattr(os, "fork"):
            raise SkipTest("this system has no os.fork")
        store = make()
        try:
            self.check(Harness(store, reopen))
        finally:
            store.close()

    def __str__(self) -> str:
        return self.name


def add_to(cases: list[Case], *, reopens: bool = False, forks: bool = False) -> Callable[[Check], Check]:
    """Return a decorator that adds the function to `cases` as a case with the function's name."""

    def add(check: Check) -> Check:
        cases.append(Case(check.__name__, check, reopens, forks))
        return check

    return add


def make_message(text: str, *, role: str = "user", at: int = 0) -> Entry:
    native = json_bytes.encode({"role": role, "content": text})
    return Entry(role=role, wire="openai-chat", native=native, at=at, tokens=len(text))
