"""The storage of a service whose conversations are in Redis or Valkey, or in a cluster of servers.

Each method runs one script (`redis_scripts.py`) on keys of one slot, through the connections of the conversations'
store. A call is repeated if its answer is lost: a put has a random stamp by which the script recognizes it, and an
append recognizes the events that the log has.

An append publishes the name of its run, in its script. `poll_changes` has connections of its own: one to each master,
because a message that has to travel from node to node may be lost without notice, but a lost connection is noticed.
After one is lost, or the masters have changed, the answer is None.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from longtalk.errors import StoreError
from longtalk.service.storage._logs import append_events, decode_name, encode_name, get_prefix_end
from longtalk.service.storage._polling import PollingStorage
from longtalk.service.storage.protocol import Append, Document, LogPage
from longtalk.service.storage.redis_scripts import APPEND, BUCKETS, DELETE, DROP, LIST, PURGE, PUT, READ
from longtalk.stores.redis.command import Command
from longtalk.stores.redis.connection import Client, NotReplicated
from longtalk.transcript.transcript import now

if TYPE_CHECKING:
    from longtalk.stores.redis.address import Address

RETRY_SECONDS = 0.1
"""Seconds to wait before `poll_changes` returns if no connection can be opened."""
CHECK_SECONDS = 10.0
"""Seconds after which the connections and the list of masters are checked."""
_PURGED_AT_ONCE = 500


class RedisStorage(PollingStorage):
    """Documents and event logs on the servers of a store, under keys that begin with the store's prefix."""

    def __init__(self, client: Client, prefix: str, *, clock: Callable[[], int] = now) -> None:
        self._client = client
        self._root = f"{prefix}:{{service".encode()
        self._kinds_key = self._root + b"}:kinds"
        self._channel = f"{prefix}:service:changes".encode()
        self._clock = clock
        self._kinds: set[bytes] = set()
        """Kinds that are known to be in the set of kinds."""
        self._subscribed: dict[Address, Any] = {}
        """The connections that wait for messages, by node."""
        self._checked = 0.0
        super().__init__()

    # Documents

    def get(self, kind: str, key: str) -> Document | None:
        documents = self._get_document_keys(encode_name(kind))[0]
        (stored,) = self._client.read(Command("HGET", (encode_name(key),), [documents]))
        if stored is None:
            return None
        version, expires, _, value = stored.split(b":", 3)
        if expires and int(expires) <= self._clock():
            return None
        return Document(key, value, int(version))

    def put(
        self, kind: str, key: str, value: bytes, *, expect: int | None = None, expires: int | None = None
    ) -> Document | None:
        name, stored, stamp = encode_name(kind), bytes(value), f"{random.getrandbits(64):016x}"
        if name not in self._kinds:
            # Before the document, so that a crash in between leaves no document that is not purged.
            self._change(Command("SADD", (name,), [self._kinds_key]))
            self._kinds.add(name)
        arguments = [encode_name(key), stored, _or_empty(expect), _or_empty(expires), self._clock(), stamp]
        version = self._change(Command(PUT, arguments, self._get_document_keys(name)))
        return Document(key, stored, int(version)) if version is not None else None

    def delete(self, kind: str, key: str, *, expect: int | None = None) -> bool:
        return bool(self._change(self._make_delete(kind, key, expect)))

    def _make_delete(self, kind: str, key: str, expect: int | None) -> Command:
        arguments = [encode_name(key), _or_empty(expect), self._clock()]
        return Command(DELETE, arguments, self._get_document_keys(encode_name(kind))[:3])

    def list_documents(
        self, kind: str, *, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> list[Document]:
        first, end = encode_name(prefix), get_prefix_end(encode_name(prefix))
        last = None if after is None else encode_name(after)
        start = b"[" + first if last is None or last < first else b"(" + last
        stop = b"+" if end is None else b"(" + end
        keys = self._get_document_keys(encode_name(kind))[:2]
        (found,) = self._client.read(Command(LIST, [start, stop, self._clock(), max(limit, 0)], keys))
        documents = []
        for key, stored in zip(found[::2], found[1::2], strict=True):
            version, _, _, value = stored.split(b":", 3)
            documents.append(Document(decode_name(key), value, int(version)))
        return documents

    # Event logs

    def append_all(self, appends: Sequence[Append], *, delete: Sequence[tuple[str, str]] = ()) -> frozenset[str]:
        at = self._clock()

        def extend(some: Sequence[Append]) -> list[bool]:
            return [bool(made) for made in self._change_all([self._make_append(each, at) for each in some])]

        conflicts = append_events(appends, extend, self.read)
        self._change_all([self._make_delete(kind, key, None) for kind, key in delete])
        return conflicts

    def _make_append(self, append: Append, at: int) -> Command:
        name = encode_name(append.run)
        arguments = [name, append.first, int(append.ended), at, self._channel, *map(bytes, append.events)]
        return Command(APPEND, arguments, self._get_log_keys(name))

    def read(self, run: str, after: int = -1, limit: int = 1000) -> LogPage | None:
        name, after = encode_name(run), max(after, -1)
        (found,) = self._client.read(Command(READ, [name, after + 1, after + max(limit, 0)], self._get_log_keys(name)))
        if found is None:
            return None
        size, ended, events = found
        return LogPage(tuple(events), bool(ended) and after + 1 + len(events) >= size)

    def _wait_for_changes(self, until: float) -> frozenset[str] | None:
        failures: tuple[type[Exception], ...] = (StoreError, *self._client.errors)
        try:
            return self._wait_for_messages(until)
        except failures:
            self._unsubscribe()
            self._waker.wait(min(until - time.monotonic(), RETRY_SECONDS))
            return None

    def _wait_for_messages(self, until: float) -> frozenset[str] | None:
        """Return the runs that were published until a time, or None if this call has begun to listen."""
        if not self._subscribed or {*self._client.find_masters()} != {*self._subscribed}:
            self._subscribe()
            return None
        runs: set[str] = set()
        while True:
            if time.monotonic() - self._checked >= CHECK_SECONDS:
                for connection in self._subscribed.values():
                    runs |= self._check(connection)
                self._checked = time.monotonic()
                if {*self._client.find_masters(refresh=True)} != {*self._subscribed}:
                    self._subscribe()
                    return None
            for connection in self._subscribed.values():
                while connection.can_read(0):
                    runs |= _read_run(connection.read_response())
            left = until - time.monotonic()
            if runs or self._closed or left <= 0:
                return frozenset(runs)
            sockets = [connection._sock.fileno() for connection in self._subscribed.values()]
            self._waker.wait(min(left, CHECK_SECONDS), sockets)

    def _subscribe(self) -> None:
        """Listen to each master. This also finds the masters again after a failure."""
        self._unsubscribe()
        for node in self._client.find_masters(refresh=True):
            connection = self._subscribed[node] = self._client.connect(node)
            connection.send_command("SUBSCRIBE", self._channel)
            connection.read_response()
        self._checked = time.monotonic()

    def _release(self) -> None:
        self._unsubscribe()

    def _forget_connections(self) -> None:
        # Closing sockets here leaves the parent's open.
        self._unsubscribe()

    def _unsubscribe(self) -> None:
        for connection in self._subscribed.values():
            connection.disconnect()
        self._subscribed = {}

    def _check(self, connection: Any) -> set[str]:
        """Raise an error if a node no longer answers. Return the runs that were published meanwhile."""
        connection.send_command("PING")
        runs: set[str] = set()
        while (message := connection.read_response())[0] != b"pong":
            runs |= _read_run(message)
        return runs

    # Upkeep

    def delete_log(self, run: str) -> bool:
        name = encode_name(run)
        return bool(self._change(Command(DROP, [name, "inf"], self._get_log_keys(name))))

    def purge(self, now: int, *, logs_before: int) -> int:
        count = 0
        for kind in self._client.read(Command("SMEMBERS", (), [self._kinds_key]))[0]:
            keys, purged = self._get_document_keys(kind)[:3], _PURGED_AT_ONCE
            while purged == _PURGED_AT_ONCE:
                purged = int(self._change(Command(PURGE, [now, _PURGED_AT_ONCE], keys)))
                count += purged
        old = ("-inf", f"({logs_before}")
        logs = [Command("ZRANGEBYSCORE", old, [self._get_bucket_key(bucket) + b"l"]) for bucket in range(BUCKETS)]
        for run in [run for runs in self._client.scatter(logs) for run in runs]:
            count += int(self._change(Command(DROP, [run, logs_before], self._get_log_keys(run))))
        return count

    # Keys and calls

    def _get_document_keys(self, kind: bytes) -> list[bytes]:
        """Return the keys of the documents of a kind, of their order, of their expiry, and of the last version."""
        # A kind may contain braces, which would move its keys to other slots.
        tag = hashlib.blake2b(kind, digest_size=16).hexdigest().encode()
        return [self._root + b":" + tag + b"}:" + part for part in (b"d", b"o", b"x", b"v")]

    def _get_log_keys(self, run: bytes) -> list[bytes]:
        """Return the keys of a run's events, and of the logs and the ended logs of its bucket."""
        bucket = self._get_bucket_key(hashlib.blake2b(run, digest_size=1).digest()[0] % BUCKETS)
        return [bucket + b"s:" + run, bucket + b"l", bucket + b"e"]

    def _get_bucket_key(self, bucket: int) -> bytes:
        return self._root + b"-logs-%d}:" % bucket

    def _change(self, command: Command) -> Any:
        """Run a command that writes, and return the reply."""
        return self._change_all([command])[0]

    def _change_all(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands that write, in one round trip per server, and return the replies."""
        replies, is_replicated = self._client.change_all(commands)
        if not is_replicated:
            raise NotReplicated(
                "The service's data was written, but too few replicas acknowledged it in time."
                " It is lost if the master fails before a replica has it. Try again."
            )
        return replies


def _read_run(message: Any) -> set[str]:
    """Return the run that a message names."""
    return {decode_name(message[2])} if message[0] == b"message" else set()


def _or_empty(number: int | None) -> int | str:
    return "" if number is None else number
