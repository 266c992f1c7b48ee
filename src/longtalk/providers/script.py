"""Steps of a scripted provider: what a model says, whole and in pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longtalk import _json


class ScriptError(AssertionError):
    """A script and the calls that were made do not fit together."""


class UnexpectedCall(ScriptError):
    """The chat called the model more often than the script has steps."""


class UnusedSteps(ScriptError):
    """The chat called the model less often than the script has steps."""


class Step(msgspec.Struct, frozen=True):
    """One answer: the body of a whole response, and the data of the events of a streamed one."""

    body: bytes
    events: tuple[bytes | BaseException, ...] = ()
    """An exception among them is raised at its place."""


def says(
    text: str | None = None,
    *,
    calls: Sequence[tuple[str, str, Mapping[str, Any] | str]] = (),
    finish: str | None = None,
    usage: Mapping[str, Any] | None = None,
    fields: Mapping[str, Any] | None = None,
    pieces: int = 3,
) -> Step:
    """What a model on the OpenAI chat wire says: text, calls as (id, name, arguments), further message fields."""
    message: dict[str, Any] = {"role": "assistant", "content": text, **(fields or {})}
    written: list[dict[str, Any]] = [
        {
            "id": id,
            "type": "function",
            "function": {"name": name, "arguments": args if isinstance(args, str) else _json.encode(args).decode()},
        }
        for id, name, args in calls  # noqa: A001
    ]
    if written:
        message["tool_calls"] = written
    reason = finish or ("tool_calls" if calls else "stop")
    counts = usage or {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    body = {"id": "r", "choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": counts}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None if text is None else ""}]
    size = max(1, -(-len(text or "") // pieces))
    deltas += [{"content": (text or "")[i : i + size]} for i in range(0, len(text or ""), size)]
    if fields:
        deltas.append(dict(fields))
    for index, call in enumerate(written):
        arguments = call["function"]["arguments"]
        half = len(arguments) // 2
        first = {**call, "index": index, "function": {**call["function"], "arguments": arguments[:half]}}
        deltas.append({"tool_calls": [first]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": arguments[half:]}}]})
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    chunks.append({"choices": [], "usage": counts})
    return Step(body=_json.encode(body), events=(*map(_json.encode, chunks), b"[DONE]"))
