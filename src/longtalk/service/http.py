"""Reading requests and writing responses: bounded bodies, typed JSON, server-sent events."""

from __future__ import annotations

import array
import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from longtalk.service.errors import ApiError
from longtalk.service.json_errors import describe
from longtalk.service.settings import Limits

T = TypeVar("T")
_encoder = msgspec.json.Encoder()
DONE = b"data: [DONE]\n\n"


def read_path(scope: Scope) -> str:
    """Return the path of a request in the service, without the prefix that a proxy or another application has."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


async def read_body(request: Request, limits: Limits) -> bytes:
    """Return the body of a request. Raises `ApiError` if it is larger than allowed, as soon as that is known."""
    most = limits.body_bytes
    if (read_number(request.headers.get("content-length", "")) or 0) > most:
        raise _too_large(most)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise _too_large(most)
    except ClientDisconnect:
        raise ApiError(400, "The client disconnected before its request was complete.") from None
    return bytes(body)


def read_number(text: str) -> int | None:
    """Return a number that is written in at most 15 digits, or None if the text is something else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None


def decode(body: bytes, kind: type[T], limits: Limits) -> T:
    """Return a body as a value of a type. Raises `ApiError` that names the field that is wrong."""
    if measure_depth(body) > limits.json_depth:
        raise ApiError(
            400, f"The body is nested too deeply: {limits.json_depth} levels are allowed.", code="invalid_json"
        )
    try:
        # Fields that are kept as raw JSON are not checked otherwise.
        body.decode()
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as problem:
        message, param, code = describe(str(problem))
        raise ApiError(400, message, param=param, code=code) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise ApiError(400, f"The body is not valid JSON: {problem}.", code="invalid_json") from None
    except RecursionError:
        raise ApiError(400, "The body is nested too deeply.", code="invalid_json") from None


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a value as JSON."""
    return Response(_encoder.encode(value), status, dict(headers or {}), media_type="application/json")


class EventStream(Response):
    """A response of server-sent events. `chunks` are complete events, each as bytes.

    If the client disconnects, `chunks` is closed, and its producer decides what to do.
    """

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncIterator[bytes], headers: Mapping[str, str] | None = None) -> None:
        self.chunks = chunks
        self.status_code = 200
        self.background = None
        self.body = b""
        self.init_headers({"cache-control": "no-store", "x-accel-buffering": "no", **(headers or {})})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the events until they end or the client disconnects."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await sending

    async def _send(self, send: Send) -> None:
        try:
            async for chunk in self.chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            close = getattr(self.chunks, "aclose", None)
            if close is not None:
                await close()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_STEPS = bytes({ord(c): 1 for c in "[{"}.get(i, 255) for i in range(256))
_OTHERS = bytes(i for i in range(256) if i not in b"[]{}")


def measure_depth(body: bytes) -> int:
    """Return how deep the objects and arrays of JSON are nested, in time that grows with its length only."""
    brackets = _STRINGS.sub(b"", body).translate(_STEPS, _OTHERS)
    # 1 for a bracket that opens, and 255, which is -1 as a signed byte, for one that closes.
    return max(itertools.accumulate(array.array("b", brackets)), default=0)


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"The body of a request may have {most} bytes at most.", code="request_too_large")
