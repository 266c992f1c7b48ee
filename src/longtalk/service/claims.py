"""Claims: which process runs a run.

A process claims each of its runs, and renews the claims. If it dies, another process on its host sees that at once, and
one on another host when the claim expires. If the clock is set or the machine wakes up, all claims may have expired at
once; until the processes that live have renewed theirs, no run is taken for dead.
"""

from __future__ import annotations

import time

import msgspec

from longtalk._util import typed_json
from longtalk._util.concurrency import call_store
from longtalk.service.holds import LIFETIME, Hold
from longtalk.service.run import RunName
from longtalk.service.storage.protocol import Storage
from longtalk.stores.base import Holder
from longtalk.stores.leases import identify_this_process, is_alive
from longtalk.transcript.transcript import new_id

KIND = "run"
"""The kind of document by which a process claims a run."""
_JUMP_SECONDS = 5.0
_RENEWAL_SECONDS = LIFETIME / 1000 / 2
"""How long after a jump of the clock all processes that live have surely renewed their claims."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a running run that every process can read."""

    process: str
    """The name of the process in control messages."""
    holder: Holder
    """The process, described so that others on its host can check whether it is alive."""


class Claims:
    """The claims of this process, and those of others as they are read. Only `find` is asynchronous."""

    def __init__(self, storage: Storage) -> None:
        self.process = new_id()
        self._storage = storage
        self._offset = time.time() - time.monotonic()
        self._sure_from = 0.0

    @property
    def may_be_late(self) -> bool:
        """Whether the clock has jumped ahead so lately that processes which live may not have renewed their claims."""
        at = time.monotonic()
        before, self._offset = self._offset, time.time() - at
        if self._offset > before + _JUMP_SECONDS:
            self._sure_from = at + _RENEWAL_SECONDS
        return at < self._sure_from

    def claim(self, name: RunName) -> Hold | None:
        """Claim a run for this process. Return None if another process that is alive runs it."""
        info = RunInfo(process=self.process, holder=identify_this_process())
        hold = Hold(self._storage, KIND, name.to_key(), msgspec.json.encode(info))
        while not hold.take():
            found = self._storage.get(KIND, hold.key)
            if found is None:
                continue
            if is_alive(typed_json.decode(found.value, RunInfo).holder):
                return None
            self._storage.delete(KIND, hold.key, expect=found.version)
        return hold

    async def find(self, name: RunName) -> RunInfo | None:
        """Return what is known of a run, or None if no process runs it, or the one that did has died."""
        key = name.to_key()
        found = await call_store(self._storage, lambda: self._storage.get(KIND, key))
        info = typed_json.decode(found.value, RunInfo) if found is not None else None
        return info if info is not None and is_alive(info.holder) else None
