"""What planning reports about a plan: notices, receipts and parts of errors."""

from __future__ import annotations

from longtalk.context.costs import CostReceipt, Meter, Ratios
from longtalk.context.epochs import Epoch
from longtalk.context.measure import RequestEstimate
from longtalk.notices import Notice
from longtalk.policies.view import Block, View
from longtalk.transcript.manifest import CUT, MIDDLE


def report_assumed_prices(estimate: RequestEstimate, *, settled: bool) -> list[Notice]:
    """Return a list with a notice if prices must be assumed and this is the model's first call; else an empty list."""
    last = estimate.transcript.records.read_latest("meter", Meter)
    terms = estimate.terms
    if terms.prices is not None or settled or (last is not None and last.model == terms.model):
        return []
    usual = Ratios()
    why = f": {terms.prices_unknown}" if terms.prices_unknown else ""
    text = (
        f"The prices of {terms.model} are unknown{why}. Compared with an uncached input token, it is assumed that "
        f"a token read from the cache costs {usual.read}, one written to it {usual.write}, and one of the answer "
        f"{usual.output:g}. "
        "Set the prices with longtalk.models.register(…)."
    )
    return [Notice("prices_assumed", text)]


def make_receipt(view: View, new: Epoch, estimate: RequestEstimate) -> CostReceipt | None:
    """Return a receipt with the expected costs of a new epoch, or None if the epoch does not begin to save money."""
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


def render_count(number: int, what: str) -> str:
    """Return a number of things with a verb: "1 event is", "2 events are"."""
    return f"{number:,} {what} is" if number == 1 else f"{number:,} {what}s are"


def describe_fixed(view: View) -> str:
    """Return a note about the size of the preamble and the instruction; "" if they are small."""
    fixed = round(view.scale * view.fixed)
    return f" ({fixed:,} tokens are system text, tools and instruction)" if fixed * 4 > view.tokens else ""


def report_shortened(epoch: Epoch, before: Block) -> list[Notice]:
    """Return a list with a notice if the new epoch shortens the current exchange, `before`; else an empty list."""
    runs = [run for run in epoch.runs if run.first >= epoch.current and run not in before.altered]
    cut = [run for run in runs if run.reason == CUT]
    thinned = sum(run.last + 1 - run.first for run in runs if run.reason == MIDDLE)
    parts = []
    if cut:
        parts.append(f"{render_count(len(cut), 'long text')} cut to head and tail")
    if thinned:
        parts.append(f"{render_count(thinned, 'event')} left out")
    return (
        [Notice("shortened", f"The current exchange was shortened to fit: {' and '.join(parts)} ({epoch.reason}).")]
        if parts
        else []
    )
