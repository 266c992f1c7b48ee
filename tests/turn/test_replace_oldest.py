"""Old exchanges that a function of the app replaces with its own text. The sync twin of this file is generated."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from longtalk import AsyncChat, AsyncConversation
from longtalk.memory.summary import Summary
from longtalk.policies import Compactor, OldEntry, OverTokens, ReplaceOldest
from longtalk.state.codec import decode
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, says, validate
from longtalk.wires import HTTP_WIRES, NAMES, WIRES

pytestmark = pytest.mark.anyio

WORDS = "The bow rests on the string and the arm is heavy. " * 8


def list_questions(earlier: str, entries: Sequence[OldEntry]) -> str:
    """Return the first word of each message of the user, after those of the last time."""
    new = [entry.text.split()[0] for entry in entries if entry.role == "user"]
    return " ".join([*earlier.split(), *new])


def policy(write: Any, **settings: Any) -> Compactor:
    strategy = ReplaceOldest(write=write, length=100, **settings)
    return Compactor(OverTokens(1_200), (strategy,), OverTokens(700))


def lookup(q: str) -> str:
    """Look something up."""
    return q


async def talk(chat: AsyncChat, turns: int, **more: Any) -> list[Any]:
    replies: list[Any] = []
    for i in range(turns):
        state = replies[-1].state if replies else None
        replies.append(await chat.send(f"q{i} {WORDS}", state=state, **more))
    return replies


@pytest.mark.parametrize("wire", HTTP_WIRES)
async def test_the_text_of_the_function_replaces_the_oldest_exchanges(wire: str) -> None:
    provider = AsyncScripted(*[says(WORDS, wire=wire)] * 12, wire=WIRES[wire])
    async with AsyncChat(provider, policy=policy(list_questions)) as c:
        replies = await talk(c, 12)
    assert len(provider.requests) == 12
    words = replies[-1].summary.split()
    assert words == [f"q{i}" for i in range(len(words))]
    assert len(words) > 6
    assert replies[-1].summary.encode() in provider.requests[-1]
    for request in provider.requests:
        validate(request, wire=wire)


async def test_the_text_is_a_record_that_names_what_it_covers() -> None:
    async with AsyncChat(AsyncScripted(*[says(WORDS)] * 12), policy=policy(list_questions)) as c:
        reply = (await talk(c, 12))[-1]
    transcript = decode(reply.state, wires=NAMES)
    summary = transcript.records.read_latest("summary", Summary)
    assert summary is not None
    assert summary.text == reply.summary
    assert summary.covers == ((0, 2 * len(summary.text.split())),)
    assert not summary.model


async def test_a_state_that_sheds_its_entries_needs_only_the_earlier_text() -> None:
    async with AsyncChat(AsyncScripted(*[says(WORDS)] * 12), policy=policy(list_questions), carry="context") as c:
        reply = (await talk(c, 12))[-1]
    words = reply.summary.split()
    assert words == [f"q{i}" for i in range(len(words))]


async def test_the_function_costs_no_model_call() -> None:
    async with AsyncChat(AsyncScripted(*[says(WORDS)] * 12), policy=policy(list_questions)) as c:
        replies = await talk(c, 12)
    assert replies[-1].summary
    assert all(len(reply.raw_usage) == 1 for reply in replies)


async def test_the_function_sees_calls_and_results() -> None:
    seen: list[OldEntry] = []

    def note(earlier: str, entries: Sequence[OldEntry]) -> str:
        seen.extend(entries)
        return f"{earlier} noted"

    calls = [says(None, calls=[("c1", "lookup", {"q": "bow"})]), says(WORDS)]
    provider = AsyncScripted(*calls, *[says(WORDS)] * 11)
    async with AsyncChat(provider, policy=policy(note), tools=[lookup]) as c:
        await talk(c, 12)
    assert [entry.role for entry in seen[:4]] == ["user", "assistant", "tool", "assistant"]
    assert "lookup" in seen[1].text
    assert seen[2].text == "bow"
    assert seen[0].id
    assert seen[0].at > 0


def fail(earlier: str, entries: Sequence[OldEntry]) -> str:
    raise KeyError("a fault of the app")


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (fail, "a fault of the app"),
        (lambda earlier, entries: 7, "returned int"),
        (lambda earlier, entries: " ", "is empty"),
        (lambda earlier, entries: WORDS * 50, "longer than what it replaces"),
    ],
)
async def test_a_function_that_fails_does_not_stop_the_conversation(write: Any, problem: str) -> None:
    async with AsyncChat(AsyncScripted(*[says(WORDS)] * 12), policy=policy(write)) as c:
        replies = await talk(c, 12)
    notices = [notice for reply in replies for notice in reply.notices if notice.kind == "summary_failed"]
    assert problem in notices[0].text
    assert replies[-1].summary is None
    assert replies[-1].text == WORDS


async def test_a_function_that_takes_too_long_is_not_waited_for() -> None:
    released = threading.Event()

    def hang(earlier: str, entries: Sequence[OldEntry]) -> str:
        released.wait(60)
        return "too late"

    try:
        async with AsyncChat(AsyncScripted(*[says(WORDS)] * 12), policy=policy(hang, timeout=0.01)) as c:
            replies = await talk(c, 12)
    finally:
        released.set()
    notices = [notice for reply in replies for notice in reply.notices if notice.kind == "summary_failed"]
    assert "within 0.01 seconds" in notices[0].text


async def test_in_the_background_the_function_runs_after_an_answer() -> None:
    provider, store = AsyncScripted(*[says(WORDS)] * 8), InMemory()
    summary = None
    for i in range(8):
        async with AsyncConversation(
            "c", model=provider, store=store, policy=policy(list_questions, background=True)
        ) as talk:
            summary = (await talk.send(f"q{i} {WORDS}")).summary
    assert summary is not None
    assert summary.split()[:2] == ["q0", "q1"]
