"""The events of a streamed Anthropic message, put together as the blocks that a whole one would have had.

A block begins as an object and grows by deltas: texts are joined as raw JSON string bodies, the input of a call is the
JSON that its pieces spell, citations are appended. Of any other key of a delta the last value wins, as it came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from longtalk import _json
from longtalk.wires.base import ESCAPE, Answer, Reported, readable, without_half

_JOINED = ("text", "thinking", "data")


class _Event(msgspec.Struct):
    type: str = ""
    index: int = 0
    message: msgspec.Raw = msgspec.Raw(b"{}")
    content_block: msgspec.Raw = msgspec.Raw(b"{}")
    delta: dict[str, msgspec.Raw] = {}
    usage: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


class _Said(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    type: Literal["text_delta"]
    text: str


class _Plain(msgspec.Struct, gc=False):
    """What most events are: one piece of text and nothing else."""

    type: Literal["content_block_delta"]
    index: int
    delta: _Said


_event = msgspec.json.Decoder(_Event)
_plain = msgspec.json.Decoder(_Plain)


class Blocks:
    """See `Accumulator`."""

    begun = True

    def __init__(self, finished: Callable[..., Answer]) -> None:
        self.done = False
        self._finished = finished
        self._blocks: dict[int, _Block] = {}
        self._reason: str | None = None
        self._usage: dict[str, bytes] = {}
        self._held = b""
        self._plain = False
        """Whether the last event was a piece of text and nothing else. Then so is the next one, as a rule."""

    def feed(self, data: bytes) -> str:
        if not self._plain or ESCAPE in data:
            return self._take(data)
        try:
            event = _plain.decode(data)
            block = self._blocks[event.index]
        except (ValueError, RecursionError, KeyError):
            return self._take(data)
        text = event.delta.text
        block.join("text", text.encode())
        return text

    def _take(self, data: bytes) -> str:
        """An event of any kind."""
        self._plain = False
        # Some servers keep the line open with events that say nothing, or end it as others do.
        if not data.strip() or data == b"[DONE]":
            return ""
        try:
            event = _event.decode(data)
            kind, index, delta = event.type, event.index, {key: bytes(value) for key, value in event.delta.items()}
            message, block, usage = bytes(event.message), bytes(event.content_block), bytes(event.usage)
            error = bytes(event.error)
        except (ValueError, RecursionError):
            kind, index, delta, message, block, usage, error = _slowly(data)
        if kind == "error" or (not kind and error != b"null"):
            raise Reported(data)
        if kind == "message_start":
            self._count(_json.fields(message).get("usage", b"null"))
        elif kind == "content_block_start":
            return self._begin(index, _json.fields(block))
        elif kind == "content_block_delta":
            return self._grow(index, delta)
        elif kind == "content_block_stop":
            return self._end(index)
        elif kind == "message_delta":
            self._count(usage)
            self._reason = _json.text(delta.get("stop_reason", b"null")) or self._reason
        elif kind == "message_stop":
            self.done = True
        return ""

    def _count(self, usage: bytes) -> None:
        """Counts are of the whole answer so far: the last one is right, and none is no count."""
        if usage[:1] == b"{":
            said = _json.fields(usage).items()
            self._usage |= {key: value for key, value in said if value != b"null" or key not in self._usage}

    def _begin(self, index: int, members: dict[str, bytes]) -> str:
        block = self._blocks[index] = _Block(members)
        return self._read(members.get("text", b'""')) if block.is_text() else ""

    def _grow(self, index: int, delta: dict[str, bytes]) -> str:
        kind = delta.pop("type", b"")
        self._blocks.setdefault(index, _Block({})).grow(delta)
        if kind != b'"text_delta"':
            return ""
        said = self._read(delta.get("text", b'""'))
        self._plain = not self._held
        return said

    def _end(self, index: int) -> str:
        if index in self._blocks:
            self._blocks[index].whole = True
        held, self._held = self._held, b""
        return _json.text(b'"%s"' % held) or ""

    def _read(self, text: bytes) -> str:
        if text[:1] != b'"':
            return ""
        said, self._held = readable(self._held, text)
        return said

    def answer(self, *, interrupted: bool = False) -> Answer:
        blocks = [block for _, block in sorted(self._blocks.items())]
        if interrupted:
            blocks = [block for block in blocks if block.whole or block.is_text()]
        cut = interrupted or self._reason in ("max_tokens", "model_context_window_exceeded")
        written = [json for block in blocks if (json := block.json(cut=cut)) is not None]
        usage = _json.build(self._usage) if self._usage else None
        answer = self._finished(written, self._reason, usage, cut=interrupted)
        if not interrupted:
            return answer
        return msgspec.structs.replace(answer, finish="interrupted", native=None if answer.empty else answer.native)


def _slowly(data: bytes) -> tuple[str, int, dict[str, bytes], bytes, bytes, bytes, bytes]:
    """The same for an event that the fast parser can't take: half an emoji, an odd type."""
    fields = _json.fields(data)
    kind, index = _json.text(fields.get("type", b"null")) or "", _json.value(fields.get("index", b"0"))
    delta = fields.get("delta", b"{}") if kind in ("content_block_delta", "message_delta") else b"{}"
    others = [fields.get(key, b"{}") for key in ("message", "content_block")]
    usage, error = [fields.get(key, b"null") for key in ("usage", "error")]
    return kind, index if isinstance(index, int) else 0, _json.fields(delta), others[0], others[1], usage, error


class _Block:
    """A block under way."""

    def __init__(self, members: dict[str, bytes]) -> None:
        self.members: dict[str, Any] = dict(members)
        self.whole = False
        self._input: list[bytes] = []

    def is_text(self) -> bool:
        return self.members.get("type") == b'"text"'

    def grow(self, delta: dict[str, bytes]) -> None:
        for key, value in delta.items():
            if key == "partial_json" and value[:1] == b'"':
                self._input.append(value[1:-1])
            elif key == "citation":
                held = self.members.get("citations", b"[]")
                listed = _json.items(held) if held[:1] == b"[" else []
                self.members["citations"] = b"[" + b",".join([*listed, value]) + b"]"
            elif key in _JOINED and value[:1] == b'"':
                self.join(key, value[1:-1])
            else:
                self.members[key] = value

    def join(self, key: str, body: bytes) -> None:
        """More of a text."""
        there = self.members.get(key)
        if not isinstance(there, list):
            there = self.members[key] = [there[1:-1] if there and there[:1] == b'"' else b""]
        there.append(body)

    def json(self, *, cut: bool) -> bytes | None:
        """The block; None for a call that was cut off before it was whole."""
        members = {k: b'"' + b"".join(v) + b'"' if isinstance(v, list) else v for k, v in self.members.items()}
        if cut and not self.whole and "text" in members:
            # Half a pair that will never be whole makes the provider refuse the conversation for ever.
            members["text"] = without_half(members["text"])
        spelt = (_json.text(b'"' + b"".join(self._input) + b'"') or "").encode()
        # A call without arguments spells nothing: it has the input that it began with.
        if spelt:
            try:
                _json.fields(spelt)
            except ValueError:
                if cut:
                    return None
                spelt = _json.encode({"INVALID_JSON": spelt.decode()})
            members["input"] = spelt
        return _json.build(members)
