"""A policy from outside the package has the same rights as ours: it is known by what it has, not by its class."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from longtalk import Chat, Conversation, Economy, Memory, TokenBudget
from longtalk.memory.brief.record import BriefRecord, CaptureMode, CardKind
from longtalk.memory.brief.schema import Brief
from longtalk.memory.recall.config import Recall
from longtalk.memory.summary import Summary
from longtalk.policies import BriefKeeper, Compactor, Policy, Size, Strategy, Summarize, Trigger, View
from longtalk.policies.base import find_brief_keeper
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted, Step, says
from longtalk.testing.policies import check_policy, transcript_of
from longtalk.tokens import Counter
from longtalk.transcript.transcript import Transcript

CARD = '\n\n<MEMORY_CARD>\n{"+fact":["The violin is by Guarneri."]}\n</MEMORY_CARD>'
SUMMARY = "They spoke of violins, bows and strings, of prices and of lessons."


@dataclasses.dataclass(frozen=True)
class OutsideTrigger:
    """A trigger that shares no class with the package."""

    inner: Trigger
    compares_costs: bool = False

    def fires(self, size: Size) -> bool:
        return self.inner.fires(size)

    def __str__(self) -> str:
        return str(self.inner)


@dataclasses.dataclass(frozen=True)
class OutsideStrategy:
    """A strategy that shares no class with the package."""

    inner: Strategy

    def apply(self, view: View, limits: Compactor) -> View:
        return self.inner.apply(view, limits)


@dataclasses.dataclass(frozen=True)
class OutsideSummary(OutsideStrategy):
    """A strategy from outside that asks for summaries."""

    background: bool
    length: int


@dataclasses.dataclass(frozen=True)
class OutsideCut(OutsideStrategy):
    """A strategy from outside that shortens the current exchange."""

    cuts_current: bool = True


@dataclasses.dataclass(frozen=True)
class OutsideKeeper(OutsideStrategy):
    """A strategy from outside that keeps a brief."""

    background = False

    @property
    def keeper(self) -> BriefKeeper:
        return self.inner  # type: ignore[return-value]

    @property
    def brief(self) -> Brief:
        return self.keeper.brief

    @property
    def recalls(self) -> Recall:
        return self.keeper.recalls

    @property
    def capture(self) -> CaptureMode:
        return self.keeper.capture

    @property
    def example(self) -> str:
        return self.keeper.example

    @property
    def instruction(self) -> str:
        return self.keeper.instruction

    def needs_new_head(
        self,
        head: Summary | None,
        transcript: Transcript,
        counter: Counter,
        other_texts: Sequence[str] = (),
        *,
        leaves_out: bool = False,
    ) -> bool:
        return self.keeper.needs_new_head(head, transcript, counter, other_texts, leaves_out=leaves_out)

    def with_current_brief(self, view: View) -> View:
        return self.keeper.with_current_brief(view)

    def choose_card(self, record: BriefRecord, *, near: bool, history: int, raw: int, current: int) -> CardKind:
        return self.keeper.choose_card(record, near=near, history=history, raw=raw, current=current)


@dataclasses.dataclass(frozen=True)
class Outside:
    """A policy that does what another one does, with parts from outside the package."""

    inner: Policy

    @property
    def compactors(self) -> Sequence[Compactor]:
        return [
            Compactor(
                OutsideTrigger(each.over, getattr(each.over, "compares_costs", False)),
                tuple(map(wrap, each.strategies)),
                OutsideTrigger(each.to),
            )
            for each in self.inner.compactors
        ]


def wrap(strategy: Any) -> Any:
    if hasattr(strategy, "needs_new_head"):
        return OutsideKeeper(strategy)
    if getattr(strategy, "cuts_current", False):
        return OutsideCut(strategy)
    if hasattr(strategy, "background"):
        return OutsideSummary(strategy, strategy.background, strategy.length)
    return OutsideStrategy(strategy)


POLICIES = [
    Memory(brief=Brief(100), recent=100, recall=60, limit=400),
    Memory(brief=Brief(100), recent=0, outline=0, recall=0, limit=300, capture="tool"),
    Economy(length=50),
    Summarize(400, length=50),
    TokenBudget(300),
]


def look(q: str) -> str:
    """Look something up."""
    return f"About {q}: much is known. " * 20


class Answering(Scripted):
    """Answers each request: with a summary or a card where one is asked for, now and then with a tool call."""

    def send(self, body: bytes) -> bytes:
        self.requests.append(body)
        number = len(self.requests)
        if b"<summary_request>" in body:
            answer = says(SUMMARY)
        elif number % 5 == 3 and body.rfind(b'"user"') > body.rfind(b'"tool"'):
            answer = says(None, calls=[(f"c{number}", "look", {"q": "strings"})])
        else:
            answer = self._make_answer(number, body)
        return answer.body.replace(b'"prompt_tokens":10', b'"prompt_tokens":%d' % (len(body) // 4))

    def _make_answer(self, number: int, body: bytes) -> Step:
        return says(f"Answer {number} about violins. " * 10 + (CARD if b"MEMORY_CARD" in body else ""))


def hold(policy: Policy) -> Answering:
    provider = Answering(window=4_000)
    chat, state = Chat(provider, policy=policy, tools=[look]), None
    for i in range(12):
        state = chat.send(f"Question {i} about my violin. " * 8, state=state).state
    return provider


@pytest.mark.parametrize("policy", POLICIES, ids=["memory", "memory by a tool", "economy", "summary", "tokens"])
def test_a_policy_from_outside_sends_what_ours_sends(policy: Policy) -> None:
    ours, outside = hold(policy), hold(Outside(policy))
    assert len(ours.requests) > 12
    assert outside.requests == ours.requests
    assert min(map(len, ours.requests[20:] or ours.requests[10:])) < max(map(len, ours.requests))


def test_a_strategy_from_outside_has_its_summary_written_in_the_background() -> None:
    provider = Answering(window=4_000)
    policy = Outside(Summarize(400, length=50, background=True))
    with Conversation("c", model=provider, store=InMemory(), policy=policy) as talk:
        for i in range(6):
            talk.send(f"Question {i} about my violin. " * 8)
            talk._jobs.wait()
    assert any(b"<summary_request>" in body for body in provider.requests)
    assert SUMMARY.encode() in provider.requests[-1]


def test_a_keeper_from_outside_is_found_by_what_it_has() -> None:
    keeper = find_brief_keeper(Outside(POLICIES[0]))
    assert isinstance(keeper, OutsideKeeper)
    assert keeper.brief == Brief(100)


@pytest.mark.parametrize("policy", POLICIES, ids=["memory", "memory by a tool", "economy", "summary", "tokens"])
def test_the_checker_treats_a_policy_from_outside_like_ours(policy: Policy) -> None:
    said = [{"role": role, "content": "word " * 60} for _ in range(12) for role in ("user", "assistant")]
    ours = check_policy(policy, transcript_of(said), window=1_000)
    assert check_policy(Outside(policy), transcript_of(said), window=1_000) == ours
    assert ours.epochs
