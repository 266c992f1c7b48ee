"""A process that is killed at every step of a turn: what was acknowledged is there, and the next turn just works."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, NoReturn

import pytest

from longtalk import AsyncConversation, Conversation, tool
from longtalk.stores.base import Commit, Head
from longtalk.stores.sqlite import SQLite
from longtalk.testing import AsyncScripted, Scripted, says, validate

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork"),
]

CALLS = says("Let me see.", calls=[("c1", "pay", {"to": "ann"}), ("c2", "pay", {"to": "ben"})])


class Steps:
    """Kills the process at the n-th step."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self) -> None:
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)


class Steppy:
    """A store whose writes have a step before and after."""

    def __init__(self, store: SQLite, step: Steps) -> None:
        self._store = store
        self._step = step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, owner: str, conversation: str, commit: Commit) -> Head:
        self._step()
        head = self._store.write(owner, conversation, commit)
        self._step()
        return head


def payer(log: Path, step: Steps, *, idempotent: bool) -> Any:
    @tool(idempotent=idempotent)
    def pay(to: str) -> str:
        """Pays."""
        step()
        with log.open("a") as file:
            file.write(f"{to}\n")
        step()
        return f"paid {to}"

    return pay


def child(folder: Path, at: int, how: str, *, idempotent: bool) -> NoReturn:
    """One turn, in a process of its own that may not see its end."""
    step = Steps(at)
    store: Any = Steppy(SQLite(folder / "talks.db"), step)
    tools = [payer(folder / "log", step, idempotent=idempotent)]
    if how == "async":
        import anyio

        other = AsyncConversation("c", model=AsyncScripted(CALLS, says("done")), store=store, tools=tools)
        anyio.run(lambda: other.send("x", key="k"))
    else:

        class Model(Scripted):
            def send(self, body: bytes) -> bytes:
                step()
                return super().send(body)

            def stream(self, body: bytes) -> Any:
                for piece in super().stream(body):
                    step()
                    yield piece

        conversation = Conversation("c", model=Model(CALLS, says("done")), store=store, tools=tools)
        if how == "stream":
            for _ in conversation.stream("x", key="k"):
                step()
        else:
            conversation.send("x", key="k")
    (folder / "acknowledged").touch()
    os._exit(0)


def crash(folder: Path, at: int, how: str, *, idempotent: bool) -> bool:
    """Whether the process was killed at this step."""
    folder.mkdir()
    store = SQLite(folder / "talks.db")
    Conversation("c", model=Scripted(says("a")), store=store).send("w")
    store.close()
    pid = os.fork()
    if not pid:
        try:
            child(folder, at, how, idempotent=idempotent)
        finally:
            os._exit(1)
    status = os.waitpid(pid, 0)[1]
    assert status in (0, signal.SIGKILL)
    return status == signal.SIGKILL


def check(folder: Path, then: str, *, idempotent: bool) -> tuple[str, ...]:
    """Look at what is left, and go on. Returns what was there."""
    store = SQLite(folder / "talks.db")
    log = folder / "log"
    left = [(turn.status, turn.finish) for _, turn in store.turns("", "c", "main", 0, 100)]
    provider = Scripted(says("b"), says("never"))
    conversation = Conversation("c", model=provider, store=store, tools=[payer(log, Steps(0), idempotent=idempotent)])
    before = conversation.history()
    texts = [said.text for said in before]
    assert texts[:2] == ["w", "a"]
    assert left[0] == ("complete", "stop")
    # A turn is complete if and only if its answer is there.
    assert (left[-1][0] == "complete") == (texts[-1] in ("a", "done"))
    if (folder / "acknowledged").exists():
        assert (left[-1][0], texts[-1]) == ("complete", "done")
    kept = {text.removeprefix("paid ") for text in texts if text.startswith("paid ")}
    started = log.read_text().split() if log.exists() else []
    if then == "note":
        conversation.note("the power is back")
    asked = conversation.send("x", key="k") if then == "key" else conversation.send("y")
    assert (asked.text, len(provider.requests)) in ((("done", 0), ("b", 1)) if then == "key" else (("b", 1),))
    for request in provider.requests:
        validate(request)
    ran = log.read_text().split() if log.exists() else []
    for to in kept if idempotent else {"ann", "ben"}:
        assert ran.count(to) == started.count(to) <= 1
    if provider.requests:
        results = [m["content"] for m in json.loads(provider.requests[0])["messages"] if m["role"] == "tool"]
        assert {f"paid {to}" for to in kept} <= set(results)
        if idempotent and results and then != "note":
            assert set(results) == {"paid ann", "paid ben"}
    conversation.verify()
    now_there = [(head.lease, head.branch) for head in store.branches("", "c")]
    assert all(held is None for held, _ in now_there)
    for _, branch in now_there:
        assert "running" not in [turn.status for _, turn in store.turns("", "c", branch, 0, 100)]
        # What was there stays as it was.
        assert [said.id for said in conversation.history()][: len(before)] == [said.id for said in before]
    store.close()
    return tuple(said.role for said in before[2:])


@pytest.mark.parametrize("idempotent", [False, True], ids=["once", "idempotent"])
@pytest.mark.parametrize("then", ["message", "key", "note"])
@pytest.mark.parametrize("how", ["send", "stream", "async"])
def test_a_kill_at_any_step_loses_nothing_and_repeats_nothing(
    tmp_path: Path, how: str, then: str, idempotent: bool
) -> None:
    seen, at = set(), 1
    while crash(tmp_path / str(at), at, how, idempotent=idempotent):
        seen.add(check(tmp_path / str(at), then, idempotent=idempotent))
        at += 1
    seen.add(check(tmp_path / str(at), then, idempotent=idempotent))
    assert at > 10
    # Every state that a turn can be left in was met.
    sizes = {len(roles) for roles in seen}
    assert sizes >= {0, 1, 2, 4, 5}
    if how != "async":
        assert 3 in sizes
