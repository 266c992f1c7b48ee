"""The body of `POST /v1/chat/completions`, and the turn that it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk.providers.base import AsyncProvider
from longtalk.service.errors import ApiError
from longtalk.service.openai.client_output import ClientOutput, read_output
from longtalk.service.openai.client_tools import Choice, check_names, choose_tools, make_function
from longtalk.service.openai.create_response import check_metadata
from longtalk.service.openai.fields import CHAT_FIELDS, check_fields
from longtalk.service.openai.input_items import check_chat_message
from longtalk.service.openai.options import to_provider_options
from longtalk.service.openai.request_parts import (
    Bias,
    ChatStreamOptions,
    Effort,
    Penalty,
    Positive,
    PromptCacheOptions,
    Retention,
    Seed,
    ServiceTier,
    Share,
    Temperature,
    ToolChoice,
    TopLogprobs,
    Verbosity,
)
from longtalk.tools import Tool

_MOST_STOPS = 4
_SYSTEM = (b'"system"', b'"developer"')


class CreateChat(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of a request for a chat completion, and `conversation`, which only this service has."""

    messages: list[msgspec.Raw]
    model: str | None = None
    conversation: str | None = None
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None
    store: bool | None = None
    metadata: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice | dict[str, Any] | None = None
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
    logit_bias: dict[str, Bias] | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    seed: Seed | None = None
    user: str | None = None
    reasoning_effort: Effort | None = None
    verbosity: Verbosity | None = None
    service_tier: ServiceTier | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: Retention | None = None
    safety_identifier: str | None = None
    modalities: list[str] | None = None
    audio: Any = None
    function_call: Any = None
    functions: Any = None
    moderation: Any = None
    prediction: Any = None
    web_search_options: Any = None

    @property
    def obfuscates(self) -> bool:
        """Whether pieces of a stream have random characters."""
        return bool(self.stream_options and self.stream_options.include_obfuscation)

    def check(self) -> None:
        """Raise `ApiError` for fields that the service does not support."""
        if self.n not in (None, 1):
            message = "`n` must be 1: a conversation continues with one answer."
            raise ApiError(400, message, param="n", code="unsupported_value")
        check_fields(self, CHAT_FIELDS)
        if self.prompt_cache_options is not None:
            self.prompt_cache_options.check()
        if self.stream_options is not None and not self.stream:
            message = "`stream_options` can be used only with `stream`."
            raise ApiError(400, message, param="stream_options", code="invalid_value")
        if self.modalities not in (None, ["text"]):
            raise ApiError(400, '`modalities` must be ["text"].', param="modalities", code="unsupported_parameter")
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            message = "Use either `max_tokens` or `max_completion_tokens`, not both."
            raise ApiError(400, message, param="max_tokens", code="invalid_parameter_combination")
        if isinstance(self.stop, list) and len(self.stop) > _MOST_STOPS:
            message = f"`stop` has {len(self.stop)} texts; the limit is {_MOST_STOPS}."
            raise ApiError(400, message, param="stop", code="array_above_max_length")
        check_metadata(self.metadata)

    def split_messages(self) -> tuple[str | None, list[bytes]]:
        """Return the text of the leading system messages, and the other messages."""
        natives = [bytes(each) for each in self.messages]
        for number, native in enumerate(natives):
            place = f"messages[{number}]"
            if native[:1] != b"{":
                raise ApiError(400, f"`{place}` must be an object.", param=place, code="invalid_value")
            check_chat_message(json_bytes.value(native), place)
        texts: list[str] = []
        for number, native in enumerate(natives):
            if json_bytes.fields(native).get("role") not in _SYSTEM:
                break
            texts.append(_read_text(json_bytes.value(native).get("content"), f"messages[{number}]"))
        return "\n\n".join(texts) if texts else None, natives[len(texts) :]

    def choose_tools(self) -> Choice:
        """Return the client's functions, and the choice of them."""
        made: list[Tool] = []
        for i, tool in enumerate(self.tools or ()):
            function = tool.get("function")
            if tool.get("type") != "function" or not isinstance(function, Mapping):
                kind = "function" if tool.get("type") == "function" else "type"
                message = "Only tools of the type 'function' are supported."
                raise ApiError(400, message, param=f"tools[{i}].{kind}", code="unsupported_value")
            made.append(make_function({**function, "type": "function"}, f"tools[{i}].function"))
        check_names(made, "tools", ".function")
        return choose_tools(made, self.tool_choice)

    def make_options(self, provider: AsyncProvider, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the options of the model call. `known` are those of the settings, which the provider can do."""
        choice: Any = self.tool_choice if self.tools else None
        choice = self.choose_tools().choice if isinstance(choice, dict) else choice
        limit = "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"
        fields = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "stop": self.stop,
            "max_output_tokens": getattr(self, limit),
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "logit_bias": self.logit_bias or None,
            "seed": self.seed,
            "reasoning.effort": self.reasoning_effort,
            "verbosity": self.verbosity,
            "service_tier": self.service_tier,
            "prompt_cache_key": self.prompt_cache_key,
            **(self.prompt_cache_options or PromptCacheOptions()).to_fields(),
            "prompt_cache_retention": self.prompt_cache_retention,
            "user": self.user,
            "safety_identifier": self.safety_identifier,
            "parallel_tool_calls": self.parallel_tool_calls if self.tools and choice != "none" else None,
            "tool_choice": choice,
            "json_object": True if (self.response_format or {}).get("type") == "json_object" else None,
        }
        return to_provider_options(fields, provider, names={**_NAMES, "max_output_tokens": limit}, known=known)

    def read_output(self) -> ClientOutput | None:
        """Return the schema that the answer must match, or None for text."""
        form, place = self.response_format, "response_format.json_schema"
        if form is None or form.get("type") != "json_schema":
            return read_output(form, "response_format", place)
        if not isinstance(form.get("json_schema"), dict):
            raise ApiError(400, f"`{place}` must be an object.", param=place, code="invalid_type")
        return read_output({**form["json_schema"], "type": "json_schema"}, "response_format", place)


_NAMES = {"reasoning.effort": "reasoning_effort", "json_object": "response_format"}
"""Options under the names that clients of Chat Completions know."""


def _read_text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ApiError(400, "A system message may contain only text.", param=f"{where}.content")
    return "".join(map(str, texts))
