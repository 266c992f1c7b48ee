"""The content of steps as attributes of spans, in the JSON of the conventions for generative AI."""

from __future__ import annotations

from typing import Any

import msgspec

from longtalk.observation import genai_names as names
from longtalk.observation.observer import ObservedMessage, StepContent


def describe_messages(content: StepContent) -> dict[str, str]:
    """Return the attributes of a model call: the system text, the messages of the request, and the answer."""
    attributes = {names.INPUT_MESSAGES: _encode([_describe(each) for each in content.messages])}
    if content.system:
        attributes[names.SYSTEM_INSTRUCTIONS] = _encode([{"type": names.TEXT_PART, "content": content.system}])
    if content.answer is not None:
        answer = {**_describe(content.answer), "finish_reason": names.name_finish(content.finish)}
        attributes[names.OUTPUT_MESSAGES] = _encode([answer])
    return attributes


def describe_tool_run(content: StepContent) -> dict[str, str]:
    """Return the attributes of a tool run: its arguments and its result."""
    arguments = content.arguments.decode("utf-8", "replace")
    return {names.TOOL_ARGUMENTS: arguments, names.TOOL_RESULT: _make_valid(content.result)}


def _describe(message: ObservedMessage) -> dict[str, Any]:
    """Return a message in the form of the conventions: its role and its parts."""
    parts: list[dict[str, Any]] = []
    if message.call_id:
        parts.append({"type": names.RESULT_PART, "id": message.call_id, "response": message.text})
    elif message.text or not message.calls:
        parts.append({"type": names.TEXT_PART, "content": message.text})
    for id_, name, arguments in message.calls:
        parts.append({"type": names.CALL_PART, "id": id_, "name": name, "arguments": _read_arguments(arguments)})
    return {"role": message.role, "parts": parts}


def _read_arguments(arguments: bytes) -> Any:
    """Return arguments as JSON, or as text if a model wrote something else."""
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return arguments.decode("utf-8", "replace")


def _encode(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        # Half a surrogate pair, which JSON can hold and UTF-8 can't.
        return msgspec.json.encode(_make_all_valid(value)).decode()


def _make_all_valid(value: Any) -> Any:
    if isinstance(value, dict):
        return {_make_valid(name): _make_all_valid(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_make_all_valid(each) for each in value]
    return _make_valid(value) if isinstance(value, str) else value


def _make_valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
