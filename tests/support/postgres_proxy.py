"""A proxy between a store and a PostgreSQL server that can lose requests and answers.

Like a connection pooler, it can replace the server's cancellation key with its own.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

_NAME = ".s.PGSQL.5432"
_KEY = re.compile(rb"(?<=K\0\0\0\x0c).{4}(?=.{4}Z\0\0\0\x05)", re.DOTALL)
"""The process id in the key message, near the end of the server's first answer."""
_OWN_KEY = b"\x7f\x01\x02\x03"


class Proxy:
    """The proxy, as a context manager. With `pools`, it replaces the server's cancellation key."""

    def __init__(self, server: Path, *, pools: bool = False) -> None:
        self._server = server / _NAME
        self._pools = pools
        self._folder = Path(tempfile.mkdtemp(prefix="px"))
        self._lose = ""
        self._skip = 0
        self._then: Callable[[], object] = lambda: None
        self._open: list[socket.socket] = []
        self.lost = 0
        """The number of requests and answers that were lost."""
        self.trips = 0
        """The number of round trips so far."""

    @property
    def url(self) -> str:
        return f"postgresql://app@/postgres?host={self._folder}"

    def lose_answer(self, *, after: int = 0, then: Callable[[], object] = lambda: None) -> None:
        """Lose an answer, after `after` further ones, and close its connection. Call `then` before that."""
        self._skip, self._then, self._lose = after, then, "answer"

    def lose_request(self) -> None:
        """Lose the next request, and close its connection."""
        self._lose = "request"

    def __enter__(self) -> Proxy:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self._folder / _NAME))
        self._listening.listen()
        self._folder.chmod(0o755)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        # Closing a socket does not wake the thread that waits in `accept`; `shutdown` does.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in self._open:
            _close(each)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._server))
            self._open += [client, server]
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        """Forward requests and whole answers in turn, until a connection closes."""
        try:
            while request := client.recv(1 << 20):
                if self._lose == "request":
                    self._note_loss()
                    break
                server.sendall(request)
                answer = _read_answer(client, server)
                self.trips += 1
                if self._lose == "answer":
                    if not self._skip:
                        self._note_loss()
                        break
                    self._skip -= 1
                client.sendall(_KEY.sub(_OWN_KEY, answer, count=1) if self._pools else answer)
        except OSError:
            pass
        _close(client)
        _close(server)

    def _note_loss(self) -> None:
        self._lose = ""
        self.lost += 1
        self._then()


def _read_answer(client: socket.socket, server: socket.socket) -> bytes:
    """Return the whole answer, up to the point where the server waits for the next request."""
    client.setblocking(False)
    answer = b""
    while not _is_ready(answer):
        try:
            # A long request comes in parts.
            if more := client.recv(1 << 20):
                server.sendall(more)
        except BlockingIOError:
            pass
        server.settimeout(0.01)
        try:
            answer += server.recv(1 << 20) or b"Z"
        except TimeoutError:
            continue
    client.setblocking(True)
    return answer


def _is_ready(answer: bytes) -> bool:
    """Return whether the answer ends with ReadyForQuery, or the server has closed the connection."""
    return answer[-6:-1] == b"Z\x00\x00\x00\x05" or answer[-1:] == b"Z" or answer in (b"N", b"S")


def _close(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
