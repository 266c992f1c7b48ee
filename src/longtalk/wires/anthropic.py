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
from longtalk.transcript import Entry, Finish
from longtalk.wires.anthropic_stream import Blocks
from longtalk.wires.base import (
    LONGTALK,
    Answer,
    Call,
    Preamble,
    Quirks,
    Replayed,
    Reported,
    Usage,
    View,
    neutral_text,
    option,
    quoted,
    shown,
    splice,
)

_FINISH: dict[str | None, Finish] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "filtered",
    "pause_turn": "paused",
}
_RESULT = b'{"role":"user","content":[{"type":"tool_result",'
_MARK = b',"cache_control":{"type":"ephemeral"}}'
_MAX_MARKS = 4
_MARKED = re.compile(rb'"cache_control"')
_FOR_LONG = re.compile(rb'"ttl"\s*:\s*"1h"')
# What a model thought is readable to nobody but its provider, and valid only where it was thought.
_OPAQUE = (b'"thinking"', b'"redacted_thinking"')
_SERVER_CALLS = (b'"server_tool_use"', b'"mcp_tool_use"')
_NOT_TAKEN = re.compile(
    r"signature.{0,20} in .{0,20}thinking|data.{0,20} in .{0,20}redacted_thinking|thinking.{0,200}cannot be modified"
    r"|thinking\.(?:thinking|signature|data): "
)


class Anthropic(Replayed):
    """See `Wire`."""

    name = "anthropic"
    reserved: tuple[str, ...] = ("messages", "model", "stream", "system")
    binds_prefix = True
    drops_opaque = False
    defaults: Mapping[str, Any] = {"max_tokens": 8192}

    def path(self, model: str, *, stream: bool) -> str:  # noqa: ARG002
        return "/v1/messages"

    def headers(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": "2023-06-01", **({"x-api-key": key} if key else {})}

    def user(self, content: str | Sequence[Any]) -> bytes:
        parts = [content] if isinstance(content, str) else content
        blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
        return _json.encode({"role": "user", "content": blocks})

    def is_part(self, part: Mapping[str, Any]) -> bool:
        return isinstance(part.get("type"), str)

    def result(self, call_id: str, text: str, *, error: bool, name: str = "") -> bytes:  # noqa: ARG002
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        # A text block must say something; a result need not.
        if not text.strip():
            del block["content"]
        return _json.encode({"role": "user", "content": [{**block, **({"is_error": True} if error else {})}]})

    def instruction(self, text: str) -> bytes:
        return _said(quoted("instruction", text))

    def quote(self, tag: str, text: str) -> bytes:
        return _said(quoted(tag, text))

    def is_plain(self, role: str) -> bool:
        return role != "tool"

    def render(self, entry: Entry, quirks: Quirks) -> bytes | None:
        if entry.wire == LONGTALK:
            text = neutral_text(entry)
            return _said(text if entry.kind == "event" else quoted("system", text))
        if entry.mark == "empty":
            return None
        return _json.whole(entry.native) if quirks.whole else entry.native

    def redacted(self, native: bytes, text: str) -> bytes:
        seen = self.view(native)
        if seen.call_id:
            return self.result(seen.call_id, text, error=False)
        calls = [{"type": "tool_use", "id": call.id, "name": call.name, "input": {}} for call in seen.calls]
        return _json.encode({"role": seen.role, "content": [{"type": "text", "text": text}, *calls]})

    def without_opaque(self, native: bytes) -> bytes | None:
        blocks = _array(_json.fields(native).get("content", b"[]"))
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
        head: dict[str, Any] = {"model": model, **({"stream": True} if stream else {}), **options}
        fields = {key: option(key, value) for key, value in head.items() if value is not None}
        given = fields.pop("tools", b"[]")
        if given[:1] != b"[":
            raise InputError("The option 'tools' is a list of tools that the provider has.")
        tools = [*map(_tool, preamble.tools), *_json.items(given)]
        if tools:
            fields["tools"] = b"[" + b",".join(tools) + b"]"
        # With a `cache_control` of the whole request, the provider marks the last block by itself.
        automatic = "cache_control" in fields
        limit = _MAX_MARKS - automatic - sum(map(_is_marked, tools))
        own, room = _limited(pieces, limit)
        # Nothing that is kept for an hour may stand behind what is kept for five minutes.
        for_long = automatic or room < limit
        for_long = for_long and any(map(_FOR_LONG.search, [*own, fields.get("cache_control", b"")]))
        sent = list(own)
        if mark and room > 0 and not automatic:
            sent[mark - 1] = _marked(own[mark - 1])
            room -= sent[mark - 1] is not own[mark - 1]
        if preamble.system and preamble.system.strip():
            block = _json.encode({"type": "text", "text": preamble.system})
            fields["system"] = b"[%s]" % (block[:-1] + _MARK if room > 0 and not for_long else block)
        return splice(fields, _joined(sent))

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
        view = View(
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
        return shown(view)

    def usage(self, raw: bytes) -> Usage:
        try:
            said = msgspec.json.decode(raw, type=_Usage, strict=False)
        except (ValueError, RecursionError):
            return Usage()
        # What a server-side step spent (compaction, a fallback) is told in its iteration alone.
        counts = said.iterations or [said]
        return sum((count.all() for count in counts), Usage())

    def objection(self, error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:
        said = error.decode("utf-8", "replace")
        if known.void < len(natives) and _NOT_TAKEN.search(said):
            return msgspec.structs.replace(known, void=len(natives))
        if not known.whole and "surrogate" in said:
            return msgspec.structs.replace(known, whole=True)
        return None


WIRE = Anthropic()


def finished(
    blocks: Sequence[bytes], reason: str | None, usage: bytes | None, *, content: bytes = b"", cut: bool = False
) -> Answer:
    """An answer from blocks that arrived, or were put together; `cut` when they are not all."""
    kept = [block for block in blocks if not _is_blank(block)]
    if cut or _FINISH.get(reason) in ("length", "filtered"):
        kept = _tied_up(kept, at_length=_FINISH.get(reason) == "length")
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


class _Written(msgspec.Struct):
    ephemeral_1h_input_tokens: int | None = 0


class _Counts(msgspec.Struct):
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cache_read_input_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0
    cache_creation: _Written | None = None

    def all(self) -> Usage:
        cached, written = self.cache_read_input_tokens or 0, self.cache_creation_input_tokens or 0
        hour = self.cache_creation.ephemeral_1h_input_tokens or 0 if self.cache_creation else 0
        return Usage((self.input_tokens or 0) + cached + written, self.output_tokens or 0, cached, written, hour)


class _Usage(_Counts):
    iterations: list[_Counts] | None = None


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
        parts = [_json.fields(part) for part in _array(content) if part[:1] == b"{"]
        return _json.text(content) or "".join(map(_text_of, parts))
    return _json.text(block.get("text", b"")) or "" if block.get("type") == b'"text"' else ""


def _is_blank(block: bytes) -> bool:
    """Whether this is a text without a text, which is refused when it is sent back."""
    fields = _json.fields(block)
    return fields.get("type") == b'"text"' and not (_json.text(fields.get("text", b'""')) or "").strip()


def _tied_up(blocks: list[bytes], *, at_length: bool) -> list[bytes]:
    """What is left of an answer that ended early when all that can't be sent back is gone.

    That is a call of the provider's own tools without a result, and a thought without its signature. A call at the
    very end for which there was no room to write its input is not what the model meant.
    """
    seen = [_json.fields(block) for block in blocks]
    answered = {block["tool_use_id"] for block in seen if "tool_use_id" in block}

    def is_loose(block: dict[str, bytes]) -> bool:
        if block.get("type") in _SERVER_CALLS:
            return block.get("id") not in answered
        return block.get("type") == b'"thinking"' and not _json.text(block.get("signature", b'""'))

    if at_length and seen and seen[-1].get("type") == b'"tool_use"' and seen[-1].get("input", b"{}") == b"{}":
        blocks, seen = blocks[:-1], seen[:-1]
    return [block for block, fields in zip(blocks, seen, strict=True) if not is_loose(fields)]


def _is_marked(block: bytes) -> bool:
    return block[:1] == b"{" and _json.fields(block).get("cache_control", b"null") != b"null"


def _limited(pieces: Sequence[bytes | memoryview], room: int) -> tuple[list[bytes | memoryview], int]:
    """Messages with the caller's own breakpoints, of which the last ones count; how many more there may be."""
    limited = list(pieces)
    for i in range(len(limited) - 1, -1, -1):
        if _MARKED.search(limited[i]):
            messages = _json.items(b"[" + bytes(limited[i]) + b"]")
            for j in range(len(messages) - 1, -1, -1):
                messages[j], room = _unmarked(messages[j], room)
            limited[i] = b",".join(messages)
    return limited, room


def _unmarked(message: bytes, room: int) -> tuple[bytes, int]:
    """A message without the breakpoints for which there is no room, and the room behind it."""
    fields = _json.fields(message)
    blocks, changed = _array(fields.get("content", b"")), False
    for i in range(len(blocks) - 1, -1, -1):
        if _is_marked(blocks[i]):
            room -= 1
            if room < 0:
                members = _json.fields(blocks[i])
                del members["cache_control"]
                blocks[i], changed, room = _json.build(members), True, 0
    return _json.build({**fields, "content": b"[" + b",".join(blocks) + b"]"}) if changed else message, room


def _marked(piece: bytes | memoryview) -> bytes | memoryview:
    """A message with a cache breakpoint on its last block, where it can have one."""
    messages = _json.items(b"[" + bytes(piece) + b"]")
    fields = _json.fields(messages[-1])
    blocks = _array(fields.get("content", b""))
    last = _json.fields(blocks[-1]) if blocks and blocks[-1][:1] == b"{" else {}
    if not last or "cache_control" in last or last.get("type") in _OPAQUE:
        return piece
    blocks[-1] = blocks[-1][:-1] + _MARK
    messages[-1] = _json.build({**fields, "content": b"[" + b",".join(blocks) + b"]"})
    return b",".join(messages)


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
