"""Whatever is committed, a store in PostgreSQL holds what one in memory does, and refuses what that refuses."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import strategies as st

from longtalk.stores.base import ALONE, MAIN, Commit, Head, KeyTaken, Lease, Moved, Placed, Request, Sought, Store
from longtalk.stores.memory import Memory
from longtalk.stores.postgres import Postgres
from longtalk.testing.store_cases import KINDS, ME, Talk, message
from longtalk.transcript import Record, Turn, chain, new_id
from tests.postgres_server import server
from tests.properties import holds

STEPS = 24
SAID = ("lisbon", "porto river", "東京 city", "x")


STORE: list[Postgres] = []
"""One for all: each example has an owner of its own."""


@pytest.fixture(scope="module", autouse=True)
def store() -> Iterator[None]:
    STORE.append(server().store())
    yield
    STORE.pop().close()


class Drawn:
    """Commits that may make sense, drawn from what is there."""

    def __init__(self, seed: int, model: Talk) -> None:
        self.draw = random.Random(seed)
        self.model = model

    def often(self, share: float) -> bool:
        return self.draw.random() < share

    def commit(self, step: int) -> Commit:
        store, owner, id = self.model.store, self.model.owner, self.model.id  # noqa: A001
        branch = source = self.draw.choice([MAIN, "b", "c"])
        head = store.head(owner, id, branch)
        fields: dict[str, Any] = {"branch": branch, "at": 1_000 + step, "expect": head.revision if head else 0}
        fields["expect"] += self.often(0.05)
        size, names = head.size if head else 0, [each.branch for each in store.branches(owner, id)]
        if head is None and names and self.often(0.8):
            source = self.draw.choice(names)
            size = self.draw.randint(0, self.model.head(source).size + self.often(0.05))
            fields["source"] = (source, size)
            if self.often(0.3):
                fields["behind"] = self._id(source, size) if self.often(0.8) else "elsewhere-0"
        if size and self.often(0.2):
            fields["cut"] = size = self.draw.randint(0, size)
        parent = self._id(source, size) if head or "source" in fields else None
        roles = ["user", "assistant", "tool"]
        said = [
            message(self.draw.choice(SAID), role=self.draw.choice(roles), at=step)
            for _ in range(self.draw.randint(0, 3))
        ]
        fields["entries"] = chain(parent, f"t{step}", 0, said)
        return Commit(**fields, **self._beside(step, head, size, len(said)))

    def _id(self, branch: str, size: int) -> str | None:
        """The last of so many entries."""
        found = self.model.entries(branch, size - 1, size) if size else []
        return found[0].id if found else None

    def _beside(self, step: int, head: Head | None, size: int, added: int) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if added and self.often(0.8):
            fields["turn"] = Turn(f"t{step}", "running", "m:x", step)
        elif head and head.turn and self.often(0.5):
            fields["turn"] = Turn(head.turn.id, "complete", "m:x", 1, usage=(b"{}",))
        if "turn" in fields and self.often(0.4):
            fields["request"] = Request(self.draw.choice(["k1", "k2", f"k{step}"]), "body")
        if "turn" in fields and self.often(0.3):
            fields["manifest"] = b'{"tokens":%d}' % step
        if self.often(0.5):
            fields["records"] = tuple(self._record(step, size + added) for _ in range(self.draw.randint(1, 2)))
        if self.often(0.2):
            fields["lease"] = Lease(ME, 5, self.draw.randint(1, 5))
        if self.often(0.2):
            fields["meta"] = {"step": step}
        if added and self.often(0.3):
            fields["entry_meta"] = {self.draw.randrange(added): {"step": step}}
        return fields

    def _record(self, step: int, size: int) -> Placed:
        kind = self.draw.choice([*KINDS, "aside"])
        place = size - 1 if kind in ALONE else self.draw.randint(-1, size - self.often(0.97))
        return Placed(Record(kind, "", step, b"%d" % step), place)


def outcome(store: Store, owner: str, commit: Commit) -> object:
    """What comes of a commit, or why it is refused."""
    try:
        return store.write(owner, "talk", commit)
    except (Moved, KeyTaken, ValueError) as problem:
        return type(problem), getattr(problem, "head", None)


def seen(store: Store, owner: str) -> dict[str, Any]:
    """Everything, in the terms that stores have in common."""
    talk = Talk(store, owner, "talk")
    found = talk.all("k1", "k2")
    # A redaction gives another revision to the branches that have it, and may to others.
    found["heads"] = [(*_told(head), head.records) for head in found["heads"]]
    found["branches"] = [_told(head) for head in found["branches"]]
    # One that is on several branches may be told of any.
    found["asked"] = [asked and (asked.request, asked.turn) for asked in found["asked"]]
    for word in ("lisbon", "river", "東", "gone"):
        hits = store.candidates(owner, [word], 99)
        found[word] = sorted((hit.branch, hit.place, hit.entry, hit.text) for hit in hits)
        for head in store.branches(owner, "talk"):
            sought = [Sought((word,)), Sought((), (word[:2],)), Sought(("porto river",))]
            found[f"{word} {head.branch}"] = store.holding(owner, "talk", head.branch, sought, 4)
    return found


def _told(head: Head) -> tuple[Any, ...]:
    return head.branch, head.size, head.entry, head.token, head.lease, head.turn, head.created, head.updated


@holds(st.integers(0, 2**32), few=6, many=60)
def test_it_is_what_a_store_in_memory_is(seed: int) -> None:
    owner, model, store = f"owner-{new_id()}", Memory(), STORE[0]
    drawn = Drawn(seed, Talk(model, owner, "talk"))
    for step in range(STEPS):
        commit = drawn.commit(step)
        wanted, found = (outcome(each, owner, commit) for each in (model, store))
        assert found == wanted
        entries = [entry for head in model.branches(owner, "talk") for entry in drawn.model.entries(head.branch)]
        if entries and drawn.often(0.04):
            gone = drawn.draw.choice(entries).id
            for each in (model, store):
                assert each.redact(owner, "talk", gone, b'{"role":"user","content":"gone"}')
            break
    assert seen(store, owner) == seen(model, owner)
