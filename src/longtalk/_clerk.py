"""A thread that does the work of one store for one event loop, in batches.

A hop into a pool of threads and back costs more than most of what a store does. A store that takes one caller at a time
anyhow (`serial`) loses nothing when a single thread waits in the others' place: it takes what has gathered, does it in
turn, and answers all of it with one call into the loop. It must not be given what may be slow, such as tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import Any
from weakref import WeakKeyDictionary

IDLE = 10.0
"""Seconds without work after which the thread ends."""

Job = tuple["asyncio.Future[Any]", Context, Callable[[], Any]]
Done = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Clerk:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._works = False

    async def do(self, function: Callable[[], Any]) -> Any:
        """What the function returns or raises. One that is cancelled before it has begun is not done at all."""
        future = self.loop.create_future()
        self._jobs.put((future, copy_context(), function))
        if not self._works:
            self._begin()
        return await future

    def _begin(self) -> None:
        with self._lock:
            if not self._works:
                threading.Thread(target=self._work, name="longtalk-store", daemon=True).start()
                self._works = True

    def _work(self) -> None:
        while True:
            try:
                batch = [self._jobs.get(timeout=IDLE)]
            except queue.Empty:
                with self._lock:
                    # In this order: who has put something in since then sees that nobody works, or is seen here.
                    self._works = False
                    if self._jobs.empty():
                        return
                    self._works = True
                continue
            # No more than has gathered, so that who came first is not kept waiting by who comes now.
            batch += [self._jobs.get() for _ in range(self._jobs.qsize())]
            done = [_done(*job) for job in batch]
            # The loop may have ended meanwhile, and nobody waits any more.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(_answer, done)
            # What was said is not kept until the next call.
            del batch, done


def _done(future: asyncio.Future[Any], context: Context, function: Callable[[], Any]) -> Done:
    if future.cancelled():
        return future, None, None
    try:
        return future, context.run(function), None
    except StopIteration as problem:
        # A future refuses this one.
        return future, None, RuntimeError(f"a store raised {problem!r}")
    except BaseException as problem:
        return future, None, problem


def _answer(done: Sequence[Done]) -> None:
    for future, result, problem in done:
        if future.done():
            continue
        if problem is None:
            future.set_result(result)
        else:
            future.set_exception(problem)


_clerks: WeakKeyDictionary[Any, Clerk] = WeakKeyDictionary()


def clerk_of(store: Any) -> Clerk | None:
    """Who works for a store on the running loop; None where there is nobody: under trio, or on a second loop."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    clerk = _clerks.get(store)
    if clerk is None or clerk.loop.is_closed():
        clerk = _clerks[store] = Clerk(loop)
    return clerk if clerk.loop is loop else None


if hasattr(os, "register_at_fork"):
    # A thread is not there in the copy of a process.
    os.register_at_fork(after_in_child=_clerks.clear)
