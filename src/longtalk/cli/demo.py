"""`longtalk demo`: play scenes of the sample conversation, with what memory did in each, and what it saved.

No model is called: the sample is an export (`transfer/sample.py`) that is imported into memory. The cost of sending
everything is simulated at the prices of the sample's model.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import click
import msgspec

from longtalk import Archive
from longtalk.archive.history import HistoryEntry
from longtalk.archive.metrics import Metrics
from longtalk.context.epochs import Epoch
from longtalk.policies import KeepAll
from longtalk.simulation.compare import simulate, transcript_of
from longtalk.stores.in_memory import InMemory
from longtalk.transcript.manifest import Run
from longtalk.transfer.sample import load_sample

_SECONDS = 26.0
"""The duration of the demonstration, without `--fast` and on a terminal."""
_SCENES = ("Hello, I'm Ada", "thumb cramps", "I have a teacher", "Correction:", "What strings do I have", "first week")
"""Texts that the messages of the shown turns contain, in order."""
_BAR = 30


class Line(msgspec.Struct, frozen=True):
    """One line to print, in a style: "title", "user", "note" or "" for plain text."""

    text: str
    style: str = ""


def run(*, fast: bool) -> None:
    """Print the demonstration. On a terminal it takes half a minute, unless `fast`."""
    is_terminal = sys.stdout.isatty()
    colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = max(40, min(shutil.get_terminal_size().columns, 80)) - 1
    lines = list(list_lines(width))
    pause = _SECONDS / len(lines) if is_terminal and not fast else 0
    styles = {"title": {"bold": True}, "user": {"fg": "cyan"}, "note": {"fg": "green"}}
    for line in lines:
        style = styles.get(line.style, {}) if colour else {}
        click.echo(click.style(line.text, **style) if style else line.text)  # type: ignore[arg-type]
        time.sleep(pause)


def list_lines(width: int) -> Iterator[Line]:
    """Yield all lines of the demonstration, none longer than `width`."""
    archive = Archive(InMemory())
    (name,) = archive.load(load_sample())
    entries, metrics, epochs = archive.history(name), archive.metrics(name), archive.epochs(name)
    everything = simulate(transcript_of(archive.talk(name)), models=[metrics[0].model], policies=[KeepAll()])[0]
    most = max(turn.history + turn.left_out for turn in metrics)
    yield from _wrap("Ada learns the violin: five months in one conversation", width, "title")
    yield from _wrap("A written sample; no model is called. Memory() decides what each request carries.", width)
    for scene in _SCENES:
        asked = next(each for each in entries if each.role == "user" and scene in each.text)
        answer = next(each for each in reversed(entries) if each.turn == asked.turn and each.role == "assistant")
        turn = next(each for each in metrics if each.turn == asked.turn)
        yield Line("")
        yield from _wrap(f"{_format_day(asked.at)}  Ada: {asked.text}", width, "user")
        yield from _wrap(_shorten(answer.text, 150), width)
        manifest = archive.manifest(name, turn.turn)
        yield from _describe_memory(manifest, entries, turn, width)
        # Both are counts of the same kind, without the system text and the tools.
        recalled = sum(run.tokens for run in manifest if run.verdict == "recalled")
        sent, whole = turn.history + turn.summary + turn.recall, turn.history + turn.left_out + recalled
        yield from _draw_bars(sent, whole, most, width)
    spent = sum(each.cost or 0.0 for each in metrics)
    yield from _sum_up(spent, everything.cost.total if everything.cost else 0.0, metrics, epochs, width)


def _describe_memory(
    manifest: Sequence[Run], entries: Sequence[HistoryEntry], turn: Metrics, width: int
) -> Iterator[Line]:
    """Yield what a request carried in place of older messages: the brief, and the messages that were recalled."""
    replaced = sum(run.last - run.first + 1 for run in manifest if run.verdict == "summarised")
    if turn.brief:
        yield from _wrap(f"  brief: {turn.brief} tokens stand for {replaced} earlier messages", width, "note")
    recalled = [entries[run.first] for run in manifest if run.verdict == "recalled"]
    for entry in recalled[:2]:
        yield from _wrap(f"  recalled from {_format_day(entry.at)}: {_shorten(entry.text, 50)}", width, "note")


def _draw_bars(sent: int, whole: int, most: int, width: int) -> Iterator[Line]:
    size = min(_BAR, width - 28)
    for label, tokens in (("sent", sent), ("everything", whole)):
        bar = "█" * max(1, round(size * min(tokens, most) / most))
        yield Line(f"  {label:<10} {tokens:>6,} tokens {bar}")


def _sum_up(
    spent: float, plain: float, metrics: Sequence[Metrics], epochs: Sequence[Epoch], width: int
) -> Iterator[Line]:
    yield Line("")
    text = f"{len(metrics)} turns, {len(epochs)} epochs: ${spent:.3f} with Memory(), ${plain:.3f} if all were sent"
    yield from _wrap(f"{text} (estimated, at the prices of {metrics[0].model}).", width, "title")
    yield Line("")
    yield Line("Next:", "title")
    yield Line("  longtalk chat --policy 'Memory()'    talk to a model")
    yield Line("  longtalk import FILE                 bring your history")
    yield Line("  longtalk simulate ID                 see your own costs")


def _wrap(text: str, width: int, style: str = "") -> Iterator[Line]:
    indent = " " * (len(text) - len(text.lstrip()))
    for line in textwrap.wrap(text.strip(), width, initial_indent=indent, subsequent_indent=indent):
        yield Line(line, style)


def _shorten(text: str, size: int) -> str:
    return textwrap.shorten(text.replace("**", ""), size, placeholder=" …")


def _format_day(at: int) -> str:
    when = datetime.fromtimestamp(at / 1000, UTC)
    return f"{when.day} {when:%B}"
