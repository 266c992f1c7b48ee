"""What servers that speak the wire of Chat Completions can't do of it.

Most of them ignore a field that they don't know, so a client would never learn that it had no effect. This table is
what their documentation says. A server that is not in it is taken for one that knows the older fields only.
"""

from __future__ import annotations

from collections.abc import Mapping

from longtalk.providers.base import AsyncProvider

_CACHE = ("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options.mode", "prompt_cache_options.ttl")
_OPENAI_ONLY = frozenset({"verbosity", "service_tier", "safety_identifier", *_CACHE})
_NEWER = _OPENAI_ONLY | {"reasoning.effort"}
_MISSING: Mapping[str, frozenset[str]] = {
    "openai-chat": frozenset(),
    "scripted": frozenset(),
    # LiteLLM refuses by itself what the provider behind it can't do.
    "litellm": frozenset({"safety_identifier", *_CACHE}),
    "openrouter": _OPENAI_ONLY - {"verbosity"},
    "groq": (_OPENAI_ONLY - {"service_tier"}) | {"logit_bias", "frequency_penalty", "presence_penalty"},
    "mistral": _OPENAI_ONLY | {"logit_bias", "user"},
    "deepseek": _OPENAI_ONLY | {"logit_bias", "seed", "parallel_tool_calls", "user"},
    "together": _OPENAI_ONLY | {"parallel_tool_calls", "user"},
    "xai": _OPENAI_ONLY | {"logit_bias"},
    "ollama": _OPENAI_ONLY | {"tool_choice", "logit_bias", "parallel_tool_calls", "user"},
    "vllm": _OPENAI_ONLY,
    "lmstudio": _NEWER | {"parallel_tool_calls", "user"},
}
_WITHOUT_NAMED_TOOLS = ("llamacpp", "local", "lmstudio")
"""Servers that treat a choice that names a function as no choice at all."""


def list_missing(provider: AsyncProvider) -> frozenset[str]:
    """Return the fields that the server of a provider does not know or ignores."""
    return _MISSING.get(provider.label.partition(":")[0], _NEWER)


def can_name_tool(provider: AsyncProvider) -> bool:
    """Return True if a request can force the model to call a specific function."""
    return provider.label.partition(":")[0] not in _WITHOUT_NAMED_TOOLS
