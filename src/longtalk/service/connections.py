"""The connections of uvicorn, with a limit for the head of a request, and told when the server stops.

Without the limit, a client that never ends its headers, or sends one without end, would fill the memory. When the
server stops, it tells each connection before the application. Only then can a turn still end, or be handed over, and
the client that follows it gets the end of its stream.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MOST_HEAD_BYTES = 65_536
"""The largest request line and headers together. Only the first piece that arrives can be larger until it is read."""
MOST_HEADERS = 200

_BODY = (
    b'{"error":{"message":"The headers are too large.","type":"invalid_request_error","param":null,"code":"too_large"}}'
)
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


class HttpConnection(HttpToolsProtocol):
    """HTTP/1.1 for one connection. A request with too many or too large headers is refused."""

    _head_bytes = 0
    """How much of a head that is not complete has arrived, or 0 outside a head."""

    def data_received(self, data: bytes) -> None:
        if self._head_bytes:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._refuse()
                return
        super().data_received(data)
        if self._head_bytes == 1:
            self._head_bytes = len(data)

    def on_message_begin(self) -> None:
        self._head_bytes = 1
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > MOST_HEAD_BYTES or len(self.headers) > MOST_HEADERS:
            self._refuse()
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

    def _refuse(self) -> None:
        self.transport.write(_REFUSAL)
        self.transport.close()


class WebSocketConnection(WebSocketsSansIOProtocol):
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
