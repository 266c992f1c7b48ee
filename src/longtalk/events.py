"""The events of a streaming turn. The last event is always `Done`, with the reply and its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from longtalk.context.epochs import Epoch
from longtalk.notices import Notice
from longtalk.reply import TurnReply
from longtalk.transcript.transcript import Transcript
from longtalk.wires.deltas import Reasoning, ToolCallDelta
from longtalk.wires.part_ends import PartEnd

R = TypeVar("R", bound=TurnReply)

__all__ = [
    "Checkpoint",
    "Compacted",
    "Done",
    "Event",
    "Notice",
    "PartEnd",
    "Reasoning",
    "Started",
    "Text",
    "ToolCall",
    "ToolCallDelta",
    "ToolResult",
]


class Started(msgspec.Struct, frozen=True):
    """The turn has begun, and its message is saved. Only `Conversation.start` yields it."""

    turn: str
    """The id of the turn."""
    branch: str = ""
    """The branch that the turn is on."""
    at: int = 0
    """When the turn began, in milliseconds since 1970."""


class Text(msgspec.Struct, frozen=True):
    """The next piece of the answer's text."""

    text: str


class ToolCall(msgspec.Struct, frozen=True):
    """A tool call by the model. `arguments` is the JSON that the model wrote."""

    id: str
    name: str
    arguments: bytes


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a tool call. `failed` is True if the tool raised an error or could not be called."""

    id: str
    name: str
    text: str
    failed: bool


class Checkpoint(msgspec.Struct, frozen=True):
    """A point from which the turn can be resumed after a crash.

    To be able to resume, store `state`; after a crash, pass it to `resume(state=…)`. A checkpoint is emitted before
    tools run and after each tool result, so no finished call is repeated.
    """

    __match_args__ = ("state",)

    transcript: Transcript
    encode: Callable[[Transcript], bytes]

    def __repr__(self) -> str:
        return f"<Checkpoint of {len(self.transcript)} entries, revision {self.transcript.revision}>"

    @property
    def state(self) -> bytes:
        """The state at this point. It is encoded when accessed, so an unused checkpoint costs almost nothing."""
        return self.encode(self.transcript)


class Compacted(msgspec.Struct, frozen=True):
    """A summary written by the model stands for older exchanges from here on: the next answer is made with it."""

    entry: str
    """The id of the last entry before that answer."""
    transcript: Transcript
    epoch: Epoch

    def __repr__(self) -> str:
        return f"<Compacted before {self.entry}>"


class Done(msgspec.Struct, Generic[R], frozen=True):
    """The end of the turn, with its reply."""

    reply: R


Event: TypeAlias = (
    Started
    | Text
    | Reasoning
    | PartEnd
    | ToolCallDelta
    | ToolCall
    | ToolResult
    | Checkpoint
    | Compacted
    | Notice
    | Done[Any]
)
"""Any event of a streaming turn."""
