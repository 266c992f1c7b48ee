"""A clock on the terminal while nothing else is shown."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from longtalk.cli.output import can_move_cursor

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


@contextlib.contextmanager
def show_clock() -> Iterator[Callable[[], None]]:
    """Show the seconds on standard error until the block ends or calls the function that it gets.

    This is for terminals only, and begins after a second.
    """
    if not (sys.stdout.isatty() and sys.stderr.isatty() and can_move_cursor()):
        yield lambda: None
        return
    ended, began = threading.Event(), time.monotonic()

    def draw() -> None:
        wait, number = 1.0, 0
        while not ended.wait(wait):
            wait, number = 0.2, number + 1
            frame = _FRAMES[number % len(_FRAMES)]
            print(f"\r{frame} {time.monotonic() - began:.0f} s", end="", file=sys.stderr, flush=True)
        if number:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    drawing = threading.Thread(target=draw, daemon=True)
    drawing.start()

    def end() -> None:
        ended.set()
        drawing.join()

    try:
        yield end
    finally:
        end()
