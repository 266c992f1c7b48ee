"""Read the reasoning in a stored answer, as far as the provider shows it, for display."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longtalk._util import json_bytes
from longtalk.transcript.pack import Entry
from longtalk.wires.registry import WIRES, find_family


def read_reasoning(entry: Entry) -> str:
    """Return the readable reasoning of an answer; empty if it has none. Encrypted reasoning can't be read."""
    if entry.role != "assistant" or entry.wire not in WIRES:
        return ""
    value = _read_object(entry.native)
    family = find_family(WIRES[entry.wire])
    if family == "anthropic":
        found = [block.get("thinking") for block in _list_objects(value.get("content")) if "thinking" in block]
    elif family == "gemini":
        found = [part.get("text") for part in _list_objects(value.get("parts")) if part.get("thought") is True]
    elif family == "openai-responses":
        items = [item for item in _list_objects(value.get("output")) if item.get("type") == "reasoning"]
        parts = [part for item in items for name in ("summary", "content") for part in _list_objects(item.get(name))]
        found = ["\n\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))]
    elif family == "openai-chat":
        found = [value.get("reasoning_content") or value.get("reasoning")]
    else:
        found = []
    return "".join(text for text in found if isinstance(text, str))


def _read_object(native: bytes) -> Mapping[str, Any]:
    try:
        value = json_bytes.value(native)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, Mapping) else {}


def _list_objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
