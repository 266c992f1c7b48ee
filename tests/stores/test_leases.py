"""Leases of branches: holding, renewing and releasing them, and detecting holders that have ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from longtalk import AsyncConversation, Conversation
from longtalk.stores import leases
from longtalk.stores.base import BranchHead, Commit, Holder, Lease
from longtalk.stores.in_memory import InMemory
from longtalk.stores.leases import HeldLease, LeaseRegistry, identify_this_process, is_free, make_lease
from longtalk.testing import AsyncScripted, Scripted, says, validate
from longtalk.transcript.transcript import now

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

UNUSED_PID = 999_999_999


def held_in(store: InMemory, token: int = 0) -> HeldLease:
    return HeldLease(store, "", "c", "main", token)


def head_with(holder: Holder, *, until: int | None = None, token: int = 1) -> BranchHead:
    held = Lease(holder, now() + 10_000 if until is None else until, token)
    return InMemory().write("", "c", Commit(expect=0, lease=held, at=1))


def until(store: InMemory) -> int:
    head = store.head("", "c")
    assert head is not None
    assert head.lease is not None
    return head.lease.until


def leased(holder: Holder | None = None, token: int = 1) -> InMemory:
    store = InMemory()
    held = make_lease(token) if holder is None else Lease(holder, now() + 10_000, token)
    store.write("", "c", Commit(expect=0, lease=held, at=1))
    return store


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> LeaseRegistry:
    registry = LeaseRegistry()
    monkeypatch.setattr(leases, "_REGISTRY", registry)
    return registry


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def eventually(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + 60
    while not true() and time.monotonic() < end:
        time.sleep(0.005)
    return true()


def test_a_process_is_identified_by_more_than_its_id() -> None:
    mine = identify_this_process()
    assert (mine, mine.pid) == (identify_this_process(), os.getpid())
    assert mine.host
    assert mine.started == leases._read_start_time(os.getpid()) > 0
    assert leases._read_start_time(UNUSED_PID) == -1


def test_a_branch_without_a_lease_is_free() -> None:
    head = InMemory().write("", "c", Commit(expect=0, at=1))
    assert is_free(head, "", "c")


@pytest.mark.parametrize(
    ("fields", "free"),
    [
        ({"pid": UNUSED_PID}, True),
        ({"boot": "another"}, True),
        ({"host": "elsewhere", "pid": UNUSED_PID}, False),
        # Another process has this process id now.
        ({"started": 1}, True),
    ],
)
def test_only_a_process_that_is_alive_holds_a_branch(fields: dict[str, Any], free: bool) -> None:
    head = head_with(msgspec.structs.replace(identify_this_process(), **fields))
    assert is_free(head, "", "c") == free


def test_an_expired_lease_holds_nothing() -> None:
    assert is_free(head_with(Holder("elsewhere", "", 1, 1), until=now() - 1), "", "c")


def test_another_process_holds_a_branch_until_the_process_ends(sleeper: subprocess.Popen[bytes]) -> None:
    head = head_with(
        msgspec.structs.replace(identify_this_process(), pid=sleeper.pid, started=leases._read_start_time(sleeper.pid))
    )
    assert not is_free(head, "", "c")
    os.kill(sleeper.pid, signal.SIGKILL)
    # Even before its parent has waited for it.
    assert eventually(lambda: is_free(head, "", "c"))


def test_this_process_holds_the_leases_in_its_registry(registry: LeaseRegistry) -> None:
    store = leased(token=3)
    head = store.head("", "c")
    assert head is not None
    assert is_free(head, "", "c")
    held = held_in(store, 3)
    registry.hold(held)
    assert not is_free(head, "", "c")
    assert is_free(msgspec.structs.replace(head, branch="other"), "", "c")
    registry.drop(held)
    assert is_free(head, "", "c")


def test_a_lease_object_that_was_garbage_collected_is_not_held(registry: LeaseRegistry) -> None:
    store = leased(token=3)
    head = store.head("", "c")
    assert head is not None
    held = held_in(store, 3)
    registry.hold(held)
    assert not is_free(head, "", "c")
    del held
    assert is_free(head, "", "c")


def test_leases_are_renewed(registry: LeaseRegistry) -> None:
    store = leased()
    held = held_in(store, 1)
    registry.hold(held)
    store.renew("", "c", "main", 1, 5)
    registry.renew()
    assert until(store) > now() + leases.LEASE_MS - 5_000


def test_a_lease_that_another_process_took_is_dropped(registry: LeaseRegistry) -> None:
    store = leased(token=2)
    held = held_in(store, 1)
    registry.hold(held)
    before = until(store)
    registry.renew()
    assert until(store) == before
    assert not registry.held


def test_a_store_that_fails_to_renew_keeps_the_lease_and_is_logged(
    registry: LeaseRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    class Trouble(InMemory):
        def renew(self, *_: Any) -> bool:
            raise OSError("disk on fire")

    store, fine = Trouble(), leased()
    held = [held_in(store, 1), held_in(fine, 1)]
    for each in held:
        registry.hold(each)
    fine.renew("", "c", "main", 1, 5)
    registry.renew()
    assert set(registry.held) == set(held)
    assert until(fine) > now()
    assert "lease not renewed in='c' error='OSError'" in caplog.text


def test_a_thread_renews_leases_while_any_is_held(registry: LeaseRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_MS", 60)
    store = leased()
    first = until(store)
    held = held_in(store, 1)
    registry.hold(held)
    thread = registry._thread
    assert thread is not None
    assert thread[1].daemon
    registry.hold(held)
    assert registry._thread is thread
    assert eventually(lambda: until(store) > first)
    registry.drop(held)
    assert eventually(lambda: not thread[1].is_alive())
    registry.hold(held)
    assert registry._thread is not thread
    registry.drop(held)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_holds_no_leases() -> None:
    store = leased()
    held = held_in(store, 1)
    leases.hold_lease(held)
    try:
        pid = os.fork()
        if not pid:
            head = store.head("", "c")
            assert head is not None
            # The forked process sees that its parent is alive, and that it is a process of its own.
            fine = (
                not leases._REGISTRY.held and identify_this_process().pid == os.getpid() and not is_free(head, "", "c")
            )
            os._exit(0 if fine else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert held in leases._REGISTRY.held
    finally:
        leases.drop_lease(held)


@pytest.mark.parametrize(("state", "started"), [(b"S", 20), (b"R", 20), (b"Z", -1), (b"X", -1)])
def test_a_process_that_was_not_collected_by_its_parent_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: bytes, started: int
) -> None:
    numbers = b" ".join(b"%d" % i for i in range(2, 40))
    (tmp_path / "stat").write_bytes(b"7 (a) S \xff) " + state + b" " + numbers + b"\n")
    monkeypatch.setattr(leases, "Path", lambda _: tmp_path / "stat")
    assert leases._read_start_time(7) == started


def test_systems_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        def __init__(self, path: str) -> None:
            pass

        def exists(self) -> bool:
            return False

        def read_text(self) -> str:
            raise FileNotFoundError

        read_bytes = read_text

    monkeypatch.setattr(leases, "Path", Nothing)
    assert leases._read_boot_id() == ""
    assert leases._read_start_time(os.getpid()) == 0
    assert leases._read_start_time(UNUSED_PID) == -1

    def refuse(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert leases._read_start_time(1) == 0


def test_a_turn_that_runs_longer_than_its_lease_keeps_it(
    registry: LeaseRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_MS", 300)
    monkeypatch.setattr("longtalk._sync.branches.turn_writer.hold_lease", registry.hold)
    monkeypatch.setattr("longtalk._sync.branches.turn_writer.drop_lease", registry.drop)
    store = InMemory()

    def slow() -> str:
        """Takes its time."""
        first = until(store)
        return str(eventually(lambda: until(store) > first + 300) and now() < until(store))

    provider = Scripted(says(None, calls=[("c1", "slow", {})]), says("done"))
    reply = Conversation("c", model=provider, store=store, tools=[slow]).send("x")
    assert (reply.text, reply.notices) == ("done", ())
    assert b'"True"' in provider.requests[-1]
    assert not registry.held


# Cancellation, which only async programs can do


class Slow(InMemory):
    """A store whose writes take some time."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = threading.Semaphore(0)

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        self.writes.release()
        time.sleep(0.05)
        return super().write(owner, conversation, commit)


def lookup(q: str) -> str:
    """Look something up."""
    return q


@pytest.mark.anyio
@pytest.mark.parametrize("writes", [1, 2, 3, 4])
async def test_a_turn_that_is_cancelled_while_it_is_written_ends_on_its_branch(writes: int) -> None:
    store = Slow()
    calls = says("Hm.", calls=[("c1", "lookup", {"q": "a"}), ("c2", "lookup", {"q": "b"})])
    conversation = AsyncConversation("c", model=AsyncScripted(calls, says("done")), store=store, tools=[lookup])
    async with anyio.create_task_group() as group:

        async def run() -> None:
            with contextlib.suppress(Exception):
                await conversation.send("x")

        group.start_soon(run)
        for _ in range(writes):
            await anyio.to_thread.run_sync(store.writes.acquire)
        group.cancel_scope.cancel()
    assert [head.branch for head in store.branches("", "c")] == ["main"]
    head = store.head("", "c")
    assert head is not None
    assert head.lease is None
    assert head.turn is not None
    assert head.turn.status in ("interrupted", "complete")
    provider = AsyncScripted(says("ok"))
    await AsyncConversation("c", model=provider, store=store, tools=[lookup]).send("y")
    validate(provider.requests[0])
    await conversation.verify()


@pytest.mark.anyio
async def test_concurrent_turns_run_one_after_the_other(tmp_path: Path) -> None:
    from longtalk.stores.sqlite.store import SQLite

    store = SQLite(tmp_path / "talks.db")
    async with anyio.create_task_group() as group:
        for i in range(8):
            one = AsyncConversation("c", model=AsyncScripted(says(f"a{i}")), store=store)
            group.start_soon(lambda one=one, i=i: one.send(f"q{i}", on_busy="wait"))
    said = [each.text for each in await AsyncConversation("c", model=AsyncScripted(), store=store).history()]
    assert sorted(said[::2]) == [f"q{i}" for i in range(8)]
    assert [text.replace("q", "a") for text in said[::2]] == said[1::2]
    assert [head.branch for head in store.branches("", "c")] == ["main"]
    store.close()
