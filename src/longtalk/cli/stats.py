"""`longtalk stats`: a conversation, or all of them, in numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from math import floor, log10

import msgspec

from longtalk.cli.out import number, one_line, put, put_json, put_table, when
from longtalk.cli.store import branch_of, known, opened
from longtalk.metrics import Metrics
from longtalk.stats import Stats

_HEAD = ("time", "model", "calls", "request", "sent", "cached", "received", "cost")


def run(*, store: str | None, owner: str, id: str | None, turns: bool, as_json: bool) -> None:  # noqa: A002
    """Print the numbers, of all or turn by turn."""
    with opened(store, owner, whole=id is None) as archive:
        summary = None if id is None else known(archive, id)
        if turns and summary is not None:
            _put_turns(archive.metrics(summary.id, branch=branch_of(summary, None)), as_json=as_json)
            return
        stats = archive.stats(id)
        if as_json:
            put_json(msgspec.to_builtins(stats))
            return
        for name, value in _rows(stats):
            put(f"{name:15}  {one_line(value)}")


def _put_turns(metrics: list[Metrics], *, as_json: bool) -> None:
    if as_json:
        for each in metrics:
            put_json(msgspec.to_builtins(each))
        return
    # Whoever reads it from a pipe wants turns alone.
    put_table([*([_HEAD] if sys.stdout.isatty() else []), *map(_row, metrics)])


def _row(turn: Metrics) -> tuple[str, ...]:
    usage = turn.usage
    counts = (turn.calls, turn.total, usage.input, usage.cached, usage.output)
    cost = "-" if turn.cost is None else dollars(turn.cost)
    return (when(turn.at), turn.model, *(f"{count:,}" for count in counts), cost)


def dollars(cost: float) -> str:
    """A cost with four places, and where it is small with as many as show three digits of it."""
    places = max(4, 2 - floor(log10(cost))) if cost > 0 else 4
    return f"${cost:,.{places}f}"


def _cost(stats: Stats) -> str:
    if not stats.unpriced:
        return dollars(stats.cost)
    unknown = f"{number(stats.unpriced, 'turn or summary', 'turns or summaries')} of unknown price"
    return f"{dollars(stats.cost)}, and {unknown}" if stats.cost else unknown


def _rows(stats: Stats) -> list[tuple[str, str]]:
    usage = stats.usage
    return [
        ("conversations", f"{stats.conversations:,}"),
        ("branches", f"{stats.branches:,}"),
        ("entries", f"{stats.entries:,}, {stats.bytes:,} bytes"),
        ("turns", f"{sum(stats.turns.values()):,}{_named(stats.turns)}"),
        ("models", f"{len(stats.models):,}{_named(stats.models)}"),
        ("tokens sent", f"{usage.input:,}, {usage.cached:,} of them cached"),
        ("tokens received", f"{usage.output:,}"),
        ("cost", _cost(stats)),
    ]


def _named(counts: Mapping[str, int]) -> str:
    each = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
    return f" ({each})" if each else ""
