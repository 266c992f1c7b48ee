"""When a new epoch begins, and what it keeps.

`plan` looks at how long the next request would be: a glance, which costs the same however long the conversation is. If
a limit of the policy or the model's window is exceeded, it makes a view of what is sent now, lets the policy's
compactors make a shorter one of it, and that is the new epoch. The same happens when something was pinned that is not
there.

A policy may ask for a summary (`Plan.summary_request`). Whoever makes it adds it as a record and plans again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from longtalk._util import json_bytes
from longtalk.context.costs import CostReceipt, Meter, Ratios
from longtalk.context.epochs import Epoch, begin_epoch, find_epoch, fingerprint_policy, list_kept_suffixes
from longtalk.context.measure import (
    UNKNOWN_WINDOW,
    RequestEstimate,
    Terms,
    count_kept_suffixes,
    find_current_exchange,
    find_stand_in,
    has_all_pins,
    list_pinned_positions,
    make_epoch,
    make_view,
)
from longtalk.errors import ContextOverflow, InputError
from longtalk.memory.brief.record import CardKind, read_brief_record
from longtalk.memory.summary import SummaryRequest
from longtalk.notices import Notice
from longtalk.policies.base import BriefKeeper, Compactor, Policy, Trigger, find_brief_keeper
from longtalk.policies.limits import OverTokens
from longtalk.policies.token_budget import make_limit_compactor
from longtalk.policies.view import Block, View
from longtalk.transcript.manifest import CUT, MIDDLE
from longtalk.transcript.transcript import Transcript

SummaryMoment: TypeAlias = Literal["before", "after"] | None
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
    summary_request: SummaryRequest | None = None
    """A summary that should be made first."""
    meter: Meter | None = None
    """What carrying on will have cost with the next call, if the policy goes by that."""
    receipt: CostReceipt | None = None
    """What is expected of an epoch that begins to save money."""
    card: CardKind = ""
    """Whether the model should be asked for a memory card with the next call, and for which."""


def apply_plan(transcript: Transcript, plan: Plan) -> Transcript:
    """A transcript on which the epoch of a plan has begun."""
    if not plan.begins:
        return transcript
    transcript = begin_epoch(transcript, plan.epoch)
    if plan.receipt is None:
        return transcript
    return transcript.add_record("receipt", json_bytes.encode(plan.receipt), replace=True)


def make_plan(
    transcript: Transcript, policy: Policy, terms: Terms, *, settled: bool = False, may_ask: bool = False
) -> Plan:
    """The present epoch, or a new one if a limit is exceeded or something was pinned that is not there.

    When the last exchange is `settled`, it is not cut: the next turn may leave it out whole. With `may_ask` the policy
    may want a summary first.
    """
    epoch = find_epoch(transcript, fingerprint_policy(policy))
    compactors = list_compactors(policy, terms, settled=settled)
    estimate = RequestEstimate(transcript, epoch, terms)
    fired = _find_fired(compactors, estimate)
    for each in compactors:
        if _compares_costs(each.over):
            # It keeps account, whichever fires.
            each.over.fires(estimate)
    pins = list_pinned_positions(transcript)
    keeper = find_brief_keeper(policy)
    beside = [suffix.data for suffix in list_kept_suffixes(transcript, epoch.current)]
    stale = None
    if keeper is not None:
        leaves_out = any(run.is_gone for run in epoch.runs)
        if keeper.needs_new_head(epoch.summary, transcript, terms.counter, beside, leaves_out=leaves_out):
            stale = keeper
    if fired is None and stale is None and has_all_pins(epoch, pins) and find_stand_in(transcript, epoch) is None:
        plan = Plan(epoch, False, estimate.counted, estimate.tokens)
    else:
        moment: SummaryMoment = None if not may_ask else "after" if settled else "before"
        plan = _plan_new_epoch(estimate, compactors, pins, fired, moment, settled=settled, stale=stale)
    if keeper is not None:
        plan = _add_card_request(plan, keeper, estimate, settled=settled)
    if estimate.meter is None:
        return plan
    # An epoch that lets go of nothing carries on.
    carried = 0.0 if plan.begins and plan.epoch.raw != epoch.raw else estimate.meter.carried
    meter = msgspec.structs.replace(estimate.meter, epoch=plan.epoch.start, carried=carried)
    return msgspec.structs.replace(
        plan, meter=meter, notices=(*plan.notices, *_report_assumed_prices(estimate, settled=settled))
    )


def _find_fired(compactors: Sequence[Compactor], estimate: RequestEstimate) -> Compactor | None:
    """Return the first compactor that fires. Then `estimate.guessed` says whether that one asked for the window."""
    for each in compactors:
        estimate.guessed = False
        if each.over.fires(estimate):
            return each
    estimate.guessed = False
    return None


def _compares_costs(trigger: Trigger) -> bool:
    return getattr(trigger, "compares_costs", False)


def _add_card_request(plan: Plan, keeper: BriefKeeper, estimate: RequestEstimate, *, settled: bool) -> Plan:
    """A plan of a conversation of which memory keeps a brief."""
    record = read_brief_record(estimate.transcript)
    if plan.begins:
        epoch = msgspec.structs.replace(plan.epoch, way=record.capture_mode or keeper.capture)
        plan = msgspec.structs.replace(plan, epoch=epoch)
    if settled or plan.summary_request is not None:
        return plan
    current = find_current_exchange(estimate.transcript, plan.epoch)
    near, history = estimate.near, estimate.history
    if plan.begins and plan.epoch.raw != estimate.epoch.raw:
        near, history = False, plan.epoch.tokens - estimate.transcript.tokens(*_span_from(estimate.transcript, current))
    card = keeper.choose_card(record, near=near, history=history, raw=plan.epoch.raw, current=current)
    return msgspec.structs.replace(plan, card=card)


def _span_from(transcript: Transcript, position: int) -> tuple[int, int]:
    return transcript.index_of(position), len(transcript)


def _report_assumed_prices(estimate: RequestEstimate, *, settled: bool) -> list[Notice]:
    """A notice if prices have to be assumed, with the first call of a model."""
    last = estimate.transcript.records.read_latest("meter", Meter)
    terms = estimate.terms
    if terms.prices is not None or settled or (last is not None and last.model == terms.model):
        return []
    usual = Ratios()
    why = f": {terms.prices_unknown}" if terms.prices_unknown else ""
    text = (
        f"The prices of {terms.model} are unknown{why}. It is assumed that a token read from the cache costs "
        f"{usual.read} of one that is sent again, one written to it {usual.write} and one received {usual.output:g}. "
        "Set the prices with longtalk.models.register(…)."
    )
    return [Notice("prices_assumed", text)]


class _OverWindow(OverTokens, frozen=True):
    """Fires when the model's window has no room for an answer."""

    def __str__(self) -> str:
        return "more than fits into the window"


def list_compactors(policy: Policy, terms: Terms, *, settled: bool = False) -> list[Compactor]:
    """The policy's own, and the model's window, which no policy can do without."""
    found = [*policy.compactors]
    # What a summary can still stand for before the next call is not left out after the answer.
    waits = settled and any(_can_summarise(each, background=False) for each in found)
    if terms.room is not None and not waits:
        found.append(make_limit_compactor(_OverWindow(terms.room), OverTokens(max(1, terms.room // 2))))
    if settled:
        kept = [(each, [s for s in each.strategies if not getattr(s, "cuts_current", False)]) for each in found]
        return [Compactor(each.over, tuple(strategies), each.to) for each, strategies in kept if strategies]
    return found


def _can_summarise(compactor: Compactor, *, background: bool | None = None) -> bool:
    """Whether a limit can be exceeded for a while, until there is a summary."""
    how = [getattr(strategy, "background", None) for strategy in compactor.strategies]
    return any(each is not None and background in (None, each) for each in how)


def _plan_new_epoch(
    estimate: RequestEstimate,
    compactors: list[Compactor],
    pins: tuple[int, ...],
    fired: Compactor | None,
    moment: SummaryMoment,
    *,
    settled: bool,
    stale: BriefKeeper | None,
) -> Plan:
    """A new epoch; the present one if the compactors find nothing to do. Says what they did that nobody asked for."""
    transcript, epoch, terms = estimate.transcript, estimate.epoch, estimate.terms
    reason = str(fired.over) if fired is not None else "an entry was pinned"
    if fired is None and has_all_pins(epoch, pins):
        reason = "a summary is left of it" if stale is None else "the brief was changed"
    whole = msgspec.structs.replace(make_view(estimate, pins), may_summarize=moment)
    view = _compact(whole if stale is None else stale.with_current_brief(whole), compactors)
    saves = fired is not None and _compares_costs(fired.over) and estimate.comparison is not None
    predicted = estimate.comparison.predicted if saves and estimate.comparison is not None else None
    if view.summary_request is not None:
        request = msgspec.structs.replace(view.summary_request, predicted=predicted)
        return Plan(epoch, False, estimate.counted, estimate.tokens, summary_request=request)
    if view.summary is not None and view.summary.is_brief and view.summary != epoch.summary:
        view = msgspec.structs.replace(view, summary=msgspec.structs.replace(view.summary, predicted=predicted))
    _check_exchanges(whole, view)
    notices = []
    over = [each for each in compactors if each.over.fires(view) and not (view.droppable and _can_summarise(each))]
    if over and any(block.pinned for block in view.blocks[:-1]):
        # Whoever pinned them had other limits in mind.
        loose = [msgspec.structs.replace(block, pinned=False) for block in view.blocks]
        view = _compact(view.with_blocks(loose), compactors)
        notices.append(
            Notice("pins_left_out", f"Not all that is pinned fits any more ({reason}): the oldest is left out.")
        )
    if terms.window is not None and view.tokens > terms.window and view.summary is not None:
        # It comes back with the next cut.
        view = _compact(msgspec.structs.replace(view, summary=None, latest_summary=None), compactors)
    if terms.window is not None and view.tokens > terms.window and not settled:
        error = ContextOverflow(
            f"The request is longer than {terms.model} takes: about {view.tokens:,} tokens{_describe_fixed(view)}, and "
            f"the window has {terms.window:,}. Nothing more can be left out: send less."
        )
        error.window, error.tokens = terms.window, view.tokens
        raise error
    if len(view.blocks) == 1 and not settled:
        exceeded = [str(each.over) for each in compactors if each.over.fires(view)]
        if exceeded:
            limits = " and ".join(exceeded)
            text = f"With the current exchange alone the request is {limits}{_describe_fixed(view)}: it is sent whole."
            notices.append(Notice("over_limit", text))
    # Instructions that had to stay go with their epoch: a new one is shorter also when it keeps all exchanges.
    old = count_kept_suffixes(transcript, epoch.current) - count_kept_suffixes(
        transcript, find_current_exchange(transcript, epoch)
    )
    same = (view.blocks, tuple(view.lines), view.summary) == (whole.blocks, epoch.lines, epoch.summary)
    if same and has_all_pins(epoch, pins) and not old:
        return Plan(epoch, False, estimate.counted, estimate.tokens, tuple(notices))
    full = _find_outgrown_window(whole, view, compactors)
    new = make_epoch(view, epoch, reason if full is None else str(full), pins)
    gone = len(whole.blocks) - len(view.blocks)
    if full is not None:
        text = f"The conversation has outgrown the window of {terms.window:,} tokens"
        notices.append(Notice("window", f"{text}: {_render_count(gone, 'more exchange')} left out from now on."))
    if estimate.guessed and terms.window is None:
        text = (
            f"Nobody knows the window of {terms.model}: {UNKNOWN_WINDOW:,} tokens are assumed. Chat(window=…) says it."
        )
        notices.append(Notice("window_assumed", text))
    notices += _report_shortened(new, whole.blocks[-1])
    receipt = _make_receipt(view, new, estimate) if view.summary != epoch.summary else None
    return Plan(new, True, view.counted, view.tokens, tuple(notices), receipt=receipt)


def _find_outgrown_window(whole: View, view: View, compactors: Sequence[Compactor]) -> _OverWindow | None:
    """The window, if more exchanges are gone than the policy itself lets go of."""
    full = next(
        (each.over for each in compactors if isinstance(each.over, _OverWindow) and each.over.fires(whole)), None
    )
    if full is None:
        return None
    own = _compact(whole, [each for each in compactors if not isinstance(each.over, _OverWindow)])
    return full if len(own.blocks) > len(view.blocks) else None


def _make_receipt(view: View, new: Epoch, estimate: RequestEstimate) -> CostReceipt | None:
    """What is expected of an epoch, if it began for the sake of money."""
    summary, meter = view.summary, estimate.meter
    if summary is None or summary.predicted is None or meter is None or estimate.comparison is None:
        return None
    return CostReceipt(
        epoch=new.start,
        at=estimate.terms.now,
        reason=new.reason,
        before=estimate.tokens,
        after=view.tokens,
        carried=meter.carried,
        predicted=summary.predicted,
        ratios=estimate.ratios,
        calls_before=meter.calls - 1,
        saved_before=meter.saved,
    )


def _render_count(number: int, what: str) -> str:
    return f"{number:,} {what} is" if number == 1 else f"{number:,} {what}s are"


def _describe_fixed(view: View) -> str:
    """How much of a request is not conversation, if that is worth saying."""
    fixed = round(view.scale * view.fixed)
    return f" ({fixed:,} tokens are system text, tools and instruction)" if fixed * 4 > view.tokens else ""


def _check_exchanges(whole: View, view: View) -> None:
    """Raise unless a view is made of whole exchanges, in order, the current one last: a strategy may do anything."""
    there = iter([(block.first, block.stop) for block in whole.blocks])
    kept = [(block.first, block.stop) for block in view.blocks]
    last = whole.blocks[-1]
    if not all(pair in there for pair in kept) or not kept or kept[-1] != (last.first, last.stop):
        raise InputError("A strategy of the policy gave back something else than exchanges of its view, in order.")


def _compact(view: View, compactors: Sequence[Compactor]) -> View:
    """A view in which every limit holds, or nothing more can be done."""
    for _ in range(_ROUNDS):
        before = view
        for each in compactors:
            if each.over.fires(view):
                view = each.apply(view)
        if view.summary_request or (view.blocks, tuple(view.lines)) == (before.blocks, tuple(before.lines)):
            break
    return view if view.summary_request else _drop_lines(view, compactors)


def _drop_lines(view: View, compactors: Sequence[Compactor]) -> View:
    """Return the view with only as many of the newest digest lines as the limits have room for.

    The compactor whose limit is exceeded need not be the one that has left the lines.
    """

    def with_lines(number: int) -> View:
        return msgspec.structs.replace(view, lines=view.lines[len(view.lines) - number :])

    def is_exceeded(number: int) -> bool:
        return any(each.over.fires(with_lines(number)) for each in binding)

    # A limit may be exceeded for a while, until there is a summary.
    binding = [each for each in compactors if not (view.droppable and _can_summarise(each))]
    return with_lines(bisect_left(range(len(view.lines)), True, key=lambda number: is_exceeded(number + 1)))


def _report_shortened(epoch: Epoch, before: Block) -> list[Notice]:
    """A notice if the new epoch shortens the current exchange, `before`: the caller did not ask for that."""
    runs = [run for run in epoch.runs if run.first >= epoch.current and run not in before.altered]
    cut = [run for run in runs if run.reason == CUT]
    thinned = sum(run.last + 1 - run.first for run in runs if run.reason == MIDDLE)
    parts = []
    if cut:
        parts.append(f"{_render_count(len(cut), 'long text')} cut to head and tail")
    if thinned:
        parts.append(f"{_render_count(thinned, 'event')} left out")
    return (
        [Notice("shortened", f"To fit, {' and '.join(parts)} in the current exchange ({epoch.reason}).")]
        if parts
        else []
    )
