"""What every backend of the service's storage promises, one by one."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from longtalk.service.storage.protocol import Append, LogConflict, LogPage, Storage
from tests.service.storage.backends import BACKENDS, SHARED, Clock, Opener, opening

# The threads of the forked processes do nothing.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

ODD_KEYS = [
    "",
    "\0",
    "\0\0",
    "%",
    "%25",
    "*",
    "[a]",
    "\\",
    "_",
    "a",
    "a\0b",
    "a_b",
    "ab",
    "a{b}",
    "x" * 2000,
    "\x7f",
    "é",
    "\ud83d",
    "\udc80",
    "\uffff",
    "😀",
]


@pytest.fixture(params=BACKENDS)
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    with opening(request.param, tmp_path) as opener:
        yield opener


@pytest.fixture(params=SHARED)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Open storages of backends that several processes can use."""
    with opening(request.param, tmp_path) as opener:
        yield opener


@pytest.fixture
def storage(opens: Opener) -> Storage:
    return opens()


def in_threads(*works: Callable[[], Any]) -> list[Any]:
    """Run functions at the same time and return their results."""
    results: list[Any] = [None] * len(works)

    def run(number: int) -> None:
        results[number] = works[number]()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def in_processes(*works: Callable[[], Any]) -> list[Any]:
    """Run functions in forked processes at the same time and return their results."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def run(number: int) -> None:
        try:
            results.put((number, works[number]()))
        except BaseException as problem:
            results.put((number, repr(problem)))

    processes = [context.Process(target=run, args=(number,)) for number in range(len(works))]
    for process in processes:
        process.start()
    found = dict(results.get() for _ in processes)
    for process in processes:
        process.join()
    return [found[number] for number in range(len(works))]


# Documents


def test_a_document_is_read_as_it_was_put(storage: Storage) -> None:
    put = storage.put("kind", "key", b"value")
    assert put is not None
    assert put.value == b"value"
    assert storage.get("kind", "key") == put
    assert storage.get("other", "key") is None
    assert storage.get("kind", "other") is None


def test_a_value_may_be_any_bytes(storage: Storage) -> None:
    for value in (b"", b"\0", b"\xff" * 10, b":" * 5, bytes(range(256)) * 4096):
        storage.put("kind", "key", value)
        found = storage.get("kind", "key")
        assert found is not None
        assert found.value == value
        assert type(found.value) is bytes


def test_versions_only_increase_also_after_a_deletion(storage: Storage) -> None:
    versions = []
    for number in range(6):
        put = storage.put("kind", "key", b"%d" % number)
        assert put is not None
        versions.append(put.version)
        if number % 2:
            assert storage.delete("kind", "key")
    assert versions == sorted(set(versions))
    assert versions[0] > 0


def test_versions_increase_after_a_document_was_purged(opens: Opener) -> None:
    clock = Clock()
    storage = opens(clock)
    first = storage.put("kind", "key", b"", expires=clock.time)
    storage.purge(clock.time + 1, logs_before=0)
    second = storage.put("kind", "key", b"", expect=0)
    assert first is not None
    assert second is not None
    assert second.version > first.version


def test_a_put_with_another_version_stores_nothing(storage: Storage) -> None:
    assert storage.put("kind", "key", b"a", expect=7) is None
    first = storage.put("kind", "key", b"a", expect=0)
    assert first is not None
    assert storage.put("kind", "key", b"b", expect=0) is None
    assert storage.put("kind", "key", b"b", expect=first.version + 1) is None
    assert storage.get("kind", "key") == first
    second = storage.put("kind", "key", b"b", expect=first.version)
    assert second is not None
    assert storage.put("kind", "key", b"c", expect=first.version) is None
    assert storage.get("kind", "key") == second


def test_a_delete_with_another_version_deletes_nothing(storage: Storage) -> None:
    assert not storage.delete("kind", "key")
    put = storage.put("kind", "key", b"")
    assert put is not None
    assert not storage.delete("kind", "key", expect=put.version + 1)
    assert storage.get("kind", "key") == put
    assert storage.delete("kind", "key", expect=put.version)
    assert storage.get("kind", "key") is None
    assert not storage.delete("kind", "key", expect=put.version)
    assert storage.put("kind", "key", b"", expect=put.version) is None


def test_an_expired_document_is_as_good_as_deleted(opens: Opener) -> None:
    clock = Clock()
    storage = opens(clock)
    put = storage.put("kind", "key", b"", expires=clock.time + 10)
    assert put is not None
    clock.time += 9
    assert storage.get("kind", "key") == put
    clock.time += 1
    assert storage.get("kind", "key") is None
    assert storage.list_documents("kind") == []
    assert not storage.delete("kind", "key")
    assert storage.put("kind", "key", b"", expect=put.version) is None
    again = storage.put("kind", "key", b"again", expect=0)
    assert again is not None
    assert again.version > put.version
    clock.time += 10**9
    assert storage.get("kind", "key") == again


def test_a_document_is_claimed_by_one_thread(opens: Opener) -> None:
    storages = [opens(), opens()]
    for key in ("a", "b", "c"):
        claims = (partial(storages[i % 2].put, "kind", key, b"%d" % i, expect=0) for i in range(8))
        (winner,) = filter(None, in_threads(*claims))
        assert storages[0].get("kind", key) == winner


def test_a_document_is_claimed_by_one_process(shared: Opener) -> None:
    storage = shared()

    def claim(number: int) -> list[bool]:
        return [storage.put("kind", f"{key}", b"%d" % number, expect=0) is not None for key in range(20)]

    claimed = in_processes(*(partial(claim, number) for number in range(3)))
    for key in range(20):
        found = storage.get("kind", f"{key}")
        assert found is not None
        assert [mine[key] for mine in claimed] == [number == int(found.value) for number in range(3)]


def test_no_increment_of_a_counter_is_lost(shared: Opener) -> None:
    storages = [shared(), shared()]

    def count(storage: Storage) -> None:
        for _ in range(10):
            while True:
                found = storage.get("counter", "key")
                value = int(found.value) if found else 0
                if storage.put("counter", "key", b"%d" % (value + 1), expect=found.version if found else 0):
                    break

    in_threads(*(partial(count, storages[i % 2]) for i in range(4)))
    found = storages[0].get("counter", "key")
    assert found is not None
    assert found.value == b"40"


def test_documents_are_listed_in_the_order_of_the_bytes_of_their_keys(storage: Storage) -> None:
    for key in reversed(ODD_KEYS):
        storage.put("kind", key, key.encode("utf-8", "surrogatepass"))
        storage.put("kind2", key, b"other")
    listed = storage.list_documents("kind")
    ordered = sorted(ODD_KEYS, key=lambda key: key.encode("utf-8", "surrogatepass"))
    assert [document.key for document in listed] == ordered
    assert all(document.value == document.key.encode("utf-8", "surrogatepass") for document in listed)
    assert listed == [storage.get("kind", key) for key in ordered]


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_pages_of_a_list_make_the_whole_list(storage: Storage, limit: int) -> None:
    for key in ODD_KEYS:
        storage.put("kind", key, b"")
    whole, after = storage.list_documents("kind"), None
    found = []
    while page := storage.list_documents("kind", after=after, limit=limit):
        assert len(page) <= limit
        found += page
        after = page[-1].key
    assert found == whole
    assert storage.list_documents("kind", limit=0) == []


@pytest.mark.parametrize("prefix", ["", "a", "%", "_", "*", "[", "\0", "\ud83d", "x" * 100, "😀", "none"])
def test_a_list_has_the_keys_with_the_prefix(storage: Storage, prefix: str) -> None:
    for key in ODD_KEYS:
        storage.put("kind", key, b"")
    whole = [document.key for document in storage.list_documents("kind")]
    listed = [document.key for document in storage.list_documents("kind", prefix=prefix)]
    assert listed == [key for key in whole if key.startswith(prefix)]
    for after in ("", "a", "ab", "😀"):
        later = [document.key for document in storage.list_documents("kind", prefix=prefix, after=after)]
        assert later == [key for key in listed if key.encode("utf-8", "surrogatepass") > after.encode()]


def test_expired_documents_take_no_place_in_a_page(opens: Opener) -> None:
    clock = Clock()
    storage = opens(clock)
    for number in range(9):
        storage.put("kind", f"{number}", b"", expires=clock.time if number % 3 else None)
    assert [document.key for document in storage.list_documents("kind", limit=2)] == ["0", "3"]
    assert [document.key for document in storage.list_documents("kind", after="3", limit=2)] == ["6"]


# Event logs


def test_events_are_read_in_their_order(storage: Storage) -> None:
    assert storage.read("run") is None
    storage.append("run", 0, [b"a", b"", b"\0\xff"])
    assert storage.read("run") == LogPage((b"a", b"", b"\0\xff"), ended=False)
    storage.append("run", 3, [b"d"], ended=True)
    assert storage.read("run") == LogPage((b"a", b"", b"\0\xff", b"d"), ended=True)
    assert storage.read("other") is None


def test_an_event_may_be_large(storage: Storage) -> None:
    large = bytes(range(256)) * 4096
    storage.append("run", 0, [large, b"small"])
    assert storage.read("run") == LogPage((large, b"small"), ended=False)


def test_an_append_may_have_many_events(storage: Storage) -> None:
    events = [b"%d" % number for number in range(20_000)]
    storage.append("run", 0, events, ended=True)
    assert storage.read("run", limit=20_000) == LogPage(tuple(events), ended=True)


def test_a_log_is_opened_and_ended_without_events(storage: Storage) -> None:
    storage.append("run", 0, [])
    assert storage.read("run") == LogPage((), ended=False)
    storage.append("run", 0, [b"a"])
    storage.append("run", 1, [])
    storage.append("run", 1, [], ended=True)
    assert storage.read("run") == LogPage((b"a",), ended=True)


@pytest.mark.parametrize("run", ODD_KEYS)
def test_a_run_may_have_any_name(storage: Storage, run: str) -> None:
    assert storage.poll_changes(0) is None
    storage.append(run, 0, [b"a"], ended=True)
    assert storage.read(run) == LogPage((b"a",), ended=True)
    assert storage.poll_changes(5) == {run}


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_of_a_log_make_the_whole_log(storage: Storage, limit: int) -> None:
    events, first = [b"%d" % number for number in range(20)], 0
    for count in (1, 5, 0, 2, 12):
        storage.append("run", first, events[first : first + count], ended=first + count == 20)
        first += count
    found: list[bytes] = []
    ended = False
    while not ended:
        page = storage.read("run", len(found) - 1, limit)
        assert page is not None
        assert 1 <= len(page.events) <= limit
        found, ended = [*found, *page.events], page.ended
    assert found == events


def test_a_read_beyond_the_end_returns_nothing(storage: Storage) -> None:
    storage.append("run", 0, [b"a", b"b"])
    for after in (1, 2, 50):
        assert storage.read("run", after) == LogPage((), ended=False)
    assert storage.read("run", -9) == LogPage((b"a", b"b"), ended=False)
    assert storage.read("run", limit=0) == LogPage((), ended=False)
    storage.append("run", 2, [], ended=True)
    for after in (1, 2, 50):
        assert storage.read("run", after) == LogPage((), ended=True)
    assert storage.read("run", limit=1) == LogPage((b"a",), ended=False)


@pytest.mark.parametrize("first", [-1, 1, 3, 9])
@pytest.mark.parametrize("events", [[], [b"b"], [b"x", b"y"]])
def test_an_append_that_does_not_continue_the_log_is_refused(storage: Storage, first: int, events: list[bytes]) -> None:
    storage.append("run", 0, [b"a", b"a"])
    with pytest.raises(LogConflict):
        storage.append("run", first, events)
    with pytest.raises(LogConflict):
        storage.append("run", first, events, ended=True)
    assert storage.read("run") == LogPage((b"a", b"a"), ended=False)
    storage.append("run", 2, [], ended=True)
    with pytest.raises(LogConflict):
        storage.append("run", first, events, ended=True)


def test_a_log_that_does_not_exist_begins_with_its_first_event(storage: Storage) -> None:
    with pytest.raises(LogConflict):
        storage.append("run", 1, [b"b"])
    assert storage.read("run") is None


def test_nothing_is_appended_after_the_end(storage: Storage) -> None:
    storage.append("run", 0, [b"a"], ended=True)
    for first, events in ((1, [b"b"]), (1, []), (0, [b"a"]), (0, [b"a", b"b"])):
        with pytest.raises(LogConflict):
            storage.append("run", first, events)
    for first, events in ((1, [b"b"]), (0, [b"a", b"b"]), (0, [b"b"]), (0, [])):
        with pytest.raises(LogConflict):
            storage.append("run", first, events, ended=True)
    assert storage.read("run") == LogPage((b"a",), ended=True)


def test_a_repeated_append_changes_nothing(storage: Storage) -> None:
    storage.append("run", 0, [b"a", b"b"])
    storage.append("run", 0, [b"a", b"b"])
    storage.append("run", 1, [b"b"])
    storage.append("run", 2, [b"c"], ended=True)
    storage.append("run", 2, [b"c"], ended=True)
    storage.append("run", 3, [], ended=True)
    assert storage.read("run") == LogPage((b"a", b"b", b"c"), ended=True)


def test_an_append_can_be_repeated_with_more_events(storage: Storage) -> None:
    storage.append("run", 0, [b"a"])
    storage.append("run", 1, [b"b", b"c"])
    storage.append("run", 1, [b"b", b"c", b"d"])
    assert storage.read("run") == LogPage((b"a", b"b", b"c", b"d"), ended=False)
    storage.append("run", 3, [b"d"], ended=True)
    assert storage.read("run") == LogPage((b"a", b"b", b"c", b"d"), ended=True)


def test_of_appends_with_the_same_number_one_is_made(opens: Opener) -> None:
    storages = [opens(), opens()]

    def append(storage: Storage, event: bytes) -> bytes:
        try:
            storage.append("run", 0, [event])
        except LogConflict:
            return b""
        return event

    made = in_threads(*(partial(append, storages[i % 2], b"%d" % i) for i in range(8)))
    (winner,) = filter(None, made)
    assert storages[0].read("run") == LogPage((winner,), ended=False)


# Changes


def test_the_first_poll_returns_at_once_and_the_next_waits(storage: Storage) -> None:
    storage.append("before", 0, [b"a"])
    assert storage.poll_changes(60) is None
    assert storage.poll_changes(0) == frozenset()
    storage.append("run", 0, [b"a"])
    storage.append("other", 0, [], ended=True)
    seen: set[str] = set()
    while len(seen) < 2:
        seen |= storage.poll_changes(60) or set()
    assert seen == {"run", "other"}
    # On a cluster, a notice can arrive a second time, from another master.
    while again := storage.poll_changes(0.2):
        assert again <= seen
    assert storage.poll_changes(0.05) == frozenset()


def test_every_storage_sees_the_appends_of_all(opens: Opener) -> None:
    writer, readers = opens(), [opens(), opens()]
    for reader in {id(reader): reader for reader in readers}.values():
        assert reader.poll_changes(0) is None
        thread = threading.Timer(0.05, lambda: writer.append("run", 0, [b"a"]))
        thread.start()
        assert reader.poll_changes(60) == {"run"}
        thread.join()
        writer.purge(0, logs_before=2**60)


def test_a_process_sees_the_appends_of_another(shared: Opener) -> None:
    storage = shared()
    assert storage.poll_changes(0) is None
    in_processes(lambda: storage.append("run", 0, [b"a"]))
    assert storage.poll_changes(60) == {"run"}
    assert storage.read("run") == LogPage((b"a",), ended=False)


def test_a_forked_process_polls_by_itself(shared: Opener) -> None:
    storage = shared()
    assert storage.poll_changes(0) is None

    def poll() -> bool:
        # A subscription of the parent is not one of the child, so the child may have to begin again.
        storage.poll_changes(0)
        storage.append("child", 0, [b"a"])
        return storage.poll_changes(60) == {"child"}

    assert in_processes(poll) == [True]
    assert storage.poll_changes(60) == {"child"}


def test_no_wake_up_is_lost(opens: Opener) -> None:
    """A reader that reads after each answer, and else only waits, sees every event."""
    writer, reader = opens(), opens()
    seen = 0

    def follow() -> None:
        nonlocal seen
        changed = reader.poll_changes(60)
        while True:
            if changed is None or "run" in changed:
                page = reader.read("run", seen - 1)
                seen += len(page.events) if page else 0
                if page and page.ended:
                    return
            assert changed is None or changed, "the time has passed"
            changed = reader.poll_changes(60)

    thread = threading.Thread(target=follow)
    thread.start()
    for number in range(100):
        writer.append("run", number, [b"a"], ended=number == 99)
    thread.join(60)
    assert seen == 100


def test_close_lets_a_waiting_poll_return(opens: Opener) -> None:
    storage = opens()
    assert storage.poll_changes(0) is None
    timer = threading.Timer(0.05, storage.close)
    timer.start()
    assert storage.poll_changes(600) == frozenset()
    timer.join()
    storage.close()


# Upkeep


def test_purge_deletes_what_has_expired_and_old_logs(opens: Opener) -> None:
    clock = Clock()
    storage = opens(clock)
    storage.put("kind", "gone", b"", expires=clock.time + 1)
    storage.put("other", "gone", b"", expires=clock.time + 2)
    storage.put("kind", "later", b"", expires=clock.time + 50)
    storage.put("kind", "kept", b"")
    storage.append("old", 0, [b"a"])
    storage.append("active", 0, [b"a"])
    clock.time += 10
    storage.append("active", 1, [b"b"])
    storage.append("new", 0, [b"a"], ended=True)
    assert storage.purge(clock.time, logs_before=clock.time) == 3
    assert storage.purge(clock.time, logs_before=clock.time) == 0
    assert [document.key for document in storage.list_documents("kind")] == ["kept", "later"]
    assert storage.read("old") is None
    assert storage.read("active") == LogPage((b"a", b"b"), ended=False)
    assert storage.read("new") == LogPage((b"a",), ended=True)
    with pytest.raises(LogConflict):
        storage.append("old", 1, [b"b"])


def test_a_deleted_log_is_gone_and_the_others_stay(storage: Storage) -> None:
    storage.append("gone", 0, [b"a"])
    storage.append("gone", 1, [b"b"], ended=True)
    storage.append("kept", 0, [b"a"])
    assert storage.delete_log("gone")
    assert not storage.delete_log("gone")
    assert storage.read("gone") is None
    assert storage.read("kept") == LogPage((b"a",), ended=False)
    storage.append("gone", 0, [b"c"])
    assert storage.read("gone") == LogPage((b"c",), ended=False)


def test_purge_keeps_a_document_that_was_put_again(opens: Opener) -> None:
    clock = Clock()
    storage = opens(clock)
    storage.put("kind", "a", b"", expires=clock.time)
    storage.put("kind", "a", b"", expires=clock.time + 100)
    storage.put("kind", "b", b"", expires=clock.time)
    storage.put("kind", "b", b"")
    storage.put("kind", "c", b"", expires=clock.time)
    storage.delete("kind", "c")
    storage.purge(clock.time + 50, logs_before=0)
    assert [document.key for document in storage.list_documents("kind")] == ["a", "b"]


# Many logs at once


def test_events_of_many_runs_are_stored_by_one_call(storage: Storage) -> None:
    storage.append("b", 0, [b"1"])
    appends = [Append("a", 0, [b"1", b"2"], ended=True), Append("b", 1, [b"2"]), Append("c\0", 0, [])]
    assert storage.append_all(appends) == frozenset()
    assert storage.read("a") == LogPage((b"1", b"2"), ended=True)
    assert storage.read("b") == LogPage((b"1", b"2"), ended=False)
    assert storage.read("c\0") == LogPage((), ended=False)
    assert storage.append_all([]) == frozenset()


def test_a_log_that_is_not_continued_does_not_keep_the_others_from_being_stored(storage: Storage) -> None:
    storage.append("ended", 0, [b"1"], ended=True)
    names = ["ended", "missing", "good", "negative"]
    appends = [Append(name, first, [b"x"]) for name, first in zip(names, (1, 3, 0, -1), strict=True)]
    assert storage.append_all(appends) == {"ended", "missing", "negative"}
    assert storage.read("good") == LogPage((b"x",), ended=False)
    assert storage.read("missing") is None


def test_repeated_appends_to_many_logs_store_only_what_is_new(storage: Storage) -> None:
    names = ["a", "b", "c"]
    storage.append_all([Append(name, 0, [b"1"]) for name in names])
    storage.append_all([Append("b", 1, [b"2"])])
    again = [Append(name, 0, [b"1", b"2", b"3"], ended=True) for name in names]
    for _ in range(2):
        assert storage.append_all(again) == frozenset()
        assert all(storage.read(name) == LogPage((b"1", b"2", b"3"), ended=True) for name in names)


def test_documents_are_deleted_with_the_events_of_their_runs(storage: Storage) -> None:
    for key in ("a", "b\0", "kept"):
        storage.put("kind", key, b"")
    delete = [("kind", "a"), ("kind", "b\0"), ("kind", "unknown")]
    assert storage.append_all([Append("run", 0, [b"1"], ended=True)], delete=delete) == frozenset()
    assert [document.key for document in storage.list_documents("kind")] == ["kept"]
    assert storage.append_all([], delete=[("kind", "kept")]) == frozenset()
    assert storage.list_documents("kind") == []


def test_all_changed_logs_are_announced(storage: Storage) -> None:
    assert storage.poll_changes(0) is None
    storage.append_all([Append(name, 0, [b"1"]) for name in ("a", "b", "c")])
    seen: set[str] = set()
    while len(seen) < 3:
        seen |= storage.poll_changes(60) or set()
    assert seen == {"a", "b", "c"}


def test_writers_of_the_same_logs_in_any_order_do_not_block_each_other(shared: Opener) -> None:
    names = [f"run {number}" for number in range(6)]
    for name in names:
        shared().append(name, 0, [])

    def write(storage: Storage, order: list[str]) -> list[frozenset[str]]:
        return [storage.append_all([Append(name, n, [b"x"]) for name in order]) for n in range(10)]

    in_threads(*(partial(write, shared(), order) for order in (names, names[::-1], names[3:] + names[:3])))
    assert {shared().read(name) for name in names} == {LogPage((b"x",) * 10, ended=False)}
