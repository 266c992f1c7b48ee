"""Tables for people and pipes: aligned columns that fit the terminal, and rows separated by tabs elsewhere."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import click

from longtalk.cli.output import escape_line, print_text
from longtalk.cli.shared_options import HEADER_WANTED

_GAP = "  "
_SHORTEST = 4
"""The width to which any column is cut if nothing else makes a table fit."""


class Column(NamedTuple):
    """A column of a table."""

    name: str
    rank: int = 0
    """On a narrow terminal, the column with the highest rank is left out first; 0 is never left out."""
    shortest: int = 0
    """The width to which the column may be cut before other columns are left out; 0 for its full width."""
    is_number: bool = False
    """Numbers are aligned to the right; in a pipe they have no separators and no signs of currency or estimates."""


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of cells: on a terminal as aligned columns with a header, elsewhere separated by tabs.

    On a terminal, no line is longer than the terminal is wide: cells are cut, and columns are left out. Elsewhere, the
    header is printed only if the command was called with `--header`. A row may have more cells than there are columns.
    """
    table = [[escape_line(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        context = click.get_current_context(silent=True)
        if context is not None and context.meta.get(HEADER_WANTED):
            print_text("\t".join(column.name for column in columns))
        for row in table:
            plain = [_to_plain(cell) if column.is_number else cell for cell, column in zip(row, columns, strict=False)]
            print_text("\t".join((*plain, *row[len(columns) :])))
        return
    if not table:
        return
    for line in fit_table(columns, table, shutil.get_terminal_size().columns):
        print_text(line)


def fit_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[str]:
    """Return the lines of a table, the header first. No line is wider than `room`."""
    table = [[column.name for column in columns], *rows]
    widths = {i: max(measure(row[i]) for row in table) for i in range(len(columns))}
    while _get_excess(widths, room, columns) > 0 and any(columns[i].rank for i in widths):
        del widths[max(widths, key=lambda i: columns[i].rank)]
    for shortest in (
        {i: columns[i].shortest or width for i, width in widths.items()},
        dict.fromkeys(widths, _SHORTEST),
    ):
        while _get_width(widths.values()) > room and (cuttable := [i for i in widths if widths[i] > shortest[i]]):
            widths[max(cuttable, key=lambda i: widths[i])] -= 1
    return [
        _GAP.join(_pad(cut(row[i], width), width, columns[i].is_number) for i, width in widths.items()).rstrip(" ")
        for row in table
    ]


def measure(text: str) -> int:
    """Return the number of terminal cells of a text: two for wide characters such as emoji, none for accents."""
    if text.isascii():
        return len(text)
    return sum(map(_measure_character, text))


def cut(text: str, width: int) -> str:
    """Return a text that is at most `width` terminal cells wide. If it was cut, it ends with an ellipsis."""
    if measure(text) <= width:
        return text
    used = end = 0
    while used + _measure_character(text[end]) < width:
        used += _measure_character(text[end])
        end += 1
    return f"{text[:end]}…"


def wrap_line(line: str, width: int) -> list[str]:
    """Return a line in parts that are at most `width` terminal cells wide, broken between words where possible."""
    parts: list[str] = []
    start = 0
    while True:
        used, end = 0, start
        while end < len(line) and used + (cells := _measure_character(line[end])) <= width:
            used += cells
            end += 1
        if end == len(line):
            return [*parts, line[start:]]
        # A character of two cells is wider than one cell.
        end = max(end, start + 1)
        space = line.rfind(" ", start, end + 1)
        if space > start and line[start:space].strip():
            parts.append(line[start:space])
            start = space + 1
        else:
            parts.append(line[start:end])
            start = end


def _measure_character(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _get_width(widths: Iterable[int]) -> int:
    listed = list(widths)
    return sum(listed) + len(_GAP) * (len(listed) - 1)


def _get_excess(widths: dict[int, int], room: int, columns: Sequence[Column]) -> int:
    """Return by how much columns are too wide, even if each is cut to its shortest width."""
    return _get_width(min(width, columns[i].shortest or width) for i, width in widths.items()) - room


def _pad(text: str, width: int, is_number: bool) -> str:
    fill = " " * (width - measure(text))
    return fill + text if is_number else text + fill


def _to_plain(number: str) -> str:
    return number.replace(",", "").removeprefix("~").removeprefix("$")
