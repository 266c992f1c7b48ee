"""The rules of the OpenAI Responses endpoint, as far as they can be checked on a single request.

This module implements the provider's rules, numbered R1 to R13, independently of Longtalk's own wire, and reads the
finished JSON with the standard library. Violations contain the provider's own messages, so that a test server can
answer with them.

Unknown item types pass, because later API versions add new ones. Some rules need earlier answers and are not checked
here: items must be sent back unchanged (R7, R10) and together with the reasoning before them (R4, which is checked only
by ids), and the conversation that they belong to must not be busy (R9).
"""

from __future__ import annotations

import re
from typing import Any

from longtalk.testing.wires.violation import WireViolation

Item = dict[str, Any]

MAX_ID = 64
MAX_OUTPUT = 256_000
OUTPUTS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
_CALL_OF_OUTPUT = {output: call for call, output in OUTPUTS.items()}
_OUTPUT_OF_APP_CALL = {
    kind: f"{kind}_output" for kind in ("computer_call", "local_shell_call", "shell_call", "apply_patch_call")
}
# The schema of items from the provider's own tools requires an id.
_NEEDS_ID = (
    *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
    *("mcp_call", "mcp_list_tools", "program", "program_output"),
)
_ROLES = ("user", "assistant", "system", "developer")
_PARTS = {"assistant": ("output_text", "refusal")}
_CHAT_FIELDS = (
    *("messages", "functions", "function_call", "response_format", "reasoning_effort", "n", "stop", "seed"),
    *("max_tokens", "max_completion_tokens", "logprobs", "frequency_penalty", "presence_penalty"),
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")


def check(body: Any) -> None:
    """Raise `WireViolation` if a request to `POST /v1/responses` breaks a rule."""
    if not isinstance(body, dict):
        raise WireViolation("body", "We could not parse the JSON body of your request.")
    _check_parameters(body)
    _check_tools(body.get("tools"))
    given = body.get("input")
    if isinstance(given, str) and given:
        return
    if not isinstance(given, list) or not given:
        raise WireViolation("input", "Missing required parameter: 'input'.")
    items = [_check_item(i, item) for i, item in enumerate(given)]
    elsewhere = bool(body.get("previous_response_id") or body.get("conversation"))
    _check_ids(items, stored=body.get("store") is not False)
    _check_pairs(items, elsewhere=elsewhere)
    _check_reasoning(items, stored=body.get("store") is not False)
    _check_compaction(items)


def _check_parameters(body: Item) -> None:
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise WireViolation("model", "Missing required parameter: 'model'.")
    for name in _CHAT_FIELDS:
        if name in body:
            raise WireViolation("field", f"Unknown parameter: '{name}'.")
    for name in ("store", "stream", "background", "parallel_tool_calls"):
        if not isinstance(body.get(name, False), bool | None):
            raise WireViolation("field", f"Invalid type for '{name}': expected a boolean.")
    include = body.get("include")
    if include is not None and not (isinstance(include, list) and all(isinstance(name, str) for name in include)):
        raise WireViolation("field", "Invalid type for 'include': expected an array of strings.")
    _check_continuation(body)


def _check_continuation(body: Item) -> None:
    """Check the fields that tell the provider which response or conversation to continue (R8)."""
    before, within = body.get("previous_response_id"), body.get("conversation")
    if before and within:
        what = "Mutually exclusive parameters: ensure you are only providing one of: 'previous_response_id' or"
        raise WireViolation("R8", f"{what} 'conversation'.")
    if before is not None and not isinstance(before, str):
        raise WireViolation("R8", "Invalid type for 'previous_response_id': expected a string.")
    within = within.get("id") if isinstance(within, dict) else within
    if within is not None and not isinstance(within, str):
        raise WireViolation("R8", "Invalid type for 'conversation': expected a string or an object with an id.")


def _check_tools(tools: Any) -> None:
    if tools is None:
        return
    if not isinstance(tools, list):
        raise WireViolation("tools", "Invalid type for 'tools': expected an array of objects.")
    for i, tool in enumerate(tools):
        if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
            raise WireViolation("tools", f"Missing required parameter: 'tools[{i}].type'.")
        if tool["type"] in ("function", "custom"):
            if not isinstance(tool.get("name"), str) or not _NAME.fullmatch(tool["name"]) or tool["type"] in tool:
                raise WireViolation("R13", f"Missing required parameter: 'tools[{i}].name'.")
            if tool["type"] == "function" and not isinstance(tool.get("parameters", {}), dict | None):
                raise WireViolation("R13", f"Invalid type for 'tools[{i}].parameters': expected an object.")


def _check_item(i: int, item: Any) -> Item:
    """Check an item of `input`, and return it with its `type` filled in if the item omits it."""
    if not isinstance(item, dict):
        raise WireViolation("input", f"Invalid type for 'input[{i}]': expected an object.")
    kind = item.get("type", "message" if "role" in item else None)
    if not isinstance(kind, str) or not kind:
        raise WireViolation("input", f"Invalid value: '{kind}' for 'input[{i}].type'.")
    if kind == "message":
        _check_message(i, item)
    elif kind in OUTPUTS:
        payload = "arguments" if kind == "function_call" else "input"
        for name in ("call_id", "name", payload):
            if not isinstance(item.get(name), str) or (name != payload and not item[name]):
                raise WireViolation("input", f"Missing required parameter: 'input[{i}].{name}'.")
    elif kind in _CALL_OF_OUTPUT:
        _check_output(i, item)
    return {**item, "type": kind}


def _check_message(i: int, item: Item) -> None:
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        raise WireViolation("role", f"Invalid value: '{role}' for 'input[{i}].role'.")
    if item.get("phase") is not None and (role != "assistant" or item["phase"] not in ("commentary", "final_answer")):
        raise WireViolation("R10", f"Invalid value: '{item['phase']}' for 'input[{i}].phase'.")
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        raise WireViolation("content", f"Invalid type for 'input[{i}].content': expected a string or parts.")
    _check_parts(content, f"input[{i}].content", _PARTS.get(role))


def _check_parts(parts: list[Any], where: str, allowed: tuple[str, ...] | None) -> None:
    for j, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, dict) else None
        fits = isinstance(kind, str) and (kind in allowed if allowed else kind.startswith("input_"))
        if not fits:
            raise WireViolation("content", f"Invalid value: '{kind}' for '{where}[{j}].type'.")
        key = "refusal" if kind == "refusal" else "text"
        if kind in ("input_text", "output_text", "refusal") and not isinstance(part.get(key), str):
            raise WireViolation("content", f"Missing required parameter: '{where}[{j}].{key}'.")


def _check_output(i: int, item: Item) -> None:
    if not isinstance(item.get("call_id"), str) or not item["call_id"]:
        raise WireViolation("input", f"Missing required parameter: 'input[{i}].call_id'.")
    output = item.get("output")
    texts = [output] if isinstance(output, str) else []
    if isinstance(output, list):
        _check_parts(output, f"input[{i}].output", None)
        texts = [part["text"] for part in output if part["type"] == "input_text"]
    elif not texts:
        raise WireViolation("input", f"Missing required parameter: 'input[{i}].output'.")
    for text in texts:
        if len(text) > MAX_OUTPUT:
            what = f"Invalid 'input[{i}].output': string too long. Expected a string with maximum length {MAX_OUTPUT}"
            raise WireViolation("R12", f"{what}, but got a string with length {len(text)} instead.")


def _check_ids(items: list[Item], *, stored: bool) -> None:
    seen: set[str] = set()
    for i, item in enumerate(items):
        for name in ("id", "call_id"):
            if item.get(name) is not None and not (isinstance(item[name], str) and 0 < len(item[name]) <= MAX_ID):
                raise WireViolation("R6", f"Invalid 'input[{i}].{name}': expected 1 to {MAX_ID} characters.")
        id = item.get("id")  # noqa: A001
        if id is None:
            if item["type"] in (*_NEEDS_ID, "item_reference"):
                raise WireViolation("input", f"Missing required parameter: 'input[{i}].id'.")
            continue
        if not stored and item["type"] not in _NEEDS_ID:
            what = f"Item with id '{id}' not found. Items are not persisted when `store` is set to false."
            raise WireViolation(
                "R5", f"{what} Try again with `store` set to true, or remove this item from your input."
            )
        if id in seen:
            raise WireViolation("R6", f"Duplicate item found with id {id}. Remove duplicate items from your input.")
        seen.add(id)


def _check_pairs(items: list[Item], *, elsewhere: bool) -> None:
    open_calls: list[tuple[str, str]] = []
    answered = {(item["type"], item.get("call_id")) for item in items}
    for item in items:
        kind, call_id = item["type"], item.get("call_id", "")
        if kind in OUTPUTS:
            open_calls.append((kind, call_id))
        elif kind in _CALL_OF_OUTPUT:
            call = (_CALL_OF_OUTPUT[kind], call_id)
            if call in open_calls:
                open_calls.remove(call)
            elif not elsewhere:
                what = kind.removesuffix("_output").replace("_", " ")
                raise WireViolation("R2", f"No tool call found for {what} output with call_id {call_id}.")
        elif kind in _OUTPUT_OF_APP_CALL and (_OUTPUT_OF_APP_CALL[kind], call_id) not in answered:
            raise WireViolation("R1", f"No tool output found for {kind.replace('_', ' ')} {call_id}.")
    if open_calls:
        kind, call_id = open_calls[0]
        raise WireViolation("R1", f"No tool output found for {kind.replace('_', ' ')} {call_id}.")


def _check_reasoning(items: list[Item], *, stored: bool) -> None:
    for i, item in enumerate(items):
        if item["type"] != "reasoning":
            continue
        if not isinstance(item.get("summary"), list):
            raise WireViolation("R7", f"Missing required parameter: 'input[{i}].summary'.")
        if "status" in item:
            raise WireViolation("field", f"Unknown parameter: 'input[{i}].status'.")
        sealed, name = item.get("encrypted_content"), item.get("id", "rs")
        if (sealed is None and not stored) or (sealed is not None and not (isinstance(sealed, str) and sealed)):
            raise WireViolation("R7", f"The encrypted content for item {name} could not be verified.")
        rest = (other for other in items[i + 1 :] if other["type"] != "reasoning")
        follower = next(rest, None)
        # An incomplete message does not count as the item that must follow the reasoning.
        is_cut = follower is not None and "id" not in follower and follower.get("status") == "incomplete"
        if follower is None or is_cut or not _belongs_to_answer(follower):
            what = f"Item '{name}' of type 'reasoning' was provided without its required following item."
            raise WireViolation("R3", what)
        if "id" not in item and "id" in follower and follower["type"] not in _NEEDS_ID:
            what = f"Item '{follower['id']}' of type '{follower['type']}' was provided without its required"
            raise WireViolation("R4", f"{what} 'reasoning' item.")


def _belongs_to_answer(item: Item) -> bool:
    return item.get("role", "assistant") == "assistant" and not item["type"].endswith("_call_output")


def _check_compaction(items: list[Item]) -> None:
    for i, item in enumerate(items):
        if item["type"] == "compaction_trigger" and i < len(items) - 1:
            raise WireViolation("R11", "A compaction_trigger must be the last input item.")
        if item["type"] == "compaction" and not (isinstance(item.get("encrypted_content"), str)):
            raise WireViolation("R11", f"Missing required parameter: 'input[{i}].encrypted_content'.")
