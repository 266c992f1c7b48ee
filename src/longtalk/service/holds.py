"""What a process holds for a while: a run that it plays, or one of its owner's slots.

A hold is a document that expires unless it is renewed. A process that was stopped for long, or cut off from the
storage, loses its holds to others. It then leaves them alone: they are renewed and released by their version.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from longtalk._util.concurrency import call_store
from longtalk.service.storage.protocol import Storage
from longtalk.transcript.transcript import now

LIFETIME = 60_000
"""How long a hold lasts if it is not renewed, in milliseconds."""
_SAFE = 0.75
"""The part of the lifetime in which no other process can have taken a hold, even if clocks differ."""

_releases: set[asyncio.Task[None]] = set()


class Hold:
    """A document that says that this process holds something. Its methods call the storage, so they run in a thread."""

    def __init__(self, storage: Storage, kind: str, key: str, value: bytes) -> None:
        self.kind = kind
        self.key = key
        self._storage = storage
        self._value = value
        self._version: int | None = None
        self._renewed = (0.0, 0.0)
        self._ended = threading.Event()
        self._changing = threading.RLock()

    @property
    def is_lost(self) -> bool:
        """Whether another process has taken it."""
        return self._version is None

    def take(self, expect: int = 0) -> bool:
        """Take what has no document, or one of the version `expect`. Return False if that has changed."""
        began = time.monotonic(), time.time()
        found = self._storage.put(self.kind, self.key, self._value, expect=expect, expires=now() + LIFETIME)
        if found is not None:
            self._version, self._renewed = found.version, began
        return found is not None

    def renew(self) -> None:
        """Keep it from expiring, or take it again if it has expired. If another process has it, it is lost."""
        with self._changing:
            if self._version is None or self._ended.is_set() or self.take(self._version):
                return
            if not self.take():
                self._version = None
            elif self._ended.is_set():
                # Its document was deleted in the meantime.
                self.release()

    def end(self) -> bool:
        """Renew it no more. Return True if its document is certainly still this one, so that it can just be deleted."""
        self._ended.set()
        passed = max(time.monotonic() - self._renewed[0], time.time() - self._renewed[1])
        return self._version is not None and passed < LIFETIME / 1000 * _SAFE

    def release(self) -> None:
        """Delete the document, unless another process has taken it."""
        self._ended.set()
        # A renewal that is under way changes the version.
        with self._changing:
            if self._version is not None:
                self._storage.delete(self.kind, self.key, expect=self._version)


async def take_hold(storage: Storage, take: Callable[[], Hold | None]) -> Hold | None:
    """Return what `take` returns, which runs in a thread. If the caller is cancelled meanwhile, release it."""

    async def give_back() -> None:
        hold = await taking
        if hold is not None:
            await call_store(storage, hold.release)

    taking: asyncio.Future[Hold | None] = asyncio.ensure_future(call_store(storage, take))
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:
        task = asyncio.ensure_future(give_back())
        _releases.add(task)
        task.add_done_callback(_releases.discard)
        raise
