"""OpenAI Chat Completions: one array of messages, spoken by hundreds of servers.

Requests are spliced from native bytes, the messages last, so that a longer conversation's request begins with
the bytes of the shorter one. Events and system messages inside the conversation are `system` messages. What a
particular server refuses (fields of another vendor, foreign call ids, roles out of order) is learnt from its
error, and only then left out or changed, for that server alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longtalk import _json
from longtalk.transcript import Entry, Finish, new_id
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
from longtalk.wires.openai_chat_quirks import SAYS_NOTHING, adapted, alternating, array, objection
from longtalk.wires.openai_chat_stream import Pieces, text_of_parts

_FINISH: dict[str | None, Finish] = {"length": "length", "content_filter": "filtered"}


class OpenAIChat(Replayed):
    """See `Wire`."""

    name = "openai-chat"
    reserved: tuple[str, ...] = ("messages", "model", "n", "stream")
    binds_prefix = True
    drops_opaque = False
    defaults: Mapping[str, Any] = {}

    def path(self, model: str, *, stream: bool) -> str:  # noqa: ARG002
        return "/chat/completions"

    def headers(self, key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def user(self, content: str | Sequence[Any]) -> bytes:
        if not isinstance(content, str):
            content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
        return _json.encode({"role": "user", "content": content})

    def is_part(self, part: Mapping[str, Any]) -> bool:
        return isinstance(part.get("type"), str)

    def result(self, call_id: str, text: str, *, error: bool, name: str = "") -> bytes:  # noqa: ARG002
        return _json.encode({"role": "tool", "tool_call_id": call_id, "content": text})

    def instruction(self, text: str) -> bytes:
        return _system(text)

    def quote(self, tag: str, text: str) -> bytes:
        # What a tool has read somewhere must not speak with the authority of the system.
        return _json.encode({"role": "user", "content": quoted(tag, text)})

    def is_plain(self, role: str) -> bool:  # noqa: ARG002
        return True

    def redacted(self, native: bytes, text: str) -> bytes:
        seen = self.view(native)
        if seen.call_id:
            return self.result(seen.call_id, text, error=False)
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": "{}"}}
            for call in seen.calls
        ]
        return _json.encode({"role": seen.role, "content": text, **({"tool_calls": calls} if calls else {})})

    def without_opaque(self, native: bytes) -> bytes | None:
        return native

    def render(self, entry: Entry, quirks: Quirks) -> bytes | None:
        if entry.wire == LONGTALK:
            return _system(neutral_text(entry))
        # An answer without any content is refused everywhere when it is sent back.
        if entry.mark == "empty":
            return None
        native = adapted(entry.native, quirks)
        # A server that refuses the field of a refusal gets it in words.
        if native != entry.native and _says_nothing(native) and not _says_nothing(entry.native):
            refusal = self.view(entry.native).refusal
            return _json.encode({"role": "assistant", "content": refusal}) if refusal else None
        return native

    def request(
        self,
        *,
        model: str,
        preamble: Preamble,
        pieces: Sequence[bytes | memoryview],
        mark: int,  # noqa: ARG002
        options: Mapping[str, Any],
        quirks: Quirks,
        stream: bool,
    ) -> bytes:
        head: dict[str, Any] = {"model": model}
        if stream:
            head |= {"stream": True, "stream_options": {"include_usage": True}}
        head |= options
        fields = {key: option(key, value) for key, value in head.items() if value is not None}
        tools = [*map(_tool, preamble.tools), *array(fields.pop("tools", b"[]"))]
        if tools:
            fields["tools"] = b"[" + b",".join(tools) + b"]"
        if preamble.system:
            pieces = [_system(preamble.system), *pieces]
        if quirks.alternate:
            pieces = alternating(pieces)
        return splice(fields, pieces)

    def parse(self, body: bytes) -> Answer:
        fields = _json.fields(body)
        choices = array(fields.get("choices", b"[]"))
        if not choices and fields.get("error", b"null") != b"null":
            raise Reported(fields["error"])
        if not choices:
            raise ValueError("it has no choices")
        choice = _json.fields(choices[0])
        if choice.get("error", b"null") != b"null":
            raise Reported(choice["error"])
        reason = _json.text(choice.get("finish_reason", b"null"))
        return finished(choice.get("message", b"{}"), reason, fields.get("usage"))

    def accumulator(self) -> Pieces:
        return Pieces(finished)

    def view(self, native: bytes) -> View:
        fields = _json.fields(native)
        view = View(
            role=_json.text(fields.get("role", b"")) or "",
            text=_text(fields.get("content", b"null")),
            calls=tuple(map(_call, array(fields.get("tool_calls", b"null")))),
            call_id=_json.text(fields.get("tool_call_id", b"")) or "",
            refusal=_json.text(fields.get("refusal", b"")) or "",
        )
        return shown(view)

    def usage(self, raw: bytes) -> Usage:
        try:
            said = msgspec.json.decode(raw, type=_Usage, strict=False)
        except (ValueError, RecursionError):
            return Usage()
        details = said.prompt_tokens_details or _Details()
        received, thought = said.completion_tokens or 0, (said.completion_tokens_details or _Thought()).reasoning_tokens
        if thought and said.total_tokens == (said.prompt_tokens or 0) + received + thought:
            # Most count what was thought with what was said; some (xAI, Gemini) count it beside that.
            received += thought
        counts = (said.prompt_tokens, received, details.cached_tokens, details.cache_write_tokens)
        return Usage(*(int(count) if count and math.isfinite(count) else 0 for count in counts))

    def objection(self, error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:
        return objection(error, natives, known)


WIRE = OpenAIChat()


def finished(message: bytes, reason: str | None, usage: bytes | None) -> Answer:
    """An answer from a message that arrived, or was put together."""
    fields = _json.fields(message)
    came = dict(fields)
    if _json.text(fields.get("role", b"")) != "assistant":
        fields = {"role": b"", **fields} | {"role": b'"assistant"'}
    if fields.get("tool_calls", b"null")[:1] not in (b"[", b"n"):
        del fields["tool_calls"]
    calls = array(fields.get("tool_calls", b"null"))
    named = _named(calls)
    if named != calls:
        fields["tool_calls"] = b"[" + b",".join(named) + b"]"
    odd = not _is_content(fields.get("content", b"null"))
    if odd and named:
        fields["content"] = b"null"
    changed = fields != came
    native = _json.build(fields) if changed else message
    view = WIRE.view(native)
    finish: Finish = "calls" if view.calls else _FINISH.get(reason, "stop")
    refused = bool(_json.text(fields.get("refusal", b"")))
    return Answer(
        native=native,
        view=view,
        # Content of a form that is none can't go back either.
        empty=not (view.calls or refused or fields.get("audio", b"null") not in (b"null", b"{}"))
        and (odd or fields.get("content", b"null") in SAYS_NOTHING),
        finish=finish,
        usage=None if usage in (None, b"null") else usage,
    )


def _says_nothing(native: bytes) -> bool:
    return finished(native, None, None).empty


def _named(calls: Sequence[bytes]) -> list[bytes]:
    """Calls that each have an id of their own: without one no result could ever be paired with its call."""
    named: list[bytes] = []
    seen: set[str] = set()
    for call in calls:
        id = _call(call).id  # noqa: A001
        if not id or id in seen or "\ufffd" in id:
            call = _json.build({"id": b"", **_json.fields(call)} | {"id": _new_call_id()})
        seen.add(id)
        named.append(call)
    return named


def _is_content(content: bytes) -> bool:
    parts = [_json.value(part) for part in array(content)]
    typed = all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts)
    return content[:1] in (b'"', b"n") or (content[:1] == b"[" and typed)


class _Details(msgspec.Struct):
    cached_tokens: float | None = 0
    cache_write_tokens: float | None = 0


class _Thought(msgspec.Struct):
    reasoning_tokens: float | None = 0


class _Usage(msgspec.Struct):
    prompt_tokens: float | None = 0
    completion_tokens: float | None = 0
    total_tokens: float | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Thought | None = None


def _system(text: str) -> bytes:
    return _json.encode({"role": "system", "content": text})


def _tool(tool: Any) -> bytes:
    function = {"name": _json.encode(tool.name)}
    if tool.description:
        function["description"] = _json.encode(tool.description)
    function["parameters"] = tool.schema
    return b'{"type":"function","function":' + _json.build(function) + b"}"


def _call(data: bytes) -> Call:
    fields = _json.fields(data)
    function = _json.fields(fields.get("function", b"{}"))
    arguments = function.get("arguments", b"")
    said = _json.text(arguments)
    return Call(
        id=_json.text(fields.get("id", b"")) or "",
        name=_json.text(function.get("name", b"")) or "",
        # Some servers send the arguments as an object instead of a text that holds one.
        arguments=arguments if said is None else said.encode(),
    )


def _text(content: bytes) -> str:
    said = _json.text(content)
    return text_of_parts(content) if said is None else said


def _new_call_id() -> bytes:
    return b'"call_%s"' % new_id().encode()
