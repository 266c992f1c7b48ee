"""Stores written by earlier versions are read, verified and continued.

For a copy of each fixture (SQLite, JSONL, PostgreSQL, Redis) the tests promise:

- it is read as the version that wrote it read it: messages byte for byte, branches, statuses, metadata, pins, brief,
  manifests, receipts and costs;
- every conversation passes `verify()`, and can be copied to another store;
- the next turn sends the old messages byte for byte, and continues from stored summaries, briefs, provider ids, request
  keys, checkpoints of dead processes, and what was learned from refusals; after it, `verify()` passes again.

The fixtures are never written again. `make_fixtures.py` documents what they hold.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis

from longtalk import Archive, Conversation
from longtalk.errors import KeyReused
from longtalk.stores import open_store
from longtalk.testing import Scripted, says
from tests.compatibility.talks import (
    FILES,
    HELD,
    OTHER_NAME,
    TOOLS,
    check_sent,
    policy_of,
    read_store,
    scripted,
    wire_of,
    without_totals,
)
from tests.support import postgres_server, redis_server

SYSTEM = "You teach the violin."


@cache
def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress((FILES / "stores.json.gz").read_bytes()))
    return found


OWN_TESTS = (
    *("crashed", "failed", "tools", "summary", "no summary", "background", "economy", "memory", "held", "window"),
    "marks",
)
TALKS = [(owner, name) for owner, talks in expected().items() for name in talks]
WHOLE = [
    (owner, name, branch)
    for owner, name in TALKS
    for branch in expected()[owner][name]["branches"]
    if (owner, name) not in [("ada", each) for each in OWN_TESTS]
]


# A copy of each fixture


_DATABASES = count(1)


def restore_sqlite(folder: Path) -> str:
    path = folder / "talks.db"
    path.write_bytes(gzip.decompress((FILES / "talks.db.gz").read_bytes()))
    return str(path)


def restore_jsonl(folder: Path) -> str:
    with tarfile.open(fileobj=io.BytesIO((FILES / "jsonl.tar.gz").read_bytes())) as tar:
        tar.extractall(folder, filter="data")
    return f"{folder / 'jsonl'}/"


def restore_postgres(_: Path) -> str:
    server = postgres_server.server()
    database = server.database()
    with server.asking("app", database) as connection:
        connection.execute(gzip.decompress((FILES / "postgres.sql.gz").read_bytes()))
    return server.url(database=database)


def restore_redis(_: Path) -> str:
    # All copies have the same key prefix, so each needs its own database.
    url = f"{redis_server.single().url}/{next(_DATABASES)}"
    commands = json.loads(gzip.decompress((FILES / "redis.json.gz").read_bytes()))
    with redis.Redis.from_url(url) as client, client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*(part.encode("latin-1") for part in command))
        pipeline.execute()
    return url


RESTORE: dict[str, Callable[[Path], str]] = {
    "sqlite": restore_sqlite,
    "jsonl": restore_jsonl,
    "postgres": restore_postgres,
    "redis": restore_redis,
}


@pytest.fixture(scope="module", params=RESTORE)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a copy. The tests share it, and each test changes only its own conversations."""
    return RESTORE[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture
def store(address: str) -> Iterator[Any]:
    with contextlib.closing(open_store(address, make=False)) as opened:
        yield opened


def continued(store: Any, name: str, message: str | None = "And now?", **more: Any) -> tuple[Any, Any]:
    """Continue a conversation with a scripted answer, and return the reply and the last request."""
    keyed = {each: more.pop(each) for each in ("key", "options") if each in more}
    model = scripted(name, *[says("It goes on.", wire=wire_of(name)) for _ in range(3)])
    settings = {"owner": "ada", "tools": TOOLS, "policy": policy_of(name), **more}
    talk = Conversation(name, model=model, store=store, **settings)
    talk.verify()
    before, meta = talk.history(), talk.meta()
    reply = talk.send(message, system=SYSTEM, **keyed)
    assert reply.text == "It goes on."
    after = talk.history()
    for old, new in zip(before, after, strict=False):
        assert (new.id, new.native, new.at, new.mark, new.meta) == (old.id, old.native, old.at, old.mark, old.meta)
        # The last turn may have been cut off.
        assert new.status == old.status or old.turn == before[-1].turn
    assert len(after) > len(before)
    assert after[-1].text == "It goes on."
    assert talk.meta() == meta
    talk.verify()
    return reply, model.requests[-1]


# Reading


@pytest.mark.parametrize("kind", RESTORE)
def test_a_store_is_read_as_it_was_by_the_version_that_wrote_it(kind: str, tmp_path: Path) -> None:
    with contextlib.closing(open_store(RESTORE[kind](tmp_path), make=False)) as store:
        found = read_store(store)
        for owner, name in TALKS:
            Archive(store, owner=owner).verify(name)
        with contextlib.closing(open_store(str(tmp_path / "copy.db"))) as copy:
            for owner in expected():
                assert not Archive(store, owner=owner).copy_to(copy).left
            copied = read_store(copy)
    wanted = expected()
    if kind == "jsonl":
        found, copied, wanted = map(without_totals, (found, copied, wanted))
    assert found == wanted
    assert copied == wanted


def test_words_are_found(store: Any) -> None:
    archive = Archive(store, owner="ada")
    for word, conversation in (("luthier", "memory"), ("fugue", "tools"), ("rosin", OTHER_NAME), ("codex", "agents")):
        assert conversation in {hit.conversation for hit in archive.search(word, limit=100)}
    assert not archive.search("marzipan")
    assert not archive.search("Bob")


# Continuing


@pytest.mark.parametrize(("owner", "name", "branch"), WHOLE)
def test_a_conversation_continues_with_all_its_messages(store: Any, owner: str, name: str, branch: str) -> None:
    old = Archive(store, owner=owner).history(name, branch=branch)
    _, request = continued(store, name, owner=owner, branch=branch)
    check_sent(request, old, wire_of(name))


def test_a_finished_turn_is_replayed_by_its_key(store: Any) -> None:
    old = expected()["ada"][OTHER_NAME]["branches"]["main"]["history"]
    # The script has no steps, so a model call would fail.
    talk = Conversation(OTHER_NAME, model=Scripted(), owner="ada", store=store)
    reply = talk.send("I play the violin.", key="key I play the violin.")
    assert (reply.turn_id, reply.text) == (old[3]["turn"], old[3]["text"])
    with pytest.raises(KeyReused):
        talk.send("I play the viola.", key="key I play the violin.")


def test_the_turn_of_a_process_that_died_continues_by_its_key(store: Any) -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        raise AssertionError("this call has its result")

    def die() -> str:
        """End the process."""
        raise AssertionError("whether this call was done is not known")

    old = Archive(store, owner="ada").history("crashed")
    assert [each.status for each in old[2:]] == ["running"] * 3
    reply, request = continued(store, "crashed", "2 + 3?", key="request-4", tools=[add, die])
    assert reply.turn_id == old[-1].turn
    check_sent(request, old, "openai-chat")
    after = Archive(store, owner="ada").history("crashed")
    assert [each.mark for each in after[len(old) :]] == ["closed", ""]
    assert {each.status for each in after} == {"complete"}


def test_a_turn_that_failed_continues_by_its_key(store: Any) -> None:
    old = Archive(store, owner="ada").history("failed")
    reply, request = continued(store, "failed", "2 + 3, and what is a Bogen?", key="request-3")
    assert reply.turn_id == old[-1].turn
    check_sent(request, old, "openai-chat")


def test_instructions_and_reported_lengths_are_continued(store: Any) -> None:
    old = Archive(store, owner="ada").history("tools")
    reply, request = continued(store, "tools")
    check_sent(request, old, "openai-chat")
    # The instruction of a turn with tools keeps its position.
    assert request.index(b"a Bogen?") < request.index(b"It is late in the evening.") < request.index(b"Let me see.")
    # The estimate starts from the length that the provider reported.
    assert reply.context.tokens > 4096


@pytest.mark.parametrize("name", ["summary", "background", "economy"])
def test_a_summary_stands_for_what_it_covers(store: Any, name: str) -> None:
    old = Archive(store, owner="ada").history(name)
    receipts = Archive(store, owner="ada").receipts(name)
    reply, request = continued(store, name)
    summary = "Ada plays a violin of 1740."
    assert reply.summary.startswith(summary)
    assert summary.encode() in request
    assert b"Question 0:" not in request
    check_sent(request, old[-2:], "openai-chat")
    calls = [each.calls + 1 for each in receipts]
    assert [each.calls for each in Archive(store, owner="ada").receipts(name)] == calls


@pytest.mark.parametrize("branch", ["main", "other"])
def test_the_brief_is_sent(store: Any, branch: str) -> None:
    old = Archive(store, owner="ada").history("memory", branch=branch)
    lines = expected()["ada"]["memory"]["branches"][branch]["brief"]
    reply, request = continued(store, "memory", branch=branch)
    assert len(lines) == 6
    for _, _, text, _, _ in lines:
        assert text.encode() in request
    assert b"A small hand" not in request
    assert [line.id for line in reply.brief] == [line[0] for line in lines]
    check_sent(request, old[-2:], "openai-chat")


def test_a_stored_provider_id_is_continued(store: Any) -> None:
    _, request = continued(store, "held", options=HELD)
    sent = json.loads(request)
    assert sent["previous_response_id"] == "resp_3"
    assert [item["content"] for item in sent["input"]] == ["And now?"]


def test_a_field_that_the_server_refused_is_not_sent_again(store: Any) -> None:
    old = Archive(store, owner="ada").history("held")
    assert b"x_vendor" in old[1].native
    branch = Conversation("held", model=scripted("held"), owner="ada", store=store).fork().branch
    _, request = continued(store, "held", branch=branch)
    assert b"x_vendor" not in request
    for each in old:
        assert each.text.encode() in request


def test_a_learned_window_still_holds(store: Any) -> None:
    old = Archive(store, owner="ada").history("window")
    reply, request = continued(store, "window", "How do I hold the bow? " * 8)
    assert b"Question 0:" not in request
    check_sent(request, old[-2:], "openai-chat")
    for _ in range(4):
        assert reply.context.tokens <= 300
        reply, request = continued(store, "window", "How do I hold the bow? " * 8)
    assert b"So how do I hold it?" not in request


def test_a_failed_summary_is_not_asked_for_again_at_once(store: Any) -> None:
    old = Archive(store, owner="ada").history("no summary")
    model = scripted("no summary", says("It goes on."))
    talk = Conversation("no summary", model=model, owner="ada", store=store, policy=policy_of("no summary"))
    assert talk.send("And now?", system=SYSTEM).text == "It goes on."
    (request,) = model.requests
    check_sent(request, old, "openai-chat")
    talk.verify()


def test_empty_filtered_and_odd_answers_are_continued(store: Any) -> None:
    old = Archive(store, owner="ada").history("marks")
    assert [each.mark for each in old if each.role == "assistant"] == ["empty", "length", "filtered", ""]
    assert rb"half of \ud83d, \u0000 and" in old[-1].native
    _, request = continued(store, "marks")
    check_sent(request, [each for each in old if each.mark != "empty"], "openai-chat")


def test_the_envelope_of_an_imported_go_state_is_kept(store: Any) -> None:
    assert '"processed_length' in Archive(store, owner="ada").export("go", "json").replace("\\", "")
