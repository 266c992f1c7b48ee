"""Limits for each owner: requests per minute, and turns at the same time. `quotas.py` limits tokens and cost.

All processes of a service count together, in the storage. Requests are leased: a process takes a second's worth of them
at once, so not each request is written. A turn holds one of the owner's slots, a document that is deleted with the
claim of its run. The slot of a process that has died is free again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from weakref import WeakValueDictionary

import msgspec

from longtalk._util import typed_json
from longtalk._util.concurrency import call_store
from longtalk.service.errors import ApiError
from longtalk.service.holds import LIFETIME, Hold, take_hold
from longtalk.service.settings import Limits
from longtalk.service.storage.protocol import Storage
from longtalk.stores.base import Holder
from longtalk.stores.leases import identify_this_process, is_alive
from longtalk.transcript.transcript import now

RATE = "request_rate"
"""The kind of document that counts the requests of an owner."""
SLOT = "turn_slot"
"""The kind of document by which a turn counts among those of its owner that run at the same time."""
_MINUTE = 60_000
_MOST_OWNERS = 10_000
_LONGEST_RETRY = 60


class Bucket(msgspec.Struct, frozen=True):
    """The requests that an owner has left: at most a minute's worth, which fills steadily."""

    left: float
    at: int


class _Lease(msgspec.Struct):
    """The requests of an owner that this process may allow, and the time until which it need not ask for more.

    With -1 as `left`, requests are refused until then.
    """

    left: int
    until: int


class RateLimiter:
    """Counts the requests of each owner.

    `clock` returns milliseconds since 1970, and `timer` those of a clock that is never set.
    """

    def __init__(
        self,
        limits: Limits,
        storage: Storage,
        clock: Callable[[], int] = now,
        timer: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._most = limits.requests_per_minute
        self._storage = storage
        self._clock = clock
        self._timer = timer
        self._leases: dict[str, _Lease] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def count_request(self, owner: str) -> None:
        """Count a request. Raises `ApiError` if the owner has none left for now."""
        if not self._most or self._use(owner):
            return
        async with self._locks.setdefault(owner, asyncio.Lock()):
            while not self._use(owner):
                lease: _Lease = await call_store(self._storage, partial(self._take, owner))
                self._leases[owner] = lease
                if lease.left == -1:
                    # Also if its time is over by now: this request was not counted.
                    raise self._make_error(lease)
        if len(self._leases) > _MOST_OWNERS:
            at = self._timer()
            self._leases = {name: lease for name, lease in self._leases.items() if lease.until > at}

    def _use(self, owner: str) -> bool:
        """Use a request that is leased. Return False if there is none; raise `ApiError` if there can be none yet."""
        lease, at = self._leases.get(owner), self._timer()
        if lease is None or lease.until <= at:
            return False
        if lease.left == -1:
            raise self._make_error(lease)
        lease.left -= 1
        if not lease.left:
            del self._leases[owner]
        return True

    def _make_error(self, lease: _Lease) -> ApiError:
        message = f"Too many requests: the limit is {self._most} per minute."
        return make_limit_error(message, (lease.until - self._timer()) / 1000)

    def _take(self, owner: str) -> _Lease:
        """Take some requests out of the owner's bucket. Without any, return a lease that says when there is one."""
        most, most_taken = self._most, max(1, self._most // 60)
        while True:
            began, at, found = self._timer(), self._clock(), self._storage.get(RATE, owner)
            before = typed_json.decode(found.value, Bucket) if found is not None else Bucket(most, at)
            # The clock of another process may be a little ahead. By more than a minute, it was set back since.
            was_set_back = before.at > at + _MINUTE
            if was_set_back:
                before = Bucket(before.left, at)
            last = max(at, before.at)
            left = min(float(most), before.left + (last - before.at) * most / _MINUTE)
            taken = min(int(left), most_taken)
            refusal = _Lease(-1, self._timer() + round((1 - left) * _MINUTE / most + 0.5))
            if not taken and not was_set_back:
                return refusal
            value, version = msgspec.json.encode(Bucket(left - taken, last)), found.version if found is not None else 0
            # After a minute, the bucket is full again.
            if self._storage.put(RATE, owner, value, expect=version, expires=last + _MINUTE) is not None:
                return _Lease(taken, began + _MINUTE) if taken else refusal


class TurnSlots:
    """Counts the turns of each owner that run at the same time."""

    def __init__(self, limits: Limits, storage: Storage) -> None:
        self._most = limits.concurrent_turns
        self._storage = storage

    async def take(self, owner: str) -> Hold | None:
        """Take a slot; None without a limit. Raises `ApiError` if the owner has none."""
        if not self._most:
            return None
        slot = await self.try_take(owner)
        if slot is None:
            raise make_limit_error(f"Too many turns are running: the limit is {self._most} at the same time.", 1)
        return slot

    async def try_take(self, owner: str) -> Hold | None:
        """Take a slot for a turn that goes on in any case. Return None if there is none, or no limit."""
        return await take_hold(self._storage, partial(self._take, owner)) if self._most else None

    @contextlib.asynccontextmanager
    async def hold(self, owner: str) -> AsyncIterator[None]:
        """Return a context manager that holds a slot, and renews it as long as that takes."""
        slot = await self.take(owner)
        if slot is None:
            yield
            return
        ended = asyncio.Event()
        keeper = asyncio.create_task(self._keep(slot, ended))
        try:
            yield
        finally:
            ended.set()
            await asyncio.shield(keeper)

    async def _keep(self, slot: Hold, ended: asyncio.Event) -> None:
        """Renew a slot until `ended` is set, and release it."""
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), LIFETIME / 3000)
                break
            with contextlib.suppress(Exception):
                await call_store(self._storage, slot.renew)
        await call_store(self._storage, slot.release)

    def _take(self, owner: str) -> Hold | None:
        prefix, numbers = f"{len(owner)}:{owner}/", list(range(self._most))
        value = msgspec.json.encode(identify_this_process())
        slots = [Hold(self._storage, SLOT, f"{prefix}{number}", value) for number in numbers]
        if (first := random.choice(slots)).take():
            return first
        taken = {each.key: each for each in self._storage.list_documents(SLOT, prefix=prefix, limit=self._most)}
        for slot in slots:
            found = taken.get(slot.key)
            if found is not None and is_alive(typed_json.decode(found.value, Holder)):
                continue
            if slot.take(found.version if found is not None else 0):
                return slot
        return None


def make_limit_error(message: str, wait: float, code: str = "rate_limit_exceeded") -> ApiError:
    """Return the error for a limit that was reached, which asks the client to retry after `wait` seconds."""
    headers = {"retry-after": str(max(1, round(wait + 0.5)))}
    if wait > _LONGEST_RETRY:
        # OpenAI's clients would try again within seconds.
        headers["x-should-retry"] = "false"
    return ApiError(429, message, kind="rate_limit_error", code=code, headers=headers)
