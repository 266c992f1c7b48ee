"""Stores the events of runs, so that other processes can follow them and clients can come back later.

Events are stored every 25 milliseconds, or sooner if a run has many new ones or has ended. One call of the storage
stores the new events of all runs, so its cost hardly depends on how many runs go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable

from longtalk._util.concurrency import call_store
from longtalk.service.errors import describe_for_log
from longtalk.service.run import Run, RunName
from longtalk.service.storage.protocol import Append, Storage

PARKED = "parked_run"
"""The kind of document from which another process goes on with a run whose process has died."""
FLUSH_SECONDS = 0.025
FLUSH_EVENTS = 64
"""How many new events of one run are stored without waiting for the next flush."""
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
        """Store all new events. Events that arrive meanwhile wait for the next call."""
        changed, self._changed = self._changed, {}
        ended, self._ended = self._ended, {}
        late, self._late = self._late, {}
        last = {**late, **dict.fromkeys(ended, 0)}
        appends = [
            Append(run.log, run.stored, run.events[run.stored :], ended=run in last and not run.is_handed_over)
            for run in {**changed, **last}
            if run.logs and not run.is_lost and (run in last or run.stored < len(run.events))
        ]
        holds = [hold for run in last for hold in run.holds]
        sure = {hold for hold in holds if hold.end()}
        delete = [*((hold.kind, hold.key) for hold in sure), *_list_parked(last)]

        def store() -> frozenset[str]:
            conflicts = self._storage.append_all(appends, delete=delete)
            for hold in holds:
                if hold not in sure:
                    hold.release()
            return conflicts

        try:
            conflicts = await call_store(self._storage, store)
            self._has_failed = False
            if conflicts:
                _log.warning("the events of %d runs were stored by another process", len(conflicts))
            sizes = {append.run: append.first + len(append.events) for append in appends}
            for run in {**changed, **last}:
                run.stored = sizes.get(run.log, run.stored)
                if run.is_parked:
                    run.wake()
        except Exception as problem:
            _log.warning("the events of %d runs could not be stored: %s", len(appends), describe_for_log(problem))
            self._late |= {run: tries + 1 for run, tries in last.items() if tries < _RETRIES}
            self._changed = {**{run: None for run in changed if run not in last}, **self._changed}
            self._has_failed = True
        finally:
            for waiting in ended.values():
                if not waiting.done():
                    waiting.set_result(None)


def _list_parked(ended: Iterable[Run]) -> list[tuple[str, str]]:
    """Return the documents of what is parked of runs that have ended. It is kept of a run that goes on elsewhere."""
    return [(PARKED, run.name.to_key()) for run in ended if run.is_parked and not run.is_handed_over]
