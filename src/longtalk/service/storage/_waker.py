"""Waiting for sockets in one thread, in a way that other threads can end."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Iterable


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
