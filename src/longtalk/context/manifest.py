"""What a turn has sent and what it has cost, as it is kept in a store.

A long manifest names its epoch instead of repeating what that says of the entries before its start; otherwise what is
kept of each turn would grow with the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from longtalk._util import json_bytes
from longtalk.context.compose import Context
from longtalk.context.epochs import Epoch
from longtalk.transcript.manifest import Run, StoredManifest, Verdict
from longtalk.transcript.records import read_latest
from longtalk.transcript.transcript import Transcript

if TYPE_CHECKING:
    from longtalk.models.prices import Cost

SHORT = 8
"""So many runs are kept with each turn."""


def kept(context: Context, transcript: Transcript, cost: Cost | None = None) -> bytes:
    """A manifest as JSON. The newest epoch of the transcript is kept too."""
    runs = context.manifest
    epoch = read_latest(transcript, "epoch", Epoch) if len(runs) > SHORT else None
    if epoch is not None and epoch.start == context.epoch:
        since = tuple(run for run in runs if run.last >= epoch.start)
        runs = since if _behind(epoch, since) == runs else runs
    fields = tuple(map(_fields, runs))
    spent = cost.total if cost else None
    memory = (context.brief, context.outline, context.recall)
    return json_bytes.encode(StoredManifest(context.tokens, context.epoch, fields, spent, context.summary, *memory))


def whole(held: StoredManifest, epochs: Mapping[int, Epoch]) -> tuple[Run, ...]:
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
