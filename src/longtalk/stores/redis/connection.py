"""Connections to a Redis server, or to the nodes of a Redis Cluster.

A *batch* is a few commands on keys of one slot that are sent together and whose replies are read together, in one round
trip. It goes to the node that serves the slot. If that node is unreachable, has handed the slot over, is starting or
has become a replica, the batch is sent again to the node that serves the slot by then, until it is answered or the time
is up. The server may therefore run a batch twice, and the caller has to make that harmless (see `commit.py`).
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
"""Seconds to wait for a reply before the node counts as unreachable."""
SLOTS = 16384
"""The number of hash slots in a Redis Cluster."""

TOGETHER = 500
"""The maximum number of commands that are sent at once."""

Address = tuple[str, int]
_DEMOTED = ("cannot be used with replica", "UNBLOCKED")
"""Parts of the errors that WAIT returns if a master has become a replica. The write before WAIT is then lost."""
_WAITS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
"""Seconds to wait before each retry of a batch. The last value is used for all further retries."""


class Script:
    """A Lua script. After the server has run the script once, its digest is enough to run it again."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Command(NamedTuple):
    """A Redis command or a Lua script, with its keys and arguments."""

    what: str | Script
    arguments: Sequence[Any]
    keys: Sequence[bytes] = ()

    def words(self, *, known: bool) -> tuple[Any, ...]:
        """Return the words of the command as they are sent. `known` means that the server already has the script."""
        if isinstance(self.what, str):
            return self.what, *self.keys, *self.arguments
        way = ("EVALSHA", self.what.sha) if known else ("EVAL", self.what.text)
        return *way, len(self.keys), *self.keys, *self.arguments


class Server(NamedTuple):
    """The hosts and connection settings in the address of a Redis store."""

    addresses: tuple[Address, ...]
    settings: dict[str, Any]
    """Arguments for each connection: user, password, database and the options in the address."""

    @classmethod
    def of(cls, url: str) -> Server:
        """Return the hosts and settings in the address of a store.

        Several hosts, as in `redis://one:6379,two:6379`, are nodes of one cluster, or a master and its replicas.
        """
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
            # The original error may quote the password, which must not get into a log.
            raise InputError("This is not the address of a Redis server: redis://user:password@host:6379/0.") from None
        for name in ("host", "port"):
            settings.pop(name, None)
        return cls(found, settings)


def imported() -> Any:
    """Return the module `redis`, or raise `InputError` if it isn't installed."""
    try:
        import redis
        import redis.connection
    except ImportError:
        raise InputError("A Redis store needs the library: pip install 'longtalk[redis]'.") from None
    return redis


class NotReplicated(StoreError):
    """The error for a write that too few replicas acknowledged in time.

    The data is written, unless the message says otherwise, but it is lost if the master fails before a replica has a
    copy. It is safe to request the same turn again with the same key: that doesn't create a second turn.
    """


class Link:
    """Connections to all nodes. Threads can share this object; a forked process opens connections of its own."""

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
            # The constructor sends nothing, and its error names the setting but never the value.
            raise InputError(f"The address of the Redis server has a setting that is not known: {problem}.") from None
        self.trips = 0
        """The number of batches sent so far."""
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: dict[Address, list[Any]] = {}
        self._slots: list[Address] | None = None
        """The node that serves each slot, or None before the first contact. A single server serves all slots."""
        self._cluster = False
        self._known: list[Address] = list(self._server.addresses)
        self._closed = False

    def __repr__(self) -> str:
        """Return the hosts, ports and database number, without the password."""
        hosts = ",".join(f"{host}:{port}" for host, port in self._server.addresses)
        return f"{hosts}/{self._server.settings.get('db', 0)}"

    def close(self) -> None:
        """Close the idle connections. A connection in use is closed when its batch is done."""
        if self._pid != os.getpid():
            # After a fork the connections belong to the parent process, which may still use them.
            self._begin()
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.disconnect()

    # Batches

    def read(self, key: bytes, *commands: Command) -> list[Any]:
        """Send a batch to the node that serves `key`, and return the replies."""
        return self._run(key, commands)

    def change(self, key: bytes, command: Command) -> tuple[Any, bool]:
        """Run a command that writes. Return the reply, and whether enough replicas acknowledged the write."""
        if self._wait is None:
            return self._run(key, (command,))[0], True
        done, having = self._run(key, (command, self._wait), whole=True)
        return done, having >= self._replicas

    def scatter(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands whose keys may be in different slots, in one round trip per node, and return the replies.

        A command that fails is sent again by itself, with retries.
        """
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
        """Return the node that serves a key. Contact the server first if the nodes aren't known yet."""
        if self._slots is None or self._pid != os.getpid():
            self._run(key, [Command("EXISTS", (), [key])])
        return self._node(key)

    def _run(self, key: bytes, commands: Sequence[Command], *, whole: bool = False) -> list[Any]:
        """Send a batch, with retries, until it is answered, and return the replies.

        With `whole`, a batch that was answered only in part is sent again completely. Raises `StoreError` when the time
        is up.
        """
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
                # While a slot migrates, its keys are spread over two nodes.
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
                # Nothing was run. The next try sends the text of the script, which the server then remembers.
                known = False
                continue
            except errors.MovedError as problem:
                asked, said = None, problem
                self._ask_around(problem.slot_id, (problem.host or (node or ("", 0))[0], problem.port))
            except (errors.AuthenticationError, errors.AuthorizationError) as problem:
                raise self._failed(problem) from None
            except (errors.ConnectionError, errors.TimeoutError, OSError) as problem:
                if self._slots is None:
                    # The server was never reached, so the address may be wrong: fail at once.
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
        """Send commands to a node. Return, for each command, the reply or the error that the node returned."""
        connection = self._take(node)
        words = [command.words(known=known) for command in commands]
        if asking:
            words = [each for command in words for each in (("ASKING",), command)]
        try:
            connection.send_packed_command([_packed(words)])
            replies = [self._reply(connection) for _ in words]
        except BaseException:
            # A late reply would be taken for that of the next batch. The node's idle connections may be broken, too.
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

    # The map of slots to nodes

    def _node(self, key: bytes) -> Address:
        if self._slots is None:
            self._meet()
        slot: int = self._library.crc.key_slot(key)
        return (self._slots or [])[slot]

    def _meet(self) -> None:
        """Contact the first node that answers, and learn which node serves each slot."""
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
                    # Check each master's settings. One that doesn't answer is about to be replaced; batches wait for
                    # that.
                    with suppress(self._library.exceptions.RedisError, OSError):
                        self._told(other)
                self._slots = slots
                return
            if told.get(b"role") == b"master" or len(self._server.addresses) == 1:
                self._slots = [address] * SLOTS
                return
        raise problem

    def _told(self, address: Address) -> dict[bytes, bytes]:
        """Return the fields that a node reports in INFO. Raise `StoreError` if the node may evict conversations."""
        info = _proven(self._send(address, [Command("INFO", ())], asking=False, known=True))[0]
        told = dict(line.split(b":", 1) for line in info.splitlines() if b":" in line)
        if told.get(b"maxmemory", b"0") != b"0" and told.get(b"maxmemory_policy", b"").startswith(b"allkeys"):
            raise StoreError(
                f"The Redis server at {address[0]}:{address[1]} throws away what was not used for long when its memory"
                " is full: set its maxmemory-policy to noeviction."
            )
        return told

    def _asked(self, address: Address) -> list[Address]:
        """Return the node that serves each slot, as reported by the cluster node at this address."""
        ranges = _proven(self._send(address, [Command("CLUSTER", ("SLOTS",))], asking=False, known=True))[0]
        slots: list[Address] = [address] * SLOTS
        known: list[Address] = []
        for first, last, *nodes in ranges:
            # A node that doesn't know its own host name leaves it empty.
            named = [((node[0] or b"").decode() or address[0], int(node[1])) for node in nodes]
            slots[first : last + 1] = named[:1] * (last + 1 - first)
            known += named
        if not known:
            raise OSError(f"{address[0]}:{address[1]} knows of no slots yet")
        self._known = list(dict.fromkeys((*known, *self._server.addresses)))
        return slots

    def _ask_around(self, slot: int | None = None, node: Address | None = None) -> None:
        """Update the map of slots to nodes. `slot` and `node` are from a redirection, if there was one."""
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
    """Return commands encoded as they are sent. The redis library's own encoder takes three times as long."""
    parts: list[bytes] = []
    for words in batch:
        parts.append(b"*%d\r\n" % len(words))
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode()
            parts += (b"$%d\r\n" % len(data), data, b"\r\n")
    return b"".join(parts)


def _proven(replies: list[Any]) -> list[Any]:
    """Return the replies, or raise the first error among them."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies
