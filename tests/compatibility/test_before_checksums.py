"""SQLite files of the version before rows had checksums, schema version 3.

That version wrote the fixture once, with `tests.stores.damage.fill`, together with the exports of its conversations.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from longtalk import Archive
from longtalk.errors import CorruptStore
from longtalk.stores.sqlite import SQLite
from longtalk.testing.stores.harness import ConversationDriver
from tests.stores.damage import OWNER, TALKS

FILES = Path(__file__).parent / "files" / "before-checksums"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "talks.db"
    path.write_bytes(gzip.decompress((FILES / "talks.db.gz").read_bytes()))
    return path


@pytest.fixture
def store(path: Path) -> Iterator[SQLite]:
    with SQLite(path) as store:
        yield store


def test_what_it_exported_is_exported_again(store: SQLite) -> None:
    expected = json.loads(gzip.decompress((FILES / "talks.json.gz").read_bytes()))
    archive = Archive(store, owner=OWNER)
    exported = {name: json.loads(archive.export(name, "json")) for name in TALKS}
    turns = [
        turn
        for export in exported.values()
        for talk in export["conversations"]
        for branch in talk["branches"]
        for turn in branch.get("turns", ())
    ]
    # That version did not export manifests; everything else is the same.
    manifests = [turn.pop("manifest", None) for turn in turns]
    assert any(manifests)
    assert exported == expected


def test_rows_without_a_checksum_are_no_damage_and_are_reported_as_not_covered(store: SQLite) -> None:
    for name in TALKS:
        uncovered = Archive(store, owner=OWNER).verify(name)
        tables = {"conversations", "branches", "segments", "entries", "turn_keys", "requests", "records", "turns"}
        assert tables <= {line.split("'")[1] for line in uncovered}


def test_what_is_written_now_is_covered(store: SQLite) -> None:
    before = len(store.uncovered(OWNER, "other"))
    talk = ConversationDriver(store, OWNER, "other")
    for branch in ("main", "fork", "cut"):
        talk.say("And now?", "It goes on.", branch=branch)
    store.describe(OWNER, "other", {"title": "new"})
    uncovered = store.uncovered(OWNER, "other")
    assert store.verify(OWNER, "other") == []
    assert len(uncovered) == before - 2, "branches and the conversation are covered now"
    assert not [line for line in uncovered if "'branches'" in line or "'conversations'" in line]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET native = CAST(replace(CAST(native AS TEXT), 'Ada', 'Bob') AS BLOB)",
        "UPDATE records SET data = x'93'",
        "UPDATE entries SET turn_data = x'93' WHERE turn_data IS NOT NULL",
        "UPDATE branches SET records = 'x'",
        "UPDATE branches SET entry = x'ff' WHERE name = 'main'",
        "UPDATE conversations SET meta = x'ff'",
    ],
)
def test_what_had_a_checksum_or_can_not_be_read_is_still_reported(path: Path, change: str) -> None:
    with apsw.Connection(str(path)) as db:
        db.execute(change)
    db.close()
    with SQLite(path) as store, pytest.raises(CorruptStore):
        Archive(store, owner=OWNER).verify("talk")
