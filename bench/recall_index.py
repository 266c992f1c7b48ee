"""The CPU time, memory and disk of the recall index in long conversations.

`python -m bench.recall_index PATH…` reads the files of `bench.recall` and joins their conversations into one of 500 and
one of 5,000 entries, in a SQLite store. Finding, ranking and rendering what fits a question is timed with a budget of
1,000 tokens: *warm* with the index of the turn before, *cold* by a process that has none, from the stored segments.
The time to index a message is that of indexing all entries again, divided by their number. The share of the disk is
that of the stored segments in the size of the text. With the extra `[recall]`, recall by meaning is measured too; its
vectors are loaded before.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.recall import Characters, Talk, make_entries, read_talks
from longtalk import Recall
from longtalk.memory.recall import search
from longtalk.memory.recall.index import RecallIndex, Unit
from longtalk.memory.recall.index_cache import IndexCache
from longtalk.stores.base import MAIN, Commit, PlacedRecord
from longtalk.stores.sqlite.store import SQLite
from longtalk.transcript.transcript import now
from longtalk.transfer.conversation_export import BranchPart, ConversationExport
from longtalk.transfer.load import import_exports

SIZES = (500, 5_000)
QUESTIONS = 40
COLD_STARTS = 3
_GAP = 3 * 86_400  # seconds between two of the joined conversations


class Figures(msgspec.Struct):
    """What was measured, in milliseconds of CPU, bytes and shares."""

    warm: float
    cold: float
    index: float
    memory: int
    disk: float
    stored: int


def join_talks(talks: Sequence[Talk], size: int) -> list[Unit]:
    """Return the first `size` messages of all conversations, one after the other, as often as needed."""
    units: list[Unit] = []
    at = 1_600_000_000
    while len(units) < size:
        for talk in talks:
            first = talk.units[0].at
            for unit in talk.units:
                units.append(msgspec.structs.replace(unit, position=len(units), at=unit.at - first + at))
            at = units[-1].at + _GAP
    return units[:size]


def measure(units: Sequence[Unit], questions: Sequence[str], path: Path, *, meaning: bool = False) -> Figures:
    """Return the figures for one conversation."""
    store, config = SQLite(path), Recall(1_000, meaning=meaning)

    def ask(question: str) -> tuple[float, RecallIndex]:
        head = store.head("", "talk", MAIN)
        assert head is not None
        records = [placed.record for placed in head.records]
        begun = time.process_time()
        index = search.index_store(store, "", "talk", MAIN, len(units), question, config, now=now(), records=records)
        search.render_recalled(index, question, config, Characters(), now=now())
        return 1e3 * (time.process_time() - begun), index

    branch = BranchPart(name=MAIN, entries=make_entries(units))
    import_exports(store, "", [ConversationExport(id="talk", branches=(branch,))])
    search._INDEX_CACHE = IndexCache()
    built, index = ask("hello")
    segments = search.list_new_segments(index)
    head = store.head("", "talk", MAIN)
    assert head is not None
    records = tuple(PlacedRecord(*each) for each in segments)
    store.write("", "talk", Commit(expect=head.revision, records=records, at=now()))
    colds = []
    for _ in range(COLD_STARTS):
        search._INDEX_CACHE = IndexCache()
        colds.append(ask(questions[0])[0])
    warm = statistics.median(ask(question)[0] for question in questions)
    text = sum(len(unit.text.encode()) for unit in units)
    stored = sum(len(record.data) for record, _ in segments)
    store.close()
    return Figures(warm, min(colds), built / len(units), index.nbytes, stored / text, stored)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its figures and goals."""
    parser = argparse.ArgumentParser(description="The CPU time, memory and disk of the recall index.")
    parser.add_argument("paths", nargs="*", type=Path, help="LoCoMo (.json) and BEAM (.jsonl) files")
    given = parser.parse_args(arguments)
    if not given.paths:
        print("No data. Pass LoCoMo or BEAM files to measure the index.")
    goals = []
    for path in given.paths:
        name, talks = read_talks(path)
        asked = [question for talk in talks for question, _ in talk.questions]
        questions = asked[:: max(1, len(asked) // QUESTIONS)]
        print(f"{name}{'warm':>20}{'cold':>10}{'index a message':>18}{'memory':>10}{'disk':>8}")
        ways = [("by words", False), ("by meaning", True)][: 1 + bool(importlib.util.find_spec("wordllama"))]
        found: dict[tuple[bool, int], Figures] = {}
        for way, meaning in ways:
            print(way)
            for size in SIZES:
                with tempfile.TemporaryDirectory() as folder:
                    each = measure(join_talks(talks, size), questions, Path(folder) / "talk.db", meaning=meaning)
                found[meaning, size] = each
                row = f"{each.warm:>8.1f} ms{each.cold:>7.0f} ms{each.index:>15.2f} ms{each.memory / 1e6:>7.1f} MB"
                print(f"{size:>7,} entries{row}{100 * each.disk:>6.0f} %", flush=True)
        few, many = found[False, SIZES[0]], found[False, SIZES[-1]]
        measured = [
            ("warm, 5,000 entries, ms", many.warm, 10),
            ("cold, 5,000 entries, ms", many.cold, 60),
            ("warm, 5,000 against 500 entries", many.warm / few.warm, 2),
            ("indexing a message, ms", many.index, 1),
            ("disk, share of the text", many.disk, 0.3),
        ]
        if len(ways) > 1:
            meant = found[True, SIZES[-1]]
            measured += [
                ("by meaning, warm, 5,000 entries, ms", meant.warm, 15),
                ("by meaning, cold, 5,000 entries, ms", meant.cold, 60),
                ("by meaning, bytes an entry more", (meant.stored - many.stored) / SIZES[-1], 400),
            ]
        goals += [
            {"name": f"{name}, {title}", "value": round(value, 2), "goal": goal, "met": value <= goal}
            for title, value, goal in measured
        ]
    print(json.dumps({"bench": "recall_index", "goals": goals}))


if __name__ == "__main__":
    main()
