"""A terminal with a screen: what a person sees after all escape sequences, at any size."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import termios
import time

import pyte

from tests.cli.helpers import Terminal

ENTER, CTRL_C, CTRL_D, CTRL_J, CTRL_R, TAB, ALT_ENTER = "\r", "\x03", "\x04", "\n", "\x12", "\t", "\x1b\r"
PROMPT = r"(?m)^>\s*$"
PASTE = "\x1b[200~{}\x1b[201~"


class _Screen(pyte.HistoryScreen):
    """A screen that answers when the program asks where the cursor is."""

    def __init__(self, columns: int, lines: int, fd: int) -> None:
        super().__init__(columns, lines, history=1_000, ratio=0.5)
        self._fd = fd

    def write_process_input(self, data: str) -> None:
        os.write(self._fd, data.encode())


class ScreenTerminal(Terminal):
    """A person at a terminal that can move the cursor."""

    def __init__(
        self, arguments: list[str], environment: dict[str, str], *, columns: int = 80, lines: int = 24
    ) -> None:
        kept = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}
        super().__init__(arguments, {**kept, "TERM": "xterm-256color"})
        self._view = _Screen(columns, lines, self.fd)
        self._stream = pyte.ByteStream(self._view)
        self._code: int | None = None
        self.output = b""
        """All that the program has written."""
        self._set_size(columns, lines)

    def resize(self, columns: int, lines: int) -> None:
        self._view.resize(lines, columns)
        self._set_size(columns, lines)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read_screen(self) -> str:
        """Return what is on the screen, and above it what has left it."""
        above = ["".join(row[x].data for x in range(self._view.columns)) for row in self._view.history.top]
        return "\n".join(line.rstrip() for line in (*above, *self._view.display))

    def wait_for(self, pattern: str, seconds: float = 60, *, press: str = "", after: str = "") -> None:
        """Wait until the pattern is on the screen, and below the last place of the text `after`."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.read_screen().rpartition(after)[2] if after else self.read_screen()):
            assert time.monotonic() < end, f"{pattern!r} did not show: {self.read_screen()!r}"
            assert self._feed(), f"{pattern!r} did not show before the end:\n{self.read_screen()}"

    def send(self, text: str, answer: str = "") -> None:
        """Write a line, press Enter, and wait for an answer and the next prompt below the line."""
        self.type(text + ENTER)
        self.wait_for(rf"{answer}(?s:.*)\n>\s*(\n|$)", after=f"> {text}\n" if text else "")

    def leave(self) -> int:
        """Leave with Ctrl-D at an empty prompt, and return the exit code."""
        self.type(CTRL_D)
        while self._feed():
            pass
        return self.end()

    def end(self) -> int:
        """Close the terminal, which ends the program, and return its exit code."""
        if self._code is None:
            self.close()
            self._code = self.exit_code()
        return self._code

    def _feed(self) -> bool:
        """Read what there is. Return False at the end of the program."""
        if not select.select([self.fd], [], [], 0.1)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.output += data
        self._stream.feed(data)
        return bool(data)
