"""Run turns in one store from many processes and threads: none fails, and none is lost, repeated or mixed up.

This file is also the program of these processes. Each prints that it is ready, waits for the start signal, and prints
its results. The model answers with the number of user messages that it was sent, so that an answer shows which turns
came before its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
import pytest

from longtalk import AsyncConversation, Conversation
from longtalk._sync.branches.branch import Branch
from longtalk.errors import Busy
from longtalk.stores.base import BranchHead, Store
from longtalk.stores.in_memory import InMemory
from longtalk.stores.jsonl.store import JSONL
from longtalk.stores.postgres.store import Postgres
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, Scripted, Step, says, validate
from longtalk.transcript.transcript import new_id
from longtalk.wires import WIRES

# The turns


def answer(body: bytes) -> Step:
    validate(body)
    messages = json.loads(body)["messages"]
    users = [message["content"] for message in messages if message["role"] == "user"]
    if "tool" in users[-1] and messages[-1]["role"] == "user":
        return says("Hm.", calls=[(f"{users[-1]} {i}", "lookup", {"q": users[-1]}) for i in range(2)])
    return says(f"{users[-1]}: {len(users)}")


class Model(Scripted):
    """A model that waits with its answers until a writer was refused, if a file that signals this is named."""

    def __init__(self, wait_for: Path | None = None) -> None:
        super().__init__()
        self._wait_for = wait_for

    def send(self, body: bytes) -> bytes:
        end = time.monotonic() + 60
        while self._wait_for is not None and not self._wait_for.exists() and time.monotonic() < end:
            time.sleep(0.001)
        # Not a script that the threads share: each thread needs the answer to its own request.
        return answer(body).body


class AsyncModel(AsyncScripted):
    async def send(self, body: bytes) -> bytes:
        await anyio.lowlevel.checkpoint()
        return answer(body).body


def lookup(q: str) -> str:
    """Looks something up."""
    return f"about {q}"


def make_text(who: str, turn: int) -> str:
    return f"{who} {'tool' if turn % 2 else 'talk'} {turn}"


def open_store(kind: str, location: Path) -> Store:
    kinds: dict[str, Callable[[Path], Store]] = {
        "memory": lambda _: InMemory(),
        "sqlite": SQLite,
        "jsonl": JSONL,
        "postgres": _open_postgres,
        "redis": _open_redis,
    }
    return kinds[kind](location)


def _open_postgres(location: Path) -> Store:
    """Return the PostgreSQL store that a file names."""
    if not location.exists():
        # Imported only by a test. The processes that it starts can't import `tests`.
        from tests.support import postgres_server

        return postgres_server.open_at(location)
    url, schema = json.loads(location.read_text())
    return Postgres(url, schema=schema)


def _open_redis(location: Path) -> Store:
    """Return the Redis store that a file names."""
    from longtalk.stores.redis.store import Redis

    url, prefix = location.read_text().split()
    return Redis(url, prefix=prefix)


def use_redis(folder: Path, *, cluster: bool = False) -> None:
    from tests.support import redis_server

    url = redis_server.cluster().url if cluster else redis_server.single().url
    (folder / "talks.db").write_text(f"{url} {new_id()}")


# A process


class Job(NamedTuple):
    """The work of each thread of a process."""

    store: str
    location: str
    process: str
    threads: int
    turns: int
    on_busy: str
    shared: list[str]
    """Conversations that all threads write to."""
    own: int = 0
    """The number of conversations that each thread has for itself."""
    one: bool = False
    """Whether the threads share conversation objects."""


def run_job(job: Job) -> dict[str, Any]:
    """Run the turns of a job. Return the answers, the errors, and how often a writer was refused."""
    answers: list[tuple[str, str, str, list[str]]] = []
    problems: list[str] = []
    busy: list[str] = []
    refused = Path(f"{job.location}-refused") if job.on_busy == "reject" else None
    with closing(open_store(job.store, Path(job.location))) as store:

        def make(name: str) -> Conversation:
            return Conversation(name, model=Model(refused), store=store, tools=[lookup])

        talks = {name: make(name) for name in job.shared}

        def thread(number: int) -> None:
            who = f"{job.process}.{number}"
            names = [*(f"own-{who}-{i}" for i in range(job.own)), *job.shared]
            mine = {name: talks[name] if job.one and name in talks else make(name) for name in names}
            try:
                for turn in range(job.turns):
                    for name in names:
                        text = make_text(who, turn)
                        answers.append((name, text, *send(mine[name], text)))
            except BaseException as problem:
                problems.append(f"{type(problem).__name__}: {problem}")

        def send(talk: Conversation, text: str) -> tuple[str, list[str]]:
            while True:
                try:
                    reply = talk.send(text, key=f"key of {text}", on_busy=job.on_busy)  # type: ignore[arg-type]
                    return reply.text, [notice.kind for notice in reply.notices]
                except Busy as problem:
                    busy.append(str(problem))
                    if refused is not None:
                        refused.touch()
                    time.sleep(0.001)

        threads = [threading.Thread(target=thread, args=(number,)) for number in range(job.threads)]
        print("ready", flush=True)
        sys.stdin.readline()
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    return {"answers": answers, "problems": problems, "busy": len(busy)}


class Answer(NamedTuple):
    conversation: str
    text: str
    answer: str
    notices: list[str]


def run_jobs(jobs: Sequence[Job]) -> tuple[list[Answer], int]:
    """Run each job in a process, all at once. Return all answers, and how often a writer was refused."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, __file__, json.dumps(job)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            )
            for job in jobs
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
        said = [process.communicate() for process in processes]
    assert [(process.returncode, error.decode()) for process, (_, error) in zip(processes, said, strict=True)] == [
        (0, "") for _ in jobs
    ]
    did = [json.loads(out) for out, _ in said]
    assert [problem for each in did for problem in each["problems"]] == []
    return [Answer(*each) for one in did for each in one["answers"]], sum(each["busy"] for each in did)


# Checks of the stored data


def read_turns(store: Store, conversation: str, branch: str) -> dict[str, list[str]]:
    """Return the entries of each turn of a branch, in order. Fail if the entries of a turn are not contiguous."""
    wire = WIRES["openai-chat"]
    pack = store.read("", conversation, branch, 0, 100_000)
    turns: dict[str, list[str]] = {}
    last = ""
    for i in range(len(pack)):
        entry = pack.entry(i)
        assert entry.turn == last or entry.turn not in turns, "two turns are mixed up"
        last = entry.turn
        turns.setdefault(last, []).append(f"{entry.role}: {wire.view(entry.native).text}")
    found = [turn for _, turn in store.turns("", conversation, branch, 0, 100_000)]
    assert [turn.id for turn in found] == list(turns)
    assert {turn.status for turn in found} <= {"complete"}
    Conversation(conversation, model=Scripted(), store=store, branch=branch).verify()
    return turns


def list_expected_entries(text: str, number: int) -> list[str]:
    """Return the expected entries of the turn with this text, if it is turn number `number` of its branch."""
    calls = ["assistant: Hm.", *[f"tool: about {text}"] * 2] if "tool" in text else []
    return [f"user: {text}", *calls, f"assistant: {text}: {number}"]


def check_path(turns: dict[str, list[str]]) -> list[str]:
    """Check that each turn is complete and was answered with all turns before it. Return the users' messages."""
    texts = [said[0].removeprefix("user: ") for said in turns.values()]
    assert list(turns.values()) == [list_expected_entries(text, number) for number, text in enumerate(texts, 1)]
    return texts


def check_all_on_main(store: Store, answers: Sequence[Answer]) -> None:
    """Check that each turn is stored exactly once, and that all of them are on the main branch."""
    for name in {each.conversation for each in answers}:
        here = [each for each in answers if each.conversation == name]
        assert [head.branch for head in store.branches("", name)] == ["main"]
        assert all(head.lease is None for head in store.branches("", name))
        texts = check_path(read_turns(store, name, "main"))
        assert Counter(texts) == Counter(each.text for each in here)
        assert Counter(texts).most_common(1)[0][1] == 1
        numbers = {text: number for number, text in enumerate(texts, 1)}
        assert {each.text: each.answer for each in here} == {t: f"{t}: {n}" for t, n in numbers.items()}
        assert all(each.notices == [] for each in here)


def check_on_branches(store: Store, answers: Sequence[Answer]) -> None:
    """Check that each answer is on a branch, and that each message has exactly one turn."""
    turns: dict[str, list[str]] = {}
    for head in store.branches("", "c"):
        assert head.lease is None
        here = read_turns(store, "c", head.branch)
        check_path(here)
        for turn, said in here.items():
            assert turns.setdefault(turn, said) == said
    there = {said[0].removeprefix("user: "): said[-1].removeprefix("assistant: ") for said in turns.values()}
    assert len(there) == len(turns) == len(answers)
    assert there == {each.text: each.answer for each in answers}


def make_jobs(kind: str, location: Path, processes: int, **settings: Any) -> list[Job]:
    return [Job(store=kind, location=str(location), process=f"p{i}", **settings) for i in range(processes)]


# Many conversations


def check_many_conversations(folder: Path, *, processes: int, own: int, shared: int, turns: int) -> None:
    location, names = folder / "talks.db", [f"shared-{i}" for i in range(shared)]
    answers, _ = run_jobs(
        make_jobs("sqlite", location, processes, threads=1, turns=turns, on_busy="wait", shared=names, own=own)
    )
    assert len(answers) == processes * turns * (own + shared)
    with closing(SQLite(location)) as store:
        assert len({each.conversation for each in answers}) == processes * own + shared
        check_all_on_main(store, answers)


def test_processes_with_own_and_shared_conversations(tmp_path: Path) -> None:
    check_many_conversations(tmp_path, processes=2, own=4, shared=2, turns=2)


@pytest.mark.slow
def test_eight_processes_with_fifty_conversations_each(tmp_path: Path) -> None:
    check_many_conversations(tmp_path, processes=8, own=50, shared=10, turns=3)


# One conversation


def check_one_conversation(kind: str, folder: Path, *, processes: int, **settings: Any) -> None:
    location = folder / "talks.db"
    answers, refused = run_jobs(make_jobs(kind, location, processes, shared=["c"], **settings))
    assert len(answers) == processes * settings["threads"] * settings["turns"]
    assert (refused > 0) == (settings["on_busy"] == "reject")
    with closing(open_store(kind, location)) as store:
        (check_on_branches if settings["on_busy"] == "fork" else check_all_on_main)(store, answers)


@pytest.mark.parametrize("on_busy", ["wait", "reject", "fork"])
def test_writers_on_one_conversation(tmp_path: Path, on_busy: str) -> None:
    check_one_conversation("sqlite", tmp_path, processes=2, threads=2, turns=2, on_busy=on_busy)


def test_writers_on_one_jsonl_file(tmp_path: Path) -> None:
    check_one_conversation("jsonl", tmp_path, processes=2, threads=2, turns=2, on_busy="wait")


@pytest.mark.slow
def test_writers_on_one_conversation_in_redis(tmp_path: Path) -> None:
    use_redis(tmp_path)
    check_one_conversation("redis", tmp_path, processes=2, threads=2, turns=2, on_busy="wait")


@pytest.mark.slow
@pytest.mark.parametrize("on_busy", ["wait", "reject", "fork"])
def test_sixteen_writers_on_one_conversation_in_a_redis_cluster(tmp_path: Path, on_busy: str) -> None:
    use_redis(tmp_path, cluster=True)
    check_one_conversation("redis", tmp_path, processes=4, threads=4, turns=2, on_busy=on_busy, one=on_busy == "wait")


@pytest.mark.slow
def test_writers_on_one_conversation_in_postgres(tmp_path: Path) -> None:
    open_store("postgres", tmp_path / "talks.db").close()
    check_one_conversation("postgres", tmp_path, processes=2, threads=2, turns=2, on_busy="wait")


@pytest.mark.slow
@pytest.mark.parametrize("on_busy", ["reject", "fork"])
def test_twelve_writers_on_one_conversation_in_postgres(tmp_path: Path, on_busy: str) -> None:
    open_store("postgres", tmp_path / "talks.db").close()
    check_one_conversation("postgres", tmp_path, processes=3, threads=4, turns=3, on_busy=on_busy)


@pytest.mark.slow
# Threads that share an object wait for each other there, so only "wait" is tested with a shared one.
@pytest.mark.parametrize(("on_busy", "one"), [("wait", False), ("wait", True), ("reject", False), ("fork", False)])
def test_thirty_two_writers_on_one_conversation(tmp_path: Path, on_busy: str, one: bool) -> None:
    check_one_conversation("sqlite", tmp_path, processes=8, threads=4, turns=4, on_busy=on_busy, one=one)


@pytest.mark.slow
@pytest.mark.parametrize("on_busy", ["wait", "reject", "fork"])
def test_eight_writers_on_one_jsonl_file(tmp_path: Path, on_busy: str) -> None:
    check_one_conversation("jsonl", tmp_path, processes=4, threads=2, turns=6, on_busy=on_busy)


# Threads of one process, which a lease's holder can't distinguish


class Interrupted:
    """A store that calls a function once, right after the first call of a method."""

    def __init__(self, store: Store, method: str, then: Callable[[], object]) -> None:
        self._store = store
        self._method = method
        self._then: Callable[[], object] | None = then

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name != self._method or self._then is None:
            return method

        def interrupted(*args: Any) -> Any:
            done = method(*args)
            then, self._then = self._then, None
            if then is not None:
                then()
            return done

        return interrupted


def test_a_turn_is_held_from_its_first_commit_on() -> None:
    store, refused = InMemory(), list[str]()

    def other() -> None:
        with pytest.raises(Busy) as caught:
            Conversation("c", model=Model(), store=store).send("other")
        refused.append(str(caught.value))

    reply = Conversation("c", model=Model(), store=Interrupted(store, "write", other)).send("first")
    assert (reply.notices, len(refused)) == ((), 1)
    assert check_path(read_turns(store, "c", "main")) == ["first"]


def test_a_turn_that_continues_on_its_own_branch_is_held_at_once() -> None:
    store, refused, turns = InMemory(), list[str](), list[str]()
    calls = says("Hm.", calls=[("c1", "lookup", {"q": "a"})])

    def lookup(q: str) -> str:
        """Look something up, while another process takes over."""
        head = store.head("", "c")
        assert head is not None
        assert head.turn is not None
        turns.append(head.turn.id)
        # As if the lease had expired and another process had run a turn.
        store.renew("", "c", "main", head.token, 1)
        Conversation("c", model=Model(), store=store).send("second")
        write = store.write

        def other(*args: Any) -> BranchHead:
            made: BranchHead = write(*args)
            store.write = write  # type: ignore[method-assign]
            with pytest.raises(Busy) as caught:
                Conversation("c", model=Model(), store=store, branch=made.branch).send("third")
            refused.append(made.branch)
            assert caught.value.until
            return made

        store.write = other  # type: ignore[method-assign]
        return q

    reply = Conversation("c", model=Scripted(calls, says("late")), store=store, tools=[lookup]).send("first")
    assert refused == [f"main~{turns[0]}"]
    assert [notice.kind for notice in reply.notices] == ["fenced_out"]
    assert store.branches("", "c")[1].lease is None


def test_a_fork_during_the_end_of_a_turn_has_all_of_the_turn_or_nothing() -> None:
    store = InMemory()
    running = Conversation("c", model=Scripted(says("first: 1")), store=store).stream("first")
    next(running)
    late = Interrupted(store, "head", lambda: list(running))
    branch = Conversation("c", model=Model(), store=late).fork()
    assert check_path(read_turns(store, "c", branch.branch)) == ["first"]


def test_threads_can_share_an_object_whose_cache_is_dropped_at_any_time() -> None:
    store = InMemory()
    talk = Conversation("c", model=Model(), store=store)

    def forget(frame: FrameType, event: str, arg: Any) -> Any:
        """Do at each line what another thread does when it finds that its data is outdated."""
        if frame.f_code is not Branch.load.__code__:
            return None
        frame.f_locals["self"].forget()
        return forget

    before = sys.gettrace()
    sys.settrace(forget)
    try:
        talk.send("first")
    finally:
        sys.settrace(before)
    assert check_path(read_turns(store, "c", "main")) == ["first"]


# Tasks


async def check_tasks(kind: str, folder: Path, *, turns: int, one: bool) -> None:
    answers: list[Answer] = []
    with closing(open_store(kind, folder / "talks.db")) as store:
        first = AsyncConversation("c", model=AsyncModel(), store=store, tools=[lookup])

        async def task(number: int) -> None:
            talk = first if one else AsyncConversation("c", model=AsyncModel(), store=store, tools=[lookup])
            for turn in range(turns):
                text = make_text(f"t{number}", number + turn)
                reply = await talk.send(text, key=f"key of {text}", on_busy="wait")
                answers.append(Answer("c", text, reply.text, [notice.kind for notice in reply.notices]))

        async with anyio.create_task_group() as group:
            for number in range(32):
                group.start_soon(task, number)
        assert len(answers) == 32 * turns
        check_all_on_main(store, answers)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["memory", "sqlite", "jsonl", "postgres"])
async def test_thirty_two_tasks_on_one_conversation(tmp_path: Path, kind: str) -> None:
    await check_tasks(kind, tmp_path, turns=1, one=False)


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["memory", "sqlite", "jsonl"])
async def test_thirty_two_tasks_that_share_one_object(tmp_path: Path, kind: str) -> None:
    await check_tasks(kind, tmp_path, turns=4, one=True)


@pytest.mark.slow
@pytest.mark.anyio
async def test_thirty_two_tasks_on_one_conversation_in_redis(tmp_path: Path) -> None:
    use_redis(tmp_path)
    await check_tasks("redis", tmp_path, turns=1, one=False)


if __name__ == "__main__":
    # Switch threads after a few instructions, to provoke rare interleavings.
    sys.setswitchinterval(1e-6)
    print(json.dumps(run_job(Job(*json.loads(sys.argv[1])))))
