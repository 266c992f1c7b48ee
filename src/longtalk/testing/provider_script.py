"""A server that does as it is told, for the cases that can't be tried with a model that says what it likes.

A `Script` says what happens with each request, as `Act`s. `over_http` plays it on loopback, over HTTP and server-sent
events, to a provider that you make for its address:

```python
serve = over_http(lambda url, key: MyProvider(base_url=url, api_key=key))
```

A provider that reaches its server in another way needs a server of its own: a function from a script to a context
manager that gives the provider. The server hands each request to `script.answer` and does what the act says; where an
act holds, it calls `script.held`.
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
from longtalk.transcript import new_id

_CHATTY = b": still here\r\n\r\nretry: 10\r\nevent: piece\r\nid: 7\r\ndata:%s\r\n\r\n"


@dataclass(frozen=True)
class Act:
    """What the server does with one request: a whole body, or the data of a stream's events."""

    body: bytes = b""
    events: tuple[bytes, ...] | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    size: int = 0
    """A stream goes out so many bytes at a time; 0 is event by event."""
    chatty: bool = False
    """A stream has all that it may have besides data: comments, names and ids of events, other ends of lines."""
    hold: int | None = None
    """After so many events the server waits until the case lets it go on."""
    cut: bool = False
    """The line breaks where the answer would end; without a body or events, before its first byte."""


Respond: TypeAlias = Callable[[bytes, bool], Act]
"""From a request, and whether it asks for a stream, to what is done with it."""


class Script:
    """What a server is to do, and what it was asked.

    `key` is the key of the provider that asks. `absent` means that there is no server at all.
    """

    patience = 10.0
    """Seconds after which whoever waits for something gives up."""

    def __init__(self, *acts: Act, respond: Respond | None = None, absent: bool = False) -> None:
        self.key = f"key-{new_id()}"
        self.absent = absent
        self.respond = respond
        self.requests: list[bytes] = []
        self.go = threading.Event()
        """Set when a server that holds may go on."""
        self.left = threading.Event()
        """Set when the other side has gone while the server held."""
        self.overdue = False
        """Whether the server has held for longer than anybody needs."""
        self._acts = list(acts)

    def add(self, *acts: Act) -> None:
        self._acts += acts

    def clear(self) -> None:
        """Forget what is still to be done."""
        self._acts.clear()

    def answer(self, request: bytes, *, stream: bool) -> Act:
        """What to do with a request. Called by the server, in any thread."""
        self.requests.append(request)
        if self._acts:
            return self._acts.pop(0)
        if self.respond is not None:
            return self.respond(request, stream)
        return Act(b"There is nothing more in the script.", status=418)

    def held(self, gone: Callable[[], bool] = lambda: False) -> None:
        """Wait until the case lets the server go on, or the other side has gone. Called by the server."""
        for _ in range(int(self.patience / 0.02)):
            if self.go.wait(0.02) or gone():
                break
        else:
            self.overdue = True
        if gone():
            self.left.set()


Serve: TypeAlias = Callable[[Script], AbstractContextManager[Provider]]
Connect: TypeAlias = Callable[[str, str], Provider]


def over_http(connect: Connect) -> Serve:
    """A server on loopback. `connect` makes a provider for its address (`http://127.0.0.1:PORT`) and a key.

    It answers at every path. That a stream is wanted is known by `"stream": true` in the request, or by Gemini's path.
    """

    @contextlib.contextmanager
    def serve(script: Script) -> Iterator[Provider]:
        with play(script) as url:
            yield connect(url, script.key)

    return serve


@contextlib.contextmanager
def play(script: Script) -> Iterator[str]:
    """The address of a server on loopback that plays a script."""
    server = _Server(("127.0.0.1", 0), _handler(script))
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
        """A client that goes away is nothing to write about."""


def _handler(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            request = self.rfile.read(int(self.headers.get("content-length") or 0))
            act = script.answer(request, stream=_wants_stream(self.path, request))
            try:
                if act.events is not None:
                    self._stream(act, act.events)
                elif act.body or not act.cut:
                    self._whole(act)
            except OSError:
                act = Act(cut=True)
            if act.cut:
                self.close_connection = True

        def _whole(self, act: Act) -> None:
            self._head(act, "application/json", **{"content-length": str(len(act.body) + act.cut)})
            self.wfile.write(act.body)

        def _stream(self, act: Act, events: tuple[bytes, ...]) -> None:
            self._head(act, "text/event-stream", **{"transfer-encoding": "chunked"})
            for number, data in enumerate(events):
                if number == act.hold:
                    script.held(lambda: _is_gone(self.connection))
                event = _CHATTY % data if act.chatty else b"data: %s\n\n" % data
                for at in range(0, len(event), act.size or len(event)):
                    piece = event[at : at + (act.size or len(event))]
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if not act.cut:
                self.wfile.write(b"0\r\n\r\n")

        def _head(self, act: Act, kind: str, **more: str) -> None:
            self.send_response(act.status)
            for name, value in {"content-type": kind, **more, **act.headers}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Quiet."""

    return Handler


def _is_gone(connection: socket.socket) -> bool:
    """Whether the other side has closed a connection on which it has nothing more to say."""
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
