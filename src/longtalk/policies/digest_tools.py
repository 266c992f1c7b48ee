"""`DigestTools`: replace each tool call in older exchanges with one line that shows the arguments and the result."""

from __future__ import annotations

import msgspec

from longtalk.policies.base import Compactor
from longtalk.policies.limits import check_positive
from longtalk.policies.view import Block, View


class DigestTools(msgspec.Struct, frozen=True):
    """A strategy that replaces each tool call and its result with one line, in all exchanges but the last `keep`.

    Messages of the user and the model are not changed. In the last `keep` exchanges, which include the current one, a
    tool result of more than `longest` tokens is cut to its beginning and end, but never in the current exchange itself.
    If `DropOldest` then leaves out an exchange, the lines about its tool calls stay at the head of the request.
    """

    keep: int = 2
    longest: int = 1_000

    def __post_init__(self) -> None:
        check_positive(self.keep, "`keep`")
        check_positive(self.longest, "`longest`")

    def apply(self, view: View, limits: Compactor) -> View:  # noqa: ARG002
        blocks = list(view.blocks)
        for i, block in enumerate(blocks[:-1]):
            if not block.pinned:
                blocks[i] = (
                    _digest_tools(view, block) if i < len(blocks) - self.keep else self._cut_results(view, block)
                )
        return msgspec.structs.replace(view, blocks=tuple(blocks), digests=True)

    def _cut_results(self, view: View, block: Block) -> Block:
        """Return the exchange with each long tool result cut to its beginning and end."""
        cuts = []
        for position in range(block.first, block.stop):
            entry = view.get_entry(position)
            if entry.role == "tool" and entry.tokens > self.longest and block.find_altered_run(position) is None:
                cuts += view.make_cut(position, self.longest)
        return view.with_altered_runs(block, cuts)


def _digest_tools(view: View, block: Block) -> Block:
    """Return the exchange with each of its tool calls replaced by a one-line digest."""
    new = [run for run in view.find_tool_runs(block) if block.find_altered_run(run.first) != run]
    return view.with_altered_runs(block, new)
