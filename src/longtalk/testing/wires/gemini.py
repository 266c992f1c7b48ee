"""The rules of Gemini's generateContent endpoint, as far as they can be checked on a single request.

This module implements the provider's rules, numbered G1 to G5, independently of Longtalk's own wire, and reads the
finished JSON with the standard library. Violations contain the provider's own messages, so that a test server can
answer with them.

Consecutive contents may have the same role. Unknown kinds of parts and unknown fields pass, because later API versions
add new ones. One rule needs earlier answers and is not checked here: signatures must be sent back unchanged (G4).
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from longtalk.testing.wires.violation import WireViolation

Part = dict[str, Any]

_DESCRIPTIVE = ("thought", "thoughtSignature", "partMetadata", "videoMetadata", "mediaResolution")
"""Members of a part that describe its data but are not the data itself."""
_DATA_FIELDS = (
    *("text", "inlineData", "functionCall", "functionResponse", "fileData", "executableCode"),
    *("codeExecutionResult", "toolCall", "toolResponse"),
)
_FIELDS_OF_OTHER_WIRES = ("messages", "input", "system", "stream", "max_tokens", "temperature", "stop")
_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_SUBSTITUTE_SIGNATURES = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
"""Placeholders that the provider documents as signatures of calls that the model did not make itself."""
_COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)
_RESPONSE_POSITION = "Please ensure that function response turn comes immediately after a function call turn."
_CALL_POSITION = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)
_END = "Please ensure that multiturn requests end with a user role or a function response."


def check(body: Any, *, signatures: bool = False) -> None:
    """Raise `WireViolation` if a request to `models/…:generateContent` breaks a rule.

    `signatures` says whether the model requires signed calls in the current turn, as models since Gemini 3 do.
    """
    if not isinstance(body, dict):
        raise WireViolation("body", "Invalid JSON payload received. Expected an object.")
    for name in _FIELDS_OF_OTHER_WIRES:
        if name in body:
            raise _make_unknown_field_error(name, "")
    _check_system(body.get("systemInstruction"))
    _check_tools(body.get("tools"))
    for name in ("generationConfig", "toolConfig"):
        if not isinstance(body.get(name, {}), dict):
            raise WireViolation(name, f"Invalid value at '{name}': expected an object.")
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        raise WireViolation("contents", "* GenerateContentRequest.contents: contents is not specified\n")
    for i, content in enumerate(contents):
        _check_content(i, content, alone=len(contents) == 1)
    _check_pairs(contents)
    if contents[-1].get("role") == "model":
        raise WireViolation("G3", _END)
    if signatures:
        _check_calls_are_signed(contents)


def _make_unknown_field_error(name: str, where: str) -> WireViolation:
    at = f" at '{where}'" if where else ""
    return WireViolation("fields", f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.')


def _check_system(system: Any) -> None:
    if system is None:
        return
    parts = system.get("parts") if isinstance(system, dict) else None
    if not isinstance(parts, list) or not parts:
        raise WireViolation("G5", "* GenerateContentRequest.system_instruction.parts: must not be empty.\n")
    for part in parts:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str) or not part["text"]:
            raise WireViolation("G5", "Developer instruction must hold text.")


def _check_tools(tools: Any) -> None:
    if tools is None:
        return
    if not isinstance(tools, list):
        raise WireViolation("tools", "Invalid value at 'tools': expected a list.")
    names: set[str] = set()
    for i, tool in enumerate(tools):
        if not isinstance(tool, dict) or not tool:
            what = "required one_of 'tool_type' must have one initialized field"
            raise WireViolation("tools", f"* GenerateContentRequest.tools[{i}].tool_type: {what}\n")
        if "functionDeclarations" not in tool:
            continue
        declared = tool["functionDeclarations"]
        if not isinstance(declared, list) or not declared:
            raise WireViolation("tools", f"* GenerateContentRequest.tools[{i}].function_declarations: is empty\n")
        for j, function in enumerate(declared):
            _check_declaration(function, f"tools[{i}].function_declarations[{j}]", names)


def _check_declaration(function: Any, where: str, names: set[str]) -> None:
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not _FUNCTION.fullmatch(name):
        what = "Invalid function name. Must start with a letter or an underscore."
        raise WireViolation("tools", f"* GenerateContentRequest.{where}.name: {what}\n")
    if name in names:
        raise WireViolation("tools", f"Duplicate function declaration found: {name}")
    names.add(name)
    for key in ("input_schema", "function", "type", "strict"):
        if key in function:
            raise _make_unknown_field_error(key, where)
    schemas = [function[key] for key in ("parameters", "parametersJsonSchema") if key in function]
    if len(schemas) > 1:
        raise WireViolation("tools", f"{where}: parameters and parametersJsonSchema exclude each other.")
    if any(not isinstance(schema, dict) or schema.get("type") not in ("object", "OBJECT") for schema in schemas):
        what = "schema type should be OBJECT"
        raise WireViolation("tools", f"* GenerateContentRequest.{where}.parameters.type: {what}\n")


def _check_content(i: int, content: Any, *, alone: bool) -> None:
    where = f"contents[{i}]"
    if not isinstance(content, dict):
        raise WireViolation("contents", f"Invalid value at '{where}': expected an object.")
    for key in content:
        if key not in ("role", "parts"):
            raise _make_unknown_field_error(key, where)
    role = content.get("role")
    if role not in ("user", "model") and not (alone and role is None):
        raise WireViolation("G5", "Please use a valid role: user, model.")
    parts = content.get("parts")
    if not isinstance(parts, list) or not parts:
        raise WireViolation("G5", f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty.\n")
    for j, part in enumerate(parts):
        _check_part(part, role, f"{where}.parts[{j}]")


def _check_part(part: Any, role: str | None, where: str) -> None:
    if not isinstance(part, dict):
        raise WireViolation("G5", f"Invalid value at '{where}': expected an object.")
    if "type" in part or "id" in part:
        raise _make_unknown_field_error("type" if "type" in part else "id", where)
    signature = part.get("thoughtSignature")
    if "thoughtSignature" in part:
        _check_signature(signature, where)
    data = [key for key in part if key not in _DESCRIPTIVE]
    if not data and not signature:
        what = "required oneof field 'data' must have one initialized field"
        raise WireViolation("G5", f"* GenerateContentRequest.{where}.data: {what}\n")
    if sum(key in _DATA_FIELDS for key in data) > 1:
        raise WireViolation("G5", f"Invalid value at '{where}': oneof field 'data' is already set.")
    if "text" in part:
        if not isinstance(part["text"], str):
            raise WireViolation("G5", f"Invalid value at '{where}.text': expected a string.")
        if not part["text"] and not signature:
            raise WireViolation("G5", "Unable to submit request because it has an empty text parameter.")
    if "functionCall" in part:
        _check_function_part(part["functionCall"], "args", role == "model", f"{where}.function_call")
    if "functionResponse" in part:
        _check_function_part(part["functionResponse"], "response", role == "user", f"{where}.function_response")


def _check_signature(signature: Any, where: str) -> None:
    try:
        if signature in _SUBSTITUTE_SIGNATURES:
            return
        base64.b64decode(signature.replace("-", "+").replace("_", "/"), validate=True)
    except (AttributeError, binascii.Error, ValueError):
        what = "(TYPE_BYTES), Base64 decoding failed"
        raise WireViolation("G4", f"Invalid value at '{where}.thought_signature' {what}") from None


def _check_function_part(value: Any, payload: str, role_fits: bool, where: str) -> None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        raise WireViolation("G5", f"* GenerateContentRequest.{where}.name: Name cannot be empty.\n")
    if not role_fits:
        raise WireViolation("G5", f"* GenerateContentRequest.{where}: is in a content of the wrong role\n")
    if not isinstance(value.get("id", ""), str):
        raise WireViolation("G5", f"Invalid value at '{where}.id': expected a string.")
    if payload == "response" and payload not in value:
        raise WireViolation("G5", f"* GenerateContentRequest.{where}.response: is required\n")
    if not isinstance(value.get(payload, {}), dict):
        raise WireViolation("G5", f"Invalid value at '{where}.{payload}': expected an object.")


def _list_values(content: dict[str, Any], key: str) -> list[dict[str, Any]]:
    return [part[key] for part in content["parts"] if key in part]


def _check_pairs(contents: list[dict[str, Any]]) -> None:
    """Check the order of calls and responses (G1 to G3).

    Calls must follow a user message or responses, and their responses must follow immediately, in the same order.
    """
    waiting: list[dict[str, Any]] = []
    for i, content in enumerate(contents):
        calls, responses = _list_values(content, "functionCall"), _list_values(content, "functionResponse")
        if waiting and not responses:
            raise WireViolation("G2", _COUNT)
        if responses:
            _check_responses(content, waiting, responses)
        if calls and (i == 0 or contents[i - 1].get("role") == "model"):
            raise WireViolation("G3", _CALL_POSITION)
        waiting = calls
    if waiting:
        raise WireViolation("G2", _COUNT)


def _check_responses(content: dict[str, Any], calls: list[dict[str, Any]], responses: list[dict[str, Any]]) -> None:
    if not calls:
        raise WireViolation("G2", _RESPONSE_POSITION)
    if len(calls) != len(responses) or len(content["parts"]) != len(responses):
        raise WireViolation("G1", _COUNT)
    for call, response in zip(calls, responses, strict=True):
        if call["name"] != response["name"]:
            raise WireViolation("G1", f"function_response.name: {response['name']} does not answer {call['name']}")
        if call.get("id", "") != response.get("id", ""):
            raise WireViolation(
                "G1", f"function_response.id: {response.get('id')!r} does not answer {call.get('id')!r}"
            )


def _check_calls_are_signed(contents: list[dict[str, Any]]) -> None:
    """Check that the first call in each answer since the user's last message is signed (G4)."""
    user_turns = [
        i
        for i, each in enumerate(contents)
        if each.get("role") != "model" and not _list_values(each, "functionResponse")
    ]
    for i in range(user_turns[-1] + 1 if user_turns else 0, len(contents)):
        first = next((part for part in contents[i]["parts"] if "functionCall" in part), None)
        if first is not None and not first.get("thoughtSignature"):
            raise WireViolation(
                "G4",
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                f"data, function call `{first['functionCall']['name']}` , position {i + 1}.",
            )
