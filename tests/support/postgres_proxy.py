"""Stands between a store and a PostgreSQL server, and loses what it is told to lose.

As a pooler does, it can give the client a key of its own instead of the one of the server's process.
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
"""The number of a process, at the end of what a server says first."""
_OWN_KEY = b"\x7f\x01\x02\x03"


class Proxy:
    def __init__(self, server: Path, *, pools: bool = False) -> None:
        self._server = server / _NAME
        self._pools = pools
        self._folder = Path(tempfile.mkdtemp(prefix="px"))
        self._lose = ""
        self._skip = 0
        self._then: Callable[[], object] = lambda: None
        self._open: list[socket.socket] = []
        self.lost = 0
        """How often something was lost."""
        self.trips = 0
        """The number of round trips so far."""

    @property
    def url(self) -> str:
        return f"postgresql://app@/postgres?host={self._folder}"

    def lose_answer(self, *, after: int = 0, then: Callable[[], object] = lambda: None) -> None:
        """The next answer does not arrive, nor does any later one on that connection. First something else is done."""
        self._skip, self._then, self._lose = after, then, "answer"

    def lose_request(self) -> None:
        """What is asked next does not arrive, and the connection is gone."""
        self._lose = "request"

    def __enter__(self) -> Proxy:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self._folder / _NAME))
        self._listening.listen()
        self._folder.chmod(0o755)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        # One that waits for callers does not hear of its own end.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in self._open:
            _end(each)
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
            threading.Thread(target=self._pass, args=(client, server), daemon=True).start()

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        """By turns: what the client asks, and all of the answer."""
        try:
            while asked := client.recv(1 << 20):
                if self._lose == "request":
                    self._lost()
                    break
                server.sendall(asked)
                answer = _whole(client, server)
                self.trips += 1
                if self._lose == "answer":
                    if not self._skip:
                        self._lost()
                        break
                    self._skip -= 1
                client.sendall(_KEY.sub(_OWN_KEY, answer, count=1) if self._pools else answer)
        except OSError:
            pass
        _end(client)
        _end(server)

    def _lost(self) -> None:
        self._lose = ""
        self.lost += 1
        self._then()


def _whole(client: socket.socket, server: socket.socket) -> bytes:
    """An answer up to where the server waits for the next question."""
    client.setblocking(False)
    answer = b""
    while not _is_ready(answer):
        try:
            # A long question comes in parts.
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
    """Whether the last message says so, or the server has gone."""
    return answer[-6:-1] == b"Z\x00\x00\x00\x05" or answer[-1:] == b"Z" or answer in (b"N", b"S")


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
