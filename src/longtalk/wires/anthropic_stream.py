"""The events of a streamed Anthropic message, put together as the blocks that a whole one would have had.

A block begins as an object and grows by deltas: texts are joined as raw JSON string bodies, the input of a call is the
JSON that its pieces spell, citations are appended. Of any other key of a delta the last value wins, as it came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from longtalk import _json
from longtalk.wires.base import Answer, Reported, readable

_JOINED = ("text", "thinking", "data")


class _Event(msgspec.Struct):
    type: str = ""
    index: int = 0
    message: msgspec.Raw = msgspec.Raw(b"{}")
    content_block: msgspec.Raw = msgspec.Raw(b"{}")
    delta: dict[str, msgspec.Raw] = {}
    usage: msgspec.Raw = msgspec.Raw(b"null")


_event = msgspec.json.Decoder(_Event)


class Blocks:
    """See `Accumulator`."""

    def __init__(self, finished: Callable[..., Answer]) -> None:
        self.done = False
        self._finished = finished
        self._blocks: dict[int, _Block] = {}
        self._reason: str | None = None
        self._usage: dict[str, bytes] = {}
        self._held = b""

    def feed(self, data: bytes) -> str:
        try:
            event = _event.decode(data)
            kind, index, delta = event.type, event.index, {key: bytes(value) for key, value in event.delta.items()}
            message, block, usage = bytes(event.message), bytes(event.content_block), bytes(event.usage)
        except (ValueError, RecursionError):
            fields = _json.fields(data)
            kind, index = _json.text(fields.get("type", b'""')) or "", _json.value(fields.get("index", b"0"))
            delta = _json.fields(fields.get("delta", b"{}"))
            message, block = fields.get("message", b"{}"), fields.get("content_block", b"{}")
            usage = fields.get("usage", b"null")
        if kind == "error":
            raise Reported(data)
        if kind == "message_start":
            usage = _json.fields(message).get("usage", b"null")
        if usage != b"null":
            self._usage |= _json.fields(usage)
        if kind == "content_block_start":
            self._blocks[index] = _Block(_json.fields(block))
        elif kind == "content_block_delta":
            return self._grow(index, delta)
        elif kind == "content_block_stop" and index in self._blocks:
            self._blocks[index].whole = True
        elif kind == "message_delta":
            self._reason = _json.text(delta.get("stop_reason", b"null")) or self._reason
        elif kind == "message_stop":
            self.done = True
        return ""

    def _grow(self, index: int, delta: dict[str, bytes]) -> str:
        kind = delta.pop("type", b"")
        block = self._blocks.setdefault(index, _Block({}))
        block.grow(delta)
        if kind != b'"text_delta"':
            return ""
        text, self._held = readable(self._held, delta.get("text", b'""'))
        return text

    def answer(self, *, interrupted: bool = False) -> Answer:
        blocks = [block for _, block in sorted(self._blocks.items())]
        if interrupted:
            blocks = [block for block in blocks if block.whole or block.is_text()]
            blocks = _paired(blocks)
        written = [block.json(cut=interrupted or self._reason == "max_tokens") for block in blocks]
        usage = _json.build(self._usage) if self._usage else None
        answer = self._finished([block for block in written if block is not None], self._reason, usage)
        if not interrupted:
            return answer
        return msgspec.structs.replace(answer, finish="interrupted", native=None if answer.empty else answer.native)


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
            there = self.members.get(key)
            if key == "partial_json":
                self._input.append(value[1:-1])
            elif key == "citation":
                held = self.members.get("citations", b"[]")
                held = held if held[:1] == b"[" else b"[]"
                self.members["citations"] = held[:-1] + (b"," if len(held) > 2 else b"") + value + b"]"
            elif key in _JOINED and value[:1] == b'"':
                if not isinstance(there, list):
                    there = self.members[key] = [there[1:-1] if there and there[:1] == b'"' else b""]
                there.append(value[1:-1])
            else:
                self.members[key] = value

    def json(self, *, cut: bool) -> bytes | None:
        """The block; None for a call that was cut off before it was whole."""
        members = {k: b'"' + b"".join(v) + b'"' if isinstance(v, list) else v for k, v in self.members.items()}
        if self._input:
            spelt = (_json.text(b'"' + b"".join(self._input) + b'"') or "").encode()
            try:
                _json.fields(spelt)
            except ValueError:
                if cut:
                    return None
                spelt = _json.encode({"INVALID_JSON": spelt.decode()})
            members["input"] = spelt
        return _json.build(members)


def _paired(blocks: list[_Block]) -> list[_Block]:
    """Without calls of server tools that have no result yet, and without thinking that has no signature."""
    answered = {block.members.get("tool_use_id") for block in blocks}
    return [
        block
        for block in blocks
        if block.members.get("type") != b'"server_tool_use"' or block.members.get("id") in answered
    ]
