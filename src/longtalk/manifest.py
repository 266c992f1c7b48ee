"""What a turn has sent and what it has cost, as it is kept in a store.

A long manifest names its epoch instead of repeating what that says of the entries before its start; otherwise what is
kept of each turn would grow with the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from longtalk import _json
from longtalk.context import Context
from longtalk.epochs import Epoch
from longtalk.policies.view import Run, Verdict
from longtalk.records import latest
from longtalk.transcript import Transcript

if TYPE_CHECKING:
    from longtalk.prices import Cost

SHORT = 8
"""So many runs are kept with each turn."""


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """The manifest of a turn's last request, and what all of its requests have cost."""

    tokens: int = 0
    """How long the request was, by what the provider had reported."""
    epoch: int = 0
    """Where its epoch began …"""
    runs: tuple[tuple[Any, ...], ...] = ()
    """… and what is to be said of the entries from there on; of all of them, if the first one is among these.

    First, last and tokens of each `Run`, and the rest unless they were just sent: what each turn keeps is short.
    """
    cost: float | None = None
    """US dollars for all model calls of the turn, at the prices of that day; None when that is not known."""
    summary: int = 0
    """Tokens of the summary at the head of the request, or of all that memory has put there …"""
    brief: int = 0
    """… of which the brief …"""
    outline: int = 0
    """… and outlines …"""
    recall: int = 0
    """… and of what was recalled, behind the message."""


def kept(context: Context, transcript: Transcript, cost: Cost | None = None) -> bytes:
    """A manifest as JSON. The newest epoch of the transcript is kept too."""
    runs = context.manifest
    epoch = latest(transcript, "epoch", Epoch) if len(runs) > SHORT else None
    if epoch is not None and epoch.start == context.epoch:
        since = tuple(run for run in runs if run.last >= epoch.start)
        runs = since if _behind(epoch, since) == runs else runs
    fields = tuple(map(_fields, runs))
    spent = cost.total if cost else None
    memory = (context.brief, context.outline, context.recall)
    return _json.encode(Kept(context.tokens, context.epoch, fields, spent, context.summary, *memory))


def read(data: bytes) -> Kept:
    """A manifest; without one, or where it can't be read, one that says that nothing is known."""
    try:
        return msgspec.json.decode(data, type=Kept) if data else Kept()
    except ValueError:
        return Kept()


def whole(held: Kept, epochs: Mapping[int, Epoch]) -> tuple[Run, ...]:
    """All runs of a manifest, given the epochs of its branch by where they began."""
    runs = tuple(_run(*fields) for fields in held.runs)
    return _behind(epochs[held.epoch], runs) if held.epoch in epochs else runs


def _fields(run: Run) -> tuple[Any, ...]:
    more = (run.verdict, run.reason, run.keep)
    return (run.first, run.last, run.tokens, *(() if more == ("sent", "kept", 0) else more))


def _run(first: int, last: int, tokens: int, verdict: Verdict = "sent", reason: str = "kept", keep: int = 0) -> Run:
    return Run(first, last, verdict, reason, tokens, keep)


def _behind(epoch: Epoch, runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """Runs behind those of an epoch that end before them."""
    first = runs[0].first if runs else epoch.start
    return (*(run for run in epoch.runs if run.last < first), *runs)
