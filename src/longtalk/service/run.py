"""One run: its name, its events, and its followers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, NamedTuple

from longtalk.service.errors import interrupted
from longtalk.service.holds import Hold
from longtalk.transcript.transcript import new_id
from longtalk.turn.stream import AsyncStream

MOST_AT_ONCE = 200
"""How many events a follower gets at once. What a client does not read is kept for it alone."""


class RunName(NamedTuple):
    """The name of a run: its owner, and an id that the owner's clients know."""

    owner: str
    id: str

    def to_key(self) -> str:
        """Return the key of the run's document and log."""
        return f"{len(self.owner)}:{self.owner}{self.id}"


class Run:
    """A run in this process. `emit` adds events; `cancelled` says that the client wants it to end."""

    def __init__(
        self, name: RunName, on_emit: Callable[[Run], None], *, logs: bool, holds: Sequence[Hold] = ()
    ) -> None:
        self.name = name
        self.holds = list(holds)
        """The claim of the run, and the slot that it has among those of its owner if they are limited."""
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
        self.is_handed_over = False
        """Whether the run has not ended, but goes on in another process: its event log stays open."""
        self.is_lost = False
        """Whether another process has taken the run over, because this one was stopped for long. It has the log now."""
        self._stops = False
        self._stream: AsyncStream[Any] | None = None
        self._on_emit = on_emit
        self._waiting: list[asyncio.Future[None]] = []

    def emit(self, *events: bytes) -> None:
        """Add events for all followers."""
        self.events += events
        self.wake()
        if self.logs:
            self._on_emit(self)

    @contextlib.contextmanager
    def play(self, stream: AsyncStream[Any]) -> Iterator[None]:
        """Return a context manager in which the events of a turn are read.

        It ends if the run is cancelled. If the process stops, it raises the error `interrupted`, so that the surface
        renders it; a run that is parked has no such event, because another process goes on with it.
        """
        self._stream = stream
        try:
            yield
        except asyncio.CancelledError:
            if self.cancelled:
                return
            if not self._stops or self.is_parked:
                raise
            raise interrupted() from None
        finally:
            # Clients may follow the run for long after its end.
            self._stream = None

    def cancel(self) -> None:
        """End the turn. What was said is kept."""
        if not self.cancelled:
            self.cancelled = True
            if self.task is not None:
                self.task.cancel()

    def hand_over(self) -> None:
        """Leave the turn to another process, or to the same request when it is sent again."""
        if not self.cancelled and not self._stops and self.task is not None:
            self._stops = True
            if self._stream is not None:
                self._stream.hand_over()
            self.task.cancel()

    def lose(self) -> None:
        """End the turn here without a trace: another process has taken it over."""
        self.is_lost = self.is_handed_over = True
        self.hand_over()

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
            while after + 1 < (count := len(self.events) if self._shows_all else self.stored):
                new = self.events[after + 1 : min(count, after + 1 + MOST_AT_ONCE)]
                yield after + 1, new
                after += len(new)
            if self.ended:
                return
            await self.wait()

    @property
    def _shows_all(self) -> bool:
        """Whether followers get events that are not stored yet."""
        return not self.is_parked or (self.ended and not self.is_handed_over)

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
