"""Tools of older exchanges in a line each: what was called, with what, what came back."""

from __future__ import annotations

from itertools import groupby

import msgspec

from longtalk.pack import ANSWERS
from longtalk.policies.base import Compactor
from longtalk.policies.limits import at_least
from longtalk.policies.view import DIGEST, Block, Run, View


class DigestTools(msgspec.Struct, frozen=True):
    """Digests the tools of all exchanges but the last `keep`. What was said stays.

    In those of the last ones that are over, a result of more than `longest` tokens is cut to head and tail.
    """

    keep: int = 2
    longest: int = 1_000

    def __post_init__(self) -> None:
        at_least(1, self.keep, "`keep`")
        at_least(1, self.longest, "`longest`")

    def apply(self, view: View, limits: Compactor) -> View:  # noqa: ARG002
        blocks = list(view.blocks)
        for i, block in enumerate(blocks[:-1]):
            if not block.pinned:
                blocks[i] = _digested(view, block) if i < len(blocks) - self.keep else self._shortened(view, block)
        return view.with_blocks(blocks)

    def _shortened(self, view: View, block: Block) -> Block:
        for place in range(block.first, block.stop):
            entry = view.entry(place)
            if entry.role == "tool" and entry.tokens > self.longest and block.goes_as_is(place):
                block = view.shortened(block, place, self.longest)
        return block


def _digested(view: View, block: Block) -> Block:
    """An exchange whose tools, from a first call to its last result, go as a digest."""
    roles = [view.entry(place).role for place in range(block.first, block.stop)]
    place = block.first
    for answers, group in groupby(roles, key=lambda role: role in ANSWERS):
        said = list(group)
        if answers and "tool" in said:
            first = place + said.index("tool") - 1
            last = place + len(said) - 1 - said[::-1].index("tool")
            run = Run(first, last, "summarised", DIGEST, tokens=view.tokens_of(first, last))
            if run not in block.special:
                block = view.change(block, run)
        place += len(said)
    return block
