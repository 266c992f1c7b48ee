"""Read conversations from files, and detect the format of each file from its content.

The formats are Longtalk's exports (JSON, JSONL), files of the JSONL store, states (including those of the earlier Go
library), messages in OpenAI's chat format, and session logs of the KSI daemon. Messages keep their exact bytes. Every
problem is reported as an `InputError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk.errors import BadState, InputError
from longtalk.state.codec import decode
from longtalk.state.sealed_header import SEALED
from longtalk.stores._tree import ConversationTree
from longtalk.stores.base import MAIN, HeadMoved, PlacedRecord, RequestKeyTaken
from longtalk.stores.jsonl.folder import Damaged, parse_groups
from longtalk.stores.jsonl.lines import FORMAT, ConversationLine, apply_group, parse_line
from longtalk.transcript.ranges import Ranges
from longtalk.transfer.chat_messages import parse_object, read_bodies, read_messages
from longtalk.transfer.conversation_export import BranchPart, ConversationExport, check_export, split_branches
from longtalk.transfer.document import of_json, of_jsonl
from longtalk.transfer.ksi_logs import LINE_TYPES, read_ksi_log
from longtalk.transfer.read_helpers import UnknownFormat, excerpt
from longtalk.wires import NAMES

EXPECTED = (
    "a Longtalk export or state, a file of the JSONL store, OpenAI chat messages as JSON or JSONL, a data export of "
    "ChatGPT or Claude, the log of llm, LangGraph's SQLite checkpoints, a session file of the OpenAI Agents SDK, or a "
    "session log of the KSI daemon"
)
_MARK = b"\xef\xbb\xbf"


def read(data: bytes, *, name: str = "import") -> list[ConversationExport]:
    """Return the conversations in a file, given its content; raise `InputError` if the file can't be read.

    Conversations without an id get `name` as their id, or `name-1`, `name-2` and so on if there are several.
    """
    try:
        exports = _read(bytes(data), name)
        for export in exports:
            if not _is_text(export.id):
                raise ValueError("the name of the file is not UTF-8, so it can't be the id: choose an id")
            check_export(export)
    except (ValueError, OverflowError, RecursionError, BadState, Damaged) as problem:
        what = str(problem).rstrip(".") or type(problem).__name__
        hint = f" Expected {EXPECTED}." if isinstance(problem, UnknownFormat) else ""
        raise InputError(f"{name!r} can't be read as a conversation: {what}.{hint}") from None
    return exports


def _read(data: bytes, name: str) -> list[ConversationExport]:
    if data.startswith(SEALED):
        raise ValueError("it is a sealed state: open it with its seal first")
    if data.startswith(SEALED[:3]):
        return [_state(data, name)]
    text = data.removeprefix(_MARK).strip()
    if not text:
        raise UnknownFormat("it is empty")
    if text[:1] == b"[":
        items = json_bytes.items(text)
        if items and items[0][:1] != b"{":
            raise UnknownFormat(f"its first element is not an object but {excerpt(items[0])}")
        first = parse_object(items[0], 1) if items else {}
        return read_bodies(items, name) if "messages" in first else [read_messages(items, id=name)]
    if text[:1] != b"{":
        raise UnknownFormat(f"it begins with {excerpt(data)}")
    lines = list(_lines(text))
    try:
        first = json_bytes.fields(lines[0][1])
    except ValueError:
        # The first line is not a JSON object of its own, so the whole file is one document.
        first, lines = json_bytes.fields(text), [(1, text)]
    kind = json_bytes.text(first.get("type", b"null"))
    if "conversations" in first and "longtalk" in first:
        return of_json(text)
    if kind == "conversation" and "format" in first:
        return [_stored(data.removeprefix(_MARK), name)]
    if kind == "conversation":
        return of_jsonl(lines)
    if "messages" in first and "version" in first and len(lines) == 1:
        return [_state(text, name)]
    if "messages" in first:
        return read_bodies([line for _, line in lines], name)
    if "role" in first and kind not in LINE_TYPES:
        return [read_messages([line for _, line in lines], id=name)]
    return [read_ksi_log(lines, name)]


def _is_text(name: str) -> bool:
    return name == name.encode("utf-8", "replace").decode()


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(data.split(b"\n"), 1):
        if line := line.strip():
            yield number, line


# Longtalk's own formats


def _state(data: bytes, name: str) -> ConversationExport:
    """Read a conversation from a state; raise `ValueError` if parts of the conversation were shed from it."""
    transcript = decode(data, wires=NAMES)
    entries = tuple(transcript)
    if transcript.shed != Ranges() or (entries and entries[0].parent is not None):
        raise ValueError("it is a state that has shed parts of the conversation: `join` them first")
    places = {entry.id: place for place, entry in enumerate(entries)}
    here = {entry.turn for entry in entries}
    part = BranchPart(
        name=MAIN,
        entries=entries,
        turns=tuple(turn for turn in transcript.turns if turn.id in here),
        records=tuple(PlacedRecord(record, places.get(record.entry, -1)) for record in transcript.records),
    )
    return ConversationExport(id=name, created=transcript.created, updated=transcript.updated, branches=(part,))


def _stored(data: bytes, name: str) -> ConversationExport:
    """Read a conversation from a file of the JSONL store.

    Data after the last complete commit is ignored, since the store never reported it as saved.
    """
    whole, _ = parse_groups(data, Path(name), 1)
    header = parse_line(whole[0].lines[0]) if whole else None
    if not isinstance(header, ConversationLine):
        raise ValueError("it holds no whole commit")
    if header.format > FORMAT:
        raise ValueError(f"its format is {header.format}, and {FORMAT} is the last one known here: upgrade longtalk")
    ledger = ConversationTree()
    for group in whole:
        try:
            apply_group(ledger, [parse_line(line) for line in group.lines])
        except (HeadMoved, RequestKeyTaken) as problem:
            raise ValueError(f"line {group.first} does not follow from those before it ({problem})") from None
    # Main first, then the longest: shared entries are stored with the branch that comes first.
    heads = sorted(ledger.branches(), key=lambda head: (head.branch != MAIN, -head.size, head.branch))
    paths = [_path(ledger, head.branch, head.size) for head in heads]
    known = ledger.info(header.id)
    meta = msgspec.convert(known.meta, dict[str, Any])
    return ConversationExport(
        id=header.id, created=known.created, updated=known.updated, meta=meta, branches=split_branches(paths)
    )


def _path(ledger: ConversationTree, branch: str, size: int) -> BranchPart:
    return BranchPart(
        name=branch,
        entries=tuple(ledger.read(branch, 0, size).entries()),
        turns=tuple(turn for _, turn in ledger.turns(branch, 0, size)),
        records=tuple(ledger.records(branch, None)),
        metas=msgspec.convert(ledger.metas(branch, 0, size), dict[int, dict[str, Any]]),
    )
