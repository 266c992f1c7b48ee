"""Two owners: whatever one asks for of the other's is answered as if it had never existed, on every route.

The routes come from the application's own table, their parameters and fields from the OpenAPI document and the types of
bodies. A new one fails here until it is covered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import msgspec
import pytest

from longtalk.service.access import AccessKeys
from longtalk.service.app import ENDPOINTS, OPENAI_ENDPOINTS, SOCKETS, create_app
from longtalk.service.native.openapi import make_document
from longtalk.service.native.table import ROUTES as NATIVE
from longtalk.service.openai.conversations import CreateConversation, CreateItems, UpdateConversation
from longtalk.service.openai.create_chat import CreateChat
from longtalk.service.openai.create_response import CreateResponse
from longtalk.service.settings import Settings
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Served

DOCUMENT = make_document(NATIVE, OPENAI_ENDPOINTS, SOCKETS)
ROUTES = [(method, path) for method, path, _ in ENDPOINTS]
API = "/longtalk/v1"
TALK = API + "/conversations/{conversation}"
OWN_ONLY = {
    ("POST", "/v1/conversations"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{id:path}"),
    ("GET", API + "/health"),
    ("GET", API + "/models"),
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
SAID = {"role": "user", "content": "Hi."}
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
    *("text", "field", "title", "meta", "name", "key", "items", "private"),
    *("limit", "order", "before", "starting_after", "include_obfuscation", "q", "format", "Idempotency-Key"),
} - NAMES
UNKNOWN = {
    "{response}": "resp_aaaaaaaaaaaahAAAAAAAAAAAAAAAAAAAAAA",
    "{conversation}": "conv_AAAAAAAAAAAAAAAAAAAAAA",
    "{item}": "msg_aaaaaaaaaaaa_0_cAAAAAAAAAAAAAAAAAAAAAA",
    "{turn}": "aaaaaaaaaaac",
    "{entry}": "aaaaaaaaaaaa-0",
    "{branch}": "aaaaaaaaaaaa",
    "{provider}": "nothing",
    "{line}": "aaaaaaaaaa",
    "{key}": "aaaaaaaaaaab",
    "{state}": "AAAAAAAAAAAA",
    "{compaction}": "AAAAAAAAAAAAA",
}


class Owners:
    """A service on which Ada has a conversation. All tests share it, because Bob must not change anything of hers."""

    def __init__(self, http: httpx2.Client) -> None:
        storage = InMemoryStorage()
        keys = AccessKeys(storage)
        self.ada, own = keys.add("laptop of ada", "ada")
        self.bob = keys.add("bob", "bob")[0]
        self.app = keys.add("app", "", act_as=True)[0]
        providers = {"m": AsyncScripted(*[says("Hello, Ada.")] * 40)}
        self.served = Served(create_app(Settings(), store=InMemory(), storage=storage, providers=providers))
        self.store = self.served.service.store
        self.http = http
        client: Any = self.served.client(self.ada)
        talk = client.conversations.create()
        made = client.responses.create(model="m", input="I'm Ada.", conversation=talk.id)
        path = f"{API}/conversations/{talk.id}"
        turn = self.post(f"{path}/turns", {"message": "Hi.", "model": "m", "policy": "Memory()"})
        brief = self.post(f"{path}/brief", {"field": "facts", "text": "Ada."})
        profile = self.post(f"{API}/profile", {"field": "about_user", "text": "Ada keeps bees."})
        self.profile_line = profile["lines"][0]["id"]
        self.ids = {
            "{response}": made.id,
            "{conversation}": talk.id,
            "{item}": client.conversations.items.list(talk.id).data[0].id,
            "{turn}": turn["id"],
            "{entry}": turn["entries"][0]["id"],
            "{branch}": self.post(f"{path}/branches", {})["name"],
            "{provider}": "openai",
            "{line}": brief["lines"][0]["id"],
            "{key}": own.id,
            "{state}": self.post(f"{API}/turns", {"message": "Hi.", "model": "m"})["state"],
            "{compaction}": client.responses.compact(model="m", previous_response_id=made.id)
            .output[-1]
            .encrypted_content,
        }

    def post(self, path: str, body: Any) -> Any:
        """Send a request of Ada's."""
        url, headers = self.served.url + path, {"Authorization": f"Bearer {self.ada}"}
        return self.http.post(url, json=body, headers=headers).json()

    def read_head(self) -> Any:
        """Return the head of Ada's conversation."""
        return self.store.head("ada", self.ids["{conversation}"])


@pytest.fixture(scope="module")
def all_owners() -> Iterator[Owners]:
    with httpx2.Client() as http:
        owners = Owners(http)
        yield owners
        owners.served.stop()


@pytest.fixture
def owners(all_owners: Owners) -> Iterator[Owners]:
    """Return the service, and delete Bob's conversations after the test."""
    yield all_owners
    for each in all_owners.store.conversations("bob", limit=100):
        all_owners.store.delete("bob", each.id)


def fill(text: str, ids: dict[str, str]) -> str:
    for name, value in ids.items():
        text = text.replace(name, value)
    return text


def fill_body(body: Any, ids: dict[str, str]) -> Any:
    return json.loads(fill(json.dumps(body or {}), ids))


def request(
    owners: Owners, key: str, method: str, path: str, body: Any, ids: dict[str, str], headers: Any = None
) -> tuple[int, str]:
    named = path.replace("{id}", "{conversation}" if "conversations" in path else "{response}")
    url = owners.served.url + fill(named, ids)
    assert "{" not in url, "the path has a parameter that is not covered"
    answer = owners.http.request(
        method,
        url,
        headers={"Authorization": f"Bearer {key}", **(headers or {})},
        json=fill_body(body, ids) if method in ("POST", "PATCH", "PUT") else None,
    )
    return answer.status_code, re.sub(r"req_\w+", "", hide(answer.text, ids))


def hide(text: str, ids: dict[str, str]) -> str:
    """Return a text with the names of ids in their places. Some ids contain others."""
    for name, value in sorted(ids.items(), key=lambda pair: -len(pair[1])):
        text = text.replace(value, name)
    return text


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


def test_what_is_not_stored_on_a_connection_is_not_there_for_another_owner(owners: Owners) -> None:
    one: Any = owners.served.client(owners.ada)
    other: Any = owners.served.client(owners.bob)
    with one.responses.connect() as first, other.responses.connect() as second:
        first.response.create(model="m", input="Secret.", store=False)
        while (event := first.recv()).type != "response.completed":
            pass
        second.response.create(model="m", input="Hi.", previous_response_id=event.response.id)
        assert second.recv().error.code == "previous_response_not_found"


def test_a_name_that_a_client_chooses_is_another_conversation_for_each_owner(owners: Owners) -> None:
    for key, text in ((owners.ada, "I keep bees."), (owners.bob, "I sail.")):
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "conversation": "diary"}
        assert request(owners, key, "POST", "/v1/chat/completions", body, {})[0] == 200
    said = owners.store.read("bob", "diary", "main", 0, 9).entries()
    assert [b"sail" in entry.native for entry in said] == [True, False]
    assert not any(b"bees" in entry.native for entry in said)


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_a_line_of_another_owners_profile_is_an_unknown_one(owners: Owners, method: str) -> None:
    path, known = f"{API}/profile/{{line}}", {"{line}": owners.profile_line}
    foreign = request(owners, owners.bob, method, path, {"text": "Mine."}, known)
    assert foreign == request(owners, owners.bob, method, path, {"text": "Mine."}, UNKNOWN)
    assert foreign[0] == 404
    assert "keeps bees" in request(owners, owners.ada, "GET", API + "/profile", None, {})[1]


def test_figures_by_day_count_only_turns_of_the_caller(owners: Owners) -> None:
    status, text = request(owners, owners.bob, "GET", API + "/stats/daily", {}, owners.ids)[:2]
    assert (status, text.replace(" ", "")) == (200, '{"days":[]}')


def test_an_id_of_any_type_in_any_path_tells_nothing_of_another_owner(owners: Owners) -> None:
    before = owners.read_head()
    for method, path in ROUTES:
        places = re.findall(r"\{\w+\}", path)
        if method not in ("GET", "DELETE") or (method, path) in {*OWN_ONLY, *LISTS} or not places:
            continue
        for name in ("{response}", "{conversation}", "{item}", "{turn}"):
            told = []
            for kind in (owners.ids, UNKNOWN):
                filled = {**kind, **dict.fromkeys(places, kind[name])}
                told.append(request(owners, owners.bob, method, fill(path, filled), None, kind))
            assert told[0] == told[1], (method, path, name)
            assert 400 <= told[0][0] < 500, (method, path, name, told[0])
    assert owners.read_head() == before


@pytest.mark.parametrize("path", ["/v1/conversations/{mine}/items", "/v1/responses/{answer}/input_items"])
@pytest.mark.parametrize("name", ["{item}", "{entry}", "{turn}", "{response}", "{conversation}"])
def test_a_page_after_an_id_of_another_owner_is_one_after_an_unknown_id(owners: Owners, path: str, name: str) -> None:
    client: Any = owners.served.client(owners.bob)
    mine = client.conversations.create(items=[SAID])
    answer = client.responses.create(model="m", input="Hi.", conversation=mine.id)
    own = {"{mine}": mine.id, "{answer}": answer.id}
    page = f"{fill(path, own)}?after={name}"
    foreign = request(owners, owners.bob, "GET", page, None, owners.ids)
    assert foreign == request(owners, owners.bob, "GET", page, None, UNKNOWN)
    assert foreign[0] == 400


def test_a_reference_in_an_own_conversation_does_not_reach_an_item_of_another_owner(owners: Owners) -> None:
    client: Any = owners.served.client(owners.bob)
    mine = client.conversations.create(items=[SAID])
    for more in ({}, {"stream": True}, {"store": False}, {"background": True}):
        body = {"model": "m", "input": [{"type": "item_reference", "id": "{item}"}], "conversation": mine.id, **more}
        foreign = request(owners, owners.bob, "POST", "/v1/responses", body, owners.ids)
        assert foreign == request(owners, owners.bob, "POST", "/v1/responses", body, UNKNOWN)
        assert foreign[0] == 404


@pytest.mark.parametrize(
    "query", ["?stream=true", "?stream=true&starting_after=0", "?include=reasoning.encrypted_content"]
)
def test_the_stream_of_another_owner_is_an_unknown_one(owners: Owners, query: str) -> None:
    path = "/v1/responses/{response}" + query
    foreign = request(owners, owners.bob, "GET", path, None, owners.ids)
    assert foreign == request(owners, owners.bob, "GET", path, None, UNKNOWN)
    assert foreign[0] == 404


def test_a_key_names_no_other_owner_and_an_app_sees_what_is_of_the_owner_it_names(owners: Owners) -> None:
    path = "/v1/conversations/{conversation}"
    told = [
        request(owners, owners.bob, "GET", path, None, owners.ids, {"Longtalk-Owner": name}) for name in ("ada", "eve")
    ]
    assert told[0] == told[1]
    assert told[0][0] == 403
    for name, status in (("ada", 200), ("bob", 404), ("eve", 404)):
        headers = {"Longtalk-Owner": name}
        foreign = request(owners, owners.app, "GET", path, None, owners.ids, headers)
        assert foreign[0] == status
        if status == 404:
            assert foreign == request(owners, owners.app, "GET", path, None, UNKNOWN, headers)
