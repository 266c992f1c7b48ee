"""Parse messages in OpenAI's chat format, and recognize those in Anthropic's.

A message that no provider would accept is rejected; the error gives its number.
"""

from __future__ import annotations

from typing import Any

from longtalk._util import json_bytes
from longtalk.transcript.transcript import Entry
from longtalk.transfer.read_helpers import excerpt
from longtalk.wires.entries import mark_verbatim
from longtalk.wires.openai_chat.wire import WIRE, build_answer
from longtalk.wires.views import MessageView

_ROLES = ("system", "developer", "user", "assistant", "tool")


def parse_object(data: bytes, number: int) -> dict[str, bytes]:
    """Return the members of a message as raw bytes; raise `ValueError` if the message is not a JSON object.

    `number` identifies the message in the error.
    """
    if data[:1] != b"{":
        raise ValueError(f"message {number} must be a JSON object, not {excerpt(data)}")
    try:
        return json_bytes.fields(data)
    except ValueError as problem:
        raise ValueError(f"message {number} is {problem}") from None


def parse_chat_message(native: bytes, number: int) -> tuple[Entry, MessageView]:
    """Parse a message; raise `ValueError` if no provider would accept it. `number` identifies it in the error.

    A message without content is marked as empty, so that it is kept but not sent.
    """
    members = parse_object(native, number)
    where = f"message {number}"
    try:
        native.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{where} is not UTF-8") from None
    try:
        seen = WIRE.view(native)
        empty = build_answer(native, None, None).empty if seen.role == "assistant" else False
    except (ValueError, TypeError, AttributeError) as problem:
        raise ValueError(f"{where} is not a chat message ({problem})") from None
    if seen.role not in _ROLES:
        raise ValueError(f"{where} has the role {excerpt(seen.role)}; it must be one of {', '.join(_ROLES)}")
    if seen.calls and seen.role != "assistant":
        raise ValueError(f"{where} ({seen.role}) has tool calls, which only an assistant message can have")
    if not all(call.id and "\ufffd" not in call.id for call in seen.calls):
        raise ValueError(f"{where} has a tool call without a valid id")
    content = members.get("content", b"null")
    parts = [json_bytes.value(part) for part in json_bytes.items(content)] if content[:1] == b"[" else []
    typed = all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts)
    if content[:1] not in (b'"', b"[", b"n") or not typed:
        raise ValueError(f"the content of {where} must be a string, or a list of parts that each have a `type`")
    foreign = next((part["type"] for part in parts if is_anthropic_part(part)), None)
    if foreign is not None:
        raise ValueError(
            f"{where} is in Anthropic's format (it has a part of type {excerpt(foreign)}), but must be in OpenAI's "
            "chat format"
        )
    if not parts and content[:1] != b'"':
        missing = "content" not in members and (empty or seen.role != "assistant")
        if missing or seen.role == "tool" or (seen.calls and content != b"null"):
            raise ValueError(f"{where} ({seen.role}) has no content")
        empty = empty or seen.role != "assistant"
    entry = Entry(role=seen.role, wire=WIRE.name, native=native, at=0, mark="empty" if empty else "")
    return mark_verbatim(entry, seen), seen


def is_anthropic_part(part: dict[str, Any]) -> bool:
    """Return True if a content part is in Anthropic's format.

    Mistral also has parts of type `thinking`, but in those `thinking` is a list.
    """
    kind: str = part["type"]
    if kind in ("image", "document"):
        return "source" in part
    if kind == "thinking":
        return not isinstance(part.get("thinking"), list)
    return kind == "redacted_thinking" or kind.endswith(("tool_use", "tool_result"))
