r"""Printing for people and pipes: escaped text, times, JSON lines and a progress counter.

Stored text is untrusted. On a terminal, control characters and characters that change the direction of text are
printed as escapes (`\u001b`). In a file or a pipe, text is written unchanged.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any, NoReturn, TextIO

_LATEST = 250_000_000_000_000
"""The earliest time, in milliseconds since 1970, that is too late to be converted to a date."""
_TIMES = ("at", "until", "seen", "created", "updated", "expires")
"""The members of printed objects that are times in milliseconds since 1970."""
_LINES = "\n\t"
_WORDING = {
    "pass api_key=, or set ": "set ",
    "Raise the limit in the options, such as max_tokens.": "Raise the limit, such as -o max_tokens 2000.",
    "the proxy (HTTPS_PROXY).": "the proxy (HTTPS_PROXY). Without a connection, -m local answers.",
    "base_url=": "--base-url",
    "`base_url`": "--base-url",
    "use policy=Memory()": "use --policy 'Memory()'",
    "Its text is in `partial.text`.": "`longtalk show` prints it.",
    "Choose another id, or": "Choose another id with --id, or",
    "; pass an id": "; choose an id with --id",
    "Omit the id.": "Omit --id.",
    "Choose another path for the store.": "Choose another path with --store.",
    "Choose another path.": "Choose another path with --store.",
    "pass a mapping": "pass a mapping (--mapping)",
    "pass an owner map": "pass --owner-map",
    'choose all owners (owners="all"), an owner map (owners={…}), or one owner': (
        "choose --all-owners, --owner-map FILE, or one owner with --owner"
    ),
    "choose one owner, or": "choose one with --owner, or",
}
"""Phrases about Python arguments in the library's errors, and the command-line wording that replaces them."""
_WHICH_KEY = "(api_key= or its environment variable)"
_NEEDS_KEY = re.compile(r"\b([\w-]+) needs a key: set \w+(?=\.)")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb]")
_INVISIBLE = re.compile("[\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u3164\ufeff\uffa0]")
"""Characters that take no space. Joiners (U+200C, U+200D) are left out: scripts and emoji need them."""


def print_note(text: str, *, dim: bool = False) -> None:
    """Print a note to standard error. On a terminal that shows more than plain lines, it is wrapped between words."""
    text = _escape_for(sys.stderr, text)
    if sys.stderr.isatty() and can_move_cursor():
        text = wrap(text, shutil.get_terminal_size().columns)
        if dim and not os.environ.get("NO_COLOR"):
            text = f"\x1b[2m{text}\x1b[0m"
    print(text, file=sys.stderr, flush=True)


def can_move_cursor() -> bool:
    """Return True if the terminal, if there is one, knows escape sequences."""
    return os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


def wrap(text: str, width: int) -> str:
    """Return a text whose lines are broken between words, so that none is longer than `width`."""
    lines = text.split("\n")
    return "\n".join(
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False, drop_whitespace=True)
        if len(line) > width and not line.startswith(" ")
        else line
        for line in lines
    )


def print_error(problem: Exception) -> None:
    """Print an error as one line to standard error."""
    print_note(f"longtalk: {' '.join(reword_error(problem).split())}")


def reword_error(problem: Exception) -> str:
    """Return the message of an error, with Python arguments replaced by command-line options."""
    text = str(problem)
    if isinstance(problem, OSError) and problem.filename and problem.strerror:
        text = f"Can't use {os.fspath(problem.filename)!r}: {problem.strerror}."
    for argument, option in _WORDING.items():
        text = text.replace(argument, option)
    if _WHICH_KEY in text:
        text = text.replace(_WHICH_KEY, f"({_describe_key(text.partition(':')[0])})")
    return _NEEDS_KEY.sub(r"\g<0>, or run `longtalk config set-key \g<1>`", text)


def _describe_key(provider: str) -> str:
    """Return where the key of a provider comes from."""
    from longtalk.providers.registry import PROVIDERS

    variable = PROVIDERS[provider].key_variable if provider in PROVIDERS else None
    stored = f"`longtalk config set-key {provider}` stores another one"
    return f"{variable}; {stored}" if variable else stored if provider in PROVIDERS else "its environment variable"


def discard_output() -> None:
    """Discard what is still printed to standard output, since its reader is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def exit_without_reader() -> NoReturn:
    """Exit with the status of SIGPIPE, since the reader of standard output is gone. Flushing it can't fail again."""
    discard_output()
    raise SystemExit(141)


def print_text(text: str, *, end: str = "\n") -> None:
    """Print a text to standard output."""
    print(_escape_for(sys.stdout, text), end=end)


def print_json(value: dict[str, Any], **natives: bytes) -> None:
    """Print an object as one line of JSON, with `natives`, which are JSON already, as additional members.

    Times are written as ISO 8601 in UTC.
    """
    line = json.dumps(write_times(value), ensure_ascii=False)[:-1]
    for name, native in natives.items():
        # JSON has line breaks only between tokens, where a space means the same.
        line += f', "{name}": ' + native.decode("utf-8", "replace").replace("\n", " ").replace("\r", " ")
    sys.stdout.flush()
    sys.stdout.buffer.write(_escape_for(sys.stdout, line + "}\n").encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()


def write_times(value: dict[str, Any]) -> dict[str, Any]:
    """Return an object whose own times are ISO 8601 in UTC, such as `2026-11-16T14:30:00.000Z`, or null if unknown."""
    return {name: _write_time(each) if name in _TIMES else each for name, each in value.items()}


def _write_time(at: int | None) -> str | None:
    if not at or not 0 < at < _LATEST:
        return None
    seconds, milliseconds = divmod(at, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03d}Z"


def print_result(result: dict[str, Any], text: str, *, as_json: bool, show: Callable[[str], None] = print_text) -> None:
    """Print what a command did: with `as_json` the object `result`, else the text, by `print_text` or `print_note`."""
    if as_json:
        print_json(result)
    else:
        show(text)


def escape_line(text: str) -> str:
    """Return a text with all control characters escaped, even line breaks and tabs, so that it stays on one line.

    Invisible characters are escaped, too, so that names which differ in them look different.
    """
    return _INVISIBLE.sub(_to_escape, escape(text, keep=""))


def shorten(text: str, length: int) -> str:
    """Return the beginning of a text, at most `length` characters, on one line."""
    return truncate(" ".join(text[: 4 * length].split()), length)


def truncate(text: str, length: int) -> str:
    """Return a text with at most `length` characters. If the text is longer, the last character is an ellipsis."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def escape(text: str, *, keep: str = _LINES) -> str:
    """Return a text in which control characters, except those in `keep`, are replaced by escapes."""
    return _CONTROL.sub(lambda found: found[0] if found[0] in keep else _to_escape(found), text)


def _to_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def format_time(at: int, *, seconds: bool = False) -> str:
    """Return a time in milliseconds since 1970 as local time, or `-` if the time is not valid."""
    if not 0 < at < _LATEST:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M", time.localtime(at / 1000))


def pluralize(count: int, singular: str, plural: str = "") -> str:
    """Return a count with its noun in the singular or plural, such as `2 entries`."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def _escape_for(out: TextIO, text: str) -> str:
    return escape(text.replace("\r\n", "\n")) if out.isatty() else text


class LineEnds:
    """Makes line feeds of the line ends of a text that arrives in pieces, even of one that is split between two."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, piece: str) -> str:
        """Return the next part of the text. A carriage return at its end is held back until the next piece."""
        text = (self._held + piece).replace("\r\n", "\n")
        self._held = "\r" if text.endswith("\r") else ""
        return text.removesuffix("\r")

    def end(self) -> str:
        """Return what was held back."""
        held, self._held = self._held, ""
        return held


class ProgressCounter:
    """A progress counter with its rate on standard error. It appears only on a terminal and is erased at the end."""

    def __init__(self, total: int | None, noun: str) -> None:
        self._total = total
        self._noun = noun
        self._started = time.monotonic()
        self._is_terminal = sys.stderr.isatty() and can_move_cursor()
        self._next = 0.0

    def __call__(self, done: int) -> None:
        if self._is_terminal and time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.1
            print(f"\r\x1b[K{self._describe(done)}", end="", file=sys.stderr, flush=True)

    def _describe(self, done: int) -> str:
        """Return the count, from the second second on with the rate and, if the total is known, the time left."""
        text = pluralize(done, self._noun)
        if self._total is not None:
            text = f"{done:,} of {pluralize(self._total, self._noun)}"
        elapsed = time.monotonic() - self._started
        if elapsed < 1 or not done:
            return text
        rate = done / elapsed
        text += f", {rate:,.0f} a second" if rate >= 10 else f", {rate:.1f} a second"
        left = None if self._total is None else round(max(0, self._total - done) / rate)
        return text if left is None else f"{text}, {left // 60}:{left % 60:02d} left"

    def __enter__(self) -> ProgressCounter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._next:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
