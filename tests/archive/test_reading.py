"""Reading a stored conversation by page, by turn and by topic. The sync twin of this file is generated."""

from __future__ import annotations

import pytest

from longtalk import AsyncArchive, AsyncConversation, KeepLast
from longtalk.archive.tree import find_last_branch
from longtalk.errors import NotFound
from longtalk.stores.base import Commit
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, says
from longtalk.tools import external_tool
from longtalk.transcript.transcript import now

pytestmark = pytest.mark.anyio


async def test_a_history_is_read_by_page_without_cutting_turns() -> None:
    store = InMemory()
    talk = AsyncConversation("a", model=AsyncScripted(*[says(f"{i}.") for i in range(5)]), store=store)
    for i in range(5):
        await talk.send(f"{i}?")
    archive = AsyncArchive(store)
    last = await archive.history("a", limit=3)
    assert [(each.position, each.text) for each in last] == [(6, "3?"), (7, "3."), (8, "4?"), (9, "4.")]
    assert last[1].model
    before = await archive.history("a", limit=100, before=last[0].position)
    assert [each.text for each in before] == ["0?", "0.", "1?", "1.", "2?", "2."]
    assert await archive.history("a", limit=1, before=0) == []


async def test_the_next_page_of_conversations_needs_only_the_time_and_id_of_the_last() -> None:
    store = InMemory()
    for i in range(3):
        store.write("", f"{i}", Commit(expect=0, at=1000 + i))
    archive = AsyncArchive(store)
    assert [each.id for each in await archive.conversations(after=(1002, "2"))] == ["1", "0"]


async def test_a_turn_is_found_on_any_branch_with_its_entries_and_cost() -> None:
    tool = external_tool("look", "Look it up.", {"type": "object", "properties": {}})
    provider = AsyncScripted(says("One."), says(calls=[("c1", "look", {})]), says("Two."))
    talk = AsyncConversation("a", model=provider, store=InMemory())
    first = await talk.send("1")
    second = await talk.send("2", tools=[tool])
    fork = await talk.fork(first.turn_id)
    third = await fork.send("3")
    archive = talk._archive
    found = await archive.turn("a", second.turn_id)
    assert [each.role for each in found.entries] == ["user", "assistant"]
    assert [(call.id, call.name) for call in found.calls] == [("c1", "look")]
    assert (found.branch, found.status, found.usage.input) == ("main", "complete", 10)
    other = await archive.turn("a", third.turn_id)
    assert (other.branch, other.entries[-1].text, other.entries[0].position) == (fork.branch, "Two.", 2)
    assert (await archive.turn("a", first.turn_id, branch=fork.branch)).branch == fork.branch
    with pytest.raises(NotFound, match="Turn 'x'"):
        await archive.turn("a", "x")


async def test_a_turn_whose_process_has_died_reads_as_interrupted() -> None:
    store = InMemory()
    talk = AsyncConversation("a", model=AsyncScripted(says("One.")), store=store)
    stream = talk.stream("1")
    await anext(stream)
    turn = stream.reply.turn_id
    assert (await AsyncArchive(store).turn("a", turn)).status == "running"
    head = store.head("", "a")
    assert head is not None
    store.write("", "a", Commit(expect=head.revision, at=now()))
    assert (await AsyncArchive(store).turn("a", turn)).status == "interrupted"
    await stream.aclose()


async def test_topics_begin_at_positions_of_their_entries() -> None:
    talk = AsyncConversation("a", model=AsyncScripted(), store=InMemory())
    music = "The violin bow needs rosin before every lesson"
    money = "Invoice taxes accountant spreadsheet quarterly deadline"
    await talk.append([{"role": "user", "content": text} for text in (music, f"{music} again", money, f"{money} too")])
    found = await talk._archive.topics("a")
    assert [(topic.first, topic.count) for topic in found] == [(0, 2), (2, 2)]
    assert "violin" in " ".join(found[0].words)


async def test_epochs_say_what_became_of_older_exchanges() -> None:
    answers = [says(f"{i}.") for i in range(4)]
    talk = AsyncConversation("a", model=AsyncScripted(*answers), store=InMemory(), policy=KeepLast(1))
    for i in range(4):
        await talk.send(f"{i}")
    found = await talk._archive.epochs("a")
    assert found
    assert found[-1].runs[0].verdict == "left_out"


async def test_the_tree_says_where_each_branch_forks() -> None:
    talk = AsyncConversation("a", model=AsyncScripted(*[says(f"{i}.") for i in range(5)]), store=InMemory())
    first = await talk.send("1")
    await talk.send("2")
    fork = await talk.fork(first.turn_id, name="fork")
    third = await fork.send("3")
    await fork.send("4")
    await (await fork.fork(third.turn_id, name="twig")).send("5")
    found = await talk._archive.tree("a")
    assert [(each.head.branch, each.source, each.shared, each.head.size) for each in found] == [
        ("main", None, 0, 4),
        ("fork", "main", 2, 6),
        ("twig", "fork", 4, 6),
    ]


def test_a_conversation_without_branches_has_no_last_branch() -> None:
    with pytest.raises(NotFound, match="was deleted"):
        find_last_branch([])
