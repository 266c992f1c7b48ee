"""A world: strict servers, two stores, a clock, and what was acknowledged about each conversation."""

from __future__ import annotations

import atexit
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from longtalk import Archive, Seal
from longtalk.stores.base import Store
from longtalk.stores.in_memory import InMemory
from longtalk.stores.jsonl.store import JSONL
from longtalk.stores.sqlite.store import SQLite
from longtalk.transcript import transcript
from tests.soak.servers import Servers
from tests.soak.settings import Opener, Setting

STORES = ("memory", "jsonl", "sqlite", "postgres", "redis", "cluster")
OWNERS = ("ada", "bob", "")
START = 1_780_000_000_000
"""The time at which every world begins, in milliseconds since 1970."""
MARK = re.compile(r"k[0-9]+c[0-9]+n[0-9]+z")
"""What each message contains: the numbers of its owner, of its conversation and of itself. It is unique in a world."""
SECRET = re.compile(r"#s[0-9]+z")
"""A word that some servers don't repeat in their answers."""


class Broken(AssertionError):
    """A promise that was not kept."""


class Known(NamedTuple):
    """An entry that was acknowledged."""

    id: str
    role: str
    native: bytes

    @property
    def words(self) -> str:
        """The JSON of the entry, and its texts joined: a stream may have cut a word into two parts."""
        texts = list[str]()

        def collect(value: dict[str, Any]) -> dict[str, Any]:
            texts.append(value["text"] if isinstance(value.get("text"), str) else "")
            return value

        json.loads(self.native, object_hook=collect)
        return self.native.decode(errors="replace") + "".join(texts)


class Clock:
    """The library's clock. It moves a millisecond with each reading, and jumps when a step says so."""

    def __init__(self, at: int = START) -> None:
        self.at = at

    def time_ns(self) -> int:
        self.at += 1
        return self.at * 1_000_000

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Make the library read this clock. Every time that it writes comes from one function."""
        transcript.time = self  # type: ignore[assignment]
        try:
            yield
        finally:
            transcript.time = time


@dataclass
class Talk:
    """A conversation in a store: what was acknowledged about it."""

    number: int
    owner: str
    name: str
    store: str
    """Which of the world's stores has it."""
    setting: Setting
    paths: dict[str, list[Known]] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    """The marks of messages that may be in its requests."""
    keys: dict[str, tuple[str, Any, str]] = field(default_factory=dict)
    """For each request key of a complete turn: the branch, the message and the turn."""
    waiting: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """For each branch: the calls of external tools that wait for results."""
    excluded: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    """For each branch and excluded entry: the marks that no request may contain."""
    gone: set[str] = field(default_factory=set)
    """Secrets that were redacted and are in no entry any more."""

    @property
    def label(self) -> str:
        return f"{self.owner or '-'}/{self.name}"

    def get_hidden(self, branch: str) -> set[str]:
        """Return the marks and secrets that no request on a branch may contain."""
        return set().union(self.gone, *self.excluded.get(branch, {}).values())


@dataclass
class Held:
    """A conversation in a state that the caller holds."""

    number: int
    setting: Setting
    seal: Any = None
    carry: str = "all"
    state: bytes | None = None
    parts: list[bytes] = field(default_factory=list)
    entries: list[Known] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)
    waiting: tuple[Any, ...] = ()
    hidden: dict[str, set[str]] = field(default_factory=dict)


class World:
    """Everything that the steps of one seed happen to."""

    def __init__(self, seed: int, kinds: tuple[str, str], folder: Path, stack: ExitStack) -> None:
        self.rng = Random(seed)
        self.seed = seed
        self.kinds = dict(zip("ab", kinds, strict=True))
        self.folder = folder
        self.clock = Clock()
        stack.enter_context(self.clock.installed())
        self.servers = Servers(stack)
        self.tool_log = folder / "tools.log"
        self.opener = Opener(self.servers.urls, self.tool_log)
        stack.callback(self.opener.close)
        self.places = {place: make_place(kind, folder / place) for place, kind in self.kinds.items()}
        self.stores = {place: self.places[place]() for place in self.kinds}
        stack.callback(lambda: [store.close() for store in self.stores.values()])
        self.seal = Seal({"one": bytes(32)})
        self.talks: list[Talk] = []
        self.held: list[Held] = []
        self.number = 0
        self.story: list[str] = []
        self._open: dict[tuple[Any, ...], Any] = {}
        stack.callback(self.close_talks)

    def tell(self, text: str) -> None:
        """Add a line to the story that is printed if a promise is broken."""
        self.story.append(text)

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def make_mark(self, talk: Talk | Held) -> str:
        owner = OWNERS.index(talk.owner) if isinstance(talk, Talk) else len(OWNERS)
        mark = f"k{owner}c{talk.number}n{self.next_number()}z"
        talk.marks.add(mark)
        return mark

    def get_store(self, talk: Talk) -> Store:
        return self.stores[talk.store]

    def get_archive(self, talk: Talk) -> Archive:
        return Archive(self.get_store(talk), owner=talk.owner)

    def open(self, talk: Talk, branch: str = "main", *, again: bool = True, **more: Any) -> Any:
        """Return the conversation: an object that earlier steps have used with the same setting, or a new one."""
        key = (talk.label, talk.store, branch, repr(talk.setting))
        if again and not more and key in self._open:
            return self._open[key]
        if len(self._open) > 12:
            self.close_talks()
        opened = self.opener.open_talk(talk.setting, self.get_store(talk), talk.owner, talk.name, branch, **more)
        if not more:
            self._open[key] = opened
        return opened

    def close_talks(self) -> None:
        for each in self._open.values():
            each.close()
        self._open.clear()

    def reopen(self, place: str) -> None:
        """Close a store and open it again, as another process would."""
        if self.kinds[place] == "memory":
            return
        self.close_talks()
        self.stores[place].close()
        self.stores[place] = self.places[place]()

    def read(self, talk: Talk, branch: str) -> list[Known]:
        """Return the entries that the store has on a branch."""
        pack = self.get_store(talk).read(talk.owner, talk.name, branch, 0, 1_000_000)
        return [Known(entry.id, entry.role, bytes(entry.native)) for entry in pack.entries()]

    def list_branches(self, talk: Talk) -> set[str]:
        return {head.branch for head in self.get_store(talk).branches(talk.owner, talk.name)}


def make_place(kind: str, location: Path) -> Callable[[], Store]:
    """Return a function that opens one store, which is empty at first, in any process that can pickle the address."""
    return Place(kind, make_address(kind, location))


class Place(NamedTuple):
    """Where a store is. Each call opens it."""

    kind: str
    address: tuple[str, ...]

    def __call__(self) -> Store:
        match self.kind:
            case "memory":
                return InMemory()
            case "jsonl":
                return JSONL(self.address[0])
            case "sqlite":
                return SQLite(self.address[0])
            case "postgres":
                from longtalk.stores.postgres.store import Postgres

                return Postgres(self.address[0], schema=self.address[1])
        from longtalk.stores.redis.store import Redis

        replicas = 1 if self.kind == "cluster" else 0
        return Redis(self.address[0], prefix=self.address[1], replicas=replicas, wait_ms=5_000, patience=30)


def make_address(kind: str, location: Path) -> tuple[str, ...]:
    match kind:
        case "postgres":
            from tests.support import postgres_server

            return postgres_server.server().url(), postgres_server.server().schema()
        case "redis" | "cluster":
            from tests.support import redis_server

            server = redis_server.single() if kind == "redis" else get_cluster()
            return server.url, redis_server.get_prefix(location)
    return (str(location if kind == "jsonl" else location.with_suffix(".db")),)


@cache
def get_cluster() -> Any:
    """Return a cluster in which a replica takes over after a second, and start it at the first call."""
    from tests.support import redis_server

    cluster = redis_server.Cluster(timeout=1_000)
    cluster.wait()
    atexit.register(cluster.close)
    return cluster
