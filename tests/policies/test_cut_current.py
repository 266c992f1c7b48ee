"""Test that results and events of the current exchange are cut, oldest first, and the user's words never."""

from __future__ import annotations

from longtalk.policies import Compactor, CutCurrent, OverTokens, View
from longtalk.policies.view import NOTE_TOKENS
from longtalk.transcript.manifest import CUT, MIDDLE
from longtalk.transcript.transcript import Entry
from tests.policies.views import answered, called, conversation, gave, happened, said, sent, talked, tokens, view_of


def make_rounds(*results: str) -> list[Entry]:
    """Return a question of two tokens, then rounds of tools with a call of ten tokens each."""
    entries = [said("go")]
    for n, result in enumerate(results):
        entries += [called((f"c{n}", "look", "{}")), gave(f"c{n}", result)]
    return entries


def cut_current(entries: list[Entry], limit: int) -> View:
    return CutCurrent().apply(view_of(conversation(entries)), tokens(limit))


def list_kept_lengths(view: View) -> dict[int, int]:
    """Return the number of letters that remain of each cut text, by its position."""
    return {run.first: run.keep for run in view.blocks[-1].altered if run.reason == CUT}


def test_within_the_limit_nothing_is_cut() -> None:
    view = view_of(conversation(make_rounds("r" * 5_000)))
    assert CutCurrent().apply(view, tokens(6_000)) == view


def test_only_the_limit_asks_for_a_cut_and_not_the_target() -> None:
    view = view_of(conversation(make_rounds("r" * 5_000)))
    assert CutCurrent().apply(view, tokens(6_000, 10)) == view


def test_a_result_is_cut_only_as_far_as_needed() -> None:
    view = cut_current(make_rounds("r" * 5_000), 3_000)
    assert list_kept_lengths(view) == {2: 3_000 - 12 - NOTE_TOKENS}
    assert view.tokens == 3_000


def test_the_exchange_is_cut_to_the_target_to_leave_room_for_more_rounds() -> None:
    view = CutCurrent().apply(view_of(conversation(make_rounds("r" * 5_000))), tokens(3_000, 2_000))
    assert list_kept_lengths(view) == {2: 2_000 - 12 - NOTE_TOKENS}


def test_a_target_that_can_t_be_reached_does_not_matter_when_the_limit_holds() -> None:
    view = CutCurrent().apply(view_of(conversation(make_rounds("r" * 5_000))), tokens(3_000, 10))
    assert list_kept_lengths(view) == {2: 600}


def test_the_oldest_result_is_cut_first() -> None:
    assert set(list_kept_lengths(cut_current(make_rounds("r" * 2_000, "s" * 2_000, "t" * 2_000), 5_000))) == {2}


def test_the_next_is_cut_when_the_oldest_is_as_short_as_it_gets() -> None:
    left = list_kept_lengths(cut_current(make_rounds("r" * 2_000, "s" * 2_000, "t" * 2_000), 4_000))
    assert set(left) == {2, 4}
    assert left[2] == 600 < left[4] < 2_000


def test_when_there_is_no_room_for_600_tokens_each_60_are_left() -> None:
    left = list_kept_lengths(cut_current(make_rounds("r" * 2_000, "s" * 2_000, "t" * 2_000), 1_000))
    assert left[2] == 60
    assert 60 < left[4] <= 600
    assert left[6] == 600


def test_what_goes_is_the_head_and_the_tail() -> None:
    of = conversation(make_rounds("a" * 2_000 + "b" * 2_000 + "c" * 2_000))
    result = sent(of, Compactor(OverTokens(1_000), (CutCurrent(),), OverTokens(1_000)))[-1]
    head, note, tail = result.splitlines()
    assert (set(head), set(tail)) == ({"a"}, {"c"})
    assert len(head) > len(tail) > 100
    assert "5,032 characters are left out" in note


def test_events_are_cut_like_results() -> None:
    view = cut_current([happened("e" * 3_000), said("go")], 1_000)
    assert set(list_kept_lengths(view)) == {0}
    assert view.tokens == 1_000


def test_the_user_s_words_are_never_cut() -> None:
    view = cut_current([said("u" * 900), *make_rounds("r" * 5_000)[1:]], 1_500)
    assert set(list_kept_lengths(view)) == {2}


def test_the_models_text_is_never_cut() -> None:
    view = cut_current([said("go"), answered("m" * 900), *make_rounds("r" * 5_000)[1:]], 1_500)
    assert set(list_kept_lengths(view)) == {3}


def test_nothing_is_cut_in_vain() -> None:
    view = view_of(conversation([said("u" * 2_000), *make_rounds("r" * 5_000)[1:]]))
    assert CutCurrent().apply(view, tokens(1_000)) == view


def test_a_text_that_a_cut_would_make_longer_stays() -> None:
    # What is left of 65 tokens, and the word about the rest, would be 80.
    view = cut_current(make_rounds("r" * 65, "s" * 2_000), 500)
    assert set(list_kept_lengths(view)) == {4}


def test_many_short_texts_and_a_long_one_fit_when_the_long_one_is_cut() -> None:
    short = 62
    view = cut_current(make_rounds(*["r" * short] * 10, "s" * 2_000), 2 + 11 * 10 + 10 * short + 60 + NOTE_TOKENS)
    assert set(list_kept_lengths(view)) == {22}


def test_short_texts_stay_whole() -> None:
    assert set(list_kept_lengths(cut_current(make_rounds("r" * 60, "s" * 2_000), 500))) == {4}


def events(number: int, length: int = 100) -> list[Entry]:
    return [happened(f"{n:03}".ljust(length, "e")) for n in range(number)]


def test_the_middle_of_many_events_is_left_out() -> None:
    view = cut_current([*events(50), said("go")], 1_000)
    [run] = view.blocks[-1].altered
    assert run.reason == MIDDLE
    assert (run.first, view.tokens <= 1_000) == (1, True)


def test_the_first_event_and_as_many_of_the_newest_stay_as_there_is_room_for() -> None:
    # 2 for the message, 100 for the first event, a note, and 8 of the newest.
    [run] = cut_current([*events(50), said("go")], 2 + 100 + NOTE_TOKENS + 850).blocks[-1].altered
    assert (run.first, run.last) == (1, 41)
    [run] = cut_current([*events(50), said("go")], 2 + 100 + NOTE_TOKENS + 799).blocks[-1].altered
    assert (run.first, run.last) == (1, 42)


def test_what_is_left_out_has_a_word_in_its_place() -> None:
    texts = sent(conversation([*events(50), said("go")]), tokens(1_000, None, CutCurrent()))
    assert "000ee" in texts[0]
    assert "events are left out here" in texts[1]
    assert "049ee" in texts[-2]
    assert texts[-1] == "go"


def test_two_or_three_events_are_not_thinned_out() -> None:
    for number in (2, 3):
        view = cut_current([*events(number, 500), said("go")], 700)
        assert all(run.reason == CUT for run in view.blocks[-1].altered)


def test_long_events_are_cut_before_any_is_left_out() -> None:
    view = cut_current([*events(5, 2_000), said("go")], 4_000)
    assert {run.reason for run in view.blocks[-1].altered} == {CUT}


def test_the_events_that_stay_can_be_cut_as_well() -> None:
    view = cut_current([*events(20, 500), said("go")], 300)
    assert view.tokens <= 300
    assert [run.reason for run in view.blocks[-1].altered] == [CUT, MIDDLE, CUT]


def test_older_exchanges_are_not_touched() -> None:
    of = conversation(make_rounds("r" * 3_000), talked(1), make_rounds("s" * 3_000))
    view = CutCurrent().apply(view_of(of), tokens(5_000))
    assert [bool(block.altered) for block in view.blocks] == [False, False, True]
    assert view.tokens == 5_000


def test_cutting_twice_cuts_no_more() -> None:
    once = cut_current(make_rounds("r" * 2_000, "s" * 2_000), 3_000)
    assert CutCurrent().apply(once, tokens(3_000)) == once


def test_a_text_that_was_cut_can_be_cut_again() -> None:
    once = cut_current(make_rounds("r" * 2_000, "s" * 2_000), 3_000)
    again = CutCurrent().apply(once, tokens(1_000))
    assert again.tokens <= 1_000
    assert list_kept_lengths(again)[2] < list_kept_lengths(once)[2]
