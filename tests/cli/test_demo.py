"""`longtalk demo` shows what memory does, at any width, and ends when it is told to."""

from __future__ import annotations

import pytest

from longtalk.cli.demo import list_lines
from tests.cli.helpers import Terminal, longtalk


def test_a_pipe_gets_plain_text_that_ends_with_what_to_type_next(environment: dict[str, str]) -> None:
    done = longtalk("demo", environment=environment)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "brief: " in done.stdout
    assert "recalled from " in done.stdout
    assert "with Memory()" in done.stdout
    assert "longtalk chat --policy" in done.stdout.splitlines()[-3]


@pytest.mark.parametrize("width", [59, 79])
def test_no_line_is_longer_than_the_terminal_is_wide(width: int) -> None:
    assert max(len(line.text) for line in list_lines(width)) <= width


def test_a_terminal_gets_colours(environment: dict[str, str]) -> None:
    terminal = Terminal(["demo", "--fast"], {**environment, "TERM": "xterm"})
    assert "\x1b[1m" in terminal.rest()
    assert terminal.exit_code() == 0
    terminal.close()


def test_no_color_is_respected_on_a_terminal(environment: dict[str, str]) -> None:
    terminal = Terminal(["demo", "--fast"], {**environment, "TERM": "xterm", "NO_COLOR": "1"})
    assert "\x1b" not in terminal.rest()
    terminal.close()


def test_control_c_ends_it_without_a_traceback(environment: dict[str, str]) -> None:
    terminal = Terminal(["demo"], {**environment, "TERM": "xterm"})
    terminal.wait_for("Ada learns")
    terminal.type("\x03")
    assert "Traceback" not in terminal.rest()
    assert terminal.exit_code() == 130
    terminal.close()
