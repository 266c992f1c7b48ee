"""Show on standard error how much of a download is there, at which rate, and how long the rest takes."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_LEAST = 1 << 20
"""The first bytes come late and say nothing about the rate."""
_LONGEST_BAR = 30


class Progress:
    """The progress of one download. The program that downloads says with `measure` how many bytes are there."""

    def __init__(self, title: str, size: int, done: int) -> None:
        self.measure: Callable[[], int] = lambda: done
        self._title = title
        self._size = size
        self._start = done
        self._began = time.monotonic()

    def render(self, columns: int = 0) -> str:
        """Return one line of text, with a bar if it fits into so many columns."""
        done, elapsed = self.measure(), time.monotonic() - self._began
        text = f"{self._title}: {done / 1e6:,.0f} of {self._size / 1e6:,.0f} MB"
        if done - self._start >= _LEAST:
            rate = (done - self._start) / max(elapsed, 0.1)
            text += f", {rate / 1e6:.1f} MB/s, {max(0, self._size - done) / rate:.0f} s left"
        else:
            text += f", {elapsed:.0f} s"
        length = min(_LONGEST_BAR, columns - len(text) - 2)
        if length >= _LONGEST_BAR // 3:
            filled = min(length, round(length * done / self._size))
            text += f" {'━' * filled}{'─' * (length - filled)}"
        return text[: columns - 1] if columns else text


@contextmanager
def show_progress(title: str, size: int, done: int = 0) -> Iterator[Progress]:
    """Show the progress while the block runs: as one line that changes on a terminal, else as a line now and then."""
    progress, ended = Progress(title, size, done), threading.Event()
    out = sys.stderr
    terminal = out is not None and out.isatty()

    def write(text: str, end: str) -> None:
        # The reader of standard error may be gone.
        with suppress(OSError, ValueError):
            print(text, end=end, file=out, flush=True)

    def draw() -> None:
        while not ended.wait(0.2 if terminal else 1.5):
            if terminal:
                write(f"\r{progress.render(shutil.get_terminal_size().columns)}\x1b[K", "")
            else:
                write(progress.render(), "\n")

    drawing = threading.Thread(target=draw, daemon=True)
    if out is not None:
        drawing.start()
    try:
        yield progress
    finally:
        ended.set()
        if out is not None:
            drawing.join()
        if terminal:
            write("\r\x1b[K", "")


def measure_folder(folder: str) -> int:
    """Return the size of the files in a folder, which may change meanwhile."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.path.getsize(os.path.join(where, name))
    return total
