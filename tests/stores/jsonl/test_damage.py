"""Damaged JSONL files: cuts at any place, crashes between the file and its note, and changed bytes."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from longtalk import Archive
from longtalk.errors import CorruptStore
from longtalk.stores.jsonl import JSONL
from longtalk.stores.jsonl.folder import Log
from longtalk.stores.jsonl.groups import format_group, parse_groups, strip_closing
from longtalk.testing.stores.harness import ConversationDriver
from tests.stores.damage import OWNER, TALKS, Reads, check, fill, read_all


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reads]:
    """Return a store's folder and everything that the store returns."""
    folder = tmp_path_factory.mktemp("damage")
    store = JSONL(folder)
    fill(store, size=100, turns=4)
    for name in TALKS:
        assert store.verify(OWNER, name) == []
        assert store.uncovered(OWNER, name) == []
    return folder, read_all(store)


@pytest.fixture
def copy(whole: tuple[Path, Reads], tmp_path: Path) -> Path:
    """Return the file of the conversation "talk" in a copy of the store."""
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    return tmp_path / OWNER / "talk.jsonl"


def verify(path: Path) -> list[str]:
    return JSONL(path.parents[1]).verify(OWNER, path.stem)


def uncovered(path: Path) -> list[str]:
    return JSONL(path.parents[1]).uncovered(OWNER, path.stem)


def list_ends(path: Path) -> list[int]:
    """Return the position after each commit in a file."""
    return [group.end.size for group in parse_groups(path.read_bytes(), path, 1)[0]]


def test_a_cut_at_the_end_of_any_commit_is_reported(copy: Path) -> None:
    data = copy.read_bytes()
    for end in list_ends(copy)[:-1]:
        copy.write_bytes(data[:end])
        (problem,) = verify(copy)
        assert f"it has {end} of {len(data)} bytes" in problem


def test_a_cut_at_any_other_place_is_reported(copy: Path) -> None:
    data = copy.read_bytes()
    for end in range(0, len(data), 97):
        copy.write_bytes(data[:end])
        assert verify(copy)


def test_a_missing_file_is_reported_and_a_deleted_conversation_is_not(copy: Path) -> None:
    JSONL(copy.parents[1]).delete(OWNER, "other")
    assert verify(copy.with_name("other.jsonl")) == []
    copy.unlink()
    assert verify(copy)


def test_a_crash_after_a_commit_and_before_its_note_is_no_damage(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = copy.stat().st_size
    with monkeypatch.context() as patched:
        patched.setattr(Log, "acknowledge", lambda *_: None)
        ConversationDriver(JSONL(copy.parents[1]), OWNER, "talk").say("x", branch="late")
    assert verify(copy) == []
    assert uncovered(copy) == [f"the last {copy.stat().st_size - size} bytes of {copy}, not counted in its lock file"]
    ConversationDriver(JSONL(copy.parents[1]), OWNER, "talk").say("y", branch="late")
    assert verify(copy) == uncovered(copy) == []


def test_a_crash_in_a_redaction_before_its_note_is_no_damage(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = JSONL(copy.parents[1])
    entry = store.read(OWNER, "talk", "main", 0, 1).entry(0).id
    with monkeypatch.context() as patched:
        patched.setattr(Log, "acknowledge", lambda *_: None)
        store.redact(OWNER, "talk", entry, b'{"role":"user","content":"-"}')
    assert verify(copy) == []
    assert uncovered(copy) == [f"the end of {copy}, because no lock file says how long it was"]
    store.redact(OWNER, "talk", entry, b'{"role":"user","content":"--"}')
    assert verify(copy) == uncovered(copy) == []


def test_a_crash_in_a_deletion_leaves_no_damage(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Log, "_remove_side_files", crash)
    monkeypatch.setattr(Path, "exists", crash)
    with pytest.raises(KeyboardInterrupt):
        JSONL(copy.parents[1]).delete(OWNER, "talk")
    monkeypatch.undo()
    assert not copy.exists()
    assert copy.with_suffix(".lock").exists()
    assert verify(copy) == []


def test_the_next_commit_does_not_hide_a_cut(copy: Path) -> None:
    data = copy.read_bytes()
    copy.write_bytes(data[: list_ends(copy)[-2]])
    store = JSONL(copy.parents[1])
    for _ in range(4):
        ConversationDriver(store, OWNER, "talk").say("x" * 200, branch="late")
        assert verify(copy)
    assert copy.stat().st_size > len(data)
    with pytest.raises(CorruptStore, match=r"talk\.lock"):
        Archive(store, owner=OWNER).verify("talk")
    copy.with_suffix(".lock").unlink()
    assert verify(copy) == []


def test_a_single_file_without_its_lock_file_is_checked_as_far_as_possible(copy: Path) -> None:
    copy.with_suffix(".lock").unlink()
    assert verify(copy) == []
    assert uncovered(copy) == [f"the end of {copy}, because no lock file says how long it was"]
    ends, data = list_ends(copy), copy.read_bytes()
    for start, end in itertools.pairwise(ends[1:-1]):
        copy.write_bytes(data[:start] + data[end:])
        (problem,) = verify(copy)
        assert "lines before this commit are missing" in problem


def test_a_file_of_an_earlier_version_is_read_continued_and_reported_as_not_covered(copy: Path) -> None:
    before = read_all(JSONL(copy.parents[1]))
    groups = parse_groups(copy.read_bytes(), copy, 1)[0]
    copy.write_bytes(b"".join(format_group(group.lines[:-1], strip_closing(group.lines[-1])) for group in groups))
    copy.with_suffix(".lock").unlink()
    assert b'"chain"' not in copy.read_bytes()
    assert read_all(JSONL(copy.parents[1])) == before
    assert verify(copy) == []
    assert len(uncovered(copy)) == 2
    ConversationDriver(JSONL(copy.parents[1]), OWNER, "talk").say("x", branch="late")
    assert copy.read_bytes().count(b'"chain"') == 1
    assert verify(copy) == uncovered(copy) == []


def test_metadata_that_looks_like_a_chain_is_metadata(tmp_path: Path) -> None:
    meta = {"a": 1, "after": 7, "chain": "00000000"}
    talk = ConversationDriver(JSONL(tmp_path), OWNER, "talk")
    talk.say("x", meta=meta)
    talk.store.describe(OWNER, "talk", meta)
    info = JSONL(tmp_path).info(OWNER, "talk")
    assert info is not None
    assert info.meta == meta
    assert verify(tmp_path / OWNER / "talk.jsonl") == []


def damage_bytes(whole: tuple[Path, Reads], copy: Path, seeds: range) -> None:
    data = copy.read_bytes()
    for seed in seeds:
        draw = random.Random(seed)
        i = draw.randrange(len(data))
        copy.write_bytes(data[:i] + bytes((data[i] ^ 1 << draw.randrange(8),)) + data[i + 1 :])
        assert check(whole[1], JSONL(copy.parents[1]), f"seed {seed}: byte {i}"), f"seed {seed} is not reported"


def test_every_changed_byte_of_a_file_is_reported(whole: tuple[Path, Reads], copy: Path) -> None:
    damage_bytes(whole, copy, range(40))


@pytest.mark.slow
def test_each_of_many_changed_bytes_of_a_file_is_reported(whole: tuple[Path, Reads], copy: Path) -> None:
    damage_bytes(whole, copy, range(1_000, 1_600))
