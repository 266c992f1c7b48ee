"""What is kept beside what was said: the app's own data, pins, manifests. The sync twin of this file is generated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longtalk import AsyncArchive, AsyncConversation
from longtalk.errors import Busy, InputError, PinRefused, RequestRefused
from longtalk.policies import Compactor, DigestTools, DropOldest, KeepLast, OverExchanges
from longtalk.stores.base import Commit, PlacedRecord, Store
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, says, validate
from longtalk.transcript.transcript import Entry, Record, Turn, link_entries

pytestmark = pytest.mark.anyio

CALL = says("Let me see.", calls=[("c1", "lookup", {"q": "bows"})])


def lookup(q: str) -> str:
    """Look something up."""
    return f"about {q}"


def talk(store: Store, *steps: Any, **settings: Any) -> AsyncConversation:
    settings = {"tools": [lookup], **settings}
    return AsyncConversation("c", model=AsyncScripted(*(steps or [says("a")] * 20)), store=store, **settings)


def sent(one: AsyncConversation) -> str:
    """The last request, which has to be valid."""
    body: bytes = one._engine.provider.requests[-1]  # type: ignore[attr-defined]
    validate(body)
    return body.decode()


# The app's own data


async def test_a_conversation_without_entries_can_be_described(store: Store) -> None:
    one = talk(store)
    assert await one.meta() == {}
    await one.set_metadata({"title": "Bows"})
    assert (await one.meta(), await one.history()) == ({"title": "Bows"}, [])
    await one.send("x")
    assert (await one.meta(), len(await one.history())) == ({"title": "Bows"}, 2)


async def test_describing_replaces_what_was_there(store: Store) -> None:
    one = talk(store)
    await one.send("x")
    await one.set_metadata({"title": "Bows"})
    await one.set_metadata({"lesson": 7})
    assert await one.meta() == {"lesson": 7}


async def test_describing_does_not_disturb_a_turn(store: Store) -> None:
    one, other = talk(store), talk(store)
    await one.send("x")
    await other.set_metadata({"title": "Bows"})
    await one.send("y")
    assert (await one.branches(), len(await one.history())) == (["main"], 4)


async def test_an_entry_can_be_described_later(store: Store) -> None:
    one = talk(store)
    reply = await one.send("x", meta={"lesson": 3})
    await one.set_metadata({"liked": True}, entry=reply.entries[-1].id)
    assert [said.meta for said in await one.history()] == [{"lesson": 3}, {"liked": True}]
    with pytest.raises(InputError, match="Entry 'nowhere' of conversation 'c' not found"):
        await one.set_metadata({}, entry="nowhere")


async def test_entries_are_found_by_the_apps_own_data(store: Store) -> None:
    one = talk(store)
    for lesson in (1, 2, 1):
        await one.send(f"lesson {lesson}", meta={"lesson": lesson, "tags": ["a"]})
    await one.note("tuned", meta={"lesson": True})
    assert [said.text for said in await one.history(meta={"lesson": 1, "tags": ["a"]})] == ["lesson 1", "lesson 1"]
    assert [said.text for said in await one.history(meta={"lesson": True})] == ["tuned"]
    assert await one.history(meta={"other": 1}) == []


async def test_data_of_the_app_is_never_sent(store: Store) -> None:
    one = talk(store)
    await one.set_metadata({"secret": "alpha"})
    await one.send("x", meta={"secret": "beta"})
    await one.send("y")
    assert "alpha" not in sent(one)
    assert "beta" not in sent(one)


# Pins


async def test_what_is_pinned_stays_although_the_policy_leaves_it_out(store: Store) -> None:
    one = talk(store, policy=KeepLast(4))
    first = await one.send("remember the bow")
    for i in range(5):
        await one.send(f"{i}")
    assert "remember the bow" not in sent(one)
    await one.pin(first.turn_id)
    assert await one.pins() == [first.entries[0].id]
    for i in range(4):
        await one.send(f"again {i}")
        assert "remember the bow" in sent(one)
    other = talk(store, policy=KeepLast(4))
    await other.send("another process")
    assert "remember the bow" in sent(other)


async def test_what_is_unpinned_goes(store: Store) -> None:
    one = talk(store, policy=KeepLast(4))
    first = await one.send("remember the bow")
    await one.pin(first.entries[1].id)
    await one.unpin(first.turn_id)
    assert await one.pins() == []
    for i in range(5):
        await one.send(f"{i}")
    assert "remember the bow" not in sent(one)
    with pytest.raises(InputError, match="is not pinned"):
        await one.unpin(first.turn_id)


async def test_what_leaves_no_room_is_not_pinned(store: Store) -> None:
    one = talk(store, policy=KeepLast(4))
    replies = [await one.send(f"{i}") for i in range(4)]
    await one.pin(replies[0].turn_id)
    with pytest.raises(PinRefused):
        await one.pin(replies[1].turn_id)
    with pytest.raises(InputError, match="No entry or turn 'nowhere'"):
        await one.pin("nowhere")
    assert await one.pins() == [replies[0].entries[0].id]


async def test_a_fork_has_the_pins_of_where_it_began(store: Store) -> None:
    one = talk(store, policy=KeepLast(4))
    first = await one.send("remember the bow")
    await one.pin(first.turn_id)
    await one.send("x")
    branch = await one.fork()
    await branch.send("y")
    await branch.unpin(first.turn_id)
    assert (await one.pins(), await branch.pins()) == ([first.entries[0].id], [])


async def test_a_turn_that_another_object_has_written_since_can_be_marked(store: Store) -> None:
    one, other = talk(store, policy=KeepLast(4)), talk(store, policy=KeepLast(4))
    await one.send("x")
    pinned = await other.send("remember the bow")
    await one.pin(pinned.turn_id)
    excluded = await other.send("forget the bow")
    await one.exclude(excluded.turn_id)
    assert await other.pins() == [pinned.entries[0].id]
    assert await other.excluded() == [excluded.entries[0].id]


# Exclusions


async def test_what_is_excluded_is_in_the_history_and_in_no_request_until_it_is_included(store: Store) -> None:
    one = talk(store)
    first = await one.send("forget the bow")
    await one.send("x")
    await one.exclude(first.entries[1].id)
    assert await one.excluded() == [first.entries[1].id]
    reply = await one.send("y")
    assert "forget the bow" not in sent(one)
    assert [run.reason for run in await one.manifest(reply.turn_id)] == ["excluded", "kept"]
    assert (await one.history())[0].text == "forget the bow"
    other = talk(store)
    await other.send("another process")
    assert "forget the bow" not in sent(other)
    await other.include(first.turn_id)
    assert await one.excluded() == []
    for each in (other, talk(store), one):
        await each.send("again")
        assert "forget the bow" in sent(each)


async def test_what_the_policy_has_left_out_comes_back_when_it_is_included(store: Store) -> None:
    one = talk(store, policy=KeepLast(4))
    first = await one.send("forget the bow")
    await one.exclude(first.turn_id)
    for i in range(4):
        await one.send(f"{i}")
    await one.include(first.turn_id)
    await talk(store, policy=KeepLast(9)).send("another policy")
    one = talk(store, policy=KeepLast(9))
    await one.send("once more")
    assert "forget the bow" in sent(one)


async def test_the_last_exchange_can_be_excluded_while_older_ones_stay_in_the_store(store: Store) -> None:
    one = talk(store, policy=KeepLast(4))
    for i in range(6):
        last = await one.send(f"word {i}")
    await one.exclude(last.turn_id)
    await one.send("go on")
    assert "word 5" not in sent(one)
    assert "word 4" in sent(one)


async def test_an_excluded_exchange_without_an_answer_does_not_go_on(store: Store) -> None:
    model = AsyncScripted(says("Hm."), RequestRefused("no", status=400), says("Yes."), says("Well."))
    one = AsyncConversation("c", model=model, store=store)
    await one.send("one")
    with pytest.raises(RequestRefused):
        await one.send("two")
    turn = (await one.history())[-1].turn
    await one.exclude(turn)
    with pytest.raises(InputError, match="is excluded"):
        await one.resume()
    await one.send("three")
    assert b"two" not in model.requests[-1]
    await one.rewind(turn)
    await one.include(turn)
    assert (await one.resume()).text == "Well."


async def test_a_running_turn_can_t_be_excluded(store: Store) -> None:
    async def meddle(q: str) -> str:
        """Exclude this turn."""
        turn = (await talk(store).history())[-1].turn
        with pytest.raises(Busy):
            await one.exclude(turn)
        return q

    one = talk(store, says(None, calls=[("c1", "meddle", {"q": "x"})]), says("done"), tools=[meddle])
    assert (await one.send("go")).text == "done"
    assert await one.excluded() == []


async def test_what_is_pinned_or_excluded_on_one_branch_changes_nothing_on_another(store: Store) -> None:
    one = AsyncConversation("c", model=AsyncScripted(*[says("Hm.")] * 9), store=store)
    replies = [await one.send(text) for text in ("one", "two", "three")]
    await one.exclude(replies[0].turn_id)
    await one.pin(replies[2].turn_id)
    # The last entry that both branches have is also the last one of this branch, where its next marks are attached.
    kept = await one.rewind(replies[1].turn_id)
    await one.exclude(replies[1].turn_id)
    await one.pin(replies[0].turn_id)
    other = AsyncConversation("c", model=AsyncScripted(), store=store, branch=kept)
    assert await other.excluded() == [replies[0].entries[0].id]
    assert await other.pins() == [replies[2].entries[0].id]
    beside = await one.fork()
    await beside.include(replies[1].turn_id)
    assert (await one.excluded(), await beside.excluded()) == ([replies[1].entries[0].id], [])


async def test_a_fork_has_the_exclusions_of_where_it_began(store: Store) -> None:
    one = talk(store)
    first = await one.send("forget the bow")
    await one.exclude(first.turn_id)
    await one.send("x")
    branch = await one.fork()
    await branch.send("y")
    assert "forget the bow" not in sent(branch)
    await branch.include(first.turn_id)
    assert (await one.excluded(), await branch.excluded()) == ([first.entries[0].id], [])


# Manifests


async def test_what_a_turn_has_sent_is_kept_with_it(store: Store) -> None:
    one = talk(store, policy=KeepLast(2))
    replies = [await one.send(f"{i}") for i in range(5)]
    for reply in replies:
        assert reply.context is not None
        assert await one.manifest(reply.turn_id) == reply.context.manifest
    assert {run.verdict for run in await one.manifest(replies[-1].turn_id)} == {"sent", "left_out"}
    assert await one.manifest("nowhere") == ()


async def test_what_stays_in_the_store_has_its_length_in_the_manifest(store: Store) -> None:
    one = talk(store, policy=KeepLast(2))
    for i in range(8):
        reply = await one.send(f"{i} " * 100)
    assert reply.context is not None
    left = [run for run in reply.context.manifest if run.verdict == "left_out"]
    total = sum(entry.tokens for entry in entries(store)[: left[-1].last + 1])
    assert sum(run.tokens for run in left) == total > 0


def entries(store: Store) -> list[Any]:
    pack = store.read("", "c", "main", 0, 1000)
    return [pack.entry(i) for i in range(len(pack))]


async def test_a_long_manifest_names_its_epoch(store: Store) -> None:
    policy = Compactor(OverExchanges(12), (DigestTools(), DropOldest()), OverExchanges(11))
    one = talk(store, *[CALL, says("a")] * 40, policy=policy)
    replies = [await one.send(f"{i}") for i in range(30)]
    for reply in replies:
        assert reply.context is not None
        assert await one.manifest(reply.turn_id) == reply.context.manifest
    lengths = [len(store.manifest("", "c", reply.turn_id)) for reply in replies]
    assert min(lengths[15:]) < 400


# What a key means when the branch has changed


async def test_a_turn_that_was_rewound_is_still_replayed(store: Store) -> None:
    one = talk(store, says("first"), says("second"), says("third"))
    await one.send("x")
    second = await one.send("y", key="k")
    kept = await one.rewind((await one.history())[1].id)
    again = await one.send("y", key="k")
    assert (again.text, again.turn_id) == ("second", second.turn_id)
    await one.send("z")
    assert (await one.send("y", key="k")).text == "second"
    assert [said.text for said in await one.history()] == ["x", "first", "z", "third"]
    assert sorted(await one.branches()) == sorted(["main", kept])


async def test_an_instruction_that_had_to_stay_is_not_read_again_in_the_next_epoch(tmp_path: Path) -> None:
    store = SQLite(tmp_path / "talks.db")
    one = talk(store, *[CALL, says("a")] * 40, policy=KeepLast(3))
    for i in range(20):
        await one.send(f"{i}", instruction=f"It is {i} o'clock.")
    head = store.head("", "c")
    assert head is not None
    assert 0 < sum(placed.record.kind == "aside" for placed in head.records) <= 4
    store.close()


# Mistakes of the caller


@pytest.mark.parametrize("meta", [None, "x", [1], 5, {1: 2}, {"x": object()}, {"x": float("nan")}])
async def test_data_that_is_none_is_refused(store: Store, meta: Any) -> None:
    one = talk(store)
    reply = await one.send("x")
    with pytest.raises(InputError, match="Metadata must be"):
        await one.set_metadata(meta)
    with pytest.raises(InputError, match="Metadata must be"):
        await one.set_metadata(meta, entry=reply.entries[0].id)
    if meta is not None:
        with pytest.raises(InputError, match="Metadata must be"):
            await one.send("y", meta=meta)
        with pytest.raises(InputError, match="Metadata must be"):
            await one.note("z", meta=meta)
    assert (await one.meta(), len(await one.history())) == ({}, 2)
    await one.send("y")


async def test_a_branch_that_is_not_there_is_no_new_one(store: Store) -> None:
    await talk(store).send("x")
    other = talk(store, branch="zz")
    for work in (
        lambda: other.send("y"),
        lambda: other.note("y"),
        lambda: other.history(),
        lambda: other.set_metadata({}),
    ):
        with pytest.raises(InputError, match="has no branch 'zz'"):
            await work()
    assert await talk(store).branches() == ["main"]


async def test_a_tool_that_waits_for_its_own_turn_is_told(store: Store) -> None:
    told: list[str] = []

    async def jot(q: str) -> str:
        """Jot something down."""
        for work in (lambda: one.note(q), lambda: one.rewind(first), lambda: one.send(q, on_busy="wait")):
            with pytest.raises(Busy, match="A tool can't wait for the turn that runs it") as caught:
                await work()
            told.append(str(caught.value))
        return "done"

    call = says(None, calls=[("c1", "jot", {"q": "bows"})])
    one = talk(store, says("a"), call, says("b"), tools=[jot])
    first = (await one.send("w")).entries[0].id
    reply = await one.send("x")
    assert (reply.text, len(told)) == ("b", 3)
    await one.note("afterwards")
    assert [said.text for said in await one.history()][-2:] == ["b", "afterwards"]


async def test_a_redaction_beside_a_turn_does_not_end_it(store: Store) -> None:
    async def forget(q: str) -> str:
        """Forget something."""
        await AsyncArchive(store).redact("c", q)
        return "done"

    one = talk(store, says("a"), tools=[forget])
    first = (await one.send("my secret")).entries[0].id
    call = says(None, calls=[("c1", "forget", {"q": first})])
    one = talk(store, call, says("b"), says("c"), tools=[forget])
    reply = await one.send("x")
    assert (reply.text, reply.notices) == ("b", ())
    assert await one.branches() == ["main"]
    await one.send("y")
    assert "secret" not in sent(one)
    assert {said.status for said in await one.history()} == {"complete"}


async def test_pinning_twice_is_pinning_once(store: Store) -> None:
    one = talk(store)
    reply = await one.send("x")
    await one.pin(reply.turn_id)
    await one.pin(reply.turn_id)
    assert await one.pins() == [reply.entries[0].id]


async def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(InputError, match="store such as SQLite"):
        AsyncConversation("c", model=AsyncScripted(), store="talks.db")  # type: ignore[arg-type]


async def test_a_conversation_says_what_it_is(store: Store) -> None:
    assert repr(talk(store, owner="ada")).endswith("Conversation 'c' of 'ada' on 'main', with scripted:model>")
    assert "Archive of 'ada' in " in repr(AsyncArchive(store, owner="ada"))
    assert repr(store).startswith(type(store).__name__)


async def test_a_turn_of_many_calls_is_replayed_whole(store: Store) -> None:
    calls = [says(None, calls=[(f"c{i}", "lookup", {"q": f"{i}"})]) for i in range(40)]
    one = talk(store, *calls, says("done"), says("later"))
    first = await one.send("x", key="k", max_rounds=50)
    await one.send("y")
    again = await one.send("x", key="k")
    assert (again.text, len(again.entries)) == ("done", 82)
    assert [entry.native for entry in again.entries] == [entry.native for entry in first.entries]


async def test_an_epoch_that_cannot_be_read_does_not_hide_a_manifest(store: Store) -> None:
    one = talk(store, policy=KeepLast(2))
    replies = [await one.send(f"{i}") for i in range(5)]
    head = store.head("", "c")
    assert head is not None
    record = PlacedRecord(Record("epoch", head.entry or "", 1, b"[]"), head.size - 1)
    store.write("", "c", Commit(expect=head.revision, records=(record,), at=1))
    assert replies[-1].context is not None
    assert await one.manifest(replies[-1].turn_id) == replies[-1].context.manifest


async def test_a_stored_message_of_an_unknown_wire_is_named(store: Store) -> None:
    entry = Entry(role="user", wire="telegraph", native=b'{"text":"stop"}', at=1)
    turn = Turn("t", "complete", "m", 1)
    store.write("", "c", Commit(expect=0, entries=link_entries(None, "t", 0, [entry]), turn=turn, at=1))
    with pytest.raises(InputError, match="unknown wire 'telegraph'"):
        await talk(store).send("x")
