"""Read lists of messages in OpenAI's chat format or in Anthropic's, request bodies, and lines of a fine-tuning file.

Messages keep their exact bytes. A message that no provider would accept, such as a tool result without its call, is
rejected; the error gives the number of the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from longtalk._util import json_bytes
from longtalk.transcript.pack import ANSWERS
from longtalk.transcript.transcript import Entry, Turn, new_id
from longtalk.transfer.chat_messages import is_anthropic_part, parse_chat_message, parse_object
from longtalk.transfer.conversation_export import ConversationExport
from longtalk.transfer.native_messages import split_messages
from longtalk.transfer.read_helpers import build_main_branch, excerpt
from longtalk.turn.draft import UNKNOWN
from longtalk.wires.anthropic.wire import WIRE as ANTHROPIC
from longtalk.wires.entries import make_closing_result, mark_verbatim
from longtalk.wires.neutral import system
from longtalk.wires.openai_chat.wire import WIRE as CHAT
from longtalk.wires.views import MessageView

_Parsed: TypeAlias = tuple[int, Entry, MessageView]
"""The number of a message, its entry and its view."""


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
            id_ = name if len(bodies) == 1 else f"{name}-{number}"
            exports.append(read_messages(natives, id=id_, model=model, instructions=members.get("system", b"null")))
        except ValueError as problem:
            raise problem if len(bodies) == 1 else ValueError(f"conversation {number}: {problem}") from None
    return exports


def read_messages(
    natives: Sequence[bytes],
    *,
    id: str,  # noqa: A002
    model: str = "",
    instructions: bytes = b"null",
) -> ConversationExport:
    """Return a conversation with these messages. The model of its turns is `model`, or "unknown" if that is empty.

    The messages are in Anthropic's format if one of them has a part that only Anthropic has, or if there are
    `instructions`, the JSON of the `system` text that Anthropic's requests have beside their messages.

    A turn begins with the first message after an answer, so messages without an answer between them share a turn; a
    system message, for example, belongs to the same turn as the user's message after it. A tool call without a result
    at the end gets a closing result that says that its outcome is unknown, as in any interrupted turn.
    """
    if not natives:
        raise ValueError("the file contains no messages")
    exchanges: list[list[Entry]] = []
    open_calls: list[str] = []
    wire = ANTHROPIC if instructions != b"null" or any(map(_is_anthropic, natives)) else CHAT
    parsed = _parse_anthropic(natives, instructions) if wire is ANTHROPIC else _parse_chat(natives)
    for number, entry, seen in parsed:
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
    exchanges[-1] += [make_closing_result(wire, call, UNKNOWN, at=0) for call in open_calls]
    turns = [(_build_turn(members, model or "unknown"), members) for members in exchanges]
    return ConversationExport(id=id, branches=(build_main_branch(turns),))


def _build_turn(entries: Sequence[Entry], model: str) -> Turn:
    if entries[-1].role == "assistant":
        return Turn(id=new_id(), status="complete", model=model, started=0)
    return Turn(id=new_id(), status="interrupted", model=model, started=0, finish="interrupted")


def _parse_chat(natives: Sequence[bytes]) -> Iterator[_Parsed]:
    for number, native in enumerate(natives, 1):
        yield number, *parse_chat_message(native, number)


def _parse_anthropic(natives: Sequence[bytes], instructions: bytes) -> Iterator[_Parsed]:
    """Yield the messages of Anthropic, with each tool result as a message of its own, after their `instructions`."""
    for number, native in enumerate(natives, 1):
        parse_object(native, number)
        try:
            native.decode()
        except UnicodeDecodeError:
            raise ValueError(f"message {number} is not UTF-8") from None
    if instructions != b"null":
        natives = [b'{"role":"system","content":%s}' % instructions, *natives]
    for message in split_messages(natives, ANTHROPIC, first=1 if instructions == b"null" else 0):
        if message.text:
            yield message.number, system(message.text, at=0), MessageView(role="system", text=message.text)
            continue
        seen = ANTHROPIC.view(message.native)
        entry = Entry(role=message.role, wire=ANTHROPIC.name, native=message.native, at=0, mark=message.mark)
        yield message.number, mark_verbatim(entry, seen), seen


def _is_anthropic(native: bytes) -> bool:
    """Return True if a message has a part that only Anthropic has."""
    try:
        content = json_bytes.fields(native).get("content", b"null")
        parts = json_bytes.value(content) if content[:1] == b"[" else []
    except (ValueError, RecursionError):
        return False
    return any(
        isinstance(part, dict) and isinstance(part.get("type"), str) and is_anthropic_part(part) for part in parts
    )
