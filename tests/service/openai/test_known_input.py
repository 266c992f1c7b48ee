"""Clients that send the whole conversation with each request, while each response is stored."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from longtalk.service.access import AccessKeys
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve, Served
from tests.service.openai.test_responses import PAY, scripted
from tests.service.test_runs import Waiting


def list_chains(served: Served, owner: str = "") -> list[tuple[int, int]]:
    """Return how many entries and branches each conversation has."""
    store = served.service.store
    return sorted(
        (
            sum(
                1
                for _ in {
                    entry.id
                    for branch in store.branches(owner, info.id)
                    for entry in _read(store, owner, info.id, branch)
                }
            ),
            len(store.branches(owner, info.id)),
        )
        for info in store.conversations(owner)
    )


def _read(store: Any, owner: str, conversation: str, head: Any) -> Any:
    return store.read(owner, conversation, head.branch, 0, head.size).entries()


def as_items(made: Any) -> list[Any]:
    return [item.model_dump(exclude_none=True) for item in made.output]


def as_references(made: Any) -> list[Any]:
    return [{"type": "item_reference", "id": item.id} for item in made.output]


def test_an_input_that_differs_near_its_end_is_not_compared_with_the_whole_chain(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve(m=scripted(*[f"Answer {i}." for i in range(13)]))
    client: Any = served.client()
    items: list[Any] = []
    for number in range(12):
        items.append({"role": "user", "content": f"Question {number}."})
        items += as_items(client.responses.create(model="m", input=items))
    [chain] = list_chains(served)
    assert chain == (24, 1)
    read: list[int] = []
    store: Any = served.service.store
    [known] = store.conversations("")
    original = store.read

    def count(owner: str, conversation: str, branch: str, start: int, stop: int) -> Any:
        found = original(owner, conversation, branch, start, stop)
        read.append(len(found) if conversation == known.id else 0)
        return found

    monkeypatch.setattr("longtalk.service.openai.item_pages._WINDOW", 4)
    monkeypatch.setattr(store, "read", count, raising=False)
    items[-2] = {"role": "user", "content": "Something else."}
    client.responses.create(model="m", input=[*items, {"role": "user", "content": "And now?"}])
    # The end of the turn, and the first window before it.
    assert sum(read) == 2 + 4
    monkeypatch.undo()
    assert len(list_chains(served)) == 2


@pytest.mark.parametrize("again", [as_items, as_references])
def test_a_conversation_that_is_sent_whole_each_time_is_stored_once(serve: Serve, again: Any) -> None:
    provider = scripted(*[f"Answer {i}." for i in range(6)])
    served = serve(m=provider)
    client: Any = served.client()
    items: list[Any] = [{"role": "developer", "content": "Be brief."}]
    made = []
    for number in range(6):
        items.append({"role": "user", "content": f"Question {number}."})
        made.append(client.responses.create(model="m", input=items))
        items += again(made[-1])
    assert list_chains(served) == [(13, 1)]
    said = [message["content"] for message in json.loads(provider.requests[-1])["messages"]]
    assert said[1:4] == ["Question 0.", "Answer 0.", "Question 1."]
    assert said[-1] == "Question 5."
    # What the client sees of it is what it has sent.
    assert made[-1].previous_response_id is None
    listed = list(client.responses.input_items.list(made[-1].id, order="asc", limit=100))
    assert [item.content[0].text for item in listed] == ["Be brief.", *said[1:]]
    assert [item.id for item in listed][2] == made[0].output[0].id


def test_results_of_functions_go_on_with_the_response_that_has_called_them(serve: Serve) -> None:
    provider = AsyncScripted(says(None, calls=[("c1", "pay", {})]), says("Paid."), says("Yes."))
    served = serve(m=provider)
    client: Any = served.client()
    items: list[Any] = [{"role": "user", "content": "Pay."}]
    called = client.responses.create(model="m", input=items, tools=[PAY])
    items += [*as_items(called), {"type": "function_call_output", "call_id": "c1", "output": "done"}]
    paid = client.responses.create(model="m", input=items, tools=[PAY])
    items += [*as_items(paid), {"role": "user", "content": "Sure?"}]
    assert client.responses.create(model="m", input=items, tools=[PAY]).output_text == "Yes."
    assert list_chains(served) == [(6, 1)]


@pytest.mark.parametrize("change", ["text", "image", "answer", "result", "id", "more"])
def test_what_is_not_exactly_what_a_chain_has_is_stored_as_it_was_sent(serve: Serve, change: str) -> None:
    provider = AsyncScripted(says(None, calls=[("c1", "pay", {})]), says("Paid."), says("Yes."))
    served = serve(m=provider)
    client: Any = served.client()
    image = {"type": "input_image", "image_url": "https://images.example/a.png"}
    items: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": "Pay."}, image]}]
    items += as_items(client.responses.create(model="m", input=items, tools=[PAY]))
    items += [{"type": "function_call_output", "call_id": "c1", "output": "done"}]
    items += as_items(client.responses.create(model="m", input=items, tools=[PAY]))
    items += [{"role": "user", "content": "Sure?"}]
    items = json.loads(json.dumps(items))
    if change == "text":
        items[0]["content"][0]["text"] = "Pray."
    elif change == "image":
        items[0]["content"][1]["image_url"] = "https://images.example/b.png"
    elif change == "result":
        items[2]["output"] = "failed"
    elif change == "answer":
        items[3]["content"][0]["text"] = "Refused."
    elif change == "id":
        items[3]["id"] = items[3]["id"].replace("msg_", "msg_x")
    else:
        items.insert(0, {"role": "user", "content": "Hi."})
    made = client.responses.create(model="m", input=items, tools=[PAY])
    assert len(list_chains(served)) == 2
    listed = client.responses.input_items.list(made.id, order="asc")
    assert [item.type for item in listed] == [item.get("type", "message") for item in items]
    assert b"Sure?" in provider.requests[-1]
    marks = {"text": b"Pray.", "image": b"b.png", "result": b"failed", "answer": b"Refused.", "more": b"Hi."}
    assert marks.get(change, b"Paid.") in provider.requests[-1]


def test_two_continuations_of_the_same_conversation_are_branches(serve: Serve) -> None:
    provider = scripted("One.", "Two.", "Three.")
    served = serve(m=provider)
    client: Any = served.client()
    items: list[Any] = [{"role": "user", "content": "1"}]
    first = client.responses.create(model="m", input=items)
    items += as_items(first)
    for number in "23":
        made = client.responses.create(model="m", input=[*items, {"role": "user", "content": number}])
        said = [message["content"] for message in json.loads(provider.requests[-1])["messages"]]
        assert said == ["1", "One.", number]
    assert list_chains(served) == [(6, 2)]
    # One of them, and what they have in common, can be deleted without the other.
    client.responses.delete(first.id)
    assert client.responses.retrieve(made.id).output_text == "Three."


def test_equal_conversations_of_two_clients_stay_apart(serve: Serve) -> None:
    served = serve(m=scripted("Hello.", "Hello.", "Yes."))
    client: Any = served.client()
    hi = {"role": "user", "content": "Hi."}
    client.responses.create(model="m", input=[hi])
    second = client.responses.create(model="m", input=[hi])
    client.responses.create(model="m", input=[hi, *as_items(second), {"role": "user", "content": "So?"}])
    assert list_chains(served) == [(2, 1), (4, 1)]


def test_an_answer_of_another_owner_is_text_like_any_other(serve: Serve) -> None:
    storage = InMemoryStorage()
    keys = AccessKeys(storage)
    ada, bob = keys.add("ada", "ada")[0], keys.add("bob", "bob")[0]
    served = serve(storage=storage, m=scripted("Hello.", "Yes."))
    hi: Any = {"role": "user", "content": "Hi."}
    owner: Any = served.client(ada)
    other: Any = served.client(bob)
    made = owner.responses.create(model="m", input=[hi])
    other.responses.create(model="m", input=[hi, *as_items(made), {"role": "user", "content": "So?"}])
    assert (list_chains(served, "ada"), list_chains(served, "bob")) == ([(2, 1)], [(4, 1)])


def test_an_answer_that_was_deleted_or_is_in_a_conversation_is_stored_again(serve: Serve) -> None:
    served = serve(m=scripted("Hello.", "Hello.", "Yes.", "Yes."))
    client: Any = served.client()
    hi = {"role": "user", "content": "Hi."}
    talk = client.conversations.create()
    deleted = client.responses.create(model="m", input=[hi])
    client.responses.delete(deleted.id)
    for made in (deleted, client.responses.create(model="m", input=[hi], conversation=talk.id)):
        after = client.responses.create(model="m", input=[hi, *as_items(made), {"role": "user", "content": "So?"}])
        assert after.output_text == "Yes."
    assert served.service.store.info("", talk.id).entries == 2
    assert [size for size, _ in list_chains(served)] == [2, 4, 4]


def test_a_repeated_request_gets_the_response_of_the_first_one(serve: Serve) -> None:
    provider = scripted("One.", "Two.")
    served = serve(m=provider)
    client: Any = served.client()
    items: list[Any] = [{"role": "user", "content": "1"}]
    items += [*as_items(client.responses.create(model="m", input=items)), {"role": "user", "content": "2"}]
    made = [client.responses.create(model="m", input=items, extra_headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert made[0] == made[1]
    assert len(provider.requests) == 2
    assert list_chains(served) == [(4, 1)]


def test_a_background_response_goes_on_in_its_chain_too(serve: Serve) -> None:
    provider = Waiting(says("Hello."), says("One two three.", pieces=3))
    served = serve(m=provider)
    client: Any = served.client()
    items: list[Any] = [{"role": "user", "content": "Hi."}]
    items += [*as_items(client.responses.create(model="m", input=items)), {"role": "user", "content": "Count."}]
    provider.go.set()
    events = list(client.responses.create(model="m", input=items, background=True, stream=True))
    assert events[-1].response.output_text == "One two three."
    assert list_chains(served) == [(4, 1)]


def test_a_reference_to_an_item_of_another_conversation_is_none_to_this_one(serve: Serve) -> None:
    served = serve(m=scripted("One.", "Two."))
    client: Any = served.client()
    items: list[Any] = [{"role": "user", "content": "1"}]
    first = client.responses.create(model="m", input=items)
    items += [*as_references(first), {"role": "user", "content": "2"}]
    second = client.responses.create(model="m", input=items)
    wrong = items[1]["id"].rpartition("_")[0] + "_hAAAAAAAAAAAAAAAAAAAAAA"
    items = [items[0], {"type": "item_reference", "id": wrong}, *items[2:], *as_references(second)]
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="m", input=[*items, {"role": "user", "content": "3"}])
