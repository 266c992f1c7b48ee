"""Request options that the caller sets and Longtalk passes on to the provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longtalk._util import json_bytes
from longtalk.errors import InputError

ANSWER_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Options that limit the length of an answer."""


def encode_option(key: str, value: Any) -> bytes:
    """Return an option's value as JSON. Raises `InputError` if the value can't be encoded."""
    try:
        return json_bytes.encode(value)
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(
            f"The option {key!r} can't be written as JSON: {problem}. Use strings, numbers, lists and dicts."
        ) from None


def pop_tools(fields: dict[str, bytes]) -> list[bytes]:
    """Remove the `tools` option from the encoded options and return its tools.

    Raises `InputError` if the option is not a list.
    """
    tools = fields.pop("tools", b"[]")
    if tools[:1] != b"[":
        shown = tools[:40].decode("utf-8", "replace")
        raise InputError(f"The option 'tools' must be a list of the provider's own tools, not {shown}.")
    return json_bytes.items(tools)


def merge_option(options: Mapping[str, Any], name: str, members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with these members added to the option `name`, whose other members are kept."""
    present = options.get(name)
    return {**options, name: {**(present if isinstance(present, Mapping) else {}), **members}}


def answer_token_limit(options: Mapping[str, Any]) -> int | None:
    """Return the maximum length of an answer, in tokens, that the options of any wire set, or None if they set none."""
    config = options.get("generationConfig")
    nested = config.get("maxOutputTokens") if isinstance(config, Mapping) else None
    limits = [*(options.get(name) for name in ANSWER_LIMITS), nested]
    return next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)
