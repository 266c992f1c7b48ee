"""Threads that run the calls to one store for one event loop.

Switching to a thread pool and back takes longer than most store calls. A store that serves only one caller at a time
(`serial`) gets one thread, which takes all pending calls and runs them in order. A store that says how many calls it
serves at a time (`parallel`) gets up to that many threads, because more would only wait for each other. Results that
are ready at about the same time are returned to the event loop together. Slow work, such as running tools, must not be
done on these threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any
from weakref import WeakKeyDictionary

from longtalk._util.processes import on_fork

IDLE = 10.0
"""Seconds without work after which a thread ends."""

Job = tuple["asyncio.Future[Any]", Context, Callable[[], Any]]
Done = tuple["asyncio.Future[Any]", Any, BaseException | None]


class StoreThreads:
    """The threads of one store for one event loop. They start when they are needed and end when idle."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int = 1) -> None:
        self.loop = loop
        self._most = most
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running = 0
        """How many threads there are: at least as many as calls that have not ended, up to the most."""
        self._pending = 0
        """How many calls have not ended."""
        self._done: list[Done] = []
        """Results that the event loop has been told about, but has not taken yet."""

    async def run(self, function: Callable[[], Any]) -> Any:
        """Run the function on a thread and return its result.

        If the caller is cancelled before the function has started, the function does not run.
        """
        future = self.loop.create_future()
        with self._lock:
            self._pending += 1
            starts = self._running < min(self._pending, self._most)
            self._running += starts
        self._jobs.put((future, copy_context(), function))
        if starts:
            threading.Thread(target=self._work, name="longtalk-store", daemon=True).start()
        return await future

    def _work(self) -> None:
        while True:
            try:
                batch = [self._jobs.get(timeout=IDLE)]
            except queue.Empty:
                with self._lock:
                    if self._running > self._pending:
                        self._running -= 1
                        return
                continue
            if self._most == 1:
                # Take only the jobs that are pending now, so that their results do not wait for later jobs.
                batch += [self._jobs.get() for _ in range(self._jobs.qsize())]
            self._return([_run_job(*job) for job in batch])
            # Don't keep the results in memory until the next call.
            del batch

    def _return(self, done: list[Done]) -> None:
        with self._lock:
            self._pending -= len(done)
            is_told = bool(self._done)
            self._done += done
        if not is_told:
            # If the loop has been closed, no caller is waiting for the results.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._set_results)

    def _set_results(self) -> None:
        with self._lock:
            done, self._done = self._done, []
        for future, result, problem in done:
            if future.done():
                continue
            if problem is None:
                future.set_result(result)
            else:
                future.set_exception(problem)


def _run_job(future: asyncio.Future[Any], context: Context, function: Callable[[], Any]) -> Done:
    if future.cancelled():
        return future, None, None
    try:
        return future, context.run(function), None
    except StopIteration as problem:
        # Futures do not accept StopIteration.
        return future, None, RuntimeError(f"a store raised {problem!r}")
    except BaseException as problem:
        return future, None, problem


_threads: WeakKeyDictionary[Any, StoreThreads] = WeakKeyDictionary()


def store_threads(store: Any) -> StoreThreads | None:
    """Return the threads that run this store's calls for the running event loop.

    Return None if the store does not say how many calls it serves at a time, if the loop is trio's, or if the store is
    already in use on another event loop.
    """
    most = 1 if getattr(store, "serial", False) else getattr(store, "parallel", 0)
    if not most:
        return None
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    threads = _threads.get(store)
    if threads is None or threads.loop.is_closed():
        threads = _threads[store] = StoreThreads(loop, most)
    return threads if threads.loop is loop else None


# The threads do not exist in a forked process.
on_fork(_threads.clear)
