"""What the chat's commands print about a conversation, without a model call."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from longtalk._sync.archive.archive import Archive
from longtalk.archive.metrics import Metrics
from longtalk.cli.branches import read_beginning
from longtalk.cli.context import find_window, print_context
from longtalk.cli.export import export_conversation
from longtalk.cli.list import find_title
from longtalk.cli.output import escape_line, format_time, pluralize, print_note, print_text, wrap
from longtalk.cli.profile import print_lines
from longtalk.cli.search import describe_nothing, print_hits
from longtalk.cli.session import ChatSession
from longtalk.cli.show import print_history
from longtalk.cli.stats import format_cell, format_cost, format_known, mark_estimate
from longtalk.cli.tables import Column, print_table
from longtalk.errors import InputError

_BRANCHES = (
    Column("", shortest=1),
    Column("branch", shortest=16),
    Column("entries", rank=2, is_number=True),
    Column("changed", rank=1),
    Column("begins", shortest=20),
)
_TURNS = (
    Column("time", rank=1),
    Column("model", shortest=16),
    Column("sent", is_number=True),
    Column("cached", rank=2, is_number=True),
    Column("received", is_number=True),
    Column("cost", is_number=True),
)
_CONVERSATIONS = (
    Column("", shortest=1),
    Column("conversation", shortest=20),
    Column("changed", rank=1),
    Column("title", shortest=20),
)
_MOST_CONVERSATIONS = 10
_MOST_TURNS = 10
"""How many turns `/cost` lists."""
_MOST_HITS = 10


def show_history(session: ChatSession) -> None:
    """Print the whole conversation."""
    entries = session.talk.history()
    print_history(entries)
    if not entries:
        print_note("There are no messages yet.")


def show_context(session: ChatSession) -> None:
    """Print what the last turn has sent, and why."""
    metrics = session.talk.metrics()
    if not metrics:
        print_note("No model has been called yet.")
        return
    sent, held = metrics[-1], session.talk.settings()
    # Another model may have been chosen since.
    window = session.window if sent.model == session.provider.label else find_window(sent.model)
    print_context(sent, session.talk.manifest(sent.turn), window, held.system if held is not None else None)


def show_brief(session: ChatSession) -> None:
    """Print the brief."""
    try:
        print_text(session.talk.brief.text() or "(The brief is empty.)")
    except InputError as problem:
        raise InputError(str(problem).replace("use policy=Memory()", "use /policy Memory()")) from None


def show_profile(session: ChatSession) -> None:
    """Print the lines of the owner's profile."""
    print_lines(session.archive.profile().lines(), as_json=False)


def show_cost(session: ChatSession) -> None:
    """Print the tokens and the cost of the last turns, and of all turns of this branch together."""
    metrics = [each for each in session.talk.metrics() if each.calls]
    if not metrics:
        print_note("No model has been called yet.")
        return
    print_table(_TURNS, [_format_turn(each) for each in metrics[-_MOST_TURNS:]])
    known = [each.cost for each in metrics if each.cost is not None]
    usage = [each.usage for each in metrics]
    sent, cached = sum(each.input for each in usage), sum(each.cached for each in usage)
    why = "prices at an address of its own are not known" if session.held.base_url else "no prices for this model"
    about = "about " if any(each.estimated for each in metrics) else ""
    paid = f"{about if sum(known) else ''}{format_known(sum(known))}"
    total = paid if len(known) == len(metrics) else f"cost unknown: {why}"
    whole = session.archive.stats(session.id)
    summary = (
        f"{pluralize(len(metrics), 'turn')} {'on this branch' if whole.branches > 1 else 'in all'}: {about}{sent:,} "
        f"tokens sent, {cached:,} of them cached, {sum(each.output for each in usage):,} received, {total}"
    )
    if whole.branches > 1:
        spent = f", {format_cost(whole)}" if whole.cost is not None else ""
        about = "about " if whole.estimated else ""
        summary += (
            f"\nWith all {whole.branches:,} branches: {pluralize(sum(whole.turns.values()), 'turn')}, "
            f"{about}{whole.usage.input:,} tokens sent, {whole.usage.output:,} received{spent}"
        )
    print_text(wrap(summary, shutil.get_terminal_size().columns) if sys.stdout.isatty() else summary)


def _format_turn(turn: Metrics) -> tuple[str, ...]:
    usage, mark = turn.usage, mark_estimate(turn)
    return (
        format_time(turn.at),
        turn.model,
        f"{mark}{usage.input:,}",
        f"{mark}{usage.cached:,}",
        f"{mark}{usage.output:,}",
        format_cell(turn.cost, mark),
    )


def show_branches(session: ChatSession) -> None:
    """Print one line for each branch; the one in use has a star."""
    if session.is_new:
        print_note("The conversation is not stored yet: it begins with your first message.")
        return
    rows = []
    for place in session.archive.tree(session.id):
        head = place.head
        star = "*" if head.branch == session.talk.branch else ""
        begins = read_beginning(session.archive, session.id, place) or "-"
        rows.append((star, head.branch, str(head.size), format_time(head.updated), begins))
    print_table(_BRANCHES, rows)


def show_conversations(session: ChatSession) -> None:
    """Print the conversations that changed last; the one in use has a star."""
    rows = [
        ("*" if each.id == session.id else "", each.id, format_time(each.updated), find_title(session.archive, each))
        for each in session.archive.conversations(limit=_MOST_CONVERSATIONS)
    ]
    print_table(_CONVERSATIONS, rows)
    print_note("/open ID continues one, and Tab completes its ID." if rows else "No conversations yet.")


def search(archive: Archive, words: str) -> None:
    """Print the entries of all conversations of the owner that match best."""
    found = archive.search(words, limit=_MOST_HITS)
    if not found:
        print_note(describe_nothing(archive, words.split()))
    print_hits(found, words.split())


def export(session: ChatSession, path: str) -> None:
    """Write the conversation to a file, in the format that its suffix names, or print it as Markdown."""
    if session.is_new:
        print_note("The conversation is not stored yet: it begins with your first message.")
        return
    export_conversation(
        session.archive, session.id, session.talk.branch, str(Path(path).expanduser()) if path else None
    )
    if path:
        print_note(f"Written to {escape_line(path)}.")
    sys.stdout.flush()
