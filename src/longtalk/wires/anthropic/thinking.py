"""Decide whether a request can have thinking enabled.

With a thinking budget (`"type": "enabled"`), the provider rejects a request that ends inside tool use, unless the tool
use starts with thinking. Answers lack their thinking if it is not valid for this request: another model or account made
them, the text before them has changed, or thinking was off. The provider's remedy is to disable thinking for such a
request. With adaptive thinking, there is no such rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from longtalk._util import json_bytes
from longtalk.wires.native import array_items

THINKING = (b'"thinking"', b'"redacted_thinking"')
"""The types of blocks that only the provider can read."""
DISABLED = b'{"type":"disabled"}'
_RESULT = b'"tool_result"'


def must_disable_thinking(options: Mapping[str, bytes], pieces: Sequence[bytes | memoryview]) -> bool:
    """Return True if the provider would reject these messages because the options set a thinking budget."""
    thinking = options.get("thinking", b"")
    has_budget = thinking[:1] == b"{" and json_bytes.fields(thinking).get("type") == b'"enabled"'
    return has_budget and _ends_in_tool_use_without_thinking(pieces)


def _ends_in_tool_use_without_thinking(pieces: Sequence[bytes | memoryview]) -> bool:
    starts: list[bytes | None] = []
    # The provider treats neighbouring messages of one role as one turn.
    for n, (role, turn) in enumerate(groupby(_iterate_backwards(pieces), key=lambda message: message.get("role"))):
        blocks = [block for message in turn for block in reversed(array_items(message.get("content", b"")))]
        types = [json_bytes.fields(block).get("type") for block in blocks]
        if role == b'"assistant"':
            starts.append(types[-1] if types else None)
        elif n == 0 and _RESULT not in types:
            return False
        elif n > 0 and set(types) != {_RESULT}:
            break
    # A model without interleaved thinking thinks only before the first call.
    return bool(starts) and not any(start in THINKING for start in (starts[0], starts[-1]))


def _iterate_backwards(pieces: Sequence[bytes | memoryview]) -> Iterator[dict[str, bytes]]:
    """Yield the fields of each message, the last one first."""
    for piece in reversed(pieces):
        for message in reversed(json_bytes.items(b"[" + bytes(piece) + b"]")):
            yield json_bytes.fields(message)
