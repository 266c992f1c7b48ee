"""The events of a streamed response, made from the events of a turn. Pure: events in, events out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longtalk.events import Notice, PartEnd, Reasoning, Text, ToolCall, ToolCallDelta
from longtalk.service.errors import ApiError
from longtalk.service.ids import parse_response_id
from longtalk.service.openai.call_events import OpenCalls
from longtalk.service.openai.client_tools import CallForm
from longtalk.service.openai.compactions import COMPACTION, make_compaction
from longtalk.service.openai.event_types import EventType
from longtalk.service.openai.items import (
    Item,
    is_shown,
    make_message,
    make_reasoning,
    make_text_part,
)
from longtalk.service.openai.output_events import OutputEvents
from longtalk.service.openai.reasoning_events import Fields, OpenReasoning
from longtalk.service.openai.response_object import make_response
from longtalk.usage import Usage
from longtalk.wires.blocks import ReasoningBlock, TextBlock
from longtalk.wires.part_ends import Citation, shift

_encoder = msgspec.json.Encoder()
_RAW = "response.reasoning_text.delta"
_PIECES = ("response.output_text.delta", "response.reasoning_summary_text.delta", _RAW)
_EMPTY = TextBlock("")
_DELTA = b'{"type":"response.output_text.delta","sequence_number":%d,%b%b,"logprobs":[]}'


class ResponseEvents(OutputEvents):
    """Renders one response. Each method returns the events to send next, as JSON, numbered without gaps."""

    def __init__(
        self,
        id: str,  # noqa: A002
        turn: str,
        *,
        model: str,
        echo: Mapping[str, Any],
        tools: Mapping[str, CallForm],
        created: int,
        encrypted: bool = False,
    ) -> None:
        found = parse_response_id(id)
        super().__init__(turn, found and found.conversation)
        self.id = id
        self._model = model
        self._echo = echo
        self._tools = tools
        self._created = created
        self._encrypted = encrypted
        """Whether reasoning items include the encrypted form."""
        self._open: Item | None = None
        """The message or reasoning that is being streamed."""
        self._text: list[str] = []
        self._reasoning = OpenReasoning({})
        """The reasoning that is being streamed, if `_open` is that."""
        self._blank = ""
        """White space that belongs to a message only if more text follows."""
        self._citations: list[Citation] = []
        """The citations in the message that is being streamed."""
        self._refusal = ""
        """The refusal at the end of the message that is being streamed."""
        self._refuses = False
        """Whether the provider has sent a refusal before the end of its answer."""
        self._has_ended_part = False
        """Whether the provider has ended the message that is being streamed, so that more text is another message."""
        self._delta = b""
        """What all pieces of the message that is being streamed have in common."""
        self._calls = OpenCalls(self, tools)
        self._answer_start = 0
        """How many items of the output were there before the answer that is being streamed."""
        self.has_ended = False

    def begin(self, *, queued: bool = False) -> list[bytes]:
        """Return the first events."""
        status = "queued" if queued else "in_progress"
        events = [self.make_event("response.created", response=self.make(status))]
        if queued:
            events.append(self.make_event("response.queued", response=self.make(status)))
        return [*events, self.make_event("response.in_progress", response=self.make("in_progress"))]

    def resume(self, sent: Sequence[bytes], saved: Sequence[Item] | None) -> list[bytes]:
        """Go on after the events that a process has sent before it died. Return the events to send next.

        What it was streaming ends as incomplete, and is not part of the output unless `saved` is None; otherwise these
        are the items of the turn that were saved, and the output goes on after them.
        """
        self._sequence = len(sent)
        texts: dict[int, tuple[list[str], list[str]]] = {}
        for event in map(msgspec.json.decode, sent):
            if event["type"] == "response.output_item.added":
                self.output.append(event["item"])
                texts[len(self.output) - 1] = ([], [])
            elif event["type"] == "response.output_item.done":
                self.output[event["output_index"]] = event["item"]
                del texts[event["output_index"]]
            elif event["type"] in _PIECES:
                texts[event["output_index"]][event["type"] == _RAW].append(event["delta"])
        made: list[bytes] = []
        for index, (text, raw) in texts.items():
            self._open, self._text = self.output[index], text
            self._reasoning = OpenReasoning(self.output[index], text, raw)
            made += self.close("incomplete")
        if saved is not None:
            self._skipped = len(self.output) - len(saved)
            self.output = list(saved)
            for item in saved:
                self._numbers.skip(item["id"])
        return made

    def make(self, status: str, **details: Any) -> Item:
        """Return the response as it is now."""
        return make_response(
            self.id,
            model=self._model,
            created=self._created,
            echo=self._echo,
            status=status,
            output=self.output,
            **details,
        )

    def feed(self, event: object) -> list[bytes]:
        """Return the events to send for an event of the turn."""
        if type(event) is Text:
            return self._add_text(event.text)
        if type(event) is Reasoning:
            return self._add_reasoning(event.text, is_raw=event.is_raw)
        if type(event) is Notice:
            return self._drop_answer() if event.kind == "output_refused" else []
        if type(event) is PartEnd:
            return self._end_part(event)
        if type(event) is ToolCallDelta:
            events = self.close()
            return events + self._calls.add_piece(event) if is_shown(event.name, self._tools) else events
        if type(event) is ToolCall:
            if is_shown(event.name, self._tools):
                events = [] if self._calls.is_open(event) else self.close()
                return events + self._calls.end(event)
            # A call that the service runs itself is not shown, but it separates what is around it.
            events = self.close()
            self._answer_start = len(self.output)
            return events
        return []

    def add_compaction(self, content: str) -> list[bytes]:
        """Return the events for a summary that stands for older exchanges from here on."""
        events = self.close()
        item = make_compaction(self.take_id("cmp"), content)
        events.append(self.add_item(item))
        place = self.find_place(item)
        events.append(self.make_event("response.compaction.compacting", **place))
        events.append(self.make_event("response.output_item.done", output_index=place["output_index"], item=item))
        self._answer_start = len(self.output)
        return events

    def end(
        self,
        status: str,
        *,
        usage: Usage | None = None,
        error: ApiError | None = None,
        reason: str | None = None,
        refusal: str = "",
        completed: int | None = None,
        output: Sequence[Item] | None = None,
    ) -> list[bytes]:
        """Return the last events. `status` is that of the response, `completed` the time when it was completed.

        `output` are the items as they are stored, if that is known: what was cut off may not be.
        """
        self.has_ended = True
        cut = "completed" if status == "completed" else "incomplete"
        events = self._add_refusal(refusal) if refusal and not self._refuses else []
        events += self.close(cut)
        self._calls.drop()
        if output is not None:
            self.output = list(output)
        response = self.make(status, usage=usage, error=error, reason=reason, completed=completed)
        if status == "failed":
            return [*events, self.make_event("response.failed", response=response)]
        cut_off = status in ("incomplete", "cancelled")
        return [*events, self.make_event("response.incomplete" if cut_off else "response.completed", response=response)]

    def _drop_answer(self) -> list[bytes]:
        """Return the events that end an answer of a wrong form. It is not part of the output."""
        events = self.close("incomplete")
        self._skipped += len(self.output) - self._answer_start
        del self.output[self._answer_start :]
        return events

    # Pieces

    def _add_text(self, text: str) -> list[bytes]:
        events: list[bytes] = []
        if self._open is None or self._open["type"] != "message" or self._has_ended_part:
            events = self.close() if self._has_ended_part else []
            text = self._blank + text
            if not text.strip():
                self._blank = text
                return events
            events += self._open_message()
            place = {**self.find_place(self.output[-1]), "content_index": 0}
            events.append(self.make_event("response.content_part.added", **place, part=make_text_part("")))
            # Nearly all events are like the next one. To put them together takes a quarter of the time.
            self._delta = _encoder.encode({**place, "delta": ""})[1:-3]
        self._text.append(text)
        events.append(_DELTA % (self._sequence, self._delta, _encoder.encode(text)))
        self._sequence += 1
        return events

    def _add_reasoning(self, text: str, *, is_raw: bool) -> list[bytes]:
        """Return the events for a piece of reasoning. Empty lines before its first text are left out."""
        is_open = self._open is not None and self._open["type"] == "reasoning"
        if not (text if is_open else text.strip("\n")):
            return []
        events = [] if is_open else self._open_reasoning()
        self._blank = ""
        return events + self._make_reasoning_events(self._reasoning.add(text, is_raw=is_raw))

    def _make_reasoning_events(self, events: Sequence[Fields]) -> list[bytes]:
        assert self._open is not None  # noqa: S101
        place = self.find_place(self._open)
        return [self.make_event(kind, **place, **fields) for kind, fields in events]

    def _open_reasoning(self) -> list[bytes]:
        """Return the events with which reasoning begins."""
        events = self.close()
        events.append(self.add_item(make_reasoning(self.take_id("rs"), ReasoningBlock(), "in_progress")))
        self._open = self.output[-1]
        self._reasoning = OpenReasoning(self._open)
        return events

    def _end_part(self, end: PartEnd) -> list[bytes]:
        """Return the events for the end of a part of the answer.

        A message is closed by what follows it: it is incomplete if that is the end of an answer that was cut off.
        """
        if end.kind == "reasoning":
            return self._end_reasoning(end)
        events = self.close() if self._has_ended_part else []
        if end.is_item and not self._text:
            events += self._add_text(end.text)
        if end.is_item and end.refusal:
            self._refuses = True
            events += self._add_refusal(end.refusal)
        if self._open is None or self._open["type"] != "message":
            self._blank = "" if end.is_item else self._blank
            return events
        if end.phase:
            self._open["phase"] = end.phase
        self._has_ended_part = end.is_item
        return events + self._add_citations(end)

    def _end_reasoning(self, end: PartEnd) -> list[bytes]:
        events: list[bytes] = []
        if self._open is None or self._open["type"] != "reasoning":
            events = self._open_reasoning()
            events += self._add_reasoning(end.text, is_raw=False) + self._add_reasoning(end.raw, is_raw=True)
        assert self._open is not None  # noqa: S101
        if end.sealed and self._encrypted:
            self._open["encrypted_content"] = end.sealed
        return events + self.close()

    def _add_citations(self, end: PartEnd) -> list[bytes]:
        """Return the events for citations in the text that ends now."""
        assert self._open is not None  # noqa: S101
        place = {**self.find_place(self._open), "content_index": 0}
        start = max(0, sum(map(len, self._text)) - len(end.text))
        events = []
        for each in shift(end.citations, start):
            index = len(self._citations)
            self._citations.append(each)
            kind: EventType = "response.output_text.annotation.added"
            events.append(self.make_event(kind, **place, annotation_index=index, annotation=each))
        return events

    def _open_message(self) -> list[bytes]:
        """Return the events with which a message begins."""
        events = self.close()
        events.append(self.add_item({**make_message(self.take_id("msg"), _EMPTY, "in_progress"), "content": []}))
        self._open = self.output[-1]
        return events

    def _add_refusal(self, refusal: str) -> list[bytes]:
        """Add a refusal to the message, or to a new one. Its events are sent when the message is closed."""
        is_open = self._open is not None and self._open["type"] == "message"
        events = [] if is_open else self._open_message()
        self._refusal = refusal
        return events

    def close(self, status: str = "completed") -> list[bytes]:
        """Return the events that end the message or the reasoning that is being streamed."""
        item = self._open
        self._blank, self._has_ended_part = "", False
        if item is None:
            return []
        if item["type"] != COMPACTION:
            item["status"] = status
        if item["type"] == "reasoning":
            events = self._make_reasoning_events(self._reasoning.close())
        else:
            # What is no message is a call that a process has begun to stream before it died.
            events = [*self._close_text(item), *self._close_refusal(item)] if item["type"] == "message" else []
        self._open, self._text = None, []
        index = self.find_place(item)["output_index"]
        return [*events, self.make_event("response.output_item.done", output_index=index, item=item)]

    def _close_text(self, item: Item) -> list[bytes]:
        """Return the events that end the text of a message that is being streamed."""
        if not self._text:
            return []
        text, place = "".join(self._text), {**self.find_place(item), "content_index": 0}
        part = make_text_part(text, self._citations)
        item["content"], self._citations = [part], []
        return [
            self.make_event("response.output_text.done", **place, text=text, logprobs=[]),
            self.make_event("response.content_part.done", **place, part=part),
        ]

    def _close_refusal(self, item: Item) -> list[bytes]:
        """Return the events of a refusal at the end of a message."""
        refusal, self._refusal = self._refusal, ""
        if not refusal:
            return []
        part = {"type": "refusal", "refusal": refusal}
        place = {**self.find_place(item), "content_index": len(item["content"])}
        item["content"] = [*item["content"], part]
        return [
            self.make_event("response.content_part.added", **place, part={**part, "refusal": ""}),
            self.make_event("response.refusal.delta", **place, delta=refusal),
            self.make_event("response.refusal.done", **place, refusal=refusal),
            self.make_event("response.content_part.done", **place, part=part),
        ]
