"""Combine the coverage data in folders into the file .coverage, and leave out damaged files.

Each process of a test run saves its data to a file of its own. A process that is killed while it saves leaves a
damaged file, at which `coverage combine` would stop.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from coverage import Coverage

TABLES = ("coverage_schema", "meta", "file", "context", "line_bits", "arc", "tracer")


def is_whole(path: Path) -> bool:
    """Return whether all data in this file can be read."""
    try:
        with closing(sqlite3.connect(path)) as db:
            for table in TABLES:
                db.execute(f"SELECT count(*) FROM {table}")
            return bool(db.execute("PRAGMA quick_check").fetchone() == ("ok",))
    except sqlite3.DatabaseError:
        return False


def combine(folders: Iterable[Path], result: Path) -> list[Path]:
    """Combine the data files in these folders into one, and return the damaged files that were left out."""
    paths = [path for folder in folders for path in sorted(folder.iterdir()) if not path.name.endswith("-journal")]
    damaged = [path for path in paths if not is_whole(path)]
    coverage = Coverage(data_file=result)
    coverage.combine([str(path) for path in paths if path not in damaged], strict=True, keep=True)
    coverage.save()
    return damaged


if __name__ == "__main__":
    left_out = combine([Path(name) for name in sys.argv[1:]], Path(".coverage"))
    for path in left_out:
        print(f"{path} is damaged and was left out: a process was killed while it saved its coverage data.")
