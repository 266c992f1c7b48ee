"""What turns on a SQLite store cost, beside a plain `sqlite3` and `json` floor (`turns_floor.py`) in the same run.

    python -m bench.turns [--store sqlite] [FILE]

A turn is whole: the user's message is committed before the model is asked, the answer after. The model answers at once
and reports how long the request was, so what is measured is ours. *Cold* opens the conversation anew for each turn,
*warm* goes on with the same object. Rounds are interleaved and the least CPU time counts, so that a busy machine slows
all sides or none. Only ratios compare.

Disk is the file once the store is closed, against the compact JSON of the messages and nothing else. What is beside
them there: turns with their usage, records, leases, and some 100 KB of tables that are empty. Only packs are
compressed, and the last 64 to 128 KB of a conversation are rows, so a short one stays as long as it is. FILE is
BEAM's chats (JSONL); without it the texts of bench/samples are taken, which are one conversation of 35 KB: it is all
tail, and its figure says little but that.

Stores on a server (`--store postgres`, `--store redis`) are measured by `turns_served.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from bench.tokens import SAMPLES, read
from bench.turns_floor import CREW, LENGTH, TALKS, Floor, Queue, all_jobs, by_threads, dealt, floor_throughput
from bench.workload import USAGE, messages
from longtalk import AsyncConversation, Conversation
from longtalk.draft import measured
from longtalk.policies import KeepAll, KeepLast, Policy
from longtalk.providers.base import Capabilities
from longtalk.stores.base import Commit, Store
from longtalk.stores.sqlite import SQLite
from longtalk.tokens import Estimator
from longtalk.transcript import Entry, Turn, chain, now
from longtalk.wires import WIRES

SIZES = (10, 100, 1_000, 5_000)
ROUNDS = 12
LONG, LONG_ROUNDS = 1_000, 2
"""Turns of a conversation that is made from empty, and how often."""
CREW_ROUNDS = 3
_WIRE = WIRES["openai-chat"]
_KEEP_ALL = KeepAll()

Message = dict[str, Any]
Side = Callable[[str], None]
"""Something to measure, given the path of a file that is not there yet."""


class Figure(NamedTuple):
    """What was measured, and what it should be at most, or at least."""

    name: str
    value: float
    goal: float
    least: bool = False

    def said(self) -> dict[str, Any]:
        met = self.value >= self.goal if self.least else self.value <= self.goal
        return {"name": self.name, "value": round(self.value, 3), "goal": self.goal, "met": met}


# The model


class _Script:
    """Says what it was given to say, and reports a length that can be true."""

    label, model, account = "bench:model", "model", "bench"
    wire = _WIRE
    capabilities = Capabilities()
    defaults: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, answers: Iterable[bytes]) -> None:
        self._answers = iter(answers)

    def answer(self, body: bytes) -> bytes:
        said = next(self._answers)
        finish = b"tool_calls" if b'"tool_calls"' in said else b"stop"
        tokens = len(body) // 5
        return (
            b'{"choices":[{"message":%s,"finish_reason":"%s"}],"usage":{"prompt_tokens":%d,"completion_tokens":212,'
            b'"total_tokens":%d}}' % (said, finish, tokens, tokens + 212)
        )

    def stream(self, body: bytes) -> Any:
        raise NotImplementedError


class Model(_Script):
    def send(self, body: bytes) -> bytes:
        return self.answer(body)

    def close(self) -> None:
        pass


class AsyncModel(_Script):
    async def send(self, body: bytes) -> bytes:
        return self.answer(body)

    async def aclose(self) -> None:
        pass


def compact(message: Message) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


SAID: list[str] = [messages(number)[0]["content"] for number in range(LONG)]
ANSWERS = [compact(messages(number)[-1]) for number in range(LONG)]
"""Made beforehand: who measures a store does not measure who wrote the messages."""


def opened(store: Store, name: str, policy: Policy, answers: Iterable[bytes] | None = None) -> Conversation:
    model = Model(itertools.repeat(ANSWERS[1]) if answers is None else answers)
    return Conversation(name, model=model, store=store, policy=policy)


# One turn, by the turns so far


def filled(store: Store, name: str, turns: int) -> None:
    """A conversation of so many turns, turn by turn, so that the store lays it out as it would in life."""
    head, revision = None, 0
    for number in range(turns):
        said = [
            Entry(role=message["role"], wire=_WIRE.name, native=json.dumps(message).encode(), at=now())
            for message in messages(number)
        ]
        entries = chain(head, f"t{number}", 0, measured(said, Estimator()))
        turn = Turn(id=f"t{number}", status="complete", model="bench:model", started=now(), usage=(USAGE,))
        revision = store.write("", name, Commit(expect=revision, entries=entries, turn=turn, at=now())).revision
        head = entries[-1].id


def one_turn(folder: str) -> list[Figure]:
    """What one more turn costs, in conversations of several lengths."""
    store = SQLite(os.path.join(folder, "ours.db"))
    sides: dict[str, dict[int, Callable[[], Any]]] = {}
    for turns in SIZES:
        for name in ("all, cold", "all, warm", "last 20, cold", "last 20, warm"):
            policy: Policy = _KEEP_ALL if name.startswith("all") else KeepLast(20)
            filled(store, f"{name} {turns}", turns)
            talk = opened(store, f"{name} {turns}", policy)
            talk.send(SAID[1])
            warm = name.endswith("warm")
            sides.setdefault(name, {})[turns] = partial(_turn, store, talk.id, policy, talk if warm else None)
        sides.setdefault("floor", {})[turns] = Floor(os.path.join(folder, "floor.db"), f"talk {turns}", turns).turn
    best = {name: dict.fromkeys(SIZES, math.inf) for name in sides}
    for _ in range(ROUNDS):
        for name, works in sides.items():
            for turns, work in works.items():
                best[name][turns] = min(best[name][turns], spent(work))
    store.close()
    print("One turn on a SQLite store: CPU in microseconds, the least of many, by turns so far.\n")
    print(f"{'':28}" + "".join(f"{turns:>12,}" for turns in SIZES))
    for name, costs in best.items():
        print(f"{name:28}" + "".join(f"{1e6 * costs[turns]:12.0f}" for turns in SIZES))
    floor = best["floor"][1_000]
    growth = math.log(best["last 20, warm"][5_000] / best["last 20, warm"][10]) / math.log(500)
    return [
        Figure("keep all at 1,000 turns, cold, of the floor", best["all, cold"][1_000] / floor, 0.25),
        Figure("keep all at 1,000 turns, warm, of the floor", best["all, warm"][1_000] / floor, 0.05),
        Figure("growth exponent of a bounded policy", growth, 0.05),
    ]


def _turn(store: SQLite, name: str, policy: Policy, talk: Conversation | None) -> None:
    (talk or opened(store, name, policy)).send(SAID[1])


# Many turns


def spent(work: Callable[[], Any]) -> float:
    """CPU seconds of this process, all of its threads together."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def least(folder: str, sides: Mapping[str, Side], rounds: int) -> dict[str, float]:
    """The least CPU seconds of each side. Each time it begins with no file."""
    best = dict.fromkeys(sides, math.inf)
    for number in range(rounds):
        for name, work in sides.items():
            gc.collect()
            path = os.path.join(folder, f"{name} {number}.db")
            best[name] = min(best[name], spent(partial(work, path)))
    return best


def from_empty(folder: str) -> list[Figure]:
    """A long conversation from its first turn on."""

    def ours(policy: Policy, warm: bool, path: str) -> None:
        answers = iter(ANSWERS)
        with closing(SQLite(path)) as store:
            talk = opened(store, "talk", policy, answers)
            for said in SAID:
                talk = talk if warm else opened(store, "talk", policy, answers)
                talk.send(said)

    def plain(path: str) -> None:
        with closing(Floor(path, "talk")) as floor:
            for number in range(LONG):
                floor.turn(number)

    sides: dict[str, Side] = {
        "all, cold": partial(ours, _KEEP_ALL, False),
        "all, warm": partial(ours, _KEEP_ALL, True),
        "last 20, warm": partial(ours, KeepLast(20), True),
        "floor": plain,
    }
    best = least(folder, sides, LONG_ROUNDS)
    print(f"\n{LONG:,} turns from empty: CPU in seconds, the less of {LONG_ROUNDS}, and of the floor.\n")
    for name, cost in best.items():
        print(f"{name:28}{cost:12.2f}{cost / best['floor']:12.2f}")
    return [Figure("1,000 turns from empty, keep all, warm, of the floor", best["all, warm"] / best["floor"], 0.2)]


def throughput(folder: str) -> list[Figure]:
    """Many conversations at once on one store. Each is opened once, and then goes on."""
    best = least(folder, {"threads": _threads, "tasks": _tasks, "floor, threads": floor_throughput}, CREW_ROUNDS)
    print(f"\n{TALKS} conversations of {LENGTH} turns, {CREW} at once: turns in a CPU second, and of the floor.\n")
    for name, cost in best.items():
        print(f"{name:28}{TALKS * LENGTH / cost:12.0f}{best['floor, threads'] / cost:12.2f}")
    return [
        Figure(f"throughput of {CREW} {name}, of the floor (at least)", best["floor, threads"] / best[name], 1.0, True)
        for name in ("threads", "tasks")
    ]


def _threads(path: str) -> None:
    def work(jobs: Queue) -> None:
        for job in dealt(jobs):
            talk = opened(store, f"talk {job}", _KEEP_ALL, ANSWERS)
            for said in SAID[:LENGTH]:
                talk.send(said)

    with closing(SQLite(path)) as store:
        by_threads(work)


def _tasks(path: str) -> None:
    async def work(jobs: Queue) -> None:
        for job in dealt(jobs):
            talk = AsyncConversation(f"talk {job}", model=AsyncModel(ANSWERS), store=store)
            for said in SAID[:LENGTH]:
                await talk.send(said)

    async def all_of_them() -> None:
        jobs = all_jobs()
        async with asyncio.TaskGroup() as group:
            for _ in range(CREW):
                group.create_task(work(jobs))

    with closing(SQLite(path)) as store:
        asyncio.run(all_of_them())


# Disk


def look_up(order: int, fields: list[str]) -> str:  # noqa: ARG001
    """What is known of an order: the tool that the workload calls."""
    result: str = messages(order)[2]["content"]
    return result


def on_disk(path: str, talks: Sequence[Sequence[Sequence[Message]]], *, compress: bool) -> float:
    """Hold these conversations, turn by turn: the bytes of the file when it is closed, for each byte of messages."""
    with closing(SQLite(path, compress=compress)) as store:
        for number, turns in enumerate(talks):
            answers = [compact(message) for turn in turns for message in turn if message["role"] == "assistant"]
            talk = Conversation(f"talk {number}", model=Model(answers), store=store, tools=[look_up])
            for turn in turns:
                talk.send(turn[0]["content"])
    left = [name for name in os.listdir(os.path.dirname(path)) if name.startswith(os.path.basename(path) + "-")]
    if left:
        raise AssertionError(f"not all of it is in the file: {left}")
    return os.path.getsize(path) / sum(len(compact(message)) for turns in talks for turn in turns for message in turn)


def of_samples() -> list[list[Message]]:
    """The texts of the samples as one conversation: paragraphs, by turns the user's and the model's."""
    texts = [text for path in sorted(SAMPLES.glob("*.txt")) for text in path.read_text().split("\n\n") if text.strip()]
    return [_exchange(*pair) for pair in zip(texts[::2], texts[1::2], strict=False)]


def of_file(path: Path) -> list[list[list[Message]]]:
    """The chats of a file, in turns."""
    chats = [[message["content"] for message in said] for _, said in read(str(path))]
    return [[_exchange(*pair) for pair in zip(texts[::2], texts[1::2], strict=True)] for texts in chats]


def _exchange(said: str, answer: str) -> list[Message]:
    return [{"role": "user", "content": said}, {"role": "assistant", "content": answer}]


def disk(folder: str, file: Path | None) -> list[Figure]:
    """How long a store's file is."""
    kept = file.name if file else "bench/samples"
    talks = {
        "workload": [[messages(number) for number in range(LONG)]],
        kept: of_file(file) if file else [of_samples()],
    }
    print("\nDisk: bytes of the closed file for each byte of the messages as compact JSON.\n")
    print(f"{'':28}{'plain':>12}{'compressed':>12}")
    sizes: dict[str, list[float]] = {}
    for number, (name, held) in enumerate(talks.items()):
        sizes[name] = [
            on_disk(os.path.join(folder, f"disk {number} {compress}.db"), held, compress=compress)
            for compress in (False, True)
        ]
        print(f"{name:28}" + "".join(f"{share:12.2f}" for share in sizes[name]))
    if file is None:
        print("\nWithout a file of conversations: what is short is not sealed, and so not compressed.")
    return [
        Figure("disk of the workload, plain, of its JSON", sizes["workload"][0], 1.4),
        Figure(f"disk of {kept}, compressed, of its JSON", sizes[kept][1], 0.5),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What turns on a store cost.")
    parser.add_argument("--store", choices=["sqlite", "postgres", "redis"], default="sqlite", help="the kind of store")
    parser.add_argument("file", nargs="?", type=Path, help="conversations to measure the disk with: BEAM, JSONL")
    given = parser.parse_args(arguments)
    file: Path | None = given.file
    if given.store != "sqlite":
        from bench.turns_served import one_turn as one_turn_served

        figures = one_turn_served(given.store)
        print("\n" + json.dumps({"bench": f"turns {given.store}", "goals": [figure.said() for figure in figures]}))
        return
    if file is not None and not file.is_file():
        parser.error(f"there is no file {file}")
    with tempfile.TemporaryDirectory() as folder:
        figures = [*one_turn(folder), *from_empty(folder), *throughput(folder), *disk(folder, file)]
    print("\n" + json.dumps({"bench": "turns", "goals": [figure.said() for figure in figures]}))


if __name__ == "__main__":
    main()
