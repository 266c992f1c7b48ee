"""Steps that run a turn in another process: it is killed at some point, or its disk is full."""

from __future__ import annotations

import os
import resource
import signal
from errno import ENOSPC
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import apsw

from longtalk.errors import LongtalkError, StoreError
from longtalk.events import Text, ToolResult
from tests.soak.checks import check_new_entries, check_requests, compare
from tests.soak.settings import Opener, Setting
from tests.soak.talk_steps import find_hidden
from tests.soak.turns import draw_plan
from tests.soak.world import Broken, Clock, Place, Talk, World
from tests.stores.crashing import Case, Stepped, Steps, split_writes

PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.soak.process_steps"])


def kill(world: World, talk: Talk, branch: str) -> None:
    """Kill a process in the middle of a turn. What it has shown or stored is there, and the next one can go on."""
    at = world.rng.randrange(1, 60)
    run_elsewhere(world, talk, branch, f"killed at {at}", {"kill_at": at})


def fill_disk(world: World, talk: Talk, branch: str) -> None:
    """Run a turn in a process that can write little more to its files."""
    if world.kinds[talk.store] not in ("jsonl", "sqlite"):
        return
    rng = world.rng
    if rng.random() < 0.5:
        limit = rng.choice([0, rng.randrange(40_000), rng.randrange(200_000)])
        run_elsewhere(world, talk, branch, f"files of at most {limit} bytes", {"largest": limit})
    else:
        writes = rng.randrange(12)
        run_elsewhere(world, talk, branch, f"disk full after {writes} writes", {"writes": writes})


def run_elsewhere(world: World, talk: Talk, branch: str, what: str, how: dict[str, int]) -> None:
    if world.kinds[talk.store] == "memory":
        return
    plan = draw_plan(world, talk.setting, world.make_mark(talk), stored=True)
    streams, key = world.rng.random() < 0.5, f"key {world.next_number()}"
    world.tell(f"{talk.label} {branch}: {what}, {'stream' if streams else 'send'} {key}: {plan}")
    arguments = {**plan.arguments, "key": key}
    receiver, sender = PROCESSES.Pipe(duplex=False)
    work = (world.places[talk.store], world.servers.urls, world.tool_log, talk.setting, talk.owner, talk.name, branch)
    process = PROCESSES.Process(
        target=run_turn, args=(sender, *work, plan.message, arguments, streams, world.clock.at, how), daemon=True
    )
    process.start()
    sender.close()
    shown, results, problem, finished = "", [], None, False
    try:
        while True:
            kind, value = receiver.recv()
            shown += value if kind == "text" else ""
            results += [value] if kind == "result" else []
            problem = value if kind == "problem" else problem
            finished = finished or kind == "done"
    except EOFError:
        pass
    process.join(60)
    world.clock.at += 5_000
    world.tell(f"  ended with {process.exitcode}, {problem}")
    if process.exitcode not in (0, -signal.SIGKILL):
        raise Broken(f"The process ended with {process.exitcode}: {problem}")
    if problem is not None and "kill_at" in how:
        raise Broken(f"A turn failed without a reason: {problem}")
    requests = check_requests(world, talk, find_hidden(talk, branch))
    take_left(world, talk, branch, plan.mark or "", sure=finished or bool(requests), results=results)
    # Whatever has happened, the same request never makes a second turn.
    if finished and problem is None:
        talk.keys[key] = (branch, plan.message, world.read(talk, branch)[-1].id.rpartition("-")[0])


def take_left(world: World, talk: Talk, branch: str, mark: str, *, sure: bool, results: list[str]) -> None:
    """Take what another process has left as acknowledged, if nothing that was acknowledged is missing."""
    found, known = world.read(talk, branch), talk.paths.get(branch, [])
    where = f"{talk.label} on {branch!r}"
    compare(known, found[: len(known)], where)
    new = found[len(known) :]
    check_new_entries(new, None, mark, least=1 if sure else 0, most=1, where=where)
    stored = b"".join(entry.native for entry in new if entry.role == "tool").decode(errors="replace")
    for call in results:
        if call not in stored:
            raise Broken(f"{where}: the result of {call} was reported and is not there.")
    if found or branch in talk.paths:
        talk.paths[branch] = found
    talk.waiting.pop(branch, None)


# In the other process


def run_turn(
    sender: Connection,
    place: Place,
    urls: dict[str, str],
    tool_log: Path,
    setting: Setting,
    owner: str,
    name: str,
    branch: str,
    message: Any,
    arguments: dict[str, Any],
    streams: bool,
    now: int,
    how: dict[str, int],
) -> None:
    """Run a turn and report its events. At a step, the process is killed; or its disk is full."""
    step = Steps(how.get("kill_at", 0))
    if "largest" in how:
        resource.setrlimit(resource.RLIMIT_FSIZE, (how["largest"], resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    if "writes" in how:
        fill_after(how["writes"])
    if "kill_at" in how and place.kind in ("jsonl", "sqlite"):
        # A server may still run a command after its client was killed, so only writes to files are cut in two.
        split_writes(Case(place.kind, "", ""), step)
    with Clock(now).installed():
        try:
            store: Any = Stepped(place(), step)
            talk = Opener(urls, tool_log).open_talk(setting, store, owner, name, branch)
            if streams:
                for event in talk.stream(message, **arguments):
                    step()
                    if isinstance(event, Text):
                        sender.send(("text", event.text))
                    elif isinstance(event, ToolResult):
                        sender.send(("result", event.id))
            else:
                talk.send(message, **arguments)
            sender.send(("done", ""))
        except LongtalkError as problem:
            # A turn may fail as anywhere; here, also the store may.
            expected = isinstance(problem, StoreError) or "kill_at" not in how or is_expected(problem)
            sender.send(("expected" if expected else "problem", f"{type(problem).__name__}: {problem}"))
        except BaseException as problem:
            sender.send(("problem", f"{type(problem).__name__}: {problem}"))
            sender.close()
            os._exit(3)
    sender.close()
    os._exit(0)


def is_expected(problem: LongtalkError) -> bool:
    names = {kind.__name__ for kind in type(problem).__mro__}
    return bool(names & {"TooManyRounds", "ContextOverflow"})


def fill_after(writes: int) -> None:
    """Make the disk of this process full after some writes to files, as the operating system reports it."""
    left = writes
    write = os.write

    def write_while_possible(file: int, data: Any) -> int:
        nonlocal left
        if os.isatty(file) or not os.path.isfile(f"/proc/self/fd/{file}"):
            return write(file, data)
        left -= 1
        if left < 0:
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        return write(file, data[: max(1, len(data) // 2)] if left == 0 else data)

    os.write = write_while_possible

    class File(apsw.VFSFile):
        def __init__(self, name: Any, flags: list[int]) -> None:
            super().__init__("unix", name, flags)

        def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
            nonlocal left
            left -= 1
            if left < 0:
                raise apsw.FullError("disk full")
            super().xWrite(data, offset)

    class System(apsw.VFS):
        def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
            return File(name, flags)

    apsw.full = System("full", "unix", makedefault=True)  # type: ignore[attr-defined]
