"""Request options of OpenAI's API in the form of each provider.

What a provider can't do is an error that names the field, never left out without a word. Hints that change nothing
about the answer (`prompt_cache_key`, `user` …) are passed on where the provider knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from msgspec import Meta

from longtalk.providers.base import AsyncProvider
from longtalk.service.errors import ApiError
from longtalk.wires.registry import find_family

_HINTS = ("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "user")
_DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "tool_choice": ("auto",),
    "parallel_tool_calls": (True,),
    "service_tier": ("auto", "default"),
    "verbosity": ("medium",),
    "top_logprobs": (0,),
    "n": (1,),
    "logprobs": (False,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
}
"""Values that ask for what every provider does anyway."""

Positive = Annotated[int, Meta(ge=1, le=2**53 - 1)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Share = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
TopLogprobs = Annotated[int, Meta(ge=0, le=20)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

Mapped = dict[str, Any]


def to_provider_options(fields: Mapping[str, Any], provider: AsyncProvider) -> Mapped:
    """Return the options of a request for a provider. The names of `fields` are those of the Responses API.

    `stop`, `seed` and the penalties of Chat Completions may be among them. Fields that are None are left out. Raises
    `ApiError` for a field that the provider has no option for.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    reasoning = {name: value for name, value in (given.pop("reasoning", None) or {}).items() if value is not None}
    family = find_family(provider.wire)
    if family != "openai-responses" and reasoning.get("summary") == "auto":
        # It asks for as much as the provider shows anyway.
        del reasoning["summary"]
    if reasoning:
        given["reasoning"] = reasoning
    options: Mapped = {}
    for name, value in given.items():
        mapper = _MAPPERS.get(family, {}).get(name)
        if mapper is not None:
            _merge(options, mapper(value, provider))
        elif name not in _HINTS and value not in _DEFAULTS.get(name, ()):
            raise ApiError(
                400,
                f"{provider.label} has no option for {name!r}: leave it out.",
                param=name,
                code="unsupported_parameter",
            )
    return options


def _merge(options: Mapped, more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        present = options.get(name)
        options[name] = {**present, **value} if isinstance(present, dict) and isinstance(value, dict) else value


def _same(name: str) -> Callable[[Any, AsyncProvider], Mapped]:
    return lambda value, _: {name: value}


def _inside(group: str, name: str) -> Callable[[Any, AsyncProvider], Mapped]:
    return lambda value, _: {group: {name: value}}


def _limit_chat_answer(value: Any, provider: AsyncProvider) -> Mapped:
    # Other servers than OpenAI's know the older name only.
    return {"max_completion_tokens" if provider.label.startswith("openai-chat:") else "max_tokens": value}


def _choose_chat_tool(value: Any, _: AsyncProvider) -> Mapped:
    if isinstance(value, Mapping) and "name" in value:
        value = {"type": "function", "function": {"name": value["name"]}}
    return {"tool_choice": value}


def _reason_in_chat(value: Mapping[str, Any], provider: AsyncProvider) -> Mapped:
    _only_effort(value, provider)
    return {"reasoning_effort": value["effort"]}


def _only_effort(value: Mapping[str, Any], provider: AsyncProvider) -> None:
    other = next((name for name in value if name != "effort"), None)
    if other is not None:
        raise ApiError(
            400,
            f"{provider.label} has no option for 'reasoning.{other}': leave it out.",
            param=f"reasoning.{other}",
            code="unsupported_parameter",
        )


def _choose_responses_tool(value: Any, _: AsyncProvider) -> Mapped:
    return {"tool_choice": value}


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
        400,
        f"`tool_choice` must be 'auto', 'required', 'none' or name a function, not {value!r:.200}.",
        param="tool_choice",
    )


def _one_call_at_a_time(value: Any, _: AsyncProvider) -> Mapped:
    return {} if value else {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}


def _stop_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


_OPENAI = ("temperature", "top_p", "parallel_tool_calls", "top_logprobs", "service_tier", *_HINTS)
_MAPPERS: Mapping[str, Mapping[str, Callable[[Any, AsyncProvider], Mapped]]] = {
    "openai-responses": {
        **{name: _same(name) for name in (*_OPENAI, "max_output_tokens", "reasoning")},
        "tool_choice": _choose_responses_tool,
        "verbosity": _inside("text", "verbosity"),
        "json_object": lambda _value, _provider: {"text": {"format": {"type": "json_object"}}},
    },
    "openai-chat": {
        **{name: _same(name) for name in (*_OPENAI, "stop", "seed", "frequency_penalty", "presence_penalty")},
        **{name: _same(name) for name in ("logit_bias", "logprobs", "verbosity")},
        "max_output_tokens": _limit_chat_answer,
        "tool_choice": _choose_chat_tool,
        "reasoning": _reason_in_chat,
        "json_object": lambda _value, _provider: {"response_format": {"type": "json_object"}},
    },
    "anthropic": {
        "temperature": _same("temperature"),
        "top_p": _same("top_p"),
        "max_output_tokens": _same("max_tokens"),
        "stop": lambda value, _: {"stop_sequences": _stop_list(value)},
        "tool_choice": _choose_anthropic_tool,
        "parallel_tool_calls": _one_call_at_a_time,
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
    },
}
