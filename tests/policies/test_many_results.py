"""Cutting and digesting the results of an exchange with thousands of tool calls."""

from __future__ import annotations

from functools import cache

import pytest

from longtalk.policies import CutCurrent, DigestTools, Strategy, View
from longtalk.transcript.transcript import Transcript
from tests.policies.views import called, gave, said, tokens, view_of
from tests.support.cpu_time import is_linear


@cache
def make_view(results: int, *, current: bool) -> View:
    """Return an exchange with this many results of 1,000 tokens, and another exchange after it unless it is current."""
    entries = [said("go")]
    for n in range(results):
        entries += [called((f"c{n}", "look", "{}")), gave(f"c{n}", "r" * 1_000)]
    transcript = Transcript().append_to_turn("t0", entries)
    return view_of(transcript if current else transcript.append_to_turn("t1", [said("next")]))


@pytest.mark.parametrize(
    ("strategy", "current"),
    [(CutCurrent(), True), (DigestTools(keep=2, longest=500), False)],
    ids=["current", "older"],
)
def test_thousands_of_results_are_cut_in_linear_time(strategy: Strategy, current: bool) -> None:
    def cut(size: int) -> None:
        view = make_view(size, current=current)
        limit = view.tokens * 8 // 10
        shorter = strategy.apply(view, tokens(limit))
        assert shorter.tokens <= limit
        block = shorter.blocks[0]
        # An epoch is read with all its cuts again for each request.
        assert view.make_block(block.first, block.stop, pinned=False, altered=block.altered) == block

    for size in (1_500, 6_000):
        make_view(size, current=current)
    assert is_linear(cut, 1_500)


@pytest.mark.parametrize("results", [1, 2, 3, 5, 8, 13])
def test_only_as_many_results_are_cut_as_needed_and_the_last_only_as_far(results: int) -> None:
    view = make_view(13, current=True)
    # A cut to 600 tokens saves 380, since the note about it takes 20.
    limit = view.tokens - 380 * (results - 1) - 100
    shorter = CutCurrent().apply(view, tokens(limit))
    assert [run.first for run in shorter.blocks[0].altered] == list(range(2, 2 * results + 1, 2))
    assert shorter.tokens == limit
