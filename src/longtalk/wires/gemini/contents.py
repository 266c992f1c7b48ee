"""Prepare the contents of a Gemini request: group tool results by answer, and adapt contents to what a server accepts.

Gemini calls a message a content. Each tool result is stored as a separate entry. The API requires all results of one
answer in one content, in the order of the calls, and with an id only if the model gave the call one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk.wires.gemini.parts import GENERATED_ID, is_signed, list_parts, read_text_member, view_content
from longtalk.wires.native import array_objects, object_fields, split_piece
from longtalk.wires.protocol import Quirks

SCHEMA_FIELD = "parametersJsonSchema"
_RESULT = b'{"role":"user","parts":[{"functionResponse":'
_STAND_IN_SIGNATURE = b'"skip_thought_signature_validator"'
"""The value that the API accepts as the signature of a call that its model did not make."""


def declare_tool(tool: Any, quirks: Quirks) -> bytes:
    """Return the JSON that declares a tool to the API."""
    fields = {"name": json_bytes.encode(tool.name)}
    if tool.description:
        fields["description"] = json_bytes.encode(tool.description)
    # Servers that don't know the newer field accept most schemas in the older one.
    return json_bytes.build({**fields, "parameters" if SCHEMA_FIELD in quirks.fields else SCHEMA_FIELD: tool.schema})


class _PendingCall(msgspec.Struct):
    """A tool call of an answer whose tool results are being grouped."""

    id: str
    name: str
    position: int
    has_own_id: bool
    """Whether the model gave the call its id. If not, Longtalk generated the id."""


def join_results(pieces: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return the pieces of a request with the tool results of each answer joined into one content.

    The results are in the order of the answer's calls.
    """
    joined: list[bytes | memoryview] = []
    results: list[bytes] = []
    for piece in pieces:
        if bytes(piece[: len(_RESULT)]) == _RESULT and len(split_piece(piece)) == 1:
            results.append(bytes(piece))
            continue
        if results:
            joined.append(_join(joined, results))
            results = []
        joined.append(piece)
    return [*joined, _join(joined, results)] if results else joined


def _join(before: Sequence[bytes | memoryview], results: Sequence[bytes]) -> bytes:
    """Return one content with these results, which answer the calls in the last piece of `before`."""
    calls = _list_pending_calls(before[-1]) if before else []
    placed: dict[int, bytes] = {}
    strays: list[bytes] = []
    for part in (part for result in results for part in list_parts(result)):
        members = object_fields(part)
        response = object_fields(members.get("functionResponse", b"{}"))
        call = _find_call(read_text_member(response, "id"), calls)
        if call is None:
            strays.append(part)
            continue
        calls.remove(call)
        fitting = dict(response)
        if not call.has_own_id:
            del fitting["id"]
        if not read_text_member(response, "name"):
            fitting["name"] = json_bytes.encode(call.name)
        if fitting != response:
            part = json_bytes.build({**members, "functionResponse": json_bytes.build(fitting)})
        placed[call.position] = part
    parts = [*(placed[position] for position in sorted(placed)), *strays]
    return b'{"role":"user","parts":[' + b",".join(parts) + b"]}"


def _list_pending_calls(piece: bytes | memoryview) -> list[_PendingCall]:
    """Return the tool calls in the last content of a piece of a request."""
    native = split_piece(piece)[-1]
    parts = array_objects(json_bytes.fields(native).get("parts", b"[]"))
    own_ids = {read_text_member(object_fields(part.get("functionCall", b"")), "id") for part in parts}
    calls = view_content(native).calls
    return [_PendingCall(call.id, call.name, i, call.id in own_ids) for i, call in enumerate(calls)]


def _find_call(call_id: str, calls: Sequence[_PendingCall]) -> _PendingCall | None:
    """Return the call that a result answers, or None if there is no such call."""
    found = next((call for call in calls if call.id == call_id), None)
    generated = GENERATED_ID.fullmatch(call_id)
    if found is None and generated:
        # A generated id contains a digest of the answer, which differs if the answer is sent in another form.
        found = next((call for call in calls if not call.has_own_id and call.position == int(generated[1])), None)
    return found


def sign_first_call(native: bytes) -> bytes:
    """Return the answer with the stand-in signature on its first tool call, unless that call is already signed.

    Models that require signatures reject calls of the current turn without one. Of several calls in one answer, only
    the first is signed.
    """
    parts = list_parts(native)
    for i, part in enumerate(parts):
        members = json_bytes.fields(part)
        if "functionCall" in members:
            if is_signed(members):
                break
            parts[i] = json_bytes.build({**members, "thoughtSignature": _STAND_IN_SIGNATURE})
            return json_bytes.build({**json_bytes.fields(native), "parts": b"[" + b",".join(parts) + b"]"})
    return native


def adapt_contents(pieces: Sequence[bytes | memoryview], quirks: Quirks) -> list[bytes | memoryview]:
    """Return the contents without the fields that the server rejects, and with signatures if it requires them."""
    contents = [native for piece in pieces for native in split_piece(piece)]
    # The current turn starts with the last content of the user that is not a result.
    turn = max((i for i, native in enumerate(contents) if view_content(native).role == "user"), default=0)
    adapted = [_adapt_content(native, quirks) for native in contents]
    if quirks.needs_signatures:
        adapted[turn + 1 :] = map(sign_first_call, adapted[turn + 1 :])
    return list(adapted)


def _adapt_content(native: bytes, quirks: Quirks) -> bytes:
    adapted = []
    for members in array_objects(json_bytes.fields(native).get("parts", b"[]")):
        for key in ("functionCall", "functionResponse"):
            if members.get(key, b"")[:1] == b"{":
                members[key] = json_bytes.build(_without_refused(json_bytes.fields(members[key]), quirks))
        adapted.append(json_bytes.build(_without_refused(members, quirks)))
    fields = _without_refused(json_bytes.fields(native), quirks)
    return json_bytes.build({**fields, "parts": b"[" + b",".join(adapted) + b"]"})


def _without_refused(members: dict[str, bytes], quirks: Quirks) -> dict[str, bytes]:
    return {key: value for key, value in members.items() if key not in quirks.fields}
