"""What all tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.fake_agents import Agents, installed
from tests.loopback import Loopback

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")

# Keys and addresses of the machine's owner are none of the tests' business.
for name in list(os.environ):
    if name.endswith(("_API_KEY", "_BASE_URL")) or name.lower().endswith("_proxy"):
        del os.environ[name]

# Nor is what they have written about models.
os.environ.pop("LONGTALK_MODELS", None)
os.environ["XDG_CONFIG_HOME"] = os.path.join(os.path.dirname(__file__), "no-such-folder")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    with Loopback() as server:
        yield server


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
    monkeypatch.setattr("longtalk.turn.FIRST_WAIT", 0.001)
    monkeypatch.setattr("longtalk._sync.turn.FIRST_WAIT", 0.001)
