"""Messages that are added to a stored conversation without a model call. The sync twin is generated."""

from __future__ import annotations

import json
from typing import Any

import pytest

from longtalk import AsyncArchive, AsyncConversation
from longtalk.errors import Busy, InputError, NotFound
from longtalk.policies import KeepLast
from longtalk.stores.base import Commit, Lease, Store
from longtalk.stores.in_memory import InMemory
from longtalk.stores.leases import identify_this_process
from longtalk.testing import AsyncScripted, says, validate
from longtalk.transcript.transcript import now

pytestmark = pytest.mark.anyio

LESSON = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Which strings?"},
    {"role": "assistant", "content": "Gut."},
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "They sound warm."},
]
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "gut"}


def talk(store: Store, *answers: str, **settings: Any) -> AsyncConversation:
    return AsyncConversation("c", model=AsyncScripted(*map(says, answers)), store=store, **settings)


def texts(one: AsyncConversation) -> list[str]:
    body: bytes = one._engine.provider.requests[-1]  # type: ignore[attr-defined]
    validate(body)
    return [message["content"] for message in json.loads(body)["messages"]]


async def test_an_empty_conversation_begins_with_what_is_added(store: Store) -> None:
    one = talk(store, "Yes.")
    ids = await one.append(LESSON)
    said = await one.history()
    assert [entry.id for entry in said] == ids
    assert [(entry.role, entry.text, entry.status) for entry in said][-1] == (
        "assistant",
        "They sound warm.",
        "complete",
    )
    await one.send("Sure?")
    assert texts(one) == [*[message["content"] for message in LESSON], "Sure?"]
    await one.verify()


async def test_another_object_finds_what_was_added_turn_by_turn(store: Store) -> None:
    await talk(store).append(LESSON)
    other = talk(store, "Yes.", policy=KeepLast(1))
    await other.send("Sure?")
    assert texts(other) == ["Sure?"]
    turns = {entry.turn for entry in await other.history()}
    assert len(turns) == 3


async def test_what_is_added_follows_a_turn_and_is_followed_by_one(store: Store) -> None:
    one = talk(store, "Hi.", "Bye.")
    await one.send("Hello!")
    await one.append([{"role": "user", "content": "Is a person there?"}, {"role": "assistant", "content": "I am Ada."}])
    await one.send("Thanks.")
    assert texts(one) == ["Hello!", "Hi.", "Is a person there?", "I am Ada.", "Thanks."]


async def test_a_message_without_an_answer_is_answered_later(store: Store) -> None:
    one = talk(store, "Gut.")
    await one.append(LESSON[:2])
    reply = await one.resume()
    assert reply.text == "Gut."
    assert [entry.text for entry in await one.history()] == ["Be kind.", "Which strings?", "Gut."]


async def test_results_are_added_to_the_turn_of_their_call(store: Store) -> None:
    one = talk(store, "Gut.")
    await one.append([*LESSON[:2], CALL])
    await one.append([RESULT, {"role": "assistant", "content": "Gut."}])
    said = await one.history()
    assert said[2].turn == said[3].turn != said[4].turn
    await one.verify()


async def test_what_can_not_be_added_leaves_the_conversation_as_it_was(store: Store) -> None:
    one = talk(store)
    await one.append(LESSON)
    with pytest.raises(InputError, match="'c1' is missing"):
        await one.append([CALL, LESSON[1]])
    with pytest.raises(InputError, match="no such call waits"):
        await one.append([RESULT])
    assert len(await one.history()) == len(LESSON)


async def test_a_turn_that_was_cut_off_counts_as_interrupted(store: Store) -> None:
    one = talk(store, "Hi.")
    async with one.stream("Hello!") as events:
        async for _ in events:
            break
    other = talk(store)
    await other.append(LESSON[1:3])
    assert [entry.status for entry in await other.history()][-2:] == ["complete", "complete"]
    await other.verify()


async def test_nobody_comes_between_the_turns_that_are_added() -> None:
    seen = []

    class Watched(InMemory):
        def write(self, owner: str, conversation: str, commit: Commit) -> Any:
            head = super().write(owner, conversation, commit)
            seen.append(head.lease is not None)
            return head

    store = Watched()
    await talk(store).append([*LESSON, *LESSON])
    # All of them but the last one keep the branch.
    assert seen == [True] * 3 + [False]
    assert store.head("", "c").lease is None  # type: ignore[union-attr]


async def test_what_others_have_taken_over_is_not_written_to() -> None:
    class Taken(InMemory):
        writes = 0

        def write(self, owner: str, conversation: str, commit: Commit) -> Any:
            self.writes += 1
            if self.writes == 2:
                head = super().head(owner, conversation)
                assert head is not None
                lease = Lease(identify_this_process(), now() + 30_000, head.token + 1)
                super().write(owner, conversation, Commit(expect=head.revision, lease=lease, at=now()))
            return super().write(owner, conversation, commit)

    store = Taken()
    with pytest.raises(Busy, match="while it was being changed"):
        await talk(store).append(LESSON)


async def test_added_turns_count_for_no_model_and_no_price(store: Store) -> None:
    one = talk(store)
    await one.append(LESSON)
    stats = await AsyncArchive(store).stats()
    assert (dict(stats.turns), dict(stats.models), stats.unpriced) == ({"complete": 2}, {}, 0)
    assert await one.metrics() == []


# A conversation that has to be there


async def test_a_conversation_that_has_to_be_there_is_found(store: Store) -> None:
    await talk(store, "Hi.").send("Hello!")
    one = talk(store, "Bye.", create=False)
    assert (await one.send("Thanks.")).text == "Bye."
    other, _ = await talk(store, "Hey.", create=False).regenerate()
    assert len(await other.history()) == 4


@pytest.mark.parametrize("owner", ["", "eve"])
async def test_a_conversation_that_has_to_be_there_and_is_not_raises_at_its_first_use(store: Store, owner: str) -> None:
    await AsyncConversation("d" if owner == "" else "c", model=AsyncScripted(says("Hi.")), store=store).send("x")
    one = talk(store, "Hi.", create=False, owner=owner)
    uses = [
        lambda: one.send("x"),
        lambda: one.resume(),
        lambda: one.append(LESSON),
        lambda: one.note("It is noon."),
        lambda: one.history(),
        lambda: one.metrics(),
        lambda: one.receipts(),
        lambda: one.meta(),
        lambda: one.set_metadata({}),
        lambda: one.set_metadata({}, entry="e"),
        lambda: one.branches(),
        lambda: one.fork(),
        lambda: one.rewind("e"),
        lambda: one.edit("e", "x"),
        lambda: one.regenerate(),
        lambda: one.pin("e"),
        lambda: one.unpin("e"),
        lambda: one.pins(),
        lambda: one.export(),
        lambda: one.manifest("t"),
        lambda: one.verify(),
        lambda: one.send("x", key="k"),
        lambda: one.stream("x").__anext__(),
    ]
    for use in uses:
        with pytest.raises(NotFound):
            await use()
    assert store.info(owner, "c") is None


async def test_a_wrong_argument_makes_no_branch(store: Store) -> None:
    one = talk(store, "Hi.")
    reply = await one.send("Hello!")
    with pytest.raises(TypeError):
        await one.edit(reply.entries[0].id, "Hi!", sytem="S")  # type: ignore[call-arg]
    with pytest.raises(InputError):
        await one.regenerate(max_rounds=-1)
    assert await one.branches() == ["main"]
