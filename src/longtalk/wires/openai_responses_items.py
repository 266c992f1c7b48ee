"""Which items of an answer go back to a Responses server, and in what form.

Never sent back are calls that an app would have to answer in another way than by a tool (a computer, a shell, a patch,
an approval) unless the provider has answered them itself, calls that were cut off, and messages that say nothing.
Reasoning goes with what it led to, or not at all. Unless a response was stored, and this request is too, ids of the
server's own are left out, and only encrypted reasoning goes. Of the provider's own tools (`_WITH_ID`) the id goes back,
as their form demands, until a server says that it does not know it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longtalk import _json
from longtalk.wires.base import Quirks, head_and_tail
from longtalk.wires.openai_responses_stream import text_of

LONGEST_OUTPUT = 256_000
"""Characters of a tool's result that are taken."""
_NOTE = 100
CALLS = {b'"function_call"': b'"function_call_output"', b'"custom_tool_call"': b'"custom_tool_call_output"'}
_FOR_THE_APP = {
    b'"%s"' % kind: b'"%s_output"' % kind
    for kind in (b"computer_call", b"local_shell_call", b"shell_call", b"apply_patch_call")
}
_NEVER = (b'"mcp_approval_request"', b'"item_reference"')
_WITH_ID = (
    *(b'"web_search_call"', b'"file_search_call"', b'"code_interpreter_call"', b'"image_generation_call"'),
    *(b'"mcp_list_tools"', b'"mcp_call"', b'"program"', b'"program_output"'),
)
# Without these an item says nothing, whatever a server thinks of them.
NEEDED = ("type", "role", "content", "call_id", "name", "arguments", "input", "output", "text", "refusal", "summary")


def items_of(native: bytes) -> list[bytes]:
    """The items of an answer; an item on its own is one of one."""
    return _listed(native, _json.fields(native))


def _listed(native: bytes, fields: Mapping[str, bytes]) -> list[bytes]:
    output = fields.get("output", b"")
    return _json.items(output) if "type" not in fields and output[:1] == b"[" else [native]


def is_call(item: Mapping[str, bytes]) -> bool:
    """Whether this is a call that a tool is to answer, and not one that was cut off."""
    return item.get("type") in CALLS and item.get("status") != b'"incomplete"'


def is_opaque(item: Mapping[str, bytes]) -> bool:
    kind, sealed = item.get("type"), item.get("encrypted_content", b"null")
    return kind in (b'"reasoning"', b'"compaction"') or sealed not in (b"null", b'""')


def sendable(native: bytes, quirks: Quirks) -> list[bytes]:
    """The items of an answer as they go back."""
    fields = _json.fields(native)
    stored = not (quirks.ids or quirks.nameless) and fields.get("store") == b"true"
    refused = {name for name in quirks.fields if name not in NEEDED}
    items = [(raw, _json.fields(raw)) for raw in _listed(native, fields)]
    results = {(item.get("type"), item.get("call_id")) for _, item in items}
    sent: list[bytes] = []
    followed = False
    for raw, item in reversed(items):
        kind = item.get("type")
        thought = kind == b'"reasoning"'
        # What was thought goes with what it led to, or not at all.
        if (thought and not followed) or not _goes(item, stored=stored, ids=not quirks.ids):
            continue
        if kind in _FOR_THE_APP and (_FOR_THE_APP[kind], item.get("call_id")) not in results:
            continue
        followed = followed or not thought
        changed = dict(item)
        if not stored and kind not in _WITH_ID:
            changed.pop("id", None)
        if thought:
            changed.pop("status", None)
        if refused:
            changed = _without(changed, refused)
        sent.append(raw if len(changed) == len(item) and not refused else _json.build(changed))
    return sent[::-1]


def _goes(item: Mapping[str, bytes], *, stored: bool, ids: bool) -> bool:
    kind = item.get("type", b'"message"')
    if kind == b'"message"':
        content = item.get("content", b"null")
        blank = not (text_of(content) or text_of(content, kind="refusal"))
        return not blank or (content[:1] == b"[" and any(map(_is_other, _json.items(content))))
    if kind == b'"reasoning"':
        return stored or item.get("encrypted_content", b"null") not in (b"null", b'""')
    if kind in CALLS:
        return is_call(item)
    return kind not in _NEVER and (ids or kind not in _WITH_ID)


def _is_other(part: bytes) -> bool:
    """Whether a part is neither text nor a refusal."""
    kind = _json.fields(part).get("type") if part[:1] == b"{" else None
    return kind not in (None, b'"output_text"', b'"refusal"')


def _without(item: Mapping[str, bytes], refused: set[str]) -> dict[str, bytes]:
    """An item without these members, its own and those of its parts."""
    left = {key: value for key, value in item.items() if key not in refused}
    content = left.get("content", b"")
    if content[:1] == b"[":
        parts = _json.items(content)
        bare = [_json.build(_without(_json.fields(part), refused)) if part[:1] == b"{" else part for part in parts]
        left["content"] = b"[" + b",".join(bare) + b"]"
    return left


def shortened(native: bytes) -> bytes:
    """A result whose texts are as long as is taken."""
    fields = _json.fields(native)
    output = fields.get("output", b"null")
    if output[:1] == b"[":
        parts = [_json.fields(part) for part in _json.items(output)]
        cut = [{**part, "text": _shorter(part["text"])} if "text" in part else part for part in parts]
        return native if cut == parts else _json.build({**fields, "output": b"[%s]" % b",".join(map(_json.build, cut))})
    cut_output = _shorter(output)
    return native if cut_output == output else _json.build({**fields, "output": cut_output})


def _shorter(text: bytes) -> bytes:
    said = _json.text(text)
    if said is None or len(said) <= LONGEST_OUTPUT:
        return text
    return _json.encode(head_and_tail(said, LONGEST_OUTPUT - _NOTE))


def answered_in_kind(pieces: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:
    """Results of calls with text in place of arguments have a type of their own."""
    # What was not rendered is nobody's call and no result.
    rendered = {i: piece for i, piece in enumerate(pieces) if isinstance(piece, bytes)}
    if not any(b'"custom_tool_call"' in piece for piece in rendered.values()):
        return pieces
    ids: set[bytes] = set()
    sent = list(pieces)
    for i, piece in rendered.items():
        items = _json.items(b"[" + piece + b"]")
        for j, item in enumerate(items):
            fields = _json.fields(item)
            if fields.get("type") == b'"custom_tool_call"':
                ids.add(fields.get("call_id", b""))
            elif fields.get("type") == b'"function_call_output"' and fields.get("call_id") in ids:
                items[j] = _json.build({**fields, "type": CALLS[b'"custom_tool_call"']})
        sent[i] = b",".join(items)
    return sent
