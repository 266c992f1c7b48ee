"""What memory adds to a request never makes it too long: it is left out where it does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from longtalk import Brief, Chat, Conversation
from longtalk._sync.archive.archive import Archive
from longtalk.context.measure import Terms
from longtalk.context.token_limit import find_compaction_point, find_history_limit, find_token_limit
from longtalk.errors import ContextOverflow
from longtalk.memory.recall.config import Recall
from longtalk.policies import (
    AnyOf,
    Combine,
    Compactor,
    DropOldest,
    KeepAll,
    KeepLast,
    Memory,
    OverExchanges,
    OverTokens,
    Summarize,
    TokenBudget,
    WindowShare,
)
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted, says
from longtalk.tokens import Estimator
from longtalk.wires import WIRES

ASKS = b"<MEMORY_CARD>"
MESSAGES = ("Hello, strings.", "Look at the strings.", "And now? So many words about bows and strings.")


def look(at: str) -> str:
    """Look."""
    return f"{at} strings " * 20


def recall(query: str) -> str:
    """Look it up. With this tool of the app, memory adds none of its own."""
    return query


def make_policy(recall: Any = 0) -> Memory:
    """Return a policy that asks for a card in every turn."""
    return Memory(brief=Brief(20), outline=0, limit=0, recall=recall)


def make_model(rounds: int) -> Scripted:
    """Return a model that calls a tool in the second of three turns."""
    calls = [says(calls=[(f"c{i}", "look", {"at": "it"})]) for i in range(rounds)]
    return Scripted(says("Hello."), *calls, says("Done."), says("And done."))


def play(policy: Any, window: int | None, rounds: int = 2, **arguments: Any) -> list[Any]:
    state, replies = None, []
    with Chat(make_model(rounds), policy=policy, window=window, tools=[look, recall]) as chat:
        for message in MESSAGES:
            replies.append(chat.send(message, state=state, **arguments))
            state = replies[-1].state
    return replies


@pytest.mark.parametrize("instruction", [None, "It is late."])
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize(
    "policy", [make_policy(), make_policy(Recall(500, gate=False)), Combine(KeepLast(2), make_policy())]
)
def test_in_a_small_window_memory_refuses_nothing_that_would_fit_without_it(
    policy: Any, rounds: int, instruction: str | None
) -> None:
    played = 0
    for window in range(100, 620, 20):
        try:
            play(KeepAll(), window, rounds, instruction=instruction)
        except ContextOverflow:
            continue
        played += 1
        for reply in play(policy, window, rounds, instruction=instruction):
            assert reply.context.tokens <= window
    assert played > 10


@pytest.mark.parametrize("limit", range(100, 700, 50))
def test_what_memory_adds_keeps_the_limit_of_another_policy(limit: int) -> None:
    for reply in play(Combine(TokenBudget(limit), make_policy(Recall(500, gate=False))), None):
        assert reply.context.tokens <= limit or "over_limit" in {notice.kind for notice in reply.notices}


def find_stripping_window() -> int:
    """Return a window in which a card is requested at first, and left out when the tools have answered."""
    for window in range(100, 900, 10):
        model = make_model(3)
        with Chat(model, policy=make_policy(), window=window, tools=[look, recall]) as chat:
            try:
                state = chat.send(MESSAGES[0]).state
                chat.send(MESSAGES[1], state=state)
            except ContextOverflow:
                continue
            if ASKS in model.requests[1] and ASKS not in model.requests[-1]:
                return window
    raise AssertionError("A kept request for a card is never left out.")


def test_what_was_left_out_in_a_turn_stays_out_and_past_requests_are_rebuilt() -> None:
    window, store, model = find_stripping_window(), InMemory(), make_model(3)
    with Conversation("c", model=model, store=store, policy=make_policy(), window=window, tools=[look, recall]) as talk:
        talk.send(MESSAGES[0])
        reply = talk.send(MESSAGES[1])
    asked = [ASKS in request for request in model.requests[1:]]
    assert asked == sorted(asked, reverse=True)
    rebuilt = [sent.body for sent in Archive(store).request("c", reply.turn_id)]
    assert rebuilt == model.requests[1:]


@pytest.mark.parametrize(
    ("policy", "window", "limit"),
    [
        (KeepAll(), None, None),
        (KeepAll(), 500, 500),
        (KeepLast(3), None, None),
        (TokenBudget(300), 500, 300),
        (TokenBudget(300), 200, 200),
        (WindowShare(0.5), 500, 250),
        (Combine(TokenBudget(300), TokenBudget(400)), None, 300),
        (Compactor(AnyOf(OverTokens(70), OverExchanges(2)), (DropOldest(),), OverTokens(50)), None, 70),
        (Summarize(300, length=50), None, None),
        (make_policy(), None, None),
    ],
)
def test_the_limit_is_that_of_the_window_and_of_every_policy(
    policy: Any, window: int | None, limit: int | None
) -> None:
    terms = Terms(
        wire=WIRES["openai-chat"], counter=Estimator(), model="m", preamble="", fixed=0, window=window, answer=0
    )
    assert find_token_limit(policy, terms) == limit


@pytest.mark.parametrize(
    ("policy", "window", "point"),
    [
        (KeepAll(), 500, None),
        (KeepLast(3), 500, None),
        (TokenBudget(300), 500, 300),
        (Summarize(300, length=50), 500, 300),
        (Memory(limit=1_000), 10_000, 1_200),
        (Memory(limit=1_000), 1_000, 800),
        (Memory(limit=1_000), None, 1_200),
    ],
)
def test_a_policy_shortens_a_request_above_the_point_that_it_names(
    policy: Any, window: int | None, point: int | None
) -> None:
    """200 tokens are outside the history."""
    assert find_compaction_point(policy, window, 200) == point


@pytest.mark.parametrize("outside", [0, 700])
@pytest.mark.parametrize(
    ("policy", "limit"), [(Memory(limit=1_500), 1_500), (TokenBudget(4_000), None), (KeepAll(), None)]
)
def test_a_limit_of_the_history_alone_stays_where_a_request_has_more_besides(
    policy: Any, limit: int | None, outside: int
) -> None:
    assert find_history_limit(policy, 8_192, outside) == limit
