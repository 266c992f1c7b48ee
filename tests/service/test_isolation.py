"""Two owners: whatever one asks for of the other's is answered as if it had never existed, on every route.

The routes come from the application's own table, so a new one fails here until it is covered.
"""

from __future__ import annotations

import re
from typing import Any

import httpx2
import pytest

from longtalk.service.access import AccessKeys
from longtalk.service.app import ENDPOINTS, SOCKETS
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve, Served

ROUTES = [(method, path) for method, path, _ in ENDPOINTS]
OWN_ONLY = {("POST", "/v1/conversations"), ("GET", "/v1/models"), ("GET", "/v1/models/{id:path}")}
"""Routes that name nothing of an owner."""
BODIES: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("POST", "/v1/responses"): [
        {"model": "m", "input": "Hi.", "previous_response_id": "{response}"},
        {"model": "m", "input": "Hi.", "conversation": "{conversation}"},
        {"model": "m", "input": "Hi.", "previous_response_id": "{response}", "store": False},
        {"model": "m", "input": "Hi.", "conversation": "{conversation}", "store": False},
    ],
    ("POST", "/v1/responses/input_tokens"): [
        {"model": "m", "input": "Hi.", "previous_response_id": "{response}"},
        {"model": "m", "input": "Hi.", "conversation": "{conversation}"},
    ],
    ("POST", "/v1/responses/compact"): [{"model": "m", "previous_response_id": "{response}"}],
    ("POST", "/v1/chat/completions"): [
        {"model": "m", "messages": [{"role": "user", "content": "Hi."}], "conversation": "{conversation}"}
    ],
    ("POST", "/v1/conversations/{id}"): [{"metadata": {"a": "b"}}],
    ("POST", "/v1/conversations/{id}/items"): [{"items": [{"role": "user", "content": "Hi."}]}],
    ("POST", "/v1/responses/{id}/cancel"): [{}],
}
UNKNOWN = {
    "{response}": "resp_aaaaaaaaaaaahAAAAAAAAAAAAAAAAAAAAAA",
    "{conversation}": "conv_AAAAAAAAAAAAAAAAAAAAAA",
    "{item}": "msg_aaaaaaaaaaaa_0",
}


@pytest.fixture
def owners(serve: Serve) -> tuple[Served, dict[str, str], str, str]:
    """Start a service on which Ada has a conversation, and return it with her ids and both keys."""
    storage = InMemoryStorage()
    keys = AccessKeys(storage)
    ada, bob = keys.add("ada", "ada")[0], keys.add("bob", "bob")[0]
    served = serve(storage=storage, m=AsyncScripted(*[says("Hello, Ada.")] * 4))
    client: Any = served.client(ada)
    talk = client.conversations.create()
    made = client.responses.create(model="m", input="I'm Ada.", conversation=talk.id)
    item = client.conversations.items.list(talk.id).data[0].id
    return served, {"{response}": made.id, "{conversation}": talk.id, "{item}": item}, ada, bob


def fill(text: str, ids: dict[str, str]) -> str:
    for name, value in ids.items():
        text = text.replace(name, value)
    return text


def request(served: Served, key: str, method: str, path: str, body: Any, ids: dict[str, str]) -> tuple[int, str]:
    named = path.replace("{id}", "{conversation}" if "conversations" in path else "{response}")
    filled = {name: fill(value, ids) if isinstance(value, str) else value for name, value in (body or {}).items()}
    answer = httpx2.request(
        method,
        served.url + fill(named, ids),
        headers={"Authorization": f"Bearer {key}"},
        json=filled if method == "POST" else None,
    )
    text = answer.text
    for name, value in ids.items():
        text = text.replace(value, name)
    return answer.status_code, re.sub(r"req_\w+", "", text)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_nothing_of_another_owner_can_be_told_from_nothing(
    owners: tuple[Served, dict[str, str], str, str], method: str, path: str
) -> None:
    served, ids, ada, bob = owners
    if (method, path) in OWN_ONLY:
        return
    before = served.service.store.head("ada", ids["{conversation}"])
    for body in BODIES.get((method, path), [{}] if method != "POST" else []) or pytest.fail(f"not covered: {path}"):
        foreign = request(served, bob, method, path, body, ids)
        missing = request(served, bob, method, path, body, UNKNOWN)
        if path == "/v1/chat/completions":
            # A name of one's own: the conversation begins, and is another one than that of the same name.
            assert (foreign[0], missing[0], "Ada" in foreign[1].replace("Hello, Ada.", "")) == (200, 200, False)
            assert served.service.store.info("bob", ids["{conversation}"]).entries == 2
        else:
            assert foreign == missing
            assert 400 <= foreign[0] < 500
            assert served.service.store.info("bob", ids["{conversation}"]) is None
    assert served.service.store.head("ada", ids["{conversation}"]) == before
    assert request(served, ada, "GET", "/v1/conversations/{id}/items", None, ids)[0] == 200


@pytest.mark.parametrize("path", [path for path, _ in SOCKETS])
def test_nothing_of_another_owner_can_be_told_from_nothing_over_a_connection(
    owners: tuple[Served, dict[str, str], str, str], path: str
) -> None:
    served, ids, _, bob = owners
    before = served.service.store.head("ada", ids["{conversation}"])
    client: Any = served.client(bob)
    with client.responses.connect() as connection:
        for body in BODIES["POST", path]:
            told = []
            for each in (ids, UNKNOWN):
                filled = {name: fill(value, each) if isinstance(value, str) else value for name, value in body.items()}
                connection.send({"type": "response.create", **filled})
                text = connection.recv_bytes().decode()
                for name, value in each.items():
                    text = text.replace(value, name)
                told.append(text)
            assert told[0] == told[1]
            assert told[0].startswith('{"type":"error","status":4')
    assert served.service.store.head("ada", ids["{conversation}"]) == before
    assert served.service.store.info("bob", ids["{conversation}"]) is None


def test_what_is_not_stored_on_a_connection_is_not_there_for_another_owner(
    owners: tuple[Served, dict[str, str], str, str],
) -> None:
    served, _, ada, bob = owners
    one: Any = served.client(ada)
    other: Any = served.client(bob)
    with one.responses.connect() as first, other.responses.connect() as second:
        first.response.create(model="m", input="Secret.", store=False)
        while (event := first.recv()).type != "response.completed":
            pass
        second.response.create(model="m", input="Hi.", previous_response_id=event.response.id)
        assert second.recv().error.code == "previous_response_not_found"
