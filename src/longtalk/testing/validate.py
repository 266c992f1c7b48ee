"""Checks a request against the rules that its provider enforces, by the ids under which the docs list them.

Written from the rules, not from our wires: it reads the finished JSON with the standard library alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

_MARKS = re.compile(rb',"cache_control":\{"type":"ephemeral"\}')


class WireViolation(AssertionError):
    """A request breaks a rule of its wire."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


def validate(request: bytes, *, wire: str = "openai-chat") -> None:
    """Raise `WireViolation` unless this request would be accepted."""
    try:
        body = json.loads(request.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as problem:
        raise WireViolation("JSON", str(problem)) from None
    _VALIDATORS[wire](body)


def unmarked(request: bytes) -> bytes:
    """A request without cache marks, which move from turn to turn."""
    return _MARKS.sub(b"", request)


def _openai_chat(body: Any) -> None:
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list) or not messages:
        raise WireViolation("messages", "there are none")
    if body.get("tools") == []:
        raise WireViolation("CC3", "an empty `tools` is refused by some servers")
    open_calls: list[str] = []
    for i, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        where = f"message {i} ({role})"
        if role not in ("system", "developer", "user", "assistant", "tool"):
            raise WireViolation("role", f"{where} has no known role")
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                raise WireViolation("CC2", f"{where} answers no call of the message before: {message!r}")
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            raise WireViolation("CC1", f"{where} comes before the results of {open_calls}")
        _content(message, where)
        for call in message.get("tool_calls") or ():
            if role != "assistant":
                raise WireViolation("CC2", f"{where} can't call tools")
            if not isinstance(call, dict) or not isinstance(call.get("id"), str) or not call["id"]:
                raise WireViolation("CC1", f"{where} has a call without an id")
            open_calls.append(call["id"])
    if open_calls:
        raise WireViolation("CC1", f"no results for {open_calls}")


def _content(message: dict[str, Any], where: str) -> None:
    content = message.get("content")
    if content is None and message["role"] == "assistant":
        if not message.get("tool_calls") and not message.get("refusal") and not message.get("audio"):
            raise WireViolation("content", f"{where} says nothing")
    elif isinstance(content, list):
        if not content or not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in content):
            raise WireViolation("content", f"{where} has parts without a type")
    elif not isinstance(content, str):
        raise WireViolation("content", f"{where} has no content")


def _anthropic(body: Any) -> None:
    from longtalk.testing.anthropic_rules import check

    check(body)


def _openai_responses(body: Any) -> None:
    from longtalk.testing.responses_rules import check

    check(body)


def _gemini(body: Any) -> None:
    from longtalk.testing.gemini_rules import check

    check(body)


def _agent(body: Any) -> None:
    """A run of an agent: see `longtalk.wires.speech.Start`."""
    start = body if isinstance(body, dict) else {}
    arguments, said = start.get("arguments"), start.get("input")
    if not isinstance(arguments, list) or not all(isinstance(each, str) and "\0" not in each for each in arguments):
        raise WireViolation("AG1", "the arguments are no list of texts")
    if not isinstance(said, str) or not said.strip():
        raise WireViolation("AG2", "nothing is said on the standard input")
    if start.get("session") and (not start.get("stamp") or start["session"] not in arguments):
        raise WireViolation("AG3", "a session goes with its stamp, and is named to the program")
    if start.get("session") and said.startswith("<conversation_so_far>"):
        raise WireViolation("AG4", "the program knows what was said before")


_VALIDATORS: dict[str, Callable[[Any], None]] = {
    "openai-chat": _openai_chat,
    "anthropic": _anthropic,
    "openai-responses": _openai_responses,
    "gemini": _gemini,
    **dict.fromkeys(("claude-cli", "codex-cli", "gemini-cli"), _agent),
}
