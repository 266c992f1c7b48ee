"""`DropOldest`: leave out whole exchanges, oldest first, except pinned ones and the current one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from longtalk.policies.base import Compactor
from longtalk.policies.view import Block, View

MAX_TOOL_LINES = 20
"""The maximum number of lines about tool calls of dropped exchanges that stay at the head of the request."""


class DropOldest(msgspec.Struct, frozen=True):
    """A strategy that leaves out the oldest exchanges, only as many as needed to meet the target.

    The exchange before the current one is kept as long as the request stays within the limit, even if the target is
    missed, because the model needs to know what was said last. If `DigestTools` was applied before, its lines about
    the tool calls of dropped exchanges are kept as far as they fit.
    """

    def apply(self, view: View, limits: Compactor) -> View:
        droppable = view.droppable_blocks

        def without_oldest(count: int) -> View:
            dropped = {block.first for block in droppable[:count]}
            return view.with_blocks([block for block in view.blocks if block.first not in dropped])

        def with_lines(number: int) -> View:
            return msgspec.structs.replace(without_oldest(enough), lines=lines[len(lines) - number :])

        old_lines, view = view.lines, msgspec.structs.replace(view, lines=())
        # The request shrinks with each dropped exchange, so a binary search finds how many are enough.
        counts = range(len(droppable))
        enough = bisect_left(counts, True, key=lambda count: not limits.to.fires(without_oldest(count)))
        last = bool(droppable) and droppable[-1].first == view.blocks[-2].first
        if last and enough == len(droppable) and not limits.over.fires(without_oldest(enough - 1)):
            enough -= 1
        lines = [*old_lines, *_render_tool_lines(view, droppable[:enough])][-MAX_TOOL_LINES:]
        target = limits.over if limits.to.fires(with_lines(0)) else limits.to
        return with_lines(bisect_left(range(len(lines)), True, key=lambda n: target.fires(with_lines(n + 1))))


def _render_tool_lines(view: View, dropped: Sequence[Block]) -> list[str]:
    """Return one line for each tool call of the newest dropped exchanges, oldest first.

    Exchanges are read, newest first, until there are at least `MAX_TOOL_LINES` lines. Return an empty list if
    `DigestTools` was not applied.
    """
    lines: list[str] = []
    for block in reversed(dropped if view.digests else ()):
        lines[:0] = [line for run in view.find_tool_runs(block) for line in view.render_digest(run)]
        if len(lines) >= MAX_TOOL_LINES:
            break
    return lines
