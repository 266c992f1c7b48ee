"""Stores the events of runs, so that other processes can follow them and clients can come back later.

Events are stored every 25 milliseconds, or sooner if a run has many new ones or has ended. One call of the storage
stores the new events of many runs, so its cost hardly depends on how many runs go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Container, Iterable, Sequence

from longtalk._util.concurrency import call_store
from longtalk.service.errors import describe_for_log
from longtalk.service.run import Run, RunName
from longtalk.service.storage.protocol import Append, Storage

PARKED = "parked_run"
"""The kind of document from which another process goes on with a run whose process has died."""
FLUSH_SECONDS = 0.025
FLUSH_EVENTS = 64
"""How many new events of one run are stored without waiting for the next flush."""
MOST_RUNS, MOST_BYTES = 200, 150_000
"""Of how many runs, and about how many bytes of events, one call of the storage stores.

The client of a database keeps buffers as large as the largest call, for each connection, and a server holds locks for
each run until the call ends.
"""
RETRY_SECONDS = 1.0
_RETRIES = 60
"""How often the end of a run is stored again after a failure. By then, the claim of the run has expired."""

_log = logging.getLogger("longtalk")


class EventWriter:
    """Stores the events of all runs of this process. If this fails, the turns continue."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._changed: dict[Run, None] = {}
        """The runs with new events, in the order of their first new event."""
        self._ended: dict[Run, asyncio.Future[None]] = {}
        """The runs that have ended, and those who wait until that is stored."""
        self._late: dict[Run, int] = {}
        """The runs whose end could not be stored, and how often it was tried."""
        self._hurry = asyncio.Event()
        self._has_failed = False
        """Whether the last call of the storage has failed."""
        self._task: asyncio.Task[None] | None = None

    def add(self, run: Run) -> None:
        """Schedule the new events of a run to be stored, together with those of other runs."""
        self._changed[run] = None
        if len(run.events) - run.stored >= FLUSH_EVENTS:
            self._hurry.set()
        self._start()

    async def finish(self, run: Run) -> None:
        """Store the remaining events of a run and its end, and delete its claim.

        This is tried at once, or after a failure within a second.
        The log of a run that is handed over does not end.
        """
        self._ended[run] = asyncio.get_running_loop().create_future()
        self._hurry.set()
        self._start()
        await self._ended[run]

    def abandon(self, run: Run) -> None:
        """Schedule the claim of a run that has not begun to be deleted."""
        self._late[run] = 0
        self._start()

    async def settle(self, name: RunName) -> None:
        """Store the end of earlier runs of this name, if that has failed before."""
        for run in [run for run in self._late if run.name == name]:
            del self._late[run]
            await self.finish(run)

    def close(self) -> None:
        """Stop retrying to store events after a failure."""
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._changed or self._ended or self._late:
                if self._has_failed:
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._hurry.wait(), FLUSH_SECONDS)
                self._hurry.clear()
                await self._flush()
        finally:
            self._task = None

    async def _flush(self) -> None:
        """Store all new events, in calls of limited size. Events that arrive meanwhile wait for the next flush."""
        changed, self._changed = self._changed, {}
        ended, self._ended = self._ended, {}
        late, self._late = self._late, {}
        last = {**late, **dict.fromkeys(ended, 0)}
        waiting = list({**changed, **last})
        try:
            while waiting:
                count = _count_for_one_call(waiting)
                await self._store(waiting[:count], last.keys())
                del waiting[:count]
            self._has_failed = False
        except Exception as problem:
            _log.warning("the events of %d runs could not be stored: %s", len(waiting), describe_for_log(problem))
            self._late |= {run: last[run] + 1 for run in waiting if last.get(run, _RETRIES) < _RETRIES}
            self._changed = {**{run: None for run in waiting if run not in last}, **self._changed}
            self._has_failed = True
        finally:
            for stored in ended.values():
                if not stored.done():
                    stored.set_result(None)

    async def _store(self, runs: Sequence[Run], last: Container[Run]) -> None:
        """Store the new events of some runs, and the end of those that are in `last`, in one call of the storage."""
        appends = [
            Append(run.log, run.stored, run.events[run.stored :], ended=run in last and not run.is_handed_over)
            for run in runs
            if run.logs and not run.is_lost and (run in last or run.stored < len(run.events))
        ]
        ended = [run for run in runs if run in last]
        holds = [hold for run in ended for hold in run.holds]
        sure = {hold for hold in holds if hold.end()}
        delete = [*((hold.kind, hold.key) for hold in sure), *_list_parked(ended)]

        def store() -> frozenset[str]:
            conflicts = self._storage.append_all(appends, delete=delete)
            for hold in holds:
                if hold not in sure:
                    hold.release()
            return conflicts

        conflicts = await call_store(self._storage, store)
        if conflicts:
            _log.warning("the events of %d runs were stored by another process", len(conflicts))
        sizes = {append.run: append.first + len(append.events) for append in appends}
        for run in runs:
            run.stored = sizes.get(run.log, run.stored)
            if run.is_parked:
                run.wake()


def _count_for_one_call(runs: Sequence[Run]) -> int:
    """Return how many of these runs, at least one, have new events that can be stored in one call."""
    size = 0
    for count, run in enumerate(runs[:MOST_RUNS]):
        size += sum(map(len, run.events[run.stored :]))
        if count and size > MOST_BYTES:
            return count
    return min(len(runs), MOST_RUNS)


def _list_parked(ended: Iterable[Run]) -> list[tuple[str, str]]:
    """Return the documents of what is parked of runs that have ended. It is kept of a run that goes on elsewhere."""
    return [(PARKED, run.name.to_key()) for run in ended if run.is_parked and not run.is_handed_over]
