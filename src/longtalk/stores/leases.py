"""Branch leases: the right to run a turn on a branch, its renewal, and the detection of dead holders.

A turn holds a lease on its branch. A background thread renews all leases of this process, so a lease expires soon after
its process ends. A process on the same host doesn't have to wait for that: it checks whether the holder is alive.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from weakref import WeakSet

from longtalk._util.processes import on_fork
from longtalk.stores.base import BranchHead, Holder, Lease, Store
from longtalk.transcript.transcript import now

LEASE = 30_000
"""How long a lease lasts, in milliseconds."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Held:
    """A lease that this process holds until the lease is dropped or this object is garbage-collected."""

    store: Store
    owner: str
    conversation: str
    branch: str
    token: int

    @property
    def path(self) -> tuple[str, str, str]:
        return self.owner, self.conversation, self.branch


def is_free(head: BranchHead, held: Held) -> bool:
    """Return whether no turn is running on this branch. `held` is the lease that this process would take."""
    return head.lease is None or head.lease.until <= now() or not _lives(head.lease, held)


def lease(token: int) -> Lease:
    """Return a lease for this process that starts now and has this token."""
    return Lease(me(), now() + LEASE, token)


def _lives(lease: Lease, held: Held) -> bool:
    if lease.holder == me():
        # The holder is this process. If the lease isn't held any more, its turn was abandoned.
        return _KEEPER.holds(held.path, lease.token)
    return lives(lease.holder)


def lives(holder: Holder) -> bool:
    """Return whether the process that holds a lease is alive. A process on another host always counts as alive."""
    mine = me()
    if holder.host != mine.host:
        return True
    return holder.boot == mine.boot and _started(holder.pid) == holder.started


def me() -> Holder:
    """Return a description of this process as the holder of a lease."""
    return _me(os.getpid())


@lru_cache(maxsize=1)
def _me(pid: int) -> Holder:
    return Holder(host=platform.node(), boot=_boot(), pid=pid, started=_started(pid))


def _boot() -> str:
    """Return an id that changes when the host restarts, or an empty string if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> int:
    """Return when a process started, in the system's own units: 0 if unknown, -1 if the process doesn't exist."""
    try:
        # The process name is in parentheses and may contain anything. A letter and numbers follow it.
        state, *numbers = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        # A process that has ended stays listed until its parent collects it.
        return -1 if state in (b"Z", b"X") else int(numbers[18])
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return -1
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return -1
    except OSError:
        pass
    return 0


_INSIDE: ContextVar[tuple[tuple[str, str, str], ...]] = ContextVar("inside", default=())
"""The owner, conversation and branch of each turn that is running a tool in this context."""


def is_inside(held: Held) -> bool:
    """Return whether the caller runs inside a tool of the turn that holds this lease."""
    return held.path in _INSIDE.get()


class Keeper:
    """A registry of the leases that this process holds. A daemon thread renews them."""

    def __init__(self) -> None:
        self.held: WeakSet[Held] = WeakSet()
        self._tried: list[Held] = []
        self._lock = threading.Lock()
        self._thread: tuple[int, threading.Thread] | None = None

    def hold(self, held: Held) -> None:
        with self._lock:
            self.held.add(held)
            if self._thread is None or self._thread[0] != os.getpid() or not self._thread[1].is_alive():
                thread = threading.Thread(target=self._keep, name="longtalk-leases", daemon=True)
                self._thread = (os.getpid(), thread)
                thread.start()

    def drop(self, held: Held) -> None:
        with self._lock:
            self.held.discard(held)

    def holds(self, path: tuple[str, str, str], token: int) -> bool:
        """Return whether this process holds the lease with this token, through any store object."""
        with self._lock:
            return any(each.path == path and each.token == token for each in (*self.held, *self._tried))

    @contextmanager
    def trying(self, held: Held) -> Iterator[None]:
        """Count a lease as held while it is being written, since another thread may read it before `hold` is called."""
        try:
            with self._lock:
                self._tried.append(held)
            yield
        finally:
            with self._lock:
                # Ctrl-C may have come before it was appended.
                if held in self._tried:
                    self._tried.remove(held)

    @contextmanager
    def inside(self, held: Held) -> Iterator[None]:
        """Mark this context as running a tool of the turn. Waiting for the turn in this context would never end."""
        token = _INSIDE.set((*_INSIDE.get(), held.path))
        try:
            yield
        finally:
            _INSIDE.reset(token)

    def renew(self) -> None:
        """Renew all held leases once."""
        with self._lock:
            held = list(self.held)
        for each in held:
            try:
                kept = each.store.renew(each.owner, each.conversation, each.branch, each.token, now() + LEASE)
            except Exception:  # noqa: S112
                # The store failed. The lease lasts long enough for another attempt.
                continue
            if not kept:
                # Another process has taken the lease.
                self.drop(each)

    def _keep(self) -> None:
        while True:
            time.sleep(LEASE / 3_000)
            with self._lock:
                if not self.held:
                    self._thread = None
                    return
            self.renew()


_KEEPER = Keeper()
hold, drop, trying, inside = _KEEPER.hold, _KEEPER.drop, _KEEPER.trying, _KEEPER.inside
# A forked child doesn't run its parent's turns.
on_fork(_KEEPER.__init__)  # type: ignore[misc]
