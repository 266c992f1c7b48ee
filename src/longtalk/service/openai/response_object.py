"""The response object: a turn, as the Responses API shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from longtalk.service.errors import ApiError
from longtalk.service.openai.items import Item
from longtalk.transcript.responses import to_finish_reason
from longtalk.transcript.transcript import Turn
from longtalk.usage import Usage

ECHOED: Mapping[str, Any] = {
    "background": False,
    "conversation": None,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""Fields of a request that its response repeats, with the values that stand for absent ones."""

_TOOL = {"description": None, "parameters": None, "strict": None}
_JSON_SCHEMA = {"description": None, "strict": False}
_CUT = {"length": "max_output_tokens", "filtered": "content_filter"}


def make_response(
    id: str,  # noqa: A002
    *,
    model: str,
    created: int,
    echo: Mapping[str, Any],
    status: str,
    output: Sequence[Item] = (),
    usage: Usage | None = None,
    error: ApiError | None = None,
    reason: str | None = None,
    completed: int | None = None,
) -> Item:
    """Return a response object. Times are in milliseconds since 1970; `reason` is why it is incomplete."""
    response: Item = {
        "id": id,
        "object": "response",
        "created_at": created // 1000,
        "completed_at": completed // 1000 if completed else None,
        "status": status,
        "error": {"code": _error_code(error), "message": error.message} if error else None,
        "incomplete_details": {"reason": reason} if reason else None,
        "model": model,
        "output": list(output),
        "usage": to_usage(usage) if usage is not None else None,
    }
    return response | {name: _complete(name, echo.get(name, default)) for name, default in ECHOED.items()}


def to_usage(usage: Usage) -> Item:
    """Return token counts in the form of the Responses API."""
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.written},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }


def find_usage(turn: Turn, usage: Usage, status: str) -> Usage | None:
    """Return the tokens that a response shows; None for one that has ended before the model has answered."""
    return usage if turn.usage or status in ("completed", "incomplete") else None


def find_status(turn: Turn, *, cancelled: bool = False) -> tuple[str, str | None]:
    """Return the status of a turn, and why it is incomplete if it is."""
    if turn.status == "running":
        return "in_progress", None
    if turn.status == "failed":
        return "failed", None
    if turn.status == "interrupted":
        return ("cancelled", None) if cancelled or not turn.error else ("failed", None)
    reason = _CUT.get(to_finish_reason(turn.finish))
    return ("incomplete", reason) if reason else ("completed", None)


def _complete(name: str, value: Any) -> Any:
    """Return a repeated field with the inner fields that a client may leave out and a response always has."""
    if name == "tools":
        return [{**_TOOL, **tool} if tool.get("type") == "function" else tool for tool in value]
    if name == "reasoning":
        return {**ECHOED[name], **value}
    if name == "text":
        given = ECHOED[name] | {inner: each for inner, each in value.items() if each is not None}
        form = given["format"]
        return {**given, "format": {**_JSON_SCHEMA, **form} if form.get("type") == "json_schema" else form}
    return value


def _error_code(error: ApiError) -> str:
    codes = {429: "rate_limit_exceeded", 400: "invalid_prompt"}
    return "interrupted" if error.code == "interrupted" else codes.get(error.status, "server_error")
