"""Deltas: the pieces of reasoning and of tool calls in a stream, for display.

An accumulator adds them to its `Deltas` when it processes an event. The answer does not depend on them: accumulators
assemble reasoning and calls from the bytes of the events.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

import msgspec

from longtalk._util import json_bytes
from longtalk.wires.native import decode_piece
from longtalk.wires.part_ends import PartEnd


class Reasoning(msgspec.Struct, frozen=True):
    """The next piece of the model's thinking before its answer, as far as the provider shows it."""

    text: str
    is_raw: bool = False
    """Whether this is the thinking itself, as open models show it, and not a summary that the provider has made."""


class ToolCallDelta(msgspec.Struct, frozen=True):
    """The next piece of a tool call that the model is writing. The complete call follows as a `ToolCall`.

    `index` is the position of the call among the calls of the answer. `arguments` is the next piece of the JSON, which
    is often not valid by itself. `id` is empty if the provider has not sent it yet.
    """

    index: int
    id: str
    name: str
    arguments: str


class _Call:
    """A tool call of which only some pieces have arrived."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = self.name = self.waiting = ""
        self.held = b""


Delta: TypeAlias = Reasoning | ToolCallDelta | PartEnd


class Deltas:
    """The pieces of reasoning and of tool calls in a stream, and the ends of parts.

    `new` lists the pieces that `take` has not returned yet. The end of a part comes after the text that was fed with
    it.
    """

    def __init__(self) -> None:
        self.new: list[Delta] = []
        self._calls: dict[Hashable, _Call] = {}
        self._held = b""
        self._reasoned: set[bool] = set()
        """Of which kinds there was reasoning: raw, summarized."""
        self._begins_part = False

    def take(self) -> list[Delta]:
        """Return the pieces that were not returned before."""
        new, self.new = self.new, []
        return new

    def add_reasoning(self, string: bytes, *, is_raw: bool = False) -> None:
        """Add a piece of reasoning. Anything that is not a JSON string is ignored."""
        if string[:1] == b'"':
            text, self._held = decode_piece(self._held, string)
            if text:
                if self._begins_part and is_raw in self._reasoned:
                    self.new.append(Reasoning("\n\n", is_raw))
                self._reasoned.add(is_raw)
                self._begins_part = False
                self.new.append(Reasoning(text, is_raw))

    def separate_reasoning(self) -> None:
        """Add a blank line before the next part of the reasoning, if there is an earlier part of its kind."""
        self._begins_part = True

    def add_call(self, key: Hashable, *, id: bytes = b"", name: bytes = b"", arguments: bytes = b"") -> None:  # noqa: A002
        """Add a piece of the call with this key; the values are JSON.

        The piece is kept until the call's name is known.
        """
        call = self._calls.get(key)
        begins = call is None or not call.name
        if call is None:
            call = self._calls[key] = _Call(len(self._calls))
        call.id = json_bytes.text(id) or call.id
        call.name = json_bytes.text(name) or call.name
        if arguments[:1] == b'"':
            text, call.held = decode_piece(call.held, arguments)
            call.waiting += text
        elif arguments[:1] == b"{":
            # Some servers send the arguments as an object and not as a JSON string.
            call.waiting += arguments.decode("utf-8", "replace")
        if call.name and (call.waiting or begins):
            self.new.append(ToolCallDelta(call.index, call.id, call.name, call.waiting))
            call.waiting = ""
