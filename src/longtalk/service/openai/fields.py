"""What becomes of each field of a request: a table for each surface.

A field that is not in its table, or that is marked `REFUSED`, is an error 400 that names it. The tables have every
field that OpenAI's own client can send; a test fails when a new version of the client has another one. The code reads
only `REFUSED` and `HINT`; `SERVICE` and `PROVIDER` document the other fields for the reader and for that test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from longtalk.service.errors import ApiError, quote

SERVICE = "service"
"""The service does what the field says."""
PROVIDER = "provider"
"""The field is translated for the provider behind (see `options`). What it can't do is refused."""
HINT = "hint"
"""A label or a hint, which changes nothing about the answer: sent to the providers that know it."""
REFUSED = "refused"
"""Only OpenAI's own servers can do this."""

RESPONSE_FIELDS: Mapping[str, str] = {
    "access_programs": REFUSED,
    "background": SERVICE,
    "client_metadata": HINT,
    "context_management": SERVICE,
    "conversation": SERVICE,
    "frequency_penalty": PROVIDER,
    "image": REFUSED,
    "include": SERVICE,
    "input": SERVICE,
    "instructions": SERVICE,
    "max_output_tokens": PROVIDER,
    "max_tool_calls": SERVICE,
    "metadata": SERVICE,
    "model": SERVICE,
    "moderation": REFUSED,
    "parallel_tool_calls": PROVIDER,
    "presence_penalty": PROVIDER,
    "previous_response_id": SERVICE,
    "prompt": REFUSED,
    "prompt_cache_key": HINT,
    "prompt_cache_options": PROVIDER,
    "prompt_cache_retention": PROVIDER,
    "reasoning": PROVIDER,
    "safety_identifier": HINT,
    "service_tier": PROVIDER,
    "store": SERVICE,
    "stream": SERVICE,
    "stream_options": SERVICE,
    "temperature": PROVIDER,
    "text": PROVIDER,
    "tool_choice": PROVIDER,
    "tools": SERVICE,
    "top_logprobs": REFUSED,
    "top_p": PROVIDER,
    "truncation": SERVICE,
    "user": HINT,
}
CHAT_FIELDS: Mapping[str, str] = {
    "audio": REFUSED,
    "conversation": SERVICE,
    "frequency_penalty": PROVIDER,
    "function_call": REFUSED,
    "functions": REFUSED,
    "logit_bias": PROVIDER,
    "logprobs": REFUSED,
    "max_completion_tokens": PROVIDER,
    "max_tokens": PROVIDER,
    "messages": SERVICE,
    "metadata": SERVICE,
    "modalities": SERVICE,
    "model": SERVICE,
    "moderation": REFUSED,
    "n": SERVICE,
    "parallel_tool_calls": PROVIDER,
    "prediction": REFUSED,
    "presence_penalty": PROVIDER,
    "prompt_cache_key": HINT,
    "prompt_cache_options": PROVIDER,
    "prompt_cache_retention": PROVIDER,
    "reasoning_effort": PROVIDER,
    "response_format": PROVIDER,
    "safety_identifier": HINT,
    "seed": PROVIDER,
    "service_tier": PROVIDER,
    "stop": PROVIDER,
    "store": SERVICE,
    "stream": SERVICE,
    "stream_options": SERVICE,
    "temperature": PROVIDER,
    "tool_choice": PROVIDER,
    "tools": SERVICE,
    "top_logprobs": REFUSED,
    "top_p": PROVIDER,
    "user": HINT,
    "verbosity": PROVIDER,
    "web_search_options": REFUSED,
}


ENCRYPTED = "reasoning.encrypted_content"
_INCLUDED = (
    *(ENCRYPTED, "message.input_image.image_url", "computer_call_output.output.image_url"),
    *("file_search_call.results", "web_search_call.results", "web_search_call.action.sources"),
    "code_interpreter_call.outputs",
)
"""What `include` may name. Images of the input are always part of it, and calls of hosted tools are never there."""


def check_include(names: Iterable[str]) -> None:
    """Raise `ApiError` if `include` asks for what responses and items don't have here."""
    for number, name in enumerate(names):
        if name not in _INCLUDED:
            known, place = ", ".join(map(repr, _INCLUDED)), f"include[{number}]"
            raise ApiError(400, f"`{place}` can't be {quote(name)}, only {known}.", param=place, code="invalid_value")


def check_fields(given: object, table: Mapping[str, str]) -> None:
    """Raise `ApiError` if a request has a field that is always refused, with a value that asks for something."""
    for name, treatment in table.items():
        if treatment == REFUSED and getattr(given, name) not in (None, False, 0):
            raise unsupported(name)


def unsupported(name: str, reason: str = "is not supported here: leave it out") -> ApiError:
    """Return the error for a field, or a part of one, that this service or the provider behind can't do."""
    return ApiError(400, f"`{name}` {reason}.", param=name, code="unsupported_parameter")


HINTS = frozenset(
    name for table in (RESPONSE_FIELDS, CHAT_FIELDS) for name, treatment in table.items() if treatment == HINT
)
