"""The wire of Anthropic Messages: content in blocks, strict pairing of tool calls and results, signed thinking.

A message is stored as `{"role":…,"content":[…]}` with its blocks unchanged. Each tool result is a separate entry;
neighbouring results are sent as one user message, as the API requires. Events and system messages inside the
conversation are quoted in user messages, which every model accepts. Cache breakpoints are placed at the end of the
preamble and of the history when a request is built, and are never stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longtalk._util import json_bytes, typed_json
from longtalk.transcript.transcript import Entry, Finish
from longtalk.usage import Usage
from longtalk.wires.anthropic.server_calls import SERVER_CALLS, drop_unanswered_calls
from longtalk.wires.anthropic.stream import AnthropicAccumulator, omit_message
from longtalk.wires.anthropic.thinking import DISABLED, THINKING, must_disable_thinking
from longtalk.wires.native import array_items, array_objects, object_fields, splice, split_piece
from longtalk.wires.neutral import LONGTALK, render_neutral
from longtalk.wires.options import encode_option, merge_option, pop_tools
from longtalk.wires.protocol import Answer, Preamble, Quirks, ReportedError, StatelessWire
from longtalk.wires.schemas import OutputSchema
from longtalk.wires.text import wrap_in_tag
from longtalk.wires.views import MessageView, ToolCallView, hide_cards

_FINISH: dict[str | None, Finish] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "filtered",
    "pause_turn": "paused",
}
_RESULT = b'{"role":"user","content":[{"type":"tool_result",'
_BREAKPOINT = b',"cache_control":{"type":"ephemeral"}}'
_MAX_BREAKPOINTS = 4
_ANY_BREAKPOINT = re.compile(rb'"cache_control"')
_ONE_HOUR = re.compile(rb'"ttl"\s*:\s*"1h"')
_BAD_THINKING = re.compile(
    r"signature.{0,20} in .{0,20}thinking|data.{0,20} in .{0,20}redacted_thinking|thinking.{0,200}cannot be modified"
    r"|thinking\.(?:thinking|signature|data): "
)


class Anthropic(StatelessWire):
    """The wire of Anthropic's Messages API. See `Wire` for what each method does."""

    name = "anthropic"
    reserved: tuple[str, ...] = ("messages", "model", "stream", "system")
    binds_prefix = True
    defaults: Mapping[str, Any] = {"max_tokens": 8192}

    def path(self, model: str, *, stream: bool) -> str:  # noqa: ARG002
        return "/v1/messages"

    def headers(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": "2023-06-01", **({"x-api-key": key} if key else {})}

    def write_user(self, content: str | Sequence[Any]) -> bytes:
        parts = [content] if isinstance(content, str) else content
        blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
        return json_bytes.encode({"role": "user", "content": blocks})

    def is_part(self, part: Mapping[str, Any]) -> bool:
        return isinstance(part.get("type"), str)

    def write_result(self, call_id: str, content: str | Sequence[Any], *, error: bool, name: str = "") -> bytes:  # noqa: ARG002
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id}
        # A text block must not be empty, but a result needs no content.
        if not isinstance(content, str):
            said = [part for part in content if not isinstance(part, str) or part.strip()]
            content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in said]
        if content if isinstance(content, list) else content.strip():
            block["content"] = content
        return json_bytes.encode({"role": "user", "content": [{**block, **({"is_error": True} if error else {})}]})

    def write_instruction(self, text: str) -> bytes:
        return _write_user_text(wrap_in_tag("instruction", text))

    def quote(self, tag: str, text: str) -> bytes:
        return _write_user_text(wrap_in_tag(tag, text))

    def is_plain(self, role: str) -> bool:
        return role != "tool"

    def render(self, entry: Entry, quirks: Quirks) -> bytes | None:
        if entry.wire == LONGTALK:
            text = render_neutral(entry)
            return _write_user_text(text if entry.kind == "event" else wrap_in_tag("system", text))
        if entry.condition == "empty":
            return None
        return json_bytes.replace_surrogates(entry.native) if quirks.no_surrogates else entry.native

    def redact(self, native: bytes, text: str) -> bytes:
        seen = self.view(native)
        if seen.call_id:
            return self.write_result(seen.call_id, text, error=False)
        calls = [{"type": "tool_use", "id": call.id, "name": call.name, "input": {}} for call in seen.calls]
        return json_bytes.encode({"role": seen.role, "content": [{"type": "text", "text": text}, *calls]})

    def remove_opaque(self, native: bytes, *, running: bool = False) -> bytes | None:  # noqa: ARG002
        blocks = array_items(json_bytes.fields(native).get("content", b"[]"))
        kept = [block for block in blocks if object_fields(block).get("type") not in THINKING]
        if len(kept) == len(blocks):
            return native
        return _build_message(kept) if kept else None

    def build_request(
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
        fields = {key: encode_option(key, value) for key, value in head.items() if value is not None}
        pieces, mark = drop_unanswered_calls(pieces, mark)
        if must_disable_thinking(fields, pieces):
            fields["thinking"] = DISABLED
        tools = [*map(_declare_tool, preamble.tools), *pop_tools(fields)]
        if tools:
            fields["tools"] = b"[" + b",".join(tools) + b"]"
        # With `cache_control` on the request itself, the provider places a breakpoint at its end.
        automatic = "cache_control" in fields
        limit = _MAX_BREAKPOINTS - automatic - sum(map(_has_breakpoint, tools))
        own, room = _limit_breakpoints(pieces, limit)
        # A breakpoint for an hour must not follow one for five minutes.
        has_own = automatic or room < limit
        has_one_hour = has_own and any(map(_ONE_HOUR.search, [*own, fields.get("cache_control", b"")]))
        sent = list(own)
        if mark and room > 0 and not automatic:
            sent[mark - 1] = _add_breakpoint(own[mark - 1])
            room -= sent[mark - 1] is not own[mark - 1]
        if preamble.system and preamble.system.strip():
            block = json_bytes.encode({"type": "text", "text": preamble.system})
            fields["system"] = b"[%s]" % (block[:-1] + _BREAKPOINT if room > 0 and not has_one_hour else block)
        return splice(fields, _merge_results(sent))

    def add_schema(self, options: Mapping[str, Any], output: OutputSchema) -> Mapping[str, Any] | None:
        strict = output.make_strict(all_required=False)
        if strict is None:
            return None
        return merge_option(options, "output_config", {"format": {"type": "json_schema", "schema": strict}})

    def parse(self, body: bytes) -> Answer:
        fields = json_bytes.fields(body)
        if fields.get("type") == b'"error"' or "content" not in fields:
            if "error" in fields:
                raise ReportedError(body)
            raise ValueError("the response has no `content`")
        reason = json_bytes.text(fields.get("stop_reason", b"null"))
        blocks, response = json_bytes.items(fields["content"]), json_bytes.build(omit_message(fields))
        return build_answer(blocks, reason, fields.get("usage"), content=fields["content"], response=response)

    def new_accumulator(self) -> AnthropicAccumulator:
        return AnthropicAccumulator(build_answer)

    def view(self, native: bytes) -> MessageView:
        fields = json_bytes.fields(native)
        content = fields.get("content", b"[]")
        blocks = array_objects(content)
        results = [block for block in blocks if block.get("type") == b'"tool_result"']
        text = json_bytes.text(content) or "".join(_read_block_text(block) for block in blocks)
        view = MessageView(
            role="tool" if results else json_bytes.text(fields.get("role", b"")) or "",
            text=text,
            calls=tuple(
                ToolCallView(
                    json_bytes.text(block.get("id", b"")) or "",
                    json_bytes.text(block.get("name", b"")) or "",
                    block.get("input", b"{}"),
                )
                for block in blocks
                if block.get("type") == b'"tool_use"'
            ),
            call_id=json_bytes.text(results[0].get("tool_use_id", b"")) or "" if results else "",
        )
        return hide_cards(view)

    def read_usage(self, raw: bytes) -> Usage:
        try:
            report = typed_json.decode(raw, _Usage, strict=False)
        except (ValueError, RecursionError):
            return Usage()
        # The tokens of a server-side step (compaction, a fallback) are reported in its iteration alone.
        counts = report.iterations or [report]
        return sum((count.to_usage() for count in counts), Usage())

    def learn_from_error(self, error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:
        message = error.decode("utf-8", "replace")
        if known.opaque_void < len(natives) and _BAD_THINKING.search(message):
            return msgspec.structs.replace(known, opaque_void=len(natives))
        if not known.no_surrogates and "surrogate" in message:
            return msgspec.structs.replace(known, no_surrogates=True)
        return None


WIRE = Anthropic()


def build_answer(
    blocks: Sequence[bytes],
    reason: str | None,
    usage: bytes | None,
    *,
    content: bytes = b"",
    cut: bool = False,
    response: bytes | None = None,
) -> Answer:
    """Return the answer with these blocks, which were received whole or assembled from a stream.

    `reason` is the provider's stop reason. `content` is the JSON array of all blocks as received, if there is one.
    `cut` is True if the stream was interrupted. `response` has the other fields of the response.
    """
    kept = [block for block in blocks if not _is_blank(block)]
    if cut or _FINISH.get(reason) in ("length", "filtered"):
        kept = _drop_unsendable(kept, at_length=_FINISH.get(reason) == "length")
    native = (
        b'{"role":"assistant","content":' + content + b"}"
        if content and len(kept) == len(blocks)
        else _build_message(kept)
    )
    view = WIRE.view(native)
    finish: Finish = "calls" if view.calls else _FINISH.get(reason, "stop")
    return Answer(
        native=native,
        view=view,
        finish=finish,
        empty=not kept,
        opaque=any(json_bytes.fields(block).get("type") in THINKING for block in kept),
        usage=None if usage in (None, b"null") else usage,
        response=response,
    )


class _Written(msgspec.Struct):
    ephemeral_1h_input_tokens: int | None = 0


class _Counts(msgspec.Struct):
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cache_read_input_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0
    cache_creation: _Written | None = None

    def to_usage(self) -> Usage:
        cached, written = self.cache_read_input_tokens or 0, self.cache_creation_input_tokens or 0
        hour = self.cache_creation.ephemeral_1h_input_tokens or 0 if self.cache_creation else 0
        return Usage((self.input_tokens or 0) + cached + written, self.output_tokens or 0, cached, written, hour)


class _Usage(_Counts):
    iterations: list[_Counts] | None = None


def _write_user_text(text: str) -> bytes:
    return json_bytes.encode({"role": "user", "content": [{"type": "text", "text": text}]})


def _build_message(blocks: Sequence[bytes]) -> bytes:
    return b'{"role":"assistant","content":[' + b",".join(blocks) + b"]}"


def _declare_tool(tool: Any) -> bytes:
    fields = {"name": json_bytes.encode(tool.name)}
    if tool.description:
        fields["description"] = json_bytes.encode(tool.description)
    strict = {"strict": b"true"} if tool.is_strict else {}
    return json_bytes.build({**fields, "input_schema": tool.schema, **strict})


def _read_block_text(block: dict[str, bytes]) -> str:
    if block.get("type") == b'"tool_result"':
        content = block.get("content", b'""')
        return json_bytes.text(content) or "".join(map(_read_text, array_objects(content)))
    return _read_text(block)


def _read_text(block: dict[str, bytes]) -> str:
    return json_bytes.text(block.get("text", b"")) or "" if block.get("type") == b'"text"' else ""


def _is_blank(block: bytes) -> bool:
    """Return True for a text block without text. The provider rejects such a block when it is sent back."""
    fields = json_bytes.fields(block)
    return fields.get("type") == b'"text"' and not (json_bytes.text(fields.get("text", b'""')) or "").strip()


def _drop_unsendable(blocks: list[bytes], *, at_length: bool) -> list[bytes]:
    """Return the blocks of an answer that ended early, without those that can't be sent back.

    Those are calls to the provider's own tools without a result, and thinking without a signature. If the answer
    reached its maximum length (`at_length`), a final tool call without input is dropped too, because its input was cut
    off.
    """
    seen = [json_bytes.fields(block) for block in blocks]
    answered = {block["tool_use_id"] for block in seen if "tool_use_id" in block}

    def is_unsendable(block: dict[str, bytes]) -> bool:
        if block.get("type") in SERVER_CALLS:
            return block.get("id") not in answered
        return block.get("type") == b'"thinking"' and not json_bytes.text(block.get("signature", b'""'))

    if at_length and seen and seen[-1].get("type") == b'"tool_use"' and seen[-1].get("input", b"{}") == b"{}":
        blocks, seen = blocks[:-1], seen[:-1]
    return [block for block, fields in zip(blocks, seen, strict=True) if not is_unsendable(fields)]


def _has_breakpoint(block: bytes) -> bool:
    return object_fields(block).get("cache_control", b"null") != b"null"


def _limit_breakpoints(pieces: Sequence[bytes | memoryview], room: int) -> tuple[list[bytes | memoryview], int]:
    """Remove all but the last `room` cache breakpoints that the caller set.

    Return the pieces of the request, and the number of breakpoints that may still be added.
    """
    limited = list(pieces)
    for i in range(len(limited) - 1, -1, -1):
        if _ANY_BREAKPOINT.search(limited[i]):
            messages = split_piece(limited[i])
            for j in range(len(messages) - 1, -1, -1):
                messages[j], room = _drop_breakpoints(messages[j], room)
            limited[i] = b",".join(messages)
    return limited, room


def _drop_breakpoints(message: bytes, room: int) -> tuple[bytes, int]:
    """Remove all but the last `room` cache breakpoints of a message.

    Return the message, and the number of breakpoints that may still be added.
    """
    fields = json_bytes.fields(message)
    blocks, changed = array_items(fields.get("content", b"")), False
    for i in range(len(blocks) - 1, -1, -1):
        if _has_breakpoint(blocks[i]):
            room -= 1
            if room < 0:
                members = json_bytes.fields(blocks[i])
                del members["cache_control"]
                blocks[i], changed, room = json_bytes.build(members), True, 0
    return json_bytes.build({**fields, "content": b"[" + b",".join(blocks) + b"]"}) if changed else message, room


def _add_breakpoint(piece: bytes | memoryview) -> bytes | memoryview:
    """Return a piece of a request with a cache breakpoint on its last block, or unchanged if that can't have one."""
    messages = split_piece(piece)
    fields = json_bytes.fields(messages[-1])
    blocks = array_items(fields.get("content", b""))
    last = object_fields(blocks[-1]) if blocks else {}
    if not last or "cache_control" in last or last.get("type") in THINKING:
        return piece
    blocks[-1] = blocks[-1][:-1] + _BREAKPOINT
    messages[-1] = json_bytes.build({**fields, "content": b"[" + b",".join(blocks) + b"]"})
    return b",".join(messages)


def _merge_results(pieces: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return the pieces of a request with neighbouring tool results merged into one message."""
    joined: list[bytes | memoryview] = []
    before: bytes | None = None
    for piece in pieces:
        results = _read_results(piece)
        if results and before:
            results = before[:-1] + b"," + results[1:]
            joined[-1] = b'{"role":"user","content":' + results + b"}"
        else:
            joined.append(piece)
        before = results
    return joined


def _read_results(piece: bytes | memoryview) -> bytes | None:
    """Return the content of a message that consists of tool results; None if the piece is anything else."""
    if bytes(piece[: len(_RESULT)]) != _RESULT:
        return None
    messages = split_piece(piece)
    fields = json_bytes.fields(messages[0])
    return fields["content"] if len(messages) == 1 and fields.keys() == {"role", "content"} else None
