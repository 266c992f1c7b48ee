"""Read messages in OpenAI's chat format from a list of messages, request bodies, or lines of a fine-tuning file.

Messages keep their exact bytes. A message that no provider would accept, such as a tool result without its call, is
rejected; the error gives the number of the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from longtalk._util import json_bytes
from longtalk.transcript.pack import ANSWERS
from longtalk.transcript.transcript import Entry, Turn, new_id
from longtalk.transfer.conversation_export import ConversationExport
from longtalk.transfer.read_helpers import build_main_branch, excerpt
from longtalk.turn.draft import UNKNOWN
from longtalk.wires.entries import make_closing_result, mark_verbatim
from longtalk.wires.openai_chat.wire import WIRE, build_answer
from longtalk.wires.views import MessageView

_ROLES = ("system", "developer", "user", "assistant", "tool")


def read_bodies(bodies: Sequence[bytes], name: str) -> list[ConversationExport]:
    """Return a conversation for each of these JSON objects with a list of `messages`, such as request bodies.

    A single conversation gets `name` as its id; several get the ids `name-1`, `name-2` and so on.
    """
    exports = []
    for number, body in enumerate(bodies, 1):
        try:
            members = json_bytes.fields(body)
            messages = members.get("messages", b"null")
            if messages[:1] != b"[":
                raise ValueError(f"`messages` must be a list, not {excerpt(messages)}")
            natives = json_bytes.items(messages)
            model = json_bytes.text(members.get("model", b"null")) or ""
            exports.append(read_messages(natives, id=name if len(bodies) == 1 else f"{name}-{number}", model=model))
        except ValueError as problem:
            raise problem if len(bodies) == 1 else ValueError(f"conversation {number}: {problem}") from None
    return exports


def read_messages(natives: Sequence[bytes], *, id: str, model: str = "") -> ConversationExport:  # noqa: A002
    """Return a conversation with these chat messages. The model of its turns is `model`, or "unknown" if that is empty.

    A turn begins with the first message after an answer, so messages without an answer between them share a turn; a
    system message, for example, belongs to the same turn as the user's message after it. A tool call without a result
    at the end gets a closing result that says that its outcome is unknown, as in any interrupted turn.
    """
    if not natives:
        raise ValueError("the file contains no messages")
    exchanges: list[list[Entry]] = []
    open_calls: list[str] = []
    for number, native in enumerate(natives, 1):
        entry, seen = parse_chat_message(native, number)
        if entry.role == "tool":
            if seen.call_id not in open_calls:
                raise ValueError(
                    f"message {number} is the result of tool call {excerpt(seen.call_id)}, but no such call is open"
                )
            open_calls.remove(seen.call_id)
        elif open_calls:
            raise ValueError(
                f"message {number} ({entry.role}) comes before the result of tool call {excerpt(open_calls[0])}; "
                "results must directly follow their calls"
            )
        if not exchanges or (entry.role not in ANSWERS and exchanges[-1][-1].role in ANSWERS):
            exchanges.append([])
        exchanges[-1].append(entry)
        open_calls += [call.id for call in seen.calls]
    exchanges[-1] += [make_closing_result(WIRE, call, UNKNOWN, at=0) for call in open_calls]
    turns = [(_build_turn(members, model or "unknown"), members) for members in exchanges]
    return ConversationExport(id=id, branches=(build_main_branch(turns),))


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


def _build_turn(entries: Sequence[Entry], model: str) -> Turn:
    if entries[-1].role == "assistant":
        return Turn(id=new_id(), status="complete", model=model, started=0)
    return Turn(id=new_id(), status="interrupted", model=model, started=0, finish="interrupted")


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
    foreign = next((part["type"] for part in parts if _is_anthropic(part)), None)
    if foreign is not None:
        raise ValueError(
            f"{where} is in Anthropic's format (it has a part of type {excerpt(foreign)}), but only OpenAI's chat "
            "format is supported"
        )
    if not parts and content[:1] != b'"':
        missing = "content" not in members and (empty or seen.role != "assistant")
        if missing or seen.role == "tool" or (seen.calls and content != b"null"):
            raise ValueError(f"{where} ({seen.role}) has no content")
        empty = empty or seen.role != "assistant"
    entry = Entry(role=seen.role, wire=WIRE.name, native=native, at=0, mark="empty" if empty else "")
    return mark_verbatim(entry, seen), seen


def _is_anthropic(part: dict[str, Any]) -> bool:
    """Return True if a content part is in Anthropic's format.

    Mistral also has parts of type `thinking`, but in those `thinking` is a list.
    """
    kind: str = part["type"]
    if kind in ("image", "document"):
        return "source" in part
    if kind == "thinking":
        return not isinstance(part.get("thinking"), list)
    return kind == "redacted_thinking" or kind.endswith(("tool_use", "tool_result"))
