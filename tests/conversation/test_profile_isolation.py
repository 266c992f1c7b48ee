"""Two owners talk, fork, rewind, delete, redact, and make conversations private, in any order.

No request and no profile contains what the other owner said, or a line all of whose sources are gone.
"""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from longtalk import Archive, Conversation, Memory, Recall
from longtalk.memory import Profile
from longtalk.stores.base import Store
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted, says
from tests.stores.test_many_writers import open_store, use_redis
from tests.support.card_model import asks_for_card
from tests.support.properties import examples

PROFILE = Memory(limit=0, recent=0, recall=0, outline=0, profile=Profile(budget=300))
RECALL = Memory(limit=0, recent=0, recall=Recall(300, gate=False, scope="owner"), outline=0)
BOTH = Memory(limit=0, recent=0, recall=Recall(300, gate=False, scope="owner"), outline=0, profile=Profile(budget=300))
OWNERS = ("ada", "ben")
NAMES = ("x", "y")
_WORD = re.compile(r"(?:ada|ben)[xy]\d+word")
_OPS = ("send", "send", "send", "send", "delete", "redact", "private", "public", "fork", "rewind", "revoke", "add")


class Noting(Scripted):
    """A model that notes whatever it can see about the user, also what it was told about them."""

    def _take_step(self, body: bytes) -> Any:
        self.requests.append(body)
        text, words = body.decode(), _WORD.findall(body.decode())
        likes = [f"likes {word}" for word in dict.fromkeys(words)]
        notes = json.dumps({"+about": likes, "+fact": likes})
        return says(f"All right.\n<MEMORY_CARD>{notes}</MEMORY_CARD>" if asks_for_card(text) else "All right.")


class World:
    """The conversations of two owners, and what each of them has said where."""

    def __init__(self, store: Store, policy: Memory) -> None:
        self.store = store
        self.policy = policy
        self.count = 0
        self.said: dict[str, tuple[str, str, str]] = {}
        """For each word: its owner, conversation and turn."""
        self.revoked: set[str] = set()
        self.apps: dict[str, str] = {}
        """The words that the app has added, with their owners."""

    def archive(self, owner: str) -> Archive:
        return Archive(self.store, owner=owner)

    def apply(self, op: str, owner: str, name: str, pick: int) -> None:
        archive, names = self.archive(owner), [each.id for each in self.archive(owner).conversations()]
        if op == "send":
            self.send(owner, name, pick)
        elif op == "add":
            self.count += 1
            word = f"{owner}x{self.count}word"
            archive.profile().add("about", f"likes {word}")
            self.apps[word] = owner
        elif op == "revoke":
            lines = archive.profile().lines()
            if lines:
                line = lines[pick % len(lines)]
                self.revoked.update(_WORD.findall(line.text))
                archive.profile().revoke(line.id)
        elif name in names and op == "delete":
            archive.delete(name)
        elif name in names and op in ("private", "public"):
            archive.set_private(name, op == "private")
        elif name in names:
            branches = archive.branches(name)
            branch = branches[pick % len(branches)]
            history = archive.history(name, branch=branch)
            if history:
                self.change_branch(op, owner, name, branch, history[pick % len(history)].id)

    def change_branch(self, op: str, owner: str, name: str, branch: str, entry: str) -> None:
        if op == "redact":
            self.archive(owner).redact(name, entry)
            return
        with self.open(owner, name, branch=branch) as talk:
            if op == "fork":
                talk.fork(entry)
            else:
                talk.rewind(entry)

    def open(self, owner: str, name: str, **more: Any) -> Conversation:
        return Conversation(name, model=Noting(), owner=owner, store=self.store, policy=self.policy, **more)

    def send(self, owner: str, name: str, pick: int) -> None:
        self.count += 1
        word = f"{owner}{name}{self.count}word"
        branches = [head.branch for head in self.store.branches(owner, name)] or ["main"]
        with self.open(owner, name, branch=branches[pick % len(branches)]) as talk:
            reply = talk.send(f"I like {word}")
            self.said[word] = (owner, name, reply.turn_id)
            provider: Any = talk._engine.provider
            self.check(owner, name, {*_WORD.findall(provider.requests[-1].decode())} - {word})

    def check(self, owner: str, name: str, words: set[str]) -> None:
        """Fail if a request of this conversation, or a profile if `name` is empty, may not have one of these words."""
        archive = self.archive(owner)
        known = {info.id for info in archive.conversations()}
        texts = {
            each: " ".join(
                entry.text for branch in archive.branches(each) for entry in archive.history(each, branch=branch)
            )
            for each in known
        }
        for word in words:
            if word in self.apps:
                assert self.apps[word] == owner
                assert word not in self.revoked
                assert not name or not archive.private(name)
                continue
            whose, where, _ = self.said[word]
            assert whose == owner, f"{owner} sees {word} of {whose}"
            assert where in known, f"{word} is deleted"
            assert word in texts[where], f"{word} is redacted"
            if where != name:
                assert not archive.private(where), f"{word} is private"
                # Revoking a line leaves the message that it came from, which recall may quote.
                assert (name and self.policy is not PROFILE) or word not in self.revoked, f"{word} is revoked"
                assert not name or not archive.private(name), f"{name} is private and uses {word}"

    def check_profiles(self) -> None:
        for owner in OWNERS:
            lines = self.archive(owner).profile().lines()
            self.check(owner, "", {word for line in lines for word in _WORD.findall(line.text)})


REDACTED_ON_A_BRANCH = [
    *[("send", "ada", "x", 0)] * 6,
    ("fork", "ada", "x", 0),
    ("send", "ada", "x", 1),
    ("send", "ada", "x", 0),
    ("redact", "ada", "x", 1),
]
"""One branch repeats a line that only the other one states, before its message is redacted there."""
QUOTED_BEFORE_IT_IS_DELETED = [
    ("send", "ada", "x", 0),
    ("revoke", "ada", "x", 0),
    ("send", "ada", "y", 0),
    ("delete", "ada", "x", 0),
]
"""One conversation quotes a message that has no line in the profile, before that message is deleted."""
operations = st.tuples(st.sampled_from(_OPS), st.sampled_from(OWNERS), st.sampled_from(NAMES), st.integers(0, 50))


@pytest.mark.parametrize("policy", [PROFILE, RECALL, BOTH], ids=["profile", "recall", "both"])
@examples(8, 100)
@given(ops=st.lists(operations, min_size=10, max_size=30))
@example(ops=REDACTED_ON_A_BRANCH)
@example(ops=QUOTED_BEFORE_IT_IS_DELETED)
def test_nothing_of_another_owner_or_of_a_source_that_is_gone_is_ever_sent(
    policy: Memory, ops: list[tuple[str, str, str, int]]
) -> None:
    play(World(InMemory(), policy), ops)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "postgres", "redis"])
def test_nothing_is_sent_from_a_source_that_is_gone_in_a_persistent_store(kind: str, tmp_path: Path) -> None:
    if kind == "redis":
        use_redis(tmp_path)
    with closing(open_store(kind, tmp_path / "talks.db")) as store:

        @examples(3, 40)
        @given(ops=st.lists(operations, min_size=10, max_size=30))
        def check(ops: list[tuple[str, str, str, int]]) -> None:
            play(World(store, BOTH), ops)
            for owner in OWNERS:
                for info in store.conversations(owner):
                    store.delete(owner, info.id)

        check()


def play(world: World, ops: list[tuple[str, str, str, int]]) -> None:
    """Apply operations, and check each request and the profiles after each of them."""
    for each in ops:
        world.apply(*each)
        world.check_profiles()
    # Each conversation is asked once more at the end.
    for owner in OWNERS:
        for info in world.archive(owner).conversations():
            world.send(owner, info.id, 0)
