"""`longtalk context`: print what a turn sent to the model, and why."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

import msgspec

from longtalk.archive.metrics import Metrics
from longtalk.branches.rebuild import SentRequest
from longtalk.cli.output import escape_line, format_time, print_json, print_note, print_text, shorten
from longtalk.cli.store import choose_branch, find_or_latest, open_archive
from longtalk.cli.tables import Column, print_table, wrap_line
from longtalk.errors import InputError
from longtalk.models import registry
from longtalk.tokens.counters import counter_for
from longtalk.transcript.manifest import Run

_COLUMNS = (Column("entries"), Column("verdict"), Column("tokens", is_number=True), Column("reason", shortest=16))
_BAR = 30


def run(
    *,
    store: str | None,
    owner: str,
    id: str | None,  # noqa: A002
    branch: str | None,
    turn: str | None,
    request: bool,
    as_json: bool,
) -> None:
    """Print the parts of the last request of a turn, and what was done with each run of entries.

    With `request`, print the requests of the turn themselves.
    """
    with open_archive(store, owner) as archive:
        summary = find_or_latest(archive, id)
        branch = choose_branch(archive, summary, branch)
        metrics = [each for each in archive.metrics(summary.id, branch=branch) if turn is None or each.turn == turn]
        if not metrics:
            what = "has no turn in which a model was called" if turn is None else f"has no turn {turn!r}"
            raise InputError(f"Conversation {summary.id!r} {what}. `longtalk stats {summary.id} --turns` lists turns.")
        sent = metrics[-1]
        if request:
            _print_requests(archive.request(summary.id, sent.turn, branch=branch))
            return
        runs = archive.manifest(summary.id, sent.turn, branch=branch)
        held = archive.settings(summary.id, branch=branch, turn=sent.turn)
    system = held.system if held is not None else None
    window = find_window(sent.model)
    if as_json:
        treated = [msgspec.structs.asdict(each) for each in runs]
        print_json({**msgspec.to_builtins(sent), "system": system, "window": window, "runs": treated})
        return
    print_context(sent, runs, window, system)


def _print_requests(requests: Sequence[SentRequest]) -> None:
    """Print the JSON of each request; exit with status 1 if one can't be rebuilt."""
    for each in requests:
        if each.body is not None:
            print_text(each.body.decode("utf-8", "replace"))
    problems = [each.problem for each in requests if each.body is None]
    for problem in problems:
        print_note(f"longtalk: a request can't be shown: {problem}")
    if problems or not requests:
        raise SystemExit(1)


def find_window(model: str) -> int | None:
    """Return the number of tokens that a model can take; None if unknown."""
    known = registry.find(model)
    return known.window if known is not None else None


def print_context(sent: Metrics, runs: Sequence[Run], window: int | None, system: str | None) -> None:
    """Print the parts of a turn's last request, and what was done with each run of entries."""
    _print_parts(sent, window, system)
    if not sent.total:
        print_note("What this turn sent is not stored, as for imported conversations.")
    if runs:
        print_text("")
        print_table(_COLUMNS, map(_format_run, runs))


def _print_parts(sent: Metrics, window: int | None, system: str | None) -> None:
    total, counted = sent.request, counter_for(sent.model).count(system) if system else 0
    # What the provider reported includes its own framing of the messages, and the tools.
    other = total - counted - sent.history - sent.summary - sent.recall if total else 0
    parts = {
        "turn": f"{sent.turn}, {format_time(sent.at)}",
        "model": escape_line(sent.model),
        "request": f"{_format(total)} tokens{_format_gauge(total, window)}",
        "system": f"{_format(counted)}  {escape_line(shorten(system, 60))}" if system else _format(0),
        "history": _format(sent.history),
        # Lines that came into the brief after the head was written are not in the summary.
        "summary": _format(max(0, sent.summary - sent.brief - sent.outline)),
        "brief": _format(sent.brief),
        "outlines": _format(sent.outline),
        "recalled": _format(sent.recall) + (f" ({sent.recall_why})" if sent.recall_why else ""),
        "other": f"{_format(other)}  framing, tools, inexact counts" if other else _format(0),
        "left out": _format(sent.left_out),
    }
    for name, value in parts.items():
        # A terminal would break words.
        room = max(20, shutil.get_terminal_size().columns - 10)
        for number, part in enumerate(wrap_line(value, room) if sys.stdout.isatty() else [value]):
            print_text(f"{'' if number else name:10}{part}")


def _format_gauge(total: int, window: int | None) -> str:
    if not window:
        return ""
    share = min(1.0, total / window)
    length = max(5, min(_BAR, shutil.get_terminal_size().columns - 50))
    gauge = f"  {'█' * round(share * length):░<{length}}" if sys.stdout.isatty() else ""
    return f"{gauge}  {share:.1%} of {_format(window)}"


def _format_run(run: Run) -> tuple[str, ...]:
    place = str(run.first) if run.first == run.last else f"{run.first}-{run.last}"
    return place, run.verdict.replace("_", " "), _format(run.tokens), run.reason or "-"


def _format(number: int) -> str:
    """Return a number with separators for people, and plain for programs."""
    return f"{number:,}" if sys.stdout.isatty() else str(number)
