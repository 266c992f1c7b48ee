"""The events of a reasoning item in a stream: a summary, the reasoning itself, or both. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from longtalk.service.openai.event_types import EventType
from longtalk.service.openai.items import Item

Fields: TypeAlias = tuple[EventType, dict[str, Any]]
"""The type of an event, and the fields that are its own."""


class OpenReasoning:
    """A reasoning item that is being streamed. A part of it begins with its first text."""

    def __init__(self, item: Item, summary: Sequence[str] = (), raw: Sequence[str] = ()) -> None:
        self._item = item
        self._summary, self._raw = list(summary), list(raw)

    def add(self, text: str, *, is_raw: bool) -> list[Fields]:
        """Return the events for the next piece of the summary, or of the reasoning itself."""
        pieces = self._raw if is_raw else self._summary
        events: list[Fields] = []
        if not pieces:
            text = text.lstrip("\n")
            events.append(_begin_raw() if is_raw else _begin_summary())
        if not text:
            return []
        pieces.append(text)
        if is_raw:
            return [*events, ("response.reasoning_text.delta", {"content_index": 0, "delta": text})]
        return [*events, ("response.reasoning_summary_text.delta", {"summary_index": 0, "delta": text})]

    def close(self) -> list[Fields]:
        """Return the events that end the parts, and put their whole texts into the item."""
        events: list[Fields] = []
        if self._summary:
            text = "".join(self._summary)
            part = {"type": "summary_text", "text": text}
            self._item["summary"] = [part]
            events.append(("response.reasoning_summary_text.done", {"summary_index": 0, "text": text}))
            events.append(("response.reasoning_summary_part.done", {"summary_index": 0, "part": part}))
        if self._raw:
            text = "".join(self._raw)
            part = {"type": "reasoning_text", "text": text}
            self._item["content"] = [part]
            events.append(("response.reasoning_text.done", {"content_index": 0, "text": text}))
            events.append(("response.content_part.done", {"content_index": 0, "part": part}))
        return events


def _begin_summary() -> Fields:
    part = {"type": "summary_text", "text": ""}
    return "response.reasoning_summary_part.added", {"summary_index": 0, "part": part}


def _begin_raw() -> Fields:
    return "response.content_part.added", {"content_index": 0, "part": {"type": "reasoning_text", "text": ""}}
