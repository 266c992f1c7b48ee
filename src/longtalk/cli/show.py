"""`longtalk show`: what was said in a conversation, or in a state file, for reading."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from longtalk.cli import files
from longtalk.cli.out import one_line, put, put_json, put_table, say, when
from longtalk.cli.store import branch_of, known_or_newest, opened
from longtalk.markdown import others
from longtalk.memory.book import Book, book_in, book_of
from longtalk.memory.topics import segments
from longtalk.said import Said, read
from longtalk.stores.base import Summary
from longtalk.wires import WIRES
from longtalk.wires.base import View

_FEW = 10
_ENDED = {"interrupted": "interrupted", "failed": "failed", "running": "no whole answer yet"}
"""What is said of a turn that is not complete. One that is running may have been killed."""


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
) -> None:
    """Print a conversation, or what it was about."""
    if state is not None:
        transcript = files.transcript(files.shown(state), files.read(state))
        said = read(transcript, transcript.turns)
        book = book_of(transcript)
    else:
        with opened(store, owner) as archive:
            summary = known_or_newest(archive, id)
            branch = branch_of(summary, branch)
            head = archive.store.head(archive.owner, summary.id, branch) if brief else None
            book = book_in((each.record for each in head.records), head.size) if head else Book()
            said = [] if brief else archive.history(summary.id, branch=branch)
            _tell_of_others(summary, branch)
    if brief:
        _put_brief(book, as_json=as_json)
    elif topics:
        put_topics(said, as_json=as_json)
    elif as_json:
        for each in said:
            members = {
                name: getattr(each, name) for name in ("id", "turn", "role", "at", "mark", "meta", "wire", "text")
            }
            put_json(msgspec.to_builtins(members), native=each.native)
    else:
        put_said(said)


def put_topics(said: Sequence[Said], *, as_json: bool) -> None:
    """The segments of a conversation: when each began, how many messages it has, and words that tell it."""
    found = segments((each.at, each.role, each.text) for each in said)
    if as_json:
        for each in found:
            put_json(msgspec.to_builtins(each) | {"first": said[each.first].id})
    else:
        put_table([(when(each.at), str(each.count), " ".join(map(one_line, each.words))) for each in found])


def put_said(said: Sequence[Said]) -> None:
    """Entries for reading. Texts are indented: none can look like the head of another entry."""
    called: dict[str, str] = {}
    for number, each in enumerate(said):
        view = _view(each)
        called |= {call.id: call.name for call in view.calls}
        put("\n" if number else "", end="")
        ends = number + 1 == len(said) or said[number + 1].turn != each.turn
        odd = dict.fromkeys(filter(None, (each.mark, _ENDED.get(each.status, "") if ends else "")))
        who = _who(each, called.get(view.call_id, ""))
        head = (when(each.at, seconds=True), who, each.id, *([f"({', '.join(odd)})"] if odd else []))
        put("  ".join(map(one_line, head)))
        for part in (each.text, *_beside(each, view)):
            if part.strip():
                put("\n".join(f"    {line}".rstrip(" ") for line in part.strip("\r\n").split("\n")))


def _put_brief(book: Book, *, as_json: bool) -> None:
    """The lines of a brief, and where each came from."""
    lines = book.notes.lines
    if as_json:
        for line in lines:
            put_json({name: getattr(line, name) for name in ("id", "field", "text", "entry", "at", "seen")})
    elif lines:
        put_table((line.id, line.entry or "app", when(line.at), line.field, line.text) for line in lines)
    else:
        say("There is no brief of it.")


def _tell_of_others(summary: Summary, branch: str) -> None:
    others = [one_line(name) for name in summary.branches if name != branch]
    more = f" and {len(others) - _FEW:,} more" if len(others) > _FEW else ""
    if others:
        say(f"(There are other branches: {', '.join(others[:_FEW])}{more}. --branch NAME shows one.)")


def _who(said: Said, tool: str) -> str:
    if tool:
        return f"result of {one_line(tool)}"
    if said.role != "event":
        return said.role
    try:
        return f"event of {' '.join(json.loads(said.native)['source'].split())}"
    except (ValueError, LookupError, TypeError, AttributeError):
        return said.role


def _view(said: Said) -> View:
    """A message for reading; an empty one where it can't be read."""
    try:
        return WIRES[said.wire].view(said.native)
    except (ValueError, LookupError, TypeError):
        return View(role=said.role)


def _beside(said: Said, view: View) -> list[str]:
    """What there is beside a text: images and the like, what a model refused, what it called."""
    parts = others(said.native) if said.wire in WIRES else []
    calls = [f"→ {call.name}({call.arguments.decode('utf-8', 'replace')})" for call in view.calls]
    return [f"[{', '.join(parts)}]" if parts else "", view.refusal, *calls]
