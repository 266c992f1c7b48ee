"""Items that a client names by their ids instead of sending them again, through OpenAI's own client."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from longtalk.service.access import AccessKeys
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.testing import AsyncScripted, says
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Serve
from tests.service.openai.test_responses import PAY, scripted

UNKNOWN = "msg_aaaaaaaaaaaa_0"


def refer(item: str) -> dict[str, str]:
    return {"type": "item_reference", "id": item}


def say(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def read_texts(request: bytes) -> list[str]:
    return [message["content"] for message in json.loads(request)["messages"]]


@pytest.mark.parametrize("stores", [True, False])
def test_references_to_what_was_just_said_do_not_repeat_it(serve: Serve, stores: bool) -> None:
    provider = scripted("Hello, Ada.", "Yes.")
    client: Any = serve(m=provider).client()
    first = client.responses.create(model="m", input="I'm Ada.")
    said = client.responses.input_items.list(first.id).data[0]
    references = [refer(said.id), refer(first.output[0].id), say("Am I?")]
    client.responses.create(model="m", input=references, previous_response_id=first.id, store=stores)
    assert read_texts(provider.requests[1]) == ["I'm Ada.", "Hello, Ada.", "Am I?"]


@pytest.mark.parametrize("stores", [True, False])
def test_answers_of_other_chains_are_named_without_a_conversation(serve: Serve, stores: bool) -> None:
    """The AI SDK keeps the conversation itself, and names each answer by its id."""
    provider = scripted("Hello, Ada.", "The violin.", "Yes.")
    client: Any = serve(m=provider).client()
    first = client.responses.create(model="m", input="I'm Ada. I play the violin.")
    messages = [say("I'm Ada. I play the violin."), refer(first.output[0].id), say("What do I play?")]
    second = client.responses.create(model="m", input=messages)
    messages += [refer(second.output[0].id), say("Really?")]
    client.responses.create(model="m", input=messages, store=stores)
    told = ["I'm Ada. I play the violin.", "Hello, Ada.", "What do I play?", "The violin.", "Really?"]
    assert read_texts(provider.requests[2]) == told


def test_an_item_on_another_branch_is_found(serve: Serve) -> None:
    provider = scripted("One.", "Two.", "Three.", "Four.")
    client: Any = serve(m=provider).client()
    first = client.responses.create(model="m", input="1")
    client.responses.create(model="m", input="2", previous_response_id=first.id)
    fork = client.responses.create(model="m", input="3", previous_response_id=first.id)
    client.responses.create(model="m", input=[say("3"), refer(fork.output[0].id), say("4")])
    assert read_texts(provider.requests[3]) == ["3", "Three.", "4"]


def test_a_conversation_begins_with_items_of_others_but_not_with_deleted_ones(serve: Serve) -> None:
    client: Any = serve(m=scripted("Hello.")).client()
    talk = client.conversations.create(items=[say("I'm Ada."), say("I play.")])
    kept, gone = client.conversations.items.list(talk.id, order="asc").data
    client.conversations.items.delete(gone.id, conversation_id=talk.id)
    made = client.conversations.create(items=[refer(kept.id)])
    [item] = client.conversations.items.list(made.id).data
    assert (item.content, item.id != kept.id) == (kept.content, True)
    for name in (gone.id, item.id.replace(made.id[5:], talk.id[5:])):
        with pytest.raises(openai.NotFoundError):
            client.conversations.create(items=[refer(name)])
    with pytest.raises(openai.NotFoundError):
        client.conversations.items.retrieve(kept.id, conversation_id=made.id)


def test_a_reference_to_reasoning_brings_its_encrypted_form(serve: Serve) -> None:
    thinks = says("Five.", fields={"reasoning": ["c2VhbGVk"]}, wire="openai-responses")
    provider = AsyncScripted(thinks, says("Yes.", wire="openai-responses"), wire=HTTP_WIRES["openai-responses"])
    client: Any = serve(m=provider).client()
    first = client.responses.create(model="m", input="2 + 3?")
    assert [item.type for item in first.output] == ["reasoning", "message"]
    client.responses.create(model="m", input=[say("2 + 3?"), *(refer(item.id) for item in first.output), say("Sure?")])
    assert b"c2VhbGVk" in provider.requests[1]


def test_a_question_is_asked_again_by_its_id(serve: Serve) -> None:
    provider = scripted("One.", "Two.", "Three.")
    client: Any = serve(m=provider).client()
    talk = client.conversations.create()
    first = client.responses.create(model="m", input="First?", conversation=talk.id)
    client.responses.create(model="m", input="Second?", conversation=talk.id)
    said = client.responses.input_items.list(first.id).data[0]
    client.responses.create(model="m", input=[{"id": said.id}], conversation=talk.id)
    assert "First?" in str(read_texts(provider.requests[2])[-1])


def test_a_result_comes_with_a_reference_to_its_call(serve: Serve) -> None:
    provider = AsyncScripted(says(None, calls=[("c1", "pay", {"sum": 5})]), says("Paid."))
    client: Any = serve(m=provider).client()
    asked = client.responses.create(model="m", input="Pay.", tools=[PAY])
    result = {"type": "function_call_output", "call_id": asked.output[0].call_id, "output": "done"}
    given = [refer(asked.output[0].id), result]
    told = client.responses.create(model="m", input=given, tools=[PAY], previous_response_id=asked.id)
    assert told.output_text == "Paid."
    assert provider.requests[1].count(b'"pay"') == 2


def test_an_item_is_added_again_to_its_conversation_by_its_id(serve: Serve) -> None:
    client: Any = serve().client()
    talk = client.conversations.create(items=[say("I'm Ada.")])
    said = client.conversations.items.list(talk.id).data[0]
    added = client.conversations.items.create(talk.id, items=[refer(said.id)]).data[0]
    assert (added.content, added.id != said.id) == (said.content, True)


def test_an_item_of_a_response_that_is_not_stored_is_found_on_its_connection(serve: Serve) -> None:
    provider = scripted("Hello, Ada.", "Yes.")
    client: Any = serve(m=provider).client()
    with client.responses.connect() as connection:
        connection.response.create(model="m", input="I'm Ada.", store=False)
        while (event := connection.recv()).type != "response.completed":
            pass
        made = event.response
        given = [refer(made.output[0].id), say("Am I?")]
        connection.response.create(model="m", input=given, store=False, previous_response_id=made.id)
        while (event := connection.recv()).type not in ("response.completed", "error"):
            pass
    assert event.type == "response.completed"
    assert read_texts(provider.requests[1]) == ["I'm Ada.", "Hello, Ada.", "Am I?"]


def test_an_id_that_is_not_text_is_refused_by_field(serve: Serve) -> None:
    client: Any = serve(m=scripted()).client()
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="m", input=[say("Hi."), {"type": "item_reference", "id": 7}])
    assert caught.value.param == "input[1].id"


def test_items_of_another_owner_are_not_found_like_those_that_do_not_exist(serve: Serve) -> None:
    storage = InMemoryStorage()
    keys = AccessKeys(storage)
    provider = scripted("Secret.", "Hello.")
    served = serve(m=provider, storage=storage)
    ada: Any = served.client(keys.add("ada", "ada")[0])
    bob: Any = served.client(keys.add("bob", "bob")[0])
    foreign = ada.responses.create(model="m", input="Tell.").output[0].id
    own = bob.responses.create(model="m", input="Hi.")
    talk = bob.conversations.create()
    asks = [
        lambda item: bob.responses.create(model="m", input=[refer(item), say("And?")]),
        lambda item: bob.responses.create(model="m", input=[refer(item), say("And?")], previous_response_id=own.id),
        lambda item: bob.responses.create(model="m", input=[refer(item), say("And?")], conversation=talk.id),
        lambda item: bob.responses.create(model="m", input=[refer(item), say("?")], conversation=talk.id, store=False),
        lambda item: bob.responses.input_tokens.count(model="m", input=[refer(item)]),
        lambda item: bob.conversations.items.create(talk.id, items=[refer(item)]),
        lambda item: bob.conversations.create(items=[refer(item)]),
        lambda item: bob.conversations.items.retrieve(item, conversation_id=talk.id),
    ]
    for ask in asks:
        told = set()
        for item in (foreign, UNKNOWN):
            with pytest.raises(openai.NotFoundError) as caught:
                ask(item)
            told.add(json.dumps(caught.value.body).replace(item, "{item}"))
        assert len(told) == 1
    assert len(provider.requests) == 2
