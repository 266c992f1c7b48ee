"""Cases about what survives reopening the store, a killed writer process, and an interrupt (Ctrl-C).

A store doesn't enforce leases, so another process can continue at once where a killed one stopped.
"""

from __future__ import annotations

import inspect
import os
import random
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from itertools import count, product
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from longtalk.stores.base import MAIN, BranchHead, Commit, HeadMoved, KeyedRequest, Lease, PlacedRecord
from longtalk.stores.in_memory import InMemory
from longtalk.testing.interrupts import Interrupts
from longtalk.testing.report import assert_equal, assert_present, assert_true
from longtalk.testing.stores.harness import ME, Case, ConversationDriver, Harness, add_to, make_message
from longtalk.transcript.transcript import Record, Turn, link_entries, new_id

CRASH_CASES: list[Case] = []

ROUNDS = 5
"""The number of processes that the case with a killed writer starts, one after another."""
PATIENCE = 60.0
"""Seconds to wait for a process to acknowledge its commits."""


@add_to(CRASH_CASES, reopens=True)
def everything_survives_reopening(harness: Harness) -> None:
    reopen, conversation = assert_present(harness.reopen, "reopen="), harness.conversation()
    kept: dict[str, Any] = {
        "meta": {"a": [1, None, "é"]},
        "entry_meta": {1: {"b": "東"}},
        "manifest": b'{"half":"\\ud800"}',
    }
    conversation.say("lisbon", "b", request=KeyedRequest("key", "body"), **kept)
    for native in (b'{"half":"\\ud800"}', b'{"bad":"\xff"}', b'{\n"a" : 1}'):
        turn = conversation.make_turn(conversation.find_parent(), "x")
        entry = msgspec.structs.replace(turn["entries"][0], native=native, mark="length", bound="b", tokens=5)
        conversation.write(
            entries=(entry,),
            turn=msgspec.structs.replace(turn["turn"], usage=(native, b"{}"), error="e", responses=(native,)),
        )
    conversation.write(
        records=(conversation.make_record("brief", "x", 1), PlacedRecord(Record("pins", "", 1, b"\xff"), -1))
    )
    conversation.write(records=(conversation.make_record("pins", "y", 1),))
    conversation.say("c", branch="fork", source=(MAIN, 1), source_entry=conversation.entries()[0].id)
    conversation.say("d", cut=4)
    harness.store.describe(harness.owner, "talk", {"c": 3}, entry=conversation.entries()[2].id)
    conversation.write(lease=Lease(ME, 50, 3))
    harness.store.renew(harness.owner, "talk", MAIN, 3, 77)
    harness.conversation("gone").say("x")
    harness.store.delete(harness.owner, "gone")
    harness.conversation("redacted").say("secret", "b", entry_meta={0: {"a": 1}, 1: {"b": 2}})
    harness.store.redact(
        harness.owner, "redacted", harness.conversation("redacted").entries()[0].id, b'{"content":"-"}'
    )
    harness.conversation("described").say("x")
    harness.store.describe(harness.owner, "described", {"b": 2})
    ids = ("talk", "gone", "redacted", "described")
    before = [harness.conversation(id).read_all("key") for id in ids]  # noqa: A001
    store = reopen(harness.store)
    try:
        for id, was in zip(ids, before, strict=True):  # noqa: A001
            _assert_all_equal(ConversationDriver(store, harness.owner, id).read_all("key"), was, f"of {id!r}")
        assert_true(not store.candidates(harness.owner, ["secret"], 9), "a redacted text is found")
        head = ConversationDriver(store, harness.owner, "talk").say("goes on")
        assert_equal(head.revision, before[0]["heads"][1].revision + 1, "the revision of the next commit")
        assert_equal(store.write(harness.owner, new_id(), Commit(expect=0, at=1)).revision, 1)
    finally:
        store.close()


@add_to(CRASH_CASES, reopens=True, forks=True)
def a_killed_writer_leaves_whole_commits_and_all_it_acknowledged(harness: Harness) -> None:
    """Kill writers, and compare what they stored with an in-memory store after the same number of commits."""
    reopen, draw = assert_present(harness.reopen, "reopen="), random.Random(7)
    model = ConversationDriver(InMemory(), harness.owner, "talk")
    store, number = harness.store, 0
    try:
        for _ in range(ROUNDS):

            def work(acknowledge: Callable[[], None], first: int = number) -> None:
                conversation = ConversationDriver(reopen(store), harness.owner, "talk")  # noqa: B023
                for commit_number in count(first):
                    conversation.write(**_make_half_turn(conversation, commit_number))
                    acknowledge()

            acknowledged = _run_and_kill(work, draw.randint(1, 12), draw.uniform(0, 0.004))
            store = reopen(store)
            conversation = ConversationDriver(store, harness.owner, "talk")
            number, head, fields = _follow(conversation, model, number, acknowledged)
            assert_equal(head, model.write(**fields), "the head after the next process has continued")
    finally:
        if store is not harness.store:
            store.close()


def _follow(
    conversation: ConversationDriver, model: ConversationDriver, number: int, acknowledged: int
) -> tuple[int, BranchHead, dict[str, Any]]:
    """Compare what a killed process has stored with the model, and write a turn that follows.

    Returns:
        The number of the next commit, the head after the turn, and the fields of the turn.
    """
    stored, before = 0, model.store.head(model.owner, model.id)
    first = before.revision if before else 0
    while True:
        revision = conversation.head().revision
        assert_true(
            acknowledged <= revision - first <= acknowledged + 1,
            f"{acknowledged} commits were acknowledged, and {revision - first} found",
        )
        while stored < revision - first:
            model.write(**_make_half_turn(model, number))
            stored, number = stored + 1, number + 1
        keys = [f"t{turn}" for turn in range(number)]
        found = conversation.read_all(*keys)
        parent = conversation.find_parent()
        # A server may carry out the last call of a killed process at any later moment.
        if conversation.head().revision != revision:
            continue
        _assert_all_equal(found, model.read_all(*keys), f"after {number} commits")
        following = number + number % 2
        fields = conversation.make_turn(parent, "goes on", "at once") | {"at": following, "expect": revision}
        try:
            return following, conversation.write(**fields), fields
        except HeadMoved:
            if conversation.head().revision == revision:
                raise


@add_to(CRASH_CASES, reopens=True)
def an_interrupted_call_happens_entirely_or_not_at_all(harness: Harness) -> None:
    """Interrupt each call at every point, and check that the call then took effect completely or not at all."""
    kinds = [kind for kind in type(harness.store).__mro__ if kind.__module__ not in sys.stdlib_module_names]
    interrupts = Interrupts(*{Path(inspect.getfile(kind)).parent for kind in kinds})
    for name, call in _CALLS.items():
        interrupted = True
        while interrupted:
            conversation, model = (
                harness.conversation(f"{name} {len(interrupts.points)}"),
                ConversationDriver(InMemory(), harness.owner, "talk"),
            )
            for each, number in product((conversation, model), (0, 1)):
                each.write(**_make_half_turn(each, number))
            before = _read_content(model)
            call(model)
            interrupted = interrupts.during(lambda: call(conversation))  # noqa: B023
            if interrupted and _read_content(conversation) == before:
                call(conversation)
            assert_equal(
                _read_content(conversation), _read_content(model), f"{name!r}, interrupted at {interrupts.points[-1:]}"
            )
            for each in (conversation, model):
                each.write(**_make_half_turn(each, 4))
            assert_equal(
                _read_content(conversation),
                _read_content(model),
                f"a commit after {name!r}, interrupted at {interrupts.points[-1:]}",
            )
            harness.store.delete(conversation.owner, conversation.id)


_CALLS: dict[str, Callable[[ConversationDriver], object]] = {
    "write": lambda conversation: conversation.write(**_make_half_turn(conversation, 2)),
    "read": lambda conversation: conversation.texts(),
    "describe": lambda conversation: conversation.store.describe(conversation.owner, conversation.id, {"new": 1}),
    "redact": lambda conversation: conversation.store.redact(
        conversation.owner, conversation.id, conversation.entries()[1].id, b'{"content":"-"}'
    ),
    "delete": lambda conversation: conversation.store.delete(conversation.owner, conversation.id),
}


def _read_content(conversation: ConversationDriver) -> dict[str, Any] | None:
    """Return everything stored about a conversation except its summary, or None if the conversation doesn't exist."""
    if conversation.store.head(conversation.owner, conversation.id) is None:
        return None
    return {part: value for part, value in conversation.read_all("t0", "t1", "t2").items() if part != "summary"}


def _make_half_turn(conversation: ConversationDriver, number: int) -> dict[str, Any]:
    """Return the fields of a commit: the first half of a turn if `number` is even, its second half if it is odd."""
    head: BranchHead | None = conversation.store.head(conversation.owner, conversation.id)
    size, second = head.size if head else 0, number % 2
    turn = Turn(f"t{number // 2}", "complete" if second else "running", "test:model", number)
    said = make_message(f"{number} " + "x" * (number * 997 % 20_000), at=number)
    entries = link_entries(head.entry if head else None, turn.id, 2 * second, [said, said])
    return {
        "entries": entries,
        "turn": turn,
        "request": KeyedRequest(turn.id, "body"),
        "manifest": b'{"number":%d}' % number,
        "records": (PlacedRecord(Record("brief", entries[-1].id, number, b"%d" % number), size + 1),),
        "lease": Lease(ME, 2**50, number + 1),
        "meta": {"number": number},
        "entry_meta": {1: {"number": number}},
        "at": number,
    }


def _assert_all_equal(found: dict[str, Any], wanted: dict[str, Any], where: str) -> None:
    for part in wanted:
        assert_equal(found[part], wanted[part], f"{part} {where}")


def _run_and_kill(work: Callable[[Callable[[], None]], None], enough: int, wait: float) -> int:
    """Run `work` in a child process, and kill the process `wait` seconds after it has acknowledged `enough` commits.

    Returns:
        The number of commits that the child acknowledged.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python warns about forking a process with threads. The child uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        os.close(reader)
        _run_child(work, writer)
    os.close(writer)
    acknowledged = b""
    try:
        while (
            len(acknowledged) < enough
            and select.select([reader], [], [], PATIENCE)[0]
            and (more := os.read(reader, 4096))
        ):
            acknowledged += more
        time.sleep(wait)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        while more := os.read(reader, 4096):
            acknowledged += more
        os.close(reader)
    words = acknowledged.lstrip(b".")
    assert_true(not words, f"a forked process can't write: {words.decode(errors='replace')}")
    assert_true(len(acknowledged) >= enough, f"a forked process interrupted after {len(acknowledged)} commits")
    return len(acknowledged)


def _run_child(work: Callable[[Callable[[], None]], None], writer: int) -> NoReturn:
    """Run `work` in the child process. Write a dot to the pipe for each commit, and the traceback if it fails."""
    try:
        work(lambda: assert_true(os.write(writer, b".")))
    except BaseException:
        os.write(writer, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(1)
