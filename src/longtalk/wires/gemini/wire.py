"""The wire of Gemini's `generateContent`: messages, which Gemini calls contents, made of parts with signed thoughts.

An answer is stored as `{"role":"model","parts":[…]}` with its parts and other fields exactly as received, because a
signature must be sent back in the part that contained it. A signature is valid for its account and model, at any
position.

Tool calls may come without an id. They get one derived from the answer and their position. A result is stored with that
id, but sent with an id only if the model gave one. Each result is a separate entry, and `contents.py` groups those of
one answer. Events and system messages inside the conversation are quoted in user contents.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longtalk._util import json_bytes, typed_json
from longtalk.transcript.transcript import Entry, Finish
from longtalk.usage import Usage
from longtalk.wires.gemini.contents import SCHEMA_FIELD, adapt_contents, declare_tool, join_results, sign_first_call
from longtalk.wires.gemini.parts import build_model_content, classify, is_blank, is_thought, list_parts, view_content
from longtalk.wires.gemini.stream import (
    GeminiAccumulator,
    build_response,
    list_parts_of,
    read_content,
    read_finish_reason,
    read_response,
)
from longtalk.wires.native import object_fields, splice
from longtalk.wires.neutral import LONGTALK, render_neutral
from longtalk.wires.options import encode_option, merge_option, pop_tools
from longtalk.wires.protocol import Answer, Preamble, Quirks, ReportedError, StatelessWire
from longtalk.wires.result_parts import refuse_part
from longtalk.wires.schemas import OutputSchema
from longtalk.wires.text import wrap_in_tag
from longtalk.wires.views import MessageView, hide_cards

_FILTERED = (
    *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "ESCALATION"),
    *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
)
# The model or the server failed. A partial answer is kept; an empty one is an error.
_FAILED = (
    *("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE"),
    *("MALFORMED_RESPONSE", "NO_IMAGE", "IMAGE_OTHER", "OTHER"),
)
_FINISH: dict[str | None, Finish] = {"MAX_TOKENS": "length", **dict.fromkeys((*_FILTERED, *_FAILED), "filtered")}
_REQUIRED = ("role", "parts", "text", "name", "args", "response", "functionCall", "functionResponse")
"""Fields that are never left out, even if a server reports them as unknown."""
_BAD_SIGNATURE = re.compile(
    r"(?:corrupted|invalid) thought.?signature|thought.?signature is not valid|thought_?signature.{0,40}base64",
    re.IGNORECASE,
)
_MISSING_SIGNATURE = re.compile(r"missing a thought.?signature", re.IGNORECASE)
_UNKNOWN_FIELD = re.compile(r"""Unknown name \\?"(\w+)\\?" at '(contents|tools)\[""")


class Gemini(StatelessWire):
    """The wire of the Gemini API. See `Wire` for what each method does."""

    name = "gemini"
    reserved: tuple[str, ...] = ("contents", "model", "stream", "systemInstruction", "system_instruction")
    defaults: Mapping[str, Any] = {}
    binds_prefix = False

    def path(self, model: str, *, stream: bool) -> str:
        from urllib.parse import quote

        name = model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/{quote(name, safe='/')}:{method}"

    def headers(self, key: str | None) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def write_user(self, content: str | Sequence[Any]) -> bytes:
        parts = [content] if isinstance(content, str) else content
        return json_bytes.encode({"role": "user", "parts": [{"text": p} if isinstance(p, str) else p for p in parts]})

    def is_part(self, part: Mapping[str, Any]) -> bool:
        # A part with a type belongs to another provider; a user makes no calls or results.
        return bool(part) and not {"type", "functionCall", "functionResponse"} & part.keys()

    def write_result(self, call_id: str, content: str | Sequence[Any], *, error: bool, name: str = "") -> bytes:
        given = [content] if isinstance(content, str) else content
        texts = [part if isinstance(part, str) else part["text"] for part in given if _is_text(part)]
        parts: list[Any] = [part for part in given if not _is_text(part)]
        for part in parts:
            if not part.keys() & {"inlineData", "fileData"}:
                raise refuse_part(next(iter(part)), self.name, ("text", "inlineData", "fileData"))
        response: dict[str, Any] = {"id": call_id, "name": name}
        response["response"] = {"error" if error else "result": "\n\n".join(texts)}
        if parts:
            response["parts"] = parts
        return json_bytes.encode({"role": "user", "parts": [{"functionResponse": response}]})

    def write_instruction(self, text: str) -> bytes:
        return self.write_user(wrap_in_tag("instruction", text))

    def quote(self, tag: str, text: str) -> bytes:
        return self.write_user(wrap_in_tag(tag, text))

    def is_plain(self, role: str) -> bool:
        return role != "tool"

    def render(self, entry: Entry, quirks: Quirks) -> bytes | None:
        if entry.wire == LONGTALK:
            text = render_neutral(entry)
            return self.write_user(text if entry.kind == "event" else wrap_in_tag("system", text))
        if entry.condition == "empty":
            return None
        return json_bytes.replace_surrogates(entry.native) if quirks.no_surrogates else entry.native

    def redact(self, native: bytes, text: str) -> bytes:
        seen = self.view(native)
        if seen.call_id:
            return self.write_result(seen.call_id, text, error=False, name=seen.name)
        calls = [{"functionCall": {"id": call.id, "name": call.name, "args": {}}} for call in seen.calls]
        role = "model" if seen.role == "assistant" else seen.role
        return json_bytes.encode({"role": role, "parts": [{"text": text}, *calls]})

    def remove_opaque(self, native: bytes, *, running: bool = False) -> bytes | None:
        parts = list_parts(native)
        kept: list[bytes] = []
        for part in parts:
            members = object_fields(part)
            signature = members.pop("thoughtSignature", None)
            if not is_thought(members) and not is_blank(members):
                kept.append(part if signature is None else json_bytes.build(members))
        if kept != parts:
            if not kept:
                return None
            native = build_model_content(kept, json_bytes.fields(native))
        return sign_first_call(native) if running else native

    def build_request(
        self,
        *,
        model: str,  # noqa: ARG002
        preamble: Preamble,
        pieces: Sequence[bytes | memoryview],
        mark: int,  # noqa: ARG002
        options: Mapping[str, Any],
        quirks: Quirks,
        stream: bool,  # noqa: ARG002
    ) -> bytes:
        fields = {key: encode_option(key, value) for key, value in options.items() if value is not None}
        tools = pop_tools(fields)
        head: dict[str, bytes] = {}
        if preamble.system and preamble.system.strip():
            head["systemInstruction"] = json_bytes.encode({"parts": [{"text": preamble.system}]})
        if preamble.tools:
            declared = b",".join([declare_tool(tool, quirks) for tool in preamble.tools])
            tools.insert(0, b'{"functionDeclarations":[' + declared + b"]}")
        if tools:
            head["tools"] = b"[" + b",".join(tools) + b"]"
        contents = join_results(pieces)
        if quirks.fields or quirks.needs_signatures:
            contents = adapt_contents(contents, quirks)
        return splice({**head, **fields}, contents, name=b"contents")

    def add_schema(self, options: Mapping[str, Any], output: OutputSchema) -> Mapping[str, Any]:
        form = {"responseMimeType": "application/json", "responseJsonSchema": output.schema}
        return merge_option(options, "generationConfig", form)

    def parse(self, body: bytes) -> Answer:
        fields, candidate, usage = read_response(body)
        if candidate is None:
            raise ValueError("the response has no `candidates`")
        reason, why = read_finish_reason(candidate)
        content, response = read_content(candidate), build_response(fields, candidate)
        exact = candidate.get("content", b"")
        return build_answer(list_parts_of(content), content, reason, usage, exact=exact, why=why, response=response)

    def new_accumulator(self) -> GeminiAccumulator:
        return GeminiAccumulator(build_answer)

    def view(self, native: bytes) -> MessageView:
        return hide_cards(view_content(native))

    def read_usage(self, raw: bytes) -> Usage:
        try:
            counts = typed_json.decode(raw, _Usage, strict=False)
        except (ValueError, RecursionError):
            return Usage()
        return Usage(
            input=(counts.prompt_token_count or 0) + (counts.tool_use_prompt_token_count or 0),
            output=(counts.candidates_token_count or 0) + (counts.thoughts_token_count or 0),
            cached=counts.cached_content_token_count or 0,
            reasoning=counts.thoughts_token_count or 0,
        )

    def learn_from_error(self, error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:
        message = error.decode("utf-8", "replace")
        if known.opaque_void < len(natives) and _BAD_SIGNATURE.search(message):
            return msgspec.structs.replace(known, opaque_void=len(natives))
        if not known.needs_signatures and _MISSING_SIGNATURE.search(message):
            return msgspec.structs.replace(known, needs_signatures=True)
        if not known.no_surrogates and "surrogate" in message:
            return msgspec.structs.replace(known, no_surrogates=True)
        names = dict.fromkeys(
            name
            for name, where in _UNKNOWN_FIELD.findall(message)
            if name not in known.fields
            and (name == SCHEMA_FIELD if where == "tools" else name not in _REQUIRED and _contain_field(natives, name))
        )
        return msgspec.structs.replace(known, fields=(*known.fields, *names)) if names else None


WIRE = Gemini()


def _is_text(part: Any) -> bool:
    """Return True if a part of a user's message is text."""
    return isinstance(part, str) or isinstance(part.get("text"), str)


def build_answer(
    parts: Sequence[bytes],
    content: Mapping[str, bytes],
    reason: str | None,
    usage: bytes | None,
    *,
    exact: bytes = b"",
    why: str = "",
    cut: bool = False,
    response: bytes | None = None,
) -> Answer:
    """Return the answer with these parts. Raises `ReportedError` if the model failed without any content.

    `content` has the other fields of the content, and `exact` is its JSON if it was received whole. `reason` is the
    provider's finish reason, and `why` its explanation. `cut` is True if the stream was interrupted. `response` has the
    other fields of the response.
    """
    signed, thought, blank = classify(parts)
    kept = [part for part, is_blank in zip(parts, blank, strict=True) if not is_blank]
    opaque = any(signed)
    # Unsigned thoughts alone can't be sent back.
    empty = not opaque and all(map(operator.or_, thought, blank))
    if empty and reason in _FAILED and not cut:
        raise ReportedError(
            json_bytes.encode({"error": {"code": reason, "message": why or f"the answer ended with {reason}"}})
        )
    is_whole = exact and len(kept) == len(parts) > 0
    has_more = len(content) > 2 and content.get("role") == b'"model"'
    native = exact if is_whole and has_more else build_model_content(content["parts"] if is_whole else kept, content)
    view = WIRE.view(native)
    return Answer(
        native=native,
        view=view,
        finish="calls" if view.calls else _FINISH.get(reason, "stop"),
        empty=empty,
        opaque=opaque,
        usage=None if usage in (None, b"null") else usage,
        response=response,
    )


class _Usage(msgspec.Struct, rename="camel"):
    prompt_token_count: int | None = 0
    tool_use_prompt_token_count: int | None = 0
    candidates_token_count: int | None = 0
    thoughts_token_count: int | None = 0
    cached_content_token_count: int | None = 0


def _contain_field(natives: Sequence[bytes], name: str) -> bool:
    return any(b'"%s"' % name.encode() in native for native in natives)
