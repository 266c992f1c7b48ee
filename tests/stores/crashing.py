"""Run a turn in a process that is killed at a chosen step, and check the data that it leaves.

These are the steps: before and after each write to the store, and within a write after half of the bytes have gone to
the file; before and after each model call; each streamed piece; each event that the caller receives; the start and the
end of each tool. The process that checks the data then continues the conversation at once.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
import traceback
import warnings
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import apsw
import psycopg
import redis

from longtalk import AsyncConversation, Conversation, tool
from longtalk.events import Done, ToolResult
from longtalk.policies import KeepAll, Policy
from longtalk.stores.base import BranchHead, Commit, Store
from longtalk.stores.jsonl.store import JSONL
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, Scripted, Step, says, validate
from longtalk.transcript.transcript import Entry, Turn
from longtalk.turn.draft import UNKNOWN
from longtalk.wires import WIRES
from tests.support import postgres_server, redis_server

ASKED, NEXT, KEY = "Pay Ann and Ben.", "And now?", "request-1"
POSTGRES = "postgres.json"
"""The file that names the PostgreSQL store of a folder."""
PAID = {"c1": "ann", "c2": "ben"}


class Case(NamedTuple):
    store: str
    way: str
    then: str
    """What the next process does: `key` repeats the request, `message` sends another one, `note` adds a note first."""
    idempotent: bool = False
    split_writes: bool = True
    """Whether there are steps within a write."""
    wire: str = "openai-chat"
    policy: Policy = KeepAll()
    history: int = 1
    """The number of turns before the one that is killed."""

    @property
    def name(self) -> str:
        policy = "" if self.policy == KeepAll() else type(self.policy).__name__
        kind = "idempotent" if self.idempotent else "once"
        parts = (self.store, self.way, self.then, kind, "split" if self.split_writes else "", self.wire, policy)
        return "-".join(filter(None, (*parts, str(self.history))))

    def open(self, folder: Path) -> Store:
        if self.store == "sqlite":
            return SQLite(folder / "talks.db")
        if self.store == "postgres":
            return postgres_server.open_at(folder / POSTGRES)
        if self.store == "redis":
            redis_server.prepare_store(folder)
            return redis_server.open_at(folder)
        return JSONL(folder / "talks", fsync=True)

    def copy(self, source: Path, folder: Path) -> None:
        """Copy a folder, and the store on a server that belongs to it, if any."""
        shutil.copytree(source, folder)
        if self.store == "postgres":
            postgres_server.copy_store(folder / POSTGRES)
        if self.store == "redis":
            redis_server.copy_store(source, folder)

    def remove(self, folder: Path) -> None:
        if self.store == "postgres":
            postgres_server.drop_store(folder / POSTGRES)
        shutil.rmtree(folder)


class Steps:
    """A counter of steps that kills this process at step number `at`, in any thread; never if `at` is 0."""

    def __init__(self, at: int = 0) -> None:
        self._at = at
        self._count = count(1)

    def __call__(self) -> None:
        if next(self._count) == self._at:
            os.kill(os.getpid(), signal.SIGKILL)


class Stepped:
    """A store with a step before and after each write."""

    def __init__(self, store: Store, step: Steps) -> None:
        self._store = store
        self._step = step
        self.results = 0
        """The number of tool results that were written."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        self._step()
        head = self._store.write(owner, conversation, commit)
        self._step()
        self.results += sum(entry.role == "tool" for entry in commit.entries)
        return head


class _UnsyncedFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802
        pass


class _UnsyncedSystem(apsw.VFS):
    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _UnsyncedFile(name, flags)


def prepare_process() -> None:
    """Make this process and its forks raise warnings as errors, and write files without waiting for the disk.

    The data of a killed process stays in the system's memory, so that only a power cut could lose it.
    """
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
    os.fsync = lambda file: None
    apsw.unsynced = _UnsyncedSystem("unsynced", "unix", makedefault=True)  # type: ignore[attr-defined]


def split_writes(case: Case, step: Steps) -> None:
    """Make this process write to its files in parts from now on, with steps between the parts."""
    if case.store in ("sqlite", "postgres"):
        (_split_writes_sqlite if case.store == "sqlite" else _split_writes_postgres)(step)
        return
    if case.store == "redis":
        _split_writes_redis(step)
        return
    write, fsync = os.write, os.fsync

    def write_in_parts(file: int, data: Any) -> int:
        step()
        size = len(data)
        # Write half, or all but the end of the line if little remains.
        return write(file, data[: size // 2 if size > 300 else max(1, size - 1)])

    def sync_with_steps(file: int) -> None:
        step()
        fsync(file)
        step()

    os.write, os.fsync = write_in_parts, sync_with_steps  # type: ignore[assignment]


def _split_writes_sqlite(step: Steps) -> None:
    class File(_UnsyncedFile):
        def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
            half = len(data) // 2
            super().xWrite(data[:half], offset)
            step()
            super().xWrite(data[half:], offset + half)

    class System(apsw.VFS):
        def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
            return File(name, flags)

    apsw.torn = System("torn", "unix", makedefault=True)  # type: ignore[attr-defined]


def _split_writes_postgres(step: Steps) -> None:
    """Add a step whenever the client has sent something to the server, and whenever the server has answered."""
    wait = psycopg.Connection.wait

    def write_in_parts(work: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        try:
            state = next(work)
            while True:
                step()
                ready = yield state
                step()
                state = work.send(ready)
        except StopIteration as done:
            return done.value

    def wait_in_parts(self: Any, work: Generator[Any, Any, Any], *args: Any, **settings: Any) -> Any:
        return wait(self, write_in_parts(work), *args, **settings)

    psycopg.Connection.wait = wait_in_parts  # type: ignore[method-assign]


def _split_writes_redis(step: Steps) -> None:
    def write_in_parts(self: Any, command: Any, check_health: bool = True) -> None:
        if not self._sock:
            self.connect()
        data = b"".join(command)
        self._sock.sendall(data[: len(data) // 2])
        step()
        self._sock.sendall(data[len(data) // 2 :])
        # The server may have run the command, but the client has no answer.
        step()

    redis.Connection.send_packed_command = write_in_parts


# The turn


def answer(body: bytes, wire: str) -> Step:
    """Return the model's answer, which depends only on the request."""
    last = json.dumps(json.loads(body)["messages"][-1])
    if NEXT in last:
        return says("Nothing else.", wire=wire)
    if "tool_call_id" in last or "tool_result" in last:
        return says("Both are paid.", wire=wire)
    if ASKED in last:
        calls = [(call, "pay", {"to": to}) for call, to in PAID.items()]
        return says("Let me see.", calls=calls, wire=wire)
    return says("Hello!", wire=wire)


class Model(Scripted):
    def __init__(self, wire: str, step: Steps) -> None:
        super().__init__(wire=WIRES[wire])
        self._step = step

    def send(self, body: bytes) -> bytes:
        self._step()
        self.add(answer(body, self.wire.name))
        said = super().send(body)
        self._step()
        return said

    def stream(self, body: bytes) -> Generator[bytes, None, None]:
        self._step()
        self.add(answer(body, self.wire.name))
        for piece in super().stream(body):
            self._step()
            yield piece


class AsyncModel(AsyncScripted):
    def __init__(self, wire: str, step: Steps) -> None:
        super().__init__(wire=WIRES[wire])
        self._step = step

    async def send(self, body: bytes) -> bytes:
        self._step()
        self.add(answer(body, self.wire.name))
        said = await super().send(body)
        self._step()
        return said

    async def stream(self, body: bytes) -> AsyncGenerator[bytes, None]:
        self._step()
        self.add(answer(body, self.wire.name))
        async for piece in super().stream(body):
            self._step()
            yield piece


class Payer:
    """The tool, with a log on disk of the payments that it made."""

    def __init__(self, case: Case, folder: Path, store: Stepped, step: Steps, *, together: bool) -> None:
        self._log = folder / "log"
        self._step = step
        self._store = store
        self._together = together and case.way.startswith("async")
        self._both = threading.Event()
        self._until = time.monotonic() + 20
        function = self._pay_async if case.way == "async stream" else self._pay
        self.tool = tool(function, name="pay", idempotent=case.idempotent)

    def _pay(self, to: str) -> str:
        """Pays."""
        self._begin(to)
        while not self._may_end(to):
            time.sleep(0.0005)
        return self._end(to)

    async def _pay_async(self, to: str) -> str:
        """Pays."""
        self._begin(to)
        while not self._may_end(to):  # noqa: ASYNC110
            await anyio.sleep(0.0005)
        return self._end(to)

    def _may_end(self, to: str) -> bool:
        """Return whether a call may end.

        With parallel calls, Ann's may end when both have begun, and Ben's when Ann's result is stored.
        """
        if not self._together or time.monotonic() > self._until:
            return True
        return self._both.is_set() if to == "ann" else self._store.results > 0

    def _begin(self, to: str) -> None:
        self._step()
        append_line(self._log, to)
        if to == "ben":
            self._both.set()
        self._step()

    def _end(self, to: str) -> str:
        self._step()
        return f"paid {to}"


def append_line(file: Path, line: str) -> None:
    with file.open("a") as log:
        log.write(f"{line}\n")


def read_lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def run_turn(
    case: Case,
    folder: Path,
    store: Store,
    message: str,
    *,
    key: str | None = None,
    step: Steps | None = None,
    together: bool = False,
    heard: Callable[[str], None] = lambda _: None,
) -> tuple[str, list[bytes]]:
    """Run one turn in the way of the case. `heard` is called with each result and event that the caller receives."""
    step = step or Steps()
    stepped = Stepped(store, step)
    tools = [Payer(case, folder, stepped, step, together=together).tool]
    settings: dict[str, Any] = {"store": stepped, "tools": tools, "policy": case.policy}
    options: dict[str, Any] = {"key": key, "on_busy": "reject"}

    def hear(event: Any) -> str | None:
        if isinstance(event, ToolResult):
            heard(event.id)
        if isinstance(event, Done):
            heard("done")
        step()
        return event.reply.text if isinstance(event, Done) else None

    def run_sync() -> tuple[str, list[bytes]]:
        model = Model(case.wire, step)
        talk = Conversation("c", model=model, **settings)
        if case.way == "stream":
            return [hear(event) for event in talk.stream(message, **options)][-1] or "", model.requests
        return hear(Done(talk.send(message, **options))) or "", model.requests

    async def run_async() -> tuple[str, list[bytes]]:
        model = AsyncModel(case.wire, step)
        talk = AsyncConversation("c", model=model, **settings)
        if case.way == "async stream":
            return [hear(event) async for event in talk.stream(message, **options)][-1] or "", model.requests
        return hear(Done(await talk.send(message, **options))) or "", model.requests

    return anyio.run(run_async) if case.way.startswith("async") else run_sync()


# State before and after the crash


class Before(NamedTuple):
    """The state before the process starts, and the entries that the complete turn would have."""

    folder: Path
    said: list[Entry]
    turns: list[Turn]
    whole: list[Entry]


def read_branch(store: Store, branch: str = "main") -> tuple[list[Entry], list[Turn]]:
    pack = store.read("", "c", branch, 0, 10_000)
    return [pack.entry(i) for i in range(len(pack))], [turn for _, turn in store.turns("", "c", branch, 0, 10_000)]


def prepare(case: Case, folder: Path) -> Before:
    """Run the earlier turns, and the next one on a copy, to learn which entries it has if no process is killed."""
    first, whole = folder / "before", folder / "whole"
    first.mkdir(parents=True)
    with closing(case.open(first)) as store:
        for i in range(case.history):
            run_turn(case, first, store, f"Hello {i}")
        said, turns = read_branch(store)
    case.copy(first, whole)
    with closing(case.open(whole)) as store:
        assert run_turn(case, whole, store, ASKED, key=KEY)[0] == "Both are paid."
        return Before(first, said, turns, read_branch(store)[0][len(said) :])


def crash(case: Case, source: Path, folder: Path, at: int, *, again: bool = False) -> bool:
    """Run the turn on a copy of a folder, in a process that is killed at a step. Return whether it was killed.

    At odd steps, the process stays a zombie while the next one continues: that one must not wait for it.
    """
    case.copy(source, folder)
    pid = os.fork()
    if not pid:
        try:
            step = Steps(at)
            if case.split_writes:
                split_writes(case, step)
            store = case.open(folder)
            run_turn(
                case,
                folder,
                store,
                ASKED,
                key=KEY,
                step=step,
                together=not again,
                heard=lambda event: append_line(folder / "heard", event),
            )
            step()
            os._exit(0)
        except BaseException:
            (folder / "error").write_text(traceback.format_exc())
        finally:
            os._exit(1)
    if at % 2:
        status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert status is not None
        killed = status.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
        ZOMBIES.append(pid)
    else:
        killed = os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    assert not (folder / "error").exists(), (folder / "error").read_text()
    if case.store == "postgres":
        postgres_server.end_connections()
    return killed


ZOMBIES: list[int] = []


def reap_zombies() -> None:
    while ZOMBIES:
        os.waitpid(ZOMBIES.pop(), 0)


def results(wire: str, entries: list[Entry]) -> dict[str, str]:
    """Return the text of each tool result among these entries, by call id."""
    views = [WIRES[wire].view(entry.native) for entry in entries]
    found = [(view.call_id, view.text) for view in views if view.call_id]
    assert len(found) == len(dict(found))
    return {call: text for call, text in found if call}


def check(case: Case, before: Before, folder: Path) -> tuple[str, ...]:
    """Check the data of a killed process and continue the conversation. Return the roles of the turn's entries."""
    with closing(case.open(folder)) as store:
        stored = _check_stored(case, before, folder, store)
        _continue_conversation(case, before, folder, store, stored)
        branches = {head.branch: read_branch(store, head.branch) for head in store.branches("", "c")}
    # A store that is opened again has the same data.
    with closing(case.open(folder)) as store:
        assert {head.branch: read_branch(store, head.branch) for head in store.branches("", "c")} == branches
    return tuple(entry.role for entry in stored)


def _check_stored(case: Case, before: Before, folder: Path, store: Store) -> list[Entry]:
    said, turns = read_branch(store)
    # Everything that was acknowledged before is stored, byte for byte.
    assert said[: len(before.said)] == before.said
    assert turns[: len(before.turns)] == before.turns
    stored, ours, whole = said[len(before.said) :], turns[len(before.turns) :], before.whole
    assert len(ours) == bool(stored)
    assert {entry.turn for entry in stored} == {turn.id for turn in ours}
    # The entries are the beginning of the turn, with the results in any order.
    assert [entry.role for entry in stored] == [entry.role for entry in whole][: len(stored)]
    for entry, expected in zip(stored, whole, strict=False):
        assert entry.role == "tool" or entry.native == expected.native
    for call, text in results(case.wire, stored).items():
        assert text in (f"paid {PAID[call]}", UNKNOWN)
        assert text != UNKNOWN or not case.idempotent
    # The turn is complete if and only if all its entries are stored. Everything that the caller received is stored.
    for turn in ours:
        assert turn.status == ("complete" if len(stored) == len(whole) else "running")
    heard = read_lines(folder / "heard")
    assert set(heard) - {"done"} <= set(results(case.wire, stored))
    assert "done" not in heard or len(stored) == len(whole)
    verify(case, store)
    return stored


def verify(case: Case, store: Store) -> None:
    model = Scripted(wire=WIRES[case.wire])
    for head in store.branches("", "c"):
        Conversation("c", model=model, store=store, branch=head.branch).verify()
        entries, _ = read_branch(store, head.branch)
        # A turn is never interleaved with another one.
        firsts = [entry.turn for i, entry in enumerate(entries) if not i or entries[i - 1].turn != entry.turn]
        assert len(firsts) == len(set(firsts))
        assert len({entry.id for entry in entries}) == len(entries)


def _continue_conversation(case: Case, before: Before, folder: Path, store: Store, stored: list[Entry]) -> None:
    log = folder / "log"
    kept, ran = results(case.wire, stored), read_lines(log)
    # The calls are stored before a tool runs.
    called, complete = len(stored) > 1, len(stored) == len(before.whole)
    assert called or not ran
    sent: list[bytes] = []

    def turn(message: str, key: str | None = None) -> str:
        text, requests = run_turn(case, folder, store, message, key=key)
        for request in requests:
            validate(request, wire=case.wire)
        sent.extend(requests)
        return text

    if case.then == "note":
        noting = Conversation("c", model=Scripted(wire=WIRES[case.wire]), store=store, tools=[], policy=case.policy)
        noting.note("The power is back.")
    if case.then == "key":
        assert turn(ASKED, KEY) == "Both are paid."
        assert len(sent) == (0 if complete else 1 if called else 2)
    else:
        assert turn(NEXT) == "Nothing else."
        assert len(sent) == 1
    now_ran, said = read_lines(log), read_branch(store)[0]
    assert said[: len(before.said) + len(stored)] == [*before.said, *stored]
    for call, to in PAID.items():
        runs, was = now_ran.count(to), ran.count(to)
        if call in kept or complete:
            assert runs == was, "a call that has a result was made again"
        elif called:
            # A note answers the open calls without running tools.
            again = case.idempotent and case.then != "note"
            assert runs == was + again
            found = results(case.wire, said[len(before.said) :])[call]
            assert found == (f"paid {to}" if again else UNKNOWN)
        else:
            assert runs == was + (case.then == "key")
        assert case.idempotent or runs <= 1
        if sent and call in kept and case.then != "key":
            assert kept[call] in sent[0].decode()

    # A client that never got an answer repeats the request later: it is still one turn.
    assert turn(ASKED, KEY) == "Both are paid."
    many = len(sent)
    assert turn(ASKED, KEY) == "Both are paid."
    assert turn(NEXT) == "Nothing else."
    assert len(sent) == many + 1
    _check_end(case, before, store, stored)
    assert case.idempotent or max(map(read_lines(log).count, PAID.values())) <= 1
    if case.policy != KeepAll():
        assert all(b"Hello 0" not in request for request in sent)


def _check_end(case: Case, before: Before, store: Store, stored: list[Entry]) -> None:
    asked = store.keyed_turn("", "c", KEY)
    assert asked is not None
    assert asked.turn.status == "complete"
    verify(case, store)
    cut_off = case.then != "key" and 0 < len(stored) < len(before.whole)
    first = [ASKED] if stored or case.then == "key" else []
    then = [NEXT] if case.then == "key" else [NEXT, NEXT] if first else [NEXT, ASKED, NEXT]
    heads = store.branches("", "c")
    # If the conversation went on without the turn, the turn is completed on a branch of its own.
    assert [head.branch for head in heads] == ["main", *([f"main~{asked.turn.id}"] if cut_off else [])]
    for head in heads:
        assert head.lease is None
        said, turns = read_branch(store, head.branch)
        assert said[: len(before.said)] == before.said
        users = [entry for entry in said[len(before.said) :] if entry.role == "user"]
        assert [_text(case, entry) for entry in users] == ([*first, *then] if head.branch == "main" else [ASKED])
        assert {entry.turn for entry in users if _text(case, entry) == ASKED} == {asked.turn.id}
        assert {turn.status for turn in turns} == {"complete"}
        for turn in turns[len(before.turns) :]:
            roles = [entry.role for entry in said if entry.turn == turn.id]
            cut = turn.id == asked.turn.id and cut_off and head.branch == "main"
            assert len(roles) == (1 if len(stored) < 2 else 4) if cut else len(roles) in (2, len(before.whole))


def _text(case: Case, entry: Entry) -> str:
    return WIRES[case.wire].view(entry.native).text


def kill_at_each_step(case: Case, folder: Path) -> tuple[int, set[tuple[str, ...]]]:
    """Kill the process at each step. Return the number of steps, and the roles of the entries found after each kill."""
    before = prepare(case, folder)
    return _kill_at_each_step(case, before, before.folder, folder)


def kill_twice(case: Case, folder: Path) -> int:
    """Kill the process while calls have no result, then kill the process that continues, at each of its steps.

    Returns the number of kills.
    """
    before = prepare(case, folder)
    found: dict[int, Path] = {}
    for at in count(1):
        copy, inspected = folder / f"first-{at}", folder / "inspected"
        killed = crash(case, before.folder, copy, at)
        reap_zombies()
        if not killed:
            break
        case.copy(copy, inspected)
        with closing(case.open(inspected)) as store:
            size = len(read_branch(store)[0]) - len(before.said)
        case.remove(inspected)
        # Keep the last kill with this many entries: the next commit is torn.
        if size in (2, 3):
            found[size] = copy
    assert found.keys() == {2, 3}
    kills = at - 1
    for size, source in found.items():
        folder.joinpath(f"from-{size}").mkdir()
        kills += _kill_at_each_step(case, before, source, folder / f"from-{size}", again=True)[0]
    return kills


def _kill_at_each_step(
    case: Case, before: Before, source: Path, folder: Path, *, again: bool = False
) -> tuple[int, set[tuple[str, ...]]]:
    seen: set[tuple[str, ...]] = set()
    for at in count(1):
        copy = folder / f"at-{at}"
        killed = crash(case, source, copy, at, again=again)
        seen.add(check(case, before, copy))
        reap_zombies()
        case.remove(copy)
        if not killed:
            return at - 1, seen
    raise AssertionError
