"""Runs: turns that continue whether or not a client listens.

A request starts a run and follows its events. If the client disconnects, the run continues; `cancel` ends it and keeps
what was said. The events of a run are numbered from 0. They are in this process's memory while the run goes on, and in
the storage for followers in other processes and for those who come back later.

If the process of a run dies (`claims.py`) or stops, another process may take the run over, and continue its event log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from longtalk._util.concurrency import call_store
from longtalk.errors import StoreError
from longtalk.service.claims import Claims
from longtalk.service.errors import ApiError, describe_for_log, interrupted
from longtalk.service.event_writer import PARKED, EventWriter
from longtalk.service.holds import LIFETIME, Hold, take_hold
from longtalk.service.run import MOST_AT_ONCE, Run, RunName
from longtalk.service.storage.protocol import Storage
from longtalk.service.watcher import POLL_SECONDS, Watcher
from longtalk.transcript.transcript import now

_LOG = "run_log"
"""The kind of document that names the event log of a run. A run that is started again gets a new log."""
LOG_LIFETIME = 3_600_000
"""How long the events of a run are kept after its end, in milliseconds."""
PARKED_LIFETIME = 24 * 3_600_000
"""How long it is tried to go on with a run whose process has died, in milliseconds."""
_END_SECONDS = 0.05
_END_CHECKS = 100
"""How often, and after how many seconds each, a request checks whether a run that it has cancelled has ended."""
_HAND_OVER_SECONDS = 5.0
"""How long it may take to store the last events of runs that are handed over."""

_log = logging.getLogger("longtalk")


class Runs:
    """The runs of this process, and access to those of other processes."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._runs: dict[RunName, Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._claims = Claims(storage)
        self._watcher = Watcher(storage, self._claims.process, self._cancel_named)
        self._writer = EventWriter(storage)
        self._renewer: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self.ended = 0
        """How many runs have ended in this process."""

    @property
    def active(self) -> list[Run]:
        """The runs that go on in this process."""
        return [run for run in self._runs.values() if not run.ended]

    @property
    def is_stopping(self) -> bool:
        """Whether this process begins no more runs, because it stops."""
        return self._stopping.is_set()

    async def wait_for_stop(self) -> None:
        """Wait until this process begins no more runs."""
        await self._stopping.wait()

    async def start(
        self,
        name: RunName,
        play: Callable[[Run], Awaitable[Any]],
        *,
        logs: bool = True,
        parked: bytes | None = None,
        slot: Hold | None = None,
    ) -> Run:
        """Start a run. `play` produces its events; what it returns is the run's result.

        `parked` is stored until the run ends, so that another process can go on with it if this one dies or stops. The
        run holds `slot` until it ends. Raises `ApiError` if the run has already started, in this process or in another
        one, or if this process stops.
        """
        self._refuse_if_stopping()
        await self._writer.settle(name)
        claim = None if name in self._runs else await take_hold(self._storage, partial(self._claims.claim, name))
        if claim is None:
            raise ApiError(
                409, "This request is already running.", code="request_running", headers={"retry-after": "1"}
            )
        self._watcher.start()
        run = self._runs[name] = Run(name, self._writer.add, logs=logs, holds=_list_holds(claim, slot))
        try:
            if logs:
                await call_store(self._storage, partial(self._point_to_log, run))
            # What is parked goes on elsewhere, so nothing is refused after that.
            self._refuse_if_stopping()
            if parked is not None:
                run.is_parked = True
                await call_store(self._storage, partial(self._park, name, parked))
        except BaseException:
            # The storage has failed, the client has left, or this process stops: the same request can begin again.
            del self._runs[name]
            # The caller releases the slot.
            run.holds = [claim]
            self._writer.abandon(run)
            raise
        self._launch(run, play)
        return run

    async def take_over(
        self, name: RunName, play: Callable[[Run], Awaitable[Any]], *, parked: bool, slot: Hold | None = None
    ) -> Run | None:
        """Go on with a run whose process has died. Its events so far are those of the new run, which adds to them.

        Returns None if the run goes on elsewhere, or has nothing to go on with: with `parked`, the document of this
        kind, otherwise an event log that has not ended. A process that stops takes no run over.
        """
        if self.is_stopping or name in self._runs or self._claims.may_be_late:
            return None
        claim = await take_hold(self._storage, partial(self._claims.claim, name))
        if claim is None:
            return None
        run = self._runs[name] = Run(name, self._writer.add, logs=True, holds=_list_holds(claim, slot))
        run.is_parked = True
        try:
            goes_on = await call_store(self._storage, partial(self._restore, run, parked=parked))
        except BaseException:
            del self._runs[name]
            await call_store(self._storage, claim.release)
            raise
        if not goes_on or self.is_stopping:
            del self._runs[name]
            await call_store(self._storage, claim.release)
            return None
        self._watcher.start()
        self._launch(run, play)
        return run

    async def list_parked(self, after: str | None = None) -> list[tuple[str, bytes]]:
        """Return keys and contents of runs that another process can go on with, ordered by key."""
        found = await call_store(self._storage, partial(self._storage.list_documents, PARKED, after=after))
        return [(each.key, each.value) for each in found]

    async def read_parked(self, name: RunName) -> bytes | None:
        """Return what was parked for a run that has not ended, or None."""
        found = await call_store(self._storage, partial(self._storage.get, PARKED, name.to_key()))
        return found.value if found is not None else None

    async def forget_parked(self, name: RunName) -> None:
        """Let no process go on with a run, if its process has died."""
        await call_store(self._storage, partial(self._storage.delete, PARKED, name.to_key()))

    async def delete_events(self, name: RunName) -> None:
        """Delete the events that are kept of a run that has ended."""
        log = await self._find_log(name)
        if log is not None:
            await call_store(self._storage, partial(self._storage.delete, _LOG, name.to_key()))
            await call_store(self._storage, partial(self._storage.delete_log, log))

    async def is_running(self, name: RunName) -> bool:
        """Return True if a process that is alive runs a run, or could."""
        return name in self._runs or self._claims.may_be_late or await self._claims.find(name) is not None

    async def read_events(self, name: RunName) -> tuple[list[bytes], bool]:
        """Return the events of a run so far, and whether it has ended. Without a log, that is taken to be so."""
        run = self._runs.get(name)
        if run is not None:
            return list(run.events), run.ended
        log = await self._find_log(name)
        return ([], True) if log is None else await call_store(self._storage, partial(self._read_log, log))

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

    async def cancel(self, name: RunName) -> None:
        """End a run, in whichever process it is. What was said is kept. Ending it twice changes nothing."""
        if name in self._runs:
            self._cancel_named(name)
            return
        info = await self._claims.find(name)
        if info is not None and info.process != self._claims.process:
            await call_store(self._storage, lambda: self._watcher.ask_to_cancel(info.process, name))

    async def wait_for_end(self, name: RunName) -> bool:
        """Wait until no process runs a run, for some seconds at most. Return False if one still does."""
        for _ in range(_END_CHECKS):
            if not await self.is_running(name):
                return True
            await asyncio.sleep(_END_SECONDS)
        return False

    async def stop(self, seconds: float) -> None:
        """Begin no more runs, and wait for those of this process; after some seconds, hand them over.

        A run that is parked goes on in another process, or when the service starts again. Any other run ends with the
        error `interrupted`, and the same request continues it. After that, no run can be followed in this process.
        """
        self._stopping.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for run in self.active:
            run.hand_over()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_HAND_OVER_SECONDS)
        self._watcher.close()

    async def aclose(self) -> None:
        """Close what was opened, after `stop`."""
        if self._renewer is not None:
            self._renewer.cancel()
        self._writer.close()
        self._watcher.close()
        self._storage.close()
        await self._watcher.join()

    # Inside

    def _refuse_if_stopping(self) -> None:
        if self.is_stopping:
            raise ApiError(
                503,
                "This process of the service is stopping. Try again.",
                kind="server_error",
                code="stopping",
                headers={"retry-after": "1"},
            )

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

    async def _find_log(self, name: RunName) -> str | None:
        found = await call_store(self._storage, partial(self._storage.get, _LOG, name.to_key()))
        return found.value.decode() if found is not None else None

    def _read_log(self, log: str) -> tuple[list[bytes], bool]:
        """Return all events of a log, and whether it has ended."""
        events: list[bytes] = []
        while page := self._storage.read(log, len(events) - 1):
            events += page.events
            if page.ended or not page.events:
                return events, page.ended
        return events, False

    def _point_to_log(self, run: Run) -> None:
        """Let other processes find the events of a run, until some time after its last event."""
        expires = now() + LOG_LIFETIME + LIFETIME
        self._storage.put(_LOG, run.name.to_key(), run.log.encode(), expires=expires)

    async def _renew_claims(self) -> None:
        """Keep the claims of this process's runs from expiring, while there are any."""
        try:
            while self._runs:
                await asyncio.sleep(LIFETIME / 3000)
                for run in self.active:
                    with contextlib.suppress(Exception):
                        for hold in run.holds:
                            await call_store(self._storage, hold.renew)
                        if run.holds[0].is_lost:
                            _log.warning("a run was taken over by another process, because this one was late")
                            run.lose()
                        elif run.logs:
                            await call_store(self._storage, partial(self._point_to_log, run))
        finally:
            self._renewer = None

    async def _play(self, run: Run, play: Callable[[Run], Awaitable[Any]]) -> None:
        try:
            run.result = await play(run)
        except asyncio.CancelledError:
            if not run.cancelled:
                # The process stops: even if it has no time to hand its runs over, none is taken to have ended.
                run.is_handed_over = True
                run.failure = interrupted()
        except Exception as problem:
            run.failure = problem
            level = logging.WARNING if isinstance(problem, StoreError) else logging.DEBUG
            _log.log(level, "a run has failed: %s", describe_for_log(problem))
        finally:
            # First for other processes and for a repeated request, then for those who follow: once a client knows that
            # a run has ended, the same request does not meet it any more.
            run.task = None
            try:
                await self._writer.finish(run)
            finally:
                self._runs.pop(run.name, None)
                self.ended += 1
                run.ended = True
                run.wake()

    def _cancel_named(self, name: RunName) -> None:
        """Cancel a run of this process, if it is there."""
        run = self._runs.get(name)
        if run is not None and not run.ended:
            run.cancel()

    async def _follow_stored(self, name: RunName, after: int) -> AsyncIterator[tuple[int, list[bytes]]]:
        log = await self._find_log(name)
        if log is None:
            return
        with self._watcher.watch(log) as changed:
            while not self._watcher.is_closed:
                changed.clear()
                # The order matters: a run that ends in between has stored all its events.
                info = await self._claims.find(name)
                page = await call_store(self._storage, partial(self._storage.read, log, after, MOST_AT_ONCE))
                if page is not None and page.events:
                    yield after + 1, list(page.events)
                    after += len(page.events)
                if (page is not None and page.ended) or (info is None and not (page and page.events)):
                    return
                if page is None or not page.events:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), POLL_SECONDS)


def _list_holds(claim: Hold, slot: Hold | None) -> list[Hold]:
    return [claim] if slot is None else [claim, slot]
