"""Retention: deletes conversations that have not changed for as long as the settings say. Off by default.

One process at a time does it, under a document in the storage that expires. A conversation on which a turn runs stays.
The owners are those whom the service has seen, so conversations that other programs keep in the same store for owners
of their own are not touched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from longtalk._util.checks import PROFILE_ID
from longtalk._util.concurrency import call_store
from longtalk.archive.archive import AsyncArchive
from longtalk.service.access import OWNER
from longtalk.service.ids import is_chain
from longtalk.service.settings import RetentionSettings
from longtalk.service.storage.protocol import Storage
from longtalk.stores.base import ConversationInfo, Store
from longtalk.transcript.transcript import now

LEASE = "upkeep"
LEASE_MS = 600_000
"""How long a process has the right to delete, if it does not renew it; also the least time between two rounds."""
_DAY = 24 * 3_600_000
_PAGE = 100
_log = logging.getLogger("longtalk")


class Retention:
    """Deletes what has expired. `clock` returns milliseconds since 1970."""

    def __init__(
        self, settings: RetentionSettings, store: Store, storage: Storage, clock: Callable[[], int] = now
    ) -> None:
        self._settings = settings
        self._store = store
        self._storage = storage
        self._clock = clock
        self._version = 0
        """The version of this process's right to delete, or -1 if another process has taken it."""

    async def run(self) -> int:
        """Delete what has expired, unless another process does. Return how many conversations were deleted."""
        self._version = 0
        if not self._settings.is_on or not await self._renew():
            return 0
        count, last = 0, None
        while True:
            after = last
            page = await call_store(self._storage, lambda after=after: self._storage.list_documents(OWNER, after=after))  # type: ignore[misc]
            for document in page:
                count += await self._run_for(document.key)
                last = document.key
                if self._version == -1:
                    return count
            if not page or not await self._renew():
                return count

    async def _run_for(self, owner: str) -> int:
        """Delete what has expired of one owner."""
        at, rule = self._clock(), self._settings.find(owner)
        days = [each for each in (rule.days, rule.chain_days) if each]
        if not days:
            return 0
        archive = AsyncArchive(self._store, owner=owner)
        count, after = 0, (int(at - min(days) * _DAY), "")
        while True:
            place = after
            page: list[ConversationInfo] = await call_store(
                self._store,
                lambda place=place: self._store.conversations(owner, limit=_PAGE, after=place),  # type: ignore[misc]
            )
            for info in page:
                after = (info.updated, info.id)
                if info.id == PROFILE_ID:
                    # What the app has revoked must not come back.
                    continue
                kept_days = rule.chain_days or rule.days if is_chain(info.id) else rule.days
                if not kept_days:
                    continue
                receipt = await archive.expire(info.id, before=int(at - kept_days * _DAY))
                if receipt is not None:
                    count += 1
                    _log.info(
                        "retention deleted conversation %r of owner %r: %d entries", info.id, owner, receipt.entries
                    )
            if len(page) < _PAGE or not await self._renew():
                return count

    async def _renew(self) -> bool:
        """Take or keep the right to delete. Return False if another process has it."""
        expect, expires = self._version, self._clock() + LEASE_MS
        found = await call_store(
            self._storage, lambda: self._storage.put(LEASE, "retention", b"", expect=expect, expires=expires)
        )
        self._version = found.version if found is not None else -1
        return found is not None
