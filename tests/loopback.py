"""A real HTTP server on loopback that answers with the bytes it is told to, and keeps what it was sent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Answer:
    """What to send back: whole, or for `stream` as chunks. `then` is called when all is sent, before closing."""

    def __init__(
        self,
        body: bytes = b"",
        *,
        status: int = 200,
        headers: dict[str, str] | None = None,
        chunks: list[bytes] | None = None,
        reset: bool = False,
        then: Callable[[], Any] | None = None,
    ) -> None:
        self.body = body
        self.status = status
        self.headers = headers or {}
        self.chunks = chunks
        self.reset = reset
        self.then = then


class Loopback:
    """Answers in order; the last one is repeated when `repeat` is set."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        loopback = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                loopback.requests.append(self.rfile.read(length))
                loopback.headers.append({k.lower(): v for k, v in self.headers.items()})
                loopback.paths.append(self.path)
                answer = loopback.answers.pop(0) if loopback.answers else Answer(b"no answer left", status=599)
                try:
                    self._answer(answer)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def _answer(self, answer: Answer) -> None:
                if answer.reset and answer.chunks is None:
                    self.close_connection = True
                    self.connection.close()
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.chunks is None:
                    if "content-type" not in answer.headers:
                        self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(answer.body)))
                    self.end_headers()
                    self.wfile.write(answer.body)
                else:
                    self.send_header("content-type", answer.headers.get("content-type", "text/event-stream"))
                    self.send_header("transfer-encoding", "chunked")
                    self.end_headers()
                    for chunk in answer.chunks:
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                        self.wfile.flush()
                    if answer.then:
                        answer.then()
                    if answer.reset:
                        self.close_connection = True
                        self.connection.close()
                        return
                    self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def say(self, *answers: Answer) -> None:
        self.answers += answers

    def __enter__(self) -> Loopback:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def sse(*data: bytes) -> list[bytes]:
    """The data of events as chunks of a stream."""
    return [b"data: " + item + b"\n\n" for item in data]
