"""When a new epoch begins, and what it keeps.

`plan` looks at how long the next request would be: a glance, which costs the same however long the conversation is. If
a limit of the policy or the model's window is exceeded, it makes a view of what is sent now, lets the policy's
compactors make a shorter one of it, and that is the new epoch. The same happens when something was pinned that is not
there.

A policy may ask for a summary (`Plan.wants`). Whoever makes it adds it as a record and plans again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from longtalk._util import json_bytes
from longtalk.context.costs import CostReceipt, Meter, Ratios
from longtalk.context.epochs import Epoch, Pin, begin, current, fingerprint, list_kept_suffixes
from longtalk.context.measure import (
    UNKNOWN_WINDOW,
    RequestEstimate,
    Terms,
    all_there,
    epoch_of,
    last_exchange,
    pinned,
    pins_of,
    stand_in,
    staying,
    view_of,
)
from longtalk.errors import ContextOverflow, InputError, PinRefused
from longtalk.memory.brief.record import CardKind, read_brief_record
from longtalk.memory.summary import SummaryRequest
from longtalk.notices import Notice
from longtalk.policies import Block, Compactor, CutCurrent, OverTokens, Policy, View
from longtalk.policies.economy import SummaryPays
from longtalk.policies.memory import BriefPays, CompactToBrief, OverHistory, choose_card, find_memory
from longtalk.policies.token_budget import make_limit_compactor
from longtalk.transcript.manifest import CUT, MIDDLE
from longtalk.transcript.records import read_latest
from longtalk.transcript.transcript import Transcript

Asks: TypeAlias = Literal["before", "after"] | None
"""Whether a summary can be asked for: before the next call, or after an answer."""
_ROUNDS = 8
"""How often limits that undo each other's work are tried."""


class Plan(msgspec.Struct, frozen=True):
    """The epoch that the next request belongs to."""

    epoch: Epoch
    begins: bool
    counted: int
    """How long the request will be, as counted."""
    tokens: int
    """How long it will be, by what was reported."""
    notices: tuple[Notice, ...] = ()
    wants: SummaryRequest | None = None
    """A summary that should be made first."""
    meter: Meter | None = None
    """What carrying on will have cost with the next call, if the policy goes by that."""
    receipt: CostReceipt | None = None
    """What is expected of an epoch that begins to save money."""
    card: CardKind = ""
    """Whether the model should be asked for a memory card with the next call, and for which."""


def begun(transcript: Transcript, made: Plan) -> Transcript:
    """A transcript on which the epoch of a plan has begun."""
    if not made.begins:
        return transcript
    transcript = begin(transcript, made.epoch)
    if made.receipt is None:
        return transcript
    return transcript.add_record("receipt", json_bytes.encode(made.receipt), replace=True)


def plan(transcript: Transcript, policy: Policy, terms: Terms, *, settled: bool = False, may_ask: bool = False) -> Plan:
    """The present epoch, or a new one if a limit is exceeded or something was pinned that is not there.

    When the last exchange is `settled`, it is not cut: the next turn may leave it out whole. With `may_ask` the policy
    may want a summary first.
    """
    epoch = current(transcript, fingerprint(policy))
    compactors = _compactors(policy, terms, settled=settled)
    glance = RequestEstimate(transcript, epoch, terms)
    fired = next((each for each in compactors if each.over.fires(glance)), None)
    for each in compactors:
        if isinstance(each.over, SummaryPays | BriefPays):
            # It keeps account, whoever fires.
            each.over.fires(glance)
    pins = pinned(transcript)
    memory = find_memory(policy)
    beside = [aside.data for aside in list_kept_suffixes(transcript, epoch.current)]
    stale = None
    if memory is not None:
        leaves_out = any(run.is_gone for run in epoch.runs)
        if memory.needs_new_head(epoch.summary, transcript, terms.counter, beside, leaves_out=leaves_out):
            stale = memory
    if fired is None and stale is None and all_there(epoch, pins) and stand_in(transcript, epoch) is None:
        made = Plan(epoch, False, glance.counted, glance.tokens)
    else:
        asks: Asks = None if not may_ask else "after" if settled else "before"
        made = _begin(glance, compactors, pins, fired, asks, settled=settled, stale=stale)
    if memory is not None:
        made = _remembering(made, memory, glance, settled=settled)
    if glance.meter is None:
        return made
    # An epoch that lets go of nothing carries on.
    carried = 0.0 if made.begins and made.epoch.raw != epoch.raw else glance.meter.carried
    meter = msgspec.structs.replace(glance.meter, epoch=made.epoch.start, carried=carried)
    return msgspec.structs.replace(made, meter=meter, notices=(*made.notices, *_assumed(glance, settled=settled)))


def _remembering(made: Plan, memory: CompactToBrief, glance: RequestEstimate, *, settled: bool) -> Plan:
    """A plan of a conversation of which memory keeps a brief."""
    record = read_brief_record(glance.transcript)
    if made.begins:
        epoch = msgspec.structs.replace(made.epoch, way=record.capture_mode or memory.config.capture)
        made = msgspec.structs.replace(made, epoch=epoch)
    if settled or made.wants is not None:
        return made
    current = last_exchange(glance.transcript, made.epoch)
    near, history = glance.near, glance.history
    if made.begins and made.epoch.raw != glance.epoch.raw:
        near, history = False, made.epoch.tokens - glance.transcript.tokens(*_span(glance.transcript, current))
    wanted: CardKind = choose_card(
        memory.config,
        record,
        near=near,
        history=history,
        raw=made.epoch.raw,
        current=current,
    )
    return msgspec.structs.replace(made, card=wanted)


def _span(transcript: Transcript, place: int) -> tuple[int, int]:
    return transcript.index_of(place), len(transcript)


def _assumed(glance: RequestEstimate, *, settled: bool) -> list[Notice]:
    """A notice if prices have to be assumed, with the first call of a model."""
    last = read_latest(glance.transcript, "meter", Meter)
    terms = glance.terms
    if terms.prices is not None or settled or (last is not None and last.model == terms.model):
        return []
    usual = Ratios()
    text = (
        f"Nobody knows what {terms.model} costs. It is assumed that a token read from the cache costs {usual.read} of "
        f"one sent anew, one written to it {usual.write} and one received {usual.output:g}: "
        "longtalk.models.register(…) says it."
    )
    return [Notice("prices_assumed", text)]


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
        found.append(make_limit_compactor(_Full(terms.room), OverTokens(max(1, terms.room // 2))))
    if settled:
        kept = [(each, [s for s in each.strategies if not isinstance(s, CutCurrent)]) for each in found]
        return [Compactor(each.over, tuple(strategies), each.to) for each, strategies in kept if strategies]
    return found


def _summarises(compactor: Compactor, *, background: bool | None = None) -> bool:
    """Whether a limit can be exceeded for a while, until there is a summary."""
    how = [getattr(strategy, "background", None) for strategy in compactor.strategies]
    return any(each is not None and background in (None, each) for each in how)


def _begin(
    glance: RequestEstimate,
    compactors: list[Compactor],
    pins: tuple[int, ...],
    fired: Compactor | None,
    asks: Asks,
    *,
    settled: bool,
    stale: CompactToBrief | None,
) -> Plan:
    """A new epoch; the present one if the compactors find nothing to do. Says what they did that nobody asked for."""
    transcript, epoch, terms = glance.transcript, glance.epoch, glance.terms
    reason = str(fired.over) if fired is not None else "an entry was pinned"
    if fired is None and all_there(epoch, pins):
        reason = "a summary is left of it" if stale is None else "the brief was changed"
    whole = msgspec.structs.replace(view_of(glance, pins), may_summarize=asks)
    view = _compacted(whole if stale is None else stale.with_current_brief(whole), compactors)
    saves = fired is not None and isinstance(fired.over, SummaryPays | BriefPays) and glance.reckoning is not None
    predicted = glance.reckoning.predicted if saves and glance.reckoning is not None else None
    if view.summary_request is not None:
        wants = msgspec.structs.replace(view.summary_request, predicted=predicted)
        return Plan(epoch, False, glance.counted, glance.tokens, wants=wants)
    if view.summary is not None and view.summary.is_brief and view.summary != epoch.summary:
        view = msgspec.structs.replace(view, summary=msgspec.structs.replace(view.summary, predicted=predicted))
    _check_kept(whole, view)
    notices = []
    over = [each for each in compactors if each.over.fires(view) and not (view.droppable and _summarises(each))]
    if over and any(block.pinned for block in view.blocks[:-1]):
        # Whoever pinned them had other limits in mind.
        loose = [msgspec.structs.replace(block, pinned=False) for block in view.blocks]
        view = _compacted(view.with_blocks(loose), compactors)
        notices.append(
            Notice("pins_left_out", f"Not all that is pinned fits any more ({reason}): the oldest is left out.")
        )
    if terms.window is not None and view.tokens > terms.window and view.summary is not None:
        # It comes back with the next cut.
        view = _compacted(msgspec.structs.replace(view, summary=None, latest_summary=None), compactors)
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
    old = staying(transcript, epoch.current) - staying(transcript, last_exchange(transcript, epoch))
    same = (view.blocks, tuple(view.lines), view.summary) == (whole.blocks, epoch.lines, epoch.summary)
    if same and all_there(epoch, pins) and not old:
        return Plan(epoch, False, glance.counted, glance.tokens, tuple(notices))
    full = _outgrown(whole, view, compactors)
    new = epoch_of(view, epoch, reason if full is None else str(full), pins)
    gone = len(whole.blocks) - len(view.blocks)
    if full is not None:
        text = f"The conversation has outgrown the window of {terms.window:,} tokens"
        notices.append(Notice("window", f"{text}: {_are(gone, 'more exchange')} left out from now on."))
    by_memory = isinstance(fired.over, BriefPays | OverHistory) if fired is not None else stale is not None
    if glance.guessed and terms.window is None and not by_memory:
        text = (
            f"Nobody knows the window of {terms.model}: {UNKNOWN_WINDOW:,} tokens are assumed. Chat(window=…) says it."
        )
        notices.append(Notice("window_assumed", text))
    notices += _told(new, whole.blocks[-1])
    receipt = _receipt(view, new, glance) if view.summary != epoch.summary else None
    return Plan(new, True, view.counted, view.tokens, tuple(notices), receipt=receipt)


def _outgrown(whole: View, view: View, compactors: Sequence[Compactor]) -> _Full | None:
    """The window, if more exchanges are gone than the policy itself lets go of."""
    full = next((each.over for each in compactors if isinstance(each.over, _Full) and each.over.fires(whole)), None)
    if full is None:
        return None
    own = _compacted(whole, [each for each in compactors if not isinstance(each.over, _Full)])
    return full if len(own.blocks) > len(view.blocks) else None


def _receipt(view: View, new: Epoch, glance: RequestEstimate) -> CostReceipt | None:
    """What is expected of an epoch, if it began for the sake of money."""
    summary, meter = view.summary, glance.meter
    if summary is None or summary.predicted is None or meter is None or glance.reckoning is None:
        return None
    return CostReceipt(
        epoch=new.start,
        at=glance.terms.now,
        reason=new.reason,
        before=glance.tokens,
        after=view.tokens,
        carried=meter.carried,
        predicted=summary.predicted,
        ratios=glance.ratios,
        calls_before=meter.calls - 1,
        saved_before=meter.saved,
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
        if view.summary_request or (view.blocks, tuple(view.lines)) == (before.blocks, tuple(before.lines)):
            break
    return view


def _told(epoch: Epoch, before: Block) -> list[Notice]:
    """A notice if the new epoch shortens the current exchange, `before`: the caller did not ask for that."""
    runs = [run for run in epoch.runs if run.first >= epoch.current and run not in before.altered]
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
    pin = Pin(transcript.position(found), transcript[found].id, transcript[found].turn)
    if pin in pins_of(transcript):
        return transcript
    pins = (*pins_of(transcript), pin)
    nothing = Epoch("", raw=transcript.size, current=transcript.size)
    view = view_of(RequestEstimate(transcript, nothing, terms), tuple(sorted(pin.place for pin in pins)))
    new = Block(transcript.size, transcript.size + 1, messages=1, tokens=1)
    view = view.with_blocks((*[block for block in view.blocks if block.pinned], new))
    full = [str(each.to) for each in _compactors(policy, terms) if each.to.fires(view)]
    if full:
        raise PinRefused(
            f"{name!r} can't be pinned: all that is pinned and the current exchange would be {' and '.join(full)}, "
            "which is what a cut leaves. Unpin something, or raise the policy's limit."
        )
    return transcript.add_record("pins", json_bytes.encode(pins), replace=True)


def unpin(transcript: Transcript, name: str) -> Transcript:
    """A transcript in which an entry is not pinned any more, nor any other of its turn."""
    pins = pins_of(transcript)
    if not isinstance(name, str):
        raise InputError(f"What is unpinned is named by the id of an entry or a turn, not by {type(name).__name__}.")
    left = [pin for pin in pins if name not in (pin.entry, pin.turn) and name.rpartition("-")[0] != pin.turn]
    if len(left) == len(pins):
        raise InputError(f"{name!r} is not pinned.")
    return transcript.add_record("pins", json_bytes.encode(left), replace=True)
