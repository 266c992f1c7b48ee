"""Convert entries of one wire to another, for a conversation that continues with another provider.

Texts, images, tool calls and their results are converted. Reasoning, signatures, server-side ids and the work of a
provider's own tools are left out, because only the provider that created them can use them. The transcript keeps the
original, so a conversation that returns to its first provider sends exactly what it sent before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk.errors import InputError
from longtalk.transcript.pack import Entry
from longtalk.wires.describe import list_hidden_parts
from longtalk.wires.entries import view_entry
from longtalk.wires.neutral import LONGTALK, system
from longtalk.wires.protocol import Wire
from longtalk.wires.registry import AGENTS, WIRES, find_family
from longtalk.wires.views import MessageView, ToolCallView

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*;base64,(.*)", re.DOTALL)
_REASONING = "reasoning"


class Image(msgspec.Struct, frozen=True):
    """An image, as base64 data or as a URL."""

    media: str
    data: str = ""
    url: str = ""

    @property
    def address(self) -> str:
        """The image's URL, or a data URL with its content."""
        return self.url or f"data:{self.media};base64,{self.data}"


Part = str | Image


class CallIdMap:
    """A map from the original ids of tool calls to ids that every provider accepts: short, plain and unique."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._open: dict[str, tuple[str, str]] = {}

    def map_call(self, call: ToolCallView) -> ToolCallView:
        """Return the call with an id that every provider accepts and that no earlier call has."""
        plain = _to_plain_id(call.id)
        new_id, number = plain, 1
        while new_id in self._used:
            number += 1
            new_id = f"{plain[:56]}_{number}"
        self._used.add(new_id)
        self._open[call.id] = (new_id, call.name)
        return ToolCallView(new_id, call.name, call.arguments)

    def map_result(self, seen: MessageView) -> tuple[str, str]:
        """Return the mapped id of the call that a tool result answers, and the name of the tool."""
        new_id, name = self._open.get(seen.call_id) or (_to_plain_id(seen.call_id), "")
        return new_id, seen.name or name


def convert_entry(entry: Entry, to: Wire, ids: CallIdMap) -> Entry | None:
    """Return an entry converted to the wire `to`, or None if no content is left to send.

    Pass the same `ids` for all entries of a transcript, in order, so that tool results get the ids of their calls.
    """
    seen = view_entry(entry)
    if seen.call_id:
        call_id, name = ids.map_result(seen)
        native = to.write_result(call_id, seen.text, error=entry.condition in ("error", "closed"), name=name)
    elif entry.role == "assistant":
        calls = [ids.map_call(call) for call in seen.calls]
        text = seen.text if seen.text.strip() else seen.refusal
        if not calls and not text.strip():
            return None
        native = _write_answer(to, text, calls)
    elif entry.role != "user":
        # A system message inside the conversation becomes a neutral one, which each wire renders in its own way.
        neutral = system(seen.text, at=entry.at)
        return msgspec.structs.replace(entry, native=neutral.native, wire=neutral.wire) if seen.text.strip() else None
    else:
        parts = [part for part in _read_parts(entry) if part and (isinstance(part, str) or not _is_agent(to))]
        if not parts:
            return None
        only_text = len(parts) == 1 and isinstance(parts[0], str)
        content: Any = parts[0] if only_text else [render_part(to, part) for part in parts]
        native = to.write_user(content)
    return msgspec.structs.replace(entry, native=native, wire=to.name, bound="")


def write_without_cards(entry: Entry, tool: str) -> Entry:
    """Return an answer with its text and calls alone: without memory cards, and with nothing noted by calls of `tool`.

    The ids of the calls stay, because their results name them.
    """
    seen = view_entry(entry)
    calls = [msgspec.structs.replace(call, arguments=b"{}") if call.name == tool else call for call in seen.calls]
    text = seen.text if seen.text.strip() else seen.refusal
    native = _write_answer(WIRES[entry.wire], text if calls else text or "…", calls)
    return msgspec.structs.replace(entry, native=native, bound="")


def list_lost_content(entries: Iterable[Entry], to: Wire) -> list[str]:
    """Return a sorted list of the kinds of content that would be lost by converting these entries to the wire `to`."""
    found: dict[str, None] = {}
    for entry in entries:
        if entry.wire in (to.name, LONGTALK):
            continue
        if entry.role == "tool":
            # Only the text of a result is converted.
            found |= dict.fromkeys(f"{part}s in tool results" for part in list_hidden_parts(entry.native))
        else:
            list_lost = _LOST.get(find_family(WIRES[entry.wire]), _list_lost_in_agent)
            found |= dict.fromkeys(list_lost(json_bytes.value(entry.native)))
            if _is_agent(to) and entry.role == "user" and any(isinstance(part, Image) for part in _read_parts(entry)):
                found["images"] = None
    return sorted(found)


def has_images(entries: Iterable[Entry]) -> bool:
    """Return True if one of these entries is a user message with an image."""
    users = (entry for entry in entries if entry.role == "user" and entry.wire != LONGTALK)
    return any(isinstance(part, Image) for entry in users for part in _read_parts(entry))


def _to_plain_id(name: str) -> str:
    return name if _ID.fullmatch(name) else "call_" + hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:24]


# User messages


def _read_parts(entry: Entry) -> list[Part]:
    """Return the texts and images of a user message, in order. Parts of other kinds are left out."""
    value = json_bytes.value(entry.native)
    family = find_family(WIRES[entry.wire])
    if not family and entry.wire not in AGENTS:
        return [view_entry(entry).text]
    if family == "gemini":
        return [part for each in _list_objects(value.get("parts")) if (part := _read_gemini_part(each)) is not None]
    content = value.get("content")
    if isinstance(content, str):
        return [content]
    return [part for each in _list_objects(content) if (part := _read_part(each)) is not None]


def _read_part(block: Mapping[str, Any]) -> Part | None:
    """Return the text or image in a part of OpenAI's or Anthropic's format, or None if the part is neither."""
    if isinstance(block.get("text"), str):
        return str(block["text"])
    image = block.get("image_url")
    image = image.get("url") if isinstance(image, Mapping) else image
    if isinstance(image, str):
        return _image_from_url(image)
    source = block.get("source") if block.get("type") == "image" else None
    if isinstance(source, Mapping) and isinstance(source.get("data"), str):
        return Image(_read_text(source, "media_type") or "image/png", data=source["data"])
    if isinstance(source, Mapping) and isinstance(source.get("url"), str):
        return _image_from_url(source["url"])
    return None


def _read_gemini_part(part: Mapping[str, Any]) -> Part | None:
    if isinstance(part.get("text"), str):
        return str(part["text"])
    data, file = part.get("inlineData"), part.get("fileData")
    if isinstance(data, Mapping) and _read_text(data, "mimeType").startswith("image/"):
        return Image(data["mimeType"], data=_read_text(data, "data"))
    if isinstance(file, Mapping) and ("mimeType" not in file or _read_text(file, "mimeType").startswith("image/")):
        return _image_from_url(_read_text(file, "fileUri"))
    return None


def _image_from_url(url: str) -> Image | None:
    found = _DATA_URL.fullmatch(url)
    if found:
        return Image(found[1] or "image/png", data=found[2])
    return Image("image/*", url=url) if url else None


def read_attachments(wire: str, native: bytes, to: Wire) -> list[Any]:
    """Return the parts of a user message besides its texts, as parts of the wire `to`.

    On the message's own wire, these are all parts, unchanged; on another one, its images.
    """
    value = json_bytes.value(native)
    blocks = _list_objects(value.get("parts", value.get("content")))
    others = [each for each in blocks if not isinstance(each.get("text"), str)]
    if wire == to.name:
        return others
    read = _read_gemini_part if "parts" in value else _read_part
    found = [part for each in others if isinstance(part := read(each), Image)]
    return [render_part(to, part) for part in found] if find_family(to) else []


def convert_parts(parts: Iterable[Mapping[str, Any]], to: Wire) -> list[Any]:
    """Return texts and images in OpenAI's format as parts of the wire `to`. Raises `InputError` for other parts."""
    converted: list[Any] = []
    for each in parts:
        part = _read_part(each)
        if part is None:
            raise InputError(f"A part of the type {_name_type(each)!r} can't be sent over {to.name}.")
        converted.append(part if isinstance(part, str) else render_part(to, part))
    return converted


def render_part(to: Wire, part: Part) -> Any:
    """Return a text or an image as a part of a user message of a wire. A text is returned as it is."""
    if isinstance(part, str):
        return part
    family = find_family(to)
    if family == "anthropic":
        base64 = {"type": "base64", "media_type": part.media, "data": part.data}
        source = {"type": "url", "url": part.url} if part.url else base64
        return {"type": "image", "source": source}
    if family == "gemini":
        if part.url:
            return {"fileData": {"mimeType": part.media, "fileUri": part.url}}
        return {"inlineData": {"mimeType": part.media, "data": part.data}}
    if family == "openai-responses":
        return {"type": "input_image", "image_url": part.address}
    return {"type": "image_url", "image_url": {"url": part.address}}


# Answers


def _render_chat_answer(text: str, calls: list[ToolCallView]) -> dict[str, Any]:
    tool_calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _render_arguments(call)}}
        for call in calls
    ]
    return {"role": "assistant", "content": text or None, **({"tool_calls": tool_calls} if tool_calls else {})}


def _render_anthropic_answer(text: str, calls: list[ToolCallView]) -> dict[str, Any]:
    texts = [{"type": "text", "text": text}] if text.strip() else []
    tool_calls = [
        {
            "type": "tool_use",
            "id": call.id,
            "name": re.sub(r"[^A-Za-z0-9_-]", "_", call.name),
            "input": _to_object(call),
        }
        for call in calls
    ]
    return {"role": "assistant", "content": [*texts, *tool_calls]}


def _render_gemini_answer(text: str, calls: list[ToolCallView]) -> dict[str, Any]:
    texts = [{"text": text}] if text.strip() else []
    tool_calls = [{"functionCall": {"id": call.id, "name": call.name, "args": _to_object(call)}} for call in calls]
    return {"role": "model", "parts": [*texts, *tool_calls]}


def _render_responses_answer(text: str, calls: list[ToolCallView]) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    texts = [{"type": "message", "role": "assistant", "content": content}] if text.strip() else []
    tool_calls = [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": _render_arguments(call)}
        for call in calls
    ]
    return {"output": [*texts, *tool_calls]}


def _render_agent_answer(text: str, calls: list[ToolCallView]) -> dict[str, Any]:
    tool_calls = [f"[called {call.name}({_render_arguments(call)})]" for call in calls]
    return {"role": "assistant", "content": "\n".join([*([text] if text.strip() else []), *tool_calls])}


def _write_answer(to: Wire, text: str, calls: list[ToolCallView]) -> bytes:
    """Return an answer in the grammar of a wire. One from outside the library may have a method for this."""
    write: Callable[[str, list[ToolCallView]], bytes] | None = getattr(to, "write_answer", None)
    if write is not None:
        return write(text, calls)
    return json_bytes.encode(_ANSWERS.get(find_family(to), _render_agent_answer)(text, calls))


def _is_agent(wire: Wire) -> bool:
    """Return True if this is the wire of an agent program, or has its own grammar, so that only text is sent."""
    return not find_family(wire)


_ANSWERS: Mapping[str, Callable[[str, list[ToolCallView]], dict[str, Any]]] = {
    "openai-chat": _render_chat_answer,
    "anthropic": _render_anthropic_answer,
    "gemini": _render_gemini_answer,
    "openai-responses": _render_responses_answer,
}


def _render_arguments(call: ToolCallView) -> str:
    return call.arguments.decode("utf-8", "replace") or "{}"


def _to_object(call: ToolCallView) -> Any:
    """Return a call's arguments as a JSON object. If they are anything else, return `{"arguments": …}` with their text.

    The object keeps its bytes, because a number in it may be beyond the range of a double.
    """
    arguments = json_bytes.replace_surrogates(_render_arguments(call).encode())
    try:
        json_bytes.check_object(arguments)
    except ValueError:
        return {"arguments": _render_arguments(call)}
    return msgspec.Raw(arguments)


# Content that can't be converted


def _list_lost_in_chat(message: Mapping[str, Any]) -> list[str]:
    kinds = [_REASONING for name in ("reasoning_content", "reasoning", "reasoning_details") if message.get(name)]
    kinds += ["audio"] if message.get("audio") else []
    known = ("text", "image_url", "refusal")
    return kinds + [_name_type(part) for part in _list_objects(message.get("content")) if part.get("type") not in known]


def _list_lost_in_anthropic(message: Mapping[str, Any]) -> list[str]:
    thinking, known = ("thinking", "redacted_thinking"), ("text", "image", "tool_use", "tool_result")
    blocks = [block for block in _list_objects(message.get("content")) if block.get("type") not in known]
    return [_REASONING if block.get("type") in thinking else _name_type(block) for block in blocks]


def _list_lost_in_responses(message: Mapping[str, Any]) -> list[str]:
    known = ("message", "function_call", "custom_tool_call", None)
    items = [item for item in _list_objects(message.get("output")) if item.get("type") not in known]
    parts = [
        part for part in _list_objects(message.get("content")) if part.get("type") not in ("input_text", "input_image")
    ]
    return [_REASONING if item.get("type") == "reasoning" else _name_type(item) for item in (*items, *parts)]


def _list_lost_in_gemini(content: Mapping[str, Any]) -> list[str]:
    known = {"text", "inlineData", "fileData", "functionCall", "functionResponse"}
    beside = {"thought", "thoughtSignature", "partMetadata", "videoMetadata", "mediaResolution"}
    found = []
    for part in _list_objects(content.get("parts")):
        found += [_REASONING] if part.get("thought") or part.get("thoughtSignature") else []
        found += sorted(part.keys() - known - beside)
    return found


def _list_lost_in_agent(message: Mapping[str, Any]) -> list[str]:
    known = (
        *("assistant", "error", "init", "message", "rate_limit_event", "result", "system"),
        *("thread.started", "turn.started", "turn.completed"),
    )
    events = [event for event in _list_objects(message.get("events")) if event.get("type") not in known]
    items = [item for event in events if isinstance(item := event.get("item"), Mapping)]
    used = len(items) < len(events) or any(item.get("type") not in ("agent_message", "error") for item in items)
    return ["what the agent did on its own"] if used else []


_LOST: Mapping[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "openai-chat": _list_lost_in_chat,
    "anthropic": _list_lost_in_anthropic,
    "gemini": _list_lost_in_gemini,
    "openai-responses": _list_lost_in_responses,
}


def _read_text(block: Mapping[str, Any], name: str) -> str:
    """Return the string under this name, or "" if it is missing or not a string."""
    return value if isinstance(value := block.get(name), str) else ""


def _name_type(block: Mapping[str, Any]) -> str:
    """Return the type of a part for people to read. Only a forged state has parts whose type is not text."""
    return _read_text(block, "type") or "parts without a type"


def _list_objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
