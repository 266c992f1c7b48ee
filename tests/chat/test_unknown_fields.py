"""Unknown fields at every level of a response: those of the message go back, and all others can be read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import Chat, Conversation, Reply, history
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted, says
from longtalk.transcript.responses import Response
from longtalk.wires import HTTP_WIRES, WIRES
from tests.support.properties import examples

NAMES = sorted(HTTP_WIRES)
ODD = '{"b":1.0,"a":[ 1e2,"caf\\u00e9 \\/",12345678901234567890,null],"b2" : -0}'
"""JSON that no encoder writes in this form."""
DATA = ("args", "input", "arguments", "annotations")
"""Members whose content is data and not part of the grammar."""

Place = tuple[str | int, ...]
IN_MESSAGE: dict[str, Callable[[Place], bool]] = {
    "openai-chat": lambda place: place[0] == "choices" and len(place) > 2,
    "anthropic": lambda place: (
        place[0] in ("content", "content_block") or place[:2] == ("content_block_delta", "delta")
    ),
    "gemini": lambda place: place[:1] == ("candidates",) and "content" in place,
    "openai-responses": lambda place: place[0] in ("output", "item") or place[:2] == ("response", "output"),
}


def look_up(q: str) -> str:
    """Look up a word."""
    return f"about {q}"


def objects(value: Any, place: Place = ()) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield the objects of a JSON value that belong to the grammar, with their places."""
    if isinstance(value, dict):
        yield place, value
        for key, member in list(value.items()):
            if key not in DATA:
                yield from objects(member, (*place, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from objects(item, (*place, i))


class Marks:
    """Adds an unknown field with a name of its own to objects, and remembers which of them are in the message."""

    def __init__(self, wire: str, chosen: Callable[[], bool] = lambda: True) -> None:
        self.wire = wire
        self.chosen = chosen
        self.count = 0
        self.in_message: dict[str, Place] = {}
        self.beside: set[str] = set()
        self.named: dict[Place, str | None] = {}

    def add(self, data: bytes) -> bytes:
        """Return a body or event with unknown fields."""
        value = json.loads(data)
        kind = value.get("type", "")
        for place, members in objects(value):
            name = self.name(place, value)
            if name is not None:
                members[name] = name
                is_part = bool(place) and IN_MESSAGE[self.wire]((kind, *place) if place[0] == "delta" else place)
                if is_part:
                    self.in_message[name] = inside_message(place)
                else:
                    self.beside.add(name)
        text = json.dumps(value)
        for name in (*self.in_message, *self.beside):
            text = text.replace(f'"{name}": "{name}"', f'"{name}": {value_of(name)}')
        return text.encode()

    def name(self, place: Place, event: dict[str, Any]) -> str | None:
        """Return the name of the field for a place; the same for all events that repeat one object."""
        if self.wire == "openai-responses" and place[:1] in (("item",), ("part",)):
            part = ("content", event.get("content_index", 0)) if place[0] == "part" else ()
            place = ("response", "output", event["output_index"], *part, *place[1:])
        if self.wire == "openai-responses" and place[:1] == ("response",):
            return self.named.setdefault(place, self.new())
        return self.new()

    def new(self) -> str | None:
        self.count += 1
        return f"x_{self.count}" if self.chosen() else None


def value_of(name: str) -> str:
    return ODD.replace("caf", name)


def shows(name: str, where: bytes) -> bool:
    return f'"{name}":{value_of(name)}'.encode() in where.replace(f'"{name}": '.encode(), f'"{name}":'.encode())


def inside_message(place: Place) -> Place:
    """Return the place of an object of a response inside its message, without the indexes of lists."""
    keys = tuple(key for key in place if isinstance(key, str))
    if keys[0] in ("content_block", "delta"):
        return ("content",)
    head = {"choices": 2, "candidates": 2, "content": 0, "response": 2, "output": 1, "item": 1}
    return keys[head[keys[0]] :]


def find(name: str, request: bytes) -> Place:
    """Return the place of a field in a request, inside its message, without the indexes of lists."""
    messages = next(value for key, value in json.loads(request).items() if key in ("messages", "contents", "input"))
    (place,) = [place for place, members in objects(messages) if name in members]
    return tuple(key for key in place if isinstance(key, str))


def run(chat: Chat, message: str, state: bytes | None, *, stream: bool) -> Reply:
    if not stream:
        return chat.send(message, state=state)
    with chat.stream(message, state=state) as events:
        for _ in events:
            pass
        return events.reply


def converse(wire: str, marks: Marks, *, stream: bool) -> tuple[Scripted, Reply, bytes]:
    """Run two turns, of which the first calls a tool, with unknown fields in the first answer."""
    step = says("Let me look.", calls=[("call_1", "look_up", {"q": "bows"})], wire=wire)
    events = tuple(marks.add(data) if data[:1] == b"{" else data for data in step.events) if stream else step.events  # type: ignore[index,arg-type,union-attr]
    step = type(step)(body=step.body if stream else marks.add(step.body), events=events)
    model = Scripted(step, says("Bows.", wire=wire), says("Gladly.", wire=wire), wire=WIRES[wire])
    chat = Chat(model, tools=[look_up])
    reply = run(chat, "What are bows?", None, stream=stream)
    return model, reply, run(chat, "Thanks!", reply.state, stream=stream).state


def lost(wire: str, marks: Marks, *, stream: bool) -> list[str]:
    """Return the unknown fields that did not go back in every later request, or can't be read afterwards."""
    model, reply, state = converse(wire, marks, stream=stream)
    later = [request for request in model.requests if request is not model.requests[0]]
    answer = next(entry for entry in history(state) if entry.calls)
    assert len(later) == 2
    assert answer.response is not None
    missing = [
        name
        for name, place in marks.in_message.items()
        if not all(shows(name, request) and find(name, request) == place for request in later)
    ]
    for response in (reply.responses[0], answer.response):
        missing += [name for name in marks.beside if not any(shows(name, part) for part in parts(response))]
    return missing


def parts(response: Response) -> tuple[bytes, bytes]:
    return response.native, response.usage or b""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", NAMES)
def test_no_unknown_field_is_lost(wire: str, stream: bool) -> None:
    marks = Marks(wire)
    assert lost(wire, marks, stream=stream) == []
    assert min(len(marks.in_message), len(marks.beside)) > 1


@examples(10, 200)
@given(st.sampled_from(NAMES), st.booleans(), st.data())
def test_whichever_fields_are_unknown_none_is_lost(wire: str, stream: bool, data: st.DataObject) -> None:
    assert lost(wire, Marks(wire, lambda: data.draw(st.booleans())), stream=stream) == []


@pytest.mark.parametrize("wire", NAMES)
def test_a_stream_that_was_cut_keeps_what_the_response_said_so_far(wire: str) -> None:
    marks = Marks(wire)
    step = says("one two three", wire=wire)
    events = [marks.add(data) for data in step.events if isinstance(data, bytes) and data[:1] == b"{"]
    begun = set(marks.beside)
    model = Scripted(
        type(step)(body=b"{}", events=(*events[: len(events) // 2], ConnectionError("cut"))), wire=WIRES[wire]
    )
    stream = Chat(model).stream("Count.")
    with pytest.raises(Exception), stream:  # noqa: B017, PT011
        for _ in stream:
            pass
    (response,) = stream.reply.responses
    assert any(shows(name, response.native) for name in begun)
    assert response.finish_reason == "interrupted"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", NAMES)
def test_a_store_keeps_what_the_response_said(wire: str, stream: bool) -> None:
    marks = Marks(wire)
    step = says("Hello.", wire=wire)
    events = tuple(marks.add(data) if data[:1] == b"{" else data for data in step.events) if stream else ()  # type: ignore[index,arg-type,union-attr]
    step = type(step)(body=step.body if stream else marks.add(step.body), events=events)
    talk = Conversation("talk", model=Scripted(step, wire=WIRES[wire]), store=InMemory())
    if stream:
        list(talk.stream("Hi."))
    else:
        talk.send("Hi.")
    for each in (talk.history()[1], talk.fork(talk.history()[1].id).history()[1]):
        assert each.response is not None
        assert not [name for name in marks.beside if not any(shows(name, part) for part in parts(each.response))]
