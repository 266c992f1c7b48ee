"""Kill Redis servers under load: no acknowledged write is lost or repeated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
import redis as library

from longtalk.stores.base import Commit, HeadMoved
from longtalk.stores.redis.store import NotReplicated, Redis, StoreError
from longtalk.stores.redis.tree import Keys
from longtalk.testing.stores.harness import ConversationDriver
from tests.support.redis_server import PATIENCE, Cluster, Server, wait_until

ME = "me"


class Writers:
    """Threads that write turns continuously, each to a conversation of its own and all of them to a shared one."""

    def __init__(self, url: str, number: int, **settings: int) -> None:
        self.store = Redis(url, patience=60, **settings)
        self.acknowledged: dict[str, list[str]] = {}
        self.problems: list[BaseException] = []
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(f"t{i}",)) for i in range(number)]

    @contextmanager
    def run(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._done.set()
            for thread in self._threads:
                thread.join()
        if self.problems:
            raise self.problems[0]

    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def wait_for_more(self, number: int) -> None:
        """Wait until each conversation has `number` more acknowledged commits."""
        before = {name: len(acknowledged) for name, acknowledged in list(self.acknowledged.items())}

        def have_more() -> bool:
            return bool(self.problems) or all(
                len(self.acknowledged[name]) >= had + number for name, had in before.items()
            )

        wait_until(have_more, "they do not go on")

    def _work(self, name: str) -> None:
        try:
            number = 0
            while not self._done.is_set():
                for conversation in (name, "shared"):
                    self._say(conversation, f"{name} {number}")
                number += 1
        except BaseException as problem:
            self.problems.append(problem)

    def _say(self, conversation: str, text: str) -> None:
        """Write a turn until it is acknowledged. If it is not replicated yet, wait until it is."""
        talk = ConversationDriver(self.store, ME, conversation)
        while True:
            head = self.store.head(ME, conversation)
            turn = talk.make_turn(head.entry if head else None, text)
            try:
                self.store.write(ME, conversation, Commit(expect=head.revision if head else 0, at=1, **turn))
            except HeadMoved:
                continue
            except NotReplicated:
                self._wait_for_replication(conversation, text)
            self.acknowledged.setdefault(conversation, []).append(text)
            return

    def _wait_for_replication(self, conversation: str, text: str) -> None:
        """Write something else until it is replicated: the replica then has the earlier turn too."""
        while True:
            try:
                self.store.describe(ME, conversation, {"sure": text})
            except NotReplicated:
                continue
            return

    def check(self) -> None:
        """Check that each acknowledged turn is stored exactly once, and that the turns of each thread are in order."""
        for conversation, acknowledged in self.acknowledged.items():
            said = ConversationDriver(self.store, ME, conversation).texts()
            assert len(said) == len(set(said)), "something is there twice"
            assert set(acknowledged) <= set(said), "something is lost"
            # The last turn of a thread may be stored but not acknowledged.
            assert len(said) <= len(acknowledged) + len(self._threads)
            for name in {text.split()[0] for text in said}:
                own = [text for text in said if text.split()[0] == name]
                assert own == [f"{name} {number}" for number in range(len(own))]
            assert self.store.verify(ME, conversation) == []
        listed = {summary.id for summary in self.store.conversations(ME, limit=1000)}
        assert listed == set(self.acknowledged)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with closing(Cluster(timeout=1_000)) as cluster:
        yield cluster


def find_master(cluster: Cluster, conversation: str) -> Server:
    slot = library.crc.key_slot(Keys("longtalk", ME, conversation).conversation)
    ports = {}
    for first, last, node, *_ in cluster.masters()[0].do("CLUSTER", "SLOTS"):
        ports |= dict.fromkeys(range(first, last + 1), node[1])
    return next(server for server in cluster.servers if server.port == ports[slot])


@pytest.mark.slow
def test_a_master_that_is_killed_under_load_loses_no_replicated_write(cluster: Cluster) -> None:
    with closing_store(Writers(cluster.url, 4, replicas=1, wait_ms=200)) as writers:
        with writers.run():
            wait_until(lambda: writers.count() > 50 or writers.problems, "they do not begin")
            for _ in range(2):
                killed = find_master(cluster, "shared")
                killed.kill()
                wait_until(lambda killed=killed: is_replaced(cluster, killed), "no replica takes over")  # type: ignore[misc]
                # Without this server, the new master has no replica, and no write can be acknowledged.
                killed.start()
                writers.wait_for_more(5)
                cluster.wait()
        writers.check()


def is_replaced(cluster: Cluster, killed: Server) -> bool:
    try:
        return find_master(cluster, "shared") is not killed
    except (library.RedisError, OSError):
        return False


@pytest.mark.slow
def test_calls_wait_for_the_replica_that_takes_over(cluster: Cluster) -> None:
    with closing(Redis(cluster.url, replicas=1)) as store:
        talk = ConversationDriver(store, ME, "shared")
        talk.say("a", "b")
        find_master(cluster, "shared").kill()
        assert talk.texts() == ["a", "b"]
    with closing(Redis(cluster.url)) as store:
        assert ConversationDriver(store, ME, "shared").say("c").size == 3


@pytest.mark.slow
def test_a_server_that_is_killed_and_restarted_has_everything_from_its_file() -> None:
    server = Server("--appendonly", "yes", "--appendfsync", "always")
    with closing(server), closing_store(Writers(server.url, 4)) as writers:
        with writers.run():
            for _ in range(3):
                before = writers.count()
                wait_until(lambda before=before: writers.count() > before + 40 or writers.problems, "they do not go on")  # type: ignore[misc]
                server.kill()
                server.start()
        writers.check()


@contextmanager
def closing_store(writers: Writers) -> Iterator[Writers]:
    with closing(writers.store):
        yield writers


def test_calls_continue_when_a_server_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("--appendonly", "yes", "--appendfsync", "always")
    with closing(server), closing(Redis(server.url)) as store:
        talk = ConversationDriver(store, ME, "t")
        talk.say("a")
        server.kill()
        failed, refresh_slots = threading.Event(), store._client._refresh_slots

        def refresh_and_signal() -> None:
            failed.set()
            refresh_slots()

        monkeypatch.setattr(store._client, "_refresh_slots", refresh_and_signal)
        # Write in another thread, because a server ends with the thread that started it.
        writer = threading.Thread(target=talk.say, args=("b",))
        writer.start()
        assert failed.wait(PATIENCE)
        server.start()
        writer.join()
        assert talk.texts() == ["a", "b"]


def test_a_server_that_does_not_come_back_is_named_when_the_time_is_up() -> None:
    server = Server()
    with closing(server), closing(Redis(server.url, patience=0.3)) as store:
        ConversationDriver(store, ME, "t").say("a")
        server.kill()
        calls: list[Callable[[], object]] = [
            lambda: store.head(ME, "t"),
            lambda: store.conversations(ME),
            lambda: store.write(ME, "t", Commit(expect=1, at=1)),
        ]
        for call in calls:
            with pytest.raises(StoreError, match=str(server.port)):
                call()
