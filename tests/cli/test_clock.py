"""A terminal shows that a program waits; a pipe gets nothing of it."""

from __future__ import annotations

import io
import time

import pytest

from longtalk.cli.clock import show_clock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_seconds_are_shown_and_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setattr("sys.stderr", screen)
    with show_clock() as end_clock:
        time.sleep(1.5)
        end_clock()
        shown = screen.getvalue()
        time.sleep(0.3)
    assert " 1 s" in shown
    assert (shown.endswith("\r\x1b[K"), screen.getvalue()) == (True, shown)


@pytest.mark.parametrize("terminal", ["dumb", "xterm"])
def test_pipes_and_terminals_of_plain_lines_get_no_clock(terminal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setattr("sys.stdout", Terminal() if terminal == "dumb" else io.StringIO())
    monkeypatch.setattr("sys.stderr", Terminal())
    with show_clock() as end_clock:
        assert end_clock() is None  # type: ignore[func-returns-value]
