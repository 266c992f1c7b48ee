"""The JSONL store: the conformance suite, and tests of crashes, processes, names, damage and later versions."""

import base64
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk._util import file_locks
from longtalk.stores import in_memory
from longtalk.stores.base import MAIN, Commit, HeadMoved, KeyedRequest, Store
from longtalk.stores.jsonl import folder
from longtalk.stores.jsonl.errors import Damaged, FileError
from longtalk.stores.jsonl.folder import to_file_name
from longtalk.stores.jsonl.groups import format_group, parse_groups, strip_closing
from longtalk.stores.jsonl.store import JSONL
from longtalk.testing.interrupts import Interrupts
from longtalk.testing.stores.concurrency import HOSTILE
from longtalk.testing.stores.harness import ConversationDriver, make_message
from longtalk.testing.stores.suite import CASES, Case
from longtalk.transcript.transcript import Turn, link_entries
from tests.support.matrix import thin


def reopened(store: Store) -> Store:
    assert isinstance(store, JSONL)
    store.close()
    return JSONL(store._folder)


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


@pytest.fixture
def talk(tmp_path: Path) -> ConversationDriver:
    return ConversationDriver(JSONL(tmp_path), "ann", "talk")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ann" / "talk.jsonl"


# The results are the same with and without `fsync`.
@pytest.mark.parametrize("fsync", thin([False, True], False))
@pytest.mark.parametrize("case", CASES, ids=str)
def test_files_keep_the_contract(case: Case, fsync: bool, tmp_path: Path):
    case.run(lambda: JSONL(tmp_path, fsync=fsync), reopen=reopened)


MANY = ("an_interrupted_call", "many_random", "concurrent", "of_concurrent", "readers_never")
"""Prefixes of the names of cases with very many calls, which would take too long here."""


@pytest.mark.parametrize("case", [case for case in CASES if not case.name.startswith(MANY)], ids=str)
def test_files_keep_the_contract_when_nothing_stays_in_memory(case: Case, tmp_path: Path):
    case.run(lambda: JSONL(tmp_path, keep=0), reopen=reopened)


class Pair:
    """Two stores on one folder that are used alternately, as by two processes."""

    def __init__(self, root: Path) -> None:
        self._both = [JSONL(root), JSONL(root)]

    def __getattr__(self, name: str) -> object:
        self._both.reverse()
        return getattr(self._both[0], name)


@pytest.mark.parametrize("case", [case for case in CASES if not case.reopens], ids=str)
def test_files_keep_the_contract_between_two_alternating_writers(case: Case, tmp_path: Path):
    case.run(lambda: Pair(tmp_path))  # type: ignore[arg-type, return-value]


# Readability of the files


def test_a_person_can_read_the_file(talk: ConversationDriver, path: Path):
    entries = link_entries(None, "t1", 0, [make_message("Grüße"), make_message("Hello", role="assistant")])
    turn = Turn("t1", "complete", "test:m", 1_000, 3_500, usage=(b'{"in": 7}',))
    talk.write(entries=entries, turn=turn, request=KeyedRequest("key-7", "digest"), at=1_790_000_000_000)
    header, user, answer, made, commit = [json.loads(line) for line in path.read_text().splitlines()]
    assert (header["type"], header["owner"], header["id"]) == ("conversation", "ann", "talk")
    assert user | {"native": {"role": "user", "content": "Grüße"}, "role": "user", "turn": "t1", "at": 0} == user
    assert (user["id"], answer["id"], answer["parent"], answer["role"]) == ("t1-0", "t1-1", "t1-0", "assistant")
    assert (made["request"]["key"], made["agent"], made["model"], made["duration"], made["usage"]) == (
        *("key-7", "test", "test:m", 2500),
        [{"in": 7}],
    )
    assert (commit["branch"], commit["revision"], commit["head"], commit["size"], commit["lines"]) == (
        MAIN,
        1,
        "t1-1",
        2,
        4,
    )
    assert commit["time"] == "2026-09-21T14:13:20.000Z"
    assert '"native":{"role":"user","content":"Grüße"}' in path.read_text()


def test_a_person_can_read_manifests_and_the_apps_own_data(talk: ConversationDriver, path: Path):
    turn = talk.make_turn(None, "Grüße", "Hello")
    talk.write(
        **turn, manifest=b'{"sent": [1, "\xc3\xbc"]}', entry_meta={1: {"channel": "Post ü"}}, meta={"title": "é"}
    )
    assert talk.store.describe("ann", "talk", {"channel": "mail"}, entry=turn["entries"][0].id)
    assert talk.store.describe("ann", "talk", {"title": "東"})
    lines = path.read_text().splitlines()
    assert '"manifest":{"sent": [1, "ü"]}' in lines[3]
    assert '"meta":{"channel":"Post ü"}' in lines[2]
    assert '"meta":' not in lines[1]
    assert '"meta":{"title":"é"}' in lines[4]
    assert json.loads(lines[5]) | {"type": "meta", "entry": turn["entries"][0].id, "meta": {"channel": "mail"}} == (
        json.loads(lines[5])
    )
    assert json.loads(lines[6])["meta"] == {"title": "東"}
    assert "entry" not in json.loads(lines[6])
    assert "base64" not in path.read_text()


@pytest.mark.parametrize("manifest", [b'{"a":\n1}', b'{"a":"\xff"}', b"{", b'{"a":"\\ud800"}'])
def test_a_manifest_that_can_not_stand_in_a_line_is_in_base64(manifest: bytes, talk: ConversationDriver, path: Path):
    turn = talk.make_turn(None, "x")
    talk.write(**turn, manifest=manifest)
    line = json.loads(path.read_bytes().splitlines()[2])
    assert "manifest" not in line
    assert base64.b64decode(line["manifest_base64"]) == manifest
    assert JSONL(path.parents[1]).manifest("ann", "talk", turn["turn"].id) == manifest


@pytest.mark.parametrize(
    "native",
    [
        b'{"a":"\\ud800"}',
        b'{"a":"\xff"}',
        b'{"a":\n1}',
        b'{"a":\r1}',
        b' {"a":1}',
        b'{"a":1},"b":{"c":2}',
        b"{",
        b"",
        b'{"a":"\0"}',
        b'{"a":"\x1b"}',
    ],
)
def test_what_can_not_stand_in_a_line_is_in_base64(native: bytes, talk: ConversationDriver, path: Path):
    entry = msgspec.structs.replace(make_message("x"), native=native)
    talk.write(entries=link_entries(None, "t", 0, [entry]))
    line = json.loads(path.read_bytes().splitlines()[1])
    assert "native" not in line
    assert base64.b64decode(line.get("native_base64", "")) == native
    assert ConversationDriver(JSONL(path.parents[1]), "ann", "talk").entries()[0].native == native


def test_what_is_not_unicode_is_kept_in_names_keys_errors_and_data(tmp_path: Path):
    talk = ConversationDriver(JSONL(tmp_path), "\ud800", "a\udcff")
    turn = Turn("t", "failed", "m", 0, usage=(b"{}",), error="no such file: \udce9")
    meta = {"\ud800": "\udcff"}
    talk.write(
        entries=link_entries(None, "t", 0, [make_message("x")]),
        turn=turn,
        request=KeyedRequest("\udfff", "b"),
        meta=meta,
    )
    talk.store.describe(talk.owner, talk.id, {"b": "\ud800"})
    again = ConversationDriver(JSONL(tmp_path), "\ud800", "a\udcff")
    assert again.read_all("\udfff") == talk.read_all("\udfff")
    assert again.head().turn == turn
    assert again.read_all()["summary"][0].meta == {"b": "\ud800"}


# Crashes


def grown(talk: ConversationDriver) -> None:
    talk.say("one", "two", request=KeyedRequest("first", "b"))
    talk.say("x", branch="fork", source=(MAIN, 1))


def test_a_commit_that_was_torn_at_any_byte_never_was(
    talk: ConversationDriver, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    grown(talk)
    before, size = talk.read_all("k"), path.stat().st_size
    lock = path.with_suffix(".lock")
    note = lock.read_bytes()
    talk.write(**talk.make_turn(talk.find_parent(), "drei ü", "four"), request=KeyedRequest("k", "b"), meta={"a": 1})
    whole, after, new_note = path.read_bytes(), talk.read_all("k"), lock.read_bytes()
    for length in range(size, len(whole)):
        path.write_bytes(whole[:length])
        lock.write_bytes(note)
        store = JSONL(tmp_path)
        again = ConversationDriver(store, "ann", "talk")
        assert again.read_all("k") == before, f"{length - size} bytes of a commit count"
        assert store.list_interrupted_writes() == []
        assert again.say("next").revision == 2
        torn = list(path.parent.glob("*.torn-*"))
        assert [(each.file, each.moved_to, each.size) for each in store.list_interrupted_writes()] == (
            [(path, torn[0], length - size)] if length > size else []
        )
        assert b"".join(each.read_bytes() for each in torn) == whole[size:length]
        assert ConversationDriver(JSONL(tmp_path), "ann", "talk").texts() == ["one", "two", "next"]
        for each in torn:
            each.unlink()
    path.write_bytes(whole)
    lock.write_bytes(new_note)
    assert ConversationDriver(JSONL(tmp_path), "ann", "talk").read_all("k") == after


def test_a_first_commit_that_was_torn_leaves_no_conversation(talk: ConversationDriver, path: Path, tmp_path: Path):
    for id in ("talk", "long" * 40):  # noqa: A001
        talk = ConversationDriver(JSONL(tmp_path), "ann", id)
        talk.say("one")
        file = talk.store._get_file("ann", id).log.path  # type: ignore[attr-defined]
        whole = file.read_bytes()
        for length in (0, 1, 20, whole.index(b"\n"), whole.index(b"\n") + 1, len(whole) - 1):
            file.write_bytes(whole[:length])
            again = ConversationDriver(JSONL(tmp_path), "ann", id)
            assert again.store.head("ann", id) is None
            assert again.store.conversations("ann") == []
            assert again.say("first").revision == 1
            assert ConversationDriver(JSONL(tmp_path), "ann", id).texts() == ["first"]
        talk.store.delete("ann", id)


def test_a_power_cut_that_leaves_noughts_is_a_torn_commit(talk: ConversationDriver, path: Path, tmp_path: Path):
    grown(talk)
    size = path.stat().st_size
    talk.say("lost")
    whole = path.read_bytes()
    for damaged in (whole[:size] + bytes(300), whole[:size] + bytes(100) + whole[size + 100 :]):
        path.write_bytes(damaged)
        again = ConversationDriver(JSONL(tmp_path), "ann", "talk")
        assert again.texts() == ["one", "two"]
        again.say("next")
        assert ConversationDriver(JSONL(tmp_path), "ann", "talk").texts() == ["one", "two", "next"]


def test_a_full_disk_leaves_nothing_of_a_commit(talk: ConversationDriver, path: Path, monkeypatch: pytest.MonkeyPatch):
    grown(talk)
    before, size, write = talk.read_all(), path.stat().st_size, os.write

    def full(file: int, data: bytes) -> int:
        if len(data) < 50:
            raise OSError(28, "No space left on device")
        return write(file, bytes(data[:40]))

    with monkeypatch.context() as patched:
        patched.setattr(folder.os, "write", full)
        with pytest.raises(FileError, match=r"talk\.jsonl can't be written: No space left .*Nothing was saved"):
            talk.say("much", "too", "much")
    assert path.stat().st_size == size
    assert talk.read_all() == before
    talk.say("now")
    assert talk.texts() == ["one", "two", "now"]


WRITER = """
import sys
from longtalk.stores.jsonl.store import JSONL
from longtalk.testing.stores.harness import ConversationDriver
talk = ConversationDriver(JSONL(sys.argv[1], fsync=sys.argv[2] == "fsync"), "ann", "talk")
print("ready", flush=True)
for number in range(100_000):
    text = f"{sys.argv[3]}/{number} " + "x" * (number * 37 % 9_000)
    talk.say(text, text)
    print(number, flush=True)
"""


def started(root: Path, name: str, *, fsync: bool = False) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(root), "fsync" if fsync else "plain", name]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    return writer


def killed(writer: subprocess.Popen[str]) -> int:
    """Kill a writer, and return the number of commits that it acknowledged."""
    writer.kill()
    assert writer.stdout is not None
    # Not `communicate`, which would skip what was buffered together with the first line.
    with writer.stdout as out:
        told = [int(line) for line in out.read().splitlines(keepends=True) if line.endswith("\n")]
    writer.wait(30)
    assert told == list(range(len(told)))
    return len(told)


def test_a_writer_that_is_killed_leaves_what_it_acknowledged_and_nothing_half(tmp_path: Path):
    draw = random.Random(3)
    for round in range(6):  # noqa: A001
        writer = started(tmp_path, str(round), fsync=round % 2 == 1)
        time.sleep(draw.uniform(0.02, 0.3))
        known = killed(writer)
        talk = ConversationDriver(JSONL(tmp_path), "ann", "talk")
        texts = [text.split(" ")[0] for text in talk.texts()] if talk.store.head("ann", "talk") else []
        made = [text for text in texts[::2] if text.startswith(f"{round}/")]
        assert texts[::2] == texts[1::2]
        assert made == [f"{round}/{number}" for number in range(len(made))]
        assert len(made) - known in (0, 1), "acknowledged commits are lost, or there are unknown ones"


def test_two_processes_and_this_one_write_in_turn(tmp_path: Path):
    script = WRITER.replace("range(100_000)", "range(40)").replace("talk.say(text, text)", RETRY)
    command = [sys.executable, "-c", script, str(tmp_path), "plain"]
    writers = [subprocess.Popen([*command, name], stdout=subprocess.PIPE) for name in ("a", "b")]
    talk, mine = ConversationDriver(JSONL(tmp_path), "ann", "talk"), 0
    while mine < 40:
        try:
            talk.say(f"c/{mine} ", f"c/{mine} ")
            mine += 1
        except (HeadMoved, ValueError):
            continue
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    texts = [text.split(" ")[0] for text in talk.texts()]
    assert texts[::2] == texts[1::2]
    assert sorted(texts[::2]) == sorted(f"{name}/{number}" for name in "abc" for number in range(40))
    assert talk.head().revision == 120
    assert ConversationDriver(JSONL(tmp_path), "ann", "talk").read_all() == talk.read_all()


RETRY = """
    while True:
        try:
            talk.say(text, text)
            break
        except (Exception,) as problem:
            if type(problem).__name__ not in ("HeadMoved", "ValueError"):
                raise
"""


def test_what_others_append_is_read_without_reading_the_file_again(
    talk: ConversationDriver, path: Path, monkeypatch: pytest.MonkeyPatch
):
    other = ConversationDriver(JSONL(path.parents[1]), "ann", "talk")
    talk.say("a" * 10_000)
    assert other.texts() == ["a" * 10_000]
    talk.say("b")
    read: list[int] = []
    real = parse_groups

    def counted(data: bytes, *more: object) -> object:
        read.append(len(data))
        return real(data, *more)  # type: ignore[arg-type]

    monkeypatch.setattr("longtalk.stores.jsonl.conversation_file.parse_groups", counted)
    assert other.head().size == 2
    assert 0 < sum(read) < 2_000


def test_a_deleted_and_recreated_file_is_another_conversation(talk: ConversationDriver, tmp_path: Path):
    other = ConversationDriver(JSONL(tmp_path), "ann", "talk")
    for number in range(20):
        talk.say(f"old {number}", at=number)
        assert other.texts() == [f"old {number}"]
        talk.store.delete("ann", "talk")
        talk.say(f"new {number}", at=number)
        assert other.texts() == [f"new {number}"]
        other.store.delete("ann", "talk")


def test_deleting_and_writing_at_once_mixes_nothing(tmp_path: Path):
    stores = [JSONL(tmp_path) for _ in range(4)]
    problems: list[BaseException] = []

    def work(i: int) -> None:
        talk = ConversationDriver(stores[i], "ann", "talk")
        try:
            for number in range(60):
                try:
                    if (i + number) % 5 == 0:
                        stores[i].delete("ann", "talk")
                    else:
                        talk.say(f"{i}/{number}")
                except (HeadMoved, ValueError, IndexError, AssertionError):
                    continue
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    views = [store.head("ann", "talk") for store in stores]
    assert all(view == views[0] for view in views)


# Names


@pytest.mark.parametrize(
    "name", [*HOSTILE, "\0", "a\0b", "~", "%", "%41", "a~b", "CON.", "lpt1", "COM9", "\ud800", "x" * 100_000]
)
def test_no_name_leaves_its_folder(name: str, tmp_path: Path):
    root = tmp_path / "root"
    ConversationDriver(JSONL(root), name, name).say("hello")
    assert {path.parent.parent for path in files(root)} == {root}
    assert {path.suffix for path in files(root)} == {".jsonl", ".lock"}
    assert files(tmp_path) == files(root)
    for path in files(root):
        assert len(path.name) < 140
        assert len(path.parent.name) < 140
    store = JSONL(root)
    assert ConversationDriver(store, name, name).texts() == ["hello"]
    assert [found.id for found in store.conversations(name)] == [name]


def test_names_are_told_apart_without_capital_letters():
    names = [*HOSTILE, "\0", "%", "%41", "A", "a", "%a", "~", "con", "%63on", "CON", "x" * 100, "x" * 101, "é" * 50]
    made = [to_file_name(name) for name in dict.fromkeys(names)]
    assert len({name.casefold() for name in made}) == len(made)
    assert not [name for name in made if name.startswith(".") or name in ("con", "nul", "aux")]
    assert all(name.isascii() and not set(name) & set('/\\:.*?"<>| \0') for name in made)


@given(st.lists(st.text(), min_size=2, unique=True))
def test_no_file_system_takes_the_files_of_two_ids_for_one(names: list[str]) -> None:
    made = [to_file_name(name) for name in names]
    assert len(set(made)) == len(names)
    for name in made:
        # File systems may fold case, normalize Unicode, or trim spaces and dots.
        assert name == name.lower() == unicodedata.normalize("NFKD", name) == name.strip(" .")
        assert name.isascii()


def test_looking_at_what_is_not_there_makes_no_file(tmp_path: Path):
    store = JSONL(tmp_path)
    store.head("ann", "talk")
    store.conversations("ann")
    assert not store.describe("ann", "talk", {})
    assert not store.describe("ann", "talk", {}, entry="t-0")
    assert store.info("ann", "talk") is None
    assert store.manifest("ann", "talk", "t") == b""
    assert store.verify("ann", "talk") == []
    store.renew("ann", "talk", MAIN, 1, 1)
    store.delete("ann", "talk")
    store.redact("ann", "talk", "t-0", b"{}")
    with pytest.raises(HeadMoved):
        store.write("ann", "talk", Commit(expect=3, at=0))
    with pytest.raises(ValueError, match="can't fork after"):
        store.write("ann", "talk", Commit(expect=0, at=0, source=("x", 1)))
    assert list(tmp_path.iterdir()) == []


def test_a_deletion_leaves_no_file(talk: ConversationDriver, path: Path, tmp_path: Path):
    talk.say("one")
    with path.open("ab") as file:
        file.write(b'{"type":"entry","torn')
    talk.say("two")
    assert len(files(tmp_path)) == 3
    talk.store.delete("ann", "talk")
    assert list(tmp_path.iterdir()) == []


# Damage


@pytest.fixture
def lines(talk: ConversationDriver, path: Path) -> Iterator[list[bytes]]:
    grown(talk)
    talk.say("last", "words")
    talk.store.close()
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("where", range(11))
def test_a_damaged_line_is_named(where: int, lines: list[bytes], talk: ConversationDriver, path: Path):
    assert len(lines) == 12
    for change in (b"?", b"", lines[where][:-2] + b"\n", lines[where].replace(b'"', b"'", 1)):
        path.write_bytes(b"".join([*lines[:where], change, *lines[where + 1 :]]))
        for call in (talk.head, lambda: talk.say("x")):
            with pytest.raises(Damaged, match=r"Line \d+ of .*talk\.jsonl is damaged") as caught:
                call()
            assert caught.value.path == path
            if change.endswith(b"\n"):
                assert caught.value.line == where + 1
        assert talk.store.conversations("ann") == []
        assert [problem.path for problem in talk.store.list_damaged_files()] == [path]


@pytest.mark.parametrize("where", range(11))
def test_verify_names_a_changed_line(where: int, lines: list[bytes], talk: ConversationDriver, path: Path):
    assert talk.store.verify("ann", "talk") == []
    head = talk.head()
    letter = lines[where].rindex(b'"')
    changes = lines[where][:-2] + b"\n", lines[where][: letter - 1] + b"?" + lines[where][letter:]
    for change, named in zip(changes, (f"Line {where + 1} of {path} is damaged", f"of {path} is damaged"), strict=True):
        path.write_bytes(b"".join([*lines[:where], change, *lines[where + 1 :]]))
        (problem,) = talk.store.verify("ann", "talk")
        assert named in problem
    path.write_bytes(b"".join(lines))
    assert talk.store.verify("ann", "talk") == []
    assert talk.head() == head


def test_verify_reads_the_file_and_not_what_is_remembered(lines: list[bytes], talk: ConversationDriver, path: Path):
    assert talk.texts() == ["one", "two", "last", "words"]
    path.write_bytes(b"".join(lines).replace(b"two", b"tow"))
    assert len(talk.store.verify("ann", "talk")) == 1


def test_verify_takes_a_torn_commit_for_none(lines: list[bytes], talk: ConversationDriver, path: Path):
    path.write_bytes(b"".join(lines)[:-40])
    # A crash tears a commit before it is noted.
    path.with_suffix(".lock").unlink()
    assert talk.store.verify("ann", "talk") == []
    assert talk.texts() == ["one", "two"]


def test_no_changed_byte_goes_unnoticed(lines: list[bytes], path: Path, tmp_path: Path):
    draw, whole = random.Random(5), path.read_bytes()
    last = len(whole) - sum(map(len, lines[-4:]))
    for i in range(len(whole)):
        byte = draw.choice([whole[i] ^ 1, whole[i] ^ 32, 0, 10, 34])
        changed = whole[:i] + (bytes((byte,)) if byte != whole[i] else b"") + whole[i + 1 :]
        path.write_bytes(changed)
        talk = ConversationDriver(JSONL(tmp_path), "ann", "talk")
        try:
            assert talk.texts() == ["one", "two"]
            assert i >= last, "only the last commit can be taken for a torn one"
        except Damaged as problem:
            assert problem.path == path


def test_a_commit_that_was_taken_out_is_noticed(lines: list[bytes], talk: ConversationDriver, path: Path):
    first = next(i for i, line in enumerate(lines) if b'"sum"' in line) + 1
    second = next(i for i, line in enumerate(lines) if b'"sum"' in line and i > first) + 1
    path.write_bytes(b"".join(lines[:first] + lines[second:]))
    with pytest.raises(Damaged, match="lines before this commit are missing"):
        talk.head()
    path.write_bytes(b"".join(lines[first:]))
    with pytest.raises(Damaged, match="lines before this commit are missing"):
        talk.head()


def test_the_file_of_another_conversation_is_refused(lines: list[bytes], talk: ConversationDriver, path: Path):
    path.with_name("other.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(Damaged, match="its name belongs to"):
        talk.store.head("ann", "other")
    assert talk.texts() == ["one", "two", "last", "words"]


def test_a_damaged_conversation_can_be_deleted(
    lines: list[bytes], talk: ConversationDriver, path: Path, tmp_path: Path
):
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    receipt = talk.store.delete("ann", "talk")
    assert receipt is not None
    assert receipt.entries == 0
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_whole_again_is_read(lines: list[bytes], talk: ConversationDriver, path: Path):
    whole = path.read_bytes()
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    with pytest.raises(Damaged):
        talk.head()
    path.write_bytes(whole)
    assert talk.texts() == ["one", "two", "last", "words"]


# Later versions


def later(path: Path) -> None:
    """Change a file as a later version might: add keys and types of lines that this version doesn't know."""
    groups, header = parse_groups(path.read_bytes(), path, 1)[0], True
    made = []
    for group in groups:
        lines = [line[:-1] + b',"later":{"a" : 1}}' for line in group.lines[:-1]]
        lines.insert(len(lines) if header else 0, b'{"type":"later","text":"kept"}')
        made.append(format_group(lines, strip_closing(group.lines[-1])[:-1] + b',"later":2}'))
        header = False
    made.append(format_group([b'{"type":"entry","odd":"of a later kind"}'], b'{"type":"later_commit"}'))
    path.write_bytes(b"".join(made))
    path.with_suffix(".lock").unlink()


def test_what_a_later_version_wrote_is_ignored_and_kept(talk: ConversationDriver, path: Path, tmp_path: Path):
    grown(talk)
    before = talk.read_all("first")
    later(path)
    again = ConversationDriver(JSONL(tmp_path), "ann", "talk")
    with pytest.raises(Damaged):
        # A line of a known type that lacks required keys is damage, not a later version.
        again.head()
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b'{"type":"entry","odd"')] + format_group([], b'{"type":"later_commit"}'))
    assert again.read_all("first") == before
    entry = again.entries()[0].id
    assert again.store.redact("ann", "talk", entry, b'{"role":"user","content":"-"}')
    data = path.read_bytes()
    assert data.count(b'"later":{"a" : 1}') == 6
    assert data.count(b'{"type":"later","text":"kept"}') == 2
    assert data.count(b'"later":2') == 2
    assert data.count(b"later_commit") == 1
    assert ConversationDriver(JSONL(tmp_path), "ann", "talk").texts() == ["-", "two"]


def test_records_in_a_commit_of_a_later_kind_are_not_counted(talk: ConversationDriver, path: Path, tmp_path: Path):
    talk.say("one", "two")
    record = b'{"type":"record","kind":"brief","entry":"","place":0,"at":0,"data":"later"}'
    with path.open("ab") as file:
        file.write(format_group([record], b'{"type":"later_commit"}'))
    talk.write(records=(talk.make_record("brief", '"kept"', 0), talk.make_record("brief", '"gone"', 1)))
    talk.store.redact("ann", "talk", talk.entries()[1].id, b"{}")
    assert (
        ConversationDriver(JSONL(tmp_path), "ann", "talk").list_head_records()
        == talk.list_head_records()
        == [('"kept"', 0)]
    )
    assert record in path.read_bytes()


def test_a_file_of_a_later_format_is_refused(talk: ConversationDriver, path: Path, tmp_path: Path):
    talk.say("one")
    group = parse_groups(path.read_bytes(), path, 1)[0][0]
    lines = [group.lines[0].replace(b'"format":1', b'"format":2'), *group.lines[1:-1]]
    path.write_bytes(format_group(lines, strip_closing(group.lines[-1])))
    with pytest.raises(Damaged, match="format version is 2"):
        JSONL(tmp_path).head("ann", "talk")


# Redacting


def test_data_that_looks_like_the_end_of_a_commit_is_kept(talk: ConversationDriver, path: Path, tmp_path: Path):
    odd = {"x": 1, "lines": 1, "sum": "00000000"}
    for native in (b'{"x":1,"lines":1,"sum":"00000000"}', b'{"x":",\\"lines\\":1,\\"sum\\":\\"00000000\\"}"}'):
        entry = msgspec.structs.replace(make_message("x"), native=native)
        turn = Turn("t", "complete", "m", 0, usage=(native,))
        talk.write(entries=link_entries(None, "t", 0, [entry]), turn=turn, meta=odd, entry_meta={0: odd})
        size = path.stat().st_size
        talk.write(meta={"a": 1}, entries=link_entries("t-0", "u", 0, [entry]))
        whole = path.read_bytes()
        path.write_bytes(whole[: whole.rindex(b'{"type":"commit"')])
        assert ConversationDriver(JSONL(tmp_path), "ann", "talk").head().revision == 1
        path.write_bytes(whole[:size])
        before = talk.read_all()
        assert before["summary"][0].meta == odd
        assert talk.store.redact("ann", "talk", "t-0", native)
        after = ConversationDriver(JSONL(tmp_path), "ann", "talk").read_all()
        assert (after["entries"], after["turns"], after["summary"]) == (
            before["entries"],
            before["turns"],
            before["summary"],
        )
        talk.store.delete("ann", "talk")


def test_a_file_that_is_not_ours_is_no_conversation(talk: ConversationDriver, path: Path):
    talk.say("one")
    for name in ("Talk", "%ff", "%zz", "a b", "copy~of", "talk.torn-1"):
        path.with_name(f"{name}.jsonl").write_bytes(path.read_bytes())
    assert [found.id for found in talk.store.conversations("ann")] == ["talk"]


def test_what_is_redacted_is_in_no_file(talk: ConversationDriver, path: Path, tmp_path: Path):
    talk.say("my password is hunter2", "I won't tell")
    talk.write(records=(talk.make_record("brief", '"hunter2"', 1),))
    with path.open("ab") as file:
        file.write(b'{"type":"entry","id":"t-9","native":{"content":"hunter2')
    talk.say("torn")
    assert len(list(path.parent.glob("*.torn-*"))) == 1
    reader = ConversationDriver(JSONL(tmp_path), "ann", "talk")
    assert reader.texts()[0] == "my password is hunter2"
    (path.parent / "talk.new-1-abcd").write_bytes(b"hunter2, left by a crash")
    assert talk.store.redact("ann", "talk", talk.entries()[0].id, b'{"role":"user","content":"[gone]"}')
    assert not [found for found in files(tmp_path) if b"hunter2" in found.read_bytes()]
    assert reader.texts() == talk.texts() == ["[gone]", "I won't tell", "torn"]
    assert reader.read_all() == talk.read_all() == ConversationDriver(JSONL(tmp_path), "ann", "talk").read_all()
    reader.say("goes on")
    assert talk.texts()[-1] == "goes on"


def test_the_apps_own_data_on_a_redacted_entry_is_in_no_file(talk: ConversationDriver, path: Path, tmp_path: Path):
    talk.say("one", "two", entry_meta={0: {"from": "hunter2"}, 1: {"from": "kept 1"}})
    talk.say("three")
    first, second, third = talk.entries()
    for entry, data in (
        (first, "hunter2 again"),
        (second, "kept 2"),
        (third, "hunter2 too"),
        (first, "hunter2 at last"),
    ):
        assert talk.store.describe("ann", "talk", {"from": data}, entry=entry.id)
    talk.store.describe("ann", "talk", {"title": "kept 3"})
    assert path.read_bytes().count(b"hunter2") == 4
    reader = ConversationDriver(JSONL(tmp_path), "ann", "talk")
    assert set(reader.metas()) == {0, 1, 2}
    for entry in (first, third):
        assert talk.store.redact("ann", "talk", entry.id, b'{"content":"-"}')
    assert not [found for found in files(tmp_path) if b"hunter2" in found.read_bytes()]
    for each in (talk, reader, ConversationDriver(JSONL(tmp_path), "ann", "talk")):
        assert each.metas() == {1: {"from": "kept 2"}}
        assert each.read_all()["summary"][0].meta == {"title": "kept 3"}
    assert talk.store.verify("ann", "talk") == []
    assert talk.store.describe("ann", "talk", {"anew": 1}, entry=first.id)
    assert ConversationDriver(JSONL(tmp_path), "ann", "talk").metas() == {0: {"anew": 1}, 1: {"from": "kept 2"}}


def test_data_that_could_not_stand_in_a_line_goes_with_a_redaction_too(
    talk: ConversationDriver, path: Path, tmp_path: Path
):
    talk.say("one", entry_meta={0: {"\ud800": "hunter2"}})
    talk.store.describe("ann", "talk", {"\ud800": "hunter2"}, entry=talk.entries()[0].id)
    assert ConversationDriver(JSONL(tmp_path), "ann", "talk").metas() == {0: {"\ud800": "hunter2"}}
    talk.store.redact("ann", "talk", talk.entries()[0].id, b"{}")
    assert ConversationDriver(JSONL(tmp_path), "ann", "talk").metas() == talk.metas() == {}
    data = path.read_bytes()
    assert b"hunter2" not in data
    assert b"meta" not in data


def test_a_redaction_that_fails_changes_nothing(talk: ConversationDriver, path: Path, monkeypatch: pytest.MonkeyPatch):
    grown(talk)
    before = path.read_bytes()

    def fails(*_: object) -> None:
        raise OSError("no")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fails)
        with pytest.raises(FileError, match=r"talk\.jsonl can't be written: no\."):
            talk.store.redact("ann", "talk", talk.entries()[0].id, b"{}")
    assert path.read_bytes() == before
    assert sorted(each.name for each in path.parent.iterdir()) == ["talk.jsonl", "talk.lock"]
    assert talk.texts() == ["one", "two"]


def test_a_write_that_is_cut_off_behind_the_file_leaves_it_readable(
    talk: ConversationDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    talk.say("one")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("longtalk.stores._tree.ConversationTree.apply", stop)
        with pytest.raises(KeyboardInterrupt):
            talk.say("two")
    talk.say("three")
    assert JSONL(tmp_path).verify("ann", "talk") == []
    assert talk.texts() == ConversationDriver(JSONL(tmp_path), "ann", "talk").texts() == ["one", "two", "three"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_copy_of_the_process_does_not_keep_the_lock(talk: ConversationDriver):
    talk.say("one")
    store = talk.store
    assert isinstance(store, JSONL)

    def fork(_: object) -> int:
        if child := os.fork():
            return child
        time.sleep(120)
        os._exit(0)

    child = store._run_locked("ann", "talk", fork)
    try:
        done = threading.Thread(target=talk.say, args=("two",), daemon=True)
        done.start()
        done.join(60)
        assert not done.is_alive()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no alarm here")
@pytest.mark.parametrize("delete", [False, True], ids=["describe", "delete"])
def test_ctrl_c_anywhere_releases_the_lock_before_it_is_handled(delete: bool, tmp_path: Path):
    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    struck, stopped = Interrupts(Path(folder.__file__).parent, Path(contextlib.__file__)), True
    try:
        while stopped:
            store, name = JSONL(tmp_path), f"talk {len(struck.points)}"
            ConversationDriver(store, "ann", name).say("one")

            def call(store: JSONL = store, name: str = name) -> object:
                return store.delete("ann", name) if delete else store.describe("ann", name, {"new": 1})

            def again(name: str = name) -> None:
                # Another store on this folder must be able to get the lock, in the same thread.
                signal.setitimer(signal.ITIMER_REAL, 10)
                ConversationDriver(JSONL(tmp_path), "ann", name).say("two")
                signal.setitimer(signal.ITIMER_REAL, 0)

            stopped = struck.during(call, then=again)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(struck.points) > 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_ctrl_c_anywhere_releases_the_lock_although_a_copy_of_the_process_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fcntl = pytest.importorskip("fcntl")
    children: list[int] = []
    lock = file_locks.lock_file

    def lock_and_fork(file: int) -> None:
        lock(file)
        ready, child_is_ready = os.pipe()
        watch = sys.getprofile()
        sys.setprofile(None)
        if not (child := os.fork()):
            os.write(child_is_ready, b"1")
            signal.pause()
            os._exit(0)
        children.append(child)
        os.read(ready, 1)
        os.close(ready)
        os.close(child_is_ready)
        sys.setprofile(watch)

    def is_locked(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False

    def check() -> None:
        with open(tmp_path / "ann" / "talk.lock", "ab") as file:
            assert not is_locked(file.fileno())

    ConversationDriver(JSONL(tmp_path), "ann", "talk").say("one")
    monkeypatch.setattr(folder, "lock_file", lock_and_fork)
    struck, stopped = Interrupts(Path(folder.__file__)), True
    try:
        while stopped:
            stopped = struck.during(lambda: JSONL(tmp_path).describe("ann", "talk", {"new": 1}), then=check)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert len(children) > 10


def test_ctrl_c_anywhere_in_a_reading_method_blocks_no_other_thread(talk: ConversationDriver):
    talk.say("one")
    blocked: list[str] = []

    def read_in_another_thread() -> None:
        thread = threading.Thread(target=talk.texts, daemon=True)
        thread.start()
        thread.join(30)
        if thread.is_alive():
            blocked.append(struck.points[-1])

    struck = Interrupts(Path(folder.__file__).parent, Path(in_memory.__file__), Path(contextlib.__file__))
    while not blocked and struck.during(lambda: talk.store.head("ann", "talk"), then=read_in_another_thread):
        pass
    assert blocked == []
    assert struck.points
