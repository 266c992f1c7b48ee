"""Two owners: no event of one holds anything of the other, over any transport.

The types of events come from where the code and the OpenAPI document declare them. Both owners have conversations of
the same names, and send the same requests with the same keys, one while those of the other run. A declared type that
does not occur, or a transport that is not used, fails here until it is covered.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import AsyncGenerator, Iterator
from typing import Any, get_args

import anyio.to_thread
import httpx2
import pytest

from longtalk.errors import Overloaded
from longtalk.service.app import SOCKETS
from longtalk.service.openai.event_types import Delta, EventType
from longtalk.testing import AsyncScripted, Step, says
from longtalk.wires import HTTP_WIRES
from tests.service.isolation.owners import API, DOCUMENT, ROUTES, TALK, UNKNOWN, Owners, fill, fill_body, hide, request
from tests.service.isolation.test_routes import list_fields

ADA, BOB = "marmalade", "zeppelin"
"""What each owner has said in each conversation, and has the model say."""
PAGE = {"url": "https://x.org", "title": "WORD", "start_index": 0, "end_index": 2}
CITED = {"type": "url_citation", "url_citation": PAGE}
ALL_FIELDS = {"reasoning_content": "WORD?", "refusal": "No WORD."}
WAITS = says("WAIT for WORD. Go.", pieces=2)
FAILS = Step(b"", (says("The WORD.").events[0], says("The WORD.").events[1], Overloaded("Too busy.")))
THINKS = says("The WORD.", fields={"thinking": ["WORD?"]}, wire="anthropic")
CUT = says("The WORD", finish="length", fields={"annotations": [CITED]})
CALLS = says("My WORD.", fields=ALL_FIELDS, calls=[("c1", "pay", {"x": "WORD"}), ("c2", "patch", {"input": "WORD"})])
ASKS = says("My WORD.", fields=ALL_FIELDS, calls=[("c1", "pay", {"x": "WORD"})])
RECALLS = says(None, fields=ALL_FIELDS, calls=[("c1", "recall", {"query": "WORD"})])
PAY = {"name": "pay", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}
FUNCTIONS = [{"type": "function", **PAY}, {"type": "custom", "name": "patch"}]
LONG = [{"role": role, "content": "word " * 600} for _ in range(2) for role in ("user", "assistant")]
COMPACTS: dict[str, Any] = {
    "input": [*LONG, {"role": "user", "content": "Go on."}],
    "context_management": [{"type": "compaction", "compact_threshold": 1_100}],
}
RESPONSES: list[tuple[dict[str, Any], list[Step]]] = [
    ({"tools": FUNCTIONS}, [CALLS]),
    (COMPACTS, [CUT]),
    ({"model": "thinks"}, []),
    ({}, [FAILS]),
    ({}, [CUT]),
]
MEMORY = {"policy": "Memory(limit=0, recent=0, recall=500)", "tools": [PAY]}
TURNS: list[tuple[dict[str, Any], list[Step]]] = [(MEMORY, [RECALLS, says("A WORD.")]), ({}, [FAILS])]
PLAYS: dict[tuple[str, str], list[tuple[dict[str, Any], list[Step]]]] = {
    ("POST", "/v1/responses"): [*RESPONSES, ({"background": True}, [CUT])],
    ("POST", "/v1/chat/completions"): [
        ({"tools": [{"type": "function", "function": PAY}], "stream_options": {"include_usage": True}}, [ASKS]),
        ({}, [FAILS]),
    ],
    ("POST", TALK + "/turns"): TURNS,
    ("POST", API + "/turns"): TURNS,
}
"""What is sent to each route that begins a stream, and the model's answers to Bob."""
FOLLOWS = {
    ("POST", "/v1/responses"): (("GET", "/v1/responses/{id}"), "?stream=true"),
    ("POST", TALK + "/turns"): (("GET", TALK + "/turns/{turn}/events"), ""),
}
"""By route that begins a stream, the one that follows it again, and its query."""
NO_STREAM = {("POST", "/v1/responses/input_tokens"), ("POST", "/v1/responses/compact")}
"""Routes that take the body of a response, and don't stream."""
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
Events = dict[tuple[str, str], list[str]]
"""The data of all events by route; those over a WebSocket have "WS" as their method."""


class Model(AsyncScripted):
    """A model that says the words of those whose messages it reads. While it is held, its answers to Ada wait."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.go.set()

    async def send(self, body: bytes) -> bytes:
        """Return a summary of what was said."""
        return WAITS.body.replace(b"WORD", list_words(body))

    async def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        words = list_words(body)
        for data in self._take_step(body).events if BOB.encode() in body else WAITS.events:
            if isinstance(data, BaseException):
                raise data
            yield data.replace(b"WORD", words)
            if b"WAIT" in data:
                await anyio.to_thread.run_sync(self.go.wait, abandon_on_cancel=True)


class Thinker(AsyncScripted):
    """A model that thinks before each answer, and says the words of those whose messages it reads."""

    def __init__(self) -> None:
        super().__init__(wire=HTTP_WIRES["anthropic"])

    async def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        for data in THINKS.events:
            assert isinstance(data, bytes)
            yield data.replace(b"WORD", list_words(body))


def list_words(body: bytes) -> bytes:
    return " ".join(word for word in (ADA, BOB) if word.encode() in body).encode()


class Streams:
    """The streams of two owners. Ada's have begun and wait while those of Bob are played."""

    def __init__(self, owners: Owners, model: Model) -> None:
        self.owners = owners
        self.model = model
        self.ada: Events = {}
        self.bob: Events = {}
        self._seeded: set[tuple[str, str]] = set()

    def seed(self, key: str, name: str) -> None:
        """Begin a conversation of this name, in which the owner's word was said."""
        if (key, name) not in self._seeded:
            self._seeded.add((key, name))
            word, headers = ADA if key == self.owners.ada else BOB, {"Authorization": f"Bearer {key}"}
            url = self.owners.served.url
            assert self.owners.http.post(f"{url}{API}/conversations", json={"id": name}, headers=headers).is_success
            items = [{"role": role, "content": f"The {word}."} for role in ("user", "assistant")]
            path = f"{url}/v1/conversations/{name}/items"
            assert self.owners.http.post(path, json={"items": items}, headers=headers).is_success

    def make_body(self, key: str, path: str, name: str, more: dict[str, Any]) -> dict[str, Any]:
        """Return a request that is the same for both owners, unless nothing is stored of it."""
        said: dict[str, Any] = {"input": "Go on.", "conversation": name}
        if path.startswith(API):
            said = {"message": "Go on." if "{" in path else f"My {ADA if key == self.owners.ada else BOB}."}
        elif "chat" in path:
            said = {"messages": [{"role": "user", "content": "Go on."}], "conversation": name}
        return {"model": "m", "stream": True, **said, **more}

    def begin(self, stack: contextlib.ExitStack, key: str, path: str, name: str, more: dict[str, Any]) -> Any:
        """Begin a stream, with the same idempotency key for both owners."""
        self.seed(key, name)
        headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": name}
        url = self.owners.served.url + path.replace("{conversation}", name)
        body = self.make_body(key, path, name, more)
        answer = stack.enter_context(self.owners.http.stream("POST", url, json=body, headers=headers))
        assert answer.status_code == 200, answer.read()
        return answer

    def connect(self, stack: contextlib.ExitStack, key: str, path: str, name: str, more: dict[str, Any]) -> Any:
        """Begin a stream over a WebSocket."""
        self.seed(key, name)
        client: Any = self.owners.served.client(key)
        connection = stack.enter_context(client.responses.connect())
        connection.send({"type": "response.create", **self.make_body(key, path, name, more)})
        return connection

    def play(self) -> None:
        """Play all streams of Bob while Ada has the same ones running, then Ada's to their end."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.model.go.set)
            self.model.go.clear()
            running: list[tuple[tuple[str, str], Any]] = []
            for number, (route, (more, steps)) in enumerate((r, each) for r, plays in PLAYS.items() for each in plays):
                running.append((route, self.begin(stack, self.owners.ada, route[1], f"d{number}", more)))
                self.model.add(*steps)
                found = read(self.begin(stack, self.owners.bob, route[1], f"d{number}", more))
                self.bob.setdefault(route, []).extend(found)
                if route in FOLLOWS:
                    self.follow(route, f"d{number}", json.loads(found[0]))
            for number, (path, (more, steps)) in enumerate((p, each) for p, _ in SOCKETS for each in RESPONSES):
                running.append((("WS", path), self.connect(stack, self.owners.ada, path, f"w{number}", more)))
                assert "response.created" in running[-1][1].recv_bytes().decode()
                self.model.add(*steps)
                connection = self.connect(stack, self.owners.bob, path, f"w{number}", more)
                found = receive(connection)
                connection.send({"type": "response.create", "model": "m", "conversation": self.owners.ids["{item}"]})
                self.bob.setdefault(("WS", path), []).extend([*found, *receive(connection)])
            self.model.check()
            self.model.go.set()
            for route, answer in running:
                found = receive(answer) if route[0] == "WS" else read(answer)
                self.ada.setdefault(route, []).extend(found)

    def follow(self, route: tuple[str, str], name: str, begun: dict[str, Any]) -> None:
        """Follow a stream of Bob's again that has ended. `begun` is its first event."""
        (method, path), query = FOLLOWS[route]
        ids = {"{conversation}": name, "{turn}": begun.get("turn", ""), "{id}": begun.get("response", {}).get("id", "")}
        headers = {"Authorization": f"Bearer {self.owners.bob}"}
        url = self.owners.served.url + fill(path, ids) + query
        self.bob.setdefault((method, path), []).extend(read(self.owners.http.request(method, url, headers=headers)))


def read(answer: Any) -> list[str]:
    """Return the data of the events of a stream."""
    return [line[6:] for line in answer.iter_lines() if line.startswith("data: ") and line != "data: [DONE]"]


def receive(connection: Any) -> list[str]:
    """Return the events that answer a message over a WebSocket."""
    found = [connection.recv_bytes().decode()]
    while json.loads(found[-1])["type"] not in ENDS:
        found.append(connection.recv_bytes().decode())
    return found


def list_types(events: list[str]) -> set[str]:
    return {json.loads(event)["type"] for event in events}


@pytest.fixture(scope="module")
def streams() -> Iterator[Streams]:
    with httpx2.Client(timeout=30) as http:
        model = Model()
        found = Streams(Owners(http, model, thinks=Thinker()), model)
        found.play()
        yield found
        found.owners.served.stop()


def test_each_transport_is_used_by_both_owners(streams: Streams) -> None:
    listed = {
        (method, path)
        for method, path in ROUTES
        if (
            "text/event-stream" in json.dumps(DOCUMENT["paths"].get(path, {}).get(method.lower()))
            if path.startswith(API)
            else "stream" in list_fields(method, path)
        )
    }
    sockets = {("WS", path) for path, _ in SOCKETS}
    assert streams.bob.keys() == (listed - NO_STREAM) | sockets
    assert streams.ada.keys() == streams.bob.keys() - {route for route, _ in FOLLOWS.values()}
    assert listed >= NO_STREAM


def test_each_type_of_event_that_is_declared_occurs(streams: Streams) -> None:
    declared = set(get_args(EventType))
    assert list_types(streams.bob["POST", "/v1/responses"]) == declared - {"error"}
    assert list_types(streams.bob["GET", "/v1/responses/{id}"]) == declared - {"error"}
    assert list_types(streams.bob["WS", "/v1/responses"]) == declared - {"response.queued"}
    turns = DOCUMENT["components"]["schemas"]["TurnEvent"]["discriminator"]["mapping"].keys()
    assert list_types(streams.bob["POST", TALK + "/turns"]) == turns
    assert list_types(streams.bob["GET", TALK + "/turns/{turn}/events"]) == turns
    assert list_types(streams.bob["POST", API + "/turns"]) == turns


def test_each_part_of_a_chunk_that_is_declared_occurs(streams: Streams) -> None:
    chunks = [json.loads(event) for event in streams.bob["POST", "/v1/chat/completions"]]
    choices = [choice for chunk in chunks for choice in chunk.get("choices", ())]
    assert {name for choice in choices for name in choice["delta"]} == Delta.__annotations__.keys()
    assert any(choice["finish_reason"] for choice in choices)
    assert any(chunk.get("usage") for chunk in chunks)
    assert "error" in chunks[-1]


def test_no_event_holds_anything_of_the_other_owner(streams: Streams) -> None:
    ids = {}
    for events, own in ((streams.ada, ADA), (streams.bob, BOB)):
        for route, data in events.items():
            assert own in "".join(data), route
        text = "".join(event for data in events.values() for event in data)
        assert {ADA, BOB} - {own} == {word for word in (ADA, BOB) if word not in text}
        ids[own] = set(re.findall(r'"(?:id|item_id|turn)":"([^"]{12,})"', text))
        assert len(ids[own]) > 20
    assert ids[ADA].isdisjoint(ids[BOB])
    assert "bees" not in str(streams.bob)


ASKED = [
    ("GET", "/v1/responses/{id}?stream=true", None),
    ("GET", "/v1/responses/{id}?stream=true&starting_after=0", None),
    ("GET", "/v1/responses/{id}?stream=true&starting_after=99", None),
    ("GET", "/v1/responses/{id}", None),
    ("POST", "/v1/responses/{id}/cancel", {}),
    ("POST", "/v1/responses", {"model": "m", "input": "Hi.", "previous_response_id": "{response}", "stream": True}),
    ("POST", "/v1/responses", {"model": "m", "input": "Hi.", "previous_response_id": "{response}", "store": False}),
    ("GET", TALK + "/turns/{turn}/events", None),
    ("GET", TALK + "/turns/{turn}/events?after=0", None),
    ("GET", TALK + "/turns/{turn}", None),
    ("POST", TALK + "/turns/{turn}/cancel", {}),
    ("POST", TALK + "/turns", {"model": "m", "message": "Hi.", "after": "{turn}", "stream": True}),
]


def test_a_run_of_another_owner_can_not_be_followed_resumed_or_ended(streams: Streams) -> None:
    owners = streams.owners
    with contextlib.ExitStack() as stack:
        stack.callback(streams.model.go.set)
        streams.model.go.clear()
        response = streams.begin(stack, owners.ada, "/v1/responses", "r1", {"background": True})
        turn = streams.begin(stack, owners.ada, TALK + "/turns", "r2", {})
        lines = {each: each.iter_lines() for each in (response, turn)}
        first = {each: json.loads(next(line for line in lines[each] if "data:" in line)[6:]) for each in lines}
        ids = {"{response}": first[response]["response"]["id"], "{turn}": first[turn]["turn"], "{conversation}": "r2"}
        # First Bob has no conversation, then one of another name, then those of the same names.
        for names in ([], ["mine"], ["r1", "r2"]):
            for name in names:
                streams.seed(owners.bob, name)
            own = {"{conversation}": names[-1]} if names else {}
            for method, path, body in ASKED:
                foreign = request(owners, owners.bob, method, path, body, {**ids, **own}, {"Last-Event-ID": "0"})
                unknown = {**UNKNOWN, **own}
                assert foreign == request(owners, owners.bob, method, path, body, unknown, {"Last-Event-ID": "0"})
                assert 400 <= foreign[0] < 500, (path, foreign)
        client: Any = owners.served.client(owners.bob)
        with client.responses.connect() as connection:
            for body in ({"previous_response_id": "{response}"}, {"conversation": "{response}"}):
                told = []
                for each in (ids, UNKNOWN):
                    sent = {"type": "response.create", "model": "m", "input": "Hi.", **body}
                    connection.send(fill_body(sent, each))
                    told.append(hide(connection.recv_bytes().decode(), each))
                assert told[0] == told[1]
                assert told[0].startswith('{"type":"error","status":4')
        streams.model.go.set()
        ends = [[line for line in lines[each] if line.startswith("event:")][-1] for each in (response, turn)]
    assert ends == ["event: response.completed", "event: done"]
