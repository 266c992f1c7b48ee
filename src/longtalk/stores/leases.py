"""Who runs a turn, and whether they still live.

A turn holds a lease on its branch. A thread of this process renews all leases that it holds, so a lease ends soon after
its process does. A process on the same host need not even wait: it can tell that the holder is gone.
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

from longtalk.stores.base import Head, Holder, Lease, Store
from longtalk.transcript import now

LEASE = 30_000
"""Milliseconds."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Held:
    """A lease that this process holds, until it is dropped or nobody has this object any more."""

    store: Store
    owner: str
    conversation: str
    branch: str
    token: int

    @property
    def path(self) -> tuple[str, str, str]:
        return self.owner, self.conversation, self.branch


def is_free(head: Head, held: Held) -> bool:
    """Whether nobody runs a turn on this branch. `held` is how this process would hold it."""
    return head.lease is None or head.lease.until <= now() or not _lives(head.lease, held)


def lease(token: int) -> Lease:
    """A lease for this process, from now on."""
    return Lease(me(), now() + LEASE, token)


def _lives(lease: Lease, held: Held) -> bool:
    if lease.holder == me():
        # This very process: a turn that nobody holds any more was dropped without an end.
        return _KEEPER.holds(held.path, lease.token)
    return lives(lease.holder)


def lives(holder: Holder) -> bool:
    """Whether a process is still there, as far as can be told from here."""
    mine = me()
    if holder.host != mine.host:
        return True
    return holder.boot == mine.boot and _started(holder.pid) == holder.started


def me() -> Holder:
    """This process."""
    return _me(os.getpid())


@lru_cache(maxsize=1)
def _me(pid: int) -> Holder:
    return Holder(host=platform.node(), boot=_boot(), pid=pid, started=_started(pid))


def _boot() -> str:
    """What changes when the host starts again. Without it a process id may mean another process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> int:
    """When a process began, in a unit of the system's own; 0 when it can't be told, -1 when there is none."""
    try:
        # The name stands in parentheses and may hold anything; what follows it is a letter and numbers.
        state, *numbers = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        # One that has ended stays until its parent has asked after it.
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
"""Owner, conversation and branch of the turns whose tools run here."""


def is_inside(held: Held) -> bool:
    return held.path in _INSIDE.get()


class Keeper:
    """Renews the leases of this process, from a thread that ends with it."""

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
        """Whether such a lease is held, also through another object for the same store."""
        with self._lock:
            return any(each.path == path and each.token == token for each in (*self.held, *self._tried))

    @contextmanager
    def trying(self, held: Held) -> Iterator[None]:
        """While a lease is written: others may read it before it is known here that it is held."""
        try:
            with self._lock:
                self._tried.append(held)
            yield
        finally:
            with self._lock:
                # Ctrl-C may have come before it was there.
                if held in self._tried:
                    self._tried.remove(held)

    @contextmanager
    def inside(self, held: Held) -> Iterator[None]:
        """While a tool of a turn runs: whoever waits there for the turn's end would wait for ever."""
        token = _INSIDE.set((*_INSIDE.get(), held.path))
        try:
            yield
        finally:
            _INSIDE.reset(token)

    def renew(self) -> None:
        """Renew them all, once."""
        with self._lock:
            held = list(self.held)
        for each in held:
            try:
                kept = each.store.renew(each.owner, each.conversation, each.branch, each.token, now() + LEASE)
            except Exception:  # noqa: S112
                # The store has trouble: the lease lasts for a while, and there is another try before it ends.
                continue
            if not kept:
                # Somebody else took over.
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
if hasattr(os, "register_at_fork"):
    # The turns of a process are not those of its copy.
    os.register_at_fork(after_in_child=_KEEPER.__init__)  # type: ignore[misc]
