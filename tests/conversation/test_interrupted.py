"""Ctrl-C in a turn that is stored: the next one works, nothing is lost, and nothing is there twice."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

import longtalk
from longtalk import Archive, Conversation
from longtalk.policies import Memory
from longtalk.stores.base import BranchHead, Commit, Store
from longtalk.stores.in_memory import InMemory
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import Scripted, says, validate
from longtalk.testing.interrupts import Interrupts


def look(what: str) -> str:
    return f"{what} was found"


def talk(store: Store, provider: Scripted, name: str = "c") -> Conversation:
    return Conversation(name, model=provider, store=store, policy=Memory(), tools=[look])


def calling() -> Scripted:
    return Scripted(says(calls=[("c", "look", {"what": "It"})]), says("Two."))


class Late(InMemory):
    """Does a commit, and is interrupted before it can say so."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        head = super().write(owner, conversation, commit)
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
        return head


@pytest.mark.parametrize("commits", [1, 2, 3, 4])
def test_a_commit_whose_answer_is_lost_is_not_made_again(commits: int) -> None:
    store = Late()
    held = talk(store, calling())
    store.left = commits
    with pytest.raises(KeyboardInterrupt):
        held.send("One?")
    store.left = 0
    said = [each.role for each in held.history()]
    whole = ["user", "assistant", "tool", "assistant"]
    assert said == whole[: len(said)]
    assert held.branches() == ["main"]
    turns = store.turns(held.owner, held.id, "main", 0, 9)
    assert [turn.status for _, turn in turns] == ["complete" if said == whole else "interrupted"]


def test_a_turn_that_was_done_before_its_interruption_is_told_again_by_its_key() -> None:
    store = Late()
    store.left = 4
    with pytest.raises(KeyboardInterrupt):
        talk(store, calling()).send("One?", key="k")
    assert talk(store, Scripted()).send("One?", key="k").text == "Two."


@pytest.mark.slow
def test_ctrl_c_anywhere_in_a_turn_loses_nothing_and_blocks_no_later_turn(tmp_path: Path) -> None:
    package = Path(longtalk.__file__).parent
    struck, stopped = Interrupts(*(path for path in package.iterdir() if path.name != "testing")), True
    with closing(SQLite(tmp_path / "talks.db")) as store:
        while stopped:
            name = f"talk {len(struck.points)}"
            talk(store, Scripted(says("One.")), name).send("first")
            held = talk(store, calling(), name)
            stopped = struck.during(lambda: held.send("second"))  # noqa: B023
            where = struck.points[-1:]
            goes_on(store, name, str(where))
    assert len(struck.points) > 500


def goes_on(store: Store, name: str, where: str) -> None:
    """Check that the next turn is answered, and that each message is there once."""
    provider = Scripted(says("Three."))
    held = talk(store, provider, name)
    held.send("third")
    validate(provider.requests[-1], wire="openai-chat")
    said = [each.text for each in held.history() if each.role == "user"]
    assert said in (["first", "third"], ["first", "second", "third"]), where
    assert held.branches() == ["main"], where
    Archive(store).verify(name)
