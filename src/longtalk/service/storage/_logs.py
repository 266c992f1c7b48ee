"""What the backends share about event logs: how an append is repeated, and how the events of one append are packed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from longtalk.service.storage.protocol import LogConflict, LogPage

Extend = Callable[[int, Sequence[bytes]], bool]
"""Append events from a number on, if the log has exactly this many events and has not ended. Return whether it did."""
Read = Callable[[int, int], LogPage | None]
"""Return the events above a number, at most a given number of them, or None if there is no log."""

pack_events: Callable[[Sequence[bytes]], bytes] = msgspec.msgpack.Encoder().encode
_unpack_events = msgspec.msgpack.Decoder(tuple[bytes, ...]).decode


class Batch(msgspec.Struct, frozen=True):
    """The events of one append: the number of the first, and all of them packed."""

    first: int
    data: bytes


def append_events(run: str, first: int, events: Sequence[bytes], extend: Extend, read: Read, *, ended: bool) -> None:
    """Append events as the contract says, with the operations `extend` (with the wanted `ended`) and `read` of a log.

    Nearly always one `extend` is all that happens. Only if it fails is the log read, to skip the events it has.
    """
    if first >= 0 and extend(first, events):
        return
    # The page begins with the event before `first`, which must exist.
    before = min(first, 1)
    page = read(first - 1 - before, before + len(events) + 1) if first >= 0 else None
    if page is None or len(page.events) < before:
        raise LogConflict(run)
    stored = page.events[before:]
    if stored == tuple(events[: len(stored)]):
        if page.ended and ended and len(stored) == len(events):
            return
        if not page.ended and stored and extend(first + len(stored), events[len(stored) :]):
            return
    raise LogConflict(run)


def make_page(batches: Iterable[Batch], after: int, limit: int, size: int, *, ended: bool) -> LogPage:
    """Return a page of a log that has `size` events, from the batches that contain the page's events, in order."""
    events: list[bytes] = []
    for batch in batches:
        events += _unpack_events(batch.data)[max(after + 1 - batch.first, 0) :]
    events = events[: max(limit, 0)]
    return LogPage(tuple(events), ended and after + 1 + len(events) >= size)


def encode_name(name: str) -> bytes:
    """Return a kind, a key or the name of a run as bytes, whose order is the order of keys. Any text can be encoded."""
    return name.encode("utf-8", "surrogatepass")


def decode_name(name: bytes) -> str:
    """Return the text that `encode_name` has encoded."""
    return name.decode("utf-8", "surrogatepass")


def get_prefix_end(prefix: bytes) -> bytes | None:
    """Return the first bytes that come after all names with this prefix, or None if all names have it."""
    # No byte of UTF-8 is 0xff.
    return prefix[:-1] + bytes((prefix[-1] + 1,)) if prefix else None
