"""The way to a Redis server, or to the nodes of a Redis Cluster.

A *batch* is a few commands on keys of one slot that go out together and whose answers are read together: one round
trip. It goes to the node that has the slot. When that node is gone, has handed the slot over, is starting or was made
a replica, the batch is sent again to whoever has the slot then, until it is answered or time is up. So a batch may be
done twice: whoever sends one has to be able to tell (`redis_write.py`).
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from longtalk.errors import InputError, StoreError

TIMEOUT = 5.0
"""Seconds to wait for an answer, before the node counts as gone."""
SLOTS = 16384

TOGETHER = 500
"""Commands that are sent at once."""

Address = tuple[str, int]
_DEMOTED = ("cannot be used with replica", "UNBLOCKED")
"""What WAIT says where a master has become a replica meanwhile: what was just written there is lost."""
_WAITS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
"""Seconds before a batch is sent again, the first times."""


class Script:
    """A Lua script. The server knows it by its digest, once it has seen it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Command(NamedTuple):
    """A command, or a script with its keys and arguments."""

    what: str | Script
    arguments: Sequence[Any]
    keys: Sequence[bytes] = ()

    def words(self, *, known: bool) -> tuple[Any, ...]:
        """As it is sent. `known`: whether the server has the script."""
        if isinstance(self.what, str):
            return self.what, *self.keys, *self.arguments
        way = ("EVALSHA", self.what.sha) if known else ("EVAL", self.what.text)
        return *way, len(self.keys), *self.keys, *self.arguments


class Server(NamedTuple):
    """What an address says."""

    addresses: tuple[Address, ...]
    settings: dict[str, Any]
    """For each connection: user, password, database, and what the address asks for beside that."""

    @classmethod
    def of(cls, url: str) -> Server:
        """Several hosts are several ways into the same cluster: `redis://one:6379,two:6379`."""
        library = imported()
        scheme, _, rest = url.partition("://")
        if scheme not in ("redis", "rediss"):
            raise InputError(f"The address of a Redis store begins with redis:// or rediss://, not {scheme + '://'!r}.")
        try:
            at = urlsplit(url).netloc.rpartition("@")
            hosts = at[2].split(",")
            addresses = [urlsplit(f"//{host or 'localhost'}") for host in hosts]
            found = tuple((each.hostname or "localhost", each.port or 6379) for each in addresses)
            one = f"{scheme}://{rest.replace(at[2], hosts[0], 1) if len(hosts) > 1 else rest}"
            settings = library.connection.parse_url(one)
        except ValueError:
            # What is wrong may be the password, which is not for a log.
            raise InputError("This is not the address of a Redis server: redis://user:password@host:6379/0.") from None
        for name in ("host", "port"):
            settings.pop(name, None)
        return cls(found, settings)


def imported() -> Any:
    """The library that speaks with Redis."""
    try:
        import redis
        import redis.connection
    except ImportError:
        raise InputError("A Redis store needs the library: pip install 'longtalk[redis]'.") from None
    return redis


class NotReplicated(StoreError):
    """Fewer replicas than were asked for have said in time that they have what was written.

    It is there, unless the message says that nothing was written yet, and is lost if the master dies now. To ask for
    the same turn again, with its key, makes no second one.
    """


class Link:
    """Connections to all nodes. For many threads; a forked process makes its own."""

    def __init__(self, url: str, *, patience: float, replicas: int, wait_ms: int) -> None:
        self._library = imported()
        self._server = Server.of(url)
        self._patience = patience
        self._wait = Command("WAIT", (replicas, wait_ms)) if replicas else None
        self._replicas = replicas
        settings = self._server.settings
        self._make = settings.pop("connection_class", self._library.Connection)
        settings.setdefault("socket_timeout", TIMEOUT + wait_ms / 1000)
        settings.setdefault("socket_connect_timeout", TIMEOUT)
        settings |= {"protocol": 2, "driver_info": None, "decode_responses": False}
        try:
            self._make(**settings)
        except TypeError as problem:
            # Nothing is sent yet. What it says names the setting, never its value.
            raise InputError(f"The address of the Redis server has a setting that is not known: {problem}.") from None
        self.trips = 0
        """How many batches were sent."""
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: dict[Address, list[Any]] = {}
        self._slots: list[Address] | None = None
        """Who has each slot; None until somebody was asked. A single server has all of them."""
        self._cluster = False
        self._known: list[Address] = list(self._server.addresses)
        self._closed = False

    def __repr__(self) -> str:
        """Addresses and the number of the database, without a password."""
        hosts = ",".join(f"{host}:{port}" for host, port in self._server.addresses)
        return f"{hosts}/{self._server.settings.get('db', 0)}"

    def close(self) -> None:
        if self._pid != os.getpid():
            # These are the connections of the process that this one is a copy of.
            self._begin()
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.disconnect()

    # Batches

    def read(self, key: bytes, *commands: Command) -> list[Any]:
        """What a batch gives."""
        return self._run(key, commands)

    def change(self, key: bytes, command: Command) -> tuple[Any, bool]:
        """What a command that changes something gives, and whether as many replicas have it as were asked for."""
        if self._wait is None:
            return self._run(key, (command,))[0], True
        done, having = self._run(key, (command, self._wait), whole=True)
        return done, having >= self._replicas

    def scatter(self, commands: Sequence[Command]) -> list[Any]:
        """What commands give whose keys are anywhere: one round trip for each node that has some of them."""
        replies: list[Any] = [None] * len(commands)
        for start in range(0, len(commands), TOGETHER):
            some = range(start, min(start + TOGETHER, len(commands)))
            if len(some) == 1:
                replies[start] = self._run(commands[start].keys[0], [commands[start]])[0]
                continue
            nodes: dict[Address, list[int]] = {}
            for i in some:
                nodes.setdefault(self._found(commands[i].keys[0]), []).append(i)
            for node, numbers in nodes.items():
                given: list[Any] = [None] * len(numbers)
                with suppress(self._library.exceptions.RedisError, OSError):
                    given = self._send(node, [commands[i] for i in numbers], asking=False, known=True)
                for i, reply in zip(numbers, given, strict=True):
                    failed = reply is None or isinstance(reply, Exception)
                    replies[i] = self._run(commands[i].keys[0], [commands[i]])[0] if failed else reply
        return replies

    def _found(self, key: bytes) -> Address:
        """The node that has a key. Whoever was never met is asked with the patience of a batch."""
        if self._slots is None or self._pid != os.getpid():
            self._run(key, [Command("EXISTS", (), [key])])
        return self._node(key)

    def _run(self, key: bytes, commands: Sequence[Command], *, whole: bool = False) -> list[Any]:
        """What a batch gives. `whole`: none of it counts without the rest."""
        if self._pid != os.getpid():
            self._begin()
        errors = self._library.exceptions
        end = time.monotonic() + self._patience
        replies: list[Any] = [None] * len(commands)
        left = list(range(len(commands)))
        asked: Address | None = None
        known, attempt = True, 0
        while True:
            if self._closed:
                raise InputError("This store is closed.")
            node = None
            try:
                node = asked or self._node(key)
                given = self._send(node, [commands[i] for i in left], asking=asked is not None, known=known)
                # While a slot moves, some of its keys are here and others are there already.
                moved = [reply for reply in given if isinstance(reply, errors.AskError)]
                asked = (moved[0].host, moved[0].port) if moved else None
                _proven([reply for reply in given if reply not in moved])
                for i, reply in zip(left, given, strict=True):
                    replies[i] = reply
                left = [i for i in left if whole or replies[i] in moved] if moved else []
                if not left:
                    return replies
                said: BaseException = moved[0]
            except errors.NoScriptError:
                # Nothing of it was done, and the server knows the script from then on.
                known = False
                continue
            except errors.MovedError as problem:
                asked, said = None, problem
                self._ask_around(problem.slot_id, (problem.host or (node or ("", 0))[0], problem.port))
            except (errors.AuthenticationError, errors.AuthorizationError) as problem:
                raise self._failed(problem) from None
            except (errors.ConnectionError, errors.TimeoutError, OSError) as problem:
                if self._slots is None:
                    # Nobody was ever there: whoever has mistyped an address need not wait.
                    raise self._failed(problem) from None
                asked, said = None, problem
                self._ask_around()
            except errors.ResponseError as problem:
                passing = (errors.TryAgainError, errors.ClusterDownError, errors.MasterDownError, errors.ReadOnlyError)
                if not isinstance(problem, passing) and not any(word in str(problem) for word in _DEMOTED):
                    raise self._failed(problem) from None
                asked, said = None, problem
                self._ask_around()
            if time.monotonic() >= end:
                raise self._failed(said) from None
            if asked is None:
                time.sleep(_WAITS[min(attempt, len(_WAITS) - 1)])
            attempt += 1

    def _failed(self, problem: BaseException) -> StoreError:
        return StoreError(f"The Redis server at {self!r} can't do this: {problem}")

    def _send(self, node: Address, commands: Sequence[Command], *, asking: bool, known: bool) -> list[Any]:
        """What each command gives, or the error that it gives."""
        connection = self._take(node)
        words = [command.words(known=known) for command in commands]
        if asking:
            words = [each for command in words for each in (("ASKING",), command)]
        try:
            connection.send_packed_command([_packed(words)])
            replies = [self._reply(connection) for _ in words]
        except BaseException:
            # Whatever it still says is the answer to this batch, and not to the next. Others are no better.
            self._drop(node, connection)
            raise
        self.trips += 1
        with self._lock:
            kept = not self._closed
            if kept:
                self._idle.setdefault(node, []).append(connection)
        if not kept:
            connection.disconnect()
        return replies[1::2] if asking else replies

    def _drop(self, node: Address, *connections: Any) -> None:
        with self._lock:
            idle = self._idle.pop(node, [])
        for connection in (*connections, *idle):
            connection.disconnect()

    def _reply(self, connection: Any) -> Any:
        try:
            return connection.read_response()
        except self._library.exceptions.ResponseError as problem:
            return problem

    def _take(self, node: Address) -> Any:
        with self._lock:
            idle = self._idle.get(node)
            if idle:
                return idle.pop()
        return self._make(host=node[0], port=node[1], **self._server.settings)

    # Who has which slot

    def _node(self, key: bytes) -> Address:
        if self._slots is None:
            self._meet()
        slot: int = self._library.crc.key_slot(key)
        return (self._slots or [])[slot]

    def _meet(self) -> None:
        """Ask the first who answers what it is, and of a cluster all masters."""
        problem: BaseException = OSError("none of them is a master")
        for address in self._server.addresses:
            try:
                told = self._told(address)
            except (self._library.exceptions.ConnectionError, self._library.exceptions.TimeoutError, OSError) as failed:
                problem = failed
                continue
            self._cluster = told.get(b"cluster_enabled") == b"1"
            if self._cluster:
                slots = self._asked(address)
                for other in {*slots} - {address}:
                    # One that is away is about to be replaced, and whoever needs it meanwhile waits for that.
                    with suppress(self._library.exceptions.RedisError, OSError):
                        self._told(other)
                self._slots = slots
                return
            if told.get(b"role") == b"master" or len(self._server.addresses) == 1:
                self._slots = [address] * SLOTS
                return
        raise problem

    def _told(self, address: Address) -> dict[bytes, bytes]:
        """What a node says of itself. One that throws away what it has is refused."""
        info = _proven(self._send(address, [Command("INFO", ())], asking=False, known=True))[0]
        told = dict(line.split(b":", 1) for line in info.splitlines() if b":" in line)
        if told.get(b"maxmemory", b"0") != b"0" and told.get(b"maxmemory_policy", b"").startswith(b"allkeys"):
            raise StoreError(
                f"The Redis server at {address[0]}:{address[1]} throws away what was not used for long when its memory"
                " is full: set its maxmemory-policy to noeviction."
            )
        return told

    def _asked(self, address: Address) -> list[Address]:
        """Who has which slot, as a node of a cluster says."""
        ranges = _proven(self._send(address, [Command("CLUSTER", ("SLOTS",))], asking=False, known=True))[0]
        slots: list[Address] = [address] * SLOTS
        known: list[Address] = []
        for first, last, *nodes in ranges:
            # One that does not know its own name leaves it out.
            named = [((node[0] or b"").decode() or address[0], int(node[1])) for node in nodes]
            slots[first : last + 1] = named[:1] * (last + 1 - first)
            known += named
        if not known:
            raise OSError(f"{address[0]}:{address[1]} knows of no slots yet")
        self._known = list(dict.fromkeys((*known, *self._server.addresses)))
        return slots

    def _ask_around(self, slot: int | None = None, node: Address | None = None) -> None:
        """Learn anew who has which slot. `slot` and `node` are what was just heard."""
        if self._slots is None or (not self._cluster and len(self._server.addresses) > 1):
            with suppress(self._library.exceptions.RedisError, OSError):
                self._meet()
        if not self._cluster or self._slots is None:
            return
        slots = list(self._slots)
        for address in self._known:
            with suppress(self._library.exceptions.RedisError, OSError):
                slots = self._asked(address)
                break
        if slot is not None and node is not None:
            slots[slot] = node
        self._slots = slots


def _packed(batch: Sequence[tuple[Any, ...]]) -> bytes:
    """Commands as they go over the wire. The library does it too, and takes three times as long."""
    parts: list[bytes] = []
    for words in batch:
        parts.append(b"*%d\r\n" % len(words))
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode()
            parts += (b"$%d\r\n" % len(data), data, b"\r\n")
    return b"".join(parts)


def _proven(replies: list[Any]) -> list[Any]:
    """The replies, if none of them is an error."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies
