"""Test the cost of calls and turns, which is computed from reported usage and never guessed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import Chat, Conversation, InputError, Reply
from longtalk.models.call_cost import FREE, Cost, Prices, Tier, add_costs, cost
from longtalk.providers.base import Capabilities
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted, says
from longtalk.usage import Usage
from longtalk.wires.anthropic import wire as anthropic

SONNET = Prices(input=2, output=10, cache_read=0.2, cache_write=2.5, cache_write_1h=4)
LONG = Prices(input=2, output=10, tiers=(Tier(above=1_000, input=4, output=15), Tier(above=100, input=3, output=11)))

tokens = st.integers(0, 10**7)
rates = st.floats(0, 1_000, allow_nan=False)
some_prices = st.builds(Prices, input=rates, output=rates, cache_read=rates, cache_write=rates, cache_write_1h=rates)


@st.composite
def draw_usage(draw: st.DrawFn) -> Usage:
    uncached, output, cached, short, hour = (draw(tokens) for _ in range(5))
    return Usage(uncached + cached + short + hour, output, cached, short + hour, hour)


def compute_cost(usage: Usage, prices: Prices, **more: Any) -> Cost:
    found = cost(usage, prices, **more)
    assert found is not None
    return found


# One call


def test_each_part_has_its_price() -> None:
    found = compute_cost(Usage(1_000_000, 200_000, 600_000, 100_000), SONNET)
    assert found == Cost(input=0.6, cached=0.12, written=0.25, output=2.0)
    assert found.total == 2.97


def test_what_is_written_for_an_hour_costs_more() -> None:
    assert compute_cost(Usage(100_000, 0, 0, 100_000), SONNET).written == 0.25
    assert compute_cost(Usage(100_000, 0, 0, 100_000, 40_000), SONNET).written == 0.31
    assert compute_cost(Usage(100_000, 0, 0, 100_000), SONNET, ttl="1h").written == 0.4


def test_another_time_is_refused() -> None:
    with pytest.raises(InputError, match="'5m' or '1h'"):
        cost(Usage(1), SONNET, ttl="1d")  # type: ignore[arg-type]


def test_a_long_request_has_the_prices_of_its_tier_for_all_its_tokens() -> None:
    for sent, price, received in ((100, 2, 10), (101, 3, 11), (1_000, 3, 11), (1_001, 4, 15)):
        found = compute_cost(Usage(sent, 1), LONG)
        assert (found.input, found.output) == (sent * price / 1e6, received / 1e6)


def test_the_tier_of_a_cached_request_is_that_of_its_whole_length() -> None:
    assert cost(Usage(1_001, 0, 1_000), LONG) is None
    assert compute_cost(Usage(1_001, 0), LONG).input == 1_001 * 4 / 1e6


def test_costs_are_the_nearest_floats() -> None:
    assert compute_cost(Usage(3, 3), Prices(input=0.1, output=0.3)) == Cost(3e-7, 0.0, 0.0, 9e-7)


@given(draw_usage())
def test_without_prices_nothing_is_known(usage: Usage) -> None:
    assert cost(usage, None) is None


@given(draw_usage(), st.sampled_from(["cache_read", "cache_write", "cache_write_1h"]))
def test_a_part_with_an_unknown_price_makes_the_total_unknown(usage: Usage, missing: str) -> None:
    prices = {"input": 1, "output": 2, "cache_read": 3, "cache_write": 4, "cache_write_1h": 5} | {missing: None}
    unpriced_tokens = {
        "cache_read": usage.cached,
        "cache_write": usage.written - usage.written_1h,
        "cache_write_1h": usage.written_1h,
    }[missing]
    assert (cost(usage, Prices(**prices)) is None) == (unpriced_tokens > 0)  # type: ignore[arg-type]


@given(draw_usage(), some_prices)
def test_the_total_is_the_sum_of_the_parts_and_each_part_of_what_was_used(usage: Usage, prices: Prices) -> None:
    found = compute_cost(usage, prices)
    assert found.total == pytest.approx(found.input + found.cached + found.written + found.output)
    alone = [
        Usage(usage.input - usage.cached - usage.written),
        Usage(usage.cached, 0, usage.cached),
        Usage(usage.written, 0, 0, usage.written, usage.written_1h),
        Usage(0, usage.output),
    ]
    assert add_costs(cost(each, prices) for each in alone) == found


@given(draw_usage(), draw_usage(), some_prices)
def test_more_tokens_never_cost_less_and_two_calls_cost_what_they_cost(one: Usage, two: Usage, prices: Prices) -> None:
    both = compute_cost(one + two, prices)
    assert both.total >= compute_cost(one, prices).total
    added = add_costs([cost(one, prices), cost(two, prices)])
    assert added is not None
    assert both.total == pytest.approx(added.total)


@given(draw_usage(), some_prices)
def test_only_what_is_free_or_unused_costs_nothing(usage: Usage, prices: Prices) -> None:
    cheapest = min(prices.input, prices.output, *(prices.cache_read or 0, prices.cache_write or 0))
    if min(cheapest, prices.cache_write_1h or 0) > 1e-300 and usage.input + usage.output > 0:
        assert compute_cost(usage, prices).total > 0
    assert compute_cost(usage, FREE).total == 0


@pytest.mark.parametrize(
    "usage", [Usage(5, 1, 6), Usage(5, 1, 3, 3), Usage(-1), Usage(5, -1), Usage(5, 1, -1), Usage(5, 0, 0, 3, 4)]
)
def test_a_report_that_can_not_be_true_has_no_cost(usage: Usage) -> None:
    assert cost(usage, SONNET) is None


def test_a_sum_with_something_unknown_is_unknown() -> None:
    assert add_costs([Cost(1.0), None]) is None
    assert add_costs([]) == Cost()
    assert add_costs([Cost(0.1), Cost(0.2, 1.0)]) == Cost(0.3, 1.0)


# A turn


def run_turn(*steps: Any, prices: Prices | None = SONNET, wire: Any = None, **options: Any) -> Reply:
    def look(key: str) -> str:
        """Look something up."""
        return key

    provider = Scripted(*steps, **({"wire": wire} if wire else {}))
    provider.capabilities = Capabilities(prices=prices)
    return Chat(provider, tools=[look]).send("Hello", options=options)


CALL: Any = {"calls": [("c1", "look", {"key": "a"})]}


def make_usage(sent: int, received: int, **details: int) -> dict[str, Any]:
    return {"prompt_tokens": sent, "completion_tokens": received, "prompt_tokens_details": details}


def test_a_turn_costs_what_its_calls_cost_each_in_its_own_tier() -> None:
    steps = says(**CALL, usage=make_usage(100, 10)), says("Done.", usage=make_usage(101, 20))
    reply = run_turn(*steps, prices=LONG)
    assert reply.cost == Cost(input=(200 + 303) / 1e6, output=(100 + 220) / 1e6)
    assert reply.usage == Usage(201, 30)
    assert [json.loads(raw)["prompt_tokens"] for raw in reply.raw_usage] == [100, 101]


def test_a_turn_of_a_model_without_a_price_has_no_cost() -> None:
    reply = run_turn(says("Done."), prices=None)
    assert reply.cost is None
    assert reply.usage == Usage(10, 5)


@pytest.mark.parametrize("usage", [{"odd": 1}, make_usage(0, 0), make_usage(0, 5), make_usage(5, 1, cached_tokens=6)])
def test_a_turn_whose_usage_is_not_reported_has_no_cost(usage: dict[str, Any]) -> None:
    assert run_turn(says("Done.", usage=usage)).cost is None
    assert run_turn(says(**CALL, usage=make_usage(100, 10)), says("Done.", usage=usage)).cost is None
    assert run_turn(says("Done.", usage=usage), prices=FREE).cost == Cost()


def test_a_stream_that_was_cut_before_its_report_has_no_cost() -> None:
    provider = Scripted(says("One two three four.", pieces=4))
    provider.capabilities = Capabilities(prices=SONNET)
    stream = Chat(provider).stream("Hello")
    next(stream)
    stream.close()
    assert stream.reply.text
    assert stream.reply.cost is None


def test_what_anthropic_keeps_for_an_hour_is_paid_for() -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 30}
    usage["cache_creation"] = {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20}  # type: ignore[assignment]
    reply = run_turn(says("Done.", usage=usage, wire="anthropic"), wire=anthropic.WIRE)
    assert reply.cost == Cost(20 / 1e6, 20 / 1e6, 105 / 1e6, 50 / 1e6)


@pytest.mark.parametrize(("tier", "has"), [("default", True), ("auto", True), ("priority", False), ("flex", False)])
def test_an_option_with_a_price_of_its_own_makes_the_cost_unknown(tier: str, has: bool) -> None:
    assert (run_turn(says("Done."), service_tier=tier).cost is not None) is has


def test_a_turn_that_another_model_began_has_no_cost() -> None:
    first = Scripted(says(**CALL))
    first.capabilities = Capabilities(prices=SONNET)

    def look(key: str) -> str:
        """Look something up."""
        return key

    stream = Chat(first, tools=[look]).stream("Hello")
    state = next(event.state for event in stream if hasattr(event, "state"))
    for label, has in (("scripted:other", False), ("scripted:model", True)):
        second = Scripted(says("Done."))
        second.label, second.capabilities = label, Capabilities(prices=SONNET)
        reply = Chat(second, tools=[look]).send(None, state=state)
        assert len(reply.raw_usage) == 2
        assert (reply.cost is not None) is has


def test_a_reply_that_is_given_again_costs_what_it_did() -> None:
    store = InMemory()
    costs = []
    for label in ("scripted:model", "scripted:model", "scripted:other"):
        provider = Scripted(says("Done.", usage=make_usage(1_000, 100)))
        provider.label, provider.capabilities = label, Capabilities(prices=SONNET)
        costs.append(Conversation("c", model=provider, store=store).send("Hello", key="k").cost)
    assert costs == [Cost(0.002, 0.0, 0.0, 0.001)] * 2 + [None]
    provider = Scripted()
    provider.capabilities = Capabilities(prices=SONNET)
    again = Conversation("c", model=provider, store=store)
    assert again.send("Hello", key="k", options={"service_tier": "flex"}).cost is None
