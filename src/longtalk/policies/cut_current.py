"""`CutCurrent`: shorten the current exchange, which is always kept, without touching the user's words.

Tool results and events are cut to their beginning and end, oldest first and only as far as needed. If that is not
enough, the middle of each long series of events is left out. If the request would still be too long, the exchange is
sent unchanged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby

import msgspec

from longtalk.policies.base import Compactor
from longtalk.policies.view import NOTE_TOKENS, Block, View
from longtalk.transcript.manifest import MIDDLE, Run

_FIRST_CUT_TOKENS, _LAST_CUT_TOKENS = 600, 60
"""The number of tokens to which texts are cut in the first pass and, if still needed, in the last pass."""


class CutCurrent(msgspec.Struct, frozen=True):
    """A strategy that shortens the tool results and events of the current exchange.

    It acts only if the request exceeds the limit `over`, not just the target `to`. Then it cuts until the target is
    met, to leave room for more tool calls.
    """

    cuts_current = True

    def apply(self, view: View, limits: Compactor) -> View:
        def with_block(block: Block) -> View:
            return view.with_blocks((*view.blocks[:-1], block))

        block = view.blocks[-1]
        for shorten in (_make_cutter(_FIRST_CUT_TOKENS), _leave_out_middles, _make_cutter(_LAST_CUT_TOKENS)):
            if not limits.over.fires(with_block(block)):
                break
            block = shorten(view, block, lambda block: not limits.to.fires(with_block(block)))
        # If the request stays too long anyway, send the exchange intact.
        return view if limits.over.fires(with_block(block)) else with_block(block)


def _make_cutter(target: int) -> Callable[[View, Block, Callable[[Block], bool]], Block]:
    """Return a function that cuts long tool results and events to `target` tokens, oldest first.

    The function stops when the exchange fits, and shortens the last text only as far as needed.
    """

    def cut_texts(view: View, block: Block, fits: Callable[[Block], bool]) -> Block:
        texts = list(_list_long_texts(view, block, target + NOTE_TOKENS))

        def with_cuts(block: Block, start: int, stop: int) -> Block:
            return view.with_altered_runs(
                block, [run for position, _ in texts[start:stop] for run in view.make_cut(position, target)]
            )

        # The exchange shrinks with each cut. Cut more and more texts at once until it fits, then find the smallest
        # number of cuts that is enough.
        cut, step, enough = 0, 1, len(texts) + 1
        while cut < min(enough - 1, len(texts)):
            stop = min(cut + step, len(texts)) if enough > len(texts) else (cut + enough) // 2
            shorter = with_cuts(block, cut, stop)
            if fits(shorter):
                enough = stop
            else:
                block, cut, step = shorter, stop, 2 * step
        if enough > len(texts):
            return block
        position, length = texts[cut]
        tokens = range(target, length)
        too_long = bisect_left(tokens, True, key=lambda n: not fits(view.with_cut_text(block, position, n)))
        return view.with_cut_text(block, position, tokens[max(0, too_long - 1)])

    return cut_texts


def _list_long_texts(view: View, block: Block, limit: int) -> Iterator[tuple[int, int]]:
    """Yield the positions and the present lengths of the tool results and events of more than `limit` tokens."""
    for position in range(block.first, block.stop):
        entry = view.get_entry(position)
        run = block.find_altered_run(position)
        length = entry.tokens if run is None else run.tokens if run.keep else 0
        if (entry.role == "tool" or entry.kind == "event") and length > limit:
            yield position, length


def _leave_out_middles(view: View, block: Block, fits: Callable[[Block], bool]) -> Block:
    """Return the exchange with events left out from the middle of long series, only as many as needed to make it fit.

    Of each such series, the first event is kept, and as many of the last events as fit.
    """
    positions = range(block.first, block.stop)
    for is_event, group in groupby(positions, key=lambda position: view.get_entry(position).kind == "event"):
        events = list(group)
        if is_event and len(events) > 3:
            shorter = [partial(_leave_out, view, block, events[1], count) for count in range(2, len(events) - 1)]
            enough = bisect_left(shorter, True, key=lambda make: fits(make()))
            block = shorter[min(enough, len(shorter) - 1)]()
            if fits(block):
                break
    return block


def _leave_out(view: View, block: Block, first: int, count: int) -> Block:
    """Return the exchange without the `count` entries that begin at position `first`."""
    last = first + count - 1
    return view.with_altered_run(block, Run(first, last, "left_out", MIDDLE, tokens=view.count_tokens(first, last)))
