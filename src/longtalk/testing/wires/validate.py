"""Check requests against the rules that their provider enforces.

The validators implement the providers' rules independently of Longtalk's wires, and read the finished JSON with the
standard library alone. A `WireViolation` names the broken rule by a short id, such as "A1".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from longtalk.testing.wires import agents, anthropic, gemini, openai_chat, openai_responses
from longtalk.testing.wires.outside import find_validator
from longtalk.testing.wires.violation import WireViolation

_CACHE_MARKS = re.compile(rb',"cache_control":\{"type":"ephemeral"\}')
_VALIDATORS: dict[str, Callable[[Any], None]] = {
    "openai-chat": openai_chat.check,
    "anthropic": anthropic.check,
    "openai-responses": openai_responses.check,
    "gemini": gemini.check,
    **dict.fromkeys(("claude-cli", "codex-cli", "gemini-cli"), agents.check),
}


def validate(request: bytes, *, wire: str = "openai-chat") -> None:
    """Raise `WireViolation` if this request breaks a rule of `wire`, so that a provider would refuse it."""
    try:
        body = json.loads(request.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as problem:
        raise WireViolation("JSON", str(problem)) from None
    (_VALIDATORS.get(wire) or find_validator(wire))(body)


def without_cache_marks(request: bytes) -> bytes:
    """Return the request without its cache marks, so that requests of different turns can be compared."""
    return _CACHE_MARKS.sub(b"", request)
