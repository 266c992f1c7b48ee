"""One run: its name, its events, and its followers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from longtalk.transcript.transcript import new_id


class RunName(NamedTuple):
    """The name of a run: its owner, and an id that the owner's clients know."""

    owner: str
    id: str

    def to_key(self) -> str:
        """Return the key of the run's document and log."""
        return f"{len(self.owner)}:{self.owner}{self.id}"


class Run:
    """A run in this process. `emit` adds events; `cancelled` says that the client wants it to end."""

    def __init__(self, name: RunName, on_emit: Callable[[Run], None], *, logs: bool) -> None:
        self.name = name
        self.logs = logs
        """Whether the events are stored, for followers in other processes and for those who come back."""
        self.events: list[bytes] = []
        self.ended = False
        self.cancelled = False
        self.log = new_id()
        """The name of the event log."""
        self.is_parked = False
        """Whether what is needed to go on with the run in another process is stored, until its end.

        Its followers get only events that are stored, so that none of them changes if another process goes on.
        """
        self.stored = 0
        """How many events are in the storage."""
        self.task: asyncio.Task[None] | None = None
        self.result: Any = None
        """What the run has produced, for the request that started it."""
        self.failure: Exception | None = None
        self._on_emit = on_emit
        self._waiting: list[asyncio.Future[None]] = []

    def emit(self, *events: bytes) -> None:
        """Add events for all followers."""
        self.events += events
        self.wake()
        if self.logs:
            self._on_emit(self)

    def wake(self) -> None:
        """Wake all followers."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def wait(self) -> None:
        """Wait until the run has more events or ends."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    async def follow(self, after: int = -1) -> AsyncIterator[tuple[int, list[bytes]]]:
        """Yield the events after the one with the number `after`, until the end; see `Runs.follow`."""
        while True:
            while after + 1 < (count := self.stored if self.is_parked and not self.ended else len(self.events)):
                new = self.events[after + 1 : count]
                yield after + 1, new
                after += len(new)
            if self.ended:
                return
            await self.wait()

    async def wait_for_events(self) -> None:
        """Wait until the run has an event or ends. Raises what it failed with before its first event."""
        while not self.events and not self.ended:
            await self.wait()
        if self.failure is not None and not self.events:
            raise self.failure

    async def wait_for_end(self) -> Any:
        """Wait until the run ends, and return what it has produced. Raises what it failed with."""
        while not self.ended:
            await self.wait()
        if self.failure is not None:
            raise self.failure
        return self.result
