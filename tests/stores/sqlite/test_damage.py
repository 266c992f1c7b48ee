"""Damaged SQLite files: each damage is reported, or changes nothing that the store returns."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from longtalk.errors import LongtalkError
from longtalk.stores.sqlite.store import SQLite
from tests.stores.damage import Reads, check, damage_value, fill, read_all

FOR_SEARCH = {("branches", "stale"), ("segments", "indexed"), ("settings", "value"), ("settings", "name")}
"""Columns that decide only what is indexed for search. `verify` doesn't cover search."""


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "compressed"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reads]:
    """Return a file and everything that it returns."""
    path = tmp_path_factory.mktemp("damage") / "talks.db"
    store = SQLite(path, compress=request.param)
    fill(store)
    before = read_all(store)
    for name in ("talk", "other"):
        assert store.verify("ada", name) == []
        assert store.uncovered("ada", name) == []
    store.close()
    return path, before


def damage_row(db: apsw.Connection, draw: random.Random) -> tuple[str, str, Any]:
    """Change a random column of a random row. Return the table, the column and the change."""
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    while True:
        table = draw.choice([name for name in tables if not name.startswith(("words", "sqlite_"))])
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        rows = db.execute(f"SELECT * FROM {table}").fetchall()
        if not rows:
            continue
        row, i = draw.choice(rows), draw.randrange(len(columns))
        value = damage_value(draw, row[i])
        where = " AND ".join(f"{column} IS ?" for column in columns)
        new = "CAST(CAST(? AS BLOB) AS TEXT)" if isinstance(row[i], str) else "?"
        given = value.encode("latin-1") if isinstance(value, str) else value
        try:
            db.execute(f"UPDATE {table} SET {columns[i]} = {new} WHERE {where}", (given, *row))
        except (apsw.ConstraintError, apsw.MismatchError):
            continue
        return table, columns[i], f"{row[i]!r:.80} -> {value!r:.80}"


def damage_rows(whole: tuple[Path, Reads], path: Path, seeds: range) -> int:
    reported = 0
    for seed in seeds:
        shutil.copy(whole[0], path)
        with apsw.Connection(str(path)) as db:
            change = damage_row(db, random.Random(seed))
        db.close()
        reported += reopen_and_check(whole[1], path, f"seed {seed}: {change}", searches=change[:2] not in FOR_SEARCH)
    return reported


def damage_bytes(whole: tuple[Path, Reads], path: Path, seeds: range) -> int:
    reported = 0
    data = whole[0].read_bytes()
    for seed in seeds:
        draw = random.Random(seed)
        i, bit = draw.randrange(len(data)), draw.randrange(8)
        path.write_bytes(data[:i] + bytes((data[i] ^ 1 << bit,)) + data[i + 1 :])
        reported += reopen_and_check(whole[1], path, f"seed {seed}: bit {bit} of byte {i}", searches=False)
    return reported


def reopen_and_check(before: Reads, path: Path, what: str, *, searches: bool) -> bool:
    """Check a damaged file, and return whether the damage was reported."""
    try:
        store = SQLite(path)
    except LongtalkError:
        return True
    try:
        return check(before, store, what, searches=searches)
    finally:
        store.close()
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)


def test_every_changed_column_is_reported_or_changes_nothing(whole: tuple[Path, Reads], tmp_path: Path) -> None:
    assert damage_rows(whole, tmp_path / "talks.db", range(30)) > 20


def test_every_changed_byte_is_reported_or_changes_nothing(whole: tuple[Path, Reads], tmp_path: Path) -> None:
    assert damage_bytes(whole, tmp_path / "talks.db", range(20))


@pytest.mark.slow
def test_each_of_many_changed_columns_is_reported_or_changes_nothing(whole: tuple[Path, Reads], tmp_path: Path) -> None:
    assert damage_rows(whole, tmp_path / "talks.db", range(1_000, 1_500)) > 400


@pytest.mark.slow
def test_each_of_many_changed_bytes_is_reported_or_changes_nothing(whole: tuple[Path, Reads], tmp_path: Path) -> None:
    assert damage_bytes(whole, tmp_path / "talks.db", range(1_000, 1_500))
