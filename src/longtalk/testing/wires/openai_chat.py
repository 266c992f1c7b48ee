"""The rules of OpenAI Chat Completions, as far as they can be checked on a single request.

This module implements the provider's rules, numbered CC1 to CC3, independently of Longtalk's own wire, and reads the
finished JSON.
"""

from __future__ import annotations

from typing import Any

from longtalk.testing.wires.violation import WireViolation


def check(body: Any) -> None:
    """Raise `WireViolation` if a request to `POST /v1/chat/completions` breaks a rule."""
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list) or not messages:
        raise WireViolation("messages", "the list is missing or empty")
    if body.get("tools") == []:
        raise WireViolation("CC3", "`tools` is empty, which some servers refuse")
    open_calls: list[str] = []
    for i, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        where = f"message {i} ({role})"
        if role not in ("system", "developer", "user", "assistant", "tool"):
            raise WireViolation("role", f"{where} has no known role")
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                raise WireViolation("CC2", f"{where} answers no call of the previous message: {message!r}")
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            raise WireViolation("CC1", f"{where} comes before the results of {open_calls}")
        _check_content(message, where)
        for call in message.get("tool_calls") or ():
            if role != "assistant":
                raise WireViolation("CC2", f"{where} can't call tools")
            if not isinstance(call, dict) or not isinstance(call.get("id"), str) or not call["id"]:
                raise WireViolation("CC1", f"{where} has a call without an id")
            open_calls.append(call["id"])
    if open_calls:
        raise WireViolation("CC1", f"no results for {open_calls}")


def _check_content(message: dict[str, Any], where: str) -> None:
    content = message.get("content")
    if content is None and message["role"] == "assistant":
        if not message.get("tool_calls") and not message.get("refusal") and not message.get("audio"):
            raise WireViolation("content", f"{where} has no content, tool calls, refusal or audio")
    elif isinstance(content, list):
        if not content or not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in content):
            raise WireViolation("content", f"{where} has no parts, or a part without a type")
    elif not isinstance(content, str):
        raise WireViolation("content", f"{where} has no content")
