"""Fixtures and settings for all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from longtalk.stores.base import Store
from longtalk.stores.in_memory import InMemory
from longtalk.stores.jsonl.store import JSONL
from longtalk.stores.sqlite.store import SQLite
from tests.support import properties
from tests.support.fake_agents import Agents, install_agents
from tests.support.loopback import Loopback
from tests.support.matrix import STORES

# `make test-all` loads the thorough profile with --hypothesis-profile. In CI the examples depend only on the test,
# as in Hypothesis's own CI profile, so that chance does not fail a check. Elsewhere each run draws new examples.
for profile, count in {"quick": properties.QUICK, "thorough": properties.THOROUGH}.items():
    settings.register_profile(
        profile,
        max_examples=count,
        deadline=None,
        derandomize="CI" in os.environ,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("quick")

# Tests must not use keys and addresses from the environment of the user who runs them.
for name in list(os.environ):
    if name.endswith(("_API_KEY", "_BASE_URL")) or name.lower().endswith("_proxy"):
        del os.environ[name]

# The smallest local model is enough for tests.
os.environ["LONGTALK_LOCAL"] = "135m"

# Nor may they read this user's models file.
os.environ.pop("LONGTALK_MODELS", None)
os.environ["XDG_CONFIG_HOME"] = os.path.join(os.path.dirname(__file__), "no-such-folder")

# A program that was started in the background may ignore Ctrl-C, and so would the programs that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TWINS = Path(__file__).parent / "_sync"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the generated sync twins and the rest of each matrix as slow, and deselect the rest in twins.

    `make test` runs the async tests from which the twins are generated.
    """
    selected, deselected = [], []
    for item in items:
        twin, rest = item.path.is_relative_to(TWINS), item.get_closest_marker("rest") is not None
        if twin or rest:
            item.add_marker(pytest.mark.slow)
        (deselected if twin and rest else selected).append(item)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = selected


def pytest_collection_finish() -> None:
    """Keep modules and collected tests out of garbage collection, which would look at them again and again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say that skipped tests fail the run, where they do."""
    if "FORBID_SKIPS" in os.environ and terminalreporter.stats.get("skipped"):
        terminalreporter.write_line("Some tests were skipped; with FORBID_SKIPS, none may be.", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that skipped tests if FORBID_SKIPS is set, as it is in CI."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if "FORBID_SKIPS" in os.environ and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    with Loopback() as server:
        yield server


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Provide a store, for tests of the layers above stores."""
    stores: dict[str, Callable[[], Store]] = {
        "memory": InMemory,
        "jsonl": lambda: JSONL(tmp_path / "talks"),
        "sqlite": lambda: SQLite(tmp_path / "talks.db"),
    }
    store = stores[request.param]()
    yield store
    store.close()


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agents]:
    """Install fake agent programs on PATH, with a home folder of their own."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the fake agents are watched through /proc")
    agents = install_agents(tmp_path, monkeypatch)
    yield agents
    agents.kill_all()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make retries wait almost no time."""
    monkeypatch.setattr("longtalk.turn.model_calls.FIRST_WAIT", 0.001)
    monkeypatch.setattr("longtalk._sync.turn.model_calls.FIRST_WAIT", 0.001)
