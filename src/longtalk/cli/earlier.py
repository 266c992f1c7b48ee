"""What a continued conversation brings along from its last turn, in words: options, tools and the system text."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from longtalk.cli.output import escape_line, print_note, shorten
from longtalk.cli.session import ChatSession
from longtalk.stores.base import MAIN
from longtalk.turn.memory import RECALL

_MOST_TEXT = 60


def mention_branch(session: ChatSession) -> None:
    """Print on which branch the conversation goes on if it is not the main one."""
    if session.talk.branch != MAIN:
        print_note(f"(On branch {escape_line(session.talk.branch)}. For another one: -b NAME)")


def mention_options(session: ChatSession, given: Collection[str]) -> None:
    """Print which options of the last turn apply again, and how to take one back."""
    found = _find_options(session, given)
    if found:
        print_note(f"(As before: {format_options(found)}. To take it back: -o {shlex.quote(next(iter(found)))} '')")


def mention_tools(session: ChatSession, tools: Sequence[Callable[..., Any]]) -> None:
    """Print which tools of the last turn the model does not get any more, since their functions are not stored."""
    given = {RECALL, *(getattr(each, "name", None) or each.__name__ for each in tools)}
    missing = [each.name for each in session.before.tools if each.name not in given] if session.before else []
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        names = escape_line(", ".join(missing))
        print_note(f"({names} {verb} not passed any more: add -T with the file that has the functions.)")


def mention_settings(session: ChatSession, given: Collection[str]) -> None:
    """Print the system text and the options of the last turn that apply again, and how to begin without them."""
    before, found = session.before, _find_options(session, given)
    parts = [f"options {format_options(found)}"] if found else []
    if before is not None and before.system and session.system == before.system:
        parts.insert(0, f"system text {escape_line(shorten(before.system, _MOST_TEXT))!r}")
    if parts:
        them = "it" if len(parts) == 1 and not found else "them"
        print_note(f"As before: {', '.join(parts)}. `longtalk chat --new` starts without {them}.")


def _find_options(session: ChatSession, given: Collection[str]) -> Mapping[str, Any]:
    before = session.before
    if before is None or before.model != session.provider.label:
        return {}
    return {name: value for name, value in session.options.items() if name not in given}


def format_options(options: Mapping[str, Any]) -> str:
    """Return options with their values on one line."""
    return ", ".join(
        f"{escape_line(name)} {escape_line(shorten(msgspec.json.encode(value).decode(), _MOST_TEXT))}"
        for name, value in options.items()
    )
