"""Compare the PostgreSQL store with the store in memory, for random commits: both must store and refuse the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import strategies as st

from longtalk.memory.recall.protocol import SearchTerm
from longtalk.stores.base import (
    MAIN,
    BranchHead,
    Commit,
    HeadMoved,
    KeyedRequest,
    Lease,
    PlacedRecord,
    RequestKeyTaken,
    Store,
)
from longtalk.stores.in_memory import InMemory
from longtalk.stores.postgres.store import Postgres
from longtalk.testing.stores.harness import ME, WRITTEN_KINDS, ConversationDriver, make_message
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import Record, Turn, link_entries, new_id
from tests.support.postgres_server import server
from tests.support.properties import holds

STEPS = 24
SAID = ("lisbon", "porto river", "東京 city", "x")


STORE: list[Postgres] = []
"""The store of all examples. Each example has an owner of its own."""


@pytest.fixture(scope="module", autouse=True)
def store() -> Iterator[None]:
    STORE.append(server().store())
    yield
    STORE.pop().close()


class Drawn:
    """Random commits, most of which are valid for the current data."""

    def __init__(self, seed: int, model: ConversationDriver) -> None:
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
                fields["source_entry"] = self._id(source, size) if self.often(0.8) else "elsewhere-0"
        if size and self.often(0.2):
            fields["cut"] = size = self.draw.randint(0, size)
        parent = self._id(source, size) if head or "source" in fields else None
        roles = ["user", "assistant", "tool"]
        said = [
            make_message(self.draw.choice(SAID), role=self.draw.choice(roles), at=step)
            for _ in range(self.draw.randint(0, 3))
        ]
        fields["entries"] = link_entries(parent, f"t{step}", 0, said)
        return Commit(**fields, **self._beside(step, head, size, len(said)))

    def _id(self, branch: str, size: int) -> str | None:
        """Return the id of the last of the first `size` entries of a branch."""
        found = self.model.entries(branch, size - 1, size) if size else []
        return found[0].id if found else None

    def _beside(self, step: int, head: BranchHead | None, size: int, added: int) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if added and self.often(0.8):
            fields["turn"] = Turn(f"t{step}", "running", "m:x", step)
        elif head and head.turn and self.often(0.5):
            fields["turn"] = Turn(head.turn.id, "complete", "m:x", 1, usage=(b"{}",))
        if "turn" in fields and self.often(0.4):
            fields["request"] = KeyedRequest(self.draw.choice(["k1", "k2", f"k{step}"]), "body")
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

    def _record(self, step: int, size: int) -> PlacedRecord:
        kind = self.draw.choice([*WRITTEN_KINDS, "aside"])
        place = size - 1 if kind_of(kind).own_branch_only else self.draw.randint(-1, size - self.often(0.97))
        return PlacedRecord(Record(kind, "", step, b"%d" % step), place)


def outcome(store: Store, owner: str, commit: Commit) -> object:
    """Return the new head after a commit, or the reason why the commit was refused."""
    try:
        return store.write(owner, "talk", commit)
    except (HeadMoved, RequestKeyTaken, ValueError) as problem:
        return type(problem), getattr(problem, "head", None)


def seen(store: Store, owner: str) -> dict[str, Any]:
    """Return all data of the conversation, without details in which stores may differ."""
    talk = ConversationDriver(store, owner, "talk")
    found = talk.read_all("k1", "k2")
    # Revisions may differ: a store may increase those of more branches than have the redacted entry.
    found["heads"] = [(*_told(head), head.records) for head in found["heads"]]
    found["branches"] = [_told(head) for head in found["branches"]]
    # A keyed turn that is on several branches may be reported for any of them.
    found["asked"] = [asked and (asked.request, asked.turn) for asked in found["asked"]]
    for word in ("lisbon", "river", "東", "gone"):
        hits = store.candidates(owner, [word], 99)
        found[word] = sorted((hit.branch, hit.position, hit.entry, hit.text) for hit in hits)
        for head in store.branches(owner, "talk"):
            sought = [SearchTerm((word,)), SearchTerm((), (word[:2],)), SearchTerm(("porto river",))]
            found[f"{word} {head.branch}"] = store.matches(owner, "talk", head.branch, sought, 4)
    return found


def _told(head: BranchHead) -> tuple[Any, ...]:
    return head.branch, head.size, head.entry, head.token, head.lease, head.turn, head.created, head.updated


@holds(st.integers(0, 2**32), few=6, many=60)
def test_postgres_behaves_like_the_in_memory_store(seed: int) -> None:
    owner, model, store = f"owner-{new_id()}", InMemory(), STORE[0]
    drawn = Drawn(seed, ConversationDriver(model, owner, "talk"))
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
