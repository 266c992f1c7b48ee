"""Outlines of answers: their headings, list items and other structure, extracted without a model call.

Headings have the highest priority, then bold lead-ins and table headers, then list items, then nested items. When the
budget is short, lines of low priority are left out. The remaining lines keep the order they have in the answer. If an
answer has fewer than three such lines, sentences of its prose are added: the first of each paragraph, then the second,
and so on. Code blocks are skipped.

An outline never exceeds its budget, whatever the text and the counter: after each added line, the outline is counted as
a whole. The same text always gives the same outline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from longtalk._util.lookalikes import neutralize
from longtalk.tokens import Counter

BUDGET = 100

_MAX_CHARS = 200_000
"""The number of characters of an answer that are read; the rest is ignored."""
_MAX_LINES = 5_000
_MAX_LINE_CHARS = 400
_MAX_OUTLINE_LINE_BYTES = 90
"""The maximum length of an outline's line in bytes of UTF-8, which predict tokens better than characters do."""
_MAX_MISSES = 8
"""The number of consecutive lines that may fail to fit before no more are tried."""
_MIN_STRUCTURAL_LINES = 3
"""The number of structural lines below which sentences of the answer's prose are added."""

_QUOTE = re.compile(r"(?: {0,3}> ?)+")
_FENCE = re.compile(r"\s*(?:[-*+]\s+|\d{1,9}[.)]\s+)?(`{3,}(?=[^`]*$)|~{3,})")
_RULE = re.compile(r"\s*(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:\s+|$)(.*)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)\s*$")
_ITEM = re.compile(r"(\s*)(?:([-*+•‣◦])\s+|(\d{1,4}[.)])\s+|(\d{1,4}[、．）])\s*|([a-zA-Z][.)])\s+)(.*)")
_BOLD_LEAD = re.compile(r"\s*(\*\*|__)(?=\S)(.+?)(?<=\S)\1")
_TABLE_DIVIDER = re.compile(r"(?=.*\|)(?=.*-)[\s|:-]+$")
_END, _WIDE_END, _AFTER, _WIDE_AFTER = "[.!?…؟।]", "[。！？]", r"""["'»”’)\]]""", "[」』”）]"
_SENTENCE = re.compile(
    rf"(?:(?<={_END})|(?<={_END}{_AFTER}))\s+(?![a-zß-öø-ÿα-ωа-я])"
    rf"|(?<={_WIDE_END})(?!{_WIDE_AFTER})|(?<={_WIDE_END}{_WIDE_AFTER})"
)
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")
_EMPHASIS = re.compile(r"(?<!\w)([*_])(?=\S)([^*_]+)(?<=\S)\1(?!\w)")


class _OutlineLine(NamedTuple):
    """A line that may become part of an outline. Lines with a low `rank` are chosen first."""

    rank: int
    text: str


def outline(text: str, *, budget: int = BUDGET, counter: Counter) -> str:
    """Return an outline of at most `budget` tokens for the answer `text`; empty if the answer has only code."""
    readable = text[:_MAX_CHARS].encode("utf-8", "replace").decode()
    lines = list(islice(_skip_code_blocks(readable), _MAX_LINES))
    structure = list(_extract_structure(lines))
    if len(structure) < _MIN_STRUCTURAL_LINES:
        structure = list(_extract_structure(lines, prose=True))
    return _fit_lines(structure, budget, counter)


def _skip_code_blocks(text: str) -> Iterator[str]:
    """Yield the lines outside code blocks, without the ">" marks of quotes. Each code block becomes one empty line."""
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
            yield line[:_MAX_LINE_CHARS]


def _extract_structure(lines: list[str], *, prose: bool = False) -> Iterator[_OutlineLine]:
    """Yield the structural lines of an answer in order; with `prose`, also the sentences between them."""
    paragraph: list[str] = []
    in_table = False
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        in_table = in_table and "|" in line
        structural = None
        if not in_table and not _RULE.match(line):
            in_table = "|" in line and bool(_TABLE_DIVIDER.match(below))
            structural = _parse_structural_line(line, below, alone=not paragraph, table=in_table)
        if structural is None and line.strip() and not in_table and not _has_only_marks(line):
            paragraph.append(line)
            continue
        if prose:
            yield from _split_sentences(paragraph)
        paragraph = []
        if structural is not None and structural.text:
            yield structural
    if prose:
        yield from _split_sentences(paragraph)


def _parse_structural_line(line: str, below: str, *, alone: bool, table: bool) -> _OutlineLine | None:
    """Return a heading, list item, table header or bold lead-in as it appears in the outline; None for prose.

    The returned text is empty if the line consists only of Markdown marks. `below` is the next line. `alone` means that
    the line does not continue a paragraph, and `table` that it is a table header.
    """
    if table:
        cells = map(_strip_markdown, line.strip(" |").split("|"))
        return _OutlineLine(1, " | ".join(filter(None, cells)))
    if heading := _HEADING.match(line):
        title = _strip_markdown(heading[2].rstrip().rstrip("#"))
        return _OutlineLine(0, title and f"{heading[1]} {title}")
    item = _ITEM.match(line)
    if item and not _BOLD_LEAD.match(line):
        return _parse_list_item(item)
    if alone and line.strip() and _UNDERLINE.match(below):
        return _OutlineLine(0, f"## {_strip_markdown(line)}")
    if lead := _BOLD_LEAD.match(line):
        return _OutlineLine(1, _strip_markdown(lead[2]).rstrip(":："))
    return None


def _parse_list_item(match: re.Match[str]) -> _OutlineLine:
    """Return a list item as it appears in the outline, reduced to its bold beginning if it has one."""
    indent, bullet, number, wide, letter, text = match.groups()
    text = re.sub(r"\[[ xX]\]\s+", "", text, count=1) if text[:1] == "[" else text
    lead = _BOLD_LEAD.match(text)
    shown_text = _strip_markdown(lead[2]).rstrip(":：") if lead else _strip_markdown(text)
    is_nested = len(indent.expandtabs(4)) > 1
    sign = "-" if bullet else number or wide or letter
    return _OutlineLine(3 if is_nested else 2, shown_text and f"{'  ' if is_nested else ''}{sign} {shown_text}")


def _has_only_marks(line: str) -> bool:
    """Return True for a horizontal rule, or for the "===" or "---" that underlines a heading."""
    return bool(_RULE.match(line) or _UNDERLINE.match(line))


def _split_sentences(paragraph: list[str]) -> Iterator[_OutlineLine]:
    """Yield the sentences of a paragraph, with decreasing priority."""
    text = " ".join(line.strip() for line in paragraph)[: 10 * _MAX_LINE_CHARS]
    for number, sentence in enumerate(filter(None, map(_strip_markdown, _SENTENCE.split(text)))):
        yield _OutlineLine(4 + number, sentence)


def _strip_markdown(text: str) -> str:
    """Return a text on one line, without Markdown marks, and cut to the maximum length of an outline's line."""
    text = _LINK.sub(r"\1", text).replace("**", "").replace("`", "")
    return _clip(" ".join(_EMPHASIS.sub(r"\2", text).split()))


def _clip(text: str) -> str:
    """Return a text cut to the maximum length of an outline's line, at the end of a word if possible."""
    data = text.encode()
    if len(data) <= _MAX_OUTLINE_LINE_BYTES:
        return text
    clipped = data[: _MAX_OUTLINE_LINE_BYTES - 3].decode("utf-8", "ignore")
    last_space = clipped.rfind(" ")
    return (clipped[:last_space] if last_space > len(clipped) // 2 else clipped).rstrip(" ,;:") + "…"


def _fit_lines(lines: list[_OutlineLine], budget: int, counter: Counter) -> str:
    """Return the outline: the lines that fit the budget, chosen by rank, in their original order.

    If no line fits, return the longest fitting beginning of the line with the lowest rank.
    """
    chosen: list[int] = []
    text, misses = "", 0
    for index in sorted(range(len(lines)), key=lambda i: lines[i].rank):
        candidate = sorted((*chosen, index))
        candidate_text = neutralize("\n".join(lines[i].text for i in candidate))
        if counter.count(candidate_text) <= budget:
            chosen, text, misses = candidate, candidate_text, 0
        elif (misses := misses + 1) >= _MAX_MISSES:
            break
    return text or (_fit_beginning(min(lines, key=lambda line: line.rank).text, budget, counter) if lines else "")


def _fit_beginning(text: str, budget: int, counter: Counter) -> str:
    """Return the longest beginning of a line that fits the budget; empty if none does."""
    for length in range(len(text) - 1, 0, -1):
        beginning = neutralize(text[:length].rstrip() + "…")
        if counter.count(beginning) <= budget:
            return beginning
    return ""
