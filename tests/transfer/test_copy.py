"""Conversations are copied between stores completely, repeatedly and after an interruption."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count, product
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from hypothesis import strategies as st

from longtalk import Archive, AsyncArchive, Conversation, InputError
from longtalk.errors import StoreError
from longtalk.policies import Economy
from longtalk.policies import Memory as MemoryPolicy
from longtalk.stores.base import MAIN, Commit, HeadMoved, Holder, KeyedRequest, Lease, PlacedRecord, Store
from longtalk.stores.in_memory import InMemory
from longtalk.stores.jsonl.store import JSONL
from longtalk.stores.redis.store import Redis
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import Scripted, says
from longtalk.testing.stores.harness import make_message
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import Record, Turn, link_entries, new_id
from longtalk.transfer.restore import IMPORTING, remove
from longtalk.transfer.snapshot import Snapshot, read_snapshot
from tests.support import postgres_server, redis_server
from tests.support.card_model import CardModel, make_answer
from tests.support.properties import holds
from tests.support.store_proxies import DyingStore, StoreProxy

KINDS = ("memory", "jsonl", "sqlite")
Make = Callable[[str], Store]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Return a function that creates a new store of a kind."""
    numbers, made = count(), list[Store]()
    makers: dict[str, Callable[[int], Store]] = {
        "memory": lambda _: InMemory(),
        "jsonl": lambda number: JSONL(tmp_path / f"talks-{number}"),
        "sqlite": lambda number: SQLite(tmp_path / f"talks-{number}.db"),
    }

    def making(kind: str) -> Store:
        made.append(makers[kind](next(numbers)))
        return made[-1]

    yield making
    for store in made:
        store.close()


def fill(store: Store, owner: str = "") -> None:
    """Fill a store with typical conversations: branches, keys, a policy's records, the app's metadata."""
    talk = Conversation(
        "lesson", model=CardModel(make_answer("Slowly. " * 40)), store=store, owner=owner, policy=MemoryPolicy()
    )
    for number in range(4):
        talk.send(f"Question {number}? " + "And why? " * 20, key=f"key-{number}")
    talk.set_metadata({"topic": "bows"})
    talk.set_metadata({"good": True}, entry=talk.history()[1].id)
    talk.edit(talk.history()[2].id, "Another question?")
    other = Conversation("short", model=Scripted(says("a"), says("b")), store=store, owner=owner, policy=Economy())
    other.send("x")
    other.send("y", key="k")


def whole(store: Store, name: str, owner: str = "") -> Snapshot:
    found = read_snapshot(store, owner, name)
    assert found is not None
    return found


def same(one: Store, other: Store, *names: str, owner: str = "") -> bool:
    return all(whole(one, name, owner).comparison_key() == whole(other, name, owner).comparison_key() for name in names)


@pytest.mark.parametrize(("one", "other"), [*product(KINDS, repeat=2)])
def test_a_copy_is_complete_between_any_two_stores(one: str, other: str, make: Make) -> None:
    source, target = make(one), make(other)
    fill(source)
    done = Archive(source).copy_to(target)
    assert sorted((each.id, each.how) for each in done.conversations) == [("lesson", "new"), ("short", "new")]
    there, here = Archive(target), Archive(source)
    for name in ("lesson", "short"):
        assert there.talk(name) == here.talk(name)
        assert there.history(name) == here.history(name)
        assert there.metrics(name) == here.metrics(name)
        assert there.meta(name) == here.meta(name)
        assert there.branches(name) == here.branches(name)
        for branch in here.branches(name):
            heads = [store.head("", name, branch) for store in (source, target)]
            records, updated = zip(*[(head and head.records, head and head.updated) for head in heads], strict=True)
            assert records[0] == records[1]
            assert updated[0] == updated[1]
        there.verify(name)
    assert target.keyed_turns("", "lesson") == source.keyed_turns("", "lesson")
    assert len(target.keyed_turns("", "lesson")) == 4
    assert [each.updated for each in there.conversations()] == [each.updated for each in here.conversations()]
    assert [each.created for each in there.conversations()] == [each.created for each in here.conversations()]


def test_a_key_still_gives_the_same_answer(make: Make) -> None:
    source, target = make("sqlite"), make("jsonl")
    fill(source)
    Archive(source).copy_to(target)
    nobody = Scripted()
    reply = Conversation("short", model=nobody, store=target, policy=Economy()).send("y", key="k")
    assert (reply.text, nobody.requests) == ("b", [])


@pytest.mark.parametrize("kind", KINDS)
def test_again_changes_nothing(kind: str, make: Make) -> None:
    source, target = make("sqlite"), make(kind)
    fill(source)
    Archive(source).copy_to(target)
    before = [target.branches("", name) for name in ("lesson", "short")]
    assert {each.how for each in Archive(source).copy_to(target).conversations} == {"here"}
    assert [target.branches("", name) for name in ("lesson", "short")] == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_copy_adds_what_is_new(kind: str, make: Make) -> None:
    source, target = make("sqlite"), make(kind)
    fill(source)
    Archive(source).copy_to(target)
    talk = Conversation("short", model=Scripted(*[says("c")] * 9), store=source, policy=Economy())
    talk.send("z", key="later")
    talk.edit(talk.history()[0].id, "w")
    talk.set_metadata({"title": "Short"})
    talk.set_metadata({"n": 1}, entry=talk.history()[0].id)
    done = Archive(source).copy_to(target)
    assert sorted((each.id, each.how) for each in done.conversations) == [("lesson", "here"), ("short", "grown")]
    assert same(source, target, "lesson", "short")


def test_a_conversation_that_continued_in_both_stores_is_skipped(make: Make) -> None:
    source, target = make("sqlite"), make("jsonl")
    fill(source)
    Archive(source).copy_to(target)
    Conversation("short", model=Scripted(says("there")), store=target).send("there?")
    assert {each.how for each in Archive(source).copy_to(target).conversations} == {"here"}
    Conversation("short", model=Scripted(says("here")), store=source).send("here?")
    before = whole(target, "short").comparison_key()
    done = Archive(source).copy_to(target)
    assert [(each.id, "that the source store lacks" in each.why) for each in done.left] == [("short", True)]
    assert whole(target, "short").comparison_key() == before


def test_metadata_added_only_in_the_target_stays(make: Make) -> None:
    source, target = make("sqlite"), make("sqlite")
    fill(source)
    there = Archive(target)
    Archive(source).copy_to(target)
    there.set_metadata("short", {"title": "Mine"})
    there.set_metadata("short", {"starred": True}, entry=there.history("short")[1].id)
    for _ in range(2):
        done = Archive(source).copy_to(target)
        assert (done.count("here"), done.left) == (2, [])
        assert there.meta("short") == {"title": "Mine"}
        assert there.history("short")[1].meta == {"starred": True}
    Conversation("short", model=Scripted(says("c")), store=source, policy=Economy()).send("z")
    done = Archive(source).copy_to(target)
    assert [each.id for each in done.left] == ["short"]
    assert there.meta("short") == {"title": "Mine"}


@pytest.mark.parametrize("kind", KINDS)
def test_branches_that_end_the_same_turn_in_two_ways_stay_apart(kind: str, make: Make) -> None:
    def look(at: str) -> str:
        """Look at something."""
        return f"about {at}"

    source, target = make(kind), make(kind)
    calls = says(calls=[("one", "look", {"at": "a"}), ("two", "look", {"at": "b"})])
    talk = Conversation("c", model=Scripted(calls, says("Done."), says("Well.")), store=source, tools=[look])
    talk.send("Look.")
    first_result = next(entry for entry in talk.history() if entry.role == "tool")
    # The second result is not on this branch, so the call is closed there, by an entry with the same number.
    talk.fork(at=first_result.id, name="aside").send("And now?")
    Archive(source).copy_to(target)
    for branch in (MAIN, "aside"):
        assert [entry.native for entry in target.read("", "c", branch, 0, 99).entries()] == [
            entry.native for entry in source.read("", "c", branch, 0, 99).entries()
        ]


def test_a_value_that_the_source_has_changed_is_changed(make: Make) -> None:
    source, target = make("memory"), make("sqlite")
    fill(source)
    Archive(source).copy_to(target)
    Archive(source).set_metadata("lesson", {"topic": "strings"})
    assert not Archive(source).copy_to(target).left
    assert Archive(target).meta("lesson") == {"topic": "strings"}


def test_a_copy_can_be_copied_back(make: Make) -> None:
    home, away = make("sqlite"), make("jsonl")
    fill(home)
    Archive(home).copy_to(away)
    Conversation("short", model=Scripted(says("c")), store=away, policy=Economy()).send("z")
    done = Archive(away).copy_to(home)
    assert (done.count("grown"), done.count("here"), done.left) == (1, 1, [])
    assert same(home, away, "lesson", "short")


def test_a_conversation_with_a_running_turn_is_skipped(make: Make) -> None:
    source, target = make("memory"), make("memory")
    fill(source)
    Archive(source).copy_to(target)
    head = target.head("", "short")
    assert head is not None
    lease = Lease(Holder("h", "b", 1, 1), 2**45, head.token + 1)
    target.write("", "short", Commit(expect=head.revision, lease=lease, at=head.updated))
    Conversation("short", model=Scripted(says("c")), store=source, policy=Economy()).send("z")
    done = Archive(source).copy_to(target)
    why = "a turn is running in the target store; try again later"
    assert [(each.id, each.why) for each in done.left] == [("short", why)]


def test_an_unreadable_conversation_does_not_stop_the_others(make: Make) -> None:
    source, target = make("memory"), make("memory")
    fill(source)

    class Damaged(StoreProxy):
        def read(self, owner: str, conversation: str, *arguments: Any) -> Any:
            if conversation == "lesson":
                raise StoreError("damaged")
            return self._store.read(owner, conversation, *arguments)

    damaged: Any = Damaged(source)
    done = Archive(damaged).copy_to(target)
    assert done.ids == ["short"]
    assert [(each.id, each.why) for each in done.left] == [("lesson", "damaged")]


def test_a_store_that_is_gone_ends_it(make: Make) -> None:
    source, target = make("memory"), make("memory")
    fill(source)

    class Gone(StoreProxy):
        def info(self, *_: Any) -> Any:
            raise StoreError("away")

        def conversations(self, *arguments: Any, **settings: Any) -> Any:
            raise StoreError("away")

    gone: Any = Gone(target)
    with pytest.raises(StoreError, match="away"):
        Archive(source).copy_to(gone)


def test_a_changed_conversation_is_not_removed(make: Make) -> None:
    target = make("sqlite")
    fill(target)
    there = whole(target, "short")
    Conversation("short", model=Scripted(says("c")), store=target, policy=Economy()).send("z")
    with pytest.raises(HeadMoved):
        remove(target, "", there)
    assert len(Archive(target).history("short")) == 6
    remove(target, "", whole(target, "short"))
    assert read_snapshot(target, "", "short") is None


def test_a_conversation_redacted_in_the_source_is_skipped_and_reported(make: Make) -> None:
    source, target = make("sqlite"), make("sqlite")
    fill(source)
    Archive(source).copy_to(target)
    Archive(source).redact("short", Archive(source).history("short")[0].id)
    done = Archive(source).copy_to(target)
    assert [(each.id, each.why) for each in done.left] == [
        (
            "short",
            "the target store has data that the source store lacks; delete the version that you don't need",
        )
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_copy_can_be_repeated_from_any_point(kind: str, make: Make) -> None:
    source = make("memory")
    fill(source)
    writes = 0
    while True:
        target = make(kind)
        dying: Any = DyingStore(target, writes)
        try:
            Archive(source).copy_to(dying)
            break
        except KeyboardInterrupt:
            done = Archive(source).copy_to(target)
            assert not done.left
            assert same(source, target, "lesson", "short")
            assert all(IMPORTING not in each.meta for each in Archive(target).conversations())
        writes += 1
    assert writes > 6


def test_an_interrupted_update_can_be_repeated_from_any_point(make: Make) -> None:
    source = make("memory")
    fill(source)
    early = make("memory")
    Archive(source).copy_to(early)
    talk = Conversation("short", model=Scripted(*[says("c")] * 9), store=source, policy=Economy())
    talk.send("z")
    talk.send("zz", key="later")
    talk.edit(talk.history()[0].id, "w")
    writes = 0
    while True:
        target = make("sqlite")
        Archive(early).copy_to(target)
        dying: Any = DyingStore(target, writes)
        try:
            Archive(source).copy_to(dying)
            break
        except KeyboardInterrupt:
            assert not Archive(source).copy_to(target).left
            assert same(source, target, "lesson", "short")
        writes += 1
    assert writes > 2


def test_some_of_them_and_those_since(make: Make) -> None:
    source = make("sqlite")
    for number in range(4):
        entry = link_entries(None, "t", 0, [make_message("x", role="user", at=1)])
        source.write("", f"talk-{number}", Commit(expect=0, entries=entry, at=1_000 + number))
    archive = Archive(source)

    def copy_conversations(*ids: str, since: int | str | None = None) -> list[str]:
        return archive.copy_to(make("memory"), ids, since=since).ids

    assert copy_conversations() == ["talk-0", "talk-1", "talk-2", "talk-3"]
    assert sorted(copy_conversations("talk-3", "talk-1", "talk-1")) == ["talk-1", "talk-3"]
    assert copy_conversations(since=1_002) == ["talk-2", "talk-3"]
    assert copy_conversations(since="talk-3") == ["talk-3"]
    assert copy_conversations("talk-0", since="talk-1") == []
    with pytest.raises(InputError, match="'nowhere' not found"):
        copy_conversations("nowhere")
    with pytest.raises(InputError, match="'nowhere' not found"):
        copy_conversations(since="nowhere")


def test_owners_stay_apart(make: Make) -> None:
    source, target = make("sqlite"), make("sqlite")
    fill(source, "ada")
    assert Archive(source).copy_to(target).conversations == ()
    assert len(Archive(source, owner="ada").copy_to(target).ids) == 2
    assert Archive(target).conversations() == []


def test_a_store_is_not_copied_to_itself(tmp_path: Path) -> None:
    one, other = SQLite(tmp_path / "a.db"), SQLite(tmp_path / "a.db")
    for store in (one, other):
        with pytest.raises(InputError, match="are the same store"):
            Archive(one).copy_to(store)
    one.close()
    other.close()


def test_an_incompletely_imported_conversation_is_skipped(make: Make) -> None:
    source, target = make("memory"), make("memory")
    source.write("", "half", Commit(expect=0, at=1, meta={IMPORTING: "x"}))
    done = Archive(source).copy_to(target)
    assert "its import into the source store is not complete" in done.left[0].why


def test_the_copy_is_read_back_and_compared(make: Make) -> None:
    source = make("memory")
    fill(source)

    class Forgets(InMemory):
        def write(self, owner: str, conversation: str, commit: Commit) -> Any:
            return super().write(owner, conversation, msgspec.structs.replace(commit, manifest=b""))

    class Rots(InMemory):
        def verify(self, owner: str, conversation: str) -> list[str]:
            return ["a checksum does not hold"]

    done = Archive(source).copy_to(Forgets())
    assert {each.why for each in done.left} == {"the copy differs from the original"}
    assert {each.why for each in Archive(source).copy_to(Rots()).left} == {"a checksum does not hold"}


def test_a_copy_that_differs_after_an_update_is_rewritten(make: Make) -> None:
    source = make("memory")
    fill(source)

    class Slips(InMemory):
        slips = False

        def write(self, owner: str, conversation: str, commit: Commit) -> Any:
            if self.slips and commit.manifest:
                self.slips = False
                commit = msgspec.structs.replace(commit, manifest=b"")
            return super().write(owner, conversation, commit)

    target = Slips()
    Archive(source).copy_to(target)
    Conversation("short", model=Scripted(says("c")), store=source, policy=Economy()).send("z")
    target.slips = True
    done = Archive(source).copy_to(target)
    assert (done.left, target.slips) == ([], False)
    assert same(source, target, "lesson", "short")


def test_a_conversation_created_at_the_same_time_is_skipped(make: Make) -> None:
    source, target = make("memory"), make("memory")
    fill(source)

    class Hasty(StoreProxy):
        def write(self, owner: str, conversation: str, commit: Commit) -> Any:
            if conversation == "short" and commit.meta:
                self._store.write(owner, conversation, Commit(expect=0, at=1))
            return self._store.write(owner, conversation, commit)

    hasty: Any = Hasty(target)
    done = Archive(source).copy_to(hasty)
    assert [(each.id, each.why) for each in done.left] == [
        ("short", "another process is writing to it; try again later")
    ]


def test_a_conversation_deleted_during_the_copy_is_ignored(make: Make) -> None:
    source, target = make("memory"), make("memory")
    fill(source)

    class Forgetful(StoreProxy):
        def info(self, owner: str, conversation: str) -> Any:
            if conversation == "short":
                self._store.delete(owner, conversation)
            return self._store.info(owner, conversation)

    forgetful: Any = Forgetful(source)
    done = Archive(forgetful).copy_to(target)
    assert done.ids == ["lesson"]
    assert done.left == []


def fork_at_each_message(store: Store, forks: int) -> None:
    """Make a conversation in which a branch forks off after each turn."""
    talk = Conversation("c", model=Scripted(*[says("Good.")] * (2 * forks)), store=store)
    replies = [talk.send(f"Message {i}") for i in range(forks)]
    for i, reply in enumerate(replies):
        talk.fork(reply.turn_id, name=f"branch {i}").send("Another one")


def test_the_statements_for_a_copy_grow_with_the_number_of_branches(make: Make) -> None:
    counts: list[int] = []
    for forks in (10, 20, 40):
        source, target = make("memory"), make("sqlite")
        fork_at_each_message(source, forks)
        statements: list[object] = []
        assert isinstance(target, SQLite)
        db: Any = target._file.db
        db.trace_v2(apsw.SQLITE_TRACE_STMT, statements.append)
        assert Archive(source).copy_to(target).count("new") == 1
        db.trace_v2(0, None)
        counts.append(len(statements))
    assert counts[2] - counts[1] < 2.2 * (counts[1] - counts[0])


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_copy_to_a_server_and_back_is_complete(kind: str, make: Make, tmp_path: Path) -> None:
    source, back = make("sqlite"), make("sqlite")
    fill(source)
    made = {
        "postgres": lambda: postgres_server.open_at(tmp_path / "server"),
        "redis": lambda: Redis(redis_server.single().url, prefix=new_id()),
    }
    with closing(made[kind]()) as server:
        done = Archive(source).copy_to(server)
        assert (done.count("new"), done.left) == (2, [])
        assert Archive(server).copy_to(back).count("new") == 2
        assert same(source, server, "lesson", "short")
        assert same(source, back, "lesson", "short")
        assert Archive(source).copy_to(server).count("here") == 2


@pytest.mark.anyio
async def test_the_async_archive_copies_too(make: Make) -> None:
    source, target = make("sqlite"), make("jsonl")
    fill(source)
    assert len((await AsyncArchive(source).copy_to(target)).ids) == 2
    assert same(source, target, "lesson", "short")


def test_a_running_turn_is_copied_without_its_lease(make: Make) -> None:
    source, target = make("sqlite"), make("sqlite")
    lease = Lease(Holder("host", "boot", 1, 2), until=2**45, token=7)
    entries = link_entries(None, "t", 0, [make_message("x", role="user", at=1)])
    source.write("", "c", Commit(expect=0, entries=entries, turn=Turn("t", "running", "m", 1), lease=lease, at=5))
    assert Archive(source).copy_to(target).ids == ["c"]
    head = target.head("", "c")
    assert head is not None
    assert (head.lease, head.turn and head.turn.status, head.updated) == (None, "running", 5)
    more = link_entries("t-0", "t", 1, [make_message("y", role="assistant", at=2)])
    source.write("", "c", Commit(expect=1, entries=more, turn=Turn("t", "complete", "m", 1, 2), at=6))
    assert [each.how for each in Archive(source).copy_to(target).conversations] == ["grown"]
    assert same(source, target, "c")


def test_a_fork_that_is_added_sees_no_more_records_than_its_original(make: Make) -> None:
    source, target = make("sqlite"), make("jsonl")
    entries = link_entries(None, "t", 0, [make_message(text, role="user", at=1) for text in "xy"])
    source.write("", "c", Commit(expect=0, entries=entries, at=1))
    source.write("", "c", Commit(branch="aside", expect=0, source=(MAIN, 0), at=2))
    epoch = PlacedRecord(Record("epoch", "", 3, b'{"n":1}'), -1)
    source.write("", "c", Commit(expect=1, records=(epoch,), at=3))
    assert Archive(source).copy_to(target).count("new") == 1
    source.write("", "c", Commit(branch="later", expect=0, source=(MAIN, 1), at=4))
    assert [each.how for each in Archive(source).copy_to(target).conversations] == ["grown"]
    assert list(target.records("", "c", "later")) == list(source.records("", "c", "later")) == []
    assert same(source, target, "c")


# Arbitrary conversations


class Drawn:
    """Random commits, drawn by Hypothesis, on a conversation in a store."""

    def __init__(self, data: st.DataObject, store: Store) -> None:
        self.draw = data.draw
        self.store = store
        self.turns = count()
        self.clock = count(1_000, 10)

    def step(self) -> None:
        heads = self.store.branches("", "c")
        names = [head.branch for head in heads]
        branch = self.draw(st.sampled_from([*names, f"branch-{len(names)}"])) if names else MAIN
        head = next((head for head in heads if head.branch == branch), None)
        source, size = None, head.size if head else 0
        if head is None and heads:
            origin = self.draw(st.sampled_from(heads))
            source = origin.branch, self.draw(st.integers(0, origin.size))
            size = source[1]
        name = f"t{next(self.turns)}"
        texts = ["q", "a"][: self.draw(st.integers(0, 2))]
        parent = self._last(source or (branch, size))
        roles = ("user", "assistant")
        entries = link_entries(
            parent, name, 0, [make_message(text, role=roles[i], at=5) for i, text in enumerate(texts)]
        )
        kept = self.draw(st.booleans()) and bool(entries)
        places = st.integers(-1, size + len(entries) - 1)
        kinds = st.sampled_from(["summary", "quirks", "epoch", "memory", "anchor", "meter", "attempt"])
        records = tuple(
            PlacedRecord(Record(self.draw(kinds), "e", next(self.clock), b'{"n":%d}' % i), self.draw(places))
            for i in range(self.draw(st.integers(0, 2)))
        )
        self.store.write(
            "",
            "c",
            Commit(
                branch=branch,
                expect=head.revision if head else 0,
                source=source,
                entries=entries,
                turn=Turn(name, "complete", "m", 1) if kept else None,
                manifest=b'{"m":1}' if kept and self.draw(st.booleans()) else b"",
                request=KeyedRequest(f"key-{name}", "body") if kept and self.draw(st.booleans()) else None,
                records=records,
                meta={"n": next(self.clock)} if self.draw(st.booleans()) else None,
                entry_meta={0: {"m": 1}} if entries and self.draw(st.booleans()) else {},
                at=next(self.clock),
            ),
        )

    def _last(self, end: tuple[str, int]) -> str | None:
        pack = self.store.read("", "c", end[0], 0, end[1])
        return list(pack.entries())[-1].id if end[1] else None


@holds(st.data(), few=30, many=400)
def test_any_conversation_is_the_same_in_another_store(data: st.DataObject) -> None:
    source, target = InMemory(), SQLite(":memory:")
    drawn = Drawn(data, source)
    for _ in range(data.draw(st.integers(1, 9))):
        drawn.step()
    done = Archive(source).copy_to(target)
    assert not done.left, done.left
    back = InMemory()
    assert not Archive(target).copy_to(back).left
    assert same(source, back, "c")
    for head in source.branches("", "c"):
        one, other = (store.head("", "c", head.branch) for store in (source, back))
        assert one is not None
        assert other is not None
        assert _newest(one.records) == _newest(other.records)
    target.close()


def _newest(records: tuple[PlacedRecord, ...]) -> dict[str, PlacedRecord]:
    return {
        placed.record.kind: placed
        for placed in records
        if kind_of(placed.record.kind).newest_only and placed.record.data != b"{}"
    }


@holds(st.data(), few=25, many=300)
def test_any_conversation_that_grows_is_added_to(data: st.DataObject) -> None:
    source, target = InMemory(), SQLite(":memory:")
    drawn = Drawn(data, source)
    drawn.step()
    for _ in range(data.draw(st.integers(1, 4))):
        assert not (left := Archive(source).copy_to(target).left), left
        for _ in range(data.draw(st.integers(1, 3))):
            drawn.step()
    done = Archive(source).copy_to(target)
    assert not done.left, done.left
    assert same(source, target, "c")
    target.close()
