"""What a store has to hold on to: all of it when it is opened again, what it acknowledged when a process is killed, and
either all or nothing of a call when somebody presses Ctrl-C.

A store does not look at leases: whoever reads that a turn was left half done may go on from there at once.
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

from longtalk.stores.base import MAIN, Commit, Head, Lease, Placed, Request
from longtalk.stores.memory import Memory
from longtalk.testing.report import holds, same, there
from longtalk.testing.store_cases import ME, Case, Desk, Talk, into, message
from longtalk.testing.strikes import Strikes
from longtalk.transcript import Record, Turn, chain, new_id

LASTING: list[Case] = []

ROUNDS = 5
"""How many processes are killed."""
PATIENCE = 60.0
"""Seconds to wait for a word of one."""


@into(LASTING, reopens=True)
def all_is_there_when_it_is_opened_again(desk: Desk) -> None:
    reopen, talk = there(desk.reopen, "a way to open it again"), desk.talk()
    kept: dict[str, Any] = {
        "meta": {"a": [1, None, "é"]},
        "entry_meta": {1: {"b": "東"}},
        "manifest": b'{"half":"\\ud800"}',
    }
    talk.say("lisbon", "b", request=Request("key", "body"), **kept)
    for native in (b'{"half":"\\ud800"}', b'{"bad":"\xff"}', b'{\n"a" : 1}'):
        turn = talk.turn(talk.tip(), "x")
        entry = msgspec.structs.replace(turn["entries"][0], native=native, mark="length", bound="b", tokens=5)
        talk.write(entries=(entry,), turn=msgspec.structs.replace(turn["turn"], usage=(native, b"{}"), error="e"))
    talk.write(records=(talk.note("brief", "x", 1), Placed(Record("pins", "", 1, b"\xff"), -1)))
    talk.write(records=(talk.note("pins", "y", 1),))
    talk.say("c", branch="fork", source=(MAIN, 1), behind=talk.entries()[0].id)
    talk.say("d", cut=4)
    desk.store.describe(desk.owner, "talk", {"c": 3}, entry=talk.entries()[2].id)
    talk.write(lease=Lease(ME, 50, 3))
    desk.store.renew(desk.owner, "talk", MAIN, 3, 77)
    desk.talk("gone").say("x")
    desk.store.delete(desk.owner, "gone")
    desk.talk("redacted").say("secret", "b", entry_meta={0: {"a": 1}, 1: {"b": 2}})
    desk.store.redact(desk.owner, "redacted", desk.talk("redacted").entries()[0].id, b'{"content":"-"}')
    desk.talk("described").say("x")
    desk.store.describe(desk.owner, "described", {"b": 2})
    ids = ("talk", "gone", "redacted", "described")
    before = [desk.talk(id).all("key") for id in ids]  # noqa: A001
    store = reopen(desk.store)
    try:
        for id, was in zip(ids, before, strict=True):  # noqa: A001
            _same_all(Talk(store, desk.owner, id).all("key"), was, f"of {id!r}")
        holds(not store.candidates(desk.owner, ["secret"], 9), "what is gone is found")
        head = Talk(store, desk.owner, "talk").say("goes on")
        same(head.revision, before[0]["heads"][1].revision + 1, "it does not go on where it was")
        same(store.write(desk.owner, new_id(), Commit(expect=0, at=1)).revision, 1)
    finally:
        store.close()


@into(LASTING, reopens=True, forks=True)
def a_writer_that_is_killed_leaves_what_it_acknowledged_and_nothing_half(desk: Desk) -> None:
    """What is found is what a store in memory has after as many commits."""
    reopen, draw = there(desk.reopen, "a way to open it again"), random.Random(7)
    model = Talk(Memory(), desk.owner, "talk")
    store, number = desk.store, 0
    try:
        for _ in range(ROUNDS):

            def work(tell: Callable[[], None], first: int = number) -> None:
                talk = Talk(reopen(store), desk.owner, "talk")  # noqa: B023
                for each in count(first):
                    talk.write(**_half(talk, each))
                    tell()

            told = _killed(work, draw.randint(1, 12), draw.uniform(0, 0.004))
            store = reopen(store)
            talk = Talk(store, desk.owner, "talk")
            before = model.store.head(model.owner, model.id)
            made = talk.head().revision - (before.revision if before else 0)
            holds(told <= made <= told + 1, f"{told} commits were acknowledged, and {made} are there")
            for _ in range(made):
                model.write(**_half(model, number))
                number += 1
            keys = [f"t{turn}" for turn in range(number)]
            _same_all(talk.all(*keys), model.all(*keys), f"after {number} commits")
            number += number % 2
            fields = talk.turn(talk.tip(), "goes on", "at once") | {"at": number}
            same(talk.write(**fields), model.write(**fields), "who comes next does not go on at once")
    finally:
        if store is not desk.store:
            store.close()


@into(LASTING, reopens=True)
def a_call_that_is_interrupted_is_done_whole_or_not_at_all(desk: Desk) -> None:
    """Ctrl-C wherever it can strike in a store: whoever comes next finds what was or what should be, and can go on."""
    kinds = [kind for kind in type(desk.store).__mro__ if kind.__module__ not in sys.stdlib_module_names]
    struck = Strikes(*{Path(inspect.getfile(kind)).parent for kind in kinds})
    for name, call in _CALLS.items():
        stopped = True
        while stopped:
            talk, model = desk.talk(f"{name} {len(struck.where)}"), Talk(Memory(), desk.owner, "talk")
            for each, number in product((talk, model), (0, 1)):
                each.write(**_half(each, number))
            before = _seen(model)
            call(model)
            stopped = struck.during(lambda: call(talk))  # noqa: B023
            if stopped and _seen(talk) == before:
                call(talk)
            same(_seen(talk), _seen(model), f"{name!r}, interrupted at {struck.where[-1:]}")
            for each in (talk, model):
                each.write(**_half(each, 4))
            same(_seen(talk), _seen(model), f"what was added behind {name!r}, interrupted at {struck.where[-1:]}")
            desk.store.delete(talk.owner, talk.id)


_CALLS: dict[str, Callable[[Talk], object]] = {
    "write": lambda talk: talk.write(**_half(talk, 2)),
    "read": lambda talk: talk.texts(),
    "describe": lambda talk: talk.store.describe(talk.owner, talk.id, {"new": 1}),
    "redact": lambda talk: talk.store.redact(talk.owner, talk.id, talk.entries()[1].id, b'{"content":"-"}'),
    "delete": lambda talk: talk.store.delete(talk.owner, talk.id),
}


def _seen(talk: Talk) -> dict[str, Any] | None:
    """All of a conversation, but its name."""
    if talk.store.head(talk.owner, talk.id) is None:
        return None
    return {part: value for part, value in talk.all("t0", "t1", "t2").items() if part != "summary"}


def _half(talk: Talk, number: int) -> dict[str, Any]:
    """A commit: for an even number the first half of a turn, for an odd one the second. Both hold a lease."""
    head: Head | None = talk.store.head(talk.owner, talk.id)
    size, second = head.size if head else 0, number % 2
    turn = Turn(f"t{number // 2}", "complete" if second else "running", "test:model", number)
    said = message(f"{number} " + "x" * (number * 997 % 20_000), at=number)
    entries = chain(head.entry if head else None, turn.id, 2 * second, [said, said])
    return {
        "entries": entries,
        "turn": turn,
        "request": Request(turn.id, "body"),
        "manifest": b'{"number":%d}' % number,
        "records": (Placed(Record("brief", entries[-1].id, number, b"%d" % number), size + 1),),
        "lease": Lease(ME, 2**50, number + 1),
        "meta": {"number": number},
        "entry_meta": {1: {"number": number}},
        "at": number,
    }


def _same_all(found: dict[str, Any], wanted: dict[str, Any], where: str) -> None:
    for part in wanted:
        same(found[part], wanted[part], f"{part} {where}")


def _killed(work: Callable[[Callable[[], None]], None], enough: int, wait: float) -> int:
    """Work in a process of its own that is killed a moment after it has told of enough: of how much it has told."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Threads of this process are none of the child's business.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        os.close(reader)
        _work(work, writer)
    os.close(writer)
    told = b""
    try:
        while len(told) < enough and select.select([reader], [], [], PATIENCE)[0] and (more := os.read(reader, 4096)):
            told += more
        time.sleep(wait)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        while more := os.read(reader, 4096):
            told += more
        os.close(reader)
    words = told.lstrip(b".")
    holds(not words, f"a forked process can't write: {words.decode(errors='replace')}")
    holds(len(told) >= enough, f"a forked process does not go on after {len(told)} commits")
    return len(told)


def _work(work: Callable[[Callable[[], None]], None], writer: int) -> NoReturn:
    """In the child: a point for each thing that is done, words for what went wrong."""
    try:
        work(lambda: holds(os.write(writer, b".")))
    except BaseException:
        os.write(writer, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(1)
