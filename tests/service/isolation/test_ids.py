"""Two owners: an id, a name, a reference or a key of one is for the other as if there were none."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.service.isolation.owners import API, ROUTES, SAID, UNKNOWN, Owners, fill, request
from tests.service.isolation.test_routes import LISTS, OWN_ONLY


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
