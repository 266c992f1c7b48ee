"""A thread that runs the calls to one store for one event loop, in batches.

Switching to a thread pool and back takes longer than most store calls. A store that serves only one caller at a time
(`serial`) gains nothing from several threads. The thread takes all pending calls, runs them in order, and returns all
results to the event loop at once. Slow work, such as running tools, must not be done on this thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import Any
from weakref import WeakKeyDictionary

from longtalk._util.processes import on_fork

IDLE = 10.0
"""Seconds without work after which the thread ends."""

Job = tuple["asyncio.Future[Any]", Context, Callable[[], Any]]
Done = tuple["asyncio.Future[Any]", Any, BaseException | None]


class StoreThread:
    """A thread that runs the calls to one store for one event loop. It starts on the first call and ends when idle."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_running = False

    async def run(self, function: Callable[[], Any]) -> Any:
        """Run the function on the thread and return its result.

        If the caller is cancelled before the function has started, the function does not run.
        """
        future = self.loop.create_future()
        self._jobs.put((future, copy_context(), function))
        if not self._is_running:
            self._start()
        return await future

    def _start(self) -> None:
        with self._lock:
            if not self._is_running:
                threading.Thread(target=self._work, name="longtalk-store", daemon=True).start()
                self._is_running = True

    def _work(self) -> None:
        while True:
            try:
                batch = [self._jobs.get(timeout=IDLE)]
            except queue.Empty:
                with self._lock:
                    # Clear the flag before looking at the queue: a caller that queues a job now either sees the flag
                    # and starts a thread, or the job is found here.
                    self._is_running = False
                    if self._jobs.empty():
                        return
                    self._is_running = True
                continue
            # Take only the jobs that are pending now, so that their results do not wait for later jobs.
            batch += [self._jobs.get() for _ in range(self._jobs.qsize())]
            done = [_run_job(*job) for job in batch]
            # If the loop has been closed, no caller is waiting for the results.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(_set_results, done)
            # Don't keep the results in memory until the next call.
            del batch, done


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


def _set_results(done: Sequence[Done]) -> None:
    for future, result, problem in done:
        if future.done():
            continue
        if problem is None:
            future.set_result(result)
        else:
            future.set_exception(problem)


_threads: WeakKeyDictionary[Any, StoreThread] = WeakKeyDictionary()


def store_thread(store: Any) -> StoreThread | None:
    """Return the thread that runs this store's calls for the running event loop.

    Return None if the loop is trio's, or if the store is already in use on another event loop.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    thread = _threads.get(store)
    if thread is None or thread.loop.is_closed():
        thread = _threads[store] = StoreThread(loop)
    return thread if thread.loop is loop else None


# The threads do not exist in a forked process.
on_fork(_threads.clear)
