"""Leave out calls to the provider's own tools that were never answered.

The provider may pause a turn after such a call, and returns the result when the turn continues. If the turn was stopped
instead and a new message follows, the provider rejects a request with the call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from longtalk._util import json_bytes
from longtalk.wires.anthropic.thinking import THINKING
from longtalk.wires.native import array_items, split_piece

SERVER_CALLS = (b'"server_tool_use"', b'"mcp_tool_use"')
"""The types of blocks in which the model calls a tool of the provider."""
_SERVER_CALL = re.compile(rb'"(?:server|mcp)_tool_use"')


def drop_unanswered_calls(pieces: Sequence[bytes | memoryview], mark: int) -> tuple[Sequence[bytes | memoryview], int]:
    """Return the pieces without server calls that lack a result although a message of the user follows.

    `mark` is a number of pieces; it is returned without the pieces that are left out.
    """
    if not any(map(_SERVER_CALL.search, pieces)):
        return pieces, mark
    split = [split_piece(piece) for piece in pieces]
    unanswered = _find_unanswered([message for messages in split for message in messages])
    if not unanswered:
        return pieces, mark
    kept: list[bytes | memoryview] = []
    new_mark = mark
    for i, (piece, messages) in enumerate(zip(pieces, split, strict=True)):
        left = piece
        if _SERVER_CALL.search(piece):
            left = b",".join(filter(None, (_drop(message, unanswered) for message in messages)))
        if left:
            kept.append(left)
        else:
            new_mark -= i < mark
    return kept, new_mark


def _find_unanswered(messages: Sequence[bytes]) -> set[bytes]:
    """Return the ids of server calls that have no result and are not in the part of the request that can continue."""
    unanswered: set[bytes] = set()
    open_calls: set[bytes] = set()
    for message in messages:
        fields = json_bytes.fields(message)
        blocks = [json_bytes.fields(block) for block in array_items(fields.get("content", b""))]
        if fields.get("role") == b'"assistant"':
            for block in blocks:
                if block.get("type") in SERVER_CALLS:
                    open_calls.add(block.get("id", b""))
                open_calls.discard(block.get("tool_use_id", b""))
        elif not blocks or any(block.get("type") != b'"tool_result"' for block in blocks):
            unanswered |= open_calls
            open_calls.clear()
    return unanswered


def _drop(message: bytes, unanswered: set[bytes]) -> bytes | None:
    """Return a message without these calls; None if only thinking, which can't stand alone, or nothing is left."""
    fields = json_bytes.fields(message)
    blocks = array_items(fields.get("content", b""))
    seen = [json_bytes.fields(block) for block in blocks]
    dropped = [block.get("type") in SERVER_CALLS and block.get("id", b"") in unanswered for block in seen]
    if not any(dropped):
        return message
    kept = [block for block, is_dropped in zip(blocks, dropped, strict=True) if not is_dropped]
    if all(json_bytes.fields(block).get("type") in THINKING for block in kept):
        return None
    return json_bytes.build({**fields, "content": b"[" + b",".join(kept) + b"]"})
