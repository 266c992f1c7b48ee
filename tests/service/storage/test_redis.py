"""The service's storage in Redis: lost replies and connections, and masters that fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import redis as library

from longtalk.service.storage import redis
from longtalk.service.storage.factory import open_storage
from longtalk.service.storage.protocol import LogPage
from longtalk.service.storage.redis import RedisStorage
from longtalk.stores.redis.store import NotReplicated, Redis
from longtalk.transcript.transcript import new_id
from tests.support.redis_server import Cluster, single, wait_until


@pytest.fixture
def store() -> Iterator[Redis]:
    with closing(Redis(single().url, prefix=new_id())) as store:
        yield store


@pytest.fixture
def storage(store: Redis) -> Iterator[RedisStorage]:
    with closing(open_storage(store)) as storage:
        assert isinstance(storage, RedisStorage)
        yield storage


def lose_reply(storage: RedisStorage, monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any]) -> Any:
    """Do work whose first reply is lost after the server has run the command."""
    send, lost = storage._client._send, []

    def lose_first(*args: Any, **named: Any) -> list[Any]:
        replies = send(*args, **named)
        if not lost and not isinstance(replies[0], library.exceptions.NoScriptError):
            lost.append(replies)
            raise library.exceptions.ConnectionError("the reply is lost")
        return replies

    with monkeypatch.context() as patch:
        patch.setattr(storage._client, "_send", lose_first)
        result = work()
    assert lost
    return result


def test_what_was_done_before_the_reply_was_lost_is_not_done_again(
    storage: RedisStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put("kind", "other", b"")
    claimed = lose_reply(storage, monkeypatch, lambda: storage.put("kind", "key", b"mine", expect=0))
    assert claimed is not None
    assert storage.get("kind", "key") == claimed
    again = lose_reply(storage, monkeypatch, lambda: storage.put("kind", "key", b"b", expect=claimed.version))
    assert again.version == claimed.version + 1
    lose_reply(storage, monkeypatch, lambda: storage.append("run", 0, [b"a", b"b"]))
    lose_reply(storage, monkeypatch, lambda: storage.append("run", 2, [b"c"], ended=True))
    assert storage.read("run") == LogPage((b"a", b"b", b"c"), ended=True)


def test_all_keys_begin_with_the_prefix_and_a_purge_leaves_few(storage: RedisStorage, store: Redis) -> None:
    before = single().all_keys()
    for number in range(5):
        storage.put("kind", f"{number}", b"", expires=1)
        storage.append(f"run {number}", 0, [b"a"], ended=True)
    made = single().all_keys() - before
    assert made
    assert all(key.startswith(store._prefix.encode() + b":{service") for key in made)
    assert storage.purge(2, logs_before=2**60) == 10
    left = {key.rpartition(b":")[2] for key in single().all_keys() - before}
    assert left == {b"v", b"kinds"}


def test_many_expired_documents_are_purged(storage: RedisStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "_PURGED_AT_ONCE", 3)
    for number in range(7):
        storage.put("kind", f"{number}", b"", expires=1)
    assert storage.purge(2, logs_before=0) == 7


def test_after_a_lost_connection_any_run_may_have_changed(storage: RedisStorage) -> None:
    assert storage.poll_changes(0) is None
    single().do("CLIENT", "KILL", "TYPE", "pubsub")
    storage.append("missed", 0, [b"a"])
    assert storage.poll_changes(60) is None
    while (changed := storage.poll_changes(0)) is None:
        pass
    assert changed == frozenset()
    storage.append("run", 0, [b"a"])
    assert storage.poll_changes(60) == {"run"}


def test_a_silent_connection_is_checked(storage: RedisStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert storage.poll_changes(0) is None
    monkeypatch.setattr(redis, "CHECK_SECONDS", 0.01)
    assert storage.poll_changes(0.05) == frozenset()
    storage.append("run", 0, [b"a"])
    assert storage.poll_changes(60) == {"run"}


def test_what_no_replica_has_is_reported() -> None:
    with (
        closing(Redis(single().url, prefix=new_id(), replicas=1, wait_ms=1)) as store,
        closing(open_storage(store)) as storage,
    ):
        with pytest.raises(NotReplicated):
            storage.put("kind", "key", b"")
        with pytest.raises(NotReplicated):
            storage.append("run", 0, [b"a"])


@pytest.mark.slow
def test_a_master_that_is_killed_loses_no_event_and_no_wake_up() -> None:
    with (
        closing(Cluster(timeout=1_000)) as cluster,
        closing(Redis(cluster.url, replicas=1, patience=60)) as store,
        closing(open_storage(store)) as writer,
        closing(open_storage(store)) as reader,
    ):
        runs = [f"run {number}" for number in range(12)]
        seen = dict.fromkeys(runs, 0)
        ended: set[str] = set()

        def follow() -> None:
            while len(ended) < len(runs):
                changed = reader.poll_changes(60)
                assert changed is None or changed, "the time has passed"
                for run in runs if changed is None else changed:
                    page = reader.read(run, seen[run] - 1)
                    if page is not None:
                        seen[run] += len(page.events)
                        ended.update({run} if page.ended else ())

        thread = threading.Thread(target=follow)
        thread.start()
        for number in range(20):
            if number == 5:
                killed = cluster.masters()[0]
                killed.kill()
                wait_until(lambda: len(cluster.masters()) == 3, "no replica takes over")
                # Without this server, the new master has no replica, and no write can be acknowledged.
                killed.start()
            for run in runs:
                while True:
                    try:
                        writer.append(run, number, [b"%d" % number], ended=number == 19)
                        break
                    except NotReplicated:
                        continue
        thread.join(60)
        assert seen == dict.fromkeys(runs, 20)
