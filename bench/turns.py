"""What a turn on a SQLite store costs, beside a plain `sqlite3` and `json` floor in the same run.

A turn is whole: the user's message is committed before the model is asked, the answer after. The model answers at once,
so what is measured is ours. *Cold* opens the conversation anew for each turn, *warm* goes on with the same object. The
floor reads all rows, decodes them, writes the request with all of them, and commits twice as well. Rounds are
interleaved and the least CPU time counts, so that a busy machine slows all sides or none.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from bench.workload import USAGE, messages
from longtalk import Conversation
from longtalk.draft import measured
from longtalk.policies import KeepAll, KeepLast, Policy
from longtalk.providers.base import Capabilities
from longtalk.stores.base import Commit
from longtalk.stores.sqlite import SQLite
from longtalk.tokens import Estimator
from longtalk.transcript import Entry, Turn, chain, now
from longtalk.wires import WIRES

SIZES = (10, 100, 1_000, 5_000)
ROUNDS = 12
_WIRE = WIRES["openai-chat"]


class Model:
    """Answers each request at once, and remembers how long the last one was."""

    label, model, account = "bench:model", "model", "bench"
    wire = _WIRE
    capabilities = Capabilities()
    defaults: Mapping[str, Any] = MappingProxyType({})

    def __init__(self) -> None:
        self.sent = 0
        message = json.dumps(messages(0)[-1]).encode()
        self._body = b'{"choices":[{"message":%s,"finish_reason":"stop"}],"usage":{"prompt_tokens":0}}' % message

    def send(self, body: bytes) -> bytes:
        self.sent = len(body)
        return self._body

    def stream(self, body: bytes) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        pass


def filled(store: SQLite, name: str, turns: int) -> None:
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


class Floor:
    """Rows of JSON in a table, read and decoded whole for each turn."""

    def __init__(self, path: str, turns: int) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = NORMAL")
        self.db.execute("CREATE TABLE IF NOT EXISTS m (talk TEXT, n INTEGER, body TEXT, PRIMARY KEY (talk, n))")
        self.talk, self.n = f"talk {turns}", 0
        self.db.execute("BEGIN")
        for number in range(turns):
            self._add(*messages(number))
        self.db.execute("COMMIT")

    def _add(self, *said: dict[str, Any]) -> None:
        for message in said:
            self.db.execute("INSERT INTO m VALUES (?, ?, ?)", (self.talk, self.n, json.dumps(message)))
            self.n += 1

    def turn(self) -> None:
        rows = self.db.execute("SELECT body FROM m WHERE talk = ? ORDER BY n", (self.talk,)).fetchall()
        said = [json.loads(body) for (body,) in rows]
        user = messages(1)[0]
        self.db.execute("BEGIN IMMEDIATE")
        self._add(user)
        self.db.execute("COMMIT")
        json.dumps({"model": "model", "messages": [*said, user]}).encode()
        self.db.execute("BEGIN IMMEDIATE")
        self._add(messages(0)[-1])
        self.db.execute("COMMIT")


def opened(store: SQLite, name: str, policy: Policy) -> Conversation:
    return Conversation(name, model=Model(), store=store, policy=policy)


def main() -> None:
    said = messages(1)[0]["content"]
    with tempfile.TemporaryDirectory() as folder:
        store = SQLite(os.path.join(folder, "ours.db"))
        sides: dict[str, dict[int, Callable[[], Any]]] = {}
        for turns in SIZES:
            for name in ("all, cold", "all, warm", "last 20, cold", "last 20, warm"):
                policy: Policy = KeepAll() if name.startswith("all") else KeepLast(20)
                filled(store, f"{name} {turns}", turns)
                talk = opened(store, f"{name} {turns}", policy)
                talk.send(said)
                if name.endswith("warm"):
                    sides.setdefault(name, {})[turns] = lambda talk=talk: talk.send(said)
                else:
                    sides.setdefault(name, {})[turns] = lambda key=f"{name} {turns}", policy=policy: opened(
                        store, key, policy
                    ).send(said)
            sides.setdefault("floor", {})[turns] = Floor(os.path.join(folder, "floor.db"), turns).turn
        best = {name: dict.fromkeys(SIZES, math.inf) for name in sides}
        for _ in range(ROUNDS):
            for name, works in sides.items():
                for turns, work in works.items():
                    begun = time.process_time_ns()
                    work()
                    spent = (time.process_time_ns() - begun) / 1e3
                    best[name][turns] = min(best[name][turns], spent)
        store.close()
    print("One turn on a SQLite store: CPU in microseconds, the least of many, by turns so far.\n")
    print(f"{'':18}" + "".join(f"{turns:>12,}" for turns in SIZES))
    for name, costs in best.items():
        print(f"{name:18}" + "".join(f"{costs[turns]:12.0f}" for turns in SIZES))
    floor = best["floor"][1_000]
    growth = math.log(best["last 20, warm"][5_000] / best["last 20, warm"][10]) / math.log(500)
    figures = {
        "keep all at 1,000 turns, cold, of the floor": (best["all, cold"][1_000] / floor, 0.25),
        "keep all at 1,000 turns, warm, of the floor": (best["all, warm"][1_000] / floor, 0.05),
        "growth exponent of a bounded policy": (growth, 0.05),
    }
    goals = [
        {"name": name, "value": round(value, 3), "goal": goal, "met": value <= goal}
        for name, (value, goal) in figures.items()
    ]
    print(json.dumps({"bench": "turns", "goals": goals}))


if __name__ == "__main__":
    main()
