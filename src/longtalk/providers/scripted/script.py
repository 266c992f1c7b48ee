"""The steps of a scripted provider: a model's answers in the format of each wire, as responses and as streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longtalk._util import json_bytes


class ScriptError(AssertionError):
    """Raised if the calls to the model do not match the script."""


class UnexpectedCall(ScriptError):
    """Raised if the model is called more often than the script has steps."""


class UnusedSteps(ScriptError):
    """Raised if the model is called less often than the script has steps."""


class Step(msgspec.Struct, frozen=True):
    """One answer: the body of a response, and the events of the same answer as a stream."""

    body: bytes
    events: tuple[bytes | BaseException, ...] = ()
    """The data of each event. An exception in this tuple is raised when the stream reaches it."""


def says(
    text: str | None = None,
    *,
    calls: Sequence[tuple[str, str, Mapping[str, Any] | str]] = (),
    finish: str | None = None,
    usage: Mapping[str, Any] | None = None,
    fields: Mapping[str, Any] | None = None,
    pieces: int = 3,
    wire: str = "openai-chat",
) -> Step:
    """Return a step in which the model answers with this text and these tool calls.

    A call is (id, name, arguments). `fields` are additional fields of the message. `wire` names the wire of the answer;
    `finish` and `usage` are in its format. In a stream, the text is split into at most `pieces` pieces.
    """
    size = max(1, -(-len(text or "") // pieces))
    texts = [(text or "")[i : i + size] for i in range(0, len(text or ""), size)]
    makers = {"anthropic": _anthropic, "openai-responses": _openai_responses, "gemini": _gemini}
    return makers.get(wire, _openai_chat)(text, texts, calls, finish, usage, fields or {})


def _openai_chat(
    text: str | None,
    texts: Sequence[str],
    calls: Sequence[tuple[str, str, Mapping[str, Any] | str]],
    finish: str | None,
    usage: Mapping[str, Any] | None,
    fields: Mapping[str, Any],
) -> Step:
    written: list[dict[str, Any]] = [
        {
            "id": id,
            "type": "function",
            "function": {
                "name": name,
                "arguments": args if isinstance(args, str) else json_bytes.encode(args).decode(),
            },
        }
        for id, name, args in calls  # noqa: A001
    ]
    message = {"role": "assistant", "content": text, **fields, **({"tool_calls": written} if written else {})}
    reason = finish or ("tool_calls" if calls else "stop")
    counts = usage or {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    body = {"id": "r", "choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": counts}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None if text is None else ""}]
    deltas += [{"content": piece} for piece in texts]
    if fields:
        deltas.append(dict(fields))
    for index, call in enumerate(written):
        first, second = _split_in_half(call["function"]["arguments"])
        deltas.append({"tool_calls": [{**call, "index": index, "function": {**call["function"], "arguments": first}}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": second}}]})
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    chunks.append({"choices": [], "usage": counts})
    chunks = [{"id": "r", **chunk} for chunk in chunks]
    return Step(body=json_bytes.encode(body), events=(*map(json_bytes.encode, chunks), b"[DONE]"))


def _anthropic(
    text: str | None,
    texts: Sequence[str],
    calls: Sequence[tuple[str, str, Mapping[str, Any] | str]],
    finish: str | None,
    usage: Mapping[str, Any] | None,
    fields: Mapping[str, Any],
) -> Step:
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    for thought in fields.get("thinking", ()):
        start = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": thought}, {"type": "signature_delta", "signature": "signed"}]
        blocks.append((start, deltas))
    if text is not None:
        blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in texts]))
    for id, name, arguments in calls:  # noqa: A001
        arguments_text = arguments if isinstance(arguments, str) else json_bytes.encode(arguments).decode()
        halves = [{"type": "input_json_delta", "partial_json": half} for half in _split_in_half(arguments_text)]
        blocks.append(({"type": "tool_use", "id": id, "name": name, "input": {}}, halves))
    reason = finish or ("tool_use" if calls else "end_turn")
    counts = usage or {"input_tokens": 10, "output_tokens": 5}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"role": "assistant", "usage": counts}}]
    for index, (start, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events += [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": counts},
        {"type": "message_stop"},
    ]
    content = [_merge_deltas(start, deltas) for start, deltas in blocks]
    body = {"type": "message", "role": "assistant", "content": content, "stop_reason": reason, "usage": counts}
    return Step(body=json_bytes.encode(body), events=tuple(map(json_bytes.encode, events)))


def _openai_responses(
    text: str | None,
    texts: Sequence[str],
    calls: Sequence[tuple[str, str, Mapping[str, Any] | str]],
    finish: str | None,
    usage: Mapping[str, Any] | None,
    fields: Mapping[str, Any],
) -> Step:
    """Return a step for the Responses API. Each encrypted text in `fields["reasoning"]` becomes a separate item."""
    items: list[dict[str, Any]] = [
        {"id": f"rs_{i}", "type": "reasoning", "summary": [], "encrypted_content": sealed}
        for i, sealed in enumerate(fields.get("reasoning", ()))
    ]
    if text is not None:
        more = {key: value for key, value in fields.items() if key != "reasoning"}
        content = [{"type": "output_text", "annotations": [], "text": text}]
        message = {"id": "msg_0", "type": "message", "status": "completed", "role": "assistant", "content": content}
        items.append({**message, **more})
    for id, name, arguments in calls:  # noqa: A001
        arguments_text = arguments if isinstance(arguments, str) else json_bytes.encode(arguments).decode()
        call = {"id": f"fc_{id}", "type": "function_call", "status": "completed", "call_id": id, "name": name}
        items.append({**call, "arguments": arguments_text})
    response: dict[str, Any] = {"id": "resp_0", "status": "completed", "error": None, "incomplete_details": None}
    if finish not in (None, "completed"):
        response |= {"status": "incomplete", "incomplete_details": {"reason": finish}}
    response |= {"output": items, "usage": usage or {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}}
    unfinished: dict[str, Any] = {**response, "status": "in_progress", "output": [], "usage": None}
    first_kinds = ("response.created", "response.in_progress")
    events: list[dict[str, Any]] = [{"type": kind, "response": unfinished} for kind in first_kinds]
    for index, item in enumerate(items):
        position: dict[str, Any] = {"item_id": item["id"], "output_index": index}
        empty: dict[str, Any] = {"content": [], "arguments": ""}
        started = {**item, **{key: empty[key] for key in empty if key in item}, "status": "in_progress"}
        events.append({"type": "response.output_item.added", "output_index": index, "item": started})
        if item["type"] == "message":
            position["content_index"] = 0
            events += [{"type": "response.output_text.delta", **position, "delta": piece} for piece in texts]
            events.append({"type": "response.output_text.done", **position, "text": text})
        for half in _split_in_half(item.get("arguments", "")) if "arguments" in item else ():
            events.append({"type": "response.function_call_arguments.delta", **position, "delta": half})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": f"response.{response['status']}", "response": response})
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(events)]
    return Step(body=json_bytes.encode(response), events=tuple(map(json_bytes.encode, numbered)))


def _gemini(
    text: str | None,
    texts: Sequence[str],
    calls: Sequence[tuple[str, str, Mapping[str, Any] | str]],
    finish: str | None,
    usage: Mapping[str, Any] | None,
    fields: Mapping[str, Any],
) -> Step:
    thoughts: list[dict[str, Any]] = [{"text": thought, "thought": True} for thought in fields.get("thinking", ())]
    signed = {"thoughtSignature": "c2lnbmVk"} if thoughts else {}
    call_parts: list[dict[str, Any]] = []
    for id, name, arguments in calls:  # noqa: A001
        values = arguments if isinstance(arguments, Mapping) else _parse_object(arguments)
        call = {**({"id": id} if id else {}), "name": name, "args": values}
        # Gemini signs only the first of several parallel calls.
        call_parts.append({"functionCall": call, **({} if call_parts else signed)})
    text_parts = [] if text is None else [{"text": text, **({} if call_parts else signed)}]
    # In a stream, the signature of a text follows it.
    ending = [{"text": "", **signed}] if signed and not call_parts else []
    counts = usage or {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    last = {"finishReason": finish or "STOP", "index": 0}
    content = {"parts": [*thoughts, *text_parts, *call_parts], "role": "model"}
    chunks: list[dict[str, Any]] = [
        {"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}]}
        for part in (*thoughts, *({"text": piece} for piece in texts), *call_parts)
    ]
    closed = {"content": {"parts": ending, "role": "model"}, **last} if ending else last
    chunks.append({"candidates": [closed], "usageMetadata": counts})
    body = {"candidates": [{"content": content, **last}], "usageMetadata": counts}
    return Step(body=json_bytes.encode(body), events=tuple(map(json_bytes.encode, chunks)))


def _parse_object(arguments: str) -> dict[str, Any]:
    try:
        value = json_bytes.value(arguments.encode())
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"INVALID_JSON": arguments}


def _merge_deltas(start: dict[str, Any], deltas: list[dict[str, Any]]) -> dict[str, Any]:
    block = dict(start)
    for delta in deltas:
        for key in ("text", "thinking", "signature"):
            block[key] = block.get(key, "") + delta[key] if key in delta else block.get(key)
    arguments_text = "".join(delta.get("partial_json", "") for delta in deltas)
    try:
        block["input"] = json_bytes.value(arguments_text.encode()) if arguments_text else block.get("input")
    except ValueError:
        block["input"] = {"INVALID_JSON": arguments_text}
    return {key: value for key, value in block.items() if value is not None}


def _split_in_half(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]
