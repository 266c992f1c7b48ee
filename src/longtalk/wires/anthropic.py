"""Anthropic Messages: content in blocks, strict pairing, thinking that is bound to what stands before it.

A message is stored as `{"role":…,"content":[…]}` with the blocks as they came. Each tool result is an entry of its
own; those that follow each other are sent as one user message, as the rules ask. Events and system messages inside
the conversation are quoted in the user's voice, which every model takes. Cache breakpoints stand at the end of the
preamble and of the history, and are no part of what is stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longtalk import _json
from longtalk.errors import InputError
from longtalk.transcript import Entry
from longtalk.wires.anthropic_stream import Blocks
from longtalk.wires.base import (
    LONGTALK,
    Answer,
    Call,
    Finish,
    Preamble,
    Quirks,
    Reported,
    Usage,
    View,
    neutral_text,
    option,
    splice,
)

_FINISH: dict[str | None, Finish] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "filtered",
    "pause_turn": "paused",
}
_RESERVED = ("messages", "model", "stream", "system")
_RESULT = b'{"role":"user","content":[{"type":"tool_result",'
_MARK = b',"cache_control":{"type":"ephemeral"}}'
# What a model thought is readable to nobody but its provider, and valid only where it was thought.
_OPAQUE = (b'"thinking"', b'"redacted_thinking"')


class Anthropic:
    """See `Wire`."""

    name = "anthropic"
    defaults: Mapping[str, Any] = {"max_tokens": 8192}

    def path(self, model: str, *, stream: bool) -> str:  # noqa: ARG002
        return "/v1/messages"

    def headers(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": "2023-06-01", **({"x-api-key": key} if key else {})}

    def user(self, content: str | Sequence[Any]) -> bytes:
        parts = [content] if isinstance(content, str) else content
        blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
        return _json.encode({"role": "user", "content": blocks})

    def result(self, call_id: str, text: str, *, error: bool) -> bytes:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        # A text block must say something; a result need not.
        if not text.strip():
            del block["content"]
        return _json.encode({"role": "user", "content": [{**block, **({"is_error": True} if error else {})}]})

    def aside(self, tag: str, text: str) -> bytes:
        return _said(_quoted(tag, text))

    def is_plain(self, role: str) -> bool:
        return role != "tool"

    def render(self, entry: Entry, quirks: Quirks) -> bytes | None:  # noqa: ARG002
        if entry.wire == LONGTALK:
            text = neutral_text(entry)
            return _said(text if entry.kind == "event" else _quoted("system", text))
        return None if entry.mark == "empty" else entry.native

    def without_opaque(self, native: bytes) -> bytes | None:
        blocks = _json.items(_json.fields(native)["content"])
        kept = [block for block in blocks if _json.fields(block).get("type") not in _OPAQUE]
        if len(kept) == len(blocks):
            return native
        return _message(kept) if kept else None

    def request(
        self,
        *,
        model: str,
        preamble: Preamble,
        pieces: Sequence[bytes | memoryview],
        mark: int,
        options: Mapping[str, Any],
        quirks: Quirks,  # noqa: ARG002
        stream: bool,
    ) -> bytes:
        taken = [key for key in options if key in _RESERVED]
        if taken:
            raise InputError(f"The option {taken[0]!r} can't be set: a chat sets it by itself.")
        head: dict[str, Any] = {"model": model, **({"stream": True} if stream else {}), **options}
        fields = {key: option(key, value) for key, value in head.items() if value is not None}
        tools = [*map(_tool, preamble.tools), *_array(fields.pop("tools", b"[]"))]
        if tools:
            fields["tools"] = b"[" + b",".join(tools) + b"]"
        if preamble.system:
            block = _json.encode({"type": "text", "text": preamble.system})
            fields["system"] = b"[" + block[:-1] + _MARK + b"]"
        marked = [*pieces[: mark - 1], _marked(pieces[mark - 1]), *pieces[mark:]] if mark else pieces
        return splice(fields, _joined(marked))

    def parse(self, body: bytes) -> Answer:
        fields = _json.fields(body)
        if fields.get("type") == b'"error"' or "content" not in fields:
            if "error" in fields:
                raise Reported(body)
            raise ValueError("it has no content")
        reason = _json.text(fields.get("stop_reason", b"null"))
        return finished(_json.items(fields["content"]), reason, fields.get("usage"), content=fields["content"])

    def accumulator(self) -> Blocks:
        return Blocks(finished)

    def view(self, native: bytes) -> View:
        fields = _json.fields(native)
        content = fields.get("content", b"[]")
        blocks = [_json.fields(block) for block in _array(content)]
        results = [block for block in blocks if block.get("type") == b'"tool_result"']
        text = _json.text(content) or "".join(_text_of(block) for block in blocks)
        return View(
            role="tool" if results else _json.text(fields.get("role", b"")) or "",
            text=text,
            calls=tuple(
                Call(
                    _json.text(block.get("id", b"")) or "",
                    _json.text(block.get("name", b"")) or "",
                    block.get("input", b"{}"),
                )
                for block in blocks
                if block.get("type") == b'"tool_use"'
            ),
            call_id=_json.text(results[0].get("tool_use_id", b"")) or "" if results else "",
        )

    def usage(self, raw: bytes) -> Usage:
        try:
            said = msgspec.json.decode(raw, type=_Usage)
        except (ValueError, RecursionError):
            return Usage()
        # What a server-side step spent (compaction, a fallback) is told in its iteration alone.
        counts = said.iterations or [said]
        return sum((count.all() for count in counts), Usage())

    def objection(self, error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:
        said = error.decode("utf-8", "replace")
        if known.void < len(natives) and re.search(
            r"signature.{0,20} in .{0,20}thinking|thinking.{0,200}cannot be modified", said
        ):
            return msgspec.structs.replace(known, void=len(natives))
        return None


WIRE = Anthropic()


def finished(blocks: Sequence[bytes], reason: str | None, usage: bytes | None, *, content: bytes = b"") -> Answer:
    """An answer from blocks that arrived, or were put together."""
    kept = [block for block in blocks if not _is_blank(block)]
    native = (
        b'{"role":"assistant","content":' + content + b"}" if content and len(kept) == len(blocks) else _message(kept)
    )
    view = WIRE.view(native)
    finish: Finish = "calls" if view.calls else _FINISH.get(reason, "stop")
    return Answer(
        native=native,
        view=view,
        finish=finish,
        empty=not kept,
        opaque=any(_json.fields(block).get("type") in _OPAQUE for block in kept),
        usage=None if usage in (None, b"null") else usage,
    )


class _Counts(msgspec.Struct):
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cache_read_input_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0

    def all(self) -> Usage:
        cached, written = self.cache_read_input_tokens or 0, self.cache_creation_input_tokens or 0
        return Usage((self.input_tokens or 0) + cached + written, self.output_tokens or 0, cached, written)


class _Usage(_Counts):
    iterations: list[_Counts] | None = None


def _quoted(tag: str, text: str) -> str:
    safe = re.sub(rf"<(?=\s*/?\s*{tag}\b)", "&lt;", text, flags=re.IGNORECASE)
    return f"<{tag}>\n{safe}\n</{tag}>"


def _said(text: str) -> bytes:
    return _json.encode({"role": "user", "content": [{"type": "text", "text": text}]})


def _message(blocks: Sequence[bytes]) -> bytes:
    return b'{"role":"assistant","content":[' + b",".join(blocks) + b"]}"


def _tool(tool: Any) -> bytes:
    fields = {"name": _json.encode(tool.name)}
    if tool.description:
        fields["description"] = _json.encode(tool.description)
    return _json.build({**fields, "input_schema": tool.schema})


def _array(data: bytes) -> list[bytes]:
    return _json.items(data) if data[:1] == b"[" else []


def _text_of(block: dict[str, bytes]) -> str:
    if block.get("type") == b'"tool_result"':
        content = block.get("content", b'""')
        return _json.text(content) or "".join(_text_of(_json.fields(part)) for part in _array(content))
    return _json.text(block.get("text", b"")) or "" if block.get("type") == b'"text"' else ""


def _is_blank(block: bytes) -> bool:
    """Whether this is a text without a text, which is refused when it is sent back."""
    fields = _json.fields(block)
    return fields.get("type") == b'"text"' and not (_json.text(fields.get("text", b'""')) or "").strip()


def _marked(piece: bytes | memoryview) -> bytes | memoryview:
    """A message with a cache breakpoint on its last block, where it can have one."""
    if bytes(piece[-3:]) != b"}]}":
        return piece
    native = bytes(piece)
    last = _json.items(_json.fields(_json.items(b"[" + native + b"]")[-1])["content"])[-1]
    if b'"cache_control"' in last or _json.fields(last).get("type") in _OPAQUE:
        return piece
    return native[:-3] + _MARK + b"]}"


def _joined(pieces: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Tool results that follow each other, as one message."""
    joined: list[bytes | memoryview] = []
    for piece in pieces:
        before = joined[-1] if joined else b""
        if bytes(piece[: len(_RESULT)]) == _RESULT == bytes(before[: len(_RESULT)]):
            joined[-1] = bytes(before[:-2]) + b"," + bytes(piece[len(b'{"role":"user","content":[') :])
        else:
            joined.append(piece)
    return joined
