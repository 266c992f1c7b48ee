"""A conversation as a policy sees it: exchanges with their lengths, of which strategies make a shorter view.

Positions are places in the whole conversation, so that they stay true when older entries were handed out. Inside an
exchange that stays, three things may go in another form, each a `Run`: a long text cut to head and tail, the work
of tools as a digest, and the middle of many events left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Literal

import msgspec

from longtalk.pack import ANSWERS
from longtalk.summaries import Summary, Wanted
from longtalk.transcript import Entry, Transcript
from longtalk.wires.base import Wire, text_of, tool_lines

Verdict = Literal["sent", "held", "recalled", "summarised", "handed_out", "left_out"]

CUT = "cut to head and tail"
DIGEST = "tool digest"
MIDDLE = "the middle of many events"
SUMMARY = "summary"
BRIEF = "brief"
NOTE = 20
"""Tokens, roughly, of a word about what is left out."""


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """Neighbours that share a verdict: places in the conversation, both included."""

    first: int
    last: int
    verdict: Verdict
    reason: str
    tokens: int = 0
    """How long what is sent of them is; of what is not sent, how long it would be. As counted, not as reported."""
    keep: int = 0
    """Of a text that is cut to head and tail: how many characters are left."""

    @property
    def is_gone(self) -> bool:
        """Whether whole exchanges are left out, or told in the summary."""
        if self.verdict == "summarised":
            return self.reason in (SUMMARY, BRIEF)
        return self.verdict == "left_out" and self.reason != MIDDLE

    @property
    def is_digest(self) -> bool:
        """Whether tools go as a digest."""
        return self.verdict == "summarised" and not self.is_gone


class Block(msgspec.Struct, frozen=True):
    """One exchange of a view, with the lengths that it has there."""

    first: int
    stop: int
    messages: int
    tokens: int
    pinned: bool = False
    special: tuple[Run, ...] = ()
    """What of it goes in another form, in order."""

    def special_at(self, place: int) -> Run | None:
        """The run that an entry goes in, if it does not go as it is."""
        return next((run for run in self.special if run.first <= place <= run.last), None)


class View(msgspec.Struct, frozen=True):
    """What would be sent. The last block is the current exchange, which always stays."""

    transcript: Transcript
    wire: Wire
    count: Callable[[str], int]
    """Tokens of a text, as counted."""
    blocks: tuple[Block, ...]
    fixed: int
    """Tokens of the preamble and the tail, as counted."""
    scale: float
    """Reported tokens for each counted one."""
    window: int
    lines: Sequence[str] = ()
    """What tools did in exchanges that are left out."""
    digests: bool = False
    """Whether what tools did goes as a digest, here and in what is left out."""
    summary: Summary | None = None
    """What goes at the head, in place of the oldest exchanges."""
    offered: Summary | None = None
    """The newest one that there is."""
    asks: Literal["before", "after"] | None = None
    """Whether one can be asked for: before the next call, or after an answer."""
    wants: Wanted | None = None
    """One that should be."""
    owes: bool = False
    """Whether carrying on has cost as much as to begin anew."""

    @property
    def exchanges(self) -> int:
        return len(self.blocks)

    @property
    def messages(self) -> int:
        return sum(block.messages for block in self.blocks)

    def due(self, keep: int, length: int) -> bool:  # noqa: ARG002
        return self.owes

    def ripe(self, recent: int, length: int) -> bool:  # noqa: ARG002
        return self.owes

    @property
    def history(self) -> int:
        """Tokens of what goes before the current exchange."""
        return round(self.scale * (self.counted - self.fixed - self.blocks[-1].tokens))

    @property
    def loose(self) -> int:
        """How many exchanges there are that may go: neither pinned nor the current one."""
        return sum(not block.pinned for block in self.blocks[:-1])

    @property
    def counted(self) -> int:
        """Tokens as counted."""
        lines = self.count("\n".join(self.lines)) if self.lines else 0
        head = self.summary.tokens if self.summary else 0
        return self.fixed + head + lines + sum(block.tokens for block in self.blocks)

    @property
    def tokens(self) -> int:
        return round(self.scale * self.counted)

    @property
    def newest_summary(self) -> Summary | None:
        """The one that is offered, if it stands for all that the present one does."""
        there, offered = self.summary, self.offered
        if there is None or (offered is not None and all(offered.has(*span) for span in there.covers)):
            return offered
        return there

    def entry(self, place: int) -> Entry:
        return self.transcript[self.transcript.here(place)]

    def tokens_of(self, first: int, last: int) -> int:
        """How long these entries are, as counted."""
        return self.transcript.tokens(self.transcript.here(first), self.transcript.here(last + 1))

    def with_blocks(self, blocks: Sequence[Block]) -> View:
        return msgspec.structs.replace(self, blocks=tuple(blocks))

    def with_summary(self, summary: Summary) -> View:
        """Without the exchanges that a summary covers."""
        stay = [block for block in self.blocks[:-1] if block.pinned or not summary.has(block.first, block.stop)]
        view = self.with_blocks((*stay, self.blocks[-1]))
        return msgspec.structs.replace(view, summary=summary, owes=False)

    def block(self, first: int, stop: int, *, pinned: bool, special: Sequence[Run] = ()) -> Block:
        """An exchange of the transcript."""
        block = Block(first, stop, stop - first, self.tokens_of(first, stop - 1), pinned)
        for run in special:
            block = self.change(block, run)
        return block

    def change(self, block: Block, run: Run) -> Block:
        """An exchange of which a run goes in another form, instead of what that covers."""
        covered = [other for other in block.special if run.first <= other.last and other.first <= run.last]
        others = [other for other in block.special if other not in covered]
        tokens, messages = self._saved(run)
        for other in covered:
            back_tokens, back_messages = self._saved(other)
            tokens, messages = tokens - back_tokens, messages - back_messages
        return msgspec.structs.replace(
            block,
            special=tuple(sorted((*others, run), key=lambda run: run.first)),
            tokens=block.tokens - tokens,
            messages=block.messages - messages,
        )

    def _saved(self, run: Run) -> tuple[int, int]:
        """Tokens and messages that a run in another form takes less."""
        whole = self.tokens_of(run.first, run.last)
        if run.keep:
            return whole - run.tokens, 0
        note = self.count("\n".join(self.lines_of(run))) if run.verdict == "summarised" else NOTE
        return whole - note, run.last - run.first

    def tools(self, block: Block) -> list[Run]:
        """What the tools of an exchange did, from each first call to the last result behind it."""
        runs = []
        place = block.first
        roles = [self.entry(place).role for place in range(block.first, block.stop)]
        for answers, group in groupby(roles, key=lambda role: role in ANSWERS):
            said = list(group)
            if answers and "tool" in said:
                first = place + said.index("tool") - 1
                last = place + len(said) - 1 - said[::-1].index("tool")
                runs.append(Run(first, last, "summarised", DIGEST, tokens=self.tokens_of(first, last)))
            place += len(said)
        return runs

    def lines_of(self, run: Run) -> list[str]:
        """What the tools of a run did, a line for each call."""
        return tool_lines([self.entry(place) for place in range(run.first, run.last + 1)])

    def shortened(self, block: Block, place: int, tokens: int) -> Block:
        """An exchange with a long text in it cut to about so many tokens; the same one if it has no more."""
        entry = self.entry(place)
        length = len(text_of(entry))
        keep = length * tokens // max(1, entry.tokens)
        if not 0 < keep < length:
            return block
        return self.change(block, Run(place, place, "sent", CUT, tokens=tokens + NOTE, keep=keep))
