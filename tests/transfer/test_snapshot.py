"""Reading a stored conversation whole: each entry is read about once, however its branches share it."""

from __future__ import annotations

from typing import Any

import pytest

from longtalk import Conversation
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted, says
from longtalk.transcript.pack import Pack
from longtalk.transfer.snapshot import read_snapshot


class Counting(InMemory):
    """A store that counts the entries that are read from it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def read(self, *arguments: Any) -> Pack:
        pack = super().read(*arguments)
        self.count += len(list(pack.entries()))
        return pack


def fork_at_each_message(turns: int) -> Counting:
    store = Counting()
    talk = Conversation("a", model=Scripted(*[says("Yes.")] * turns), store=store)
    for i in range(turns):
        talk.send(f"{i}")
        talk.fork(name=f"b{i}")
    store.count = 0
    return store


@pytest.mark.parametrize("turns", [20, 80])
def test_a_tree_that_forks_at_each_message_is_read_in_almost_linear_time(turns: int) -> None:
    store = fork_at_each_message(turns)
    found = read_snapshot(store, "", "a")
    assert found is not None
    assert store.count < 2 * turns * (turns.bit_length() + 3)


def test_branches_that_share_entries_are_read_as_if_each_was_read_alone() -> None:
    store = fork_at_each_message(5)
    for name in ("b1", "b3"):
        talk = Conversation("a", model=Scripted(says("Other.")), store=store, branch=name)
        talk.send("Also.", meta={"on": name})
    found = read_snapshot(store, "", "a")
    assert found is not None
    for head in store.branches("", "a"):
        whole = "", "a", head.branch, 0, head.size
        path = found.paths[head.branch]
        assert path.entries == tuple(store.read(*whole).entries())
        assert list(path.turns) == [turn for _, turn in store.turns(*whole)]
        assert path.metas == store.metas(*whole)
        assert set(store.manifests(*whole).items()) <= set(found.manifests.items())
