"""A conversation that took place, played again with one model under one policy: which calls there would have been.

At each point at which the model was asked, the request is composed as a chat would, and compared message by message
with those before it: what stood there before, and not too long ago, the provider reads from its cache. The answers are
those that were given. Where a policy asks for a summary, a text stands in for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import msgspec

from longtalk import _json
from longtalk import models as registry
from longtalk.context import Context, compose
from longtalk.epochs import Anchor, Aside, Places, anchored, covered, metered, summed_up
from longtalk.errors import ContextOverflow, InputError
from longtalk.memory.book import Card, book_of
from longtalk.memory.book import kept as keep_book
from longtalk.memory.brief import Brief, Notes, Operation, apply
from longtalk.memory.capture import asking
from longtalk.plan import Plan, begun, plan
from longtalk.policies import Policy
from longtalk.policies.memory import memory_of
from longtalk.prices import FREE, Prices
from longtalk.providers.registry import PROVIDERS
from longtalk.receipts import CARD, SECONDS, CostReceipt, Meter, Ratios, ratios, told
from longtalk.records import latest
from longtalk.sent import Terms
from longtalk.summaries import TAG, Summary, Wanted, request
from longtalk.tokens import Counter, counter_for, of_message, of_preamble
from longtalk.transcript import Entry, Transcript
from longtalk.wires import WIRES
from longtalk.wires.base import LONGTALK, Preamble, Quirks, Usage, Wire, quoted, text_of

PAUSE = 60_000
"""Milliseconds between two entries of a conversation that does not say when they were."""
_HELD = 4
"""So many requests are compared with the next one."""
CARDS: Mapping[Card, int] = {"": 0, "small": 40, "catch_up": CARD}
"""Tokens of memory cards, roughly."""
_ANSWER = 4_096
"""Tokens that are kept free for an answer, where the window is large enough."""


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
        if found is None and label == "local":
            return cls(label=label, prices=FREE, window=PROVIDERS["local"].capabilities.window)
        if found is None:
            raise InputError(
                f"Nobody knows what {label!r} costs: `longtalk models` lists what is known, and models.json in your "
                "config folder says more."
            )
        limits = [limit for limit in (found.window, found.input_limit) if limit is not None]
        return cls(
            label=label,
            prices=found.prices,
            window=min(limits, default=None),
            caches=found.cache != "none",
            cache_seconds=found.cache_seconds or SECONDS,
        )

    @property
    def ratios(self) -> Ratios:
        """What tokens cost, against one that is sent anew."""
        return ratios(self.prices, 0, caches=self.caches)

    @property
    def answer(self) -> int:
        """Tokens to keep free for an answer."""
        return min((self.window or 0) // 8, _ANSWER)

    @property
    def writes(self) -> bool:
        """Whether it reports, and bills, what it writes to its cache."""
        return self.ratios.write != 1


class Trace:
    """A conversation: its entries, when they were, and the points at which the model was asked."""

    def __init__(self, transcript: Transcript, system: str | None) -> None:
        entries = list(transcript)
        if not entries:
            raise InputError("There is nothing to simulate: the conversation is empty.")
        wires = transcript.wires() - {LONGTALK}
        if len(wires) > 1 or not wires <= WIRES.keys():
            raise InputError(f"A conversation over {', '.join(sorted(wires))} can't be played yet: one wire at a time.")
        self.wire: Wire = WIRES[wires.pop() if wires else "openai-chat"]
        while system is None and entries and entries[0].role == "system":
            system = text_of(entries.pop(0))
        self.first = len(transcript) - len(entries)
        """How many entries went into the system text."""
        self.preamble = Preamble(system=system)
        self.entries = entries
        self.asked = [i for i, entry in enumerate(entries) if entry.role == "assistant" and i]
        """Where the answers are. What a conversation begins with was not asked for."""
        if not self.asked:
            raise InputError("There is nothing to simulate: the model was never asked.")
        at = [entry.at for entry in entries]
        told = at == sorted(at) and at[0] > 0 and at[-1] > at[0]
        self.at = at if told else [PAUSE * (1 + i) for i in range(len(entries))]


class Ruler:
    """How long the parts of a conversation are for one counter, which counts each of them once."""

    def __init__(self, counter: Counter, preamble: Preamble) -> None:
        self.counter = counter
        self.preamble = of_preamble(preamble.system, preamble.tools, counter)
        self.of = lru_cache(maxsize=None)(lambda native: of_message(native, counter))


class Stage:
    """A conversation before one model."""

    def __init__(
        self, trace: Trace, table: Table, summary: Callable[[int, int, Counter], str], reports: Counter | None
    ) -> None:
        self.trace = trace
        self.table = table
        self.summary = summary
        """Makes what stands in for a summary: of its length, its number, and who counts."""
        self.estimated = Ruler(counter_for(table.label), trace.preamble)
        self.reported = self.estimated if reports is None else Ruler(reports, trace.preamble)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A model call, before anybody says what it costs: tokens."""

    place: int
    """Of the answer in the trace; of a summary call, of the answer after it."""
    known: int
    """Of what the provider has seen before, and lately."""
    new: int
    """Of the rest, up to where it is kept."""
    tail: int = 0
    """Of what is not kept."""
    output: int
    card: int = 0
    """Of a memory card in the answer, which nobody would have written otherwise."""
    summary: bool = False
    begins: bool = False

    def usage(self, table: Table) -> Usage:
        """What the provider would report."""
        return Usage(
            input=self.known + self.new + self.tail,
            output=self.output + self.card,
            cached=self.known if table.caches else 0,
            written=self.new if table.writes else 0,
        )


class Replay:
    """One play. `policy` says which policy holds before the entry of a place: one with the same `repr` at any."""

    def __init__(self, stage: Stage, policy: Callable[[int], Policy]) -> None:
        self._stage = stage
        self._policy = policy
        self._so_far = Transcript()
        self._sent: list[tuple[int, list[bytes]]] = []
        self._receipts: dict[int, CostReceipt] = {}
        self._epoch = 0
        self._card: Card = ""
        self._decided = -1
        self._full: Notes | None = None
        self.asked: list[Asked] = []
        self.problem = ""
        """Why it could not be played to its end."""
        self.by_price = False
        """Whether the policy goes by what things cost."""
        try:
            self._play()
        except ContextOverflow as full:
            self.problem = str(full)

    @property
    def receipts(self) -> tuple[CostReceipt, ...]:
        return tuple(told(self._receipts.values(), latest(self._so_far, "meter", Meter)))

    def _play(self) -> None:
        trace = self._stage.trace
        asked = set(trace.asked)
        turns = [entry.turn for entry in trace.entries]
        for i, entry in enumerate(trace.entries):
            if i in asked:
                self._ask(i, entry)
            counted = msgspec.structs.replace(entry, tokens=self._stage.estimated.of(entry.native))
            self._so_far = self._so_far.append(entry.turn, [counted])
            if i in asked and turns[i + 1 : i + 2] not in ([], [entry.turn]):
                self._take_card(i)
                self._plan(i + 1, at=trace.at[i], settled=True)

    def _ask(self, i: int, answer: Entry) -> None:
        """The call that was answered with this."""
        at = self._stage.trace.at[i - 1]
        made = self._plan(i, at=at)
        aside = self._beside(i, made, at)
        context = self._compose(made, aside)
        known, new = self._send(context, at)
        if self._stage.trace.entries[i + 1 : i + 2] and self._stage.trace.entries[i + 1].role == "tool":
            self._keep(aside)
        tail = sum(self._stage.reported.of(bytes(piece)) for piece in context.pieces[context.mark :])
        call = Asked(
            place=i,
            known=known,
            new=new - tail,
            tail=tail,
            output=self._stage.reported.of(answer.native),
            card=CARDS[self._card] if aside.text else 0,
            begins=made.epoch.start != self._epoch,
        )
        self.asked.append(call)
        self._epoch = made.epoch.start
        table, digest = self._stage.table, self._stage.trace.preamble.digest()
        usage = call.usage(table)
        beside = sum(map(self._stage.estimated.of, aside.pieces(self._stage.trace.wire)))
        anchor = Anchor(made.epoch.start, table.label, digest, made.counted + beside, usage.input)
        self._so_far = anchored(self._so_far, anchor)
        if made.meter is not None:
            self.by_price = True
            self._so_far = metered(self._so_far, made.meter, usage, at=at)
            receipt = latest(self._so_far, "receipt", CostReceipt)
            if receipt is not None:
                self._receipts[receipt.epoch] = receipt

    def _plan(self, i: int, *, at: int, settled: bool = False) -> Plan:
        """What the next request keeps, with a summary made first if the policy wants one."""
        trace, table = self._stage.trace, self._stage.table
        terms = Terms(
            wire=trace.wire,
            counter=self._stage.estimated.counter,
            model=table.label,
            preamble=trace.preamble.digest(),
            fixed=self._stage.estimated.preamble,
            window=table.window,
            answer=table.answer,
            prices=table.prices,
            caches=table.caches,
            cache_seconds=table.cache_seconds,
            now=at,
        )
        policy = self._policy(i)
        made = plan(self._so_far, policy, terms, settled=settled, may_ask=True)
        if made.wants is not None:
            self._summarise(made.wants, made, i, at)
            made = plan(self._so_far, policy, terms, settled=settled)
        self._so_far = begun(self._so_far, made)
        return made

    def _summarise(self, wants: Wanted, made: Plan, i: int, at: int) -> None:
        """A text in the place of a summary, and the call that would have given one."""
        stage, wire = self._stage, self._stage.trace.wire
        known, new = self._send(self._compose(made, until=wants.stop), at)
        text = stage.summary(wants.length, len(self.asked), stage.reported.counter)
        quoted = wire.quote(TAG, text)
        call = Asked(
            place=i,
            known=known,
            new=new,
            tail=stage.reported.of(wire.user(request(wants.length))),
            output=stage.reported.of(quoted),
            summary=True,
        )
        self.asked.append(call)
        summary = Summary(
            text=text,
            covers=covered(made.epoch, wants.stop),
            model=stage.table.label,
            tokens=stage.estimated.of(quoted),
            usage=call.usage(stage.table),
            predicted=wants.predicted,
        )
        self._so_far = summed_up(self._so_far, summary, self._so_far[wants.stop - 1].id)

    def _beside(self, i: int, made: Plan, at: int) -> Aside:
        """What memory puts behind the user's message: once in a turn, and it stays where tools are called behind it."""
        so_far, memory = self._so_far, memory_of(self._policy(i))
        place = so_far.place(so_far.tail - 1) + 1
        if memory is None or self._decided == place:
            return Aside("", place)
        self._decided = place
        config, counter = memory.config, self._stage.estimated.counter
        self._card = made.card
        asks = asking(config.brief, "sentinel", catch_up=made.card == "catch_up") if made.card else ""
        data = ""
        if config.recalls.budget:
            from longtalk.memory.recalled import in_transcript, recalled

            message = text_of(so_far[so_far.tail - 1])
            index = in_transcript(so_far.before(so_far.tail - 1), message, config.recalls, now=at)
            held = Places(made.epoch, so_far.size)
            found = recalled(index, message, config.recalls, counter, now=at, exclude=held)
            data = quoted("recalled", found.text) if found.text else ""
        return Aside(asks, place, data=data)

    def _keep(self, aside: Aside) -> None:
        """What stands behind a message stays there when tools are called behind it."""
        pieces = aside.pieces(self._stage.trace.wire)
        kept = msgspec.structs.replace(aside, tokens=sum(map(self._stage.estimated.of, pieces)))
        self._so_far = self._so_far.record("aside", _json.encode(kept)) if pieces else self._so_far

    def _take_card(self, i: int) -> None:
        """A brief that is full, in the place of what a card would have made of it."""
        memory = memory_of(self._policy(i))
        if memory is None or not self._card:
            return
        brief, counter = memory.config.brief, self._stage.estimated.counter
        self._full = self._full or full(brief, counter)
        book = msgspec.structs.replace(book_of(self._so_far), notes=self._full, covers=self._so_far.size, asks=0)
        self._so_far = keep_book(self._so_far, book)
        self._card = ""

    def _compose(self, made: Plan, aside: Aside | None = None, until: int | None = None) -> Context:
        trace = self._stage.trace
        return compose(
            self._so_far,
            epoch=made.epoch,
            wire=trace.wire,
            quirks=Quirks(),
            preamble=trace.preamble,
            reader="",
            instruction=aside.text if aside else None,
            tail=self._so_far.tail if until is None else until,
            until=until,
            data=aside.data if aside else "",
        )

    def _send(self, context: Context, at: int) -> tuple[int, int]:
        """Tokens of a request that the provider has in its cache, and of the rest."""
        table, ruler = self._stage.table, self._stage.reported
        messages = [bytes(piece) for piece in context.pieces]
        tokens = [ruler.of(message) for message in messages]
        lasts = 1_000 * table.cache_seconds if table.caches else 0
        held = [(then, sent) for then, sent in self._sent if at - then < lasts]
        self._sent = [*held[1 - _HELD :], (at, messages)]
        if not held:
            return 0, ruler.preamble + sum(tokens)
        known = max(_same(messages, sent) for _, sent in held)
        return ruler.preamble + sum(tokens[:known]), sum(tokens[known:])


def full(brief: Brief, counter: Counter) -> Notes:
    """Notes that fill a brief."""
    words = [
        f"what {field.name} number {i} says of this and that and more"
        for field in brief.schema.fields
        for i in range(8)
    ]
    made = [
        Operation("plain", field.name, (words[8 * n],))
        if field.kind == "text"
        else Operation.add(field.name, *words[8 * n : 8 * n + 8])
        for n, field in enumerate(brief.schema.fields)
    ]
    return apply(Notes(), made, brief, counter).notes


def _same(some: Sequence[bytes], more: Sequence[bytes]) -> int:
    """With how many equal messages two requests begin."""
    pairs = zip(some, more, strict=False)
    return next((i for i, (one, other) in enumerate(pairs) if one != other), min(len(some), len(more)))
