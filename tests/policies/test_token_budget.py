"""Test that requests never exceed a number of tokens or a share of the window."""

from __future__ import annotations

import re
from typing import Any

import pytest

from longtalk.context.planning import make_plan
from longtalk.errors import InputError
from longtalk.policies import DigestTools, TokenBudget, WindowShare
from tests.policies.views import answered, conversation, grown, said, sent, talked, terms, worked


def lengths(requests: list[list[str]]) -> list[int]:
    return [sum(map(len, texts)) for texts in requests]


def test_at_the_limit_a_request_is_cut_to_half_of_it() -> None:
    # An exchange has 20 tokens, a new message 10.
    assert lengths(grown(TokenBudget(100), *[talked(n) for n in range(9)])) == [10, 30, 50, 70, 90, 50, 70, 90, 50]


def test_a_chosen_target_is_reached_and_not_undercut() -> None:
    assert lengths(grown(TokenBudget(100, to=75), *[talked(n) for n in range(8)])) == [10, 30, 50, 70, 90, 70, 90, 70]


def test_a_sliding_budget_is_cut_as_little_as_possible() -> None:
    requests = grown(TokenBudget(60, sliding=True), *[talked(n) for n in range(6)])
    assert lengths(requests) == [10, 30, 50, 50, 50, 50]


def test_exactly_the_limit_is_within_it() -> None:
    of = conversation(talked(0), [said("x" * 30)])
    assert len(sent(of, TokenBudget(50))) == 3
    assert len(sent(of, TokenBudget(49))) == 1


def test_the_preamble_counts() -> None:
    of = conversation(talked(0), [said("x" * 30)])
    assert len(sent(of, TokenBudget(60), fixed=10)) == 3
    assert len(sent(of, TokenBudget(60), fixed=11)) == 1


def test_one_long_exchange_is_left_out_and_not_a_share_of_all() -> None:
    of = conversation([said("x" * 500), answered("y" * 400)], *[talked(n) for n in range(4)], [said("now")])
    assert len(sent(of, TokenBudget(900, to=100))) == 9


def test_a_digest_goes_before_anything_is_left_out() -> None:
    of = conversation(*[worked(n, "r" * 400) for n in range(3)], [said("now")])
    assert any("question 0" in text for text in sent(of, TokenBudget(900, to=800, digest=DigestTools())))
    assert not any("question 0" in text for text in sent(of, TokenBudget(900, to=800)))


def test_without_need_nothing_is_digested() -> None:
    of = conversation(*[worked(n) for n in range(3)], [said("now")])
    assert sent(of, TokenBudget(1_000, digest=DigestTools())) == sent(of, TokenBudget(1_000))


def test_a_long_result_in_the_current_exchange_is_cut_to_head_and_tail() -> None:
    of = conversation([said("go"), *worked(0, "a" * 500 + "b" * 5_000 + "c" * 500)[1:3]])
    _, _, result = sent(of, TokenBudget(1_000))
    assert result.startswith("aaa")
    assert result.endswith("ccc")
    assert "characters are left out here" in result
    assert 600 <= len(result) < 1_050


def test_what_the_user_said_is_never_cut_and_the_caller_is_told() -> None:
    of = conversation(talked(0), [said("x" * 500)])
    made = make_plan(of, TokenBudget(100), terms())
    assert [notice.kind for notice in made.notices] == ["over_limit"]
    assert sent(of, TokenBudget(100)) == ["x" * 500]


def test_a_share_is_of_the_model_s_window() -> None:
    of = conversation(*[talked(n) for n in range(20)], [said("x" * 10)])
    policy = WindowShare(0.5, to=0.25)
    assert lengths([sent(of, policy, window=820)]) == [410]
    assert lengths([sent(of, policy, window=800)]) == [190]


def test_an_unknown_window_is_assumed_to_have_32_000_tokens() -> None:
    of = conversation([said("x" * 3_000), answered("y")], [said("z" * 199)])
    assert len(sent(of, WindowShare(0.1))) == 3
    of = conversation([said("x" * 3_000), answered("y")], [said("z" * 200)])
    assert len(sent(of, WindowShare(0.1, to=0.05))) == 1


def test_a_cut_leaves_half_of_the_share() -> None:
    of = conversation(*[talked(n) for n in range(20)], [said("x" * 10)])
    assert lengths([sent(of, WindowShare(0.2), window=1_000)]) == lengths([sent(of, TokenBudget(200))])


@pytest.mark.parametrize("limit", [0, -1, 1e3, "8000", None, True])
def test_a_budget_is_a_whole_number_above_zero(limit: Any) -> None:
    with pytest.raises(InputError, match="`limit` of TokenBudget, a number of tokens, must be an integer"):
        TokenBudget(limit)


def test_a_target_above_the_budget_is_refused() -> None:
    with pytest.raises(InputError, match="at most the limit of 100, not 101"):
        TokenBudget(100, to=101)


def test_a_target_and_a_sliding_budget_exclude_each_other() -> None:
    with pytest.raises(InputError, match="not both"):
        TokenBudget(100, to=50, sliding=True)


@pytest.mark.parametrize("shares", [{"share": 0}, {"share": 1.5}, {"to": 0}, {"to": 80}, {"share": "0.5"}])
def test_shares_are_checked(shares: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="share"):
        WindowShare(**shares)


@pytest.mark.parametrize("digest", [True, 3, DigestTools, "tools"])
def test_a_digest_is_a_strategy(digest: Any) -> None:
    with pytest.raises(InputError, match="digest"):
        TokenBudget(9, digest=digest)
    with pytest.raises(InputError, match="digest"):
        WindowShare(digest=digest)


def test_lines_about_old_tools_do_not_break_the_budget() -> None:
    of = conversation(*[worked(n, "r" * 90) for n in range(20)], [said("now")])
    made = make_plan(of, TokenBudget(1_000, digest=DigestTools(keep=1)), terms())
    assert made.tokens <= 1_000


def test_lines_about_old_tools_do_not_make_a_short_message_too_long_for_the_model() -> None:
    of = conversation(*[worked(n, "r" * 90) for n in range(20)], [said("now")])
    assert sent(of, TokenBudget(1_000, digest=DigestTools(keep=1)), window=1_000)[-1] == "now"


def test_of_the_lines_the_newest_stay() -> None:
    of = conversation(*[worked(n, "r" * 90) for n in range(20)], [said("now")])
    first, *_ = sent(of, TokenBudget(1_000, digest=DigestTools(keep=1)))
    numbers = [int(number) for number in re.findall(r'"n":(\d+)', first)]
    assert numbers
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert numbers[0] > 0
