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
from longtalk.transcript import Entry, Finish, new_id
from longtalk.wires.base import (
    LONGTALK,
    Answer,
    Call,
    Preamble,
    Quirks,
    Reported,
    Usage,
    View,
    neutral_text,
    option,
    splice,
)
from longtalk.wires.openai_chat_stream import Pieces, text_of_parts

_FINISH: dict[str | None, Finish] = {"length": "length", "content_filter": "filtered"}
_KNOWN = ("role", "content", "tool_calls", "tool_call_id", "name", "type", "text", "id", "function", "image_url")
# Where servers put objects with fields of their own.
_LISTS = ("content", "tool_calls")
_SAYS_NOTHING = (b"null", b"[]")
# Stands for the answer of a turn that was cut off after its tools had run, where a server insists on one.
NO_ANSWER = "(no answer)"
_BAD_ID = re.compile(
    r"tool.?(?:call|use)s?(?:\[\d+\])?[ ._`']{0,2}ids?\b.{0,120}(?:must be|should match|too long|invalid|length)"
    r"|invalid tool.?call.?id",
    re.IGNORECASE,
)
_BAD_ORDER = re.compile(
    r"roles? must alternate|system message must be|unexpected role '(?:system|user)' after role|expected last role",
    re.IGNORECASE,
)


class OpenAIChat:
    """See `Wire`."""

    name = "openai-chat"
    reserved: tuple[str, ...] = ("messages", "model", "n", "stream")
    defaults: Mapping[str, Any] = {}

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

    def aside(self, tag: str, text: str) -> bytes:  # noqa: ARG002
        return _system(text)

    def is_plain(self, role: str) -> bool:  # noqa: ARG002
        return True

    def without_opaque(self, native: bytes) -> bytes | None:
        return native

    def render(self, entry: Entry, quirks: Quirks) -> bytes | None:
        if entry.wire == LONGTALK:
            return _system(neutral_text(entry))
        # An answer without any content is refused everywhere when it is sent back.
        if entry.mark == "empty":
            return None
        native = _json.whole(entry.native) if quirks.whole else entry.native
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
        tools = [*map(_tool, preamble.tools), *_array(fields.pop("tools", b"[]"))]
        if tools:
            fields["tools"] = b"[" + b",".join(tools) + b"]"
        if preamble.system:
            pieces = [_system(preamble.system), *pieces]
        if quirks.alternate:
            pieces = _alternating(pieces)
        return splice(fields, pieces)

    def parse(self, body: bytes) -> Answer:
        fields = _json.fields(body)
        choices = _array(fields.get("choices", b"[]"))
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
        return View(
            role=_json.text(fields.get("role", b"")) or "",
            text=_text(fields.get("content", b"null")),
            calls=tuple(map(_call, _array(fields.get("tool_calls", b"null")))),
            call_id=_json.text(fields.get("tool_call_id", b"")) or "",
            refusal=_json.text(fields.get("refusal", b"")) or "",
        )

    def usage(self, raw: bytes) -> Usage:
        try:
            said = msgspec.json.decode(raw, type=_Usage, strict=False)
        except (ValueError, RecursionError):
            return Usage()
        details = said.prompt_tokens_details or _Details()
        counts = (said.prompt_tokens, said.completion_tokens, details.cached_tokens, details.cache_write_tokens)
        return Usage(*(int(count or 0) for count in counts))

    def objection(self, error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:
        said = _wording(error)
        names = {name for native in natives for name in _names(_json.fields(native))}
        fields = [name for name in sorted(names) if name not in known.fields and _is_refused(name, said)]
        if fields:
            return msgspec.structs.replace(known, fields=(*known.fields, *fields))
        if not known.ids and _BAD_ID.search(said) and any(b'"tool_calls"' in native for native in natives):
            return msgspec.structs.replace(known, ids=True)
        if not known.whole and "surrogate" in said.lower():
            return msgspec.structs.replace(known, whole=True)
        if not known.alternate and _BAD_ORDER.search(said):
            return msgspec.structs.replace(known, alternate=True)
        return None


WIRE = OpenAIChat()


def finished(message: bytes, reason: str | None, usage: bytes | None) -> Answer:
    """An answer from a message that arrived, or was put together."""
    fields = _json.fields(message)
    changed = False
    if not _json.text(fields.get("role", b"")):
        fields, changed = {"role": b"", **fields} | {"role": b'"assistant"'}, True
    calls = _array(fields.get("tool_calls", b"null"))
    if any(not _call(call).id for call in calls):
        # Without an id no result could ever be paired with its call.
        named = [
            call if _call(call).id else _json.build({"id": b"", **_json.fields(call)} | {"id": _new_call_id()})
            for call in calls
        ]
        fields, changed = {**fields, "tool_calls": b"[" + b",".join(named) + b"]"}, True
    native = _json.build(fields) if changed else message
    view = WIRE.view(native)
    finish: Finish = "calls" if view.calls else _FINISH.get(reason, "stop")
    return Answer(
        native=native,
        view=view,
        empty=not (view.calls or view.refusal or fields.get("audio", b"null") != b"null")
        and fields.get("content", b"null") in _SAYS_NOTHING,
        finish=finish,
        usage=None if usage in (None, b"null") else usage,
    )


class _Details(msgspec.Struct):
    cached_tokens: float | None = 0
    cache_write_tokens: float | None = 0


class _Usage(msgspec.Struct):
    prompt_tokens: float | None = 0
    completion_tokens: float | None = 0
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
    return text_of_parts(content) if said is None else said


def _new_call_id() -> bytes:
    return b'"call_%s"' % new_id().encode()


# What servers refuse


def _wording(error: bytes) -> str:
    """The texts of an error, a line each: its own keys are not what it speaks of."""

    def texts(value: Any) -> list[str]:
        if isinstance(value, dict | list):
            inner = value.values() if isinstance(value, dict) else value
            return [text for item in inner for text in texts(item)]
        return [value] if isinstance(value, str) else []

    try:
        return "\n".join(texts(_json.value(error)))
    except ValueError:
        return error.decode("utf-8", "replace")


def _is_refused(name: str, said: str) -> bool:
    """Whether a field is named as one that is there. What may be a plain word must stand apart as a name does."""
    name = re.escape(name)
    before, after = (r"(?<!\w)", r"(?!\w)") if "_" in name else (r"(?:^|['\"`.])", r"(?:$|['\"`.:\]])")
    missing = rf"missing\W+{name}\b|\b{name}\b.{{0,50}}must be (?:passed|present|provided|included|set)"
    return bool(re.search(before + name + after, said, re.M)) and not re.search(missing, said, re.I)


def _names(fields: dict[str, bytes]) -> set[str]:
    """The fields of a message that could be left out: vendors' own, and standard ones that say nothing."""
    if fields.get("role") != b'"assistant"':
        return set()
    items = [item for key in _LISTS for item in _array(fields.get(key, b"null")) if item[:1] == b"{"]
    inner = {name for item in items for name in _json.fields(item)}
    own = {name for name in (*fields, *inner) if name not in _KNOWN}
    return own | {name for name, value in fields.items() if value in _SAYS_NOTHING and name not in ("content", "role")}


def _without(native: bytes, names: Sequence[str]) -> bytes:
    def trimmed(raw: bytes) -> bytes:
        if raw[:1] != b"{":
            return raw
        members = _json.fields(raw)
        # A standard field is named for saying nothing in one message; in another one it may hold the calls.
        left = {k: v for k, v in members.items() if k not in names or (k in _KNOWN and v not in _SAYS_NOTHING)}
        return raw if left == members else _json.build(left)

    fields = _json.fields(trimmed(native))
    for key in _LISTS:
        items = _array(fields.get(key, b"null"))
        if list(map(trimmed, items)) != items:
            fields[key] = b"[" + b",".join(map(trimmed, items)) + b"]"
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
    if re.fullmatch(rb'"[a-zA-Z0-9]{9}"', raw):
        return raw
    import hashlib

    # Of the text, not of its JSON: a call's id and that of its result may be escaped differently.
    return b'"%s"' % hashlib.sha256((_json.text(raw) or "").encode()).hexdigest()[:9].encode()


def _alternating(pieces: Sequence[bytes | memoryview]) -> list[bytes]:
    """Messages with system ones spoken by the user, the user's neighbours joined, and an answer after results."""
    merged: list[dict[str, bytes]] = []
    for i, native in enumerate(_json.items(b"[" + b",".join(pieces) + b"]")):
        fields = _json.fields(native)
        if i and fields["role"] == b'"system"':
            fields["role"] = b'"user"'
        if merged and fields["role"] == merged[-1]["role"] == b'"user"':
            both = [*_as_parts(merged[-1]["content"]), *_as_parts(fields["content"])]
            merged[-1]["content"] = b"[" + b",".join(both) + b"]"
        else:
            if merged and fields["role"] == b'"user"' and merged[-1]["role"] == b'"tool"':
                merged.append({"role": b'"assistant"', "content": _json.encode(NO_ANSWER)})
            merged.append(fields)
    return list(map(_json.build, merged))


def _as_parts(content: bytes) -> list[bytes]:
    return _array(content) or [_json.build({"type": b'"text"', "text": content})]
