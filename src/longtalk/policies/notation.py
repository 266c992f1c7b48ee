"""Policies as text, written as in Python: parse them, and format them in that form."""

from __future__ import annotations

import ast
from typing import Any

import msgspec

from longtalk._util.suggest import suggest
from longtalk.errors import InputError
from longtalk.memory.brief.schema import Brief
from longtalk.memory.profile.config import Profile
from longtalk.memory.recall.config import Recall
from longtalk.policies import (
    Combine,
    DigestTools,
    Economy,
    KeepAll,
    KeepLast,
    KeepMessages,
    Memory,
    Policy,
    Summarize,
    TokenBudget,
    WindowShare,
)

_LONGEST = 500
_POLICIES = (KeepAll, KeepLast, KeepMessages, TokenBudget, WindowShare, Summarize, Economy, Memory, Combine)
_NAMES: dict[str, Any] = {each.__name__: each for each in (*_POLICIES, DigestTools, Brief, Profile, Recall)}
_WORDS = ("sentinel", "tool", "conversation", "owner")
_EXAMPLES = (
    "Examples: KeepAll(), KeepLast(10), KeepMessages(40), TokenBudget(8_000), WindowShare(0.8), Summarize(8_000), "
    "Economy(), Memory(), Combine(KeepLast(20), TokenBudget(8_000))."
)


def parse_policy(text: str) -> Policy:
    """Parse a policy written as in Python, such as `KeepLast(6)`; raise `InputError` if it is invalid.

    The text is not evaluated: only known names and constants are accepted.
    """
    try:
        if len(text) > _LONGEST:
            raise ValueError(f"the text has more than {_LONGEST} characters")
        policy = _build(ast.parse(text.strip(), mode="eval").body)
        if not isinstance(policy, _POLICIES):
            raise ValueError("the text names only a part of a policy")
    except (SyntaxError, ValueError, TypeError, InputError, RecursionError, MemoryError) as problem:
        reason = getattr(problem, "msg", "") or str(problem) or "it can't be parsed"
        reason = reason if reason.endswith("?") else f"{reason.rstrip('.')}."
        raise InputError(f"{text[:60]!a} is not a policy: {reason} {_EXAMPLES}") from None
    return policy


def _build(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        node = ast.Call(node, [], [])
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.func.id not in _NAMES:
            hint = suggest(node.func.id, _NAMES) if isinstance(node.func, ast.Name) else ""
            raise ValueError(f"the text names something that is neither a policy nor a part of one.{hint}")
        keywords = {word.arg: _build(word.value) for word in node.keywords if word.arg is not None}
        if len(keywords) < len(node.keywords):
            raise ValueError("keyword arguments must be written as name=value, each only once")
        return _NAMES[node.func.id](*map(_build, node.args), **keywords)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        raise ValueError("negative numbers are not allowed")
    if isinstance(node, ast.Constant) and node.value in _WORDS:
        return node.value
    if not isinstance(node, ast.Constant) or not isinstance(node.value, int | float | None):
        raise ValueError("only names, numbers, True, False and None are allowed")
    return node.value


def format_policy(policy: object) -> str:
    """Return a policy as it is written on the command line. Arguments with their default value are omitted."""
    if isinstance(policy, Combine):
        return f"Combine({', '.join(map(format_policy, policy.policies))})"
    if isinstance(policy, int) and not isinstance(policy, bool):
        return f"{policy:_}"
    if not isinstance(policy, msgspec.Struct):
        return repr(policy)
    given = []
    for field in msgspec.structs.fields(policy):
        value = getattr(policy, field.name)
        if field.required:
            given.append(format_policy(value))
        elif value != field.default:
            given.append(f"{field.name}={format_policy(value)}")
    return f"{type(policy).__name__}({', '.join(given)})"
