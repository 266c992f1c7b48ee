"""The rules of the Anthropic Messages endpoint for turns: calls and results, the last turn, and leading thinking.

The provider treats consecutive messages of one role as one turn (A5), so these rules are checked on turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from longtalk.testing.wires.violation import WireViolation

Block = dict[str, Any]

THINKING = ("thinking", "redacted_thinking")
SERVER_CALLS = ("server_tool_use", "mcp_tool_use")


@dataclass(frozen=True)
class Turn:
    """The blocks of consecutive messages with the same role, each block with its path in the request."""

    role: str
    last: int
    """The position of the turn's last message in the request."""
    blocks: list[tuple[str, Block]]


def is_server_result(block: Block) -> bool:
    """Return whether a block is the result of a tool that ran on the server."""
    kind: str = block["type"]
    return kind.endswith("_tool_result")


def group_turns(messages: list[dict[str, Any]]) -> list[Turn]:
    """Return the turns that these messages form. System messages are left out."""
    turns: list[Turn] = []
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
        turns.append(Turn(message["role"], i, blocks))
    return turns


def get_block_type(turn: Turn, position: int) -> str | None:
    """Return the type of the block at this index of a turn; None if the turn has no blocks."""
    return turn.blocks[position][1]["type"] if turn.blocks else None


def check_pairing(turns: list[Turn]) -> None:
    """Raise `WireViolation` unless every call has a matching result (A1, A2, A3).

    Results of the app's tools come in the next turn, results of the server's own tools in the same turn. In the last
    turn, a server call may lack its result; the turn is then paused. A server call may also lack its result next to
    calls to the app: then the next turn contains only the app's results, and the assistant turn after that begins with
    the server's result.
    """
    ids: set[str] = set()
    waiting: list[str] = []
    open_calls: dict[str, str] = {}
    for n, turn in enumerate(turns):
        if turn.role == "user":
            _check_results(turn, waiting, turns[n - 1].last if n else 0)
            waiting = []
            continue
        waiting = _collect_calls(turn, ids, open_calls)
        following = turns[n + 1] if n + 1 < len(turns) else None
        if open_calls and following and not (waiting and _has_only_results(following)):
            call, name = next(iter(open_calls.items()))
            raise WireViolation(
                "A3", f"`{name}` tool use with id `{call}` was found without a corresponding `{name}_tool_result` block"
            )
    if waiting:
        _check_results(Turn("user", 0, []), waiting, turns[-1].last)


def _collect_calls(turn: Turn, ids: set[str], open_calls: dict[str, str]) -> list[str]:
    """Return the ids of the calls in this turn that the app must answer.

    The ids of all calls are added to `ids`, and `open_calls` is updated: the server calls that lack a result.
    """
    waiting: list[str] = []
    for path, block in turn.blocks:
        kind = block["type"]
        if kind == "tool_use" or kind in SERVER_CALLS:
            if block["id"] in ids:
                raise WireViolation("ids", f"{path}: `tool_use` ids must be unique")
            ids.add(block["id"])
            if kind == "tool_use":
                waiting.append(block["id"])
            else:
                open_calls[block["id"]] = block["name"]
        elif is_server_result(block) and open_calls.pop(block["tool_use_id"], None) is None:
            raise WireViolation(
                "A3",
                f"{path}: unexpected `tool_use_id` found in `{kind}` blocks: {block['tool_use_id']}. "
                f"Each `{kind}` block must have a corresponding `server_tool_use` block before it.",
            )
    return waiting


def _check_results(turn: Turn, waiting: list[str], caller: int) -> None:
    """Raise `WireViolation` unless a user turn begins with one result for each call in `waiting` (A1, A2)."""
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


def _has_only_results(turn: Turn) -> bool:
    return all(block["type"] == "tool_result" for _, block in turn.blocks)


def check_ending(turn: Turn, prefill: bool) -> None:
    """Raise `WireViolation` unless this last turn is the user's, or one that the provider can continue (A10)."""
    if turn.role == "user":
        return
    block = turn.blocks[-1][1] if turn.blocks else {"type": ""}
    kind = block["type"]
    if kind in SERVER_CALLS or is_server_result(block) or kind == "compaction":
        return
    if kind in THINKING:
        raise WireViolation("A10", f"messages.{turn.last}: The final block in an assistant message cannot be `{kind}`.")
    if not prefill:
        what = "This model does not support assistant message prefill. The conversation must end with a user message."
        raise WireViolation("A10", what)
    if kind == "text" and block["text"] != block["text"].rstrip():
        raise WireViolation("A10", "messages: final assistant content cannot end with trailing whitespace")


def check_leading_thinking(turns: list[Turn], thinking: Any) -> None:
    """Raise `WireViolation` if an exchange that ends in tool results, or is paused, doesn't start with thinking (A13).

    The rule applies to thinking with a budget. With adaptive thinking, a model may call a tool without thinking first.
    Text after the tool results doesn't lift the rule.
    """
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return
    *earlier, last = turns
    if last.role == "assistant":
        earlier = turns
    elif not any(block["type"] == "tool_result" for _, block in last.blocks):
        return
    exchange = list(takewhile(lambda turn: turn.role == "assistant" or _has_only_results(turn), reversed(earlier)))
    rounds = [turn for turn in exchange if turn.role == "assistant"]
    if all(get_block_type(turn, 0) not in THINKING for turn in (rounds[0], rounds[-1])):
        path, block = rounds[0].blocks[0]
        raise WireViolation(
            "A13",
            f"{path}.type: Expected `thinking` or `redacted_thinking`, but found `{block['type']}`. When `thinking` is "
            "enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of "
            "`tool_use` and `tool_result` blocks).",
        )
