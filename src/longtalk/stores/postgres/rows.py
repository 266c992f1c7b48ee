"""Conversions for the PostgreSQL store: from commits to SQL arguments, and from rows to heads, turns and packs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from longtalk.memory.brief.record import KIND as BRIEF
from longtalk.memory.brief.record import BriefRecord
from longtalk.stores._rows import pack_from_rows, to_ascii_json
from longtalk.stores.base import BranchHead, Commit, Holder, Lease, PlacedRecord
from longtalk.stores.checks import check_commit_fields, check_entry_id, check_parents
from longtalk.tokens import Estimator
from longtalk.transcript.manifest import read_manifest as read_manifest
from longtalk.transcript.pack import EMPTY, Entry, Pack, checksum
from longtalk.transcript.pack_index import MAX_COUNT
from longtalk.transcript.standing import read_record
from longtalk.transcript.transcript import Record, Turn
from longtalk.usage import Usage
from longtalk.wires import read_usage, text_if_readable

MAX_NUMBER, MAX_POSITION = 2**62, 2**31 - 1
"""The largest number that the store sends to the server, and the largest position on a path."""

_encode = msgspec.msgpack.Encoder().encode
decode_holder = msgspec.msgpack.Decoder(Holder).decode
_ESCAPED: Final = re.compile("\x01([\x01\x02])")


def escape_text(text: str) -> str:
    """Escape the NUL characters of a text, which PostgreSQL can't store. Escaping keeps the sort order."""
    if "\x00" in text or "\x01" in text:
        return text.replace("\x01", "\x01\x02").replace("\x00", "\x01\x01")
    return text


def unescape_text(text: str) -> str:
    """Restore a text that was escaped by `escape_text`."""
    return _ESCAPED.sub(lambda found: "\x00" if found[1] == "\x01" else "\x01", text) if "\x01" in text else text


def _escape_optional(text: str | None) -> str | None:
    return None if text is None else escape_text(text)


def _unescape_optional(text: str | None) -> str | None:
    return None if text is None else unescape_text(text)


_BRIEF_COUNTER = Estimator()


def read_text(entry: Entry) -> str:
    """Return an entry's text for people who read the tables. Characters that PostgreSQL can't store are replaced."""
    text = text_if_readable(entry)
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def count_brief_tokens(record: Record) -> int | None:
    """Return the number of tokens in the lines of a brief, or None if the record isn't a brief."""
    brief = read_record(record, BriefRecord) if record.kind == BRIEF else None
    return (
        None
        if brief is None
        else sum(_BRIEF_COUNTER.count(f"{line.field}: {line.text}") for line in brief.content.lines)
    )


# Commits


def to_write_arguments(owner: str, name: str, commit: Commit, stamp: int) -> list[Any]:
    """Return the arguments of the SQL function `write` for a commit.

    `stamp` lets the server recognize the commit if it is sent twice. Raises `ValueError` if the commit is invalid
    regardless of the stored data.
    """
    entries, turn, lease, request = commit.entries, commit.turn, commit.lease, commit.request
    if entries:
        check_parents(entries[0].parent, entries)
    for entry in entries:
        check_entry_id(entry)
        if not 0 <= entry.tokens <= MAX_COUNT or not 0 <= entry.at <= MAX_COUNT:
            raise ValueError(f"the token count or time of entry {entry.id!r} is out of range")
    check_commit_fields(commit)
    _check_range(commit)
    records = [placed.record for placed in commit.records]
    source, start = commit.source or (None, None)
    return [
        *(escape_text(owner), escape_text(name), escape_text(commit.branch), clamp(commit.expect), stamp, commit.at),
        *(_escape_optional(source), start, _escape_optional(commit.source_entry), commit.cut),
        *(None if commit.meta is None else to_ascii_json(commit.meta), lease and lease.token),
        *(
            lease and _encode(lease.holder),
            lease and lease.until,
            _escape_optional(entries[0].parent) if entries else None,
        ),
        [escape_text(entry.turn) for entry in entries] or None,
        [escape_text(text) for e in entries for text in (e.kind, e.role, e.wire, e.mark, e.bound)] or None,
        [number for e in entries for number in (int(e.id[len(e.turn) + 1 :]), e.at, e.tokens, checksum(e.native))]
        or None,
        [read_text(entry) for entry in entries] or None,
        [entry.native for entry in entries] or None,
        *(list(commit.entry_meta) or None, [to_ascii_json(meta) for meta in commit.entry_meta.values()] or None),
        *(_to_turn_arguments(turn) if turn else (None, None, None)),
        *(commit.manifest or None, read_manifest(commit.manifest).cost),
        *((escape_text(request.key), escape_text(request.body)) if request else (None, None)),
        _list_names(records),
        [
            each
            for placed in commit.records
            for each in (placed.position, placed.record.at, count_brief_tokens(placed.record))
        ]
        or None,
        [record.data for record in records] or None,
        *(_list_names(commit.obsolete), [record.at for record in commit.obsolete] or None),
        [record.data for record in commit.obsolete] or None,
    ]


def clamp(number: int) -> int:
    """Return a number, limited to the range from `-MAX_NUMBER` to `MAX_NUMBER` that the store sends to the server."""
    return max(-MAX_NUMBER, min(number, MAX_NUMBER))


def _check_range(commit: Commit) -> None:
    """Raise `ValueError` if a number in a commit is too large for its database column."""
    turn, lease = commit.turn, commit.lease
    times = [commit.at, *(record.at for record in (*(placed.record for placed in commit.records), *commit.obsolete))]
    times += [turn.started, turn.ended] if turn else []
    times += [lease.token, lease.until] if lease else []
    positions = [placed.position for placed in commit.records]
    positions += [position for position in (commit.cut, commit.source and commit.source[1]) if position is not None]
    for numbers, most in ((times, MAX_NUMBER), (positions, MAX_POSITION)):
        for number in numbers:
            if abs(number) > most:
                raise ValueError(f"the commit has a time, lease token or position that is out of range: {number}")


def _to_turn_arguments(turn: Turn) -> tuple[list[str], list[int | None], list[bytes] | None]:
    # If the provider has the name of a wire, use that wire; otherwise any wire that recognizes the usage report.
    wire = turn.model.partition(":")[0]
    usage = sum((read_usage(raw, wire) for raw in turn.usage), Usage())
    known = bool(turn.usage)
    counts = [
        max(0, min(count, MAX_COUNT)) if known else None
        for count in (usage.input, usage.output, usage.cached, usage.written)
    ]
    texts = (turn.id, turn.status, turn.model, turn.finish, turn.preamble, turn.error)
    # The server stores the responses, which follow the usage reports, in a column of their own.
    reports = [*turn.usage, *turn.responses]
    return list(map(escape_text, texts)), [turn.started, turn.ended, len(turn.usage), *counts], reports or None


def _list_names(records: Sequence[Record]) -> list[str] | None:
    return [escape_text(text) for record in records for text in (record.kind, record.entry)] or None


# Rows


def parse_head(row: Sequence[Any]) -> BranchHead | None:
    """Build a head from a row of the SQL type `head_row`. Return None if the branch doesn't exist."""
    _, branch, revision, size, entry, token, holder, until, held, created, updated, *turn = (*row[:20], row[25])
    if revision is None:
        return None
    return BranchHead(
        branch=unescape_text(branch),
        revision=revision,
        size=size,
        entry=_unescape_optional(entry),
        token=token,
        lease=None if holder is None else Lease(decode_holder(holder), until, held),
        turn=None if turn[0] is None else parse_turn(turn),
        records=tuple(map(parse_record, *row[20:25])) if row[20] else (),
        created=created,
        updated=updated,
    )


def parse_turn(row: Sequence[Any]) -> Turn:
    """Build a turn from a database row.

    The columns are name, status, model, started, ended, finish, usage, preamble, error and responses.
    """
    name, status, model, started, ended, finish, usage, preamble, error, responses = row
    return Turn(
        *(unescape_text(name), status, unescape_text(model), started, ended, finish, tuple(usage)),
        *(unescape_text(preamble), unescape_text(error), tuple(responses)),
    )


def parse_record(position: int, kind: str, entry: str, at: int, data: bytes) -> PlacedRecord:
    """Build a record with its position from the columns of a database row."""
    return PlacedRecord(Record(unescape_text(kind), unescape_text(entry), at, data), position)


def parse_pack(rows: Sequence[tuple[Any, ...]]) -> Pack:
    """Build a pack from database rows, one for each entry.

    The columns are turn, number, parent, kind, role, wire, at, mark, bound, tokens and native.
    """
    if not rows:
        return EMPTY
    if any("\x01" in text for row in rows for text in row if isinstance(text, str)):
        rows = [tuple(unescape_text(each) if isinstance(each, str) else each for each in row) for row in rows]
    return pack_from_rows(rows)
