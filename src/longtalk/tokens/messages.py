"""Count the tokens of whole messages and of the preamble: text, frames, tool calls, images and files.

`count_message` accepts a message in any provider's format and walks through its JSON. Known blocks are counted by rules
of their own, and other strings as text; fields that the model never sees are not counted. Bytes that are not JSON are
counted as one token for every four bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from longtalk._util import json_bytes
from longtalk.errors import InputError
from longtalk.tokens.counters import Counter
from longtalk.tokens.families import CALL_TOKENS, FAMILIES, FRAME_TOKENS
from longtalk.tokens.media import count_blob_tokens, count_image_tokens
from longtalk.tools import Function, Tool

_MAX_VALUES = 20_000
"""The maximum number of values in a message that are examined. The rest is estimated from its size in bytes."""
_UNSEEN_FIELDS = frozenset(
    (
        *("role", "type", "id", "tool_call_id", "tool_use_id", "call_id", "file_id", "index", "status", "is_error"),
        *("signature", "thoughtSignature", "cache_control", "media_type", "format", "detail", "finish_reason"),
        *("logprobs", "phase"),
    )
)
"""Fields of a message that the model does not see, or that are counted as part of the frame."""
_UNSEEN_TOOL_FIELDS = frozenset(("type", "strict", "cache_control"))
_TEXT_FIELDS = frozenset(("text", "content", "thinking", "refusal", "arguments", "name", "output"))
"""Fields whose strings are text, even if they look like base64."""
_GEMINI_PARTS = frozenset(("functionCall", "functionResponse", "inlineData", "fileData"))
_BASE64 = r"[A-Za-z0-9+/_\-\r\n]{256,}={0,2}"
_CLAUDE_TOOL_PROMPT_TOKENS = 350
"""The approximate number of tokens in the system text that Anthropic adds to requests with tools."""


def count_message(native: bytes | Mapping[str, Any], counter: Counter) -> int:
    """Return the number of tokens of a message, including its frame (role and delimiters).

    `native` is the message in any provider's format, as JSON bytes or as a mapping.
    """
    if not isinstance(native, (bytes, bytearray)):
        if not isinstance(native, Mapping):
            raise InputError(
                f"A message must be JSON as bytes, or a mapping, not {type(native).__name__}; "
                "count plain text with counter.count(text)."
            )
        native = _encode(native)
    tally = _Tally(getattr(counter, "family", ""))
    try:
        tally.add(json_bytes.value(native))
    except (ValueError, RecursionError):
        tally.fixed += len(native) // 4
    return tally.count_total(counter)


def count_preamble(system: str | None, tools: Sequence[Function | Mapping[str, Any]], counter: Counter) -> int:
    """Return the number of tokens in the system text and the tools of a request.

    Each tool is a `longtalk.tool`, a plain function, or a mapping in OpenAI's or Anthropic's format.
    """
    if not system and not tools:
        return 0
    tally = _Tally(getattr(counter, "family", ""))
    tally.fixed -= 0 if system else tally.frame
    tally.texts.append(system or "")
    if tools and tally.family.startswith("claude"):
        tally.fixed += _CLAUDE_TOOL_PROMPT_TOKENS
    for tool in tools:
        name, description, schema = _describe_tool(tool)
        tally.fixed += CALL_TOKENS
        tally.texts += (name, description)
        if tally.openai:
            tally.add_schema(json_bytes.value(schema))
        else:
            tally.texts.append(schema.decode())
    return tally.count_total(counter)


def _describe_tool(tool: Function | Mapping[str, Any]) -> tuple[str, str, bytes]:
    """Return a tool's name, its description, and the JSON of its schema.

    For a tool without a schema, such as one that the provider runs, its settings are returned in place of the schema.
    """
    if not isinstance(tool, Mapping):
        described = Tool.from_function(tool)
        return described.name, described.description, described.schema
    inner = tool.get("function") or tool.get("custom")
    fields = dict(inner if isinstance(inner, Mapping) else tool)
    name, description = (str(fields.pop(key, None) or "") for key in ("name", "description"))
    for key in ("input_schema", "parameters", "parametersJsonSchema"):
        if isinstance(fields.get(key), Mapping):
            return name, description, _encode(fields[key])
    return name, description, _encode({key: fields[key] for key in fields if key not in _UNSEEN_TOOL_FIELDS})


def _encode(value: Mapping[str, Any]) -> bytes:
    try:
        return json_bytes.encode(dict(value))
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(f"Can't count the tokens of a value that can't be written as JSON: {problem}.") from None


def _extract_texts(parts: list[Any]) -> list[str] | None:
    """Return the texts of the parts if each part is an object with a `text` and nothing else, or else None."""
    texts = [p["text"] for p in parts if type(p) is dict and len(p) == 1 and type(p.get("text")) is str]
    return texts if len(texts) == len(parts) else None


class _Tally:
    """A count in progress: `texts`, which are counted together, and `fixed`, the number of tokens of all the rest."""

    def __init__(self, family: str) -> None:
        self.family = family
        self.openai = family not in FAMILIES or family in ("o200k", "cl100k")
        self.frame = FRAME_TOKENS.get(family, 4)
        self.fixed = self.frame
        self.texts: list[str] = []

    def count_total(self, counter: Counter) -> int:
        return self.fixed + counter.count("\n".join(filter(None, self.texts)))

    def add(self, value: Any) -> None:
        """Add a JSON value to the tally: known blocks by their own rules, other strings as text."""
        # Not recursive, because the value may be nested deeply.
        pending, remaining = [value], _MAX_VALUES
        while pending:
            value = pending.pop()
            remaining -= 1
            if remaining < 0:
                # No real message is this large. The rest is estimated from its size.
                self.fixed += len(json_bytes.encode([value, *pending])) // 4
                return
            if isinstance(value, str):
                self._add_string(value)
            elif isinstance(value, list):
                # A streamed answer may be thousands of parts with nothing but text.
                texts = _extract_texts(value) if len(value) < remaining else None
                if texts is None:
                    pending += reversed(value)
                else:
                    self.texts += texts
                    remaining -= len(texts)
            elif isinstance(value, dict):
                pending += reversed(self._add_object(value))
            elif value is not None:
                self.fixed += 1

    def add_schema(self, value: Any) -> None:
        """Add a tool's parameters as OpenAI's models see them: names, types and descriptions instead of JSON."""
        pending = [value]
        while pending:
            value = pending.pop()
            if isinstance(value, dict):
                properties = value.get("properties")
                if isinstance(properties, dict):
                    self.fixed += 3 * len(properties)
                    self.texts += properties
                pending += [member for key, member in value.items() if key not in ("required", "title", "$ref")]
            elif isinstance(value, list):
                pending += value
            elif isinstance(value, str):
                self.texts.append(value)

    def _add_object(self, value: dict[str, Any]) -> list[Any]:
        """Add the members of an object that are strings or have rules of their own, and return the other values."""
        kind = value.get("type")
        add_block = _BLOCKS.get(kind) if isinstance(kind, str) else None
        if add_block is not None:
            value = add_block(self, value)
        rest: list[Any] = []
        for key, member in value.items():
            if key in _UNSEEN_FIELDS or member is None or member is True or member is False:
                continue
            if isinstance(member, str) and key == "encrypted_content":
                self._add_encrypted(member)
                continue
            if isinstance(member, str):
                self.texts.append(member) if key in _TEXT_FIELDS else self._add_string(member)
                continue
            if key in ("function", "function_call"):
                self.fixed += CALL_TOKENS
            rest.append(
                self._add_gemini_part(key, member) if key in _GEMINI_PARTS and isinstance(member, dict) else member
            )
        return rest

    def _add_gemini_part(self, key: str, value: dict[str, Any]) -> Any:
        """Add `value`, the member of a Gemini part under `key`, and return what remains to be added (None: nothing)."""
        if key in ("inlineData", "fileData"):
            media_type, data = (value.get(name) for name in ("mimeType", "data"))
            self._add_blob(media_type if isinstance(media_type, str) else "", data if isinstance(data, str) else "")
            return None
        self.fixed += CALL_TOKENS
        args, response = value.get("args"), value.get("response")
        self.texts.append("" if args is None else json_bytes.encode(args).decode())
        results = response if isinstance(response, dict) else {}
        # The strings of a tool's result are text, even if they look like base64.
        self.texts += [member for member in results.values() if isinstance(member, str)]
        others = [member for member in results.values() if not isinstance(member, str)]
        return [{name: value[name] for name in value if name not in ("args", "response")}, *others]

    def _add_string(self, text: str) -> None:
        if text.startswith("data:") and ";base64," in text[:256]:
            self._add_blob(text[5 : text.index(";")], text[text.index(",") + 1 :])
        elif len(text) >= 256 and re.fullmatch(_BASE64, text.rstrip()):
            self._add_blob("", text)
        else:
            self.texts.append(text)

    def _add_blob(self, media_type: str, data: str, detail: object = None) -> None:
        found = count_blob_tokens(self.family, media_type, data, detail)
        if isinstance(found, str):
            self.texts.append(found)
        else:
            self.fixed += found

    def _add_encrypted(self, data: str) -> None:
        """Count encrypted reasoning, which is in base64, as one token for every four decoded bytes."""
        self.fixed += len(data) * 3 // 16

    # One method per type of block. Each adds what has rules of its own and returns the members that remain to be added.

    def _add_image_url(self, value: dict[str, Any]) -> dict[str, Any]:
        image = value.get("image_url")
        fields = image if isinstance(image, dict) else {"url": image, "detail": value.get("detail")}
        url, detail = fields.get("url"), fields.get("detail")
        if isinstance(url, str) and url.startswith("data:") and "," in url:
            self._add_blob("image/", url[url.index(",") + 1 :], detail)
        else:
            self.fixed += count_image_tokens(self.family, None, detail)
        return {}

    def _add_source(self, value: dict[str, Any]) -> dict[str, Any]:
        """Add an image or document in Anthropic's format, and return the members that remain to be added."""
        source = value.get("source")
        rest = {key: member for key, member in value.items() if key != "source"}
        source = source if isinstance(source, dict) else {}
        media_type, data = source.get("media_type"), source.get("data")
        if not isinstance(media_type, str):
            media_type = "image/" if value["type"] == "image" else "application/pdf"
        if source.get("type") in ("text", "content"):
            rest["text" if isinstance(data, str) else "source"] = data or source.get("content")
        elif isinstance(data, str):
            self._add_blob(media_type, data)
        elif value["type"] == "image":
            self.fixed += count_image_tokens(self.family, None)
        else:
            self._add_blob(media_type, "")
        return rest

    def _add_audio(self, value: dict[str, Any]) -> dict[str, Any]:
        audio = value.get("input_audio")
        data = audio.get("data") if isinstance(audio, dict) else None
        self._add_blob("audio/", data if isinstance(data, str) else "")
        return {}

    def _add_file(self, value: dict[str, Any]) -> dict[str, Any]:
        file = value.get("file")
        data = file.get("file_data") if isinstance(file, dict) else None
        if isinstance(data, str) and data.startswith("data:"):
            self._add_string(data)
        else:
            self._add_blob("application/pdf", data if isinstance(data, str) else "")
        return {"name": file.get("filename")} if isinstance(file, dict) else {}

    def _add_input_file(self, value: dict[str, Any]) -> dict[str, Any]:
        return self._add_file({"file": value})

    def _add_tool_use(self, value: dict[str, Any]) -> dict[str, Any]:
        self.fixed += CALL_TOKENS
        arguments = value.get("input")
        self.texts.append("" if arguments is None else json_bytes.encode(arguments).decode())
        return {key: member for key, member in value.items() if key != "input"}

    def _add_call_frame(self, value: dict[str, Any]) -> dict[str, Any]:
        self.fixed += CALL_TOKENS
        return value

    def _add_redacted_thinking(self, value: dict[str, Any]) -> dict[str, Any]:
        data = value.get("data")
        self._add_encrypted(data if isinstance(data, str) else "")
        return {}

    def _skip_reasoning_summary(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return OpenAI's reasoning without its summary, which the model does not see."""
        return {key: member for key, member in value.items() if key != "summary"}


_BLOCKS: Mapping[str, Any] = {
    "image_url": _Tally._add_image_url,
    "input_image": _Tally._add_image_url,
    "image": _Tally._add_source,
    "document": _Tally._add_source,
    "input_audio": _Tally._add_audio,
    "file": _Tally._add_file,
    "input_file": _Tally._add_input_file,
    "tool_use": _Tally._add_tool_use,
    "server_tool_use": _Tally._add_tool_use,
    "redacted_thinking": _Tally._add_redacted_thinking,
    "reasoning": _Tally._skip_reasoning_summary,
    **dict.fromkeys(("tool_result", "function_call", "function_call_output"), _Tally._add_call_frame),
    **dict.fromkeys(("custom_tool_call", "custom_tool_call_output"), _Tally._add_call_frame),
}
