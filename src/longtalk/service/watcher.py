"""Watching the storage: event logs that other processes append to, and messages between processes.

A message asks a process to cancel one of its runs. It is an event in a log of that process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from longtalk._util.concurrency import call_store, run_in_thread
from longtalk.service.errors import describe_for_log
from longtalk.service.run import RunName
from longtalk.service.storage.protocol import LogConflict, Storage

POLL_SECONDS = 1.0
_CONTROL = "control/"
_TRIES = 20
_log = logging.getLogger("longtalk")


class Watcher:
    """A thread that reads what other processes have stored, and wakes the tasks that wait for it."""

    def __init__(self, storage: Storage, process: str, cancel: Callable[[RunName], None]) -> None:
        self._storage = storage
        self._control = _CONTROL + process
        self._cancel = cancel
        self._watched: dict[str, set[asyncio.Event]] = {}
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._control_read = -1
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_closed = False

    def start(self) -> None:
        """Start the thread, if it does not run."""
        self._loop = asyncio.get_running_loop()
        if self._thread is None and not self.is_closed:
            self._thread = threading.Thread(target=self._watch, name="longtalk-runs", daemon=True)
            self._thread.start()

    @contextlib.contextmanager
    def watch(self, log: str) -> Iterator[asyncio.Event]:
        """Return a context manager with an event that is set when a log may have new events, and at the end."""
        self.start()
        changed = asyncio.Event()
        self._watched.setdefault(log, set()).add(changed)
        try:
            yield changed
        finally:
            self._watched[log].discard(changed)
            if not self._watched[log]:
                del self._watched[log]

    def ask_to_cancel(self, process: str, name: RunName) -> None:
        """Ask another process to cancel a run."""
        log, event = _CONTROL + process, msgspec.json.encode(tuple(name))
        for _ in range(_TRIES):
            count = -1
            while page := self._storage.read(log, count):
                count += len(page.events)
                if not page.events:
                    break
            with contextlib.suppress(LogConflict):
                self._storage.append(log, count + 1, [event])
                return

    def close(self) -> None:
        """Let the thread end, and wake all tasks that wait. The thread ends when the storage is closed, too."""
        self.is_closed = True
        self._wake(None)

    async def join(self) -> None:
        """Wait until the thread has ended."""
        if self._thread is not None:
            await run_in_thread(partial(self._thread.join, POLL_SECONDS + 1))

    def _watch(self) -> None:
        while not self.is_closed:
            try:
                changed = self._storage.poll_changes(POLL_SECONDS)
            except Exception as problem:
                _log.warning("changes of runs can't be seen: %s", describe_for_log(problem))
                threading.Event().wait(POLL_SECONDS)
                changed = None
            loop = self._loop
            if loop is not None and (changed is None or changed) and not self.is_closed:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._on_changes, changed)

    def _on_changes(self, changed: frozenset[str] | None) -> None:
        self._wake(changed)
        if not self.is_closed and (changed is None or self._control in changed):
            task = asyncio.ensure_future(self._read_control())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _wake(self, changed: frozenset[str] | None) -> None:
        for log in list(self._watched) if changed is None else changed:
            for event in self._watched.get(log, ()):
                event.set()

    async def _read_control(self) -> None:
        """Cancel the runs that other processes have asked to cancel."""
        after = self._control_read
        page = await call_store(self._storage, lambda: self._storage.read(self._control, after))
        for number, event in enumerate(page.events if page else (), after + 1):
            # Another call may have read the same events meanwhile.
            if number > self._control_read:
                self._control_read = number
                self._cancel(RunName(*msgspec.json.decode(event, type=tuple[str, str])))
