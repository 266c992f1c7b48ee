"""Streamed responses: assemble the events into the items that an unstreamed response would have had.

A finished item is stored byte for byte as the server sent it. An item that was cut off is kept only if it is a message.
It is then built from the pieces of its texts, which are joined as raw JSON string bodies. Events of other types are
ignored. Unknown fields of the events that are read count as fields of the response.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from longtalk._util import json_bytes
from longtalk.wires.deltas import Deltas
from longtalk.wires.native import BACKSLASH, array_objects, decode_piece, drop_half_character
from longtalk.wires.part_ends import read_item
from longtalk.wires.protocol import Answer, ReportedError

_PRELUDE = ("response.created", "response.in_progress", "response.queued")
_TEXTS = {"response.output_text.delta": "text", "response.refusal.delta": "refusal"}
_RAW = "response.reasoning_text.delta"
_REASONING = ("response.reasoning_summary_text.delta", _RAW)
_CALL = "response.function_call_arguments.delta"
_REASONING_PARTS = ("response.reasoning_summary_part.added", "response.content_part.added")
_SAID = (b'"message"', b'"reasoning"')
_PARTS = {"text": b'"output_text"', "refusal": b'"refusal"'}
_ENDS = ("response.completed", "response.incomplete")
_KNOWN = (
    *(*_PRELUDE, *_TEXTS, *_REASONING, *_REASONING_PARTS, _CALL, *_ENDS),
    *("response.output_item.added", "response.output_item.done"),
    *("response.content_part.done", "response.output_text.done"),
    *("response.refusal.done", "response.function_call_arguments.done"),
)
"""The types of events whose fields are known."""


class _Event(msgspec.Struct, forbid_unknown_fields=True):
    type: str = ""
    output_index: int = -1
    content_index: int = 0
    delta: msgspec.Raw = msgspec.Raw(b"null")
    item: msgspec.Raw = msgspec.Raw(b"null")
    response: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")
    arguments: msgspec.Raw = msgspec.Raw(b"null")
    item_id: str | None = None
    logprobs: msgspec.Raw = msgspec.Raw(b"null")
    name: str | None = None
    obfuscation: str | None = None
    part: msgspec.Raw = msgspec.Raw(b"null")
    refusal: msgspec.Raw = msgspec.Raw(b"null")
    sequence_number: int | None = None
    summary_index: int = 0
    text: msgspec.Raw = msgspec.Raw(b"null")


class _TextOnlyEvent(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A typical event, which contains a piece of text."""

    type: Literal["response.output_text.delta"]
    delta: str
    output_index: int
    content_index: int
    item_id: str | None = None
    logprobs: msgspec.Raw = msgspec.Raw(b"null")
    obfuscation: str | None = None
    sequence_number: int | None = None


_event_decoder = msgspec.json.Decoder(_Event)
_plain_decoder = msgspec.json.Decoder(_TextOnlyEvent)


class ResponsesAccumulator:
    """The accumulator that assembles an answer from the events of a streamed response."""

    def __init__(self, build_answer: Callable[..., Answer], read_error: Callable[[Mapping[str, bytes]], bytes]) -> None:
        self.done = False
        self.deltas = Deltas()
        self.started = False
        self._build_answer = build_answer
        self._read_error = read_error
        self._items: dict[int, bytes] = {}
        self._open: dict[int, _PartialMessage] = {}
        self._preludes: list[bytes] = []
        """The response as it was announced before the answer began."""
        self._response: dict[str, bytes] = {}
        self._unknown: dict[str, bytes] = {}
        """Unknown fields of events."""
        self._held = b""
        self._expects_text = False
        """Whether the last event contained only a piece of text. If so, the fast decoder reads the next event."""

    def feed(self, data: bytes) -> str:
        if not self._expects_text or BACKSLASH in data:
            return self._feed_any(data)
        try:
            event = _plain_decoder.decode(data)
            message = self._open[event.output_index]
        except (ValueError, RecursionError, KeyError):
            return self._feed_any(data)
        message.grow(event.content_index, "text", event.delta.encode())
        return event.delta

    def _feed_any(self, data: bytes) -> str:
        """Process an event of any kind and return the text that it adds."""
        self._expects_text = False
        if not data.strip() or data == b"[DONE]":
            return ""
        had_started, self.started = self.started, True
        try:
            event = _event_decoder.decode(data)
            kind, at, part, delta = event.type, event.output_index, event.content_index, bytes(event.delta)
            item, response, error = bytes(event.item), bytes(event.response), bytes(event.error)
        except (ValueError, RecursionError):
            fields = json_bytes.fields(data)
            kind, at, part, delta, item, response, error = _read_event(fields)
            if kind in _KNOWN:
                self._unknown |= {key: v for key, v in fields.items() if key not in _Event.__struct_fields__}
        if kind in _TEXTS:
            return self._grow_message(at, part, _TEXTS[kind], delta)
        if kind in _REASONING:
            self.deltas.add_reasoning(delta, is_raw=kind == _RAW)
        elif kind in _REASONING_PARTS:
            self.deltas.separate_reasoning()
        elif kind == _CALL:
            self.deltas.add_call(at if at >= 0 else max(self._open, default=-1), arguments=delta)
        elif kind in _PRELUDE:
            self.started = had_started
            self._preludes.append(response)
        elif kind == "response.output_item.added":
            at = at if at >= 0 else self._newest_index() + 1
            fields = json_bytes.fields(item)
            self._open[at] = _PartialMessage(fields)
            self.deltas.separate_reasoning()
            if fields.get("type") == b'"function_call"':
                more = {key: fields.get(key, b"") for key in ("name", "arguments")}
                self.deltas.add_call(at, id=fields.get("call_id", b""), **more)
        elif kind == "response.output_item.done":
            return self._finish_item(at if at >= 0 else max(self._open, default=self._newest_index() + 1), item)
        elif kind in _ENDS:
            self._response = json_bytes.fields(response)
            self.done = True
            return self._release_held()
        elif kind == "response.failed":
            raise ReportedError(self._read_error(json_bytes.fields(response) if response[:1] == b"{" else {}))
        elif kind == "error" or (not kind and error != b"null"):
            raise ReportedError(data)
        return ""

    def _newest_index(self) -> int:
        """Return the index of the newest item, or -1 if there is none. Used for servers that send no index."""
        return max((*self._items, *self._open), default=-1)

    def _grow_message(self, index: int, part: int, key: str, delta: bytes) -> str:
        if delta[:1] != b'"':
            return ""
        index = index if index >= 0 else max(self._open, default=self._newest_index() + 1)
        message = self._open.setdefault(index, _PartialMessage({"type": b'"message"', "role": b'"assistant"'}))
        message.grow(part, key, delta[1:-1])
        if key != "text":
            return ""
        text, self._held = decode_piece(self._held, delta)
        self._expects_text = not self._held
        return text

    def _finish_item(self, index: int, item: bytes) -> str:
        fields = json_bytes.fields(item)
        streamed = self._open.pop(index, None)
        self._items[index] = item
        end = read_item(json_bytes.value(item)) if fields.get("type") in _SAID else None
        if end is not None:
            self.deltas.new.append(end)
        # Some servers send a text only when it is complete.
        was_streamed = streamed is not None and streamed.texts
        is_new = fields.get("type") == b'"message"' and not was_streamed
        return self._release_held() + (join_text_parts(fields.get("content", b"null")) if is_new else "")

    def _release_held(self) -> str:
        held, self._held = self._held, b""
        return json_bytes.text(b'"%s"' % held) or ""

    def answer(self, *, interrupted: bool = False) -> Answer:
        announced = [json_bytes.fields(prelude) for prelude in self._preludes if prelude[:1] == b"{"]
        extra = {key: value for fields in (*announced, self._unknown) for key, value in fields.items()}
        cut = {i: message.to_json() for i, message in self._open.items() if message.texts}
        items = [item for _, item in sorted((cut | self._items).items())]
        if not interrupted:
            output = self._response.get("output", b"")
            # Some servers send the items only at the end.
            if not self._items and output[:1] == b"[" and output != b"[]":
                return self._build_answer(json_bytes.items(output), self._response, output=output, extra=extra)
            return self._build_answer(items, self._response, extra=extra)
        while items and json_bytes.fields(items[-1]).get("type") == b'"reasoning"':
            items.pop()
        answer = self._build_answer(items, {**self._response, "store": b"false"}, extra=extra)
        return msgspec.structs.replace(answer, finish="interrupted", native=None if answer.empty else answer.native)


def join_text_parts(content: bytes, *, kind: str = "text") -> str:
    """Return the text in a message's content. If `kind` is "refusal", return the text of the refusal instead."""
    if content[:1] != b"[":
        return (json_bytes.text(content) or "") if kind == "text" else ""
    parts = array_objects(content)
    shown = (b'"refusal"',) if kind == "refusal" else (b'"output_text"', b'"input_text"', b'"text"')
    return "".join(json_bytes.text(part.get(kind, b"")) or "" for part in parts if part.get("type") in shown)


def _read_event(fields: dict[str, bytes]) -> tuple[str, int, int, bytes, bytes, bytes, bytes]:
    """Return the values of an event that the fast decoder rejects, such as one with half an emoji or unknown fields."""
    indexes = [json_bytes.value(fields.get(key, b"null")) for key in ("output_index", "content_index")]
    at, part = (index if isinstance(index, int) else default for index, default in zip(indexes, (-1, 0), strict=True))
    values = [fields.get(key, b"null") for key in ("delta", "item", "response", "error")]
    return json_bytes.text(fields.get("type", b"null")) or "", at, part, values[0], values[1], values[2], values[3]


class _PartialMessage:
    """An item that is still being streamed. Only messages have content before they are finished."""

    def __init__(self, members: dict[str, bytes]) -> None:
        self.members = members
        self.texts: dict[tuple[int, str], list[bytes]] = {}

    def grow(self, part: int, key: str, body: bytes) -> None:
        self.texts.setdefault((part, key), []).append(body)

    def to_json(self) -> bytes:
        parts = []
        for (_, key), bodies in sorted(self.texts.items()):
            # Half a character would make the provider reject every later request of the conversation.
            text = drop_half_character(b'"' + b"".join(bodies) + b'"')
            more = {"annotations": b"[]"} if key == "text" else {}
            parts.append(json_bytes.build({"type": _PARTS[key], key: text, **more}))
        content = b"[" + b",".join(parts) + b"]"
        return json_bytes.build({**self.members, "status": b'"incomplete"', "content": content})
