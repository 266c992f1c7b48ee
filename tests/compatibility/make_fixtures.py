"""Write the fixtures in `files/0.1.0`: stored data of the last commit before the modules moved into packages.

Version 0.1.0, as of commit 302fa82, wrote them once, on 17 November 2026, with PostgreSQL 18 and Valkey 9. They are
never written again, since the tests promise that this very data stays readable. The program is kept as documentation
of what they hold; it uses internal names of that commit, so it runs only in a checkout of it that has a copy of this
folder. Ids and times are fixed, so all stores hold the same conversations, and one file of expected values
(`stores.json.gz`) serves them all.

    python -m tests.compatibility.make_fixtures
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from longtalk import Archive, Chat, Conversation, Summarize, System, TurnFailed
from longtalk.errors import ContextOverflow, RequestRefused
from longtalk.events import Checkpoint, Text
from longtalk.prices import Prices
from longtalk.providers.base import Capabilities
from longtalk.stores import leases, open_store, redis_lists
from longtalk.stores.base import Holder
from longtalk.testing import Scripted, Step, says
from longtalk.wires import WIRES
from tests import postgres_server, redis_server
from tests.cards import says_in
from tests.compatibility.talks import (
    FILES,
    HELD,
    OTHER_NAME,
    SEAL,
    SMALL,
    TOOLS,
    add,
    plain,
    policy_of,
    read_state,
    read_store,
    wire_of,
    without_totals,
)

SYSTEM = "You teach the violin."
SUMMARY = (
    "Ada plays a violin of 1740. She asked about bows, strings and rosin. The luthier is Mr Ferri. Open: the price."
)
CARD = '<MEMORY_CARD>{"+facts":["Ada practises before breakfast"],"+open_questions":["Which bow?"]}</MEMORY_CARD>'
ODD = {"x_vendor": {"b": 1.0, "a": [12345678901234567890, None]}, "reasoning_content": "caf\u00e9 \U0001f3bb"}
PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
USER, ANSWER = ({"role": role, "content": f"{role} words", "x": 1e2} for role in ("user", "assistant"))
PRICES = Prices(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)
GO = {"version": 1, "provider": "openai", "processed_length": 2, "note": "kept", "messages": [USER, ANSWER]}


class Model(Scripted):
    """Follows a script, then talks by itself; gives summaries and memory cards when a request asks for them."""

    bad_summaries = 0

    def _next(self, body: bytes) -> Step:
        name = self.wire.name
        if b"<summary_request>" in body and not self._steps:
            self.requests.append(body)
            self.bad_summaries -= 1
            return says("" if self.bad_summaries >= 0 else SUMMARY, wire=name, usage=_usage(name, body))
        if self._steps:
            return super()._next(body)
        self.requests.append(body)
        card = f"\n{CARD}" if b"End your answer with a note of" in body else ""
        text = f"Answer {len(self.requests)}: the bow is held loosely, the wrist leads and the arm follows it. " * 2
        return says(text + card, wire=name, usage=_usage(name, body))


def _usage(wire: str, body: bytes) -> dict[str, Any]:
    size = len(body) // 4
    if wire == "openai-chat":
        return {"prompt_tokens": size, "completion_tokens": 40, "x_vendor": {"queue": 0.5}}
    if wire == "gemini":
        return {"promptTokenCount": size, "candidatesTokenCount": 40, "totalTokenCount": size + 40}
    return {"input_tokens": size, "output_tokens": 40}


# Time and chance


class Clock:
    """A clock that moves only on `tick`, and ids that are the same in each run."""

    def __init__(self) -> None:
        self._now, self.ids = 0, count()
        self._urandom = os.urandom
        self.reset()

    def reset(self) -> None:
        self._now, self.ids = 1_794_816_000_000, count(1)

    def tick(self, seconds: int = 60) -> None:
        self._now += 1_000 * seconds

    def time_ns(self) -> int:
        return self._now * 1_000_000

    def urandom(self, size: int) -> bytes:
        caller = sys._getframe(1)
        above = caller.f_back.f_globals["__name__"] if caller.f_back else ""
        made = caller.f_code.co_name == "new_id" and not above.startswith("longtalk.stores")
        if made or caller.f_globals["__name__"] == "longtalk.seal":
            return (next(self.ids) * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8, "little").ljust(size, b"\1")
        return self._urandom(size)


CLOCK = Clock()


# Tools


def die() -> str:
    """End the process."""
    os._exit(0)


def two_calls(wire: str, **more: Any) -> Step:
    return says(
        "Let me see.", calls=[("c1", "add", {"a": 2, "b": 3}), ("c2", "look_up", {"word": "Bogen"})], wire=wire, **more
    )


def exchange(wire: str) -> list[Step]:
    """Return a round of tool calls and the answer, with the fields that only this wire has."""
    fields: dict[str, Any] = {
        "openai-chat": ODD,
        "openai-responses": {"reasoning": ["gAAAA"]},
        "anthropic": {"thinking": ["Two and three."]},
        "gemini": {"thinking": ["Two and three."]},
    }
    return [two_calls(wire, fields=fields[wire]), says("It is 5, and Bogen is a bow.", wire=wire, fields=fields[wire])]


# Conversations in a store


def conversation(store: Any, name: str, *steps: Any, wire: str = "", owner: str = "ada", **more: Any) -> Any:
    model = Model(*steps, wire=WIRES[wire or wire_of(name)])
    return Conversation(name, model=model, owner=owner, store=store, policy=policy_of(name), **more), model


def stop_in_the_middle(talk: Any, message: str, **more: Any) -> Any:
    """Close a stream after its first words, and return the reply so far."""
    with talk.stream(message, **more) as stream:
        for event in stream:
            if isinstance(event, Text):
                break
    return stream.reply


def write_tools(store: Any) -> None:
    talk, _ = conversation(store, "tools", *exchange("openai-chat"), tools=TOOLS)
    talk.set_metadata({"title": "Bögen", "lesson": 7, "nested": {"liked": True}})
    talk.note("Ada has opened lesson 3", source="lesson app", meta={"screen": 3})
    CLOCK.tick()
    # The instruction of a turn with tools is stored after its message.
    first = talk.send(
        ["2 + 3, and what is a Bogen?", PIXEL],
        system=SYSTEM,
        instruction="It is late in the evening.",
        key="request-1",
        meta={"channel": "web"},
    )
    talk.set_metadata({"liked": True}, entry=first.entries[-1].id)
    CLOCK.tick()
    talk.send([System("From now on, answer in one sentence."), "What is a fugue?"], system=SYSTEM)
    CLOCK.tick()
    talk._engine.provider.add(says("One long story about strings.", pieces=6))
    stop_in_the_middle(talk, "Tell me a long story.", system=SYSTEM, key="request-2")
    CLOCK.tick()
    # The provider reports a long request: the next estimate starts from this number.
    talk._engine.provider.add(says("I have 4096 strings.", usage={"prompt_tokens": 4096, "completion_tokens": 9}))
    talk.send("How many strings?", system=SYSTEM)
    talk.pin(first.turn_id)


def write_branches(store: Any) -> None:
    talk, _ = conversation(store, OTHER_NAME)
    replies = []
    for message in ("Hello, I'm Ada.", "I play the violin.", "Which bow?", "Which rosin?"):
        CLOCK.tick()
        replies.append(talk.send(message, key=f"key {message}"))
    CLOCK.tick()
    aside = talk.fork(replies[1].turn_id, name="aside")
    aside.send("And which strings?")
    CLOCK.tick()
    talk.edit(replies[2].entries[0].id, "Which chin rest?")
    CLOCK.tick()
    talk.regenerate()
    CLOCK.tick()
    talk.rewind(replies[1].entries[-1].id)
    talk.send("Which teacher?")
    talk.note("The lesson is over", source="clock")


def write_summary(store: Any) -> None:
    talk, model = conversation(store, "summary")
    # The first summary is empty, so the attempt fails.
    model.bad_summaries = 1
    for message in range(14):
        CLOCK.tick()
        talk.send(f"Question {message}: how do I hold the bow?", system=SYSTEM)


def write_failed_summary(store: Any) -> None:
    """End a conversation with a summary that failed: the next attempt waits for more entries."""
    talk, model = conversation(store, "no summary")
    model.bad_summaries = 1
    while model.bad_summaries > 0:
        CLOCK.tick()
        talk.send(f"Question {len(model.requests)}: how do I hold the bow?", system=SYSTEM)


def write_background(store: Any) -> None:
    """Have a summary made after an answer, so that its usage belongs to no turn."""
    policy = Summarize(over=400, to=200, length=60, background=True)
    model = Model()
    model.capabilities = Capabilities(prices=PRICES)
    for message in range(8):
        CLOCK.tick()
        with Conversation("background", model=model, owner="ada", store=store, policy=policy) as talk:
            talk.send(f"Question {message}: how do I hold the bow?", system=SYSTEM)


def write_marks(store: Any) -> None:
    """Answers that are empty, cut off or filtered, and texts that databases find hard to store."""
    odd = says("@").body.replace(b'"@"', rb'"half of \ud83d, \u0000 and \u00e9"')
    talk, _ = conversation(
        store,
        "marks",
        says(),
        says("Once upon a", finish="length"),
        says("I", finish="content_filter"),
        Step(odd),
    )
    for message in ("Say nothing.", "Tell me a story.", "And another.", "What is odd? \x00 \u2028 \U0001f3bb"):
        CLOCK.tick()
        talk.send(message)


def write_economy(store: Any) -> None:
    talk, model = conversation(store, "economy")
    model.capabilities = Capabilities(window=2_000, cache=True, cache_seconds=300, prices=PRICES)
    for message in range(12):
        CLOCK.tick(400)
        talk.send(f"Question {message}: how do I hold the bow?" * 3, system=SYSTEM)


def write_memory(store: Any) -> None:
    talk, _ = conversation(store, "memory", tools=[add])
    talk.send("Hello, I'm Ada.", brief={"goal": "Play the first Bach suite", "facts": ["Ada is 12", "A small hand"]})
    for message in ("I play every day.", "My luthier is Mr Ferri.", "Which strings?", "Which rosin?", "Who is Ferri?"):
        CLOCK.tick()
        talk.send(message)
    talk.brief.add("facts", "Her teacher is away in May", "The violin is of 1740")
    talk.brief.resolve("open_questions", "Which bow?", "The old bow is fine")
    talk.brief.revoke(next(line.id for line in talk.brief.lines() if line.text == "A small hand"))
    CLOCK.tick()
    talk.send("What did my luthier say?")
    talk.fork(name="other").brief.set("goal", "Play the second suite")


def responses(text: str, number: int) -> Step:
    """Return an answer that the server says it stores."""
    made = says(text, wire="openai-responses", fields={"x_vendor": number})
    body = json.loads(made.body) | {"id": f"resp_{number}", "store": True}
    return Step(json.dumps(body).encode())


def write_wires(store: Any) -> None:
    for name in ("responses", "anthropic", "gemini"):
        wire = wire_of(name)
        talk, _ = conversation(store, name, *exchange(wire), tools=TOOLS)
        talk.note("Ada has opened lesson 3", source="lesson app")
        talk.send("2 + 3, and what is a Bogen?", system=SYSTEM, instruction="It is late in the evening.")
        CLOCK.tick()
        talk._engine.provider.add(says("One long story about strings.", pieces=6, wire=wire))
        stop_in_the_middle(talk, "Tell me a long story.", system=SYSTEM)
        CLOCK.tick()
        talk.send([System("Answer in one sentence."), "What is a fugue?"], system=SYSTEM)


def write_held(store: Any) -> None:
    said = "Unknown parameter: 'input[1].x_vendor'."
    body = json.dumps({"error": {"message": said, "param": "input[1].x_vendor"}}).encode()
    refusal = RequestRefused(said, status=400, body=body)
    # The server does not store the first answer, so the second request repeats it, and the server refuses its field.
    talk, _ = conversation(
        store, "held", says("Hello!", wire="openai-responses", fields={"x_vendor": 1}), refusal,
        responses("It is a bow.", 2), responses("It is a fugue.", 3), options=HELD,
    )  # fmt: skip
    for message in ("Hello, I'm Ada.", "What is a Bogen?", "What is a fugue?"):
        CLOCK.tick()
        talk.send(message)


def write_switched(store: Any) -> None:
    for wire in ("anthropic", "gemini", "openai-responses", "openai-chat"):
        CLOCK.tick()
        talk, _ = conversation(store, "switched", *exchange(wire), wire=wire, tools=TOOLS)
        talk.send(f"2 + 3 over {wire}, and what is a Bogen?")


def write_agents(store: Any) -> None:
    for wire in ("claude-cli", "gemini-cli", "codex-cli"):
        CLOCK.tick()
        talk, _ = conversation(store, "agents", says_in(wire, [f"I am {wire}."]), wire=wire)
        talk.send(f"Who are you, {wire}?")


def write_others(store: Any) -> None:
    talk, _ = conversation(store, "redacted")
    talk.send("My password is marzipan.", meta={"channel": "web"})
    talk.send("Forget it.")
    Archive(store, owner="ada").redact("redacted", talk.history()[0].id)
    CLOCK.tick()
    overflow = ContextOverflow("too long", status=400)
    overflow.window, overflow.tokens = 300, 900
    talk, _ = conversation(store, "window")
    for message in range(5):
        talk.send(f"Question {message}: how do I hold the bow?")
    talk._engine.provider.add(overflow)
    talk._engine.provider.add(says("Loosely."))
    talk.send("So how do I hold it?")
    CLOCK.tick()
    talk, _ = conversation(store, "failed", two_calls("openai-chat"), RequestRefused("no", status=403), tools=TOOLS)
    with contextlib.suppress(TurnFailed):
        talk.send("2 + 3, and what is a Bogen?", key="request-3")
    conversation(store, "nothing yet")[0].set_metadata({"title": "Later"})
    conversation(store, "tools", owner="bob")[0].send("Hello, I'm Bob.")
    conversation(store, "it's open", owner="")[0].send("Hello.")
    Archive(store, owner="ada").load(json.dumps(GO, separators=(",", ":")).encode(), id="go")


def write_crashed(opened: Callable[[], Any]) -> None:
    """Let two processes die in the second of two tools, each with a lease on its branch."""
    for name, key in (("crashed", "request-4"), ("crashed too", None)):
        if not (pid := os.fork()):
            calls = [("c1", "add", {"a": 2, "b": 3}), ("c2", "die", {})]
            talk, _ = conversation(opened(), name, says("Hello!"), says(calls=calls), tools=[add, die])
            talk.send("Hello, I'm Ada.")
            CLOCK.tick()
            talk.send("2 + 3?", key=key)
            os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        next(CLOCK.ids), next(CLOCK.ids)


WRITERS: Sequence[Callable[[Any], None]] = (
    write_tools,
    write_branches,
    write_summary,
    write_failed_summary,
    write_background,
    write_marks,
    write_economy,
    write_memory,
    write_wires,
    write_held,
    write_switched,
    write_agents,
    write_others,
)


def write_store(opened: Callable[[], Any]) -> dict[str, Any]:
    CLOCK.reset()
    with contextlib.closing(opened()) as store:
        for write in WRITERS:
            CLOCK.tick(3_600)
            write(store)
            if write is write_memory:
                # Some of the entries are in the index of words, and some conversations of Redis in the settled list.
                Archive(store, owner="ada").search("violin")
                Archive(store, owner="ada").conversations()
    CLOCK.tick(3_600)
    write_crashed(opened)
    with contextlib.closing(opened()) as store:
        # To see that each kind of record is among them.
        kinds = {
            each.record.kind
            for owner in ("ada", "bob", "")
            for talk in store.conversations(owner, limit=100)
            for branch in talk.branches
            for each in (*store.records(owner, talk.id, branch), *store.head(owner, talk.id, branch).records)
        }
        print(sorted(kinds))
        return read_store(store)


def write_sqlite(folder: Path) -> dict[str, Any]:
    found = write_store(lambda: open_store(str(folder / "talks.db")))
    (FILES / "talks.db.gz").write_bytes(gzip.compress((folder / "talks.db").read_bytes(), mtime=0))
    return found


def write_jsonl(folder: Path) -> dict[str, Any]:
    found = write_store(lambda: open_store(f"{folder / 'jsonl'}/"))
    with gzip.GzipFile(FILES / "jsonl.tar.gz", "wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for file in sorted((folder / "jsonl").rglob("*.jsonl")):
            about = tarfile.TarInfo(str(file.relative_to(folder)))
            about.size = file.stat().st_size
            tar.addfile(about, io.BytesIO(file.read_bytes()))
    return found


def write_postgres(_: Path) -> dict[str, Any]:
    server = postgres_server.server()
    database = server.database()
    found = write_store(lambda: open_store(server.url(database=database)))
    dump = server.program("pg_dump", "--schema=longtalk", "--inserts", "--no-owner", "--no-comments", database)
    # Commands of psql, and a setting that PostgreSQL 16 does not have.
    dump = re.sub(r"^(?:\\(?:un)?restrict .*|SET transaction_timeout = 0;)\n", "", dump, flags=re.MULTILINE)
    (FILES / "postgres.sql.gz").write_bytes(gzip.compress(dump.encode(), mtime=0))
    return found


def write_redis(_: Path) -> dict[str, Any]:
    server = redis_server.single()
    found = write_store(lambda: open_store(server.url))
    commands = []
    with server.client() as client:
        for key in sorted(client.scan_iter(match="*", count=1_000)):
            assert client.pttl(key) == -1
            commands.append([part.decode("latin-1") for part in rebuilt(client, key, client.type(key))])
    (FILES / "redis.json.gz").write_bytes(gzip.compress(json.dumps(commands, indent=0).encode(), mtime=0))
    return found


def rebuilt(client: Any, key: bytes, kind: bytes) -> list[bytes]:
    """Return the command that writes a key again."""
    if kind == b"string":
        return [b"SET", key, client.get(key)]
    if kind == b"hash":
        return [b"HSET", key, *(part for pair in sorted(client.hgetall(key).items()) for part in pair)]
    if kind == b"list":
        return [b"RPUSH", key, *client.lrange(key, 0, -1)]
    if kind == b"set":
        return [b"SADD", key, *sorted(client.smembers(key))]
    assert kind == b"zset", kind
    pairs = client.zrange(key, 0, -1, withscores=True)
    return [b"ZADD", key, *(part for name, score in pairs for part in (repr(score).encode(), name))]


# States


def chat(name: str, *steps: Any, **more: Any) -> Any:
    return Chat(Model(*steps, wire=WIRES[wire_of(name)]), **{"policy": policy_of(name), **more})


def state_of_wire(name: str) -> bytes:
    wire = wire_of(name)
    held = chat(name, *exchange(wire), tools=TOOLS)
    state = held.note("Ada has opened lesson 3", source="lesson app")
    first = held.send("2 + 3, and what is a Bogen?", state=state, system=SYSTEM, instruction="It is late.")
    CLOCK.tick()
    held.provider.add(says("One long story about strings.", pieces=6, wire=wire))
    reply = stop_in_the_middle(held, "Tell me a long story.", state=first.state, system=SYSTEM)
    CLOCK.tick()
    reply = held.send([System("One sentence."), "What is a fugue?"], state=reply.state, system=SYSTEM)
    return held.pin(first.turn_id, state=reply.state)


def state_of_turns(name: str, *messages: str, **more: Any) -> bytes:
    held, state = chat(name, **more), None
    for message in messages:
        CLOCK.tick(400)
        state = held.send(message, state=state, system=SYSTEM).state
    return state


def checkpoint() -> bytes:
    """Return a state in which the first of two calls has its result."""
    latest = None
    steps = [says("Hello!"), *exchange("openai-chat")]
    held = chat("checkpoint", *steps, tools=TOOLS)
    state = held.send("Hello, I'm Ada.").state
    for event in held.stream("2 + 3, and what is a Bogen?", state=state):
        if isinstance(event, Checkpoint) and latest is None and event.state.count(b'"tool"'):
            latest = event.state
    assert latest is not None
    return latest


def shed_states(name: str, **more: Any) -> None:
    held, state, parts = chat(name, policy=SMALL, carry="context", **more), None, []
    for message in ("Hello!", "I'm Ada.", "I play the violin.", "Every day.", "What do I play?"):
        CLOCK.tick()
        reply = held.send(message, state=state)
        parts += [reply.shed] if reply.shed else []
        state = reply.state
    assert state is not None
    assert len(parts) > 1
    save(name, state)
    for number, part in enumerate(parts):
        (FILES / "states" / f"{name}.part{number}").write_bytes(part)


EXPECTED: dict[str, Any] = {}


def save(name: str, state: bytes) -> None:
    (FILES / "states" / f"{name}.state").write_bytes(state)
    EXPECTED[name] = read_state(name, state)


def write_states() -> None:
    CLOCK.reset()
    (FILES / "states").mkdir()
    for name in ("chat", "responses", "anthropic", "gemini"):
        save(name, state_of_wire(name))
    questions = [f"Question {i}: how do I hold the bow?" * 3 for i in range(12)]
    save("summary", state_of_turns("summary", *questions))
    economy = chat("economy")
    economy.provider.capabilities = Capabilities(window=2_000, cache=True, cache_seconds=300, prices=PRICES)
    state = None
    for question in questions:
        CLOCK.tick(400)
        state = Chat(economy.provider, policy=policy_of("economy")).send(question, state=state, system=SYSTEM).state
    save("economy", state)
    memory = chat("memory")
    state = memory.brief.set("goal", "Play the first Bach suite", state=None)
    messages = ("I'm Ada.", "My luthier is Mr Ferri.", "Which strings?", "Which rosin?", "Which bow?", "Who is Ferri?")
    for message in messages:
        CLOCK.tick()
        state = memory.send(message, state=state).state
    state = memory.brief.add("facts", "The violin is of 1740", "A small hand", state=state)
    gone = next(line.id for line in memory.brief.lines(state=state) if line.text == "A small hand")
    state = memory.brief.revoke(gone, state=state)
    CLOCK.tick()
    save("memory", memory.send("What is a fugue?", state=state).state)
    held = chat("held", responses("It is a bow.", 2), responses("It is a fugue.", 3), options=HELD)
    save("held", held.send("What is a fugue?", state=held.send("What is a Bogen?").state).state)
    save("checkpoint", checkpoint())
    large = chat("large", says("Of course. " * 4_000), says("Again. " * 4_000))
    save("large", large.send("More!", state=large.send("Talk for an hour.").state).state)
    save("sealed", state_of_turns("sealed", "Hello, I'm Ada.", "I play the violin.", seal=SEAL))
    shed_states("small")
    shed_states("sealed-small", seal=SEAL)
    save("go", json.dumps(GO, separators=(",", ":")).encode())


# Exports


def write_exports(folder: Path) -> None:
    (FILES / "exports").mkdir()
    with contextlib.closing(open_store(str(folder / "talks.db"))) as store:
        archive = Archive(store, owner="ada")
        for name, file in (
            ("tools", "tools"),
            (OTHER_NAME, "branches"),
            ("memory", "memory"),
            ("switched", "switched"),
        ):
            for form in ("json", "jsonl", "md"):
                text = archive.export(name, form)  # type: ignore[arg-type]
                (FILES / "exports" / f"{file}.{form}").write_text(text, newline="")


def main() -> None:
    time.time_ns, os.urandom = CLOCK.time_ns, CLOCK.urandom
    leases._me = lambda pid: Holder(host="fixture", boot="boot", pid=4711, started=1)  # type: ignore[assignment,misc]
    redis_lists.HOT = 4
    shutil.rmtree(FILES, ignore_errors=True)
    FILES.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = [write(folder) for write in (write_sqlite, write_postgres, write_redis, write_jsonl)]
        assert found[0] == found[1] == found[2]
        assert without_totals(found[0]) == without_totals(found[3])
        write_exports(folder)
    save_expected("stores", found[0])
    write_states()
    save_expected("states", EXPECTED)


def save_expected(name: str, found: dict[str, Any]) -> None:
    (FILES / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(plain(found), indent=1).encode(), mtime=0))


if __name__ == "__main__":
    main()
