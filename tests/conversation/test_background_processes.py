"""Processes that hold turns in one conversation and summarise it, and one that is killed while it does.

This file is also the program of such a process. When a summary is begun and when it is done, it notes in a file: so it
can be told afterwards whether two were ever made at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from longtalk import AsyncConversation, Conversation, Summarize
from longtalk.stores.base import Store
from longtalk.stores.jsonl.store import JSONL
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import Scripted
from longtalk.turn.summary_claims import SummaryClaim
from longtalk.wires import WIRES
from tests.support.summary_model import (
    SUMMARY_TEXT,
    WORDS,
    AsyncGate,
    AsyncSummaryModel,
    SummaryModel,
    asks_for_summary,
    has_summary,
    list_notice_kinds,
    read_record,
)


class Job(NamedTuple):
    """What a process does."""

    store: str
    place: str
    name: str
    turns: int
    background: bool
    dies: bool = False
    """Whether it is killed while it makes a summary."""


def opened(kind: str, place: str) -> Store:
    return SQLite(place) if kind == "sqlite" else JSONL(place)


class Model(SummaryModel):
    """Takes its time for summaries, and notes when."""

    def __init__(self, job: Job) -> None:
        super().__init__(f"{SUMMARY_TEXT} So says {job.name}.")
        self._job = job

    def send(self, body: bytes) -> bytes:
        if not asks_for_summary(body):
            return super().send(body)
        self._note("begins")
        if self._job.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)
        made = super().send(body)
        self._note("ends")
        return made

    def _note(self, what: str) -> None:
        line = f"{self._job.name} {what}\n".encode()
        file = os.open(f"{self._job.place}-log", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        os.write(file, line)
        os.close(file)


def work(job: Job) -> list[str]:
    """Hold the turns. What was told with them."""
    policy = Summarize(2_000, length=200, background=job.background)
    told = []
    with (
        closing(opened(job.store, job.place)) as store,
        Conversation("c", model=Model(job), store=store, policy=policy) as talk,
    ):
        print("ready", flush=True)
        sys.stdin.readline()
        for turn in range(job.turns):
            told += list_notice_kinds(talk.send(f"{job.name} {turn}: {WORDS * 5}", on_busy="wait"))
            if job.dies:
                # Not in the middle of a turn.
                talk._jobs.wait()
    return told


@contextmanager
def processes(*jobs: Job) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that have begun, and wait to be let go."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen(
            [sys.executable, __file__, json.dumps(job)],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env={**os.environ, "PYTHONPATH": path},
        )
        for job in jobs
    ]
    try:
        for each in started:
            assert each.stdout is not None
            assert each.stdout.readline() == b"ready\n"
        for each in started:
            assert each.stdin is not None
            each.stdin.write(b"\n")
            each.stdin.flush()
        yield started
    finally:
        for each in started:
            if each.poll() is None:
                each.kill()
            each.communicate()


def log(place: Path) -> list[str]:
    return Path(f"{place}-log").read_text().splitlines()


def check_one_at_a_time(lines: list[str]) -> None:
    """Whether each summary was done before the next one began."""
    for begins, ends in zip(lines[::2], lines[1::2], strict=True):
        assert begins.endswith(" begins")
        assert ends == begins.replace(" begins", " ends")


def check_whole(store: Store, texts: set[str]) -> None:
    """Whether each turn is there once, in one piece."""
    wire = WIRES["openai-chat"]
    pack = store.read("", "c", "main", 0, 10_000)
    entries = [pack.entry(i) for i in range(len(pack))]
    assert [entry.role for entry in entries] == ["user", "assistant"] * len(texts)
    heard = [wire.view(entry.native).text.partition(":")[0] for entry in entries[::2]]
    assert (len(heard), set(heard)) == (len(texts), texts)
    assert {turn.status for _, turn in store.turns("", "c", "main", 0, 10_000)} == {"complete"}
    assert [head.branch for head in store.branches("", "c")] == ["main"]
    Conversation("c", model=Scripted(), store=store).verify()


def together(folder: Path, kind: str, number: int, turns: int, *, background: bool) -> None:
    place = folder / "talks.db"
    jobs = [Job(kind, str(place), f"p{i}", turns, background) for i in range(number)]
    with processes(*jobs) as running:
        said = [each.communicate() for each in running]
    assert [(each.returncode, error.decode()) for each, (_, error) in zip(running, said, strict=True)] == [
        (0, "") for _ in jobs
    ]
    assert [json.loads(out) for out, _ in said] == [[] for _ in jobs]
    lines = log(place)
    assert len(lines) >= 2
    check_one_at_a_time(lines)
    with closing(opened(kind, str(place))) as store:
        check_whole(store, {f"{job.name} {turn}" for job in jobs for turn in range(turns)})
        summary = read_record(store)
        assert summary.covers == ((0, summary.stop),)
        assert summary.text.startswith(SUMMARY_TEXT)
        # All are in the store, each of more than the one before.
        stops = [json.loads(each.record.data)["covers"][-1][1] for each in store.records("", "c", "main", "summary")]
        assert stops == sorted(set(stops))
        assert len(stops) == len(lines) // 2


@pytest.mark.parametrize("background", [True, False], ids=["afterwards", "before the call"])
def test_two_processes_make_one_summary_at_a_time(tmp_path: Path, background: bool) -> None:
    together(tmp_path, "sqlite", 2, 12, background=background)


@pytest.mark.slow
@pytest.mark.parametrize("background", [True, False], ids=["afterwards", "before the call"])
@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_six_processes_make_one_summary_at_a_time(tmp_path: Path, kind: str, background: bool) -> None:
    together(tmp_path, kind, 6, 20, background=background)


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_after_one_that_is_killed_while_it_makes_a_summary_the_next_one_goes_on(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "talks.db"
    with processes(Job(kind, str(place), "p0", 50, background=True, dies=True)) as (killed,):
        killed.communicate()
        assert killed.returncode == -signal.SIGKILL
    assert log(place) == ["p0 begins"]
    with closing(opened(kind, str(place))) as store:
        claim: Any = read_record(store, kind="attempt", of=SummaryClaim)
        assert claim.until > 0
        assert claim.holder.pid == killed.pid
        turns = len(store.turns("", "c", "main", 0, 10_000))
        check_whole(store, {f"p0 {turn}" for turn in range(turns)})
        teller = SummaryModel()
        with Conversation("c", model=teller, store=store, policy=Summarize(2_000, length=200, background=True)) as talk:
            assert list_notice_kinds(talk.send(f"p1 0: {WORDS}")) == []
        assert len(teller.asked) == 1
        assert read_record(store).text == SUMMARY_TEXT
        talk.send(f"p1 1: {WORDS}")
        assert has_summary(teller.talked[-1])
        check_whole(store, {*(f"p0 {turn}" for turn in range(turns)), "p1 0", "p1 1"})


def test_a_summary_that_a_program_did_not_wait_for_is_reported_by_the_next_program(tmp_path: Path) -> None:
    path = tmp_path / "talks.db"
    asyncio.run(_until_asked(path))
    with closing(SQLite(path)) as store:
        talk = Conversation(
            "c", model=SummaryModel(), store=store, policy=Summarize(2_000, length=200, background=True)
        )
        assert list_notice_kinds(talk.send("Hello.")) == ["summary_failed"]


async def _until_asked(path: Path) -> None:
    """Turns up to a summary that never comes: the loop ends first, and cancels it."""
    gate = AsyncGate()
    policy = Summarize(2_000, length=200, background=True)
    talk = AsyncConversation("c", model=AsyncSummaryModel(gate=gate), store=SQLite(path), policy=policy)
    while True:
        await talk.send(WORDS * 5)
        if talk._jobs._running:
            await gate.reached()
            return


if __name__ == "__main__":
    print(json.dumps(work(Job(*json.loads(sys.argv[1])))))
