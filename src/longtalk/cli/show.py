"""`longtalk show`: print a conversation or a state file, its brief, or its topics."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from longtalk.archive.history import HistoryEntry, to_history
from longtalk.archive.metrics import Metrics
from longtalk.cli import files
from longtalk.cli.answers import extract_code
from longtalk.cli.earlier import format_options
from longtalk.cli.exchanges import Exchange, find_exchanges, format_turn_usage, read_last_exchanges, read_usage
from longtalk.cli.output import escape, escape_line, format_time, print_json, print_note, print_text
from longtalk.cli.store import choose_branch, find_or_latest, open_archive
from longtalk.cli.tables import Column, print_table, wrap_line
from longtalk.errors import InputError
from longtalk.memory.brief.lines import Line
from longtalk.memory.brief.record import BriefRecord, read_brief_record, read_brief_record_at
from longtalk.memory.recall.topics import find_topics
from longtalk.stores.base import MAIN, ConversationInfo
from longtalk.wires import WIRES
from longtalk.wires.describe import list_hidden_parts
from longtalk.wires.neutral import LONGTALK, read_source
from longtalk.wires.views import MessageView

_MOST_BRANCHES = 10
"""How many other branches to name at most."""
_PRINTED = ("id", "turn", "role", "at", "mark", "meta", "wire", "text")
_PRINTED_IF_KNOWN = ("model", "finish_reason", "raw_finish_reason", "response_id", "usage")
"""The attributes of an entry that `--json` prints. Its calls and results are in `native`, which is printed too."""
_BRIEF = (
    Column("line"),
    Column("from", rank=1),
    Column("time", rank=2),
    Column("field"),
    Column("text", shortest=30),
)
_TOPICS = (Column("start"), Column("messages", is_number=True), Column("words", shortest=20))
_ENDED = {"interrupted": "interrupted", "failed": "failed", "running": "no complete answer yet"}
"""What to print after the last entry of an incomplete turn, by the turn's status."""


def run(
    *,
    store: str | None,
    owner: str,
    id: str | None,  # noqa: A002
    branch: str | None,
    state: str | None,
    brief: bool,
    topics: bool,
    as_json: bool,
    last: bool = False,
    extract: bool = False,
    limit: int | None = None,
    usage: bool = False,
) -> None:
    """Print the entries of a conversation, or the last answer, the brief or the topics."""
    turns: dict[str, Metrics] = {}
    if state is not None:
        transcript = files.decode_state(files.display_name(state), files.read_file(state))
        entries = to_history(transcript, transcript.turns)
        record, held = read_brief_record(transcript), None
    else:
        with open_archive(store, owner) as archive:
            summary = find_or_latest(archive, id)
            branch = choose_branch(archive, summary, branch)
            head = archive.store.head(archive.owner, summary.id, branch) if brief else None
            record = read_brief_record_at((each.record for each in head.records), head.size) if head else BriefRecord()
            entries = [] if brief else archive.history(summary.id, branch=branch)
            held = archive.settings(summary.id, branch=branch)
            if usage:
                turns = read_usage(archive, summary.id, branch)
            if not last and not extract:
                _print_branches(summary, branch)
    first = ([0] * (limit or 1) + find_exchanges(entries))[-limit] if limit else 0
    system = held.system if held is not None else None
    if last or extract:
        _print_last_answer(entries, extract=extract, as_json=as_json)
    elif brief:
        _print_brief(record, as_json=as_json)
    elif topics:
        print_topics(entries, as_json=as_json)
    elif as_json:
        options = held.options if held is not None else {}
        last_turn = {name: value for name, value in (("system", system), ("options", options)) if value}
        for number, each in enumerate(entries[first:]):
            _print_entry(each, last_turn if number == 0 else {})
    else:
        if held is not None and held.options and not limit:
            print_text(f"options  (of the last turn)\n    {format_options(held.options)}\n")
        if system and not limit:
            print_text("system  (of the last turn)")
            _print_indented(system)
            print_text("")
        print_history(entries, turns, first=first)


def show_last(*, store: str | None, owner: str, limit: int, usage: bool, as_json: bool) -> None:
    """Print the last exchanges of all conversations, oldest first, each after the id of its conversation."""
    with open_archive(store, owner, whole=True) as archive:
        found = read_last_exchanges(archive, limit)
        turns = {each: read_usage(archive, *each) for each in {each[:2] for each in found}} if usage else {}
    if not found and not as_json:
        print_note("No conversations yet.")
    for number, each in enumerate(found):
        if as_json:
            for entry in each.entries:
                _print_entry(entry, {"conversation": each.conversation})
        else:
            _print_exchange(each, turns.get(each[:2], {}), begins=not number)


def _print_exchange(exchange: Exchange, turns: Mapping[str, Metrics], *, begins: bool) -> None:
    branch = "" if exchange.branch == MAIN else f"  branch {exchange.branch}"
    print_text(("" if begins else "\n") + escape_line(f"{exchange.conversation}{branch}") + "\n")
    print_history(exchange.entries, turns)


def _print_entry(entry: HistoryEntry, more: Mapping[str, Any]) -> None:
    """Print an entry as JSON, with more members."""
    members = {name: getattr(entry, name) for name in _PRINTED}
    members |= {name: value for name in _PRINTED_IF_KNOWN if (value := getattr(entry, name))}
    print_json(msgspec.to_builtins({**members, **more}), native=entry.native)


def _print_last_answer(entries: Sequence[HistoryEntry], *, extract: bool, as_json: bool) -> None:
    found = next((each for each in reversed(entries) if each.role == "assistant"), None)
    if found is None:
        raise InputError("This conversation has no answer yet.")
    text = _read_own_text(found) or found.text
    if as_json:
        _print_entry(found, {})
    else:
        print_text(extract_code(text) if extract else text)


def print_topics(entries: Sequence[HistoryEntry], *, as_json: bool) -> None:
    """Print each topic of a conversation on a line: its start, its number of messages and its typical words."""
    found = find_topics((each.at, each.role, _read_own_text(each)) for each in entries)
    if as_json:
        for each in found:
            print_json(msgspec.to_builtins(each) | {"first": entries[each.first].id})
    else:
        print_table(_TOPICS, ((format_time(each.at), str(each.count), " ".join(each.words)) for each in found))


def print_history(
    entries: Sequence[HistoryEntry], turns: Mapping[str, Metrics] = MappingProxyType({}), *, first: int = 0
) -> None:
    """Print entries for people, from the position `first` on, and after each of the turns what it has used.

    Texts are indented, so that no text can pass for the heading of another entry.
    """
    called: dict[str, str] = {}
    for number, each in enumerate(entries):
        view = _read_view(each)
        called |= {call.id: call.name for call in view.calls}
        if number < first:
            continue
        print_text("\n" if number > first else "", end="")
        ends = number + 1 == len(entries) or entries[number + 1].turn != each.turn
        marks = dict.fromkeys(filter(None, (each.mark, _ENDED.get(each.status, "") if ends else "")))
        who = _label(each, called.get(view.call_id, ""))
        by = [each.model] if each.model else []
        head = (format_time(each.at, seconds=True), who, each.id, *([f"({', '.join(marks)})"] if marks else []), *by)
        _print_wrapped("  ".join(map(escape_line, head)))
        parts = [part for part in (_read_own_text(each), *_list_extras(each, view)) if part.strip()]
        for part in parts or [each.text]:
            _print_indented(part)
        if ends and each.turn in turns:
            _print_wrapped(f"[{format_turn_usage(each.turn, turns)}]", "  ")


def _print_wrapped(line: str, indent: str = "") -> None:
    """Print a line; on a terminal, which would break words, in parts that fit. The rest is indented as texts are."""
    columns = shutil.get_terminal_size().columns
    first, *rest = wrap_line(line, max(20, columns - len(indent))) if sys.stdout.isatty() else [line]
    print_text(f"{indent}{first}")
    for part in wrap_line(line[len(first) :].lstrip(), max(20, columns - 4)) if rest else ():
        print_text(f"    {part}")


def _print_indented(text: str) -> None:
    lines = text.strip("\r\n").split("\n")
    if sys.stdout.isatty():
        # The terminal would begin the rest of a long line without the indentation, and break words.
        room = max(20, shutil.get_terminal_size().columns - 4)
        lines = [part for line in lines for part in wrap_line(escape(line.removesuffix("\r").expandtabs()), room)]
    print_text("\n".join(f"    {line}".rstrip(" ") for line in lines))


def describe_line(line: Line) -> dict[str, Any]:
    """Return a line of a brief as `--json` prints it."""
    return {name: getattr(line, name) for name in ("id", "field", "text", "entry", "at", "seen")}


def _print_brief(record: BriefRecord, *, as_json: bool) -> None:
    """Print the lines of a brief, each with the entry that it came from."""
    lines = record.content.lines
    if as_json:
        for line in lines:
            print_json(describe_line(line))
    elif lines:
        rows = ((line.id, line.entry or "app", format_time(line.at), line.field, line.text) for line in lines)
        print_table(_BRIEF, rows)
    else:
        print_note("This conversation has no brief.")


def _print_branches(summary: ConversationInfo, branch: str) -> None:
    """Print which branch this is if it is not the main one, and which others there are."""
    names = [escape_line(name) for name in summary.branches if name != branch]
    more = f" and {len(names) - _MOST_BRANCHES:,} more" if len(names) > _MOST_BRANCHES else ""
    if branch != MAIN:
        print_note(f"(This is branch {escape_line(branch)}.)")
    if names:
        print_note(f"(Other branches: {', '.join(names[:_MOST_BRANCHES])}{more}. To use one: -b NAME.)")


def _label(entry: HistoryEntry, tool: str) -> str:
    if tool:
        return f"result of {escape_line(tool)}"
    if entry.role != "event":
        return entry.role
    try:
        return f"event from {' '.join(read_source(entry.native).split())}"
    except (ValueError, LookupError, TypeError, AttributeError):
        return entry.role


def _read_view(entry: HistoryEntry) -> MessageView:
    """Return the readable content of an entry's message, or an empty view if the message can't be read."""
    try:
        return WIRES[entry.wire].view(entry.native)
    except (ValueError, LookupError, TypeError):
        return MessageView(role=entry.role)


def _read_own_text(entry: HistoryEntry) -> str:
    """Return the text of an entry; empty if the entry has only other content, which `text` then describes."""
    return entry.text if entry.wire == LONGTALK else _read_view(entry).text


def _list_extras(entry: HistoryEntry, view: MessageView) -> list[str]:
    """Return texts for the parts of a message that are not its text: images and the like, a refusal, tool calls."""
    parts = list_hidden_parts(entry.native) if entry.wire in WIRES else []
    calls = [f"→ {call.name}({call.arguments.decode('utf-8', 'replace')})" for call in view.calls]
    return [f"[{', '.join(parts)}]" if parts else "", view.refusal, *calls]
