"""Test triggers: when they fire, how they are described, and which values they refuse."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longtalk.errors import InputError
from longtalk.policies import AllOf, AnyOf, OverExchanges, OverMessages, OverTokens, OverWindow
from longtalk.policies.limits import resolve_target


class Size(msgspec.Struct):
    exchanges: int = 0
    messages: int = 0
    tokens: int = 0
    window: int = 1_000


@pytest.mark.parametrize(
    ("trigger", "field"),
    [(OverExchanges(7), "exchanges"), (OverMessages(7), "messages"), (OverTokens(7), "tokens")],
)
def test_a_limit_fires_above_its_number_and_not_at_it(trigger: Any, field: str) -> None:
    assert not trigger.fires(Size(**{field: 7}))
    assert trigger.fires(Size(**{field: 8}))


@pytest.mark.parametrize("trigger", [OverExchanges(7), OverMessages(7), OverTokens(7)])
def test_a_limit_looks_at_nothing_else(trigger: Any) -> None:
    fired = [trigger.fires(Size(**{field: 8})) for field in ("exchanges", "messages", "tokens")]
    assert fired.count(True) == 1


def test_a_share_of_the_window_follows_the_window() -> None:
    assert not OverWindow(0.5).fires(Size(tokens=500))
    assert OverWindow(0.5).fires(Size(tokens=501))
    assert not OverWindow(0.5).fires(Size(tokens=501, window=2_000))


def test_the_whole_window_is_a_share() -> None:
    assert not OverWindow(1).fires(Size(tokens=1_000))
    assert OverWindow(1).fires(Size(tokens=1_001))


LIMITS = (OverExchanges(2), OverTokens(100))


@pytest.mark.parametrize(
    ("size", "any_fires", "all_fire"),
    [
        (Size(exchanges=2, tokens=100), False, False),
        (Size(exchanges=3, tokens=100), True, False),
        (Size(exchanges=2, tokens=101), True, False),
        (Size(exchanges=3, tokens=101), True, True),
    ],
)
def test_any_of_limits_fires_when_one_does_and_all_of_them_when_all_do(
    size: Size, any_fires: bool, all_fire: bool
) -> None:
    assert AnyOf(*LIMITS).fires(size) is any_fires
    assert AllOf(*LIMITS).fires(size) is all_fire


def test_combinations_can_be_nested() -> None:
    trigger = AnyOf(OverMessages(50), AllOf(*LIMITS))
    assert trigger.fires(Size(messages=51))
    assert trigger.fires(Size(exchanges=3, tokens=101))
    assert not trigger.fires(Size(exchanges=3, tokens=100, messages=50))


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        (OverExchanges(1), "over 1 exchange"),
        (OverMessages(1), "over 1 message"),
        (OverTokens(1), "over 1 token"),
        (OverExchanges(1_000), "over 1,000 exchanges"),
        (OverMessages(40), "over 40 messages"),
        (OverTokens(8_000), "over 8,000 tokens"),
        (OverWindow(0.8), "over 80% of the window"),
        (AnyOf(OverExchanges(2), OverTokens(9)), "over 2 exchanges or over 9 tokens"),
        (AllOf(OverExchanges(2), OverTokens(9)), "over 2 exchanges and over 9 tokens"),
    ],
)
def test_a_trigger_says_in_words_when_it_fires(trigger: Any, text: str) -> None:
    assert str(trigger) == text


def test_the_repr_of_a_trigger_says_what_it_does_and_nothing_else() -> None:
    assert repr(AnyOf(OverExchanges(2), AllOf(OverTokens(9)))) == (
        "AnyOf(OverExchanges(limit=2), AllOf(OverTokens(limit=9)))"
    )


@pytest.mark.parametrize("limit", [0, -1, 1.5, "3", None, True])
@pytest.mark.parametrize("kind", [OverExchanges, OverMessages, OverTokens])
def test_a_limit_is_a_whole_number_above_zero(kind: Any, limit: Any) -> None:
    with pytest.raises(InputError, match=r"must be an integer of at least 1, not ") as caught:
        kind(limit)
    assert repr(limit) in str(caught.value)


@pytest.mark.parametrize("share", [0, -0.1, 1.01, 80, float("nan"), "0.5", None, True])
def test_a_share_is_a_number_above_0_and_up_to_1(share: Any) -> None:
    with pytest.raises(InputError, match="above 0 and at most 1"):
        OverWindow(share)


@pytest.mark.parametrize("triggers", [(), (OverTokens,), (OverTokens(9), 9)])
@pytest.mark.parametrize("kind", [AnyOf, AllOf])
def test_a_combination_is_of_triggers_and_of_at_least_one(kind: Any, triggers: tuple[Any, ...]) -> None:
    with pytest.raises(InputError, match="trigger"):
        kind(*triggers)


@pytest.mark.parametrize(("limit", "left"), [(10, 5), (5, 2), (1, 1)])
def test_a_cut_leaves_half_of_the_limit_and_at_least_one(limit: int, left: int) -> None:
    assert resolve_target(limit, None, sliding=False) == left


def test_a_sliding_window_is_cut_to_its_limit() -> None:
    assert resolve_target(10, None, sliding=True) == 10


def test_a_target_can_be_chosen() -> None:
    assert resolve_target(10, 9, sliding=False) == 9
    assert resolve_target(10, 10, sliding=False) == 10


def test_a_sliding_window_takes_no_target() -> None:
    with pytest.raises(InputError, match="not both"):
        resolve_target(10, 5, sliding=True)


@pytest.mark.parametrize("to", [0, -1, 11, 2.5, "5", True])
def test_a_target_is_a_whole_number_up_to_the_limit(to: Any) -> None:
    with pytest.raises(InputError, match="`to`"):
        resolve_target(10, to, sliding=False)
