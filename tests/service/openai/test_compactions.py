"""Compaction during a response: its events, its item, and how a client goes on with it, through OpenAI's own client."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from longtalk.errors import RequestRefused
from longtalk.service.access import AccessKeys
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve
from tests.service.openai.strict_types import check_events
from tests.service.openai.test_context import LONG, SUMMARIZE, SUMMARY
from tests.service.openai.test_responses import PAY, scripted

COMPACT: Any = [{"type": "compaction", "compact_threshold": 1_200}]


def talk_until_compaction(client: Any, **fields: Any) -> Any:
    """Make four responses of a chain, of which the last one compacts. Return the last one."""
    made = None
    for number in range(4):
        made = client.responses.create(
            model="m",
            input=f"Fact {number}. {LONG}",
            previous_response_id=made and made.id,
            context_management=COMPACT,
            **fields,
        )
    return made


def test_a_response_that_compacts_has_the_item_before_its_answer(serve: Serve) -> None:
    served = serve(m=scripted(LONG, LONG, LONG, SUMMARY, "Yes."))
    client: Any = served.client()
    made = talk_until_compaction(client)
    item, message = made.output
    assert (item.type, message.content[0].text) == ("compaction", "Yes.")
    assert item.id.startswith("cmp_")
    assert client.responses.retrieve(made.id) == made
    assert [each.type for each in client.responses.retrieve(made.previous_response_id).output] == ["message"]


def test_a_response_without_a_message_of_its_own_has_the_item_also_when_it_is_read_again(serve: Serve) -> None:
    refused = RequestRefused("No.")
    served = serve(m=AsyncScripted(*map(says, [LONG] * 3), refused, says(SUMMARY), says("Yes.")))
    client: Any = served.client()
    last = None
    for number in range(4):
        made = client.responses.create(
            model="m", input=f"Fact {number}. {LONG}", previous_response_id=last, background=True
        )
        last = made.id
        while (made := client.responses.retrieve(last)).status in ("queued", "in_progress"):
            pass
    assert made.status == "failed"
    made = client.responses.create(model="m", input=[], previous_response_id=last, context_management=COMPACT)
    assert [each.type for each in made.output] == ["compaction", "message"]
    assert client.responses.retrieve(made.id) == made


def test_the_stream_says_that_it_compacts_and_shows_the_item(serve: Serve) -> None:
    client: Any = serve(m=scripted(LONG, LONG, LONG, SUMMARY, "Yes.")).client()
    last = None
    for number in range(4):
        events = list(
            client.responses.create(
                model="m",
                input=f"Fact {number}. {LONG}",
                previous_response_id=last,
                context_management=COMPACT,
                stream=True,
            )
        )
        last = events[-1].response.id
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events[:6]]
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.compaction.compacting",
        "response.output_item.done",
        "response.output_item.added",
    ]
    added, compacting, done, message = events[2:6]
    assert (compacting.item_id, compacting.output_index) == (added.item.id, added.output_index) == (done.item.id, 0)
    assert message.output_index == 1
    assert events[-1].response.output[0] == done.item
    check_events([event.to_dict(mode="json") for event in events])
    # Later, the events are made again from what is stored.
    again = list(client.responses.retrieve(last, stream=True))
    assert [event.type for event in again if "delta" not in event.type] == [
        event.type for event in events if "delta" not in event.type
    ]


@pytest.mark.parametrize("stored", [True, False])
def test_a_client_that_keeps_the_conversation_goes_on_from_the_last_item(serve: Serve, stored: bool) -> None:
    provider = scripted(LONG, LONG, LONG, SUMMARY, "Yes.", "The violin.")
    client: Any = serve(m=provider).client()
    items: list[Any] = []
    for number in range(4):
        items.append({"role": "user", "content": f"Fact {number}. {LONG}"})
        made = client.responses.create(model="m", input=items, context_management=COMPACT, store=stored)
        items += [each.model_dump(exclude_none=True) for each in made.output]
    items.append({"role": "user", "content": "What do I play?"})
    kept = items[max(i for i, item in enumerate(items) if item.get("type") == "compaction") :]
    for sent in (items, kept):
        assert client.responses.create(model="m", input=sent, store=False).output_text
        request = provider.requests[-1]
        assert SUMMARY.encode() in request
        assert (b"Fact 0." in request, b"Fact 3." in request, b"Yes." in request) == (False, True, True)
        assert request.count(b"Fact 3.") == 1
        provider.add(says("The violin."))


def test_the_item_carries_what_was_said_before_it_also_in_the_middle_of_tool_calls(serve: Serve) -> None:
    provider = AsyncScripted(
        *[says(LONG) for _ in range(3)],
        says(None, calls=[("c1", "pay", {})]),
        says(SUMMARY),
        says("Paid."),
        says("Ada."),
    )
    client: Any = serve(m=provider).client()
    last = None
    for number in range(3):
        last = client.responses.create(model="m", input=f"Fact {number}. {LONG}", previous_response_id=last).id
    called = client.responses.create(model="m", input="Pay.", previous_response_id=last, tools=[PAY])
    told = client.responses.create(
        model="m",
        input=[{"type": "function_call_output", "call_id": "c1", "output": LONG}],
        previous_response_id=called.id,
        tools=[PAY],
        context_management=COMPACT,
    )
    item, message = told.output
    assert (item.type, told.output_text) == ("compaction", "Paid.")
    client.responses.create(
        model="m", input=[item.model_dump(), message.model_dump(), {"role": "user", "content": "Who?"}], tools=[PAY]
    )
    assert all(part in provider.requests[-1] for part in (SUMMARY.encode(), b"c1", b"Paid.", b"Who?"))


def test_the_item_is_among_those_of_its_conversation(serve: Serve) -> None:
    served = serve(m=scripted(LONG, LONG, LONG, SUMMARY, "Yes."))
    client: Any = served.client()
    talk = client.conversations.create()
    for number in range(4):
        made = client.responses.create(
            model="m", input=f"Fact {number}. {LONG}", conversation=talk.id, context_management=COMPACT
        )
    listed = [item.id for item in client.conversations.items.list(talk.id, order="asc")]
    assert listed[-2:] == [item.id for item in made.output]
    found = client.conversations.items.retrieve(made.output[0].id, conversation_id=talk.id)
    assert found.encrypted_content == made.output[0].encrypted_content


def test_without_a_request_for_compaction_the_policy_of_the_model_is_not_shown(serve: Serve) -> None:
    provider = scripted(*[LONG] * 40, SUMMARY, "Yes.")
    client: Any = serve(m=provider, settings=SUMMARIZE).client()
    made = client.responses.create(
        model="m",
        input=[{"role": role, "content": LONG} for _ in range(60) for role in ("user", "assistant")]
        + [{"role": "user", "content": "So?"}],
    )
    assert [item.type for item in made.output] == ["message"]


def test_an_item_of_another_owner_or_of_a_deleted_conversation_is_answered_like_a_forged_one(serve: Serve) -> None:
    storage = InMemoryStorage()
    keys = AccessKeys(storage)
    ada, bob = keys.add("ada", "ada")[0], keys.add("bob", "bob")[0]
    served = serve(storage=storage, m=scripted(LONG, LONG, LONG, SUMMARY, "Yes."))
    owner: Any = served.client(ada)
    other: Any = served.client(bob)
    content = talk_until_compaction(owner).output[0].encrypted_content

    def refuse(client: Any, content: str) -> Any:
        item = {"type": "compaction", "encrypted_content": content}
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(model="m", input=[item, {"role": "user", "content": "Hi."}])
        return caught.value.body

    expected = refuse(owner, "forged")
    assert refuse(other, content) == expected
    entry, _, place = content.rpartition(".")
    for forged in (f".{place}", f"{entry}x.{place}", f"{entry}.hAAAAAAAAAAAAAAAAAAAAAA", f"{entry}.", "", "\ud800.x"):
        if forged.isprintable():
            assert refuse(owner, forged) == expected
    for info in served.service.store.conversations("ada"):
        served.service.store.delete("ada", info.id)
    assert refuse(owner, content) == expected


def test_what_is_redacted_is_in_no_item(serve: Serve) -> None:
    provider = scripted(LONG, LONG, LONG, SUMMARY, "Yes.", "Well.")
    served = serve(m=provider)
    client: Any = served.client()
    talk = client.conversations.create()
    for number in range(4):
        made = client.responses.create(
            model="m", input=f"Fact {number}. {LONG}", conversation=talk.id, context_management=COMPACT
        )
    first = next(iter(client.conversations.items.list(talk.id, order="asc")))
    client.conversations.items.delete(first.id, conversation_id=talk.id)
    item = made.output[0].model_dump()
    client.responses.create(model="m", input=[item, {"role": "user", "content": "So?"}])
    assert SUMMARY.encode() not in provider.requests[-1]
    assert b"Fact 0." not in provider.requests[-1]
    assert b"Fact 1." in provider.requests[-1]
