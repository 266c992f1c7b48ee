"""Summaries that are made in the background, after an answer. The sync twin of this file is generated."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longtalk import AsyncConversation, Economy, Summarize
from longtalk._util import json_bytes
from longtalk._util.concurrency import sleep
from longtalk.archive.archive import AsyncArchive
from longtalk.context.costs import CostReceipt
from longtalk.context.epochs import Anchor, Epoch
from longtalk.events import Done
from longtalk.stores.base import Commit, Holder, PlacedRecord, Store
from longtalk.stores.in_memory import InMemory
from longtalk.stores.leases import identify_this_process
from longtalk.testing import says
from longtalk.transcript.transcript import Record, now
from longtalk.turn.summary_claims import SummaryClaim
from longtalk.wires import HTTP_WIRES, WIRES
from tests.support.summary_model import (
    HANGS,
    SUMMARY_TEXT,
    WORDS,
    AsyncGate,
    AsyncSummaryModel,
    anyio_backend,  # noqa: F401
    has_summary,
    list_notice_kinds,
    list_texts,
    read_record,
)

pytestmark = pytest.mark.anyio

LATER = Summarize(2_000, length=200, background=True)
QUICK = Summarize(2_000, length=200, background=True, timeout=0.05)
OTHER = "Ada has found another violin, of 1901, in the shop of Mr Ferri, and asks what it is worth."


def open_talk(store: Any, teller: Any, policy: Any = LATER, **more: Any) -> AsyncConversation:
    return AsyncConversation("c", model=teller, store=store, policy=policy, **more)


async def say(talk: Any, number: int = 0) -> Any:
    return await talk.send(f"{number}: {WORDS * 5}")


async def until_asked(talk: Any, gate: Any, *, turns: int = 0) -> list[Any]:
    """Turns up to the one after which a summary is being made."""
    asked = read_record(talk._stored.store, talk.branch, kind="attempt", of=SummaryClaim) if turns else None
    replies = []
    for number in range(turns, turns + 50):
        replies.append(await say(talk, number))
        attempt = read_record(talk._stored.store, talk.branch, kind="attempt", of=SummaryClaim)
        if attempt is not None and attempt != asked and attempt.until:
            await gate.reached()
            return replies
    raise AssertionError("no summary was asked for")


async def settle(talk: Any) -> None:
    """Until nothing goes on any more."""
    await talk._jobs.wait()


def said(store: Store, branch: str = "main") -> list[str]:
    pack = store.read("", "c", branch, 0, 10_000)
    return [WIRES["openai-chat"].view(pack.entry(i).native).text for i in range(len(pack))]


# While it is made


async def test_no_turn_waits_for_it(store: Store) -> None:
    gate = AsyncGate()
    teller = AsyncSummaryModel(gate=gate)
    talk = open_talk(store, teller)
    await until_asked(talk, gate)
    for number in range(3):
        reply = await say(talk, number)
        assert list_notice_kinds(reply) == []
        assert not has_summary(teller.talked[-1])
    gate.open()
    await settle(talk)
    summary = read_record(store)
    assert (summary.text, summary.covers[0][0], summary.model) == (SUMMARY_TEXT, 0, "scripted:model")
    await say(talk)
    assert has_summary(teller.talked[-1])
    await talk.verify()


@pytest.mark.parametrize("wire", sorted(HTTP_WIRES))
async def test_a_long_talk_is_summarised_again_and_again(store: Store, wire: str) -> None:
    teller = AsyncSummaryModel(wire=wire)
    talk = open_talk(store, teller)
    for number in range(40):
        await say(talk, number)
        await settle(talk)
    assert len(teller.asked) > 3
    assert teller.most == 1
    assert has_summary(teller.asked[-1])
    assert max(len(list_texts(body)) for body in teller.requests) < 25
    await talk.verify()
    assert len(await talk.history()) == 80
    # Another object, as in another process, goes on with it.
    other = AsyncSummaryModel(wire=wire)
    await say(open_talk(store, other))
    assert has_summary(other.talked[-1])


async def test_there_are_never_two_at_once(store: Store) -> None:
    gate = AsyncGate()
    teller = AsyncSummaryModel(gate=gate)
    talk, other = open_talk(store, teller), open_talk(store, teller)
    await until_asked(talk, gate)
    for number in range(3):
        await say(other, number)
        await say(talk, number)
    # Nor one before a call, under another policy.
    await say(open_talk(store, teller, Summarize(1_500, length=200)))
    assert len(teller.asked) == 1
    gate.open()
    await settle(talk)
    assert read_record(store).text == SUMMARY_TEXT


@pytest.mark.parametrize("how", ["close", "block"])
async def test_closing_waits_for_it(store: Store, how: str) -> None:
    gate = AsyncGate(seconds=0.05)
    teller = AsyncSummaryModel(gate=gate)
    talk = open_talk(store, teller)
    if how == "block":
        async with talk:
            await until_asked(talk, gate)
    else:
        await until_asked(talk, gate)
        await talk.aclose()
    assert read_record(store).text == SUMMARY_TEXT
    assert teller.running == 0


async def test_closing_a_branch_waits_for_it_too(store: Store) -> None:
    gate = AsyncGate(seconds=0.05)
    talk = open_talk(store, AsyncSummaryModel(gate=gate))
    await until_asked(talk, gate)
    branch = await talk.fork()
    await branch.aclose()
    assert read_record(store).text == SUMMARY_TEXT


async def test_a_summary_that_ends_during_a_turn_does_not_disturb_it(store: Store) -> None:
    gate = AsyncGate()
    teller = AsyncSummaryModel(gate=gate)
    talk = open_talk(store, teller)
    await until_asked(talk, gate)
    before = said(store)
    stream = talk.stream("What is rosin?")
    await anext(stream)
    gate.open()
    await settle(talk)
    # It is put beside the turn, which still holds its lease.
    assert read_record(store).text == SUMMARY_TEXT
    assert store.head("", "c").lease is not None  # type: ignore[union-attr]
    events = [event async for event in stream]
    assert isinstance(events[-1], Done)
    assert list_notice_kinds(events[-1].reply) == []
    assert said(store) == [*before, "What is rosin?", events[-1].reply.text]
    # What the turn has left is there.
    assert read_record(store, kind="attempt", of=SummaryClaim).until == 0
    assert read_record(store, kind="anchor", of=Anchor).counted == events[-1].reply.context.counted  # type: ignore[union-attr]
    await say(talk)
    assert has_summary(teller.talked[-1])
    assert (await talk.metrics())[-1].status == "complete"
    assert await talk.branches() == ["main"]
    await talk.verify()


async def test_turns_that_follow_each_other_without_a_pause_get_it(store: Store) -> None:
    teller = AsyncSummaryModel()
    talk = open_talk(store, teller)
    for number in range(60):
        await say(talk, number)
    await settle(talk)
    assert sum(map(has_summary, teller.talked)) > 20
    await talk.verify()


async def test_what_a_turn_has_cut_off_meanwhile_does_not_undo_it(store: Store) -> None:
    gate = AsyncGate()
    teller = AsyncSummaryModel(gate=gate, window=3_000)
    talk = open_talk(store, teller)
    await until_asked(talk, gate)
    told: list[str] = []
    while read_record(store, kind="epoch", of=Epoch) is None:
        told += list_notice_kinds(await say(talk))
    assert told == ["window"]
    gate.open()
    await settle(talk)
    # What it covers is in the store, if not in what is sent.
    assert read_record(store).text == SUMMARY_TEXT
    assert list_notice_kinds(await say(talk)) == []


async def test_one_before_the_call_is_kept_in_a_store_too(store: Store) -> None:
    teller = AsyncSummaryModel("", SUMMARY_TEXT)
    talk = open_talk(store, teller, Summarize(2_000, length=200))
    told = [kind for number in range(20) for kind in list_notice_kinds(await say(talk, number))]
    assert told == ["summary_failed"]
    assert read_record(store).text == SUMMARY_TEXT
    assert has_summary(teller.talked[-1])
    await talk.verify()


async def test_what_pays_is_made_in_the_background_too(store: Store) -> None:
    used = {"prompt_tokens": 1_000, "completion_tokens": 60, "total_tokens": 1_060}
    teller = AsyncSummaryModel(says(SUMMARY_TEXT, usage=used))
    talk = open_talk(store, teller, Economy(length=100, background=True))
    told = []
    for number in range(60):
        told += list_notice_kinds(await say(talk, number))
        await settle(talk)
    assert told == ["prices_assumed"]
    assert len(teller.asked) > 1
    assert has_summary(teller.talked[-1])
    receipt = read_record(store, kind="receipt", of=CostReceipt)
    assert receipt.actual is not None
    assert receipt.predicted > 0


# One that comes to nothing


@pytest.mark.parametrize(
    "outcome", ["", "Error: no", b"garbage", RuntimeError("what?"), says(SUMMARY_TEXT, finish="length")]
)
async def test_a_failure_is_told_with_the_next_reply_and_once(store: Store, outcome: Any) -> None:
    gate = AsyncGate()
    gate.open()
    teller = AsyncSummaryModel(outcome, gate=gate)
    talk = open_talk(store, teller)
    assert list_notice_kinds((await until_asked(talk, gate))[-1]) == []
    await settle(talk)
    assert read_record(store) is None
    reply = await say(talk)
    assert list_notice_kinds(reply) == ["summary_failed"]
    assert list_notice_kinds(await say(talk)) == []
    assert not has_summary(teller.talked[-1])
    await talk.verify()


async def test_a_background_summary_that_takes_too_long_is_not_waited_for(store: Store) -> None:
    gate = AsyncGate()
    gate.open()
    talk = open_talk(store, AsyncSummaryModel(HANGS, gate=gate), QUICK)
    await until_asked(talk, gate)
    await talk.aclose()
    reply = await say(talk)
    assert list_notice_kinds(reply) == ["summary_failed"]
    assert "within 0.05 seconds" in reply.notices[0].text


async def test_after_failures_it_waits_longer_and_longer(store: Store) -> None:
    teller = AsyncSummaryModel("")
    talk = open_talk(store, teller)
    turns = []
    for number in range(30):
        before = len(teller.asked)
        await say(talk, number)
        await settle(talk)
        turns += [number] if len(teller.asked) > before else []
    assert [turn - turns[0] for turn in turns] == [0, 2, 6, 14]


async def test_a_failing_store_fails_no_turn_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    store, gate = InMemory(), AsyncGate()
    talk = open_talk(store, AsyncSummaryModel(gate=gate))
    await until_asked(talk, gate)
    write = store.write

    def broken(*arguments: Any) -> Any:
        raise OSError("the disk is full")

    store.write = broken  # type: ignore[method-assign]
    gate.open()
    await talk.aclose()
    store.write = write  # type: ignore[method-assign]
    assert read_record(store) is None
    assert "summary not kept" in caplog.text
    assert "the disk is full" not in caplog.text
    reply = await say(talk)
    assert reply.text.startswith("Answer ")


# Others


@pytest.mark.parametrize(("holder", "asks"), [("elsewhere", False), ("gone", True), ("me", False)])
async def test_a_summary_is_left_to_its_process_while_that_lives(store: Store, holder: str, asks: bool) -> None:
    gate = AsyncGate()
    gate.open()
    teller = AsyncSummaryModel(gate=gate)
    talk = open_talk(store, teller)
    await say(talk)
    who = {
        "elsewhere": Holder("elsewhere", "b", 1, 1),
        "gone": msgspec.structs.replace(identify_this_process(), pid=999_999_999),
        "me": identify_this_process(),
    }[holder]
    head = store.head("", "c")
    assert head is not None
    data = json_bytes.encode(SummaryClaim(size=2, until=now() + 60_000, holder=who))
    claim = PlacedRecord(Record("attempt", head.entry or "", now(), data), head.size - 1)
    store.write("", "c", Commit(expect=head.revision, records=(claim,), at=now()))
    for number in range(12):
        await say(talk, number)
        await settle(talk)
    assert bool(teller.asked) is asks


async def test_a_branch_that_has_what_it_covers_has_it_too(store: Store) -> None:
    gate = AsyncGate()
    talk = open_talk(store, AsyncSummaryModel(gate=gate))
    replies = await until_asked(talk, gate)
    whole = await talk.fork(name="whole")
    early = await talk.fork(at=replies[2].turn_id, name="early")
    await say(talk)
    gate.open()
    await settle(talk)
    assert read_record(store, "main") == read_record(store, "whole")
    assert read_record(store, "main").stop > 6
    assert read_record(store, "early") is None
    # Nor does what is said there.
    teller = AsyncSummaryModel()
    await say(open_talk(store, teller, branch="early"))
    assert len(list_texts(teller.talked[-1])) == 7
    assert not has_summary(teller.talked[-1])
    for branch in (talk, whole, early):
        await branch.verify()


async def test_an_edit_of_what_it_covers_knows_nothing_of_it(store: Store) -> None:
    gate = AsyncGate()
    teller = AsyncSummaryModel(gate=gate)
    talk = open_talk(store, teller)
    replies = await until_asked(talk, gate)
    other, _ = await talk.edit(replies[1].entries[0].id, "Something else.")
    gate.open()
    await settle(talk)
    assert read_record(store, "main").text == SUMMARY_TEXT
    assert read_record(store, other.branch) is None
    await say(other)
    assert not has_summary(teller.talked[-1])


@pytest.mark.parametrize("when", ["while it is made", "afterwards"])
async def test_a_rewind_to_before_what_it_covers_leaves_it_behind(store: Store, when: str) -> None:
    gate = AsyncGate()
    teller = AsyncSummaryModel(gate=gate)
    talk = open_talk(store, teller)
    replies = await until_asked(talk, gate)
    if when == "afterwards":
        gate.open()
        await settle(talk)
        assert read_record(store).text == SUMMARY_TEXT
    rest = await talk.rewind(replies[2].turn_id)
    gate.open()
    await settle(talk)
    assert read_record(store) is None
    assert (read_record(store, rest) is not None) == (when == "afterwards")
    reply = await say(talk)
    assert list_notice_kinds(reply) == []
    assert len(list_texts(teller.talked[-1])) == 7
    assert len(said(store, rest)) == 2 * len(replies)
    await talk.verify()


async def test_one_from_before_a_rewind_is_not_taken_for_the_next_one(store: Store) -> None:
    gate = AsyncGate()
    teller = AsyncSummaryModel(SUMMARY_TEXT, OTHER, gate=gate)
    talk = open_talk(store, teller)
    replies = await until_asked(talk, gate)
    await talk.rewind(replies[2].turn_id)
    await until_asked(talk, gate, turns=3)
    while len(teller.asked) < 2:
        await sleep(0.001)
    gate.open()
    await settle(talk)
    assert read_record(store).text == OTHER
    assert list_notice_kinds(await say(talk)) == []


async def test_a_rewind_to_behind_what_it_covers_keeps_it(store: Store) -> None:
    gate = AsyncGate()
    teller = AsyncSummaryModel(gate=gate)
    talk = open_talk(store, teller)
    replies = await until_asked(talk, gate)
    gate.open()
    await settle(talk)
    replies.append(await say(talk))
    stop = read_record(store).stop
    await talk.rewind(replies[stop // 2].turn_id)
    assert read_record(store).stop == stop
    assert read_record(store, kind="epoch", of=Epoch) is None
    await say(talk)
    await talk.verify()


# What is removed


async def test_what_is_redacted_while_it_is_made_is_in_no_summary(store: Store) -> None:
    gate = AsyncGate()
    teller = AsyncSummaryModel("Ada's password is hunter2, and she plays the violin well.", gate=gate)
    talk = open_talk(store, teller)
    replies = await until_asked(talk, gate)
    await AsyncArchive(store).redact("c", replies[0].entries[0].id)
    gate.open()
    await settle(talk)
    assert read_record(store) is None
    everything = [placed.record.data for placed in store.records("", "c", "main")]
    assert not any(b"hunter2" in data for data in everything)
    await say(talk)
    await talk.verify()


async def test_text_redacted_while_a_summary_is_made_is_not_taken_from_an_older_summary(store: Store) -> None:
    gate = AsyncGate()
    gate.open()
    teller = AsyncSummaryModel(
        "Ada's password is hunter2, and she plays the violin well.", "Still hunter2, and a bow of 1820."
    )
    talk = open_talk(store, teller)
    replies = [await say(talk)]
    while not teller.asked or not has_summary(teller.talked[-1]):
        replies.append(await say(talk))
        await settle(talk)
    assert "hunter2" in read_record(store).text
    teller._gate = held = AsyncGate()
    while len(teller.asked) < 2:
        await say(talk)
        await sleep(0.001)
    await held.reached()
    await AsyncArchive(store).redact("c", replies[0].entries[0].id)
    held.open()
    await settle(talk)
    assert read_record(store) is None
    assert not any(b"hunter2" in placed.record.data for placed in store.records("", "c", "main"))
    reply = await say(talk)
    assert "hunter2" not in " ".join(list_texts(teller.talked[-1]))
    assert reply.text


async def test_a_redaction_removes_a_failed_summarys_error_text(store: Store) -> None:
    gate = AsyncGate()
    gate.open()
    talk = open_talk(store, AsyncSummaryModel("Error: the password hunter2 is not allowed here", gate=gate))
    replies = await until_asked(talk, gate)
    await settle(talk)
    assert any(b"hunter2" in placed.record.data for placed in store.records("", "c", "main"))
    await AsyncArchive(store).redact("c", replies[0].entries[0].id)
    assert not any(b"hunter2" in placed.record.data for placed in store.records("", "c", "main"))


async def test_what_is_deleted_while_it_is_made_stays_so(store: Store) -> None:
    gate = AsyncGate()
    talk = open_talk(store, AsyncSummaryModel(gate=gate))
    await until_asked(talk, gate)
    await AsyncArchive(store).delete("c")
    gate.open()
    await talk.aclose()
    assert store.info("", "c") is None
    assert store.head("", "c") is None


async def test_a_recreated_conversation_gets_no_summary_of_the_deleted_one(store: Store) -> None:
    gate = AsyncGate()
    talk = open_talk(store, AsyncSummaryModel(gate=gate))
    await until_asked(talk, gate)
    await AsyncArchive(store).delete("c")
    teller = AsyncSummaryModel()
    other = open_talk(store, teller)
    for number in range(3):
        await say(other, number)
    gate.open()
    await talk.aclose()
    assert read_record(store) is None
    await say(other)
    assert not has_summary(teller.talked[-1])
    await other.verify()
