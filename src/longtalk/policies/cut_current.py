"""`CutCurrent`: shorten the current exchange, which is always kept, without touching the user's words.

Tool results and events are cut to their beginning and end, oldest first and only as far as needed. The middle of a long
series of events is left out. If the request would still be too long, the exchange is sent unchanged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from itertools import groupby

import msgspec

from longtalk.policies.base import Compactor
from longtalk.policies.view import NOTE_TOKENS, Block, View
from longtalk.transcript.manifest import MIDDLE, Run

_LONG, _SHORT = 600, 60
"""The number of tokens to which a text is cut: in the first pass, and in the last if the first was not enough."""


class CutCurrent(msgspec.Struct, frozen=True):
    """A strategy that shortens the tool results and events of the current exchange.

    It acts only if the limit itself is exceeded. Then it cuts down to the target, to leave room for more tool calls.
    """

    def apply(self, view: View, limits: Compactor) -> View:
        def with_block(block: Block) -> View:
            return view.with_blocks((*view.blocks[:-1], block))

        block = view.blocks[-1]
        for cut in (_shorten(_LONG), _thin_out, _shorten(_SHORT)):
            if not limits.over.fires(with_block(block)):
                break
            block = cut(view, block, lambda block: not limits.to.fires(with_block(block)))
        # If the request stays too long anyway, send the exchange intact.
        return view if limits.over.fires(with_block(block)) else with_block(block)


def _shorten(least: int) -> Callable[[View, Block, Callable[[Block], bool]], Block]:
    """Return a function that cuts long texts to `least` tokens, oldest first, until the exchange fits.

    The last text that it cuts is cut only as far as needed.
    """

    def cut(view: View, block: Block, fits: Callable[[Block], bool]) -> Block:
        for position in range(block.first, block.stop):
            entry = view.entry(position)
            now = block.altered_at(position)
            length = entry.tokens if now is None else now.tokens if now.keep else 0
            if (entry.role != "tool" and entry.kind != "event") or length <= least + NOTE_TOKENS:
                continue
            shorter = view.with_cut(block, position, least)
            if fits(shorter):
                tokens = range(least, length)
                most = bisect_left(tokens, True, key=lambda n: not fits(view.with_cut(block, position, n)))
                return view.with_cut(block, position, tokens[max(0, most - 1)])
            block = shorter
        return block

    return cut


def _thin_out(view: View, block: Block, fits: Callable[[Block], bool]) -> Block:
    """Return the exchange without the middle of each long series of events, as far as needed to make it fit.

    The first event of a series is kept, and as many of the last as fit.
    """
    positions = range(block.first, block.stop)
    for is_event, group in groupby(positions, key=lambda position: view.entry(position).kind == "event"):
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
    return view.with_run(block, Run(first, last, "left_out", MIDDLE, tokens=view.tokens_of(first, last)))
