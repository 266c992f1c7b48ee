"""Render a branch of a conversation as Markdown for people to read.

Messages may contain Markdown of their own: headings, unclosed fences, pieces of HTML. A message must not be able to
imitate a heading of the document or to swallow the text after it. Messages are therefore rendered as block quotes,
which end everything that was opened inside, and their headings and HTML are escaped unless they are certainly code. The
arguments and results of tools are put in fences that are longer than any fence inside. Every other line is written by
Longtalk; names and titles in it are escaped and kept on one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from longtalk._util import json_bytes
from longtalk.stores.base import MAIN
from longtalk.stores.jsonl.lines import format_utc
from longtalk.transcript.pack import OWN, Entry
from longtalk.transcript.transcript import Transcript, Turn
from longtalk.transfer.conversation_export import BranchPart, ConversationExport, full_branch
from longtalk.usage import Usage
from longtalk.wires import WIRES, read_usage
from longtalk.wires.views import MessageView

# These follow CommonMark. A code span that contains a bar may be two table cells, so it does not count as code.
# `memory/outline.py` also looks for fences and headings, but may guess where this module must be certain: its patterns
# accept more.
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
    "length": "cut off: it reached the limit of its length",
    "filtered": "cut off by the provider's filter",
    "empty": "says nothing, and is not sent back",
    "error": "an error",
    "closed": "no result was kept; the call was closed",
}
_SHOWN = (
    *("text", "tool_use", "tool_result", "refusal"),
    *("message", "input_text", "output_text", "function_call", "custom_tool_call"),
)
"""The types of content parts that are shown; parts of other types are only listed by name."""


def to_markdown(export: ConversationExport, branch: str = MAIN) -> str:
    """Return a branch as Markdown, from its first to its last entry; raise `InputError` if it does not exist."""
    path = full_branch(export, branch) if export.branches or branch != MAIN else BranchPart(name=MAIN)
    title = export.meta.get("title")
    titled = title.strip() if isinstance(title, str) else ""
    lines = [f"# {_inline(titled or export.id)}", ""]
    began = export.created or (path.entries[0].at if path.entries else 0)
    about = (
        _time(began) and f"Began {_time(began)}",
        f"branch {_inline(branch)}",
        titled and f"id {_inline(export.id)}",
    )
    lines += [" · ".join(filter(None, about)), ""]
    turns = {turn.id: turn for turn in path.turns}
    for number, (first, stop) in enumerate(Transcript(fresh=path.entries).exchanges(), 1):
        entries = path.entries[first:stop]
        lines += [" · ".join(filter(None, (f"## {number}", _time(entries[0].at)))), ""]
        lines += _exchange(entries)
        made = dict.fromkeys(entry.turn for entry in entries)
        told = [_made(turns[name], entries) for name in made if name in turns]
        lines += [line for each in told if each for line in (f"*{_inline(each)}*", "")]
    branches = [part.name for part in export.branches if part.name != branch]
    if branches:
        lines += ["---", "", f"Other branches: {', '.join(map(_inline, branches))}", ""]
    return "\n".join(lines)


def _exchange(entries: Sequence[Entry]) -> Iterator[str]:
    called: dict[str, str] = {}
    for entry in entries:
        yield from _entry(entry, called)


def _entry(entry: Entry, called: dict[str, str]) -> Iterator[str]:
    """Yield the Markdown lines for an entry. `called` maps the ids of earlier tool calls to their tools' names."""
    try:
        yield from _own(entry) if entry.wire == OWN else _message(entry, WIRES[entry.wire].view(entry.native), called)
    except (ValueError, LookupError, TypeError, AttributeError):
        yield from _heading(_role(entry), entry, f"as JSON of the wire {_inline(entry.wire)}")
        yield from _fence("json", entry.native.decode("utf-8", "replace"))


def _own(entry: Entry) -> Iterator[str]:
    members = json_bytes.value(entry.native)
    text = str(members["text"])
    if entry.kind == "event":
        about = " · ".join(filter(None, (f"**Event** from {_inline(str(members['source']))}", _time(entry.at))))
        yield from (f"> {about}", ">", *_quote(text))
    else:
        yield from (*_heading("System", entry), *_quote(text))


def _message(entry: Entry, seen: MessageView, called: dict[str, str]) -> Iterator[str]:
    parts = others(entry.native)
    if entry.role == "tool":
        yield from _heading(f"Result of {called.get(seen.call_id) or 'a call'}", entry)
        yield from _fence("", seen.text)
    else:
        yield from _heading(_role(entry), entry)
        yield from _quote(seen.text) if seen.text else ()
    if seen.refusal:
        yield from ("Refusal:", "", *_quote(seen.refusal))
    if parts:
        yield from (f"*[{', '.join(map(_inline, parts))}]*", "")
    for call in seen.calls:
        called[call.id] = _inline(call.name)
        yield from (f"Calls **{_inline(call.name)}**:", "")
        yield from _fence("json", call.arguments.decode("utf-8", "replace"))


def others(native: bytes) -> list[str]:
    """Return the types of the parts of a message that are not shown, such as images, audio and thinking."""
    members = json_bytes.value(native)
    content = members.get("content", members.get("parts", members.get("output")))
    parts = content if isinstance(content, list) else []
    said = [part["content"] for part in parts if isinstance(part, dict) and part.get("type") == "message"]
    parts = [*parts, *(part for inner in said if isinstance(inner, list) for part in inner)]
    types = [part.get("type", _kind(part)) for part in parts if isinstance(part, dict)]
    named = [kind for kind in types if isinstance(kind, str) and kind not in _SHOWN]
    return [kind.removeprefix("input_").removesuffix("_url") for kind in named]


def _kind(part: dict[str, object]) -> str:
    """Return the type of a Gemini part, derived from its members because such a part has no `type`."""
    if part.get("thought") is True:
        return "thinking"
    media = part.get("inlineData", part.get("fileData"))
    kind = media.get("mimeType") if isinstance(media, dict) else None
    if isinstance(kind, str):
        return kind.partition("/")[0]
    shown = ("text", "functionCall", "functionResponse", "thoughtSignature")
    return next((key for key in part if key not in shown), "text")


def _made(turn: Turn, entries: Sequence[Entry]) -> str:
    """Return one line about a turn: its model, tokens, duration and status."""
    wire = next((entry.wire for entry in entries if entry.turn == turn.id and entry.role == "assistant"), "")
    usage = sum((read_usage(raw, wire) for raw in turn.usage), Usage())
    told = ["" if turn.model == "unknown" else turn.model]
    if usage != Usage():
        cached = f" ({usage.cached:,} from the cache)" if usage.cached else ""
        told.append(f"{usage.input:,} tokens in{cached}, {usage.output:,} out")
    if 0 < turn.started < turn.ended:
        told.append(f"{(turn.ended - turn.started) / 1000:,.1f} s")
    if turn.status != "complete":
        told.append(f"{turn.status}: {turn.error}" if turn.error else turn.status)
    return " · ".join(filter(None, told))


def _role(entry: Entry) -> str:
    return _inline(entry.role.capitalize())


def _heading(who: str, entry: Entry, *more: str) -> Iterator[str]:
    said = (f"### {who}", _time(entry.at), *more, _inline(_MARKS.get(entry.mark, entry.mark)))
    yield from (" · ".join(filter(None, said)), "")


def _quote(text: str) -> Iterator[str]:
    for line in _inert(text.splitlines() or [""]):
        yield f"> {line}" if line else ">"
    yield ""


def _inert(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a text with headings and HTML escaped, except inside fences.

    A fence in a list or in a nested quote may end before its closing line. If it is not certain where a fence ends,
    everything after it is escaped, including code.
    """
    indent, fence, sure = "", "", True
    block: list[str] = []
    for line in lines:
        if fence and sure:
            closes = re.fullmatch(rf"( *){fence[0]}{{{len(fence)},}}[ \t]*", line)
            # A fence that is not indented is not in a list.
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
        yield from _escaped(block)
        block = []
        if opens:
            indent, fence = opens[1], opens[2]
        yield line
    yield from _escaped(block)


def _escaped(block: Sequence[str]) -> Iterator[str]:
    """Yield a block of lines with headings and HTML escaped.

    Code spans are left unchanged if no span extends over several lines.
    """
    whole = all("`" not in _SPAN.sub("", line) for line in block)
    for number, line in enumerate(block):
        line = (_SPAN_OR_TAG if whole else _TAG).sub(lambda found: r"\<" if found[0] == "<" else found[0], line)
        heading = _HEADING.match(line) or (_UNDERLINE.match(line) if number else None)
        yield f"{heading[0]}\\{line[heading.end() :]}" if heading else line


def _fence(language: str, text: str) -> Iterator[str]:
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (fence + language, *text.splitlines(), fence, "")


def _inline(text: str) -> str:
    """Return the text on one line, with Markdown characters escaped."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return _SPECIAL.sub(r"\\\g<0>", " ".join(plain.split()))


def _time(at: int) -> str:
    """Return a time as readable text; empty if the time is unknown."""
    return format_utc(at, "seconds") if at > 0 else ""
