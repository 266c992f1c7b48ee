"""Test the random driver: it plays the same steps again, and it notices broken promises."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from longtalk.stores.in_memory import InMemory
from longtalk.transcript.pack import Pack
from tests.soak.__main__ import play
from tests.soak.world import Broken, World


def play_world(folder: Path, seed: int, steps: int) -> list[str]:
    """Play a world, and return its steps without the random names of branches."""
    folder.mkdir()
    with ExitStack() as stack:
        world = World(seed, ("memory", "memory"), folder, stack)
        play(world, steps)
        return [re.sub(r"[-~](?:[a-z0-9]{6,12}|[a-z0-9]{3}[2-9])\b", "-…", line) for line in world.story]


@pytest.mark.slow
def test_a_seed_plays_the_same_steps_again(tmp_path: Path) -> None:
    assert play_world(tmp_path / "one", 3, 12) == play_world(tmp_path / "two", 3, 12)


def test_a_store_that_loses_an_entry_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = InMemory.read

    def read_less(self: InMemory, owner: str, conversation: str, branch: str, start: int, stop: int) -> Pack:
        return read(self, owner, conversation, branch, start, min(stop, 3))

    monkeypatch.setattr(InMemory, "read", read_less)
    with pytest.raises(Broken):
        play_world(tmp_path / "world", 3, 40)


def test_a_store_that_shows_another_owners_conversation_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversations = InMemory.conversations

    def list_for_anyone(self: InMemory, owner: str, **arguments: Any) -> Any:
        return [info for each in ("ada", "bob", "") for info in conversations(self, each, **arguments)]

    monkeypatch.setattr(InMemory, "conversations", list_for_anyone)
    with pytest.raises(Broken, match="sees"):
        play_world(tmp_path / "world", 3, 40)
