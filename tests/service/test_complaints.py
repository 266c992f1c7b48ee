"""What users of similar services complain about, one test for each complaint, in the order of a list of fourteen."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path
from typing import Any

import openai
import pytest

from longtalk.errors import RequestRefused, StoreError
from longtalk.service.access import AccessKeys
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.stores.base import BranchHead, Commit
from longtalk.stores.in_memory import InMemory
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, Step, says, validate
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Serve
from tests.service.test_runs import Waiting

PAY = {
    "type": "function",
    "name": "pay",
    "description": "Pay a bill.",
    "parameters": {"type": "object", "properties": {"sum": {"type": "integer"}}},
}


class Checked(AsyncScripted):
    """A provider that refuses what a real one of its wire would refuse, as every request is checked by its rules."""

    def __init__(self, *steps: Step | BaseException, wire: str) -> None:
        super().__init__(*steps, wire=HTTP_WIRES[wire])

    def _take_step(self, body: bytes) -> Step:
        try:
            validate(body, wire=self.wire.name)
        except AssertionError as problem:
            raise RequestRefused(f"{problem} The request is {body[:2000]!r}.") from None
        return super()._take_step(body)


def scripted(*answers: str, wire: str = "openai-chat") -> Checked:
    return Checked(*[says(answer, wire=wire) for answer in answers], wire=wire)


def calls_pay(wire: str, text: str | None = None) -> Step:
    return says(text, calls=[("c1", "pay", {"sum": 5})], pieces=1, wire=wire)


PAID = {"type": "function_call_output", "call_id": "c1", "output": "paid in full"}


def test_1_a_chain_goes_on_at_once_in_any_process(serve: Serve, tmp_path: Path) -> None:
    provider = scripted(*(f"Answer {i}." for i in range(8)))
    clients: list[Any] = [serve(store=SQLite(tmp_path / "talks.db"), m=provider).client() for _ in range(2)]
    previous = None
    for number in range(8):
        client = clients[number % 2]
        if number % 3:
            made = client.responses.create(model="m", input=f"Input {number}.", previous_response_id=previous)
            previous = made.id
        else:
            given = {"model": "m", "input": f"Input {number}.", "previous_response_id": previous}
            for event in client.responses.create(**given, stream=True):
                # The stream has not ended yet.
                if event.type == "response.completed":
                    previous = event.response.id
                    assert clients[(number + 1) % 2].responses.retrieve(previous).status == "completed"
    assert provider.requests[-1].count(b"Input ") == 8
    assert provider.requests[-1].count(b"Answer ") == 7


def test_2_a_stream_has_one_id_and_a_list_as_input_is_kept(serve: Serve) -> None:
    provider = scripted("Three things.", "You said three things.")
    client: Any = serve(m=provider).client()
    said = [{"role": "user", "content": f"Thing {i}."} for i in range(3)]
    events = list(client.responses.create(model="m", input=said, stream=True))
    ids = {event.response.id for event in events if hasattr(event, "response")}
    assert len(ids) == 1
    (response,) = ids
    items = client.responses.input_items.list(response, order="asc").data
    assert [item.content[0].text for item in items] == ["Thing 0.", "Thing 1.", "Thing 2."]
    client.responses.create(model="m", input="What did I say?", previous_response_id=response)
    assert provider.requests[1].count(b"Thing ") == 3


@pytest.mark.parametrize(("asks", "answers"), list(itertools.permutations(HTTP_WIRES, 2)))
def test_3_the_result_of_a_function_can_go_to_another_provider(serve: Serve, asks: str, answers: str) -> None:
    one, two = Checked(calls_pay(asks), wire=asks), scripted("Paid.", wire=answers)
    client: Any = serve(one=one, two=two).client()
    asked = client.responses.create(model="one", input="Pay.", tools=[PAY])
    (call,) = asked.output
    result = {**PAID, "call_id": call.call_id}
    told = client.responses.create(model="two", input=[result], tools=[PAY], previous_response_id=asked.id)
    assert told.output_text == "Paid."
    assert b"paid in full" in two.requests[0]


def test_4_every_provider_gets_the_whole_context(serve: Serve) -> None:
    providers = {wire: scripted(f"Noted by {wire}.", wire=wire) for wire in HTTP_WIRES}
    client: Any = serve(**providers).client()
    previous = None
    for count, (wire, provider) in enumerate(providers.items()):
        made = client.responses.create(model=wire, input=f"Fact for {wire}.", previous_response_id=previous)
        previous = made.id
        assert provider.requests[0].count(b"Fact for ") == count + 1
        assert provider.requests[0].count(b"Noted by ") == count


def test_5_an_id_of_another_owner_can_not_be_chained(serve: Serve) -> None:
    storage, provider = InMemoryStorage(), scripted("Hello, Ada.", "Other.")
    ada, bob = (AccessKeys(storage).add(name, name)[0] for name in ("ada", "bob"))
    served = serve(storage=storage, m=provider)
    client: Any = served.client(ada)
    talk = client.conversations.create()
    made = client.responses.create(model="m", input="The code is 4711.", conversation=talk.id)
    other: Any = served.client(bob)
    for foreign in ({"previous_response_id": made.id}, {"conversation": talk.id}):
        with pytest.raises(openai.APIStatusError) as caught:
            other.responses.create(model="m", input="Which code?", **foreign)
        assert caught.value.status_code in (400, 404)
    with other.responses.connect() as connection:
        for foreign in ({"previous_response_id": made.id}, {"conversation": talk.id}):
            connection.response.create(model="m", input="Which code?", **foreign)
            assert (event := connection.recv()).type == "error"
            assert event.status in (400, 404)
    assert len(provider.requests) == 1


SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbGVk"}


def thinks(text: str) -> Step:
    """Return an answer with encrypted reasoning before its text."""
    step = says(text, wire="openai-responses")
    body = json.loads(step.body)
    body["output"].insert(0, SEALED)
    ended = {"type": "response.completed", "response": body}
    added = [
        {"type": f"response.output_item.{what}", "output_index": i, "item": item}
        for i, item in enumerate(body["output"])
        for what in ("added", "done")
    ]
    events = tuple(json.dumps(event).encode() for event in (*added, ended))
    return Step(json.dumps(body).encode(), events)


@pytest.mark.parametrize("wire", [wire for wire in HTTP_WIRES if wire != "openai-responses"])
@pytest.mark.parametrize("way", ["chain", "client"])
def test_6_encrypted_reasoning_does_not_keep_a_chain_from_another_model(serve: Serve, wire: str, way: str) -> None:
    first, second = Checked(thinks("Hm."), wire="openai-responses"), scripted("Fine.", wire=wire)
    client: Any = serve(first=first, second=second).client()
    said = {"role": "user", "content": "Think."}
    if way == "chain":
        made = client.responses.create(model="first", input=[said])
        told = client.responses.create(model="second", input="And?", previous_response_id=made.id)
    else:
        # The client keeps the conversation itself, with what the first model has sealed for its own use.
        include = ["reasoning.encrypted_content"]
        made = client.responses.create(model="first", input=[said], store=False, include=include)
        assert made.output[0].encrypted_content == SEALED["encrypted_content"]
        items = [said, *(item.model_dump(exclude_none=True) for item in made.output), {**said, "content": "And?"}]
        told = client.responses.create(model="second", input=items, store=False, include=include)
    assert told.output_text == "Fine."
    assert b"Hm." in second.requests[0]
    assert b"c2VhbGVk" not in second.requests[0]


def test_6_reasoning_that_another_model_of_the_same_wire_can_not_read_is_left_out(serve: Serve) -> None:
    refused = (
        b'{"error": {"message": "The encrypted content could not be verified.", "code": "invalid_encrypted_content"}}'
    )
    first = Checked(thinks("Hm."), wire="openai-responses")
    second = Checked(
        RequestRefused("refused", status=400, body=refused),
        says("Fine.", wire="openai-responses"),
        wire="openai-responses",
    )
    client: Any = serve(first=first, second=second).client()
    include, said = ["reasoning.encrypted_content"], {"role": "user", "content": "Think."}
    made = client.responses.create(model="first", input=[said], store=False, include=include)
    items = [said, *(item.model_dump(exclude_none=True) for item in made.output), {**said, "content": "And?"}]
    assert client.responses.create(model="second", input=items, store=False).output_text == "Fine."
    assert [b"c2VhbGVk" in request for request in second.requests] == [True, False]
    assert b"Hm." in second.requests[1]


def test_7_what_is_stored_grows_with_what_is_said_and_goes_with_the_chain(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "talks.db"
    store = SQLite(path)
    served = serve(store=store, m=scripted(*["An answer of some words. " * 40] * 48))
    client, sizes, made = served.client(), [], []

    def measure() -> int:
        return sum(file.stat().st_size for file in tmp_path.iterdir())

    for _ in range(4):
        for _ in range(12):
            previous = made[-1] if made else None
            given: Any = {"model": "m", "input": "A question of some words. " * 40, "previous_response_id": previous}
            made.append(client.responses.create(**given).id)
        sizes.append(measure())
    # Each of the chain's quarters takes the room of the first, and not of all before it.
    steps = [after - before for before, after in itertools.pairwise([0, *sizes])]
    assert max(steps[1:]) <= 2 * steps[0], sizes
    for response in made:
        client.responses.delete(response)
    assert store.conversations("") == []


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_8_a_chain_keeps_its_function_calls(serve: Serve, wire: str) -> None:
    provider = Checked(calls_pay(wire, "I'll pay."), *[says("Done.", pieces=1, wire=wire)] * 2, wire=wire)
    client: Any = serve(m=provider).client()
    asked = client.responses.create(model="m", input="Pay 5.", tools=[PAY])
    result = {**PAID, "call_id": asked.output[-1].call_id}
    paid = client.responses.create(model="m", input=[result], tools=[PAY], previous_response_id=asked.id)
    client.responses.create(model="m", input="How much?", previous_response_id=paid.id)
    for part in (b"Pay 5.", b"I'll pay.", b'"pay"', b"paid in full", b"Done.", b"How much?"):
        assert part in provider.requests[2]


def test_9_everything_is_there_after_a_restart(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "talks.db"
    before = serve(store=SQLite(path), m=scripted("Noted."))
    client: Any = before.client()
    talk = client.conversations.create(metadata={"topic": "names"})
    made = client.responses.create(model="m", input="I'm Ada.", conversation=talk.id)
    items = client.conversations.items.list(talk.id).data
    before.stop()
    provider = scripted("Ada.", "Still Ada.")
    client = serve(store=SQLite(path), m=provider).client()
    assert client.conversations.retrieve(talk.id).metadata == {"topic": "names"}
    assert client.conversations.items.list(talk.id).data == items
    assert client.responses.retrieve(made.id).output_text == "Noted."
    client.responses.create(model="m", input="Who am I?", previous_response_id=made.id)
    client.responses.create(model="m", input="And now?", conversation=talk.id)
    assert all(b"I'm Ada." in request for request in provider.requests)


class Full(InMemory):
    """A store that can't write."""

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        raise StoreError("the disk is full")


def test_10_what_could_not_be_stored_is_an_error_and_no_answer(serve: Serve) -> None:
    client: Any = serve(store=Full(), m=scripted("Hello.", "Hello.")).client()
    for stream in (False, True):
        with pytest.raises(openai.InternalServerError) as caught:
            list(client.responses.create(model="m", input="Hi.", stream=stream))
        assert caught.value.code == "store_unavailable"
    kept: Any = serve(m=scripted("Hello.")).client()
    made = kept.responses.create(model="m", input="Hi.", store=None)
    assert (made.store, kept.responses.retrieve(made.id).output_text) == (True, "Hello.")
    # A background response that is not to be stored has nowhere to go.
    with pytest.raises(openai.BadRequestError, match="store"):
        kept.responses.create(model="m", input="On.", store=False, background=True)


@pytest.mark.parametrize("wire", HTTP_WIRES)
@pytest.mark.parametrize("way", ["no result", "cut in the call"])
def test_11_after_a_call_that_was_left_open_the_conversation_goes_on(serve: Serve, wire: str, way: str) -> None:
    asks = calls_pay(wire, "I'll pay.")
    if way == "cut in the call":
        asks = Step(asks.body, (*asks.events[: len(asks.events) // 2], ConnectionResetError()))
    provider = Checked(asks, *[says("As you like.", wire=wire)] * 8, wire=wire)
    client: Any = serve(m=provider).client()
    talk = client.conversations.create()
    given = {"model": "m", "conversation": talk.id, "tools": [PAY]}
    with client.responses.create(**given, input="Pay 5.", stream=True) as events:
        try:
            for event in events:
                if event.type == "response.function_call_arguments.done":
                    break
        except openai.APIError:
            pass
    after = None
    while after is None:
        try:
            after = client.responses.create(**given, input="Never mind.")
        except openai.ConflictError:
            # The turn that was left is just ending.
            continue
    assert after.output_text == "As you like."
    assert b"Pay 5." in provider.requests[-1]


def test_12_the_answer_is_there_when_the_user_comes_back(serve: Serve) -> None:
    provider = Waiting()
    client: Any = serve(m=provider).client()
    talk = client.conversations.create()
    with client.responses.create(model="m", input="Count.", conversation=talk.id, stream=True) as events:
        response = next(iter(events)).response.id
        assert provider.began.wait(60)
    provider.go.set()
    (*_, last) = client.responses.retrieve(response, stream=True)
    assert last.response.output_text == "One two three."
    items = client.conversations.items.list(talk.id, order="asc").data
    assert [item.content[0].text for item in items] == ["Count.", "One two three."]


def test_13_a_stream_in_the_foreground_can_be_joined_again(serve: Serve) -> None:
    provider = Waiting()
    served = serve(m=provider)
    client: Any = served.client()
    events: list[Any] = []
    with client.responses.create(model="m", input="Count.", stream=True) as stream:
        for event in stream:
            events.append(event)
            if event.type == "response.output_text.delta":
                break
    rest: list[Any] = []

    def join() -> None:
        last = events[-1].sequence_number
        rest.extend(served.client().responses.retrieve(events[0].response.id, stream=True, starting_after=last))

    # Once while the answer is still being made, and once after its end.
    joined = threading.Thread(target=join)
    joined.start()
    provider.go.set()
    joined.join(30)
    numbers = [event.sequence_number for event in (*events, *rest)]
    assert numbers == list(range(len(numbers)))
    assert rest[-1].response.output_text == "One two three."
    again = list(client.responses.retrieve(events[0].response.id, stream=True))
    assert [event.model_dump() for event in again] == [event.model_dump() for event in (*events, *rest)]


@pytest.mark.parametrize("wire", HTTP_WIRES)
@pytest.mark.parametrize("place", ["conversation", "previous_response_id"])
def test_14_items_that_a_conversation_has_can_be_sent_with_the_results(serve: Serve, wire: str, place: str) -> None:
    provider = Checked(calls_pay(wire, "I'll pay."), *[says("Paid.", wire=wire)] * 2, wire=wire)
    client: Any = serve(m=provider).client()
    talk = client.conversations.create()
    said = {"role": "user", "content": "Pay 5."}
    asked = client.responses.create(model="m", input=[said], tools=[PAY], conversation=talk.id)
    where = {place: talk.id if place == "conversation" else asked.id}
    call = asked.output[-1]
    # As clients do that keep all items themselves and send them again with the results.
    items = [said, *(item.model_dump(exclude_none=True) for item in asked.output), {**PAID, "call_id": call.call_id}]
    paid = client.responses.create(model="m", input=items, tools=[PAY], **where)
    assert paid.output_text == "Paid."
    assert provider.requests[1].count(b"Pay 5.") == 1
    assert provider.requests[1].count(b"I'll pay.") == 1
    kinds = [item.type for item in client.conversations.items.list(talk.id, order="asc").data]
    assert kinds == ["message", "message", "function_call", "function_call_output", "message"]
