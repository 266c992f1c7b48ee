"""Write and read exports as JSON and JSONL files.

Both formats consist of the same lines, one for each entry, turn and record, as the JSONL store writes them
(`stores/jsonl/lines.py`). Files can be compared and searched line by line, and the JSON of every entry is restored byte
for byte. A file may come from an untrusted source, so `check_export` verifies what was read. Unknown keys and line
types are ignored, since a later version may have written them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from longtalk._util import json_bytes
from longtalk.context.manifest import is_readable_manifest
from longtalk.stores._rows import to_utf8_json
from longtalk.stores.base import PlacedRecord
from longtalk.stores.jsonl.lines import (
    EntryLine,
    Line,
    RecordLine,
    TurnLine,
    encode_line,
    entry_to_line,
    line_to_entry,
    line_to_meta,
    line_to_record,
    line_to_turn,
    parse_line,
    record_to_line,
    to_base64,
    turn_to_line,
)
from longtalk.transcript.pack import Entry
from longtalk.transcript.transcript import Turn
from longtalk.transfer.conversation_export import BranchPart, ConversationExport, check_export, refuse

FORMAT = 1
"""The version of the file format, stored in each file under the key `longtalk`."""

# Many JSON parsers fail at about a thousand levels of nesting, and the file around an entry needs some of them.
_MAX_DEPTH = 200
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|([\[{])|[\]}]', re.DOTALL)
_PARTS = ("entries", "turns", "records")


# Writing


def to_json(exports: Sequence[ConversationExport]) -> bytes:
    """Return the conversations as one JSON document, `{"longtalk": 1, "conversations": […]}`.

    Each entry, turn and record is on a separate line.
    """
    return b'{"longtalk":%d,"conversations":[\n%s\n]}\n' % (FORMAT, b",\n".join(map(_encode_export, exports)))


def _encode_export(export: ConversationExport) -> bytes:
    check_export(export)
    branches = [
        _append_lists(to_utf8_json(_describe_branch(part)), zip(_PARTS, _encode_part(export, part), strict=True))
        for part in export.branches
    ]
    return _append_lists(to_utf8_json(_describe_export(export)), [("branches", branches)])


def _append_lists(head: bytes, lists: Iterable[tuple[str, Sequence[bytes]]]) -> bytes:
    """Add these lists to the JSON object `head`, with one element per line. Empty lists are left out."""
    parts = [b'"%s":[\n%s\n]' % (name.encode(), b",\n".join(lines)) for name, lines in lists if lines]
    return b"%s}" % b",".join((head[:-1], *parts))


def to_jsonl(exports: Sequence[ConversationExport]) -> bytes:
    """Return the conversations as JSONL.

    Each conversation is a line, followed by its branches. Each branch is a line, followed by a line for each of its
    entries, turns and records.
    """
    lines: list[bytes] = []
    for export in exports:
        check_export(export)
        lines.append(to_utf8_json({"type": "conversation", "longtalk": FORMAT, **_describe_export(export)}))
        for part in export.branches:
            lines.append(to_utf8_json({"type": "branch", **_describe_branch(part)}))
            for group in _encode_part(export, part):
                lines += group
    return b"".join([line + b"\n" for line in lines])


def _describe_export(export: ConversationExport) -> dict[str, Any]:
    return {"id": export.id, "created": export.created, "updated": export.updated, "meta": export.meta}


def _describe_branch(part: BranchPart) -> dict[str, Any]:
    return {"name": part.name, **({"source": part.source} if part.source else {})}


def _encode_part(export: ConversationExport, part: BranchPart) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Return three lists of JSON lines: one for the entries of a part, one for its turns, and one for its records."""
    return (
        [
            _encode_line(entry_to_line(entry, part.metas.get(position)))
            for position, entry in enumerate(part.entries, part.start)
        ],
        [_encode_line(turn_to_line(turn, None, export.manifests.get(turn.id, b""))) for turn in part.turns],
        [_encode_line(record_to_line(placed)) for placed in part.records],
    )


def _encode_line(value: Line) -> bytes:
    line = encode_line(value)
    return line if _measure_depth(line) <= _MAX_DEPTH else encode_line(to_base64(value))


def _measure_depth(line: bytes) -> int:
    """Return the depth of nesting of the JSON in a line, or 0 if the depth is certainly within `_MAX_DEPTH`."""
    if line.count(b"[") + line.count(b"{") <= _MAX_DEPTH:
        return 0
    level = deepest = 0
    for token in _TOKENS.finditer(line):
        if token[0][:1] != b'"':
            level += 1 if token[1] else -1
            deepest = max(deepest, level)
    return deepest


# Reading


class _Head(msgspec.Struct):
    id: str
    created: int = 0
    updated: int = 0
    meta: dict[str, Any] = {}


class _Branch(msgspec.Struct):
    name: str
    source: tuple[str, int] | None = None


_Fields = TypeVar("_Fields", _Head, _Branch)


def from_json(data: bytes) -> list[ConversationExport]:
    """Read conversations from JSON written by `to_json`; raise `ValueError` if the JSON is invalid."""
    members = json_bytes.fields(data)
    _check_version(members)
    exports = []
    for conversation in json_bytes.items(members["conversations"]):
        head = json_bytes.fields(conversation)
        branches = [json_bytes.fields(branch) for branch in json_bytes.items(head.get("branches", b"[]"))]
        lines = [[line for part in _PARTS for line in json_bytes.items(branch.get(part, b"[]"))] for branch in branches]
        heads = [_convert(_Branch, branch) for branch in branches]
        exports.append(_build_export(_convert(_Head, head), zip(heads, lines, strict=True)))
    return exports


def from_jsonl(lines: Iterable[tuple[int, bytes]]) -> list[ConversationExport]:
    """Read conversations from numbered lines written by `to_jsonl`; raise `ValueError` if a line is invalid."""
    found: list[tuple[_Head, list[tuple[_Branch, list[bytes]]]]] = []
    for number, line in lines:
        try:
            members = json_bytes.fields(line)
            kind = json_bytes.text(members.get("type", b"null"))
            if kind == "conversation":
                _check_version(members)
                found.append((_convert(_Head, members), []))
            elif kind == "branch":
                found[-1][1].append((_convert(_Branch, members), []))
            elif kind in ("entry", "turn", "record"):
                found[-1][1][-1][1].append(line)
        except ValueError as problem:
            refuse(f"line {number}: {problem}")
        except IndexError:
            refuse(f"line {number} belongs to a conversation or branch whose own line is missing before it")
    return [_build_export(head, branches) for head, branches in found]


def _check_version(members: dict[str, bytes]) -> None:
    number = json_bytes.value(members.get("longtalk", b"null"))
    if type(number) is not int or number < 1:
        refuse("it does not state the version of its format: the key `longtalk` must be a positive integer")
    if number > FORMAT:
        refuse(f"its format is version {number}, but this Longtalk reads only up to version {FORMAT}; upgrade Longtalk")


def _convert(kind: type[_Fields], members: dict[str, bytes]) -> _Fields:
    known = {name: members[name] for name in kind.__struct_fields__ if name in members}
    return msgspec.convert(json.loads(json_bytes.build(known)), kind)


def _build_export(head: _Head, branches: Iterable[tuple[_Branch, Sequence[bytes]]]) -> ConversationExport:
    manifests: dict[str, bytes] = {}
    parts = tuple(_build_part(branch, lines, manifests) for branch, lines in branches)
    export = ConversationExport(
        id=head.id,
        created=head.created,
        updated=head.updated,
        meta=head.meta,
        branches=parts,
        manifests=manifests,
    )
    check_export(export)
    return export


def _build_part(branch: _Branch, lines: Sequence[bytes], manifests: dict[str, bytes]) -> BranchPart:
    """Return the part of a branch that its lines describe, and add the manifests of its turns to `manifests`."""
    entries: list[Entry] = []
    turns: list[Turn] = []
    records: list[PlacedRecord] = []
    metas: dict[int, dict[str, Any]] = {}
    start = branch.source[1] if branch.source else 0
    for number, data in enumerate(lines, 1):
        try:
            line = parse_line(data)
            if isinstance(line, EntryLine):
                if (meta := line_to_meta(line)) is not None:
                    metas[start + len(entries)] = msgspec.convert(meta, dict[str, Any])
                entries.append(line_to_entry(line))
            elif isinstance(line, TurnLine):
                turns.append(line_to_turn(line))
                if is_readable_manifest(manifest := line.manifest_base64 or bytes(line.manifest)):
                    manifests[line.id] = manifest
            elif isinstance(line, RecordLine):
                records.append(line_to_record(line))
        except ValueError as problem:
            refuse(f"line {number} of branch {branch.name!r}: {problem}")
    return BranchPart(
        name=branch.name,
        source=branch.source,
        entries=tuple(entries),
        turns=tuple(turns),
        records=tuple(records),
        metas=metas,
    )
