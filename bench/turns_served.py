"""Turns on a store on a server: CPU time of the client, and round trips to the server.

    python -m bench.turns --store postgres
    python -m bench.turns --store redis

A round trip is one request to the server with its response. *Cold* opens the conversation again for each turn, *warm*
keeps the same object. The number of round trips is the highest of several turns, after some turns in which the client
prepares its statements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Protocol

from bench.turns import MESSAGES, ROUNDS, SIZES, Figure, fill_conversation, measure_cpu, open_conversation
from longtalk.policies import KeepAll, KeepLast, Policy
from longtalk.stores.base import Store

_WARM_UP_TURNS = 12
"""Turns before round trips are counted, in which the client prepares its statements."""
_POLICIES: dict[str, Policy] = {"last 20": KeepLast(20), "all": KeepAll()}


class CountingConnection(Protocol):
    """A connection to a server that counts round trips."""

    trips: int


Served = Callable[[], AbstractContextManager[tuple[Store, Store, CountingConnection]]]
"""Yields an empty store, the same store over a counting connection, and that connection."""


@contextmanager
def _postgres() -> Iterator[tuple[Store, Store, CountingConnection]]:
    from longtalk.stores.postgres.store import Postgres
    from tests.support.postgres_proxy import Proxy
    from tests.support.postgres_server import server

    schema = server().schema()
    with (
        closing(Postgres(server().url(), schema=schema)) as store,
        Proxy(server().folder) as proxy,
        closing(Postgres(proxy.url, schema=schema)) as counted,
    ):
        yield store, counted, proxy


@contextmanager
def _redis() -> Iterator[tuple[Store, Store, CountingConnection]]:
    from longtalk.stores.redis.store import Redis
    from tests.support.redis_server import Server

    with closing(Server()) as server, closing(Redis(server.url)) as store, closing(Redis(server.url)) as counted:
        yield store, counted, counted._client


SERVED: dict[str, Served] = {"postgres": _postgres, "redis": _redis}


def measure_one_turn(kind: str) -> list[Figure]:
    """Measure one more turn in conversations of several lengths."""
    best: dict[str, dict[int, float]] = {}
    trips: dict[str, dict[int, int]] = {}
    with SERVED[kind]() as (store, counted, connection):
        works: dict[tuple[str, int], tuple[Callable[[], object], Callable[[], object]]] = {}
        for turns in SIZES:
            for name, policy in _POLICIES.items():
                fill_conversation(store, f"{name} {turns}", turns)
                works |= {
                    (f"{name}, {how}", turns): (
                        _prepare_turn(store, f"{name} {turns}", policy, how),
                        _prepare_turn(counted, f"{name} {turns}", policy, how),
                    )
                    for how in ("cold", "warm")
                }
        for (name, turns), (work, counted_work) in works.items():
            for _ in range(_WARM_UP_TURNS):
                counted_work()
            trips.setdefault(name, {})[turns] = max(_count_trips(counted_work, connection) for _ in range(3))
            work()
        for _ in range(ROUNDS):
            for (name, turns), (work, counted_work) in works.items():
                # Another object has added a turn, so a warm one must catch up before it is measured.
                counted_work()
                work()
                held = best.setdefault(name, {})
                held[turns] = min(held.get(turns, math.inf), measure_cpu(work))
    print(f"One turn on a {kind} store: CPU of the client in microseconds, the least of many, by turns so far.\n")
    print(f"{'':28}" + "".join(f"{turns:>12,}" for turns in SIZES))
    for name, costs in best.items():
        print(f"{name:28}" + "".join(f"{1e6 * costs[turns]:12.0f}" for turns in SIZES))
    print("\nRound trips to the server.\n")
    for name, counts in trips.items():
        print(f"{name:28}" + "".join(f"{counts[turns]:>12}" for turns in SIZES))
    return [
        Figure("round trips of a warm turn", max(trips["last 20, warm"].values()), 2),
        Figure("round trips of a cold turn", max(trips["last 20, cold"].values()), 4),
        *(
            Figure(f"growth exponent of a bounded policy, {how}", _growth_exponent(best[f"last 20, {how}"]), 0.05)
            for how in ("warm", "cold")
        ),
    ]


def _growth_exponent(costs: dict[int, float]) -> float:
    return math.log(costs[SIZES[-1]] / costs[SIZES[0]]) / math.log(SIZES[-1] / SIZES[0])


def _prepare_turn(store: Store, name: str, policy: Policy, how: str) -> Callable[[], object]:
    if how == "cold":
        return lambda: open_conversation(store, name, policy).send(MESSAGES[1])
    talk = open_conversation(store, name, policy)
    return lambda: talk.send(MESSAGES[1])


def _count_trips(work: Callable[[], object], connection: CountingConnection) -> int:
    before = connection.trips
    work()
    return connection.trips - before
