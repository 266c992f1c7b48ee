"""The profile of an owner over HTTP: its lines and their sources, changes, and private conversations."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from longtalk._util.checks import PROFILE_ID
from longtalk.service.settings import ModelSettings, Settings
from tests.service.conftest import Serve, Served
from tests.service.native.conftest import Api, MakeApi
from tests.support.card_model import AsyncCardModel, asks_for_card, list_texts, make_answer

MEMORY = {"limit": 300, "recent": 20, "recall": {"budget": 300, "scope": "owner"}, "profile": {"budget": 80}}
LONG = "I am Ada, I am a violinist, and I have more to say."


@pytest.fixture
def model() -> AsyncCardModel:
    return AsyncCardModel(make_answer(card='{"+about":["a violinist"]}'))


@pytest.fixture
def served(serve: Serve, model: AsyncCardModel) -> Served:
    return serve(m=model, settings=Settings(default_model="m", models={"m": ModelSettings("m", memory=MEMORY)}))


def learn(call: Api, model: AsyncCardModel, **fields: Any) -> str:
    """Talk until the model has noted a card, and return the path of the conversation."""
    talk = call.new(**fields)
    while not model.requests or not asks_for_card(model.requests[-1].decode()):
        assert len(model.requests) < 30
        call("POST", f"{talk}/turns", json={"message": LONG})
    return talk


def test_what_was_said_in_one_conversation_is_known_in_the_next(
    served: Served, api: MakeApi, model: AsyncCardModel
) -> None:
    call = api(served)
    assert call("GET", "/profile")["lines"] == []
    learn(call, model, id="a")
    found = call("GET", "/profile")
    assert found["kept"]
    assert [each["name"] for each in found["fields"]] == ["about_user", "preferences"]
    [line] = found["lines"]
    assert (line["field"], line["text"], line["edited"]) == ("about_user", "a violinist", False)
    [source] = line["sources"]
    entries = {each["id"]: each["text"] for each in call("GET", "/conversations/a/history")["entries"]}
    assert (source["conversation"], source["branch"], entries[source["entry"]]) == ("a", "main", LONG)
    client: Any = served.client()
    client.responses.create(model="m", input="Hello")
    assert "about: a violinist" in "".join(list_texts(model.requests[-1]))
    call("DELETE", "/conversations/a")
    assert call("GET", "/profile")["lines"] == []


def test_the_next_request_is_shown_with_the_profile_and_other_conversations(
    served: Served, api: MakeApi, model: AsyncCardModel
) -> None:
    call = api(served)
    learn(call, model, id="a")
    for id, private in (("b", False), ("c", True)):  # noqa: A001
        talk, body = call.new(id=id, private=private), {"message": "Did I say that I am a violinist?"}
        [shown] = call("POST", f"{talk}/preview", json=body)["requests"]
        assert ("about: a violinist" in shown["body"], 'conversation \\"a\\"' in shown["body"]) == (not private,) * 2
        list(call.events("POST", f"{talk}/turns", json={**body, "stream": True}))
        assert shown["body"].encode() == model.requests[-1]


def test_lines_of_the_profile_are_added_edited_and_revoked(served: Served, api: MakeApi) -> None:
    call = api(served)
    [line] = call("POST", "/profile", json={"field": "prefers", "text": "short answers"})["lines"]
    assert (line["field"], line["sources"]) == ("preferences", [])
    [edited] = call("PATCH", f"/profile/{line['id']}", json={"text": "long answers"})["lines"]
    assert (edited["id"], edited["text"]) == (line["id"], "long answers")
    assert call("DELETE", f"/profile/{line['id']}")["lines"] == []
    assert call("DELETE", f"/profile/{line['id']}", 404)
    assert call("PATCH", "/profile/nothing", 404, json={"text": "x"})
    assert (
        "its fields are about_user"
        in call("POST", "/profile", 400, json={"field": "x", "text": "y"})["error"]["message"]
    )


def test_a_private_conversation_adds_nothing_and_gets_nothing(
    served: Served, api: MakeApi, model: AsyncCardModel
) -> None:
    call = api(served)
    talk = learn(call, model, private=True)
    assert call("GET", f"{talk}/privacy") == {"private": True}
    assert call("GET", "/profile")["lines"] == []
    call("POST", "/profile", json={"field": "about", "text": "lives in Rome"})
    call("POST", f"{talk}/turns", json={"message": "Where do I live?"})
    assert "Rome" not in "".join(list_texts(model.requests[-1]))
    assert call("PUT", f"{talk}/privacy", json={"private": False}) == {"private": False}
    assert [each["text"] for each in call("GET", "/profile")["lines"]] == ["a violinist", "lives in Rome"]
    call("PUT", f"{talk}/privacy", 400, json={})
    call("PUT", "/conversations/nothing/privacy", 404, json={"private": True})


def test_a_service_without_a_profile_says_so_and_still_shows_lines(serve: Serve, api: MakeApi) -> None:
    call = api(serve(m=AsyncCardModel()))
    call("POST", "/profile", json={"field": "about", "text": "Ada"})
    found = call("GET", "/profile")
    assert (found["kept"], [each["text"] for each in found["lines"]]) == (False, ["Ada"])


def test_the_record_of_the_profile_is_no_conversation_of_a_client(served: Served, api: MakeApi) -> None:
    call, client = api(served), served.client()
    call("POST", "/profile", json={"field": "about", "text": "Ada"})
    path = f"/conversations/{PROFILE_ID}"
    assert call("GET", "/conversations")["conversations"] == []
    for method, more in (("GET", ""), ("DELETE", ""), ("GET", "/export"), ("GET", "/privacy")):
        call(method, path + more, 404)
    call("PATCH", path, 404, json={"meta": {}})
    call("POST", f"{path}/turns", 404, json={"message": "Hi."})
    assert "taken by" in call("POST", "/conversations", 400, json={"id": PROFILE_ID})["error"]["message"]
    with pytest.raises(openai.NotFoundError):
        client.conversations.update(PROFILE_ID, metadata={})
    with pytest.raises(openai.NotFoundError):
        client.conversations.delete(PROFILE_ID)
    for create in (client.responses.create, client.chat.completions.create):
        given: Any = (
            {"input": "Hi."}
            if create == client.responses.create
            else {"messages": [{"role": "user", "content": "Hi."}]}
        )
        with pytest.raises(openai.APIStatusError) as caught:
            create(model="m", extra_body={"conversation": PROFILE_ID}, **given)
        assert caught.value.status_code in (400, 404)
    assert [each["text"] for each in call("GET", "/profile")["lines"]] == ["Ada"]
