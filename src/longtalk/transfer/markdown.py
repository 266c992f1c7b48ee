"""Render a branch of a conversation as readable Markdown.

Messages may contain Markdown of their own: headings, unclosed fences, pieces of HTML. A message must not be able to
imitate a heading of the document or to hide the text after it. Messages are therefore rendered as block quotes, at
whose end everything opened inside is closed, and their headings and HTML are escaped unless they are certainly code.
Code blocks of messages are not quoted, so that they can be copied. They, and the arguments and results of tools, are
put in fences that are longer than any fence inside them. Every other line is
written by Longtalk; names and titles in it are escaped and kept on one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from longtalk._util import json_bytes
from longtalk.memory.cards.hidden import find_memory_calls, is_hidden
from longtalk.stores.base import MAIN
from longtalk.stores.jsonl.lines import format_utc
from longtalk.transcript.pack import OWN, Entry
from longtalk.transcript.transcript import Transcript, Turn
from longtalk.transfer.conversation_export import BranchPart, ConversationExport, expand_branch
from longtalk.usage import Usage
from longtalk.wires import read_usage
from longtalk.wires.describe import list_hidden_parts
from longtalk.wires.entries import view_entry
from longtalk.wires.neutral import read_source
from longtalk.wires.views import MessageView

# These patterns follow CommonMark. A code span that contains a bar may be two table cells, so it doesn't count as code.
# `memory/outline.py` also looks for fences and headings, but its patterns accept more: it may guess where this module
# must be certain.
_FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,})")
_LIKE_FENCE = re.compile(r"[\s>*+\-\d.)]*(?:`{3}|~{3})")
_SPAN = re.compile(r"\\.|(?<!`)(`+)(?!`)[^|]{1,999}?(?<!`)\1(?!`)")
_TAG = re.compile(r"\\.|<(?=[a-zA-Z/!?])")
_SPAN_OR_TAG = re.compile(f"{_SPAN.pattern}|{_TAG.pattern}")
_HEADING = re.compile(r"(?: {0,3}(?:>|[-+*] |\d{1,9}[.)] ))* {0,3}(?=#{1,6}(?:\s|$))")
_UNDERLINE = re.compile(r"[ >]*(?=(?:=+|-+)\s*$)")
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>#|~!&$]")
_MARKS = {
    "interrupted": "interrupted",
    "length": "cut off by the length limit",
    "filtered": "cut off by the provider's filter",
    "empty": "empty, and therefore not sent",
    "error": "error",
    "closed": "no result, so the call was closed",
}
"""The types of content parts whose content is shown. Of other parts, only the type is shown."""


def to_markdown(export: ConversationExport, branch: str = MAIN, *, system: str | None = None) -> str:
    """Return all entries of a branch as Markdown; raise `InputError` if the branch does not exist.

    `system` is the system text of the last turn, which is in no entry.
    """
    path = expand_branch(export, branch) if export.branches or branch != MAIN else BranchPart(name=MAIN)
    title = export.meta.get("title")
    titled = title.strip() if isinstance(title, str) else ""
    lines = [f"# {_escape_inline(titled or export.id)}", ""]
    began = export.created or (path.entries[0].at if path.entries else 0)
    about = (
        _format_time(began) and f"Began {_format_time(began)}",
        f"branch {_escape_inline(branch)}",
        titled and f"id {_escape_inline(export.id)}",
    )
    lines += [" · ".join(filter(None, about)), ""]
    if system:
        lines += ["## System text of the last turn", "", *_render_quote(system)]
    turns = {turn.id: turn for turn in path.turns}
    for number, (first, stop) in enumerate(Transcript(fresh=path.entries).exchanges(), 1):
        entries = path.entries[first:stop]
        lines += [" · ".join(filter(None, (f"## {number}", _format_time(entries[0].at)))), ""]
        lines += _render_exchange(entries)
        names = dict.fromkeys(entry.turn for entry in entries)
        answered = {entry.turn for entry in entries if entry.role == "assistant"}
        # Of a turn whose answer moved to another branch, only the message is here.
        shown = [turns[name] for name in names if name in turns and (name in answered or not answered)]
        notes = [_describe_turn(each, entries) for each in shown]
        lines += [line for each in notes if each for line in (f"*{_escape_inline(each)}*", "")]
    branches = [part.name for part in export.branches if part.name != branch]
    if branches:
        lines += ["---", "", f"Other branches: {', '.join(map(_escape_inline, branches))}", ""]
    return "\n".join(lines)


def _render_exchange(entries: Sequence[Entry]) -> Iterator[str]:
    called: dict[str, str] = {}
    hidden = find_memory_calls(entries)
    for i, entry in enumerate(entries):
        ids = hidden.get(i, frozenset())
        if not is_hidden(entry, ids):
            yield from _render_entry(entry, called, ids)


def _render_entry(entry: Entry, called: dict[str, str], hidden: frozenset[str]) -> Iterator[str]:
    """Yield the Markdown lines for an entry.

    `called` maps the ids of earlier tool calls to tool names, and `hidden` has the ids of calls that are not shown.
    """
    try:
        yield from (
            _render_own(entry) if entry.wire == OWN else _render_message(entry, view_entry(entry), called, hidden)
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        yield from _render_heading(_format_role(entry), entry, f"as JSON of the wire {_escape_inline(entry.wire)}")
        yield from _render_fence("json", entry.native.decode("utf-8", "replace"))


def _render_own(entry: Entry) -> Iterator[str]:
    members = json_bytes.value(entry.native)
    text = str(members["text"])
    if entry.kind == "event":
        about = " · ".join(
            filter(None, (f"**Event** from {_escape_inline(read_source(entry.native))}", _format_time(entry.at)))
        )
        yield from (f"> {about}", ">", *_render_quote(text))
    else:
        yield from (*_render_heading("System", entry), *_render_quote(text))


def _render_message(entry: Entry, seen: MessageView, called: dict[str, str], hidden: frozenset[str]) -> Iterator[str]:
    parts = list_hidden_parts(entry.native)
    if not (seen.text or seen.refusal or seen.calls or seen.call_id or seen.whole or parts or entry.condition):
        raise ValueError("none of the message's content can be shown")
    if entry.role == "tool":
        yield from _render_heading(f"Result of {called.get(seen.call_id) or 'a call'}", entry)
        yield from _render_fence("", seen.text)
    else:
        yield from _render_heading(_format_role(entry), entry)
        yield from _render_text(seen.text) if seen.text else ()
    if seen.refusal:
        yield from ("Refusal:", "", *_render_quote(seen.refusal))
    if parts:
        yield from (f"*[{', '.join(map(_escape_inline, parts))}]*", "")
    for call in seen.calls:
        if call.id in hidden:
            continue
        called[call.id] = _escape_inline(call.name)
        yield from (f"Calls **{_escape_inline(call.name)}**:", "")
        yield from _render_fence("json", call.arguments.decode("utf-8", "replace"))


def _describe_turn(turn: Turn, entries: Sequence[Entry]) -> str:
    """Return one line about a turn: its model, tokens, duration and status."""
    wire = next((entry.wire for entry in entries if entry.turn == turn.id and entry.role == "assistant"), "")
    usage = sum((read_usage(raw, wire) for raw in turn.usage), Usage())
    parts = ["" if turn.model == "unknown" else turn.model]
    if usage != Usage():
        cached = f" ({usage.cached:,} from the cache)" if usage.cached else ""
        parts.append(f"{usage.input:,} tokens in{cached}, {usage.output:,} out")
    if 0 < turn.started < turn.ended:
        parts.append(f"{(turn.ended - turn.started) / 1000:,.1f} s")
    if turn.status != "complete":
        parts.append(f"{turn.status}: {turn.error}" if turn.error else turn.status)
    return " · ".join(filter(None, parts))


def _format_role(entry: Entry) -> str:
    return _escape_inline(entry.role.capitalize())


def _render_heading(who: str, entry: Entry, *more: str) -> Iterator[str]:
    parts = (f"### {who}", _format_time(entry.at), *more, _escape_inline(_MARKS.get(entry.condition, entry.condition)))
    yield from (" · ".join(filter(None, parts)), "")


def _render_text(text: str) -> Iterator[str]:
    """Yield a text as quotes, with the code blocks between them."""
    for info, lines in _split_code(text.splitlines()):
        if info is not None:
            yield from _render_fence("" if "`" in info else info, "\n".join(lines))
        elif any(line.strip() for line in lines) or not text.strip():
            yield from _render_quote("\n".join(lines).strip("\n"))


def _split_code(lines: Sequence[str]) -> Iterator[tuple[str | None, Sequence[str]]]:
    """Yield the parts of a text: code blocks, each with the text after its opening fence, and the lines between them.

    Only blocks that certainly are code are split off: those whose fences are closed and begin their lines.
    """
    start = i = 0
    while i < len(lines):
        opens = _FENCE.match(lines[i])
        if not opens and not _LIKE_FENCE.match(lines[i]):
            i += 1
            continue
        if not opens or opens[1]:
            break
        closing = re.compile(rf" {{0,3}}{opens[2][0]}{{{len(opens[2])},}}[ \t]*")
        stop = next((j for j in range(i + 1, len(lines)) if closing.fullmatch(lines[j])), None)
        if stop is None:
            break
        yield None, lines[start:i]
        yield lines[i][opens.end() :].strip(), lines[i + 1 : stop]
        start = i = stop + 1
    yield None, lines[start:]


def _render_quote(text: str) -> Iterator[str]:
    for line in _escape_lines(text.splitlines() or [""]):
        yield f"> {line}" if line else ">"
    yield ""


def _escape_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a text with headings and HTML escaped, except inside fences.

    A fence in a list or in a nested quote may end before its closing line. As soon as it is uncertain whether a fence
    is open, everything after that is escaped, including code.
    """
    indent, fence, sure = "", "", True
    block: list[str] = []
    for line in lines:
        if fence and sure:
            closes = re.fullmatch(rf"( *){fence[0]}{{{len(fence)},}}[ \t]*", line)
            # A fence without indentation is not in a list.
            ends = closes is not None and (closes[1] == indent or (not indent and len(closes[1]) < 4))
            sure = ends or not indent or not line.strip() or (closes is None and line.startswith(indent))
            if sure:
                fence = "" if ends else fence
                yield line
                continue
        opens = _FENCE.match(line) if sure else None
        if line.strip() and not opens:
            sure = sure and not _LIKE_FENCE.match(line)
            block.append(line)
            continue
        yield from _escape_block(block)
        block = []
        if opens:
            indent, fence = opens[1], opens[2]
        yield line
    yield from _escape_block(block)


def _escape_block(block: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a paragraph with headings and HTML escaped.

    Code spans are left unchanged, unless one of them extends over several lines: then HTML is escaped even in spans.
    """
    whole = all("`" not in _SPAN.sub("", line) for line in block)
    for number, line in enumerate(block):
        line = (_SPAN_OR_TAG if whole else _TAG).sub(lambda found: r"\<" if found[0] == "<" else found[0], line)
        heading = _HEADING.match(line) or (_UNDERLINE.match(line) if number else None)
        yield f"{heading[0]}\\{line[heading.end() :]}" if heading else line


def _render_fence(language: str, text: str) -> Iterator[str]:
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (fence + language, *text.splitlines(), fence, "")


def _escape_inline(text: str) -> str:
    """Return the text on one line, with Markdown characters escaped."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return _SPECIAL.sub(r"\\\g<0>", " ".join(plain.split()))


def _format_time(at: int) -> str:
    """Return a time in milliseconds since 1970 as readable text; empty if it is unknown (0)."""
    return format_utc(at, "seconds").replace("T", " ").replace("Z", " UTC") if at > 0 else ""
