"""Base classes for the HTTP servers of the tests: a loopback server with a thread for each connection, and a handler.

A server is a context manager. It binds a free port when it is created, so its `url` is known before it starts.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class HttpHandler(BaseHTTPRequestHandler):
    """A handler that keeps connections open, logs nothing, and can send whole and streamed responses."""

    protocol_version = "HTTP/1.1"
    # Without this, the second part of an answer can wait 40 ms for the client to acknowledge the first one.
    disable_nagle_algorithm = True

    def read_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def lower_headers(self) -> dict[str, str]:
        """Return the headers of the request, with names in lower case."""
        return {name.lower(): value for name, value in self.headers.items()}

    def send_head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def send_whole(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Send a body with its length. Its content type is JSON unless the headers set another."""
        kind = {"content-type": "application/json", **(headers or {})}
        self.send_head(status, {**kind, "content-length": str(len(body))})
        self.wfile.write(body)

    def begin_stream(self, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Send the head of a chunked response: of server-sent events unless the headers set another content type."""
        kind = {"content-type": "text/event-stream", **(headers or {})}
        self.send_head(status, {**kind, "transfer-encoding": "chunked"})

    def send_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def hang_up(self) -> None:
        """Close the connection without finishing the response."""
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_: Any) -> None:
        pass


class _Threads(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connection errors, since tests close connections at any time."""


class HttpServer:
    """A loopback server. A subclass passes the handler and sets `root`, the path at which its API begins."""

    root = ""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = _Threads(("127.0.0.1", 0), handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{self.root}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self.close()

    def close(self) -> None:
        """Free the port of a server that is not running."""
        self._server.server_close()
