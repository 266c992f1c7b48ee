"""Make room in the current exchange: it always stays, and what the user said in it stays as it is.

Tool results and events are cut to head and tail, the oldest first and only as far as needed. Of many events the
middle is left out. If all that is not enough, nothing is cut.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from itertools import groupby

import msgspec

from longtalk.policies.base import Compactor
from longtalk.policies.view import MIDDLE, NOTE, Block, Run, View

_LONG, _SHORT = 600, 60
"""Tokens to which a text is cut when there is room for more of the others, and when there is none."""


class CutCurrent(msgspec.Struct, frozen=True):
    """Cuts when the limit itself is exceeded, and then down to the target, so that more rounds of tools find room."""

    def apply(self, view: View, limits: Compactor) -> View:
        def with_block(block: Block) -> View:
            return view.with_blocks((*view.blocks[:-1], block))

        block = view.blocks[-1]
        for cut in (_shorten(_LONG), _thin_out, _shorten(_SHORT)):
            if not limits.over.fires(with_block(block)):
                break
            block = cut(view, block, lambda block: not limits.to.fires(with_block(block)))
        # What does not help is not done: better too long than too long and in pieces.
        return view if limits.over.fires(with_block(block)) else with_block(block)


def _shorten(least: int) -> Callable[[View, Block, Callable[[Block], bool]], Block]:
    """Cut long texts down to `least` tokens, the last one of them only as far as needed."""

    def cut(view: View, block: Block, fits: Callable[[Block], bool]) -> Block:
        for place in range(block.first, block.stop):
            entry = view.entry(place)
            now = block.special_at(place)
            length = entry.tokens if now is None else now.tokens if now.keep else 0
            if (entry.role != "tool" and entry.kind != "event") or length <= least + NOTE:
                continue
            shorter = view.shortened(block, place, least)
            if fits(shorter):
                tokens = range(least, length)
                most = bisect_left(tokens, True, key=lambda n: not fits(view.shortened(block, place, n)))
                return view.shortened(block, place, tokens[max(0, most - 1)])
            block = shorter
        return block

    return cut


def _thin_out(view: View, block: Block, fits: Callable[[Block], bool]) -> Block:
    """Leave out the middle of many events: the first one stays, and as many of the last ones as there is room for."""
    places = range(block.first, block.stop)
    for is_event, group in groupby(places, key=lambda place: view.entry(place).kind == "event"):
        events = list(group)
        if is_event and len(events) > 3:
            shorter = [partial(_without, view, block, events[1], count) for count in range(2, len(events) - 1)]
            enough = bisect_left(shorter, True, key=lambda make: fits(make()))
            block = shorter[min(enough, len(shorter) - 1)]()
            if fits(block):
                break
    return block


def _without(view: View, block: Block, first: int, count: int) -> Block:
    last = first + count - 1
    return view.change(block, Run(first, last, "left_out", MIDDLE, tokens=view.tokens_of(first, last)))
