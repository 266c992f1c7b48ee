"""The screen for pipes and simple terminals: one line at a time, and no escape sequences."""

from __future__ import annotations

import contextlib
import re
import select
import sys
from collections.abc import Sequence
from typing import Protocol

from longtalk._sync.turn.stream import Stream
from longtalk.archive.history import HistoryEntry
from longtalk.cli.answers import format_usage, print_stream
from longtalk.cli.output import print_note, print_text
from longtalk.cli.session import ChatSession
from longtalk.reply import StoredReply

END = "/end"
"""The line that ends a message of several lines."""
_COMMAND = re.compile(r"/[a-z]+(?=\s|$)")
_MOST_LINES = 20
"""How many lines of the last exchange are shown at most."""
_PASTE_SECONDS = 0.05
"""How long to wait for the next line of a paste. The terminal has most of it at once."""


def find_command(line: str) -> str:
    """Return the word at the beginning of a line that has the form of a command; empty if there is none."""
    found = _COMMAND.match(line)
    return found[0] if found else ""


class Screen(Protocol):
    """Where messages are read, and answers are shown."""

    is_multiline: bool
    """Whether Enter begins a new line of the message."""

    @property
    def multiline_help(self) -> str:
        """What the command for messages of several lines does here."""
        ...

    @property
    def multiline_hint(self) -> str:
        """How to send a message of several lines."""
        ...

    @property
    def keys(self) -> Sequence[tuple[str, str]]:
        """The keys that do something, and what."""
        ...

    def read(self, edit: str = "") -> str | None:
        """Return the next message or command; None at the end of the input.

        With `edit`, an earlier message, return its changed text; None if the user gives up.
        """
        ...

    def show_answer(self, session: ChatSession, stream: Stream[StoredReply]) -> None:
        """Show an answer while it arrives, and what it has used."""
        ...

    def show_exchange(self, question: str, answer: str) -> None:
        """Show the last message and its answer, before the conversation continues."""
        ...


class Plain:
    """A terminal or a pipe, used line by line."""

    multiline_help = f"write the next message on several lines, up to a line {END}"
    multiline_hint = f"Write several lines, and {END} on a line of its own to send them."
    keys = (("Ctrl-C", "stop the answer; the text so far is kept"),)

    def __init__(self, *, lines: bool) -> None:
        self.is_multiline = False
        self._lines = lines
        self._is_terminal = sys.stdin.isatty()
        self._is_read = False
        self._typed: list[str] = []
        """Commands that stood below a message, as in what was typed during an answer."""
        if self._is_terminal:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401

    def read(self, edit: str = "") -> str | None:
        if not self._is_terminal:
            return self._read_pipe()
        if edit:
            print_note("This terminal can't edit the message here: write it after the command.")
        while True:
            if self._typed:
                return self._typed.pop()
            try:
                text = self._read_lines() if self.is_multiline else self._read_line()
            except EOFError:
                print_note("")
                return None
            except KeyboardInterrupt:
                print_note("\n(To leave, type /exit or press Ctrl-D.)")
                continue
            if text.strip():
                return text.rstrip()

    def show_answer(self, session: ChatSession, stream: Stream[StoredReply]) -> None:
        reply = print_stream(stream)
        print_note(format_usage(reply, session.window))

    def show_exchange(self, question: str, answer: str) -> None:
        if self._is_terminal and sys.stdout.isatty():
            print_text(f"\n> {cut_lines(question.split(chr(10)))}\n{cut_lines(answer.split(chr(10)))}\n")

    def _read_line(self) -> str:
        """Read a line, and the lines that are there at once, for they were pasted: all of them are one message."""
        lines = [self._input("> ")]
        with contextlib.suppress(EOFError):
            while not find_command(lines[0]) and select.select([sys.stdin], [], [], _PASTE_SECONDS)[0]:
                line = self._input("")
                if find_command(line):
                    self._typed.append(line)
                    break
                lines.append(line)
        return "\n".join(lines).lstrip("\n")

    def _read_lines(self) -> str:
        """Read a message of several lines, up to the line `/end`, and return to messages of one line."""
        self.is_multiline = False
        lines: list[str] = []
        while (line := self._input("| ")).strip() != END:
            lines.append(line)
        return "\n".join(lines)

    def _read_pipe(self) -> str | None:
        if not self._lines:
            text = "" if self._is_read else sys.stdin.read()
            self._is_read = True
            return text.rstrip() or None
        while line := sys.stdin.readline():
            if line.strip():
                return line.rstrip()
        return None

    @staticmethod
    def _input(prompt: str) -> str:
        if sys.stdout.isatty():
            return input(prompt)
        # Standard output has the answers alone.
        print(prompt, end="", file=sys.stderr, flush=True)
        return input()


def cut_lines(lines: Sequence[str], most: int = _MOST_LINES) -> str:
    """Return lines as one text; of too many, the last ones."""
    return "\n".join(lines if len(lines) <= most else ("…", *lines[1 - most :]))


def find_last_exchange(entries: Sequence[HistoryEntry]) -> tuple[str, str] | None:
    """Return the last message and the text of its answer, which may be empty; None if there is no message."""
    asked = next((i for i in reversed(range(len(entries))) if entries[i].role == "user"), None)
    if asked is None:
        return None
    answers = [each.text for each in entries[asked + 1 :] if each.role == "assistant"]
    return entries[asked].text, answers[-1] if answers else ""
