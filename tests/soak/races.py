"""Scenarios with real concurrency: writers of one conversation, and servers that fail over while they write.

Their timing differs from run to run. So each has a conversation of its own, and draws one seed from the world's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from random import Random
from typing import Any

import anyio

from longtalk.errors import Busy, LongtalkError, StoreError
from tests.soak.process_steps import PROCESSES
from tests.soak.settings import Opener, Setting
from tests.soak.world import Broken, Clock, Place, Talk, World, get_cluster

MESSAGES = 3
"""The number of messages of each writer."""


def play(world: World) -> str:
    """Play one scenario, and check that each acknowledged turn is there once."""
    rng = Random(world.rng.randrange(10**9))
    place = rng.choice("ab")
    kind = world.kinds[place]
    setting = Setting(
        provider=rng.choice(["anthropic", "gemini", "openai", "openai-chat"]), tools=(), thinking={"type": "disabled"}
    )
    talk = Talk(world.next_number(), "ada", f"race {world.next_number()}", place, setting)
    how, on_busy = rng.choice(["threads", "tasks", "processes"]), rng.choice(["wait", "reject", "fork"])
    fails_over = kind in ("postgres", "cluster") and rng.random() < 0.5
    if kind == "memory" and how == "processes":
        how = "threads"
    world.tell(f"race {talk.label}: {how}, {on_busy}, fails over: {fails_over}")
    disturb = fail_over(kind) if fails_over else None
    run = {"threads": run_threads, "tasks": run_tasks, "processes": run_processes}[how]
    acknowledged, problems = run(world, talk, on_busy, disturb)
    world.servers.take_requests()
    for problem in problems:
        allowed = (Busy, StoreError) if fails_over else (Busy,) if on_busy == "reject" else ()
        if not isinstance(problem, allowed):
            raise Broken(f"A writer failed: {type(problem).__name__}: {problem}") from problem
    if acknowledged or world.list_branches(talk):
        check(world, talk, acknowledged)
        world.get_archive(talk).delete(talk.name)
    return f"race of {how}" + (f", {kind} fails over" if fails_over else "")


def check(world: World, talk: Talk, acknowledged: list[str]) -> None:
    """Check that no message is lost, doubled or mixed with another."""
    world.get_archive(talk).verify(talk.name)
    found: set[str] = set()
    for branch in world.list_branches(talk):
        turns: dict[str, list[str]] = {}
        for each in world.get_archive(talk).history(talk.name, branch=branch):
            turns.setdefault(each.turn, []).append(f"{each.role}: {each.text}")
        said = [entries[0].removeprefix("user: ") for entries in turns.values()]
        if len(said) != len(set(said)):
            raise Broken(f"{talk.label} on {branch!r} has a message twice: {said}")
        for text, entries in zip(said, turns.values(), strict=True):
            if text in acknowledged and (len(entries) != 2 or text not in entries[1]):
                raise Broken(f"{talk.label} on {branch!r}: two turns are mixed up: {entries}")
        found |= set(said)
    lost = set(acknowledged) - found
    if lost:
        raise Broken(f"{talk.label}: {sorted(lost)} were acknowledged and are lost.")


def say(open_it: Callable[[], Any], who: str, on_busy: str, acknowledged: list[str], problems: list[Any]) -> None:
    """Send messages, each with a key."""
    for number in range(MESSAGES):
        text = f"writer {who} says {number}"
        try:
            with open_it() as talk:
                talk.send(text, key=text, on_busy=on_busy)
            acknowledged.append(text)
        except BaseException as problem:
            problems.append(problem)


def run_threads(
    world: World, talk: Talk, on_busy: str, disturb: Callable[[], None] | None
) -> tuple[list[str], list[Any]]:
    acknowledged, problems = list[str](), list[Any]()

    def open_it() -> Any:
        return world.opener.open_talk(talk.setting, world.get_store(talk), talk.owner, talk.name, "main")

    threads = [threading.Thread(target=say, args=(open_it, f"t{i}", on_busy, acknowledged, problems)) for i in range(4)]
    for thread in threads:
        thread.start()
    if disturb is not None:
        disturb()
    for thread in threads:
        thread.join()
    return acknowledged, problems


def run_tasks(
    world: World, talk: Talk, on_busy: str, disturb: Callable[[], None] | None
) -> tuple[list[str], list[Any]]:
    acknowledged, problems = list[str](), list[Any]()

    async def write(who: str) -> None:
        arguments = (talk.setting, world.get_store(talk), talk.owner, talk.name, "main")
        for number in range(MESSAGES):
            text = f"writer {who} says {number}"
            try:
                async with world.opener.open_talk(*arguments, is_async=True) as opened:
                    await opened.send(text, key=text, on_busy=on_busy)
                acknowledged.append(text)
            except LongtalkError as problem:
                problems.append(problem)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for i in range(4):
                group.start_soon(write, f"a{i}")

    loop = threading.Thread(target=anyio.run, args=(main,))
    loop.start()
    if disturb is not None:
        # In this thread, because a server ends with the thread that started it.
        disturb()
    loop.join()
    return acknowledged, problems


def run_processes(
    world: World, talk: Talk, on_busy: str, disturb: Callable[[], None] | None
) -> tuple[list[str], list[Any]]:
    receiver, sender = PROCESSES.Pipe(duplex=False)
    processes = [
        PROCESSES.Process(
            target=write_elsewhere,
            args=(sender, world.places[talk.store], world.servers.urls, world.tool_log, talk, f"p{i}", on_busy),
            kwargs={"now": world.clock.at},
            daemon=True,
        )
        for i in range(2)
    ]
    for process in processes:
        process.start()
    sender.close()
    if disturb is not None:
        disturb()
    acknowledged, problems = list[str](), list[Any]()
    try:
        while True:
            said, failed = receiver.recv()
            acknowledged += said
            problems += failed
    except EOFError:
        pass
    for process in processes:
        process.join()
        if process.exitcode:
            raise Broken(f"A writer ended with {process.exitcode}.")
    return acknowledged, problems


def write_elsewhere(
    sender: Any, place: Place, urls: Any, tool_log: Any, talk: Talk, who: str, on_busy: str, *, now: int
) -> None:
    acknowledged, problems = list[str](), list[Any]()
    opener = Opener(urls, tool_log)
    try:
        with closing(place()) as store, Clock(now).installed():

            def open_it() -> Any:
                return opener.open_talk(talk.setting, store, talk.owner, talk.name, "main")

            say(open_it, who, on_busy, acknowledged, problems)
    except LongtalkError as problem:
        # The first connection of a process fails at once if the server is not there.
        problems.append(problem)
    sender.send((acknowledged, problems))
    sender.close()


def fail_over(kind: str) -> Callable[[], None]:
    """Return a function that makes the servers of a store fail, and waits until they serve again."""
    if kind == "postgres":
        from tests.support import postgres_server

        def restart() -> None:
            postgres_server.server().restart()
            postgres_server.server().wait()

        return restart
    from tests.support import redis_server

    def kill_master() -> None:
        cluster = get_cluster()
        master = cluster.masters()[0]
        master.kill()
        redis_server.wait_until(lambda: len(cluster.masters()) == 3, "no replica takes over")
        master.start()
        cluster.wait()

    return kill_master
