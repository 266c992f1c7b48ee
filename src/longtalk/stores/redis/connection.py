"""Connections to a Redis server, or to the nodes of a Redis Cluster.

A *batch* is a few commands on keys of one slot that are sent together and whose replies are read together, in one round
trip. It goes to the node that serves the slot. If that node is unreachable, has handed the slot over, is starting or
has become a replica, the batch is sent again to the node that serves the slot by then, until it is answered or the
deadline passes. The server may therefore run a batch twice; the caller must make sure that this does no harm (see
`commit.py`).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from longtalk.errors import InputError, StoreError
from longtalk.observation import log_and_suppress
from longtalk.stores.redis.address import Address, ServerAddress, import_redis
from longtalk.stores.redis.command import Command, encode_batch

TIMEOUT = 5.0
"""Seconds to wait for a reply before the node counts as unreachable."""
SLOTS = 16384
"""The number of hash slots in a Redis Cluster."""

MAX_BATCH = 500
"""The maximum number of commands that are sent at once."""

_DEMOTED = ("cannot be used with replica", "UNBLOCKED")
"""Parts of the errors that WAIT returns if a master has become a replica. The write before WAIT is then lost."""
_RETRY_DELAYS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
"""Seconds to wait before each retry of a batch. The last value is used for all further retries."""


class NotReplicated(StoreError):
    """Raised if too few replicas acknowledged a write in time.

    The data is written, unless the message says otherwise, but it is lost if the master fails before a replica has a
    copy. It is safe to request the same turn again with the same key: that doesn't create a second turn.
    """


class Client:
    """Connections to all nodes. Threads can share this object; a forked process opens its own connections.

    `patience` is the number of seconds for which a call keeps retrying. With `replicas`, each change waits up to
    `wait_ms` milliseconds until that many replicas acknowledge it.
    """

    def __init__(self, url: str, *, patience: float, replicas: int, wait_ms: int) -> None:
        self._library = import_redis()
        self._address = ServerAddress.parse(url)
        self._patience = patience
        self._wait = Command("WAIT", (replicas, wait_ms)) if replicas else None
        self._replicas = replicas
        settings = self._address.settings
        self._connection_class = settings.pop("connection_class", self._library.Connection)
        settings.setdefault("socket_timeout", TIMEOUT + wait_ms / 1000)
        settings.setdefault("socket_connect_timeout", TIMEOUT)
        settings |= {"protocol": 2, "driver_info": None, "decode_responses": False}
        try:
            self._connection_class(**settings)
        except TypeError as problem:
            # The constructor sends nothing, and its error names the setting but never the value.
            raise InputError(f"The Redis address has an unknown setting: {problem}. Remove the setting.") from None
        self.trips = 0
        """The number of batches sent so far."""
        self._reset()

    def _reset(self) -> None:
        """Set the initial state, without connections and known nodes, for a new object or in a forked process."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: dict[Address, list[Any]] = {}
        self._slots: list[Address] | None = None
        """The node that serves each slot, or None before the first contact. A single server serves all slots."""
        self._masters: tuple[list[Address] | None, list[Address]] = (None, [])
        self._cluster = False
        self._known_nodes: list[Address] = list(self._address.addresses)
        self._closed = False

    def __repr__(self) -> str:
        """Return the hosts, ports and database number, without the password."""
        hosts = ",".join(f"{host}:{port}" for host, port in self._address.addresses)
        return f"{hosts}/{self._address.settings.get('db', 0)}"

    def close(self) -> None:
        """Close the idle connections. A connection in use is closed when its batch is done."""
        if self._pid != os.getpid():
            # After a fork the connections belong to the parent process, which may still use them.
            self._reset()
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.disconnect()

    # Batches

    def read(self, *commands: Command) -> list[Any]:
        """Send commands whose keys are in one slot as a batch, and return the replies."""
        return self._run_batch(commands)

    def change(self, command: Command) -> tuple[Any, bool]:
        """Run a command that writes. Return the reply, and whether enough replicas acknowledged the write."""
        if self._wait is None:
            return self._run_batch([command])[0], True
        reply, acknowledged = self._run_batch([command, self._wait], resend_all=True)
        return reply, acknowledged >= self._replicas

    def change_all(self, commands: Sequence[Command]) -> tuple[list[Any], bool]:
        """Run commands that write, as `scatter` does. Return the replies, and whether enough replicas have them all."""
        return self._scatter(commands, self._wait)

    def scatter(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands whose keys may be in different slots, in one round trip per node, and return the replies.

        A command that fails is sent again by itself, with retries.
        """
        return self._scatter(commands, None)[0]

    def scan(self, pattern: bytes) -> set[bytes]:
        """Return the keys on all nodes that match a pattern. This reads the names of all keys."""
        found: set[bytes] = set()
        try:
            for node in self.find_masters(refresh=True):
                cursor, keys = b"", []
                while cursor != b"0":
                    scan = Command("SCAN", (cursor or b"0", "MATCH", pattern, "COUNT", 1_000))
                    ((cursor, keys),) = _raise_errors(self._send(node, [scan]))
                    found.update(keys)
        except self.errors as problem:
            raise self._make_error(problem) from None
        return found

    def _scatter(self, commands: Sequence[Command], wait: Command | None) -> tuple[list[Any], bool]:
        """Run commands in one round trip per node, each followed by the command `wait` if it is given."""
        replies: list[Any] = [None] * len(commands)
        is_replicated = True
        run = self.change if wait else lambda command: (self._run_batch([command])[0], True)
        for start in range(0, len(commands), MAX_BATCH):
            indexes = range(start, min(start + MAX_BATCH, len(commands)))
            by_node: dict[Address, list[int]] = {}
            for i in indexes if len(indexes) > 1 else ():
                by_node.setdefault(self._find_node(commands[i].keys[0]), []).append(i)
            for node, some in by_node.items():
                with self._log_and_suppress():
                    answers = self._send(node, [*(commands[i] for i in some), *([wait] if wait else ())])
                    if wait:
                        # If the node is no longer a master, its replies are worth nothing.
                        acknowledged = _raise_errors([answers.pop()])[0]
                        is_replicated &= acknowledged >= self._replicas
                    for i, reply in zip(some, answers, strict=True):
                        replies[i] = None if isinstance(reply, Exception) else reply
            for i in indexes:
                if replies[i] is None:
                    replies[i], enough = run(commands[i])
                    is_replicated &= enough
        return replies, is_replicated

    def _find_node(self, key: bytes) -> Address:
        """Return the node that serves a key. Contact the server first if the nodes aren't known yet."""
        if self._slots is None or self._pid != os.getpid():
            self._run_batch([Command("EXISTS", (), [key])])
        return self._get_node(key)

    def _run_batch(self, commands: Sequence[Command], *, resend_all: bool = False) -> list[Any]:
        """Send a batch, with retries, until all its commands are answered, and return the replies.

        A retry sends only the commands that weren't answered, or all of them with `resend_all`. Raises `StoreError` if
        a command fails for good, or is still unanswered after `patience` seconds.
        """
        if self._pid != os.getpid():
            self._reset()
        errors = self._library.exceptions
        end = time.monotonic() + self._patience
        replies: list[Any] = [None] * len(commands)
        pending = list(range(len(commands)))
        redirect: Address | None = None
        script_known, attempt = True, 0
        while True:
            if self._closed:
                raise InputError("This store is closed. Open it again with a new Redis(url).")
            node = None
            try:
                node = redirect or self._get_node(commands[0].keys[0])
                sent = [commands[i] for i in pending]
                answers = self._send(node, sent, asking=redirect is not None, script_known=script_known)
                # While a slot migrates, its keys are spread over two nodes.
                redirects = [reply for reply in answers if isinstance(reply, errors.AskError)]
                redirect = (redirects[0].host, redirects[0].port) if redirects else None
                _raise_errors([reply for reply in answers if reply not in redirects])
                for i, reply in zip(pending, answers, strict=True):
                    replies[i] = reply
                if not redirects:
                    return replies
                pending = [i for i in pending if resend_all or replies[i] in redirects]
                failure: BaseException = redirects[0]
            except errors.NoScriptError:
                # Nothing was run. The next try sends the text of the script, which the server then remembers.
                script_known = False
                continue
            except errors.MovedError as problem:
                redirect, failure = None, problem
                self._refresh_slots(problem.slot_id, (problem.host or (node or ("", 0))[0], problem.port))
            except (errors.AuthenticationError, errors.AuthorizationError) as problem:
                raise self._make_error(problem) from None
            except (errors.ConnectionError, errors.TimeoutError, OSError) as problem:
                if self._slots is None:
                    # The server was never reached, so the address may be wrong: fail at once.
                    raise self._make_error(problem) from None
                redirect, failure = None, problem
                self._refresh_slots()
            except errors.ResponseError as problem:
                passing = (errors.TryAgainError, errors.ClusterDownError, errors.MasterDownError, errors.ReadOnlyError)
                if not isinstance(problem, passing) and not any(word in str(problem) for word in _DEMOTED):
                    raise self._make_error(problem) from None
                redirect, failure = None, problem
                self._refresh_slots()
            if time.monotonic() >= end:
                raise self._make_error(failure) from None
            if redirect is None:
                time.sleep(_RETRY_DELAYS[min(attempt, len(_RETRY_DELAYS) - 1)])
            attempt += 1

    def _make_error(self, problem: BaseException) -> StoreError:
        return StoreError(f"The Redis server at {self!r} failed ({problem}). Check the server and the address.")

    def _send(
        self, node: Address, commands: Sequence[Command], *, asking: bool = False, script_known: bool = True
    ) -> list[Any]:
        """Send commands to a node. Return, for each command, the reply or the error that the node returned.

        With `asking`, the node also answers for a slot that is migrating to it.
        """
        connection = self._take_connection(node)
        words = [command.to_words(script_known=script_known) for command in commands]
        if asking:
            words = [each for command in words for each in (("ASKING",), command)]
        try:
            connection.send_packed_command([encode_batch(words)])
            replies = [self._read_reply(connection) for _ in words]
        except BaseException:
            # On this connection, a late reply would be taken for that of the next batch. Idle ones may be broken, too.
            self._disconnect(node, connection)
            raise
        self.trips += 1
        with self._lock:
            is_closed = self._closed
            if not is_closed:
                self._idle.setdefault(node, []).append(connection)
        if is_closed:
            connection.disconnect()
        return replies[1::2] if asking else replies

    def _disconnect(self, node: Address, connection: Any) -> None:
        """Close a connection and all idle connections to its node."""
        with self._lock:
            idle = self._idle.pop(node, [])
        for each in (connection, *idle):
            each.disconnect()

    def _read_reply(self, connection: Any) -> Any:
        try:
            return connection.read_response()
        except self._library.exceptions.ResponseError as problem:
            return problem

    def _take_connection(self, node: Address) -> Any:
        with self._lock:
            idle = self._idle.get(node)
            if idle:
                return idle.pop()
        return self._connection_class(host=node[0], port=node[1], **self._address.settings)

    def _log_and_suppress(self) -> AbstractContextManager[None]:
        """Suppress errors of a node. The commands are sent again, and any remaining problem is raised then."""
        return log_and_suppress("a Redis node failed", *self.errors, level=logging.DEBUG)

    # Connections beside those for batches

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The classes of the errors that a connection raises."""
        return (self._library.exceptions.RedisError, OSError)

    def connect(self, node: Address) -> Any:
        """Return a new connection to a node for the caller's own use. The caller must disconnect it."""
        connection = self._connection_class(host=node[0], port=node[1], **self._address.settings)
        connection.connect()
        return connection

    def find_masters(self, *, refresh: bool = False) -> list[Address]:
        """Return the nodes that serve slots, as last known, or with `refresh` as the servers report them now."""
        self._find_node(b"")
        if refresh:
            self._refresh_slots()
        if self._masters[0] is not self._slots:
            self._masters = self._slots, sorted({*(self._slots or [])})
        return self._masters[1]

    # The map of slots to nodes

    def _get_node(self, key: bytes) -> Address:
        if self._slots is None:
            self._discover_nodes()
        slot: int = self._library.crc.key_slot(key)
        return (self._slots or [])[slot]

    def _discover_nodes(self) -> None:
        """Contact the first node that answers, and learn which node serves each slot."""
        problem: BaseException = OSError("none of these servers is a master")
        for address in self._address.addresses:
            try:
                info = self._read_info(address)
            except (self._library.exceptions.ConnectionError, self._library.exceptions.TimeoutError, OSError) as failed:
                problem = failed
                continue
            self._cluster = info.get(b"cluster_enabled") == b"1"
            if self._cluster:
                slots = self._read_slots(address)
                for other in {*slots} - {address}:
                    # Check each master's settings. A master that doesn't answer will be replaced, and batches wait
                    # until then.
                    with self._log_and_suppress():
                        self._read_info(other)
                self._slots = slots
                return
            if info.get(b"role") == b"master" or len(self._address.addresses) == 1:
                self._slots = [address] * SLOTS
                return
        raise problem

    def _read_info(self, address: Address) -> dict[bytes, bytes]:
        """Return the fields that a node reports in INFO. Raise `StoreError` if the node may evict conversations."""
        text = _raise_errors(self._send(address, [Command("INFO", ())]))[0]
        info = dict(line.split(b":", 1) for line in text.splitlines() if b":" in line)
        if info.get(b"maxmemory", b"0") != b"0" and info.get(b"maxmemory_policy", b"").startswith(b"allkeys"):
            raise StoreError(
                f"The Redis server at {address[0]}:{address[1]} deletes conversations when its memory is full:"
                " set its maxmemory-policy to noeviction."
            )
        return info

    def _read_slots(self, address: Address) -> list[Address]:
        """Return the node that serves each slot, as reported by the cluster node at this address."""
        ranges = _raise_errors(self._send(address, [Command("CLUSTER", ("SLOTS",))]))[0]
        slots: list[Address] = [address] * SLOTS
        known: list[Address] = []
        for first, last, *nodes in ranges:
            # A node that doesn't know its own host name leaves it empty.
            named = [((node[0] or b"").decode() or address[0], int(node[1])) for node in nodes]
            slots[first : last + 1] = named[:1] * (last + 1 - first)
            known += named
        if not known:
            raise OSError(f"{address[0]}:{address[1]} doesn't know yet which nodes serve the slots")
        self._known_nodes = list(dict.fromkeys((*known, *self._address.addresses)))
        return slots

    def _refresh_slots(self, slot: int | None = None, node: Address | None = None) -> None:
        """Update the map of slots to nodes. `slot` and `node` are from a redirection, if there was one."""
        if self._slots is None or (not self._cluster and len(self._address.addresses) > 1):
            with self._log_and_suppress():
                self._discover_nodes()
        if not self._cluster or self._slots is None:
            return
        slots = list(self._slots)
        for address in self._known_nodes:
            with self._log_and_suppress():
                slots = self._read_slots(address)
                break
        if slot is not None and node is not None:
            slots[slot] = node
        self._slots = slots


def _raise_errors(replies: list[Any]) -> list[Any]:
    """Return the replies, or raise the first error among them."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies
