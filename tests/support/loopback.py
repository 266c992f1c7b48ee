"""A loopback HTTP server that answers with the bytes that a test gives it, and records the requests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.support.http_server import HttpHandler, HttpServer


class Answer:
    """One response: a whole body, or `chunks`.

    `then` is called after the chunks, before the response ends. With `stalls`, nothing follows the chunks until the
    server is closed.
    """

    def __init__(
        self,
        body: bytes = b"",
        *,
        status: int = 200,
        headers: dict[str, str] | None = None,
        chunks: list[bytes] | None = None,
        reset: bool = False,
        then: Callable[[], Any] | None = None,
        stalls: bool = False,
    ) -> None:
        self.body = body
        self.status = status
        self.headers = headers or {}
        self.chunks = chunks
        self.reset = reset
        self.then = then
        self.stalls = stalls


class Loopback(HttpServer):
    """A server that gives the answers in order."""

    root = "/v1"

    def __init__(self) -> None:
        self._over = threading.Event()
        self.answers: list[Answer] = []
        self.requests: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        loopback = self

        class Handler(HttpHandler):
            def do_POST(self) -> None:
                loopback.requests.append(self.read_body())
                loopback.headers.append(self.lower_headers())
                loopback.paths.append(self.path)
                answer = loopback.answers.pop(0) if loopback.answers else Answer(b"no answer left", status=599)
                try:
                    self._answer(answer)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def _answer(self, answer: Answer) -> None:
                if answer.chunks is None:
                    if answer.reset:
                        self.hang_up()
                    else:
                        self.send_whole(answer.status, answer.body, answer.headers)
                    return
                self.begin_stream(answer.status, answer.headers)
                for chunk in answer.chunks:
                    self.send_chunk(chunk)
                if answer.stalls:
                    loopback._over.wait()
                if answer.then:
                    answer.then()
                if answer.reset:
                    self.hang_up()
                else:
                    self.end_stream()

        super().__init__(Handler)

    def __exit__(self, *problem: object) -> None:
        self._over.set()
        super().__exit__(*problem)

    def say(self, *answers: Answer) -> None:
        self.answers += answers


def sse(*data: bytes) -> list[bytes]:
    """Return the data of events as chunks of a stream of server-sent events."""
    return [b"data: " + item + b"\n\n" for item in data]
