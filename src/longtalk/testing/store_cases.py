"""What the cases for stores are made of: a desk to work at, a conversation to write and read, and what has to hold.

Each case is a function that takes a `Desk` and raises `AssertionError` where the store breaks the contract of
`longtalk.stores.base`. Run them with `longtalk.testing.stores.check_store`, or one by one with pytest.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias
from unittest import SkipTest

from longtalk import _json
from longtalk.pack import Entry, checksum
from longtalk.stores.base import BARE, BRIEF, MAIN, REPLACED, Asked, Commit, Head, Holder, Placed, Store
from longtalk.testing.report import same, there
from longtalk.transcript import Record, Turn, chain, new_id

Check: TypeAlias = "Callable[[Desk], None]"
Reopen: TypeAlias = Callable[[Store], Store]

_clock = count(1_790_000_000_000, 1_000)
ME = Holder("a host", "a boot", 7, 8)
LASTING = tuple(kind for kind in REPLACED if kind not in BRIEF)
KINDS = tuple(dict.fromkeys(("brief", *LASTING, *(kind for kind in BARE if kind not in BRIEF))))
"""Kinds of records that cases write."""

ODD = (
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
"""JSON as servers and files have it, and what is only almost JSON."""


@dataclass(frozen=True)
class Desk:
    """Where a case works: a fresh store, and two owners that it may hold already but that own nothing."""

    store: Store
    reopen: Reopen | None = None
    owner: str = field(default_factory=lambda: f"owner-{new_id()}")
    other: str = field(default_factory=lambda: f"other-{new_id()}")

    def talk(self, id: str = "talk", *, owner: str | None = None) -> Talk:  # noqa: A002
        return Talk(self.store, self.owner if owner is None else owner, id)


@dataclass(frozen=True)
class Talk:
    """One conversation, and how a case writes and reads it."""

    store: Store
    owner: str
    id: str

    def head(self, branch: str = MAIN) -> Head:
        return there(self.store.head(self.owner, self.id, branch), f"the branch {branch!r}")

    def asked(self, key: str) -> Asked:
        return there(self.store.asked(self.owner, self.id, key), f"the turn of the key {key!r}")

    def write(self, branch: str = MAIN, **fields: Any) -> Head:
        """A commit that expects the branch where it is."""
        if "expect" not in fields:
            head = self.store.head(self.owner, self.id, branch)
            fields["expect"] = head.revision if head else 0
        return self.store.write(self.owner, self.id, Commit(**{"branch": branch, "at": next(_clock), **fields}))

    def say(self, *texts: str, branch: str = MAIN, **fields: Any) -> Head:
        """A whole turn: texts of the user and of the assistant by turns."""
        return self.write(branch, **self.turn(self.tip(branch, **fields), *texts), **fields)

    def turn(self, parent: str | None, *texts: str, status: str = "complete") -> dict[str, Any]:
        """The fields of a commit that adds a turn."""
        at, id = next(_clock), new_id()  # noqa: A001
        roles = ("user", "assistant")
        entries = [message(text, role=roles[i % 2], at=at) for i, text in enumerate(texts)]
        return {"entries": chain(parent, id, 0, entries), "turn": Turn(id, status, "test:model", at)}  # type: ignore[arg-type]

    def tip(
        self, branch: str = MAIN, *, source: tuple[str, int] | None = None, cut: int | None = None, **_: Any
    ) -> str | None:
        """The entry behind which a commit adds."""
        head = self.store.head(self.owner, self.id, branch)
        name, size = (branch, head.size if head else 0) if source is None else source
        size = size if cut is None else cut
        return self.entries(name)[size - 1].id if size else None

    def entries(self, branch: str = MAIN, start: int = 0, stop: int | None = None) -> list[Entry]:
        pack = self.store.read(self.owner, self.id, branch, start, self.head(branch).size if stop is None else stop)
        same(checksum(pack.array), pack.crc, "the checksum of a pack is not that of its array")
        return pack.entries()

    def texts(self, branch: str = MAIN) -> list[str]:
        return [_json.value(entry.native)["content"] for entry in self.entries(branch)]

    def records(self, branch: str = MAIN) -> list[tuple[str, int]]:
        """The data and the places of the records on a path."""
        return [(placed.record.data.decode(), placed.place) for placed in self.head(branch).records]

    def kept(self, kind: str, branch: str = MAIN) -> list[tuple[str, int]]:
        """The data and the places of all records of a kind on a path."""
        found = self.store.records(self.owner, self.id, branch, kind)
        return [(placed.record.data.decode(), placed.place) for placed in found]

    def metas(self, branch: str = MAIN, start: int = 0, stop: int = 10_000) -> dict[int, dict[str, Any]]:
        """The app's own data on the entries start … stop of a path, by their place."""
        return self.store.metas(self.owner, self.id, branch, start, stop)

    def note(self, kind: str, data: str, place: int, *, branch: str = MAIN) -> Placed:
        """A record that holds up to a place."""
        entry = self.entries(branch)[place].id if place >= 0 else ""
        return Placed(Record(kind, entry, next(_clock), data.encode()), place)

    def all(self, *keys: str) -> dict[str, Any]:
        """Everything that can be seen of it."""
        store, owner, id = self.store, self.owner, self.id  # noqa: A001
        heads = store.branches(owner, id)
        turns = {entry.turn for head in heads for entry in self.entries(head.branch)}
        return {
            "branches": heads,
            "heads": [store.head(owner, id, head.branch) for head in heads],
            "entries": [self.entries(head.branch) for head in heads],
            "turns": [store.turns(owner, id, head.branch, 0, head.size) for head in heads],
            "records": [store.records(owner, id, head.branch, kind) for head in heads for kind in KINDS],
            "metas": [self.metas(head.branch) for head in heads],
            "manifests": {turn: store.manifest(owner, id, turn) for turn in sorted(turns)},
            "asked": [store.asked(owner, id, key) for key in keys],
            "requests": store.requests(owner, id),
            "problems": store.verify(owner, id),
            "summary": [found for found in store.conversations(owner, limit=1_000) if found.id == id],
        }


@dataclass(frozen=True)
class Case:
    """One promise of the contract. `run` raises when a store does not keep it, `SkipTest` when it can't be tried."""

    name: str
    check: Check
    reopens: bool = False
    """Whether it needs a way to close a store and to open it again."""
    forks: bool = False
    """Whether it needs `os.fork`."""

    def run(self, make: Callable[[], Store], *, reopen: Reopen | None = None) -> None:
        if self.reopens and reopen is None:
            raise SkipTest("there is no way to open the store again")
        if self.forks and not hasattr(os, "fork"):
            raise SkipTest("this system has no fork")
        store = make()
        try:
            self.check(Desk(store, reopen))
        finally:
            store.close()

    def __str__(self) -> str:
        return self.name


def into(cases: list[Case], *, reopens: bool = False, forks: bool = False) -> Callable[[Check], Check]:
    """A decorator that makes a function one of these cases."""

    def add(check: Check) -> Check:
        cases.append(Case(check.__name__, check, reopens, forks))
        return check

    return add


def message(text: str, *, role: str = "user", at: int = 0) -> Entry:
    native = _json.encode({"role": role, "content": text})
    return Entry(role=role, wire="openai-chat", native=native, at=at, tokens=len(text))
