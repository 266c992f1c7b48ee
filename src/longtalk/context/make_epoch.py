"""Make the epoch that sends a view, after the strategies of a policy have shortened it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from longtalk.context.epochs import Epoch, merge_runs
from longtalk.context.exclusions import list_excluded_spans
from longtalk.context.measure import has_any_between
from longtalk.policies import View
from longtalk.transcript.manifest import BRIEF, EXCLUDED, FORGOTTEN, PINNED, SUMMARY, Run
from longtalk.transcript.transcript import Transcript


def make_epoch(
    view: View,
    before: Epoch,
    reason: str,
    pins: tuple[int, ...],
    excluded: tuple[int, ...] | None = None,
    forgotten: Sequence[tuple[int, int]] = (),
) -> Epoch:
    """Return the epoch that sends this view and follows the epoch `before`.

    `excluded` means the same as for `make_view`. `forgotten` are the spans of exchanges that leave the request now
    because a line was forgotten.
    """
    spans = list_excluded_spans(before) if excluded is None else _find_exchanges(view.transcript, excluded)
    # Entries that were left out before may no longer be in the transcript, or only some of them.
    gone = [
        (run.first, max(0, run.tokens - view.count_tokens(run.first, run.last))) for run in before.runs if run.is_gone
    ]
    runs: list[Run] = []
    position = 0
    for block in view.blocks:
        made = _make_gone_runs(view, position, block.first, reason, spans)
        for run in _keep_reasons(made, [*before.runs, *[_leave_out_forgotten(*span) for span in forgotten]]):
            tokens = sum(tokens for first, tokens in gone if run.first <= first <= run.last)
            tokens += view.count_tokens(run.first, run.last)
            runs.append(msgspec.structs.replace(run, tokens=tokens))
        position, kept = block.first, PINNED if block.pinned else "kept"
        for run in block.altered:
            if position < run.first:
                runs.append(
                    Run(position, run.first - 1, "sent", kept, tokens=view.count_tokens(position, run.first - 1))
                )
            runs.append(run)
            position = run.last + 1
        if position < block.stop:
            runs.append(Run(position, block.stop - 1, "sent", kept, tokens=view.count_tokens(position, block.stop - 1)))
        position = block.stop
    suffix = len(view.blocks) - 1
    skipped = dict(spans)
    while suffix > 0:
        position = view.blocks[suffix - 1].stop
        while position in skipped:
            position = skipped[position]
        if position != view.blocks[suffix].first:
            break
        suffix -= 1
    return Epoch(
        policy=before.policy,
        start=view.transcript.size,
        reason=reason,
        runs=tuple(merge_runs(runs)),
        lines=tuple(view.lines),
        summary=view.summary,
        raw=view.blocks[suffix].first,
        current=view.blocks[-1].first,
        exchanges=view.exchanges,
        messages=view.messages,
        tokens=view.counted - view.fixed,
        pinned=tuple((block.first, block.stop) for block in view.blocks[:suffix]),
        pins=pins,
        excluded=before.excluded if excluded is None else excluded,
    )


def _leave_out_forgotten(first: int, stop: int) -> Run:
    return Run(first, stop - 1, "left_out", FORGOTTEN)


def _keep_reasons(runs: Sequence[Run], before: Sequence[Run]) -> list[Run]:
    """Return runs of entries that are not sent, with the reasons for which some of them were left out before."""
    for old in before:
        if old.verdict != "left_out" or not old.is_gone or old.reason == EXCLUDED:
            continue
        parts: list[Run] = []
        for run in runs:
            first, last = max(run.first, old.first), min(run.last, old.last)
            changes = run.reason != EXCLUDED and (run.verdict == "left_out" or old.reason == FORGOTTEN)
            if first > last or not changes:
                parts.append(run)
                continue
            parts += [msgspec.structs.replace(run, last=first - 1)] if run.first < first else []
            parts.append(Run(first, last, "left_out", old.reason))
            parts += [msgspec.structs.replace(run, first=last + 1)] if last < run.last else []
        runs = parts
    return list(runs)


def _find_exchanges(transcript: Transcript, positions: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the spans of the exchanges that have an entry at one of these positions."""
    spans = [(transcript.position(first), transcript.position(stop - 1) + 1) for first, stop in transcript.exchanges()]
    return [span for span in spans if has_any_between(positions, *span)]


def _make_gone_runs(view: View, first: int, stop: int, reason: str, excluded: Sequence[tuple[int, int]]) -> list[Run]:
    """Return runs for the exchanges in this range, none of which is sent: excluded, summarised, or left out."""
    runs = []
    for start, end in excluded:
        start, end = max(first, start), min(stop, end)
        if start < end:
            runs += _make_runs_of_dropped(view, first, start, reason)
            runs.append(Run(start, end - 1, "left_out", EXCLUDED))
            first = end
    return [*runs, *_make_runs_of_dropped(view, first, stop, reason)]


def _make_runs_of_dropped(view: View, first: int, stop: int, reason: str) -> list[Run]:
    """Return runs for the exchanges in this range that the policy does not send: summarised, or left out."""
    runs = []
    covered_reason = BRIEF if view.summary is not None and view.summary.is_brief else SUMMARY
    for start, end in view.summary.covers if view.summary else ():
        start, end = max(first, start), min(stop, end)
        if start < end:
            if first < start:
                runs.append(Run(first, start - 1, "left_out", reason))
            runs.append(Run(start, end - 1, "summarised", covered_reason))
            first = end
    if first < stop:
        runs.append(Run(first, stop - 1, "left_out", reason))
    return runs
