"""Policies on the command line: as they are written in Python, and as short as that can be."""

from __future__ import annotations

import ast
from typing import Any

import msgspec

from longtalk.errors import InputError
from longtalk.memory.schema import Brief
from longtalk.memory.settings import Recall
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
_NAMES: dict[str, Any] = {each.__name__: each for each in (*_POLICIES, DigestTools, Brief, Recall)}
_WORDS = ("sentinel", "tool")
_THERE_ARE = (
    "There are KeepAll(), KeepLast(10), KeepMessages(40), TokenBudget(8_000), WindowShare(0.8), Summarize(8_000), "
    "Economy(), Memory(), and Combine(KeepLast(20), TokenBudget(8_000))."
)


def parse(text: str) -> Policy:
    """The policy that a text names. Nothing is evaluated: these are names of ours, with numbers and the like."""
    try:
        if len(text) > _LONGEST:
            raise ValueError("it is too long")
        made = _made(ast.parse(text.strip(), mode="eval").body)
        if not isinstance(made, _POLICIES):
            raise ValueError("it is only a part of one")
    except (SyntaxError, ValueError, TypeError, InputError, RecursionError, MemoryError) as problem:
        why = getattr(problem, "msg", "") or str(problem) or "it can't be read"
        raise InputError(f"{text[:60]!a} does not name a policy: {why.rstrip('.')}. {_THERE_ARE}") from None
    return made


def _made(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        node = ast.Call(node, [], [])
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.func.id not in _NAMES:
            raise ValueError("it calls something else")
        more = {word.arg: _made(word.value) for word in node.keywords if word.arg is not None}
        if len(more) < len(node.keywords):
            raise ValueError("name each argument once")
        return _NAMES[node.func.id](*map(_made, node.args), **more)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        raise ValueError("no number is below 0")
    if isinstance(node, ast.Constant) and node.value in _WORDS:
        return node.value
    if not isinstance(node, ast.Constant) or not isinstance(node.value, int | float | None):
        raise ValueError("it is more than names, numbers, True, False and None")
    return node.value


def shown(policy: object) -> str:
    """A policy as it can be written, without what is as usual."""
    if isinstance(policy, Combine):
        return f"Combine({', '.join(map(shown, policy.policies))})"
    if isinstance(policy, int) and not isinstance(policy, bool):
        return f"{policy:_}"
    if not isinstance(policy, msgspec.Struct):
        return repr(policy)
    given = []
    for field in msgspec.structs.fields(policy):
        value = getattr(policy, field.name)
        if field.required:
            given.append(shown(value))
        elif value != field.default:
            given.append(f"{field.name}={shown(value)}")
    return f"{type(policy).__name__}({', '.join(given)})"
