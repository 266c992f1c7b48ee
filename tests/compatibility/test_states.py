"""States written by earlier versions are read, verified and continued.

For each fixture (plain, compressed, sealed, with shed parts, and of the earlier Go library) the tests promise:

- it is read as the version that wrote it read it, entry by entry and byte for byte;
- loaded into a store, it passes `verify()`;
- the next turn sends the old messages byte for byte, and continues from stored summaries, briefs, pins, provider ids
  and finished calls; the next state begins with all that the old one held.

The fixtures are never written again. `make_fixtures.py` documents what they hold.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

import pytest

from longtalk import Archive, Chat, KeepAll, KeepLast, history, join, peek
from longtalk.errors import BadState
from longtalk.stores import open_store
from longtalk.testing import says
from tests.compatibility.talks import (
    FILES,
    HELD,
    SEAL,
    SEALED,
    SMALL,
    TOOLS,
    check_sent,
    policy_of,
    read_state,
    scripted,
    wire_of,
)

SYSTEM = "You teach the violin."
FOLDER = FILES / "states"


@cache
def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress((FILES / "states.json.gz").read_bytes()))
    return found


OWN_TESTS = ("summary", "economy", "memory", "held", "checkpoint", "small", "sealed-small")
WHOLE = [name for name in expected() if name not in OWN_TESTS]
"""States that are sent whole."""


def stored(name: str) -> bytes:
    return (FOLDER / f"{name}.state").read_bytes()


def seal_of(name: str) -> Any:
    return SEAL if name in SEALED else None


def said(name: str, state: bytes) -> list[Any]:
    return history(state, seal=seal_of(name))


def continued(
    name: str, message: str | None = "And now?", *, state: bytes | None = None, **more: Any
) -> tuple[Any, bytes]:
    """Continue a state with a scripted answer, and return the reply and the last request."""
    state = stored(name) if state is None else state
    model = scripted(name, *[says("It goes on.", wire=wire_of(name)) for _ in range(3)])
    chat = Chat(model, **{"policy": policy_of(name), "tools": TOOLS, "seal": seal_of(name), **more})
    reply = chat.send(message, state=state, system=SYSTEM)
    assert reply.text == "It goes on."
    return reply, model.requests[-1]


@pytest.mark.parametrize("name", expected())
def test_a_state_is_read_as_it_was_by_the_version_that_wrote_it(name: str) -> None:
    assert read_state(name, stored(name)) == expected()[name]


@pytest.mark.parametrize("name", expected())
def test_a_state_is_loaded_into_a_store_and_verified(name: str, tmp_path: Any) -> None:
    state = stored(name)
    if name in ("small", "sealed-small"):
        state = join(*parts(name), state, seal=seal_of(name))
    plain = SEAL.open(state) if name in SEALED else state
    store = open_store(str(tmp_path / "talks.db"))
    archive = Archive(store)
    archive.load(plain, id="talk")
    archive.verify("talk")
    assert [each.native for each in archive.history("talk")] == [each.native for each in history(plain)]
    store.close()


@pytest.mark.parametrize("name", WHOLE)
def test_a_state_continues_with_all_its_messages(name: str) -> None:
    old = said(name, stored(name))
    reply, request = continued(name)
    check_sent(request, old, wire_of(name))
    new = said(name, reply.state)
    assert new[: len(old)] == old
    assert [each.text for each in new[len(old) :]] == ["And now?", "It goes on."]
    again, request = continued(name, "And then?", state=reply.state)
    check_sent(request, new, wire_of(name))
    before, after = (peek(SEAL.open(each) if name in SEALED else each) for each in (stored(name), again.state))
    assert after.revision == before.revision + 2


def test_a_large_state_was_compressed() -> None:
    seen = peek(stored("large"))
    assert seen.size < 2_000
    assert sum(len(each.native) for each in history(stored("large"))) > 64 * 1024


def test_a_pinned_exchange_stays() -> None:
    old = said("chat", stored("chat"))
    _, request = continued("chat", policy=KeepLast(2, to=1))
    assert b"a Bogen?" in request
    assert b"Tell me a long story." not in request
    check_sent(request, old[1:6], "openai-chat")


@pytest.mark.parametrize("name", ["summary", "economy"])
def test_a_summary_stands_for_what_it_covers(name: str) -> None:
    old = said(name, stored(name))
    reply, request = continued(name)
    summary = "Ada plays a violin of 1740."
    assert reply.summary.startswith(summary)
    assert summary.encode() in request
    assert b"Question 0:" not in request
    check_sent(request, old[-2:], "openai-chat")
    assert (reply.receipt is not None) == (name == "economy")


def test_the_brief_is_sent() -> None:
    reply, request = continued("memory")
    lines = expected()["memory"]["brief"]
    assert len(lines) == 4
    for _, _, text, _, _ in lines:
        assert text.encode() in request
    assert b"A small hand" not in request
    assert [line.id for line in reply.brief] == [line[0] for line in lines]
    check_sent(request, said("memory", stored("memory"))[-2:], "openai-chat")


def test_a_stored_provider_id_is_continued() -> None:
    _, request = continued("held", options=HELD)
    sent = json.loads(request)
    assert sent["previous_response_id"] == "resp_3"
    assert [item["content"] for item in sent["input"]] == ["And now?"]


def test_a_checkpoint_continues_without_repeating_a_finished_call() -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        raise AssertionError("this call has its result")

    old = said("checkpoint", stored("checkpoint"))
    assert old[-1].role == "tool"
    reply, request = continued("checkpoint", None, tools=[add, TOOLS[1]])
    check_sent(request, old, "openai-chat")
    assert [each.role for each in said("checkpoint", reply.state)[len(old) :]] == ["tool", "assistant"]


def parts(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(FOLDER.glob(f"{name}.part*"))]


@pytest.mark.parametrize("name", ["small", "sealed-small"])
def test_a_small_state_continues_and_joins_its_shed_parts(name: str) -> None:
    reply, request = continued(name, policy=SMALL, carry="context")
    check_sent(request, said(name, stored(name))[-2:], "openai-chat")
    more = [reply.shed] if reply.shed else []
    whole = join(*reversed(parts(name)), *more, reply.state, seal=seal_of(name))
    users = [each.text for each in said(name, whole) if each.role == "user"]
    assert users == ["Hello!", "I'm Ada.", "I play the violin.", "Every day.", "What do I play?", "And now?"]
    _, request = continued(name, state=whole, policy=KeepAll())
    check_sent(request, said(name, whole), "openai-chat")
    with pytest.raises(BadState) as caught:
        join(*parts(name)[1:], reply.state, seal=seal_of(name))
    assert caught.value.reason == "missing_part"


def test_a_sealed_state_opens_for_its_owner_alone() -> None:
    for other, reason in (
        (SEAL.seal.to(owner="bob", conversation="lesson-7"), "wrong_owner"),
        (SEAL.seal.to(owner="ada", conversation="lesson-8"), "wrong_conversation"),
    ):
        with pytest.raises(BadState) as caught:
            history(stored("sealed"), seal=other)
        assert caught.value.reason == reason
