"""Copy many small conversations to another store and back: conversations per second, and how many are identical.

`python -m bench.copying [--count N] [--to STORE]` writes conversations of four entries to a SQLite file, every
twentieth with a second branch. It copies them to the store that `--to` names (default: another SQLite file; `postgres`
and `redis` start a server), and from there to a third store, again a SQLite file. The times include reading each
conversation back and verifying its checksums.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from bench.turns_served import SERVED
from longtalk import Archive
from longtalk.stores import open_store
from longtalk.stores.base import MAIN, Commit, KeyedRequest, PlacedRecord, Store
from longtalk.stores.sqlite.store import SQLite
from longtalk.transcript.transcript import Entry, Record, Turn, link_entries, new_id
from longtalk.transfer.snapshot import read_snapshot
from longtalk.wires import WIRES

GOAL = 500
"""Conversations per CPU second, from SQLite to SQLite."""
BEGIN = 1_790_000_000_000


def fill_store(store: Store, count: int) -> None:
    """Write conversations with turns, manifests, keys, records and metadata."""
    wire = WIRES["openai-chat"]
    for number in range(count):
        name, parent, at = f"talk-{number}", None, BEGIN + number * 60_000
        for turn in range(2):
            id, at = new_id(), at + 5_000  # noqa: A001
            asked = Entry(role="user", wire=wire.name, native=wire.write_user(f"Question {turn} of {name}?"), at=at)
            said = json.dumps({"role": "assistant", "content": f"An answer to {turn}, slowly. " * 5}).encode()
            entries = link_entries(parent, id, 0, [asked, Entry(role="assistant", wire=wire.name, native=said, at=at)])
            parent = entries[-1].id
            commit = Commit(
                expect=turn,
                entries=entries,
                turn=Turn(id, "complete", "ollama:talker", at, at, usage=(b'{"prompt_tokens":20}',)),
                request=KeyedRequest(f"key-{turn}", "digest"),
                manifest=b'{"runs":[]}',
                records=(PlacedRecord(Record("meter", parent, at, b'{"spent":1}'), 2 * turn + 1),),
                meta={"title": name},
                at=at,
            )
            store.write("", name, commit)
        if number % 20 == 0:
            store.write("", name, Commit(branch="fork", expect=0, source=(MAIN, 2), at=at))


def count_identical(one: Store, other: Store, count: int) -> int:
    """Return how many conversations are equal in two stores."""
    pairs = ((read_snapshot(one, "", f"talk-{i}"), read_snapshot(other, "", f"talk-{i}")) for i in range(count))
    return sum(
        left is not None and right is not None and left.comparison_key() == right.comparison_key()
        for left, right in pairs
    )


def time_copy(one: Store, other: Store) -> tuple[float, float]:
    """Return the CPU seconds and the wall-clock seconds of a copy."""
    cpu, clock = time.process_time(), time.perf_counter()
    done = Archive(one).copy_to(other)
    if done.left:
        raise SystemExit(f"{len(done.left)} conversations were not copied; the first: {done.left[0]}")
    return time.process_time() - cpu, time.perf_counter() - clock


@contextmanager
def _open(name: str) -> Iterator[Store]:
    if name in SERVED:
        with SERVED[name]() as (store, _, _):
            yield store
    else:
        with closing(open_store(name)) as store:
            yield store


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its figures and goals."""
    parser = argparse.ArgumentParser(prog="python -m bench.copying", description=__doc__)
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--to", help="the store in the middle, as --store names it; default: a SQLite file")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        with (
            closing(SQLite(path / "from.db")) as source,
            _open(given.to or str(path / "to.db")) as middle,
            closing(SQLite(path / "back.db")) as back,
        ):
            fill_store(source, given.count)
            rates = [time_copy(source, middle), time_copy(middle, back), time_copy(source, middle)]
            same = count_identical(source, back, given.count)
            where = repr(middle).partition("(")[0]
    cpu, clock = ([round(given.count / spent[i]) for spent in rates] for i in (0, 1))
    print(f"{given.count:,} conversations of 4 entries. Conversations per CPU second (per second of wall-clock time):")
    print(f"  from SQLite to {where} {cpu[0]:,} ({clock[0]:,}), back {cpu[1]:,} ({clock[1]:,})")
    print(f"  when all are already there {cpu[2]:,} ({clock[2]:,})")
    print(f"Identical afterwards: {same:,} of {given.count:,}")
    slower = min(cpu[:2])
    measured = [
        *([] if given.to else [("conversations per CPU second", slower, GOAL, slower >= GOAL)]),
        ("identical conversations", same, given.count, same == given.count),
    ]
    goals = [{"name": name, "value": value, "goal": goal, "met": met} for name, value, goal, met in measured]
    print(json.dumps({"bench": "copying", "goals": goals}))


if __name__ == "__main__":
    main()
