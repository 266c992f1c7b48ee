"""What a person sees of stored things: texts that can do nothing to a terminal, times, tables, JSON.

What was said came from anybody. On a terminal, control characters in it show as escapes (`\\u001b`), and so do those
that turn the direction of a line around. Elsewhere a text is written as it is, so that it can be piped.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

_LATEST = 250_000_000_000_000
"""A time in milliseconds that no date is made of any more."""
_LINES = "\n\t"
_WORDS = {
    "pass api_key=, or set ": "set ",
    "(api_key= or its environment variable)": "(its environment variable)",
    "base_url=": "--base-url",
    "`base_url`": "--base-url",
    "policy=Memory() keeps one": "--policy 'Memory()' keeps one",
    "Name another id, or": "Name another one with --id, or",
}
"""What the library's errors name, and what that is on the command line."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def say(text: str) -> None:
    """A line on standard error, for whoever is there."""
    print(_for(sys.stderr, text), file=sys.stderr, flush=True)


def tell(problem: Exception) -> None:
    """What went wrong, in one line."""
    say(f"longtalk: {' '.join(worded(problem).split())}")


def worded(problem: Exception) -> str:
    """What an error says to somebody who gives options, and no arguments."""
    text = str(problem)
    for ours, theirs in _WORDS.items():
        text = text.replace(ours, theirs)
    return text


def put(text: str, *, end: str = "\n") -> None:
    """Write to standard output."""
    print(_for(sys.stdout, text), end=end)


def put_json(value: Any, **natives: bytes) -> None:
    """Write an object as one line, with members that are JSON already."""
    line = json.dumps(value, ensure_ascii=False)[:-1]
    for name, native in natives.items():
        # Between values a line's end is as good as a space, and inside of a text there is none.
        line += f', "{name}": ' + native.decode("utf-8", "replace").replace("\n", " ").replace("\r", " ")
    sys.stdout.flush()
    sys.stdout.buffer.write(_for(sys.stdout, line + "}\n").encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()


def put_table(rows: Iterable[Sequence[str]]) -> None:
    """Columns: aligned on a terminal and cut at its edge, separated by tabs elsewhere."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in rows:
            put("\t".join(row))
        return
    import shutil

    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = max(20, shutil.get_terminal_size().columns - sum(widths[:-1]) - 2 * len(widths[:-1]))
    for row in rows:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        put("  ".join((*padded[:-1], cut(row[-1], room))))


def one_line(text: str) -> str:
    """A text that stays in its line and column, wherever it is written."""
    return escaped(text, keep="")


def words(text: str, length: int) -> str:
    """The first words of a text."""
    return cut(" ".join(text[: 4 * length].split()), length)


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def escaped(text: str, *, keep: str = _LINES) -> str:
    return _CONTROL.sub(lambda found: found[0] if found[0] in keep else f"\\u{ord(found[0]):04x}", text)


def when(at: int, *, seconds: bool = False) -> str:
    """A time of ours in local time; `-` where it is not known."""
    if not 0 < at < _LATEST:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M", time.localtime(at / 1000))


def number(count: int, what: str, many: str = "") -> str:
    return f"{count:,} {what if count == 1 else many or what + 's'}"


def _for(out: TextIO, text: str) -> str:
    return escaped(text.replace("\r\n", "\n")) if out.isatty() else text


class Counting:
    """A count of what is done, for whoever waits at a terminal."""

    def __init__(self, total: int | None, what: str) -> None:
        self._of = "" if total is None else f" of {total:,}"
        self._what = what
        self._shows = sys.stderr.isatty()
        self._next = 0.0

    def __call__(self, done: int) -> None:
        if self._shows and time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.1
            print(f"\r{done:,}{self._of} {self._what}s", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Counting:
        return self

    def __exit__(self, *_: object) -> None:
        if self._next:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
