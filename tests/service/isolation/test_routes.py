"""Two owners: whatever one asks for of the other's is answered as if it had never existed, on every route.

The routes come from the application's own table, their parameters and fields from the OpenAPI document and the types of
bodies. A new one fails here until it is covered.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from longtalk.service.app import SOCKETS
from longtalk.service.openai.conversations import CreateConversation, CreateItems, UpdateConversation
from longtalk.service.openai.create_chat import CreateChat
from longtalk.service.openai.create_response import CreateResponse
from tests.service.isolation.owners import (
    API,
    DOCUMENT,
    ROUTES,
    SAID,
    TALK,
    UNKNOWN,
    Owners,
    fill,
    fill_body,
    hide,
    request,
)

OWN_ONLY = {
    ("POST", "/v1/conversations"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{id:path}"),
    ("GET", API + "/health"),
    ("GET", API + "/models"),
    ("GET", API + "/known-models"),
    ("GET", API + "/openapi.json"),
}
"""Routes that name nothing of an owner."""
LISTS = {
    ("GET", API + "/keys"): "",
    ("GET", API + "/conversations"): "",
    ("GET", API + "/stats"): "",
    ("GET", API + "/stats/daily"): "",
    ("GET", API + "/search"): "?q=Ada&conversation={conversation}",
    ("POST", API + "/conversations"): '{"id": "{conversation}"}',
    ("POST", API + "/import"): '[{"role": "user", "content": "Hi."}]',
    ("POST", API + "/sample"): "",
    ("GET", API + "/profile"): "",
    ("POST", API + "/profile"): '{"field": "preferences", "text": "Short answers."}',
}
"""Routes that answer with what is the caller's own, with the query or the body to ask with."""
BODIES: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("POST", "/v1/responses"): [
        {"model": "m", "input": "Hi.", "previous_response_id": "{response}"},
        {"model": "m", "input": "Hi.", "conversation": "{conversation}"},
        {"model": "m", "input": "Hi.", "previous_response_id": "{response}", "store": False},
        {"model": "m", "input": "Hi.", "conversation": "{conversation}", "store": False},
        {"model": "m", "input": "Hi.", "conversation": {"id": "{conversation}"}},
        {"model": "m", "input": [{"type": "item_reference", "id": "{item}"}]},
        {"model": "m", "input": [{"type": "item_reference", "id": "{item}"}], "store": False},
        {"model": "m", "input": [{"type": "compaction", "encrypted_content": "{compaction}"}, SAID]},
        {"model": "m", "input": [{"type": "function_call_output", "call_id": "{entry}", "output": "x"}]},
    ],
    ("POST", "/v1/responses/input_tokens"): [
        {"model": "m", "input": "Hi.", "previous_response_id": "{response}"},
        {"model": "m", "input": "Hi.", "conversation": "{conversation}"},
    ],
    ("POST", "/v1/responses/compact"): [
        {"model": "m", "previous_response_id": "{response}"},
        {"model": "m", "input": "Hi.", "conversation": "{conversation}"},
        {"model": "m", "input": [{"type": "compaction", "encrypted_content": "{compaction}"}, SAID]},
    ],
    ("POST", "/v1/chat/completions"): [
        {"model": "m", "messages": [SAID], "conversation": "{conversation}"},
        {"model": "m", "messages": [SAID], "conversation": "{conversation}", "stream": True},
        {"model": "m", "messages": [SAID], "conversation": "{conversation}", "store": False},
    ],
    ("POST", "/v1/conversations/{id}"): [{"metadata": {"a": "b"}}],
    ("POST", "/v1/conversations/{id}/items"): [{"items": [{"role": "user", "content": "Hi."}]}],
    ("POST", "/v1/responses/{id}/cancel"): [{}],
    ("POST", API + "/turns"): [{"model": "m", "message": "Hi.", "state": "{state}"}],
    ("PATCH", TALK): [{"title": "Mine"}, {"meta": {"a": 1}}],
    ("POST", TALK + "/branches"): [{}, {"at": "{turn}"}, {"source": "{branch}", "name": "mine"}],
    ("POST", TALK + "/branches/{branch}/rewind"): [{"to": "{turn}"}],
    ("POST", TALK + "/turns"): [
        {"model": "m", "message": "Hi."},
        {"model": "m", "message": "Hi.", "stream": True},
        {"model": "m", "message": "Hi.", "after": "{turn}"},
        {"model": "m", "message": "Hi.", "edits": "{entry}"},
        {"model": "m", "regenerates": "{turn}"},
        {"model": "m", "message": "Hi.", "branch": "{branch}"},
        {"model": "m"},
    ],
    ("POST", TALK + "/turns/{turn}/cancel"): [{}],
    ("PUT", API + "/provider-keys/{provider}"): [{"key": "sk-bob"}],
    ("POST", TALK + "/notes"): [{"text": "Rain.", "source": "{entry}", "branch": "{branch}"}],
    ("POST", TALK + "/brief"): [{"field": "facts", "text": "Mine.", "branch": "{branch}"}],
    ("PATCH", TALK + "/brief/{line}"): [{"text": "Mine."}],
    ("POST", TALK + "/brief/{line}/restore"): [{}],
    ("PATCH", API + "/profile/{line}"): [{"text": "Mine."}],
    ("DELETE", API + "/profile/{line}"): [{}],
    ("PUT", TALK + "/privacy"): [{"private": True}],
    ("POST", TALK + "/simulate"): [{"branch": "{branch}"}],
    **{
        ("POST", TALK + name): [
            {"message": "Hi.", "model": "m"},
            {"message": "Hi.", "after": "{turn}"},
            {"message": "Hi.", "edits": "{entry}"},
            {"regenerates": "{turn}"},
            {"message": "Hi.", "branch": "{branch}"},
        ]
        for name in ("/estimate", "/preview")
    },
}
BODY_TYPES: dict[tuple[str, str], type[msgspec.Struct] | None] = {
    ("POST", "/v1/responses"): CreateResponse,
    ("POST", "/v1/responses/input_tokens"): CreateResponse,
    ("POST", "/v1/responses/compact"): CreateResponse,
    ("POST", "/v1/responses/{id}/cancel"): None,
    ("POST", "/v1/chat/completions"): CreateChat,
    ("POST", "/v1/conversations"): CreateConversation,
    ("POST", "/v1/conversations/{id}"): UpdateConversation,
    ("POST", "/v1/conversations/{id}/items"): CreateItems,
}
"""The types of the bodies on the surface of OpenAI, which the document does not describe."""


def list_fields(method: str, path: str) -> set[str]:
    """Return the parameters and fields of a route, without those in its path."""
    operation = DOCUMENT["paths"][path.replace(":path}", "}")][method.lower()]
    found = {each["name"] for each in operation.get("parameters", ()) if each["in"] != "path"}
    sent = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if "$ref" in sent:
        found |= DOCUMENT["components"]["schemas"][sent["$ref"].rpartition("/")[2]]["properties"].keys()
    elif sent:
        kind = BODY_TYPES[method, path]
        found |= set(kind.__struct_fields__) if kind is not None else set()
    return found


QUERIES: dict[tuple[str, str], list[str]] = {
    ("GET", "/v1/conversations/{id}/items"): ["after={item}", "after={entry}", "after={turn}"],
    ("GET", "/v1/responses/{id}/input_items"): ["after={item}", "after={entry}", "after={turn}"],
    ("GET", TALK + "/turns/{turn}/events"): ["after=1"],
    **{
        ("GET", path): ["branch={branch}"]
        for method, path in ROUTES
        if method == "GET" and path.count("{") == 1 and "branch" in list_fields(method, path)
    },
}
"""Queries that name something of the other owner."""
NAMES = {
    *("id", "conversation", "previous_response_id", "branch", "source", "state", "after", "at", "to", "edits"),
    *("regenerates",),
}
"""Parameters and fields whose values name something that is stored. Items in `input` are asked for apart."""
NAMES_NOTHING = {
    *CreateResponse.__struct_fields__,
    *CreateChat.__struct_fields__,
    *("message", "outputs", "system", "instruction", "options", "output", "brief", "policy", "policies", "models"),
    *("text", "field", "title", "meta", "name", "key", "items", "private", "everywhere"),
    *("limit", "order", "before", "starting_after", "include_obfuscation", "q", "format", "Idempotency-Key"),
} - NAMES


def check_list(owners: Owners, method: str, path: str) -> None:
    """Check that what Bob gets has nothing of Ada's."""
    more = fill(LISTS[method, path], owners.ids)
    answer = owners.http.request(
        method,
        owners.served.url + path + (more if method == "GET" else ""),
        headers={"Authorization": f"Bearer {owners.bob}"},
        content=more if method == "POST" else None,
    )
    assert answer.is_success
    assert "ada" not in answer.text.lower()
    assert all(owners.ids[name] not in answer.text for name in ("{turn}", "{entry}", "{key}"))


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_nothing_of_another_owner_can_be_told_from_nothing(owners: Owners, method: str, path: str) -> None:
    if (method, path) in OWN_ONLY:
        return
    ids, store, before = owners.ids, owners.store, owners.read_head()
    if (method, path) in LISTS:
        check_list(owners, method, path)
        assert owners.read_head() == before
        return
    for body in BODIES.get((method, path), [{}] if method != "POST" else []) or pytest.fail(f"not covered: {path}"):
        foreign = request(owners, owners.bob, method, path, body, ids)
        missing = request(owners, owners.bob, method, path, body, UNKNOWN)
        assert foreign == missing
        assert 400 <= foreign[0] < 500
        assert store.info("bob", ids["{conversation}"]) is None
    assert owners.read_head() == before
    assert request(owners, owners.ada, "GET", "/v1/conversations/{id}/items", None, ids)[0] == 200


@pytest.mark.parametrize(("method", "path"), [each for each in ROUTES if each not in OWN_ONLY | LISTS.keys()])
def test_each_parameter_and_field_that_names_something_is_asked_with_a_name_of_another_owner(
    method: str, path: str
) -> None:
    fields = list_fields(method, path)
    assert fields <= NAMES | NAMES_NOTHING, "say of a new one whether it names something"
    asked = {query.partition("=")[0] for query in QUERIES.get((method, path), ())}
    for body in BODIES.get((method, path), ()):
        asked |= {name for name, value in body.items() if "{" in json.dumps(value).strip("{")}
    assert fields & NAMES <= asked | ({"branch"} if path.count("{") > 1 else set())


@pytest.mark.parametrize(("method", "path"), [each for each in ROUTES if each not in OWN_ONLY | LISTS.keys()])
def test_a_name_of_another_owner_in_a_conversation_of_ones_own_is_an_unknown_one(
    owners: Owners, method: str, path: str
) -> None:
    client: Any = owners.served.client(owners.bob)
    mine = client.conversations.create(items=[SAID])
    own = {"{conversation}": mine.id}
    if path.startswith("/v1/responses/"):
        own["{response}"] = client.responses.create(model="m", input="Hi.", conversation=mine.id).id
    inside = re.compile(r"\{(?!conversation|response)\w+\}")
    asked: list[tuple[str, Any]] = [(path, body) for body in BODIES.get((method, path), ()) if inside.search(str(body))]
    asked += [(f"{path}?{query}", None) for query in QUERIES.get((method, path), ())]
    if path.count("{") > 1:
        asked += [(path, body) for body in BODIES.get((method, path), [None])]
    for named, body in asked:
        foreign = request(owners, owners.bob, method, named, body, {**owners.ids, **own})
        assert foreign == request(owners, owners.bob, method, named, body, {**UNKNOWN, **own})
        assert 400 <= foreign[0] < 500, foreign


@pytest.mark.parametrize("path", [path for path, _ in SOCKETS])
def test_nothing_of_another_owner_can_be_told_from_nothing_over_a_connection(owners: Owners, path: str) -> None:
    ids, before = owners.ids, owners.read_head()
    client: Any = owners.served.client(owners.bob)
    with client.responses.connect() as connection:
        for body in BODIES["POST", path]:
            told = []
            for each in (ids, UNKNOWN):
                connection.send({"type": "response.create", **fill_body(body, each)})
                text = connection.recv_bytes().decode()
                told.append(hide(text, each))
            assert told[0] == told[1]
            assert told[0].startswith('{"type":"error","status":4')
    assert owners.read_head() == before
    assert owners.store.info("bob", ids["{conversation}"]) is None
