"""OpenAI Chat Completions: one array of messages, spoken by hundreds of servers.

Requests are spliced from native bytes, the messages last, so that a longer conversation's request begins with
the bytes of the shorter one. Events and system messages inside the conversation are `system` messages. What a
particular server refuses (fields of another vendor, foreign call ids, roles out of order) is learnt from its
error, and only then left out or changed, for that server alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longtalk import _json
from longtalk.errors import InputError
from longtalk.transcript import Entry, new_id
from longtalk.wires.base import LONGTALK, Answer, Call, Finish, Preamble, Quirks, Reported, Usage, View, neutral_text
from longtalk.wires.openai_chat_stream import Pieces

_FINISH: dict[str | None, Finish] = {
    "length": "length",
    "tool_calls": "calls",
    "function_call": "calls",
    "content_filter": "filtered",
}
_RESERVED = ("messages", "model", "n", "stream", "tools")
_KNOWN = ("role", "content", "tool_calls", "tool_call_id", "name", "type", "text", "id", "function", "image_url")


class OpenAIChat:
    """See `Wire`."""

    name = "openai-chat"

    def path(self, model: str, *, stream: bool) -> str:  # noqa: ARG002
        return "/chat/completions"

    def headers(self, key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def user(self, content: str | Sequence[Any]) -> bytes:
        if not isinstance(content, str):
            content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
        return _json.encode({"role": "user", "content": content})

    def result(self, call_id: str, text: str, *, error: bool) -> bytes:  # noqa: ARG002
        return _json.encode({"role": "tool", "tool_call_id": call_id, "content": text})

    def instruction(self, text: str) -> bytes:
        return _system(text)

    def render(self, entry: Entry, quirks: Quirks) -> bytes | None:
        if entry.wire == LONGTALK:
            return _system(neutral_text(entry))
        # An answer without any content is refused everywhere when it is sent back.
        if entry.mark == "empty":
            return None
        native = entry.native
        if any(b'"%s"' % field.encode() in native for field in quirks.fields):
            native = _without(native, quirks.fields)
        if quirks.ids and (b'"tool_calls"' in native or b'"tool_call_id"' in native):
            native = _with_short_ids(native)
        return native

    def request(
        self,
        *,
        model: str,
        preamble: Preamble,
        pieces: Sequence[bytes | memoryview],
        options: Mapping[str, Any],
        quirks: Quirks,
        stream: bool,
    ) -> bytes:
        taken = [key for key in options if key in _RESERVED]
        if taken:
            raise InputError(f"The option {taken[0]!r} can't be set: a chat sets it by itself.")
        head: dict[str, Any] = {"model": model}
        if stream:
            head |= {"stream": True, "stream_options": {"include_usage": True}}
        head |= options
        fields = {key: _json.encode(value) for key, value in head.items() if value is not None}
        if preamble.tools:
            fields["tools"] = b"[" + b",".join(map(_tool, preamble.tools)) + b"]"
        if preamble.system:
            pieces = [_system(preamble.system), *pieces]
        if quirks.alternate:
            pieces = _alternating(pieces)
        return b'%s,"messages":[%s]}' % (_json.build(fields)[:-1], b",".join(pieces))

    def parse(self, body: bytes) -> Answer:
        fields = _json.fields(body)
        choices = _array(fields.get("choices", b"[]"))
        if not choices and fields.get("error", b"null") != b"null":
            raise Reported(fields["error"])
        if not choices:
            raise ValueError("it has no choices")
        choice = _json.fields(choices[0])
        reason = _json.text(choice.get("finish_reason", b"null"))
        return finished(choice.get("message", b"{}"), reason, fields.get("usage"))

    def accumulator(self) -> Pieces:
        return Pieces(finished)

    def view(self, native: bytes) -> View:
        fields = _json.fields(native)
        return View(
            role=_json.text(fields.get("role", b"")) or "",
            text=_text(fields.get("content", b"null")),
            calls=tuple(map(_call, _array(fields.get("tool_calls", b"null")))),
            call_id=_json.text(fields.get("tool_call_id", b"")) or "",
            refusal=_json.text(fields.get("refusal", b"")) or "",
        )

    def usage(self, raw: bytes) -> Usage:
        try:
            said = msgspec.json.decode(raw, type=_Usage)
        except msgspec.MsgspecError:
            return Usage()
        details = said.prompt_tokens_details or _Details()
        return Usage(said.prompt_tokens, said.completion_tokens, details.cached_tokens, details.cache_write_tokens)

    def objection(self, error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:
        said = error.decode("utf-8", "replace")
        fields = [
            name
            for name in sorted({name for native in natives for name in _names(_json.fields(native))})
            if name not in known.fields and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", said)
        ]
        if fields:
            return msgspec.structs.replace(known, fields=(*known.fields, *fields))
        if (
            not known.ids
            and re.search(r"tool.?call.{0,3}id\b", said, re.I)
            and any(b'"tool_calls"' in n for n in natives)
        ):
            return msgspec.structs.replace(known, ids=True)
        if not known.alternate and re.search(r"roles? must alternate|system message must be", said, re.I):
            return msgspec.structs.replace(known, alternate=True)
        return None


WIRE = OpenAIChat()


def finished(message: bytes, reason: str | None, usage: bytes | None) -> Answer:
    """An answer from a message that arrived, or was put together."""
    fields = _json.fields(message)
    changed = False
    if "role" not in fields:
        fields, changed = {"role": b'"assistant"', **fields}, True
    calls = _array(fields.get("tool_calls", b"null"))
    if any(not _call(call).id for call in calls):
        # Without an id no result could ever be paired with its call.
        named = [
            call if _call(call).id else _json.build({"id": _new_call_id(), **_json.fields(call)}) for call in calls
        ]
        fields, changed = {**fields, "tool_calls": b"[" + b",".join(named) + b"]"}, True
    native = _json.build(fields) if changed else message
    view = WIRE.view(native)
    if view.calls:
        finish: Finish = "calls"
    else:
        finish = _FINISH.get(reason, "stop")
        finish = "stop" if finish == "calls" else finish
    return Answer(
        native=native,
        view=view,
        empty=not (view.calls or view.refusal) and fields.get("content", b"null") in (b"null", b"[]"),
        finish=finish,
        usage=None if usage in (None, b"null") else usage,
    )


class _Details(msgspec.Struct):
    cached_tokens: int = 0
    cache_write_tokens: int = 0


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


def _system(text: str) -> bytes:
    return _json.encode({"role": "system", "content": text})


def _tool(tool: Any) -> bytes:
    function = {"name": _json.encode(tool.name)}
    if tool.description:
        function["description"] = _json.encode(tool.description)
    function["parameters"] = tool.schema
    return b'{"type":"function","function":' + _json.build(function) + b"}"


def _array(data: bytes) -> list[bytes]:
    return _json.items(data) if data[:1] == b"[" else []


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
    if said is not None:
        return said
    parts = [_json.fields(part) for part in _array(content) if part[:1] == b"{"]
    return "".join(_json.text(part["text"]) or "" for part in parts if part.get("type") == b'"text"' and "text" in part)


def _new_call_id() -> bytes:
    return b'"call_%s"' % new_id().encode()


# What servers refuse


def _parts(fields: dict[str, bytes]) -> list[tuple[str, list[dict[str, bytes]]]]:
    """The objects inside a message in which servers put fields of their own."""
    return [
        (key, [_json.fields(item) for item in _array(fields.get(key, b"null")) if item[:1] == b"{"])
        for key in ("content", "tool_calls")
    ]


def _names(fields: dict[str, bytes]) -> set[str]:
    """The fields of a message that could be left out: vendors' own, and standard ones that say nothing."""
    if fields.get("role") != b'"assistant"':
        return set()
    inner = {name for _, items in _parts(fields) for item in items for name in item}
    own = {name for name in (*fields, *inner) if name not in _KNOWN}
    return own | {
        name for name, value in fields.items() if value in (b"null", b"[]") and name not in ("content", "role")
    }


def _without(native: bytes, names: Sequence[str]) -> bytes:
    fields = {key: value for key, value in _json.fields(native).items() if key not in names}
    for key, items in _parts(fields):
        if any(name in item for item in items for name in names):
            kept = [_json.build({k: v for k, v in item.items() if k not in names}) for item in items]
            fields[key] = b"[" + b",".join(kept) + b"]"
    return _json.build(fields)


def _with_short_ids(native: bytes) -> bytes:
    fields = _json.fields(native)
    if "tool_call_id" in fields:
        fields["tool_call_id"] = _short_id(fields["tool_call_id"])
    if fields.get("tool_calls", b"")[:1] == b"[":
        calls = [_json.fields(call) for call in _array(fields["tool_calls"])]
        calls = [{**call, "id": _short_id(call["id"])} for call in calls]
        fields["tool_calls"] = b"[" + b",".join(map(_json.build, calls)) + b"]"
    return _json.build(fields)


def _short_id(raw: bytes) -> bytes:
    import hashlib

    return b'"%s"' % hashlib.sha256(raw).hexdigest()[:9].encode()


def _alternating(pieces: Sequence[bytes | memoryview]) -> list[bytes]:
    """Messages with system ones spoken by the user, and neighbours of one role joined."""
    merged: list[dict[str, bytes]] = []
    for i, native in enumerate(_json.items(b"[" + b",".join(pieces) + b"]")):
        fields = _json.fields(native)
        if i and fields["role"] == b'"system"':
            fields["role"] = b'"user"'
        if merged and fields["role"] == merged[-1]["role"] == b'"user"':
            both = [*_as_parts(merged[-1]["content"]), *_as_parts(fields["content"])]
            merged[-1]["content"] = b"[" + b",".join(both) + b"]"
        else:
            merged.append(fields)
    return list(map(_json.build, merged))


def _as_parts(content: bytes) -> list[bytes]:
    return _array(content) or [_json.build({"type": b'"text"', "text": content})]
