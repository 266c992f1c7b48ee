"""What a store in PostgreSQL sends and gets: commits as arguments, rows as heads, turns and packs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from longtalk.manifest import read as read_manifest
from longtalk.memory.book import KIND as BRIEF
from longtalk.memory.book import Book
from longtalk.memory.outline import outline
from longtalk.pack import EMPTY, MAX_COUNT, Entry, Pack, checksum, guess
from longtalk.records import read_record
from longtalk.stores.base import Commit, Head, Holder, Lease, Placed, linked, numbered, sensible
from longtalk.stores.rows import from_rows, meta_in
from longtalk.tokens import Estimator
from longtalk.transcript import Record, Turn
from longtalk.wires import reported, said
from longtalk.wires.base import Usage

SHORT = 300
"""Characters of a text that is shown as it is."""

_MOST, FARTHEST = 2**62, 2**31 - 1
"""The greatest number that a store sends, and the greatest place there can be."""

_encode = msgspec.msgpack.Encoder().encode
holder_of = msgspec.msgpack.Decoder(Holder).decode
_ESCAPED: Final = re.compile("\x01([\x01\x02])")


def text_in(text: str) -> str:
    """A text as it is stored: a nought is two characters, and so is what marks them. The order of texts stays."""
    if "\x00" in text or "\x01" in text:
        return text.replace("\x01", "\x01\x02").replace("\x00", "\x01\x01")
    return text


def text_out(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\x00" if found[1] == "\x01" else "\x01", text) if "\x01" in text else text


def _in(text: str | None) -> str | None:
    return None if text is None else text_in(text)


def _out(text: str | None) -> str | None:
    return None if text is None else text_out(text)


class _Rough:
    """Counts tokens by bytes: how long an outline gets need not be exact."""

    def count(self, text: str) -> int:
        return guess(len(text.encode()))


_ROUGH, _COUNTER = _Rough(), Estimator()


def shown(entry: Entry) -> str:
    """What an entry says, short, for people who look into the tables."""
    text = said(entry)
    if len(text) > SHORT:
        text = (entry.role == "assistant" and outline(text, counter=_ROUGH)) or text[:SHORT] + "…"
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def brief_tokens(record: Record) -> int | None:
    """How long the lines of a brief are together; None for other records."""
    book = read_record(record, Book) if record.kind == BRIEF else None
    return None if book is None else sum(_COUNTER.count(f"{line.field}: {line.text}") for line in book.notes.lines)


# Commits


def arguments(owner: str, name: str, commit: Commit, stamp: int) -> list[Any]:
    """What the function `write` is given. Raises `ValueError` for a commit that makes no sense whatever is there."""
    entries, turn, lease, request = commit.entries, commit.turn, commit.lease, commit.request
    if entries:
        linked(entries[0].parent, entries)
    for entry in entries:
        numbered(entry)
        if not 0 <= entry.tokens <= MAX_COUNT or not 0 <= entry.at <= MAX_COUNT:
            raise ValueError(f"a number of {entry.id!r} is out of range")
    sensible(commit)
    _in_range(commit)
    records = [placed.record for placed in commit.records]
    source, start = commit.source or (None, None)
    return [
        *(text_in(owner), text_in(name), text_in(commit.branch), within(commit.expect), stamp, commit.at),
        *(_in(source), start, _in(commit.behind), commit.cut),
        *(None if commit.meta is None else meta_in(commit.meta), lease and lease.token),
        *(lease and _encode(lease.holder), lease and lease.until, _in(entries[0].parent) if entries else None),
        [text_in(entry.turn) for entry in entries] or None,
        [text_in(text) for e in entries for text in (e.kind, e.role, e.wire, e.mark, e.bound)] or None,
        [number for e in entries for number in (int(e.id[len(e.turn) + 1 :]), e.at, e.tokens, checksum(e.native))]
        or None,
        [shown(entry) for entry in entries] or None,
        [entry.native for entry in entries] or None,
        *(list(commit.entry_meta) or None, [meta_in(meta) for meta in commit.entry_meta.values()] or None),
        *(_turn(turn) if turn else (None, None, None)),
        *(commit.manifest or None, read_manifest(commit.manifest).cost),
        *((text_in(request.key), text_in(request.body)) if request else (None, None)),
        _names(records),
        [each for placed in commit.records for each in (placed.place, placed.record.at, brief_tokens(placed.record))]
        or None,
        [record.data for record in records] or None,
        *(_names(commit.done), [record.at for record in commit.done] or None),
        [record.data for record in commit.done] or None,
    ]


def within(number: int) -> int:
    """A number that only says from where, up to where or how many: PostgreSQL has none beyond these."""
    return max(-_MOST, min(number, _MOST))


def _in_range(commit: Commit) -> None:
    """Raise `ValueError` for a number that no column holds."""
    turn, lease = commit.turn, commit.lease
    times = [commit.at, *(record.at for record in (*(placed.record for placed in commit.records), *commit.done))]
    times += [turn.started, turn.ended] if turn else []
    times += [lease.token, lease.until] if lease else []
    places = [placed.place for placed in commit.records]
    places += [place for place in (commit.cut, commit.source and commit.source[1]) if place is not None]
    for numbers, most in ((times, _MOST), (places, FARTHEST)):
        for number in numbers:
            if abs(number) > most:
                raise ValueError(f"{number} is out of range")


def _turn(turn: Turn) -> tuple[list[str], list[int | None], list[bytes] | None]:
    # A provider may be called as the wire is that it speaks; else any wire that can reads the report.
    wire = turn.model.partition(":")[0]
    usage = sum((reported(raw, wire) for raw in turn.usage), Usage())
    known = bool(turn.usage)
    counts = [
        max(0, min(count, MAX_COUNT)) if known else None
        for count in (usage.input, usage.output, usage.cached, usage.written)
    ]
    told = (turn.id, turn.status, turn.model, turn.finish, turn.preamble, turn.error)
    return list(map(text_in, told)), [turn.started, turn.ended, len(turn.usage), *counts], list(turn.usage) or None


def _names(records: Sequence[Record]) -> list[str] | None:
    return [text_in(text) for record in records for text in (record.kind, record.entry)] or None


# Rows


def head_of(row: Sequence[Any]) -> Head | None:
    """A head from a row of the type `head_row`."""
    _, branch, revision, size, entry, token, holder, until, held, created, updated, *turn = row[:20]
    if revision is None:
        return None
    return Head(
        branch=text_out(branch),
        revision=revision,
        size=size,
        entry=_out(entry),
        token=token,
        lease=None if holder is None else Lease(holder_of(holder), until, held),
        turn=None if turn[0] is None else turn_of(turn),
        records=tuple(map(placed_of, *row[20:])) if row[20] else (),
        created=created,
        updated=updated,
    )


def turn_of(row: Sequence[Any]) -> Turn:
    """A turn from name, status, model, started, ended, finish, usage, preamble and error."""
    name, status, model, started, ended, finish, usage, preamble, error = row
    return Turn(
        *(text_out(name), status, text_out(model), started, ended, finish, tuple(usage)),
        *(text_out(preamble), text_out(error)),
    )


def placed_of(place: int, kind: str, entry: str, at: int, data: bytes) -> Placed:
    return Placed(Record(text_out(kind), text_out(entry), at, data), place)


def pack_of(rows: Sequence[tuple[Any, ...]]) -> Pack:
    """Entries from turn, number, parent, kind, role, wire, at, mark, bound, tokens and native."""
    if not rows:
        return EMPTY
    if any("\x01" in text for row in rows for text in row if isinstance(text, str)):
        rows = [tuple(text_out(each) if isinstance(each, str) else each for each in row) for row in rows]
    return from_rows(rows)
