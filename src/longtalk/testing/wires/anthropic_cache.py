"""The rules of the Anthropic Messages endpoint for `cache_control` marks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from longtalk.testing.wires.anthropic_turns import THINKING
from longtalk.testing.wires.violation import WireViolation

Block = dict[str, Any]

_MAX_MARKS = 4


def check_cache_marks(body: dict[str, Any]) -> None:
    """Raise `WireViolation` if the number, position or lifetime of the request's cache marks breaks a rule."""
    marks: list[tuple[str, str]] = []
    for path, block in _iterate_blocks(body):
        mark = block.get("cache_control")
        if mark is None:
            continue
        if block.get("type") in THINKING:
            raise WireViolation("cache", f"{path}.{block['type']}.cache_control: Extra inputs are not permitted")
        if block.get("type") == "text" and not block.get("text"):
            raise WireViolation("cache", f"{path}.text: cache_control cannot be set for empty text blocks")
        marks.append((path, _read_ttl(mark, path)))
    automatic = body.get("cache_control")
    if automatic is not None and not _last_block_is_marked(body["messages"]):
        marks.append(("cache_control", _read_ttl(automatic, "request")))
    if len(marks) > _MAX_MARKS:
        raise WireViolation("cache", f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}.")
    for n, (path, ttl) in enumerate(marks):
        if ttl == "1h" and any(earlier == "5m" for _, earlier in marks[:n]):
            what = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
            raise WireViolation("cache", f"{path}.cache_control.ttl: {what}")


def _read_ttl(mark: Any, path: str) -> str:
    ttl = mark.get("ttl", "5m") if isinstance(mark, dict) and mark.get("type") == "ephemeral" else None
    if ttl not in ("5m", "1h"):
        raise WireViolation("cache", f"{path}.cache_control: Input should be ephemeral, with a ttl of 5m or 1h")
    return str(ttl)


def _iterate_blocks(body: dict[str, Any]) -> Iterator[tuple[str, Block]]:
    """Yield all blocks of a request with their paths, in the order in which the provider caches them.

    That order is `tools`, `system`, `messages`.
    """
    for i, tool in enumerate(body.get("tools") or ()):
        yield f"tools.{i}", tool
    yield from _iterate_content(body.get("system"), "system")
    for i, message in enumerate(body["messages"]):
        yield from _iterate_content(message["content"], f"messages.{i}.content")


def _iterate_content(content: Any, path: str) -> Iterator[tuple[str, Block]]:
    """Yield the blocks of a `content` member with their paths, including nested blocks."""
    for j, block in enumerate(content if isinstance(content, list) else ()):
        if isinstance(block, dict):
            yield f"{path}.{j}", block
            yield from _iterate_content(block.get("content"), f"{path}.{j}.content")


def _last_block_is_marked(messages: list[dict[str, Any]]) -> bool:
    content = messages[-1]["content"]
    return isinstance(content, list) and bool(content) and bool(content[-1].get("cache_control"))
