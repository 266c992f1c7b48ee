"""Leave out the oldest exchanges, each whole. The current one stays, and so do those that are pinned."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from longtalk.policies.base import Compactor
from longtalk.policies.view import LINES, View


class DropOldest(msgspec.Struct, frozen=True):
    """Drops as few exchanges as the target asks for. Tools that were digested leave their lines at the head."""

    def apply(self, view: View, limits: Compactor) -> View:
        loose = [i for i, block in enumerate(view.blocks[:-1]) if not block.pinned]

        def is_over(gone: int) -> bool:
            return limits.to.fires(_with_lines(without(view, loose[:gone]), 0))

        # The more goes, the shorter it is, so what is enough is found by halving. Lines take the room that is left.
        enough = bisect_left(range(len(loose)), True, key=lambda n: not is_over(n))
        left = without(view, loose[:enough])
        few = bisect_left(range(len(left.lines)), True, key=lambda n: limits.to.fires(_with_lines(left, n + 1)))
        return _with_lines(left, few)


def _with_lines(view: View, number: int) -> View:
    """A view with the last ones of its lines."""
    return msgspec.structs.replace(view, lines=view.lines[len(view.lines) - number :])


def without(view: View, gone: list[int]) -> View:
    """A view without some of its blocks."""
    lines: list[str] = []
    for i in reversed(gone):
        if len(lines) >= LINES:
            break
        for run in view.blocks[i].special:
            if run.verdict == "summarised":
                lines[:0] = view.lines_of(run)
    left = set(gone)
    return msgspec.structs.replace(
        view,
        blocks=tuple(block for i, block in enumerate(view.blocks) if i not in left),
        lines=(*view.lines, *lines)[-LINES:],
    )
