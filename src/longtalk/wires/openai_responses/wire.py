"""The wire of OpenAI Responses: a conversation is a list of items, and one answer may consist of many items.

An answer is one entry, `{"output":[…]}`, with its items unchanged, including items of unknown types. They are sent back
in order, byte for byte, except for what the server would reject (see `items.py`). Unless the server stored the
response (`store: true`, recorded in the entry), server-side ids are left out, and reasoning is sent only in its
encrypted form, together with the item that it led to. Encrypted reasoning is valid at any position, for the same
account and model.

Events and system messages inside the conversation are `developer` messages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from longtalk._util import json_bytes, typed_json
from longtalk.errors import InputError
from longtalk.transcript.transcript import Entry, Finish, new_id
from longtalk.usage import Usage
from longtalk.wires.native import splice
from longtalk.wires.neutral import LONGTALK, render_neutral
from longtalk.wires.openai_responses.items import (
    CALLS,
    MAX_OUTPUT_CHARS,
    REQUIRED,
    is_call,
    is_opaque,
    list_items,
    list_sendable_items,
    match_result_types,
    shorten_result,
)
from longtalk.wires.openai_responses.stream import ResponsesAccumulator, join_text_parts
from longtalk.wires.options import encode_option, merge_option, pop_tools
from longtalk.wires.protocol import Answer, Handle, Preamble, Quirks, ReportedError
from longtalk.wires.result_parts import make_result_parts
from longtalk.wires.schemas import OutputSchema
from longtalk.wires.text import wrap_in_tag
from longtalk.wires.views import MessageView, ToolCallView, hide_cards

_ENCRYPTED = "reasoning.encrypted_content"
_FINISH: dict[str | None, Finish] = {"content_filter": "filtered"}
_RESULT_TYPES = ("input_text", "input_image", "input_file")
_OURS = (b'"user"', b'"system"', b'"developer"')
_BAD_REASONING = re.compile(
    r"invalid_encrypted_content|encrypted[ _]content.{0,200}(?:could not be verified|not issued)"
    r"|was provided without its required",
    re.IGNORECASE | re.DOTALL,
)
_UNKNOWN_ID = re.compile(
    r"Item with id .{1,80} not found|Duplicate item found with id|input\[\d+\]\.id\b", re.IGNORECASE
)
_UNKNOWN_FIELD = re.compile(r"(?:Unknown|Unsupported) parameter: .{0,2}input\[\d+\][\w.\[\]]*\.(\w+)", re.IGNORECASE)
SESSION_OPTIONS = ("previous_response_id", "conversation")
"""Options that ask the server to store the conversation."""
_SESSION_LOST = re.compile(
    r"previous_response|Previous response|Conversation with id .{1,80} not found|conversation_locked"
    r'|"param"\s*:\s*"conversation\b|No tool output found|No tool call found',
    re.IGNORECASE,
)
_KEPT_ELSEWHERE = (
    *("output", "usage", "store", "input", "instructions", "tools", "tool_choice", "text", "reasoning", "include"),
    *("metadata", "prompt", "temperature", "top_p", "top_logprobs", "truncation", "max_output_tokens"),
    *("max_tool_calls", "parallel_tool_calls", "previous_response_id", "background", "user", "safety_identifier"),
    *("prompt_cache_key", "prompt_cache_retention"),
)
"""Fields of a response that the entry or the turn has, or that repeat the request. The system text is never stored."""
_NO_ENCRYPTION = re.compile(r"encrypted content is not supported", re.IGNORECASE)


class OpenAIResponses:
    """The wire of OpenAI's Responses API. See `Wire` for what each method does."""

    name = "openai-responses"
    reserved: tuple[str, ...] = ("input", "instructions", "model", "stream", "background")
    defaults: Mapping[str, Any] = {"store": False, "include": [_ENCRYPTED]}
    binds_prefix = False
    accepts_foreign_answers = True
    reports_request_size = True

    def path(self, model: str, *, stream: bool) -> str:  # noqa: ARG002
        return "/responses"

    def headers(self, key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def write_user(self, content: str | Sequence[Any]) -> bytes:
        if not isinstance(content, str):
            content = [{"type": "input_text", "text": part} if isinstance(part, str) else part for part in content]
        return json_bytes.encode({"role": "user", "content": content})

    def is_part(self, part: Mapping[str, Any]) -> bool:
        return isinstance(part.get("type"), str)

    def write_result(self, call_id: str, content: str | Sequence[Any], *, error: bool, name: str = "") -> bytes:  # noqa: ARG002
        if not isinstance(content, str):
            content = make_result_parts(content, "input_text", wire=self.name, types=_RESULT_TYPES)
        return json_bytes.encode({"type": "function_call_output", "call_id": call_id, "output": content})

    def write_instruction(self, text: str) -> bytes:
        return _write_developer(text)

    def quote(self, tag: str, text: str) -> bytes:
        # Text that a tool read somewhere must not have the authority of a developer message.
        return json_bytes.encode({"role": "user", "content": wrap_in_tag(tag, text)})

    def is_plain(self, role: str) -> bool:
        return role not in ("assistant", "tool")

    def redact(self, native: bytes, text: str) -> bytes:
        seen = self.view(native)
        if seen.call_id:
            return self.write_result(seen.call_id, text, error=False)
        if seen.role != "assistant":
            return json_bytes.encode({"role": seen.role, "content": text})
        part = {"type": "output_text", "text": text, "annotations": []}
        items: list[dict[str, Any]] = [{"type": "message", "role": "assistant", "content": [part]}]
        for item in filter(is_call, map(json_bytes.fields, list_items(native))):
            id, name = (json_bytes.text(item.get(key, b"")) or "" for key in ("call_id", "name"))  # noqa: A001
            if item["type"] == b'"custom_tool_call"':
                items.append({"type": "custom_tool_call", "call_id": id, "name": name, "input": ""})
            else:
                items.append({"type": "function_call", "call_id": id, "name": name, "arguments": "{}"})
        return json_bytes.encode({"output": items})

    def remove_opaque(self, native: bytes, *, running: bool = False) -> bytes | None:  # noqa: ARG002
        items = list_items(native)
        kept = [item for item in items if not is_opaque(json_bytes.fields(item))]
        if not kept and items:
            return None
        # An item that is sent without its reasoning must be sent without its id too.
        stored = json_bytes.fields(native).get("store") == b"true"
        changed = stored or len(kept) < len(items)
        return _build_native(b"[" + b",".join(kept) + b"]", stored=False) if changed else native

    def render(self, entry: Entry, quirks: Quirks) -> bytes | None:
        if entry.wire == LONGTALK:
            return _write_developer(render_neutral(entry))
        if entry.condition == "empty":
            return None
        native = entry.native
        if entry.role == "assistant":
            native = b",".join(list_sendable_items(native, quirks))
        elif entry.role == "tool" and len(native) > MAX_OUTPUT_CHARS:
            native = shorten_result(native)
        return (json_bytes.replace_surrogates(native) if quirks.no_surrogates else native) or None

    def build_request(
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
        fields = {key: encode_option(key, value) for key, value in head.items() if value is not None}
        tools = [*map(_declare_tool, preamble.tools), *pop_tools(fields)]
        if tools:
            fields["tools"] = b"[" + b",".join(tools) + b"]"
        if preamble.system and preamble.system.strip():
            fields["instructions"] = json_bytes.encode(preamble.system)
        return splice(fields, match_result_types(pieces), name=b"input")

    def add_schema(self, options: Mapping[str, Any], output: OutputSchema) -> Mapping[str, Any]:
        strict = output.make_strict(all_required=True)
        described = {"name": output.name, "strict": strict is not None, "schema": strict or output.schema}
        return merge_option(options, "text", {"format": {"type": "json_schema", **described}})

    def parse(self, body: bytes) -> Answer:
        fields = json_bytes.fields(body)
        if fields.get("error", b"null") != b"null" or json_bytes.text(fields.get("status", b"")) == "failed":
            raise ReportedError(read_response_error(fields))
        if fields.get("output", b"")[:1] != b"[":
            raise ValueError("the response has no `output`")
        return build_answer(json_bytes.items(fields["output"]), fields, output=fields["output"])

    def new_accumulator(self) -> ResponsesAccumulator:
        return ResponsesAccumulator(build_answer, read_response_error)

    def view(self, native: bytes) -> MessageView:
        fields = json_bytes.fields(native)
        if fields.get("type") in CALLS.values():
            call_id = json_bytes.text(fields.get("call_id", b"")) or ""
            return MessageView(role="tool", text=join_text_parts(fields.get("output", b"null")), call_id=call_id)
        if fields.get("role") in _OURS:
            return MessageView(
                role=json_bytes.text(fields["role"]) or "", text=join_text_parts(fields.get("content", b"null"))
            )
        items = [json_bytes.fields(item) for item in list_items(native)]
        contents = [item.get("content", b"null") for item in items if item.get("type", b'"message"') == b'"message"']
        view = MessageView(
            role="assistant",
            text="".join(map(join_text_parts, contents)),
            calls=tuple(map(_view_call, filter(is_call, items))),
            refusal="".join(join_text_parts(content, kind="refusal") for content in contents),
        )
        return hide_cards(view)

    def read_usage(self, raw: bytes) -> Usage:
        try:
            counts = typed_json.decode(raw, _Usage, strict=False)
        except (ValueError, RecursionError):
            return Usage()
        sent, made = counts.input_tokens_details or _Details(), counts.output_tokens_details or _Details()
        caching = (sent.cached_tokens, sent.cache_write_tokens, 0)
        numbers = (counts.input_tokens, counts.output_tokens, *caching, made.reasoning_tokens)
        return Usage(*(int(number) if number and math.isfinite(number) else 0 for number in numbers))

    def session_mode(self, options: Mapping[str, Any]) -> str:
        named = [name for name in SESSION_OPTIONS if options.get(name) is not None]
        if len(named) > 1 or any(options[name] != "auto" for name in named):
            raise InputError(
                f"Set only one of the options {' and '.join(SESSION_OPTIONS)}, and only to 'auto'; the id itself is "
                "stored with the conversation."
            )
        return named[0] if named else ""

    def quirks_for(self, options: Mapping[str, Any], known: Quirks) -> Quirks:
        # The server may have lost the items of a conversation that is sent again, or have them in another one.
        without_ids = options.get("store") is False or bool(self.session_mode(options))
        return msgspec.structs.replace(known, no_server_ids=True) if without_ids else known

    def session_options(self, options: Mapping[str, Any], handle: Handle | None) -> Mapping[str, Any]:
        mode = self.session_mode(options)
        if not mode:
            return options
        if handle is None and mode == "conversation":
            raise InputError(
                "This provider can't create a stored conversation; try the option 'previous_response_id' instead of "
                "'conversation'."
            )
        return {
            **self.sessionless_options(options),
            "store": True,
            **({mode: handle.id} if handle is not None else {}),
        }

    def sessionless_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: value for name, value in options.items() if name not in SESSION_OPTIONS}

    def is_session_lost(self, error: bytes) -> bool:
        return _SESSION_LOST.search(error.decode("utf-8", "replace")) is not None

    def follow_answer(self, answer: bytes, pieces: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:
        return match_result_types([b",".join(list_items(answer)), *pieces])[1:]

    def learn_from_error(self, error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:
        message = error.decode("utf-8", "replace")
        if known.opaque_void < len(natives) and _BAD_REASONING.search(message):
            return msgspec.structs.replace(known, opaque_void=len(natives))
        if not known.strict_ids and _UNKNOWN_ID.search(message):
            return msgspec.structs.replace(known, strict_ids=True)
        if "include" not in known.fields and _NO_ENCRYPTION.search(message):
            return msgspec.structs.replace(known, fields=(*known.fields, "include"))
        named = {name for name in _UNKNOWN_FIELD.findall(message) if name not in (*REQUIRED, *known.fields)}
        fields = [name for name in sorted(named) if any(b'"%s"' % name.encode() in native for native in natives)]
        if fields:
            return msgspec.structs.replace(known, fields=(*known.fields, *fields))
        if not known.no_surrogates and "surrogate" in message.lower():
            return msgspec.structs.replace(known, no_surrogates=True)
        return None


WIRE = OpenAIResponses()


def build_answer(
    items: Sequence[bytes],
    response: Mapping[str, bytes],
    *,
    output: bytes = b"",
    extra: Mapping[str, bytes] = MappingProxyType({}),
) -> Answer:
    """Return the answer with these items.

    `response` holds the fields of the response, and `extra` those that only a stream had. `output` is the JSON array of
    all items as received, if there is one.
    """
    identified = _with_unique_ids(items)
    output = output if output and identified == list(items) else b"[" + b",".join(identified) + b"]"
    stored = response.get("store") == b"true"
    native = _build_native(output, stored=stored)
    view = WIRE.view(native)
    finish: Finish = "stop"
    if json_bytes.text(response.get("status", b"")) == "incomplete":
        details = response.get("incomplete_details", b"null")
        reason = json_bytes.text(json_bytes.fields(details).get("reason", b"")) if details[:1] == b"{" else None
        finish = _FINISH.get(reason, "length")
    usage = response.get("usage", b"null")
    return Answer(
        native=native,
        view=view,
        finish="calls" if view.calls else finish,
        empty=not list_sendable_items(native, Quirks()),
        opaque=stored or any(is_opaque(json_bytes.fields(item)) for item in identified),
        usage=None if usage == b"null" else usage,
        response=_build_response({**response, **{key: v for key, v in extra.items() if key not in response}}),
        # Only a server that says so has stored the response, and only if no item was changed here.
        handle=_read_handle(response, items) if stored and identified == list(items) else None,
    )


def _build_response(fields: Mapping[str, bytes]) -> bytes:
    return json_bytes.build({key: value for key, value in fields.items() if key not in _KEPT_ELSEWHERE})


def _read_handle(response: Mapping[str, bytes], items: Sequence[bytes]) -> Handle | None:
    """Return a reference to the conversation that the server stores, up to this response; None if an id is missing."""
    conversation = response.get("conversation", b"null")
    if conversation == b"null":
        found = json_bytes.text(response.get("id", b""))
        return Handle(found) if found else None
    # Some servers return the id alone, in the form in which it was sent.
    found = json_bytes.text(
        json_bytes.fields(conversation).get("id", b"") if conversation[:1] == b"{" else conversation
    )
    last = json_bytes.text(json_bytes.fields(items[-1]).get("id", b"")) if items else None
    return Handle(found, last) if found and last else None


def read_response_error(response: Mapping[str, bytes]) -> bytes:
    """Return the error of a failed response as JSON."""
    error = response.get("error", b"null")
    if error[:1] == b"{":
        return error
    what = json_bytes.text(error) or "the response failed without an explanation."
    return json_bytes.encode({"code": "server_error", "message": what})


class _Details(msgspec.Struct):
    cached_tokens: float | None = 0
    cache_write_tokens: float | None = 0
    reasoning_tokens: float | None = 0


class _Usage(msgspec.Struct):
    input_tokens: float | None = 0
    output_tokens: float | None = 0
    input_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None


def _write_developer(text: str) -> bytes:
    return json_bytes.encode({"role": "developer", "content": text})


def _build_native(output: bytes, *, stored: bool) -> bytes:
    return (b'{"store":true,"output":' if stored else b'{"output":') + output + b"}"


def _declare_tool(tool: Any) -> bytes:
    fields = {"type": b'"function"', "name": json_bytes.encode(tool.name)}
    if tool.description:
        fields["description"] = json_bytes.encode(tool.description)
    # The default is strict mode, which has no optional arguments.
    return json_bytes.build({**fields, "parameters": tool.schema, "strict": json_bytes.encode(tool.is_strict)})


def _view_call(item: Mapping[str, bytes]) -> ToolCallView:
    arguments = item.get("input" if item["type"] == b'"custom_tool_call"' else "arguments", b"")
    text = json_bytes.text(arguments)
    return ToolCallView(
        id=json_bytes.text(item.get("call_id", b"")) or "",
        name=json_bytes.text(item.get("name", b"")) or "",
        arguments=arguments if text is None else text.encode(),
    )


def _with_unique_ids(items: Sequence[bytes]) -> list[bytes]:
    """Return the items with unique call ids and with arguments as strings, as the API requires."""
    named: list[bytes] = []
    seen: set[str] = set()
    for item in items:
        fields = json_bytes.fields(item)
        if is_call(fields):
            call, changed = _view_call(fields), dict(fields)
            if not call.id or call.id in seen or "\ufffd" in call.id:
                changed["call_id"] = b'"call_%s"' % new_id().encode()
            key = "input" if fields["type"] == b'"custom_tool_call"' else "arguments"
            if fields.get(key, b"")[:1] != b'"':
                changed[key] = json_bytes.encode(call.arguments.decode("utf-8", "replace"))
            item = item if changed == fields else json_bytes.build(changed)
            seen.add(call.id)
        named.append(item)
    return named
