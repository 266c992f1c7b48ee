"""The WebSocket of the Responses API: many responses over one connection, one after the other.

Each message asks for a response, and is checked like a request over HTTP. The events of the response are the messages
of the service, without the frame of a stream. What is not stored lives on the connection: the last response of which
nothing was kept, or that was only prepared, can be continued as long as the connection lasts. A stored turn goes on if
the connection is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Literal

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from longtalk._util.concurrency import call_store
from longtalk.reply import Reply, TurnReply
from longtalk.service.access import Caller
from longtalk.service.errors import ApiError, describe_for_log, from_error
from longtalk.service.http import decode, read_path
from longtalk.service.openai.create_response import CreateResponse
from longtalk.service.openai.event_types import EventType
from longtalk.service.openai.obfuscation import pad
from longtalk.service.openai.response_events import ResponseEvents
from longtalk.service.openai.response_turns import Target, find_target, make_order, new_chain_id, start_run
from longtalk.service.run import Run
from longtalk.service.service import Service
from longtalk.service.turns import append_input
from longtalk.transcript.transcript import now
from longtalk.usage import Usage

PATH = "/v1/responses"
_MOST_WAITING = 4
"""How many messages are read ahead while a response is made."""
_RESTARTING = 1012
"""The code with which a connection is closed when the process stops."""
_encoder = msgspec.json.Encoder()
_log = logging.getLogger("longtalk")


class CreateMessage(CreateResponse, kw_only=True, forbid_unknown_fields=True):
    """A message that asks for a response."""

    type: Literal["response.create"]
    generate: bool | None = None
    """Whether the model is called. If not, the next response can follow what was prepared."""

    def check(self) -> None:
        """Raise `ApiError` for fields that contradict each other or are not supported over a WebSocket."""
        super().check()
        if self.background:
            raise ApiError(
                400, "`background` is not for connections.", param="background", code="unsupported_parameter"
            )
        if self.generate is False and self.conversation is not None:
            message = "What is prepared does not belong to a conversation: leave `conversation` out."
            raise ApiError(400, message, param="conversation", code="unsupported_parameter")


class _Disconnected(Exception):
    """Raised if the client has disconnected."""


class ResponseSocket:
    """One connection of a client."""

    def __init__(self, service: Service, socket: WebSocket) -> None:
        self._service = service
        self._socket = socket
        self._messages: asyncio.Queue[str | bytes | None] = asyncio.Queue(_MOST_WAITING)
        self._left = asyncio.Event()
        self._last: tuple[str, bytes | None] | None = None
        """The id and the state of the last response that was not stored; None as the state if nothing was said."""

    async def serve(self) -> None:
        """Answer the messages of the client until it disconnects."""
        tasks = [asyncio.ensure_future(each) for each in (self._read(), self._wait_for_stop())]
        try:
            while (message := await self._messages.get()) is not None:
                await self._answer(message)
            with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
                await self._socket.close(_RESTARTING)
        except _Disconnected:
            pass
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_for_stop(self) -> None:
        """End the connection when the process stops, after the response that is being made."""
        await self._service.runs.wait_for_stop()
        await self._messages.put(None)

    async def _read(self) -> None:
        """Read messages ahead, so that a disconnect is noticed at once."""
        try:
            while True:
                received = await self._socket.receive()
                if received["type"] != "websocket.receive":
                    break
                text = received.get("text")
                await self._messages.put(text if text is not None else received.get("bytes") or b"")
        except (WebSocketDisconnect, RuntimeError):
            pass
        finally:
            self._left.set()
        await self._messages.put(None)

    async def _answer(self, message: str | bytes) -> None:
        try:
            caller = await identify(self._service, self._socket)
            given = self._decode(message)
            if given.generate is False:
                await self._prepare(caller, given)
                return
            run = await self._start(caller, given)
        except _Disconnected:
            raise
        except Exception as problem:
            error = from_error(problem)
            if error.status >= 500:
                _log.warning("a message over %s failed: %s", PATH, describe_for_log(problem))
            await self._send_error(error)
            return
        try:
            await self._follow(run, pads=given.obfuscates)
        finally:
            if not given.is_stored and not run.ended:
                await self._service.runs.cancel(run.name)

    def _decode(self, message: str | bytes) -> CreateMessage:
        limits = self._service.settings.limits
        body = message.encode("utf-8", "surrogatepass") if isinstance(message, str) else message
        if len(body) > limits.body_bytes:
            raise ApiError(413, f"A message may have {limits.body_bytes} bytes at most.", code="request_too_large")
        given = decode(body, CreateMessage, limits)
        given.check()
        return given

    async def _prepare(self, caller: Caller, given: CreateMessage) -> None:
        """Keep what is said before a response that is made later, and check it. The model is not called."""
        given = msgspec.structs.replace(given, store=False)
        target = self._find_unstored(given) or await find_target(self._service, caller, given)
        order = await make_order(self._service, caller, given, target, allow_empty=True)
        self._last = (str(target.id), append_input(order))
        at = now()
        events = ResponseEvents(
            str(target.id), "", model=order.model.name, echo=given.to_echo(), tools={}, created=at, encrypted=False
        )
        for event in events.begin() + events.end("completed", usage=Usage(), completed=at):
            await self._send(event)

    async def _start(self, caller: Caller, given: CreateMessage) -> Run:
        target = self._find_unstored(given) or await find_target(self._service, caller, given)

        def keep(reply: TurnReply) -> None:
            self._last = (str(target.id), reply.state) if isinstance(reply, Reply) else None

        return await start_run(self._service, caller, given, target, logs=target.is_stored, on_reply=keep)

    def _find_unstored(self, given: CreateResponse) -> Target | None:
        """Return where a response is made that follows the last one of this connection, if that was not stored."""
        if self._last is None or given.previous_response_id != self._last[0]:
            return None
        state = self._last[1]
        return Target(new_chain_id(), given.is_stored, state=state, is_new=state is None)

    async def _follow(self, run: Run, *, pads: bool) -> None:
        """Send the events of a run. If it ends without one, send its error."""
        pages = run.follow()
        left = asyncio.ensure_future(self._left.wait())
        try:
            while True:
                page = asyncio.ensure_future(anext(pages, None))
                await asyncio.wait((page, left), return_when=asyncio.FIRST_COMPLETED)
                if not page.done():
                    page.cancel()
                    raise _Disconnected
                found = page.result()
                if found is None:
                    break
                for event in found[1]:
                    await self._send(pad(event) if pads else event)
        finally:
            left.cancel()
        if run.failure is not None and not run.events:
            await self._send_error(from_error(run.failure))

    async def _send_error(self, error: ApiError) -> None:
        kind: EventType = "error"
        told: dict[str, Any] = error.to_object()
        if error.headers:
            told["headers"] = error.headers
        await self._send(_encoder.encode({"type": kind, "status": error.status, "error": told}))

    async def _send(self, event: bytes) -> None:
        try:
            await self._socket.send_text(event.decode())
        except (WebSocketDisconnect, RuntimeError, OSError):
            raise _Disconnected from None


async def identify(service: Service, socket: WebSocket) -> Caller:
    """Return the caller of a connection or of one of its messages, and count the request.

    Browsers let pages of other sites open WebSockets, so the origin of a connection is checked like that of a POST.
    """
    caller: Caller = await call_store(
        service.storage, lambda: service.gate.identify("POST", read_path(socket.scope), socket.headers)
    )
    await service.limiter.count_request(caller.owner)
    return caller


async def serve_responses(service: Service, socket: WebSocket) -> None:
    """Serve a connection of a client that may use it."""
    await ResponseSocket(service, socket).serve()


SOCKETS = ((PATH, serve_responses),)
