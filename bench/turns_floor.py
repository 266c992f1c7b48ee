"""The floor of `bench.turns`: a turn with `sqlite3` and `json` alone.

Messages are rows of JSON. A turn reads all rows of its conversation, decodes them, commits the user's message, writes a
request with all of them, and commits the answer. There are no checks, no leases and no token counts.
"""

from __future__ import annotations

import json
import queue
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

from bench.workload import messages

TALKS, LENGTH, WORKERS = 200, 20, 16
"""For throughput: the number of conversations, the turns of each, and the threads or tasks that share the work."""

Queue = queue.SimpleQueue[int]


class Floor:
    """One conversation in a table of JSON, with its own connection."""

    def __init__(self, path: str, talk: str, turns: int = 0) -> None:
        self.db = sqlite3.connect(path, isolation_level=None, timeout=60)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = NORMAL")
        self.db.execute("CREATE TABLE IF NOT EXISTS m (talk TEXT, n INTEGER, body TEXT, PRIMARY KEY (talk, n))")
        self.begin(talk)
        self.db.execute("BEGIN IMMEDIATE")
        for number in range(turns):
            self._add(*messages(number))
        self.db.execute("COMMIT")

    def begin(self, talk: str) -> None:
        """Switch to a new conversation."""
        self.talk, self.n = talk, 0

    def turn(self, number: int = 1) -> None:
        """Run one turn with the messages of this number."""
        said, *_, answer = messages(number)
        rows = self.db.execute("SELECT body FROM m WHERE talk = ? ORDER BY n", (self.talk,)).fetchall()
        before = [json.loads(body) for (body,) in rows]
        self._commit(said)
        json.dumps({"model": "model", "messages": [*before, said]}).encode()
        self._commit(answer)

    def close(self) -> None:
        self.db.close()

    def _commit(self, message: dict[str, Any]) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        self._add(message)
        self.db.execute("COMMIT")

    def _add(self, *said: dict[str, Any]) -> None:
        for message in said:
            self.db.execute("INSERT INTO m VALUES (?, ?, ?)", (self.talk, self.n, json.dumps(message)))
            self.n += 1


def run_floor_threads(path: str) -> None:
    """Run all conversations in threads, each with its own connection."""
    Floor(path, "").close()

    def work(jobs: Queue) -> None:
        with closing(Floor(path, "")) as floor:
            for job in take_jobs(jobs):
                floor.begin(f"talk {job}")
                for number in range(LENGTH):
                    floor.turn(number)

    run_in_threads(work)


def run_in_threads(work: Callable[[Queue], None]) -> None:
    """Run `work` in all threads, on one queue of conversations."""
    jobs = make_queue()
    with ThreadPoolExecutor(WORKERS) as workers:
        for done in [workers.submit(work, jobs) for _ in range(WORKERS)]:
            done.result()


def make_queue() -> Queue:
    """Return a queue with the number of each conversation."""
    jobs: Queue = queue.SimpleQueue()
    for job in range(TALKS):
        jobs.put(job)
    return jobs


def take_jobs(jobs: Queue) -> Iterator[int]:
    """Yield jobs from the queue until it is empty."""
    with suppress(queue.Empty):
        while True:
            yield jobs.get_nowait()
