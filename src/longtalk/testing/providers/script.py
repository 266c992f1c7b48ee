"""A scripted server, for cases that a real model can't reproduce.

A `Script` holds a `ScriptedResponse` for each request. `over_http` serves the script on a loopback address, over HTTP
with server-sent events, to a provider that you create for that address:

```python
serve = over_http(lambda url, key: MyProvider(base_url=url, api_key=key))
```

A provider that doesn't use HTTP needs its own `serve`: a function that takes a script and returns a context manager
whose value is the provider. Its server passes each request to `script.answer`, does what the response says, and calls
`script.wait_while_held` after the number of events that `hold` gives.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

from longtalk.providers.base import Provider
from longtalk.transcript.transcript import new_id

_CHATTY = b": still here\r\n\r\nretry: 10\r\nevent: piece\r\nid: 7\r\ndata:%s\r\n\r\n"


@dataclass(frozen=True)
class ScriptedResponse:
    """The server's response to one request: a body or, if `events` is not None, a stream of these events."""

    body: bytes = b""
    events: tuple[bytes, ...] | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    size: int = 0
    """The maximum size of the chunks in which a stream is sent, in bytes; 0 to send each event as one chunk."""
    chatty: bool = False
    """Whether to add everything that the event format allows: comments, event names and ids, CRLF line ends."""
    hold: int | None = None
    """The number of events after which the server waits until the case sets `Script.go`; None not to wait."""
    cut: bool = False
    """Whether to close the connection before the response ends; without a body or events, before its first byte."""


Respond: TypeAlias = Callable[[bytes, bool], ScriptedResponse]
"""A function that takes a request and whether it asks for a stream, and returns the response."""


class Script:
    """The responses that a server is to give, and the requests that it has received.

    When the responses are used up, `respond` answers further requests. `key` is the API key for the provider. If
    `absent` is True, no server runs at the address, so connections fail.
    """

    patience = 10.0
    """Seconds after which the server, or a case, gives up waiting for the other."""

    def __init__(self, *responses: ScriptedResponse, respond: Respond | None = None, absent: bool = False) -> None:
        self.key = f"key-{new_id()}"
        self.absent = absent
        self.respond = respond
        self.requests: list[bytes] = []
        self.go = threading.Event()
        """Set by a case to let a waiting server continue."""
        self.disconnected = threading.Event()
        """Set when the client disconnects while the server waits."""
        self.timed_out = False
        """Whether the server has given up waiting after `patience` seconds."""
        self._responses = list(responses)

    def add(self, *responses: ScriptedResponse) -> None:
        self._responses += responses

    def clear(self) -> None:
        """Remove the responses that haven't been used yet."""
        self._responses.clear()

    def answer(self, request: bytes, *, stream: bool) -> ScriptedResponse:
        """Record a request and return the response to it. The server calls this method, in any thread."""
        self.requests.append(request)
        if self._responses:
            return self._responses.pop(0)
        if self.respond is not None:
            return self.respond(request, stream)
        return ScriptedResponse(b"The script has no more responses.", status=418)

    def wait_while_held(self, is_gone: Callable[[], bool] = lambda: False) -> None:
        """Wait, at most `patience` seconds, until the case sets `go` or the client disconnects.

        The server calls this method; its `is_gone` returns True once the client has disconnected.
        """
        for _ in range(int(self.patience / 0.02)):
            if self.go.wait(0.02) or is_gone():
                break
        else:
            self.timed_out = True
        if is_gone():
            self.disconnected.set()


Serve: TypeAlias = Callable[[Script], AbstractContextManager[Provider]]
Connect: TypeAlias = Callable[[str, str], Provider]


def over_http(connect: Connect) -> Serve:
    """Return a `serve` function that runs a script on a loopback server.

    `connect` takes the server's address (`http://127.0.0.1:PORT`) and an API key, and returns a provider. The server
    answers at every path. A request asks for a stream if it has `"stream": true` or Gemini's path for streams.
    """

    @contextlib.contextmanager
    def serve(script: Script) -> Iterator[Provider]:
        with play(script) as url:
            yield connect(url, script.key)

    return serve


@contextlib.contextmanager
def play(script: Script) -> Iterator[str]:
    """Run a script on a loopback server, and yield the server's address."""
    server = _Server(("127.0.0.1", 0), _make_handler(script))
    url = f"http://127.0.0.1:{server.server_port}"
    if script.absent:
        server.server_close()
        yield url
        return
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield url
    finally:
        script.go.set()
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors, such as a client that disconnects, instead of printing a traceback."""


def _make_handler(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            request = self.rfile.read(int(self.headers.get("content-length") or 0))
            response = script.answer(request, stream=_wants_stream(self.path, request))
            try:
                if response.events is not None:
                    self._send_stream(response, response.events)
                elif response.body or not response.cut:
                    self._send_whole(response)
            except OSError:
                response = ScriptedResponse(cut=True)
            if response.cut:
                self.close_connection = True

        def _send_whole(self, response: ScriptedResponse) -> None:
            self._send_head(response, "application/json", **{"content-length": str(len(response.body) + response.cut)})
            self.wfile.write(response.body)

        def _send_stream(self, response: ScriptedResponse, events: tuple[bytes, ...]) -> None:
            self._send_head(response, "text/event-stream", **{"transfer-encoding": "chunked"})
            for number, data in enumerate(events):
                if number == response.hold:
                    script.wait_while_held(lambda: has_disconnected(self.connection))
                event = _CHATTY % data if response.chatty else b"data: %s\n\n" % data
                for at in range(0, len(event), response.size or len(event)):
                    piece = event[at : at + (response.size or len(event))]
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if not response.cut:
                self.wfile.write(b"0\r\n\r\n")

        def _send_head(self, response: ScriptedResponse, content_type: str, **headers: str) -> None:
            self.send_response(response.status)
            for name, value in {"content-type": content_type, **headers, **response.headers}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Log no requests."""

    return Handler


def has_disconnected(connection: socket.socket) -> bool:
    """Return whether the client has closed the connection."""
    readable, _, _ = select.select([connection], [], [], 0)
    try:
        return bool(readable) and not connection.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def _wants_stream(path: str, request: bytes) -> bool:
    if ":streamGenerateContent" in path:
        return True
    try:
        body = json.loads(request)
    except ValueError:
        return False
    return isinstance(body, dict) and body.get("stream") is True
