"""Async functions of the app that replace old exchanges. A sync chat has none of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from longtalk import AsyncChat, Chat
from longtalk.policies import Compactor, OldEntry, OverTokens, ReplaceOldest
from longtalk.testing import AsyncScripted, Scripted, says

WORDS = "The bow rests on the string and the arm is heavy. " * 8


async def note(earlier: str, entries: Sequence[OldEntry]) -> str:
    return f"{len(entries)} entries, after: {earlier}"


POLICY = Compactor(OverTokens(1_200), (ReplaceOldest(write=note, length=100),), OverTokens(700))


@pytest.mark.anyio
async def test_an_async_chat_awaits_an_async_function() -> None:
    async with AsyncChat(AsyncScripted(*[says(WORDS)] * 12), policy=POLICY) as chat:
        reply = await chat.send(WORDS)
        for _ in range(11):
            reply = await chat.send(WORDS, state=reply.state)
    assert reply.summary is not None
    assert "entries, after:" in reply.summary


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
def test_a_sync_chat_says_that_an_async_function_gave_no_text() -> None:
    with Chat(Scripted(*[says(WORDS)] * 12), policy=POLICY) as chat:
        replies = [chat.send(WORDS)]
        for _ in range(11):
            replies.append(chat.send(WORDS, state=replies[-1].state))
    texts = [notice.text for reply in replies for notice in reply.notices if notice.kind == "summary_failed"]
    assert "coroutine" in texts[0]
