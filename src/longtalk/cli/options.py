"""Options for the provider on the command line: parse them, and point out those that the model does not have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from longtalk.cli.output import escape_line, print_note
from longtalk.errors import InputError
from longtalk.providers.base import Provider
from longtalk.providers.registry import PROVIDERS
from longtalk.wires import AGENTS

_NUMBERS = (
    "temperature",
    "top_p",
    "top_k",
    "max_tokens",
    "max_output_tokens",
    "seed",
    "frequency_penalty",
    "presence_penalty",
)
"""Options of many providers that are numbers."""
_OPENAI = (
    "metadata parallel_tool_calls prompt_cache_key prompt_cache_options prompt_cache_retention safety_identifier "
    "service_tier store temperature tool_choice tools top_logprobs top_p user"
)
_KNOWN: Mapping[str, Sequence[str]] = {
    name: sorted(words.split())
    for name, words in {
        # The parameters of llama.cpp's server.
        "local": "adaptive_decay adaptive_target cache_prompt chat_template_kwargs dry_allowed_length dry_base "
        "dry_multiplier dry_penalty_last_n dry_sequence_breakers dynatemp_exponent dynatemp_range frequency_penalty "
        "grammar ignore_eos json_schema logit_bias logprobs max_completion_tokens max_tokens min_keep min_p mirostat "
        "mirostat_eta mirostat_tau n_keep n_predict n_probs parallel_tool_calls presence_penalty reasoning_effort "
        "reasoning_format repeat_last_n repeat_penalty response_format samplers seed stop t_max_predict_ms temperature "
        "timings_per_token tool_choice tools top_k top_logprobs top_n_sigma top_p typical_p xtc_probability "
        "xtc_threshold",
        # Those of OpenAI, and some of servers that speak its format.
        "openai-chat": f"{_OPENAI} audio chat_template_kwargs enable_thinking frequency_penalty grammar guided_json "
        "json_schema logit_bias logprobs max_completion_tokens max_tokens min_p modalities models plugins prediction "
        "presence_penalty provider random_seed reasoning reasoning_effort reasoning_format repeat_penalty "
        "repetition_penalty response_format route safe_prompt search_parameters seed stop stream_options thinking "
        "top_k transforms verbosity web_search_options",
        "openai-responses": f"{_OPENAI} context_management conversation include max_output_tokens max_tool_calls "
        "previous_response_id prompt reasoning stream_options text truncation",
        "anthropic": "cache_control container context_management inference_geo max_tokens mcp_servers metadata "
        "output_config service_tier speed stop_sequences temperature thinking tool_choice tools top_k top_p",
        "gemini": "cachedContent generationConfig labels safetySettings serviceTier store toolConfig tools",
    }.items()
}
"""The options that each wire, and the engine of the local models, is known to have."""
ALL = frozenset(name for names in _KNOWN.values() for name in names)
"""The options that any model is known to have."""
_USUAL = ("max_tokens", "min_p", "repeat_penalty", "seed", "stop", "temperature", "top_k", "top_p")
"""What an error names of the local engine's options."""
_GEMINI_CONFIG = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "stop": "stopSequences",
    "max_tokens": "maxOutputTokens",
    "max_output_tokens": "maxOutputTokens",
    "frequency_penalty": "frequencyPenalty",
    "presence_penalty": "presencePenalty",
}
"""What Gemini calls options that other providers have outside of `generationConfig`."""


def parse_options(options: Sequence[tuple[str, str]]) -> dict[str, Any] | None:
    """Return the options of a request; None if there are none.

    Raise `InputError` if an option that is a number has another value.
    """
    for name, _ in options:
        if "=" in name:
            raise InputError(f"Write an option as two words: -o {' '.join(name.split('=', 1))}")
    parsed = {name: _parse_value(value) for name, value in options if value}
    for name, value in parsed.items():
        if name in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float | None)):
            raise InputError(f"The option {name!r} is a number, and not {value!r}.")
    return parsed or None


def list_removed(options: Sequence[tuple[str, str]]) -> list[str]:
    """Return the names of the options that are taken back: those with an empty value."""
    return [name for name, value in options if not value]


def check_options(given: Mapping[str, Any], provider: Provider) -> None:
    """Raise `InputError` for an option that the local engine, which ignores what it does not know, does not have.

    An option that another provider is not known to have is pointed out, for many servers ignore it, too.
    """
    check_names(given, provider.label.partition(":")[0], provider.wire.name)


def check_names(given: Mapping[str, Any], provider: str, wire: str) -> None:
    """Check options as `check_options` does, for the provider and the wire with these names."""
    known = _find_known(provider, wire)
    if not known:
        return
    for name, value in given.items():
        if name in known:
            continue
        shown, near = repr(escape_line(name)), _find_near(name, known)
        hint = f" Did you mean {near!r}?" if near else ""
        if provider == "local":
            usual = ", ".join(_USUAL)
            raise InputError(f"The local model has no option {shown}.{hint or f' It has {usual} and others.'}")
        if wire == "gemini" and name in _GEMINI_CONFIG:
            config = json.dumps({_GEMINI_CONFIG[name]: value})
            raise InputError(f"Gemini takes {shown} in another option: -o generationConfig '{config}'")
        print_note(
            f"(The option {shown} is sent as it is.{hint})"
            if hint
            else f"(The option {shown} is not known for {provider}. It is sent as it is.)"
        )


def list_options(model: str) -> Sequence[str]:
    """Return the options that a model, written as `provider:model`, is known to have."""
    provider = model.partition(":")[0]
    return _find_known(provider, PROVIDERS[provider].wire) if provider in PROVIDERS else ()


def _find_known(provider: str, wire: str) -> Sequence[str]:
    # An agent refuses what it does not know.
    return () if wire in AGENTS else _KNOWN.get("local" if provider == "local" else wire, ())


def _find_near(name: str, known: Iterable[str]) -> str | None:
    """Return the option that a name abbreviates or misspells; None if there is none."""
    near = [each for each in known if len(name) > 3 and each.startswith(name)]
    return next(iter(near or get_close_matches(name, known, n=1, cutoff=0.8)), None)


def _parse_value(value: str) -> Any:
    """Return an option's value: JSON where it is JSON (0.2, true, [1]), else the text itself."""
    try:
        return json.loads(value)
    except ValueError:
        return value
