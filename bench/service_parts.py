"""The other processes of `bench.service`: a scripted provider, the service, and a bare app that relays bytes.

Each runs as `python -m bench.service_parts PART …` and prints its port.
"""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from longtalk._util.processes import allow_many_connections, limit_malloc_arenas
from longtalk.testing import says

STAMP = re.compile(rb'"delta":"T(\d{17}) ')
"""Finds the time, in nanoseconds, at which the provider has sent a piece of text."""
_EMPTY = b"T%017d " % 0
_TURN = re.compile(rb"\{pieces=(\d+) interval=([\d.]+)\}")
"""What the last message of a request asks of the provider."""


def make_prompt(pieces: int, interval: float) -> str:
    """Return a message to which the provider answers with this many pieces, with so many seconds between them."""
    return f"Tell me a story. {{pieces={pieces} interval={interval}}}"


# The provider


@functools.cache
def _encode_answer(pieces: int) -> list[bytes]:
    """Return the chunks of a response, each with one event."""
    events = says((_EMPTY * pieces).decode(), wire="openai-responses", pieces=pieces).events
    chunks = []
    for data in events:
        assert isinstance(data, bytes)
        name = data[9 : data.index(b'"', 9)]
        sent = b"event: %s\ndata: %s\n\n" % (name, data)
        chunks.append(b"%x\r\n%s\r\n" % (len(sent), sent))
    return [*chunks, b"0\r\n\r\n"]


class _Provider(asyncio.Protocol):
    """Answers each request with as many pieces, in the intervals, that its last message asks for."""

    def __init__(self) -> None:
        self._got = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        if not found or length is None or len(body) < int(length[1]):
            return
        self._got = b""
        pieces, interval = _TURN.findall(body)[-1]
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        self._transport.write(head)
        self._send(_encode_answer(int(pieces)), 0, float(interval))

    def _send(self, chunks: list[bytes], place: int, interval: float) -> None:
        """Send the chunks up to the next piece of text, and the others later."""
        while place < len(chunks):
            chunk = chunks[place]
            place += 1
            if b'.delta"' in chunk:
                self._transport.write(chunk.replace(b"T%017d" % 0, b"T%017d" % time.monotonic_ns()))
                asyncio.get_running_loop().call_later(interval, self._send, chunks, place, interval)
                return
            self._transport.write(chunk)


async def _provide() -> None:
    server = await asyncio.get_running_loop().create_server(_Provider, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# The apps


def make_bare_app(upstream: str) -> Any:
    """Return an app that relays the bytes of the provider, and does nothing else."""
    import httpx2
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    client = httpx2.AsyncClient(
        trust_env=False, timeout=600, limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100)
    )

    async def relay(request: Request) -> StreamingResponse:
        sent = client.build_request("POST", upstream + "/responses", content=await request.body())
        answer = await client.send(sent, stream=True)

        async def chunks() -> AsyncIterator[bytes]:
            async for chunk in answer.aiter_raw():
                yield chunk
            await answer.aclose()
            yield b"data: [DONE]\n\n"

        return StreamingResponse(chunks(), media_type="text/event-stream")

    return Starlette(routes=[Route("/v1/responses", relay, methods=["POST"])])


def make_service(upstream: str, store: str) -> Any:
    """Return the service, with the provider as its model `m`."""
    from longtalk.providers.http.provider import AsyncHTTP
    from longtalk.providers.registry import PROVIDERS, ResolvedModel
    from longtalk.service.app import create_app
    from longtalk.service.settings import Settings
    from longtalk.stores import open_store
    from longtalk.wires import HTTP_WIRES

    known = ResolvedModel(
        "m", "m", HTTP_WIRES["openai-responses"], upstream, None, PROVIDERS["compatible"].capabilities
    )
    return create_app(Settings(), store=open_store(store), providers={"m": AsyncHTTP(known)})


def _serve(app: Any, port: int, **connections: Any) -> None:
    import uvicorn

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(2048)
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(app, log_level="error", lifespan="on", backlog=2048, **connections)
        uvicorn.Server(config).run(sockets=[listener])


def main(part: str, upstream: str = "", store: str = "", port: str = "0") -> None:
    """Run one of the parts until the process is ended."""
    if part == "provider":
        asyncio.run(_provide())
    elif part == "bare":
        _serve(make_bare_app(upstream), int(port))
    else:
        # As `longtalk serve` does.
        limit_malloc_arenas()
        allow_many_connections()
        _serve(make_service(upstream, store), int(port), http="longtalk.service.connections:HttpConnection")


if __name__ == "__main__":
    main(*sys.argv[1:])
