"""What all tests share."""

from __future__ import annotations

import os
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
from tests.support.fake_agents import Agents, installed
from tests.support.loopback import Loopback
from tests.support.matrix import STORES

# `make test-all` loads the other one with --hypothesis-profile. In CI the examples depend on the test alone, as in
# Hypothesis's own CI profile: chance must not decide whether a change lands. Elsewhere each run draws new ones.
for profile, count in {"quick": properties.QUICK, "thorough": properties.THOROUGH}.items():
    settings.register_profile(
        profile,
        max_examples=count,
        deadline=None,
        derandomize="CI" in os.environ,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("quick")

# Keys and addresses of the machine's owner are none of the tests' business.
for name in list(os.environ):
    if name.endswith(("_API_KEY", "_BASE_URL")) or name.lower().endswith("_proxy"):
        del os.environ[name]

# Nor is what they have written about models.
os.environ.pop("LONGTALK_MODELS", None)
os.environ["XDG_CONFIG_HOME"] = os.path.join(os.path.dirname(__file__), "no-such-folder")


TWINS = Path(__file__).parent / "_sync"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the generated sync twins and the rest of each matrix as slow; leave out the rest where it meets a twin.

    `make test` covers the async tests that the twins are made from.
    """
    left_out = []
    for item in items:
        twin, rest = item.path.is_relative_to(TWINS), item.get_closest_marker("rest") is not None
        if twin or rest:
            item.add_marker(pytest.mark.slow)
        if twin and rest:
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    with Loopback() as server:
        yield server


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store for tests of what is built on stores."""
    stores: dict[str, Callable[[], Store]] = {
        "memory": InMemory,
        "jsonl": lambda: JSONL(tmp_path / "talks"),
        "sqlite": lambda: SQLite(tmp_path / "talks.db"),
    }
    made = stores[request.param]()
    yield made
    made.close()


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agents]:
    """Programs in place of the real agents, and a home for them."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the programs in place of agents are looked after in /proc")
    agents = installed(tmp_path, monkeypatch)
    yield agents
    agents.end()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries in tests don't wait."""
    monkeypatch.setattr("longtalk.turn.runner.FIRST_WAIT", 0.001)
    monkeypatch.setattr("longtalk._sync.turn.runner.FIRST_WAIT", 0.001)
