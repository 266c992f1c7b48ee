"""Agents as child processes: turns at the same time, and turns that are cancelled."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from longtalk import AsyncChat, Chat, InputError
from longtalk._sync.providers.agents.provider import AgentProgram
from longtalk._util.processes import terminate
from longtalk.providers.agents import run as agent_run
from longtalk.providers.agents.provider import AsyncAgentProgram
from longtalk.providers.registry import resolve
from longtalk.reply import Reply
from longtalk.wires.agents.cli import AgentCli
from tests.support.fake_agents import AGENT_NAMES, Agents


def told(reply: Reply) -> list[str]:
    return [notice.kind for notice in reply.notices]


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.01)


@pytest.mark.anyio
@pytest.mark.parametrize("agent", AGENT_NAMES)
async def test_two_turns_on_one_state_keep_apart(agent: str, agents: Agents) -> None:
    chat = AsyncChat(agent)
    one = await chat.send("One.")
    first = asyncio.create_task(chat.send("First. #wait", state=one.state))
    await until((agents.home / "waiting").exists)
    second = await chat.send("Second.", state=one.state)
    (agents.home / "go").touch()
    reply = await first
    assert (told(reply), reply.text) == ([], "turn 2: First. #wait")
    assert (told(second), second.text) == (["rebuilt"], "turn 1: Second.")
    after = await asyncio.gather(chat.send("A.", state=reply.state), chat.send("B.", state=second.state))
    assert [(told(each), each.text) for each in after] == [([], "turn 3: A."), ([], "turn 2: B.")]


def test_many_threads_on_one_state_keep_apart(agents: Agents) -> None:
    chat = Chat("claude-cli")
    one = chat.send("One.")
    replies: list[Reply] = []

    def go_on(word: str) -> None:
        replies.append(chat.send(word, state=one.state))

    threads = [threading.Thread(target=go_on, args=(f"Word {i}.",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    resumed = [reply for reply in replies if told(reply) == []]
    assert len(resumed) == 1
    assert sorted(reply.text[8:] for reply in replies) == [f"Word {i}." for i in range(4)]
    assert len(agents.sessions()) == 4
    for reply in replies:
        assert told(chat.send("More.", state=reply.state)) == []


@pytest.mark.anyio
@pytest.mark.parametrize("word", ["#slow", "#silent"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_cancelled_turn_ends_the_program(word: str, stream: bool, agents: Agents) -> None:
    chat = AsyncChat("claude-cli")
    events = chat.stream(f"Hello. {word} #spawn", system="x")

    async def play() -> None:
        if not stream:
            await chat.send(f"Hello. {word} #spawn", system="x")
        async for _ in events:
            pass

    task = asyncio.create_task(play())
    await until((agents.home / "spawned").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert agents.wait_until_gone()
    assert not Path(agents.runs()[0]["system_file"]).parent.exists()


@pytest.mark.anyio
async def test_a_turn_cancelled_during_preparation_leaves_nothing(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_program, go = agent_run._find_program, threading.Event()

    def slow(cli: AgentCli) -> str:
        go.wait(30)
        return find_program(cli)

    monkeypatch.setattr(agent_run, "_find_program", slow)
    monkeypatch.setattr(agent_run.tempfile, "tempdir", str(agents.work))
    task = asyncio.create_task(AsyncChat("claude-cli").send("Hello.", system="x"))
    await until(lambda: list(agents.work.glob("longtalk-*")))
    files = len(os.listdir("/proc/self/fd"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    await until(lambda: not list(agents.work.glob("longtalk-*")))
    await until(lambda: len(os.listdir("/proc/self/fd")) < files)
    assert agents.runs() == []


def test_a_stream_that_is_dropped_ends_the_program(agents: Agents) -> None:
    stream = Chat("claude-cli").stream("Hello. #slow #spawn")
    next(iter(stream))
    del stream
    gc.collect()
    assert agents.wait_until_gone()


def test_agents_run_on_trio(agents: Agents) -> None:
    async def talk() -> tuple[str, str]:
        chat = AsyncChat("codex-cli")
        one = await chat.send("One.")
        with anyio.move_on_after(0.3):
            await chat.send("Two. #spawn #silent", state=one.state)
        return one.text, (await chat.send("Three.", state=one.state)).text

    assert anyio.run(talk, backend="trio") == ("turn 1: One.", "turn 2: Three.")
    assert agents.wait_until_gone()


def test_what_is_no_program_is_not_run_as_one() -> None:
    for kind in (AsyncAgentProgram, AgentProgram):
        with pytest.raises(InputError, match="is not a command-line agent"):
            kind(resolve("vllm:m"))


class Process:
    """One on a system that has no groups of processes."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def terminate(self) -> None:
        self.asked.append("terminate")

    def kill(self) -> None:
        self.asked.append("kill")


def test_a_program_is_ended_where_there_are_no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "killpg")
    process = Process()
    terminate(process, hard=False)
    terminate(process, hard=True)
    assert process.asked == ["terminate", "kill"]


@pytest.mark.slow
def test_nothing_is_left_behind_after_many_turns(agents: Agents) -> None:
    async def talk() -> int:
        chat = AsyncChat("gemini-cli")
        state = (await chat.send("Hello.", system="x")).state
        files = len(os.listdir("/proc/self/fd"))
        for i in range(50):
            state = (await chat.send(f"More {i}.", state=state, system="x")).state
        return len(os.listdir("/proc/self/fd")) - files

    assert anyio.run(talk) <= 0
    assert agents.list_alive() == []
    assert [run for run in agents.runs() if Path(run["system_file"]).exists()] == []
