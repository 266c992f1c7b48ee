"""Calls that the caller runs, in a stored conversation. The sync twin of this file is generated."""

from __future__ import annotations

from typing import Any

import pytest

from longtalk import AsyncConversation, InputError, Summarize, ToolOutput, external_tool
from longtalk.errors import RequestRefused
from longtalk.events import ToolCall
from longtalk.stores.base import Store
from longtalk.testing import AsyncScripted, says, validate
from longtalk.turn.draft import NOT_RUN, UNKNOWN
from longtalk.wires import HTTP_WIRES, WIRES
from tests.support.matrix import thin

pytestmark = pytest.mark.anyio

PAY = external_tool("pay", "Pay a bill.", {"type": "object", "properties": {"sum": {"type": "integer"}}})
CALLS = [("c1", "pay", {"sum": 5}), ("c2", "lookup", {"q": "bows"}), ("c3", "pay", {"sum": 6})]
BOTH = says("Wait.", calls=CALLS)
PAID = [ToolOutput("c1", "paid 5"), ToolOutput("c3", "paid 6")]


def lookup(q: str) -> str:
    """Look something up."""
    return f"about {q}"


def talk(store: Store, provider: Any, **settings: Any) -> AsyncConversation:
    return AsyncConversation("c", model=provider, store=store, **{"tools": [PAY, lookup], **settings})


async def said(conversation: AsyncConversation) -> list[str]:
    return [f"{entry.role}: {entry.text}" for entry in await conversation.history()]


WHOLE = ["user: x", "assistant: Wait.", "tool: about bows", "tool: paid 5", "tool: paid 6", "assistant: done"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", thin(sorted(HTTP_WIRES), "openai-chat"))
async def test_another_object_goes_on_with_the_results(store: Store, wire: str, stream: bool) -> None:
    first = AsyncScripted(says("Wait.", calls=CALLS, wire=wire), wire=WIRES[wire])
    second = AsyncScripted(says("done", wire=wire), wire=WIRES[wire])
    if stream:
        events = [event async for event in talk(store, first).stream("x")]
        assert [event.id for event in events if isinstance(event, ToolCall)] == ["c1", "c2", "c3"]
        reply = events[-1].reply  # type: ignore[union-attr]
    else:
        reply = await talk(store, first).send("x")
    assert (reply.finish_reason, [call.id for call in reply.calls]) == ("tool_calls", ["c1", "c3"])
    head = store.head("", "c", "main")
    assert head is not None
    assert head.lease is None
    assert head.turn is not None
    assert (head.turn.status, head.turn.finish) == ("complete", "calls")
    conversation = talk(store, second)
    if stream:
        reply = [event async for event in conversation.stream(PAID)][-1].reply  # type: ignore[union-attr]
    else:
        reply = await conversation.send(PAID)
    assert reply.text == "done"
    assert await said(conversation) == WHOLE
    validate(second.requests[0], wire=wire)
    await conversation.verify()
    assert [turn.status for _, turn in store.turns("", "c", "main", 0, 9)] == ["complete", "complete"]


async def test_a_new_message_closes_the_calls_as_not_run(store: Store) -> None:
    await talk(store, AsyncScripted(BOTH)).send("x")
    provider = AsyncScripted(says("Fine."))
    conversation = talk(store, provider)
    await conversation.send("Never mind.")
    assert (await said(conversation))[3:] == [
        *(f"tool: {NOT_RUN}", f"tool: {NOT_RUN}", "user: Never mind.", "assistant: Fine.")
    ]
    validate(provider.requests[0])
    await conversation.verify()


async def test_a_note_closes_the_calls(store: Store) -> None:
    provider = AsyncScripted(BOTH, says("Fine."))
    conversation = talk(store, provider)
    await conversation.send("x")
    await conversation.note("The bank is closed.")
    assert (await said(conversation))[3:5] == [f"tool: {UNKNOWN}"] * 2
    await conversation.send(None)
    validate(provider.requests[1])
    await conversation.verify()


async def test_results_that_are_missing_or_late_change_nothing(store: Store) -> None:
    conversation = talk(store, AsyncScripted(BOTH, says("done")))
    await conversation.send("x")
    with pytest.raises(InputError, match="'c3' are missing"):
        await conversation.send(PAID[:1])
    with pytest.raises(InputError, match=r"'c1', 'c3'.*have no results yet"):
        await conversation.send(None)
    assert (await conversation.send(PAID)).text == "done"
    with pytest.raises(InputError, match="No call waits for the results of 'c1', 'c3'"):
        await conversation.send(PAID)
    assert await said(conversation) == WHOLE


async def test_keys_of_both_turns_give_their_replies_again(store: Store) -> None:
    provider = AsyncScripted(BOTH, says("done"))
    conversation = talk(store, provider)
    for _ in range(2):
        reply = await conversation.send("x", key="first")
        assert (reply.finish_reason, [call.id for call in reply.calls]) == ("tool_calls", ["c1", "c3"])
    for _ in range(2):
        assert (await conversation.send(PAID, key="second")).text == "done"
    events = [event async for event in conversation.stream("x", key="first")]
    assert [event.id for event in events if isinstance(event, ToolCall)] == ["c1", "c3"]
    assert len(provider.requests) == 2
    assert await said(conversation) == WHOLE


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_turn_with_results_that_failed_goes_on(store: Store, key: str | None) -> None:
    provider = AsyncScripted(BOTH, RequestRefused("no", status=400), says("done"))
    conversation = talk(store, provider)
    await conversation.send("x")
    with pytest.raises(RequestRefused):
        await conversation.send(PAID, key=key)
    assert (await conversation.send(PAID if key else None, key=key)).text == "done"
    assert await said(conversation) == WHOLE
    validate(provider.requests[-1])


async def test_a_fork_waits_for_the_results_too(store: Store) -> None:
    provider = AsyncScripted(BOTH, says("done"), says("done there"))
    conversation = talk(store, provider)
    first = await conversation.send("x")
    fork = await conversation.fork()
    await conversation.send(PAID)
    assert (await fork.send(PAID)).text == "done there"
    late = await conversation.fork(first.turn_id)
    with pytest.raises(InputError, match="'c1', 'c3'"):
        await late.send(None)
    validate(provider.requests[-1])
    await conversation.verify()


async def test_a_fork_between_two_results_needs_the_rest(store: Store) -> None:
    provider = AsyncScripted(BOTH, says("done"), says("done there"))
    conversation = talk(store, provider)
    await conversation.send("x")
    second = await conversation.send(PAID)
    fork = await conversation.fork(second.entries[0].id)
    with pytest.raises(InputError, match="'c3'"):
        await fork.send(None)
    assert (await fork.send(PAID[1:])).text == "done there"
    validate(provider.requests[-1])
    await fork.verify()


async def test_a_rewind_to_the_calls_makes_them_wait_again(store: Store) -> None:
    provider = AsyncScripted(BOTH, says("done"), says("again"))
    conversation = talk(store, provider)
    first = await conversation.send("x")
    await conversation.send(PAID)
    await conversation.rewind(first.turn_id)
    assert (await conversation.send(PAID)).text == "again"
    validate(provider.requests[-1])
    await conversation.verify()


async def test_an_edit_in_the_place_of_the_results_closes_the_calls(store: Store) -> None:
    provider = AsyncScripted(BOTH, says("done"), says("other"), says("new"))
    conversation = talk(store, provider)
    await conversation.send("x")
    second = await conversation.send(PAID)
    branch, reply = await conversation.edit(second.turn_id, "Never mind.")
    assert reply.text == "other"
    assert (await said(branch))[3:5] == [f"tool: {NOT_RUN}"] * 2
    _, reply = await conversation.regenerate()
    assert reply.text == "new"
    for request in provider.requests:
        validate(request)
    await conversation.verify()


async def test_no_summary_is_written_while_calls_wait(store: Store) -> None:
    policy = Summarize(120, length=50, background=True)
    provider = AsyncScripted(says("word " * 40), says("Wait.", calls=CALLS[:1]), says("done"), says("What was said."))
    conversation = talk(store, provider, policy=policy)
    await conversation.send("word " * 40)
    await conversation.send("word " * 60)
    await conversation.aclose()
    assert len(provider.requests) == 2
    await conversation.send(PAID[:1])
    await conversation.aclose()
    assert len(provider.requests) == 4
