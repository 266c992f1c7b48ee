"""Branch leases: the right to run a turn on a branch, its renewal, and the detection of dead holders.

A turn holds a lease on its branch. A background thread renews all leases of this process, so a lease expires soon after
its process ends. Other processes on the same host don't have to wait for that: they check whether the holder is alive.
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
from longtalk.observation import log_suppressed
from longtalk.stores.base import BranchHead, Holder, Lease, Store
from longtalk.transcript.transcript import now

LEASE_MS = 30_000
"""How long a lease lasts, in milliseconds."""

BranchId = tuple[str, str, str]
"""The owner, the conversation and the name of a branch."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class HeldLease:
    """A lease that this process holds until the lease is dropped or this object is garbage-collected."""

    store: Store
    owner: str
    conversation: str
    branch: str
    token: int

    @property
    def branch_id(self) -> BranchId:
        return self.owner, self.conversation, self.branch


def make_lease(token: int) -> Lease:
    """Return a lease for this process that starts now and has this token."""
    return Lease(identify_this_process(), now() + LEASE_MS, token)


def is_free(head: BranchHead, owner: str, conversation: str) -> bool:
    """Return whether a new turn may start on the branch with this head, because no live turn holds its lease."""
    lease = head.lease
    if lease is None or lease.until <= now():
        return True
    if lease.holder == identify_this_process():
        # If this process no longer holds the lease, the turn was abandoned.
        return not _REGISTRY.holds((owner, conversation, head.branch), lease.token)
    return not is_alive(lease.holder)


def is_alive(holder: Holder) -> bool:
    """Return whether the process that holds a lease is alive. A process on another host always counts as alive."""
    this = identify_this_process()
    if holder.host != this.host:
        return True
    return holder.boot == this.boot and _read_start_time(holder.pid) == holder.started


def identify_this_process() -> Holder:
    """Return the values that identify this process as the holder of a lease."""
    return _identify_process(os.getpid())


@lru_cache(maxsize=1)
def _identify_process(pid: int) -> Holder:
    return Holder(host=platform.node(), boot=_read_boot_id(), pid=pid, started=_read_start_time(pid))


def _read_boot_id() -> str:
    """Return an id that changes when the host restarts, or an empty string if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _read_start_time(pid: int) -> int:
    """Return when a process started, in the system's own units: 0 if unknown, -1 if the process doesn't exist."""
    try:
        # The process name is in parentheses and may contain anything. A letter and numbers follow it.
        state, *numbers = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        # A process that has ended stays listed until its parent has read its exit status.
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


_RUNNING_TOOL: ContextVar[tuple[BranchId, ...]] = ContextVar("running_tool", default=())
"""The branch of each turn that is running a tool in this context."""


@contextmanager
def mark_tool_running(held: HeldLease) -> Iterator[None]:
    """Mark this context as running a tool of the turn that holds a lease.

    A caller in this context must not wait for the turn, because the turn waits for the tool.
    """
    reset_token = _RUNNING_TOOL.set((*_RUNNING_TOOL.get(), held.branch_id))
    try:
        yield
    finally:
        _RUNNING_TOOL.reset(reset_token)


def is_called_from_tool(owner: str, conversation: str, branch: str) -> bool:
    """Return whether the caller runs inside a tool of a turn on this branch."""
    return (owner, conversation, branch) in _RUNNING_TOOL.get()


class LeaseRegistry:
    """The leases that this process holds. A daemon thread renews them."""

    def __init__(self) -> None:
        self.held: WeakSet[HeldLease] = WeakSet()
        self._being_written: list[HeldLease] = []
        self._lock = threading.Lock()
        self._thread: tuple[int, threading.Thread] | None = None
        """The id of the process that started the renewing thread, and the thread. A forked child has no such thread."""

    def hold(self, lease: HeldLease) -> None:
        """Add a lease, and start the thread that renews leases if it isn't running."""
        with self._lock:
            self.held.add(lease)
            if self._thread is None or self._thread[0] != os.getpid() or not self._thread[1].is_alive():
                thread = threading.Thread(target=self._renew_while_held, name="longtalk-leases", daemon=True)
                self._thread = (os.getpid(), thread)
                thread.start()

    def drop(self, lease: HeldLease) -> None:
        """Remove a lease, so that it is no longer renewed."""
        with self._lock:
            self.held.discard(lease)

    def holds(self, branch_id: BranchId, token: int) -> bool:
        """Return whether this process holds the branch's lease with this token, through any store object."""
        with self._lock:
            return any(
                lease.branch_id == branch_id and lease.token == token for lease in (*self.held, *self._being_written)
            )

    def begin_write(self, lease: HeldLease) -> None:
        """Count a lease as held while it is being written, since other threads may see it before `hold` is called.

        Call `end_write` in a `finally` whose `try` includes this call.
        """
        with self._lock:
            self._being_written.append(lease)

    def end_write(self, lease: HeldLease) -> None:
        """Stop counting a lease as held because it is being written."""
        with self._lock:
            # Ctrl-C may have arrived before the lease was appended.
            if lease in self._being_written:
                self._being_written.remove(lease)

    def renew(self) -> None:
        """Renew all held leases once."""
        with self._lock:
            leases = list(self.held)
        for lease in leases:
            try:
                renewed = lease.store.renew(
                    lease.owner, lease.conversation, lease.branch, lease.token, now() + LEASE_MS
                )
            except Exception as problem:
                # The store failed. The lease lasts long enough for another attempt.
                log_suppressed("lease not renewed", problem, where=lease.conversation)
                continue
            if not renewed:
                # Another process has taken the lease.
                self.drop(lease)

    def _renew_while_held(self) -> None:
        """Renew the held leases three times per lease period, until no lease is held."""
        while True:
            time.sleep(LEASE_MS / 3_000)
            with self._lock:
                if not self.held:
                    self._thread = None
                    return
            self.renew()


_REGISTRY = LeaseRegistry()
hold_lease, drop_lease = _REGISTRY.hold, _REGISTRY.drop
begin_write, end_write = _REGISTRY.begin_write, _REGISTRY.end_write
# A forked child doesn't run its parent's turns.
on_fork(_REGISTRY.__init__)  # type: ignore[misc]
