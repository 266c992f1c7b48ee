"""What servers refuse although they speak the OpenAI chat wire: learnt from their errors, and adapted to.

Fields of another vendor, call ids of another form, half a surrogate pair, roles out of order. `objection` reads it out
of an error; `adapted` and `alternating` give such a server what it takes. The transcript keeps the original.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from longtalk import _json
from longtalk.wires.base import Quirks

_KNOWN = ("role", "content", "tool_calls", "tool_call_id", "name", "type", "text", "id", "function", "image_url")
# Where servers put objects with fields of their own.
_LISTS = ("content", "tool_calls")
SAYS_NOTHING = (b"null", b"[]")
# Stands for the answer of a turn that was cut off after its tools had run, where a server insists on one.
NO_ANSWER = "(no answer)"
_BAD_ID = re.compile(
    r"tool.?(?:call|use)s?(?:\[\d+\])?[ ._`']{0,2}ids?\b.{0,120}(?:must be|should match|too long|invalid|length)"
    r"|invalid tool.?call.?id",
    re.IGNORECASE,
)
_BAD_ORDER = re.compile(
    r"roles? must alternate|system message must be|unexpected role '(?:system|user)' after role|expected last role",
    re.IGNORECASE,
)


def objection(error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:
    """See `Wire.objection`."""
    said = _wording(error)
    names = {name for native in natives for name in _names(_json.fields(native))}
    fields = [name for name in sorted(names) if name not in known.fields and _is_refused(name, said)]
    if fields:
        return msgspec.structs.replace(known, fields=(*known.fields, *fields))
    if not known.ids and _BAD_ID.search(said) and any(b'"tool_calls"' in native for native in natives):
        return msgspec.structs.replace(known, ids=True)
    if not known.whole and "surrogate" in said.lower():
        return msgspec.structs.replace(known, whole=True)
    if not known.alternate and _BAD_ORDER.search(said):
        return msgspec.structs.replace(known, alternate=True)
    return None


def adapted(native: bytes, quirks: Quirks) -> bytes:
    """A message in a form that a server with these quirks takes."""
    if quirks.whole:
        native = _json.whole(native)
    if any(b'"%s"' % field.encode() in native for field in quirks.fields):
        native = _without(native, quirks.fields)
    if quirks.ids and (b'"tool_calls"' in native or b'"tool_call_id"' in native):
        native = _with_short_ids(native)
    return native


def array(data: bytes) -> list[bytes]:
    """The elements of what may be an array."""
    return _json.items(data) if data[:1] == b"[" else []


def _wording(error: bytes) -> str:
    """The texts of an error, a line each: its own keys are not what it speaks of."""

    def texts(value: Any) -> list[str]:
        if isinstance(value, dict | list):
            inner = value.values() if isinstance(value, dict) else value
            return [text for item in inner for text in texts(item)]
        return [value] if isinstance(value, str) else []

    try:
        return "\n".join(texts(_json.value(error)))
    except (ValueError, RecursionError):
        return error.decode("utf-8", "replace")


def _is_refused(name: str, said: str) -> bool:
    """Whether a field is named as one that is there. What may be a plain word must stand apart as a name does."""
    name = re.escape(name)
    before, after = (r"(?<!\w)", r"(?!\w)") if "_" in name else (r"(?:^|['\"`.])", r"(?:$|['\"`.:\]])")
    missing = rf"missing\W+{name}\b|\b{name}\b.{{0,50}}must be (?:passed|present|provided|included|set)"
    return bool(re.search(before + name + after, said, re.M)) and not re.search(missing, said, re.I)


def _names(fields: dict[str, bytes]) -> set[str]:
    """The fields of a message that could be left out: vendors' own, and standard ones that say nothing."""
    if fields.get("role") != b'"assistant"':
        return set()
    items = [item for key in _LISTS for item in array(fields.get(key, b"null")) if item[:1] == b"{"]
    inner = {name for item in items for name in _json.fields(item)}
    own = {name for name in (*fields, *inner) if name not in _KNOWN}
    return own | {name for name, value in fields.items() if value in SAYS_NOTHING and name not in ("content", "role")}


def _without(native: bytes, names: Sequence[str]) -> bytes:
    def trimmed(raw: bytes) -> bytes:
        if raw[:1] != b"{":
            return raw
        members = _json.fields(raw)
        # A standard field is named for saying nothing in one message; in another one it may hold the calls.
        left = {k: v for k, v in members.items() if k not in names or (k in _KNOWN and v not in SAYS_NOTHING)}
        return raw if left == members else _json.build(left)

    fields = _json.fields(trimmed(native))
    for key in _LISTS:
        items = array(fields.get(key, b"null"))
        if list(map(trimmed, items)) != items:
            fields[key] = b"[" + b",".join(map(trimmed, items)) + b"]"
    return _json.build(fields)


def _with_short_ids(native: bytes) -> bytes:
    fields = _json.fields(native)
    if "tool_call_id" in fields:
        fields["tool_call_id"] = _short_id(fields["tool_call_id"])
    if fields.get("tool_calls", b"")[:1] == b"[":
        calls = [_json.fields(call) for call in array(fields["tool_calls"])]
        calls = [{**call, "id": _short_id(call.get("id", b'""'))} for call in calls]
        fields["tool_calls"] = b"[" + b",".join(map(_json.build, calls)) + b"]"
    return _json.build(fields)


def _short_id(raw: bytes) -> bytes:
    if re.fullmatch(rb'"[a-zA-Z0-9]{9}"', raw):
        return raw
    import hashlib

    # Of the text, not of its JSON: a call's id and that of its result may be escaped differently.
    return b'"%s"' % hashlib.sha256((_json.text(raw) or "").encode()).hexdigest()[:9].encode()


def alternating(pieces: Sequence[bytes | memoryview]) -> list[bytes]:
    """Messages with system ones spoken by the user, the user's neighbours joined, and an answer after results."""
    merged: list[dict[str, bytes]] = []
    for i, native in enumerate(_json.items(b"[" + b",".join(pieces) + b"]")):
        fields = {"role": b'"user"', "content": b'""', **_json.fields(native)}
        if i and fields.get("role") == b'"system"':
            fields["role"] = b'"user"'
        if merged and fields["role"] == merged[-1]["role"] == b'"user"':
            both = [*_as_parts(merged[-1]["content"]), *_as_parts(fields["content"])]
            merged[-1]["content"] = b"[" + b",".join(both) + b"]"
        else:
            if merged and fields["role"] == b'"user"' and merged[-1]["role"] == b'"tool"':
                merged.append({"role": b'"assistant"', "content": _json.encode(NO_ANSWER)})
            merged.append(fields)
    return list(map(_json.build, merged))


def _as_parts(content: bytes) -> list[bytes]:
    return array(content) or [_json.build({"type": b'"text"', "text": content})]
