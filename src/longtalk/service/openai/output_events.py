"""Events of a response about the items of its output, numbered without gaps."""

from __future__ import annotations

from typing import Any

import msgspec

from longtalk.service.openai.event_types import EventType
from longtalk.service.openai.items import (
    Item,
    ItemNumbers,
)

_encoder = msgspec.json.Encoder()


class OutputEvents:
    """The items of a response's output, and the events that announce them."""

    def __init__(self, turn: str, conversation: str | None) -> None:
        self.output: list[Item] = []
        self._numbers = ItemNumbers(turn, conversation)
        self._sequence = 0
        self._skipped = 0
        """How many items were streamed by a process that has died, and are not part of the output."""

    def take_id(self, kind: str) -> str:
        """Return the id of the next item of a kind."""
        return self._numbers.take(kind)

    def make_event(self, kind: EventType, **fields: Any) -> bytes:
        """Return the next event, as JSON."""
        event = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return _encoder.encode(event)

    def add_item(self, item: Item) -> bytes:
        """Add an item to the output, and return the event that says so."""
        self.output.append(item)
        return self.make_event(
            "response.output_item.added", output_index=self.find_place(item)["output_index"], item=item
        )

    def find_place(self, item: Item) -> dict[str, Any]:
        """Return the fields by which an event names an item of the output."""
        index = next(i for i, each in enumerate(self.output) if each is item)
        return {"item_id": item["id"], "output_index": index + self._skipped}
