"""What a model thinks is shown the same in streams, responses and items, whatever wire it comes over."""

from __future__ import annotations

import json
from typing import Any

import pytest

from longtalk.testing import AsyncScripted, Step, says
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Serve

RAW = [{"type": "reasoning_text", "text": "Hm."}]
SUMMARY = [{"type": "summary_text", "text": "Hm."}]
ITEM = {"id": "rs_1", "type": "reasoning", "summary": SUMMARY, "content": RAW, "encrypted_content": "c2VhbA=="}
SHOWN = {
    "openai-chat": ([], RAW),
    "anthropic": (SUMMARY, None),
    "gemini": (SUMMARY, None),
    "openai-responses": (SUMMARY, RAW),
}
"""The summary and the content of the item, by the wire that the reasoning came over."""
SUMMARY_EVENTS = ["summary_part.added", "summary_text.delta", "summary_text.done", "summary_part.done"]


def thinks(wire: str) -> Step:
    """Return an answer whose reasoning comes first."""
    if wire == "openai-chat":
        made = says("Hello.", fields={"reasoning_content": "Hm."}, wire=wire)
        return Step(made.body, (made.events[0], made.events[-4], *made.events[1:-4], *made.events[-3:]))
    if wire != "openai-responses":
        return says("Hello.", fields={"thinking": ["Hm."]}, wire=wire)
    made = says("Hello.", fields={"reasoning": ["c2VhbA=="]}, wire=wire)
    place = {"item_id": "rs_1", "output_index": 0}
    deltas = [
        {"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": "Hm.", **place},
        {"type": "response.reasoning_text.delta", "content_index": 0, "delta": "Hm.", **place},
    ]
    events: list[bytes] = []
    for raw in made.events:
        assert isinstance(raw, bytes)
        event = json.loads(raw)
        if event.get("item", {}).get("type") == "reasoning":
            event["item"] = ITEM
            if event["type"] == "response.output_item.done":
                events += [json.dumps(each).encode() for each in deltas]
        events.append(json.dumps(event).encode())
    body = json.loads(made.body)
    body["output"] = [ITEM if each["type"] == "reasoning" else each for each in body["output"]]
    return Step(json.dumps(body).encode(), tuple(events))


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_reasoning_is_the_same_in_streams_responses_and_items(serve: Serve, wire: str) -> None:
    client: Any = serve(m=AsyncScripted(thinks(wire), thinks(wire), wire=HTTP_WIRES[wire])).client()
    talk = client.conversations.create().id
    events = list(client.responses.create(model="m", input="Hi.", conversation=talk, stream=True))
    shown = events[-1].response.output[0].to_dict()
    summary, content = SHOWN[wire]
    assert (shown["type"], shown["status"]) == ("reasoning", "completed")
    assert (shown["summary"], shown.get("content")) == (summary, content)
    done = [each.item.to_dict() for each in events if each.type == "response.output_item.done"]
    assert done == [each.to_dict() for each in events[-1].response.output]
    kinds = [each.type.removeprefix("response.") for each in events if each.type.startswith("response.reasoning")]
    expected = [f"reasoning_{kind}" for kind in SUMMARY_EVENTS if summary]
    assert sorted(kinds) == sorted(expected + ["reasoning_text.delta", "reasoning_text.done"] * bool(content))
    assert client.responses.retrieve(events[-1].response.id).output[0].to_dict() == shown
    replayed = list(client.responses.retrieve(events[-1].response.id, stream=True))
    assert replayed[-1].response == events[-1].response
    assert client.conversations.items.list(talk, order="asc").data[1].to_dict() == shown
    whole = client.responses.create(model="m", input="Hi.").output[0].to_dict()
    assert {**whole, "id": ""} == {**shown, "id": ""}


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_a_conversation_with_reasoning_goes_on_over_every_wire(serve: Serve, wire: str) -> None:
    providers = {name: AsyncScripted(says("Yes.", wire=name), wire=HTTP_WIRES[name]) for name in SHOWN}
    client = serve(m=AsyncScripted(thinks(wire), wire=HTTP_WIRES[wire]), **providers).client()
    first = client.responses.create(model="m", input="Hi.")
    for name in providers:
        made = client.responses.create(model=name, input="Sure?", previous_response_id=first.id)
        assert made.output_text == "Yes."
        [sent] = providers[name].requests
        assert b"Hi." in sent


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_reasoning_that_a_client_sends_back_is_accepted(serve: Serve, wire: str) -> None:
    client: Any = serve(m=AsyncScripted(thinks(wire), says("Yes.", wire=wire), wire=HTTP_WIRES[wire])).client()
    first = client.responses.create(model="m", input="Hi.")
    sent = [{"role": "user", "content": "Hi."}, *(item.to_dict() for item in first.output)]
    made = client.responses.create(model="m", input=[*sent, {"role": "user", "content": "Sure?"}])
    assert made.output_text == "Yes."
