"""The connections of uvicorn, with limits for slow and hostile clients, and told when the server stops.

Without the limits, a client that never ends its headers would fill the memory, and one that never ends its request, or
never reads its response, would keep its connection for ever. When the server stops, it tells each connection before the
application. Only then can a turn still end, or be handed over, and the client that follows it gets the end of its
stream.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MOST_HEAD_BYTES = 65_536
"""The largest request line and headers together. Only the first piece that arrives can be larger until it is read."""
MOST_HEADERS = 200

REQUEST_SECONDS = 60.0
"""How long a request may take to arrive, besides a second for each `BYTES_PER_SECOND`."""
BYTES_PER_SECOND = 1_000
STALL_SECONDS = 60.0
"""A client that reads nothing of what is sent to it for so long is disconnected."""


def _make_refusal(status: str, message: str, code: str) -> bytes:
    body = f'{{"error":{{"message":"{message}","type":"invalid_request_error","param":null,"code":"{code}"}}}}'
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n"
        f"content-length: {len(body)}\r\n\r\n{body}"
    ).encode()


_TOO_LARGE = _make_refusal("431 Request Header Fields Too Large", "The headers are too large.", "too_large")
_TOO_SLOW = _make_refusal("408 Request Timeout", "The request did not arrive in time.", "request_timeout")


class _ReadingCheck(asyncio.Protocol):
    """Disconnects a client that reads nothing. For this, the transport reports at once that it has to keep bytes."""

    transport: Any
    loop: asyncio.AbstractEventLoop
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)
        opened = transport.get_extra_info("socket")
        if opened is not None and opened.family in (socket.AF_INET, socket.AF_INET6):
            # asyncio leaves this out for sockets that uvicorn binds. A response whose head and body are written apart
            # would then wait 40 ms for the client's acknowledgement.
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_check()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._check_later()

    def resume_writing(self) -> None:
        self._end_check()
        super().resume_writing()

    def _check_later(self) -> None:
        before = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(STALL_SECONDS, self._check_reading, before)

    def _check_reading(self, before: int) -> None:
        if self.transport.get_write_buffer_size() < before:
            self._check_later()
        else:
            self.transport.abort()

    def _end_check(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None


class HttpConnection(_ReadingCheck, HttpToolsProtocol):
    """HTTP/1.1 for one connection. A request that is too slow, or has too many or too large headers, is refused."""

    _head_bytes = 0
    """How much of a head that is not complete has arrived, or 0 outside a head."""
    _is_arriving = False
    """Whether a request has begun to arrive and is not complete."""
    _began = 0.0
    _arrived = 0
    """When the connection, or the request that is arriving, has begun, and how many bytes have arrived since."""
    _waiting: asyncio.TimerHandle | None = None
    """The check of a request that does not arrive at once."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._began = self.loop.time()
        self._wait_for_request(REQUEST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._arrived += len(data)
        if self._head_bytes:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._refuse(_TOO_LARGE)
                return
        super().data_received(data)
        if self._head_bytes == 1:
            self._head_bytes = len(data)
        if not self._is_arriving:
            self._end_waiting()
        elif self._waiting is None:
            self._wait_for_request(REQUEST_SECONDS)

    def handle_websocket_upgrade(self) -> None:
        self._is_arriving = False
        super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        self._head_bytes = 1
        self._is_arriving, self._began, self._arrived = True, self.loop.time(), 0
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._is_arriving = False
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > MOST_HEAD_BYTES or len(self.headers) > MOST_HEADERS:
            self._refuse(_TOO_LARGE)
            # Nothing else of this connection is read.
            raise ValueError("the head of the request is too large")
        super().on_headers_complete()

    def shutdown(self) -> None:
        """Let the service stop. The connection closes after the response that is being sent."""
        _stop(self.app_state)
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def _wait_for_request(self, seconds: float) -> None:
        self._waiting = self.loop.call_later(seconds, self._check_request)

    def _check_request(self) -> None:
        seconds = self._began + REQUEST_SECONDS + self._arrived / BYTES_PER_SECOND - self.loop.time()
        is_answered = self.cycle is None or self.cycle.response_complete
        if seconds > 0 or self.flow.read_paused or (self._head_bytes and not is_answered):
            # Also if the service itself takes its time, as with the request before this one.
            self._wait_for_request(max(seconds, 1.0))
        elif self._is_arriving and (self._head_bytes or not self.cycle.response_started):
            self._refuse(_TOO_SLOW)
        else:
            self.transport.close()

    def _end_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _refuse(self, refusal: bytes) -> None:
        self.transport.write(refusal)
        self.transport.close()


class WebSocketConnection(_ReadingCheck, WebSocketsSansIOProtocol):
    """A WebSocket. When the server stops, the service closes it after the response that is being made."""

    def shutdown(self) -> None:
        """Let the service stop."""
        if not self.handshake_complete or not _stop(self.app_state):
            super().shutdown()


def _stop(state: dict[str, Any]) -> bool:
    """Let the service stop, if it is the one that the server runs. Return False if it is part of another one."""
    stop = state.get("stop")
    if stop is not None:
        stop()
    return stop is not None
