"""Outlines of answers: the structure of their Markdown, extracted without a model call.

Headings have the highest priority, then bold lead-ins and table headers, then list items, then nested items. When the
budget is short, lines of low priority are left out. Lines keep their order in the answer. If fewer than three are
found, sentences of the prose are added: the first of each paragraph, then the second, and so on. Code blocks and memory
cards are skipped.

An outline never exceeds its budget, whatever the text and the counter: a line is added only if the counter says that
the whole outline fits with it. The same text always gives the same outline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from longtalk.tokens import Counter
from longtalk.wires.card_tags import neutralize_tags, remove_cards

BUDGET = 100

_READ = 200_000
"""The maximum number of characters of an answer that are read."""
_LINES_READ = 5_000
_LINE_READ = 400
_LINE_BYTES = 90
"""The maximum length of a line in bytes of UTF-8, which are a better measure of tokens than characters."""
_TRIES = 8
"""The search for more lines ends after this many lines in a row that did not fit."""
_FEW = 3

_QUOTE = re.compile(r"(?: {0,3}> ?)+")
_FENCE = re.compile(r"\s*(?:[-*+]\s+|\d{1,9}[.)]\s+)?(`{3,}(?=[^`]*$)|~{3,})")
_RULE = re.compile(r"\s*(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:\s+|$)(.*)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)\s*$")
_ITEM = re.compile(r"(\s*)(?:([-*+•‣◦])\s+|(\d{1,4}[.)])\s+|(\d{1,4}[、．）])\s*|([a-zA-Z][.)])\s+)(.*)")
_LEAD = re.compile(r"\s*(\*\*|__)(?=\S)(.+?)(?<=\S)\1")
_DIVIDER = re.compile(r"(?=.*\|)(?=.*-)[\s|:-]+$")
_END, _WIDE_END, _AFTER, _WIDE_AFTER = "[.!?…؟।]", "[。！？]", r"""["'»”’)\]]""", "[」』”）]"
_SENTENCE = re.compile(
    rf"(?:(?<={_END})|(?<={_END}{_AFTER}))\s+(?![a-zß-öø-ÿα-ωа-я])"
    rf"|(?<={_WIDE_END})(?!{_WIDE_AFTER})|(?<={_WIDE_END}{_WIDE_AFTER})"
)
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")
_EMPHASIS = re.compile(r"(?<!\w)([*_])(?=\S)([^*_]+)(?<=\S)\1(?!\w)")


class _Line(NamedTuple):
    """A line that may become part of an outline. Lines with the lowest rank are chosen first."""

    rank: int
    text: str


def outline(text: str, *, budget: int = BUDGET, counter: Counter) -> str:
    """Return the outline of an answer in at most `budget` tokens; empty if the answer has only code."""
    readable = text[:_READ].encode("utf-8", "replace").decode()
    lines = list(islice(_outside_fences(remove_cards(readable)), _LINES_READ))
    found = list(_skeleton(lines))
    if len(found) < _FEW:
        found = list(_skeleton(lines, prose=True))
    return _fitted(found, budget, counter)


def _outside_fences(text: str) -> Iterator[str]:
    """Yield the lines of a text outside code blocks, without quote marks. Each code block becomes one empty line."""
    fence, quoted = "", False
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for line in re.sub(r"\n{3,}", "\n\n", text).split("\n"):
        quote = _QUOTE.match(line)
        if quoted and not quote:
            fence, quoted = "", False
        if quote and (quoted or not fence):
            line = line[quote.end() :]
        if fence:
            mark = line.strip()
            fence = "" if mark.startswith(fence) and not mark.strip(fence[0]) else fence
        elif opened := _FENCE.match(line):
            fence, quoted = opened[1], bool(quote)
            yield ""
        else:
            yield line[:_LINE_READ]


def _skeleton(lines: list[str], *, prose: bool = False) -> Iterator[_Line]:
    """Yield the structural lines of an answer in order; with `prose`, also the sentences between them."""
    paragraph: list[str] = []
    in_table = False
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        in_table = in_table and "|" in line
        known = None
        if not in_table and not _RULE.match(line):
            in_table = "|" in line and bool(_DIVIDER.match(below))
            known = _known(line, below, alone=not paragraph, table=in_table)
        if known is None and line.strip() and not in_table and not _marks_only(line):
            paragraph.append(line)
            continue
        if prose:
            yield from _sentences(paragraph)
        paragraph = []
        if known is not None and known.text:
            yield known
    if prose:
        yield from _sentences(paragraph)


def _known(line: str, below: str, *, alone: bool, table: bool) -> _Line | None:
    """Return the outline's form of a structural line, with empty text if nothing is to be shown; None for prose.

    `below` is the next line. `alone` says that no paragraph precedes the line, and `table` that it is a table header.
    """
    if table:
        return _Line(1, " | ".join(filter(None, (_plain(cell) for cell in line.strip(" |").split("|")))))
    if heading := _HEADING.match(line):
        title = _plain(heading[2].rstrip().rstrip("#"))
        return _Line(0, title and f"{heading[1]} {title}")
    item = _ITEM.match(line)
    if item and not _LEAD.match(line):
        return _item(item)
    if alone and line.strip() and _UNDERLINE.match(below):
        return _Line(0, f"## {_plain(line)}")
    if lead := _LEAD.match(line):
        return _Line(1, _plain(lead[2]).rstrip(":："))
    return None


def _item(found: re.Match[str]) -> _Line:
    """Return the outline's form of a list item, reduced to its bold beginning if it has one."""
    indent, bullet, number, wide, letter, text = found.groups()
    text = re.sub(r"\[[ xX]\]\s+", "", text, count=1) if text[:1] == "[" else text
    lead = _LEAD.match(text)
    said = _plain(lead[2]).rstrip(":：") if lead else _plain(text)
    inner = len(indent.expandtabs(4)) > 1
    sign = "-" if bullet else number or wide or letter
    return _Line(3 if inner else 2, said and f"{'  ' if inner else ''}{sign} {said}")


def _marks_only(line: str) -> bool:
    return bool(_RULE.match(line) or _UNDERLINE.match(line))


def _sentences(paragraph: list[str]) -> Iterator[_Line]:
    """Yield the sentences of a paragraph, each with a lower priority than the one before."""
    text = " ".join(line.strip() for line in paragraph)[: 10 * _LINE_READ]
    for number, sentence in enumerate(filter(None, map(_plain, _SENTENCE.split(text)))):
        yield _Line(4 + number, sentence)


def _plain(text: str) -> str:
    """Return a text on one line, without Markdown marks, and cut to the maximum length of a line."""
    text = _LINK.sub(r"\1", text).replace("**", "").replace("`", "")
    return _clipped(" ".join(_EMPHASIS.sub(r"\2", text).split()))


def _clipped(text: str) -> str:
    data = text.encode()
    if len(data) <= _LINE_BYTES:
        return text
    cut = data[: _LINE_BYTES - 3].decode("utf-8", "ignore")
    word = cut.rfind(" ")
    return (cut[:word] if word > len(cut) // 2 else cut).rstrip(" ,;:") + "…"


def _fitted(lines: list[_Line], budget: int, counter: Counter) -> str:
    """Return the outline: the lines that fit the budget, chosen by rank, in their original order.

    If no line fits, return the beginning of the line with the lowest rank.
    """
    taken: list[int] = []
    text, misses = "", 0
    for place in sorted(range(len(lines)), key=lambda place: lines[place].rank):
        tried = sorted((*taken, place))
        longer = neutralize_tags("\n".join(lines[each].text for each in tried))
        if counter.count(longer) <= budget:
            taken, text, misses = tried, longer, 0
        elif (misses := misses + 1) >= _TRIES:
            break
    return text or (_start(min(lines, key=lambda line: line.rank).text, budget, counter) if lines else "")


def _start(text: str, budget: int, counter: Counter) -> str:
    """Return the longest beginning of a line that fits the budget; empty if none does."""
    for length in range(len(text) - 1, 0, -1):
        cut = neutralize_tags(text[:length].rstrip() + "…")
        if counter.count(cut) <= budget:
            return cut
    return ""
