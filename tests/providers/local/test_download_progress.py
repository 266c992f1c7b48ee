"""The progress of a download fits into a line, and is shown also while nothing arrives."""

from __future__ import annotations

import re
import time

import pytest

from longtalk.providers.local.download_progress import Progress, show_progress


def test_a_line_has_the_rate_the_time_left_and_a_bar() -> None:
    progress = Progress("Model", 1_000_000_000, 0)
    progress._began -= 10
    progress.measure = lambda: 200_000_000
    line = progress.render(80)
    assert line.startswith("Model: 200 of 1,000 MB, 20.0 MB/s, 40 s left ━━━━━━─")
    assert len(line) < 80


@pytest.mark.parametrize("columns", [20, 48, 60, 80, 200])
def test_a_line_is_never_as_wide_as_the_terminal(columns: int) -> None:
    progress = Progress("Qwen2.5-Coder-1.5B", 1_117_320_768, 0)
    progress.measure = lambda: 1_000_000_000
    assert len(progress.render(columns)) < columns


def test_what_was_there_before_does_not_count_towards_the_rate() -> None:
    progress = Progress("Model", 1_000_000_000, 900_000_000)
    progress._began -= 10
    assert progress.render() == "Model: 900 of 1,000 MB, 10 s"
    progress.measure = lambda: 910_000_000
    assert "1.0 MB/s, 90 s left" in progress.render()


def test_in_a_pipe_a_line_comes_every_two_seconds_though_nothing_arrives(capfd: pytest.CaptureFixture[str]) -> None:
    with show_progress("Model", 1_000_000):
        time.sleep(1.8)
    assert re.fullmatch(r"Model: 0 of 1 MB, \d s\n", capfd.readouterr().err)
