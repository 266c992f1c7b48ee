"""Runs: turns that continue whether or not a client listens.

A request starts a run and follows its events. If the client disconnects, the run continues; `cancel` ends it and keeps
what was said. The events of a run are numbered from 0. They are in this process's memory while the run goes on, and in
the storage for followers in other processes and for those who come back later.

A process claims each of its runs, and renews the claims. If it dies, another process on its host sees that at once, and
one on another host when the claim expires. It may then take the run over, and continue its event log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from longtalk._util import typed_json
from longtalk._util.concurrency import run_in_thread
from longtalk.service.errors import ApiError
from longtalk.service.event_writer import KIND, PARKED, EventWriter
from longtalk.service.run import Run, RunName
from longtalk.service.storage.protocol import LogConflict, Storage
from longtalk.stores.base import Holder
from longtalk.stores.leases import identify_this_process, is_alive
from longtalk.transcript.transcript import new_id, now

_LOG = "run_log"
"""The kind of document that names the event log of a run. A run that is started again gets a new log."""
_CONTROL = "control/"
LOG_LIFETIME = 3_600_000
"""How long the events of a run are kept after its end, in milliseconds."""
PARKED_LIFETIME = 24 * 3_600_000
"""How long it is tried to go on with a run whose process has died, in milliseconds."""
CLAIM_LIFETIME = 60_000
"""How long a process is taken to run a turn if it does not say so again, in milliseconds."""
_POLL_SECONDS = 1.0
_END_SECONDS = 0.05
_END_CHECKS = 100
"""How often, and after how many seconds each, a request checks whether a run that it has cancelled has ended."""

_log = logging.getLogger("longtalk")


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a running run that every process can read."""

    process: str
    """The name of the process in control messages."""
    holder: Holder
    """The process, described so that others on its host can check whether it is alive."""


class Runs:
    """The runs of this process, and access to those of other processes."""

    def __init__(self, storage: Storage) -> None:
        self.process = new_id()
        self._storage = storage
        self._runs: dict[RunName, Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._watched: dict[str, set[asyncio.Event]] = {}
        self._watcher: threading.Thread | None = None
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._control_read = -1
        self._writer = EventWriter(storage)
        self._renewer: asyncio.Task[None] | None = None

    @property
    def active(self) -> list[Run]:
        """The runs that go on in this process."""
        return [run for run in self._runs.values() if not run.ended]

    def count_active(self, owner: str) -> int:
        """Return how many runs of an owner go on in this process."""
        return sum(run.name.owner == owner for run in self.active)

    async def start(
        self, name: RunName, play: Callable[[Run], Awaitable[Any]], *, logs: bool = True, parked: bytes | None = None
    ) -> Run:
        """Start a run. `play` produces its events; what it returns is the run's result.

        `parked` is stored until the run ends, so that another process can go on with it if this one dies. Raises
        `ApiError` if the run has already started, in this process or in another one.
        """
        await self._writer.settle(name)
        if name in self._runs or not await run_in_thread(partial(self._claim, name)):
            raise ApiError(
                409, "This request is already running.", code="request_running", headers={"retry-after": "1"}
            )
        self._start_watching()
        run = self._runs[name] = Run(name, self._writer.add, logs=logs)
        try:
            if logs:
                await run_in_thread(partial(self._point_to_log, run))
            if parked is not None:
                run.is_parked = True
                await run_in_thread(partial(self._park, name, parked))
        except BaseException:
            # The storage has failed, or the client has left: the same request can begin again.
            del self._runs[name]
            self._writer.abandon(run)
            raise
        self._launch(run, play)
        return run

    async def take_over(self, name: RunName, play: Callable[[Run], Awaitable[Any]], *, parked: bool) -> Run | None:
        """Go on with a run whose process has died. Its events so far are those of the new run, which adds to them.

        Returns None if the run goes on elsewhere, or has nothing to go on with: with `parked`, the document of this
        kind, otherwise an event log that has not ended.
        """
        if self._closing or name in self._runs or not await run_in_thread(partial(self._claim, name)):
            return None
        run = self._runs[name] = Run(name, self._writer.add, logs=True)
        run.is_parked = True
        try:
            goes_on = await run_in_thread(partial(self._restore, run, parked=parked))
        except BaseException:
            del self._runs[name]
            await run_in_thread(partial(self._storage.delete, KIND, name.to_key()))
            raise
        if not goes_on:
            del self._runs[name]
            await run_in_thread(partial(self._storage.append_all, [], delete=[(KIND, name.to_key())]))
            return None
        self._start_watching()
        self._launch(run, play)
        return run

    async def list_parked(self, after: str | None = None) -> list[tuple[str, bytes]]:
        """Return keys and contents of runs that another process can go on with, ordered by key."""
        found = await run_in_thread(partial(self._storage.list_documents, PARKED, after=after))
        return [(each.key, each.value) for each in found]

    async def read_parked(self, name: RunName) -> bytes | None:
        """Return what was parked for a run that has not ended, or None."""
        found = await run_in_thread(partial(self._storage.get, PARKED, name.to_key()))
        return found.value if found is not None else None

    async def forget_parked(self, name: RunName) -> None:
        """Let no process go on with a run, if its process has died."""
        await run_in_thread(partial(self._storage.delete, PARKED, name.to_key()))

    async def is_running(self, name: RunName) -> bool:
        """Return True if a process that is alive runs a run."""
        return name in self._runs or await self.read_info(name) is not None

    async def read_events(self, name: RunName) -> tuple[list[bytes], bool]:
        """Return the events of a run so far, and whether it has ended. Without a log, that is taken to be so."""
        run = self._runs.get(name)
        if run is not None:
            return list(run.events), run.ended
        log = await self._find_log(name)
        return ([], True) if log is None else await run_in_thread(partial(self._read_log, log))

    def find(self, name: RunName) -> Run | None:
        """Return a run of this process."""
        return self._runs.get(name)

    def follow(self, name: RunName, after: int = -1) -> AsyncIterator[tuple[int, list[bytes]]]:
        """Return the events of a run after the one with the number `after`, until its end.

        They come in lists, each with the number of its first event. A run that is not known has no events.
        """
        run = self._runs.get(name)
        return self._follow_stored(name, after) if run is None else run.follow(after)

    async def has_events(self, name: RunName) -> bool:
        """Return True if the events of a run can be followed."""
        return name in self._runs or await self._find_log(name) is not None

    async def _find_log(self, name: RunName) -> str | None:
        found = await run_in_thread(partial(self._storage.get, _LOG, name.to_key()))
        return found.value.decode() if found is not None else None

    async def read_info(self, name: RunName) -> RunInfo | None:
        """Return what is known of a run, or None if no process runs it, or the one that did has died."""
        key = name.to_key()
        found = await run_in_thread(lambda: self._storage.get(KIND, key))
        info = typed_json.decode(found.value, RunInfo) if found is not None else None
        return info if info is not None and is_alive(info.holder) else None

    async def cancel(self, name: RunName) -> None:
        """End a run, in whichever process it is. What was said is kept. Ending it twice changes nothing."""
        run = self._runs.get(name)
        if run is not None:
            self._cancel_here(run)
            return
        info = await self.read_info(name)
        if info is not None and info.process != self.process:
            await run_in_thread(lambda: self._send_control(info.process, name))

    async def wait_for_end(self, name: RunName) -> bool:
        """Wait until no process runs a run, for some seconds at most. Return False if one still does."""
        for _ in range(_END_CHECKS):
            if not await self.is_running(name):
                return True
            await asyncio.sleep(_END_SECONDS)
        return False

    async def aclose(self, seconds: float) -> None:
        """Wait for the runs to end; after some seconds, end them. What was said is kept."""
        self._closing = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for run in self.active:
            self._cancel_here(run)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)
        if self._renewer is not None:
            self._renewer.cancel()
        self._writer.close()
        self._storage.close()
        if self._watcher is not None:
            await run_in_thread(partial(self._watcher.join, _POLL_SECONDS + 1))

    # Inside

    def _launch(self, run: Run, play: Callable[[Run], Awaitable[Any]]) -> None:
        """Let a run that this process has claimed go on."""
        run.task = asyncio.get_running_loop().create_task(self._play(run, play))
        self._tasks.add(run.task)
        run.task.add_done_callback(self._tasks.discard)
        if self._renewer is None:
            self._renewer = asyncio.get_running_loop().create_task(self._renew_claims())

    def _park(self, name: RunName, parked: bytes) -> None:
        self._storage.put(PARKED, name.to_key(), parked, expires=now() + PARKED_LIFETIME)

    def _restore(self, run: Run, *, parked: bool) -> bool:
        """Give a run the log and the events of the one that it continues. Return False if that has ended."""
        key = run.name.to_key()
        if parked and self._storage.get(PARKED, key) is None:
            return False
        found = self._storage.get(_LOG, key)
        if found is None:
            if parked:
                self._point_to_log(run)
            return parked
        run.log = found.value.decode()
        run.events, ended = self._read_log(run.log)
        run.stored = len(run.events)
        if ended:
            self._storage.delete(PARKED, key)
        return not ended

    def _read_log(self, log: str) -> tuple[list[bytes], bool]:
        """Return all events of a log, and whether it has ended."""
        events: list[bytes] = []
        while page := self._storage.read(log, len(events) - 1):
            events += page.events
            if page.ended or not page.events:
                return events, page.ended
        return events, False

    def _claim(self, name: RunName) -> bool:
        """Claim a run for this process. Return False if another process that is alive runs it."""
        key = name.to_key()
        while not self._put(name, expect=0):
            found = self._storage.get(KIND, key)
            if found is None:
                continue
            if is_alive(typed_json.decode(found.value, RunInfo).holder):
                return False
            self._storage.delete(KIND, key, expect=found.version)
        return True

    def _put(self, name: RunName, *, expect: int | None = None) -> bool:
        info = RunInfo(process=self.process, holder=identify_this_process())
        value = msgspec.json.encode(info)
        return self._storage.put(KIND, name.to_key(), value, expect=expect, expires=now() + CLAIM_LIFETIME) is not None

    def _point_to_log(self, run: Run) -> None:
        """Let other processes find the events of a run, until some time after its last event."""
        expires = now() + LOG_LIFETIME + CLAIM_LIFETIME
        self._storage.put(_LOG, run.name.to_key(), run.log.encode(), expires=expires)

    async def _renew_claims(self) -> None:
        """Keep the claims of this process's runs from expiring, while there are any."""
        try:
            while self._runs:
                await asyncio.sleep(CLAIM_LIFETIME / 3000)
                for run in self.active:
                    with contextlib.suppress(Exception):
                        await run_in_thread(partial(self._put, run.name))
                        if run.logs:
                            await run_in_thread(partial(self._point_to_log, run))
        finally:
            self._renewer = None

    async def _play(self, run: Run, play: Callable[[Run], Awaitable[Any]]) -> None:
        try:
            run.result = await play(run)
        except asyncio.CancelledError:
            if not run.cancelled:
                raise
        except Exception as problem:
            run.failure = problem
            _log.debug("a run has failed: %s", type(problem).__name__)
        finally:
            # First for other processes and for a repeated request, then for those who follow: once a client knows that
            # a run has ended, the same request does not meet it any more.
            run.task = None
            try:
                await self._writer.finish(run)
            finally:
                self._runs.pop(run.name, None)
                run.ended = True
                run.wake()

    def _cancel_here(self, run: Run) -> None:
        if not run.ended and not run.cancelled:
            run.cancelled = True
            if run.task is not None:
                run.task.cancel()

    async def _follow_stored(self, name: RunName, after: int) -> AsyncIterator[tuple[int, list[bytes]]]:
        key = await self._find_log(name)
        if key is None:
            return
        self._start_watching()
        changed = asyncio.Event()
        self._watched.setdefault(key, set()).add(changed)
        try:
            while True:
                changed.clear()
                # The order matters: a run that ends in between has stored all its events.
                info = await self.read_info(name)
                page = await run_in_thread(partial(self._storage.read, key, after))
                if page is not None and page.events:
                    yield after + 1, list(page.events)
                    after += len(page.events)
                if (page is not None and page.ended) or (info is None and not (page and page.events)):
                    return
                if page is None or not page.events:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), _POLL_SECONDS)
        finally:
            self._watched[key].discard(changed)
            if not self._watched[key]:
                del self._watched[key]

    def _start_watching(self) -> None:
        """Start the thread that reads what other processes have stored."""
        self._loop = asyncio.get_running_loop()
        if self._watcher is None and not self._closing:
            self._watcher = threading.Thread(target=self._watch, name="longtalk-runs", daemon=True)
            self._watcher.start()

    def _watch(self) -> None:
        while not self._closing:
            try:
                changed = self._storage.poll_changes(_POLL_SECONDS)
            except Exception as problem:
                _log.warning("changes of runs can't be seen: %s", type(problem).__name__)
                threading.Event().wait(_POLL_SECONDS)
                changed = None
            loop = self._loop
            if loop is not None and (changed is None or changed) and not self._closing:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._on_changes, changed)

    def _on_changes(self, changed: frozenset[str] | None) -> None:
        for key in list(self._watched) if changed is None else changed:
            for event in self._watched.get(key, ()):
                event.set()
        if changed is None or _CONTROL + self.process in changed:
            task = asyncio.ensure_future(self._read_control())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _read_control(self) -> None:
        """Cancel the runs that other processes have asked to cancel."""
        page = await run_in_thread(lambda: self._storage.read(_CONTROL + self.process, self._control_read))
        for event in page.events if page else ():
            self._control_read += 1
            run = self._runs.get(RunName(*msgspec.json.decode(event, type=tuple[str, str])))
            if run is not None:
                self._cancel_here(run)

    def _send_control(self, process: str, name: RunName) -> None:
        """Ask another process to cancel a run."""
        log, event = _CONTROL + process, msgspec.json.encode(tuple(name))
        for _ in range(20):
            count = -1
            while page := self._storage.read(log, count):
                count += len(page.events)
                if not page.events:
                    break
            with contextlib.suppress(LogConflict):
                self._storage.append(log, count + 1, [event])
                return
