"""The access log: a line of JSON for each request, with its `x-request-id`, and without content, queries or secrets."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longtalk.service.errors import shorten
from longtalk.transcript.transcript import new_id

HEADER = b"x-request-id"
logger = logging.getLogger("longtalk.access")


class AccessLog:
    """Middleware that gives each request an id, sends it back in `x-request-id`, and logs the request when it ends.

    A client can name the id itself, for example that of its own log.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        began, request_id, status = perf_counter(), _read_id(scope), 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            kind = message["type"]
            if kind == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (HEADER, request_id.encode())]
            elif kind == "websocket.accept":
                status = 101
            elif kind == "websocket.close" and status == 0:
                status = 403
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            if logger.isEnabledFor(logging.INFO):
                caller = scope.get("state", {}).get("caller")
                logger.info("%s", _render(scope, request_id, status, perf_counter() - began, caller))


def _read_id(scope: Scope) -> str:
    """Return the id that the client has given a request, or a new one."""
    given = next((value for name, value in scope["headers"] if name == HEADER), b"")
    is_good = given.isascii() and 0 < len(given) <= 200 and given.decode("ascii", "replace").isprintable()
    return given.decode() if is_good else f"req_{new_id()}"


def _render(scope: Scope, request_id: str, status: int, seconds: float, caller: Any) -> str:
    client = scope.get("client")
    line = {
        "request": request_id,
        "client": client[0] if client else "",
        "owner": caller.owner if caller is not None else None,
        "key": caller.key if caller is not None else None,
        "method": scope.get("method", "WEBSOCKET"),
        "path": shorten(scope["path"]),
        # No response at all: the client went away before there was one.
        "status": status or 499,
        "seconds": round(seconds, 4),
    }
    return msgspec.json.encode(line).decode()
