"""The rules of the Anthropic Messages endpoint that can be told from one request alone.

Written from the rules A1 to A13, not from our wire: it reads the finished JSON with the standard library. Consecutive
messages of one role are one turn (A5), so pairing is checked on turns, while paths name the message as it was sent.
What a rule says when it is broken is what the provider says, so that a test server can answer with it.

Block types that are not known here pass: they are those of a later year. Two rules need a memory of earlier answers and
are not here: whether thinking comes back unchanged (A7) and behind the same prefix (A8).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from longtalk.testing.validate import WireViolation

Block = dict[str, Any]

_THINKING = ("thinking", "redacted_thinking")
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
_NOT_IN_SYSTEM = (*_THINKING, *_SERVER_CALLS, "image", "document", "tool_use", "tool_result", "compaction")
_ONLY_IN_ANSWERS = ("id", "type", "model", "stop_reason", "stop_sequence", "stop_details", "usage", "container")
_TOOL_ID = re.compile(r"[A-Za-z0-9_-]+")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_MAX_MARKS = 4
_ANYWHERE = "the directive-only form (content: [] with output_config) is accepted at any position"


@dataclass(frozen=True)
class _Turn:
    """Consecutive messages of one role; each block with the path under which the provider would name it."""

    role: str
    last: int
    blocks: list[tuple[str, Block]]


def check(body: dict[str, Any], *, system_messages: bool = True, prefill: bool = False) -> None:
    """Raise `WireViolation` when this request to `POST /v1/messages` breaks a rule.

    `system_messages`: the model takes `role: "system"` inside `messages`. `prefill`: it goes on with a last assistant
    message. Newer models do the first and refuse the second.
    """
    if not isinstance(body, dict):
        raise WireViolation("body", "Input should be an object")
    _parameters(body)
    _tools(body.get("tools"))
    _system(body.get("system"))
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise WireViolation("messages", "messages: at least one message is required")
    for i, message in enumerate(messages):
        _message(i, message, final=i == len(messages) - 1)
    _system_places(messages, system_messages)
    turns = _turns(messages)
    if not turns:
        raise WireViolation("messages", "messages: at least one message is required")
    if turns[0].role != "user" and _kind(turns[0], 0) != "compaction":
        raise WireViolation("A4", 'messages: first message must use the "user" role')
    _pairing(turns)
    _ending(turns[-1], prefill)
    _leading_thinking(turns, body.get("thinking"))
    _cache_marks(body)


def _parameters(body: dict[str, Any]) -> None:
    model, limit = body.get("model"), body.get("max_tokens")
    if not isinstance(model, str) or not model:
        raise WireViolation("model", "model: Field required")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise WireViolation("max_tokens", "max_tokens: Input should be a positive integer")
    if not isinstance(body.get("stream", False), bool):
        raise WireViolation("stream", "stream: Input should be a valid boolean")


def _tools(tools: Any) -> None:
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
                raise WireViolation("tools", f"tools: Tool names must be unique. {name} is there twice")
            names.add(name)


def _system(system: Any) -> None:
    if system is None:
        return
    if isinstance(system, str):
        system = [{"type": "text", "text": system}]
    if not isinstance(system, list):
        raise WireViolation("A9", "system: Input should be a valid string or list")
    for i, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text":
            raise WireViolation("A9", f"system.{i}.type: Input should be 'text'")
        _text(block, f"system.{i}", "system")


def _message(i: int, message: Any, *, final: bool) -> None:
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
    if not content and not (final and role == "assistant") and not _directive(message):
        excuse = "all messages must have non-empty content except for the optional final assistant message"
        raise WireViolation("A6", f"messages.{i}: {excuse}")
    for j, block in enumerate(content):
        _block(block, role, f"messages.{i}.content.{j}")


def _block(block: Any, role: str, path: str) -> None:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise WireViolation("content", f"{path}.type: Field required")
    kind = block["type"]
    if role == "system" and kind in _NOT_IN_SYSTEM:
        raise WireViolation("A9", f"{path}: role 'system' supports text, tool_addition, and tool_removal blocks only")
    assistants = kind == "tool_use" or kind in _THINKING or kind in _SERVER_CALLS or _is_server_result(block)
    if role != "assistant" and assistants:
        raise WireViolation("role", f"{path}: `{kind}` blocks can only be in `assistant` messages")
    if role != "user" and kind == "tool_result":
        raise WireViolation("role", f"{path}: `tool_result` blocks can only be in `user` messages")
    if kind == "text":
        _text(block, path, "messages")
    elif kind == "thinking":
        _field(block, "thinking", path, "A7", empty=True)
        _field(block, "signature", path, "A7")
    elif kind == "redacted_thinking":
        _field(block, "data", path, "A7")
    elif kind == "tool_use" or kind in _SERVER_CALLS:
        _call(block, path)
    elif kind == "tool_result":
        _field(block, "tool_use_id", path, "A2")
        if not isinstance(block.get("content", ""), (str, list)):
            raise WireViolation("content", f"{path}.tool_result.content: Input should be a valid string or list")
    elif _is_server_result(block):
        _field(block, "tool_use_id", path, "A3")
    elif kind == "compaction" and not isinstance(block.get("content", 0), (str, type(None))):
        raise WireViolation("A11", f"{path}.compaction.content: goes back as it came, a string or null")


def _text(block: Block, path: str, where: str) -> None:
    text = _field(block, "text", path, "content", empty=True)
    if not text and block.get("cache_control"):
        raise WireViolation("cache", f"{path}.text: cache_control cannot be set for empty text blocks")
    if not text:
        raise WireViolation("A6", f"{where}: text content blocks must be non-empty ({path})")
    if not text.strip():
        raise WireViolation("A6", f"{where}: text content blocks must contain non-whitespace text ({path})")


def _call(block: Block, path: str) -> None:
    if not isinstance(block.get("id"), str) or not _TOOL_ID.fullmatch(block["id"]):
        raise WireViolation("ids", f"{path}.{block['type']}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    _field(block, "name", path, "content")
    if not isinstance(block.get("input"), dict):
        raise WireViolation("content", f"{path}.{block['type']}.input: Input should be a valid dictionary")


def _field(block: Block, name: str, path: str, rule: str, *, empty: bool = False) -> str:
    value = block.get(name)
    if not isinstance(value, str) or not (value or empty):
        raise WireViolation(rule, f"{path}.{block['type']}.{name}: Field required")
    return value


def _system_places(messages: list[dict[str, Any]], supported: bool) -> None:
    """A9: a group of system messages stands behind a user turn, and before an assistant turn or at the end."""
    said = [(i, message) for i, message in enumerate(messages) if not _directive(message)]
    for n, (i, message) in enumerate(said):
        if message["role"] != "system":
            continue
        before = said[n - 1][1] if n else None
        after = said[n + 1][1] if n + 1 < len(said) else None
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


def _directive(message: dict[str, Any]) -> bool:
    return message["role"] == "system" and message.get("content") == [] and "output_config" in message


def _ends_in_server_result(message: dict[str, Any]) -> bool:
    content = message["content"]
    return isinstance(content, list) and bool(content) and _is_server_result(content[-1])


def _is_server_result(block: Block) -> bool:
    kind: str = block["type"]
    return kind.endswith("_tool_result")


def _turns(messages: list[dict[str, Any]]) -> list[_Turn]:
    turns: list[_Turn] = []
    for i, message in enumerate(messages):
        if message["role"] == "system":
            continue
        content = message["content"]
        if isinstance(content, str):
            blocks = [(f"messages.{i}.content", {"type": "text", "text": content})] if content else []
        else:
            blocks = [(f"messages.{i}.content.{j}", block) for j, block in enumerate(content)]
        if turns and turns[-1].role == message["role"]:
            blocks = turns.pop().blocks + blocks
        turns.append(_Turn(message["role"], i, blocks))
    return turns


def _kind(turn: _Turn, position: int) -> str | None:
    return turn.blocks[position][1]["type"] if turn.blocks else None


def _pairing(turns: list[_Turn]) -> None:
    """A1, A2 and A3: calls and results, those of our tools across two turns, those of the server's inside one.

    A server call may stay open when the turn is the last one (it is paused), and when our own calls stand beside it:
    then their results alone follow, and the server's result opens the next assistant turn.
    """
    ids: set[str] = set()
    waiting: list[str] = []
    open_calls: dict[str, str] = {}
    for n, turn in enumerate(turns):
        if turn.role == "user":
            _results(turn, waiting, turns[n - 1].last if n else 0)
            waiting = []
            continue
        waiting = _calls(turn, ids, open_calls)
        following = turns[n + 1] if n + 1 < len(turns) else None
        if open_calls and following and not (waiting and _only_results(following)):
            call, name = next(iter(open_calls.items()))
            raise WireViolation(
                "A3", f"`{name}` tool use with id `{call}` was found without a corresponding `{name}_tool_result` block"
            )
    if waiting:
        _results(_Turn("user", 0, []), waiting, turns[-1].last)


def _calls(turn: _Turn, ids: set[str], open_calls: dict[str, str]) -> list[str]:
    """The ids of our calls in this turn; the server's own calls are opened and closed on the way."""
    waiting: list[str] = []
    for path, block in turn.blocks:
        kind = block["type"]
        if kind == "tool_use" or kind in _SERVER_CALLS:
            if block["id"] in ids:
                raise WireViolation("ids", f"{path}: `tool_use` ids must be unique")
            ids.add(block["id"])
            if kind == "tool_use":
                waiting.append(block["id"])
            else:
                open_calls[block["id"]] = block["name"]
        elif _is_server_result(block) and open_calls.pop(block["tool_use_id"], None) is None:
            raise WireViolation(
                "A3",
                f"{path}: unexpected `tool_use_id` found in `{kind}` blocks: {block['tool_use_id']}. "
                f"Each `{kind}` block must have a corresponding `server_tool_use` block before it.",
            )
    return waiting


def _results(turn: _Turn, waiting: list[str], caller: int) -> None:
    seen: set[str] = set()
    for path, block in turn.blocks:
        if block["type"] != "tool_result":
            continue
        call = block["tool_use_id"]
        if call not in waiting:
            raise WireViolation(
                "A2",
                f"{path}: unexpected `tool_use_id` found in `tool_result` blocks: {call}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
            )
        if call in seen:
            what = "each tool_use must have a single result. Found multiple `tool_result` blocks with id"
            raise WireViolation("A2", f"{path}: {what}: {call}")
        seen.add(call)
    leading = takewhile(lambda block: block["type"] == "tool_result", (block for _, block in turn.blocks))
    answered = {block["tool_use_id"] for block in leading}
    missing = [call for call in waiting if call not in answered]
    if missing:
        raise WireViolation(
            "A1",
            f"messages.{caller}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
            "message.",
        )


def _only_results(turn: _Turn) -> bool:
    return all(block["type"] == "tool_result" for _, block in turn.blocks)


def _ending(turn: _Turn, prefill: bool) -> None:
    """A10: the last turn is the user's, unless it is paused or the model goes on with what it finds there."""
    if turn.role == "user":
        return
    block = turn.blocks[-1][1] if turn.blocks else {"type": ""}
    kind = block["type"]
    if kind in _SERVER_CALLS or _is_server_result(block) or kind == "compaction":
        return
    if kind in _THINKING:
        raise WireViolation("A10", f"messages.{turn.last}: The final block in an assistant message cannot be `{kind}`.")
    if not prefill:
        what = "This model does not support assistant message prefill. The conversation must end with a user message."
        raise WireViolation("A10", what)
    if kind == "text" and block["text"] != block["text"].rstrip():
        raise WireViolation("A10", "messages: final assistant content cannot end with trailing whitespace")


def _leading_thinking(turns: list[_Turn], thinking: Any) -> None:
    """A13, for thinking with a budget: an exchange that waits behind tool results starts with thinking.

    With adaptive thinking a model may call a tool without a thought, and the provider asks for none.
    """
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return
    if turns[-1].role != "user" or not any(block["type"] == "tool_result" for _, block in turns[-1].blocks):
        return
    exchange = list(takewhile(lambda turn: turn.role == "assistant" or _only_results(turn), reversed(turns[:-1])))
    rounds = [turn for turn in exchange if turn.role == "assistant"]
    if all(_kind(turn, 0) not in _THINKING for turn in (rounds[0], rounds[-1])):
        path, block = rounds[0].blocks[0]
        raise WireViolation(
            "A13",
            f"{path}.type: Expected `thinking` or `redacted_thinking`, but found `{block['type']}`. When `thinking` is "
            "enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of "
            "`tool_use` and `tool_result` blocks).",
        )


def _cache_marks(body: dict[str, Any]) -> None:
    marks: list[tuple[str, str]] = []
    for path, block in _cacheable(body):
        mark = block.get("cache_control")
        if mark is None:
            continue
        if block.get("type") in _THINKING:
            raise WireViolation("cache", f"{path}.{block['type']}.cache_control: Extra inputs are not permitted")
        if block.get("type") == "text" and not block.get("text"):
            raise WireViolation("cache", f"{path}.text: cache_control cannot be set for empty text blocks")
        marks.append((path, _ttl(mark, path)))
    automatic = body.get("cache_control")
    if automatic is not None and not _last_block_is_marked(body["messages"]):
        marks.append(("cache_control", _ttl(automatic, "request")))
    if len(marks) > _MAX_MARKS:
        raise WireViolation("cache", f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}.")
    for n, (path, ttl) in enumerate(marks):
        if ttl == "1h" and any(earlier == "5m" for _, earlier in marks[:n]):
            what = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
            raise WireViolation("cache", f"{path}.cache_control.ttl: {what}")


def _ttl(mark: Any, path: str) -> str:
    ttl = mark.get("ttl", "5m") if isinstance(mark, dict) and mark.get("type") == "ephemeral" else None
    if ttl not in ("5m", "1h"):
        raise WireViolation("cache", f"{path}.cache_control: Input should be ephemeral, with a ttl of 5m or 1h")
    return str(ttl)


def _cacheable(body: dict[str, Any]) -> Iterator[tuple[str, Block]]:
    """All blocks in the order in which the cache reads them: `tools`, `system`, `messages`."""
    for i, tool in enumerate(body.get("tools") or ()):
        yield f"tools.{i}", tool
    yield from _inside(body.get("system"), "system")
    for i, message in enumerate(body["messages"]):
        yield from _inside(message["content"], f"messages.{i}.content")


def _inside(content: Any, path: str) -> Iterator[tuple[str, Block]]:
    for j, block in enumerate(content if isinstance(content, list) else ()):
        if isinstance(block, dict):
            yield f"{path}.{j}", block
            yield from _inside(block.get("content"), f"{path}.{j}.content")


def _last_block_is_marked(messages: list[dict[str, Any]]) -> bool:
    content = messages[-1]["content"]
    return isinstance(content, list) and bool(content) and bool(content[-1].get("cache_control"))
