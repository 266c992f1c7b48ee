"""The events of a turn as JSON: those of the library, each with its type first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TypeAlias

import msgspec

from longtalk.events import Event, Notice, Reasoning, Text, ToolCall, ToolCallDelta, ToolResult
from longtalk.service.errors import ApiError
from longtalk.service.native.objects import TurnObject, clean, to_call, to_result


class StartedEvent(msgspec.Struct, frozen=True, tag="started", kw_only=True):
    """The message is saved, and the turn runs."""

    turn: str
    branch: str


class TextEvent(msgspec.Struct, frozen=True, tag="text"):
    """The next piece of the answer."""

    text: str


class ReasoningEvent(msgspec.Struct, frozen=True, tag="reasoning"):
    """The next piece of the model's thinking."""

    text: str


class ToolCallDeltaEvent(msgspec.Struct, frozen=True, tag="tool_call_delta"):
    """The next piece of a call that the model is writing."""

    index: int
    id: str
    name: str
    arguments: str


class ToolCallEvent(msgspec.Struct, frozen=True, tag="tool_call"):
    """A complete call."""

    id: str
    name: str
    arguments: str


class ToolResultEvent(msgspec.Struct, frozen=True, tag="tool_result"):
    """The result of a call that the service has run."""

    id: str
    name: str
    text: str
    failed: bool


class NoticeEvent(msgspec.Struct, frozen=True, tag="notice"):
    """Something worth knowing that did not stop the turn."""

    kind: str
    text: str


class DoneEvent(msgspec.Struct, frozen=True, tag="done"):
    """The end of the turn, with all of it."""

    turn: TurnObject


class ErrorDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorEvent(msgspec.Struct, frozen=True, tag="error", kw_only=True):
    """The end of a turn that has failed. What was said is kept."""

    status: int
    """The HTTP status that the request would have had."""
    error: ErrorDetails
    turn: TurnObject | None = None
    """The turn as far as it went."""


TurnEvent: TypeAlias = (
    StartedEvent
    | TextEvent
    | ReasoningEvent
    | ToolCallDeltaEvent
    | ToolCallEvent
    | ToolResultEvent
    | NoticeEvent
    | DoneEvent
    | ErrorEvent
)
"""Any event of a turn's stream. The last one is `done` or `error`."""

_encoder = msgspec.json.Encoder()
_AFTER_ANSWER = b'{"type":"tool_call"', b'{"type":"tool_result"', b'{"type":"notice","kind":"output_refused"'
"""How events begin that follow an answer which was saved."""


def to_event(event: Event) -> TurnEvent | None:
    """Return an event of the library in its form here; None for one that clients do not see."""
    match event:
        case Text(text):
            return TextEvent(clean(text))
        case Reasoning(text):
            return ReasoningEvent(clean(text))
        case ToolCallDelta(index, id_, name, arguments):
            return ToolCallDeltaEvent(index, clean(id_), clean(name), clean(arguments))
        case ToolCall():
            call = to_call(event)
            return ToolCallEvent(call.id, call.name, call.arguments)
        case ToolResult():
            result = to_result(event)
            return ToolResultEvent(result.id, result.name, result.text, result.failed)
        case Notice(kind, text):
            return NoticeEvent(kind, clean(text))
        case _:
            return None


def to_error(error: ApiError, turn: TurnObject | None = None) -> ErrorEvent:
    """Return the event of an error."""
    details = ErrorDetails(message=error.message, type=error.kind, param=error.param, code=error.code)
    return ErrorEvent(status=error.status, error=details, turn=turn)


def from_error(event: ErrorEvent) -> ApiError:
    """Return the error of an event."""
    error = event.error
    return ApiError(event.status, error.message, kind=error.type, param=error.param, code=error.code)


def encode(event: TurnEvent) -> bytes:
    """Return an event as JSON."""
    return _encoder.encode(event)


def is_done(event: bytes) -> bool:
    """Return True if an encoded event is the last one of a turn that has not failed."""
    return event.startswith(b'{"type":"done"')


def is_last(event: bytes) -> bool:
    """Return True for the event that ends a stream."""
    return event.startswith((b'{"type":"done"', b'{"type":"error"'))


def read_last_text(events: Iterable[bytes]) -> str:
    """Return the text of the last answer among the events of a turn."""
    text = ""
    for event in events:
        if event.startswith(b'{"type":"text"'):
            text += msgspec.json.decode(event)["text"]
        elif event.startswith(_AFTER_ANSWER):
            text = ""
    return text


def to_sse(number: int, event: bytes) -> bytes:
    """Return an event as a server-sent event, whose id is its number."""
    kind = event[9 : event.index(b'"', 9)]
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, kind, event)


async def render(pages: AsyncIterator[tuple[int, list[bytes]]]) -> AsyncIterator[bytes]:
    """Yield lists of numbered events as server-sent events."""
    async for first, events in pages:
        yield b"".join(to_sse(first + i, event) for i, event in enumerate(events))
