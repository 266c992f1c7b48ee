"""`longtalk stats`: print the size, tokens and cost of one conversation or of all conversations."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from math import floor, log10

import msgspec

from longtalk.archive.metrics import Metrics
from longtalk.archive.stats import Stats
from longtalk.cli.filters import Filter
from longtalk.cli.output import escape_line, format_time, pluralize, print_json, print_text
from longtalk.cli.store import choose_branch, find_conversation, find_or_latest, open_archive
from longtalk.cli.tables import Column, print_table, wrap_line
from longtalk.usage import Usage

_COLUMNS = (
    Column("time", rank=1),
    Column("model", shortest=16),
    Column("calls", rank=5, is_number=True),
    Column("request", rank=4, is_number=True),
    Column("sent", is_number=True),
    Column("cached", rank=3, is_number=True),
    Column("received", rank=2, is_number=True),
    Column("cost", is_number=True),
)


def run(
    *,
    store: str | None,
    owner: str,
    id: str | None,  # noqa: A002
    turns: bool,
    branch: str | None,
    wanted: Filter,
    as_json: bool,
) -> None:
    """Print the totals of a conversation, or of all that match the filter if `id` is None.

    With `turns`, print a line for each turn of the conversation instead.
    """
    with open_archive(store, owner, whole=id is None and not turns) as archive:
        if id is not None:
            find_conversation(archive, id)
        if turns:
            summary = find_or_latest(archive, id)
            _print_turns(archive.metrics(summary.id, branch=choose_branch(archive, summary, branch)), as_json=as_json)
            return
        if wanted.is_empty:
            stats = archive.stats(id)
        else:
            stats = sum((archive.stats(each.id) for each in wanted.select_all(archive)), Stats())
        if as_json:
            print_json(msgspec.to_builtins(stats))
            return
        for name, value in _format_totals(stats):
            _print_total(name, escape_line(value))


def _print_total(name: str, value: str) -> None:
    # A terminal would break words.
    parts = wrap_line(value, max(20, shutil.get_terminal_size().columns - 17)) if sys.stdout.isatty() else [value]
    for number, part in enumerate(parts):
        print_text(f"{'' if number else name:15}  {part}")


def _print_turns(metrics: list[Metrics], *, as_json: bool) -> None:
    if as_json:
        for each in metrics:
            print_json(msgspec.to_builtins(each))
        return
    print_table(_COLUMNS, map(_format_turn, metrics))


def _format_turn(turn: Metrics) -> tuple[str, ...]:
    usage = turn.usage
    # Numbers that no provider has reported, and those of a request that is not stored, are unknown.
    mark = mark_estimate(turn)
    reported = [f"{mark}{count:,}" if usage != Usage() else "-" for count in (usage.input, usage.cached, usage.output)]
    total = f"{turn.request:,}" if turn.request else "-"
    return (format_time(turn.at), turn.model, f"{turn.calls:,}", total, *reported, format_cell(turn.cost, mark))


def mark_estimate(turn: Metrics) -> str:
    """Return the sign that stands before the figures of a turn that have an estimate; empty for other turns."""
    return "~" if turn.estimated else ""


def format_dollars(cost: float) -> str:
    """Format a cost in dollars with four decimal places, or with three significant digits if it is small."""
    places = max(4, 2 - floor(log10(cost))) if cost > 0 else 4
    return f"${cost:,.{places}f}"


def format_known(cost: float) -> str:
    """Return a cost in dollars, or that there is none, as with the models of this machine."""
    return format_dollars(cost) if cost else "free"


def format_cell(cost: float | None, mark: str = "") -> str:
    """Return a cost for a column, which has only numbers in a pipe; `-` if it is unknown.

    `mark` stands before an amount.
    """
    if cost is None:
        return "-"
    return mark + format_dollars(cost) if cost or not sys.stdout.isatty() else format_known(cost)


def format_cost(stats: Stats) -> str:
    """Return the known cost, and of how many turns and summaries it is unknown."""
    about = "about " if stats.estimated and stats.cost else ""
    if not stats.unpriced:
        return about + format_known(stats.cost) if stats.cost is not None and stats.turns else format_dollars(0.0)
    # Each turn counts once, so what exceeds them is summaries.
    what = pluralize(stats.unpriced, "turn") if stats.unpriced <= sum(stats.turns.values()) else f"{stats.unpriced:,}"
    if stats.cost is None:
        return f"unknown for {what}"
    return f"{about}{format_dollars(stats.cost)}, and unknown for {what}"


def _format_totals(stats: Stats) -> list[tuple[str, str]]:
    usage = stats.usage
    is_known = usage != Usage() or not stats.turns
    about = "about " if stats.estimated else ""
    return [
        ("conversations", f"{stats.conversations:,}"),
        ("branches", f"{stats.branches:,}"),
        ("entries", f"{stats.entries:,}, {stats.bytes:,} bytes"),
        ("turns", f"{sum(stats.turns.values()):,}{_format_counts(stats.turns)}"),
        ("models", f"{len(stats.models):,}{_format_counts(stats.models)}"),
        ("tokens sent", f"{about}{usage.input:,}, {usage.cached:,} of them cached" if is_known else "unknown"),
        ("tokens received", f"{about}{usage.output:,}" if is_known else "unknown"),
        ("cost", format_cost(stats)),
    ]


def _format_counts(counts: Mapping[str, int]) -> str:
    each = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
    return f" ({each})" if each else ""
