"""Test that the lengths of a view match those of the request that is sent."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from longtalk.policies import View
from longtalk.policies.view import NOTE_TOKENS
from longtalk.transcript.manifest import CUT, DIGEST, MIDDLE, Run
from longtalk.wires.entries import read_text, shorten_entry
from longtalk.wires.text import cut_middle
from tests.policies.views import LETTERS, WIRE, conversation, gave, happened, said, talked, view_of, worked


def test_a_view_adds_up_its_blocks_and_what_goes_around_them() -> None:
    view = view_of(conversation(worked(0), talked(1), [said("now")]), fixed=7)
    assert (view.exchanges, view.messages) == (3, 7)
    assert view.counted == 7 + 130 + 20 + 3


def test_lines_at_the_head_count() -> None:
    view = view_of(conversation([said("now")]))
    assert View(view.transcript, WIRE, LETTERS, view.blocks, 0, 1.0, 9, ("ab", "cd")).counted == 3 + len("ab\ncd")


def test_tokens_are_scaled_to_what_the_provider_reports() -> None:
    assert view_of(conversation([said("x" * 100)]), scale=1.25).tokens == 125


def test_a_text_that_is_cut_counts_with_the_word_about_the_rest() -> None:
    view = view_of(conversation(worked(0, "r" * 1_000)))
    block = view.with_cut_text(view.blocks[0], 2, 100)
    assert (block.tokens, block.messages) == (30 + 100 + NOTE_TOKENS, 4)
    assert block.altered == (Run(2, 2, "sent", CUT, tokens=100 + NOTE_TOKENS, keep=100),)


def test_a_short_text_is_not_cut() -> None:
    view = view_of(conversation(worked(0, "r" * 100)))
    assert view.with_cut_text(view.blocks[0], 2, 100) == view.blocks[0]


def test_a_run_in_another_form_replaces_what_it_covers() -> None:
    view = view_of(conversation(worked(0, "r" * 1_000)))
    whole = view.blocks[0]
    cut = view.with_cut_text(whole, 2, 100)
    digest = Run(1, 2, "summarised", DIGEST, tokens=1_010)
    assert view.with_altered_run(cut, digest) == view.with_altered_run(whole, digest)
    assert view.with_cut_text(view.with_cut_text(whole, 2, 500), 2, 100) == cut


def test_runs_that_do_not_touch_stand_side_by_side_in_order() -> None:
    view = view_of(conversation([*worked(0, "r" * 1_000), *worked(1, "s" * 1_000)[1:]]))
    block = view.with_cut_text(view.with_cut_text(view.blocks[0], 5, 100), 2, 100)
    assert [run.first for run in block.altered] == [2, 5]
    assert [place for place in range(7) if block.find_altered_run(place)] == [2, 5]


def test_the_middle_of_events_counts_as_one_message() -> None:
    view = view_of(conversation([*[happened("e" * 50) for _ in range(9)], said("go")]))
    block = view.with_altered_run(view.blocks[0], Run(1, 7, "left_out", MIDDLE, tokens=350))
    assert (block.messages, block.tokens) == (4, 2 * 50 + 2 + NOTE_TOKENS)


def test_a_view_of_an_epoch_is_rebuilt_from_its_runs() -> None:
    view = view_of(conversation(worked(0, "r" * 1_000)))
    cut = view.with_cut_text(view.blocks[0], 2, 100)
    assert view.make_block(0, 4, pinned=False, altered=cut.altered) == cut


@given(st.text(max_size=300), st.integers(1, 400))
def test_head_and_tail_are_the_beginning_and_the_end(text: str, keep: int) -> None:
    short = cut_middle(text, keep)
    if len(text) <= keep:
        assert short == text
    else:
        head, tail = keep - keep // 3, keep // 3
        assert short.startswith(text[:head])
        assert short.endswith(text[len(text) - tail :])
        assert f"{len(text) - keep:,} characters" in short


def test_a_result_that_is_cut_still_answers_its_call() -> None:
    entry = shorten_entry(gave("c7", "r" * 1_000), 30)
    assert json.loads(entry.native)["tool_call_id"] == "c7"
    assert len(read_text(entry)) < 100


def test_an_event_that_is_cut_keeps_its_source() -> None:
    entry = shorten_entry(happened("e" * 1_000), 30)
    assert json.loads(entry.native)["source"] == "app"
    assert len(read_text(entry)) < 100


def test_the_work_of_tools_is_from_a_first_call_to_the_last_result_behind_it() -> None:
    two = [*worked(1)[:3], happened("rain"), *worked(2)[:3], *worked(3)[1:]]
    view = view_of(conversation(talked(0), two))
    assert view.find_tool_runs(view.blocks[0]) == []
    spans = [
        (run.first, run.last, run.verdict, run.reason) for block in view.blocks for run in view.find_tool_runs(block)
    ]
    assert spans == [(3, 4, "summarised", DIGEST), (7, 10, "summarised", DIGEST)]


def test_a_run_of_tool_use_never_begins_before_its_exchange() -> None:
    view = view_of(conversation(talked(0), [happened("it rains"), gave("c", "r" * 100)], [said("now")]))
    starts = [run.first - block.first for block in view.blocks for run in view.find_tool_runs(block)]
    assert all(start >= 0 for start in starts)
    assert all(view.get_entry(run.first).role == "tool" for block in view.blocks for run in view.find_tool_runs(block))
    assert starts
