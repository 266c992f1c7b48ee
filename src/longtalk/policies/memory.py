"""Bounded for ever, and it remembers: epochs on the brief.

While a conversation is short it is sent whole. When carrying it on has cost more than to begin anew would, the model is
asked for a card inside its next answer; with the card at hand the brief takes the place of all but the last
exchanges. Nobody is asked for a summary, unless two asks have brought no card. At `limit` an epoch ends whatever it
costs; what no card has told of is then left as outlines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from longtalk.errors import InputError
from longtalk.memory.book import ASKS, Book, Card, Way, book_of
from longtalk.memory.head import fresh, head, outlines
from longtalk.memory.labels import changes_in
from longtalk.memory.notes import line_id, normal, told_in, wire
from longtalk.memory.schema import Brief, within
from longtalk.memory.settings import Recall
from longtalk.pack import ANSWERS
from longtalk.policies.base import Compactor, Policy, Size
from longtalk.policies.economy import SHARE
from longtalk.policies.limits import OverWindow
from longtalk.policies.summarize import LENGTH
from longtalk.policies.view import Block, View
from longtalk.summaries import Summary, Wanted, joined_spans
from longtalk.tokens import Counter
from longtalk.transcript import Transcript

LEAST = 2
"""So many of the last exchanges stay as they are if `recent` has room for them …"""
FEW = 3
"""… and more of them while all that stay have no more than this part of it."""
_MOST = 10**7
_TIMEOUT = 60.0


class Memory(msgspec.Struct, frozen=True):
    """Keeps a brief in place of older exchanges, and recalls of these what fits the message.

    A request has at most `limit` tokens beside the preamble, what is recalled, what asks for a card, and the current
    exchange. `recent` is what may stay as it is of the last exchanges when older ones go, `outline` what is told of
    those that have just gone, `recall` what may be recalled, all in tokens.
    """

    brief: Brief = Brief()
    outline: int = 100
    recent: int = 1_500
    recall: int | Recall = Recall()
    limit: int = 12_000
    capture: Way = "sentinel"
    """How the model gives what is to be kept: in a card at the end of its answer, which nobody sees, or by a tool."""

    def __post_init__(self) -> None:
        if not isinstance(self.brief, Brief):
            raise InputError(f"`brief` is a Brief(…), not {self.brief!r}.")
        if not isinstance(self.recall, Recall):
            within(self.recall, "What may be recalled, in tokens,", 0, _MOST)
            msgspec.structs.force_setattr(self, "recall", Recall(self.recall))
        for name in ("outline", "recent", "limit"):
            within(getattr(self, name), f"`{name}` of a memory, in tokens,", 0, _MOST)
        if self.capture not in ("sentinel", "tool"):
            raise InputError(f"`capture` is 'sentinel' or 'tool', not {self.capture!r}.")

    @property
    def recalls(self) -> Recall:
        return self.recall if isinstance(self.recall, Recall) else Recall(self.recall)

    @property
    def length(self) -> int:
        """Tokens of the head that an epoch begins with, at most, unless something has to stand in for a card."""
        return self.brief.budget + self.outline

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        how, to = OntoBrief(self), Filled(max(0, self.limit - self.length))
        triggers = (Ripe(self.recent, self.length), OverHistory(self.limit), OverWindow(SHARE))
        return tuple(Compactor(trigger, (how,), to) for trigger in triggers)


class Ripe(msgspec.Struct, frozen=True):
    """Fires when carrying on has cost more than a new epoch would, and something can stand for what goes."""

    recent: int
    length: int

    def fires(self, size: Size) -> bool:
        return size.ripe(self.recent, self.length)

    def __str__(self) -> str:
        return "carrying it on has cost as much as a new beginning"


class OverHistory(msgspec.Struct, frozen=True):
    """Fires when there is something to let go of, and all before the current exchange has more tokens than this."""

    limit: int

    def fires(self, size: Size) -> bool:
        return size.loose > 0 and size.history > self.limit

    def __str__(self) -> str:
        return f"over {self.limit:,} tokens of history"


class Filled(msgspec.Struct, frozen=True):
    """Fires while there is something to let go of, and when what has to stay leaves no room for a head."""

    limit: int

    def fires(self, size: Size) -> bool:
        return size.loose > 0 or size.history > self.limit

    def __str__(self) -> str:
        return f"over {self.limit:,} tokens of history"


class OntoBrief(msgspec.Struct, frozen=True):
    """Puts the brief in the place of all but the last exchanges."""

    config: Memory
    background = False

    def apply(self, view: View, limits: Compactor) -> View:
        loose = [block for block in view.blocks[:-1] if not block.pinned]
        gone = len(loose) - self._stay(view, loose)
        if not gone and loose and isinstance(limits.over, OverHistory) and limits.over.fires(view):
            gone = 1
        if not gone:
            return view
        book = book_of(view.transcript)
        stop = loose[gone - 1].stop
        told = _told(view, book, self.config)
        if max(book.covers, told.stop if told else 0) < stop and isinstance(limits.over, Ripe):
            # Nothing stands for it yet, and there is still room.
            if view.asks != "before":
                return msgspec.structs.replace(view, owes=False)
            wants = Wanted(stop=stop, length=LENGTH, timeout=_TIMEOUT)
            return msgspec.structs.replace(view, wants=wants)
        shorter = view.with_summary(self._head(view, book, loose[:gone], told))
        while gone < len(loose) and OverHistory(self.config.limit).fires(shorter):
            gone += 1
            shorter = view.with_summary(self._head(view, book, loose[:gone], told))
        return shorter

    def is_stale(
        self, there: Summary | None, transcript: Transcript, counter: Counter, beside: Sequence[str] = ()
    ) -> bool:
        """Whether a request has to begin with another brief than it would: the app has changed it.

        What went `beside` earlier messages and stays there may have a line that was taken away.
        """
        book = book_of(transcript)
        if there is not None:
            more = counter.count(fresh(book, self.config.brief, counter, there, beside)) if book.notes.lines else 0
            return there.is_brief and (
                there.edition != book.edition or (more > 0 and there.brief + more > self.config.brief.budget)
            )
        if book.edition and not told_in(beside) <= told_in([wire(book.notes, self.config.brief)]):
            return True
        # Before the first answer nothing is in a cache; and of what was handed out nothing else is left.
        begins = bool(transcript.shed.number) or not any(entry.role in ANSWERS for entry in transcript)
        return bool(book.notes.lines) and begins

    def renewed(self, view: View) -> View:
        """The same exchanges behind the brief as it is now."""
        book = book_of(view.transcript)
        gone = self._revoked(view, book)
        made = head(
            book,
            self.config.brief,
            _Counting(view.count),
            view.wire,
            covers=_joined(view.summary.covers if view.summary else (), gone),
            gone=(),
            room=0,
            told=_told(view, book, self.config),
            before=outlines(view.summary),
        )
        return view.with_summary(made) if gone else msgspec.structs.replace(view, summary=made)

    def _revoked(self, view: View, book: Book) -> list[Block]:
        """The exchanges up to the last one in which a card says what the app has revoked."""
        loose = [block for block in view.blocks[:-1] if not block.pinned]
        revoked = frozenset(book.notes.revoked)
        said = [i for i, block in enumerate(loose) if revoked & _noted_in(view, block)]
        return loose[: said[-1] + 1] if said else []

    def _stay(self, view: View, loose: Sequence[Block]) -> int:
        """How many of the last exchanges stay as they are."""
        lengths = [round(view.scale * block.tokens) for block in loose]
        return how_many_stay(lengths, min(self.config.recent, self.config.limit), whole=self.config.recent)

    def _head(self, view: View, book: Book, gone: Sequence[Block], told: Summary | None) -> Summary:
        """The brief, and outlines of the exchanges that go now: of all that no card has told of, else of the last."""
        config = self.config
        untold = [block for block in gone if block.stop > max(book.covers, told.stop if told else 0)]
        room = max(config.outline, config.limit // 20) if untold and config.outline else config.outline
        before = view.summary.covers if view.summary else ()
        return head(
            book,
            config.brief,
            _Counting(view.count),
            view.wire,
            covers=_joined(before, gone),
            gone=[[view.entry(place) for place in range(block.first, block.stop)] for block in untold or gone[-1:]],
            room=room,
            told=told,
        )


def _noted_in(view: View, block: Block) -> set[str]:
    """The ids of the lines that the cards of an exchange say."""
    changes = [change for place in range(block.first, block.stop) for change in changes_in(view.entry(place))]
    return {line_id("", normal(text)) for change in changes for text in change.texts}


def _told(view: View, book: Book, config: Memory) -> Summary | None:
    """The summary that stands in for a card, as long as none came after it and the limit has room for it."""
    found = view.offered
    return found if found and found.stop > book.covers and found.tokens + config.length <= config.limit else None


def how_many_stay(lengths: Sequence[int], room: int, *, whole: int) -> int:
    """How many of the last exchanges stay, given their lengths: two, and more while they are short."""
    total = 0
    for number, length in enumerate(reversed(lengths)):
        total += length
        if total > room or (number >= LEAST and total > whole // FEW):
            return number
    return len(lengths)


def memory_of(policy: Policy) -> OntoBrief | None:
    """How a policy keeps a brief, if it does."""
    found = (strategy for each in policy.compactors for strategy in each.strategies)
    return next((strategy for strategy in found if isinstance(strategy, OntoBrief)), None)


def _joined(before: tuple[tuple[int, int], ...], gone: Sequence[Block]) -> tuple[tuple[int, int], ...]:
    return joined_spans([*before, *((block.first, block.stop) for block in gone)])


class _Counting(msgspec.Struct, frozen=True):
    """Who counts, as others want it."""

    count: Callable[[str], int]


def card_wanted(config: Memory, book: Book, *, near: bool, history: int, raw: int, current: int) -> Card:
    """Whether a card should be asked for with the next call: `""`, `"small"` or `"catch_up"`.

    `raw` and `current` are the places where the exchanges begin that are sent as they are, and the current one.
    """
    if not (near or history >= config.limit * 9 // 10) or (config.limit and book.asks_since(raw) >= ASKS):
        return ""
    return "catch_up" if max(raw, book.covers) < current else "small"
