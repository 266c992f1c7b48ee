"""A run in CI fails if a test was skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

HOOKS = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from tests.conftest import pytest_sessionfinish, pytest_terminal_summary
"""


@pytest.mark.parametrize(
    ("workers", "forbidden", "skipped"),
    [("-n0", True, True), ("-n1", True, True), ("-n0", True, False), ("-n0", False, True)],
)
def test_a_skipped_test_fails_a_run_that_forbids_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: str, forbidden: bool, skipped: bool
) -> None:
    monkeypatch.delenv("FORBID_SKIPS", raising=False)
    if forbidden:
        monkeypatch.setenv("FORBID_SKIPS", "1")
    pytester.makeconftest(HOOKS)
    pytester.makepyfile("import pytest\ndef test_it():" + (" pytest.skip('why')" if skipped else " pass"))
    done = pytester.runpytest_inprocess(workers)
    assert done.ret == (1 if forbidden and skipped else 0)
    assert ("Some tests were skipped" in done.stdout.str()) == (forbidden and skipped)
