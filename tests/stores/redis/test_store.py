"""The Redis store: the conformance suite on a single server and on a cluster, and further tests, on real servers."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import anyio
import msgspec
import pytest
import redis as library
from hypothesis import strategies as st

from longtalk import AsyncConversation, Conversation
from longtalk.errors import InputError
from longtalk.memory.recall.protocol import SearchTerm
from longtalk.stores import open_store
from longtalk.stores.base import (
    MAIN,
    BranchHead,
    Commit,
    HeadMoved,
    Holder,
    KeyedRequest,
    Lease,
    PlacedRecord,
    RequestKeyTaken,
)
from longtalk.stores.in_memory import InMemory
from longtalk.stores.redis import lists as redis_lists
from longtalk.stores.redis import search as redis_search
from longtalk.stores.redis import tree_reader
from longtalk.stores.redis.address import ServerAddress
from longtalk.stores.redis.connection import Client
from longtalk.stores.redis.scripts import PARTS
from longtalk.stores.redis.store import NotReplicated, Redis, StoreError
from longtalk.stores.redis.tree import Keys
from longtalk.testing import AsyncScripted, Scripted, says
from longtalk.testing.stores.harness import ConversationDriver
from longtalk.testing.stores.suite import CASES, Case
from longtalk.transcript.pack import Entry
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import Record, Turn, link_entries, new_id
from longtalk.transfer.copy import copy_conversations
from tests.support import redis_server
from tests.support.matrix import thin
from tests.support.properties import holds

# The threads of the forked processes do nothing.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

ME = "me"
KINDS = thin(["single", "cluster"], "single")


class Store(Redis):
    """A Redis store that can be opened again with the same settings."""

    def __init__(self, url: str, prefix: str, **settings: Any) -> None:
        super().__init__(url, prefix=prefix, **settings)
        self.url_and_prefix = url, prefix

    def again(self, **settings: Any) -> Store:
        return Store(*self.url_and_prefix, **settings)


def open_on(kind: str, **settings: Any) -> Store:
    server = redis_server.single() if kind == "single" else redis_server.cluster()
    return Store(server.url, f"test-{new_id()}", **settings)


def reopen(store: Any) -> Store:
    store.close()
    again: Store = store.again()
    return again


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with closing(open_on(request.param)) as store:
        yield store


@pytest.fixture
def alone() -> Iterator[Store]:
    with closing(open_on("single")) as store:
        yield store


def list_keys(store: Store) -> set[bytes]:
    """Return all keys of a store, from all servers."""
    url, prefix = store.url_and_prefix
    server = redis_server.single() if url == redis_server.single().url else redis_server.cluster()
    return {key for key in server.all_keys() if key.startswith(prefix.encode())}


def connect() -> Any:
    return redis_server.single().client()


def say(store: Redis, talk: str, *texts: str, **fields: Any) -> BranchHead:
    return ConversationDriver(store, ME, talk).say(*texts, **fields)


def texts(store: Redis, talk: str, branch: str = MAIN) -> list[str]:
    return ConversationDriver(store, ME, talk).texts(branch)


def slow(case: Case) -> Any:
    """Mark a case that makes very many calls as slow."""
    marks = [pytest.mark.slow] if case.name.startswith("an_interrupted_call") else []
    return pytest.param(case, marks=marks, id=case.name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", [slow(case) for case in CASES])
def test_suite(case: Case, kind: str) -> None:
    case.run(lambda: open_on(kind), reopen=reopen)


# Turns


@pytest.mark.parametrize("kind", KINDS)
def test_a_conversation_continues_in_another_store_object(kind: str) -> None:
    with closing(open_on(kind)) as store:
        Conversation("c", model=Scripted(says("Hi Ada.")), store=store).send("I am Ada.")
        with closing(store.again()) as other:
            again = Conversation("c", model=(model := Scripted(says("Ada."))), store=other)
            assert again.send("Who am I?").text == "Ada."
            assert b"I am Ada." in model.requests[0]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_tasks_can_use_one_store_concurrently(kind: str) -> None:
    with closing(open_on(kind)) as store:

        async def hold(name: str) -> None:
            talk = AsyncConversation(name, model=AsyncScripted(says("one"), says("two")), store=store)
            assert [(await talk.send(f"{name} {i}")).text for i in range(2)] == ["one", "two"]

        async with anyio.create_task_group() as group:
            for i in range(8):
                group.start_soon(hold, f"c{i}")
        assert len(store.conversations("")) == 8


def count_trips(store: Redis, work: Callable[[], object]) -> int:
    before = store._client.trips
    work()
    return store._client.trips - before


def test_a_turn_takes_two_round_trips_however_long_the_conversation_is(store: Store) -> None:
    talk = Conversation("c", model=Scripted(*[says("x")] * 40), store=store)
    talk.send("first")
    assert [count_trips(store, lambda: talk.send("more")) for _ in range(30)] == [2] * 30


def test_a_cold_turn_takes_four_round_trips(store: Store) -> None:
    Conversation("c", model=Scripted(says("x")), store=store).send("first")
    with closing(store.again()) as other:
        other.head("", "nowhere")
        talk = Conversation("c", model=Scripted(says("x")), store=other)
        assert count_trips(other, lambda: talk.send("more")) == 4


def test_a_read_takes_one_round_trip_for_one_segment_and_four_for_several(store: Store) -> None:
    say(store, "t", "a", "b", "c")
    assert count_trips(store, lambda: store.read(ME, "t", MAIN, 0, 3)) == 1
    say(store, "t", "d", branch="fork", source=(MAIN, 2))
    assert count_trips(store, lambda: store.read(ME, "t", "fork", 2, 3)) == 1
    assert count_trips(store, lambda: store.read(ME, "t", "fork", 0, 3)) == 4
    assert count_trips(store, lambda: store.read(ME, "t", "fork", 0, 2)) == 4


def fork_often(store: Store) -> None:
    """Write a conversation with so many branches that its tree is kept."""
    say(store, "talk", "one", "two")
    for i in range(tree_reader.MANY_BRANCHES):
        ConversationDriver(store, ME, "talk").write(f"b{i}", source=(MAIN, 1))


def test_the_tree_of_many_branches_is_read_once_for_all_of_them(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fork_often(store)
    trees: list[object] = []
    decode = tree_reader.decode_tree
    monkeypatch.setattr(tree_reader, "decode_tree", lambda fields: trees.append(fields) or decode(fields))
    with closing(store.again()) as reader:
        assert [texts(reader, "talk", f"b{i}") for i in range(tree_reader.MANY_BRANCHES)] == [
            ["one"]
        ] * tree_reader.MANY_BRANCHES
    assert len(trees) == 1


def test_a_tree_that_was_kept_is_read_again_when_another_store_object_has_changed_it(store: Store) -> None:
    fork_often(store)
    with closing(store.again()) as reader:
        assert texts(reader, "talk", "b3") == ["one"]
        say(store, "talk", "three", branch="b3")
        assert texts(reader, "talk", "b3") == ["one", "three"]


def test_branches_show_a_lease_that_was_renewed_after_the_tree_was_kept(store: Store) -> None:
    fork_often(store)
    lease = Lease(Holder("a host", "a boot", 7, 8), 1_000, 1)
    ConversationDriver(store, ME, "talk").write("b3", lease=lease)
    with closing(store.again()) as reader:
        texts(reader, "talk", "b4")
        assert store.renew(ME, "talk", "b3", 1, 2_000)
        assert [head.lease.until for head in reader.branches(ME, "talk") if head.lease] == [2_000]


def test_a_server_that_has_lost_its_scripts_gets_them_again(alone: Store) -> None:
    say(alone, "t", "a")
    with connect() as server:
        server.script_flush()
    say(alone, "t", "b")
    assert texts(alone, "t") == ["a", "b"]


# Lost replies


class LostReplies:
    """A client that loses replies after the server has executed the commands."""

    def __init__(self, store: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
        self._send = store._client._send
        self._word: str | None = None
        self.lost = 0
        monkeypatch.setattr(store._client, "_send", self)

    def lose_next(self, word: str) -> None:
        """Lose the next reply to a batch that contains this word."""
        self._word = word

    def __call__(self, node: Any, commands: Any, **how: Any) -> Any:
        replies = self._send(node, commands, **how)
        said = " ".join(str(getattr(command.name, "text", command.name)) for command in commands)
        if self._word is None or self._word not in said or any(isinstance(reply, Exception) for reply in replies):
            return replies
        self._word = None
        self.lost += 1
        raise library.ConnectionError("gone")


@pytest.fixture
def lost(store: Store, monkeypatch: pytest.MonkeyPatch) -> LostReplies:
    return LostReplies(store, monkeypatch)


def test_a_commit_whose_reply_is_lost_is_applied_once(store: Store, lost: LostReplies) -> None:
    say(store, "t", "a")
    lost.lose_next("RPUSH")
    head = say(store, "t", "b", request=KeyedRequest("k", "b"))
    assert (lost.lost, head.revision, head.size) == (1, 2, 2)
    assert store.head(ME, "t") == head
    assert texts(store, "t") == ["a", "b"]


def test_a_first_commit_whose_reply_is_lost_is_applied_once(store: Store, lost: LostReplies) -> None:
    lost.lose_next("RPUSH")
    assert say(store, "t", "a").revision == 1
    assert (lost.lost, texts(store, "t")) == (1, ["a"])


def test_a_fork_whose_reply_is_lost_is_applied_once(store: Store, lost: LostReplies) -> None:
    say(store, "t", "a", "b")
    lost.lose_next("while at < #ARGV")
    head = say(store, "t", "c", branch="fork", source=(MAIN, 1))
    assert (lost.lost, head.revision, head.size) == (1, 1, 2)
    assert texts(store, "t", "fork") == ["a", "c"]
    assert store.verify(ME, "t") == []


def test_a_commit_after_one_whose_reply_was_lost_is_noticed_by_the_next(store: Store, lost: LostReplies) -> None:
    say(store, "t", "a")
    with closing(store.again()) as other:
        send = lost._send

        def then(*args: Any, **how: Any) -> Any:
            lost._send = send
            replies = send(*args, **how)
            say(other, "t", "theirs")
            return replies

        talk = ConversationDriver(store, ME, "t")
        fields = talk.make_turn(talk.find_parent(), "mine")
        lost.lose_next("RPUSH")
        lost._send = then
        head = store.write(ME, "t", Commit(expect=1, at=1, **fields))
        assert (lost.lost, head.revision) == (1, 2)
        assert texts(store, "t") == ["a", "mine", "theirs"]
        with pytest.raises(HeadMoved):
            store.write(ME, "t", Commit(expect=head.revision, at=1))


def test_a_deletion_whose_reply_is_lost_returns_a_receipt(store: Store, lost: LostReplies) -> None:
    say(store, "t", "a", "b")
    lost.lose_next("while at < #ARGV")
    receipt = store.delete(ME, "t")
    assert receipt is not None
    assert (lost.lost, receipt.entries, store.head(ME, "t"), list_keys(store)) == (1, 2, None, set())


def test_a_deletion_that_is_retried_spares_a_new_conversation_with_the_same_id(store: Store, lost: LostReplies) -> None:
    say(store, "t", "a", "b")
    with closing(store.again()) as other:
        send = lost._send

        def then(*args: Any, **how: Any) -> Any:
            replies = send(*args, **how)
            said = any("while at < #ARGV" in str(getattr(each.name, "text", "")) for each in args[1])
            if said and not any(isinstance(reply, Exception) for reply in replies):
                lost._send = send
                say(other, "t", "new")
            return replies

        lost.lose_next("while at < #ARGV")
        lost._send = then
        receipt = store.delete(ME, "t")
        assert receipt is not None
        assert (lost.lost, receipt.entries) == (1, 2)
        assert texts(store, "t") == ["new"]


def test_an_unknown_setting_in_the_address_is_named() -> None:
    with pytest.raises(InputError, match=r"an unknown setting: .*bogus"):
        Redis("redis://ada:s3cret@localhost:1/0?bogus=1")


def test_an_id_must_be_valid_unicode(store: Store) -> None:
    with pytest.raises(InputError, match="not valid Unicode"):
        store.head(ME, "\ud800")


def test_a_redaction_whose_reply_is_lost_is_applied(store: Store, lost: LostReplies) -> None:
    say(store, "t", "secret", "b")
    lost.lose_next("while at < #ARGV")
    assert store.redact(ME, "t", ConversationDriver(store, ME, "t").entries()[0].id, b'{"content":"-"}')
    assert (lost.lost, texts(store, "t")) == (1, ["-", "b"])


# Replicas


def test_a_commit_that_too_few_replicas_acknowledge_is_reported_as_written() -> None:
    with closing(open_on("cluster")) as store, closing(store.again(replicas=2, wait_ms=20)) as careful:
        say(store, "t", "a")
        talk = ConversationDriver(careful, ME, "t")
        fields = talk.make_turn(talk.find_parent(), "b")
        commit = Commit(expect=1, at=1, request=KeyedRequest("k", "b"), **fields)
        with pytest.raises(NotReplicated, match="was written"):
            careful.write(ME, "t", commit)
        assert texts(store, "t") == ["a", "b"]
        # A retry doesn't write a second turn.
        with pytest.raises(HeadMoved):
            careful.write(ME, "t", commit)
        again = Commit(expect=2, at=1, request=KeyedRequest("k", "b"), **talk.make_turn(talk.find_parent(), "b"))
        with pytest.raises(RequestKeyTaken):
            store.write(ME, "t", again)
        with pytest.raises(NotReplicated):
            careful.describe(ME, "t", {"a": 1})
        with pytest.raises(NotReplicated, match="was not written"):
            say(careful, "new", "a")
        assert store.head(ME, "new") is None


def test_a_turn_that_was_not_replicated_continues_by_its_key() -> None:
    with closing(open_on("cluster")) as store, closing(store.again(replicas=2, wait_ms=10)) as careful:
        say(store, "t", "a")
        talk = Conversation("t", owner=ME, model=Scripted(says("hi")), store=careful)
        with pytest.raises(NotReplicated):
            talk.send("hello", key="k")
        reply = Conversation("t", owner=ME, model=Scripted(says("hi")), store=store).send("hello", key="k")
        assert (reply.text, texts(store, "t")) == ("hi", ["a", "hello", "hi"])


def test_commits_work_the_same_if_replicas_acknowledge_them() -> None:
    with closing(open_on("cluster", replicas=1)) as store:
        say(store, "t", "a", "b")
        say(store, "t", "c", branch="fork", source=(MAIN, 1))
        assert store.renew(ME, "t", MAIN, 1, 1) is False
        assert texts(store, "t", "fork") == ["a", "c"]


@pytest.mark.parametrize("word", ["WAIT cannot be used with replica instances.", "UNBLOCKED force unblock"])
def test_a_commit_is_written_again_if_its_master_becomes_a_replica(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    with closing(open_on("cluster", replicas=1)) as store:
        talk = ConversationDriver(store, ME, "t")
        talk.say("a")
        send = store._client._send

        def lost(node: Any, commands: Any, **how: Any) -> Any:
            monkeypatch.setattr(store._client, "_send", send)
            return [b"whatever it says", library.ResponseError(word)]

        commit = Commit(expect=1, at=1, **talk.make_turn(talk.find_parent(), "b"))
        monkeypatch.setattr(store._client, "_send", lost)
        assert store.write(ME, "t", commit).size == 2
        assert talk.texts() == ["a", "b"]


# Lists


def test_quiet_conversations_are_settled_when_many_are_hot(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_lists, "MAX_HOT", 2)
    for i, at in enumerate((30, 10, 50, 20, 40)):
        say(store, f"c{i}", "a", at=at)
    wanted = ["c2", "c4", "c0", "c3", "c1"]
    assert [each.id for each in store.conversations(ME)] == wanted
    listed, hot = store._lists._get_keys(ME)
    assert store._client.read(_command("ZCARD", listed), _command("HLEN", hot)) == [5, 0]
    assert [each.id for each in store.conversations(ME)] == wanted
    assert [each.id for each in store.conversations(ME, after=(40, "c4"))] == wanted[2:]
    say(store, "c1", "b", at=60)
    say(store, "c3", "b", branch="x", source=(MAIN, 1), at=55)
    assert [each.id for each in store.conversations(ME)] == ["c1", "c3", "c2", "c4", "c0"]
    assert [each.id for each in store.conversations(ME)] == ["c1", "c3", "c2", "c4", "c0"]
    for name in wanted:
        store.delete(ME, name)
    assert list_keys(store) == set()


def get_key(keys: Keys, part: str) -> bytes:
    """Return the key of a conversation that ends with this part."""
    return dict(zip(PARTS, keys.all, strict=True))[part]


def _command(name: str, key: bytes, *arguments: Any) -> Any:
    from longtalk.stores.redis.command import Command

    return Command(name, arguments, [key])


def test_a_conversation_that_is_settled_during_a_commit_stays_on_the_list(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is settled after the writer has put the conversation on it and before the commit."""
    monkeypatch.setattr(redis_lists, "MAX_HOT", 0)
    say(store, "t", "a", at=10)
    store.conversations(ME)
    heat = store._lists.mark_hot

    def and_settle(owner: str, id: str) -> bytes:  # noqa: A002
        nonce = heat(owner, id)
        with closing(store.again()) as other:
            other.conversations(ME)
        monkeypatch.setattr(store._lists, "mark_hot", heat)
        return nonce

    for fields in ({}, {"branch": "fork", "source": (MAIN, 1)}):
        monkeypatch.setattr(store._lists, "mark_hot", and_settle)
        say(store, "t", "b", at=20, **fields)
        say(store, "other", "x", at=15)
        assert [(each.id, each.updated) for each in store.conversations(ME)] == [("t", 20), ("other", 15)]


def test_a_conversation_that_was_never_created_is_not_listed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store._lists.mark_hot(ME, "never")
    say(store, "t", "a")
    monkeypatch.setattr(redis_lists, "MAX_HOT", 0)
    assert [each.id for each in store.conversations(ME)] == ["t"]
    assert "never" in store._lists.list_ids(ME)
    monkeypatch.setattr(redis_lists, "LOST_MS", -1)
    assert [each.id for each in store.conversations(ME)] == ["t"]
    assert store._lists.list_ids(ME) == ["t"]


def test_many_conversations_are_listed_page_by_page(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_lists, "PAGE", 3)
    monkeypatch.setattr(redis_lists, "MAX_HOT", 5)
    names = [f"c{i:02}" for i in range(14)]
    for name in names:
        store.write(ME, name, Commit(expect=0, at=7))
    for _ in range(2):
        listed: list[str] = []
        after = None
        while page := store.conversations(ME, limit=4, after=after):
            listed += [each.id for each in page]
            after = page[-1].updated, page[-1].id
        assert listed == names


# Searches


def test_a_search_reads_only_new_entries(store: Store) -> None:
    say(store, "t", "one lighthouse", "b")
    assert [hit.position for hit in store.candidates(ME, ["lighthouse"], 9)] == [0]
    say(store, "t", "a lighthouse more")
    kept = store._texts._conversations[Keys(store.url_and_prefix[1], ME, "t").tag]
    before = kept.segments[1][0]
    assert sorted(hit.position for hit in store.candidates(ME, ["lighthouse"], 9, conversation="t")) == [0, 2]
    assert kept.segments[1][0] is before


def test_a_search_notices_redactions_and_replacements_by_another_process(store: Store) -> None:
    say(store, "t", "secret", "b")
    assert store.candidates(ME, ["secret"], 9)
    with closing(store.again()) as other:
        other.redact(ME, "t", ConversationDriver(other, ME, "t").entries()[0].id, b'{"content":"-"}')
        assert store.candidates(ME, ["secret"], 9) == []
        other.delete(ME, "t")
        say(other, "t", "fresh", "c")
        assert store.candidates(ME, ["b"], 9) == []
        assert store.matches(ME, "t", MAIN, [SearchTerm(("fresh",))], 9)[0].positions == (0,)


def test_the_text_cache_is_bounded(alone: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_search, "MAX_CHARACTERS", 2_000)
    for i in range(6):
        say(alone, f"t{i}", f"word{i} " + "x" * 400)
    assert len(alone.candidates(ME, [f"word{i}" for i in range(6)], 9)) == 6
    assert sum(talk.size for talk in alone._texts._conversations.values()) <= 2_000


def test_a_search_in_a_conversation_that_is_deleted_meanwhile_finds_nothing(
    alone: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(alone, "t", "a lighthouse")
    tree = alone._read_tree

    def and_delete(keys: Keys) -> Any:
        found = tree(keys)
        monkeypatch.setattr(alone, "_read_tree", tree)
        with closing(alone.again()) as other:
            other.delete(ME, "t")
        return found

    monkeypatch.setattr(alone, "_read_tree", and_delete)
    assert alone.candidates(ME, ["lighthouse"], 9, conversation="t") == []


# Reading while it changes


def test_a_conversation_that_is_replaced_while_it_is_read_is_not_mixed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(where: Redis, text: str) -> None:
        say(where, "t", text, text, entry_meta={0: {text: 1}}, request=KeyedRequest("k", text), manifest=b"{}")
        say(where, "t", text, branch="fork", source=(MAIN, 1), request=KeyedRequest(f"k {text}", text))
        note = ConversationDriver(where, ME, "t").make_record("brief", text, 0)
        ConversationDriver(where, ME, "t").write("fork", records=(note,))

    fill(store, "old")
    tree = store._read_tree

    def and_replace(keys: Keys) -> Any:
        found = tree(keys)
        monkeypatch.setattr(store, "_read_tree", tree)
        with closing(store.again()) as other:
            other.delete(ME, "t")
            fill(other, "new")
        return found

    def reading(work: Callable[[], Any]) -> Any:
        monkeypatch.setattr(store, "_read_tree", and_replace)
        return work()

    for work in (
        lambda: texts(store, "t", "fork"),
        lambda: list(store.metas(ME, "t", "fork", 0, 9)[0]),
        lambda: [each.record.data.decode() for each in store.records(ME, "t", "fork")],
        lambda: [store.keyed_turn(ME, "t", "k").request.body],  # type: ignore[union-attr]
    ):
        assert set(reading(work)) == {"new"}
    assert reading(lambda: store.keyed_turn(ME, "t", "k old")) is None
    turns = reading(lambda: store.turns(ME, "t", "fork", 0, 9))
    assert turns == store.turns(ME, "t", "fork", 0, 9)
    assert len(turns) == 2
    heads = reading(lambda: store.branches(ME, "t"))
    assert heads == store.branches(ME, "t")
    assert all(head.turn for head in heads)


# Removing


def test_a_deletion_leaves_no_key_on_any_node(store: Store) -> None:
    say(store, "t", "a", "b", meta={"a": 1}, entry_meta={0: {"b": 1}}, request=KeyedRequest("k", "b"), manifest=b"{}")
    say(store, "t", "c", branch="fork", source=(MAIN, 1))
    ConversationDriver(store, ME, "t").write(records=(ConversationDriver(store, ME, "t").make_record("brief", "x", 1),))
    assert len(list_keys(store)) > 8
    store.delete(ME, "t")
    assert list_keys(store) == set()
    assert store.delete(ME, "t") is None


def test_a_redaction_leaves_no_byte_on_any_node(store: Store) -> None:
    secret = "xq7hunter2zk"
    say(store, "t", secret, "b", entry_meta={0: {secret: 1}})
    say(store, "t", "c", branch="fork", source=(MAIN, 1))
    ConversationDriver(store, ME, "t").write(
        records=(ConversationDriver(store, ME, "t").make_record("brief", secret, 1),)
    )
    assert any(secret.encode() in value for value in dump_values(store))
    store.redact(ME, "t", ConversationDriver(store, ME, "t").entries()[0].id, b'{"content":"-"}')
    assert not any(secret.encode() in value for value in dump_values(store))


def dump_values(store: Store) -> Iterator[bytes]:
    """Yield all stored values of the conversation."""
    found = Keys(store.url_and_prefix[1], ME, "t")
    for segment in range(1, 9):
        yield from store._client.read(_command("LRANGE", found.get_entries_key(segment), 0, -1))[0]
    for part in "ctmgqrhx":
        yield from store._client.read(_command("HGETALL", get_key(found, part)))[0]


# Damage


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("LSET", "s:1", 0, b"\xff"), "the entry at position 0"),
        (("LPOP", "s:1"), "entries are missing"),
        (("RPOP", "s:1"), "entries are missing"),
        (("HSET", "t", "x", b"\xff"), "turn 'x'"),
        (("HSET", "r", "1", b"\xff"), "record '1'"),
        (("HSET", "q", "k", b"0:\xff"), "request 'k'"),
        (("HSET", "c", "meta", "x"), "the conversation: metadata can't be read"),
        (("HSET", "c", "meta", "[1]"), "the conversation: metadata can't be read"),
        (("HSET", "c", "updated", "x"), "the conversation"),
        (("HSET", "x", "1:0", "x"), "the metadata of the entry at '1:0'"),
        (("HSET", "g", "t", "1:x"), "the positions of turn 't'"),
        (("ZADD", "f", 0, "1"), "the start of a turn '1'"),
        (("HSET", "h", "1", "x"), "the position of record '1'"),
        (("HSET", "h", b"\xff", "1:0:brief"), "the position of record"),
        (("HSET", "q", b"\xff", "0:x"), "request"),
        (("HDEL", "h", "1"), "records of branch 'main'"),
        (("HDEL", "r", "1"), "records of branch 'main'"),
        (("DEL", "g"), "the positions of turn"),
        (("DEL", "f"), "the positions of turn"),
        (("HSET", "c", "e:main", "t-9"), "should end with entry 't-9'"),
        (("HSET", "c", "n:main", "x"), "can't be read"),
        (("HDEL", "c", "v:main", "s:main", "born"), "can't be read"),
        (("HDEL", "c", "S:1"), "segment 1 is missing"),
        (("HSET", "c", "S:1", "1:0"), "segment 1 can't continue segment 1"),
    ],
)
def test_damage_is_found(alone: Store, change: tuple[Any, ...], problem: str) -> None:
    say(alone, "t", "a", "b", "c", request=KeyedRequest("k", "b"))
    ConversationDriver(alone, ME, "t").write(records=(ConversationDriver(alone, ME, "t").make_record("brief", "x", 1),))
    assert alone.verify(ME, "t") == []
    name, part, *arguments = change
    key = Keys(alone.url_and_prefix[1], ME, "t")
    alone._client.read(_command(name, key.get_entries_key(1) if part == "s:1" else get_key(key, part), *arguments))
    assert any(problem in each for each in alone.verify(ME, "t")), alone.verify(ME, "t")


def test_a_byte_that_has_changed_is_found(alone: Store) -> None:
    say(alone, "t", "aaaa", "b")
    key = Keys(alone.url_and_prefix[1], ME, "t")
    (value,) = alone._client.read(_command("LINDEX", key.get_entries_key(1), 0))
    alone._client.read(_command("LSET", key.get_entries_key(1), 0, value.replace(b"aaaa", b"aaab")))
    assert alone.verify(ME, "t") == ["the entry at position 0 has a wrong checksum"]


def test_a_last_byte_that_has_changed_is_found(alone: Store) -> None:
    say(alone, "t", "aaaa", "b")
    key = Keys(alone.url_and_prefix[1], ME, "t")
    (value,) = alone._client.read(_command("LINDEX", key.get_entries_key(1), 0))
    alone._client.read(_command("LSET", key.get_entries_key(1), 0, value.replace(b'aaaa"}', b'aaaa"|')))
    assert alone.verify(ME, "t") == ["the entry at position 0 has a wrong checksum"]


def test_unreadable_data_raises_an_error(alone: Store) -> None:
    say(alone, "t", "a", "b")
    say(alone, "t", "c", branch="fork", source=(MAIN, 1))
    key = Keys(alone.url_and_prefix[1], ME, "t")
    alone._client.read(_command("DEL", key.get_entries_key(1)))
    for branch in (MAIN, "fork"):
        with pytest.raises(StoreError, match="entries are missing"):
            alone.read(ME, "t", branch, 0, 9)
    alone._client.read(_command("RPUSH", key.get_entries_key(1), b"\xff", b"\xff"))
    with pytest.raises(StoreError, match="an entry can't be read"):
        alone.read(ME, "t", MAIN, 0, 9)
    alone._client.read(_command("HSET", key.conversation, "l:main", b"\xff"))
    with pytest.raises(StoreError, match="a branch can't be read"):
        alone.head(ME, "t")


def _reads(store: Store, entry: str) -> dict[str, Callable[[], object]]:
    """Return all methods that read a conversation, as functions."""
    return {
        "head": lambda: store.head(ME, "t"),
        "turns": lambda: store.turns(ME, "t", MAIN, 0, 9),
        "manifests": lambda: store.manifests(ME, "t", MAIN, 0, 9),
        "records": lambda: store.records(ME, "t", MAIN),
        "metas": lambda: store.metas(ME, "t", MAIN, 0, 9),
        "keyed_turn": lambda: store.keyed_turn(ME, "t", "k"),
        "keyed_turns": lambda: store.keyed_turns(ME, "t"),
        "branches": lambda: store.branches(ME, "t"),
        "info": lambda: store.info(ME, "t"),
        "conversations": lambda: store.conversations(ME),
        "describe": lambda: store.describe(ME, "t", {}, entry=entry),
        "redact": lambda: store.redact(ME, "t", entry, b"{}"),
        "fork": lambda: ConversationDriver(store, ME, "t").write(branch="fork", source=(MAIN, 0)),
    }


@pytest.mark.parametrize(
    ("change", "fail"),
    [
        (("HSET", "t", "TURN", b"\xff"), {"head", "turns", "keyed_turn", "keyed_turns", "branches", "redact"}),
        (("HSET", "c", "meta", "x"), {"info", "conversations"}),
        (("HSET", "c", "meta", "[1]"), {"info", "conversations"}),
        (("HSET", "c", "created", "x"), {"head", "branches", "info", "conversations", "fork"}),
        (("HSET", "c", "updated", "x"), {"info", "conversations", "fork"}),
        (("HSET", "x", "1:0", "x"), {"metas"}),
        (("HSET", "r", "1", b"\xff"), {"head", "records"}),
        (("HSET", "h", "1", "x"), {"head", "records", "redact", "fork"}),
        (("HSET", "q", "k", "x"), {"keyed_turn", "keyed_turns", "redact"}),
        (("HSET", "q", b"\xff", "x"), {"keyed_turns", "redact"}),
        (("HSET", "g", "TURN", "1:x"), {"keyed_turn", "keyed_turns", "describe", "redact"}),
        (("ZADD", "f", 0, "1"), {"turns", "manifests"}),
    ],
)
def test_damaged_data_raises_a_store_error_in_each_method(
    alone: Store, change: tuple[Any, ...], fail: set[str]
) -> None:
    head = say(alone, "t", "a", "b", request=KeyedRequest("k", "b"), manifest=b"{}")
    ConversationDriver(alone, ME, "t").write(records=(ConversationDriver(alone, ME, "t").make_record("brief", "x", 1),))
    assert head.entry is not None
    turn = head.entry.rpartition("-")[0]
    name, part, *arguments = change
    key = Keys(alone.url_and_prefix[1], ME, "t")
    arguments = [turn if each == "TURN" else each for each in arguments]
    alone._client.read(_command(name, get_key(key, part), *arguments))
    assert alone.verify(ME, "t")
    found = set()
    for way, read in _reads(alone, f"{turn}-1").items():
        try:
            read()
        except StoreError as problem:
            assert "damaged" in str(problem)
            found.add(way)
    assert found == fail


# Commits that are not simple


def test_a_plan_is_made_again_if_another_commit_was_faster(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    say(store, "t", "a", "b")
    change = store._client.change

    def and_write(*args: Any) -> Any:
        monkeypatch.setattr(store._client, "change", change)
        with closing(store.again()) as other:
            say(other, "t", "c")
        return change(*args)

    monkeypatch.setattr(store._client, "change", and_write)
    say(store, "t", "d", branch="fork", source=(MAIN, 1))
    assert (texts(store, "t"), texts(store, "t", "fork")) == (["a", "b", "c"], ["a", "d"])


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
def test_a_plan_for_a_conversation_that_is_deleted_meanwhile_raises_the_right_error(
    store: Store, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    say(store, "t", "a", "b")
    entry = ConversationDriver(store, ME, "t").entries()[0].id
    tree = store._read_tree

    def and_delete(keys: Keys) -> Any:
        found = tree(keys)
        monkeypatch.setattr(store, "_read_tree", tree)
        with closing(store.again()) as other:
            other.delete(ME, "t")
            if replaced:
                say(other, "t", "new")
        return found

    commit = Commit(branch=MAIN, expect=1, at=1, cut=1, entries=link_entries(entry, new_id(), 0, [message("c")]))
    monkeypatch.setattr(store, "_read_tree", and_delete)
    with pytest.raises(ValueError if replaced else HeadMoved):
        store.write(ME, "t", commit)
    assert store._read_tree is tree
    assert (texts(store, "t") if replaced else store.head(ME, "t")) == (["new"] if replaced else None)


def test_a_branch_that_another_store_object_cut_is_read_correctly(store: Store) -> None:
    """A store that has cached the branch reads it from there too."""
    say(store, "t", "a", "b", "c")
    with closing(store.again()) as other:
        assert texts(other, "t") == ["a", "b", "c"]
        say(store, "t", "d", "e", cut=1)
        assert texts(other, "t") == ["a", "d", "e"]
        say(other, "t", "f")
        assert texts(store, "t") == ["a", "d", "e", "f"]
        with pytest.raises(ValueError, match="parent"):
            other.write(ME, "t", Commit(expect=3, at=1, entries=link_entries("x-0", new_id(), 0, [message("g")])))
        assert [entry.native for entry in other.read(ME, "t", MAIN, 1, 3).entries()] == [
            entry.native for entry in ConversationDriver(store, ME, "t").entries()[1:3]
        ]


def test_a_store_with_an_outdated_segment_writes_to_the_current_one(store: Store) -> None:
    say(store, "t", "a", "b")
    with closing(store.again()) as other:
        assert texts(other, "t") == ["a", "b"]
        head = say(store, "t", "c", cut=1)
        more = link_entries(head.entry, new_id(), 0, [message("d")])
        assert count_trips(other, lambda: other.write(ME, "t", Commit(expect=2, at=1, entries=more))) == 2
    assert texts(store, "t") == ["a", "c", "d"]


@pytest.mark.parametrize("cut", [None, 1], ids=["simple", "planned"])
def test_invalid_commits_are_refused_with_and_without_a_plan(store: Store, cut: int | None) -> None:
    say(store, "t", "a", "b", request=KeyedRequest("k", "b"))
    head, talk = store.head(ME, "t"), ConversationDriver(store, ME, "t")
    assert head is not None
    before = talk.read_all("k")
    wrong: list[dict[str, Any]] = [
        {"turn": Turn(new_id(), "complete", "m", 1)},
        {"records": (PlacedRecord(Record("brief", "", 1, b"x"), 2),)},
        {"records": (PlacedRecord(Record("brief", "", 1, b"x"), -2),)},
        {"entries": link_entries("x-0", new_id(), 0, [message("c")])},
    ]
    for fields in wrong:
        with pytest.raises(ValueError, match=r"can't|parent|has no entries"):
            store.write(ME, "t", Commit(expect=1, at=1, cut=cut, **fields))
    taken = talk.make_turn(talk.find_parent(cut=cut), "c") | {"request": KeyedRequest("k", "b")}
    with pytest.raises(RequestKeyTaken):
        store.write(ME, "t", Commit(expect=1, at=1, cut=cut, **taken))
    with pytest.raises(HeadMoved):
        store.write(ME, "t", Commit(expect=7, at=1, cut=cut))
    assert talk.read_all("k") == before
    # The turn that has a key may be written again with this key, and with another one.
    again = Commit(expect=1, at=1, cut=cut, turn=head.turn, request=KeyedRequest("k", "b"), meta={"a": 1})
    store.write(ME, "t", again)
    store.write(ME, "t", Commit(expect=2, at=1, cut=cut, turn=head.turn, request=KeyedRequest("k2", "b")))
    assert [talk.keyed_turn(key).position for key in ("k", "k2")] == [0, 0]
    assert talk.read_all("k")["summary"][0].meta == {"a": 1}


def random_commit(draw: random.Random, talk: ConversationDriver, number: int) -> dict[str, Any]:
    """Return the fields of a random commit to a random branch."""
    heads = {head.branch: head for head in talk.store.branches(ME, talk.id)}
    branch = draw.choice([MAIN, "b", "c", "d"])
    head, fields = heads.get(branch), dict[str, Any](branch=branch, at=1_000 + number)
    size = head.size if head else 0
    if head is None and heads and draw.random() < 0.9:
        source = heads[draw.choice(sorted(heads))]
        size = draw.randint(0, source.size)
        fields["source"] = source.branch, size
    elif head is not None and draw.random() < 0.25:
        fields["cut"] = size = draw.randint(0, size)
    fields["expect"] = head.revision if head else 0
    path = talk.entries(fields.get("source", (branch,))[0])[:size] if heads and size else []
    known = sorted({entry.turn for entry in path})
    turn = draw.choice([f"t{number}", f"t{number}", *known[-2:]])
    first = sum(entry.turn == turn for entry in path) + (draw.random() < 0.1)
    said = [message(f"{number} {i}") for i in range(draw.randint(0, 3))]
    fields["entries"] = link_entries(path[-1].id if path else None, turn, first, said)
    if draw.random() < 0.7:
        fields["turn"] = Turn(turn, draw.choice(["running", "complete"]), "m", number)
        if draw.random() < 0.4:
            fields["request"] = KeyedRequest(draw.choice([turn, f"k{number % 3}"]), "body")
        if draw.random() < 0.4:
            fields["manifest"] = b"{}"
    kinds = [kind for kind in ("brief", "epoch", "pins", "memory") if draw.random() < 0.2]
    end = size + len(said)
    positions = {kind: end - 1 if kind_of(kind).own_branch_only else draw.randint(-1, end - 1) for kind in kinds}
    fields["records"] = tuple(
        PlacedRecord(Record(k, "", number, b"%d" % number), position) for k, position in positions.items()
    )
    if said and draw.random() < 0.3:
        fields["entry_meta"] = {draw.randrange(len(said)): {"n": number}}
    if draw.random() < 0.3:
        fields["lease"] = Lease(Holder("h", "b", 1, 2), number, number)
    if draw.random() < 0.1:
        fields["expect"] += 1
    return fields


@holds(st.integers(0, 2**32), few=3, many=20)
def test_random_commits_have_the_same_results_as_in_memory(seed: int) -> None:
    draw = random.Random(seed)
    with closing(open_on("single")) as store:
        here, model = ConversationDriver(store, ME, "t"), ConversationDriver(InMemory(), ME, "t")
        for number in range(40):
            fields = random_commit(draw, model, number)
            assert _outcome(here, fields) == _outcome(model, fields), f"commit {number}: {fields}"
            ids = [entry.id for head in model.store.branches(ME, "t") for entry in model.entries(head.branch)]
            if ids and draw.random() < 0.1:
                entry = draw.choice(ids)
                for each in (here.store, model.store):
                    assert each.redact(ME, "t", entry, b'{"content":"-"}')
                    assert each.describe(ME, "t", {"of": "it"}, entry=ids[0])
            if number % 8 == 7:
                keys = [*(f"k{i}" for i in range(3)), *(f"t{i}" for i in range(number))]
                was, found = model.read_all(*keys), here.read_all(*keys)
                for part in was:
                    assert found[part] == was[part], f"after {number} commits: {part}"


def _outcome(talk: ConversationDriver, fields: dict[str, Any]) -> Any:
    try:
        return talk.store.write(ME, talk.id, Commit(**fields))
    except HeadMoved as moved:
        return HeadMoved, moved.head
    except (RequestKeyTaken, ValueError) as problem:
        return type(problem)


def test_interleaved_turns_keep_the_positions_of_their_entries(store: Store) -> None:
    talk = ConversationDriver(store, ME, "t")
    first, second = new_id(), new_id()

    def add(name: str, number: int, **fields: Any) -> BranchHead:
        head = store.head(ME, "t", fields.get("branch", MAIN))
        parent = talk.find_parent(fields.get("branch", MAIN), source=fields.get("source"))
        entries = link_entries(parent, name, number, [message(f"{name} {number}")])
        return store.write(ME, "t", Commit(expect=head.revision if head else 0, at=1, entries=entries, **fields))

    add(first, 0, turn=Turn(first, "running", "m", 1))
    add(second, 0)
    add(first, 1)
    assert [turn.id for _, turn in store.turns(ME, "t", MAIN, 0, 9)] == [first]
    add(second, 1, turn=Turn(second, "complete", "m", 1))
    assert [(position, turn.id) for position, turn in store.turns(ME, "t", MAIN, 0, 9)] == [(0, first), (1, second)]
    add(first, 2, branch="fork", source=(MAIN, 1))
    assert store.describe(ME, "t", {"a": 1}, entry=f"{first}-1")
    assert store.describe(ME, "t", {"b": 1}, entry=f"{first}-2")
    assert (talk.metas(), talk.metas("fork")) == ({2: {"a": 1}}, {1: {"b": 1}})
    assert store.verify(ME, "t") == []


def message(text: str) -> Entry:
    return Entry(role="user", wire="openai-chat", native=msgspec.json.encode({"role": "user", "content": text}), at=1)


def test_a_commit_may_have_many_entries_and_records(store: Store) -> None:
    turn = new_id()
    many = link_entries(None, turn, 0, [message(str(i)) for i in range(2_500)])
    notes = tuple(PlacedRecord(Record("brief", "", i, b"%d" % i), i) for i in range(2_500))
    head = store.write(ME, "t", Commit(expect=0, at=1, entries=many, records=notes))
    assert (head.size, len(head.records)) == (2_500, 2_500)
    more = link_entries(many[9].id, new_id(), 0, [message(str(i)) for i in range(2_500)])
    head = store.write(ME, "t", Commit(branch="b", expect=0, source=(MAIN, 10), at=1, entries=more))
    assert (head.size, len(head.records)) == (2_510, 10)
    assert len(store.read(ME, "t", "b", 0, 9_999)) == 2_510
    assert store.verify(ME, "t") == []


def test_numbers_out_of_range_are_refused(alone: Store) -> None:
    say(alone, "known", "a", meta={"b": 1})
    wrong = msgspec.structs.replace(link_entries(None, "t", 0, [message("a")])[0], tokens=-1)
    with pytest.raises(ValueError, match="out of range"):
        alone.write(ME, "t", Commit(expect=0, at=1, entries=(wrong,)))
    with pytest.raises(InputError, match="must be JSON"):
        alone.describe(ME, "known", {"a": object()})
    assert [(each.id, each.meta) for each in alone.conversations(ME)] == [("known", {"b": 1})]
    key = Keys(alone.url_and_prefix[1], ME, "t")
    assert list_keys(alone).isdisjoint([*key.all, key.get_entries_key(1)])


def test_a_lease_keeps_its_holder(store: Store) -> None:
    lease = Lease(Holder("hóst", "boot", 7, 8), 2**45, 3)
    ConversationDriver(store, ME, "t").write(lease=lease)
    assert store.branches(ME, "t")[0].lease == lease


# Addresses


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("redis://", (("localhost", 6379),)),
        ("redis://h", (("h", 6379),)),
        ("rediss://user:p%40ss@h:7/2", (("h", 7),)),
        ("redis://:secret@a:1,b:2,c/0?socket_timeout=3", (("a", 1), ("b", 2), ("c", 6379))),
        ("redis://[::1]:7", (("::1", 7),)),
    ],
)
def test_an_address_names_one_server_or_several(url: str, addresses: Any) -> None:
    assert ServerAddress.parse(url).addresses == addresses


def test_a_password_is_never_shown() -> None:
    port = redis_server.free_ports(1)[0]
    with closing(Redis(f"redis://ada:hunter2@127.0.0.1:{port}")) as store:
        assert "hunter2" not in repr(store)
        with pytest.raises(StoreError) as caught:
            store.head(ME, "t")
    assert str(port) in str(caught.value)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(InputError) as refused:
        Redis("redis://ada:hunter2@127.0.0.1:port")
    assert "hunter2" not in str(refused.value)


def test_different_stores_have_different_reprs() -> None:
    urls = ("redis://:hunter2@h:7", "redis://h:7/1", "redis://h:8", "redis://h:7,h:8")
    stores = [*map(Redis, urls), Redis(urls[0], prefix="lessons")]
    assert len({*map(repr, stores)}) == len(stores)
    assert repr(stores[0]) == "Redis(h:7/0, prefix='longtalk')" == repr(Redis("redis://ada:other@h:7/0"))


def test_conversations_are_copied_from_one_prefix_to_another(alone: Store) -> None:
    say(alone, "t", "a", "b")
    with closing(Store(alone.url_and_prefix[0], f"test-{new_id()}")) as other:
        assert len(copy_conversations(alone, other, ME).conversations) == 1
        assert texts(other, "t") == ["a", "b"]
    with closing(alone.again()) as same, pytest.raises(InputError, match="the same store"):
        copy_conversations(alone, same, ME)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"url": "http://h"}, "redis://"),
        ({"url": "talks.db"}, "redis://"),
        ({"url": "redis://h", "prefix": "a{b}"}, "braces"),
        ({"url": "redis://h", "replicas": -1}, "replicas"),
        ({"url": "redis://h", "wait_ms": 0}, "wait_ms"),
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Redis(**wrong)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(InputError, match=r"longtalk\[redis\]"):
        Redis("redis://h")


def test_a_store_is_opened_by_its_address(alone: Store) -> None:
    with closing(open_store(alone.url_and_prefix[0])) as store:
        assert isinstance(store, Redis)
        assert store.head(ME, new_id()) is None


def test_a_wrong_password_is_reported_at_once(alone: Store) -> None:
    url = f"redis://ada:hunter2@127.0.0.1:{redis_server.single().port}"
    with closing(Redis(url)) as store, pytest.raises(StoreError, match="invalid username-password"):
        store.head(ME, "t")


def test_a_closed_store_raises_an_error(alone: Store) -> None:
    alone.head(ME, "t")
    alone.close()
    with pytest.raises(InputError, match="closed"):
        alone.head(ME, "t")


def test_a_server_that_evicts_keys_is_refused() -> None:
    server = redis_server.Server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    try:
        with closing(Redis(server.url)) as store, pytest.raises(StoreError, match="noeviction"):
            store.head(ME, "t")
    finally:
        server.close()


def test_a_cluster_in_which_one_master_evicts_keys_is_refused() -> None:
    last = redis_server.cluster().masters()[-1]
    last.do("CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru")
    try:
        with (
            closing(open_on("cluster")) as store,
            pytest.raises(StoreError, match=f"{last.port} deletes conversations.*noeviction"),
        ):
            store.head(ME, "t")
    finally:
        last.do("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")
    with closing(open_on("cluster")) as store:
        assert say(store, "t", "a").size == 1


def test_a_server_whose_memory_is_full_raises_an_error() -> None:
    server = redis_server.Server("--maxmemory", "1", "--maxmemory-policy", "noeviction")
    try:
        with closing(Redis(server.url)) as store, pytest.raises(StoreError, match="maxmemory"):
            say(store, "t", "a")
    finally:
        server.close()


def test_the_master_among_several_servers_is_used() -> None:
    master = redis_server.Server("--repl-diskless-sync-delay", "0")
    replica = redis_server.Server("--replicaof", "127.0.0.1", str(master.port))
    try:
        url = f"redis://127.0.0.1:{replica.port},127.0.0.1:{master.port}"
        with closing(Redis(url, replicas=1, patience=30)) as store:
            # The master lists a replica before the replica has caught up and can acknowledge writes.
            redis_server.wait_until(
                lambda: replica.do("INFO", "replication")["master_link_status"] == "up", "no replica in sync"
            )
            assert say(store, "t", "a").size == 1
            master.kill()
            replica.do("REPLICAOF", "NO", "ONE")
            assert texts(store, "t") == ["a"]
        with closing(Redis(replica.url, patience=0.1)) as store:
            replica.do("REPLICAOF", "127.0.0.1", 1)
            with pytest.raises(StoreError, match=f"at .*{replica.port}/0 failed"):
                say(store, "t", "b")
    finally:
        master.close()
        replica.close()


# Slots that move within a cluster


def test_calls_wait_while_a_slot_moves_and_follow_it() -> None:
    # Use a slot that no other test uses.
    cluster, name = redis_server.cluster(), new_id()
    with closing(open_on("cluster")) as store, closing(store.again()) as other:
        say(store, name, "a", "b")
        assert texts(other, name) == ["a", "b"]
        key = Keys(store.url_and_prefix[1], ME, name).conversation
        slot = library.crc.key_slot(key)
        source = next(each for each in cluster.masters() if key in each.all_keys())
        target = next(each for each in cluster.masters() if each is not source)
        names = {each: each.do("CLUSTER", "MYID") for each in (source, target)}
        target.do("CLUSTER", "SETSLOT", slot, "IMPORTING", names[source])
        source.do("CLUSTER", "SETSLOT", slot, "MIGRATING", names[target])
        with source.client() as client:
            moving = client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100)
        half = len(moving) // 2
        for each in moving[:half]:
            source.do("MIGRATE", "127.0.0.1", target.port, each, 0, 5000)
        done: list[BranchHead] = []
        writer = threading.Thread(target=lambda: done.append(say(store, name, "c")))
        before = store._client.trips
        writer.start()
        redis_server.wait_until(lambda: store._client.trips > before + 8, "it does not try again")
        assert done == []
        for each in moving[half:]:
            source.do("MIGRATE", "127.0.0.1", target.port, each, 0, 5000)
        for each in (target, source, *(m for m in cluster.masters() if m not in names)):
            each.do("CLUSTER", "SETSLOT", slot, "NODE", names[target])
        writer.join()
        assert [head.size for head in done] == [3]
        assert texts(other, name) == ["a", "b", "c"]
        assert key in target.all_keys()
        assert key not in source.all_keys()


def test_a_key_that_has_moved_before_its_slot_is_found() -> None:
    """The rest of its slot has not moved yet."""
    cluster = redis_server.cluster()
    with closing(open_on("cluster")) as store:
        client: Client = store._client
        key = f"{store.url_and_prefix[1]}:x".encode()
        client.read(_command("SET", key, "v"))
        slot = library.crc.key_slot(key)
        source = next(each for each in cluster.masters() if key in each.all_keys())
        target = next(each for each in cluster.masters() if each is not source)
        names = {each: each.do("CLUSTER", "MYID") for each in (source, target)}
        target.do("CLUSTER", "SETSLOT", slot, "IMPORTING", names[source])
        source.do("CLUSTER", "SETSLOT", slot, "MIGRATING", names[target])
        source.do("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
        assert client.read(_command("GET", key), _command("GET", key)) == [b"v", b"v"]
        for each in (target, source, *(m for m in cluster.masters() if m not in names)):
            each.do("CLUSTER", "SETSLOT", slot, "NODE", names[target])
        assert client.scatter([_command("GET", key), _command("EXISTS", key)]) == [b"v", 1]
