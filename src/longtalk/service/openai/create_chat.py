"""The body of `POST /v1/chat/completions`, and the turn that it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk.providers.base import AsyncProvider
from longtalk.service.errors import ApiError
from longtalk.service.openai.client_tools import make_function
from longtalk.service.openai.create_response import check_metadata
from longtalk.service.openai.options import (
    Penalty,
    Positive,
    Seed,
    Share,
    Temperature,
    TopLogprobs,
    to_provider_options,
)
from longtalk.tools import Tool

_SYSTEM = (b'"system"', b'"developer"')


class StreamOptions(msgspec.Struct):
    """What a streamed answer includes."""

    include_usage: bool = False
    include_obfuscation: bool | None = None


class CreateChat(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of a request for a chat completion, and `conversation`, which only this service has."""

    messages: list[msgspec.Raw]
    model: str | None = None
    conversation: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    seed: Seed | None = None
    user: str | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    modalities: list[str] | None = None

    def check(self) -> None:
        """Raise `ApiError` for fields that the service does not support."""
        if self.n not in (None, 1):
            raise ApiError(400, "`n` must be 1: a conversation continues with one answer.", param="n")
        if self.logprobs or self.top_logprobs:
            raise ApiError(400, "`logprobs` is not supported here.", param="logprobs", code="unsupported_parameter")
        if self.modalities not in (None, ["text"]):
            raise ApiError(400, "`modalities` must be ['text'].", param="modalities", code="unsupported_parameter")
        check_metadata(self.metadata)

    def split_messages(self) -> tuple[str | None, list[bytes]]:
        """Return the text of the leading system messages, and the other messages."""
        natives = [bytes(each) for each in self.messages]
        texts: list[str] = []
        for number, native in enumerate(natives):
            if native[:1] != b"{":
                raise ApiError(400, f"Message {number} is not an object.", param=f"messages[{number}]")
            if json_bytes.fields(native).get("role") not in _SYSTEM:
                break
            texts.append(_read_text(json_bytes.value(native).get("content"), f"messages[{number}]"))
        return "\n\n".join(texts) if texts else None, natives[len(texts) :]

    def make_tools(self) -> list[Tool]:
        """Return the client's functions."""
        made = []
        for i, tool in enumerate(self.tools or ()):
            function = tool.get("function")
            if tool.get("type") != "function" or not isinstance(function, Mapping):
                raise ApiError(400, "Only tools of the type 'function' are supported.", param=f"tools[{i}]")
            made.append(make_function({**function, "type": "function"}, f"tools[{i}].function"))
        return made

    def make_options(self, provider: AsyncProvider) -> dict[str, Any]:
        """Return the options of the model call."""
        choice: Any = self.tool_choice if self.tools else None
        if isinstance(choice, dict) and isinstance(choice.get("function"), Mapping):
            choice = {"type": "function", "name": choice["function"].get("name")}
        form = self.response_format or {}
        fields = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "stop": self.stop,
            "max_output_tokens": self.max_completion_tokens or self.max_tokens,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "logit_bias": self.logit_bias or None,
            "seed": self.seed,
            "user": self.user,
            "reasoning": {"effort": self.reasoning_effort},
            "verbosity": self.verbosity,
            "service_tier": self.service_tier,
            "prompt_cache_key": self.prompt_cache_key,
            "prompt_cache_options": self.prompt_cache_options,
            "prompt_cache_retention": self.prompt_cache_retention,
            "safety_identifier": self.safety_identifier,
            "tool_choice": choice,
            "parallel_tool_calls": self.parallel_tool_calls if self.tools else None,
            "json_object": True if form.get("type") == "json_object" else None,
        }
        return to_provider_options(fields, provider)

    def read_output_schema(self) -> Mapping[str, Any] | None:
        """Return the JSON Schema that the answer must match, or None for text."""
        form = self.response_format or {}
        if form.get("type") in (None, "text", "json_object"):
            return None
        given = form.get("json_schema")
        if (
            form.get("type") != "json_schema"
            or not isinstance(given, dict)
            or not isinstance(given.get("schema"), dict)
        ):
            raise ApiError(400, "`response_format` must be text, json_object or json_schema.", param="response_format")
        return {"title": given.get("name", "answer"), **given["schema"]}


def _read_text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ApiError(400, "A system message may contain only text.", param=f"{where}.content")
    return "".join(map(str, texts))
