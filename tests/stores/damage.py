"""Damage to stored data: conversations that use everything a store keeps, and a check of what a damage leads to.

The promise: every damage is reported by `verify`, or leads to an error of Longtalk's own, or changes nothing that the
store returns.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from longtalk.errors import LongtalkError
from longtalk.memory.recall.protocol import SearchTerm
from longtalk.stores.base import MAIN, Holder, KeyedRequest, Lease, Store
from longtalk.testing.stores.harness import ConversationDriver

OWNER = "ada"
TALKS = ("talk", "other")
Reads = dict[tuple[str, str], Any]
"""What each call returned, by conversation and call. The calls that concern all conversations are under ``""``."""


def fill(store: Store, *, size: int = 9_000, turns: int = 18) -> None:
    """Write two conversations that have everything a store keeps, and long messages of `size` characters."""
    for name in TALKS:
        talk = ConversationDriver(store, OWNER, name)
        talk.say("Hello, I am Ada.", "Hello, Ada!", meta={"title": "Bögen"}, entry_meta={0: {"screen": 3}})
        for number in range(turns if name == "talk" else 2):
            text = f"word{number} " + "x" * (size if number % 2 else 20)
            request = KeyedRequest(f"key {number}", f"digest {number}")
            talk.say(text, f"Answer {number}.", request=request, manifest=b'{"runs":[%d]}' % number)
            kind = ("anchor", "brief", "summary", "epoch")[number % 4]
            talk.write(records=(talk.make_record(kind, f'{{"n":{number}}}', number),))
        talk.say("And here?", "It forks.", branch="fork", source=(MAIN, 3))
        talk.write("fork", records=(talk.make_record("brief", '{"n":"fork"}', 2, branch="fork"),))
        talk.say("Cut.", branch="cut", source=(MAIN, 4))
        talk.say("Shorter.", branch="cut", cut=3)
        unfinished = talk.make_turn(talk.find_parent(), "And now?", status="running")
        lease = Lease(Holder("host", "boot", 7, 8), 1_900_000_000_000, talk.head().token + 1)
        talk.write(**unfinished, lease=lease)
    search(store)


def search(store: Store) -> list[Any]:
    """Return what searches find, so that a store that indexes words has done so."""
    hits = store.candidates(OWNER, ["word3"], 5)
    return [hits, store.matches(OWNER, "talk", MAIN, [SearchTerm(("word3",), ())], 5)]


def read_all(store: Store, *, searches: bool = True) -> Reads:
    """Return what the store returns on each call that reads; a call that raises an error has the error's class."""
    calls: dict[tuple[str, str], Callable[[], Any]] = {
        ("", "conversations"): lambda: store.conversations(OWNER),
        ("", "nowhere"): lambda: store.info(OWNER, "nowhere"),
    }
    if searches:
        calls["", "search"] = lambda: search(store)
    for name in TALKS:
        calls |= {(name, label): call for label, call in _list_calls(store, name)}
    return {key: _run(call) for key, call in calls.items()}


def _list_calls(store: Store, name: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "info", lambda: store.info(OWNER, name)
    yield "branches", lambda: store.branches(OWNER, name)
    yield "keyed turns", lambda: store.keyed_turns(OWNER, name)
    yield "keyed turn", lambda: store.keyed_turn(OWNER, name, "key 1")
    for branch in (MAIN, "fork", "cut"):
        at = (OWNER, name, branch)
        yield f"head of {branch}", lambda at=at: store.head(*at)
        yield f"entries of {branch}", lambda at=at: store.read(*at, 0, 1000).entries()
        yield f"some of {branch}", lambda at=at: store.pick(*at, [(1, 3), (4, 5)])
        yield f"turns of {branch}", lambda at=at: store.turns(*at, 0, 1000)
        yield f"manifests of {branch}", lambda at=at: store.manifests(*at, 0, 1000)
        yield f"records of {branch}", lambda at=at: store.records(*at)
        yield f"metas of {branch}", lambda at=at: store.metas(*at, 0, 1000)


def _run(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except LongtalkError as problem:
        return type(problem)


def check(before: Reads, store: Store, what: str, *, searches: bool = True) -> bool:
    """Assert that `verify` reports each conversation that reads differently now. Return whether it reported any."""
    reports = {name: _run(lambda name=name: store.verify(OWNER, name)) for name in TALKS}  # type: ignore[misc]
    after = read_all(store, searches=searches)
    for (name, label), value in before.items():
        now = after.get((name, label), value)
        if now != value and not (isinstance(now, type) and issubclass(now, LongtalkError)):
            reported = reports[name] if name else [*reports.values()] != [[], []]
            assert reported, f"{what}: {label} of {name!r} has changed, and verify reports nothing"
    return any(reports.values())


def damage_value(draw: random.Random, value: Any) -> Any:
    """Return a value of the same type that differs in one byte."""
    if isinstance(value, int):
        return value ^ 1 << draw.choice((*range(12), draw.randrange(62)))
    if isinstance(value, str):
        return damage_value(draw, value.encode()).decode("latin-1")
    if not value:
        return b"x"
    i = draw.randrange(len(value))
    return value[:i] + bytes((value[i] ^ 1 << draw.randrange(8),)) + value[i + 1 :]
