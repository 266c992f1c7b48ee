"""OpenAI Responses: a conversation as a list of items, of which one answer may be many.

An answer is one entry, `{"output":[…]}`: the items as they came, also those that nobody here knows. They go back in
order, byte for byte, but for what the server does not take back. Unless a response was stored there (`store: true`,
kept in the entry), ids of the server's own are left out, and reasoning only goes in its encrypted form, together with
what it led to (see `openai_responses_items.py`). It is valid at any place of a conversation, for the same account and
model.

Events and system messages inside the conversation are `developer` messages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longtalk import _json
from longtalk.errors import InputError
from longtalk.transcript import Entry, Finish, new_id
from longtalk.wires.base import (
    LONGTALK,
    Answer,
    Call,
    Handle,
    Preamble,
    Quirks,
    Reported,
    Usage,
    View,
    neutral_text,
    option,
    quoted,
    shown,
    splice,
)
from longtalk.wires.openai_responses_items import (
    CALLS,
    LONGEST_OUTPUT,
    NEEDED,
    answered_in_kind,
    is_call,
    is_opaque,
    items_of,
    sendable,
    shortened,
)
from longtalk.wires.openai_responses_stream import Items, text_of

_ENCRYPTED = "reasoning.encrypted_content"
_FINISH: dict[str | None, Finish] = {"content_filter": "filtered"}
_OURS = (b'"user"', b'"system"', b'"developer"')
_NOT_TAKEN = re.compile(
    r"invalid_encrypted_content|encrypted[ _]content.{0,200}(?:could not be verified|not issued)"
    r"|was provided without its required",
    re.IGNORECASE | re.DOTALL,
)
_NO_SUCH_ID = re.compile(
    r"Item with id .{1,80} not found|Duplicate item found with id|input\[\d+\]\.id\b", re.IGNORECASE
)
_UNKNOWN = re.compile(r"(?:Unknown|Unsupported) parameter: .{0,2}input\[\d+\][\w.\[\]]*\.(\w+)", re.IGNORECASE)
KEPT = ("previous_response_id", "conversation")
"""Ways in which the server can keep a conversation."""
_FORGOTTEN = re.compile(
    r"previous_response|Previous response|Conversation with id .{1,80} not found|conversation_locked"
    r'|"param"\s*:\s*"conversation\b|No tool output found|No tool call found',
    re.IGNORECASE,
)
_NO_ENCRYPTION = re.compile(r"encrypted content is not supported", re.IGNORECASE)


class OpenAIResponses:
    """See `Wire`."""

    name = "openai-responses"
    reserved: tuple[str, ...] = ("input", "instructions", "model", "stream", "background")
    defaults: Mapping[str, Any] = {"store": False, "include": [_ENCRYPTED]}
    binds_prefix = False
    drops_opaque = True
    takes_answers = True
    measures = True

    def path(self, model: str, *, stream: bool) -> str:  # noqa: ARG002
        return "/responses"

    def headers(self, key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def user(self, content: str | Sequence[Any]) -> bytes:
        if not isinstance(content, str):
            content = [{"type": "input_text", "text": part} if isinstance(part, str) else part for part in content]
        return _json.encode({"role": "user", "content": content})

    def is_part(self, part: Mapping[str, Any]) -> bool:
        return isinstance(part.get("type"), str)

    def result(self, call_id: str, text: str, *, error: bool, name: str = "") -> bytes:  # noqa: ARG002
        return _json.encode({"type": "function_call_output", "call_id": call_id, "output": text})

    def instruction(self, text: str) -> bytes:
        return _developer(text)

    def quote(self, tag: str, text: str) -> bytes:
        # What a tool has read somewhere must not speak with the authority of the developer.
        return _json.encode({"role": "user", "content": quoted(tag, text)})

    def is_plain(self, role: str) -> bool:
        return role not in ("assistant", "tool")

    def redacted(self, native: bytes, text: str) -> bytes:
        seen = self.view(native)
        if seen.call_id:
            return self.result(seen.call_id, text, error=False)
        if seen.role != "assistant":
            return _json.encode({"role": seen.role, "content": text})
        part = {"type": "output_text", "text": text, "annotations": []}
        items: list[dict[str, Any]] = [{"type": "message", "role": "assistant", "content": [part]}]
        for item in filter(is_call, map(_json.fields, items_of(native))):
            id, name = (_json.text(item.get(key, b"")) or "" for key in ("call_id", "name"))  # noqa: A001
            if item["type"] == b'"custom_tool_call"':
                items.append({"type": "custom_tool_call", "call_id": id, "name": name, "input": ""})
            else:
                items.append({"type": "function_call", "call_id": id, "name": name, "arguments": "{}"})
        return _json.encode({"output": items})

    def without_opaque(self, native: bytes) -> bytes | None:
        items = items_of(native)
        kept = [item for item in items if not is_opaque(_json.fields(item))]
        if not kept and items:
            return None
        # What goes without its reasoning goes without its id too.
        stored = _json.fields(native).get("store") == b"true"
        changed = stored or len(kept) < len(items)
        return _enveloped(b"[" + b",".join(kept) + b"]", stored=False) if changed else native

    def render(self, entry: Entry, quirks: Quirks) -> bytes | None:
        if entry.wire == LONGTALK:
            return _developer(neutral_text(entry))
        if entry.mark == "empty":
            return None
        native = entry.native
        if entry.role == "assistant":
            native = b",".join(sendable(native, quirks))
        elif entry.role == "tool" and len(native) > LONGEST_OUTPUT:
            native = shortened(native)
        return (_json.whole(native) if quirks.whole else native) or None

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
        head: dict[str, Any] = {"model": model, **({"stream": True} if stream else {}), **options}
        include = head.get("include")
        if isinstance(include, list | tuple):
            wanted = [] if head.get("store") is not False or _ENCRYPTED in include else [_ENCRYPTED]
            refused = [_ENCRYPTED] if "include" in quirks.fields else []
            head["include"] = [name for name in (*include, *wanted) if name not in refused] or None
        fields = {key: option(key, value) for key, value in head.items() if value is not None}
        given = fields.pop("tools", b"[]")
        if given[:1] != b"[":
            raise InputError("The option 'tools' is a list of tools that the provider has.")
        tools = [*map(_tool, preamble.tools), *_json.items(given)]
        if tools:
            fields["tools"] = b"[" + b",".join(tools) + b"]"
        if preamble.system and preamble.system.strip():
            fields["instructions"] = _json.encode(preamble.system)
        return splice(fields, answered_in_kind(pieces), name=b"input")

    def parse(self, body: bytes) -> Answer:
        fields = _json.fields(body)
        if fields.get("error", b"null") != b"null" or _json.text(fields.get("status", b"")) == "failed":
            raise Reported(reported(fields))
        if fields.get("output", b"")[:1] != b"[":
            raise ValueError("it has no output")
        return finished(_json.items(fields["output"]), fields, output=fields["output"])

    def accumulator(self) -> Items:
        return Items(finished, reported)

    def view(self, native: bytes) -> View:
        fields = _json.fields(native)
        if fields.get("type") in CALLS.values():
            call_id = _json.text(fields.get("call_id", b"")) or ""
            return View(role="tool", text=text_of(fields.get("output", b"null")), call_id=call_id)
        if fields.get("role") in _OURS:
            return View(role=_json.text(fields["role"]) or "", text=text_of(fields.get("content", b"null")))
        items = [_json.fields(item) for item in items_of(native)]
        contents = [item.get("content", b"null") for item in items if item.get("type", b'"message"') == b'"message"']
        view = View(
            role="assistant",
            text="".join(map(text_of, contents)),
            calls=tuple(map(_call, filter(is_call, items))),
            refusal="".join(text_of(content, kind="refusal") for content in contents),
        )
        return shown(view)

    def usage(self, raw: bytes) -> Usage:
        try:
            said = msgspec.json.decode(raw, type=_Usage, strict=False)
        except (ValueError, RecursionError):
            return Usage()
        details = said.input_tokens_details or _Details()
        counts = (said.input_tokens, said.output_tokens, details.cached_tokens, details.cache_write_tokens)
        return Usage(*(int(count) if count and math.isfinite(count) else 0 for count in counts))

    def keeps(self, options: Mapping[str, Any]) -> str:
        named = [name for name in KEPT if options.get(name) is not None]
        if len(named) > 1 or any(options[name] != "auto" for name in named):
            raise InputError(
                f"The option {named[0]!r} can only be 'auto', and one of {' and '.join(KEPT)} is enough: the id itself "
                "is kept with the conversation."
            )
        return named[0] if named else ""

    def minding(self, options: Mapping[str, Any], known: Quirks) -> Quirks:
        # What is told anew may be what the server has forgotten, or has in another conversation.
        nameless = options.get("store") is False or bool(self.keeps(options))
        return msgspec.structs.replace(known, nameless=True) if nameless else known

    def going_on(self, options: Mapping[str, Any], handle: Handle | None) -> Mapping[str, Any]:
        named = self.keeps(options)
        if not named:
            return options
        if handle is None and named == "conversation":
            raise InputError(
                "This provider can't begin a conversation that is kept there: 'previous_response_id' may do."
            )
        return {**self.alone(options), "store": True, **({named: handle.id} if handle is not None else {})}

    def alone(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: value for name, value in options.items() if name not in KEPT}

    def forgot(self, error: bytes) -> bool:
        return _FORGOTTEN.search(error.decode("utf-8", "replace")) is not None

    def behind(self, answer: bytes, pieces: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:
        return answered_in_kind([b",".join(items_of(answer)), *pieces])[1:]

    def objection(self, error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:
        said = error.decode("utf-8", "replace")
        if known.void < len(natives) and _NOT_TAKEN.search(said):
            return msgspec.structs.replace(known, void=len(natives))
        if not known.ids and _NO_SUCH_ID.search(said):
            return msgspec.structs.replace(known, ids=True)
        if "include" not in known.fields and _NO_ENCRYPTION.search(said):
            return msgspec.structs.replace(known, fields=(*known.fields, "include"))
        named = {name for name in _UNKNOWN.findall(said) if name not in (*NEEDED, *known.fields)}
        fields = [name for name in sorted(named) if any(b'"%s"' % name.encode() in native for native in natives)]
        if fields:
            return msgspec.structs.replace(known, fields=(*known.fields, *fields))
        if not known.whole and "surrogate" in said.lower():
            return msgspec.structs.replace(known, whole=True)
        return None


WIRE = OpenAIResponses()


def finished(items: Sequence[bytes], response: Mapping[str, bytes], *, output: bytes = b"") -> Answer:
    """An answer from items that arrived, with the fields of their response."""
    named = _named(items)
    output = output if output and named == list(items) else b"[" + b",".join(named) + b"]"
    stored = response.get("store") == b"true"
    native = _enveloped(output, stored=stored)
    view = WIRE.view(native)
    finish: Finish = "stop"
    if _json.text(response.get("status", b"")) == "incomplete":
        details = response.get("incomplete_details", b"null")
        reason = _json.text(_json.fields(details).get("reason", b"")) if details[:1] == b"{" else None
        finish = _FINISH.get(reason, "length")
    usage = response.get("usage", b"null")
    return Answer(
        native=native,
        view=view,
        finish="calls" if view.calls else finish,
        empty=not sendable(native, Quirks()),
        opaque=stored or any(is_opaque(_json.fields(item)) for item in named),
        usage=None if usage == b"null" else usage,
        # A server that does not say so may keep nothing. What was changed here is not what it has.
        handle=_handle(response, items) if stored and named == list(items) else None,
    )


def _handle(response: Mapping[str, bytes], items: Sequence[bytes]) -> Handle | None:
    """What the server calls the conversation after this response."""
    within = response.get("conversation", b"null")
    if within[:1] != b"{":
        found = _json.text(response.get("id", b""))
        return Handle(found) if found else None
    found = _json.text(_json.fields(within).get("id", b""))
    last = _json.text(_json.fields(items[-1]).get("id", b"")) if items else None
    return Handle(found, last) if found and last else None


def reported(response: Mapping[str, bytes]) -> bytes:
    """What a failed response says went wrong."""
    error = response.get("error", b"null")
    if error[:1] == b"{":
        return error
    what = _json.text(error) or "the response failed without a word of why."
    return _json.encode({"code": "server_error", "message": what})


class _Details(msgspec.Struct):
    cached_tokens: float | None = 0
    cache_write_tokens: float | None = 0


class _Usage(msgspec.Struct):
    input_tokens: float | None = 0
    output_tokens: float | None = 0
    input_tokens_details: _Details | None = None


def _developer(text: str) -> bytes:
    return _json.encode({"role": "developer", "content": text})


def _enveloped(output: bytes, *, stored: bool) -> bytes:
    return (b'{"store":true,"output":' if stored else b'{"output":') + output + b"}"


def _tool(tool: Any) -> bytes:
    fields = {"type": b'"function"', "name": _json.encode(tool.name)}
    if tool.description:
        fields["description"] = _json.encode(tool.description)
    # Strict is what is meant when nothing is said, and knows no optional arguments.
    return _json.build({**fields, "parameters": tool.schema, "strict": b"false"})


def _call(item: Mapping[str, bytes]) -> Call:
    spelt = item.get("input" if item["type"] == b'"custom_tool_call"' else "arguments", b"")
    said = _json.text(spelt)
    return Call(
        id=_json.text(item.get("call_id", b"")) or "",
        name=_json.text(item.get("name", b"")) or "",
        arguments=spelt if said is None else said.encode(),
    )


def _named(items: Sequence[bytes]) -> list[bytes]:
    """Items of which each call has an id of its own, and arguments that are a text: nothing else can go back."""
    named: list[bytes] = []
    seen: set[str] = set()
    for item in items:
        fields = _json.fields(item)
        if is_call(fields):
            call, changed = _call(fields), dict(fields)
            if not call.id or call.id in seen or "\ufffd" in call.id:
                changed["call_id"] = b'"call_%s"' % new_id().encode()
            key = "input" if fields["type"] == b'"custom_tool_call"' else "arguments"
            if fields.get(key, b"")[:1] != b'"':
                changed[key] = _json.encode(call.arguments.decode("utf-8", "replace"))
            item = item if changed == fields else _json.build(changed)
            seen.add(call.id)
        named.append(item)
    return named
