"""The parts of a Gemini content: find out the kind of each part, and read a content as a message.

Gemini calls a message a content. A part is text, a thought, a tool call, a tool result or a file. Most contents consist
only of texts and thoughts, so a fast decoder for those is tried first.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

import msgspec

from longtalk._util import json_bytes
from longtalk.wires.native import array_items, array_objects, object_fields
from longtalk.wires.views import MessageView, ToolCallView

GENERATED_ID = re.compile(r"call_[0-9a-f]{12}_([0-9]{1,9})")
"""A pattern for the id that `view_content` gives to a call without one. The group captures the call's position."""
_METADATA = ("thought", "thoughtSignature", "partMetadata", "videoMetadata", "mediaResolution")
"""Fields that describe a part and are not its content."""


class _TextPart(msgspec.Struct, gc=False, rename="camel", forbid_unknown_fields=True):
    text: str = ""
    thought: bool = False
    thought_signature: str = ""


class _TextContent(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    role: str
    parts: list[_TextPart]


_text_content = msgspec.json.Decoder(_TextContent)
_text_parts = msgspec.json.Decoder(list[_TextPart])


def view_content(native: bytes) -> MessageView:
    """Return the readable content of a Gemini message. Memory cards are still in its text."""
    try:
        content = _text_content.decode(native)
    except (ValueError, RecursionError):
        return _view_any(native)
    text = "".join([part.text for part in content.parts if not part.thought])
    return MessageView(role="assistant" if content.role == "model" else content.role, text=text)


def _view_any(native: bytes) -> MessageView:
    fields = json_bytes.fields(native)
    parts = array_objects(fields.get("parts", b"[]"))
    results = [object_fields(part["functionResponse"]) for part in parts if "functionResponse" in part]
    role = json_bytes.text(fields.get("role", b"")) or ""
    if results:
        return MessageView(
            role="tool",
            text="".join(_read_response_text(result.get("response", b"{}")) for result in results),
            call_id=read_text_member(results[0], "id"),
            name=read_text_member(results[0], "name"),
        )
    calls = [object_fields(part["functionCall"]) for part in parts if "functionCall" in part]
    return MessageView(
        role="assistant" if role == "model" else role,
        text="".join(read_text_member(part, "text") for part in parts if not is_thought(part)),
        calls=tuple(
            ToolCallView(
                read_text_member(call, "id") or _generate_id(native, i),
                read_text_member(call, "name"),
                _read_arguments(call),
            )
            for i, call in enumerate(calls)
        ),
    )


def _generate_id(native: bytes, position: int) -> str:
    """Return an id for a tool call without one, derived from the message and the position of the call.

    The id is the same each time the message is read, and practically unique.
    """
    return f"call_{hashlib.sha256(native).hexdigest()[:12]}_{position}"


def _read_arguments(call: dict[str, bytes]) -> bytes:
    arguments = call.get("args", b"null")
    return b"{}" if arguments == b"null" else arguments


def _read_response_text(response: bytes) -> str:
    members = object_fields(response)
    texts = [json_bytes.text(members[key]) for key in ("result", "error", "output") if key in members]
    return texts[0] if texts and texts[0] is not None else response.decode("utf-8", "replace")


def list_parts(native: bytes) -> list[bytes]:
    """Return the parts of a content, each as its exact bytes."""
    return array_items(json_bytes.fields(native).get("parts", b"[]"))


def build_model_content(parts: Sequence[bytes] | bytes, received: Mapping[str, bytes]) -> bytes:
    """Return a content with these parts, the role `model`, and the other fields of the content that was received.

    The parts are given one by one, or as a JSON array.
    """
    array = parts if isinstance(parts, bytes) else b"[" + b",".join(parts) + b"]"
    if received.keys() <= {"role", "parts"}:
        return b'{"role":"model","parts":' + array + b"}"
    fields = received if "role" in received else {"role": b"", **received}
    return json_bytes.build({**fields, "role": b'"model"', "parts": array})


def read_text_member(members: dict[str, bytes], key: str) -> str:
    """Return the string under this key, or "" if it is missing or not a string."""
    return json_bytes.text(members.get(key, b"null")) or ""


def classify(parts: Sequence[bytes]) -> tuple[list[bool], list[bool], list[bool]]:
    """Return three lists with one boolean per part: whether it is signed, is a thought, and is blank.

    Raises `ValueError` if a part or a tool call is not an object.
    """
    try:
        texts = _text_parts.decode(b"[" + b",".join(parts) + b"]")
    except (ValueError, RecursionError):
        members = [json_bytes.fields(part) for part in parts]
        for call in (part["functionCall"] for part in members if "functionCall" in part):
            json_bytes.check_object(call)
        return list(map(is_signed, members)), list(map(is_thought, members)), list(map(is_blank, members))
    signed = [part.thought_signature != "" for part in texts]
    return signed, [part.thought for part in texts], [not (part.text or part.thought_signature) for part in texts]


def is_thought(part: dict[str, bytes]) -> bool:
    """Return True if a part is the model's thinking, not its answer."""
    return part.get("thought") == b"true"


def is_signed(part: dict[str, bytes]) -> bool:
    """Return True if a part carries a thought signature."""
    return bool(read_text_member(part, "thoughtSignature"))


def is_blank(part: dict[str, bytes]) -> bool:
    """Return True if a part has neither content nor a signature. The API rejects such a part when it is sent back."""
    has_no_content = all(key in _METADATA for key in part)
    return not is_signed(part) and (has_no_content or part.get("text") in (b'""', b"null"))
