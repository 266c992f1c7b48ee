"""The rules of the Anthropic Messages endpoint, as far as they can be checked on a single request.

This module implements the provider's rules, numbered A1 to A13, independently of Longtalk's own wire, and reads the
finished JSON with the standard library. Violations contain the provider's own messages, so that a test server can
answer with them. Paths such as `messages.2` count messages as they were sent. Rules about turns are in
`anthropic_turns`.

Unknown block types pass, because later API versions add new ones. Two rules need earlier answers and are not checked
here: thinking must be sent back unchanged (A7), and after the same prefix (A8).
"""

from __future__ import annotations

import re
from typing import Any

from longtalk.testing.wires.anthropic_cache import check_cache_marks
from longtalk.testing.wires.anthropic_turns import (
    SERVER_CALLS,
    THINKING,
    check_ending,
    check_leading_thinking,
    check_pairing,
    get_block_type,
    group_turns,
    is_server_result,
)
from longtalk.testing.wires.violation import WireViolation

Block = dict[str, Any]

_NOT_IN_SYSTEM = (*THINKING, *SERVER_CALLS, "image", "document", "tool_use", "tool_result", "compaction")
_ONLY_IN_ANSWERS = ("id", "type", "model", "stop_reason", "stop_sequence", "stop_details", "usage", "container")
_TOOL_ID = re.compile(r"[A-Za-z0-9_-]+")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_ANYWHERE = "the directive-only form (content: [] with output_config) is accepted at any position"


def check(body: dict[str, Any], *, system_messages: bool = True, prefill: bool = False) -> None:
    """Raise `WireViolation` if a request to `POST /v1/messages` breaks a rule.

    Args:
        body: The decoded request.
        system_messages: Whether the model accepts `role: "system"` inside `messages`, as newer models do.
        prefill: Whether the model accepts an assistant message at the end and continues it. Newer models refuse it.
    """
    if not isinstance(body, dict):
        raise WireViolation("body", "Input should be an object")
    _check_parameters(body)
    _check_tools(body.get("tools"))
    _check_system(body.get("system"))
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise WireViolation("messages", "messages: at least one message is required")
    for i, message in enumerate(messages):
        _check_message(i, message, final=i == len(messages) - 1)
    _check_system_positions(messages, system_messages)
    turns = group_turns(messages)
    if not turns:
        raise WireViolation("messages", "messages: at least one message is required")
    if turns[0].role != "user" and get_block_type(turns[0], 0) != "compaction":
        raise WireViolation("A4", 'messages: first message must use the "user" role')
    check_pairing(turns)
    check_ending(turns[-1], prefill)
    check_leading_thinking(turns, body.get("thinking"))
    check_cache_marks(body)


def _check_parameters(body: dict[str, Any]) -> None:
    model, limit = body.get("model"), body.get("max_tokens")
    if not isinstance(model, str) or not model:
        raise WireViolation("model", "model: Field required")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise WireViolation("max_tokens", "max_tokens: Input should be a positive integer")
    if not isinstance(body.get("stream", False), bool):
        raise WireViolation("stream", "stream: Input should be a valid boolean")


def _check_tools(tools: Any) -> None:
    if tools is None:
        return
    if not isinstance(tools, list):
        raise WireViolation("tools", "tools: Input should be a valid list")
    names: set[str] = set()
    for i, tool in enumerate(tools):
        if not isinstance(tool, dict):
            raise WireViolation("tools", f"tools.{i}: Input should be an object")
        name, kind = tool.get("name"), tool.get("type", "custom")
        if kind == "function":
            raise WireViolation("tools", f"tools.{i}: Input tag 'function' found using 'type' does not match any tag")
        if kind == "custom":
            if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
                raise WireViolation("tools", f"tools.{i}.custom.name: String should match '^[a-zA-Z0-9_-]{{1,128}}$'")
            schema = tool.get("input_schema")
            if not isinstance(schema, dict) or schema.get("type") != "object":
                raise WireViolation("tools", f"tools.{i}.custom.input_schema.type: Input should be 'object'")
        if isinstance(name, str):
            if name in names:
                raise WireViolation("tools", f"tools: Tool names must be unique. {name} is declared twice")
            names.add(name)


def _check_system(system: Any) -> None:
    if system is None:
        return
    if isinstance(system, str):
        system = [{"type": "text", "text": system}]
    if not isinstance(system, list):
        raise WireViolation("A9", "system: Input should be a valid string or list")
    for i, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text":
            raise WireViolation("A9", f"system.{i}.type: Input should be 'text'")
        _check_text(block, f"system.{i}", "system")


def _check_message(i: int, message: Any, *, final: bool) -> None:
    if not isinstance(message, dict):
        raise WireViolation("messages", f"messages.{i}: Input should be an object")
    role = message.get("role")
    if role not in ("user", "assistant", "system"):
        raise WireViolation("role", f"messages.{i}.role: Input should be 'user', 'assistant' or 'system'")
    for key in _ONLY_IN_ANSWERS:
        if key in message:
            raise WireViolation("messages", f"messages.{i}.{key}: Extra inputs are not permitted")
    content = message.get("content")
    if isinstance(content, str):
        if not content.strip() and not (final and role == "assistant" and not content):
            what = "must contain non-whitespace text" if content else "must be non-empty"
            raise WireViolation("A6", f"messages.{i}: text content blocks {what}")
        return
    if not isinstance(content, list):
        raise WireViolation("content", f"messages.{i}.content: Input should be a valid string or list")
    if not content and not (final and role == "assistant") and not _is_directive(message):
        excuse = "all messages must have non-empty content except for the optional final assistant message"
        raise WireViolation("A6", f"messages.{i}: {excuse}")
    for j, block in enumerate(content):
        _check_block(block, role, f"messages.{i}.content.{j}")


def _check_block(block: Any, role: str, path: str) -> None:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise WireViolation("content", f"{path}.type: Field required")
    kind = block["type"]
    if role == "system" and kind in _NOT_IN_SYSTEM:
        raise WireViolation("A9", f"{path}: role 'system' supports text, tool_addition, and tool_removal blocks only")
    assistants = kind == "tool_use" or kind in THINKING or kind in SERVER_CALLS or is_server_result(block)
    if role != "assistant" and assistants:
        raise WireViolation("role", f"{path}: `{kind}` blocks can only be in `assistant` messages")
    if role != "user" and kind == "tool_result":
        raise WireViolation("role", f"{path}: `tool_result` blocks can only be in `user` messages")
    if kind == "text":
        _check_text(block, path, "messages")
    elif kind == "thinking":
        _require_field(block, "thinking", path, "A7", empty=True)
        _require_field(block, "signature", path, "A7")
    elif kind == "redacted_thinking":
        _require_field(block, "data", path, "A7")
    elif kind == "tool_use" or kind in SERVER_CALLS:
        _check_call(block, path)
    elif kind == "tool_result":
        _require_field(block, "tool_use_id", path, "A2")
        if not isinstance(block.get("content", ""), (str, list)):
            raise WireViolation("content", f"{path}.tool_result.content: Input should be a valid string or list")
    elif is_server_result(block):
        _require_field(block, "tool_use_id", path, "A3")
    elif kind == "compaction" and not isinstance(block.get("content", 0), (str, type(None))):
        raise WireViolation("A11", f"{path}.compaction.content: Input should be a valid string or null")


def _check_text(block: Block, path: str, where: str) -> None:
    text = _require_field(block, "text", path, "content", empty=True)
    if not text and block.get("cache_control"):
        raise WireViolation("cache", f"{path}.text: cache_control cannot be set for empty text blocks")
    if not text:
        raise WireViolation("A6", f"{where}: text content blocks must be non-empty ({path})")
    if not text.strip():
        raise WireViolation("A6", f"{where}: text content blocks must contain non-whitespace text ({path})")


def _check_call(block: Block, path: str) -> None:
    if not isinstance(block.get("id"), str) or not _TOOL_ID.fullmatch(block["id"]):
        raise WireViolation("ids", f"{path}.{block['type']}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    _require_field(block, "name", path, "content")
    if not isinstance(block.get("input"), dict):
        raise WireViolation("content", f"{path}.{block['type']}.input: Input should be a valid dictionary")


def _require_field(block: Block, name: str, path: str, rule: str, *, empty: bool = False) -> str:
    value = block.get(name)
    if not isinstance(value, str) or not (value or empty):
        raise WireViolation(rule, f"{path}.{block['type']}.{name}: Field required")
    return value


def _check_system_positions(messages: list[dict[str, Any]], supported: bool) -> None:
    """Check that each system message follows a user turn, and precedes an assistant turn or ends the list (A9)."""
    listed = [(i, message) for i, message in enumerate(messages) if not _is_directive(message)]
    for n, (i, message) in enumerate(listed):
        if message["role"] != "system":
            continue
        before = listed[n - 1][1] if n else None
        after = listed[n + 1][1] if n + 1 < len(listed) else None
        if not supported:
            raise WireViolation("A9", f"messages.{i}: role 'system' is not supported on this model")
        if before is None:
            what = "use the top-level 'system' parameter for the initial system prompt"
            raise WireViolation("A9", f"messages.{i}: {what}; {_ANYWHERE}")
        if before["role"] == "assistant" and not _ends_in_server_result(before):
            what = "role 'system' must follow a 'user' message or an 'assistant' message ending in a server tool result"
            raise WireViolation("A9", f"messages.{i}: {what}; {_ANYWHERE}")
        if after is not None and after["role"] == "user":
            what = "role 'system' must precede an 'assistant' message or end the array"
            raise WireViolation("A9", f"messages.{i}: {what}; {_ANYWHERE}")


def _is_directive(message: dict[str, Any]) -> bool:
    return message["role"] == "system" and message.get("content") == [] and "output_config" in message


def _ends_in_server_result(message: dict[str, Any]) -> bool:
    content = message["content"]
    return isinstance(content, list) and bool(content) and is_server_result(content[-1])
