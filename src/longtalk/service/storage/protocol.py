"""The contract of the service's storage: documents, and the event logs of runs.

A *document* is a small value under a kind and a key, with a version that increases with each change. Everything that
processes of the service have to agree on is a document: access keys, claims of idempotency keys, runs, counters.
`put` with `expect` is a compare-and-set, so a document is claimed by at most one process.

An *event log* holds the rendered events of one run, numbered from 0 without gaps. Only the process that runs the turn
appends; any process may read. A log is opened implicitly by its first append, even an empty one, and ended by
`ended=True`.

Kinds, keys and names of runs may be any text of at most 2,000 bytes in UTF-8, and values any bytes. Times are
milliseconds since 1970 by the clock of the calling process.

Methods are synchronous, may be called from any thread, and each is one transaction. `poll_changes` is the exception: it
blocks, and only one thread per process calls it.

If the connection to a server is lost, the call is repeated. What was done is recognized, with one exception: `delete`
and `delete_log` may return False although the lost call has deleted it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Document(msgspec.Struct, frozen=True):
    """A value with its version. Versions of a document only increase, also if it is deleted and put again."""

    key: str
    value: bytes
    version: int


class LogPage(msgspec.Struct, frozen=True):
    """A part of an event log."""

    events: tuple[bytes, ...]
    ended: bool
    """Whether the log has ended and has no events after these."""


class Append(msgspec.Struct, frozen=True):
    """Events for one log: the first of them has the number `first`, and `ended` says that the log ends after them."""

    run: str
    first: int
    events: Sequence[bytes]
    ended: bool = False


class LogConflict(Exception):
    """Raised if an append does not continue the log: another process has appended, or the log has ended."""


class Storage(Protocol):
    """The place where processes of the service keep documents and event logs."""

    # Documents

    def get(self, kind: str, key: str) -> Document | None:
        """Return a document, or None if there is none or it has expired."""
        ...

    def put(
        self, kind: str, key: str, value: bytes, *, expect: int | None = None, expires: int | None = None
    ) -> Document | None:
        """Store a document and return it with its new version.

        With `expect`, the document must have this version, or with 0 must not exist (an expired one doesn't); otherwise
        nothing is stored and None is returned. `expires` is a time in milliseconds since 1970; None keeps it for ever.
        """
        ...

    def delete(self, kind: str, key: str, *, expect: int | None = None) -> bool:
        """Delete a document. Return False if it does not exist or does not have the version `expect`."""
        ...

    def list_documents(
        self, kind: str, *, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> list[Document]:
        """Return at most `limit` documents whose keys start with `prefix` and come after `after`, ordered by key.

        Keys are ordered by their UTF-8 bytes. None as `after` begins with the first key, which may be empty.
        """
        ...

    # Event logs

    def append(self, run: str, first: int, events: Sequence[bytes], *, ended: bool = False) -> None:
        """Append events, the first of which has the number `first`, and end the log if `ended`.

        Raises `LogConflict` if the log has fewer than `first` events, has other or more events from there on, or has
        ended. The events that the log already has are skipped, so an append can be repeated after an error, with the
        same events or with more.
        """
        if self.append_all([Append(run, first, events, ended)]):
            raise LogConflict(run)

    def append_all(self, appends: Sequence[Append], *, delete: Sequence[tuple[str, str]] = ()) -> frozenset[str]:
        """Append to many logs, each named once, as `append` does, and delete documents, given by kind and key.

        Returns the runs whose append does not continue the log; everything else is done. A backend with transactions
        does it in one. On Redis it takes one round trip per server for the appends and then one for the documents.
        """
        ...

    def read(self, run: str, after: int = -1, limit: int = 1000) -> LogPage | None:
        """Return at most `limit` events with numbers above `after`, or None if there is no log of this run."""
        ...

    def poll_changes(self, timeout: float) -> frozenset[str] | None:
        """Wait up to `timeout` seconds for appends by any process, and return the runs that have new events.

        None means that any run may have changed: the first call returns it at once, and a backend that can't tell, or
        that has lost its connection for a moment, returns it too. An empty set means that the time has passed. A reader
        that reads after each of these answers misses no event, because the first call subscribes before it returns.
        """
        ...

    # Upkeep

    def delete_log(self, run: str) -> bool:
        """Delete the event log of a run. Return False if there is none."""
        ...

    def purge(self, now: int, *, logs_before: int) -> int:
        """Delete documents that expired before `now` and logs whose last append was before `logs_before`.

        Both are times in milliseconds since 1970. Returns how many documents and logs were deleted.
        """
        ...

    def close(self) -> None:
        """Release connections, and let a waiting `poll_changes` return. The storage can't be used afterwards.

        The store of the conversations, whose connections the storage shares, stays open. Close it after the storage.
        """
        ...
