"""A process that is killed at every step of a turn: what was acknowledged is there, and the next turn just works."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest

from longtalk.policies import KeepLast
from tests.stores.crashing import Case, run, run_again

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork"),
]

STORES = ["sqlite", "jsonl"]
WAYS = ["send", "stream", "async send", "async stream"]
QUICK = [
    Case("sqlite", "send", "message", idempotent=True),
    Case("sqlite", "async stream", "key", inside=False),
    Case("jsonl", "stream", "message"),
    Case("jsonl", "async send", "key", idempotent=True),
]
REDIS = [
    Case("redis", "send", "key"),
    Case("redis", "async stream", "message", idempotent=True, inside=False, policy=KeepLast(2), history=5),
    Case("redis", "send", "message", inside=False, history=0),
]
ALL = [
    Case(store, way, then, idempotent=idempotent, inside=store == "jsonl" or way in ("send", "async stream"))
    for store, way, then, idempotent in product(STORES, WAYS, ["key", "message"], [False, True])
]
FURTHER = [
    # A policy is in force, and most of what was said is not sent.
    *(
        Case(store, way, then, idempotent=then == "key", inside=False, policy=KeepLast(2), history=5)
        for store, way, then in product(STORES, ["stream", "async send"], ["key", "message"])
    ),
    *(
        Case(store, way, then, idempotent=way == "send", inside=False, wire="anthropic")
        for store, way, then in product(STORES, ["send", "async stream"], ["key", "message"])
    ),
    # The app tells something before the next message.
    *(
        Case(store, "stream", "note", idempotent=idempotent, inside=False)
        for store, idempotent in product(STORES, [False, True])
    ),
    # The conversation begins with this turn.
    *(Case(store, "send", then, history=0) for store, then in product(STORES, ["key", "message"])),
]
AGAIN = [
    Case(store, way, "key", idempotent=idempotent)
    for store, (way, idempotent) in product(STORES, [("send", False), ("async stream", True)])
]

# A server is another matter: what it was sent it may still do when who sent it is gone.
SERVED = [
    Case("postgres", "send", "message", idempotent=True),
    Case("postgres", "async stream", "key", inside=False),
]


def kills(case: Case, folder: Path) -> int:
    number, seen = run(case, folder)
    # Every state that a turn can be left in was met: with its message, its calls, each result, its answer.
    assert {len(roles) for roles in seen} == {0, 1, 2, 3, 4, 5}
    return number


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] if case.way != "send" else []) for case in QUICK],
    ids=lambda case: case.name,
)
def test_a_kill_at_any_step_loses_nothing_and_repeats_nothing(tmp_path: Path, case: Case) -> None:
    assert kills(case, tmp_path) > 20


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] if case.history else []) for case in REDIS],
    ids=lambda case: case.name,
)
def test_neither_does_it_on_a_server(tmp_path: Path, case: Case) -> None:
    assert kills(case, tmp_path) > 20


@pytest.mark.slow
def test_whatever_the_store_and_the_way_and_the_next_turn(tmp_path: Path) -> None:
    number = sum(kills(case, tmp_path / case.name) for case in ALL)
    print(f"{number} processes killed")
    assert number >= 500


@pytest.mark.slow
def test_under_a_policy_and_over_another_wire_and_behind_a_note_and_at_the_very_first(tmp_path: Path) -> None:
    for case in FURTHER:
        assert kills(case, tmp_path / case.name) > 20


@pytest.mark.slow
def test_who_goes_on_can_be_killed_at_any_step_too(tmp_path: Path) -> None:
    for case in (*AGAIN, Case("redis", "send", "key")):
        assert run_again(case, tmp_path / case.name) > 60


@pytest.mark.slow
@pytest.mark.parametrize("case", SERVED, ids=lambda case: case.name)
def test_who_is_killed_leaves_nothing_half_on_a_server(tmp_path: Path, case: Case) -> None:
    assert kills(case, tmp_path / "folder") > 20
