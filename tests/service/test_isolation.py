"""Two owners: whatever one asks for of the other's is answered as if it had never existed, on every route.

The routes come from the application's own table, so a new one fails here until it is covered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from longtalk.service.access import AccessKeys
from longtalk.service.app import ENDPOINTS, SOCKETS, create_app
from longtalk.service.settings import Settings
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Served

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
    ("POST", TALK + "/branches"): [{}, {"at": "{turn}"}, {"source": "main", "name": "mine"}],
    ("POST", TALK + "/branches/{branch}/rewind"): [{"to": "{turn}"}],
    ("POST", TALK + "/turns"): [
        {"model": "m", "message": "Hi."},
        {"model": "m", "message": "Hi.", "stream": True},
        {"model": "m", "message": "Hi.", "after": "{turn}"},
        {"model": "m", "message": "Hi.", "edits": "{entry}"},
        {"model": "m", "regenerates": "{turn}"},
        {"model": "m"},
    ],
    ("POST", TALK + "/turns/{turn}/cancel"): [{}],
    ("PUT", API + "/provider-keys/{provider}"): [{"key": "sk-bob"}],
    ("POST", TALK + "/notes"): [{"text": "Rain."}],
    ("POST", TALK + "/brief"): [{"field": "facts", "text": "Mine."}],
    ("PATCH", TALK + "/brief/{line}"): [{"text": "Mine."}],
    ("PATCH", API + "/profile/{line}"): [{"text": "Mine."}],
    ("DELETE", API + "/profile/{line}"): [{}],
    ("PUT", TALK + "/privacy"): [{"private": True}],
    ("POST", TALK + "/simulate"): [{}],
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
UNKNOWN = {
    "{response}": "resp_aaaaaaaaaaaahAAAAAAAAAAAAAAAAAAAAAA",
    "{conversation}": "conv_AAAAAAAAAAAAAAAAAAAAAA",
    "{item}": "msg_aaaaaaaaaaaa_0",
    "{turn}": "aaaaaaaaaaaa",
    "{entry}": "aaaaaaaaaaaa-0",
    "{branch}": "aaaa",
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
            "{branch}": "main",
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
    answer = owners.http.request(
        method,
        owners.served.url + fill(named, ids),
        headers={"Authorization": f"Bearer {key}", **(headers or {})},
        json=fill_body(body, ids) if method in ("POST", "PATCH", "PUT") else None,
    )
    text = answer.text
    for name, value in sorted(ids.items(), key=lambda pair: -len(pair[1])):
        text = text.replace(value, name)
    return answer.status_code, re.sub(r"req_\w+", "", text)


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
        if path == API + "/turns":
            # A state is refused whoever it was made for; it tells nothing of what it holds.
            assert (foreign[0], missing[0], "Hello" in foreign[1]) == (400, 400, False)
        else:
            assert foreign == missing
            assert 400 <= foreign[0] < 500
            assert store.info("bob", ids["{conversation}"]) is None
    assert owners.read_head() == before
    assert request(owners, owners.ada, "GET", "/v1/conversations/{id}/items", None, ids)[0] == 200


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
                for name, value in each.items():
                    text = text.replace(value, name)
                told.append(text)
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
