"""Replay a recorded conversation with one model and one policy, to find the model calls that this would have taken.

For each recorded answer, the request is composed as a chat would compose it, and compared message by message with
earlier requests: a prefix in common with a recent request counts as read from the provider's cache. The recorded
answers are used. Where the policy asks for a summary, a placeholder text takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from longtalk.context.additions import TurnAdditions
from longtalk.context.compose import Context
from longtalk.context.costs import (
    CARD_TOKENS,
    CostReceipt,
    Meter,
    complete_receipts,
)
from longtalk.context.epochs import (
    Anchor,
    list_covered,
    record_anchor,
    record_meter,
    record_passages,
    record_summary,
)
from longtalk.context.measure import Terms
from longtalk.context.prepare import Prepared, compose_summary_request, find_message_start, prepare
from longtalk.context.recipient import Recipient
from longtalk.context.suffixes import keep_suffix
from longtalk.errors import ContextOverflow
from longtalk.memory.brief.apply import apply
from longtalk.memory.brief.lines import BriefContent
from longtalk.memory.brief.operations import Operation
from longtalk.memory.brief.record import CardKind, read_brief_record, with_brief_record
from longtalk.memory.brief.schema import Brief
from longtalk.memory.summary import TAG, Summary, SummaryRequest
from longtalk.policies import Policy
from longtalk.policies.base import find_brief_keeper
from longtalk.simulation.inputs import ReplaySetup, SimulatedModel
from longtalk.tokens import Counter, count_preamble
from longtalk.transcript.transcript import Entry, Transcript
from longtalk.usage import Usage
from longtalk.wires.protocol import Preamble

_COMPARED = 4
"""The number of earlier requests with which a request is compared."""
CARDS: Mapping[CardKind, int] = {"": 0, "small": 40, "catch_up": CARD_TOKENS}
"""The approximate number of tokens of each kind of memory card."""


class ReplayedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One model call in a replay, as numbers of tokens without prices."""

    position: int
    """The position of the answer in the trace; for a call that makes a summary, the position of the next answer."""
    known: int
    """The number of input tokens that the provider reads from its cache."""
    new: int
    """The number of input tokens in the cacheable part of the request that are not in the cache yet."""
    tail: int = 0
    """The number of input tokens after the cacheable part of the request."""
    output: int
    card: int = 0
    """The number of tokens of the memory card in the answer; 0 if it has none."""
    summary: bool = False
    begins: bool = False

    def usage(self, model: SimulatedModel) -> Usage:
        """Return the usage that the provider of this model would report for the call."""
        return Usage(
            input=self.known + self.new + self.tail,
            output=self.output + self.card,
            cached=self.known if model.caches else 0,
            written=self.new if model.bills_writes else 0,
        )


class PolicyReplay:
    """A replay of a conversation under one policy.

    `policy` is a function that returns the policy to use at a position. All policies that it returns must have the same
    `repr`.
    """

    def __init__(self, setup: ReplaySetup, policy: Callable[[int], Policy]) -> None:
        self._setup = setup
        self._policy = policy
        self._transcript = Transcript()
        self._requests: list[tuple[int, list[bytes]]] = []
        self._receipts: dict[int, CostReceipt] = {}
        self._epoch = 0
        self._added: tuple[int, TurnAdditions | None] = (-1, None)
        """The number of entries up to the turn's message, and the texts that memory adds to the turn's requests."""
        self._cards: dict[bytes, int] = {}
        """The number of tokens of the card that each of these answers would have had at its end."""
        self._full_brief: BriefContent | None = None
        self.calls: list[ReplayedCall] = []
        """The model calls, including those that make summaries."""
        self.problem = ""
        """The reason why the replay stopped early; empty if it is complete."""
        self.depends_on_prices = False
        """Whether the decisions of the policy depend on prices."""
        try:
            self._replay()
        except ContextOverflow as problem:
            self.problem = str(problem)

    @property
    def receipts(self) -> tuple[CostReceipt, ...]:
        """The cost receipts (predicted cost, actual cost, savings) of the epochs that were started to save money."""
        return tuple(complete_receipts(self._receipts.values(), self._transcript.records.read_latest("meter", Meter)))

    def _replay(self) -> None:
        trace = self._setup.trace
        answers = set(trace.answers)
        turns = [entry.turn for entry in trace.entries]
        for i, entry in enumerate(trace.entries):
            if i in answers:
                self._record_answer(i, entry)
            tokens = self._setup.estimated.count(entry.native)
            if i in answers and (card := self.calls[-1].card):
                # The stored answer keeps its card, so later requests of the epoch send it too. Spaces after the JSON
                # tell the answer from others with the same text.
                entry = msgspec.structs.replace(entry, native=entry.native + b" " * (1 + len(self._cards)))
                self._cards[entry.native] = card
                tokens += card
            counted = msgspec.structs.replace(entry, tokens=tokens)
            self._transcript = self._transcript.append_to_turn(entry.turn, [counted])
            # Tool results that begin a new turn continue the exchange.
            goes_on = [next_entry.role for next_entry in trace.entries[i + 1 : i + 2]] == ["tool"]
            if i in answers and turns[i + 1 : i + 2] not in ([], [entry.turn]) and not goes_on:
                self._fill_brief(i)
                self._prepare(i + 1, at=trace.at[i], settled=True)

    def _record_answer(self, i: int, answer: Entry) -> None:
        """Record the model call that would have produced the answer at position `i`."""
        at, setup = self._setup.trace.at[i - 1], self._setup
        prepared = self._prepare(i, at=at)
        if prepared.recalls is not None:
            from longtalk.memory.recall.search import index_transcript

            before = prepared.transcript.truncate(find_message_start(prepared.transcript, prepared.tail))
            index = index_transcript(before, prepared.message, prepared.recalls, now=at)
            prepared = prepared.with_recalled(prepared.render_recalled(index))
        self._added = (prepared.tail, prepared.added)
        context, plan = prepared.compose(), prepared.plan
        known, new = self._record_request(context, prepared.preamble, at)
        if setup.trace.entries[i + 1 : i + 2] and setup.trace.entries[i + 1].role == "tool":
            self._keep_suffix(prepared)
        tail = sum(setup.reported.count(bytes(piece)) for piece in context.pieces[context.mark :])
        call = ReplayedCall(
            position=i,
            known=known,
            new=new - tail,
            tail=tail,
            output=setup.reported.count(answer.native),
            card=CARDS[prepared.added.card] if prepared.is_new else 0,
            begins=plan.epoch.start != self._epoch,
        )
        self.calls.append(call)
        self._epoch = plan.epoch.start
        usage, digest = call.usage(setup.model), setup.trace.preamble.digest()
        anchor = Anchor(plan.epoch.start, setup.model.label, digest, context.counted, usage.input)
        self._transcript = record_anchor(self._transcript, anchor)
        if context.passages is not None:
            self._transcript = record_passages(self._transcript, context.passages)
        if plan.meter is not None:
            self.depends_on_prices = True
            recalled = context.recall if prepared.is_new else 0
            self._transcript = record_meter(self._transcript, plan.meter, usage, at=at, recalled=recalled)
            receipt = self._transcript.records.read_latest("receipt", CostReceipt)
            if receipt is not None:
                self._receipts[receipt.epoch] = receipt

    def _prepare(self, i: int, *, at: int, settled: bool = False) -> Prepared:
        """Prepare the request at position `i`; if the policy asks for a summary, make the summary first.

        `at` is the time in milliseconds, and `settled` says that a turn has just ended.
        """
        trace, model = self._setup.trace, self._setup.model
        terms = Terms(
            wire=trace.wire,
            counter=self._setup.estimated.counter,
            model=model.label,
            preamble=trace.preamble.digest(),
            fixed=self._setup.estimated.preamble,
            window=model.window,
            answer=model.answer,
            prices=model.prices,
            caches=model.caches,
            cache_seconds=model.cache_seconds,
            now=at,
        )
        policy, recipient = self._policy(i), Recipient(preamble=trace.preamble, calls_tools=True)
        tail, added = self._added
        if tail != self._transcript.tail:
            added = None
        prepared = prepare(self._transcript, policy, terms, recipient, added=added, settled=settled, may_ask=True)
        if prepared.plan.summary_request is not None:
            self._summarize(prepared.plan.summary_request, prepared, i, at)
            prepared = prepare(self._transcript, policy, terms, recipient, added=added, settled=settled)
        self._transcript = prepared.transcript
        return prepared

    def _summarize(self, wants: SummaryRequest, prepared: Prepared, i: int, at: int) -> None:
        """Record a placeholder as a summary and, unless a function of the app writes it, the call that makes it."""
        setup, wire, epoch = self._setup, self._setup.trace.wire, prepared.plan.epoch
        text = setup.summary(wants.length, len(self.calls), setup.reported.counter)
        quoted = wire.quote(TAG, text)
        summary = Summary(
            text=text,
            covers=list_covered(epoch, wants.stop),
            tokens=setup.estimated.count(quoted),
            predicted=wants.predicted,
        )
        if wants.write is None:
            recipient = msgspec.structs.replace(prepared.recipient, preamble=prepared.preamble)
            context, prompt = compose_summary_request(self._transcript, epoch, wants, wire, recipient)
            known, new = self._record_request(context, prepared.preamble, at)
            tail, output = setup.reported.count(prompt), setup.reported.count(quoted)
            call = ReplayedCall(position=i, known=known, new=new, tail=tail, output=output, summary=True)
            self.calls.append(call)
            summary = msgspec.structs.replace(summary, model=setup.model.label, usage=call.usage(setup.model))
        self._transcript = record_summary(self._transcript, summary, self._transcript[wants.stop - 1].id)

    def _keep_suffix(self, prepared: Prepared) -> None:
        """Record the text that memory added after the user's message, so that later requests of the turn repeat it."""
        suffix = prepared.added.make_suffix(self._transcript, prepared.tail, None)
        if suffix is not None:
            wire, counter = prepared.terms.wire, prepared.terms.counter
            self._transcript = keep_suffix(
                self._transcript, suffix, prepared.tail, wire, counter, at=prepared.terms.now
            )

    def _fill_brief(self, i: int) -> None:
        """If a card was requested, fill the brief up to its limit, as the cards of a long conversation would."""
        keeper, added = find_brief_keeper(self._policy(i)), self._added[1]
        if keeper is None or added is None or not added.card:
            return
        brief, counter = keeper.brief, self._setup.estimated.counter
        self._full_brief = self._full_brief or build_full_brief(brief, counter)
        book = msgspec.structs.replace(
            read_brief_record(self._transcript), content=self._full_brief, covers=self._transcript.size, asks=0
        )
        self._transcript = with_brief_record(self._transcript, book)

    def _record_request(self, context: Context, preamble: Preamble, at: int) -> tuple[int, int]:
        """Record a request. Return how many of its tokens are read from the cache, and how many are not."""
        model, sizes = self._setup.model, self._setup.reported
        messages = [bytes(piece) for piece in context.pieces]
        tokens = [sizes.count(message) + self._cards.get(message, 0) for message in messages]
        lasts = 1_000 * model.cache_seconds if model.caches else 0
        recent = [(then, sent) for then, sent in self._requests if at - then < lasts]
        self._requests = [*recent[1 - _COMPARED :], (at, messages)]
        first = sizes.preamble
        if preamble is not self._setup.trace.preamble:
            first = count_preamble(preamble.system, preamble.tools, sizes.counter)
        if not recent:
            return 0, first + sum(tokens)
        known = max(_count_equal(messages, sent) for _, sent in recent)
        return first + sum(tokens[:known]), sum(tokens[known:])


def build_full_brief(brief: Brief, counter: Counter) -> BriefContent:
    """Return a brief with placeholder lines in all of its fields."""
    words = [
        f"what {field.name} number {i} says of this and that and more"
        for field in brief.schema.fields
        for i in range(8)
    ]
    planned = [
        Operation("plain", field.name, (words[8 * n],))
        if field.kind == "text"
        else Operation.add(field.name, *words[8 * n : 8 * n + 8])
        for n, field in enumerate(brief.schema.fields)
    ]
    return apply(BriefContent(), planned, brief, counter).content


def _count_equal(some: Sequence[bytes], more: Sequence[bytes]) -> int:
    """Return the number of equal messages at the start of two requests."""
    pairs = zip(some, more, strict=False)
    return next((i for i, (one, other) in enumerate(pairs) if one != other), min(len(some), len(more)))
