"""Read conversations from files, and detect the format of a file from its content.

The formats are Longtalk's exports (JSON, JSONL), files of the JSONL store, states (including those of the earlier Go
library), messages in OpenAI's chat format or in Anthropic's, and session logs of the KSI daemon. Messages keep their
exact bytes. All problems raise `InputError`.
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
from longtalk.stores.jsonl.errors import Damaged
from longtalk.stores.jsonl.groups import parse_groups
from longtalk.stores.jsonl.lines import FORMAT, ConversationLine, apply_group, parse_line
from longtalk.transcript.ranges import Ranges
from longtalk.transfer.chat_messages import parse_object
from longtalk.transfer.conversation_export import BranchPart, ConversationExport, check_export, split_branches
from longtalk.transfer.json_export import from_json, from_jsonl
from longtalk.transfer.ksi_logs import LINE_TYPES, read_ksi_log
from longtalk.transfer.limits import ENTRY_BYTES, Budget, TooLarge
from longtalk.transfer.message_lists import read_bodies, read_messages
from longtalk.transfer.read_helpers import UnknownFormat, excerpt
from longtalk.wires import NAMES

SUPPORTED = (
    "Longtalk exports and states, files of the JSONL store, messages in OpenAI's chat format or in Anthropic's as JSON "
    "or JSONL, data exports of ChatGPT and Claude, the log of llm, LangGraph's SQLite checkpoints, session files of "
    "the OpenAI Agents SDK, and session logs of the KSI daemon"
)
_BOM = b"\xef\xbb\xbf"


def read(data: bytes, *, name: str = "import") -> list[ConversationExport]:
    """Return the conversations in a file with this content; raise `InputError` if it can't be read.

    A conversation without an id gets the id `name`; several get the ids `name-1`, `name-2` and so on.
    """
    try:
        budget = Budget(len(data))
        exports = _read(bytes(data), name, budget)
        for export in exports:
            budget.spend_on_branches(export)
            if not _is_utf8(name) and export.id.startswith(name):
                raise ValueError("the file name is not valid UTF-8, so it can't be the id; pass an id")
            check_export(export)
    except (ValueError, OverflowError, RecursionError, BadState, Damaged, TooLarge) as problem:
        is_deep = isinstance(problem, RecursionError)
        reason = "the JSON is nested too deeply" if is_deep else str(problem).rstrip(".") or type(problem).__name__
        hint = f" Supported files: {SUPPORTED}." if isinstance(problem, UnknownFormat) else ""
        raise InputError(f"Can't read a conversation from {name!r}: {reason}.{hint}") from None
    return exports


def _read(data: bytes, name: str, budget: Budget) -> list[ConversationExport]:
    if data.startswith(SEALED):
        raise ValueError("the file is a sealed state; open it with its seal first (`Seal.open`)")
    if data.startswith(SEALED[:3]):
        return [_read_state(data, name)]
    text = data.removeprefix(_BOM).strip()
    if not text:
        raise UnknownFormat("the file is empty")
    if text[:1] == b"[":
        items = json_bytes.items(text)
        if items and items[0][:1] != b"{":
            raise UnknownFormat(f"the file is a list whose first element must be an object, not {excerpt(items[0])}")
        first = parse_object(items[0], 1) if items else {}
        return read_bodies(items, name) if "messages" in first else [read_messages(items, id=name)]
    if text[:1] != b"{":
        raise UnknownFormat(f"the format is unknown (the file begins with {excerpt(data)})")
    lines = list(_split_lines(text))
    try:
        first = json_bytes.fields(lines[0][1])
    except ValueError:
        # The first line is not a complete JSON object, so the whole file is one document.
        first, lines = json_bytes.fields(text), [(1, text)]
    kind = json_bytes.text(first.get("type", b"null"))
    if "conversations" in first and "longtalk" in first:
        return from_json(text)
    if kind == "conversation" and "format" in first:
        return [_read_store_file(data.removeprefix(_BOM), name, budget)]
    if kind == "conversation":
        return from_jsonl(lines)
    if "messages" in first and "version" in first and len(lines) == 1:
        return [_read_state(text, name)]
    if "messages" in first:
        return read_bodies([line for _, line in lines], name)
    if "role" in first and kind not in LINE_TYPES:
        return [read_messages([line for _, line in lines], id=name)]
    return [read_ksi_log(lines, name)]


def _is_utf8(name: str) -> bool:
    return name == name.encode("utf-8", "replace").decode()


def _split_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(data.split(b"\n"), 1):
        if line := line.strip():
            yield number, line


# Longtalk's own formats


def _read_state(data: bytes, name: str) -> ConversationExport:
    """Read a conversation from a state; raise `ValueError` if the state has shed part of the conversation."""
    transcript = decode(data, wires=NAMES)
    entries = tuple(transcript)
    if transcript.shed != Ranges() or (entries and entries[0].parent is not None):
        raise ValueError("the file is a state that has shed older entries; put them back first with `join`")
    positions = {entry.id: position for position, entry in enumerate(entries)}
    here = {entry.turn for entry in entries}
    part = BranchPart(
        name=MAIN,
        entries=entries,
        turns=tuple(turn for turn in transcript.turns if turn.id in here),
        records=tuple(PlacedRecord(record, positions.get(record.entry, -1)) for record in transcript.records),
    )
    return ConversationExport(id=name, created=transcript.created, updated=transcript.updated, branches=(part,))


def _read_store_file(data: bytes, name: str, budget: Budget) -> ConversationExport:
    """Read a conversation from a file of the JSONL store.

    Data after the last complete commit is ignored, since the store never reported it as saved.
    """
    commits, _ = parse_groups(data, Path(name), 1)
    header = parse_line(commits[0].lines[0]) if commits else None
    if not isinstance(header, ConversationLine):
        raise ValueError("the file contains no complete commit")
    if header.format > FORMAT:
        raise ValueError(
            f"the file's format is version {header.format}, but this Longtalk reads only up to version {FORMAT}; "
            "upgrade Longtalk"
        )
    tree = ConversationTree()
    for commit in commits:
        try:
            apply_group(tree, [parse_line(line) for line in commit.lines])
        except (HeadMoved, RequestKeyTaken) as problem:
            raise ValueError(f"the commit at line {commit.first} contradicts earlier lines ({problem})") from None
    # Main comes first, then the longest branch: shared entries are kept with the first branch that has them.
    heads = sorted(tree.branches(), key=lambda head: (head.branch != MAIN, -head.size, head.branch))
    budget.spend(sum(ENTRY_BYTES * head.size for head in heads[1:]))
    paths = [_read_branch(tree, head.branch, head.size) for head in heads]
    info = tree.info(header.id)
    meta = msgspec.convert(info.meta, dict[str, Any])
    return ConversationExport(
        id=header.id, created=info.created, updated=info.updated, meta=meta, branches=split_branches(paths)
    )


def _read_branch(tree: ConversationTree, branch: str, size: int) -> BranchPart:
    return BranchPart(
        name=branch,
        entries=tuple(tree.read(branch, 0, size).entries()),
        turns=tuple(turn for _, turn in tree.turns(branch, 0, size)),
        records=tuple(tree.records(branch, None)),
        metas=msgspec.convert(tree.metas(branch, 0, size), dict[int, dict[str, Any]]),
    )
