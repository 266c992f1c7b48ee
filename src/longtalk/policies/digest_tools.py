"""Tools of older exchanges in a line each: what was called, with what, what came back."""

from __future__ import annotations

import msgspec

from longtalk.policies.base import Compactor
from longtalk.policies.limits import at_least_one
from longtalk.policies.view import Block, View


class DigestTools(msgspec.Struct, frozen=True):
    """Digests the tools of all exchanges but the last `keep`. What was said stays.

    In those of the last ones that are over, a result of more than `longest` tokens is cut to head and tail. Exchanges
    that are left out behind it leave the lines of their tools at the head of the request.
    """

    keep: int = 2
    longest: int = 1_000

    def __post_init__(self) -> None:
        at_least_one(self.keep, "`keep`")
        at_least_one(self.longest, "`longest`")

    def apply(self, view: View, limits: Compactor) -> View:  # noqa: ARG002
        blocks = list(view.blocks)
        for i, block in enumerate(blocks[:-1]):
            if not block.pinned:
                blocks[i] = _digested(view, block) if i < len(blocks) - self.keep else self._shortened(view, block)
        return msgspec.structs.replace(view, blocks=tuple(blocks), digests=True)

    def _shortened(self, view: View, block: Block) -> Block:
        for place in range(block.first, block.stop):
            entry = view.entry(place)
            if entry.role == "tool" and entry.tokens > self.longest and block.special_at(place) is None:
                block = view.shortened(block, place, self.longest)
        return block


def _digested(view: View, block: Block) -> Block:
    """An exchange whose tools go as a digest."""
    for run in view.tools(block):
        block = block if run in block.special else view.change(block, run)
    return block
