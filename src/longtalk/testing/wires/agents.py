"""The rules for requests that run an agent's command-line program, as far as they can be checked on a single request.

A request is the JSON form of `longtalk.wires.agents.cli.AgentCommand`.
"""

from __future__ import annotations

from typing import Any

from longtalk.testing.wires.violation import WireViolation


def check(body: Any) -> None:
    """Raise `WireViolation` if a request that runs an agent breaks a rule."""
    start = body if isinstance(body, dict) else {}
    arguments, prompt = start.get("arguments"), start.get("input")
    if not isinstance(arguments, list) or not all(isinstance(each, str) and "\0" not in each for each in arguments):
        raise WireViolation("AG1", "`arguments` is not a list of strings without NUL")
    if not isinstance(prompt, str) or not prompt.strip():
        raise WireViolation("AG2", "`input`, the text for standard input, is missing or blank")
    if start.get("session") and (not start.get("stamp") or start["session"] not in arguments):
        raise WireViolation("AG3", "a session needs its `stamp`, and its id must be among `arguments`")
    if start.get("session") and prompt.startswith("<conversation_so_far>"):
        raise WireViolation("AG4", "a resumed session already has the conversation; send only new messages")
