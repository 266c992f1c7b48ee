"""The body of `POST /v1/responses`, and the turn that it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from longtalk._util import json_bytes
from longtalk.errors import InputError
from longtalk.policies import Combine, Policy, Summarize
from longtalk.providers.base import AsyncProvider
from longtalk.service.errors import ApiError
from longtalk.service.openai.client_output import ClientOutput, read_output
from longtalk.service.openai.client_tools import (
    CallForm,
    Choice,
    choose_tools,
    list_call_forms,
    make_functions,
    to_function_item,
)
from longtalk.service.openai.fields import ENCRYPTED, RESPONSE_FIELDS, check_fields, check_include
from longtalk.service.openai.input_items import check_items
from longtalk.service.openai.item_references import is_reference
from longtalk.service.openai.items import drop_id
from longtalk.service.openai.options import to_provider_options
from longtalk.service.openai.request_parts import (
    Penalty,
    Positive,
    PromptCacheOptions,
    Reasoning,
    Retention,
    ServiceTier,
    Share,
    StreamOptions,
    Temperature,
    Text,
    ToolChoice,
    TopLogprobs,
)
from longtalk.service.openai.truncation import refuse_overflow

_MOST_METADATA = 16
_LONGEST_METADATA_KEY = 64
_LONGEST_METADATA_VALUE = 512


class ConversationRef(msgspec.Struct, forbid_unknown_fields=True):
    """A conversation by its id."""

    id: str


class CreateResponse(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of a request for a response."""

    input: msgspec.Raw = msgspec.Raw(b'""')
    model: str | None = None
    instructions: str | None = None
    conversation: str | ConversationRef | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    background: bool | None = None
    include: list[str] | None = None
    metadata: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: Positive | None = None
    max_output_tokens: Positive | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    top_logprobs: TopLogprobs | None = None
    reasoning: Reasoning | None = None
    text: Text | None = None
    truncation: Literal["auto", "disabled"] | None = None
    service_tier: ServiceTier | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: Retention | None = None
    safety_identifier: str | None = None
    user: str | None = None
    prompt: Any = None
    access_programs: Any = None
    image: Any = None
    moderation: Any = None
    context_management: list[dict[str, Any]] | None = None
    client_metadata: dict[str, Any] | None = None

    @property
    def is_stored(self) -> bool:
        return self.store is not False

    @property
    def conversation_id(self) -> str | None:
        """The id of the conversation that the request names."""
        return self.conversation.id if isinstance(self.conversation, ConversationRef) else self.conversation

    def check(self) -> None:
        """Raise `ApiError` for fields that contradict each other or are not supported."""
        if self.previous_response_id and self.conversation is not None:
            message = "Use either `previous_response_id` or `conversation`, not both."
            raise ApiError(400, message, param="previous_response_id", code="mutually_exclusive_parameters")
        if self.background and not self.is_stored:
            raise ApiError(400, "A background response must be stored: leave `store` out.", param="background")
        check_fields(self, RESPONSE_FIELDS)
        if self.prompt_cache_options is not None:
            self.prompt_cache_options.check()
        check_include(self.include or ())
        check_metadata(self.metadata)

    @property
    def compacts(self) -> bool:
        """Whether the client has asked for compaction, and gets an item for each one."""
        return bool(self.context_management)

    @property
    def obfuscates(self) -> bool:
        """Whether pieces of a stream have random characters."""
        return bool(self.stream_options and self.stream_options.include_obfuscation)

    @property
    def wants_encrypted(self) -> bool:
        """Whether reasoning items include the provider's encrypted reasoning."""
        return ENCRYPTED in (self.include or ())

    def choose_policy(self, policy: Policy, provider: AsyncProvider) -> Policy:
        """Return the policy of the turn: that of the model, with what `context_management` and `truncation` ask for."""
        for number, each in enumerate(self.context_management or ()):
            where = f"context_management[{number}]"
            if each.get("type") != "compaction":
                raise ApiError(400, "`context_management` supports only the type 'compaction'.", param=f"{where}.type")
            threshold = each.get("compact_threshold")
            if threshold is None:
                continue
            try:
                policy = Combine(policy, Summarize(threshold))
            except InputError as problem:
                raise ApiError(400, str(problem), param=f"{where}.compact_threshold") from None
        return refuse_overflow(policy, provider) if self.truncation == "disabled" else policy

    @property
    def call_forms(self) -> dict[str, CallForm]:
        """The forms in which the input has calls and results, if they differ from that of a function, by call id."""
        raw = bytes(self.input)
        return list_call_forms(json_bytes.items(raw) if raw[:1] == b"[" else ())

    def read_input(self) -> list[bytes]:
        """Return the input as items. References to items are still among them."""
        raw = bytes(self.input)
        if raw[:1] == b'"':
            text = json_bytes.text(raw)
            return [json_bytes.encode({"type": "message", "role": "user", "content": text})] if text else []
        if raw in (b"", b"null"):
            return []
        if raw[:1] != b"[":
            raise ApiError(400, "`input` must be text or a list of items.", param="input")
        items = json_bytes.items(raw)
        check_items(items, "input")
        return [item if is_reference(item) else to_function_item(drop_id(item)) for item in items]

    def choose_tools(self) -> Choice:
        """Return the client's functions, and the choice of them.

        Raises `ApiError` for a tool that only OpenAI's own servers run.
        """
        return choose_tools(make_functions(self.tools or (), "tools"), self.tool_choice)

    def make_options(self, provider: AsyncProvider, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the options of the model call. `known` are those of the settings, which the provider can do."""
        choice: Any = self.tool_choice if self.tools else None
        choice = self.choose_tools().choice if isinstance(choice, dict) else choice
        text = self.text or Text()
        fields = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "max_output_tokens": self.max_output_tokens,
            "parallel_tool_calls": self.parallel_tool_calls if self.tools and choice != "none" else None,
            "tool_choice": choice,
            **(self.reasoning or Reasoning()).to_fields(),
            "verbosity": text.verbosity,
            "service_tier": self.service_tier,
            "prompt_cache_key": self.prompt_cache_key,
            **(self.prompt_cache_options or PromptCacheOptions()).to_fields(),
            "prompt_cache_retention": self.prompt_cache_retention,
            "user": self.user,
            "safety_identifier": self.safety_identifier,
            "json_object": True if (text.format or {}).get("type") == "json_object" else None,
        }
        return to_provider_options(fields, provider, names=_NAMES, known=known)

    def read_output(self) -> ClientOutput | None:
        """Return the schema that the answer must match, or None for text."""
        return read_output(self.text.format if self.text is not None else None, "text.format", "text.format")

    def to_echo(self) -> dict[str, Any]:
        """Return the fields that the response repeats."""
        given = {
            "background": self.background,
            "conversation": {"id": self.conversation_id} if self.conversation_id else None,
            "frequency_penalty": self.frequency_penalty,
            "include": self.include,
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": self.max_tool_calls,
            "metadata": self.metadata,
            "parallel_tool_calls": self.parallel_tool_calls,
            "presence_penalty": self.presence_penalty,
            "previous_response_id": self.previous_response_id,
            "prompt_cache_key": self.prompt_cache_key,
            "prompt_cache_options": msgspec.to_builtins(self.prompt_cache_options),
            "prompt_cache_retention": self.prompt_cache_retention,
            "reasoning": msgspec.to_builtins(self.reasoning),
            "safety_identifier": self.safety_identifier,
            "service_tier": self.service_tier,
            "store": self.store,
            "temperature": self.temperature,
            "text": msgspec.to_builtins(self.text),
            "tool_choice": self.tool_choice,
            "tools": self.tools,
            "top_logprobs": self.top_logprobs,
            "top_p": self.top_p,
            "truncation": self.truncation,
            "user": self.user,
        }
        return {name: value for name, value in given.items() if value is not None}


def check_metadata(metadata: Mapping[str, Any] | None) -> None:
    """Raise `ApiError` unless metadata has the form and the size that the API allows."""
    given = metadata or {}
    if len(given) > _MOST_METADATA:
        message = f"`metadata` has {len(given)} keys; the limit is {_MOST_METADATA}."
        raise ApiError(400, message, param="metadata", code="object_above_max_properties")
    for key, value in given.items():
        param = f"metadata.{key[:_LONGEST_METADATA_KEY]}"
        if not isinstance(value, str):
            raise ApiError(400, f"`{param}` must be a string.", param=param, code="invalid_type")
        for what, size, most in (
            ("key", len(key), _LONGEST_METADATA_KEY),
            ("value", len(value), _LONGEST_METADATA_VALUE),
        ):
            if size > most:
                message = f"The {what} of `{param}` has {size} characters; the limit is {most}."
                raise ApiError(400, message, param=param, code="string_above_max_length")


_NAMES = {"verbosity": "text.verbosity", "json_object": "text.format"}
"""Options under the names that clients of the Responses API know."""
