"""Conversations in a store. The sync twin of this file is generated."""

from __future__ import annotations

import gc
import json
import re
import time
import weakref
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longtalk import AsyncArchive, AsyncChat, AsyncConversation, tool
from longtalk.errors import (
    Busy,
    CorruptStore,
    InputError,
    KeyReused,
    Overloaded,
    RequestRefused,
    StoreError,
    StreamCut,
    TooManyRounds,
)
from longtalk.events import Done, Text, ToolResult
from longtalk.policies import KeepAll, KeepLast, TokenBudget
from longtalk.policies.base import fingerprint_policy
from longtalk.stores.base import BranchHead, Commit, Holder, PlacedRecord, Store
from longtalk.stores.in_memory import InMemory
from longtalk.stores.leases import identify_this_process
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, Step, says, validate
from longtalk.transcript.transcript import Record, Turn, now
from longtalk.wires import HTTP_WIRES, WIRES

pytestmark = pytest.mark.anyio

BOTH = says("Let me see.", calls=[("c1", "lookup", {"q": "bows"}), ("c2", "lookup", {"q": "strings"})])
STORY = says("Once upon a time", pieces=8)
GHOST = msgspec.structs.replace(identify_this_process(), pid=999_999_999)
ELSEWHERE = Holder("elsewhere", "b", 1, 1)


def lookup(q: str) -> str:
    """Look something up."""
    return f"about {q}"


def talk(store: Any, *steps: Any, id: str = "c", **settings: Any) -> AsyncConversation:  # noqa: A002
    provider = steps[0] if len(steps) == 1 and hasattr(steps[0], "wire") else AsyncScripted(*steps)
    return AsyncConversation(id, model=provider, store=store, **{"tools": [lookup], **settings})


def sent(provider: Any, i: int = -1) -> list[dict[str, Any]]:
    validate(provider.requests[i], wire=provider.wire.name)
    body = json.loads(provider.requests[i])
    messages: list[dict[str, Any]] = next(body[name] for name in ("messages", "input", "contents") if name in body)
    return messages


def roles(provider: Any, i: int = -1) -> list[str]:
    return [message["role"] for message in sent(provider, i)]


def head(store: Store, branch: str = "main") -> BranchHead:
    found = store.head("", "c", branch)
    assert found is not None
    return found


def texts(store: Store, branch: str = "main") -> list[str]:
    """What a branch says, role and text."""
    wire = WIRES["openai-chat"]
    pack = store.read("", "c", branch, 0, 1000)
    entries = [pack.entry(i) for i in range(len(pack))]
    return [f"{entry.role}: {wire.view(entry.native).text}" for entry in entries]


def turns(store: Store, branch: str = "main") -> list[Turn]:
    return [turn for _, turn in store.turns("", "c", branch, 0, 1000)]


def statuses(store: Store, branch: str = "main") -> list[str]:
    return [turn.status for turn in turns(store, branch)]


async def collect(stream: Any) -> list[Any]:
    return [event async for event in stream]


class Watched(AsyncScripted):
    """Does something while it is called."""

    def __init__(self, *steps: Step | BaseException, **settings: Any) -> None:
        super().__init__(*steps, **settings)
        self.then: Any = None

    async def send(self, body: bytes) -> bytes:
        if self.then is not None:
            await self.then()
        return await super().send(body)


class Wrapped:
    """A store that others can be told about."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.commits: list[Commit] = []
        self.read_entries = 0
        self.slow = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        time.sleep(self.slow)
        made: BranchHead = self.store.write(owner, conversation, commit)
        self.commits.append(commit)
        return made

    def read(self, *place: Any) -> Any:
        pack = self.store.read(*place)
        self.read_entries += len(pack)
        return pack


class Died(Exception):
    """The process is gone."""


class Dying(Wrapped):
    """A store that another process uses, which dies after this many writes."""

    def __init__(self, store: Any, writes: int, holder: Holder = GHOST) -> None:
        super().__init__(store)
        self.left = writes
        self.holder = holder

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        if not self.left:
            raise Died
        self.left -= 1
        if commit.lease is not None:
            commit = msgspec.structs.replace(commit, lease=msgspec.structs.replace(commit.lease, holder=self.holder))
        return super().write(owner, conversation, commit)


async def die(store: Store, writes: int, *steps: Any, holder: Holder = GHOST, **arguments: Any) -> None:
    """A turn of a process that ends in the middle of it."""
    tools = arguments.pop("tools", [lookup])
    with pytest.raises(Died):
        await talk(Dying(store, writes, holder), *steps, tools=tools).send("dying", **arguments)
    assert head(store).lease is not None
    assert statuses(store)[-1] == "running"


# Two phases


async def test_a_conversation_goes_on_where_it_was(store: Store) -> None:
    provider = AsyncScripted(says("a"), says("b"), says("c"))
    conversation = talk(store, provider)
    assert (await conversation.send("x")).text == "a"
    assert (await conversation.send("y")).text == "b"
    await talk(store, provider).send("z")
    assert [m["content"] for m in sent(provider)] == ["x", "a", "y", "b", "z"]
    assert texts(store) == ["user: x", "assistant: a", "user: y", "assistant: b", "user: z", "assistant: c"]
    assert statuses(store) == ["complete"] * 3


async def test_the_message_is_there_before_the_model_is_asked(store: Store) -> None:
    provider = Watched(says("a"))
    seen: list[Any] = []

    async def look() -> None:
        seen.extend((await talk(store).history(), statuses(store), head(store).lease))

    provider.then = look
    await talk(store, provider).send("x")
    said, status, lease = seen
    assert [(each.role, each.text) for each in said] == [("user", "x")]
    assert status == ["running"]
    assert lease.holder == identify_this_process()
    assert lease.until > now()
    assert (statuses(store), head(store).lease) == (["complete"], None)


async def test_each_result_is_there_as_it_arrives(store: Store) -> None:
    def wait() -> str:
        """Waits for the other result."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if "tool: about bows" in texts(store):
                return "seen"
            time.sleep(0.01)
        return "never"

    calls = [("c1", "lookup", {"q": "bows"}), ("c2", "wait", {})]
    events = await collect(talk(store, says(None, calls=calls), says("done"), tools=[lookup, wait]).stream("x"))
    assert [event.text for event in events if isinstance(event, ToolResult)] == ["about bows", "seen"]
    assert texts(store)[2:] == ["tool: about bows", "tool: seen", "assistant: done"]


async def test_the_calls_are_there_before_a_tool_runs(store: Store) -> None:
    seen = []

    def watch() -> str:
        """Looks."""
        seen.append(texts(store))
        return "seen"

    await talk(store, says("Hm.", calls=[("c1", "watch", {})]), says("ok"), tools=[watch]).send("x")
    assert seen == [["user: x", "assistant: Hm."]]


async def test_results_that_arrive_while_another_is_written_are_kept(store: Store) -> None:
    slow = Wrapped(store)
    slow.slow = 0.03
    calls = [(f"c{i}", "nap", {"i": i}) for i in range(4)]

    def nap(i: int) -> str:
        """Sleeps."""
        time.sleep(0.01 * i)
        return f"slept {i}"

    provider = AsyncScripted(says(None, calls=calls), says("done"))
    await talk(slow, provider, tools=[nap]).send("x")
    assert sorted(m["content"] for m in sent(provider) if m["role"] == "tool") == [f"slept {i}" for i in range(4)]
    assert sum(said.startswith("tool: slept") for said in texts(store)) == 4


async def test_answer_usage_records_and_head_come_together(store: Store) -> None:
    watched = Wrapped(store)
    await talk(watched, says("a")).send("x")
    first, last = watched.commits
    assert [entry.role for entry in first.entries] == ["user"]
    assert [entry.role for entry in last.entries] == ["assistant"]
    assert last.turn is not None
    assert last.turn.status == "complete"
    assert len(last.turn.usage) == 1
    assert [placed.record.kind for placed in last.records] == ["settings", "anchor"]
    assert last.lease is None
    assert [placed.record.kind for placed in head(store).records] == ["settings", "anchor"]


async def test_a_record_is_written_once(store: Store) -> None:
    watched = Wrapped(store)
    conversation = talk(watched, BOTH, says("done"), says("ok"), policy=KeepLast(1))
    await conversation.send("x", instruction="Be brief.")
    await conversation.send("y")
    records = [placed.record for commit in watched.commits for placed in commit.records]
    assert {record.kind for record in records} >= {"anchor", "aside", "epoch"}
    assert len(records) == len(set(records))


async def test_what_another_object_wrote_is_seen(store: Store) -> None:
    provider = AsyncScripted(*[says(f"a{i}") for i in range(4)])
    one, other = talk(store, provider), talk(store, provider)
    await one.send("1")
    await other.send("2")
    await one.send("3")
    await other.send("4")
    assert [m["content"] for m in sent(provider)] == ["1", "a0", "2", "a1", "3", "a2", "4"]
    assert [said.text for said in await one.history()] == ["1", "a0", "2", "a1", "3", "a2", "4", "a3"]


async def test_a_reply_of_a_stored_conversation_has_no_state(store: Store) -> None:
    reply = await talk(store, says("a")).send("x")
    assert not hasattr(reply, "state")
    assert not hasattr(reply, "shed")
    assert [entry.role for entry in reply.entries] == ["user", "assistant"]


async def test_owners_are_kept_apart(store: Store) -> None:
    provider = AsyncScripted(says("a"), says("b"))
    await talk(store, provider, owner="ann").send("x", key="k")
    await talk(store, provider, owner="ben").send("y", key="k")
    assert [m["content"] for m in sent(provider)] == ["y"]
    assert await talk(store, owner="cleo").history() == []
    assert [said.text for said in await talk(store, owner="ann").history()] == ["x", "a"]


@pytest.mark.parametrize("name", ["id", "owner", "branch"])
async def test_names_are_text(store: Store, name: str) -> None:
    with pytest.raises(InputError, match=name):
        talk(store, **{name: 3})  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [{"on_busy": "panic"}, {"key": ""}, {"key": 3}])
async def test_arguments_that_make_no_sense_are_refused(store: Store, arguments: Any) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        await talk(store, says("a")).send("x", **arguments)
    assert store.head("", "c") is None


async def test_a_message_that_is_no_json_is_refused_before_anything_happens(store: Store) -> None:
    with pytest.raises(InputError, match="JSON"):
        await talk(store, says("a")).send({"type": "text", "text": object()}, key="k")
    assert store.head("", "c") is None


async def test_without_a_store_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtalk._util.user_dirs.data", lambda: str(tmp_path / "longtalk"))
    await AsyncConversation("c", model=AsyncScripted(says("a"))).send("x")
    store = SQLite(tmp_path / "longtalk" / "conversations.db")
    assert texts(store) == ["user: x", "assistant: a"]
    store.close()


async def test_a_conversation_is_a_context_manager(store: Store) -> None:
    async with talk(store, says("a")) as conversation:
        await conversation.send("x")
    assert (conversation.id, conversation.owner, conversation.branch) == ("c", "", "main")


async def test_data_of_the_app_goes_with_the_message(store: Store) -> None:
    one = talk(store, says("a"))
    await one.send("x", meta={"lesson": 3})
    assert [said.meta for said in await one.history()] == [{"lesson": 3}, {}]
    await die(store, 2, BOTH)
    await talk(store, says("b")).send("y", meta={"lesson": 4})
    assert [said.text for said in await one.history(meta={"lesson": 4})] == ["y"]


# Failures


async def test_a_failed_call_leaves_the_message_and_the_next_turn_works(store: Store) -> None:
    provider = AsyncScripted(RequestRefused("no", status=400), says("b"))
    conversation = talk(store, provider)
    with pytest.raises(RequestRefused) as caught:
        await conversation.send("x")
    assert caught.value.partial is None
    assert statuses(store) == ["failed"]
    assert "no" in turns(store)[0].error
    assert texts(store) == ["user: x"]
    assert head(store).lease is None
    await conversation.send("y")
    assert [m["content"] for m in sent(provider)] == ["x", "y"]
    assert statuses(store) == ["failed", "complete"]


async def test_work_that_was_done_is_kept_and_carried_by_the_error(store: Store) -> None:
    conversation = talk(store, BOTH, says("x", calls=[("c3", "lookup", {"q": "more"})]))
    with pytest.raises(TooManyRounds) as caught:
        await conversation.send("x", max_rounds=1)
    assert caught.value.partial is not None
    assert caught.value.partial.finish_reason == "failed"
    assert sum(said.startswith("tool: about") for said in texts(store)) == 2
    assert statuses(store) == ["failed"]
    await conversation.verify()


async def test_a_stream_that_breaks_keeps_what_was_said(store: Store) -> None:
    cut = Step(b"", (*STORY.events[:4], Overloaded("gone")))
    conversation = talk(store, cut, says("b"))
    with pytest.raises(Overloaded) as caught:
        await collect(conversation.stream("x"))
    assert caught.value.partial is not None
    assert texts(store) == ["user: x", "assistant: Once u"]
    assert statuses(store) == ["failed"]
    with pytest.raises(StreamCut):
        await collect(talk(store, Step(b"", STORY.events[:4])).stream("y"))
    assert statuses(store) == ["failed", "failed"]


async def test_a_closed_stream_keeps_what_was_said_and_lets_go(store: Store) -> None:
    provider = AsyncScripted(STORY, says("b"))
    async with talk(store, provider).stream("x") as stream:
        async for event in stream:
            if isinstance(event, Text) and event.text == " u":
                break
        assert head(store).lease is not None
    assert stream.reply.text == "Once u"
    assert texts(store) == ["user: x", "assistant: Once u"]
    assert statuses(store) == ["interrupted"]
    assert head(store).lease is None
    await stream.aclose()
    await talk(store, provider).send("y")
    assert roles(provider) == ["user", "assistant", "user"]


async def test_a_closed_stream_has_let_go_of_the_connection(store: Store) -> None:
    class Open(AsyncScripted):
        closed = False

        async def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
            try:
                async for piece in super().stream(body):
                    yield piece
            finally:
                self.closed = True

    provider = Open(STORY)
    stream = talk(store, provider).stream("x")
    await anext(stream)
    assert not provider.closed
    await stream.aclose()
    assert provider.closed


async def test_a_stream_that_was_read_up_to_its_last_event_is_freed_without_garbage_collection() -> None:
    stream: Any = talk(InMemory(), STORY).stream("x")
    gc.disable()
    try:
        async for event in stream:
            if isinstance(event, Done):
                break
        dropped = weakref.ref(stream)
        del stream, event
        assert dropped() is None
    finally:
        gc.enable()


async def test_a_stream_that_was_never_looked_at_is_no_turn(store: Store) -> None:
    stream = talk(store, STORY).stream("x")
    with pytest.raises(InputError, match="not begun"):
        _ = stream.reply
    await stream.aclose()
    assert store.head("", "c") is None


@pytest.mark.parametrize("stop", range(20))
async def test_stopping_after_any_event_leaves_a_turn_that_is_ended(store: Store, stop: int) -> None:
    seen = 0
    conversation = talk(store, BOTH, says("done"), says("ok"))
    async with conversation.stream("x") as stream:
        async for _ in stream:
            if seen == stop:
                break
            seen += 1
    finish = {"stop": "complete", "interrupted": "interrupted"}[stream.reply.finish_reason]
    assert statuses(store) == [finish]
    assert finish == "interrupted" or texts(store)[-1] == "assistant: done"
    assert head(store).lease is None
    assert await conversation.branches() == ["main"]
    provider = AsyncScripted(says("ok"))
    await talk(store, provider).send("next")
    validate(provider.requests[0])
    await conversation.verify()


# One writer


async def test_a_second_turn_is_refused_while_one_runs(store: Store) -> None:
    provider, caught = Watched(says("a")), []

    async def intrude() -> None:
        with pytest.raises(Busy) as problem:
            await talk(store, says("never")).send("y")
        caught.append(problem.value)

    provider.then = intrude
    await talk(store, provider).send("x")
    assert now() < caught[0].until <= now() + 30_000
    assert texts(store) == ["user: x", "assistant: a"]


async def test_a_second_turn_is_refused_also_by_what_was_read_before(store: Store) -> None:
    other = talk(store, says("a"), says("never"))
    await other.send("x")
    provider = Watched(says("b"))

    async def intrude() -> None:
        for _ in range(2):
            with pytest.raises(Busy):
                await other.send("z")

    provider.then = intrude
    reply = await talk(store, provider).send("y")
    assert reply.notices == ()
    assert texts(store)[2:] == ["user: y", "assistant: b"]


async def test_a_second_store_on_the_same_file_sees_the_turn_too(tmp_path: Path) -> None:
    one, two = SQLite(tmp_path / "talks.db"), SQLite(tmp_path / "talks.db")
    provider = Watched(says("a"))

    async def intrude() -> None:
        with pytest.raises(Busy):
            await talk(two, says("never")).send("y")

    provider.then = intrude
    await talk(one, provider).send("x")
    assert texts(two) == ["user: x", "assistant: a"]
    one.close()
    two.close()


async def test_a_second_turn_can_wait(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = talk(store, STORY).stream("x")
    await anext(first)
    waited = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            await collect(first)

    monkeypatch.setattr("longtalk.branches.operations.sleep", sleep)
    provider = AsyncScripted(says("b"))
    await talk(store, provider).send("y", on_busy="wait")
    assert len(waited) == 2
    assert [m["content"] for m in sent(provider)] == ["x", "Once upon a time", "y"]
    assert statuses(store) == ["complete", "complete"]


async def test_a_second_turn_can_go_to_a_branch_of_its_own(store: Store) -> None:
    conversation = talk(store, says("a"), STORY, says("on"))
    await conversation.send("w")
    first = conversation.stream("x")
    await anext(first)
    provider = AsyncScripted(says("b"))
    reply = await talk(store, provider).send("y", on_busy="fork")
    # A message that is just being sent is not there yet.
    assert [m["content"] for m in sent(provider)] == ["w", "a", "y"]
    assert (await collect(first))[-1].reply.notices == ()
    _, name = await conversation.branches()
    assert [notice.kind for notice in reply.notices] == ["branched"]
    assert repr(name) in reply.notices[0].text
    assert texts(store) == ["user: w", "assistant: a", "user: x", "assistant: Once upon a time"]
    assert texts(store, name) == ["user: w", "assistant: a", "user: y", "assistant: b"]
    assert statuses(store) == statuses(store, name) == ["complete", "complete"]


async def test_a_late_answer_lands_on_a_branch_of_its_own(store: Store) -> None:
    provider = Watched(says("late"))

    async def take_over() -> None:
        store.renew("", "c", "main", head(store).token, now() - 1)
        await talk(store, says("b")).send("y")

    provider.then = take_over
    conversation = talk(store, provider)
    reply = await conversation.send("x")
    assert [notice.kind for notice in reply.notices] == ["fenced_out"]
    name = f"main~{reply.turn_id}"
    assert repr(name) in reply.notices[0].text
    assert texts(store) == ["user: x", "user: y", "assistant: b"]
    assert texts(store, name) == ["user: x", "assistant: late"]
    assert head(store, name).lease is None
    provider.then = None
    provider.add(says("d"))
    await conversation.send("z")
    assert [m["content"] for m in sent(provider)] == ["x", "y", "b", "z"]


async def test_late_results_land_there_too_and_the_turn_goes_on(store: Store) -> None:
    calls = [says(None, calls=[(f"c{i}", "lookup", {"q": f"{i}"})]) for i in range(2)]
    provider = AsyncScripted(*calls, says("late"))
    taken = False

    async def lookup(q: str) -> str:
        """Look something up, while another writer takes over."""
        nonlocal taken
        if not taken:
            taken = True
            store.renew("", "c", "main", head(store).token, now() - 1)
            await talk(store, says("b")).send("y")
        return f"about {q}"

    stream = talk(store, provider, tools=[lookup]).stream("x", key="k")
    async for _ in stream:
        pass
    name = f"main~{stream.reply.turn_id}"
    assert [notice.kind for notice in stream.reply.notices] == ["fenced_out"]
    assert [said.partition(":")[0] for said in texts(store, name)] == [
        *("user", "assistant", "tool", "assistant", "tool", "assistant")
    ]
    assert texts(store, name)[2] == "tool: about 0"
    assert "Outcome unknown" in texts(store)[2]
    assert texts(store)[3:] == ["user: y", "assistant: b"]
    assert roles(provider)[-2:] == ["assistant", "tool"]
    assert (await talk(store).send("x", key="k")).text == "late"


async def test_a_late_answer_after_a_rewind_is_not_lost(store: Store) -> None:
    provider = Watched(says("late"))
    first = talk(store, says("a"))
    await first.send("w")

    async def take_over() -> None:
        store.renew("", "c", "main", head(store).token, now() - 1)
        other = talk(store, says("b"))
        await other.rewind((await other.history())[1].id)
        await other.send("y")
        await other.note("one more")

    provider.then = take_over
    reply = await talk(store, provider).send("x")
    assert texts(store, f"main~{reply.turn_id}") == ["user: w", "assistant: a", "user: x", "assistant: late"]
    assert texts(store)[:4] == ["user: w", "assistant: a", "user: y", "assistant: b"]


async def test_a_late_failure_spoils_nothing(store: Store) -> None:
    provider = Watched(RequestRefused("no", status=400))

    async def take_over() -> None:
        store.renew("", "c", "main", head(store).token, now() - 1)
        await talk(store, says("b")).send("y")

    provider.then = take_over
    with pytest.raises(RequestRefused):
        await talk(store, provider).send("x")
    assert texts(store) == ["user: x", "user: y", "assistant: b"]
    assert statuses(store)[1] == "complete"
    assert all(branch.lease is None for branch in store.branches("", "c"))


async def test_a_late_answer_finds_a_name_also_when_its_own_is_taken(store: Store) -> None:
    provider = Watched(says("late"))

    async def take_over() -> None:
        store.renew("", "c", "main", head(store).token, now() - 1)
        store.write("", "c", Commit(branch=f"main~{turns(store)[0].id}", expect=0, source=("main", 1), at=now()))
        await talk(store, says("b")).send("y")

    provider.then = take_over
    reply = await talk(store, provider).send("x", key="k")
    name = next(branch for branch in await talk(store).branches() if branch.startswith(f"main~{reply.turn_id}-"))
    assert texts(store, name) == ["user: x", "assistant: late"]
    assert repr(name) in reply.notices[0].text
    assert (await talk(store).send("x", key="k")).text == "late"


# The dead


@pytest.mark.parametrize("writes", [1, 2, 3])
async def test_the_turn_of_a_dead_process_is_interrupted_at_once(store: Store, writes: int) -> None:
    await die(store, writes, BOTH)
    provider = AsyncScripted(says("b"))
    conversation = talk(store, provider)
    await conversation.send("y")
    assert roles(provider) == (["user", "user"] if writes == 1 else ["user", "assistant", "tool", "tool", "user"])
    unknown = [said for said in texts(store) if "Outcome unknown" in said]
    # Both results may have come with the third write.
    assert len(unknown) in {1: (0,), 2: (2,), 3: (0, 1)}[writes]
    assert statuses(store) == ["interrupted", "complete"]
    assert head(store).lease is None
    await conversation.verify()


async def test_an_interrupted_turn_continues_without_a_message_as_the_same_turn(store: Store) -> None:
    await die(store, 3, BOTH)
    provider = AsyncScripted(says("b"))
    reply = await talk(store, provider).send(None)
    assert roles(provider) == ["user", "assistant", "tool", "tool"]
    assert [turn.id for turn in turns(store)] == [reply.turn_id]
    assert statuses(store) == ["complete"]


@pytest.mark.parametrize("key", [None, "k"])
async def test_what_may_be_run_again_is_run_again(store: Store, key: str | None) -> None:
    ran = []

    @tool(idempotent=True)
    def again(q: str) -> str:
        """May be run again."""
        ran.append(q)
        return f"again {q}"

    calls = [("c1", "again", {"q": "a"}), ("c2", "lookup", {"q": "b"})]
    await die(store, 2, says(None, calls=calls), tools=[again, lookup])
    ran.clear()
    provider = AsyncScripted(says("b"), says("never"))
    conversation = talk(store, provider, tools=[again, lookup])
    await conversation.send("y", key=key)
    assert ran == ["a"]
    assert roles(provider) == ["user", "assistant", "tool", "tool", "user"]
    results = {m["tool_call_id"]: m["content"] for m in sent(provider) if m["role"] == "tool"}
    assert results["c1"] == "again a"
    assert "Outcome unknown" in results["c2"]
    assert statuses(store) == ["interrupted", "complete"]
    if key:
        assert (await conversation.send("y", key=key)).text == "b"
        assert len(provider.requests) == 1


async def test_a_process_on_another_host_is_waited_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await die(store, 1, says("never"), holder=ELSEWHERE)
    with pytest.raises(Busy) as caught:
        await talk(store, says("b")).send("y")
    lease = head(store).lease
    assert lease is not None
    assert caught.value.until == lease.until

    async def sleep(_: float) -> None:
        store.renew("", "c", "main", lease.token, now() - 1)

    monkeypatch.setattr("longtalk.branches.operations.sleep", sleep)
    await talk(store, says("b")).send("y", on_busy="wait")
    assert statuses(store) == ["interrupted", "complete"]


async def test_a_turn_that_was_dropped_without_an_end_holds_nothing(store: Store) -> None:
    with pytest.raises(Died):
        await talk(Dying(store, 1, identify_this_process()), says("never")).send("x")
    assert head(store).lease is not None
    await talk(store, says("b")).send("y")
    assert statuses(store) == ["interrupted", "complete"]


# Keys


async def test_a_key_never_makes_a_second_turn(store: Store) -> None:
    provider = AsyncScripted(BOTH, says("done"), says("more"))
    conversation = talk(store, provider)
    first = await conversation.send("x", key="k")
    await conversation.send("y")
    for each in (conversation, talk(store, provider)):
        reply = await each.send("x", key="k")
        assert (reply.turn_id, reply.text, reply.finish_reason) == (first.turn_id, "done", "stop")
        assert reply.raw_usage == first.raw_usage
        assert [entry.native for entry in reply.entries] == [entry.native for entry in first.entries]
        events = await collect(each.stream("x", key="k"))
        assert [type(event) for event in events] == [Text, Done]
        assert events[0].text == events[1].reply.text == "done"
    assert len(provider.requests) == 3
    assert not hasattr(reply, "state")


async def test_another_body_under_a_key_is_refused(store: Store) -> None:
    conversation = talk(store, says("a"))
    await conversation.send("x", key="k")
    with pytest.raises(KeyReused, match="'k'"):
        await conversation.send("y", key="k")
    assert texts(store) == ["user: x", "assistant: a"]


@pytest.mark.parametrize("guess", ["x", "y"])
async def test_after_a_redaction_a_key_gives_the_stored_reply_whatever_the_message_is(store: Store, guess: str) -> None:
    conversation = talk(store, says("a"))
    first = await conversation.send("x", key="k")
    await AsyncArchive(store).redact("c", first.entries[0].id)
    reply = await talk(store).send(guess, key="k")
    assert (reply.turn_id, reply.text) == (first.turn_id, "a")
    assert texts(store) == ["user: [redacted]", "assistant: a"]


async def test_a_key_whose_turn_runs_is_busy(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    other = talk(store, says("a"))
    await other.send("w")
    first = talk(store, STORY).stream("x", key="k")
    await anext(first)
    for on_busy in ("reject", "fork"):
        with pytest.raises(Busy):
            await other.send("x", key="k", on_busy=on_busy)  # type: ignore[arg-type]

    async def sleep(_: float) -> None:
        await collect(first)

    monkeypatch.setattr("longtalk.branches.operations.sleep", sleep)
    assert (await other.send("x", key="k", on_busy="wait")).text == "Once upon a time"
    assert await other.branches() == ["main"]


async def test_a_turn_that_failed_goes_on_under_its_key(store: Store) -> None:
    provider = AsyncScripted(BOTH, RequestRefused("no", status=400), says("done"))
    conversation = talk(store, provider)
    with pytest.raises(RequestRefused):
        await conversation.send("x", key="k")
    failed = turns(store)
    reply = await conversation.send("x", key="k")
    assert roles(provider) == ["user", "assistant", "tool", "tool"]
    assert [turn.id for turn in turns(store)] == [turn.id for turn in failed] == [reply.turn_id]
    assert (turns(store)[0].status, turns(store)[0].error) == ("complete", "")
    assert (await conversation.send("x", key="k")).text == "done"
    assert len(provider.requests) == 3


@pytest.mark.parametrize("writes", [1, 2, 3, 4])
async def test_a_turn_of_a_dead_process_goes_on_under_its_key(store: Store, writes: int) -> None:
    ran: list[str] = []

    def once(q: str) -> str:
        """Counts."""
        ran.append(q)
        return q

    calls = says(None, calls=[("c1", "once", {"q": "a"}), ("c2", "once", {"q": "b"})])
    await die(store, writes, calls, says("never"), key="k", tools=[once])
    ran.clear()
    provider = AsyncScripted(says("done"))
    await talk(store, provider, tools=[once]).send("dying", key="k")
    assert roles(provider) == ["user"] if writes == 1 else ["user", "assistant", "tool", "tool"]
    assert ran == []
    assert statuses(store) == ["complete"]


async def test_a_turn_that_others_left_behind_goes_on_beside_them(store: Store) -> None:
    await die(store, 1, says("never"), key="k")
    await talk(store, says("b")).send("y")
    provider = AsyncScripted(RequestRefused("no", status=400), says("done"))
    conversation = talk(store, provider)
    with pytest.raises(RequestRefused):
        await conversation.send("dying", key="k")
    reply = await conversation.send("dying", key="k")
    name = f"main~{reply.turn_id}"
    assert [notice.kind for notice in reply.notices] == ["branched"]
    assert await conversation.branches() == ["main", name]
    assert [m["content"] for m in sent(provider)] == ["dying"]
    assert texts(store, name) == ["user: dying", "assistant: done"]
    assert texts(store) == ["user: dying", "user: y", "assistant: b"]
    assert (await conversation.send("dying", key="k")).text == "done"
    assert len(provider.requests) == 2


async def test_a_turn_left_by_another_process_continues_after_a_note(store: Store) -> None:
    await die(store, 1, says("never"), key="k")
    conversation = talk(store, says("done"))
    await conversation.note("seen")
    await conversation.send("dying", key="k")
    for name in await conversation.branches():
        ids = [each.id for each in await talk(store, branch=name).history()]
        assert len(ids) == len(set(ids))
        await talk(store, branch=name).verify()


async def test_a_key_is_found_from_any_branch(store: Store) -> None:
    conversation = talk(store, says("a"), RequestRefused("no", status=400), says("done"))
    await conversation.send("x")
    branch = await conversation.fork(name="other")
    with pytest.raises(RequestRefused):
        await branch.send("y", key="k")
    reply = await conversation.send("y", key="k")
    assert texts(store, "other") == ["user: x", "assistant: a", "user: y", "assistant: done"]
    assert texts(store) == ["user: x", "assistant: a"]
    assert (await conversation.send("y", key="k")).turn_id == reply.turn_id


async def test_a_turn_without_a_message_has_a_key_too(store: Store) -> None:
    provider = AsyncScripted(says("a"), says("never"))
    conversation = talk(store, provider)
    await conversation.note("the bell rings")
    first = await conversation.send(None, key="k")
    assert (await conversation.send(None, key="k")).turn_id == first.turn_id
    assert len(provider.requests) == 1


class Blind(Wrapped):
    """Does not see a key at first, as if it were taken just then."""

    looks = 0

    def keyed_turn(self, *which: str) -> Any:
        self.looks += 1
        return self.store.keyed_turn(*which) if self.looks > 1 else None


@pytest.mark.parametrize("dead", [False, True])
async def test_a_key_that_is_taken_meanwhile_makes_no_second_turn(store: Store, dead: bool) -> None:
    conversation = talk(store, says("a"), says("done"))
    await conversation.send("w")
    first = await (await conversation.fork(name="other")).send("x", key="k")
    if dead:
        await die(store, 2, BOTH)
    provider = AsyncScripted(says("b"))
    late = talk(Blind(store), provider)
    reply = await late.send("x", key="k")
    assert (reply.turn_id, reply.text, provider.requests) == (first.turn_id, "done", [])
    assert head(store).lease is None
    assert statuses(store) == ["complete", *(["interrupted"] if dead else [])]
    assert "user: x" not in texts(store)
    await late.send("y")
    assert "x" not in [m["content"] for m in sent(provider)]
    assert texts(store)[-2:] == ["user: y", "assistant: b"]


async def test_an_answer_is_not_lost_to_a_key_that_is_taken_meanwhile(store: Store) -> None:
    conversation = talk(store, says("done"))
    await conversation.note("the bell rings")
    await (await conversation.fork(name="other")).send(None, key="k")
    assert (await talk(Blind(store), says("a")).send(None, key="k")).text == "a"
    assert texts(store)[-1] == "assistant: a"
    assert (await conversation.send(None, key="k")).text == "done"


# Notes


async def test_a_note_begins_a_conversation(store: Store) -> None:
    provider = AsyncScripted(says("a"))
    conversation = talk(store, provider)
    entry = await conversation.note("the bell rings", meta={"channel": "door"})
    assert [said.id for said in await conversation.history()] == [entry]
    await conversation.send("x")
    assert "the bell rings" in json.dumps(sent(provider)[0])
    assert len(await conversation.history()) == 3


async def test_a_note_waits_for_the_turn_that_runs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = talk(store, says("a"))
    await conversation.send("w")
    first = talk(store, STORY).stream("x")
    await anext(first)

    async def sleep(_: float) -> None:
        await collect(first)

    monkeypatch.setattr("longtalk.branches.operations.sleep", sleep)
    await conversation.note("seen")
    assert [said.role for said in await conversation.history()][:4] == ["user", "assistant"] * 2
    assert "seen" in (await conversation.history())[4].text
    assert statuses(store) == ["complete", "complete"]


async def test_a_note_closes_the_turn_of_a_dead_process(store: Store) -> None:
    await die(store, 2, BOTH)
    watched, provider = Wrapped(store), AsyncScripted(says("b"))
    conversation = talk(watched, provider)
    await conversation.note("seen", meta={"channel": "door"})
    assert statuses(store) == ["interrupted"]
    marked = [commit for commit in watched.commits if commit.entry_meta]
    assert [b"seen" in commit.entries[0].native for commit in marked] == [True]
    await conversation.send("y")
    assert roles(provider) == ["user", "assistant", "tool", "tool", "system", "user"]
    await conversation.verify()


@pytest.mark.parametrize("arguments", [{"text": " "}, {"text": 3}, {"text": "x", "source": ""}])
async def test_a_note_says_something(store: Store, arguments: Any) -> None:
    with pytest.raises(InputError, match="note"):
        await talk(store).note(**arguments)


# Branches


async def test_a_fork_goes_its_own_way(store: Store) -> None:
    conversation = talk(store, says("a"), says("b"), says("c"), says("d"))
    first = await conversation.send("x")
    await conversation.send("y")
    branch = await conversation.fork(first.turn_id, name="other")
    assert branch.branch == "other"
    await branch.send("z")
    await conversation.send("w")
    assert texts(store, "other") == ["user: x", "assistant: a", "user: z", "assistant: c"]
    assert texts(store) == [*("user: x", "assistant: a", "user: y", "assistant: b", "user: w", "assistant: d")]
    assert await conversation.branches() == ["main", "other"]
    with pytest.raises(InputError, match="'other' already exists"):
        await conversation.fork(name="other")


async def test_a_fork_has_what_another_object_wrote(store: Store) -> None:
    conversation = talk(store, says("a"))
    await conversation.send("x")
    await talk(store, says("b")).send("y")
    branch = await conversation.fork()
    assert [said.text for said in await branch.history()] == ["x", "a", "y", "b"]


async def test_nothing_can_not_be_forked(store: Store) -> None:
    with pytest.raises(InputError, match="nothing to fork"):
        await talk(store).fork()
    with pytest.raises(InputError, match="no entry or turn"):
        await talk(store).edit("e", "x")
    with pytest.raises(InputError, match="no user message"):
        await talk(store).regenerate()


async def test_a_message_is_edited_on_a_branch(store: Store) -> None:
    provider = AsyncScripted(says("a"), says("b"), says("c"), says("d"))
    conversation = talk(store, provider)
    await conversation.send("x")
    await conversation.send("y")
    branch, reply = await conversation.edit((await conversation.history())[2].id, "Y")
    assert reply.text == "c"
    assert [m["content"] for m in sent(provider)] == ["x", "a", "Y"]
    _, reply = await conversation.edit((await conversation.history())[0].id, "X")
    assert [m["content"] for m in sent(provider)] == ["X"]
    assert texts(store) == ["user: x", "assistant: a", "user: y", "assistant: b"]
    assert texts(store, branch.branch)[2:] == ["user: Y", "assistant: c"]


async def test_an_answer_is_made_again_on_a_branch(store: Store) -> None:
    provider = AsyncScripted(says("a"), BOTH, says("b"), says("c"), says("d"))
    conversation = talk(store, provider)
    first = await conversation.send("x")
    await conversation.send("y")
    await conversation.note("seen")
    branch, reply = await conversation.regenerate()
    assert [m["content"] for m in sent(provider)] == ["x", "a", "y"]
    assert [said.text for said in await branch.history()] == ["x", "a", "y", "c"]
    assert reply.text == "c"
    branch, reply = await conversation.regenerate(first.turn_id)
    assert [said.text for said in await branch.history()] == ["x", "d"]
    assert len(await conversation.history()) == 8


async def test_an_answer_that_was_cut_off_is_made_again_as_another_turn(store: Store) -> None:
    await die(store, 2, BOTH)
    branch, reply = await talk(store, says("b")).regenerate()
    assert texts(store, branch.branch) == ["user: dying", "assistant: b"]
    assert turns(store)[0].status == "interrupted"
    assert turns(store)[0].id != reply.turn_id


async def test_rewinding_keeps_what_came_after_on_a_branch(store: Store) -> None:
    provider = AsyncScripted(says("a"), says("b"), says("c"))
    conversation = talk(store, provider)
    first = await conversation.send("x")
    await conversation.send("y")
    kept = await conversation.rewind(first.turn_id)
    assert texts(store) == ["user: x", "assistant: a"]
    await conversation.send("z")
    assert [m["content"] for m in sent(provider)] == ["x", "a", "z"]
    assert texts(store, kept) == ["user: x", "assistant: a", "user: y", "assistant: b"]


async def test_rewinding_waits_for_the_turn_that_runs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = talk(store, says("a"))
    first = await conversation.send("w")
    running = talk(store, STORY).stream("x")
    await anext(running)

    async def sleep(_: float) -> None:
        await collect(running)

    monkeypatch.setattr("longtalk.branches.operations.sleep", sleep)
    kept = await conversation.rewind(first.turn_id)
    assert texts(store) == ["user: w", "assistant: a"]
    assert texts(store, kept) == ["user: w", "assistant: a", "user: x", "assistant: Once upon a time"]


async def test_rewinding_reads_the_branch_again_after_a_concurrent_commit(store: Store) -> None:
    class Faster(Wrapped):
        def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
            if not self.commits:
                self.commits.append(commit)
                self.store.write(owner, conversation, Commit(expect=commit.expect, at=now()))
            return super().write(owner, conversation, commit)

    conversation = talk(store, says("a"), says("b"))
    first = await conversation.send("x")
    await conversation.send("y")
    kept = await talk(Faster(store)).rewind(first.turn_id)
    assert texts(store) == ["user: x", "assistant: a"]
    assert texts(store, kept) == ["user: x", "assistant: a", "user: y", "assistant: b"]
    assert [head.branch for head in store.branches("", "c")] == ["main", kept]


async def test_rewinding_leaves_no_other_branch_if_a_record_is_added_in_between(store: Store) -> None:
    class Faster(Wrapped):
        did = False

        def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
            head = self.store.head(owner, conversation)
            if commit.cut is not None and head is not None and not self.did:
                # A summary that is finished meanwhile keeps the lease.
                self.did = True
                self.store.write(owner, conversation, Commit(expect=head.revision, lease=head.lease, at=now()))
            return super().write(owner, conversation, commit)

    conversation = talk(store, says("a"), says("b"))
    first = await conversation.send("x")
    await conversation.send("y")
    kept = await talk(Faster(store)).rewind(first.turn_id)
    assert texts(store, kept) == ["user: x", "assistant: a", "user: y", "assistant: b"]
    assert [head.branch for head in store.branches("", "c")] == ["main", kept]


async def test_names_of_branches_stay_short_when_branches_fork_again(store: Store) -> None:
    conversation = talk(store, says("a"))
    await conversation.send("x")
    for _ in range(3):
        conversation = await conversation.fork()
        assert re.fullmatch(r"main-[a-z0-9]{4}", conversation.branch)
    assert (await (await conversation.fork(name="trip-summer")).fork()).branch.startswith("trip-summer-")


async def test_history_tells_all_that_was_said(store: Store) -> None:
    conversation = talk(store, BOTH, says("done"))
    reply = await conversation.send("x")
    said = await conversation.history()
    assert [(each.role, each.turn) for each in said] == [
        (role, reply.turn_id) for role in ("user", "assistant", "tool", "tool", "assistant")
    ]
    assert [each.native for each in said] == [entry.native for entry in reply.entries]
    assert said[-1].text == "done"
    assert all(each.at for each in said)


@pytest.mark.parametrize(
    ("place", "native"),
    [
        (0, b"not json"),
        (1, b'{"role":"assistant","content":"I called nothing."}'),
        (2, b'{"role":"user","content":"between a call and its result"}'),
        (3, b'{"role":"tool","tool_call_id":"c9","content":"of another call"}'),
    ],
)
async def test_damage_is_found(store: Store, place: int, native: bytes) -> None:
    conversation = talk(store, BOTH, says("done"))
    await conversation.send("x")
    await conversation.verify()
    assert store.redact("", "c", (await conversation.history())[place].id, native)
    with pytest.raises(CorruptStore, match="damaged"):
        await talk(store).verify()


async def test_a_missing_entry_is_found(store: Store) -> None:
    class Holed(Wrapped):
        def read(self, owner: str, conversation: str, branch: str, start: int, stop: int) -> Any:
            return self.store.read(owner, conversation, branch, start + 1, stop)

    await talk(store, says("a")).send("x")
    with pytest.raises(CorruptStore, match="damaged"):
        await talk(Holed(store)).verify()


# Policies


@pytest.mark.parametrize("policy", [TokenBudget(300), KeepLast(3)], ids=["budget", "last"])
@pytest.mark.parametrize("wire", sorted(HTTP_WIRES))
@pytest.mark.parametrize("fresh", [True, False])
async def test_the_same_is_sent_as_by_a_chat_and_no_more_is_read(
    store: Store, policy: Any, wire: str, fresh: bool
) -> None:
    script = []
    for i in range(40):
        if i % 5 == 4:
            script.append(says("Hm.", calls=[(f"c{i}", "lookup", {"q": str(i)})], wire=wire))
        script.append(says(f"answer {i} " * 5, usage={}, wire=wire))
    ours, theirs = (AsyncScripted(*script, wire=WIRES[wire]) for _ in range(2))
    chat = AsyncChat(theirs, policy=policy, tools=[lookup])
    watched = Wrapped(store)
    conversation = talk(watched, ours, policy=policy)
    state, most = None, 0
    for i in range(40):
        state = (await chat.send(f"question {i}", state=state)).state
        watched.read_entries = 0
        if fresh:
            conversation = talk(watched, ours, policy=policy)
        await conversation.send(f"question {i}")
        most = max(most, watched.read_entries)
    assert ours.requests == theirs.requests
    validate(ours.requests[-1], wire=wire)
    assert len(sent(ours)) < 40
    assert most == 0 if not fresh else 0 < most < 40
    assert len(await conversation.history()) == 96
    await conversation.verify()


async def test_another_policy_begins_an_epoch_from_all_entries(store: Store) -> None:
    provider = AsyncScripted(*[says(f"answer {i}") for i in range(9)])
    for i in range(8):
        await talk(store, provider, policy=KeepLast(2)).send(f"question {i}")
    assert len(sent(provider)) < 9
    await talk(store, provider).send("all?")
    assert len(sent(provider)) == 17


async def test_a_conversation_over_the_wire_of_anthropic(store: Store) -> None:
    wire = "anthropic"
    calls = says("Hm.", calls=[("c1", "lookup", {"q": "a"}), ("c2", "lookup", {"q": "b"})], wire=wire)
    more = says("Hm.", calls=[("c3", "lookup", {"q": "a"}), ("c4", "lookup", {"q": "b"})], wire=wire)
    provider = AsyncScripted(calls, says("done", wire=wire), more, wire=WIRES[wire])
    await talk(store, provider).send("x", system="S")
    with pytest.raises(Died):
        await talk(Dying(store, 3), provider).send("y", system="S", key="k")
    provider.add(says("after all", wire=wire), says("z", wire=wire))
    conversation = talk(store, provider)
    assert (await conversation.send("y", system="S", key="k")).text == "after all"
    await conversation.send("z", system="S")
    for request in provider.requests:
        validate(request, wire=wire)
    assert statuses(store) == ["complete"] * 3
    await conversation.verify()
    assert (await conversation.send("y", key="k")).text == "after all"


@pytest.mark.parametrize("at", [1, 2])
async def test_a_note_behind_a_call_that_a_rewind_left_open_closes_it(store: Store, at: int) -> None:
    calls = [("c1", "lookup", {"q": "x"}), ("c2", "lookup", {"q": "y"})]
    provider = AsyncScripted(says("a", calls=calls), says("b"), says("c"))
    conversation = talk(store, provider, tools=[lookup])
    await conversation.send("x")
    await conversation.rewind((await conversation.history())[at].id)
    await conversation.note("the phone rang")
    await conversation.send("y")
    validate(provider.requests[-1])
    await conversation.verify()


@pytest.mark.parametrize(
    "epoch",
    [
        {"raw": 0, "current": 4, "pinned": [[0, 4], [0, 4]]},
        {"raw": 4, "current": 4, "pinned": [[-4, 2]]},
        {"raw": 4, "current": 4, "pinned": [[0, 10**12]]},
        {"raw": 2, "current": 4, "pinned": []},
        {"raw": 4, "current": 4, "pinned": [[2, 4]]},
        {"raw": 500, "current": 500, "pinned": []},
        {"raw": 8, "current": 8, "pinned": []},
    ],
)
async def test_an_epoch_that_is_not_true_takes_nothing_apart(store: Store, epoch: dict[str, Any]) -> None:
    steps = [step for i in range(2) for step in (says("a", calls=[(f"c{i}", "lookup", {"q": "x"})]), says("b"))]
    provider = AsyncScripted(*steps, says("c"))
    conversation = talk(store, provider, tools=[lookup])
    await conversation.send("x")
    await conversation.send("y")
    runs = [{"first": 0, "last": 7, "verdict": "sent", "reason": "kept"}]
    data = json.dumps({"policy": fingerprint_policy(KeepAll()), "start": 8, "runs": runs, **epoch}).encode()
    last = head(store)
    record = PlacedRecord(Record("epoch", last.entry or "", 1, data), 7)
    store.write("", "c", Commit(expect=last.revision, records=(record,), at=1))
    await talk(store, provider, tools=[lookup]).send("z")
    validate(provider.requests[-1])
    assert len(texts(store)) == 10


@pytest.mark.parametrize("at", [0, 1, 2])
async def test_the_same_key_gives_the_whole_reply_also_after_a_rewind_into_its_turn(store: Store, at: int) -> None:
    provider = AsyncScripted(says("a", calls=[("c1", "lookup", {"q": "x"})]), says("b"))
    conversation = talk(store, provider, tools=[lookup])
    first = await conversation.send("x", key="k")
    await conversation.rewind((await conversation.history())[at].id)
    again = await conversation.send("x", key="k")
    assert (again.turn_id, again.text) == (first.turn_id, "b")


async def test_a_branch_without_a_name_gets_one_that_is_free(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = AsyncConversation("c", model=AsyncScripted(says("Hello!")), store=store)
    await talk.send("Hello")
    names = iter(["aaaaaabbbbbb", "aaaaaacccccc", "ddddddeeeeee"])
    monkeypatch.setattr("longtalk.branches.operations.new_id", lambda: next(names))
    assert [(await talk.fork()).branch, (await talk.fork()).branch] == ["main-aaa3", "main-ddd6"]


class Away(InMemory):
    """Takes one commit, and is away from then on."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        self.tries += 1
        if self.tries > 1:
            raise StoreError("away")
        return super().write(owner, conversation, commit)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_store_that_is_away_is_asked_for_the_answer_and_for_the_end_and_no_more(streamed: bool) -> None:
    store = Away()
    one = talk(store, says("One."))
    with pytest.raises(StoreError, match="away"):
        if streamed:
            async with one.stream("a") as stream:
                async for _ in stream:
                    pass
        else:
            await one.send("a")
    assert store.tries == 3
