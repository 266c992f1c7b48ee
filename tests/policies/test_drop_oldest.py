"""Test that the oldest exchanges are left out first, each as a whole, and only as many as needed."""

from __future__ import annotations

import msgspec
import pytest

from longtalk.context.epochs import begin_epoch
from longtalk.context.planning import make_plan
from longtalk.policies import Compactor, DigestTools, DropOldest, OverExchanges, OverMessages, TokenBudget, View
from longtalk.policies.drop_oldest import MAX_TOOL_LINES
from tests.policies.views import conversation, said, talked, terms, tokens, view_of, worked

ONE = Compactor(OverExchanges(1), (DigestTools(keep=1), DropOldest()), OverExchanges(1))
"""Digests all tools, and then leaves the current exchange alone."""
FIVE = conversation(*[talked(n) for n in range(5)])


def left(view: View) -> list[int]:
    return [block.first // 2 for block in view.blocks]


def test_as_few_exchanges_go_as_the_target_asks_for() -> None:
    view = DropOldest().apply(view_of(FIVE), tokens(60))
    assert left(view) == [2, 3, 4]
    assert view.tokens == 60


def test_one_token_less_costs_one_exchange_more() -> None:
    assert left(DropOldest().apply(view_of(FIVE), tokens(59))) == [3, 4]


def test_what_is_within_the_target_stays() -> None:
    view = DropOldest().apply(view_of(FIVE), tokens(100))
    assert (view.blocks, view.lines) == (view_of(FIVE).blocks, [])


def test_the_target_counts_and_not_the_limit() -> None:
    assert left(DropOldest().apply(view_of(FIVE), tokens(1_000, 40))) == [3, 4]


def test_the_current_exchange_stays_whatever_the_target_is() -> None:
    assert left(DropOldest().apply(view_of(FIVE), tokens(1))) == [4]


def test_the_exchange_before_the_current_one_stays_within_the_limit_but_over_the_target() -> None:
    assert left(DropOldest().apply(view_of(FIVE), tokens(40, 39))) == [3, 4]
    assert left(DropOldest().apply(view_of(FIVE), tokens(39, 39))) == [4]
    assert left(DropOldest().apply(view_of(FIVE), tokens(40, 1))) == [3, 4]


def test_the_exchange_before_the_current_one_stays_beside_pinned_ones() -> None:
    assert left(DropOldest().apply(view_of(FIVE, pinned=[0]), tokens(60, 40))) == [0, 3, 4]
    assert left(DropOldest().apply(view_of(FIVE, pinned=[0]), tokens(59, 40))) == [0, 4]


def test_if_the_exchange_before_the_current_one_is_pinned_no_other_stays_over_the_target() -> None:
    assert left(DropOldest().apply(view_of(FIVE, pinned=[3]), tokens(60, 40))) == [3, 4]


def test_only_the_exchange_before_the_current_one_may_stay_over_the_target() -> None:
    assert left(DropOldest().apply(view_of(FIVE), tokens(100, 41))) == [3, 4]
    assert left(DropOldest().apply(view_of(FIVE), tokens(100, 1))) == [3, 4]


def test_pinned_exchanges_stay_and_others_go_instead() -> None:
    assert left(DropOldest().apply(view_of(FIVE, pinned=[0, 2]), tokens(60))) == [0, 2, 4]


def test_with_all_pinned_nothing_goes() -> None:
    view = view_of(FIVE, pinned=range(5))
    assert DropOldest().apply(view, tokens(1)).blocks == view.blocks


def test_exchanges_and_messages_are_targets_too() -> None:
    of = view_of(conversation(*[worked(n) for n in range(4)], [said("now")]))
    exchanges = Compactor(OverExchanges(4), (DropOldest(),), OverExchanges(3))
    assert len(exchanges.apply(of).blocks) == 3
    messages = Compactor(OverMessages(9), (DropOldest(),), OverMessages(9))
    assert len(messages.apply(of).blocks) == 3


def test_what_the_provider_reports_counts_and_not_what_we_count() -> None:
    assert left(DropOldest().apply(view_of(FIVE, scale=2.0), tokens(80))) == [3, 4]


def test_a_digested_exchange_leaves_its_lines_at_the_head() -> None:
    view = ONE.apply(view_of(conversation(worked(0, "found"), [said("now")])))
    assert len(view.blocks) == 1
    assert view.lines == ['look({"n":0}) → found']


def test_the_lines_of_several_exchanges_are_in_their_order() -> None:
    view = ONE.apply(view_of(conversation(*[worked(n) for n in range(3)], [said("now")])))
    assert [line[:13] for line in view.lines] == ['look({"n":0})', 'look({"n":1})', 'look({"n":2})']


def test_lines_of_earlier_epochs_stay_before_them() -> None:
    view = view_of(conversation(worked(0, "found"), [said("now")]))
    assert ONE.apply(msgspec.structs.replace(view, lines=("earlier",))).lines == ["earlier", 'look({"n":0}) → found']


def test_where_tools_are_not_digested_there_are_none() -> None:
    view = DropOldest().apply(view_of(conversation(worked(0), worked(1), [said("now")])), ONE)
    assert (len(view.blocks), view.lines) == (1, [])


def test_of_many_lines_the_newest_stay() -> None:
    view = ONE.apply(view_of(conversation(*[worked(n) for n in range(MAX_TOOL_LINES + 5)], [said("now")])))
    assert len(view.lines) == MAX_TOOL_LINES
    assert view.lines[0].startswith('look({"n":5})')
    assert view.lines[-1].startswith(f'look({{"n":{MAX_TOOL_LINES + 4}}})')


def test_lines_count_as_part_of_the_request() -> None:
    view = ONE.apply(view_of(conversation(worked(0), [said("now")])))
    assert view.tokens == len("now") + len(view.lines[0])


def test_where_tools_are_digested_also_an_exchange_that_was_not_leaves_its_lines() -> None:
    view = view_of(conversation(worked(0, "one"), worked(1, "two"), [said("now")]))
    whole = msgspec.structs.replace(view, digests=True)
    assert not any(block.altered for block in whole.blocks)
    assert DropOldest().apply(whole, ONE).lines == ['look({"n":0}) → one', 'look({"n":1}) → two']
    # Those of the last exchanges, which are not digested, are as good as the others.
    kept = Compactor(OverExchanges(1), (DigestTools(keep=3), DropOldest()), OverExchanges(1))
    assert kept.apply(view).lines == ['look({"n":0}) → one', 'look({"n":1}) → two']


def test_an_exchange_that_stays_leaves_no_line() -> None:
    two = Compactor(OverExchanges(2), (DigestTools(keep=1), DropOldest()), OverExchanges(2))
    view = two.apply(view_of(conversation(worked(0, "one"), worked(1, "two"), [said("now")])))
    assert (len(view.blocks), view.lines) == (2, ['look({"n":0}) → one'])


def test_an_exchange_with_many_calls_leaves_its_last_ones() -> None:
    busy = [said("go"), *[entry for n in range(MAX_TOOL_LINES + 3) for entry in worked(n)[1:3]]]
    lines = ONE.apply(view_of(conversation(worked(99), busy, [said("now")]))).lines
    assert [line.partition(" ")[0] for line in lines] == [f'look({{"n":{n}}})' for n in range(3, MAX_TOOL_LINES + 3)]


LINE = len('look({"n":0}) → ') + 4
"""Tokens of a line about a result of four letters; between two of them there is one more."""


@pytest.mark.parametrize(
    ("over", "to", "lines"),
    [
        # The exchange before stays and has 34 tokens, and the current one 10.
        (99, 44, 0),
        (99, 44 + LINE - 1, 0),
        (99, 44 + LINE, 1),
        # The target can't be reached: the lines have what room the limit has.
        (44, 1, 0),
        (44 + LINE - 1, 1, 0),
        (44 + LINE, 1, 1),
        (44 + 2 * LINE + 1, 1, 2),
        # Nor can the limit: they have none.
        (9, 9, 0),
        # What is left is within it.
        (10, 10, 0),
        (10 + LINE, 10 + LINE, 1),
    ],
)
def test_lines_have_the_room_of_the_target_or_of_the_limit_where_that_is_not_reached(
    over: int, to: int, lines: int
) -> None:
    view = view_of(conversation(*[worked(n, "done") for n in range(3)], [said("n" * 10)]))
    view = DropOldest().apply(msgspec.structs.replace(view, digests=True), tokens(over, to))
    assert len(view.lines) == lines
    assert not lines or view.tokens <= over
    gone = 4 - len(view.blocks)
    assert [line[:13] for line in view.lines] == [f'look({{"n":{n}}})' for n in range(gone - lines, gone)]


def test_what_an_earlier_epoch_has_digested_leaves_its_lines_whichever_limit_fires() -> None:
    policy = TokenBudget(1_000, to=900, digest=DigestTools(keep=1))
    of = conversation(*[worked(n, "r" * 250) for n in range(4)], [said("now")])
    of = begin_epoch(of, make_plan(of, policy, terms()).epoch)
    assert make_plan(of, policy, terms(window=540)).epoch.lines
