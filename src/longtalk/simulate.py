"""What a conversation that took place would have cost, under each policy and at each model's prices.

A conversation is played again: at each point at which the model was asked, the request is composed as a chat would, and
compared byte by byte with those before it, to tell what the provider would have read from its cache. The answers are
those that were given. Where a policy asks for a summary, a text of the length that it asks for stands in for it.

The *optimum* knows the future: of all moments to put a summary in the place of the older exchanges it takes those that
cost least in all. Nobody can do better with such summaries, and no policy can know it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise

import msgspec

from longtalk import models as registry
from longtalk.context import Context, compose
from longtalk.epochs import Anchor, anchored, covered, latest, metered, summed_up
from longtalk.errors import ContextOverflow, InputError
from longtalk.plan import Plan, Terms, begun, plan
from longtalk.policies import (
    Compactor,
    Economy,
    KeepAll,
    KeepLast,
    Policy,
    Size,
    Summarize,
    SummarizeOldest,
    TokenBudget,
)
from longtalk.policies.economy import Older
from longtalk.policies.summarize import LENGTH
from longtalk.prices import Cost, Prices, cost, total
from longtalk.receipts import SECONDS, CostReceipt, Ratios, ratios
from longtalk.summaries import TAG, Summary, Wanted, request
from longtalk.tokens import Counter, counter_for, of_message, of_preamble
from longtalk.transcript import Entry, Transcript
from longtalk.wires import WIRES
from longtalk.wires.base import LONGTALK, Preamble, Quirks, Usage, Wire, text_of

KEEP = 2
PAUSE = 60_000
"""Milliseconds between two calls of a conversation that does not say when they were."""
POLICIES: tuple[Policy, ...] = (KeepAll(), KeepLast(10), TokenBudget(8_000), Summarize(8_000), Economy())
OPTIMUM = "optimum"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One model call."""

    entry: int
    """The place of the answer; of a summary call, that of the answer after it."""
    usage: Usage
    cost: Cost | None
    """US dollars; None if nobody knows."""
    summary: bool = False
    """Whether it was for a summary."""
    begins: bool = False
    """Whether an epoch begins with it."""


class Play(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A conversation under one policy, with one model."""

    policy: str
    model: str
    calls: tuple[Call, ...]
    ratios: Ratios
    receipts: tuple[CostReceipt, ...] = ()
    problem: str = ""
    """Why it could not be played to its end."""

    @cached_property
    def usage(self) -> Usage:
        return sum((call.usage for call in self.calls), Usage())

    @cached_property
    def cost(self) -> Cost | None:
        """US dollars for all calls; None if nobody knows."""
        return total(call.cost for call in self.calls)

    @cached_property
    def weight(self) -> float:
        """What was sent and what summaries took, in tokens sent anew. Answers cost the same under any policy."""
        return sum(
            self.ratios.weigh(call.usage if call.summary else msgspec.structs.replace(call.usage, output=0))
            for call in self.calls
        )

    @property
    def summaries(self) -> int:
        return sum(call.summary for call in self.calls)

    @property
    def epochs(self) -> int:
        return sum(call.begins for call in self.calls)

    @property
    def cached(self) -> float:
        """The share of what was sent that the provider has read from its cache."""
        return self.usage.cached / max(1, self.usage.input)


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """What a model takes, and at what price."""

    label: str
    prices: Prices | None = None
    window: int | None = None
    caches: bool = True
    cache_seconds: int = SECONDS

    @classmethod
    def of(cls, label: str) -> Table:
        """As the registry has it. `InputError` for a model that nobody has described."""
        found = registry.find(label)
        if found is None:
            raise InputError(f"Nobody knows what {label!r} costs: `longtalk models` lists what is known.")
        limits = [limit for limit in (found.window, found.input_limit) if limit is not None]
        return cls(
            label=label,
            prices=found.prices,
            window=min(limits, default=None),
            caches=found.cache != "none",
            cache_seconds=found.cache_seconds or SECONDS,
        )


def simulate(
    transcript: Transcript,
    *,
    models: Sequence[str | Table],
    policies: Iterable[Policy] = POLICIES,
    system: str | None = None,
    reports: Counter | None = None,
    optimum: bool = True,
) -> list[Play]:
    """Play a conversation under each policy with each model; last, for each model, the optimum.

    `system` is the system text that went with it; a system message at the very beginning is taken for that.
    `reports` counts what the provider would report, if otherwise than what a chat estimates.
    """
    if not models:
        raise InputError("Name a model, as provider:model: prices are those of a model.")
    trace = _Trace(transcript, system)
    plays: list[Play] = []
    played: dict[tuple[object, ...], list[_Asked]] = {}
    for model in models:
        table = model if isinstance(model, Table) else Table.of(model)
        stage = _Stage(trace, table, reports)
        plays += [stage.play(policy, repr(policy), played) for policy in policies]
        if optimum:
            plays.append(stage.optimum())
    return plays


class _Trace:
    """A conversation: its entries, and the points at which the model was asked."""

    def __init__(self, transcript: Transcript, system: str | None) -> None:
        entries = list(transcript)
        if not entries:
            raise InputError("There is nothing to simulate: the conversation is empty.")
        wires = transcript.wires() - {LONGTALK}
        if len(wires) > 1 or not wires <= WIRES.keys():
            raise InputError(f"A conversation over {', '.join(sorted(wires))} can't be played yet: one wire at a time.")
        self.wire: Wire = WIRES[wires.pop() if wires else "openai-chat"]
        while system is None and entries and entries[0].role == "system":
            system = text_of(self.wire, entries.pop(0))
        self.preamble = Preamble(system=system)
        self.entries = entries
        self.asked = [i for i, entry in enumerate(entries) if entry.role == "assistant" and i]
        """Where the answers are. What a conversation begins with was not asked for."""
        if not self.asked:
            raise InputError("There is nothing to simulate: the model was never asked.")
        at = [entry.at for entry in entries]
        told = at == sorted(at) and at[0] > 0 and at[-1] > at[0]
        self.at = at if told else [PAUSE * (1 + i) for i in range(len(entries))]


class _Asked(msgspec.Struct, frozen=True):
    """A model call, before anybody says what it costs: tokens."""

    entry: int
    known: int
    """Of what the provider has seen before, and lately."""
    new: int
    """Of the rest, up to where it is kept."""
    tail: int
    """Of what is not kept."""
    output: int
    summary: bool
    begins: bool


class _Seen:
    """What a provider has in its cache: the messages of the last requests, and when they were sent."""

    def __init__(self, seconds: int) -> None:
        self._lasts = 1_000 * seconds
        self._requests: list[tuple[int, list[bytes]]] = []

    def known(self, messages: list[bytes], at: int) -> int:
        """How many messages at the beginning were there before; -1 if not even the preamble was."""
        self._requests = [each for each in self._requests if at - each[0] < self._lasts]
        found = max((_same(messages, held) for _, held in self._requests), default=-1)
        self._requests = [*self._requests[-3:], (at, messages)]
        return found


def _same(some: list[bytes], more: list[bytes]) -> int:
    pairs = zip(some, more, strict=False)
    return next((i for i, (one, other) in enumerate(pairs) if one != other), min(len(some), len(more)))


class _Stage:
    """Plays a conversation with one model."""

    def __init__(self, trace: _Trace, table: Table, reports: Counter | None) -> None:
        self._trace = trace
        self._table = table
        self._counter = counter_for(table.label)
        self._reports = reports or self._counter
        self._own = lru_cache(maxsize=None)(lambda native: of_message(native, self._counter))
        self._told = self._own if reports is None else lru_cache(None)(lambda native: of_message(native, reports))
        preamble = trace.preamble
        self._fixed = of_preamble(preamble.system, preamble.tools, self._counter)
        self._fixed_told = of_preamble(preamble.system, preamble.tools, self._reports)
        self._ratios = ratios(table.prices, 0, caches=table.caches)

    def play(self, policy: Policy, name: str, played: dict[tuple[object, ...], list[_Asked]]) -> Play:
        key = (name, self._counter, self._table.window, self._table.caches and self._table.cache_seconds)
        receipts: list[CostReceipt] = []
        problem = ""
        asked = played.get(key)
        if asked is None:
            run = _Run(self, policy)
            try:
                run.play()
            except ContextOverflow as full:
                problem = str(full)
            asked, receipts = run.asked, run.receipts()
            if not run.metered and not problem:
                # What does not go by prices is the same for any.
                played[key] = asked
        return self._priced(name, asked, receipts, problem)

    def _priced(
        self, name: str, asked: Sequence[_Asked], receipts: Sequence[CostReceipt] = (), problem: str = ""
    ) -> Play:
        calls = []
        for each in asked:
            usage = self.usage(each.known, each.new, each.tail, each.output)
            calls.append(
                Call(
                    entry=each.entry,
                    usage=usage,
                    cost=cost(usage, self._table.prices),
                    summary=each.summary,
                    begins=each.begins,
                )
            )
        return Play(
            policy=name,
            model=self._table.label,
            calls=tuple(calls),
            ratios=self._ratios,
            receipts=tuple(receipts),
            problem=problem,
        )

    def usage(self, known: int, new: int, tail: int, output: int) -> Usage:
        """What the provider would report."""
        table = self._table
        writes = table.caches and table.prices is not None and table.prices.cache_write is not None
        cached = known if table.caches else 0
        return Usage(known + new + tail, output, cached, new if writes else 0)

    def optimum(self) -> Play:
        """The cheapest moments for summaries, given all that was said later."""
        run = _Run(self, _Scheduled(self._schedule()))
        run.play()
        return self._priced(OPTIMUM, run.asked)

    def _schedule(self) -> frozenset[int]:
        """Before which answers the optimum has a summary made."""
        trace, ratio = self._trace, self._ratios
        before = [0, *accumulate(self._told(entry.native) for entry in trace.entries)]
        starts = [first for first, _ in Transcript(fresh=tuple(trace.entries)).exchanges()]
        asked = trace.asked
        stay = [starts[max(0, bisect_right(starts, i - 1) - 1 - KEEP)] for i in asked]
        ends = [asked[i - 1] for i in range(1, len(asked))]
        warm = [
            self._table.caches and trace.at[now - 1] - trace.at[then - 1] < 1_000 * self._table.cache_seconds
            for then, now in pairwise(asked)
        ]
        head = self._told(self._trace.wire.quote(TAG, stand_in(LENGTH, 1, self._reports)))
        asking = self._told(self._trace.wire.user(request(LENGTH)))
        write = ratio.write if self._table.caches else 1.0
        read = ratio.read if self._table.caches else 1.0
        pre = self._fixed_told
        best = [0.0] + [float("inf")] * len(asked)
        came: list[int] = [0] * (len(asked) + 1)
        least, last = float("inf"), 0
        for first in range(len(asked)):
            if best[first] == float("inf"):
                continue
            raw, top = (stay[first], head) if first else (0, 0)
            spent = best[first]
            for i in range(first, len(asked)):
                if i > first and stay[i] > raw:
                    # The summary call reads what was sent before; a cache that has run out is no help.
                    rate = read if warm[i - 1] else 1.0
                    old = pre + top + before[stay[i]] - before[raw]
                    made = spent + rate * old + asking + ratio.output * head
                    # The preamble was in the summary call just now.
                    if made < best[i]:
                        best[i], came[i] = made, first
                if i == first:
                    rate = write if not first else read
                    spent += rate * pre + write * (top + before[asked[i]] - before[raw])
                else:
                    rate = read if warm[i - 1] else write
                    spent += rate * (pre + top + before[ends[i - 1]] - before[raw])
                    spent += write * (before[asked[i]] - before[ends[i - 1]])
            if spent < least:
                least, last = spent, first
        moments = set()
        while last:
            moments.add(asked[last])
            last = came[last]
        return frozenset(moments)


class _Run:
    """One play."""

    def __init__(self, stage: _Stage, policy: Policy) -> None:
        self._stage, self._trace, self._table = stage, stage._trace, stage._table
        self._policy = policy
        self._so_far = Transcript()
        self._seen = _Seen(self._table.cache_seconds if self._table.caches else 0)
        self._receipts: dict[int, CostReceipt] = {}
        self.asked: list[_Asked] = []
        self.metered = False

    def receipts(self) -> list[CostReceipt]:
        return list(self._receipts.values())

    def play(self) -> None:
        trace = self._trace
        entries = [msgspec.structs.replace(entry, tokens=self._stage._own(entry.native)) for entry in trace.entries]
        asked = set(trace.asked)
        for i, entry in enumerate(entries):
            if i in asked:
                self._ask(i, entry)
            self._so_far = self._so_far.append(entry.turn, [entry])
            ends = i + 1 == len(entries) or entries[i + 1].turn != entry.turn
            if ends and i in asked and i + 1 < len(entries):
                self._plan(trace.at[i], i + 1, settled=True)

    def _ask(self, i: int, answer: Entry) -> None:
        at = self._trace.at[i - 1]
        made = self._plan(at, i)
        context = self._compose(made)
        known, new = self._sent(context.pieces, at)
        output = self._stage._told(answer.native)
        self.asked.append(_Asked(i, known, new, 0, output, False, made.begins))
        usage = self._stage.usage(known, new, 0, output)
        anchor = Anchor(made.epoch.start, self._table.label, self._digest, made.counted, usage.input)
        self._so_far = anchored(self._so_far, anchor)
        if made.meter is not None:
            self.metered = True
            self._so_far = metered(self._so_far, made.meter, usage, at=at)
            receipt = latest(self._so_far, "receipt", CostReceipt)
            if receipt is not None:
                self._receipts[receipt.epoch] = receipt

    def _plan(self, at: int, i: int, *, settled: bool = False) -> Plan:
        terms = Terms(
            wire=self._trace.wire,
            counter=self._stage._counter,
            model=self._table.label,
            preamble=self._digest,
            fixed=self._stage._fixed,
            window=self._table.window,
            answer=min((self._table.window or 0) // 8, 4096),
            prices=self._table.prices,
            caches=self._table.caches,
            cache_seconds=self._table.cache_seconds,
            now=at,
        )
        if isinstance(self._policy, _Scheduled):
            self._policy.due = not settled and i in self._policy.moments
        made = plan(self._so_far, self._policy, terms, settled=settled, may_ask=True)
        if made.wants is not None:
            self._summarise(made.wants, made, at, i)
            made = plan(self._so_far, self._policy, terms, settled=settled)
        self._so_far = begun(self._so_far, made)
        return made

    def _summarise(self, wants: Wanted, made: Plan, at: int, i: int) -> None:
        """A text of the right length, and the call that would have given it."""
        wire = self._trace.wire
        context = self._compose(made, until=wants.stop)
        known, new = self._sent(context.pieces, at)
        tail = self._stage._told(wire.user(request(wants.length)))
        text = stand_in(wants.length, len(self.asked), self._stage._reports)
        quoted = wire.quote(TAG, text)
        output = self._stage._told(quoted)
        self.asked.append(_Asked(i, known, new, tail, output, True, False))
        summary = Summary(
            text=text,
            covers=covered(made.epoch, wants.stop),
            model=self._table.label,
            tokens=self._stage._own(quoted),
            usage=self._stage.usage(known, new, tail, output),
            before=wants.before,
            predicted=wants.predicted,
        )
        self._so_far = summed_up(self._so_far, summary, self._so_far[wants.stop - 1].id)

    def _compose(self, made: Plan, until: int | None = None) -> Context:
        return compose(
            self._so_far,
            epoch=made.epoch,
            wire=self._trace.wire,
            quirks=Quirks(),
            preamble=self._trace.preamble,
            reader="",
            instruction=None,
            tail=self._so_far.tail if until is None else until,
            until=until,
        )

    def _sent(self, pieces: Sequence[bytes | memoryview], at: int) -> tuple[int, int]:
        """Tokens that the provider has seen before, and the others."""
        messages = [bytes(piece) for piece in pieces]
        known = self._seen.known(messages, at)
        tokens = [self._stage._told(message) for message in messages]
        if known < 0:
            return 0, self._stage._fixed_told + sum(tokens)
        return self._stage._fixed_told + sum(tokens[:known]), sum(tokens[known:])

    @property
    def _digest(self) -> str:
        return self._trace.preamble.digest()


class _Now(msgspec.Struct):
    """Fires when it is told to."""

    policy: _Scheduled

    def fires(self, size: Size) -> bool:
        return self.policy.due and getattr(size, "loose", KEEP + 1) > KEEP


class _Scheduled:
    """Summaries at moments that somebody else has chosen."""

    def __init__(self, moments: frozenset[int]) -> None:
        self.moments = moments
        self.due = False

    def __repr__(self) -> str:
        return OPTIMUM

    @property
    def compactors(self) -> tuple[Compactor, ...]:
        return (Compactor(_Now(self), (SummarizeOldest(keep=KEEP),), Older(KEEP)),)


def stand_in(length: int, number: int, counter: Counter) -> str:
    """A text of about so many tokens, another one for each number."""
    words = f"They spoke about plan {number}, what it costs, who does which part of it by when, and what is open. "
    text = words * (1 + length // 15)
    return text[: len(text) * length // max(1, counter.count(text))]
