"""What the backends share whose `poll_changes` waits for sockets: waking it up, closing it, and forks."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from abc import abstractmethod
from collections.abc import Iterable

from longtalk.service.storage.protocol import Storage


class Waker:
    """A wait for sockets that `wake` ends. It has no locks, so a fork at any moment does it no harm."""

    def __init__(self) -> None:
        self._inside, self._outside = socket.socketpair()
        self._inside.setblocking(False)
        self._outside.setblocking(False)

    def wake(self) -> None:
        """End the wait that goes on, or else the next one. Does nothing after `close`."""
        # If the buffer is full, a wake-up is pending anyway.
        with contextlib.suppress(OSError):
            self._outside.send(b"\0")

    def wait(self, timeout: float, sockets: Iterable[int] = ()) -> set[int]:
        """Wait until `wake` is called, data arrives at one of the sockets (file descriptors), or the time has passed.

        Returns the sockets at which data has arrived.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._inside, selectors.EVENT_READ)
            for each in sockets:
                selector.register(each, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(max(timeout, 0))}
        with contextlib.suppress(BlockingIOError):
            while self._inside.recv(4096):
                pass
        return ready - {self._inside.fileno()}

    def close(self) -> None:
        """Release both ends. No thread may be waiting."""
        self._inside.close()
        self._outside.close()


class PollingStorage(Storage):
    """A storage whose `poll_changes` another thread can end, in this process and after a fork."""

    def __init__(self) -> None:
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._waker = Waker()
        self._polling = threading.Lock()

    def poll_changes(self, timeout: float) -> frozenset[str] | None:
        self._reset_after_fork()
        with self._polling:
            return frozenset() if self._closed else self._wait_for_changes(time.monotonic() + timeout)

    def close(self) -> None:
        self._reset_after_fork()
        if self._closed:
            return
        self._closed = True
        self._waker.wake()
        with self._polling:
            self._release()
            self._waker.close()

    def _reset_after_fork(self) -> None:
        if self._pid != os.getpid():
            # A thread of the parent may hold the lock, and reads from the same sockets.
            self._forget_connections()
            self._waker.close()
            self._reset()

    @abstractmethod
    def _wait_for_changes(self, until: float) -> frozenset[str] | None:
        """Do what `poll_changes` promises, until a time of the monotonic clock or until the storage is closed."""

    @abstractmethod
    def _release(self) -> None:
        """Release what the storage holds. No thread is in `poll_changes`."""

    @abstractmethod
    def _forget_connections(self) -> None:
        """Drop the connections of `poll_changes` in a process that was forked, and leave the parent's open."""
