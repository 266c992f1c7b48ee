"""The SQLite store: the conformance suite, and tests of files, processes, packs and data that remains on disk."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.turns_writes import MOST_FRAMES, MOST_STATEMENTS, count_writes
from longtalk.errors import InputError, LongtalkError
from longtalk.memory.recall.protocol import Matches, SearchTerm
from longtalk.stores.base import MAIN, BranchHead, Commit, HeadMoved, Holder, KeyedRequest, Lease, PlacedRecord, Store
from longtalk.stores.sqlite import commit as sqlite_write
from longtalk.stores.sqlite import conversations as sqlite_conversations
from longtalk.stores.sqlite import database as sqlite_file
from longtalk.stores.sqlite import paths as sqlite_paths
from longtalk.stores.sqlite import remove as sqlite_remove
from longtalk.stores.sqlite import search as sqlite_search
from longtalk.stores.sqlite.schema import APPLICATION, MIGRATIONS
from longtalk.stores.sqlite.store import SQLite, StoreError
from longtalk.testing.stores.harness import ConversationDriver
from longtalk.testing.stores.suite import CASES, Case, check_store
from longtalk.transcript.pack import Entry
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import Record, Turn, link_entries, new_id
from tests.support.properties import examples

# The threads of the forked processes do nothing.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

ME = "me"
SECRET = "xq7hunter2zk"


def message(text: str, role: str = "user", **fields: Any) -> Entry:
    native = msgspec.json.encode({"role": role, "content": text})
    return Entry(**{"role": role, "wire": "openai-chat", "native": native, "at": 1, "tokens": len(text), **fields})


def say(store: SQLite, talk: str, *texts: str, branch: str = MAIN, owner: str = ME, **fields: Any) -> BranchHead:
    """Append a turn to a branch."""
    head = store.head(owner, talk, branch)
    turn = new_id()
    entries = link_entries(head.entry if head else None, turn, 0, [message(text) for text in texts])
    made = Turn(turn, "complete", "a:b", 1)
    fields = {"expect": head.revision if head else 0, "entries": entries, "turn": made, "at": 1, **fields}
    return store.write(owner, talk, Commit(branch=branch, **fields))


def entries(store: SQLite, talk: str, branch: str = MAIN, start: int = 0, stop: int = 10**6) -> list[Entry]:
    pack = store.read(ME, talk, branch, start, stop)
    return [pack.entry(i) for i in range(len(pack))]


def texts(store: SQLite, talk: str, branch: str = MAIN) -> list[str]:
    return [msgspec.json.decode(entry.native)["content"] for entry in entries(store, talk, branch)]


def rows(store: SQLite, sql: str, *values: Any) -> list[Any]:
    return store._file.read(lambda db: db.execute(sql, values).fetchall())


def on_disk(path: Path) -> bytes:
    # Read by another process: closing the file in this one would release the store's locks.
    files = [str(each) for each in path.parent.glob(path.name + "*")]
    return subprocess.run(["cat", *files], check=True, capture_output=True).stdout


@contextlib.contextmanager
def sealing(at: int, size: int) -> Iterator[None]:
    """Lower the sizes at which rows are sealed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_paths, "PACK_BYTES", size)
        patch.setattr(sqlite_paths, "MAX_ROW_BYTES", at)
        patch.setattr(sqlite_write, "MAX_ROW_BYTES", at)
        yield


@contextlib.contextmanager
def somebody_else(path: Path, sql: str) -> Iterator[Callable[[], None]]:
    """Start another process that is in the middle of a transaction.

    It has to be a process: in this one, the locks of another copy of SQLite would have no effect.
    """
    script = textwrap.dedent(
        """
        import sqlite3, sys
        db = sqlite3.connect(sys.argv[1], isolation_level=None)
        for sql in sys.argv[2].split(";"):
            db.execute(sql).fetchall()
        print("ready", flush=True)
        sys.stdin.read()
        """
    )
    command = [sys.executable, "-c", script, str(path), sql]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        yield process.stdin.close
        process.stdin.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "talks.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLite]:
    made = SQLite(path)
    yield made
    made.close()


# The contract


def reopened(store: Store) -> Store:
    assert isinstance(store, SQLite)
    path = store._file.path
    store.close()
    return SQLite(path)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_file_keeps_the_contract(case: Case, path: Path) -> None:
    case.run(lambda: SQLite(path), reopen=reopened)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_file_whose_entries_are_sealed_and_compressed_early_keeps_the_contract(case: Case, path: Path) -> None:
    with sealing(300, 100):
        case.run(lambda: SQLite(path, compress=True), reopen=reopened)


# Paths, compared with plain lists


SIZES = (*range(0, 200, 9), 3_000)
KEPT_KINDS = ("pins", "epoch", "summary", "other")
DISCARDED_KINDS = ("anchor", "meter")
"""Kinds of records that a store may discard when a newer one replaces them."""


class Model:
    """A model of a store: branches as lists of entries, and records that are attached to an entry or to the root."""

    def __init__(self) -> None:
        self.paths: dict[str, list[list[Entry]]] = {}
        self.records: list[tuple[list[Entry] | None, Record]] = []
        self.alone: dict[str, set[int]] = {}
        """The times of the records that each branch sees, of kinds that only one branch may see."""
        self.replaced: set[int] = set()
        """The times of the records that a newer one has replaced on any branch."""
        self.turns: set[str] = set()
        self.manifests: dict[str, bytes] = {}
        self.updated = 0
        self.metas: dict[int, dict[str, Any]] = {}
        """App data by the `id()` of a node."""
        self.nodes: list[list[Entry]] = []
        """All nodes, kept alive so that no `id()` is reused."""

    def shown(self, branch: str) -> list[tuple[Record, int]]:
        found: list[tuple[Record, int]] = []
        for record, place in self.every(branch):
            found = [each for each in found if record.kind == "other" or each[0].kind != record.kind]
            found.append((record, place))
        return found

    def every(self, branch: str) -> list[tuple[Record, int]]:
        path = self.paths[branch]
        found: list[tuple[Record, int]] = []
        for node, record in self.records:
            place = -1 if node is None else next((i for i, each in enumerate(path) if each is node), None)
            if place is not None and (
                not kind_of(record.kind).own_branch_only or record.at in self.alone.get(branch, ())
            ):
                found.append((record, place))
        return found

    def redact(self, id: str, native: bytes) -> None:  # noqa: A002
        for path in self.paths.values():
            for i, node in enumerate(path):
                if node[0].id == id:
                    behind = [id_of(each) for each in path[i:]]
                    self.records = [
                        each
                        for each in self.records
                        if not kind_of(each[1].kind).quotes_entries or id_of(each[0]) not in behind
                    ]
                    self.metas.pop(id_of(node), None)
                    node[0] = msgspec.structs.replace(node[0], native=native)


def id_of(node: object) -> int:
    return id(node)


@examples(25, 150)
@given(seed=st.integers(0, 2**32), compress=st.booleans(), data=st.data())
def test_any_tree_of_commits_forks_cuts_and_redactions_reads_back_exactly(
    seed: int, compress: bool, data: st.DataObject
) -> None:
    random_ = random.Random(seed)
    steps = data.draw(st.lists(st.sampled_from("aaaaaffccrrrRRt"), min_size=1, max_size=40))
    store, model = SQLite(":memory:", compress=compress), Model()
    clock = 100
    with sealing(900, 300):
        for step in steps:
            clock += 1
            name = random_.choice([*model.paths, MAIN])
            fields: dict[str, Any] = {"branch": name, "at": clock}
            path = list(model.paths.get(name, []))
            if step == "f" and model.paths:
                source = random_.choice(list(model.paths))
                count = random_.randint(0, len(model.paths[source]))
                name = f"b{len(model.paths)}"
                fields |= {"branch": name, "source": (source, count)}
                path = model.paths[source][:count]
                model.alone[name] = set(model.alone.get(source, ()))
            if step in "fc" and random_.random() < 0.6:
                fields["cut"] = random_.randint(0, len(path))
                path = path[: fields["cut"]]
            if step == "R" and path:
                entry, native = random_.choice(path)[0].id, b'{"gone":%d}' % clock
                assert store.redact(ME, "talk", entry, native)
                model.redact(entry, native)
                continue
            # Some turns continue, on any branch.
            turn, number = f"t{clock}", 0
            if path and random_.random() < 0.4:
                turn, number = path[-1][0].turn, int(path[-1][0].id.rpartition("-")[2]) + 1
            new = [
                message(
                    "x" * random_.choice([*range(0, 200, 9), 3_000]), mark=random_.choice(["", "length"]), at=clock + i
                )
                for i in range(random_.randint(step == "a", 4))
            ]
            if step == "t":
                new = [msgspec.structs.replace(each, kind="event", role="event", wire="longtalk") for each in new]
            made = link_entries(path[-1][0].id if path else None, turn, number, new)
            nodes = [[entry] for entry in made]
            path += nodes
            model.nodes += nodes
            metas = {i: {"at": clock + i} for i in range(len(made)) if random_.random() < 0.3}
            model.metas |= {id_of(nodes[i]): meta for i, meta in metas.items()}
            records = []
            model.paths[name] = path
            for i in range(random_.randint(1, 3) if step == "r" else 0):
                kind = random_.choice([*KEPT_KINDS, *DISCARDED_KINDS, *DISCARDED_KINDS])
                at_end = kind_of(kind).own_branch_only or (kind in DISCARDED_KINDS and random_.random() < 0.7)
                place = len(path) - 1 if at_end else random_.randint(-1, len(path) - 1)
                record = Record(kind, "", 10 * clock + i, b"%d" % clock)
                model.replaced |= {each.at for each, _ in model.every(name) if each.kind == kind}
                model.alone.setdefault(name, set()).add(record.at)
                records.append(PlacedRecord(record, place))
                model.records.append((path[place] if place >= 0 else None, record))
            if random_.random() < 0.2:
                fields["at"] = clock - random_.randint(0, 50)
            manifest = b"%d" % clock if made and step != "t" and random_.random() < 0.7 else b""
            head = store.head(ME, "talk", name)
            head = store.write(
                ME,
                "talk",
                Commit(
                    **fields,
                    expect=head.revision if head else 0,
                    entries=made,
                    turn=Turn(turn, "complete", "a:b", clock) if made and step != "t" else None,
                    manifest=manifest,
                    records=tuple(records),
                    entry_meta=metas,
                ),
            )
            model.updated = max(model.updated, fields["at"])
            if manifest:
                model.manifests[turn] = manifest
            if made and step != "t":
                model.turns.add(turn)
            assert head == store.head(ME, "talk", name)

        for name, path in model.paths.items():
            head = store.head(ME, "talk", name)
            assert head is not None
            wanted = [node[0] for node in path]
            assert head.size == len(wanted)
            assert head.entry == (wanted[-1].id if wanted else None)
            shown = [(each.record, each.position) for each in head.records]
            assert [each for each in shown if each[0].kind in KEPT_KINDS] == [
                each for each in model.shown(name) if each[0].kind in KEPT_KINDS
            ]
            assert shown == [each for each in model.every(name) if each in shown], "they are in order"
            for kind in (*KEPT_KINDS, *DISCARDED_KINDS):
                found = [(each.record, each.position) for each in store.records(ME, "talk", name, kind)]
                every = [each for each in model.every(name) if each[0].kind == kind]
                if kind in KEPT_KINDS:
                    assert found == every
                else:
                    assert found == [each for each in every if each in found]
                    current = [each for each in every[-1:] if each[0].at not in model.replaced]
                    assert found[-1:] == [each for each in shown if each[0].kind == kind]
                    assert current in ([], found[-1:])
            assert entries(store, "talk", name) == wanted
            start = random_.randint(0, len(wanted))
            stop = random_.randint(start, len(wanted))
            assert entries(store, "talk", name, start, stop) == wanted[start:stop]
            ends = sorted(random_.choices(range(len(wanted) + 2), k=6))
            ranges = list(zip(ends[::2], ends[1::2], strict=True))
            assert store.pick(ME, "talk", name, ranges) == [wanted[slice(*each)] for each in ranges]
            assert store.metas(ME, "talk", name, start, stop) == {
                i: model.metas[id_of(path[i])] for i in range(start, stop) if id_of(path[i]) in model.metas
            }
            firsts: dict[str, int] = {}
            for i, entry in enumerate(wanted):
                firsts.setdefault(entry.turn, i)
            begun = [(i, turn) for turn, i in firsts.items() if turn in model.turns]
            assert [(i, turn.id) for i, turn in store.turns(ME, "talk", name, 0, 10**6)] == begun
            assert [turn.id for _, turn in store.turns(ME, "talk", name, start, stop)] == [
                turn for i, turn in begun if start <= i < stop
            ]
            assert store.manifests(ME, "talk", name, start, stop) == {
                turn: model.manifests[turn] for i, turn in begun if start <= i < stop and turn in model.manifests
            }
            last = next((entry.turn for entry in reversed(wanted) if entry.turn in model.turns), None)
            assert (head.turn.id if head.turn else None) == last
        for turn in model.turns:
            assert store.manifest(ME, "talk", turn) == model.manifests.get(turn, b"")
        info = store.info(ME, "talk")
        if model.paths:
            assert info is not None
            assert (info.entries, info.updated) == (len(model.nodes), model.updated)
            assert info.branches == tuple(sorted(model.paths))
        assert store.verify(ME, "talk") == []
    store.close()


def anchored(store: SQLite, at: int, branch: str = MAIN) -> None:
    """Append a turn with an anchor, which stays in the branch's row until another branch sees it."""
    head = store.head(ME, "talk", branch)
    anchor = PlacedRecord(Record("anchor", "", at, b"{}"), head.size if head else 0)
    say(store, "talk", "a", branch=branch, records=(anchor,), at=at)


def shown(store: SQLite, branch: str = MAIN) -> list[tuple[str, int]]:
    head = store.head(ME, "talk", branch)
    assert head is not None
    return [(each.record.kind, each.record.at) for each in head.records]


def test_a_record_in_the_row_of_a_branch_is_seen_by_a_fork_behind_it_alone(store: SQLite) -> None:
    anchored(store, 1)
    anchored(store, 2)
    assert rows(store, "SELECT count(*) FROM records") == [(0,)]
    for size in (1, 2):
        store.write(ME, "talk", Commit(branch=f"b{size}", expect=0, source=(MAIN, size), at=3))
    assert (shown(store), shown(store, "b1"), shown(store, "b2")) == ([("anchor", 2)], [], [("anchor", 2)])
    anchored(store, 4)
    anchored(store, 5, "b2")
    assert (shown(store), shown(store, "b1"), shown(store, "b2")) == ([("anchor", 4)], [], [("anchor", 5)])
    assert [each.record.at for each in store.records(ME, "talk", MAIN, "anchor")] == [2, 4]


def test_a_record_in_the_row_of_a_branch_survives_a_cut_behind_it(store: SQLite) -> None:
    anchored(store, 1)
    say(store, "talk", "b")
    store.write(ME, "talk", Commit(expect=2, cut=1, at=2))
    assert shown(store) == [("anchor", 1)]
    store.write(ME, "talk", Commit(expect=3, cut=0, at=2))
    assert shown(store) == []


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [("receipt", [("anchor", 3), ("receipt", 4)]), ("anchor", [("anchor", 4)])],
    ids=["receipt", "anchor"],
)
def test_a_record_in_the_row_of_a_branch_is_older_than_one_that_a_shared_entry_gets_later(
    store: SQLite, kind: str, wanted: list[tuple[str, int]]
) -> None:
    anchored(store, 1)
    store.write(ME, "talk", Commit(branch="fork", expect=0, source=(MAIN, 1), at=2))
    anchored(store, 3, "fork")
    record = PlacedRecord(Record(kind, "", 4, b"{}"), 0)
    store.write(ME, "talk", Commit(expect=1, records=(record,), at=4))
    assert shown(store, "fork") == wanted


def test_a_redaction_leaves_one_record_of_a_kind_in_the_head(store: SQLite) -> None:
    anchored(store, 1)
    store.write(ME, "talk", Commit(branch="fork", expect=0, source=(MAIN, 1), at=2))
    anchored(store, 3, "fork")
    assert store.redact(ME, "talk", entries(store, "talk", "fork")[1].id, b"{}")
    assert (shown(store), shown(store, "fork")) == ([("anchor", 1)], [("anchor", 3)])


@examples(50, 300)
@given(data=st.data())
def test_any_conversations_are_listed_by_their_last_change(data: st.DataObject) -> None:
    commits = data.draw(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 30), st.booleans()), max_size=30))
    store = SQLite(":memory:")
    changed: dict[str, int] = {}
    wanted: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_conversations, "MAX_ACTIVE", 3)
        for number, at, forks in commits:
            name = f"talk {number}"
            branch = f"b{at}" if forks and name in changed else MAIN
            say(store, name, "a", branch=branch, at=at)
            changed[name] = max(changed.get(name, 0), at)
            wanted = sorted(changed, key=lambda each: (-changed[each], each))
            assert [each.id for each in store.conversations(ME)] == wanted
        assert {each.id: each.updated for each in store.conversations(ME)} == changed
        assert rows(store, "SELECT count(*) FROM conversations WHERE active")[0][0] <= 3
        pages, after = [], None
        while page := store.conversations(ME, limit=2, after=after):
            pages += [each.id for each in page]
            after = page[-1].updated, page[-1].id
        assert pages == wanted
    store.close()


# Words


@pytest.mark.parametrize("ranges", [0, 2, 100])
def test_a_word_is_found_on_a_path_of_many_segments_and_beside_other_conversations(
    store: SQLite, ranges: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(sqlite_search, "_MAX_RANGES", ranges)
    for i in range(12):
        say(store, "other", "a violin")
        if i:
            store.write(ME, "talk", Commit(branch=f"b{i}", expect=0, source=(f"b{i - 1}", 2 * i), at=1))
        say(store, "talk", f"the violin {i}", "a bow", branch=f"b{i}")
        say(store, "talk", "another violin", branch=f"b{i}")
    (found,) = store.matches(ME, "talk", "b11", [SearchTerm(("violin",))], 99)
    assert found == Matches((*range(0, 24, 2), 24), 13)
    (some,) = store.matches(ME, "talk", "b11", [SearchTerm(("violin",))], 3)
    assert some.positions == (20, 22, 24)
    (first,) = store.matches(ME, "talk", "b0", [SearchTerm(("violin",))], 99)
    assert first.positions == (0, 2)


def test_how_many_there_are_is_told_from_how_often_it_was_said_lately(store: SQLite) -> None:
    for i in range(100):
        say(store, "talk", "a violin" if i % 2 else "a bow")
    (found,) = store.matches(ME, "talk", MAIN, [SearchTerm(("violin",))], 10)
    assert found.positions == tuple(range(81, 100, 2))
    assert 45 <= found.count <= 55


# Seals


def test_the_oldest_turns_of_a_long_branch_become_packs_and_the_end_stays_in_rows(store: SQLite) -> None:
    for i in range(60):
        say(store, "talk", f"{i} " + "x" * 4000, "y" * 4000)
    held = rows(store, "SELECT sum(length(native)) FROM entries")[0][0]
    assert 0 < held <= sqlite_paths.MAX_ROW_BYTES
    packs = rows(store, "SELECT count, length(array) FROM packs ORDER BY key")
    assert len(packs) >= 5
    assert all(count % 2 == 0 for count, _ in packs), "a turn was torn"
    assert all(sqlite_paths.PACK_BYTES <= length < sqlite_paths.MAX_ROW_BYTES for _, length in packs)
    assert [text.split()[0] for text in texts(store, "talk")[::2]] == [str(i) for i in range(60)]


def test_one_endless_turn_is_sealed_too(store: SQLite) -> None:
    head = say(store, "talk", "go")
    for i in range(1, 80):
        more = link_entries(head.entry, head.turn.id if head.turn else "", i, [message("x" * 8000, "tool")])
        head = store.write(ME, "talk", Commit(expect=head.revision, entries=more, at=1))
    assert rows(store, "SELECT sum(length(native)) FROM entries")[0][0] <= sqlite_paths.MAX_ROW_BYTES
    assert [entry.id for entry in entries(store, "talk")] == [
        f"{head.turn.id if head.turn else ''}-{i}" for i in range(80)
    ]


def test_a_turn_that_comes_at_once_is_sealed_in_packs_of_a_common_length(store: SQLite) -> None:
    say(store, "talk", *["x" * 8000] * 80)
    assert max(rows(store, "SELECT length(array) FROM packs"))[0] < sqlite_paths.MAX_ROW_BYTES + 10_000
    assert len(texts(store, "talk")) == 80


def test_compressed_packs_take_less_and_read_the_same(tmp_path: Path) -> None:
    sizes = []
    for compress in (False, True):
        store = SQLite(tmp_path / f"{compress}.db", compress=compress)
        for i in range(40):
            say(store, "talk", f"{i} " + "words and more words " * 400)
        sizes.append(rows(store, "SELECT sum(length(array)) FROM packs")[0][0])
        assert [text.split()[0] for text in texts(store, "talk")] == [str(i) for i in range(40)]
        store.close()
    plainly = SQLite(tmp_path / "True.db")
    assert len(texts(plainly, "talk")) == 40, "the setting is not needed for reading"
    plainly.close()
    assert sizes[1] < sizes[0] / 10


def test_a_fork_copies_nothing(store: SQLite) -> None:
    for _ in range(40):
        say(store, "talk", "x" * 8000)
    count = "SELECT (SELECT count(*) FROM entries), (SELECT sum(count) FROM packs)"
    before = rows(store, count)[0]
    for i in range(0, 41, 4):
        store.write(ME, "talk", Commit(branch=f"b{i}", expect=0, source=(MAIN, i), at=1))
        assert entries(store, "talk", f"b{i}") == entries(store, "talk", MAIN, 0, i)
    assert rows(store, count)[0] == before


def test_what_a_newer_version_added_survives_a_seal_a_redaction_and_the_next_version_of_a_turn(store: SQLite) -> None:
    head = say(store, "talk", "first")
    turn = head.turn
    assert turn is not None
    newer = msgspec.msgpack.encode([*msgspec.msgpack.decode(msgspec.msgpack.encode(turn)), "new", {"more": 1}])
    store._file.write(lambda db: db.execute("UPDATE entries SET extra = ?", (b"kept",)))
    store._file.write(lambda db: db.execute("UPDATE entries SET turn_data = ?", (newer,)))
    store.write(ME, "talk", Commit(expect=1, turn=msgspec.structs.replace(turn, status="failed"), at=1))
    assert msgspec.msgpack.decode(rows(store, "SELECT turn_data FROM entries")[0][0])[-2:] == ["new", {"more": 1}]
    found = store.head(ME, "talk")
    assert found is not None
    assert found.turn is not None
    assert found.turn.status == "failed"
    for _ in range(30):
        say(store, "talk", "x" * 8000)
    sealed = rows(store, "SELECT data FROM turns WHERE name = ?", turn.id)[0][0]
    assert msgspec.msgpack.decode(sealed)[-2:] == ["new", {"more": 1}]
    columns = msgspec.msgpack.decode(rows(store, "SELECT columns FROM packs")[0][0])
    store._file.write(
        lambda db: db.execute(
            "UPDATE packs SET columns = ? WHERE key & 255 = 0", (msgspec.msgpack.encode([*columns, 7]),)
        )
    )
    assert store.redact(ME, "talk", f"{turn.id}-0", b"{}")
    columns, extra = rows(store, "SELECT columns, extra FROM packs ORDER BY key LIMIT 1")[0]
    assert msgspec.msgpack.decode(columns)[-1] == 7
    assert msgspec.msgpack.decode(extra, type=dict[int, bytes]) == {0: b"kept"}
    assert entries(store, "talk")[0].native == b"{}"


@pytest.mark.parametrize("talks", [1, 20])
def test_a_turn_writes_few_pages_with_few_statements(path: Path, talks: int) -> None:
    writes = count_writes(str(path), talks, 200)
    assert writes.frames <= MOST_FRAMES
    assert writes.statements <= MOST_STATEMENTS


def test_a_turn_costs_the_same_however_long_the_conversation_is(store: SQLite) -> None:
    steps = [0]

    def step() -> bool:
        steps[0] += 1
        return False

    def cost() -> int:
        steps[0] = 0
        head = store.head(ME, "talk")
        assert head is not None
        store.read(ME, "talk", MAIN, head.size - 20, head.size)
        record = Record("epoch", "", 1, b"{}")
        say(store, "talk", "x" * 100, records=(PlacedRecord(record, head.size),))
        return steps[0]

    def talk(turns: int) -> None:
        for i in range(turns):
            size = say(store, "talk", "x" * 1000, "y").size
            if i % 3 == 0:
                # A regenerated answer adds a segment to the path.
                entry = entries(store, "talk", MAIN, size - 2, size - 1)[0]
                again = link_entries(entry.id, entry.turn, 1, [message("z")])
                revision = 0 if (head := store.head(ME, "talk")) is None else head.revision
                record = PlacedRecord(Record("epoch", "", 1, b"{}"), size - 1)
                store.write(ME, "talk", Commit(expect=revision, cut=size - 1, entries=again, records=(record,), at=1))
        say(store, "talk", *"abcdefghijklmnopqrstuvwxyz")

    talk(10)
    store._file.db.set_progress_handler(step, 1)  # type: ignore[union-attr]
    short = cost()
    store._file.db.set_progress_handler(None)  # type: ignore[union-attr]
    talk(500)
    store._file.db.set_progress_handler(step, 1)  # type: ignore[union-attr]
    assert short > 100
    assert cost() < 1.2 * short


# Threads and processes


def _write_talks(path: str, number: int) -> None:
    store = SQLite(path)
    for talk in range(6):
        for i in range(12):
            say(store, f"{number}-{talk}", f"{i}", "x" * 500)
    store.close()


def _add(path: str, who: str, count: int) -> None:
    """Write commits to one branch, and repeat each one until it succeeds."""
    store = SQLite(path)
    for i in range(count):
        while True:
            with contextlib.suppress(HeadMoved):
                say(store, "one", f"{who}-{i}")
                break
    store.close()


def _add_by_threads(path: str, number: int) -> None:
    threads = [threading.Thread(target=_add, args=(path, f"{number}-{i}", 5)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _all(target: Any, path: Path, count: int) -> None:
    made = multiprocessing.get_context("fork")
    processes = [made.Process(target=target, args=(str(path), i)) for i in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0


def test_eight_processes_write_a_file_that_none_of_them_found(path: Path) -> None:
    _all(_write_talks, path, 8)
    store = SQLite(path)
    assert len(store.conversations(ME, limit=100)) == 48
    for number in range(8):
        for talk in range(6):
            assert texts(store, f"{number}-{talk}")[::2] == [str(i) for i in range(12)]
    assert rows(store, "PRAGMA integrity_check") == [("ok",)]
    store.close()


def test_of_thirty_two_writers_on_one_branch_none_loses_or_doubles_a_commit(path: Path) -> None:
    _all(_add_by_threads, path, 8)
    store = SQLite(path)
    wanted = {f"{number}-{thread}-{i}" for number in range(8) for thread in range(4) for i in range(5)}
    found = texts(store, "one")
    assert len(found) == len(wanted)
    assert set(found) == wanted
    head = store.head(ME, "one")
    assert head is not None
    assert head.revision == len(wanted)
    store.close()


def test_threads_share_one_connection_and_do_not_meet(store: SQLite, path: Path) -> None:
    other = SQLite(path)
    assert other._file is store._file
    problems: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for i in range(20):
                say(random.choice([store, other]), name, f"{i}")
                assert texts(store, name) == [f"{j}" for j in range(i + 1)]
                store.candidates(ME, [f"{i}"], 3, conversation=name)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(f"talk-{i}",)) for i in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not problems
    other.close()
    assert texts(store, "talk-0"), "closing one store closes the other"


@pytest.mark.parametrize("open_before", [True, False])
def test_a_forked_child_and_its_parent_go_on_writing(path: Path, open_before: bool) -> None:
    store = SQLite(path)
    say(store, "talk", "before")
    if not open_before:
        store.close()
        store = SQLite(path)
    children = []
    for number in range(3):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                assert store._file.db is None, "the parent's connection is here too"
                for i in range(15):
                    say(store, f"child-{number}", f"{i}")
                store.close()
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    for i in range(30):
        say(store, "parent", f"{i}")
    store.close()
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    again = SQLite(path)
    assert texts(again, "parent") == [f"{i}" for i in range(30)]
    for number in range(3):
        assert texts(again, f"child-{number}") == [f"{i}" for i in range(15)]
    assert rows(again, "PRAGMA integrity_check") == [("ok",)]
    again.close()


def test_a_fork_keeps_what_is_in_memory(path: Path) -> None:
    store = SQLite(":memory:")
    say(store, "talk", "here")
    pid = os.fork()
    if pid == 0:
        os._exit(0 if texts(store, "talk") == ["here"] else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert texts(store, "talk") == ["here"]
    store.close()


def test_a_killed_process_leaves_all_that_it_was_told_is_saved(path: Path) -> None:
    def work(acknowledge: int, i: int) -> None:
        store = SQLite(path)
        while True:
            say(store, "talk", f"{i}", "x" * 9000)
            i += 1
            os.write(acknowledge, b"x")

    saved = 0
    for _ in range(5):
        reader, writer = os.pipe()
        process = multiprocessing.get_context("fork").Process(target=work, args=(writer, saved))
        process.start()
        os.close(writer)
        told = saved
        for _ in range(random.randint(20, 60)):
            told += len(os.read(reader, 1))
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        while more := os.read(reader, 1000):
            told += len(more)
        os.close(reader)
        store = SQLite(path)
        found = [int(text) for text in texts(store, "talk")[::2]]
        assert found == list(range(len(found)))
        assert told <= len(found) <= told + 1
        assert rows(store, "PRAGMA integrity_check") == [("ok",)]
        store.close()
        saved = len(found)
    assert saved > 100


def test_a_locked_file_is_waited_for(store: SQLite, path: Path, monkeypatch: Any) -> None:
    say(store, "talk", "a")
    store._file.db.set_busy_timeout(50)  # type: ignore[union-attr]
    with somebody_else(path, "BEGIN IMMEDIATE") as goes:
        timer = threading.Timer(0.4, goes)
        timer.start()
        say(store, "talk", "b")
        timer.join()
    assert texts(store, "talk") == ["a", "b"]

    monkeypatch.setattr(sqlite_file, "PATIENCE", 0.2)
    with somebody_else(path, "BEGIN IMMEDIATE"):
        with pytest.raises(StoreError, match=r"talks\.db is still locked by another process"):
            say(store, "talk", "c")
        assert texts(store, "talk") == ["a", "b"], "who reads does not wait"
    say(store, "talk", "c")


# Files


def test_a_closed_store_says_so_and_lets_go_of_its_file(path: Path) -> None:
    store = SQLite(path)
    say(store, "talk", "a")
    file = store._file
    store.close()
    store.close()
    assert file.db is None
    assert not (path.parent / "talks.db-wal").exists()
    with pytest.raises(InputError, match="closed"):
        store.head(ME, "talk")


def test_full_durability_is_a_setting(path: Path, store: SQLite) -> None:
    full = SQLite(path, synchronous="full")
    assert (rows(store, "PRAGMA synchronous"), rows(full, "PRAGMA synchronous")) == ([(1,)], [(2,)])
    say(full, "talk", "a")
    assert texts(store, "talk") == ["a"]
    full.close()
    with pytest.raises(InputError, match="off"):
        SQLite(path, synchronous="off")  # type: ignore[arg-type]


def test_a_file_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    SQLite(path).close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"talks\.db was written by a newer version.*schema version is 99"):
        SQLite(path)
    assert path.read_bytes() == before


def test_a_file_that_a_newer_version_has_migrated_meanwhile_is_left_alone(path: Path, store: SQLite) -> None:
    say(store, "talk", "a")
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"newer version of Longtalk has migrated .* restart this process"):
            say(store, "talk", "b")
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    assert texts(store, "talk") == ["a"]


def test_a_file_of_an_older_version_is_brought_up_to_date_once(path: Path, monkeypatch: Any) -> None:
    store = SQLite(path)
    say(store, "talk", "a")
    store.close()
    monkeypatch.setattr(sqlite_file, "MIGRATIONS", (*sqlite_file.MIGRATIONS, "CREATE TABLE newer (a); SELECT 1;"))
    for _ in range(2):
        store = SQLite(path)
        assert texts(store, "talk") == ["a"]
        assert rows(store, "PRAGMA user_version") == [(len(MIGRATIONS) + 1,)]
        store.close()


FIRST_LAYOUT = {
    "conversations": """
        SELECT id, owner, name, created, max(updated, (SELECT max(b.updated) FROM filled.branches b
            WHERE b.conversation = c.id)), (SELECT sum(written) FROM filled.branches b WHERE b.conversation = c.id),
            meta, extra
        FROM filled.conversations c
    """,
    "branches": """
        SELECT b.id, conversation, name, revision, segment, base, size, entry, i.id, records, token, lease, sealed,
            loose, stale, updated, extra
        FROM filled.branches b LEFT JOIN ids i ON i.key = b.turn
    """,
    "turns": """
        SELECT i.id, k.conversation, k.name, coalesce(e.turn_data, t.data) FROM ids i JOIN filled.turn_keys k
            ON k.id = i.key LEFT JOIN filled.entries e ON e.key = i.key LEFT JOIN filled.turns t ON t.id = i.key
    """,
    "runs": """
        SELECT r.key, i.id, r.number FROM filled.runs r JOIN ids i ON i.key = r.turn
        UNION ALL SELECT i.key, i.id, k.number FROM filled.turn_keys k JOIN ids i ON i.key = k.id
    """,
    "requests": """
        SELECT conversation, r.key, body, branch, i.id, place FROM filled.requests r JOIN ids i ON i.key = r.turn
    """,
}
"""What the tables had in the first layout, where they have something else now. Turns had small ids."""


def first_layout(path: Path, filled: Path) -> None:
    """Create a file with the first migration only, and copy into it what it can hold of another file."""
    db = apsw.Connection(str(path))
    db.execute(MIGRATIONS[0])
    db.execute("ATTACH ? AS filled", (str(filled),))
    db.execute("CREATE TEMP TABLE ids AS SELECT id AS key, row_number() OVER (ORDER BY id) AS id FROM filled.turn_keys")
    assert not db.execute("SELECT 1 FROM filled.branches WHERE latest IS NOT NULL").get
    for (table,) in db.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table'").fetchall():
        if not table.startswith(("words", "settings", "sqlite_")):
            columns = ", ".join(f'"{name}"' for _, name, *_ in db.execute(f"PRAGMA main.table_info({table})"))
            source = FIRST_LAYOUT.get(table, f"SELECT {columns} FROM filled.{table}")
            db.execute(f"INSERT INTO main.{table} ({columns}) {source}")
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute("PRAGMA user_version = 1")
    db.close()


def test_a_file_of_the_first_layout_is_migrated_and_works(tmp_path: Path) -> None:
    filled, path = tmp_path / "filled.db", tmp_path / "talks.db"
    store = SQLite(filled)
    for i in range(30):
        say(store, "talk", f"{i} " + "x" * 9000, at=i)
    say(store, "talk", "apples", request=KeyedRequest("key", "body"), meta={"a": 1}, entry_meta={0: {"b": 2}}, at=50)
    store.write(ME, "talk", Commit(branch="fork", expect=0, source=(MAIN, 7), at=51))
    say(store, "other", "pears", at=51)
    head, listed = store.head(ME, "talk"), store.conversations(ME)
    turns = store.turns(ME, "talk", MAIN, 0, 99), store.turns(ME, "talk", "fork", 0, 99)
    wanted = texts(store, "talk"), texts(store, "talk", "fork"), store.keyed_turn(ME, "talk", "key")
    store.close()
    first_layout(path, filled)
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
        assert "manifest" not in [row[1] for row in db.execute("PRAGMA table_info(turns)")]
    store = SQLite(path)
    assert rows(store, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    assert (store.head(ME, "talk"), store.conversations(ME)) == (head, listed)
    assert (store.turns(ME, "talk", MAIN, 0, 99), store.turns(ME, "talk", "fork", 0, 99)) == turns
    assert (texts(store, "talk"), texts(store, "talk", "fork"), store.keyed_turn(ME, "talk", "key")) == wanted
    assert [each.id for each in store.conversations(ME, after=(51, "other"))] == ["talk"]
    assert store.metas(ME, "talk", MAIN, 0, 99) == {30: {"b": 2}}
    assert [hit.text for hit in store.candidates(ME, ["apples"], 9)] == ["apples"]
    assert store.verify(ME, "talk") == []
    assert head is not None
    assert head.turn is not None
    assert store.manifest(ME, "talk", head.turn.id) == b""
    after = say(store, "talk", "more", manifest=b'{"sent":1}')
    assert after.turn is not None
    assert store.manifest(ME, "talk", after.turn.id) == b'{"sent":1}'
    plan = rows(
        store, "EXPLAIN QUERY PLAN SELECT name FROM conversations WHERE owner = 'x' ORDER BY updated DESC, name"
    )
    assert "conversations_newest" in str(plan)
    assert "TEMP B-TREE" not in str(plan)
    store.close()
    again = SQLite(path)
    assert texts(again, "talk")[-1] == "more"
    again.close()


def test_many_processes_that_open_a_file_of_the_first_layout_migrate_it_once(tmp_path: Path) -> None:
    SQLite(tmp_path / "filled.db").close()
    first_layout(tmp_path / "talks.db", tmp_path / "filled.db")
    _all(_write_talks, tmp_path / "talks.db", 4)
    store = SQLite(tmp_path / "talks.db")
    assert len(store.conversations(ME, limit=100)) == 24
    assert rows(store, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    store.close()


def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: Any) -> None:
    SQLite(path).close()
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_file, "MIGRATIONS", (*sqlite_file.MIGRATIONS, "CREATE TABLE newer (a); SELECT nonsense;"))
        with pytest.raises(StoreError, match=r"talks\.db"):
            SQLite(path)
    store = SQLite(path)
    assert rows(store, "SELECT count(*) FROM sqlite_schema WHERE name = 'newer'") == [(0,)]
    store.close()


def test_the_database_of_something_else_is_refused_and_left_alone(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (a)")
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"talks\.db belongs to another application"):
        SQLite(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"my shopping list\n" * 1000)
    with pytest.raises(InputError, match=r"talks\.db is not a SQLite database"):
        SQLite(path)
    assert path.read_bytes() == b"my shopping list\n" * 1000


def test_a_damaged_file_is_named(path: Path) -> None:
    store = SQLite(path)
    for _ in range(30):
        say(store, "talk", "x" * 9000)
    store.close()
    data = bytearray(path.read_bytes())
    data[8192 : len(data) // 2] = os.urandom(len(data) // 2 - 8192)
    path.write_bytes(data)
    with pytest.raises(LongtalkError, match=r"talks\.db"):
        store = SQLite(path)
        texts(store, "talk")


def test_an_entry_that_is_missing_is_not_skipped(store: SQLite) -> None:
    say(store, "talk", "a", "b", "c")
    store._file.write(lambda db: db.execute("DELETE FROM entries WHERE number = 1"))
    with pytest.raises(StoreError, match=r"talks\.db is damaged"):
        texts(store, "talk")
    with pytest.raises(StoreError, match=r"talks\.db is damaged"):
        store.pick(ME, "talk", MAIN, [(0, 2)])


@pytest.mark.parametrize(("size", "column"), [(1, "entries SET turn_data"), (9_000, "turns SET data")])
def test_a_turn_that_can_not_be_read_is_named(store: SQLite, size: int, column: str) -> None:
    say(store, "talk", "a" * size)
    change(store, f"UPDATE {column} = ?", msgspec.msgpack.encode(["t", "unheard of"]))
    with pytest.raises(StoreError, match=r"talks\.db is damaged"):
        store.head(ME, "talk")


@pytest.mark.parametrize("part", ["columns", "array"])
@pytest.mark.parametrize("compress", [True, False])
def test_a_pack_that_is_not_whole_is_not_read(path: Path, part: str, compress: bool) -> None:
    store = SQLite(path, compress=compress)
    for _ in range(30):
        say(store, "talk", "x" * 9000)
    store._file.write(lambda db: db.execute(f"UPDATE packs SET {part} = substr({part}, 1, length({part}) / 2)"))
    with pytest.raises(StoreError, match=r"talks\.db is damaged"):
        texts(store, "talk")
    store.close()


# Damage


@pytest.fixture
def long(store: SQLite) -> SQLite:
    """Return a store whose conversation has packs, rows after them, a fork within a pack and a fork within the rows."""
    for i in range(40):
        say(store, "talk", f"{i} " + "x" * 9000)
    store.write(ME, "talk", Commit(branch="early", expect=0, source=(MAIN, 5), at=1))
    say(store, "talk", "y", "z", branch="early")
    store.write(ME, "talk", Commit(branch="late", expect=0, source=(MAIN, 38), at=1))
    assert len(rows(store, "SELECT key FROM packs")) >= 3
    assert store.verify(ME, "talk") == []
    return store


def change(store: SQLite, sql: str, *values: Any) -> None:
    assert store._file.write(lambda db: (db.execute(sql, values), db.changes())[1]) == 1


def position_of(key: int) -> int:
    return key & (1 << sqlite_paths.POSITION_BITS) - 1


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("compress", [True, False])
def test_verify_names_a_pack_whose_bytes_were_changed(path: Path, number: int, compress: bool) -> None:
    store = SQLite(path, compress=compress)
    for i in range(40):
        say(store, "talk", f"{i} " + "x" * 9000)
    key, data = rows(store, "SELECT key, array FROM packs ORDER BY key")[number]
    position = position_of(key)
    for i in (0, len(data) // 3, len(data) // 2, len(data) - 1):
        changed = data[:i] + bytes((data[i] ^ 1,)) + data[i + 1 :]
        change(store, "UPDATE packs SET array = ? WHERE key = ?", changed, key)
        (problem,) = store.verify(ME, "talk")
        assert problem.startswith(f"the pack that begins at position {position} is damaged: ")
    change(store, "UPDATE packs SET array = ? WHERE key = ?", data, key)
    assert store.verify(ME, "talk") == []
    store.close()


def test_verify_reads_on_behind_a_pack_that_is_damaged(long: SQLite) -> None:
    for (key,) in rows(long, "SELECT key FROM packs ORDER BY key")[::2]:
        change(long, "UPDATE packs SET array = substr(array, 2) WHERE key = ?", key)
    assert len(long.verify(ME, "talk")) == len(rows(long, "SELECT key FROM packs")[::2])


def test_verify_names_columns_that_can_not_be_read_and_never_raises(long: SQLite) -> None:
    key, columns = rows(long, "SELECT key, columns FROM packs ORDER BY key")[1]
    draw = random.Random(3)
    for i in range(len(columns)):
        changed = columns[:i] + bytes((draw.randrange(256),)) + columns[i + 1 :]
        change(long, "UPDATE packs SET columns = ? WHERE key = ?", changed, key)
        for problem in long.verify(ME, "talk"):
            assert problem.startswith(
                (f"the pack that begins at position {position_of(key)} is damaged: ", "entries are missing")
            )
    for length in range(len(columns)):
        change(long, "UPDATE packs SET columns = ? WHERE key = ?", columns[:length], key)
        assert long.verify(ME, "talk")[0].startswith(
            f"the pack that begins at position {position_of(key)} is damaged: "
        )


@pytest.mark.parametrize("number", [0, 1, -2, -1])
def test_verify_names_a_missing_row(long: SQLite, number: int) -> None:
    segment = rows(long, "SELECT segment FROM branches WHERE name = 'main'")[0][0]
    bits = sqlite_paths.POSITION_BITS
    keys = [key for (key,) in rows(long, "SELECT key FROM entries ORDER BY key") if key >> bits == segment]
    change(long, "DELETE FROM entries WHERE key = ?", keys[number])
    assert long.verify(ME, "talk") == [f"entries are missing before position {position_of(keys[number]) + 1}"]


def test_verify_names_a_missing_row_of_a_fork(long: SQLite) -> None:
    key = rows(long, "SELECT max(key) FROM entries")[0][0]
    assert position_of(key) == 6
    change(long, "DELETE FROM entries WHERE key = ?", key)
    assert long.verify(ME, "talk") == ["entries are missing before position 7"]


@pytest.mark.parametrize("number", [0, 1, -1])
def test_verify_names_a_missing_pack(long: SQLite, number: int) -> None:
    key, count = rows(long, "SELECT key, count FROM packs ORDER BY key")[number]
    change(long, "DELETE FROM packs WHERE key = ?", key)
    assert long.verify(ME, "talk") == [f"entries are missing before position {position_of(key) + count}"]


def test_verify_names_a_missing_pack_behind_which_there_is_nothing(store: SQLite) -> None:
    say(store, "talk", *["x" * 8000] * 80)
    change(store, "DELETE FROM packs WHERE key = (SELECT max(key) FROM packs)")
    store._file.write(lambda db: db.execute("DELETE FROM entries"))
    assert store.verify(ME, "talk") == ["entries are missing before position 80"]


def test_verify_names_a_row_that_only_a_fork_still_needs(store: SQLite) -> None:
    say(store, "talk", "a", "b", "c")
    store.write(ME, "talk", Commit(branch="fork", expect=0, source=(MAIN, 2), at=1))
    store.write(ME, "talk", Commit(expect=1, cut=1, at=1))
    change(store, "DELETE FROM entries WHERE number = 2")
    assert store.verify(ME, "talk") == [], "it is on no path"
    change(store, "DELETE FROM entries WHERE number = 1")
    assert store.verify(ME, "talk") == ["entries are missing before position 2"]


@pytest.mark.parametrize(
    ("column", "what"),
    [
        ("entries SET turn_data = ? WHERE turn_data IS NOT NULL AND number = 0 AND key & 255 = 0", "turn"),
        ("turns SET data = ?", "turn"),
        ("records SET data = ?", "record"),
        ("branches SET latest = ? WHERE latest IS NOT NULL", "a record"),
    ],
)
def test_verify_names_a_turn_and_a_record_that_can_not_be_read(store: SQLite, column: str, what: str) -> None:
    records = [Record("brief", "", 1, b"{}"), Record("anchor", "", 1, b"{}")]
    say(store, "talk", "a", records=tuple(PlacedRecord(each, 0) for each in records))
    say(store, "talk", "a" * 9_000)
    say(store, "other", "b" if "turns" in column else "b" * 9_000)
    change(store, f"UPDATE {column}", b"\x93nonsense")
    (problem,) = store.verify(ME, "talk")
    assert problem.startswith(what)
    assert store.verify(ME, "other") == []


def test_verify_looks_at_one_conversation(long: SQLite) -> None:
    say(long, "other", "a")
    change(long, "DELETE FROM packs WHERE key = (SELECT min(key) FROM packs)")
    assert long.verify(ME, "talk")
    assert long.verify(ME, "other") == long.verify("somebody", "talk") == []


@pytest.mark.parametrize("where", ["", "nowhere/talks.db", "a\0b", "x" * 5000])
def test_a_path_that_can_not_be_opened_is_named(tmp_path: Path, where: str) -> None:
    with pytest.raises(InputError):
        SQLite(f"{tmp_path}/{where}")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_path_that_is_no_regular_file_is_named(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    with pytest.raises(InputError, match=r"talks\.db is not a regular file\. Choose another path"):
        SQLite(path)


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_may_not_be_written_is_named(there: bool) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        if there:
            store = SQLite(f"{folder}/talks.db")
            say(store, "talk", "a")
            store.close()
            os.chmod(f"{folder}/talks.db", 0o444)
        os.chmod(folder, 0o555)
        pid = os.fork()
        if pid == 0:
            # Root can write to any file, so drop its privileges.
            code = 1
            try:
                if os.getuid() == 0:
                    os.setuid(65534)
                SQLite(f"{folder}/talks.db")
            except InputError as problem:
                code = 0 if "talks.db" in str(problem) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        os.chmod(folder, 0o755)


def test_a_full_disk_loses_nothing_that_was_saved(store: SQLite) -> None:
    head = say(store, "talk", "a")
    pages = rows(store, "PRAGMA page_count")[0][0]
    rows(store, f"PRAGMA max_page_count = {pages + 5}")
    with pytest.raises(StoreError, match=r"talks\.db can't grow"):
        say(store, "talk", "x" * 100_000)
    assert store.head(ME, "talk") == head
    rows(store, "PRAGMA max_page_count = 1000000")
    say(store, "talk", "b")
    assert texts(store, "talk") == ["a", "b"]


def test_a_disk_too_full_to_read_is_named_as_such(path: Path) -> None:
    problem = apsw.IOError("disk I/O error")
    problem.extendedresult = apsw.SQLITE_IOERR_SHMSIZE
    assert "the disk is full" in str(sqlite_file.File(str(path), "normal")._translate_error(problem))


# Names, owners


@pytest.mark.parametrize("name", ["a'b", 'a"b', "a\0b", "a\0c", "x" * 100_000, "%", "NULL", "1", "\x1b[0m"])
def test_odd_names_are_kept_apart(store: SQLite, name: str) -> None:
    say(store, name, "mine", branch=name, owner=name)
    for owner, talk, branch in ((name + "x", name, name), (name, name + "x", name), (name, name, name + "x")):
        assert store.head(owner, talk, branch) is None
    assert [each.id for each in store.conversations(name)] == [name]
    assert [each.branch for each in store.branches(name, name)] == [name]
    assert [hit.branch for hit in store.candidates(name, ["mine"], 9, conversation=name)] == [name]
    assert store.delete(name, name)
    assert store.head(name, name, name) is None


def test_what_is_not_unicode_is_refused(store: SQLite) -> None:
    bad = "a\ud800b"
    say(store, "talk", "a")
    for ask in (
        lambda: store.head(bad, "talk"),
        lambda: store.head(ME, bad),
        lambda: store.read(ME, "talk", bad, 0, 1),
        lambda: store.keyed_turn(ME, "talk", bad),
        lambda: store.conversations(bad),
        lambda: store.delete(bad, "talk"),
        lambda: store.redact(ME, "talk", f"{bad}-1", b"{}"),
        lambda: say(store, bad, "b"),
        lambda: say(store, "talk", "b", request=KeyedRequest(bad, "")),
    ):
        with pytest.raises(InputError, match="not valid Unicode"):
            ask()
    assert store.candidates(ME, [bad, "a"], 5)[0].text == "a"
    assert texts(store, "talk") == ["a"]


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "t"},
        {"id": "u-0"},
        {"id": "t-00"},
        {"id": "t--1"},
        {"id": "t-٣"},
        {"id": "t-9999999999"},
        {"tokens": -1},
        {"at": -1},
        {"at": 2**70},
    ],
)
def test_an_entry_that_no_pack_could_hold_is_refused(store: SQLite, fields: dict[str, Any]) -> None:
    entry = msgspec.structs.replace(message("a"), **{"id": "t-0", "turn": "t", **fields})
    with pytest.raises(ValueError, match=r"entry id|out of range"):
        store.write(ME, "talk", Commit(expect=0, entries=(entry,), at=1))
    assert store.head(ME, "talk") is None
    assert store.conversations(ME) == []


def test_an_apps_own_data_must_be_json(store: SQLite) -> None:
    for meta in ({"a": object()}, {"a": float("nan")}):
        with pytest.raises(InputError, match="must be JSON"):
            say(store, "talk", "a", meta=meta)
        with pytest.raises(InputError, match="must be JSON"):
            say(store, "talk", "a", entry_meta={0: meta})
    assert store.conversations(ME) == []
    head = say(store, "talk", "a", meta={"a": "\ud800"}, entry_meta={0: {"channel": "mail"}})
    assert store.conversations(ME)[0].meta == {"a": "\ud800"}
    assert rows(store, "SELECT meta FROM entry_meta") == [(b'{"channel":"mail"}',)]
    with pytest.raises(InputError, match="must be JSON"):
        store.describe(ME, "talk", {"a": object()}, entry=head.entry)
    assert store.metas(ME, "talk", MAIN, 0, 9) == {0: {"channel": "mail"}}


def test_a_lease_is_held_for_longer_by_its_holder_alone(store: SQLite) -> None:
    lease = Lease(Holder("host", "boot", 1, 2), 100, 3)
    head = say(store, "talk", "a", lease=lease)
    assert not store.renew(ME, "talk", MAIN, 2, 200)
    assert not store.renew("other", "talk", MAIN, 3, 200)
    assert store.renew(ME, "talk", MAIN, 3, 200)
    assert store.head(ME, "talk") == msgspec.structs.replace(head, lease=msgspec.structs.replace(lease, until=200))
    assert say(store, "talk", "b").token == 3
    assert not store.renew(ME, "talk", MAIN, 3, 300)


def test_a_key_that_comes_later_than_its_turn_tells_where_the_turn_begins(store: SQLite) -> None:
    say(store, "talk", "a", "b")
    head = say(store, "talk", "c")
    assert head.turn is not None
    more = link_entries(head.entry, head.turn.id, 1, [message("d")])
    commit = Commit(expect=2, entries=more, turn=head.turn, request=KeyedRequest("key", "body"), at=1)
    store.write(ME, "talk", commit)
    asked = store.keyed_turn(ME, "talk", "key")
    assert asked is not None
    assert (asked.position, asked.turn, asked.request) == (2, head.turn, commit.request)


# Search, and data that remains on disk


def test_nothing_is_indexed_before_the_first_search(store: SQLite) -> None:
    say(store, "talk", "apples and pears")
    assert rows(store, "SELECT count(*) FROM words_docsize") == [(0,)]
    assert [hit.text for hit in store.candidates(ME, ["pears"], 9)] == ["apples and pears"]
    say(store, "talk", "more pears")
    assert rows(store, "SELECT count(*) FROM words_docsize") == [(1,)]
    assert {hit.position for hit in store.candidates(ME, ["pears"], 9)} == {0, 1}
    assert store.candidates("other", ["pears"], 9) == []
    assert rows(store, "SELECT count(*) FROM branches WHERE stale") == [(0,)]


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("我昨天在东京吃了拉面", "东京"),
        ("きのう東京でラーメンを食べた", "ラーメン"),
        ("어제 도쿄에서 라면을 먹었다", "라면"),
        ("Straße nach Zürich", "zurich"),
        ("a\0b nought", "nought"),
        ('say "hello" to AND OR NOT', '"hello"'),
        ("C++ and text: NEAR(a b)", "NEAR(a b)"),
    ],
)
def test_words_of_any_script_are_found(store: SQLite, text: str, term: str) -> None:
    say(store, "talk", text, "something else")
    assert [hit.text for hit in store.candidates(ME, [term, "…", ""], 9)] == [text]
    assert store.candidates(ME, ["…", "", '"', "*"], 9) == []


def test_thousands_of_words_can_be_looked_for(store: SQLite) -> None:
    say(store, "talk", "apples", "pears")
    assert len(store.candidates(ME, [*[f"word{i}" for i in range(3000)], "pears"], 9)) == 1


def test_only_what_is_on_a_branch_is_found_and_where_it_is_said(store: SQLite) -> None:
    say(store, "talk", "zero", "apples one")
    two = link_entries(entries(store, "talk")[0].id, "t", 0, [message("apples two")])
    store.write(ME, "talk", Commit(expect=1, cut=1, entries=two, at=1))
    hits = store.candidates(ME, ["apples"], 9)
    assert [(hit.text, hit.branch, hit.position) for hit in hits] == [("apples two", MAIN, 1)]
    store.write(ME, "talk", Commit(branch="b", expect=0, source=(MAIN, 2), at=1))
    store.write(ME, "talk", Commit(expect=2, cut=0, at=1))
    assert [(hit.text, hit.branch) for hit in store.candidates(ME, ["apples"], 9)] == [("apples two", "b")]


def test_a_long_history_is_made_ready_in_parts(store: SQLite, monkeypatch: Any) -> None:
    monkeypatch.setattr(sqlite_search, "BATCH", 7)
    for i in range(20):
        say(store, "talk", f"apples {i}", "x" * 10)
        if i == 10:
            store.write(ME, "talk", Commit(branch="b", expect=0, source=(MAIN, 15), at=1))
            say(store, "talk", "apples b", branch="b")
    hits = store.candidates(ME, ["apples"], 99)
    assert len(hits) == len({(hit.branch, hit.position) for hit in hits}) == 21


def test_a_new_way_to_read_entries_rebuilds_the_index(store: SQLite, monkeypatch: Any) -> None:
    say(store, "talk", "apples")
    assert store.candidates(ME, ["apples"], 9)
    monkeypatch.setattr(sqlite_search, "INDEX_VERSION", sqlite_search.INDEX_VERSION + 1)
    monkeypatch.setattr(sqlite_search, "get_searchable_text", lambda entry: "pears")
    assert store.candidates(ME, ["apples"], 9) == []
    assert store.candidates(ME, ["pears"], 9)


@pytest.mark.parametrize("remove", ["delete", "redact"])
def test_what_was_indexed_in_another_way_is_removed_too(
    store: SQLite, path: Path, monkeypatch: Any, remove: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_search, "get_searchable_text", lambda entry: f"{SECRET}, as read before")
        entry = say(store, "talk", "apples").entry
        assert store.candidates(ME, [SECRET], 9)
    for module in (sqlite_search, sqlite_remove):
        monkeypatch.setattr(module, "INDEX_VERSION", module.INDEX_VERSION + 1)
    assert store.delete(ME, "talk") if remove == "delete" else store.redact(ME, "talk", entry or "", b"{}")
    assert SECRET[3:].encode() not in on_disk(path)
    assert store.candidates(ME, [SECRET, "apples"], 9) == []


def test_what_can_not_be_read_is_not_found_and_does_no_harm(store: SQLite) -> None:
    odd = [message("apples", wire="unheard-of"), message("", native=b"apples"), message("", native=b'{"content":{}}')]
    event = Entry(kind="event", role="event", wire="longtalk", native=b'{"source":"x","text":"apples fell"}', at=1)
    store.write(ME, "talk", Commit(expect=0, entries=link_entries(None, "t", 0, [*odd, event]), at=1))
    assert [hit.text for hit in store.candidates(ME, ["apples"], 9)] == ["apples fell"]
    assert store.candidates(ME, [], 9) == store.candidates(ME, ["apples"], 0) == []
    assert store.delete(ME, "talk")
    assert store.candidates(ME, ["apples"], 9) == []


def _secrets(store: SQLite, *, sealed: bool, searched: bool) -> str:
    """Write a conversation with a secret, and another without one. Return the id of the entry with the secret."""
    say(store, "other", "harmless words")
    say(store, "talk", "before")
    data = {"meta": {"title": "kept"}, "entry_meta": {0: {"from": SECRET}}, "manifest": b'{"sent":"somebody\'s"}'}
    entry = say(store, "talk", f"my password is {SECRET} as ever", **data).entry  # type: ignore[arg-type]
    record = Record("epoch", entry or "", 1, f'"{SECRET}"'.encode())
    say(
        store, "talk", "behind", records=(PlacedRecord(record, 1), PlacedRecord(Record("other", "", 1, b'"before"'), 0))
    )
    for _ in range(30 if sealed else 0):
        say(store, "talk", "x" * 8000)
    if searched:
        assert [hit.entry for hit in store.candidates(ME, [SECRET], 9)] == [entry]
    assert entry is not None
    return entry


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("searched", [True, False])
def test_a_redacted_text_is_nowhere_in_the_file(store: SQLite, path: Path, sealed: bool, searched: bool) -> None:
    entry = _secrets(store, sealed=sealed, searched=searched)
    assert SECRET.encode() in on_disk(path)
    before = entries(store, "talk")
    assert store.describe(ME, "talk", {"from": SECRET, "again": 1}, entry=entry)
    assert store.redact(ME, "talk", entry, b'{"role":"user","content":"[removed]"}')
    data = on_disk(path)
    assert SECRET.encode() not in data
    assert SECRET[3:].encode() not in data, "a part of it is in the index"
    before[1] = msgspec.structs.replace(before[1], native=b'{"role":"user","content":"[removed]"}')
    assert entries(store, "talk") == before
    head = store.head(ME, "talk")
    assert head is not None
    assert [each.record.data for each in head.records] == [b'"before"']
    assert store.candidates(ME, [SECRET], 9) == []
    assert len(store.candidates(ME, ["removed"], 9)) == 1
    assert not store.redact(ME, "talk", "nobody-0", b"{}")
    assert not store.redact("other", "talk", entry, b"{}")
    assert not store.redact(ME, "talk", f"{entry}9", b"{}")


def test_records_behind_a_redacted_entry_go_on_every_branch_and_older_ones_hold_again(store: SQLite) -> None:
    def record(place: int, branch: str = MAIN) -> None:
        head = store.head(ME, "talk", branch)
        assert head is not None
        made = PlacedRecord(Record("summary", "", 1, f'"{branch} {place}"'.encode()), place)
        store.write(ME, "talk", Commit(branch=branch, expect=head.revision, records=(made,), at=1))

    def shown(branch: str) -> list[bytes]:
        head = store.head(ME, "talk", branch)
        assert head is not None
        return [each.record.data for each in head.records]

    say(store, "talk", "a", "b", "c", "d")
    for name, count in (("behind", 3), ("before", 1)):
        store.write(ME, "talk", Commit(branch=name, expect=0, source=(MAIN, count), at=1))
        say(store, "talk", "e", "f", branch=name)
    record(0)
    for branch in (MAIN, "behind", "before"):
        record(2, branch)
        record(1 if branch == "before" else 3, branch)
    assert store.redact(ME, "talk", entries(store, "talk")[1].id, b"{}")
    assert {branch: shown(branch) for branch in (MAIN, "behind", "before")} == {
        MAIN: [b'"main 0"'],
        "behind": [b'"main 0"'],
        "before": [b'"before 1"'],
    }
    assert rows(store, "SELECT count(*) FROM records") == [(3,)]


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("searched", [True, False])
def test_a_deleted_conversation_is_nowhere_in_the_file(store: SQLite, path: Path, sealed: bool, searched: bool) -> None:
    _secrets(store, sealed=sealed, searched=searched)
    assert store.delete("somebody", "talk") is None
    receipt = store.delete(ME, "talk")
    assert receipt is not None
    count = 33 if sealed else 3
    assert (receipt.entries, receipt.turns, receipt.records, receipt.branches) == (count, count, 2, 1)
    data = on_disk(path)
    for secret in (SECRET, SECRET[3:], "password", "x" * 100, "kept", "somebody's"):
        assert secret.encode() not in data, secret
    assert texts(store, "other") == ["harmless words"]
    assert store.delete(ME, "talk") is None
    left = "SELECT (SELECT count(*) FROM entries), (SELECT count(*) FROM turn_keys), (SELECT count(*) FROM segments)"
    assert rows(store, left) == [(1, 1, 1)]
    for table in ("turns", "runs", "packs", "records", "requests", "entry_meta"):
        assert rows(store, f"SELECT count(*) FROM {table}") == [(0,)]
    assert len(store.candidates(ME, ["words", "password"], 9)) == 1


def test_a_long_read_does_not_prevent_a_deletion(store: SQLite, path: Path) -> None:
    _secrets(store, sealed=False, searched=True)
    store._file.db.set_busy_timeout(50)  # type: ignore[union-attr]
    with somebody_else(path, "BEGIN; SELECT count(*) FROM entries"):
        assert store.delete(ME, "talk")
        assert store.head(ME, "talk") is None
        assert SECRET.encode() in on_disk(path), "who reads still sees it"
        say(store, "other", "goes on")
    say(store, "other", "and on")
    assert SECRET.encode() not in on_disk(path)


def test_the_package_does_not_import_the_driver() -> None:
    script = "import sys, longtalk, longtalk.stores.base; sys.exit('apsw' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_data_removed_during_a_read_leaves_the_log_with_the_next_write(tmp_path: Path):
    path = tmp_path / "talks.db"
    one, other = SQLite(path), SQLite(path, synchronous="full")
    talk = ConversationDriver(one, "ann", "talk")
    talk.say("hunter2zebra")
    db = one._file.db
    assert db is not None
    db.execute("BEGIN")
    db.execute("SELECT count(*) FROM entries").fetchall()
    assert other.delete("ann", "talk")
    other.close()
    db.execute("COMMIT")
    log = tmp_path / "talks.db-wal"
    assert b"hunter2zebra" in log.read_bytes()
    ConversationDriver(one, "ann", "next").say("hello")
    assert b"hunter2zebra" not in log.read_bytes()
    one.close()


@pytest.mark.skipif(os.name == "nt", reason="a file that is open can't be removed there")
def test_nothing_is_acknowledged_into_a_file_that_was_removed(tmp_path: Path):
    store = SQLite(tmp_path / "talks.db")
    store.write("ann", "talk", Commit(expect=0, at=1))
    (tmp_path / "talks.db").unlink()
    with pytest.raises(StoreError, match="moved or deleted"):
        store.write("ann", "talk", Commit(expect=1, at=2))
    store.close()


# Commits that wait for the disk together


def at_once(store: SQLite, works: list[Any], monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], int]:
    """Run writes that wait at the same time. Return their outcomes, and the number of transactions."""
    begun: list[str] = []
    whole = sqlite_file._run_transaction
    monkeypatch.setattr(
        sqlite_file, "_run_transaction", lambda db, begin, work: begun.append(begin) or whole(db, begin, work)
    )
    outcomes: list[Any] = [None] * len(works)

    def run(i: int) -> None:
        try:
            outcomes[i] = works[i]()
        except BaseException as problem:
            outcomes[i] = problem

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(works))]
    with store._file.lock:
        for i, thread in enumerate(threads):
            thread.start()
            while len(store._file._queue) <= i:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    return outcomes, begun.count("BEGIN IMMEDIATE")


def first(store: SQLite, name: str, expect: int = 0) -> Any:
    entry = link_entries(None, "t", 0, [message("x")])
    return lambda: store.write(ME, name, Commit(expect=expect, entries=entry, at=1))


@pytest.fixture
def full(path: Path) -> Iterator[SQLite]:
    made = SQLite(path, synchronous="full")
    yield made
    made.close()


def test_full_commits_that_wait_together_are_one(full: SQLite, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes, commits = at_once(full, [first(full, f"talk {i}") for i in range(8)], monkeypatch)
    assert [outcome.size for outcome in outcomes] == [1] * 8
    assert commits == 1
    assert len(full.conversations(ME)) == 8
    assert not full.serial


def test_a_failing_commit_does_not_fail_commits_that_wait_with_it(
    full: SQLite, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = [first(full, "a"), first(full, "b", expect=7), first(full, "a"), first(full, "c")]
    outcomes, _ = at_once(full, works, monkeypatch)
    assert [type(outcome) for outcome in outcomes] == [BranchHead, HeadMoved, HeadMoved, BranchHead]
    assert sorted(each.id for each in full.conversations(ME)) == ["a", "c"]


def test_ctrl_c_ends_only_the_call_that_got_it(full: SQLite, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, struck = sqlite_file._run_transaction, list[int]()

    def strike(db: Any, begin: str, work: Any) -> Any:
        if begin == "BEGIN IMMEDIATE" and not struck:
            struck.append(1)
            raise KeyboardInterrupt
        return whole(db, begin, work)

    monkeypatch.setattr(sqlite_file, "_run_transaction", strike)
    outcomes, _ = at_once(full, [first(full, f"talk {i}") for i in range(4)], monkeypatch)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == [
        "BranchHead",
        "BranchHead",
        "BranchHead",
        "KeyboardInterrupt",
    ]
    assert len(full.conversations(ME)) == 3


def test_a_failing_single_write_is_tried_once(full: SQLite) -> None:
    tries: list[int] = []

    def fail(_: Any) -> Any:
        tries.append(1)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        full._file.write(fail)
    assert tries == [1]


def test_a_store_that_waits_for_the_disk_keeps_the_contract(tmp_path: Path) -> None:
    paths = (tmp_path / f"{number}.db" for number in itertools.count())
    check_store(lambda: SQLite(next(paths), synchronous="full")).raise_for_failures()


def test_many_cuts_make_no_long_path(store: SQLite, path: Path) -> None:
    say(store, "talk", "first")
    for i in range(30):
        head = store.head(ME, "talk")
        assert head is not None
        store.write(ME, "talk", Commit(expect=head.revision, cut=1, at=1))
        say(store, "talk", str(i))
    with contextlib.closing(sqlite3.connect(path)) as db:
        up = dict(db.execute("SELECT id, up FROM segments").fetchall())
    depth, segment = 0, max(up)
    while segment is not None:
        depth, segment = depth + 1, up[segment]
    assert depth <= 3
