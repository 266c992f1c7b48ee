"""The events of a streamed response, put together as the items that a whole one would have had.

An item counts as it is when it is done, byte for byte. Of one that was cut off only a message is kept, from the pieces
of its texts, which are joined as raw JSON string bodies. Events of other types are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from longtalk import _json
from longtalk.wires.base import ESCAPE, Answer, Reported, readable, without_half

_LEADS_IN = ("response.created", "response.in_progress", "response.queued")
_TEXTS = {"response.output_text.delta": "text", "response.refusal.delta": "refusal"}
_PARTS = {"text": b'"output_text"', "refusal": b'"refusal"'}
_ENDS = ("response.completed", "response.incomplete")


class _Event(msgspec.Struct):
    type: str = ""
    output_index: int = -1
    content_index: int = 0
    delta: msgspec.Raw = msgspec.Raw(b"null")
    item: msgspec.Raw = msgspec.Raw(b"null")
    response: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


class _Plain(msgspec.Struct, gc=False):
    """What most events are: a piece of text."""

    type: Literal["response.output_text.delta"]
    delta: str
    output_index: int
    content_index: int


_event = msgspec.json.Decoder(_Event)
_plain = msgspec.json.Decoder(_Plain)


class Items:
    """See `Accumulator`."""

    def __init__(self, finished: Callable[..., Answer], reported: Callable[[Mapping[str, bytes]], bytes]) -> None:
        self.done = False
        self.begun = False
        self._finished = finished
        self._reported = reported
        self._items: dict[int, bytes] = {}
        self._open: dict[int, _Message] = {}
        self._response: dict[str, bytes] = {}
        self._held = b""
        self._plain = False
        """Whether the last event was a piece of text and nothing else. Then so is the next one, as a rule."""

    def feed(self, data: bytes) -> str:
        if not self._plain or ESCAPE in data:
            return self._take(data)
        try:
            event = _plain.decode(data)
            message = self._open[event.output_index]
        except (ValueError, RecursionError, KeyError):
            return self._take(data)
        message.grow(event.content_index, "text", event.delta.encode())
        return event.delta

    def _take(self, data: bytes) -> str:
        """An event of any kind."""
        self._plain = False
        if not data.strip() or data == b"[DONE]":
            return ""
        led_in, self.begun = self.begun, True
        try:
            event = _event.decode(data)
            kind, at, part, delta = event.type, event.output_index, event.content_index, bytes(event.delta)
            item, response, error = bytes(event.item), bytes(event.response), bytes(event.error)
        except (ValueError, RecursionError):
            kind, at, part, delta, item, response, error = _slowly(data)
        if kind in _TEXTS:
            return self._grow(at, part, _TEXTS[kind], delta)
        if kind in _LEADS_IN:
            self.begun = led_in
        elif kind == "response.output_item.added":
            self._open[at if at >= 0 else self._last() + 1] = _Message(_json.fields(item))
        elif kind == "response.output_item.done":
            return self._keep(at if at >= 0 else max(self._open, default=self._last() + 1), item)
        elif kind in _ENDS:
            self._response = _json.fields(response)
            self.done = True
            return self._rest()
        elif kind == "response.failed":
            raise Reported(self._reported(_json.fields(response) if response[:1] == b"{" else {}))
        elif kind == "error" or (not kind and error != b"null"):
            raise Reported(data)
        return ""

    def _last(self) -> int:
        """The place of the newest item: some servers do not number them."""
        return max((*self._items, *self._open), default=-1)

    def _grow(self, index: int, part: int, key: str, delta: bytes) -> str:
        if delta[:1] != b'"':
            return ""
        index = index if index >= 0 else max(self._open, default=self._last() + 1)
        message = self._open.setdefault(index, _Message({"type": b'"message"', "role": b'"assistant"'}))
        message.grow(part, key, delta[1:-1])
        if key != "text":
            return ""
        said, self._held = readable(self._held, delta)
        self._plain = not self._held
        return said

    def _keep(self, index: int, item: bytes) -> str:
        fields = _json.fields(item)
        streamed = self._open.pop(index, None)
        self._items[index] = item
        # Some servers send a text only when it is whole.
        told = streamed is not None and streamed.texts
        whole = fields.get("type") == b'"message"' and not told
        return self._rest() + (text_of(fields.get("content", b"null")) if whole else "")

    def _rest(self) -> str:
        held, self._held = self._held, b""
        return _json.text(b'"%s"' % held) or ""

    def answer(self, *, interrupted: bool = False) -> Answer:
        cut = {i: message.json() for i, message in self._open.items() if message.texts}
        items = [item for _, item in sorted((cut | self._items).items())]
        if not interrupted:
            listed = self._response.get("output", b"")
            # Some servers send all items at the end, and only then.
            if not self._items and listed[:1] == b"[" and listed != b"[]":
                return self._finished(_json.items(listed), self._response, output=listed)
            return self._finished(items, self._response)
        while items and _json.fields(items[-1]).get("type") == b'"reasoning"':
            items.pop()
        answer = self._finished(items, {**self._response, "store": b"false"})
        return msgspec.structs.replace(answer, finish="interrupted", native=None if answer.empty else answer.native)


def text_of(content: bytes, *, kind: str = "text") -> str:
    """What a content says: a text, or the parts of it that are one; or what they refuse."""
    if content[:1] != b"[":
        return (_json.text(content) or "") if kind == "text" else ""
    parts = [_json.fields(part) for part in _json.items(content) if part[:1] == b"{"]
    shown = (b'"refusal"',) if kind == "refusal" else (b'"output_text"', b'"input_text"', b'"text"')
    return "".join(_json.text(part.get(kind, b"")) or "" for part in parts if part.get("type") in shown)


def _slowly(data: bytes) -> tuple[str, int, int, bytes, bytes, bytes, bytes]:
    """The same for an event that the fast parser can't take: half an emoji, an odd type."""
    fields = _json.fields(data)
    places = [_json.value(fields.get(key, b"null")) for key in ("output_index", "content_index")]
    at, part = (place if isinstance(place, int) else other for place, other in zip(places, (-1, 0), strict=True))
    values = [fields.get(key, b"null") for key in ("delta", "item", "response", "error")]
    return _json.text(fields.get("type", b"null")) or "", at, part, values[0], values[1], values[2], values[3]


class _Message:
    """An item under way. Only of a message there is anything before it is done."""

    def __init__(self, members: dict[str, bytes]) -> None:
        self.members = members
        self.texts: dict[tuple[int, str], list[bytes]] = {}

    def grow(self, part: int, key: str, body: bytes) -> None:
        self.texts.setdefault((part, key), []).append(body)

    def json(self) -> bytes:
        parts = []
        for (_, key), bodies in sorted(self.texts.items()):
            # Half a pair that will never be whole makes the provider refuse the conversation for ever.
            text = without_half(b'"' + b"".join(bodies) + b'"')
            more = {"annotations": b"[]"} if key == "text" else {}
            parts.append(_json.build({"type": _PARTS[key], key: text, **more}))
        content = b"[" + b",".join(parts) + b"]"
        return _json.build({**self.members, "status": b'"incomplete"', "content": content})
