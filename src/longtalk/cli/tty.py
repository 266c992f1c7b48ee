"""What a terminal does with keys while the program does something else."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def keep_keys() -> Iterator[None]:
    """Keep keys as they are pressed for the next prompt, and don't show them meanwhile. Ctrl-C still works."""
    with _change(reads_lines=False):
        yield


def read_typed() -> str:
    """Return what was typed so far and not yet read. Keys must be kept as they are pressed meanwhile."""
    import select

    typed = b""
    while select.select([sys.stdin], [], [], 0)[0] and (data := os.read(sys.stdin.fileno(), 4096)):
        typed += data
    return typed.decode("utf-8", "replace")


@contextlib.contextmanager
def read_lines() -> Iterator[None]:
    """Let the terminal edit lines, for a question that is read as a line."""
    with _change(reads_lines=True):
        yield


@contextlib.contextmanager
def _change(*, reads_lines: bool) -> Iterator[None]:
    try:
        import termios
    except ImportError:
        # Windows keeps keys by itself.
        yield
        return
    fd = sys.stdin.fileno()
    before, changed = termios.tcgetattr(fd), termios.tcgetattr(fd)
    for index, flags in ((0, termios.ICRNL), (3, termios.ECHO | termios.ICANON)):
        changed[index] = changed[index] | flags if reads_lines else changed[index] & ~flags
    termios.tcsetattr(fd, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)
