"""The service under load: a thousand conversations that stream at once, and what each turn and event costs.

`python -m bench.service [--conversations N] [--stores sqlite,postgres] [--processes 1,2]`

A scripted provider, the service and the clients are processes of their own. The floor is a bare Starlette app that
relays the bytes of the same provider through the same HTTP client and server. The CPU time is that of the server's
process, as the kernel counts it, so that other programs on the machine hardly matter; the store's server is not in it.
A piece of text carries the time at which the provider sent it, so the client sees how late it is.

Memory is measured when no turn runs, after rounds of streams, on conversations that grow and on new ones in turn.
`python -m bench.service --rounds 100` does only that, with many rounds of few streams.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic_ns, sleep
from typing import Any, NamedTuple

from bench.service_parts import STAMP, make_prompt
from longtalk.stores import open_store

PIECES = 24
INTERVAL = 0.4
"""Seconds between two pieces of an answer: a thousand conversations then get 2,500 pieces per second."""
ROUNDS = 4
FEW, LONG = 100, 120
"""The conversations whose CPU time is measured, and the pieces of a long answer: this leaves the machine some rest."""
GOALS = {"event": 2.0, "turn": 3.0, "delay": 3.0}
MEMORY_ROUNDS = 20
MEMORY_GOAL, SMALL_ROUNDS_GOAL = 1.1, 1.05
REST_SECONDS = 11.0
"""Longer than the service waits until it returns free memory."""
_TICK = os.sysconf("SC_CLK_TCK")
FAILURE = re.compile(rb'"type":"response\.failed".*"error":(\{[^}]*\})')
"""Finds the error of a response that failed."""


class Turn(NamedTuple):
    """What a client saw of one turn."""

    response: str
    pieces: int
    delays: list[float]
    failure: str
    """What the response says went wrong, or nothing."""


class Load(NamedTuple):
    """What many turns at the same time have cost."""

    turns: list[Turn]
    cpu: float
    peak: int
    """The most resident memory that was seen meanwhile."""


class Server:
    """The processes of one app that listen on one port."""

    def __init__(self, processes: list[subprocess.Popen[str]], port: int) -> None:
        self._processes = processes
        self.port = port

    def read_cpu(self) -> float:
        """Return the CPU time so far, in seconds."""
        stats = [Path(f"/proc/{each.pid}/stat").read_text().rpartition(")")[2].split() for each in self._processes]
        return sum(int(fields[11]) + int(fields[12]) for fields in stats) / _TICK

    def read_memory(self) -> int:
        """Return the resident memory, in bytes."""
        pages = [int(Path(f"/proc/{each.pid}/statm").read_text().split()[1]) for each in self._processes]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE")

    def read_memory_at_rest(self) -> int:
        """Wait until the app has nothing to do, and return the resident memory, in bytes."""
        for _ in range(10):
            before = self.read_cpu()
            sleep(REST_SECONDS)
            if self.read_cpu() - before < REST_SECONDS / 20:
                break
        return self.read_memory()


class _Client(asyncio.Protocol):
    """Asks for one turn and reads its events."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._rest = b""
        self._response = b""
        self._failure = b""
        self._stamps: list[float] = []
        self.ended: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        head = b"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        transport.write(head + b"content-length: %d\r\n\r\n%s" % (len(self._body), self._body))
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        at = monotonic_ns()
        self._rest += data
        for stamp in STAMP.finditer(self._rest):
            self._stamps.append((at - int(stamp[1])) / 1e6)
        if not self._response and (place := self._rest.find(b'"id":"resp_')) >= 0:
            self._response = self._rest[place + 6 : self._rest.index(b'"', place + 6)]
        if found := FAILURE.search(self._rest):
            self._failure = found[1]
        if b"[DONE]" in self._rest:
            if not self.ended.done():
                turn = Turn(self._response.decode(), len(self._stamps), self._stamps, self._failure.decode())
                self.ended.set_result(turn)
            self._transport.close()
        # What is left can be the begin of an event.
        self._rest = self._rest[self._rest.rfind(b"\n") + 1 :]

    def connection_lost(self, problem: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(problem or ConnectionError(f"the stream ended early: {self._rest[:200]!r}"))


async def _ask(port: int, body: dict[str, Any]) -> Turn:
    client = _Client(json.dumps(body).encode())
    await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", port)
    return await client.ended


async def _ask_all(
    server: Server, bodies: list[dict[str, Any]], seconds: float
) -> tuple[list[Turn | BaseException], int]:
    """Ask for all turns, spread over some seconds. Return what the clients saw, and the most memory meanwhile."""

    async def ask_later(number: int, body: dict[str, Any]) -> Turn:
        await asyncio.sleep(seconds * number / len(bodies))
        return await _ask(server.port, body)

    asked = asyncio.gather(*(ask_later(*each) for each in enumerate(bodies)), return_exceptions=True)
    peak = server.read_memory()
    while not asked.done():
        await asyncio.wait([asked], timeout=0.2)
        peak = max(peak, server.read_memory())
    return await asked, peak


class Bench:
    """Runs loads, and counts errors."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def load(self, server: Server, conversations: int, pieces: int, interval: float, after: Sequence[str] = ()) -> Load:
        """Let conversations stream at the same time, and measure. `after` are the responses that they follow."""
        body = {"model": "m", "input": make_prompt(pieces, interval), "stream": True}
        bodies = [body | ({"previous_response_id": after[i]} if after else {}) for i in range(conversations)]
        before = server.read_cpu()
        # The begin of turns is spread over two pieces' time, and all of them stream at once afterwards.
        found, peak = asyncio.run(_ask_all(server, bodies, 4 * interval))
        turns = [turn for turn in found if isinstance(turn, Turn)]
        self.errors += [repr(each) for each in found if not isinstance(each, Turn)]
        self.errors += [f"{turn.pieces} pieces of {pieces} {turn.failure}" for turn in turns if turn.pieces != pieces]
        return Load(turns, server.read_cpu() - before, peak)


@contextmanager
def run_part(*arguments: str, count: int = 1) -> Iterator[Server]:
    """Run one of the other parts, in one process or in several that share a port."""
    processes: list[subprocess.Popen[str]] = []
    port = "0"
    try:
        for _ in range(count):
            command = [sys.executable, "-m", "bench.service_parts", *arguments]
            started = subprocess.Popen(
                [*command, port] if len(arguments) > 1 else command, stdout=subprocess.PIPE, text=True
            )
            processes.append(started)
            assert started.stdout is not None
            port = started.stdout.readline().strip()
        yield Server(processes, int(port))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)
            assert process.stdout is not None
            process.stdout.close()


@contextmanager
def make_store(kind: str) -> Iterator[str]:
    """Provide the address of an empty store."""
    folder = tempfile.mkdtemp(prefix="bench")
    try:
        if kind == "sqlite":
            yield f"{folder}/talks.db"
        else:
            from tests.support.postgres_server import server

            yield server().url(database=server().database())
    finally:
        shutil.rmtree(folder)


def find_percentile(delays: list[float], share: float) -> float:
    """Return the delay that this share of the delays does not exceed."""
    return sorted(delays)[min(int(share * len(delays)), len(delays) - 1)]


def count_wrong_turns(store: str, conversations: int, rounds: int) -> float:
    """Return how many turns are lost or doubled in a store."""
    with open_store(store) as opened:
        found = opened.conversations("", limit=10 * conversations)
        # A turn has a message and an answer. Conversations of one turn belong to the other loads.
        turns = [info.entries / 2 for info in found if info.entries > 2]
    return abs(conversations - len(turns)) * rounds + sum(abs(count - rounds) for count in turns)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its figures and goals."""
    parser = argparse.ArgumentParser(description="The service under load.")
    parser.add_argument("--conversations", type=int, default=1_000)
    parser.add_argument("--stores", default="sqlite,postgres")
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--rounds", type=int, default=0, help="only run small rounds, and show the memory")
    given = parser.parse_args(arguments)
    bench = Bench()
    if given.rounds:
        with run_part("provider") as provider:
            upstream = f"http://127.0.0.1:{provider.port}"
            goals = [
                measure_growth(bench, kind, upstream, given.rounds, FEW, 4, SMALL_ROUNDS_GOAL)
                for kind in given.stores.split(",")
            ]
        print(f"Errors: {len(bench.errors)}", *bench.errors[:3])
        print(json.dumps({"bench": "service", "goals": [*goals, make_goal("errors", len(bench.errors), 0)]}))
        return
    print(f"{given.conversations:,} conversations at once, {PIECES} pieces in {PIECES * INTERVAL:.0f} seconds each.\n")
    columns = ("CPU/event", "CPU/turn", "of it fix", "at load", "delay p95")
    print(f"{'':28}" + "".join(f"{name:>11}" for name in columns) + f"{'peak':>11}{'wrong':>7}")
    goals = []
    with ExitStack() as stack:
        provider = stack.enter_context(run_part("provider"))
        upstream = f"http://127.0.0.1:{provider.port}"
        with run_part("bare", upstream, "") as server:
            floor = measure(bench, "bare relay", server, given.conversations)
        for kind in given.stores.split(","):
            for count in map(int, given.processes.split(",")):
                with make_store(kind) as store, run_part("service", upstream, store, count=count) as server:
                    name = f"{kind}, {count} process{'es' if count > 1 else ''}"
                    found = measure(bench, name, server, given.conversations, store)
                if count == 1:
                    for each, goal in GOALS.items():
                        value = round(found[each] / floor[each], 3)
                        goals.append(make_goal(f"{kind}, {_GOAL_NAMES[each]}", value, goal))
                goals.append(make_goal(f"{name}, lost or doubled turns", found["wrong"], 0))
        print("\nTimes in microseconds of CPU, delays in milliseconds, the most resident memory in MB.")
        for kind in given.stores.split(","):
            streams = given.conversations // 2
            goals.append(measure_growth(bench, kind, upstream, MEMORY_ROUNDS, streams, PIECES, MEMORY_GOAL))
    print(f"\nErrors: {len(bench.errors)}", *bench.errors[:3])
    goals.append(make_goal("errors", len(bench.errors), 0))
    print(json.dumps({"bench": "service", "goals": goals}))


def measure_growth(
    bench: Bench, kind: str, upstream: str, rounds: int, streams: int, pieces: int, goal: float
) -> dict[str, Any]:
    """Run rounds of streams, print the memory at rest after some of them, and return the goal of its growth.

    Each second round goes on with the conversations of the one two rounds before; the others are on new conversations.
    Pools and caches grow in the first fifth of the rounds.
    """
    memory, peaks, after = [], [], list[str]()
    first = max(1, rounds // 5)
    with make_store(kind) as store, run_part("service", upstream, store) as server:
        print(f"\n{kind}, 1 process, {streams} streams a round. At rest, and the peak since then:")
        for number in range(1, rounds + 1):
            grows = number % 2 == 0
            load = bench.load(server, streams, pieces, 0.05, after if grows else ())
            peaks.append(load.peak)
            if grows:
                after = [turn.response for turn in load.turns] if len(load.turns) == streams else []
            if number % first == 0:
                memory.append(server.read_memory_at_rest())
                print(f"{number:6} rounds{memory[-1] / 1e6:9.1f}{max(peaks) / 1e6:9.1f} MB", flush=True)
                peaks.clear()
    name = (
        f"{kind}, growth of memory at rest from round {first} to round {rounds // first * first} of {streams} streams"
    )
    return make_goal(name, round(memory[-1] / memory[0], 3), goal)


_GOAL_NAMES = {
    "event": "CPU of an event against a bare relay",
    "turn": "CPU of a turn against a bare relay",
    "delay": "95th percentile of the delay at half load against a bare relay",
}


def make_goal(name: str, value: float, goal: float) -> dict[str, Any]:
    """Return a goal as it is printed."""
    return {"name": name, "value": value, "goal": goal, "met": value <= goal}


def measure(bench: Bench, name: str, server: Server, conversations: int, store: str = "") -> dict[str, float]:
    """Measure an app, print a row of the table, and return the figures."""
    bench.load(server, FEW, PIECES, 0.01)
    # Under full load, several events arrive with one read, so they would seem to cost less.
    turn = min(bench.load(server, FEW, PIECES, INTERVAL).cpu for _ in range(2)) / FEW
    event = (min(bench.load(server, FEW, LONG, 0.1).cpu for _ in range(2)) / FEW - turn) / (LONG - PIECES)
    half = bench.load(server, conversations // 2, PIECES, INTERVAL)
    delay = find_percentile([delay for each in half.turns for delay in each.delays], 0.95)
    after: list[str] = []
    loads = []
    for _ in range(ROUNDS):
        loads.append(bench.load(server, conversations, PIECES, INTERVAL, after))
        after = [turn.response for turn in loads[-1].turns] if store else []
    wrong = count_wrong_turns(store, conversations, ROUNDS) if store else 0
    peak = max(load.peak for load in loads)
    full = min(load.cpu for load in loads) / conversations
    times = (event, turn, turn - PIECES * event, full)
    row = "".join(f"{1e6 * time:11.0f}" for time in times)
    print(f"{name:28}{row}{delay:11.1f}{peak / 1e6:11.0f}{wrong:7.0f}", flush=True)
    return {"event": event, "turn": turn, "delay": delay, "wrong": wrong}


if __name__ == "__main__":
    main()
