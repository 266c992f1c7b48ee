"""Convert a caller's message to entries: text, parts in the provider's JSON, or a list of these with `System` texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from longtalk._util import json_bytes
from longtalk.errors import InputError
from longtalk.transcript.transcript import Entry, now
from longtalk.wires.neutral import system
from longtalk.wires.protocol import Wire


class System(msgspec.Struct, frozen=True):
    """A system message inside the conversation. Unlike `system=`, which is passed with each turn, it is stored."""

    text: str


class ToolOutput(msgspec.Struct, frozen=True):
    """The result of a tool call that your program has run: text, or parts in the provider's JSON, as in a message.

    `call_id` is the id of one of `reply.calls`. `error=True` means that the call failed.
    """

    call_id: str
    content: str | Sequence[str | Mapping[str, Any]]
    error: bool = False


class OpenAIToolOutput(ToolOutput, frozen=True):
    """A result whose parts are in OpenAI's format, whatever provider made the call. They are converted if necessary."""


class ParsedMessage(msgspec.Struct, frozen=True):
    """A message that was already converted to entries, possibly on another wire than the provider's.

    `outputs` are the results of the calls that wait for the caller; they come before `entries`. A service uses this to
    keep the exact JSON that its own clients send.
    """

    entries: tuple[Entry, ...] = ()
    outputs: tuple[ToolOutput, ...] = ()

    def to_signature(self) -> Any:
        """Return a value that is equal for two messages with the same content, whatever their times are."""
        said = [(entry.role, entry.wire, entry.native.decode("utf-8", "replace")) for entry in self.entries]
        return [said, [msgspec.to_builtins(output) for output in self.outputs]]


Said: TypeAlias = str | System | Mapping[str, Any]
Message: TypeAlias = Said | ToolOutput | Sequence[Said] | Sequence[ToolOutput] | ParsedMessage
"""A caller's message: text, a part in the provider's JSON, or a list of these, which may also contain `System`.

Or the results of tool calls that the caller's program has run.
"""


def parse_message(message: Any, wire: Wire) -> list[Entry]:
    """Convert a message to entries. The message is text, a part, or a list that may also contain `System` items."""
    if isinstance(message, str | System | Mapping):
        message = [message]
    if not isinstance(message, list | tuple):
        raise InputError(
            f"A message must be text, a part, or a list of texts, parts and System(…), not {type(message).__name__}."
        )
    at = now()
    if len(message) == 1 and isinstance(message[0], str):
        native = _encode(wire, _text(message[0], "The message"))
        return [Entry(role="user", wire=wire.name, native=native, at=at)]
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
                f"Pass the user's message without a role, as text or as a list of texts and parts. This one has "
                "the role "
                f"{item['role']!r}. For a system message, pass System(…); to load earlier messages, use Archive.load."
            )
        elif isinstance(item, Mapping) and wire.is_part(item):
            said.append(dict(item))
        elif isinstance(item, Mapping):
            raise InputError(describe_wrong_part(item, wire))
        else:
            raise InputError(f"A message can't contain {type(item).__name__}: pass text, parts (objects) or System(…).")
    flush()
    if not any(entry.role == "user" for entry in entries):
        raise InputError("The message is empty: pass the text or the parts that the user sends.")
    return entries


def describe_wrong_part(part: Mapping[str, Any], wire: Wire) -> str:
    """Return the error message for an object that is not a valid part on this wire."""
    example = _make_example_part(wire)
    return f"A part must be an object in the provider's JSON, such as {example}. This one has the keys {list(part)}."


def _make_example_part(wire: Wire) -> str:
    message = json_bytes.value(wire.write_user(["Hello!"]))
    (part,) = next(value for value in message.values() if isinstance(value, list))
    return json_bytes.encode(part).decode()


def _text(text: Any, what: str) -> str:
    if not isinstance(text, str):
        raise InputError(f"{what} must be a string, not {type(text).__name__}.")
    if not text.strip():
        raise InputError(f"{what} is empty: pass some text.")
    return text


def _encode(wire: Wire, content: Any) -> bytes:
    try:
        native = wire.write_user(content)
        json_bytes.fields(native)
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(f"A part of the message can't be written as JSON: {problem}.") from None
    return native
