"""What a profile costs a turn when the owner has many conversations.

An owner gets conversations in a SQLite file, each with one exchange; one in ten states a line about the user, up to
1,000 of them. Then a new conversation is continued, with and without `profile=`, by a model with a scripted answer.
Printed is the median CPU time of a turn, of the first turn of a process with the profile, and how the cost of the
profile grows with the number of conversations.

    python -m bench.profile                          # 1,000 and 10,000 conversations
    python -m bench.profile --conversations 100 1000
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longtalk import Conversation, Memory
from longtalk._util import json_bytes
from longtalk.archive.profile_reading import read_turn_profile
from longtalk.memory import Profile
from longtalk.memory.brief.lines import BriefContent, Line, make_line_id, normalize
from longtalk.memory.brief.record import KIND, BriefRecord
from longtalk.policies import Policy
from longtalk.stores.base import Commit, PlacedRecord, Store
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import Scripted, says
from longtalk.tokens import Estimator
from longtalk.transcript.transcript import Record

OWNER = "ada"
_TURNS = 20


def fill(store: Store, first: int, count: int) -> None:
    """Add conversations with one exchange, of which one in ten states a line about the user."""
    for number in range(first, first + count):
        name = f"talk {number}"
        model = Scripted(says("All right, let us speak about that."))
        with Conversation(name, model=model, owner=OWNER, store=store) as talk:
            talk.send(f"Today I have practised the study number {number}.")
        head = store.head(OWNER, name)
        if head is not None and number % 10 == 0:
            text = f"practises study {number}"
            line = Line(
                make_line_id("about_user", normalize(text)), "about_user", text, head.entry or "", seen=head.updated
            )
            data = json_bytes.encode(BriefRecord(profile=BriefContent((line,))))
            placed = PlacedRecord(Record(KIND, head.entry or "", head.updated, data), head.size - 1)
            store.write(OWNER, name, Commit(expect=head.revision, at=head.updated, records=(placed,)))
        if number % 100 == 0:
            # As turns with a profile do, note which conversations state lines.
            read_turn_profile(store, OWNER, "new", Profile(), Estimator())


def measure(path: Path, policy: Policy) -> tuple[float, float]:
    """Return the CPU time of the first turn with a newly opened store, and the median of the next, in milliseconds."""
    store = SQLite(path)
    model = Scripted(*[says("Well.")] * (_TURNS + 1))
    spent = []
    with Conversation("new", model=model, owner=OWNER, store=store, policy=policy) as talk:
        for number in range(_TURNS + 1):
            begun = time.process_time()
            talk.send(f"What shall I practise next, after {number} minutes?")
            spent.append(1e3 * (time.process_time() - begun))
    store.delete(OWNER, "new")
    store.close()
    return spent[0], statistics.median(spent[1:])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print its figures and goals."""
    parser = argparse.ArgumentParser(description="What a profile costs a turn when the owner has many conversations.")
    parser.add_argument("--conversations", nargs=2, type=int, default=(1_000, 10_000), metavar=("FEW", "MANY"))
    given = parser.parse_args(arguments)
    goals: list[dict[str, Any]] = []
    print("conversations   no profile   profile   first turn   (ms of CPU)")
    extra = []
    with tempfile.TemporaryDirectory() as folder:
        path, made = Path(folder) / "talks.db", 0
        for count in given.conversations:
            store = SQLite(path)
            fill(store, made, count - made)
            store.close()
            made = count
            plain = measure(path, Memory(recall=0))[1]
            first, later = measure(path, Memory(recall=0, profile=Profile()))
            extra.append(later - plain)
            print(f"{count:13,}{plain:13.2f}{later:10.2f}{first:13.2f}")
    growth = round(extra[1] / extra[0], 2)
    for name, value, goal in (
        ("CPU time that a profile adds to a turn, ms", round(extra[1], 1), 5),
        ("the same, first turn of a process, ms", round(first - plain, 1), 60),
        ("growth of what a profile adds, ten times the conversations", growth, 1.5),
    ):
        goals.append({"name": name, "value": value, "goal": goal, "met": value <= goal})
    print()
    print(json_bytes.encode({"bench": "profile", "goals": goals}).decode())


if __name__ == "__main__":
    main()
