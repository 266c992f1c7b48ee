"""Leave out the oldest exchanges, each whole. The current one stays, and so do those that are pinned."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from longtalk.policies.base import Compactor
from longtalk.policies.view import Block, View

LINES = 20
"""So many lines about the tools of exchanges that are left out stay at the head of the request."""


class DropOldest(msgspec.Struct, frozen=True):
    """Drops as few exchanges as the target asks for.

    The one before the current one stays if the limit has room for it, also where the target has not: a model that has
    just lost what was said last is of little use. Where tools are digested, their lines stay as far as there is room.
    """

    def apply(self, view: View, limits: Compactor) -> View:
        loose = [block for block in view.blocks[:-1] if not block.pinned]

        def left(gone: int) -> View:
            dropped = {block.first for block in loose[:gone]}
            return view.with_blocks([block for block in view.blocks if block.first not in dropped])

        def with_lines(number: int) -> View:
            return msgspec.structs.replace(left(enough), lines=lines[len(lines) - number :])

        bare, view = view, msgspec.structs.replace(view, lines=())
        # The more goes, the shorter it is, so what is enough is found by halving.
        enough = bisect_left(range(len(loose)), True, key=lambda gone: not limits.to.fires(left(gone)))
        last = bool(loose) and loose[-1].first == view.blocks[-2].first
        if last and enough == len(loose) and not limits.over.fires(left(enough - 1)):
            enough -= 1
        lines = [*bare.lines, *_lines(view, loose[:enough])][-LINES:]
        target = limits.over if limits.to.fires(with_lines(0)) else limits.to
        return with_lines(bisect_left(range(len(lines)), True, key=lambda n: target.fires(with_lines(n + 1))))


def _lines(view: View, gone: Sequence[Block]) -> list[str]:
    """What the tools of these exchanges did, if they are digested; the last ones are enough."""
    lines: list[str] = []
    for block in reversed(gone if view.digests else ()):
        lines[:0] = [line for run in view.tools(block) for line in view.lines_of(run)]
        if len(lines) >= LINES:
            break
    return lines
