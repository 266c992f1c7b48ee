"""The service as one object: settings, store, storage, models, runs. Routes get it, and hold nothing themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from longtalk._util.checks import PROFILE_ID
from longtalk._util.concurrency import call_store, run_in_thread
from longtalk._util.processes import return_free_memory
from longtalk.archive.archive import AsyncArchive
from longtalk.chat.chat import Compaction
from longtalk.observation import OnEvent, join_observers
from longtalk.observation.telemetry import Telemetry
from longtalk.providers.base import AsyncProvider
from longtalk.service.access import AccessKeys, Gate
from longtalk.service.errors import describe_for_log, not_found, quote
from longtalk.service.limits import RateLimiter, TurnSlots
from longtalk.service.models import Models
from longtalk.service.quotas import Quotas
from longtalk.service.retention import Retention
from longtalk.service.run import Run, RunName
from longtalk.service.runs import LOG_LIFETIME, Runs
from longtalk.service.sealing import StateSealer
from longtalk.service.seals import load_seal
from longtalk.service.sessions import Sessions
from longtalk.service.settings import Credentials, Settings
from longtalk.service.storage.factory import open_storage
from longtalk.service.storage.protocol import Storage
from longtalk.service.turns import TurnOrder, compact, open_stream
from longtalk.stores import open_default_store, open_store
from longtalk.stores.base import ConversationInfo, Store
from longtalk.transcript.transcript import now
from longtalk.turn.stream import AsyncStream

_CLEAN_UP_SECONDS = 600
_MEMORY_SECONDS = 10
_log = logging.getLogger("longtalk")


class Service:
    """The parts of a running service, which the routes use."""

    def __init__(
        self,
        settings: Settings,
        *,
        store: Store | None = None,
        storage: Storage | None = None,
        providers: Mapping[str, AsyncProvider] | None = None,
    ) -> None:
        self.settings = settings
        self._stopped: asyncio.Future[None] | None = None
        self._owns_store = store is None
        self.store = store or (open_store(settings.store) if settings.store else open_default_store())
        self.storage = storage or open_storage(self.store)
        self.models = Models(settings, Credentials(), providers)
        self.keys = AccessKeys(self.storage)
        self.sessions = Sessions(self.storage)
        self.gate = Gate(settings, self.keys, self.sessions)
        self.limiter = RateLimiter(settings.limits, self.storage)
        self.slots = TurnSlots(settings.limits, self.storage)
        self.quotas = Quotas(settings.limits, self.storage)
        self.telemetry = Telemetry(content=settings.telemetry_content) if settings.telemetry else None
        self.runs = Runs(self.storage)
        self.retention = Retention(settings.retention, self.store, self.storage)
        self.sealer = StateSealer(self.storage, load_seal(settings.seal_file))

    def open_archive(self, owner: str) -> AsyncArchive:
        """Return the conversations of an owner."""
        return AsyncArchive(self.store, owner=owner)

    async def find_conversation(self, owner: str, name: str) -> ConversationInfo:
        """Return a conversation of an owner. Raises `ApiError` with the status 404 if it is not found."""
        found: ConversationInfo | None = await call_store(self.store, lambda: self.store.info(owner, name))
        if found is None or name == PROFILE_ID:
            raise not_found(f"Conversation {quote(name)}")
        return found

    async def start_run(
        self, name: RunName, play: Callable[[Run], Awaitable[Any]], *, logs: bool, parked: bytes | None = None
    ) -> Run:
        """Start a run, if its owner may run another one. See `Runs.start`."""
        await self.quotas.check(name.owner)
        slot = await self.slots.take(name.owner)
        try:
            return await self.runs.start(name, self._count(name, play), logs=logs, parked=parked, slot=slot)
        except BaseException:
            if slot is not None:
                await call_store(self.storage, slot.release)
            raise

    async def take_over_run(self, name: RunName, play: Callable[[Run], Awaitable[Any]], *, parked: bool) -> Run | None:
        """Go on with a run whose process has died. See `Runs.take_over`."""
        slot = await self.slots.try_take(name.owner)
        run = None
        try:
            run = await self.runs.take_over(name, self._count(name, play), parked=parked, slot=slot)
        finally:
            if run is None and slot is not None:
                await call_store(self.storage, slot.release)
        return run

    def _count(self, name: RunName, play: Callable[[Run], Awaitable[Any]]) -> Callable[[Run], Awaitable[Any]]:
        """Return `play`, which also stores what the run has used."""

        async def play_and_count(run: Run) -> Any:
            try:
                return await play(run)
            finally:
                await self.quotas.store(name.owner)

        return play_and_count

    async def open_stream(self, order: TurnOrder) -> AsyncStream[Any]:
        """Return the stream of a turn, whose model calls are counted and traced."""
        return await open_stream(order, self.store, on_event=self._observe(order))

    async def compact(self, order: TurnOrder) -> Compaction:
        """Shorten what was said before a turn. A model call for a summary is counted, and limited like a turn."""
        await self.quotas.check(order.owner)
        async with self.slots.hold(order.owner):
            try:
                return await compact(order, on_event=self._observe(order))
            finally:
                await self.quotas.store(order.owner)

    def _observe(self, order: TurnOrder) -> OnEvent | None:
        """Return a function that counts and traces the model calls of a turn."""
        options = {**order.model.options, **order.options}
        return join_observers(self.telemetry, self.quotas.observe(order.owner, order.model, options))

    async def clean_up(self) -> None:
        """Delete what has expired, now and every ten minutes."""
        while True:
            at = now()
            try:
                await self.retention.run()
                await call_store(self.storage, lambda at=at: self.storage.purge(at, logs_before=at - LOG_LIFETIME))  # type: ignore[misc]
            except Exception as problem:
                _log.warning("what has expired could not be deleted: %s", describe_for_log(problem))
            await asyncio.sleep(_CLEAN_UP_SECONDS)

    async def return_memory(self) -> None:
        """Return free memory to the system every ten seconds in which a run has ended."""
        while True:
            ended = self.runs.ended
            await asyncio.sleep(_MEMORY_SECONDS)
            if self.runs.ended != ended:
                await run_in_thread(return_free_memory)

    def stop(self) -> asyncio.Future[None]:
        """Begin no more runs, and hand over those that do not end in time. Calling it again changes nothing."""
        if self._stopped is None:
            self._stopped = asyncio.ensure_future(self.runs.stop(self.settings.shutdown_seconds))
        return self._stopped

    async def aclose(self) -> None:
        """Stop all runs, and close what was opened."""
        await self.stop()
        await self.runs.aclose()
        await self.models.aclose()
        if self._owns_store:
            self.store.close()
