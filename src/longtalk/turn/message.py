"""A caller's message as entries: text, parts in the provider's form, or a list of these with `System` texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from longtalk._util import json_bytes
from longtalk.errors import InputError
from longtalk.transcript.transcript import Entry, now
from longtalk.wires.card_tags import neutralize_tags
from longtalk.wires.neutral import system
from longtalk.wires.protocol import Wire

_MAX_DEPTH = 200


class System(msgspec.Struct, frozen=True):
    """A system message inside the conversation: stored in order, unlike `system=`, which is given fresh each turn."""

    text: str


class ToolOutput(msgspec.Struct, frozen=True):
    """The result of a call that your program has run: text, or parts in the provider's form, as in a message.

    `call_id` is the id of one of `reply.calls`. `error` says that the call failed.
    """

    call_id: str
    content: str | Sequence[str | Mapping[str, Any]]
    error: bool = False


Said: TypeAlias = str | System | Mapping[str, Any]
Message: TypeAlias = Said | ToolOutput | Sequence[Said] | Sequence[ToolOutput]
"""What a caller may say: text, a part in the provider's form, or a list of these that may hold `System`. Or the results
of the calls that its own program has run."""


def neutralize_message(message: Any, depth: int = 0) -> Any:
    """Return the message with its text changed so that no part of it passes for a memory card."""
    if depth > _MAX_DEPTH:
        raise InputError("A part of the message can't be written as JSON: it is nested too deeply.")
    if isinstance(message, str):
        return neutralize_tags(message)
    if isinstance(message, System):
        return System(neutralize_message(message.text))
    if isinstance(message, ToolOutput):
        return ToolOutput(message.call_id, neutralize_message(message.content), message.error)
    if isinstance(message, Mapping):
        return {key: neutralize_message(value, depth + 1) for key, value in message.items()}
    return [neutralize_message(each, depth + 1) for each in message] if isinstance(message, list | tuple) else message


def parse_message(message: Any, wire: Wire) -> list[Entry]:
    """Convert a message to entries. The message is text, a part, or a list that may include `System` items."""
    if isinstance(message, str | System | Mapping):
        message = [message]
    if not isinstance(message, list | tuple):
        raise InputError(
            f"A message is text, a part, or a list of texts, parts and System(…), not {type(message).__name__}."
        )
    at = now()
    entries: list[Entry] = []
    said: list[Any] = []

    def flush() -> None:
        if said:
            content = said[0] if len(said) == 1 and isinstance(said[0], str) else list(said)
            entries.append(Entry(role="user", wire=wire.name, native=_encode(wire, content), at=at))
            said.clear()

    for item in message:
        if isinstance(item, System):
            flush()
            entries.append(system(_text(item.text, "A System message"), at=at))
        elif isinstance(item, str):
            said.append(_text(item, "The message"))
        elif isinstance(item, Mapping) and "role" in item:
            raise InputError(
                f"Pass what the user says, without a role: text, or a list of texts and parts. This has the role "
                f"{item['role']!r}. For a system message, pass System(…); earlier messages are loaded by Archive.load."
            )
        elif isinstance(item, Mapping) and wire.is_part(item):
            said.append(dict(item))
        elif isinstance(item, Mapping):
            raise InputError(describe_wrong_part(item, wire))
        else:
            raise InputError(f"A message can't hold {type(item).__name__}: give text, parts (objects) or System(…).")
    flush()
    if not any(entry.role == "user" for entry in entries):
        raise InputError("The message is empty: a turn needs something that the user said.")
    return entries


def describe_wrong_part(part: Mapping[str, Any], wire: Wire) -> str:
    """Return the text of the error for an object that is no part in the form of a wire."""
    example = _make_example_part(wire)
    return f"A part is an object in the provider's form, such as {example}; this has the keys {list(part)}."


def _make_example_part(wire: Wire) -> str:
    message = json_bytes.value(wire.write_user(["Hello!"]))
    (part,) = next(value for value in message.values() if isinstance(value, list))
    return json_bytes.encode(part).decode()


def _text(text: Any, what: str) -> str:
    if not isinstance(text, str):
        raise InputError(f"{what} must be text, not {type(text).__name__}.")
    if not text.strip():
        raise InputError(f"{what} is empty.")
    return text


def _encode(wire: Wire, content: Any) -> bytes:
    try:
        native = wire.write_user(content)
        json_bytes.fields(native)
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(f"A part of the message can't be written as JSON: {problem}.") from None
    return native
