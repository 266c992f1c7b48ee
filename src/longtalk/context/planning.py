"""Decide when a new epoch begins, and what it keeps.

`make_plan` estimates the length of the next request, which takes the same time however long the conversation is. If a
limit of the policy or the model's window is exceeded, the policy's compactors shorten a view of what is sent now, and
the shorter view becomes the new epoch. A new epoch also begins if a pinned exchange is not part of the present one, or
if an exchange was excluded or included.

A policy may ask for a summary (`Plan.summary_request`). The caller has it written, records it and plans again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from longtalk._util import json_bytes
from longtalk.context.compaction import (
    can_summarise,
    check_exchanges,
    compact_view,
    compares_costs,
    find_outgrown_window,
    list_compactors,
    make_due,
)
from longtalk.context.costs import CostReceipt, Meter
from longtalk.context.epochs import Epoch, begin_epoch, find_epoch
from longtalk.context.exclusions import is_in_head, list_excluded_positions
from longtalk.context.make_epoch import make_epoch
from longtalk.context.measure import (
    UNKNOWN_WINDOW,
    RequestEstimate,
    Terms,
    count_additions,
    count_kept_suffixes,
    find_current_exchange,
    find_stand_in,
    has_all_pins,
    list_pinned_positions,
    make_view,
)
from longtalk.context.plan_reports import (
    describe_fixed,
    make_receipt,
    render_count,
    report_assumed_prices,
    report_shortened,
)
from longtalk.context.suffixes import list_kept_suffixes
from longtalk.errors import ContextOverflow
from longtalk.memory.brief.record import CardKind, read_brief_record
from longtalk.memory.summary import SummaryRequest
from longtalk.notices import Notice
from longtalk.policies.base import BriefKeeper, Compactor, Policy, read_rules
from longtalk.policies.limits import OverTokens
from longtalk.policies.stale_cards import leave_out_stale_cards
from longtalk.policies.token_budget import make_limit_compactor
from longtalk.transcript.manifest import EXCLUDED
from longtalk.transcript.transcript import Transcript

SummaryMoment: TypeAlias = Literal["before", "after"] | None
"""When a summary can be written: before the next call, after an answer, or (None) not now."""


class Plan(msgspec.Struct, frozen=True):
    """The epoch that the next request belongs to."""

    epoch: Epoch
    begins: bool
    counted: int
    """The number of tokens of the request, as counted locally."""
    tokens: int
    """The number of tokens of the request, estimated from the provider's reports."""
    notices: tuple[Notice, ...] = ()
    summary_request: SummaryRequest | None = None
    """The summary that should be written first; None if none is needed."""
    meter: Meter | None = None
    """The amounts spent on resending, including the next call; None if the policy does not compare costs."""
    receipt: CostReceipt | None = None
    """The expected costs and savings of an epoch that begins to save money."""
    card: CardKind = ""
    """The kind of memory card to request with the next call; empty for none."""
    drops_additions: bool = False
    """Whether what memory has added to the current exchange is left out from now on, because it does not fit."""


def apply_plan(transcript: Transcript, plan: Plan, terms: Terms) -> Transcript:
    """Return the transcript with the epoch of a plan recorded, if the plan begins a new one."""
    if not plan.begins:
        return transcript
    shorten = (lambda suffix: suffix.remove_additions(terms.wire, terms.counter)) if plan.drops_additions else None
    transcript = begin_epoch(transcript, plan.epoch, shorten)
    if plan.receipt is None:
        return transcript
    return transcript.add_record("receipt", json_bytes.encode(plan.receipt), replace=True)


def make_plan(
    transcript: Transcript,
    policy: Policy,
    terms: Terms,
    *,
    settled: bool = False,
    may_ask: bool = False,
    forced: bool = False,
    present: Epoch | None = None,
) -> Plan:
    """Return a plan with the present epoch or a new one.

    A new epoch begins if a limit is exceeded, or if an exchange was pinned, excluded or included since the last
    request.

    `settled` says that a turn has ended; then its exchange is not cut, because the next turn may leave it out as a
    whole. With `may_ask` the policy may request a summary first. With `forced`, the policy shortens the conversation to
    its targets now, even if no limit is exceeded. `present` is the present epoch, if it is known.
    """
    rules = read_rules(policy)
    keeper = rules.keeper
    if present is None:
        present = find_epoch(transcript, rules.fingerprint)
    pins = list_pinned_positions(transcript)
    epoch = _follow_exclusions(transcript, present, terms, pins, keeper)
    compactors = list_compactors(rules, terms, settled=settled)
    if forced:
        compactors = make_due(compactors)
    estimate = RequestEstimate(transcript, epoch, terms)
    fired = _find_fired(compactors, estimate)
    stale = False
    if keeper is not None:
        beside = [suffix.data for suffix in list_kept_suffixes(transcript, epoch.current)]
        leaves_out = any(run.is_gone and run.reason != EXCLUDED for run in epoch.runs)
        stale = keeper.needs_new_head(epoch.summary, transcript, terms.counter, beside, leaves_out=leaves_out)
    if fired is None and not stale and has_all_pins(epoch, pins) and find_stand_in(transcript, epoch) is None:
        plan = Plan(epoch, False, estimate.counted, estimate.tokens)
    else:
        moment: SummaryMoment = None if not may_ask else "after" if settled else "before"
        plan = _plan_new_epoch(estimate, compactors, pins, fired, moment, keeper, settled=settled, stale=stale)
    if epoch is not present:
        plan = msgspec.structs.replace(plan, begins=True)
    if keeper is not None:
        plan = _add_card_request(plan, keeper, estimate, settled=settled)
    if estimate.meter is None:
        return plan
    # In a new epoch that leaves nothing out, the amount spent on resending keeps growing.
    meter = msgspec.structs.replace(estimate.meter, epoch=plan.epoch.start)
    if plan.begins and plan.epoch.raw != epoch.raw:
        meter = msgspec.structs.replace(meter, carried=0.0, carriage=0.0)
    return msgspec.structs.replace(
        plan, meter=meter, notices=(*plan.notices, *report_assumed_prices(estimate, settled=settled))
    )


def _follow_exclusions(
    transcript: Transcript, epoch: Epoch, terms: Terms, pins: tuple[int, ...], keeper: BriefKeeper | None
) -> Epoch:
    """Return the epoch, or a new one if exchanges were excluded or included since the epoch began.

    If the head of the epoch may quote an exchange that is excluded now, the new epoch starts from the whole
    conversation.
    """
    excluded = list_excluded_positions(transcript)
    if not excluded and not epoch.excluded:
        return epoch
    # The current exchange is always sent.
    current = find_current_exchange(transcript, epoch)
    excluded = tuple(place for place in excluded if place < current)
    if excluded == epoch.excluded:
        return epoch
    before = Epoch(epoch.policy) if is_in_head(transcript, epoch, excluded) else epoch
    view = make_view(RequestEstimate(transcript, before, terms), pins, excluded)
    view = view if keeper is None else leave_out_stale_cards(view)
    return make_epoch(view, before, "an exchange was excluded or included", pins, excluded)


def _find_fired(compactors: Sequence[Compactor], estimate: RequestEstimate) -> Compactor | None:
    """Return the first compactor that fires, and set `estimate.guessed` to whether it asked for the window.

    Costs are compared even if another trigger fires first.
    """
    fired, guessed = None, False
    for each in compactors:
        if fired is None or compares_costs(each.over):
            estimate.guessed = False
            fires = each.over.fires(estimate)
            if fired is None and fires:
                fired, guessed = each, estimate.guessed
    estimate.guessed = guessed
    return fired


def _add_card_request(plan: Plan, keeper: BriefKeeper, estimate: RequestEstimate, *, settled: bool) -> Plan:
    """Return the plan with the capture mode of its new epoch, if it begins one, and with the memory card to request."""
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


def _plan_new_epoch(
    estimate: RequestEstimate,
    compactors: list[Compactor],
    pins: tuple[int, ...],
    fired: Compactor | None,
    moment: SummaryMoment,
    keeper: BriefKeeper | None,
    *,
    settled: bool,
    stale: bool,
) -> Plan:
    """Return a plan with a new epoch, or with the present one if the compactors change nothing.

    `stale` says that the head must have the brief as `keeper` has it now. The plan's notices report changes that the
    caller did not ask for.
    """
    transcript, epoch, terms = estimate.transcript, estimate.epoch, estimate.terms
    reason = str(fired.over) if fired is not None else "an entry was pinned"
    if fired is None and has_all_pins(epoch, pins):
        reason = "the brief was changed" if stale else "a summary is left of it"
    given = whole = msgspec.structs.replace(make_view(estimate, pins), may_summarize=moment)
    if keeper is not None:
        whole = leave_out_stale_cards(whole)
    current = keeper.with_current_brief(whole) if stale and keeper is not None else whole
    sent = {block.first for block in current.blocks}
    forgotten = [(block.first, block.stop) for block in whole.blocks if block.first not in sent]
    view = compact_view(current, compactors)
    saves = fired is not None and compares_costs(fired.over) and estimate.comparison is not None
    predicted = estimate.comparison.predicted if saves and estimate.comparison is not None else None
    if view.summary_request is not None:
        request = msgspec.structs.replace(view.summary_request, predicted=predicted)
        return Plan(epoch, False, estimate.counted, estimate.tokens, summary_request=request)
    if view.summary is not None and view.summary.is_brief and view.summary != epoch.summary:
        view = msgspec.structs.replace(view, summary=msgspec.structs.replace(view.summary, predicted=predicted))
    check_exchanges(whole, view)
    notices = []
    over = [each for each in compactors if each.over.fires(view) and not (view.droppable and can_summarise(each))]
    if over and any(block.pinned for block in view.blocks[:-1]):
        # These exchanges were pinned under other limits.
        loose = [msgspec.structs.replace(block, pinned=False) for block in view.blocks]
        view = compact_view(view.with_blocks(loose), compactors)
        notices.append(
            Notice("pins_left_out", f"The pinned exchanges no longer fit ({reason}), so the oldest are left out.")
        )
    if terms.window is not None and view.tokens > terms.window and view.summary is not None:
        # The summary is used again after the next cut.
        view = compact_view(msgspec.structs.replace(view, summary=None, latest_summary=None), compactors)
    additions = 0
    if terms.window is not None and view.tokens > terms.window and not settled:
        # What memory has added to the current exchange is optional.
        additions = count_additions(transcript, find_current_exchange(transcript, epoch), terms)
        view = (
            compact_view(msgspec.structs.replace(view, fixed=view.fixed - additions), compactors) if additions else view
        )
    if terms.window is not None and view.tokens > terms.window and not settled:
        # A request that fits only without room for an answer is better than none.
        limit = OverTokens(terms.window)
        view = compact_view(view, [make_limit_compactor(limit, limit)])
    if terms.window is not None and terms.is_refused(view) and not settled:
        error = ContextOverflow(
            f"The request is too long for {terms.model}: it has about {view.tokens:,} tokens{describe_fixed(view)}, "
            f"and the window has {terms.window:,}. Nothing else can be left out: shorten the message."
        )
        error.window, error.tokens = terms.window, view.tokens
        raise error
    if len(view.blocks) == 1 and not settled:
        exceeded = [str(each.over) for each in compactors if each.over.fires(view)]
        if exceeded:
            limits = " and ".join(exceeded)
            text = (
                f"Even with the current exchange alone, the request is {limits}{describe_fixed(view)}. It is sent "
                "as it is."
            )
            notices.append(Notice("over_limit", text))
    # Kept instructions end with their epoch, so a new epoch is shorter even if it keeps all exchanges.
    old = count_kept_suffixes(transcript, epoch.current) - count_kept_suffixes(
        transcript, find_current_exchange(transcript, epoch)
    )
    same = (view.blocks, tuple(view.lines), view.summary) == (given.blocks, epoch.lines, epoch.summary)
    if same and has_all_pins(epoch, pins) and not old and not additions:
        return Plan(epoch, False, estimate.counted, estimate.tokens, tuple(notices))
    full = find_outgrown_window(whole, view, compactors)
    new = make_epoch(view, epoch, reason if full is None else str(full), pins, forgotten=forgotten)
    gone = len(whole.blocks) - len(view.blocks)
    if full is not None:
        text = f"The conversation has outgrown the window of {terms.window:,} tokens"
        notices.append(Notice("window", f"{text}: {render_count(gone, 'more exchange')} left out from now on."))
    if estimate.guessed and terms.window is None:
        text = f"The window of {terms.model} is unknown: {UNKNOWN_WINDOW:,} tokens are assumed."
        notices.append(Notice("window_assumed", f"{text} Set it with Chat(window=…)."))
    notices += report_shortened(new, whole.blocks[-1])
    receipt = make_receipt(view, new, estimate) if view.summary != epoch.summary else None
    return Plan(new, True, view.counted, view.tokens, tuple(notices), receipt=receipt, drops_additions=bool(additions))
