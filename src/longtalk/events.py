"""What a streaming turn emits. The last event is always `Done`, with the reply and its state."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from longtalk.reply import Reply
from longtalk.transcript import Transcript


class Event(msgspec.Struct, frozen=True):
    """The root of what a stream emits."""


class Text(Event, frozen=True):
    """More of the answer's text."""

    text: str


class ToolCall(Event, frozen=True):
    """The model calls a tool: `arguments` is the JSON that it wrote."""

    id: str
    name: str
    arguments: bytes


class ToolResult(Event, frozen=True):
    """A tool has answered, or failed, or could not be called at all."""

    id: str
    name: str
    text: str
    failed: bool


class Checkpoint(Event, frozen=True):
    """A moment from which the turn can go on after a crash: store `state`, and `send(None, state=…)` goes on.

    Emitted before tools run and after each result, so that no finished call is repeated.
    """

    __match_args__ = ("state",)

    transcript: Transcript
    encode: Callable[[Transcript], bytes]

    def __repr__(self) -> str:
        return f"<Checkpoint of {len(self.transcript)} entries, revision {self.transcript.revision}>"

    @property
    def state(self) -> bytes:
        """Made when it is asked for: who does not keep it does not pay for it."""
        return self.encode(self.transcript)


class Notice(Event, frozen=True):
    """Something that the caller should know and that did not stop the turn. Also in `reply.notices`."""

    kind: str
    """bad_state, preamble_changed, server_refused, state_size …"""
    text: str
    data: bytes = b""


class Done(Event, frozen=True):
    """The turn is complete."""

    reply: Reply
