"""The thread that works for a store on behalf of an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from longtalk._util import store_thread as _clerk
from longtalk._util.concurrency import call_store
from longtalk._util.store_thread import store_threads


class Store:
    """One that takes one caller at a time."""

    serial = True


def run(work: Callable[[Store], Any]) -> Any:
    return asyncio.run(work(Store()))


def test_one_thread_does_it_all_and_in_order() -> None:
    async def work(store: Store) -> list[tuple[int, int]]:
        return await asyncio.gather(*[call_store(store, lambda i=i: (i, threading.get_ident())) for i in range(50)])

    done = run(work)
    assert [i for i, _ in done] == list(range(50))
    assert len({thread for _, thread in done}) == 1
    assert done[0][1] != threading.get_ident()


def test_what_fails_does_not_take_others_along() -> None:
    def fail() -> None:
        raise KeyError("x")

    def stop() -> None:
        raise StopIteration

    async def work(store: Store) -> list[Any]:
        jobs = [call_store(store, job) for job in (lambda: 1, fail, stop, lambda: 2)]
        return await asyncio.gather(*jobs, return_exceptions=True)

    first, failed, stopped, last = run(work)
    assert (first, last) == (1, 2)
    assert isinstance(failed, KeyError)
    assert isinstance(stopped, RuntimeError)


def test_a_cancelled_caller_does_not_wait_and_others_continue() -> None:
    async def work(store: Store) -> None:
        begun, free, done = threading.Event(), threading.Event(), list[str]()

        def slow() -> None:
            begun.set()
            free.wait(10)
            done.append("slow")

        running = asyncio.create_task(call_store(store, slow))
        while not begun.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0)
        waiting = asyncio.create_task(call_store(store, lambda: done.append("waiting")))
        await asyncio.sleep(0)
        for task in (running, waiting):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        free.set()
        await call_store(store, lambda: done.append("last"))
        # One that had begun goes on; one that had not is never done.
        assert done == ["slow", "last"]

    run(work)


def test_what_is_done_sees_the_context_of_its_caller() -> None:
    name: ContextVar[str] = ContextVar("name", default="nobody")

    async def work(store: Store) -> str:
        name.set("ada")
        return await call_store(store, name.get)

    assert run(work) == "ada"


def test_a_second_loop_and_another_world_go_without() -> None:
    store = Store()

    async def inner() -> int:
        assert store_threads(store) is None
        return await call_store(store, lambda: 7)

    async def outer() -> None:
        assert store_threads(store) is not None
        assert await asyncio.to_thread(lambda: asyncio.run(inner())) == 7

    asyncio.run(outer())
    # When the first one has ended, the next has its place.
    asyncio.run(outer())

    async def elsewhere() -> int:
        return await call_store(store, lambda: 8)

    assert anyio.run(elsewhere, backend="trio") == 8


def test_a_store_without_the_promise_is_called_by_many() -> None:
    class Plain:
        pass

    async def work() -> int:
        meet = threading.Barrier(2)
        await asyncio.gather(*[call_store(Plain(), lambda: meet.wait(10)) for _ in range(2)])
        return 1

    assert asyncio.run(work()) == 1


class Parallel:
    """A store that serves two callers at a time."""

    parallel = 2


def test_a_store_is_called_by_as_many_threads_as_it_serves_at_a_time() -> None:
    async def work() -> list[int]:
        store, meet = Parallel(), threading.Barrier(2)

        def call() -> int:
            # Two calls wait for each other, so both threads must be at work.
            meet.wait(10)
            return threading.get_ident()

        return await asyncio.gather(*[call_store(store, call) for _ in range(20)])

    assert len(set(asyncio.run(work()))) == 2


def test_a_slow_call_delays_no_other_while_a_thread_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_clerk, "IDLE", 0.01)

    async def work() -> None:
        store, free = Parallel(), threading.Event()
        slow = asyncio.ensure_future(call_store(store, lambda: free.wait(30)))
        for i in range(50):
            assert await call_store(store, lambda i=i: i) == i
            # Let the idle thread end now and then.
            await asyncio.sleep(0.02 if i % 10 == 0 else 0)
        assert not slow.done()
        free.set()
        assert await slow

    asyncio.run(work())


def test_an_idle_thread_ends_and_another_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_clerk, "IDLE", 0.01)

    async def work(store: Store) -> None:
        before = set(threading.enumerate())
        await call_store(store, lambda: 1)
        while set(threading.enumerate()) - before:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await call_store(store, lambda: 2) == 2

    run(work)


def test_no_caller_waits_when_the_loop_ends_first() -> None:
    free, done = threading.Event(), threading.Event()

    async def work(store: Store) -> None:
        job = asyncio.ensure_future(call_store(store, lambda: (free.wait(10), done.set())))
        assert not job.done()
        await asyncio.sleep(0.01)

    run(work)
    free.set()
    assert done.wait(10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_copy_of_the_process_has_threads_of_its_own() -> None:
    store = Store()

    async def work() -> int:
        return await call_store(store, lambda: 3)

    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(work()) == 3
    pid = os.fork()
    if not pid:
        try:
            os._exit(0 if asyncio.new_event_loop().run_until_complete(work()) == 3 else 1)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    loop.close()
