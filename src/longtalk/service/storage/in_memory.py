"""The storage of a service whose conversations are in memory, for tests and for trying things out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import msgspec

from longtalk.service.storage._logs import append_events, encode_name
from longtalk.service.storage.protocol import Append, Document, LogPage, Storage
from longtalk.transcript.transcript import now


class _Kept(msgspec.Struct):
    document: Document
    expires: int | None


class _Log(msgspec.Struct):
    events: list[bytes]
    ended: bool
    at: int


class InMemoryStorage(Storage):
    """Documents and event logs in the memory of this process. `clock` returns the time in milliseconds since 1970."""

    def __init__(self, clock: Callable[[], int] = now) -> None:
        self._clock = clock
        self._documents: dict[tuple[str, str], _Kept] = {}
        self._version = 0
        self._logs: dict[str, _Log] = {}
        self._changed: set[str] = set()
        self._polled = False
        self._closed = False
        self._condition = threading.Condition()

    def get(self, kind: str, key: str) -> Document | None:
        with self._condition:
            kept = self._documents.get((kind, key))
            return kept.document if kept is not None and not self._is_expired(kept) else None

    def put(
        self, kind: str, key: str, value: bytes, *, expect: int | None = None, expires: int | None = None
    ) -> Document | None:
        with self._condition:
            before = self.get(kind, key)
            if expect is not None and expect != (before.version if before else 0):
                return None
            self._version += 1
            document = Document(key, bytes(value), self._version)
            self._documents[kind, key] = _Kept(document, expires)
            return document

    def delete(self, kind: str, key: str, *, expect: int | None = None) -> bool:
        with self._condition:
            before = self.get(kind, key)
            if before is None or expect not in (None, before.version):
                return False
            del self._documents[kind, key]
            return True

    def list_documents(
        self, kind: str, *, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> list[Document]:
        with self._condition:
            found = [
                kept.document
                for (each, key), kept in self._documents.items()
                if each == kind
                and key.startswith(prefix)
                and (after is None or encode_name(key) > encode_name(after))
                and not self._is_expired(kept)
            ]
        return sorted(found, key=lambda document: encode_name(document.key))[: max(limit, 0)]

    def append_all(self, appends: Sequence[Append], *, delete: Sequence[tuple[str, str]] = ()) -> frozenset[str]:
        with self._condition:
            conflicts = append_events(appends, lambda some: [self._extend(each) for each in some], self.read)
            for kind, key in delete:
                self.delete(kind, key)
            return conflicts

    def _extend(self, append: Append) -> bool:
        log = self._logs.get(append.run) or _Log([], ended=False, at=0)
        if log.ended or len(log.events) != append.first:
            return False
        if append.events or append.ended or append.run not in self._logs:
            log.events += map(bytes, append.events)
            log.ended, log.at = append.ended, self._clock()
            self._logs[append.run] = log
            self._changed.add(append.run)
            self._condition.notify_all()
        return True

    def read(self, run: str, after: int = -1, limit: int = 1000) -> LogPage | None:
        with self._condition:
            log = self._logs.get(run)
            if log is None:
                return None
            after = max(after, -1)
            events = tuple(log.events[after + 1 : after + 1 + max(limit, 0)])
            return LogPage(events, log.ended and after + 1 + len(events) >= len(log.events))

    def poll_changes(self, timeout: float) -> frozenset[str] | None:
        with self._condition:
            if not self._polled:
                self._polled = True
                self._changed.clear()
                return None
            self._condition.wait_for(lambda: self._changed or self._closed, timeout)
            changed = frozenset(self._changed)
            self._changed.clear()
            return changed

    def delete_log(self, run: str) -> bool:
        with self._condition:
            return self._logs.pop(run, None) is not None

    def purge(self, now: int, *, logs_before: int) -> int:
        with self._condition:
            old = [name for name, kept in self._documents.items() if kept.expires is not None and kept.expires < now]
            runs = [run for run, log in self._logs.items() if log.at < logs_before]
            for name in old:
                del self._documents[name]
            for run in runs:
                del self._logs[run]
            return len(old) + len(runs)

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _is_expired(self, kept: _Kept) -> bool:
        return kept.expires is not None and kept.expires <= self._clock()
