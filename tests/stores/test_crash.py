"""Kill a process at each step of a turn: everything acknowledged is stored, and the next turn works."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import pytest

from longtalk.policies import KeepLast
from tests.stores.crashing import Case, kill_at_each_step, kill_twice, prepare_process

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")

STORES = ["sqlite", "jsonl"]
WAYS = ["send", "stream", "async send", "async stream"]
QUICK = [
    Case("sqlite", "send", "message", idempotent=True),
    Case("sqlite", "async stream", "key", split_writes=False),
    Case("jsonl", "stream", "message"),
    Case("jsonl", "async send", "key", idempotent=True),
]
REDIS = [
    Case("redis", "send", "key"),
    Case("redis", "async stream", "message", idempotent=True, split_writes=False, policy=KeepLast(2), history=5),
    Case("redis", "send", "message", split_writes=False, history=0),
]
# Each store with each way to run a turn and each next turn. Whether the tools are idempotent alternates, because it
# affects only one step of the next turn, whatever the store and the way.
ALL = [
    Case(
        store,
        way,
        then,
        idempotent=number.bit_count() % 2 == 1,
        split_writes=store == "jsonl" or way in ("send", "async stream"),
    )
    for number, (way, store, then) in enumerate(product(WAYS, STORES, ["key", "message"]))
]
FURTHER = [
    # With a policy that leaves most of the conversation out of the request.
    *(
        Case(store, way, then, idempotent=then == "key", split_writes=False, policy=KeepLast(2), history=5)
        for store, (way, then) in product(STORES, [("stream", "key"), ("async send", "message")])
    ),
    *(
        Case(store, way, then, idempotent=way == "send", split_writes=False, wire="anthropic")
        for store, (way, then) in product(STORES, [("send", "message"), ("async stream", "key")])
    ),
    # With a note of the app before the next message.
    *(
        Case(store, "stream", "note", idempotent=idempotent, split_writes=False)
        for store, idempotent in product(STORES, [False, True])
    ),
    # With the first turn of a conversation.
    *(Case(store, "send", then, history=0) for store, then in product(STORES, ["key", "message"])),
]
AGAIN = [
    *(
        Case(store, way, "key", idempotent=idempotent)
        for store, (way, idempotent) in product(STORES, [("send", False), ("async stream", True)])
    ),
    Case("redis", "send", "key"),
]

# Separate, because a server may still execute a command after its client was killed.
SERVED = [
    Case("postgres", "send", "message", idempotent=True),
    Case("postgres", "async stream", "key", split_writes=False),
]


@pytest.fixture(scope="module")
def killer() -> Iterator[Executor]:
    """Provide a small process to fork from. The test process is large, and its forks would copy its page tables."""
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=prepare_process) as executor:
        yield executor


def count_kills(killer: Executor, case: Case, folder: Path) -> int:
    number, seen = killer.submit(kill_at_each_step, case, folder).result()
    # A turn was found in each possible state: nothing, its message, its calls, each result, its answer.
    assert {len(roles) for roles in seen} == {0, 1, 2, 3, 4, 5}
    return number


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] if case.way != "send" else []) for case in QUICK],
    ids=lambda case: case.name,
)
def test_a_kill_at_any_step_loses_nothing_and_repeats_nothing(tmp_path: Path, killer: Executor, case: Case) -> None:
    assert count_kills(killer, case, tmp_path / "folder") > 20


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] if case.history else []) for case in REDIS],
    ids=lambda case: case.name,
)
def test_a_kill_at_any_step_on_redis_loses_nothing_and_repeats_nothing(
    tmp_path: Path, killer: Executor, case: Case
) -> None:
    assert count_kills(killer, case, tmp_path / "folder") > 20


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_a_kill_at_any_step_with_each_store_way_and_next_turn(tmp_path: Path, killer: Executor, case: Case) -> None:
    # All cases together kill more than 500 processes: twelve of them have steps within a write.
    assert count_kills(killer, case, tmp_path / "folder") > (40 if case.split_writes else 20)


@pytest.mark.slow
@pytest.mark.parametrize("case", FURTHER, ids=lambda case: case.name)
def test_a_kill_at_any_step_with_a_policy_another_wire_a_note_and_a_first_turn(
    tmp_path: Path, killer: Executor, case: Case
) -> None:
    assert count_kills(killer, case, tmp_path / "folder") > 20


@pytest.mark.slow
@pytest.mark.parametrize("case", AGAIN, ids=lambda case: case.name)
def test_the_process_that_continues_can_be_killed_at_any_step_too(tmp_path: Path, killer: Executor, case: Case) -> None:
    assert killer.submit(kill_twice, case, tmp_path / "folder").result() > 60


@pytest.mark.slow
@pytest.mark.parametrize("case", SERVED, ids=lambda case: case.name)
def test_a_kill_at_any_step_on_postgres_loses_nothing_and_repeats_nothing(
    tmp_path: Path, killer: Executor, case: Case
) -> None:
    assert count_kills(killer, case, tmp_path / "folder") > 20
