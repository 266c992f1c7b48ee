"""Read messages in a provider's own JSON, with one reader for each wire, and split them into entries for a transcript.

In a transcript, each tool result is a separate entry, and all items of an answer form one entry. A message or item that
already corresponds to one entry is stored unchanged, byte for byte. A message that no provider would accept is refused;
the error gives its number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from longtalk._util import json_bytes
from longtalk.transfer.chat_messages import parse_chat_message
from longtalk.wires.native import array_items
from longtalk.wires.openai_responses.items import CALLS
from longtalk.wires.protocol import Wire


class NativeMessage(NamedTuple):
    """One message as a transcript stores it. A system message that the wire can't represent has only `text`."""

    number: int
    """The number of the original message, counted from 1."""
    role: str
    native: bytes = b""
    mark: str = ""
    text: str = ""


def split_messages(natives: Sequence[bytes], wire: Wire, *, first: int = 1) -> list[NativeMessage]:
    """Return the messages, given as JSON in the format of `wire`. Raise `ValueError` if a message can't be sent.

    `first` is the number of the first message.
    """
    split = _READERS.get(wire.name, _split_agent)
    found: list[NativeMessage] = []
    for number, native in enumerate(natives, first):
        try:
            found += split(number, native, json_bytes.value(native))
        except ValueError as problem:
            text = str(problem)
            raise ValueError(text if f"message {number} " in text else f"message {number} {text}") from None
    return _join_answers(found) if wire.name == "openai-responses" else found


# OpenAI chat


def _split_chat(number: int, native: bytes, value: Mapping[str, Any]) -> Iterator[NativeMessage]:
    for call in _list_objects(value.get("tool_calls")):
        function = call.get("function", {})
        if call.get("type") == "function" and not (isinstance(function, dict) and _is_text(function.get("name"))):
            raise ValueError(f"message {number} has a tool call without the name of a function")
    entry = parse_chat_message(native, number)[0]
    if entry.role == "tool" and not _is_text(value.get("tool_call_id")):
        raise ValueError(f"message {number} has the role 'tool', but no tool_call_id")
    yield NativeMessage(number, entry.role, native, entry.condition)


# OpenAI Responses


def _split_responses(number: int, native: bytes, value: Mapping[str, Any]) -> Iterator[NativeMessage]:
    role, kind = value.get("role"), value.get("type", "message")
    if kind == "message" and role in ("user", "system", "developer"):
        _check_parts(value.get("content"))
        yield NativeMessage(number, role, native)
    elif kind == "message" and role == "assistant":
        _check_parts(value.get("content"))
        yield NativeMessage(number, "assistant", native)
    elif "role" not in value and "type" not in value and isinstance(value.get("output"), list):
        # An answer in the format in which a transcript stores it.
        if not value["output"]:
            raise ValueError(f"message {number} has no content")
        for item in value["output"]:
            if not isinstance(item, dict) or item.get("role") not in (None, "assistant"):
                raise ValueError(f"message {number} has an `output` that is not a list of the items of an answer")
            (each,) = _split_responses(number, json_bytes.encode(item), item)
            if each.role != "assistant":
                raise ValueError(f"message {number} has an item of type {item.get('type')!r} in an answer")
        yield NativeMessage(number, "assistant", native)
    elif role is not None or not isinstance(kind, str) or kind == "message":
        raise ValueError(f"message {number} has the role {role!r}; it must be user, system, developer or assistant")
    elif b'"%s"' % kind.encode() in CALLS.values():
        if not _is_text(value.get("call_id")) or not isinstance(value.get("output"), str | list):
            raise ValueError(f"message {number} is a {kind} without a call_id or an output")
        yield NativeMessage(number, "tool", native)
    else:
        needed = {"function_call": ("call_id", "name", "arguments"), "custom_tool_call": ("call_id", "name", "input")}
        missing = [name for name in needed.get(kind, ()) if not isinstance(value.get(name), str)]
        if missing:
            raise ValueError(f"message {number} is a {kind} without {missing[0]}, which must be text")
        yield NativeMessage(number, "assistant", native)


def _join_answers(messages: Sequence[NativeMessage]) -> list[NativeMessage]:
    """Return the messages with neighbouring items of one answer merged into one message."""
    joined: list[NativeMessage] = []
    items: list[bytes] = []
    for message in messages:
        if message.role != "assistant":
            joined.append(message)
            continue
        is_next = bool(joined) and joined[-1].role == "assistant"
        fields = json_bytes.fields(message.native)
        is_answer = "type" not in fields and "role" not in fields
        new = json_bytes.items(fields["output"]) if is_answer else [message.native]
        items = [*items, *new] if is_next else new
        if is_next or not is_answer:
            message = message._replace(native=b'{"output":[' + b",".join(items) + b"]}")
        joined[len(joined) - is_next :] = [message]
    return joined


# Anthropic


def _split_anthropic(number: int, native: bytes, value: Mapping[str, Any]) -> Iterator[NativeMessage]:
    role, content = value.get("role"), value.get("content")
    if other := sorted(value.keys() - {"role", "content"}):
        raise ValueError(
            f"message {number} has the field {other[0]!r}; Anthropic's messages have only a role and content"
        )
    _check_parts(content)
    blocks = _list_objects(content)
    if role == "system":
        yield _make_system(number, content if isinstance(content, str) else [block.get("text") for block in blocks])
        return
    if role not in ("user", "assistant"):
        raise ValueError(f"message {number} has the role {role!r}; it must be user, assistant or system")
    for block in blocks:
        if block["type"] == "text" and not _is_text(block.get("text")):
            raise ValueError(f"message {number} has a text block without text")
        if block["type"] == "tool_use" and not (
            _is_text(block.get("id")) and _is_text(block.get("name")) and isinstance(block.get("input"), dict)
        ):
            raise ValueError(f"message {number} has a tool_use block without an id, a name or an input")
        if block["type"] == ("tool_use" if role == "user" else "tool_result"):
            raise ValueError(
                f"message {number} has a block of type {block['type']!r}, which the role {role!r} does not allow"
            )
    results = _count_first([block["type"] == "tool_result" for block in blocks])
    if not results:
        yield NativeMessage(number, role, native)
        return
    raw = array_items(json_bytes.fields(native)["content"])
    for block, data in zip(blocks[:results], raw, strict=False):
        if not _is_text(block.get("tool_use_id")):
            raise ValueError(f"message {number} has a tool_result block without a tool_use_id")
        result = json_bytes.build({"type": b"", **json_bytes.fields(data)} | {"type": b'"tool_result"'})
        mark = "error" if block.get("is_error") is True else ""
        yield NativeMessage(number, "tool", b'{"role":"user","content":[' + result + b"]}", mark)
    if raw[results:]:
        yield NativeMessage(number, "user", b'{"role":"user","content":[' + b",".join(raw[results:]) + b"]}")


# Gemini


def _split_gemini(number: int, native: bytes, value: Mapping[str, Any]) -> Iterator[NativeMessage]:
    role, parts = value.get("role"), _list_objects(value.get("parts"))
    if not parts or len(parts) != len(value["parts"]) or not all(parts):
        raise ValueError(f"message {number} has no `parts`, or some that are not objects")
    odd = [name for part in parts for name in part if name == "type" or "_" in name]
    if odd:
        raise ValueError(f"message {number} has a part with the field {odd[0]!r}, which Gemini's parts don't have")
    if role == "system":
        yield _make_system(number, [part.get("text") for part in parts])
        return
    if role not in ("user", "model", "function"):
        raise ValueError(f"message {number} has the role {role!r}; it must be user, model or system")
    calls, answers = ("functionCall", "functionResponse") if role == "model" else ("functionResponse", "functionCall")
    if any(answers in part for part in parts):
        raise ValueError(f"message {number} has a part with {answers!r}, which the role {role!r} does not allow")
    for call in (part[calls] for part in parts if calls in part):
        if not isinstance(call, dict) or not _is_text(call.get("name")):
            raise ValueError(f"message {number} has a {calls} without a name")
    results = 0 if role == "model" else _count_first(["functionResponse" in part for part in parts])
    if not results:
        if role == "function":
            raise ValueError(f"message {number} has the role 'function' and no functionResponse")
        yield NativeMessage(number, "assistant" if role == "model" else "user", native)
        return
    raw = array_items(json_bytes.fields(native)["parts"])
    for part, data in zip(parts[:results], raw, strict=False):
        members = json_bytes.fields(data)
        result = json_bytes.build({"functionResponse": members.pop("functionResponse"), **members})
        response = part["functionResponse"].get("response")
        mark = "error" if isinstance(response, dict) and response.keys() == {"error"} else ""
        yield NativeMessage(number, "tool", b'{"role":"user","parts":[' + result + b"]}", mark)
    if raw[results:]:
        yield NativeMessage(number, "user", b'{"role":"user","parts":[' + b",".join(raw[results:]) + b"]}")


def name_gemini_result(native: bytes, call_id: str) -> bytes:
    """Return a Gemini result with the id of its call added. Gemini itself pairs them by the name of the function."""
    (part,) = json_bytes.items(json_bytes.fields(native)["parts"])
    members = json_bytes.fields(part)
    response = {**json_bytes.fields(members["functionResponse"]), "id": json_bytes.encode(call_id)}
    part = json_bytes.build({**members, "functionResponse": json_bytes.build(response)})
    return b'{"role":"user","parts":[' + part + b"]}"


# Agents


def _split_agent(number: int, native: bytes, value: Mapping[str, Any]) -> Iterator[NativeMessage]:
    role, content = value.get("role"), value.get("content")
    if role not in ("user", "assistant", "system") or not _is_text(content) or len(value) > 2:
        raise ValueError(
            f"message {number} can't be sent to an agent, which accepts only text from user, assistant and system"
        )
    yield _make_system(number, content) if role == "system" else NativeMessage(number, role, native)


_Reader: TypeAlias = Callable[[int, bytes, Mapping[str, Any]], Iterator[NativeMessage]]
_READERS: Mapping[str, _Reader] = {
    "openai-chat": _split_chat,
    "openai-responses": _split_responses,
    "anthropic": _split_anthropic,
    "gemini": _split_gemini,
}


def _make_system(number: int, content: Any) -> NativeMessage:
    """Return a system message that this wire can't represent inside a conversation."""
    texts = [content] if isinstance(content, str) else content
    if not all(map(_is_text, texts)):
        raise ValueError(f"message {number} is a system message, so it may contain only text")
    return NativeMessage(number, "system", text="\n\n".join(texts))


def _check_parts(content: Any) -> None:
    """Raise `ValueError` unless the content of a message is text, or a list of parts with types."""
    parts = content if isinstance(content, list) else []
    if not (_is_text(content) or parts) or not all(
        isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts
    ):
        raise ValueError("has no content: it must be text, or a list of parts that each have a `type`")


def _count_first(are_results: Sequence[bool]) -> int:
    """Return the number of parts of a message that are results. Raise `ValueError` unless they come first."""
    count = sum(are_results)
    if not all(are_results[:count]):
        raise ValueError("has tool results after other parts; results come first")
    return count


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _list_objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
