"""What a replay of the whole history would have cost, estimated from what was stored when the turns ran."""

from __future__ import annotations

import msgspec
import pytest

from longtalk import Archive, Conversation, KeepLast
from longtalk.archive.metrics import Metrics
from longtalk.policies import KeepAll
from longtalk.simulation.compare import simulate, transcript_of
from longtalk.simulation.replay_costs import estimate_replay
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted, says
from longtalk.transfer.sample import load_sample
from longtalk.usage import Usage

MINUTE = 60_000


def make_metrics(at: int, model: str = "openai-chat:gpt-5.4", **more: object) -> Metrics:
    made = Metrics(turn=f"t{at}", at=at, model=model, status="complete", calls=1, usage=Usage(input=1_000, output=10))
    return msgspec.structs.replace(made, **more)


def test_what_was_left_out_is_sent_and_its_summary_is_not() -> None:
    (found,) = estimate_replay([make_metrics(0, left_out=5_000, summary=300)])
    assert found.usage == Usage(input=5_700, output=10)


def test_a_turn_that_recalled_less_than_the_one_before_still_has_something_that_is_not_in_the_cache() -> None:
    first = make_metrics(0, left_out=2_000, recall=300)
    second = make_metrics(MINUTE, left_out=2_020, usage=Usage(input=700, output=10))
    found = estimate_replay([first, second])
    assert [each.usage.input - each.usage.cached for each in found] == [3_000, 10]


def test_a_replay_of_a_shortened_conversation_has_the_size_of_a_whole_one() -> None:
    def play(policy: object) -> list[Metrics]:
        store = InMemory()
        with Conversation("c", model=Scripted(*[says("A long answer. " * 9)] * 12), store=store, policy=policy) as talk:
            for _ in range(12):
                talk.send("A question of some length. " * 5)
        return Archive(store).metrics("c")

    whole = sum(each.total for each in play(KeepAll()))
    short = [msgspec.structs.replace(each, usage=Usage(input=each.total)) for each in play(KeepLast(3))]
    assert sum(each.usage.input for each in short) < 0.6 * whole
    assert sum(each.usage.input for each in estimate_replay(short)) == pytest.approx(whole, rel=0.05)


def test_the_cache_holds_the_request_before_for_some_minutes() -> None:
    turns = [make_metrics(0), make_metrics(MINUTE, usage=Usage(input=1_500)), make_metrics(600 * MINUTE)]
    found = estimate_replay(turns)
    assert [each.usage.cached for each in found] == [0, 1_000, 0]
    assert all(each.plain is not None and each.cached is not None for each in found)
    assert found[1].cached < found[1].plain
    assert found[0].cached == found[0].plain


def test_a_turn_that_sent_everything_has_in_a_replay_what_its_provider_reported() -> None:
    first = make_metrics(0, usage=Usage(input=1_000, cached=900))
    second = make_metrics(1, usage=Usage(input=1_000, cached=10))
    assert [each.usage.cached for each in estimate_replay([first, second])] == [900, 1_000]
    (shortened,) = estimate_replay([msgspec.structs.replace(first, left_out=10)])
    assert shortened.usage.cached == 0


def test_a_provider_that_bills_writes_to_its_cache_gets_them() -> None:
    first, second = estimate_replay(
        [make_metrics(0, "anthropic:claude-sonnet-5"), make_metrics(MINUTE, "anthropic:claude-sonnet-5", left_out=100)]
    )
    assert (first.usage.written, second.usage.cached, second.usage.written) == (1_000, 1_000, 100)


def test_the_calls_of_one_turn_share_the_cache() -> None:
    (found,) = estimate_replay([make_metrics(0, calls=3, usage=Usage(input=3_000, output=10))])
    assert found.usage == Usage(input=3_000, output=10, cached=2_000)


def test_an_unknown_price_is_unknown_and_not_zero() -> None:
    (found,) = estimate_replay([make_metrics(0, "scripted:model")])
    assert (found.plain, found.cached) == (None, None)


def test_the_estimate_is_near_the_simulation() -> None:
    archive = Archive(InMemory())
    (name,) = archive.load(load_sample())
    found = estimate_replay(archive.metrics(name))
    (run,) = simulate(
        transcript_of(archive.talk(name)), models=["openai-chat:gpt-5.4"], policies=[KeepAll()], optimum=False
    )
    # The stored figures include system text and tools, which an export does not have.
    assert sum(each.usage.input for each in found) == pytest.approx(run.usage.input, rel=0.2)
