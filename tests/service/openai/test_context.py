"""Counting and compacting the context of a response, through OpenAI's own client."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from longtalk.service.access import AccessKeys
from longtalk.service.settings import ModelSettings, Settings
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.testing import AsyncScripted, says
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Serve
from tests.service.openai.test_responses import PAY, scripted

LONG = "word " * 150
SUMMARY = "Ada plays the violin, and wants to play the cello as well."
SUMMARIZE = Settings(models={"m": ModelSettings("scripted:m", policy="Summarize(20000, to=1000)")})


def test_the_count_grows_with_all_that_would_be_sent_and_nothing_is_sent(serve: Serve) -> None:
    provider = scripted("Hello.")
    served = serve(m=provider)
    client: Any = served.client()
    made = client.responses.create(model="m", input=LONG)
    talk = client.conversations.create(items=[{"role": "user", "content": LONG}])

    def count(**fields: Any) -> int:
        found = client.responses.input_tokens.count(model="m", **fields)
        assert found.object == "response.input_tokens"
        return int(found.input_tokens)

    alone = count(input="Hi.")
    assert (
        alone < count(input="Hi.", instructions="Be brief.") < count(input="Hi.", tools=[PAY], instructions="Be brief.")
    )
    assert count(input="Hi.", previous_response_id=made.id) > alone + 100
    assert count(input="Hi.", conversation=talk.id) > alone + 100
    assert (
        count(
            input=[
                {"role": "user", "content": LONG},
                {"role": "assistant", "content": "Yes."},
                {"role": "user", "content": "Hi."},
            ]
        )
        > alone + 100
    )
    assert len(provider.requests) == 1
    assert served.service.store.info("", talk.id).entries == 1


def test_the_count_is_about_the_policy_of_the_model(serve: Serve) -> None:
    settings = Settings(models={"m": ModelSettings("scripted:m", policy="KeepLast(1)")})
    client: Any = serve(m=scripted("One.", "Two."), settings=settings).client()
    first = client.responses.create(model="m", input=LONG)
    second = client.responses.create(model="m", input="Short.", previous_response_id=first.id)
    assert client.responses.input_tokens.count(model="m", input="Hi.", previous_response_id=second.id).input_tokens < 50


@pytest.mark.parametrize(("wire", "stored"), [*[(wire, True) for wire in HTTP_WIRES], ("openai-chat", False)])
def test_a_compacted_chain_goes_on_from_its_one_item(serve: Serve, wire: str, stored: bool) -> None:
    provider = scripted(LONG, LONG, LONG, LONG, SUMMARY, "You play the violin.", "Yes.", wire=wire)
    served = serve(m=provider, settings=SUMMARIZE)
    client: Any = served.client()
    last = None
    for number in range(4):
        last = client.responses.create(model="m", input=f"Fact {number}. {LONG}", previous_response_id=last).id
    done = client.responses.compact(model="m", previous_response_id=last)
    (item,) = done.output
    assert (done.object, item.type, done.usage.input_tokens > 0) == ("response.compaction", "compaction", True)
    assert SUMMARY not in item.encrypted_content
    asked = {"role": "user", "content": "What do I play?"}
    answer = client.responses.create(model="m", input=[item.model_dump(), asked], store=stored)
    assert answer.output_text == "You play the violin."
    assert SUMMARY.encode() in provider.requests[-1]
    assert b"Fact 0." not in provider.requests[-1]
    assert b"Fact 3." in provider.requests[-1]
    if stored:
        client.responses.create(model="m", input="Sure?", previous_response_id=answer.id)
        assert SUMMARY.encode() in provider.requests[-1]
        assert b"What do I play?" in provider.requests[-1]
    assert client.responses.retrieve(last).status == "completed"


def test_items_of_which_nothing_is_stored_can_be_compacted_and_compacted_again(serve: Serve) -> None:
    provider = scripted(SUMMARY, SUMMARY + " And the flute.", "Yes.")
    served = serve(m=provider, settings=SUMMARIZE)
    client: Any = served.client()
    items: list[Any] = []
    for number in range(4):
        items += [{"role": "user", "content": f"Fact {number}. {LONG}"}, {"role": "assistant", "content": LONG}]
    (item,) = client.responses.compact(model="m", input=items).output
    (item,) = client.responses.compact(model="m", input=[item.model_dump(), *items[2:]]).output
    client.responses.create(model="m", input=[item.model_dump(), {"role": "user", "content": "So?"}], store=False)
    assert b"the flute" in provider.requests[-1]
    assert served.service.store.conversations("") == []


def test_open_calls_stay_open_in_a_compacted_chain(serve: Serve) -> None:
    provider = AsyncScripted(says(None, calls=[("c1", "pay", {})]), says("Paid."))
    client: Any = serve(m=provider).client()
    asked = client.responses.create(model="m", input="Pay.", tools=[PAY])
    (item,) = client.responses.compact(model="m", previous_response_id=asked.id).output
    result = {"type": "function_call_output", "call_id": "c1", "output": "done"}
    told = client.responses.create(model="m", input=[item.model_dump(), result], tools=[PAY], store=False)
    assert told.output_text == "Paid."


def test_a_compaction_of_another_owner_is_answered_like_a_forged_one(serve: Serve) -> None:
    storage = InMemoryStorage()
    keys = AccessKeys(storage)
    ada, bob = keys.add("ada", "ada")[0], keys.add("bob", "bob")[0]
    served = serve(storage=storage, m=scripted("Hello.", "Secret?"))
    owner: Any = served.client(ada)
    other: Any = served.client(bob)
    made = owner.responses.create(model="m", input="I'm Ada.")
    (item,) = owner.responses.compact(model="m", previous_response_id=made.id).output
    answers = []
    for content in (item.encrypted_content, "forged", item.encrypted_content[:-8] + "AAAAAAA="):
        with pytest.raises(openai.BadRequestError) as caught:
            other.responses.create(
                model="m",
                input=[{"type": "compaction", "encrypted_content": content}, {"role": "user", "content": "Hi."}],
            )
        answers.append(caught.value.body)
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("path", ["compact", "input_tokens"])
def test_a_field_that_is_not_for_the_route_is_named(serve: Serve, path: str) -> None:
    client = serve(m=scripted()).client()
    with pytest.raises(openai.BadRequestError) as caught:
        client.post(f"/responses/{path}", body={"model": "m", "input": "Hi.", "stream": True}, cast_to=object)
    assert caught.value.param == "stream"


def test_there_must_be_something_to_compact(serve: Serve) -> None:
    client = serve(m=scripted()).client()
    with pytest.raises(openai.BadRequestError, match="`input` is empty"):
        client.responses.compact(model="m", input=[])


def test_a_threshold_of_the_client_makes_a_summary(serve: Serve) -> None:
    provider = scripted(LONG, LONG, LONG, SUMMARY, "Yes.")
    client: Any = serve(m=provider).client()
    compaction = [{"type": "compaction", "compact_threshold": 1_200}]
    last = None
    for number in range(4):
        last = client.responses.create(
            model="m",
            input=f"Fact {number}. {LONG}",
            previous_response_id=last,
            context_management=compaction,
        ).id
    assert SUMMARY.encode() in provider.requests[-1]
    assert b"Fact 0." not in provider.requests[-1]


@pytest.mark.parametrize("wrong", [{"type": "other"}, {"type": "compaction", "compact_threshold": 10}])
def test_context_that_can_not_be_managed_is_refused_by_name(serve: Serve, wrong: Any) -> None:
    client: Any = serve(m=scripted()).client()
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="m", input="Hi.", context_management=[wrong])
    assert str(caught.value.param).startswith("context_management[0]")
