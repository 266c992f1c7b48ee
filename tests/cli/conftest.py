"""What tests of commands share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import forked_program
from tests.support.matrix import thin


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a user who has nothing yet."""
    ours = ("_API_KEY", "_BASE_URL", "LONGTALK_STORE", "LONGTALK_OWNER")
    keep = {name: value for name, value in os.environ.items() if not name.endswith(ours)}
    ours_too = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    return {**keep, **ours_too, "TERM": "dumb"}


@pytest.fixture(scope="session", autouse=True)
def _end_program() -> Iterator[None]:
    """End the process that commands are copied from before the run ends, so that its coverage is counted."""
    yield
    forked_program.end()


@pytest.fixture(params=thin(["talks.db", "talks/"], "talks.db"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store can be made: a SQLite file, and a folder."""
    return f"{tmp_path}/{request.param}"


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()
