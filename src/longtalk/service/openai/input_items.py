"""Check the items and parts that clients send, so that a wrong one is named before anything is sent or stored.

Ids of files are refused: they are those of the operator's account at the provider, which all owners share. Addresses of
images are passed on and never fetched, and only the web's: a server behind might open others, such as its own files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from longtalk._util import json_bytes
from longtalk.service.errors import ApiError, quote
from longtalk.service.openai.fields import unsupported

Check = Callable[[Any, str], None]
_ROLES = ("user", "assistant", "system", "developer")
_CHAT_PARTS = ("text", "image_url", "input_audio", "file", "refusal")
_SCHEMES = ("https://", "http://", "data:image/")


def check_items(items: Sequence[bytes], where: str) -> None:
    """Raise `ApiError` that names the first wrong item, and what is wrong in it. `where` names their list."""
    for number, item in enumerate(items):
        place = f"{where}[{number}]"
        if item[:1] != b"{":
            raise _wrong(place, "an object", "invalid_type")
        _check_item(json_bytes.value(item), place)


def check_chat_message(message: Mapping[str, Any], where: str) -> None:
    """Raise `ApiError` for a chat message of an unknown role, or with an image or a file that must not be opened."""
    role, content = message.get("role"), message.get("content")
    if role not in (*_ROLES, "tool"):
        raise _wrong(f"{where}.role", "'user', 'assistant', 'system', 'developer' or 'tool'")
    if role == "user" and not content:
        raise _wrong(f"{where}.content", "text, or a list of parts, and not empty")
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise _wrong(f"{where}.tool_call_id", "a string", "invalid_type")
    check_chat_parts(content, f"{where}.content")


def check_chat_parts(content: Any, where: str) -> None:
    """Raise `ApiError` for a part of a chat message that names an image or a file that must not be opened."""
    for number, part in enumerate(content if isinstance(content, list) else ()):
        place = f"{where}[{number}]"
        if not isinstance(part, Mapping):
            raise _wrong(place, "an object", "invalid_type")
        if part.get("type") not in _CHAT_PARTS:
            raise unsupported(f"{place}.type", f"is not one of {', '.join(_CHAT_PARTS)}")
        if part.get("type") in ("text", "refusal"):
            _check_all(part, {part["type"]: _text}, place)
        if part.get("type") == "image_url":
            image = part.get("image_url")
            if not isinstance(image, Mapping):
                raise _wrong(f"{place}.image_url", "an object with a url", "invalid_type")
            _check_address(image.get("url"), f"{place}.image_url.url")
        file = part.get("file")
        if isinstance(file, Mapping) and file.get("file_id") is not None:
            raise unsupported(f"{place}.file.file_id", "is an id of another service: send the file itself")


def _wrong(place: str, what: str, code: str = "invalid_value") -> ApiError:
    return ApiError(400, f"`{place}` must be {what}.", param=place, code=code)


def _check_all(members: Mapping[str, Any], checks: Mapping[str, Check], place: str) -> None:
    for name, check in checks.items():
        try:
            check(members.get(name), f"{place}.{name}")
        except ApiError as problem:
            if members.get(name) is None and problem.param == f"{place}.{name}":
                problem.code = "missing_required_parameter"
            raise


def _check_item(item: Mapping[str, Any], place: str) -> None:
    kind = item.get("type", "message")
    if kind is None and item.keys() <= {"id", "type"}:
        kind = "item_reference"
    if not isinstance(kind, str):
        raise _wrong(f"{place}.type", "a string", "invalid_type")
    if "type" not in item and "id" in item and item.keys() == {"id"}:
        kind = "item_reference"
    checks = _ITEMS.get(kind)
    if checks is None:
        raise unsupported(f"{place}.type", f"is {quote(kind)}: items of this type are not supported here")
    _check_all(item, checks, place)
    if kind == "message" and item["role"] != "assistant" and not item["content"]:
        raise _wrong(f"{place}.content", "text, or a list of parts, and not empty")


def _text(value: Any, place: str) -> None:
    if not isinstance(value, str):
        raise _wrong(place, "a string", "invalid_type")


def _name(value: Any, place: str) -> None:
    if not isinstance(value, str) or not value:
        raise _wrong(place, "a string, and not empty", "invalid_type")


def _optional_text(value: Any, place: str) -> None:
    if value is not None and not isinstance(value, str):
        raise _wrong(place, "a string or null", "invalid_type")


def _optional_list(value: Any, place: str) -> None:
    if value is not None and not isinstance(value, list):
        raise _wrong(place, "a list or null", "invalid_type")


def _role(value: Any, place: str) -> None:
    if value not in _ROLES:
        raise _wrong(place, "'user', 'assistant', 'system' or 'developer'")


def _phase(value: Any, place: str) -> None:
    if value not in (None, "commentary", "final_answer"):
        raise _wrong(place, "'commentary', 'final_answer' or null")


def _parts(kinds: Mapping[str, Mapping[str, Check]]) -> Check:
    """Return a check for a list of parts of these types."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, list):
            raise _wrong(place, "a list", "invalid_type")
        for number, part in enumerate(value):
            here = f"{place}[{number}]"
            if not isinstance(part, Mapping):
                raise _wrong(here, "an object", "invalid_type")
            kind = part.get("type")
            if not isinstance(kind, str):
                raise _wrong(f"{here}.type", "a string", "invalid_type")
            if kind not in kinds:
                raise unsupported(f"{here}.type", f"is {quote(kind)}: parts of this type are not supported here")
            _check_all(part, kinds[kind], here)
            if kind == "input_image" and part.get("image_url") is None:
                raise _wrong(f"{here}.image_url", "the address or the data of an image")
            if kind == "input_file" and part.get("file_data") is None and part.get("file_url") is None:
                raise _wrong(f"{here}.file_data", "the data of a file")

    return check


def _text_or(parts: Check) -> Check:
    def check(value: Any, place: str) -> None:
        if isinstance(value, str):
            return
        if not isinstance(value, list):
            raise _wrong(place, "a string or a list of parts", "invalid_type")
        parts(value, place)

    return check


def _check_address(value: Any, place: str) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not value.lower().startswith(_SCHEMES):
        raise _wrong(place, "an address that begins with https:, http: or data:image/")


def _detail(value: Any, place: str) -> None:
    if value not in (None, "low", "high", "auto", "original"):
        raise _wrong(place, "'low', 'high', 'auto' or 'original'")


def _no_file_id(value: Any, place: str) -> None:
    if value is not None:
        raise unsupported(place, "is an id of another service: send the file itself")


_INPUT_PARTS: Mapping[str, Mapping[str, Check]] = {
    "input_text": {"text": _text},
    "input_image": {"file_id": _no_file_id, "image_url": _check_address, "detail": _detail},
    "input_file": {"file_id": _no_file_id, "file_data": _optional_text, "file_url": _check_address},
}
_MESSAGE_PARTS: Mapping[str, Mapping[str, Check]] = {
    **_INPUT_PARTS,
    "input_audio": {},
    "output_text": {"text": _text, "annotations": _optional_list, "logprobs": _optional_list},
    "refusal": {"refusal": _text},
}
_OUTPUT: Mapping[str, Check] = {"call_id": _name, "output": _text_or(_parts(_INPUT_PARTS))}
_ITEMS: Mapping[str, Mapping[str, Check]] = {
    "message": {"role": _role, "content": _text_or(_parts(_MESSAGE_PARTS)), "phase": _phase},
    "function_call": {"call_id": _name, "name": _name, "arguments": _text, "namespace": _optional_text},
    "function_call_output": _OUTPUT,
    "custom_tool_call": {"call_id": _name, "name": _name, "input": _text, "namespace": _optional_text},
    "custom_tool_call_output": _OUTPUT,
    "reasoning": {
        "summary": _parts({"summary_text": {"text": _text}}),
        "content": _optional_list,
        "encrypted_content": _optional_text,
    },
    "compaction": {"encrypted_content": _text},
    "item_reference": {"id": _name},
}
