"""One branch of a conversation is deleted, and the others keep all they had, in every store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from longtalk import Archive, Conversation, InputError
from longtalk.errors import Busy, NotFound, StoreError
from longtalk.stores.base import BranchHead, Commit, Store
from longtalk.stores.in_memory import InMemory
from longtalk.stores.jsonl.store import JSONL
from longtalk.stores.redis.store import Redis
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import Scripted, says
from longtalk.transcript.transcript import new_id, now
from tests.support import postgres_server, redis_server


@pytest.fixture(params=["memory", "jsonl", "sqlite", "postgres", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    makers: dict[str, Callable[[], Store]] = {
        "memory": InMemory,
        "jsonl": lambda: JSONL(tmp_path / "talks"),
        "sqlite": lambda: SQLite(tmp_path / "talks.db"),
        "postgres": lambda: postgres_server.open_at(tmp_path / "server"),
        "redis": lambda: Redis(redis_server.single().url, prefix=new_id()),
    }
    with closing(makers[request.param]()) as made:
        yield made


def fill(store: Store) -> Conversation:
    """Return a conversation with the branches main, aside and deeper, which forks from aside."""
    main = Conversation("c", model=Scripted(*map(says, "abcd")), store=store)
    first = main.send("one", key="k1")
    main.send("two")
    aside = main.fork(first.turn_id, name="aside")
    aside.send("beside", key="k2")
    aside.fork(name="deeper").send("below", key="k3")
    Archive(store).set_metadata("c", {"topic": "bows"})
    return Conversation("c", model=Scripted(says("x"), says("y")), store=store)


def texts(store: Store, branch: str) -> list[str]:
    return [each.text for each in Archive(store).history("c", branch=branch)]


def test_what_other_branches_share_stays(store: Store) -> None:
    main = fill(store)
    main.send("three")
    archive, before = Archive(store), {name: texts(store, name) for name in ("main", "deeper")}
    receipt = archive.delete_branch("c", "aside")
    assert (receipt.entries, receipt.turns, receipt.branches) == (0, 0, 1)
    assert {head.branch for head in store.branches("", "c")} == {"main", "deeper"}
    assert {name: texts(store, name) for name in before} == before
    assert [each.id for each in archive.conversations()] == ["c"]
    assert archive.conversations()[0].meta == {"topic": "bows"}
    # The key of a turn that was made on the deleted branch is known where it is shared.
    assert main.send("beside", key="k2").text == "c"
    assert store.verify("", "c") == []


def test_what_only_the_branch_has_is_erased(store: Store) -> None:
    main = fill(store)
    main.send("three")
    archive = Archive(store)
    receipt = archive.delete_branch("c", "deeper")
    assert (receipt.entries, receipt.turns) == (2, 1)
    assert archive.search("below") == []
    assert [hit.text for hit in archive.search("beside")] == ["beside"]
    assert store.keyed_turn("", "c", "k3") is None
    assert main.send("four").text == "y"


@pytest.mark.parametrize(("branch", "error"), [("main", InputError), ("deeper", InputError), ("nosuch", NotFound)])
def test_a_branch_in_use_is_refused(branch: str, error: Any) -> None:
    store = InMemory()
    fill(store)
    # Of branches that changed in the same millisecond, the one with the most commits is in use.
    below = Conversation("c", branch="deeper", model=Scripted(says("p"), says("q")), store=store)
    below.send("further")
    below.send("down")
    with pytest.raises(error):
        Archive(store).delete_branch("c", branch)
    assert len(store.branches("", "c")) == 3


def test_while_a_turn_is_running_nothing_is_deleted() -> None:
    store = InMemory()
    stream = fill(store).stream("three")
    next(iter(stream))
    with pytest.raises(Busy):
        Archive(store).delete_branch("c", "aside")
    stream.close()
    assert len(store.branches("", "c")) == 3


def test_what_is_written_meanwhile_is_kept() -> None:
    class Faster(InMemory):
        did = False

        def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
            if not self.did and commit.lease is not None and commit.meta is not None and commit.branch == "main":
                self.did = True
                head = self.head(owner, conversation)
                assert head is not None
                super().write(owner, conversation, Commit(expect=head.revision, at=now()))
            return super().write(owner, conversation, commit)

    store = Faster()
    fill(store).send("three")
    Archive(store).delete_branch("c", "aside")
    assert store.did
    assert texts(store, "main")[-2:] == ["three", "x"]
    assert [(each.id, each.meta) for each in Archive(store).conversations()] == [("c", {"topic": "bows"})]


def test_if_the_store_fails_in_between_a_whole_copy_is_there() -> None:
    class Failing(InMemory):
        failing = False

        def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
            if self.failing:
                raise StoreError("away")
            return super().write(owner, conversation, commit)

        def delete(self, owner: str, conversation: str) -> Any:
            self.failing = True
            return super().delete(owner, conversation)

    store = Failing()
    fill(store).send("three")
    with pytest.raises(StoreError):
        Archive(store).delete_branch("c", "aside")
    [kept] = Archive(store).conversations()
    assert set(kept.branches) == {"main", "aside", "deeper"}
    assert kept.id.startswith("c (while a branch is deleted")
