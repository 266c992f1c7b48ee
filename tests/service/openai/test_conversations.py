"""The Conversations and Models APIs, through OpenAI's own client."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pytest

from longtalk import Archive, Conversation
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, Scripted, says
from longtalk.transcript.pack import Pack
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Serve, Served
from tests.service.test_runs import Waiting


def texts(items: Any) -> list[str]:
    return [item.content[0].text for item in items]


def test_a_conversation_is_made_changed_and_deleted(serve: Serve) -> None:
    client: Any = serve().client()
    made = client.conversations.create(metadata={"a": "1"})
    assert made.id.startswith("conv_")
    assert client.conversations.retrieve(made.id) == made
    assert client.conversations.update(made.id, metadata={"b": "2"}).metadata == {"b": "2"}
    assert client.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(made.id)


def test_items_are_listed_by_page_in_both_orders(serve: Serve) -> None:
    client: Any = serve().client()
    items = [{"type": "message", "role": "user", "content": f"{i}"} for i in range(5)]
    talk = client.conversations.create(items=items)
    assert texts(client.conversations.items.list(talk.id, limit=2).data) == ["4", "3"]
    assert texts(client.conversations.items.list(talk.id, limit=2, order="asc")) == ["0", "1", "2", "3", "4"]
    page = client.conversations.items.list(talk.id, limit=5)
    assert (page.has_more, page.first_id, page.last_id) == (False, page.data[0].id, page.data[4].id)


def test_items_that_a_client_adds_are_listed_in_their_own_form(serve: Serve) -> None:
    client: Any = serve().client()
    said = [
        {"type": "message", "role": "user", "content": "Patch it."},
        {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "+ x"},
        {"type": "function_call", "call_id": "c2", "name": "pay", "namespace": "bank", "arguments": "{}"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "patched"},
        {"type": "function_call_output", "call_id": "c2", "output": "paid"},
    ]
    talk = client.conversations.create(items=said[:3])
    added = client.conversations.items.create(talk.id, items=said[3:])
    listed = client.conversations.items.list(talk.id, order="asc").data
    assert listed[3:] == added.data
    assert [item.type for item in listed] == [item["type"] for item in said]
    for shown, given in zip(listed[1:], said[1:], strict=True):
        assert given.items() <= shown.to_dict().items()


def test_the_input_of_a_response_is_listed_whole_with_earlier_messages(serve: Serve) -> None:
    client: Any = serve(m=AsyncScripted(says("A."))).client()
    said = [
        {"type": "message", "role": "user", "content": "One?"},
        {"type": "message", "role": "assistant", "content": "1."},
        {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "+ x"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "patched"},
        {"type": "message", "role": "assistant", "content": "Done."},
        {"type": "message", "role": "user", "content": "Two?"},
    ]
    made = client.responses.create(model="m", input=said)
    listed = client.responses.input_items.list(made.id, order="asc").data
    assert [item.type for item in listed] == [item["type"] for item in said]
    assert texts([listed[0], listed[1], listed[4], listed[5]]) == ["One?", "1.", "Done.", "Two?"]
    assert [item.id for item in client.responses.input_items.list(made.id, limit=1)] == [x.id for x in listed[::-1]]


class CountsReads(InMemory):
    """A store that counts the entries it has returned."""

    read_entries = 0

    def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        found = super().read(owner, conversation, branch, start, stop)
        self.read_entries += len(found)
        return found


def test_the_newest_items_of_a_long_conversation_are_read_without_the_others(serve: Serve) -> None:
    store = CountsReads()
    talk = Conversation("long", model=Scripted(), store=store)
    talk.append([{"role": ("user", "assistant")[i % 2], "content": f"{i}"} for i in range(1_000)])
    client: Any = serve(store=store).client()
    before = store.read_entries
    page = client.conversations.items.list("long", limit=3)
    assert texts(page.data) == ["999", "998", "997"]
    assert store.read_entries - before <= 64
    assert texts(client.conversations.items.list("long", limit=2, after=page.last_id).data) == ["996", "995"]


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_every_item_is_in_one_page_of_any_size(serve: Serve, order: Any) -> None:
    answers = [says(f"{i}.", calls=[(f"c{i}", "look", {})] if i % 3 else []) for i in range(9)]
    client: Any = serve(m=AsyncScripted(*answers)).client()
    talk = client.conversations.create()
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}]
    for i in range(9):
        client.responses.create(model="m", input=f"Say {i}.", conversation=talk.id, tools=tools)
    whole = [item.id for item in client.conversations.items.list(talk.id, limit=100, order=order)]
    assert len(whole) == len(set(whole)) >= 24
    for size in (1, 2, 7):
        assert [item.id for item in client.conversations.items.list(talk.id, limit=size, order=order)] == whole
    for name in whole:
        assert client.conversations.items.retrieve(name, conversation_id=talk.id).id == name


def test_added_items_are_returned_and_sent_with_the_next_response(serve: Serve) -> None:
    provider = AsyncScripted(says("Yes."))
    client: Any = serve(m=provider).client()
    talk = client.conversations.create()
    new = [
        {"type": "message", "role": "user", "content": "I'm Ada."},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Noted."}]},
    ]
    added = client.conversations.items.create(talk.id, items=new)
    assert texts(added.data) == ["I'm Ada.", "Noted."]
    assert client.conversations.items.retrieve(added.data[1].id, conversation_id=talk.id) == added.data[1]
    client.responses.create(model="m", input="Am I?", conversation=talk.id)
    assert b"Noted." in provider.requests[0]


def test_a_deleted_item_is_erased_for_good(serve: Serve) -> None:
    provider = AsyncScripted(says("Thanks."), says("Ok."))
    served = serve(m=provider)
    client: Any = served.client()
    talk = client.conversations.create()
    client.responses.create(model="m", input="My password is hunter2.", conversation=talk.id)
    said = client.conversations.items.list(talk.id, order="asc").data[0]
    client.conversations.items.delete(said.id, conversation_id=talk.id)
    client.responses.create(model="m", input="Go on.", conversation=talk.id)
    assert b"hunter2" not in provider.requests[1]
    assert "hunter2" not in str(client.conversations.items.list(talk.id).data)


ADD = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}
SUM = {"type": "function_call_output", "call_id": "c1", "output": "5"}
FIVE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Five."}]}


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("place", range(6))
def test_a_deleted_item_is_not_there_any_more_and_the_others_keep_their_ids(
    serve: Serve, place: int, order: str
) -> None:
    provider = AsyncScripted(says("Ok."))
    client: Any = serve(m=provider).client()
    said = [{"role": "user", "content": "One."}, {"role": "user", "content": "Two."}, ADD, SUM, FIVE]
    talk = client.conversations.create(items=said)
    client.conversations.items.create(talk.id, items=[{"role": "user", "content": "Three."}])
    items = client.conversations.items.list(talk.id, order=order).data
    gone = items.pop(place)
    assert client.conversations.items.delete(gone.id, conversation_id=talk.id).id == talk.id
    assert client.conversations.items.list(talk.id, order=order).data == items
    assert list(client.conversations.items.list(talk.id, order=order, limit=2)) == items
    for call in (client.conversations.items.retrieve, client.conversations.items.delete):
        with pytest.raises(openai.NotFoundError):
            call(gone.id, conversation_id=talk.id)
    with pytest.raises(openai.BadRequestError):
        client.conversations.items.list(talk.id, after=gone.id)
    client.responses.create(model="m", input="Go on.", conversation=talk.id)
    assert client.conversations.items.list(talk.id, order="asc").data[:5] == (items if order == "asc" else items[::-1])


def test_all_items_of_one_answer_are_deleted_together(serve: Serve) -> None:
    answer = says("Let me see.", calls=[("c1", "add", {"a": 2}), ("c2", "add", {"a": 3})])
    client: Any = serve(m=AsyncScripted(answer)).client()
    talk = client.conversations.create()
    add = {"type": "function", "name": "add", "parameters": {"type": "object"}}
    made = client.responses.create(model="m", input="2 and 3?", conversation=talk.id, tools=[add])
    assert [each.type for each in made.output] == ["message", "function_call", "function_call"]
    client.conversations.items.delete(made.output[1].id, conversation_id=talk.id)
    assert [each.role for each in client.conversations.items.list(talk.id).data] == ["user"]


def test_deleting_a_conversation_ends_its_turn_and_deletes_its_events(serve: Serve) -> None:
    provider = Waiting(says("One two three.", pieces=3))
    served = serve(m=provider)
    client: Any = served.client()
    talk = client.conversations.create()
    with client.responses.create(model="m", input="Count.", conversation=talk.id, stream=True) as stream:
        made = next(event.response.id for event in stream if event.type == "response.created")
        client.conversations.delete(talk.id)
        assert [event.type for event in stream][-1] == "response.incomplete"
    check_forgotten(served, client, made)


@pytest.mark.parametrize("what", ["response", "chain", "conversation", "own conversation", "item"])
def test_what_was_deleted_is_in_no_event_log(serve: Serve, what: str) -> None:
    served = serve(m=AsyncScripted(says("The password is hunter2."), says("Bye.")))
    client: Any = served.client()
    talk = client.conversations.create()
    place = {} if what == "chain" else {"conversation": talk.id}
    *_, last = client.responses.create(model="m", input="Tell me.", stream=True, **place)
    made = last.response
    if what in ("response", "chain"):
        client.responses.delete(made.id)
    elif what == "conversation":
        client.conversations.delete(talk.id)
    elif what == "own conversation":
        path = f"{served.url}/longtalk/v1/conversations/{talk.id}"
        assert httpx2.delete(path).status_code == 200
    else:
        client.conversations.items.delete(made.output[0].id, conversation_id=talk.id)
        again = list(client.responses.retrieve(made.id, stream=True))
        assert again[-1].type == "response.completed"
        assert "hunter2" not in str(again)
    check_forgotten(served, client, made.id, is_gone=what != "item")


def check_forgotten(served: Served, client: Any, response: str, *, is_gone: bool = True) -> None:
    """Check that nothing is kept of the events of a response, nor can be read."""
    assert served.service.storage._logs == {}
    if is_gone:
        for more in ({}, {"stream": True}, {"stream": True, "starting_after": 2}):
            with pytest.raises(openai.NotFoundError):
                client.responses.retrieve(response, **more)


def test_a_stream_shows_nothing_that_was_erased_by_another_program(serve: Serve) -> None:
    store = InMemory()
    client: Any = serve(m=AsyncScripted(says("The password is hunter2.")), store=store).client()
    talk = client.conversations.create()
    *_, last = client.responses.create(model="m", input="Tell me.", stream=True, conversation=talk.id)
    archive = Archive(store)
    archive.redact(talk.id, archive.history(talk.id)[-1].id)
    again = list(client.responses.retrieve(last.response.id, stream=True))
    assert again[-1].type == "response.completed"
    assert "hunter2" not in str(again)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "/conversations/none"),
        ("post", "/conversations/none"),
        ("delete", "/conversations/none"),
        ("get", "/conversations/none/items"),
        ("post", "/conversations/none/items"),
        ("get", "/conversations/none/items/msg_1"),
        ("delete", "/conversations/none/items/msg_1"),
        ("get", "/responses/resp_1"),
        ("get", "/nowhere"),
    ],
)
def test_what_is_not_there_is_not_found(serve: Serve, method: str, path: str) -> None:
    client: Any = serve().client()
    body = {"metadata": {}} if path == "/conversations/none" else {"items": [{"role": "user", "content": "x"}]}
    options = {"body": body} if method == "post" else {}
    with pytest.raises(openai.NotFoundError) as caught:
        getattr(client, method)(path, cast_to=object, **options)
    assert caught.value.code == "not_found"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"metadata": {f"k{i}": "" for i in range(17)}}, "metadata"),
        ({"metadata": {"k" * 65: ""}}, "metadata." + "k" * 64),
        ({"metadata": {"k": "v" * 513}}, "metadata.k"),
        ({"metadata": {"k": 1}}, "metadata.k"),
        ({"items": [{"role": "user", "content": "x"}] * 21}, "items"),
        ({"items": [{"role": "nobody", "content": "x"}]}, "items[0].role"),
        ({"items": [7]}, "items[0]"),
        ({"other": 1}, "other"),
    ],
)
def test_a_conversation_that_can_not_be_made_is_refused_by_field(serve: Serve, body: Any, param: str) -> None:
    client: Any = serve().client()
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/conversations", cast_to=object, body=body)
    assert caught.value.param == param


def test_the_models_are_those_that_can_be_named(serve: Serve) -> None:
    client: Any = serve(tutor=AsyncScripted()).client()
    assert [model.id for model in client.models.list()] == ["tutor", "local"]
    assert client.models.retrieve("tutor").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("none-such")
    assert httpx2.get(f"{client.base_url}models/").status_code == 404


def test_items_that_were_read_can_be_added_elsewhere_and_providers_get_no_ids_of_ours(serve: Serve) -> None:
    provider = AsyncScripted(says("Ada.", wire="openai-responses"), wire=HTTP_WIRES["openai-responses"])
    client: Any = serve(m=provider).client()
    talk = client.conversations.create(items=[{"role": "user", "content": "I'm Ada."}])
    said = [item.model_dump(exclude_none=True) for item in client.conversations.items.list(talk.id).data]
    other = client.conversations.create(items=said)
    again = [{**said[0], "content": "Who am I?"}]
    client.responses.create(model="m", input=again, conversation=other.id)
    assert [item.get("id") for item in json.loads(provider.requests[0])["input"]] == [None, None]


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("conversations/{talk}/items", {"include": "message.output_text.logprobs"}, "include[0]"),
        ("conversations/{talk}/items", {"include[]": "nonsense"}, "include[0]"),
        ("responses/{made}/input_items", {"include": "nonsense"}, "include[0]"),
        ("responses/{made}", {"include[]": "nonsense"}, "include[0]"),
        ("responses/{made}", {"stream": "maybe"}, "stream"),
    ],
)
def test_a_query_that_asks_for_what_there_is_not_is_refused(
    serve: Serve, path: str, query: dict[str, str], field: str
) -> None:
    client: Any = serve(m=AsyncScripted(says("Hello."))).client()
    talk = client.conversations.create()
    made = client.responses.create(model="m", input="Hi.", conversation=talk.id)
    with pytest.raises(openai.BadRequestError) as caught:
        client.get("/" + path.format(talk=talk.id, made=made.id), cast_to=object, options={"params": query})
    assert caught.value.param == field
