"""Adapt messages to servers that speak the OpenAI chat wire but reject some of its messages.

Such a server may reject another vendor's fields, call ids of another form, half a surrogate pair, or roles out of
order. `learn_from_error` finds the reason in the server's error; `adapt_message` and `alternate_roles` produce messages
that the server accepts. The transcript keeps the original.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk.wires.native import array_items, array_objects
from longtalk.wires.protocol import Quirks

_KNOWN = ("role", "content", "tool_calls", "tool_call_id", "name", "type", "text", "id", "function", "image_url")
# Fields whose elements may have vendor-specific fields.
_LISTS = ("content", "tool_calls")
NO_CONTENT = (b"null", b"[]")
# Stands for the missing answer of a turn that was interrupted after its tools had run, if a server requires one.
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


def learn_from_error(error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:
    """Return the known quirks plus those that this error reveals, or None if it reveals none.

    This implements `Wire.learn_from_error` for OpenAI chat.
    """
    message = _error_texts(error)
    names = {name for native in natives for name in _removable_fields(json_bytes.fields(native))}
    fields = [name for name in sorted(names) if name not in known.fields and _is_refused(name, message)]
    if fields:
        return msgspec.structs.replace(known, fields=(*known.fields, *fields))
    if not known.strict_ids and _BAD_ID.search(message) and any(b'"tool_calls"' in native for native in natives):
        return msgspec.structs.replace(known, strict_ids=True)
    if not known.no_surrogates and "surrogate" in message.lower():
        return msgspec.structs.replace(known, no_surrogates=True)
    if not known.must_alternate and _BAD_ORDER.search(message):
        return msgspec.structs.replace(known, must_alternate=True)
    return None


def adapt_message(native: bytes, quirks: Quirks) -> bytes:
    """Return a message in a form that a server with these quirks accepts."""
    if quirks.no_surrogates:
        native = json_bytes.replace_surrogates(native)
    if any(b'"%s"' % field.encode() in native for field in quirks.fields):
        native = _without_fields(native, quirks.fields)
    if quirks.strict_ids and (b'"tool_calls"' in native or b'"tool_call_id"' in native):
        native = _with_short_ids(native)
    return native


def _error_texts(error: bytes) -> str:
    """Return the string values in an error, one per line. Keys are left out, because they name no message field."""

    def texts(value: Any) -> list[str]:
        if isinstance(value, dict | list):
            inner = value.values() if isinstance(value, dict) else value
            return [text for item in inner for text in texts(item)]
        return [value] if isinstance(value, str) else []

    try:
        return "\n".join(texts(json_bytes.value(error)))
    except (ValueError, RecursionError):
        return error.decode("utf-8", "replace")


def _is_refused(name: str, message: str) -> bool:
    """Return True if the error message says that the server rejects the field `name`.

    A field name that is also an ordinary word must be marked as a name, for example by quotes. A complaint that the
    field is missing doesn't count.
    """
    name = re.escape(name)
    before, after = (r"(?<!\w)", r"(?!\w)") if "_" in name else (r"(?:^|['\"`.])", r"(?:$|['\"`.:\]])")
    missing = rf"missing\W+{name}\b|\b{name}\b.{{0,50}}must be (?:passed|present|provided|included|set)"
    return bool(re.search(before + name + after, message, re.M)) and not re.search(missing, message, re.I)


def _removable_fields(fields: dict[str, bytes]) -> set[str]:
    """Return the fields of an answer that can be left out: vendor-specific ones, and standard ones without content."""
    if fields.get("role") != b'"assistant"':
        return set()
    inner = {name for key in _LISTS for item in array_objects(fields.get(key, b"null")) for name in item}
    own = {name for name in (*fields, *inner) if name not in _KNOWN}
    return own | {name for name, value in fields.items() if value in NO_CONTENT and name not in ("content", "role")}


def _without_fields(native: bytes, names: Sequence[str]) -> bytes:
    def trim(raw: bytes) -> bytes:
        if raw[:1] != b"{":
            return raw
        members = json_bytes.fields(raw)
        # A server may refuse an empty standard field in one message; in another, the same field may hold the calls.
        left = {k: v for k, v in members.items() if k not in names or (k in _KNOWN and v not in NO_CONTENT)}
        return raw if left == members else json_bytes.build(left)

    fields = json_bytes.fields(trim(native))
    for key in _LISTS:
        items = array_items(fields.get(key, b"null"))
        if list(map(trim, items)) != items:
            fields[key] = b"[" + b",".join(map(trim, items)) + b"]"
    return json_bytes.build(fields)


def _with_short_ids(native: bytes) -> bytes:
    fields = json_bytes.fields(native)
    if "tool_call_id" in fields:
        fields["tool_call_id"] = _short_id(fields["tool_call_id"])
    if fields.get("tool_calls", b"")[:1] == b"[":
        calls = [{**call, "id": _short_id(call.get("id", b'""'))} for call in array_objects(fields["tool_calls"])]
        fields["tool_calls"] = b"[" + b",".join(map(json_bytes.build, calls)) + b"]"
    return json_bytes.build(fields)


def _short_id(raw: bytes) -> bytes:
    if re.fullmatch(rb'"[a-zA-Z0-9]{9}"', raw):
        return raw
    import hashlib

    # Hash the text, not its JSON: the id of a call and that of its result may be escaped differently.
    return b'"%s"' % hashlib.sha256((json_bytes.text(raw) or "").encode()).hexdigest()[:9].encode()


def alternate_roles(pieces: Sequence[bytes | memoryview]) -> list[bytes]:
    """Return the messages of a request, changed so that user and assistant alternate.

    System messages after the first message become user messages, and neighbouring user messages are merged. If a user
    message directly follows a tool result, a placeholder answer is inserted between them.
    """
    merged: list[dict[str, bytes]] = []
    for i, native in enumerate(json_bytes.items(b"[" + b",".join(pieces) + b"]")):
        fields = {"role": b'"user"', "content": b'""', **json_bytes.fields(native)}
        if i and fields.get("role") == b'"system"':
            fields["role"] = b'"user"'
        if merged and fields["role"] == merged[-1]["role"] == b'"user"':
            both = [*_as_parts(merged[-1]["content"]), *_as_parts(fields["content"])]
            merged[-1]["content"] = b"[" + b",".join(both) + b"]"
        else:
            if merged and fields["role"] == b'"user"' and merged[-1]["role"] == b'"tool"':
                merged.append({"role": b'"assistant"', "content": json_bytes.encode(NO_ANSWER)})
            merged.append(fields)
    return list(map(json_bytes.build, merged))


def _as_parts(content: bytes) -> list[bytes]:
    return array_items(content) or [json_bytes.build({"type": b'"text"', "text": content})]
