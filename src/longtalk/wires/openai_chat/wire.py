"""The wire of OpenAI Chat Completions: one array of messages, in a format that hundreds of servers accept.

A request is assembled from native bytes with the messages last, so that the request of a longer conversation begins
with the bytes of the shorter one. Events and system messages inside the conversation are `system` messages. What a
particular server rejects (another vendor's fields, foreign call ids, roles out of order) is learned from its error, and
then left out or changed for that server alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longtalk._util import json_bytes, typed_json
from longtalk.transcript.transcript import Entry, Finish, new_id
from longtalk.usage import Usage
from longtalk.wires.native import array_items, array_objects, object_fields, splice
from longtalk.wires.neutral import LONGTALK, render_neutral
from longtalk.wires.openai_chat.quirks import NO_CONTENT, adapt_message, alternate_roles, learn_from_error
from longtalk.wires.openai_chat.stream import ChatAccumulator, join_text_parts
from longtalk.wires.options import encode_option
from longtalk.wires.protocol import Answer, Preamble, Quirks, ReportedError, StatelessWire
from longtalk.wires.result_parts import make_result_parts
from longtalk.wires.schemas import OutputSchema
from longtalk.wires.text import wrap_in_tag
from longtalk.wires.views import MessageView, ToolCallView, hide_cards

_FINISH: dict[str | None, Finish] = {"length": "length", "content_filter": "filtered"}


class OpenAIChat(StatelessWire):
    """The wire of OpenAI's Chat Completions API. See `Wire` for what each method does."""

    name = "openai-chat"
    reserved: tuple[str, ...] = ("messages", "model", "n", "stream")
    binds_prefix = True
    defaults: Mapping[str, Any] = {}

    def path(self, model: str, *, stream: bool) -> str:  # noqa: ARG002
        return "/chat/completions"

    def headers(self, key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def write_user(self, content: str | Sequence[Any]) -> bytes:
        if not isinstance(content, str):
            content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
        return json_bytes.encode({"role": "user", "content": content})

    def is_part(self, part: Mapping[str, Any]) -> bool:
        return isinstance(part.get("type"), str)

    def write_result(self, call_id: str, content: str | Sequence[Any], *, error: bool, name: str = "") -> bytes:  # noqa: ARG002
        if not isinstance(content, str):
            content = make_result_parts(content, "text", wire=self.name, types=("text",))
        return json_bytes.encode({"role": "tool", "tool_call_id": call_id, "content": content})

    def write_instruction(self, text: str) -> bytes:
        return _write_system(text)

    def quote(self, tag: str, text: str) -> bytes:
        # Text that a tool read somewhere must not have the authority of a system message.
        return json_bytes.encode({"role": "user", "content": wrap_in_tag(tag, text)})

    def is_plain(self, role: str) -> bool:  # noqa: ARG002
        return True

    def redact(self, native: bytes, text: str) -> bytes:
        seen = self.view(native)
        if seen.call_id:
            return self.write_result(seen.call_id, text, error=False)
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": "{}"}}
            for call in seen.calls
        ]
        return json_bytes.encode({"role": seen.role, "content": text, **({"tool_calls": calls} if calls else {})})

    def remove_opaque(self, native: bytes, *, running: bool = False) -> bytes | None:  # noqa: ARG002
        return native

    def render(self, entry: Entry, quirks: Quirks) -> bytes | None:
        if entry.wire == LONGTALK:
            return _write_system(render_neutral(entry))
        # Every server rejects an answer without content.
        if entry.condition == "empty":
            return None
        native = adapt_message(entry.native, quirks)
        # For a server that rejects the field `refusal`, its text becomes the content.
        if (
            native != entry.native
            and _is_empty(json_bytes.fields(native))
            and not _is_empty(json_bytes.fields(entry.native))
        ):
            refusal = self.view(entry.native).refusal
            return json_bytes.encode({"role": "assistant", "content": refusal}) if refusal else None
        return native

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
        head: dict[str, Any] = {"model": model}
        if stream:
            head |= {"stream": True, "stream_options": {"include_usage": True}}
        head |= options
        fields = {key: encode_option(key, value) for key, value in head.items() if value is not None}
        own_tools = fields.pop("tools", None)
        tools = [*map(_declare_tool, preamble.tools), *(array_items(own_tools) if own_tools else ())]
        if tools:
            fields["tools"] = b"[" + b",".join(tools) + b"]"
        if preamble.system:
            pieces = [_write_system(preamble.system), *pieces]
        if quirks.must_alternate:
            pieces = alternate_roles(pieces)
        return splice(fields, pieces)

    def add_schema(self, options: Mapping[str, Any], output: OutputSchema) -> Mapping[str, Any]:
        strict = output.make_strict(all_required=True)
        described = {"name": output.name, "strict": strict is not None, "schema": strict or output.schema}
        return {**options, "response_format": {"type": "json_schema", "json_schema": described}}

    def parse(self, body: bytes) -> Answer:
        fields = json_bytes.fields(body)
        choices = array_items(fields.get("choices", b"[]"))
        if not choices and fields.get("error", b"null") != b"null":
            raise ReportedError(fields["error"])
        if not choices:
            raise ValueError("the response has no `choices`")
        choice = json_bytes.fields(choices[0])
        message, _ = choice.pop("message", b"{}"), choice.pop("index", b"")
        if choice.get("error", b"null") != b"null":
            raise ReportedError(choice["error"])
        reason = json_bytes.text(choice.get("finish_reason", b"null"))
        usage = fields.pop("usage", None)
        response = json_bytes.build({**fields, "choices": b"[%s]" % json_bytes.build(choice)})
        return build_answer(message, reason, usage, response)

    def new_accumulator(self) -> ChatAccumulator:
        return ChatAccumulator(build_answer)

    def view(self, native: bytes) -> MessageView:
        fields = json_bytes.fields(native)
        calls, call_id, refusal = fields.get("tool_calls"), fields.get("tool_call_id"), fields.get("refusal")
        content = fields.get("content", b"null")
        view = MessageView(
            role=json_bytes.text(fields.get("role", b"")) or "",
            text=join_text_parts(content) if (text := json_bytes.text(content)) is None else text,
            calls=tuple(map(_view_call, array_objects(calls))) if calls else (),
            call_id=json_bytes.text(call_id) or "" if call_id else "",
            refusal=json_bytes.text(refusal) or "" if refusal else "",
        )
        return hide_cards(view)

    def read_usage(self, raw: bytes) -> Usage:
        try:
            counts = typed_json.decode(raw, _Usage, strict=False)
        except (ValueError, RecursionError):
            return Usage()
        details = counts.prompt_tokens_details or _Details()
        output, thought = (
            counts.completion_tokens or 0,
            (counts.completion_tokens_details or _Thought()).reasoning_tokens,
        )
        if thought and counts.total_tokens == (counts.prompt_tokens or 0) + output + thought:
            # Most servers include reasoning in the completion tokens; some (xAI, Gemini) count it separately.
            output += thought
        numbers = (counts.prompt_tokens, output, details.cached_tokens, details.cache_write_tokens, 0, thought)
        return Usage(*[int(number) if number and math.isfinite(number) else 0 for number in numbers])

    def learn_from_error(self, error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:
        return learn_from_error(error, natives, known)


WIRE = OpenAIChat()


def build_answer(message: bytes, reason: str | None, usage: bytes | None, response: bytes | None = None) -> Answer:
    """Return the answer in a message that was received whole or assembled from a stream.

    `reason` is the provider's finish reason, and `response` has the other fields of the response. Anything that could
    not be sent back is corrected: the role, missing or duplicate call ids, content of an invalid form.
    """
    fields = json_bytes.fields(message)
    received = dict(fields)
    if json_bytes.text(fields.get("role", b"")) != "assistant":
        fields = {"role": b"", **fields} | {"role": b'"assistant"'}
    if "tool_calls" in fields:
        if fields["tool_calls"][:1] not in (b"[", b"n"):
            del fields["tool_calls"]
        calls = array_items(fields.get("tool_calls", b"null"))
        identified = _with_unique_ids(calls)
        if identified != calls:
            fields["tool_calls"] = b"[" + b",".join(identified) + b"]"
        if identified and not _is_content(fields.get("content", b"null")):
            fields["content"] = b"null"
    changed = fields != received
    native = json_bytes.build(fields) if changed else message
    view = WIRE.view(native)
    finish: Finish = "calls" if view.calls else _FINISH.get(reason, "stop")
    return Answer(
        native=native,
        view=view,
        empty=_is_empty(fields),
        finish=finish,
        usage=None if usage in (None, b"null") else usage,
        response=response,
    )


def _is_empty(fields: Mapping[str, bytes]) -> bool:
    """Return True if an answer has no content that can be sent back. Content of an invalid form can't be."""
    content, calls = fields.get("content", b"null"), fields.get("tool_calls")
    if calls and array_objects(calls):
        return False
    refusal = fields.get("refusal")
    if (refusal and json_bytes.text(refusal)) or fields.get("audio", b"null") not in (b"null", b"{}"):
        return False
    return content in NO_CONTENT or not _is_content(content)


def _with_unique_ids(calls: Sequence[bytes]) -> list[bytes]:
    """Return the tool calls with unique ids, so that each result can be matched to its call."""
    named: list[bytes] = []
    seen: set[str] = set()
    for call in calls:
        fields = json_bytes.fields(call)
        json_bytes.check_object(fields.get("function", b"{}"))
        id = _view_call(fields).id  # noqa: A001
        if not id or id in seen or "\ufffd" in id:
            call = json_bytes.build({"id": b"", **fields} | {"id": _new_call_id()})
        seen.add(id)
        named.append(call)
    return named


def _is_content(content: bytes) -> bool:
    if content[:1] != b"[":
        return content[:1] in (b'"', b"n")
    parts = [json_bytes.value(part) for part in json_bytes.items(content)]
    return all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts)


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


def _write_system(text: str) -> bytes:
    return json_bytes.encode({"role": "system", "content": text})


def _declare_tool(tool: Any) -> bytes:
    function = {"name": json_bytes.encode(tool.name)}
    if tool.description:
        function["description"] = json_bytes.encode(tool.description)
    function["parameters"] = tool.schema
    if tool.is_strict:
        function["strict"] = b"true"
    return b'{"type":"function","function":' + json_bytes.build(function) + b"}"


def _view_call(fields: Mapping[str, bytes]) -> ToolCallView:
    function = object_fields(fields.get("function", b"{}"))
    arguments = function.get("arguments", b"")
    text = json_bytes.text(arguments)
    return ToolCallView(
        id=json_bytes.text(fields.get("id", b"")) or "",
        name=json_bytes.text(function.get("name", b"")) or "",
        # Some servers send the arguments as an object instead of a string.
        arguments=arguments if text is None else text.encode(),
    )


def _new_call_id() -> bytes:
    return b'"call_%s"' % new_id().encode()
