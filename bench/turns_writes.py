"""What a turn on a SQLite store writes: the frames of the write-ahead log and the SQL statements.

`bench.turns` runs this. A frame is one page of the file, 4 KB, as a commit writes it. One conversation appends to the
end of each table. Several conversations that take turns write between each other's rows, and SQLite then moves rows to
neighbouring pages more often. Turns are warm and send all messages.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from contextlib import closing
from typing import Any, NamedTuple

import apsw

from bench.turns import ANSWERS, MESSAGES, Figure, open_conversation
from longtalk.policies import KeepAll
from longtalk.stores.sqlite.store import SQLite

TALKS = (1, 20, 200)
"""How many conversations take turns."""
TURNS = 400
MOST_FRAMES = 10
MOST_STATEMENTS = 14
_WARM_UP_TURNS = 4
"""Turns of each conversation before its turns count."""


class Writes(NamedTuple):
    """The average writes of a turn."""

    frames: float
    statements: float
    tables: dict[str, float]
    """The frames of each table and index."""


def count_writes(path: str, talks: int, turns: int) -> Writes:
    """Run turns on several conversations of a new file, one after the other, and count what they write."""
    statements: Counter[str] = Counter()
    with closing(SQLite(path)) as store:
        opened = [open_conversation(store, f"talk {i}", KeepAll(), iter(ANSWERS)) for i in range(talks)]
        for number in range(_WARM_UP_TURNS):
            for talk in opened:
                talk.send(MESSAGES[number])
        db: Any = store._file.db
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        db.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: statements.update([event["sql"]]))
        for number in range(turns):
            opened[number % talks].send(MESSAGES[number % len(MESSAGES)])
        db.trace_v2(0, None)
        names = dict(db.execute("SELECT pageno, name FROM dbstat").fetchall())
        tables = Counter(names.get(page, "free pages") for page in _read_pages(f"{path}-wal"))
    return Writes(
        tables.total() / turns,
        statements.total() / turns,
        {name: count / turns for name, count in tables.most_common()},
    )


def _read_pages(path: str) -> list[int]:
    """Return the page number of each frame of a write-ahead log."""
    with open(path, "rb") as log:
        data = log.read()
    size = struct.unpack_from(">I", data, 8)[0]
    return [struct.unpack_from(">I", data, start)[0] for start in range(32, len(data), 24 + size)]


def measure_writes(folder: str) -> list[Figure]:
    """Measure the frames and statements of a turn."""
    found = {talks: count_writes(os.path.join(folder, f"writes {talks}.db"), talks, TURNS) for talks in TALKS}
    print("\nWrites of a turn, by the number of conversations that take turns.\n")
    print(f"{'':28}" + "".join(f"{talks:>12,}" for talks in TALKS))
    for name in sorted({name for writes in found.values() for name in writes.tables}):
        print(f"{name:28}" + "".join(f"{writes.tables.get(name, 0):12.2f}" for writes in found.values()))
    for name in ("frames", "statements"):
        print(f"{name:28}" + "".join(f"{getattr(writes, name):12.2f}" for writes in found.values()))
    figures = [
        Figure(f"frames of the log for a turn, conversations in turn: {talks}", writes.frames, MOST_FRAMES)
        for talks, writes in found.items()
    ]
    most = max(writes.statements for writes in found.values())
    return [*figures, Figure("SQL statements of a turn", most, MOST_STATEMENTS)]
