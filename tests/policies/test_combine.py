"""Test that several limits hold at once, whichever of them is exceeded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from longtalk import Chat
from longtalk.context.epochs import find_epoch
from longtalk.context.planning import make_plan
from longtalk.errors import InputError
from longtalk.policies import (
    AllOf,
    AnyOf,
    Combine,
    Compactor,
    DigestTools,
    DropOldest,
    KeepAll,
    KeepLast,
    KeepMessages,
    OverExchanges,
    OverMessages,
    OverTokens,
    Size,
    TokenBudget,
    View,
)
from longtalk.policies.base import fingerprint_policy
from longtalk.testing import Scripted, says
from longtalk.testing.policies import check_policy
from tests.policies.views import answered, conversation, grown, said, sent, talked, terms, worked

LONG = [said("q" * 10), answered("a" * 400)]


@dataclass(frozen=True)
class MoreThanTwice:
    """A trigger of one's own: more messages than twice the exchanges."""

    def fires(self, size: Size) -> bool:
        return size.messages > 2 * size.exchanges


@dataclass(frozen=True)
class DropSecond:
    """A strategy of one's own: the second exchange goes, if there is one besides the current one."""

    def apply(self, view: View, limits: Compactor) -> View:
        return view.with_blocks([block for i, block in enumerate(view.blocks) if i != 1 or i == len(view.blocks) - 1])


@dataclass(frozen=True)
class Undo:
    """Takes back what was done to the exchanges."""

    def apply(self, view: View, limits: Compactor) -> View:
        return view.with_blocks([view.make_block(b.first, b.stop, pinned=False) for b in view.blocks])


@dataclass(frozen=True)
class LastFourWhole:
    """Leaves the last four exchanges, and takes back what was done to them."""

    def apply(self, view: View, limits: Compactor) -> View:
        return view.with_blocks([view.make_block(b.first, b.stop, pinned=False) for b in view.blocks[-4:]])


@dataclass(frozen=True)
class DropLast:
    """A strategy that does what none may: the current exchange goes."""

    def apply(self, view: View, limits: Compactor) -> View:
        return view.with_blocks(view.blocks[:-1])


@dataclass(frozen=True)
class DropAll:
    def apply(self, view: View, limits: Compactor) -> View:
        return view.with_blocks(())


@dataclass(frozen=True)
class Useless:
    def apply(self, view: View, limits: Compactor) -> View:
        return view


def test_either_limit_cuts() -> None:
    both = Combine(KeepLast(4), TokenBudget(100_000))
    assert len(sent(conversation(*[talked(n) for n in range(5)], [said("now")]), both)) == 3
    both = Combine(KeepLast(100), TokenBudget(100, to=50))
    assert len(sent(conversation(*[talked(n) for n in range(5)], [said("now")]), both)) == 5


def test_after_a_cut_every_limit_holds() -> None:
    # The last four exchanges alone are over the budget.
    of = conversation(*[talked(n) for n in range(9)], LONG, LONG, [said("now")])
    texts = sent(of, Combine(KeepLast(8, to=4), TokenBudget(500, sliding=True)))
    assert len(texts) == 3
    assert sum(map(len, texts)) <= 500


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_policies_does_not_matter_for_what_holds(order: int) -> None:
    policies = [KeepLast(8, to=4), TokenBudget(500), KeepMessages(6)][::order]
    of = conversation(*[talked(n) for n in range(9)], LONG, LONG, [said("now")])
    texts = sent(of, Combine(*policies))
    assert sum(map(len, texts)) <= 500
    assert len(texts) <= 6


def test_a_limit_that_is_not_exceeded_does_not_cut_to_its_target() -> None:
    of = conversation(*[talked(n) for n in range(5)], [said("now")])
    assert len(sent(of, Combine(KeepLast(5, to=5), TokenBudget(1_000, to=1)))) == 9


def test_a_combination_of_nothing_keeps_all() -> None:
    of = conversation(*[talked(n) for n in range(5)], [said("now")])
    assert sent(of, Combine()) == sent(of, KeepAll()) == sent(of, Combine(KeepAll(), Combine()))


def test_combinations_can_be_nested() -> None:
    of = conversation(*[talked(n) for n in range(5)], [said("now")])
    assert len(sent(of, Combine(KeepAll(), Combine(KeepLast(9), Combine(KeepLast(4)))))) == 3


def test_equal_combinations_go_on_in_each_other_s_epochs() -> None:
    one, same = (Combine(KeepLast(2), TokenBudget(10, digest=DigestTools())) for _ in range(2))
    assert fingerprint_policy(one) == fingerprint_policy(same)
    assert fingerprint_policy(one) != fingerprint_policy(Combine(KeepLast(3), TokenBudget(10, digest=DigestTools())))


@pytest.mark.parametrize("wrong", [KeepLast, 5, "KeepLast(5)", None, OverTokens(5)])
def test_what_is_no_policy_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="A policy must be an object such as"):
        Combine(KeepAll(), wrong)


def test_all_of_limits_cut_only_when_all_are_exceeded() -> None:
    both = Compactor(AllOf(OverExchanges(3), OverTokens(200)), (DropOldest(),), OverExchanges(1))
    short = [talked(n) for n in range(6)]
    assert len(sent(conversation(*short, [said("now")]), both)) == 13
    assert len(sent(conversation(LONG, [said("now")]), both)) == 3
    # The one before the current one stays: with it, not all of the limits are exceeded.
    assert len(sent(conversation(*short, LONG, [said("now")]), both)) == 3


def test_any_of_limits_cuts_when_one_is_exceeded_and_its_target_is_for_all() -> None:
    either = Compactor(
        AnyOf(OverMessages(20), OverTokens(400)), (DropOldest(),), AnyOf(OverMessages(5), OverTokens(60))
    )
    assert len(sent(conversation(*[talked(n) for n in range(6)], [said("now")]), either)) == 13
    assert len(sent(conversation(*[talked(n) for n in range(12)], [said("now")]), either)) == 5
    assert len(sent(conversation(talked(0), LONG, talked(1), [said("now")]), either)) == 3


def test_strategies_go_in_a_row_until_the_target_holds() -> None:
    of = conversation(*[worked(n, "r" * 300) for n in range(4)], [said("now")])
    digest_only = Compactor(OverTokens(1_000), (DigestTools(keep=1), DropOldest()), OverTokens(1_000))
    assert any("question 0" in text for text in sent(of, digest_only))
    both = Compactor(OverTokens(1_000), (DigestTools(keep=1), DropOldest()), OverTokens(400))
    assert not any("question 0" in text for text in sent(of, both))


def test_a_trigger_of_one_s_own_decides_when() -> None:
    policy = Compactor(MoreThanTwice(), (DropOldest(),), MoreThanTwice())
    assert len(sent(conversation(talked(0), talked(1), [said("now")]), policy)) == 5
    assert sent(conversation(worked(0), [said("now")]), policy) == ["now"]


def test_the_repr_of_a_custom_trigger_is_the_reason_in_the_manifest() -> None:
    policy = Compactor(MoreThanTwice(), (DropOldest(),), MoreThanTwice())
    of = conversation(worked(0), [said("now")])
    assert make_plan(of, policy, terms()).epoch.reason == "MoreThanTwice()"


def test_a_strategy_of_one_s_own_decides_what() -> None:
    policy = Compactor(OverExchanges(3), (DropSecond(),), OverExchanges(3))
    assert sent(conversation(*[talked(n) for n in range(3)], [said("now")]), policy) == [
        *("question 0", "answer   0", "question 2", "answer   2", "now"),
    ]
    for request in grown(policy, *[talked(n) for n in range(9)]):
        assert request[0] == "question 0"
        assert len(request) <= 5


def test_a_policy_of_one_s_own_is_checked_like_any_other() -> None:
    policy = Compactor(OverExchanges(3), (DropSecond(),), OverExchanges(3))
    played = check_policy(policy, conversation(*[worked(n) for n in range(9)]))
    assert (played.requests, played.epochs) == (18, 6)


def test_strategies_that_undo_each_other_come_to_an_end() -> None:
    policy = Combine(
        Compactor(OverMessages(8), (DigestTools(keep=1),), OverMessages(1)),
        Compactor(OverMessages(1), (Undo(),), OverMessages(1)),
    )
    assert sent(conversation(*[worked(n) for n in range(5)], [said("now")]), policy)[-1] == "now"


def test_a_strategy_that_does_nothing_begins_no_epoch() -> None:
    policy = Compactor(OverExchanges(1), (Useless(),), OverExchanges(1))
    made = make_plan(conversation(talked(0), [said("now")]), policy, terms())
    assert not made.begins
    assert made.epoch == find_epoch(conversation(), fingerprint_policy(policy))


def test_a_compactor_is_a_policy_by_itself() -> None:
    compactor = Compactor(OverExchanges(2), (DropOldest(),), OverExchanges(1))
    assert tuple(compactor.compactors) == (compactor,)
    assert sent(conversation(talked(0), talked(1), [said("now")]), compactor) == ["question 1", "answer   1", "now"]


def test_a_limit_that_a_later_policy_exceeds_again_is_looked_at_again() -> None:
    policy = Combine(
        Compactor(OverMessages(10), (DigestTools(keep=1),), OverMessages(10)),
        Compactor(OverTokens(1_000), (LastFourWhole(),), OverTokens(1_000)),
    )
    epoch = make_plan(conversation(*[worked(n, "r" * 300) for n in range(9)], [said("now")]), policy, terms()).epoch
    assert epoch.exchanges == 4
    # Whole, they were thirteen messages.
    assert epoch.messages == 10
    assert epoch.tokens <= 1_000


@pytest.mark.parametrize(
    ("parts", "wrong"),
    [
        ((OverTokens(9), [DropOldest()], OverTokens(5)), r"`strategies` must be a tuple .*not \[DropOldest\(\)\]"),
        ((OverTokens(9), DropOldest(), OverTokens(5)), r"`strategies` must be a tuple .*not DropOldest\(\)"),
        ((OverTokens(9), None, OverTokens(5)), "`strategies` must be a tuple .*not None"),
        ((9, (DropOldest(),), OverTokens(5)), "a trigger such as .* that has a method `fires`, not 9"),
        ((OverTokens(9), (DropOldest(),), 5), "a trigger such as .* that has a method `fires`, not 5"),
        ((OverTokens, (DropOldest(),), OverTokens(5)), "a trigger such as .*not <class"),
        ((OverTokens(9), (DropOldest(),), OverTokens), "a trigger such as .*not <class"),
        ((OverTokens(9), (DropOldest,), OverTokens(5)), "a strategy such as .*not <class"),
        (
            (OverTokens(9), (DropOldest(), OverTokens(5)), OverTokens(5)),
            "a strategy .* that has a method `apply`",
        ),
        ((OverTokens(9), ("drop",), OverTokens(5)), "a strategy such as .*not 'drop'"),
    ],
)
def test_a_compactor_checks_its_parts_when_it_is_made(parts: tuple[Any, ...], wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        Compactor(*parts)


@pytest.mark.parametrize("strategy", [DropLast(), DropAll()])
def test_a_strategy_that_leaves_out_the_current_exchange_is_told_by_name(strategy: Any) -> None:
    policy = Compactor(OverExchanges(1), (strategy,), OverExchanges(1))
    with pytest.raises(InputError, match=r"Drop(Last|All)\(\) left out the current exchange"):
        sent(conversation(talked(0), [said("now")]), policy)
    provider = Scripted(says("a"))
    chat = Chat(provider, policy=policy)
    state = chat.send("x").state
    with pytest.raises(InputError, match="the current exchange, which must be kept"):
        chat.send("y", state=state)
    assert len(provider.requests) == 1
