"""What the backends share about event logs: how an append is repeated, and how the events of one append are packed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from longtalk.service.storage.protocol import Append, LogPage

Extend = Callable[[Sequence[Append]], Sequence[bool]]
"""Make each append whose log has exactly `first` events and has not ended. Return for each whether it was made."""
Read = Callable[[str, int, int], LogPage | None]
"""Return the events of a run above a number, at most a given number of them, or None if there is no log."""

pack_events: Callable[[Sequence[bytes]], bytes] = msgspec.msgpack.Encoder().encode
_unpack_events = msgspec.msgpack.Decoder(tuple[bytes, ...]).decode


class Batch(msgspec.Struct, frozen=True):
    """The events of one append: the number of the first, and all of them packed."""

    first: int
    data: bytes


def append_events(appends: Sequence[Append], extend: Extend, read: Read) -> frozenset[str]:
    """Append events as the contract says, and return the runs whose append does not continue the log.

    Nearly always one `extend` is all that happens. Only for an append that it refuses is the log read, to skip the
    events that are stored already.
    """
    refused = [append for append, made in zip(appends, extend(appends), strict=True) if not made]
    return frozenset(append.run for append in refused if not _repeat(append, extend, read))


def _repeat(append: Append, extend: Extend, read: Read) -> bool:
    """Make the part of an append that the log does not have yet. Return False if the append does not continue it."""
    first, events = append.first, append.events
    # The page begins with the event before `first`, which must exist.
    before = min(first, 1)
    page = read(append.run, first - 1 - before, before + len(events) + 1) if first >= 0 else None
    if page is None or len(page.events) < before:
        return False
    stored = page.events[before:]
    if stored != tuple(events[: len(stored)]):
        return False
    if page.ended:
        return append.ended and len(stored) == len(events)
    rest = Append(append.run, first + len(stored), events[len(stored) :], append.ended)
    return bool(stored) and extend([rest])[0]


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


def list_bounds(kind: str, prefix: str, after: str | None) -> list[tuple[str, bytes]]:
    """Return the conditions that select the documents of `list_documents` in SQL, each with its value."""
    start, end = encode_name(prefix), get_prefix_end(encode_name(prefix))
    bounds = [("kind =", encode_name(kind)), ("key >=", start)]
    if after is not None:
        bounds.append(("key >", encode_name(after)))
    if end is not None:
        bounds.append(("key <", end))
    return bounds
