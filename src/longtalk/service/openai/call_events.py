"""Events of the tool calls in a streamed response."""

from __future__ import annotations

from collections.abc import Mapping

from longtalk.events import ToolCall, ToolCallDelta
from longtalk.service.openai.client_tools import CallForm, read_custom_input
from longtalk.service.openai.event_types import EventType
from longtalk.service.openai.items import (
    Item,
    make_call,
)
from longtalk.service.openai.output_events import OutputEvents


class OpenCalls:
    """The calls that are being streamed."""

    def __init__(self, items: OutputEvents, tools: Mapping[str, CallForm]) -> None:
        self._items = items
        self._tools = tools
        self._calls: dict[int, Item] = {}
        """The calls, by their index among those of the answer."""

    def drop(self) -> None:
        """Remove the calls from the output: an answer that ended inside a call has none."""
        for item in self._calls.values():
            self._items.output.remove(item)
        self._calls.clear()

    def is_open(self, call: ToolCall) -> bool:
        """Return True if pieces of a call were streamed. A stream may name a call only at its end."""
        return self._find(call) is not None

    def _find(self, call: ToolCall) -> int | None:
        return next((i for i, item in self._calls.items() if item["call_id"] in (call.id, "")), None)

    def add_piece(self, piece: ToolCallDelta) -> list[bytes]:
        """Return the events for a piece of a call."""
        events: list[bytes] = []
        form = self._tools[piece.name]
        item = self._calls.get(piece.index)
        if item is None:
            events, item = self._open(piece.id, piece.name)
            self._calls[piece.index] = item
        # The text of a custom tool is inside JSON, and is sent when that is complete.
        if piece.arguments and not form.is_custom:
            item["arguments"] += piece.arguments
            kind: EventType = "response.function_call_arguments.delta"
            events.append(self._items.make_event(kind, **self._items.find_place(item), delta=piece.arguments))
        return events

    def end(self, call: ToolCall) -> list[bytes]:
        """Return the events for a complete call, after those for its pieces."""
        events: list[bytes] = []
        arguments = call.arguments.decode("utf-8", "replace") or "{}"
        index = self._find(call)
        if index is None:
            events, item = self._open(call.id, call.name)
        else:
            item = self._calls.pop(index)
        if self._tools[call.name].is_custom:
            return events + self._end_custom(item, call.id, arguments)
        make_event, place = self._items.make_event, self._items.find_place(item)
        if not item["arguments"] and arguments:
            events.append(make_event("response.function_call_arguments.delta", **place, delta=arguments))
        item |= {"call_id": call.id, "arguments": arguments, "status": "completed"}
        return [
            *events,
            make_event("response.function_call_arguments.done", **place, name=call.name, arguments=arguments),
            make_event("response.output_item.done", output_index=place["output_index"], item=item),
        ]

    def _end_custom(self, item: Item, call_id: str, arguments: str) -> list[bytes]:
        make_event, place = self._items.make_event, self._items.find_place(item)
        text = read_custom_input(arguments)
        item |= {"call_id": call_id, "input": text, "status": "completed"}
        return [
            make_event("response.custom_tool_call_input.delta", **place, delta=text),
            make_event("response.custom_tool_call_input.done", **place, input=text),
            make_event("response.output_item.done", output_index=place["output_index"], item=item),
        ]

    def _open(self, call_id: str, name: str) -> tuple[list[bytes], Item]:
        """Return the events with which a call begins, and its item."""
        item = make_call(self._items.take_id("fc"), call_id, name, "", "in_progress", form=self._tools[name])
        return [self._items.add_item(item)], item
