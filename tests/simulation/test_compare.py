"""The cost of a simulated conversation: the replay, checked by bytes, and the optimum, which no schedule beats."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import (
    Archive,
    Chat,
    Conversation,
    Economy,
    InputError,
    KeepAll,
    KeepLast,
    Memory,
    Summarize,
    TokenBudget,
)
from longtalk.models.call_cost import Prices
from longtalk.policies import Policy
from longtalk.simulation import replay
from longtalk.simulation.compare import (
    OPTIMUM,
    POLICIES,
    SimulatedCall,
    SimulatedModel,
    SimulatedRun,
    placeholder_summary,
    simulate,
    transcript_of,
)
from longtalk.simulation.inputs import ReplaySetup, Trace
from longtalk.simulation.optimum import find_cheapest_schedule, schedule_policy
from longtalk.simulation.replay import PolicyReplay
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted, says
from longtalk.testing.policies import transcript_of as messages_of
from longtalk.tokens import Estimator, count_message, counter_for
from longtalk.transcript.transcript import Transcript
from tests.support.properties import examples

MARKS = SimulatedModel(label="anthropic:x", prices=Prices(input=3, output=15, cache_read=0.3, cache_write=3.75))
AUTOMATIC = SimulatedModel(label="openai-chat:x", prices=Prices(input=1, output=8, cache_read=0.25))
COLD = SimulatedModel(label="openai-chat:x", prices=Prices(input=1, output=4), caches=False)
UNPRICED = SimulatedModel(label="openai-chat:x")
TABLES = [MARKS, AUTOMATIC, COLD, UNPRICED]
MINUTE = 60_000


def said(role: str, words: int, number: int = 0) -> dict[str, Any]:
    return {"role": role, "content": f"{number} " + "word " * words}


def talk(*sizes: tuple[int, int]) -> Transcript:
    """Return a conversation of questions and answers with these numbers of words."""
    pairs = [(said("user", asked, i), said("assistant", given, i)) for i, (asked, given) in enumerate(sizes)]
    return messages_of([message for pair in pairs for message in pair])


def at(transcript: Transcript, *times: int) -> Transcript:
    entries = [msgspec.structs.replace(entry, at=time) for entry, time in zip(transcript, times, strict=True)]
    return Transcript(fresh=tuple(entries))


def play(transcript: Transcript, policy: Policy, model: SimulatedModel | str = MARKS, **more: Any) -> SimulatedRun:
    (found,) = simulate(transcript, models=[model], policies=[policy], optimum=False, **more)
    return found


def tokens(*messages: dict[str, Any], model: SimulatedModel = MARKS) -> int:
    return sum(count_message(message, counter_for(model.label)) for message in messages)


# The replay


def test_each_answer_was_asked_for_with_all_before_it() -> None:
    found = play(talk((5, 10), (7, 20)), KeepAll())
    first, second = said("user", 5), said("assistant", 10)
    third, fourth = said("user", 7, 1), said("assistant", 20, 1)
    assert [(call.entry, call.usage.input, call.usage.output) for call in found.calls] == [
        (1, tokens(first), tokens(second)),
        (3, tokens(first, second, third), tokens(fourth)),
    ]
    assert (found.turns, found.prompts, found.problem) == (2, [call.usage.input for call in found.calls], "")


def test_a_repeated_prefix_is_cached_and_the_rest_written() -> None:
    calls = play(talk((5, 10), (7, 20), (9, 30)), KeepAll()).calls
    for before, call in pairwise(calls):
        assert call.usage.cached == before.usage.input
        assert call.usage.written == call.usage.input - call.usage.cached


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=8), st.sampled_from(TABLES))
def test_keeping_all_is_cached_by_its_bytes(sizes: list[tuple[int, int]], model: SimulatedModel) -> None:
    """Expect the bytes of the previous request to be cached, since each request begins with them."""
    entries = list(talk(*sizes))
    found = play(talk(*sizes), KeepAll(), model)
    body = b""
    for call in found.calls:
        sent = b",".join(entry.native for entry in entries[: call.entry])
        assert sent.startswith(body)
        count = body.count(b'{"role"')
        known = sum(tokens(json.loads(entry.native), model=model) for entry in entries[:count])
        assert call.usage.cached == (known if model.caches else 0)
        body = sent


def test_after_a_pause_nothing_is_cached() -> None:
    times = (1, 2, 2 * MINUTE, 2 * MINUTE + 1, 20 * MINUTE, 20 * MINUTE + 1)
    calls = play(at(talk((5, 10), (7, 20), (9, 30)), *times), KeepAll()).calls
    assert [call.usage.cached > 0 for call in calls] == [False, True, False]


def test_unusable_times_are_replaced_by_minutes() -> None:
    calls = play(at(talk((5, 10), (7, 20)), 90 * MINUTE, 60 * MINUTE, 30 * MINUTE, 0), KeepAll()).calls
    assert calls[1].usage.cached == calls[0].usage.input


def test_a_model_without_a_cache_reads_nothing_from_it() -> None:
    found = play(talk((5, 10), (7, 20), (9, 30)), KeepAll(), COLD)
    assert (found.usage.cached, found.usage.written, found.cached) == (0, 0, 0.0)
    assert found.weight == found.usage.input


def test_the_cost_is_that_of_each_call() -> None:
    found = play(talk((5, 10), (7, 20)), KeepAll())
    usage = found.usage
    dollars = (usage.written * 3.75 + usage.cached * 0.3 + usage.output * 15) / 1_000_000
    assert found.cost is not None
    assert found.cost.total == pytest.approx(dollars)


def test_without_prices_the_cost_is_not_known() -> None:
    found = play(talk((5, 10), (7, 20)), KeepAll(), UNPRICED)
    assert (found.cost, [call.cost for call in found.calls]) == (None, [None, None])
    assert found.weight > 0


def test_an_answer_at_the_start_is_not_a_call() -> None:
    found = play(messages_of([said("assistant", 9), said("user", 5), said("assistant", 7, 1)]), KeepAll())
    assert [call.entry for call in found.calls] == [2]
    assert found.usage.input == tokens(said("assistant", 9), said("user", 5))


def test_a_system_message_at_the_beginning_is_the_system_text() -> None:
    messages = [{"role": "system", "content": "You teach the violin."}, said("user", 5), said("assistant", 7)]
    found = play(messages_of(messages), KeepAll())
    told = play(messages_of(messages[1:]), KeepAll(), system="You teach the violin.")
    assert [call.usage for call in found.calls] == [call.usage for call in told.calls]
    assert ([call.entry for call in found.calls], [call.entry for call in told.calls]) == ([2], [1])
    assert found.usage.input > play(messages_of(messages[1:]), KeepAll()).usage.input


def test_a_turn_with_tools_has_several_calls() -> None:
    called = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "plan", "arguments": "{}"}}],
    }
    result = {"role": "tool", "tool_call_id": "c1", "content": "Slowly."}
    found = play(messages_of([said("user", 5), called, result, said("assistant", 9)]), KeepAll())
    assert [call.entry for call in found.calls] == [1, 3]
    assert (found.turns, found.calls[1].usage.cached) == (1, found.calls[0].usage.input)
    assert found.calls[1].usage.written == tokens(called, result)


def test_an_epoch_is_counted_whenever_it_began() -> None:
    found = play(talk(*[(5, 10)] * 12), KeepLast(4))
    begins = [call.entry for call in found.calls if call.begins]
    assert (len(begins), found.epochs, found.summaries) == (3, 3, 0)
    after = play(talk(*[(5, 300)] * 12), TokenBudget(2_000))
    falls = [b < a for a, b in pairwise(after.prompts)]
    assert after.epochs == sum(falls) > 0


def test_a_summary_is_a_call_of_its_own() -> None:
    found = play(talk(*[(20, 300)] * 20), Summarize(3_000))
    (summary, *_) = [call for call in found.calls if call.summary]
    answer = found.calls[found.calls.index(summary) + 1]
    assert (answer.entry, answer.begins, answer.turn) == (summary.entry, True, summary.turn)
    assert summary.usage.cached > 0
    assert summary.usage.output == pytest.approx(500, rel=0.1)
    assert found.epochs == found.summaries > 0


def test_another_text_can_stand_in_for_a_summary() -> None:
    asked: list[tuple[int, int]] = []

    def short(length: int, number: int, counter: Any) -> str:
        asked.append((length, number))
        return placeholder_summary(length // 4, number, counter)

    found = play(talk(*[(20, 300)] * 20), Summarize(3_000), summary=short)
    assert {length for length, _ in asked} == {500}
    assert all(call.usage.output < 200 for call in found.calls if call.summary)


@given(st.integers(50, 4_000), st.integers(0, 99))
def test_a_placeholder_summary_has_the_requested_length(length: int, number: int) -> None:
    text = placeholder_summary(length, number, Estimator())
    assert Estimator().count(text) == pytest.approx(length, rel=0.1)
    assert text != placeholder_summary(length, number + 1, Estimator())


def test_economy_leaves_receipts() -> None:
    found = play(talk(*[(20, 300)] * 30), Economy())
    assert len(found.receipts) == found.epochs > 0
    assert all(receipt.actual for receipt in found.receipts)


def test_a_card_is_sent_again_with_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    transcript, policy = talk(*[(20, 300)] * 12), Memory(recall=0)
    found = play(transcript, policy)
    i = next(i for i, call in enumerate(found.calls) if call.card)
    monkeypatch.setattr(replay, "CARDS", {"": 0, "small": 0, "catch_up": 0})
    without = play(transcript, policy)
    assert found.prompts[: i + 1] == without.prompts[: i + 1]
    assert found.prompts[i + 1] == without.prompts[i + 1] + found.calls[i].card


def test_a_conversation_that_does_not_fit_says_why() -> None:
    tight = msgspec.structs.replace(MARKS, window=1_000)
    found = simulate(talk((5, 10), (5_000, 10), (5, 10)), models=[tight], policies=[KeepAll()])
    assert ["too long for" in each.problem for each in found] == [True, True]
    assert [len(each.calls) for each in found] == [1, 1]


def test_the_provider_may_count_otherwise() -> None:
    class Twice:
        def count(self, text: str) -> int:
            return 2 * counter_for(MARKS.label).count(text)

    usual, found = (play(talk((50, 100), (70, 200)), KeepAll(), **more) for more in ({}, {"reports": Twice()}))
    assert found.usage.input > 1.5 * usual.usage.input


# Complete runs


def test_each_model_has_each_policy_and_the_optimum() -> None:
    found = simulate(talk((5, 10), (7, 20)), models=[MARKS, AUTOMATIC])
    names = [*map(repr, POLICIES), OPTIMUM]
    assert [(each.model, each.policy) for each in found] == [
        (model.label, name) for model in (MARKS, AUTOMATIC) for name in names
    ]


def test_a_play_is_the_same_whatever_was_played_before() -> None:
    long = talk(*[(20, 300)] * 30)
    both = simulate(long, models=[MARKS, AUTOMATIC, COLD])
    alone = [each for model in (MARKS, AUTOMATIC, COLD) for each in simulate(long, models=[model])]
    assert both == alone


def test_policies_may_come_one_by_one() -> None:
    found = simulate(talk((5, 10)), models=[MARKS, COLD], policies=(each for each in (KeepAll(),)), optimum=False)
    assert [each.policy for each in found] == ["KeepAll()", "KeepAll()"]


def test_a_model_is_found_by_its_name() -> None:
    found = play(talk((5, 10)), KeepAll(), "anthropic:claude-sonnet-5")
    assert found.cost is not None
    with pytest.raises(InputError, match="The model 'ollama:none' is unknown"):
        play(talk((5, 10)), KeepAll(), "ollama:none")


@pytest.mark.parametrize(
    ("transcript", "more", "why"),
    [
        (Transcript(), {}, "empty"),
        (messages_of([said("user", 5)]), {}, "no answer to a message"),
        (messages_of([said("assistant", 5)]), {}, "no answer to a message"),
        (messages_of([{"role": "system", "content": "Hi."}]), {}, "no answer to a message"),
        (talk((5, 10)), {"models": []}, "`models` must be a list"),
        (talk((5, 10)), {"models": "anthropic:claude-sonnet-5"}, "`models` must be a list"),
        (talk((5, 10)), {"policies": [KeepLast]}, "A policy must be an object such as"),
    ],
)
def test_input_that_can_not_be_simulated_is_rejected(transcript: Transcript, more: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        simulate(transcript, **{"models": [MARKS], **more})


def test_a_conversation_in_two_wires_is_rejected() -> None:
    one, other = talk((5, 10)), messages_of([said("user", 5), said("assistant", 7)], wire="anthropic")
    with pytest.raises(InputError, match="not anthropic, openai-chat"):
        simulate(Transcript(fresh=(*one, *other)), models=[MARKS])


# Sources of transcripts


def test_a_stored_conversation_is_a_transcript() -> None:
    store = InMemory()
    held = Conversation("lesson", model=Scripted(says("One."), says("Two."), says("Other.")), store=store)
    held.send("First?")
    aside = held.fork(name="aside")
    held.send("Second?")
    aside.send("Else?")
    found = Archive(store).talk("lesson")
    assert [entry.role for entry in transcript_of(found)] == ["user", "assistant"] * 2
    assert b"Else" in transcript_of(found, branch="aside")[2].native
    assert {turn.model for turn in transcript_of(found).turns} == {"scripted:model"}
    with pytest.raises(InputError, match="no branch 'none'"):
        transcript_of(found, branch="none")


def test_a_file_is_a_transcript() -> None:
    state = Chat(Scripted(says("Hi."))).send("Hello!").state
    assert [entry.role for entry in transcript_of(state)] == ["user", "assistant"]
    body = json.dumps({"messages": [said("user", 5), said("assistant", 7)]}).encode()
    assert [entry.role for entry in transcript_of(body)] == ["user", "assistant"]
    with pytest.raises(InputError, match="contains 2"):
        transcript_of(body + b"\n" + body)


# The optimum


sizes = st.lists(st.tuples(st.integers(1, 80), st.integers(1, 600)), min_size=4, max_size=16)
pauses = st.lists(st.sampled_from([1, 1, 1, 9]), min_size=32, max_size=32)


def spaced(transcript: Transcript, pauses: list[int]) -> Transcript:
    times = [MINUTE * sum(pauses[: i + 1]) for i in range(len(transcript))]
    return at(transcript, *times)


@examples(15, 90)
@given(sizes, pauses, st.sampled_from(TABLES), st.sampled_from([None, "You teach the violin. " * 40]))
def test_no_policy_with_summaries_is_cheaper_than_the_optimum(
    sizes: list[tuple[int, int]], pauses: list[int], model: SimulatedModel, system: str | None
) -> None:
    policies = [KeepAll(), Economy(), Summarize(4_000), Summarize(6_000, to=3_500)]
    *plays, best = simulate(spaced(talk(*sizes), pauses), models=[model], policies=policies, system=system)
    assert [each.policy for each in plays if each.weight < 0.999 * best.weight] == []


def weight(setup: ReplaySetup, moments: frozenset[int]) -> float:
    replay = PolicyReplay(setup, schedule_policy(moments))
    calls = tuple(
        SimulatedCall(entry=call.position, turn="", usage=call.usage(setup.model), cost=None, summary=call.summary)
        for call in replay.calls
    )
    return SimulatedRun(policy="", model="", calls=calls, ratios=setup.model.ratios).weight


@examples(8, 37)
@given(
    st.lists(st.tuples(st.integers(1, 80), st.integers(1, 1_500)), min_size=4, max_size=8),
    pauses,
    st.sampled_from(TABLES),
    st.sampled_from([None, "You teach the violin. " * 40]),
)
def test_the_schedule_is_the_best_of_all(
    sizes: list[tuple[int, int]], pauses: list[int], model: SimulatedModel, system: str | None
) -> None:
    setup = ReplaySetup(Trace(spaced(talk(*sizes), pauses), system), model, placeholder_summary, None)
    moments = setup.trace.answers[1:]
    every = [frozenset(some) for size in range(len(moments) + 1) for some in combinations(moments, size)]
    best = min(weight(setup, some) for some in every)
    # Placeholder summaries differ by a token or two.
    assert weight(setup, find_cheapest_schedule(setup)) == pytest.approx(best, rel=0.001)


def test_the_optimum_stays_inside_the_window() -> None:
    narrow = msgspec.structs.replace(MARKS, window=3_000)
    best = simulate(talk(*[(20, 100)] * 40), models=[narrow], policies=[])[-1]
    assert best.epochs == best.summaries > 0
    assert max(best.prompts) <= narrow.window - narrow.answer


def test_a_short_conversation_needs_no_summary() -> None:
    keep, best = simulate(talk((5, 10), (7, 20)), models=[MARKS], policies=[KeepAll()])
    assert best.calls == keep.calls
