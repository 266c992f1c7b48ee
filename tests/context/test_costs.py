"""What carrying on costs, against what a new epoch does. All numbers are worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.context.costs import RECALL_SHARE, CostReceipt, Meter, Ratios, compare_costs, compute_ratios
from longtalk.models.call_cost import FREE, Prices, Tier
from longtalk.usage import Usage

TALK: dict[str, Any] = {
    "carried": 100.0,
    "preamble": 1_000,
    "head": 0,
    "old": 2_000,
    "recent": 500,
    "new": 100,
    "length": 200,
}


# Ratios


def test_prices_are_relative_to_an_uncached_input_token() -> None:
    prices = Prices(input=3, output=15, cache_read=0.3, cache_write=3.75)
    found = compute_ratios(prices, 1_000, caches=True)
    assert (found.read, found.write, found.output) == pytest.approx((0.1, 1.25, 5.0))
    assert found.unit == pytest.approx(0.000_003)


@pytest.mark.parametrize("prices", [None, FREE, Prices(input=0, output=7)])
def test_unknown_and_free_ones_are_the_usual(prices: Prices | None) -> None:
    assert compute_ratios(prices, 1_000, caches=True) == Ratios(0.1, 1.25, 5.0, None)


def test_a_provider_without_a_price_for_its_cache() -> None:
    prices = Prices(input=2, output=6)
    # What it reads is as cheap as elsewhere if it has one, and writing costs nothing more.
    assert compute_ratios(prices, 1, caches=True) == Ratios(pytest.approx(0.1), 1.0, 3.0, pytest.approx(0.000_002))
    assert compute_ratios(prices, 1, caches=False) == Ratios(1.0, 1.0, 3.0, pytest.approx(0.000_002))


def test_a_long_request_has_the_prices_of_its_tier() -> None:
    prices = Prices(input=1, output=4, cache_read=0.5, tiers=(Tier(above=10_000, input=2, output=6, cache_read=0.2),))
    assert compute_ratios(prices, 10_000, caches=True).read == 0.5
    assert (compute_ratios(prices, 10_001, caches=True).read, compute_ratios(prices, 10_001, caches=True).output) == (
        0.1,
        3.0,
    )


# What recall may spend


def test_recall_may_spend_a_share_of_what_the_rest_of_the_conversation_has_cost() -> None:
    meter = Meter(epoch=0, model="m", preamble="", size=2, ratios=Ratios(read=0.1, write=1.25, output=5.0))
    meter = meter.add_call(Usage(input=1_500, cached=1_000, output=100), 200)
    assert (meter.spent, meter.recalled, meter.ratios) == (500 + 100 + 500, 200, None)
    assert meter.compute_credit(100) == pytest.approx(RECALL_SHARE * 900 - 200)


def test_what_an_imported_conversation_has_cost_follows_from_its_length() -> None:
    meter = Meter(epoch=0, model="", preamble="", size=0)
    assert meter.compute_credit(10_000) == pytest.approx(RECALL_SHARE * 20_000)


# A model call


@pytest.mark.parametrize(
    ("usage", "weight"),
    [
        (Usage(), 0),
        (Usage(input=1_000), 1_000),
        (Usage(input=1_000, output=100), 1_500),
        (Usage(input=1_000, cached=900), 190),
        (Usage(input=1_000, cached=600, written=300, output=10), 100 + 60 + 375 + 50),
        # Some report less than they have read.
        (Usage(input=10, cached=900), 90),
    ],
)
def test_a_call_is_weighed_in_uncached_input_tokens(usage: Usage, weight: float) -> None:
    assert Ratios().weigh(usage) == pytest.approx(weight)


# The balance


def test_while_the_cache_is_warm() -> None:
    found = compare_costs(Ratios(), warm=True, **TALK)
    # Asking: 0.1 × 3,000 read, 145 to ask, 5 × 200 answered. Then 0.1 × 1,000 read, 1.25 × 800 written.
    assert found.predicted == pytest.approx(300 + 145 + 1_000 + 100 + 1_000)
    # To go on: 0.1 × 3,500 read, 1.25 × 100 written.
    assert found.price == pytest.approx(2_545 - 475)
    assert found.carried == pytest.approx(100 + 200)
    assert found.rate == 0.1
    assert not found.due


def test_when_it_is_cold() -> None:
    found = compare_costs(Ratios(), warm=False, **TALK)
    # Asking: 1.25 × 3,000 written, 145, 5 × 200. Then 0.1 × 1,000 read, 1.25 × 800 written. To go on: 1.25 × 3,600.
    assert found.predicted == pytest.approx(3_750 + 145 + 1_000 + 100 + 1_000)
    assert found.price == pytest.approx(5_995 - 4_500)
    assert found.carried == pytest.approx(100 + 2_500)
    assert found.rate == 1.25
    assert found.due


@pytest.mark.parametrize(("carried", "due"), [(1_869.0, False), (1_871.0, True)])
def test_a_summary_is_due_when_carrying_has_cost_as_much(carried: float, due: bool) -> None:
    # 200 for the next call, and 2,070 is the price.
    assert compare_costs(Ratios(), warm=True, **{**TALK, "carried": carried}).due is due


def test_the_summary_that_is_there_is_read_too() -> None:
    with_head = compare_costs(Ratios(), warm=True, **{**TALK, "head": 200})
    without = compare_costs(Ratios(), warm=True, **TALK)
    assert with_head.predicted - without.predicted == pytest.approx(20)
    # It would be read in any case.
    assert with_head.price == pytest.approx(without.price)


def test_a_new_epoch_costs_at_least_the_writing_of_its_summary() -> None:
    # If writing were cheaper than reading, writing everything again would be a gain.
    cheap = Ratios(read=1.0, write=0.1)
    found = compare_costs(cheap, warm=True, carried=0, preamble=0, head=0, old=1_000, recent=10_000, new=0, length=200)
    assert found.price == 5 * 200


@given(st.booleans(), st.lists(st.integers(0, 10**9), min_size=6, max_size=6), st.floats(0, 1e12))
def test_no_price_is_less_than_nothing(warm: bool, numbers: list[int], carried: float) -> None:
    names = ("preamble", "head", "old", "recent", "new", "length")
    found = compare_costs(Ratios(), warm=warm, carried=carried, **dict(zip(names, numbers, strict=True)))
    assert found.price >= 0
    assert found.carried >= carried
    assert found.predicted >= 145


def test_an_epoch_spares_what_its_requests_are_shorter() -> None:
    made = {"epoch": 4, "at": 0, "reason": "", "carried": 0.0, "predicted": 0.0, "ratios": Ratios()}
    assert CostReceipt(before=900, after=300, **made).spared == 600  # type: ignore[arg-type]
    assert CostReceipt(before=300, after=900, **made).spared == 0  # type: ignore[arg-type]
