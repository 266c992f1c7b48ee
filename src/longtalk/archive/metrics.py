"""Metrics of a stored turn: the tokens that it sent and received, and its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from longtalk.archive.cut_answers import estimate_cut_call, estimate_cut_cost
from longtalk.context.compose import Context
from longtalk.context.epochs import Epoch
from longtalk.context.manifest import restore_runs
from longtalk.transcript.manifest import read_manifest
from longtalk.transcript.pack import Entry
from longtalk.transcript.transcript import Turn, TurnStatus, now
from longtalk.usage import Usage
from longtalk.wires import read_usage

if TYPE_CHECKING:
    from longtalk.branches.settings import StoredSettings
    from longtalk.models.call_cost import Prices


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and cost of one turn. Numbers that come from the turn's manifest are 0 if no manifest was stored."""

    turn: str
    """The id of the turn."""
    at: int
    """When the turn began, in milliseconds since 1970."""
    model: str
    """The model that answered, as `provider:model`."""
    status: TurnStatus
    calls: int
    """The number of model calls whose usage was reported or, of an answer that was cut off, estimated."""
    total: int = 0
    """The number of tokens in the last request, estimated from what the provider reported for earlier requests.

    The numbers for its parts, such as `history`, are counted locally and need not add up to this total.
    """
    history: int = 0
    """The number of tokens of the entries that were sent, or that the provider's session already had."""
    summary: int = 0
    """The number of tokens of the summary at the start of the request; with `Memory`, of the brief and outlines."""
    brief: int = 0
    """The number of tokens of the brief; `summary` includes them, except lines that are newer than the epoch."""
    outline: int = 0
    """The number of tokens of the outlines; `summary` includes them."""
    recall: int = 0
    """The number of tokens of the recalled passages, which come after the user's message."""
    recall_why: str = ""
    """Why this much was recalled, or nothing, in words; empty if the history was not searched."""
    left_out: int = 0
    """The number of tokens of the entries that the model did not see in full."""
    usage: Usage = Usage()
    """The tokens of all model calls of the turn, as the provider reported them; see `estimated`."""
    cost: float | None = None
    """The cost of all model calls of the turn in US dollars, at the prices when it ran; None if unknown."""
    estimated: bool = False
    """Whether `usage` and `cost` have an estimate, because an answer was cut off before its usage was reported.

    It is the size of the request and of the answer so far, as if nothing was cached, at the prices of today.
    """

    @property
    def request(self) -> int:
        """The number of tokens in the last request: as reported if there was one call, else estimated."""
        return self.usage.input if self.calls == 1 and self.usage.input else self.total


def estimate_metrics(context: Context, model: str, prices: Prices | None) -> Metrics:
    """Return the metrics of a request that was composed and not sent: its parts, and its cost without any cache."""
    from longtalk.models.call_cost import cost

    spent = cost(Usage(input=context.tokens), prices)
    return Metrics(
        turn="",
        at=now(),
        model=model,
        status="running",
        calls=0,
        total=context.tokens,
        history=sum(run.tokens for run in context.manifest if run.verdict == "sent"),
        summary=context.summary,
        brief=context.brief,
        outline=context.outline,
        recall=context.recall,
        recall_why=context.recall_why,
        left_out=sum(run.tokens for run in context.manifest if run.verdict not in ("sent", "recalled")),
        cost=None if spent is None else spent.total,
    )


def build_metrics(
    turn: Turn,
    manifest: bytes,
    epochs: Mapping[int, Epoch],
    *,
    entries: Sequence[Entry] = (),
    settings: Sequence[StoredSettings] = (),
) -> Metrics:
    """Return the metrics of a turn, given its manifest (which may be empty) and the epochs of its branch.

    `entries` and `settings` are those of the turn and of its branch: an answer that was cut off is estimated by them.
    """
    stored = read_manifest(manifest)
    runs = restore_runs(stored, epochs)
    # If the provider has the name of a wire, use that wire; otherwise use the first wire that can read the report.
    wire = turn.model.partition(":")[0]
    usages = [read_usage(raw, wire) for raw in turn.usage]
    cost = stored.cost
    cut = estimate_cut_call(turn, stored, entries)
    if cut is not None:
        usages.append(cut)
        cost = estimate_cut_cost(turn, stored, entries, settings, usages) if cost is None else cost
    return Metrics(
        turn=turn.id,
        at=turn.started,
        model=turn.model,
        status=turn.status,
        calls=len(usages),
        total=stored.tokens,
        history=sum(run.tokens for run in runs if run.verdict in ("sent", "held")),
        summary=stored.summary,
        brief=stored.brief,
        outline=stored.outline,
        recall=stored.recall,
        recall_why=stored.recall_why,
        left_out=sum(run.tokens for run in runs if run.verdict not in ("sent", "held", "recalled")),
        usage=sum(usages, Usage()),
        cost=cost,
        estimated=cut is not None,
    )
