"""The oldest exchanges go first, each whole, and no more of them than needed."""

from __future__ import annotations

import msgspec

from longtalk.policies import Compactor, DigestTools, DropOldest, OverExchanges, OverMessages, View
from longtalk.policies.view import LINES
from tests.policies.views import conversation, said, talked, tokens, view_of, worked

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
    assert DropOldest().apply(view_of(FIVE), tokens(100)) == view_of(FIVE)


def test_the_target_counts_and_not_the_limit() -> None:
    assert left(DropOldest().apply(view_of(FIVE), tokens(1_000, 40))) == [3, 4]


def test_the_current_exchange_stays_whatever_the_target_is() -> None:
    assert left(DropOldest().apply(view_of(FIVE), tokens(1))) == [4]


def test_pinned_exchanges_stay_and_others_go_instead() -> None:
    assert left(DropOldest().apply(view_of(FIVE, pinned=[0, 2]), tokens(60))) == [0, 2, 4]


def test_with_all_pinned_nothing_goes() -> None:
    view = view_of(FIVE, pinned=range(5))
    assert DropOldest().apply(view, tokens(1)) == view


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
    assert view.lines == ('look({"n":0}) → found',)


def test_the_lines_of_several_exchanges_are_in_their_order() -> None:
    view = ONE.apply(view_of(conversation(*[worked(n) for n in range(3)], [said("now")])))
    assert [line[:13] for line in view.lines] == ['look({"n":0})', 'look({"n":1})', 'look({"n":2})']


def test_lines_of_earlier_epochs_stay_before_them() -> None:
    view = view_of(conversation(worked(0, "found"), [said("now")]))
    assert ONE.apply(msgspec.structs.replace(view, lines=("earlier",))).lines == ("earlier", 'look({"n":0}) → found')


def test_an_exchange_that_was_not_digested_leaves_none() -> None:
    view = DropOldest().apply(view_of(conversation(worked(0), worked(1), [said("now")])), ONE)
    assert (len(view.blocks), view.lines) == (1, ())


def test_of_many_lines_the_newest_stay() -> None:
    view = ONE.apply(view_of(conversation(*[worked(n) for n in range(LINES + 5)], [said("now")])))
    assert len(view.lines) == LINES
    assert view.lines[0].startswith('look({"n":5})')
    assert view.lines[-1].startswith(f'look({{"n":{LINES + 4}}})')


def test_lines_count_as_part_of_the_request() -> None:
    view = ONE.apply(view_of(conversation(worked(0), [said("now")])))
    assert view.tokens == len("now") + len(view.lines[0])
