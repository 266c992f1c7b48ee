"""The outline of an answer: its skeleton, taken from its Markdown without a model call.

Headings come first, then bold lead-ins and the headers of tables, then list items and steps, then those inside others:
what matters less is left out when the budget is short. What is taken stands in the order of the answer, one line each.
Where there are fewer than three such lines, prose adds its sentences: the first of each paragraph, then the second.
Nothing comes from code fences, and no memory card shows.

The budget holds for any text and any counter: no line is taken unless the counter has said that the whole still fits.
The same text gives the same outline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from longtalk.memory.sentinel import neutralised, without_cards
from longtalk.tokens import Counter

BUDGET = 100

_READ = 200_000
"""Characters of an answer that are looked at."""
_LINES_READ = 5_000
_LINE_READ = 400
_LINE_BYTES = 90
"""How long a line of an outline gets. Bytes of UTF-8 are nearer to tokens than characters are."""
_TRIES = 8
"""After so many lines in a row that don't fit there is no room for more."""
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
    """A line of a skeleton. Those of the lowest rank are taken first."""

    rank: int
    text: str


def outline(text: str, *, budget: int = BUDGET, counter: Counter) -> str:
    """The skeleton of an answer, in at most `budget` of the counter's tokens. Empty where there is nothing but code."""
    readable = text[:_READ].encode("utf-8", "replace").decode()
    lines = list(islice(_outside_fences(without_cards(readable)), _LINES_READ))
    found = list(_skeleton(lines))
    if len(found) < _FEW:
        found = list(_skeleton(lines, prose=True))
    return _fitted(found, budget, counter)


def _outside_fences(text: str) -> Iterator[str]:
    """The lines of a text without quote marks and without code. In place of code stands an empty line."""
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
    """The lines of the skeleton in order, with the sentences of the prose between them if that is asked for."""
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
    """A line that belongs to the skeleton; with an empty text where it does but says nothing."""
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
    """An item of a list or a step. If it begins in bold, that is what it is about."""
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
    """The sentences of a paragraph: the later, the less they matter."""
    text = " ".join(line.strip() for line in paragraph)[: 10 * _LINE_READ]
    for number, sentence in enumerate(filter(None, map(_plain, _SENTENCE.split(text)))):
        yield _Line(4 + number, sentence)


def _plain(text: str) -> str:
    """Without marks of Markdown, on one line and not too long."""
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
    """As many lines as fit, those that matter most first, in order. Of a first one that is too long, its start."""
    taken: list[int] = []
    text, misses = "", 0
    for place in sorted(range(len(lines)), key=lambda place: lines[place].rank):
        tried = sorted((*taken, place))
        longer = neutralised("\n".join(lines[each].text for each in tried))
        if counter.count(longer) <= budget:
            taken, text, misses = tried, longer, 0
        elif (misses := misses + 1) >= _TRIES:
            break
    return text or (_start(min(lines, key=lambda line: line.rank).text, budget, counter) if lines else "")


def _start(text: str, budget: int, counter: Counter) -> str:
    """The beginning of a line, as much as fits."""
    for length in range(len(text) - 1, 0, -1):
        cut = neutralised(text[:length].rstrip() + "…")
        if counter.count(cut) <= budget:
            return cut
    return ""
