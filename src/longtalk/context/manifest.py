"""Encode the manifest of a turn, with its cost, for a store.

A long manifest refers to its epoch for the entries before the epoch's start; otherwise the manifest of each turn would
grow with the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from longtalk._util import json_bytes, typed_json
from longtalk.context.compose import Context
from longtalk.context.epochs import Epoch, list_runs, name_substitutes
from longtalk.transcript.manifest import Run, StoredManifest, Verdict
from longtalk.transcript.transcript import Transcript

if TYPE_CHECKING:
    from longtalk.models.call_cost import Cost

MAX_STORED_RUNS = 8
"""The number of runs above which a manifest omits the runs that are also in its epoch."""


def encode_manifest(
    context: Context,
    transcript: Transcript,
    cost: Cost | None = None,
    *,
    calls: Sequence[dict[str, Any]] = (),
    settings: str = "",
) -> bytes:
    """Return a context's manifest as JSON for the store, which also has the newest epoch of the transcript.

    `calls` and `settings` are as for `StoredManifest`.
    """
    runs = context.manifest
    epoch = transcript.records.read_latest("epoch", Epoch) if len(runs) > MAX_STORED_RUNS else None
    if epoch is not None and epoch.start == context.epoch:
        since = tuple(run for run in runs if run.last >= epoch.start)
        runs = since if _prepend_epoch_runs(epoch, since) == runs else runs
    fields = tuple(map(_to_fields, runs))
    spent = cost.total if cost else None
    sizes = (context.tokens, context.epoch, fields, spent, context.summary, context.brief, context.outline)
    return json_bytes.encode(StoredManifest(*sizes, context.recall, tuple(calls), settings, context.recall_why))


def restore_runs(manifest: StoredManifest, epochs: Mapping[int, Epoch]) -> tuple[Run, ...]:
    """Return all runs of a stored manifest, given the epochs of its branch by their start."""
    runs = tuple(_from_fields(*fields) for fields in manifest.runs)
    epoch = epochs.get(manifest.epoch)
    # Earlier versions stored the same reason for all that the head of memory replaces.
    return runs if epoch is None else _prepend_epoch_runs(epoch, tuple(name_substitutes(runs, epoch.summary)))


def is_readable_manifest(data: bytes) -> bool:
    """Return True if this is a manifest as `encode_manifest` writes it. One from a file may be anything."""
    try:
        manifest = typed_json.decode(data, StoredManifest) if data else None
        runs = [_from_fields(*fields) for fields in manifest.runs] if manifest is not None else []
        return manifest is not None and msgspec.convert(list(map(msgspec.to_builtins, runs)), list[Run]) == runs
    except (ValueError, TypeError):
        return False


def _to_fields(run: Run) -> tuple[Any, ...]:
    more = (run.verdict, run.reason, run.keep)
    return (run.first, run.last, run.tokens, *(() if more == ("sent", "kept", 0) else more))


def _from_fields(
    first: int, last: int, tokens: int, verdict: Verdict = "sent", reason: str = "kept", keep: int = 0
) -> Run:
    return Run(first, last, verdict, reason, tokens, keep)


def _prepend_epoch_runs(epoch: Epoch, runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """Return the runs, preceded by those runs of the epoch that end before them."""
    first = runs[0].first if runs else epoch.start
    return (*(run for run in list_runs(epoch) if run.last < first), *runs)
