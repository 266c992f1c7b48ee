"""Check what the service sends against the types of openai-python, and streams of events against their grammar."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pydantic
from openai.types.responses import Response, ResponseStreamEvent

OURS = {"frequency_penalty", "presence_penalty", "store", "cache_write_tokens", "status", "name"}
"""Fields of the public specification that the client's types don't have."""
ONLY_AT_OPENAI = {
    *("access_programs", "image", "moderation", "prompt_cache_diagnostics", "tool_usage"),
    *("prompt_cache_options", "prompt_cache_retention"),
}
"""Fields of a response that the service never has, or only repeats."""


@cache
def _adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(kind)


def check(kind: Any, value: Any) -> Any:
    """Check a value in the strict form of a type: no field is missing, unknown or of another type."""
    made = _adapter(kind).validate_json(json.dumps(value), strict=True)
    _check_extra(made, type(made).__name__)
    return made


def _check_extra(value: Any, where: str) -> None:
    if isinstance(value, list):
        for each in value:
            _check_extra(each, where)
    if isinstance(value, pydantic.BaseModel):
        unknown = (value.model_extra or {}).keys() - OURS
        assert not unknown, f"{where} has {unknown}"
        for name in type(value).model_fields:
            _check_extra(getattr(value, name), f"{where}.{name}")


def check_response(value: Any) -> Any:
    """Check a response object, in which fields without a value must be null."""
    made = check(Response, value)
    assert Response.model_fields.keys() - value.keys() <= ONLY_AT_OPENAI
    ids = [item["id"] for item in value["output"]]
    assert len(set(ids)) == len(ids)
    return made


def check_events(events: list[Any], *, replayed: bool = False) -> Any:
    """Check the events of one response, from the first to the last. Return the response that they end with."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"] for event in events]
    assert kinds[0] == "response.created"
    assert kinds[-1] in ("response.completed", "response.incomplete", "response.failed")
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1
    items: list[Any] = []
    done: list[Any] = []
    pieces: dict[tuple[Any, ...], str] = {}
    for event in events:
        check(ResponseStreamEvent, event)
        kind, index = event["type"], event.get("output_index")
        if "response" in event:
            check_response(event["response"])
        elif kind == "response.output_item.added":
            assert index == len(items)
            assert event["item"].get("status", "in_progress") == "in_progress"
            items.append(event["item"])
            done.append(None)
        elif kind == "response.output_item.done":
            assert done[index] is None
            assert event["item"]["id"] == items[index]["id"]
            assert event["item"].get("status") != "in_progress"
            done[index] = event["item"]
        else:
            assert done[index] is None
            assert event["item_id"] == items[index]["id"]
            place = (index, event.get("content_index"), event.get("summary_index"))
            if kind.endswith(".delta"):
                pieces[place] = pieces.get(place, "") + event["delta"]
            elif kind.endswith("_part.added"):
                assert place not in pieces
                pieces[place] = ""
            elif kind.endswith("_part.done"):
                assert pieces[place] == event["part"].get("text", event["part"].get("refusal"))
            elif kind != "response.compaction.compacting":
                [text] = {event[name] for name in ("text", "refusal", "arguments", "input") if name in event}
                assert pieces[place] == text
    last = events[-1]["response"]
    assert [item for item in done if item is not None] == last["output"]
    for (index, content, summary), text in pieces.items():
        if done[index] is not None:
            assert text == _read_text(done[index], content, summary)
    assert replayed or len(done) == len(last["output"]) or kinds[-1] != "response.completed"
    return last


def _read_text(item: Any, content: int | None, summary: int | None) -> Any:
    if content is not None:
        part = item["content"][content]
        return part.get("text", part.get("refusal"))
    if summary is not None:
        return item["summary"][summary]["text"]
    return item.get("arguments", item.get("input"))
