"""When a new epoch begins, and what it keeps.

`plan` looks at how long the next request would be: a glance, which costs the same however long the conversation is. If
a limit of the policy or the model's window is exceeded, it makes a view of what is sent now, lets the policy's
compactors make a shorter one of it, and that is the new epoch. The same happens when something was pinned that is not
there.

A policy may ask for a summary (`Plan.wants`). Whoever makes it adds it as a record and plans again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from longtalk import _json
from longtalk.epochs import Anchor, Epoch, Pin, begin, current, fingerprint, joined, kept_asides, latest
from longtalk.errors import ContextOverflow, InputError, PinRefused
from longtalk.events import Notice
from longtalk.policies import Block, Compactor, CutCurrent, OverTokens, Policy, Run, View
from longtalk.policies.token_budget import within
from longtalk.policies.view import CUT, MIDDLE, SUMMARY
from longtalk.receipts import SECONDS, CostReceipt, Meter, Ratios, Reckoning, ratios, reckon
from longtalk.summaries import Summary, Wanted
from longtalk.tokens import Counter
from longtalk.transcript import Transcript
from longtalk.wires.base import Wire

if TYPE_CHECKING:
    from longtalk.prices import Prices

UNKNOWN_WINDOW = 32_000
"""What a window is taken for while nobody knows it."""
_ROUNDS = 8
"""How often limits that undo each other's work are tried."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked, and what goes around the conversation."""

    wire: Wire
    counter: Counter
    model: str
    preamble: str
    """A digest of it, as `Turn.preamble`."""
    fixed: int
    """Tokens of preamble and instruction, as counted."""
    window: int | None
    """The model's window, if anybody knows it."""
    answer: int
    """Tokens to keep free for the answer."""
    prices: Prices | None = None
    """What a call costs, if anybody knows it."""
    caches: bool = True
    """Whether the provider keeps the beginning of a request."""
    cache_seconds: int | None = None
    """For how long, if anybody knows it."""
    now: int = 0
    """The time, in milliseconds since 1970."""

    @property
    def room(self) -> int | None:
        """What is left of a known window for the request."""
        return self.window and max(self.window - self.answer, self.window // 2, 1)


class Plan(msgspec.Struct, frozen=True):
    """The epoch that the next request belongs to."""

    epoch: Epoch
    begins: bool
    counted: int
    """How long the request will be, as counted."""
    tokens: int
    """How long it will be, by what was reported."""
    notices: tuple[Notice, ...] = ()
    wants: Wanted | None = None
    """A summary that should be made first."""
    meter: Meter | None = None
    """What carrying on will have cost with the next call, if the policy goes by that."""
    receipt: CostReceipt | None = None
    """What is expected of an epoch that begins to save money."""


def begun(transcript: Transcript, made: Plan) -> Transcript:
    """A transcript on which the epoch of a plan has begun."""
    if not made.begins:
        return transcript
    transcript = begin(transcript, made.epoch)
    if made.receipt is None:
        return transcript
    return transcript.record("receipt", _json.encode(made.receipt), instead=True)


class _Glance:
    """How long the next request is in the present epoch, told without looking at what it has gathered."""

    def __init__(self, transcript: Transcript, epoch: Epoch, terms: Terms) -> None:
        self._transcript = transcript
        self._epoch = epoch
        self._terms = terms
        self.reckoning: Reckoning | None = None
        """Of whether going on costs more than a new epoch, if somebody asked."""
        self.meter: Meter | None = None
        since = transcript.here(epoch.start)
        self.messages = epoch.messages + len(transcript) - since
        self.counted = terms.fixed + epoch.tokens + transcript.tokens(since, len(transcript))
        self.counted += _staying(transcript, epoch.current)
        self.tokens = self.counted
        self._window = terms.window or UNKNOWN_WINDOW
        self.guessed = False
        """Whether somebody asked for the window."""
        anchor = latest(transcript, "anchor", Anchor)
        if anchor is None or anchor.model != terms.model:
            return
        if anchor.refused and anchor.counted > 0 and not anchor.is_plausible:
            self.tokens = self.counted * min(anchor.reported, 10**12) // anchor.counted
        elif anchor.is_plausible:
            scale = anchor.scale
            self.tokens = round(scale * self.counted)
            if (anchor.epoch, anchor.preamble) == (epoch.start, terms.preamble):
                self.tokens = max(1, round(anchor.reported + scale * (self.counted - anchor.counted)))

    @property
    def window(self) -> int:
        self.guessed = True
        return self._window

    def due(self, keep: int, length: int) -> bool:
        """Whether carrying on has cost as much as a new epoch: a summary, and the last `keep` exchanges as they are."""
        transcript, epoch, terms = self._transcript, self._epoch, self._terms
        scale = self.tokens / max(1, self.counted)
        raw = transcript.here(epoch.raw)
        starts = [first for first, _ in transcript.exchanges(raw)]
        stay = starts[-keep - 1] if len(starts) > keep else raw
        meter = latest(transcript, "meter", Meter)
        sent = transcript.here(meter.size) if meter is not None and meter.epoch == epoch.start else stay
        warm = meter is not None and (meter.model, meter.preamble) == (terms.model, terms.preamble)
        warm = warm and terms.now - meter.at < 1_000 * (terms.cache_seconds or SECONDS)  # type: ignore[union-attr]
        head = epoch.summary.tokens if epoch.summary else 0

        def tokens(start: int, stop: int) -> int:
            return round(scale * transcript.tokens(start, max(start, stop)))

        old = tokens(raw, stay)
        found = self.reckoning = reckon(
            self.ratios,
            warm=warm,
            carried=meter.carried if meter is not None and meter.epoch == epoch.start else 0.0,
            preamble=round(scale * terms.fixed),
            head=round(scale * head),
            old=old,
            recent=tokens(stay, sent),
            new=tokens(max(stay, sent), len(transcript)),
            length=round(scale * epoch.summary.usual) if epoch.summary else length,
        )
        receipt = latest(transcript, "receipt", CostReceipt)
        spared = receipt.spared if receipt is not None and receipt.epoch == epoch.start else 0
        self.meter = Meter(
            epoch=epoch.start,
            model=terms.model,
            preamble=terms.preamble,
            size=transcript.size,
            carried=found.carried,
            calls=1 + (meter.calls if meter is not None else 0),
            saved=found.rate * spared + (meter.saved if meter is not None else 0.0),
        )
        return old > length and found.due

    @property
    def ratios(self) -> Ratios:
        return ratios(self._terms.prices, self.tokens, caches=self._terms.caches)

    @cached_property
    def exchanges(self) -> int:
        since = self._transcript.exchanges(self._transcript.here(self._epoch.current))
        return self._epoch.exchanges - 1 + len(since)


def plan(transcript: Transcript, policy: Policy, terms: Terms, *, settled: bool = False, may_ask: bool = False) -> Plan:
    """The present epoch, or a new one if a limit is exceeded or something was pinned that is not there.

    When the last exchange is `settled`, it is not cut: the next turn may leave it out whole. With `may_ask` the policy
    may want a summary first.
    """
    epoch = current(transcript, fingerprint(policy))
    compactors = _compactors(policy, terms, settled=settled)
    glance = _Glance(transcript, epoch, terms)
    fired = next((each for each in compactors if each.over.fires(glance)), None)
    pins = pinned(transcript)
    if fired is None and all_there(epoch, pins) and _stand_in(transcript, epoch) is None:
        made = Plan(epoch, False, glance.counted, glance.tokens)
    else:
        asks: _Asks = None if not may_ask else "after" if settled else "before"
        made = _begin(transcript, epoch, glance, compactors, terms, pins, fired, settled=settled, asks=asks)
    if glance.meter is None:
        return made
    meter = msgspec.structs.replace(
        glance.meter, epoch=made.epoch.start, carried=0.0 if made.begins else glance.meter.carried
    )
    notices = made.notices
    if meter.calls == 1 and terms.prices is None and not settled:
        text = (
            f"Nobody knows what {terms.model} costs. It is assumed that a token read from the cache costs 0.1 of one "
            "sent anew, one written to it 1.25 and one received 5: longtalk.models.register(…) says it."
        )
        notices = (*notices, Notice("prices_assumed", text))
    return msgspec.structs.replace(made, meter=meter, notices=notices)


_Asks: TypeAlias = Literal["before", "after"] | None


class _Full(OverTokens, frozen=True):
    """Fires when the model's window has no room for an answer."""

    def __str__(self) -> str:
        return "more than fits into the window"


def _compactors(policy: Policy, terms: Terms, *, settled: bool = False) -> list[Compactor]:
    """The policy's own, and the model's window, which no policy can do without."""
    found = [*policy.compactors]
    # What a summary can still stand for before the next call is not left out after the answer.
    waits = settled and any(_summarises(each, background=False) for each in found)
    if terms.room is not None and not waits:
        found.append(within(_Full(terms.room), OverTokens(max(1, terms.room // 2))))
    if settled:
        kept = [(each, [s for s in each.strategies if not isinstance(s, CutCurrent)]) for each in found]
        return [Compactor(each.over, tuple(strategies), each.to) for each, strategies in kept if strategies]
    return found


def _summarises(compactor: Compactor, *, background: bool | None = None) -> bool:
    """Whether a limit can be exceeded for a while, until there is a summary."""
    how = [getattr(strategy, "background", None) for strategy in compactor.strategies]
    return any(each is not None and background in (None, each) for each in how)


def _begin(
    transcript: Transcript,
    epoch: Epoch,
    glance: _Glance,
    compactors: list[Compactor],
    terms: Terms,
    pins: tuple[int, ...],
    fired: Compactor | None,
    *,
    settled: bool,
    asks: _Asks,
) -> Plan:
    """A new epoch; the present one if the compactors find nothing to do. Says what they did that nobody asked for."""
    reason = str(fired.over) if fired is not None else "an entry was pinned"
    if fired is None and all_there(epoch, pins):
        reason = "a summary is left of it"
    whole = _view(transcript, epoch, glance, terms, pins)
    whole = msgspec.structs.replace(whole, asks=asks, owes=glance.reckoning is not None and glance.reckoning.due)
    view = _compacted(whole, compactors)
    if view.wants is not None:
        predicted = glance.reckoning.predicted if glance.reckoning is not None else None
        wants = msgspec.structs.replace(view.wants, before=glance.tokens, predicted=predicted)
        return Plan(epoch, False, glance.counted, glance.tokens, wants=wants)
    _check_kept(whole, view)
    notices = []
    over = [each for each in compactors if each.over.fires(view) and not (view.loose and _summarises(each))]
    if over and any(block.pinned for block in view.blocks[:-1]):
        # Whoever pinned them had other limits in mind.
        loose = [msgspec.structs.replace(block, pinned=False) for block in view.blocks]
        view = _compacted(view.with_blocks(loose), compactors)
        notices.append(
            Notice("pins_left_out", f"Not all that is pinned fits any more ({reason}): the oldest is left out.")
        )
    if terms.window is not None and view.tokens > terms.window and view.summary is not None:
        # It comes back with the next cut.
        view = _compacted(msgspec.structs.replace(view, summary=None, offered=None), compactors)
    if terms.window is not None and view.tokens > terms.window and not settled:
        error = ContextOverflow(
            f"The request is longer than {terms.model} takes: about {view.tokens:,} tokens{_fixed(view)}, and the "
            f"window has {terms.window:,}. Nothing more can be left out: send less."
        )
        error.window, error.tokens = terms.window, view.tokens
        raise error
    if len(view.blocks) == 1 and not settled:
        exceeded = [str(each.over) for each in compactors if each.over.fires(view)]
        if exceeded:
            limits = " and ".join(exceeded)
            text = f"With the current exchange alone the request is {limits}{_fixed(view)}: it is sent whole."
            notices.append(Notice("over_limit", text))
    # Instructions that had to stay go with their epoch: a new one is shorter also when it keeps all exchanges.
    stale = _staying(transcript, epoch.current) - _staying(transcript, _last(transcript, epoch))
    same = (view.blocks, tuple(view.lines), view.summary) == (whole.blocks, epoch.lines, epoch.summary)
    if same and all_there(epoch, pins) and not stale:
        return Plan(epoch, False, glance.counted, glance.tokens, tuple(notices))
    full = _outgrown(whole, view, compactors)
    begun = _epoch(view, epoch, reason if full is None else str(full), pins)
    gone = len(whole.blocks) - len(view.blocks)
    if full is not None:
        text = f"The conversation has outgrown the window of {terms.window:,} tokens"
        notices.append(Notice("window", f"{text}: {_are(gone, 'more exchange')} left out from now on."))
    if glance.guessed and terms.window is None:
        text = (
            f"Nobody knows the window of {terms.model}: {UNKNOWN_WINDOW:,} tokens are assumed. Chat(window=…) says it."
        )
        notices.append(Notice("window_assumed", text))
    notices += _told(begun, whole.blocks[-1])
    receipt = _receipt(view, begun, glance, terms) if view.summary != epoch.summary else None
    return Plan(begun, True, view.counted, view.tokens, tuple(notices), receipt=receipt)


def _outgrown(whole: View, view: View, compactors: Sequence[Compactor]) -> _Full | None:
    """The window, if more exchanges are gone than the policy itself lets go of."""
    full = next((each.over for each in compactors if isinstance(each.over, _Full) and each.over.fires(whole)), None)
    if full is None:
        return None
    own = _compacted(whole, [each for each in compactors if not isinstance(each.over, _Full)])
    return full if len(own.blocks) > len(view.blocks) else None


def _receipt(view: View, begun: Epoch, glance: _Glance, terms: Terms) -> CostReceipt | None:
    """What is expected of an epoch, if it began for the sake of money."""
    summary, meter = view.summary, glance.meter
    if summary is None or summary.predicted is None or meter is None or glance.reckoning is None:
        return None
    return CostReceipt(
        epoch=begun.start,
        at=terms.now,
        reason=begun.reason,
        before=glance.tokens,
        after=view.tokens,
        carried=meter.carried,
        predicted=summary.predicted,
        ratios=glance.ratios,
        calls=meter.calls - 1,
        saved=meter.saved,
    )


def _are(number: int, what: str) -> str:
    return f"{number:,} {what} is" if number == 1 else f"{number:,} {what}s are"


def _fixed(view: View) -> str:
    """How much of a request is not conversation, if that is worth saying."""
    fixed = round(view.scale * view.fixed)
    return f" ({fixed:,} tokens are system text, tools and instruction)" if fixed * 4 > view.tokens else ""


def _check_kept(whole: View, view: View) -> None:
    """Raise unless a view is made of whole exchanges, in order, the current one last: a strategy may do anything."""
    there = iter([(block.first, block.stop) for block in whole.blocks])
    kept = [(block.first, block.stop) for block in view.blocks]
    last = whole.blocks[-1]
    if not all(pair in there for pair in kept) or not kept or kept[-1] != (last.first, last.stop):
        raise InputError("A strategy of the policy gave back something else than exchanges of its view, in order.")


def _compacted(view: View, compactors: Sequence[Compactor]) -> View:
    """A view in which every limit holds, or nothing more can be done."""
    for _ in range(_ROUNDS):
        before = view
        for each in compactors:
            if each.over.fires(view):
                view = each.apply(view)
        if view.wants or (view.blocks, tuple(view.lines)) == (before.blocks, tuple(before.lines)):
            break
    return view


def _view(transcript: Transcript, epoch: Epoch, glance: _Glance, terms: Terms, pins: tuple[int, ...]) -> View:
    """All that the present epoch sends, and what was pinned since."""
    view = View(
        transcript=transcript,
        wire=terms.wire,
        count=terms.counter.count,
        blocks=(),
        fixed=terms.fixed + _staying(transcript, _last(transcript, epoch)),
        scale=glance.tokens / max(1, glance.counted),
        window=terms.window or UNKNOWN_WINDOW,
        lines=epoch.lines,
        digests=bool(epoch.lines) or any(run.verdict == "summarised" and not run.is_gone for run in epoch.runs),
        summary=epoch.summary or _stand_in(transcript, epoch),
        offered=_offered(transcript),
    )
    # What was pinned since may be anywhere.
    exchanges = transcript.exchanges(transcript.here(epoch.raw) if all_there(epoch, pins) else 0)
    places = [(transcript.place(first), transcript.place(stop - 1) + 1) for first, stop in exchanges]
    known = set(places)
    old = [pair for pair in epoch.pinned if pair not in known]
    stay, before = set(epoch.pinned), set(epoch.pins)
    new = [pin for pin in pins if pin not in before]
    shaped = [run for run in epoch.runs if _is_special(run)]
    starts = [run.first for run in shaped]
    blocks: list[Block] = []
    for first, stop in sorted([*old, *places]):
        is_pinned = _any_in(pins, first, stop)
        if first < epoch.raw and not is_pinned and (first, stop) not in stay:
            continue
        # What is pinned since goes whole from now on.
        is_new = _any_in(new, first, stop)
        inside = shaped[bisect_left(starts, first) : bisect_left(starts, stop)]
        special = [] if is_new else [run for run in inside if run.last < stop]
        blocks.append(view.block(first, stop, pinned=is_pinned, special=special))
    return view.with_blocks(blocks)


def _offered(transcript: Transcript) -> Summary | None:
    """The newest summary that there is."""
    found = latest(transcript, "summary", Summary)
    return found if found is not None and found.can_be_of(transcript.size) else None


def _stand_in(transcript: Transcript, epoch: Epoch) -> Summary | None:
    """A summary of what another policy has let go of, and what is not here any more."""
    if epoch.start or not transcript.shed.entries:
        return None
    found = _offered(transcript)
    told = found.covers if found is not None else ()
    gone = [(first, first + count) for first, count in transcript.shed.entries]
    return found if any(first < end and start < stop for first, stop in gone for start, end in told) else None


def _any_in(places: Sequence[int], first: int, stop: int) -> bool:
    """Whether one of these, in order, is from `first` on and before `stop`."""
    return bisect_left(places, first) < bisect_left(places, stop)


def _staying(transcript: Transcript, current: int) -> int:
    """Tokens of the instructions that stay behind this place."""
    return sum(max(0, aside.tokens) for aside in kept_asides(transcript, current))


def _last(transcript: Transcript, epoch: Epoch) -> int:
    """Where the current exchange begins."""
    exchanges = transcript.exchanges(transcript.here(epoch.current))
    return transcript.place(exchanges[-1][0]) if exchanges else epoch.current


def _epoch(view: View, before: Epoch, reason: str, pins: tuple[int, ...]) -> Epoch:
    """The epoch that sends a view, after another one."""
    # What was left out before may not be here any more, or not all of it.
    gone = [(run.first, max(0, run.tokens - view.tokens_of(run.first, run.last))) for run in before.runs if run.is_gone]
    runs: list[Run] = []
    place = 0
    for block in view.blocks:
        for run in _missing(view, place, block.first, reason):
            tokens = sum(tokens for first, tokens in gone if run.first <= first <= run.last)
            tokens += view.tokens_of(run.first, run.last)
            runs.append(msgspec.structs.replace(run, tokens=tokens))
        place = block.first
        for run in block.special:
            if place < run.first:
                runs.append(Run(place, run.first - 1, "sent", "kept", tokens=view.tokens_of(place, run.first - 1)))
            runs.append(run)
            place = run.last + 1
        if place < block.stop:
            runs.append(Run(place, block.stop - 1, "sent", "kept", tokens=view.tokens_of(place, block.stop - 1)))
        place = block.stop
    suffix = len(view.blocks) - 1
    while suffix > 0 and view.blocks[suffix - 1].stop == view.blocks[suffix].first:
        suffix -= 1
    return Epoch(
        policy=before.policy,
        start=view.transcript.size,
        reason=reason,
        runs=tuple(joined(runs)),
        lines=tuple(view.lines),
        summary=view.summary,
        raw=view.blocks[suffix].first,
        current=view.blocks[-1].first,
        exchanges=view.exchanges,
        messages=view.messages,
        tokens=view.counted - view.fixed,
        pinned=tuple((block.first, block.stop) for block in view.blocks[:suffix]),
        pins=pins,
    )


def _missing(view: View, first: int, stop: int, reason: str) -> list[Run]:
    """What becomes of the exchanges that are not sent: those that the summary covers, and the others."""
    runs = []
    for start, end in view.summary.covers if view.summary else ():
        start, end = max(first, start), min(stop, end)
        if start < end:
            if first < start:
                runs.append(Run(first, start - 1, "left_out", reason))
            runs.append(Run(start, end - 1, "summarised", SUMMARY))
            first = end
    if first < stop:
        runs.append(Run(first, stop - 1, "left_out", reason))
    return runs


def _told(epoch: Epoch, before: Block) -> list[Notice]:
    """A notice if the new epoch shortens the current exchange, `before`: the caller did not ask for that."""
    runs = [run for run in epoch.runs if run.first >= epoch.current and run not in before.special]
    cut = [run for run in runs if run.reason == CUT]
    thinned = sum(run.last + 1 - run.first for run in runs if run.reason == MIDDLE)
    said = []
    if cut:
        said.append(f"{_are(len(cut), 'long text')} cut to head and tail")
    if thinned:
        said.append(f"{_are(thinned, 'event')} left out")
    return (
        [Notice("shortened", f"To fit, {' and '.join(said)} in the current exchange ({epoch.reason}).")] if said else []
    )


def _is_special(run: Run) -> bool:
    return run.keep > 0 or (run.verdict == "summarised" and not run.is_gone) or run.reason == MIDDLE


# Pins


def pin(transcript: Transcript, name: str, policy: Policy, terms: Terms) -> Transcript:
    """A transcript in which an entry is pinned, by its id or its turn's.

    The exchanges that are pinned must leave room: together they may take no more than what a cut leaves.
    """
    if not isinstance(name, str):
        raise InputError(f"What is pinned is named by the id of an entry or a turn, not by {type(name).__name__}.")
    found = next((i for i, entry in enumerate(transcript) if name in (entry.id, entry.turn)), None)
    if found is None:
        shed = " It may have left this state: `join` puts that back." if transcript.shed.number else ""
        raise InputError(
            f"There is no entry or turn {name!r} here: give the id of one of `reply.entries`, or `reply.id`.{shed}"
        )
    pin = Pin(transcript.place(found), transcript[found].id, transcript[found].turn)
    if pin in pins_of(transcript):
        return transcript
    pins = (*pins_of(transcript), pin)
    glance = _Glance(transcript, Epoch(""), terms)
    nothing = Epoch("", raw=transcript.size, current=transcript.size)
    view = _view(transcript, nothing, glance, terms, tuple(sorted(pin.place for pin in pins)))
    new = Block(transcript.size, transcript.size + 1, messages=1, tokens=1)
    view = view.with_blocks((*[block for block in view.blocks if block.pinned], new))
    full = [str(each.to) for each in _compactors(policy, terms) if each.to.fires(view)]
    if full:
        raise PinRefused(
            f"{name!r} can't be pinned: all that is pinned and the current exchange would be {' and '.join(full)}, "
            "which is what a cut leaves. Unpin something, or raise the policy's limit."
        )
    return transcript.record("pins", _json.encode(pins), instead=True)


def unpin(transcript: Transcript, name: str) -> Transcript:
    """A transcript in which an entry is not pinned any more, nor any other of its turn."""
    pins = pins_of(transcript)
    if not isinstance(name, str):
        raise InputError(f"What is unpinned is named by the id of an entry or a turn, not by {type(name).__name__}.")
    left = [pin for pin in pins if name not in (pin.entry, pin.turn) and name.rpartition("-")[0] != pin.turn]
    if len(left) == len(pins):
        raise InputError(f"{name!r} is not pinned.")
    return transcript.record("pins", _json.encode(left), instead=True)


def pins_of(transcript: Transcript) -> list[Pin]:
    """What is pinned."""
    return latest(transcript, "pins", list[Pin]) or []


def pinned(transcript: Transcript) -> tuple[int, ...]:
    """The places of the entries that are pinned."""
    return tuple(sorted({pin.place for pin in pins_of(transcript)}))


def all_there(epoch: Epoch, pins: tuple[int, ...]) -> bool:
    """Whether nothing was pinned since that the epoch leaves out."""
    whole = epoch.start if any(map(_is_special, epoch.runs)) else epoch.raw
    known = set(epoch.pins)
    return all(pin in known or pin >= whole for pin in pins)
