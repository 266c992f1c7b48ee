"""What a turn of a conversation in a store has sent, received and cost."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from longtalk.epochs import Epoch
from longtalk.manifest import read, whole
from longtalk.transcript import Turn, TurnStatus
from longtalk.wires import reported
from longtalk.wires.base import Usage


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """A turn in numbers. Of one that was cut off before it was kept what it had sent, those of the request are 0."""

    turn: str
    """The id of the turn."""
    at: int
    """When it began, in milliseconds since 1970."""
    model: str
    """Who answered, as `provider:model`."""
    status: TurnStatus
    calls: int
    """Model calls that were reported."""
    total: int = 0
    """Tokens of the last request, by what the provider had reported before; the parts below are as counted."""
    history: int = 0
    """Tokens of the entries that it sent, or that the provider keeps."""
    summary: int = 0
    """Tokens of the summary at its head, or of all that memory has put there …"""
    brief: int = 0
    """… of which the brief …"""
    outline: int = 0
    """… and outlines."""
    recall: int = 0
    """Tokens of what was recalled, behind the message."""
    left_out: int = 0
    """Tokens that the other entries have: the model did not see these as they are."""
    usage: Usage = Usage()
    """Tokens of all model calls, as reported."""
    cost: float | None = None
    """US dollars for all model calls, at the prices of that day; None when that is not known."""


def measured(turn: Turn, manifest: bytes, epochs: Mapping[int, Epoch]) -> Metrics:
    """A turn in numbers, given its manifest, if there is one, and the epochs of its branch."""
    held = read(manifest)
    runs = whole(held, epochs)
    # A provider may be called as the wire is that it speaks; else any wire that can reads the report.
    wire = turn.model.partition(":")[0]
    return Metrics(
        turn=turn.id,
        at=turn.started,
        model=turn.model,
        status=turn.status,
        calls=len(turn.usage),
        total=held.tokens,
        history=sum(run.tokens for run in runs if run.verdict in ("sent", "held")),
        summary=held.summary,
        brief=held.brief,
        outline=held.outline,
        recall=held.recall,
        left_out=sum(run.tokens for run in runs if run.verdict not in ("sent", "held", "recalled")),
        usage=sum((reported(raw, wire) for raw in turn.usage), Usage()),
        cost=held.cost,
    )
