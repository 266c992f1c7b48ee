"""Replay a recorded conversation with one model and one policy, to find the model calls that it would have made.

For each recorded answer, the request is composed as a chat would compose it, and compared message by message with
earlier requests: a prefix that it shares with a recent request is read from the provider's cache. Answers are the
recorded ones. Where the policy asks for a summary, a placeholder text takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import msgspec

from longtalk._util import json_bytes
from longtalk.context.compose import Context, compose
from longtalk.context.costs import (
    CACHE_SECONDS,
    CARD_TOKENS,
    CostReceipt,
    Meter,
    Ratios,
    complete_receipts,
    compute_ratios,
)
from longtalk.context.epochs import (
    Anchor,
    SentPositions,
    TurnSuffix,
    list_covered,
    record_anchor,
    record_meter,
    record_summary,
)
from longtalk.context.measure import Terms
from longtalk.context.planning import Plan, apply_plan, make_plan
from longtalk.errors import ContextOverflow, InputError
from longtalk.memory.brief.apply import apply
from longtalk.memory.brief.lines import BriefContent
from longtalk.memory.brief.operations import Operation
from longtalk.memory.brief.record import CardKind, read_brief_record, with_brief_record
from longtalk.memory.brief.schema import Brief
from longtalk.memory.cards.capture import render_card_request
from longtalk.memory.summary import TAG, Summary, SummaryRequest, render_summary_prompt
from longtalk.models import registry
from longtalk.models.prices import FREE, Prices
from longtalk.policies import Policy
from longtalk.policies.memory import find_memory
from longtalk.providers.registry import PROVIDERS
from longtalk.tokens import Counter, count_message, count_preamble, counter_for
from longtalk.transcript.records import read_latest
from longtalk.transcript.transcript import Entry, Transcript
from longtalk.usage import Usage
from longtalk.wires import WIRES
from longtalk.wires.entries import read_text
from longtalk.wires.neutral import LONGTALK
from longtalk.wires.protocol import Preamble, Quirks, Wire
from longtalk.wires.text import wrap_in_tag

PAUSE = 60_000
"""The assumed time between two entries in milliseconds, if the conversation has no usable times."""
_COMPARED = 4
"""The number of earlier requests with which a request is compared."""
CARDS: Mapping[CardKind, int] = {"": 0, "small": 40, "catch_up": CARD_TOKENS}
"""The approximate number of tokens of each kind of memory card."""
_MAX_ANSWER = 4_096
"""The maximum number of tokens to reserve for an answer."""


class SimulatedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model to simulate: its prices, context window and cache."""

    label: str
    prices: Prices | None = None
    window: int | None = None
    caches: bool = True
    cache_seconds: int = CACHE_SECONDS

    @classmethod
    def from_label(cls, label: str) -> SimulatedModel:
        """Return the model with this label from the registry; raise `InputError` if it is unknown."""
        found = registry.find(label)
        if found is None and label == "local":
            return cls(label=label, prices=FREE, window=PROVIDERS["local"].capabilities.window)
        if found is None:
            raise InputError(
                f"The model {label!r} is unknown. `longtalk models` lists the known models; to add one, describe it in "
                "models.json in your config folder."
            )
        limits = [limit for limit in (found.window, found.input_limit) if limit is not None]
        return cls(
            label=label,
            prices=found.prices,
            window=min(limits, default=None),
            caches=found.cache != "none",
            cache_seconds=found.cache_seconds or CACHE_SECONDS,
        )

    @property
    def ratios(self) -> Ratios:
        """The cost of each kind of token, relative to an uncached input token."""
        return compute_ratios(self.prices, 0, caches=self.caches)

    @property
    def answer(self) -> int:
        """The number of tokens of the context window to reserve for an answer."""
        return min((self.window or 0) // 8, _MAX_ANSWER)

    @property
    def bills_writes(self) -> bool:
        """True if the provider reports and bills writes to its cache."""
        return self.ratios.write != 1


class Trace:
    """The recorded conversation to replay: its entries, their times, and the positions of the model's answers."""

    def __init__(self, transcript: Transcript, system: str | None) -> None:
        entries = list(transcript)
        if not entries:
            raise InputError("There is nothing to simulate: the conversation is empty.")
        wires = transcript.wires() - {LONGTALK}
        if len(wires) > 1 or not wires <= WIRES.keys():
            raise InputError(
                "Only a conversation in one message format (wire) that Longtalk knows can be simulated, "
                f"not {', '.join(sorted(wires))}."
            )
        self.wire: Wire = WIRES[wires.pop() if wires else "openai-chat"]
        while system is None and entries and entries[0].role == "system":
            system = read_text(entries.pop(0))
        self.skipped = len(transcript) - len(entries)
        """The number of entries at the start that became the system text."""
        self.preamble = Preamble(system=system)
        self.entries = entries
        self.answers = [i for i, entry in enumerate(entries) if entry.role == "assistant" and i]
        """The positions of the model's answers. An answer at the very start does not count, since no request came
        before it.
        """
        if not self.answers:
            raise InputError("There is nothing to simulate: the conversation has no answer to a message.")
        at = [entry.at for entry in entries]
        is_usable = at == sorted(at) and at[0] > 0 and at[-1] > at[0]
        self.at = at if is_usable else [PAUSE * (1 + i) for i in range(len(entries))]


class CachedCounter:
    """A token counter that counts each different message only once."""

    def __init__(self, counter: Counter, preamble: Preamble) -> None:
        self.counter = counter
        self.preamble = count_preamble(preamble.system, preamble.tools, counter)
        self.count = lru_cache(maxsize=None)(lambda native: count_message(native, counter))


class ReplaySetup:
    """The inputs of a replay: the conversation, the model, and how to count tokens and make summaries."""

    def __init__(
        self, trace: Trace, model: SimulatedModel, summary: Callable[[int, int, Counter], str], reports: Counter | None
    ) -> None:
        self.trace = trace
        self.model = model
        self.summary = summary
        """A function that returns a placeholder summary, given its length in tokens, a number and a token counter."""
        self.estimated = CachedCounter(counter_for(model.label), trace.preamble)
        self.reported = self.estimated if reports is None else CachedCounter(reports, trace.preamble)


class ReplayedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One model call in a replay: its numbers of tokens, not yet priced."""

    position: int
    """The position of the answer in the trace; for a call that made a summary, the position of the next answer."""
    known: int
    """The number of input tokens that the provider reads from its cache."""
    new: int
    """The number of input tokens that are not in the cache, up to the end of the part that can be cached."""
    tail: int = 0
    """The number of input tokens after the part that can be cached."""
    output: int
    card: int = 0
    """The number of tokens of the memory card in the answer."""
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

    `policy` is a function that returns the policy to use at a position. The `repr` of the policies must be the same at
    every position.
    """

    def __init__(self, setup: ReplaySetup, policy: Callable[[int], Policy]) -> None:
        self._setup = setup
        self._policy = policy
        self._transcript = Transcript()
        self._requests: list[tuple[int, list[bytes]]] = []
        self._receipts: dict[int, CostReceipt] = {}
        self._epoch = 0
        self._card: CardKind = ""
        self._suffix_position = -1
        self._full_brief: BriefContent | None = None
        self.calls: list[ReplayedCall] = []
        """The model calls so far, including those that made summaries."""
        self.problem = ""
        """The reason why the replay stopped early; empty if the replay is complete."""
        self.depends_on_prices = False
        """True if the policy's decisions depend on prices."""
        try:
            self._replay()
        except ContextOverflow as problem:
            self.problem = str(problem)

    @property
    def receipts(self) -> tuple[CostReceipt, ...]:
        """The cost receipts (predicted cost, actual cost, savings) of the epochs that were started to save money."""
        return tuple(complete_receipts(self._receipts.values(), read_latest(self._transcript, "meter", Meter)))

    def _replay(self) -> None:
        trace = self._setup.trace
        answers = set(trace.answers)
        turns = [entry.turn for entry in trace.entries]
        for i, entry in enumerate(trace.entries):
            if i in answers:
                self._record_answer(i, entry)
            counted = msgspec.structs.replace(entry, tokens=self._setup.estimated.count(entry.native))
            self._transcript = self._transcript.append_to_turn(entry.turn, [counted])
            if i in answers and turns[i + 1 : i + 2] not in ([], [entry.turn]):
                self._fill_brief(i)
                self._plan(i + 1, at=trace.at[i], settled=True)

    def _record_answer(self, i: int, answer: Entry) -> None:
        """Record the model call that would have produced the answer at position `i`."""
        at = self._setup.trace.at[i - 1]
        planned = self._plan(i, at=at)
        suffix = self._build_suffix(i, planned, at)
        context = self._compose(planned, suffix)
        known, new = self._record_request(context, at)
        if self._setup.trace.entries[i + 1 : i + 2] and self._setup.trace.entries[i + 1].role == "tool":
            self._keep_suffix(suffix)
        tail = sum(self._setup.reported.count(bytes(piece)) for piece in context.pieces[context.mark :])
        call = ReplayedCall(
            position=i,
            known=known,
            new=new - tail,
            tail=tail,
            output=self._setup.reported.count(answer.native),
            card=CARDS[self._card] if suffix.text else 0,
            begins=planned.epoch.start != self._epoch,
        )
        self.calls.append(call)
        self._epoch = planned.epoch.start
        model, digest = self._setup.model, self._setup.trace.preamble.digest()
        usage = call.usage(model)
        suffix_tokens = sum(map(self._setup.estimated.count, suffix.pieces(self._setup.trace.wire)))
        anchor = Anchor(planned.epoch.start, model.label, digest, planned.counted + suffix_tokens, usage.input)
        self._transcript = record_anchor(self._transcript, anchor)
        if planned.meter is not None:
            self.depends_on_prices = True
            self._transcript = record_meter(self._transcript, planned.meter, usage, at=at)
            receipt = read_latest(self._transcript, "receipt", CostReceipt)
            if receipt is not None:
                self._receipts[receipt.epoch] = receipt

    def _plan(self, i: int, *, at: int, settled: bool = False) -> Plan:
        """Return the plan for the next request; if the policy asks for a summary, make the summary first."""
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
        policy = self._policy(i)
        planned = make_plan(self._transcript, policy, terms, settled=settled, may_ask=True)
        if planned.summary_request is not None:
            self._summarize(planned.summary_request, planned, i, at)
            planned = make_plan(self._transcript, policy, terms, settled=settled)
        self._transcript = apply_plan(self._transcript, planned)
        return planned

    def _summarize(self, wants: SummaryRequest, planned: Plan, i: int, at: int) -> None:
        """Record a call that makes a summary, and use a placeholder text as the summary."""
        setup, wire = self._setup, self._setup.trace.wire
        known, new = self._record_request(self._compose(planned, until=wants.stop), at)
        text = setup.summary(wants.length, len(self.calls), setup.reported.counter)
        quoted = wire.quote(TAG, text)
        call = ReplayedCall(
            position=i,
            known=known,
            new=new,
            tail=setup.reported.count(wire.write_user(render_summary_prompt(wants.length))),
            output=setup.reported.count(quoted),
            summary=True,
        )
        self.calls.append(call)
        summary = Summary(
            text=text,
            covers=list_covered(planned.epoch, wants.stop),
            model=setup.model.label,
            tokens=setup.estimated.count(quoted),
            usage=call.usage(setup.model),
            predicted=wants.predicted,
        )
        self._transcript = record_summary(self._transcript, summary, self._transcript[wants.stop - 1].id)

    def _build_suffix(self, i: int, planned: Plan, at: int) -> TurnSuffix:
        """Return the text that memory adds after the user's message; empty for later calls of the same turn."""
        transcript, memory = self._transcript, find_memory(self._policy(i))
        position = transcript.position(transcript.tail - 1) + 1
        if memory is None or self._suffix_position == position:
            return TurnSuffix("", position)
        self._suffix_position = position
        config, counter = memory.config, self._setup.estimated.counter
        self._card = planned.card
        asks = (
            render_card_request(config.brief, "sentinel", catch_up=planned.card == "catch_up") if planned.card else ""
        )
        data = ""
        if config.recalls.budget:
            from longtalk.memory.recall.search import index_transcript, render_recalled

            message = read_text(transcript[transcript.tail - 1])
            index = index_transcript(transcript.truncate(transcript.tail - 1), message, config.recalls, now=at)
            sent = SentPositions(planned.epoch, transcript.size)
            found = render_recalled(index, message, config.recalls, counter, now=at, exclude=sent)
            data = wrap_in_tag("recalled", found.text) if found.text else ""
        return TurnSuffix(asks, position, data=data)

    def _keep_suffix(self, suffix: TurnSuffix) -> None:
        """Record the text that memory added after the user's message.

        It must stay there in later requests while the turn calls tools.
        """
        pieces = suffix.pieces(self._setup.trace.wire)
        stored = msgspec.structs.replace(suffix, tokens=sum(map(self._setup.estimated.count, pieces)))
        self._transcript = (
            self._transcript.add_record("aside", json_bytes.encode(stored)) if pieces else self._transcript
        )

    def _fill_brief(self, i: int) -> None:
        """Fill the brief up to its limit, as the memory cards of a long conversation would."""
        memory = find_memory(self._policy(i))
        if memory is None or not self._card:
            return
        brief, counter = memory.config.brief, self._setup.estimated.counter
        self._full_brief = self._full_brief or build_full_brief(brief, counter)
        book = msgspec.structs.replace(
            read_brief_record(self._transcript), content=self._full_brief, covers=self._transcript.size, asks=0
        )
        self._transcript = with_brief_record(self._transcript, book)
        self._card = ""

    def _compose(self, planned: Plan, suffix: TurnSuffix | None = None, until: int | None = None) -> Context:
        trace = self._setup.trace
        return compose(
            self._transcript,
            epoch=planned.epoch,
            wire=trace.wire,
            quirks=Quirks(),
            preamble=trace.preamble,
            reader="",
            instruction=suffix.text if suffix else None,
            tail=self._transcript.tail if until is None else until,
            until=until,
            data=suffix.data if suffix else "",
        )

    def _record_request(self, context: Context, at: int) -> tuple[int, int]:
        """Record a request, and return the number of its cached tokens and the number of its other tokens."""
        model, sizes = self._setup.model, self._setup.reported
        messages = [bytes(piece) for piece in context.pieces]
        tokens = [sizes.count(message) for message in messages]
        lasts = 1_000 * model.cache_seconds if model.caches else 0
        recent = [(then, sent) for then, sent in self._requests if at - then < lasts]
        self._requests = [*recent[1 - _COMPARED :], (at, messages)]
        if not recent:
            return 0, sizes.preamble + sum(tokens)
        known = max(_count_equal(messages, sent) for _, sent in recent)
        return sizes.preamble + sum(tokens[:known]), sum(tokens[known:])


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
