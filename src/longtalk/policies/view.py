"""`View`: the conversation as a policy sees it, a list of exchanges with their lengths, which strategies shorten.

Positions count from the start of the whole conversation, so they stay valid after older entries have left the state.
Parts of a kept exchange may be sent in another form, each described by a `Run`: a long text cut to its beginning and
end, tool calls as one-line digests, or a series of events without its middle.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Literal

import msgspec

from longtalk.memory.summary import Summary, SummaryRequest
from longtalk.tokens import Counter
from longtalk.transcript.manifest import CUT, DIGEST, Run
from longtalk.transcript.pack import ANSWERS
from longtalk.transcript.passages import Passage
from longtalk.transcript.transcript import Entry, Transcript
from longtalk.wires.entries import digest_tool_calls, read_text
from longtalk.wires.protocol import Wire

MIN_RECENT_EXCHANGES = 2
"""The number of last exchanges that are kept unchanged if together they have at most `recent` tokens."""
RECENT_SHARE = 3
"""Further exchanges are kept only while all kept exchanges together take at most 1/3 of `recent`."""
NOTE_TOKENS = 20
"""The approximate number of tokens in the note that marks a cut or an omission."""


_get_first, _get_last = attrgetter("first"), attrgetter("last")


class Block(msgspec.Struct, frozen=True):
    """One exchange in a view: the entries from position `first` up to `stop` (exclusive), and their size as sent."""

    first: int
    stop: int
    messages: int
    tokens: int
    pinned: bool = False
    altered: tuple[Run, ...] = ()
    """The runs of entries that are sent in another form, in order and without overlaps."""

    def find_altered_run(self, position: int) -> Run | None:
        """Return the altered run that contains the entry at a position, or None if the entry is sent unchanged."""
        i = bisect_left(self.altered, position, key=_get_last)
        return self.altered[i] if i < len(self.altered) and self.altered[i].first <= position else None


class View(msgspec.Struct, frozen=True):
    """The conversation as it would be sent. The last block is the current exchange, which is always kept.

    All token numbers are local counts, except `tokens` and `history`, which are scaled to match what the provider
    reports.
    """

    transcript: Transcript
    wire: Wire
    counter: Counter
    blocks: tuple[Block, ...]
    fixed: int
    """The number of tokens of the preamble and the tail, as counted locally."""
    scale: float
    """The ratio of tokens as reported by the provider to tokens as counted locally."""
    window: int
    lines: Sequence[str] = ()
    """Digest lines about tool calls in exchanges that are left out."""
    digests: bool = False
    """Whether older tool calls, including those of exchanges that are left out, are sent as digest lines."""
    summary: Summary | None = None
    """The summary at the head of the request, in place of the oldest exchanges; None if there is none."""
    latest_summary: Summary | None = None
    """The newest summary of the conversation, even if the request does not use it; None if there is none."""
    may_summarize: Literal["before", "after"] | None = None
    """When a requested summary would be made: before the next call, or after an answer. None: no request is allowed."""
    summary_request: SummaryRequest | None = None
    """The summary that a strategy has requested, or None."""
    compaction_pays: bool = False
    """Whether resending the older exchanges has cost as much as a new epoch would."""
    passages: tuple[Passage, ...] = ()
    """The passages that were recalled so often that they would be cheaper in the head, those of the most turns first.
    """

    @property
    def exchanges(self) -> int:
        return len(self.blocks)

    @property
    def messages(self) -> int:
        return sum(block.messages for block in self.blocks)

    def summary_pays(self, keep: int, length: int) -> bool:  # noqa: ARG002
        return self.compaction_pays

    def brief_pays(self, recent: int, length: int) -> bool:  # noqa: ARG002
        return self.compaction_pays

    @property
    def history(self) -> int:
        """The number of tokens that precede the current exchange, not counting the preamble."""
        return round(self.scale * (self.counted - self.fixed - self.blocks[-1].tokens))

    @property
    def droppable(self) -> int:
        """The number of exchanges that may be left out because they are neither pinned nor current."""
        return len(self.droppable_blocks)

    @property
    def droppable_blocks(self) -> list[Block]:
        """The exchanges that may be left out, oldest first."""
        return [block for block in self.blocks[:-1] if not block.pinned]

    @property
    def counted(self) -> int:
        """The number of tokens in the whole request, as counted locally."""
        lines = self.count("\n".join(self.lines)) if self.lines else 0
        head = self.summary.tokens if self.summary else 0
        return self.fixed + head + lines + sum(block.tokens for block in self.blocks)

    @property
    def tokens(self) -> int:
        return round(self.scale * self.counted)

    @property
    def usable_summary(self) -> Summary | None:
        """The latest summary if it covers everything that the present summary of the request does, else the latter."""
        present, latest = self.summary, self.latest_summary
        if present is None or (latest is not None and all(latest.covers_range(*span) for span in present.covers)):
            return latest
        return present

    def count(self, text: str) -> int:
        """Return the number of tokens in a text, as counted locally."""
        return self.counter.count(text)

    def get_entry(self, position: int) -> Entry:
        """Return the entry at a position in the conversation."""
        return self.transcript[self.transcript.index_of(position)]

    def count_tokens(self, first: int, last: int) -> int:
        """Return the number of tokens, counted locally, of the entries from position `first` to `last` inclusive."""
        return self.transcript.tokens(self.transcript.index_of(first), self.transcript.index_of(last + 1))

    def with_blocks(self, blocks: Sequence[Block]) -> View:
        """Return a copy of the view with these exchanges only."""
        return msgspec.structs.replace(self, blocks=tuple(blocks))

    def with_summary(self, summary: Summary) -> View:
        """Return a copy of the view that begins with this summary, without the exchanges that the summary covers."""
        covered = [block for block in self.droppable_blocks if summary.covers_range(block.first, block.stop)]
        return self.replace_blocks(covered, summary)

    def replace_blocks(self, dropped: Iterable[Block], head: Summary) -> View:
        """Return a copy of the view that begins with this summary or head, without these exchanges."""
        positions = {block.first for block in dropped}
        view = self.with_blocks([block for block in self.blocks if block.first not in positions])
        return msgspec.structs.replace(view, summary=head, compaction_pays=False)

    def make_block(self, first: int, stop: int, *, pinned: bool, altered: Sequence[Run] = ()) -> Block:
        """Return a block for the exchange from position `first` up to `stop` (exclusive), with these altered runs."""
        block = Block(first, stop, stop - first, self.count_tokens(first, stop - 1), pinned)
        if all(run.last < other.first for run, other in pairwise(altered)):
            return self.with_altered_runs(block, altered)
        for run in altered:
            block = self.with_altered_run(block, run)
        return block

    def with_altered_run(self, block: Block, run: Run) -> Block:
        """Return the block with one more altered run, which replaces all earlier runs that it overlaps."""
        return self.with_altered_runs(block, [run])

    def with_altered_runs(self, block: Block, runs: Sequence[Run]) -> Block:
        """Return the block with more altered runs, in order and without overlaps. Each replaces those it overlaps.

        The work is proportional to the number of runs, of which an exchange may have thousands.
        """
        altered: list[Run] = []
        saved_tokens, saved_messages, done = 0, 0, 0
        for run in runs:
            start = bisect_left(block.altered, run.first, lo=done, key=_get_last)
            stop = bisect_right(block.altered, run.last, lo=start, key=_get_first)
            altered += (*block.altered[done:start], run)
            done = stop
            for sign, each in ((1, run), *((-1, other) for other in block.altered[start:stop])):
                tokens, messages = self._compute_savings(each)
                saved_tokens, saved_messages = saved_tokens + sign * tokens, saved_messages + sign * messages
        return msgspec.structs.replace(
            block,
            altered=(*altered, *block.altered[done:]),
            tokens=block.tokens - saved_tokens,
            messages=block.messages - saved_messages,
        )

    def _compute_savings(self, run: Run) -> tuple[int, int]:
        """Return the number of tokens and the number of messages that are saved by altering a run."""
        whole = self.count_tokens(run.first, run.last)
        if run.keep:
            return whole - run.tokens, 0
        note = self.count("\n".join(self.render_digest(run))) if run.verdict == "summarised" else NOTE_TOKENS
        return whole - note, run.last - run.first

    def find_tool_runs(self, block: Block) -> list[Run]:
        """Return the runs of tool use in an exchange, each from its first tool call to its last tool result."""
        runs = []
        start = block.first
        all_roles = [self.get_entry(position).role for position in range(block.first, block.stop)]
        for is_answer, group in groupby(all_roles, key=lambda role: role in ANSWERS):
            roles = list(group)
            if is_answer and "tool" in roles:
                # In a forged state, the group may begin with a tool result that has no call.
                first = start + max(0, roles.index("tool") - 1)
                last = start + len(roles) - 1 - roles[::-1].index("tool")
                runs.append(Run(first, last, "summarised", DIGEST, tokens=self.count_tokens(first, last)))
            start += len(roles)
        return runs

    def render_digest(self, run: Run) -> list[str]:
        """Return the digest of a run: one line for each tool call."""
        return digest_tool_calls([self.get_entry(position) for position in range(run.first, run.last + 1)])

    def with_cut_text(self, block: Block, position: int, tokens: int) -> Block:
        """Return the block with the text at `position` cut to about `tokens` tokens; unchanged if it is shorter."""
        return self.with_altered_runs(block, self.make_cut(position, tokens))

    def make_cut(self, position: int, tokens: int) -> list[Run]:
        """Return the run that cuts the text at `position` to about `tokens` tokens; none if the text is shorter."""
        entry = self.get_entry(position)
        length = len(read_text(entry))
        keep = length * tokens // max(1, entry.tokens)
        return [Run(position, position, "sent", CUT, tokens=tokens + NOTE_TOKENS, keep=keep)] * (0 < keep < length)


def count_recent(lengths: Sequence[int], room: int, *, whole: int) -> int:
    """Return the number of last exchanges to keep unchanged, given the lengths of all exchanges in tokens.

    Together, the kept exchanges have at most `room` tokens and, if there are more than two, at most a third of `whole`.
    """
    total = 0
    for number, length in enumerate(reversed(lengths)):
        total += length
        if total > room or (number >= MIN_RECENT_EXCHANGES and total > whole // RECENT_SHARE):
            return number
    return len(lengths)
