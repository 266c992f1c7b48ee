"""Limits of tokens and cost: what each owner's turns have used today, counted by all processes together.

Each model call is counted when it ends, with the usage that the provider reports, and stored before its turn ends. A
turn that has begun is never cut off: once a limit is reached, the next turn is refused until midnight (UTC). A call
that is cancelled counts with the usage that the provider has reported until then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from longtalk._util import typed_json
from longtalk._util.concurrency import call_store
from longtalk.models.call_cost import add_dollars, adjust_prices, cost
from longtalk.observation import Observation, OnEvent
from longtalk.providers.base import explain_unknown_prices
from longtalk.service.errors import ApiError, describe_for_log, quote
from longtalk.service.limits import make_limit_error
from longtalk.service.models import ServedModel
from longtalk.service.settings import Limits
from longtalk.service.storage.protocol import Storage
from longtalk.transcript.transcript import now

KIND = "usage"
_DAY = 24 * 3_600_000
_log = logging.getLogger("longtalk")


class DayUsage(msgspec.Struct, frozen=True):
    """Tokens sent and received, and their cost in US dollars."""

    tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: DayUsage) -> DayUsage:
        return DayUsage(self.tokens + other.tokens, add_dollars((self.cost, other.cost)))


class Quotas:
    """Counts what owners use in a day, and refuses turns above the limits. `clock` returns milliseconds since 1970."""

    def __init__(self, limits: Limits, storage: Storage, clock: Callable[[], int] = now) -> None:
        self._limits = limits
        self._storage = storage
        self._clock = clock
        self._pending: dict[str, DayUsage] = {}
        """What is not stored yet, by owner."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit of tokens or cost. Without one, nothing is counted."""
        return bool(self._limits.tokens_per_day or self._limits.cost_per_day)

    async def check(self, owner: str) -> None:
        """Raise `ApiError` if an owner has reached today's limit of tokens or cost."""
        if not self.is_limited:
            return
        async with self._lock(owner):
            used = await self.read(owner) + self._pending.get(owner, DayUsage())
        tokens, dollars = self._limits.tokens_per_day, self._limits.cost_per_day
        wait = (_DAY - self._clock() % _DAY) / 1000
        if tokens and used.tokens >= tokens:
            raise make_limit_error(
                f"The limit of {tokens:,} tokens per day (UTC) is reached.", wait, "tokens_per_day_exceeded"
            )
        if dollars and used.cost >= dollars:
            raise make_limit_error(
                f"The limit of ${dollars:,.2f} per day (UTC) is reached.", wait, "cost_per_day_exceeded"
            )

    def observe(self, owner: str, model: ServedModel, options: Mapping[str, Any]) -> OnEvent | None:
        """Return a function that counts the model calls of a turn with these options; None without limits.

        Raises `ApiError` if the cost is limited and the prices are unknown.
        """
        if not self.is_limited:
            return None
        known = model.provider.capabilities
        prices = adjust_prices(known.prices, options)
        if prices is None and self._limits.cost_per_day:
            raise ApiError(
                400,
                f"This service limits cost, and the prices of {quote(model.name)} are unknown: "
                f"{explain_unknown_prices(known)}.",
                param="model",
                code="price_unknown",
            )

        def count(seen: Observation) -> None:
            if seen.usage is None:
                return
            charged = cost(seen.usage, prices)
            added = DayUsage(seen.usage.input + seen.usage.output, charged.total if charged else 0.0)
            if charged is None and self._limits.cost_per_day:
                _log.warning("the cost of a call to %r is unknown and was not counted", seen.model)
            self._pending[owner] = self._pending.get(owner, DayUsage()) + added
            # Summaries are written after the end of their turn.
            task = asyncio.get_running_loop().create_task(self.store(owner))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return count

    async def store(self, owner: str) -> None:
        """Store what was counted for an owner. If this fails, it is stored with the next turn."""
        async with self._lock(owner):
            added = self._pending.pop(owner, None)
            if added is None:
                return
            try:
                await call_store(self._storage, lambda: self._add(owner, added))
            except Exception as problem:
                self._pending[owner] = self._pending.get(owner, DayUsage()) + added
                _log.warning("the usage of a turn could not be stored: %s", describe_for_log(problem))

    async def read(self, owner: str) -> DayUsage:
        """Return what an owner has used today, as all processes have stored it."""
        found = await call_store(self._storage, lambda: self._storage.get(KIND, self._make_key(owner)))
        return typed_json.decode(found.value, DayUsage) if found is not None else DayUsage()

    def _add(self, owner: str, added: DayUsage) -> None:
        key, expires = self._make_key(owner), self._clock() + 2 * _DAY
        while True:
            found = self._storage.get(KIND, key)
            before = typed_json.decode(found.value, DayUsage) if found is not None else DayUsage()
            value, version = msgspec.json.encode(before + added), found.version if found is not None else 0
            if self._storage.put(KIND, key, value, expect=version, expires=expires) is not None:
                return

    def _make_key(self, owner: str) -> str:
        return f"{self._clock() // _DAY}:{owner}"

    def _lock(self, owner: str) -> asyncio.Lock:
        return self._locks.setdefault(owner, asyncio.Lock())
