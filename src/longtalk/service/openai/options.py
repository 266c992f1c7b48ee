"""Request options of OpenAI's API in the form of each provider.

What a provider can't do is an error that names the field, never left out without a word. Servers that speak the wire of
Chat Completions read different parts of it and often ignore the rest, so they are told apart (`servers`). Hints that
change nothing about the answer (`prompt_cache_key`, `user` …) are passed on where the provider knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from longtalk.providers.base import AsyncProvider
from longtalk.service.errors import ApiError, quote
from longtalk.service.openai import servers
from longtalk.service.openai.fields import HINTS, unsupported
from longtalk.wires.registry import find_family

_DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "tool_choice": ("auto",),
    "parallel_tool_calls": (True,),
    "service_tier": ("auto", "default"),
    "verbosity": ("medium",),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    # As much as the provider shows anyway.
    "reasoning.summary": ("auto",),
    "reasoning.generate_summary": ("auto",),
    "reasoning.context": ("auto",),
    "reasoning.mode": ("standard",),
    "prompt_cache_options.mode": ("implicit",),
}
"""Values that ask for what every provider does anyway."""

Mapped = dict[str, Any]
Mapper = Callable[[Any, AsyncProvider], Mapped]


def to_provider_options(
    fields: Mapping[str, Any],
    provider: AsyncProvider,
    *,
    names: Mapping[str, str] | None = None,
    known: Mapping[str, Any] | None = None,
) -> Mapped:
    """Return the options of a request for a provider. Fields that are None are left out.

    The names of `fields` are those of the Responses API, with the parts of an object as `reasoning.effort`;
    `verbosity`, `json_object`, `stop`, `seed` and the penalties may be among them. `names` has other names under which
    the client knows them, for errors. `known` are the options of the settings: what they have, the provider can do.
    Raises `ApiError` for a field that the provider has no option for.
    """
    family = find_family(provider.wire)
    lacks = servers.list_missing(provider) if family == "openai-chat" else frozenset()
    options: Mapped = {}
    for name, value in fields.items():
        if value is None:
            continue
        param = (names or {}).get(name, name)
        mapper = _MAPPERS.get(family, {}).get(name)
        try:
            made = mapper(value, provider) if mapper is not None else None
        except _NotTranslated:
            made = None
        if made is not None and (name not in lacks or set(made) <= set(known or ())):
            _merge(options, made)
        elif name not in HINTS and value not in _DEFAULTS.get(name, ()):
            shown = f"the value {quote(value)} of `{param}`" if isinstance(value, str) else f"`{param}`"
            raise unsupported(param, f"can't be used: {provider.label} has no option for {shown}. Leave it out")
    return options


class _NotTranslated(Exception):
    """Raised by a mapper for a value that the provider has no word for."""


def _merge(options: Mapped, more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        present = options.get(name)
        if isinstance(present, dict) and isinstance(value, dict):
            present = dict(present)
            _merge(present, value)
            options[name] = present
        else:
            options[name] = value


def _same(name: str) -> Mapper:
    return lambda value, _: {name: value}


def _inside(group: str, name: str) -> Mapper:
    return lambda value, _: {group: {name: value}}


def _words(words: Mapping[str, Mapped]) -> Mapper:
    """Return a mapper for a field that has a fixed form for each of its values."""

    def translate(value: Any, _: AsyncProvider) -> Mapped:
        if value not in words:
            raise _NotTranslated
        return words[value]

    return translate


def _limit_chat_answer(value: Any, provider: AsyncProvider) -> Mapped:
    # Other servers than OpenAI's know the older name only.
    return {"max_completion_tokens" if provider.label.startswith("openai-chat:") else "max_tokens": value}


def _choose_chat_tool(value: Any, provider: AsyncProvider) -> Mapped:
    if isinstance(value, str):
        return {"tool_choice": value}
    if not servers.can_name_tool(provider):
        raise _NotTranslated
    return {"tool_choice": {"type": "function", "function": {"name": _read_tool_name(value)}}}


def _seed_chat(value: Any, provider: AsyncProvider) -> Mapped:
    return {"random_seed" if provider.label.startswith("mistral:") else "seed": value}


def _choose_responses_tool(value: Any, _: AsyncProvider) -> Mapped:
    return {"tool_choice": value if isinstance(value, str) else {"type": "function", "name": _read_tool_name(value)}}


def _choose_anthropic_tool(value: Any, _: AsyncProvider) -> Mapped:
    kinds = {"auto": "auto", "required": "any", "none": "none"}
    if isinstance(value, str) and value in kinds:
        return {"tool_choice": {"type": kinds[value]}}
    return {"tool_choice": {"type": "tool", "name": _read_tool_name(value)}}


def _choose_gemini_tool(value: Any, _: AsyncProvider) -> Mapped:
    modes = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
    if isinstance(value, str) and value in modes:
        config: Mapped = {"mode": modes[value]}
    else:
        config = {"mode": "ANY", "allowedFunctionNames": [_read_tool_name(value)]}
    return {"toolConfig": {"functionCallingConfig": config}}


def _read_tool_name(value: Any) -> str:
    if isinstance(value, Mapping) and value.get("type") == "function" and isinstance(value.get("name"), str):
        return str(value["name"])
    raise ApiError(
        400, "`tool_choice` must be 'auto', 'required', 'none' or name a function of this request.", param="tool_choice"
    )


def _one_call_at_a_time(value: Any, _: AsyncProvider) -> Mapped:
    return {} if value else {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}


def _think(value: Any, provider: AsyncProvider) -> Mapped:
    """Return how much a Gemini model thinks: as a level, or as a number of tokens before Gemini 3."""
    budgets = {"none": 0, "low": 1_024, "medium": 8_192, "high": 24_576}
    is_old = provider.model.removeprefix("models/").startswith(("gemini-1", "gemini-2"))
    if value not in (budgets if is_old else ("minimal", "low", "medium", "high")):
        raise _NotTranslated
    config = {"thinkingBudget": budgets[value]} if is_old else {"thinkingLevel": value}
    return {"generationConfig": {"thinkingConfig": config}}


def _stop_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


_OPENAI: Mapping[str, Mapper] = {
    name: _same(name)
    for name in (
        *("temperature", "top_p", "parallel_tool_calls", "service_tier", "prompt_cache_key", "safety_identifier"),
        *("prompt_cache_retention", "user"),
    )
} | {f"prompt_cache_options.{name}": _inside("prompt_cache_options", name) for name in ("mode", "ttl")}
_MAPPERS: Mapping[str, Mapping[str, Mapper]] = {
    "openai-responses": {
        **_OPENAI,
        **{
            f"reasoning.{name}": _inside("reasoning", name)
            for name in ("effort", "summary", "generate_summary", "context", "mode")
        },
        "max_output_tokens": _same("max_output_tokens"),
        "tool_choice": _choose_responses_tool,
        "verbosity": _inside("text", "verbosity"),
        "json_object": lambda _value, _provider: {"text": {"format": {"type": "json_object"}}},
    },
    "openai-chat": {
        **_OPENAI,
        **{name: _same(name) for name in ("stop", "frequency_penalty", "presence_penalty", "logit_bias", "verbosity")},
        "seed": _seed_chat,
        "max_output_tokens": _limit_chat_answer,
        "tool_choice": _choose_chat_tool,
        "reasoning.effort": _same("reasoning_effort"),
        "json_object": lambda _value, _provider: {"response_format": {"type": "json_object"}},
    },
    "anthropic": {
        "temperature": _same("temperature"),
        "top_p": _same("top_p"),
        "max_output_tokens": _same("max_tokens"),
        "stop": lambda value, _: {"stop_sequences": _stop_list(value)},
        "tool_choice": _choose_anthropic_tool,
        "parallel_tool_calls": _one_call_at_a_time,
        "reasoning.effort": _words(
            {each: {"output_config": {"effort": each}} for each in ("low", "medium", "high", "xhigh", "max")}
            | {"none": {"thinking": {"type": "disabled"}}}
        ),
        "user": _inside("metadata", "user_id"),
        "safety_identifier": _inside("metadata", "user_id"),
    },
    "gemini": {
        "temperature": _inside("generationConfig", "temperature"),
        "top_p": _inside("generationConfig", "topP"),
        "max_output_tokens": _inside("generationConfig", "maxOutputTokens"),
        "stop": lambda value, _: {"generationConfig": {"stopSequences": _stop_list(value)}},
        "seed": _inside("generationConfig", "seed"),
        "frequency_penalty": _inside("generationConfig", "frequencyPenalty"),
        "presence_penalty": _inside("generationConfig", "presencePenalty"),
        "json_object": lambda _value, _provider: {"generationConfig": {"responseMimeType": "application/json"}},
        "tool_choice": _choose_gemini_tool,
        "reasoning.effort": _think,
    },
}
