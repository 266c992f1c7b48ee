"""The cost of turns on a SQLite store, next to a floor of plain `sqlite3` and `json` (`turns_floor.py`).

    python -m bench.turns [--store sqlite] [FILE]

Each turn commits the user's message before it asks the model, and the answer after. The model answers at once and
reports the length of the request, so the figures are Longtalk's own cost. *Cold* opens the conversation again for each
turn, *warm* keeps the same object. Rounds are interleaved and the least CPU time counts, so that a busy machine slows
all sides or none. Only ratios are comparable.

Disk is the size of the closed file, as a ratio to the compact JSON of the messages. The file also holds turns with
their usage, records, leases, and about 100 KB of empty tables. Only packs are compressed, and the last 64 to 128 KB of
a conversation are rows, so a short conversation is not compressed. FILE is BEAM's chats (JSONL). Without it, the texts
of bench/samples form one conversation of 35 KB, which is too short to be compressed.

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
from longtalk.policies import KeepAll, KeepLast, Policy
from longtalk.providers.base import Capabilities
from longtalk.stores.base import Commit, Store
from longtalk.stores.sqlite.store import SQLite
from longtalk.tokens import Estimator
from longtalk.transcript.transcript import Entry, Turn, link_entries, now
from longtalk.turn.draft import measured
from longtalk.wires import WIRES

SIZES = (10, 100, 1_000, 5_000)
ROUNDS = 12
LONG, LONG_ROUNDS = 1_000, 2
"""The turns of a conversation that starts empty, and the number of rounds."""
CREW_ROUNDS = 3
_WIRE = WIRES["openai-chat"]
_KEEP_ALL = KeepAll()

Message = dict[str, Any]
Side = Callable[[str], None]
"""A function to measure; it takes the path of a file that does not exist yet."""


class Figure(NamedTuple):
    """A measured value and its goal."""

    name: str
    value: float
    goal: float
    least: bool = False

    def said(self) -> dict[str, Any]:
        met = self.value >= self.goal if self.least else self.value <= self.goal
        return {"name": self.name, "value": round(self.value, 3), "goal": self.goal, "met": met}


# The model


class _Script:
    """A model with prepared answers that reports a plausible request length."""

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
    """The sync model."""

    def send(self, body: bytes) -> bytes:
        return self.answer(body)

    def close(self) -> None:
        pass


class AsyncModel(_Script):
    """The async model."""

    async def send(self, body: bytes) -> bytes:
        return self.answer(body)

    async def aclose(self) -> None:
        pass


def compact(message: Message) -> bytes:
    """Return a message as compact JSON."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


SAID: list[str] = [messages(number)[0]["content"] for number in range(LONG)]
ANSWERS = [compact(messages(number)[-1]) for number in range(LONG)]
"""Messages, created beforehand so that the figures don't include the time to write them."""


def opened(store: Store, name: str, policy: Policy, answers: Iterable[bytes] | None = None) -> Conversation:
    """Return a conversation of this store with a model that answers at once."""
    model = Model(itertools.repeat(ANSWERS[1]) if answers is None else answers)
    return Conversation(name, model=model, store=store, policy=policy)


# One turn, by the turns so far


def filled(store: Store, name: str, turns: int) -> None:
    """Write a conversation turn by turn, so that the store lays it out as in production."""
    head, revision = None, 0
    for number in range(turns):
        said = [
            Entry(role=message["role"], wire=_WIRE.name, native=json.dumps(message).encode(), at=now())
            for message in messages(number)
        ]
        entries = link_entries(head, f"t{number}", 0, measured(said, Estimator()))
        turn = Turn(id=f"t{number}", status="complete", model="bench:model", started=now(), usage=(USAGE,))
        revision = store.write("", name, Commit(expect=revision, entries=entries, turn=turn, at=now())).revision
        head = entries[-1].id


def one_turn(folder: str) -> list[Figure]:
    """Measure one more turn in conversations of several lengths."""
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
    """Return the CPU seconds of `work` in all threads of this process."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def least(folder: str, sides: Mapping[str, Side], rounds: int) -> dict[str, float]:
    """Return the least CPU seconds of each side. Every round starts without a file."""
    best = dict.fromkeys(sides, math.inf)
    for number in range(rounds):
        for name, work in sides.items():
            gc.collect()
            path = os.path.join(folder, f"{name} {number}.db")
            best[name] = min(best[name], spent(partial(work, path)))
    return best


def from_empty(folder: str) -> list[Figure]:
    """Measure a long conversation from its first turn."""

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
    """Measure many conversations at once on one store, each opened once."""
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
    """Return the facts about an order; the workload calls this tool."""
    result: str = messages(order)[2]["content"]
    return result


def on_disk(path: str, talks: Sequence[Sequence[Sequence[Message]]], *, compress: bool) -> float:
    """Write these conversations, and return the size of the closed file per byte of messages."""
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
    """Return the samples as one conversation whose paragraphs alternate between user and model."""
    texts = [text for path in sorted(SAMPLES.glob("*.txt")) for text in path.read_text().split("\n\n") if text.strip()]
    return [_exchange(*pair) for pair in zip(texts[::2], texts[1::2], strict=False)]


def of_file(path: Path) -> list[list[list[Message]]]:
    """Return the chats of a file, split into turns."""
    chats = [[message["content"] for message in said] for _, said in read(str(path))]
    return [[_exchange(*pair) for pair in zip(texts[::2], texts[1::2], strict=True)] for texts in chats]


def _exchange(said: str, answer: str) -> list[Message]:
    return [{"role": "user", "content": said}, {"role": "assistant", "content": answer}]


def disk(folder: str, file: Path | None) -> list[Figure]:
    """Measure the size of a store's file."""
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
    """Run the benchmark and print its figures and goals."""
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
        parser.error(f"file not found: {file}")
    with tempfile.TemporaryDirectory() as folder:
        figures = [*one_turn(folder), *from_empty(folder), *throughput(folder), *disk(folder, file)]
    print("\n" + json.dumps({"bench": "turns", "goals": [figure.said() for figure in figures]}))


if __name__ == "__main__":
    main()
