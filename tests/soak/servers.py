"""Four strict servers, one for each wire, that can fail in any way and report everything that they refuse."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.support.http_server import HttpServer
from tests.support.strict_anthropic import StrictAnthropic
from tests.support.strict_chat import StrictChat
from tests.support.strict_gemini import StrictGemini
from tests.support.strict_responses import StrictResponses

PROVIDERS = ("anthropic", "gemini", "openai", "openai-chat")
KEYS = {
    "anthropic": ("sk-ant-strict-1", "sk-ant-strict-2", "sk-ant-strict-3"),
    "gemini": ("key-1", "key-2", "key-2"),
    "openai": ("sk-one", "sk-two", "sk-two"),
    "openai-chat": ("sk-one", "sk-one", "sk-one"),
}
STATUSES = (400, 401, 402, 403, 404, 408, 409, 413, 422, 425, 429, 500, 502, 503, 504, 529)
TOO_LONG = {
    "anthropic": "prompt is too long: {tokens} tokens > {window} maximum",
    "gemini": "The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window}).",
    "openai": "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "openai-chat": "This model's maximum context length is {window} tokens. However, you sent {tokens} tokens.",
}


@dataclass(frozen=True)
class Fault:
    """What happens to one request: another answer, or a connection that is reset after some bytes."""

    status: int = 0
    body: bytes = b""
    kind: str = "application/json"
    cut: int = -1
    overflows: bool = False
    """Whether the model's window turns out to be a little smaller than the request."""

    def __str__(self) -> str:
        return f"cut after {self.cut} bytes" if self.cut >= 0 else f"{self.status} {self.body[:40]!r}"


def draw_fault(rng: Random, provider: str) -> Fault:
    """Return a fault of any kind that a provider, a proxy or a network has."""
    match rng.choice(["status", "status", "page", "nonsense", "empty", "too long", "cut", "cut", "cut"]):
        case "status":
            status = rng.choice(STATUSES)
            return Fault(status, _write_error(status, f"The request failed with {status}."))
        case "page":
            return Fault(rng.choice([200, 302, 502]), b"<html><body>Bad Gateway</body></html>", "text/html")
        case "nonsense":
            bodies = [b'{"content":[{"ty', b"null", b"[]", b"{}", b"\xff\xfe", b'{"choices":[]}', b'"text"', b"1e999"]
            return Fault(200, rng.choice(bodies))
        case "empty":
            return Fault(rng.choice([200, 204, 500]))
        case "too long":
            return Fault(400, _write_error(400, TOO_LONG[provider], "context_length_exceeded"), overflows=True)
    return Fault(cut=rng.choice([0, 1, rng.randrange(200), rng.randrange(4000)]))


def _write_error(status: int, message: str, code: str | None = None) -> bytes:
    error = {"type": "invalid_request_error", "message": message, "code": code or status, "status": "FAILED"}
    return json.dumps({"type": "error", "error": error}).encode()


class Servers:
    """The servers of a world. Each of the next requests to a provider meets one of its `faults`."""

    def __init__(self, stack: ExitStack) -> None:
        self.anthropic, self.gemini = StrictAnthropic(), StrictGemini()
        self.openai, self.chat = StrictResponses(), StrictChat()
        self._servers: dict[str, Any] = dict(
            zip(PROVIDERS, (self.anthropic, self.gemini, self.openai, self.chat), strict=True)
        )
        self.faults: dict[str, deque[Fault]] = {provider: deque() for provider in PROVIDERS}
        self._taken: dict[str, int] = {}
        for provider, server in self._servers.items():
            _make_faulty(server, self.faults[provider])
            stack.enter_context(server)

    @property
    def urls(self) -> dict[str, str]:
        """The addresses of the servers, as `base_url=` takes them."""
        urls = {provider: server.url for provider, server in self._servers.items()}
        return {**urls, "anthropic": urls["anthropic"].removesuffix("/v1")}

    def list_refusals(self) -> list[str]:
        """Return everything that a server has refused or dropped."""
        lists: list[list[Any]] = [self.anthropic.violations, self.anthropic.dropped, self.gemini.violations]
        lists += [self.openai.violations, self.openai.refusals, self.chat.violations]
        return [str(refusal) for refused in lists for refusal in refused]

    def count(self) -> int:
        """Return how many requests have reached a strict server."""
        return sum(len(server.requests) for server in self._servers.values())

    def take_requests(self) -> list[bytes]:
        """Return the requests since the last call."""
        taken: list[bytes] = []
        for provider, server in self._servers.items():
            start = self._taken.get(provider, 0)
            taken += server.requests[start:]
            self._taken[provider] = start + len(server.requests[start:])
        return taken

    def clear_faults(self) -> None:
        for faults in self.faults.values():
            faults.clear()


class _Cut:
    """The writer of a connection that is reset after some bytes."""

    def __init__(self, handler: Any, left: int) -> None:
        self._handler = handler
        self._writer = handler.wfile
        self._left = left

    def write(self, data: bytes) -> int:
        if len(data) <= self._left:
            self._left -= len(data)
            return int(self._writer.write(data))
        self._writer.write(data[: self._left])
        self._handler.close_connection = True
        connection = self._handler.connection
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(connection.detach())
        raise ConnectionResetError

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


def _make_faulty(server: HttpServer, faults: deque[Fault]) -> None:
    """Let each of the next requests to a server meet one of `faults`."""

    class Faulty(server._server.RequestHandlerClass):  # type: ignore[name-defined, misc]
        def do_POST(self) -> None:
            fault = faults.popleft() if faults else None
            if fault is None:
                super().do_POST()
            elif fault.cut < 0:
                tokens = len(self.read_body()) // 4
                body = fault.body
                if fault.overflows:
                    body = body.replace(b"{tokens}", b"%d" % tokens).replace(b"{window}", b"%d" % (tokens * 9 // 10))
                self.send_whole(fault.status, body, {"content-type": fault.kind, "retry-after": "0"})
            else:
                writer, self.wfile = self.wfile, _Cut(self, fault.cut)
                try:
                    super().do_POST()
                finally:
                    self.wfile = writer

    server._server.RequestHandlerClass = Faulty
