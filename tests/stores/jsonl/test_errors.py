"""Errors of the operating system in the JSONL store: full disks, missing permissions, and paths that are no files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longtalk.errors import StoreError
from longtalk.stores.base import MAIN, Commit
from longtalk.stores.jsonl.errors import FileError
from longtalk.stores.jsonl.store import JSONL
from longtalk.testing.stores.harness import ConversationDriver

LONG = "long name " * 30
CALLS: dict[str, Callable[[JSONL], object]] = {
    "head": lambda store: store.head("ann", "talk"),
    "read": lambda store: store.read("ann", "talk", MAIN, 0, 9),
    "info": lambda store: store.info("ann", "talk"),
    "search": lambda store: store.candidates("ann", ["one"], 9, conversation="talk"),
    "write": lambda store: ConversationDriver(store, "ann", "talk").say("two"),
    "renew": lambda store: store.renew("ann", "talk", MAIN, 1, 1),
    "describe": lambda store: store.describe("ann", "talk", {"a": 1}),
    "redact": lambda store: store.redact("ann", "talk", "t-0", b"{}"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for name in ("talk", "other", LONG):
        ConversationDriver(JSONL(tmp_path), "ann", name).say(f"one of {name}")
    return tmp_path / "ann" / "talk.jsonl"


def refuse(monkeypatch: pytest.MonkeyPatch, path: Path, code: int) -> None:
    """Let the operating system refuse to open a file. Permissions alone don't stop the superuser."""
    real = os.open

    def refusing(name: Any, *args: Any, **named: Any) -> int:
        if Path(os.fsdecode(name)) == path:
            raise OSError(code, os.strerror(code), os.fsdecode(name))
        return real(name, *args, **named)

    monkeypatch.setattr(os, "open", refusing)


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def as_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


ODD = pytest.mark.parametrize("make", [as_folder, as_pipe, as_loop, as_device])


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.EMFILE])
def test_a_file_that_can_not_be_opened_is_named_with_cause_and_remedy(
    call: str, code: int, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, path, code)
    with pytest.raises(StoreError) as caught:
        CALLS[call](JSONL(tmp_path))
    message = str(caught.value)
    assert message.startswith(f"{path} can't be read: {os.strerror(code)}. ")
    assert ("Give this user access" in message) == (code == errno.EACCES)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
@pytest.mark.parametrize("name", ["talk.lock", "talk.jsonl"])
def test_a_file_that_can_not_be_written_can_be_read(
    name: str, code: int, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk, real = ConversationDriver(JSONL(tmp_path), "ann", "talk"), os.open

    def refusing(file: Any, flags: int, *args: Any) -> int:
        if Path(os.fsdecode(file)).name == name and flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(code, os.strerror(code))
        return real(file, flags, *args)

    monkeypatch.setattr(os, "open", refusing)
    for call in (lambda: talk.say("two"), lambda: talk.store.describe("ann", "talk", {})):
        with pytest.raises(FileError, match=f"can't be written: {os.strerror(code)}") as caught:
            call()
        assert caught.value.path == path
    assert talk.texts() == ["one of talk"]
    assert ConversationDriver(JSONL(tmp_path), "ann", "talk").texts() == ["one of talk"]


@pytest.mark.parametrize("call", CALLS)
@ODD
def test_what_is_no_regular_file_is_refused_and_blocks_no_call(
    call: str, make: Callable[[Path], None], path: Path, tmp_path: Path
) -> None:
    make(path)
    with pytest.raises(FileError, match=r"talk\.jsonl can't be (read|written): ") as caught:
        CALLS[call](JSONL(tmp_path))
    assert caught.value.path == path


@ODD
@pytest.mark.parametrize("name", ["talk", LONG])
def test_what_is_no_regular_file_is_reported_and_hides_no_other_conversation(
    name: str, make: Callable[[Path], None], path: Path, tmp_path: Path
) -> None:
    odd = path if name == "talk" else next(path.parent.glob("long*~*.jsonl"))
    make(odd)
    others = {"talk", "other", LONG} - {name}
    for call in (
        lambda store: {found.id for found in store.conversations("ann")},
        lambda store: {hit.conversation for hit in store.candidates("ann", ["one"], 9)},
    ):
        store = JSONL(tmp_path)
        assert call(store) == others
        assert [problem.path for problem in store.list_damaged_files()] == [odd]
    assert len(store.verify("ann", name)) == 1


def test_an_unreadable_file_is_reported_and_hides_no_other_conversation(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, path, errno.EACCES)
    store = JSONL(tmp_path)
    assert {found.id for found in store.conversations("ann")} == {"other", LONG}
    (problem,) = store.list_damaged_files()
    assert str(problem).startswith(f"{path} can't be read: Permission denied. ")
    assert store.verify("ann", "talk") == [str(problem)]


@pytest.mark.parametrize("where", ["store", "store/ann"])
def test_a_file_in_place_of_a_folder_is_named(where: str, tmp_path: Path) -> None:
    (tmp_path / where).parent.mkdir(exist_ok=True)
    (tmp_path / where).write_bytes(b"mine")
    store = JSONL(tmp_path / "store")
    for call in (
        *CALLS.values(),
        lambda store: store.conversations("ann"),
        lambda store: store.delete("ann", "talk"),
        lambda store: store.write("ann", "talk", Commit(expect=0, at=1)),
    ):
        with pytest.raises(FileError, match="A file is in place of a folder: move it elsewhere"):
            call(store)
    assert (tmp_path / where).read_bytes() == b"mine"


def test_an_unreadable_conversation_can_be_deleted(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, path, errno.EACCES)
    assert JSONL(tmp_path).delete("ann", "talk") is not None
    assert not path.exists()


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_redaction_that_fails_leaves_no_temporary_file(
    step: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk, before = ConversationDriver(JSONL(tmp_path), "ann", "talk"), sorted(path.parent.iterdir())
    entry = talk.entries()[0].id

    def full(*_: object) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(*((Path, "replace", full) if step == "replace" else (os, step, full)))
        with pytest.raises(FileError, match="Nothing was saved; free space and try again"):
            talk.store.redact("ann", "talk", entry, b'{"content":"-"}')
    assert sorted(path.parent.iterdir()) == before
    assert talk.texts() == ["one of talk"]
    assert talk.store.redact("ann", "talk", entry, b'{"content":"-"}')
    assert talk.texts() == ["-"]


def test_a_torn_commit_that_can_not_be_set_aside_stays_and_leaves_no_second_copy(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with path.open("ab") as file:
        file.write(b'{"type":"entry","id":"torn')
    before, whole = sorted(path.parent.iterdir()), path.read_bytes()
    talk = ConversationDriver(JSONL(tmp_path), "ann", "talk")

    def full(*_: object) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(FileError, match="No space left"):
            talk.say("two")
    assert (sorted(path.parent.iterdir()), path.read_bytes()) == (before, whole)
    talk.say("two")
    assert talk.texts() == ["one of talk", "two"]
