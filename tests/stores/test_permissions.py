"""Permissions of the files and folders that stores create: only the user can access them, under any umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from longtalk.stores import open_store
from longtalk.stores.base import Store
from longtalk.stores.jsonl.store import JSONL
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing.stores.harness import ConversationDriver

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")

OPEN: dict[str, Callable[[Path], Store]] = {
    "sqlite": lambda root: SQLite(root / "talks.db"),
    "jsonl": lambda root: JSONL(root / "new" / "talks"),
    "open sqlite": lambda root: open_store(f"{root}/new/folder/talks.db"),
    "open jsonl": lambda root: open_store(f"{root}/new/folder/talks/"),
}


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*")}


@pytest.mark.parametrize("kind", OPEN)
def test_all_that_a_store_creates_is_for_the_user_only(kind: str, umask: int, tmp_path: Path) -> None:
    with closing(OPEN[kind](tmp_path)) as store:
        talk = ConversationDriver(store, "ann", "talk")
        talk.say("one", "two")
        for torn in tmp_path.rglob("talk.jsonl"):
            with torn.open("ab") as file:
                file.write(b'{"type":"entry","torn')
        talk.say("three")
        found = modes(tmp_path)
        suffixes = {".db", ".db-wal", ".db-shm"} if "sqlite" in kind else {".jsonl", ".lock"}
        assert suffixes <= {Path(name).suffix for name in found}
        assert "sqlite" in kind or any(".torn-" in name for name in found)
        talk.store.redact("ann", "talk", talk.entries()[0].id, b"{}")
        for name, mode in (found | modes(tmp_path)).items():
            assert mode == (0o700 if (tmp_path / name).is_dir() else 0o600), name


def test_a_temporary_file_is_for_the_user_only(umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = ConversationDriver(JSONL(tmp_path / "talks"), "ann", "talk")
    talk.say("one")
    found: dict[str, int] = {}
    replace = Path.replace

    def watched(path: Path, target: Path) -> Path:
        found.update(modes(tmp_path))
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", watched)
    talk.store.redact("ann", "talk", talk.entries()[0].id, b"{}")
    assert [mode for name, mode in found.items() if ".new-" in name] == [0o600]


@pytest.mark.parametrize("kind", OPEN)
def test_what_exists_keeps_its_permissions(kind: str, tmp_path: Path) -> None:
    with closing(OPEN[kind](tmp_path)) as store:
        ConversationDriver(store, "ann", "talk").say("one")
    for path in tmp_path.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    before = modes(tmp_path)
    with closing(OPEN[kind](tmp_path)) as store:
        ConversationDriver(store, "ann", "talk").say("two")
    assert modes(tmp_path) == before


def test_opening_a_store_does_not_change_the_umask_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The umask is that of all threads, so a file that another thread creates meanwhile would get other permissions.
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("the umask was changed"))
    for kind in ("open sqlite", "open jsonl"):
        OPEN[kind](tmp_path / kind).close()
