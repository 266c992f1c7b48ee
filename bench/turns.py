"""The cost of turns on a SQLite store: CPU time and disk space relative to a floor, and writes.

    python -m bench.turns [--store sqlite] [FILE]

The floor is plain `sqlite3` and `json` (`turns_floor.py`). Each turn commits the user's message before it calls the
model, and the answer afterwards. The model answers at once and reports the length of the request, so the figures are
Longtalk's own cost. *Cold* opens the conversation again for each turn, *warm* keeps the same object. Rounds are
interleaved and the least CPU time counts, so that a busy machine slows all sides or none. Only ratios are comparable.
`turns_writes.py` counts what a turn writes.

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

from bench.tokens import SAMPLES, read_conversations
from bench.turns_floor import (
    LENGTH,
    TALKS,
    WORKERS,
    Floor,
    Queue,
    make_queue,
    run_floor_threads,
    run_in_threads,
    take_jobs,
)
from bench.workload import USAGE, messages
from longtalk import AsyncConversation, Conversation
from longtalk.policies import KeepAll, KeepLast, Policy
from longtalk.providers.base import Capabilities
from longtalk.stores.base import Commit, Store
from longtalk.stores.sqlite.store import SQLite
from longtalk.tokens import Estimator
from longtalk.transcript.lookalikes import mark_lookalike
from longtalk.transcript.transcript import Entry, Turn, link_entries, now
from longtalk.turn.draft import add_token_counts
from longtalk.wires import WIRES

SIZES = (10, 20, 100, 1_000, 5_000)
ROUNDS = 12
LONG, LONG_ROUNDS = 1_000, 2
"""The turns of a conversation that starts empty, and the number of rounds."""
THROUGHPUT_ROUNDS = 3
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
    at_least: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the figure as the last line of a benchmark lists it."""
        met = self.value >= self.goal if self.at_least else self.value <= self.goal
        return {"name": self.name, "value": round(self.value, 3), "goal": self.goal, "met": met}


# The model


class _ScriptedModel:
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


class Model(_ScriptedModel):
    """The sync model."""

    def send(self, body: bytes) -> bytes:
        return self.answer(body)

    def close(self) -> None:
        pass


class AsyncModel(_ScriptedModel):
    """The async model."""

    async def send(self, body: bytes) -> bytes:
        return self.answer(body)

    async def aclose(self) -> None:
        pass


def encode_compact(message: Message) -> bytes:
    """Return a message as compact JSON."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


MESSAGES: list[str] = [messages(number)[0]["content"] for number in range(LONG)]
ANSWERS = [encode_compact(messages(number)[-1]) for number in range(LONG)]
"""Messages and answers, created beforehand so that the figures don't include the time to create them."""


def open_conversation(store: Store, name: str, policy: Policy, answers: Iterable[bytes] | None = None) -> Conversation:
    """Return a conversation of this store with a model that answers at once."""
    model = Model(itertools.repeat(ANSWERS[1]) if answers is None else answers)
    return Conversation(name, model=model, store=store, policy=policy)


# One turn, by the turns so far


def fill_conversation(store: Store, name: str, turns: int) -> None:
    """Write a conversation turn by turn, so that the store lays it out as in production."""
    head, revision = None, 0
    for number in range(turns):
        said = [
            Entry(role=message["role"], wire=_WIRE.name, native=json.dumps(message).encode(), at=now())
            for message in messages(number)
        ]
        said = [mark_lookalike(entry, is_first=not number and not i) for i, entry in enumerate(said)]
        entries = link_entries(head, f"t{number}", 0, add_token_counts(said, Estimator()))
        turn = Turn(id=f"t{number}", status="complete", model="bench:model", started=now(), usage=(USAGE,))
        revision = store.write("", name, Commit(expect=revision, entries=entries, turn=turn, at=now())).revision
        head = entries[-1].id


def measure_one_turn(folder: str) -> list[Figure]:
    """Measure one more turn in conversations of several lengths."""
    store = SQLite(os.path.join(folder, "ours.db"))
    sides: dict[str, dict[int, Callable[[], Any]]] = {}
    floors: list[Floor] = []
    for turns in SIZES:
        for name in ("all, cold", "all, warm", "last 20, cold", "last 20, warm"):
            policy: Policy = _KEEP_ALL if name.startswith("all") else KeepLast(20)
            fill_conversation(store, f"{name} {turns}", turns)
            talk = open_conversation(store, f"{name} {turns}", policy)
            talk.send(MESSAGES[1])
            warm = name.endswith("warm")
            sides.setdefault(name, {})[turns] = partial(_run_turn, store, talk.id, policy, talk if warm else None)
        floors.append(Floor(os.path.join(folder, "floor.db"), f"talk {turns}", turns))
        sides.setdefault("floor", {})[turns] = floors[-1].turn
    best = {name: dict.fromkeys(SIZES, math.inf) for name in sides}
    for _ in range(ROUNDS):
        for name, works in sides.items():
            for turns, work in works.items():
                best[name][turns] = min(best[name][turns], measure_cpu(work))
    for opened in (store, *floors):
        opened.close()
    print("One turn on a SQLite store: CPU in microseconds, the least of many, by turns so far.\n")
    print(f"{'':28}" + "".join(f"{turns:>12,}" for turns in SIZES))
    for name, costs in best.items():
        print(f"{name:28}" + "".join(f"{1e6 * costs[turns]:12.0f}" for turns in SIZES))
    floor = best["floor"][1_000]
    # A warm turn at 20 turns cost 3.2 times the floor before a turn had one path; the goal is half of that.
    growth = math.log(best["last 20, warm"][5_000] / best["last 20, warm"][10]) / math.log(500)
    return [
        Figure("keep all at 1,000 turns, cold, relative to the floor", best["all, cold"][1_000] / floor, 0.25),
        Figure("keep all at 1,000 turns, warm, relative to the floor", best["all, warm"][1_000] / floor, 0.04),
        Figure("keep all at 20 turns, warm, relative to the floor", best["all, warm"][20] / best["floor"][20], 1.6),
        Figure("growth exponent of a bounded policy", growth, 0.05),
    ]


def _run_turn(store: SQLite, name: str, policy: Policy, talk: Conversation | None) -> None:
    (talk or open_conversation(store, name, policy)).send(MESSAGES[1])


# Many turns


def measure_cpu(work: Callable[[], Any]) -> float:
    """Return the CPU seconds of `work` in all threads of this process."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def measure_least(folder: str, sides: Mapping[str, Side], rounds: int) -> dict[str, float]:
    """Return the least CPU seconds of each side. Every round starts without a file."""
    best = dict.fromkeys(sides, math.inf)
    for number in range(rounds):
        for name, work in sides.items():
            gc.collect()
            path = os.path.join(folder, f"{name} {number}.db")
            best[name] = min(best[name], measure_cpu(partial(work, path)))
    return best


def measure_from_empty(folder: str) -> list[Figure]:
    """Measure a long conversation from its first turn."""

    def run_longtalk(policy: Policy, warm: bool, path: str) -> None:
        answers = iter(ANSWERS)
        with closing(SQLite(path)) as store:
            talk = open_conversation(store, "talk", policy, answers)
            for said in MESSAGES:
                talk = talk if warm else open_conversation(store, "talk", policy, answers)
                talk.send(said)

    def run_floor(path: str) -> None:
        with closing(Floor(path, "talk")) as floor:
            for number in range(LONG):
                floor.turn(number)

    sides: dict[str, Side] = {
        "all, cold": partial(run_longtalk, _KEEP_ALL, False),
        "all, warm": partial(run_longtalk, _KEEP_ALL, True),
        "last 20, warm": partial(run_longtalk, KeepLast(20), True),
        "floor": run_floor,
    }
    best = measure_least(folder, sides, LONG_ROUNDS)
    print(
        f"\n{LONG:,} turns from empty: CPU in seconds, the least of {LONG_ROUNDS} rounds, and relative to the floor.\n"
    )
    for name, cost in best.items():
        print(f"{name:28}{cost:12.2f}{cost / best['floor']:12.2f}")
    return [
        Figure("1,000 turns from empty, keep all, warm, relative to the floor", best["all, warm"] / best["floor"], 0.2)
    ]


def measure_throughput(folder: str) -> list[Figure]:
    """Measure many conversations at once on one store, each opened once."""
    best = measure_least(
        folder, {"threads": _run_threads, "tasks": _run_tasks, "floor, threads": run_floor_threads}, THROUGHPUT_ROUNDS
    )
    print(f"\n{TALKS} conversations of {LENGTH} turns, {WORKERS} at once: turns per CPU second, and of the floor.\n")
    for name, cost in best.items():
        print(f"{name:28}{TALKS * LENGTH / cost:12.0f}{best['floor, threads'] / cost:12.2f}")
    return [
        Figure(
            f"throughput of {WORKERS} {name}, relative to the floor (at least)",
            best["floor, threads"] / best[name],
            0.5,
            True,
        )
        for name in ("threads", "tasks")
    ]


def _run_threads(path: str) -> None:
    def work(jobs: Queue) -> None:
        for job in take_jobs(jobs):
            talk = open_conversation(store, f"talk {job}", _KEEP_ALL, ANSWERS)
            for said in MESSAGES[:LENGTH]:
                talk.send(said)

    with closing(SQLite(path)) as store:
        run_in_threads(work)


def _run_tasks(path: str) -> None:
    async def work(jobs: Queue) -> None:
        for job in take_jobs(jobs):
            talk = AsyncConversation(f"talk {job}", model=AsyncModel(ANSWERS), store=store)
            for said in MESSAGES[:LENGTH]:
                await talk.send(said)

    async def run_all() -> None:
        jobs = make_queue()
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(work(jobs))

    with closing(SQLite(path)) as store:
        asyncio.run(run_all())


# Disk


def look_up(order: int, fields: list[str]) -> str:  # noqa: ARG001
    """Return the facts about an order; the workload calls this tool."""
    result: str = messages(order)[2]["content"]
    return result


def measure_file(path: str, talks: Sequence[Sequence[Sequence[Message]]], *, compress: bool) -> float:
    """Write these conversations, and return the size of the closed file per byte of messages."""
    with closing(SQLite(path, compress=compress)) as store:
        for number, turns in enumerate(talks):
            answers = [encode_compact(message) for turn in turns for message in turn if message["role"] == "assistant"]
            talk = Conversation(f"talk {number}", model=Model(answers), store=store, tools=[look_up])
            for turn in turns:
                talk.send(turn[0]["content"])
    left = [name for name in os.listdir(os.path.dirname(path)) if name.startswith(os.path.basename(path) + "-")]
    if left:
        raise AssertionError(f"the store left other files next to its own: {left}")
    return os.path.getsize(path) / sum(
        len(encode_compact(message)) for turns in talks for turn in turns for message in turn
    )


def read_samples() -> list[list[Message]]:
    """Return the samples as one conversation whose paragraphs alternate between user and model."""
    texts = [text for path in sorted(SAMPLES.glob("*.txt")) for text in path.read_text().split("\n\n") if text.strip()]
    return [_make_turn(*pair) for pair in zip(texts[::2], texts[1::2], strict=False)]


def read_chats(path: Path) -> list[list[list[Message]]]:
    """Return the chats of a file, split into turns."""
    chats = [[message["content"] for message in said] for _, said in read_conversations(str(path))]
    return [[_make_turn(*pair) for pair in zip(texts[::2], texts[1::2], strict=True)] for texts in chats]


def _make_turn(said: str, answer: str) -> list[Message]:
    return [{"role": "user", "content": said}, {"role": "assistant", "content": answer}]


def measure_disk(folder: str, file: Path | None) -> list[Figure]:
    """Measure the size of a store's file."""
    other = file.name if file else "bench/samples"
    talks = {
        "workload": [[messages(number) for number in range(LONG)]],
        other: read_chats(file) if file else [read_samples()],
    }
    print("\nDisk: bytes of the closed file for each byte of the messages as compact JSON.\n")
    print(f"{'':28}{'plain':>12}{'compressed':>12}")
    sizes: dict[str, list[float]] = {}
    for number, (name, held) in enumerate(talks.items()):
        sizes[name] = [
            measure_file(os.path.join(folder, f"disk {number} {compress}.db"), held, compress=compress)
            for compress in (False, True)
        ]
        print(f"{name:28}" + "".join(f"{share:12.2f}" for share in sizes[name]))
    if file is None:
        print("\nThe samples are too short to be compressed: pass FILE to measure compression.")
    return [
        Figure("disk of the workload, plain, relative to its JSON", sizes["workload"][0], 1.4),
        Figure(f"disk of {other}, compressed, relative to its JSON", sizes[other][1], 0.5),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its figures and goals."""
    parser = argparse.ArgumentParser(description="The CPU time, writes and disk space of turns.")
    parser.add_argument("--store", choices=["sqlite", "postgres", "redis"], default="sqlite", help="the kind of store")
    parser.add_argument("file", nargs="?", type=Path, help="chats to measure the disk space with (BEAM, JSONL)")
    given = parser.parse_args(arguments)
    file: Path | None = given.file
    if given.store != "sqlite":
        from bench.turns_served import measure_one_turn as measure_one_turn_served

        figures = measure_one_turn_served(given.store)
        print("\n" + json.dumps({"bench": f"turns {given.store}", "goals": [figure.to_json() for figure in figures]}))
        return
    if file is not None and not file.is_file():
        parser.error(f"file not found: {file}")
    from bench.turns_writes import measure_writes

    with tempfile.TemporaryDirectory() as folder:
        figures = [
            *measure_one_turn(folder),
            *measure_writes(folder),
            *measure_from_empty(folder),
            *measure_throughput(folder),
            *measure_disk(folder, file),
        ]
    print("\n" + json.dumps({"bench": "turns", "goals": [figure.to_json() for figure in figures]}))


if __name__ == "__main__":
    main()
