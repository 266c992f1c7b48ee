"""Choose the items of an answer that are sent back to a Responses server, and their form.

Three kinds of items are never sent back: calls that only the application can answer (a computer, a shell, a patch, an
approval), unless the provider has answered them itself; calls that were cut off; and empty messages. Reasoning is sent
only together with the item that it led to, and only if that item is complete.

Items keep their server-side ids only if the server stored the response and this request may refer to stored items.
Otherwise the ids are left out and only encrypted reasoning is sent. Items of the provider's own tools (`_WITH_ID`)
require their id, so they are sent with it until a server reports an id as unknown, and are left out from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longtalk._util import json_bytes
from longtalk.wires.native import array_items, array_objects, object_fields, split_piece
from longtalk.wires.openai_responses.stream import join_text_parts
from longtalk.wires.protocol import Quirks
from longtalk.wires.text import cut_middle

MAX_OUTPUT_CHARS = 256_000
"""The maximum length of a tool result, in characters."""
_NOTE_CHARS = 100
CALLS = {b'"function_call"': b'"function_call_output"', b'"custom_tool_call"': b'"custom_tool_call_output"'}
_ANSWERED_BY_APP = {
    b'"%s"' % kind: b'"%s_output"' % kind
    for kind in (b"computer_call", b"local_shell_call", b"shell_call", b"apply_patch_call")
}
_NEVER_SENT = (b'"mcp_approval_request"', b'"item_reference"')
_WITH_ID = (
    *(b'"web_search_call"', b'"file_search_call"', b'"code_interpreter_call"', b'"image_generation_call"'),
    *(b'"mcp_list_tools"', b'"mcp_call"', b'"program"', b'"program_output"'),
)
# Fields that are never left out, even if a server says that it doesn't know them.
REQUIRED = ("type", "role", "content", "call_id", "name", "arguments", "input", "output", "text", "refusal", "summary")


def list_items(native: bytes) -> list[bytes]:
    """Return the items of an answer that are objects. If it is a single item, return a list with only that item."""
    return _split_items(native, json_bytes.fields(native))


def _split_items(native: bytes, fields: Mapping[str, bytes]) -> list[bytes]:
    output = fields.get("output", b"")
    if "type" in fields or output[:1] != b"[":
        return [native]
    return [item for item in json_bytes.items(output) if item[:1] == b"{"]


def is_call(item: Mapping[str, bytes]) -> bool:
    """Return True if an item is a complete call to one of the caller's tools."""
    return item.get("type") in CALLS and item.get("status") != b'"incomplete"'


def is_opaque(item: Mapping[str, bytes]) -> bool:
    """Return True if only the provider can read the item."""
    kind, sealed = item.get("type"), item.get("encrypted_content", b"null")
    return kind in (b'"reasoning"', b'"compaction"') or sealed not in (b"null", b'""')


def list_sendable_items(native: bytes, quirks: Quirks) -> list[bytes]:
    """Return the items of an answer that can be sent back, in the form that this server accepts."""
    fields = json_bytes.fields(native)
    stored = not (quirks.strict_ids or quirks.no_server_ids) and fields.get("store") == b"true"
    refused = {name for name in quirks.fields if name not in REQUIRED}
    items = [(raw, json_bytes.fields(raw)) for raw in _split_items(native, fields)]
    results = {(item.get("type"), item.get("call_id")) for _, item in items}
    sent: list[bytes] = []
    is_follower_sent = False
    for raw, item in reversed(items):
        kind = item.get("type")
        is_reasoning = kind == b'"reasoning"'
        is_sent = _is_sendable(item, stored=stored, ids=not quirks.strict_ids) and (
            kind not in _ANSWERED_BY_APP or (_ANSWERED_BY_APP[kind], item.get("call_id")) in results
        )
        if is_reasoning:
            is_sent = is_sent and is_follower_sent
        else:
            is_follower_sent = is_sent and (stored or item.get("status") != b'"incomplete"')
        if not is_sent:
            continue
        changed = dict(item)
        if not stored and kind not in _WITH_ID:
            changed.pop("id", None)
        if is_reasoning:
            changed.pop("status", None)
        if refused:
            changed = _without_fields(changed, refused)
        sent.append(raw if len(changed) == len(item) and not refused else json_bytes.build(changed))
    return sent[::-1]


def _is_sendable(item: Mapping[str, bytes], *, stored: bool, ids: bool) -> bool:
    kind = item.get("type", b'"message"')
    if kind == b'"message"':
        content = item.get("content", b"null")
        blank = not (join_text_parts(content) or join_text_parts(content, kind="refusal"))
        return not blank or any(map(_is_other, array_items(content)))
    if kind == b'"reasoning"':
        return stored or item.get("encrypted_content", b"null") not in (b"null", b'""')
    if kind in CALLS:
        return is_call(item)
    return kind not in _NEVER_SENT and (ids or kind not in _WITH_ID)


def _is_other(part: bytes) -> bool:
    """Return True if a content part is neither text nor a refusal."""
    return object_fields(part).get("type") not in (None, b'"output_text"', b'"refusal"')


def _without_fields(item: Mapping[str, bytes], refused: set[str]) -> dict[str, bytes]:
    """Return an item without the fields in `refused`, which are also removed from its content parts."""
    left = {key: value for key, value in item.items() if key not in refused}
    if left.get("content", b"")[:1] == b"[":
        parts = [{key: part[key] for key in part if key not in refused} for part in array_objects(left["content"])]
        left["content"] = b"[" + b",".join(map(json_bytes.build, parts)) + b"]"
    return left


def shorten_result(native: bytes) -> bytes:
    """Return a tool result with each of its texts shortened to at most `MAX_OUTPUT_CHARS` characters."""
    fields = json_bytes.fields(native)
    output = fields.get("output", b"null")
    if output[:1] == b"[":
        parts = array_objects(output)
        cut = [{**part, "text": _shorten_text(part["text"])} if "text" in part else part for part in parts]
        return (
            native
            if cut == parts
            else json_bytes.build({**fields, "output": b"[%s]" % b",".join(map(json_bytes.build, cut))})
        )
    cut_output = _shorten_text(output)
    return native if cut_output == output else json_bytes.build({**fields, "output": cut_output})


def _shorten_text(text: bytes) -> bytes:
    decoded = json_bytes.text(text)
    if decoded is None or len(decoded) <= MAX_OUTPUT_CHARS:
        return text
    return json_bytes.encode(cut_middle(decoded, MAX_OUTPUT_CHARS - _NOTE_CHARS))


def match_result_types(pieces: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:
    """Return the pieces of a request, with results of custom tool calls changed to the type that the API requires."""
    # Calls and results are always rendered, so a memoryview holds neither.
    rendered = {i: piece for i, piece in enumerate(pieces) if isinstance(piece, bytes)}
    if not any(b'"custom_tool_call"' in piece for piece in rendered.values()):
        return pieces
    ids: set[bytes] = set()
    sent = list(pieces)
    for i, piece in rendered.items():
        items = split_piece(piece)
        for j, item in enumerate(items):
            fields = json_bytes.fields(item)
            if fields.get("type") == b'"custom_tool_call"':
                ids.add(fields.get("call_id", b""))
            elif fields.get("type") == b'"function_call_output"' and fields.get("call_id") in ids:
                items[j] = json_bytes.build({**fields, "type": CALLS[b'"custom_tool_call"']})
        sent[i] = b",".join(items)
    return sent
