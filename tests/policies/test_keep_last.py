"""Test policies that keep the last exchanges or messages, with rare large cuts or a sliding window."""

from __future__ import annotations

from typing import Any

import pytest

from longtalk.errors import InputError
from longtalk.policies import KeepLast, KeepMessages
from tests.policies.views import answered, asked, conversation, grown, happened, said, sent, talked, worked


def users(request: list[str]) -> list[str]:
    return [text for text in request if not text.startswith("answer")]


def test_at_the_limit_half_of_the_exchanges_are_left_out_at_once() -> None:
    counts = [len(users(request)) for request in asked(KeepLast(4), 9)]
    assert counts == [1, 2, 3, 4, 2, 3, 4, 2, 3]


def test_the_oldest_exchanges_are_left_out() -> None:
    assert users(asked(KeepLast(4), 5)[-1]) == ["3", "4"]


def test_a_chosen_target_is_what_a_cut_leaves() -> None:
    counts = [len(users(request)) for request in asked(KeepLast(4, to=3), 8)]
    assert counts == [1, 2, 3, 4, 3, 4, 3, 4]


def test_a_sliding_window_always_has_the_last_ones() -> None:
    requests = [users(request) for request in asked(KeepLast(3, sliding=True), 6)]
    assert requests == [["0"], ["0", "1"], ["0", "1", "2"], ["1", "2", "3"], ["2", "3", "4"], ["3", "4", "5"]]


def test_a_limit_of_one_sends_the_current_exchange_alone() -> None:
    assert asked(KeepLast(1), 3) == [["0"], ["1"], ["2"]]


def test_from_two_on_the_previous_exchange_is_always_sent() -> None:
    for limit in (2, 3, 4, 5):
        for to in (None, 1):
            for n, request in enumerate(asked(KeepLast(limit, to=to), 9)):
                assert users(request)[-2:] == [str(n - 1), str(n)][-min(n + 1, 2) :]
                assert len(users(request)) <= limit


def test_below_the_limit_everything_is_sent() -> None:
    assert asked(KeepLast(3), 3)[-1] == ["0", "answer 0", "1", "answer 1", "2"]


def test_an_exchange_goes_whole_with_its_calls_and_results() -> None:
    of = conversation(worked(0), worked(1, "found"), [said("now")])
    assert sent(of, KeepLast(2, sliding=True)) == ["question 1", "calls", "found", "answer   1", "now"]


def test_events_go_with_the_message_after_them() -> None:
    of = conversation(talked(0), [happened("rain"), *talked(1)], [happened("snow"), said("now")])
    texts = sent(of, KeepLast(2, sliding=True))
    assert len(texts) == 5
    assert "rain" in texts[0]
    assert "snow" in texts[3]
    assert not any("rain" in text for text in sent(of, KeepLast(1)))


def test_the_current_exchange_counts_as_one_however_many_rounds_it_has() -> None:
    rounds = [said("go"), *[entry for n in range(6) for entry in worked(n)[1:3]]]
    assert len(sent(conversation(talked(0), rounds), KeepLast(2))) == 2 + 13


def test_messages_are_counted_with_results_and_events() -> None:
    of = conversation(talked(0), [happened("rain"), *worked(1)], [said("now")])
    assert len(sent(of, KeepMessages(8))) == 8
    assert len(sent(of, KeepMessages(7, to=6))) == 6
    # The exchange before the current one stays, as the limit has room for it.
    assert len(sent(of, KeepMessages(7, to=5))) == 6
    assert len(sent(of, KeepMessages(5))) == 1


def test_a_message_limit_is_kept_in_whole_exchanges() -> None:
    counts = [len(request) for request in grown(KeepMessages(8), *[worked(n) for n in range(6)])]
    assert counts == [1, 5, 5, 5, 5, 5]


def test_a_sliding_message_limit_is_cut_as_little_as_possible() -> None:
    assert [len(request) for request in asked(KeepMessages(5, sliding=True), 6)] == [1, 3, 5, 5, 5, 5]


def test_the_current_exchange_stays_also_when_it_alone_has_more_messages() -> None:
    rounds = [said("go"), *[entry for n in range(4) for entry in worked(n)[1:3]]]
    assert len(sent(conversation(talked(0), rounds), KeepMessages(3))) == 9


def test_an_unanswered_message_is_an_exchange_of_its_own() -> None:
    of = conversation([said("a")], [said("b")], [said("c"), answered("d")], [said("e")])
    assert sent(of, KeepLast(2, sliding=True)) == ["c", "d", "e"]


@pytest.mark.parametrize("kind", [KeepLast, KeepMessages])
@pytest.mark.parametrize("limit", [0, -3, 2.0, "5", None, True])
def test_a_limit_is_a_whole_number_above_zero(kind: Any, limit: Any) -> None:
    with pytest.raises(InputError, match="must be an integer of at least 1"):
        kind(limit)


@pytest.mark.parametrize("kind", [KeepLast, KeepMessages])
def test_a_target_above_the_limit_is_refused(kind: Any) -> None:
    with pytest.raises(InputError, match="at most the limit of 5, not 6"):
        kind(5, to=6)


@pytest.mark.parametrize("kind", [KeepLast, KeepMessages])
def test_a_target_and_a_sliding_window_exclude_each_other(kind: Any) -> None:
    with pytest.raises(InputError, match="not both"):
        kind(5, to=2, sliding=True)
