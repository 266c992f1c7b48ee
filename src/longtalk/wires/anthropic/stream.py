"""Streamed Anthropic messages: assemble the events into the blocks that an unstreamed response would have had.

A block begins as an object and grows by deltas. Texts are joined as raw JSON string bodies, the fragments of a tool
call's input are joined and parsed as JSON, and citations are appended. For any other key of a delta, the last value
replaces earlier ones, unchanged. The other fields of the message and of its events count as fields of the response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from longtalk._util import json_bytes
from longtalk.wires.deltas import Deltas
from longtalk.wires.native import BACKSLASH, decode_piece, drop_half_character
from longtalk.wires.part_ends import read_anthropic_text
from longtalk.wires.protocol import Answer, ReportedError

_JOINED = ("text", "thinking", "data")
_KINDS = (
    *("message_start", "message_delta", "message_stop"),
    *("content_block_start", "content_block_delta", "content_block_stop"),
)
"""The types of events that are read. Their unknown fields count as fields of the response."""


class _Event(msgspec.Struct, forbid_unknown_fields=True):
    type: str = ""
    index: int = 0
    message: msgspec.Raw = msgspec.Raw(b"{}")
    content_block: msgspec.Raw = msgspec.Raw(b"{}")
    delta: dict[str, msgspec.Raw] = {}
    usage: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


class _TextDelta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    type: Literal["text_delta"]
    text: str


class _TextOnlyEvent(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A typical event, which contains one piece of text and nothing else."""

    type: Literal["content_block_delta"]
    index: int
    delta: _TextDelta


_event_decoder = msgspec.json.Decoder(_Event)
_plain_decoder = msgspec.json.Decoder(_TextOnlyEvent)


class AnthropicAccumulator:
    """The accumulator that assembles an answer from streamed Anthropic events."""

    started = True

    def __init__(self, build_answer: Callable[..., Answer]) -> None:
        self.done = False
        self.deltas = Deltas()
        self._build_answer = build_answer
        self._blocks: dict[int, _Block] = {}
        self._reason: str | None = None
        self._response: dict[str, bytes] = {}
        self._usage: dict[str, bytes] = {}
        self._held = b""
        self._expects_text = False
        """Whether the last event contained only a piece of text. If so, the fast decoder reads the next event."""

    def feed(self, data: bytes) -> str:
        if not self._expects_text or BACKSLASH in data:
            return self._feed_any(data)
        try:
            event = _plain_decoder.decode(data)
            block = self._blocks[event.index]
        except (ValueError, RecursionError, KeyError):
            return self._feed_any(data)
        text = event.delta.text
        block.join("text", text.encode())
        return text

    def _feed_any(self, data: bytes) -> str:
        """Process an event of any kind and return the text that it adds."""
        self._expects_text = False
        # Some servers send blank events to keep the connection open, or end with OpenAI's marker.
        if not data.strip() or data == b"[DONE]":
            return ""
        try:
            event = _event_decoder.decode(data)
            kind, index, delta = event.type, event.index, {key: bytes(value) for key, value in event.delta.items()}
            message, block, usage = bytes(event.message), bytes(event.content_block), bytes(event.usage)
            error = bytes(event.error)
        except (ValueError, RecursionError):
            fields = json_bytes.fields(data)
            kind, index, delta, message, block, usage, error = _read_event(fields)
            if kind in _KINDS:
                self._response |= {key: v for key, v in fields.items() if key not in _Event.__struct_fields__}
        if kind == "error" or (not kind and error != b"null"):
            raise ReportedError(data)
        if kind == "message_start":
            members = json_bytes.fields(message)
            self._merge_usage(members.get("usage", b"null"))
            self._response |= omit_message(members)
        elif kind == "content_block_start":
            return self._begin_block(index, json_bytes.fields(block))
        elif kind == "content_block_delta":
            return self._grow_block(index, delta)
        elif kind == "content_block_stop":
            return self._end_block(index)
        elif kind == "message_delta":
            self._merge_usage(usage)
            self._reason = json_bytes.text(delta.get("stop_reason", b"null")) or self._reason
            self._response |= {key: v for key, v in delta.items() if v != b"null" or key not in self._response}
        elif kind == "message_stop":
            self.done = True
        return ""

    def _merge_usage(self, usage: bytes) -> None:
        """Merge a usage report into the counts so far. Counts are cumulative, so later values replace earlier ones."""
        if usage[:1] == b"{":
            counts = json_bytes.fields(usage).items()
            self._usage |= {key: value for key, value in counts if value != b"null" or key not in self._usage}

    def _begin_block(self, index: int, members: dict[str, bytes]) -> str:
        block = self._blocks[index] = _Block(members)
        if block.is_call():
            self.deltas.add_call(index, id=members.get("id", b""), name=members.get("name", b""))
        elif "thinking" in members:
            self.deltas.separate_reasoning()
            self.deltas.add_reasoning(members["thinking"])
        return self._decode_text(members.get("text", b'""')) if block.is_text() else ""

    def _grow_block(self, index: int, delta: dict[str, bytes]) -> str:
        kind = delta.pop("type", b"")
        block = self._blocks.setdefault(index, _Block({}))
        block.grow(delta)
        if kind != b'"text_delta"':
            if kind == b'"thinking_delta"':
                self.deltas.add_reasoning(delta.get("thinking", b""))
            elif kind == b'"input_json_delta"' and block.is_call():
                self.deltas.add_call(index, arguments=delta.get("partial_json", b""))
            return ""
        text = self._decode_text(delta.get("text", b'""'))
        self._expects_text = not self._held
        return text

    def _end_block(self, index: int) -> str:
        block = self._blocks.get(index)
        if block is not None:
            block.complete = True
            if "citations" in block.members and block.is_text():
                end = read_anthropic_text(json_bytes.value(block.to_json(cut=False) or b"{}"))
                self.deltas.new += [end] if end.citations else []
        held, self._held = self._held, b""
        return json_bytes.text(b'"%s"' % held) or ""

    def _decode_text(self, text: bytes) -> str:
        if text[:1] != b'"':
            return ""
        piece, self._held = decode_piece(self._held, text)
        return piece

    def answer(self, *, interrupted: bool = False) -> Answer:
        blocks = [block for _, block in sorted(self._blocks.items())]
        if interrupted and blocks and blocks[-1].is_thinking():
            # The model was still thinking, and the thinking of an answer is valid only as a whole.
            blocks = [block for block in blocks if not block.is_thinking()]
        if interrupted:
            blocks = [block for block in blocks if block.complete or block.is_text()]
        cut = interrupted or self._reason in ("max_tokens", "model_context_window_exceeded")
        written = [json for block in blocks if (json := block.to_json(cut=cut)) is not None]
        usage = json_bytes.build(self._usage) if self._usage else None
        response = json_bytes.build(self._response)
        answer = self._build_answer(written, self._reason, usage, cut=interrupted, response=response)
        if not interrupted:
            return answer
        return msgspec.structs.replace(answer, finish="interrupted", native=None if answer.empty else answer.native)


def omit_message(fields: dict[str, bytes]) -> dict[str, bytes]:
    """Return the fields of a response, without the message and the usage."""
    return {key: value for key, value in fields.items() if key not in ("role", "content", "usage")}


def _read_event(fields: dict[str, bytes]) -> tuple[str, int, dict[str, bytes], bytes, bytes, bytes, bytes]:
    """Return the values of an event that the fast decoder rejects, for example for an unpaired surrogate."""
    kind, index = json_bytes.text(fields.get("type", b"null")) or "", json_bytes.value(fields.get("index", b"0"))
    delta = fields.get("delta", b"{}") if kind in ("content_block_delta", "message_delta") else b"{}"
    others = [fields.get(key, b"{}") for key in ("message", "content_block")]
    usage, error = [fields.get(key, b"null") for key in ("usage", "error")]
    return kind, index if isinstance(index, int) else 0, json_bytes.fields(delta), others[0], others[1], usage, error


class _Block:
    """A content block that is still being assembled."""

    def __init__(self, members: dict[str, bytes]) -> None:
        self.members: dict[str, Any] = dict(members)
        self.complete = False
        self._input: list[bytes] = []

    def is_text(self) -> bool:
        return self.members.get("type") == b'"text"'

    def is_call(self) -> bool:
        return self.members.get("type") == b'"tool_use"'

    def is_thinking(self) -> bool:
        return self.members.get("type") in (b'"thinking"', b'"redacted_thinking"')

    def grow(self, delta: dict[str, bytes]) -> None:
        for key, value in delta.items():
            if key == "partial_json" and value[:1] == b'"':
                self._input.append(value[1:-1])
            elif key == "citation":
                citations = self.members.get("citations", b"[]")
                earlier = json_bytes.items(citations) if citations[:1] == b"[" else []
                self.members["citations"] = b"[" + b",".join([*earlier, value]) + b"]"
            elif key in _JOINED and value[:1] == b'"':
                self.join(key, value[1:-1])
            else:
                self.members[key] = value

    def join(self, key: str, body: bytes) -> None:
        """Append the body of a JSON string to the text under `key`."""
        bodies = self.members.get(key)
        if not isinstance(bodies, list):
            bodies = self.members[key] = [bodies[1:-1] if bodies and bodies[:1] == b'"' else b""]
        bodies.append(body)

    def to_json(self, *, cut: bool) -> bytes | None:
        """Return the block as JSON. If the answer ended early (`cut`), return None for a call with incomplete input."""
        members = {k: b'"' + b"".join(v) + b'"' if isinstance(v, list) else v for k, v in self.members.items()}
        if cut and not self.complete and "text" in members:
            # Half a character would make the provider reject every later request of the conversation.
            members["text"] = drop_half_character(members["text"])
        input_json = (json_bytes.text(b'"' + b"".join(self._input) + b'"') or "").encode()
        # A call without arguments streams no input: it keeps the input that its block began with.
        if input_json:
            try:
                json_bytes.fields(input_json)
            except ValueError:
                if cut:
                    return None
                input_json = json_bytes.encode({"INVALID_JSON": input_json.decode()})
            members["input"] = input_json
        return json_bytes.build(members)
