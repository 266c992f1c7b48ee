"""Every backend of the service's storage answers any sequence of operations as the one in memory does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.service.storage.protocol import Append, Document, LogConflict, Storage
from tests.service.storage.backends import SHARED, Clock, opening
from tests.support.properties import examples

KEYS = st.sampled_from(["", "a", "a\0", "ab", "a%", "a_", "b*", "[b", "\ud800", "é", "\U0010ffff", "a" * 300])
KINDS = st.sampled_from(["kind", "kind\0", ""])
RUNS = st.sampled_from(["", "run", "run\0", "\udfff"])
EVENTS = st.lists(st.sampled_from([b"", b"a", b"b", b"\0\xff"]), max_size=3)
EXPECT = st.sampled_from(["none", "zero", "right", "other"])
TIMES = st.one_of(st.none(), st.integers(-3, 6))

OPERATIONS = st.one_of(
    st.tuples(st.just("get"), KINDS, KEYS),
    st.tuples(st.just("put"), KINDS, KEYS, st.binary(max_size=5), EXPECT, TIMES),
    st.tuples(st.just("delete"), KINDS, KEYS, EXPECT),
    st.tuples(st.just("list"), KINDS, KEYS, st.one_of(st.none(), KEYS), st.integers(-1, 4)),
    st.tuples(st.just("append"), RUNS, st.integers(-1, 1), EVENTS, st.booleans()),
    st.tuples(
        st.just("append_all"),
        st.dictionaries(RUNS, st.tuples(st.integers(-1, 1), EVENTS, st.booleans())),
        st.lists(st.tuples(KINDS, KEYS), max_size=2),
    ),
    st.tuples(st.just("read"), RUNS, st.integers(-2, 6), st.integers(-1, 4)),
    st.tuples(st.just("delete_log"), RUNS),
    st.tuples(st.just("purge"), st.integers(-3, 3), st.integers(-3, 3)),
    st.tuples(st.just("wait"), st.integers(1, 3)),
)


class Player:
    """Does drawn operations on a storage and returns what can be compared. Versions of backends may differ."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self.storage = storage
        self.clock = clock
        self.versions: dict[tuple[str, str], int] = {}

    def play(self, name: str, *values: Any) -> Any:
        return getattr(self, f"do_{name}")(*values)

    def do_get(self, kind: str, key: str) -> Any:
        return self.show(kind, self.storage.get(kind, key))

    def do_put(self, kind: str, key: str, value: bytes, expect: str, expires: int | None) -> Any:
        before = self.versions.get((kind, key), 0)
        put = self.storage.put(
            kind,
            key,
            value,
            expect=self.find_version(kind, key, expect),
            expires=None if expires is None else self.clock.time + expires,
        )
        if put is not None:
            assert put.version > before
            self.versions[kind, key] = put.version
        return self.show(kind, put)

    def do_delete(self, kind: str, key: str, expect: str) -> Any:
        return self.storage.delete(kind, key, expect=self.find_version(kind, key, expect))

    def do_list(self, kind: str, prefix: str, after: str | None, limit: int) -> Any:
        listed = self.storage.list_documents(kind, prefix=prefix, after=after, limit=limit)
        return [self.show(kind, document) for document in listed]

    def do_append(self, run: str, shift: int, events: list[bytes], ended: bool) -> Any:
        page = self.storage.read(run)
        first = (len(page.events) if page else 0) + shift
        try:
            self.storage.append(run, first, events, ended=ended)
        except LogConflict:
            return "conflict"
        return "done"

    def do_append_all(self, logs: dict[str, tuple[int, list[bytes], bool]], delete: list[tuple[str, str]]) -> Any:
        sizes = {run: len(page.events) if (page := self.storage.read(run)) else 0 for run in logs}
        appends = [Append(run, sizes[run] + shift, events, ended) for run, (shift, events, ended) in logs.items()]
        return self.storage.append_all(appends, delete=delete)

    def do_read(self, run: str, after: int, limit: int) -> Any:
        return self.storage.read(run, after, limit)

    def do_delete_log(self, run: str) -> Any:
        return self.storage.delete_log(run)

    def do_purge(self, documents: int, logs: int) -> Any:
        return self.storage.purge(self.clock.time + documents, logs_before=self.clock.time + logs)

    def do_wait(self, milliseconds: int) -> None:
        self.clock.time += milliseconds

    def find_version(self, kind: str, key: str, expect: str) -> int | None:
        version = self.versions.get((kind, key), 0)
        return {"none": None, "zero": 0, "right": version, "other": version + 1000}[expect]

    def show(self, kind: str, document: Document | None) -> Any:
        if document is None:
            return None
        assert document.version == self.versions[kind, document.key]
        return document.key, document.value


@pytest.mark.parametrize("backend", SHARED)
def test_any_operations_have_the_same_results_as_in_memory(backend: str, tmp_path: Path) -> None:
    @settings(examples(10, 200), suppress_health_check=list(HealthCheck))
    @given(st.lists(OPERATIONS, max_size=40))
    def check(operations: list[tuple[Any, ...]]) -> None:
        with opening(backend, tmp_path) as opens:
            clocks = Clock(), Clock()
            storages = opens(clocks[0]), InMemoryStorage(clocks[1])
            real, model = (Player(storage, clock) for storage, clock in zip(storages, clocks, strict=True))
            for operation in operations:
                assert real.play(*operation) == model.play(*operation), operation

    check()
