"""Gemini generateContent: contents of parts, calls and their responses in neighbouring contents, signed thoughts.

An answer is stored as `{"role":"model","parts":[…]}` with the parts as they came: a signature goes back in the part in
which it came. It is valid for its account and model, whatever stands before it.

Calls may come without an id. They are told apart by a digest of the answer and their position; a result is stored with
the id of its call, and sent with one only if the model gave it. Each result is an entry of its own; those of one answer
are sent as one content, in the order of the calls. Events and system messages inside the conversation are quoted in the
user's voice.
"""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longtalk import _json
from longtalk.errors import InputError
from longtalk.transcript import Entry, Finish
from longtalk.wires.base import (
    LONGTALK,
    Answer,
    Call,
    Preamble,
    Quirks,
    Replayed,
    Reported,
    Usage,
    View,
    neutral_text,
    option,
    quoted,
    shown,
    splice,
)
from longtalk.wires.gemini_stream import Parts, array_of, ending, is_thought, opened, parts_of

_FILTERED = (
    *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "ESCALATION"),
    *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
)
# The model or the server failed: what there is of the answer is kept, and nothing at all is an error.
_BROKEN = (
    *("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE"),
    *("MALFORMED_RESPONSE", "NO_IMAGE", "IMAGE_OTHER", "OTHER"),
)
_FINISH: dict[str | None, Finish] = {"MAX_TOKENS": "length", **dict.fromkeys((*_FILTERED, *_BROKEN), "filtered")}
_RESULT = b'{"role":"user","parts":[{"functionResponse":'
_MADE_UP = re.compile(r"call_[0-9a-f]{12}_(\d+)")
_BESIDE = ("thought", "thoughtSignature", "partMetadata", "videoMetadata", "mediaResolution")
"""Members of a part that are about it, not its content."""
_NEEDED = ("role", "parts", "text", "name", "args", "response", "functionCall", "functionResponse")
_NOT_TAKEN = re.compile(
    r"(?:corrupted|invalid) thought.?signature|thought.?signature is not valid|thought_?signature.{0,40}base64",
    re.IGNORECASE,
)
_NOT_SIGNED = re.compile(r"missing a thought.?signature", re.IGNORECASE)
_UNKNOWN = re.compile(r"""Unknown name \\?"(\w+)\\?" at '(contents|tools)\[""")
_STAND_IN = b'"skip_thought_signature_validator"'
"""What the provider takes for the signature of a call that its model did not make."""


class Gemini(Replayed):
    """See `Wire`."""

    name = "gemini"
    reserved: tuple[str, ...] = ("contents", "model", "stream", "systemInstruction", "system_instruction")
    defaults: Mapping[str, Any] = {}
    binds_prefix = False
    drops_opaque = False

    def path(self, model: str, *, stream: bool) -> str:
        from urllib.parse import quote

        name = model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/{quote(name, safe='/')}:{method}"

    def headers(self, key: str | None) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def user(self, content: str | Sequence[Any]) -> bytes:
        parts = [content] if isinstance(content, str) else content
        return _json.encode({"role": "user", "parts": [{"text": p} if isinstance(p, str) else p for p in parts]})

    def is_part(self, part: Mapping[str, Any]) -> bool:
        # A type is another provider's; calls and their results are no user's.
        return bool(part) and not {"type", "functionCall", "functionResponse"} & part.keys()

    def result(self, call_id: str, text: str, *, error: bool, name: str = "") -> bytes:
        response = {"id": call_id, "name": name, "response": {"error" if error else "result": text}}
        return _json.encode({"role": "user", "parts": [{"functionResponse": response}]})

    def instruction(self, text: str) -> bytes:
        return self.user(quoted("instruction", text))

    def quote(self, tag: str, text: str) -> bytes:
        return self.user(quoted(tag, text))

    def is_plain(self, role: str) -> bool:
        return role != "tool"

    def render(self, entry: Entry, quirks: Quirks) -> bytes | None:
        if entry.wire == LONGTALK:
            text = neutral_text(entry)
            return self.user(text if entry.kind == "event" else quoted("system", text))
        if entry.mark == "empty":
            return None
        return _json.whole(entry.native) if quirks.whole else entry.native

    def redacted(self, native: bytes, text: str) -> bytes:
        seen = self.view(native)
        if seen.call_id:
            return self.result(seen.call_id, text, error=False, name=seen.name)
        calls = [{"functionCall": {"id": call.id, "name": call.name, "args": {}}} for call in seen.calls]
        role = "model" if seen.role == "assistant" else seen.role
        return _json.encode({"role": role, "parts": [{"text": text}, *calls]})

    def without_opaque(self, native: bytes) -> bytes | None:
        parts = _parts(native)
        kept: list[bytes] = []
        for part in parts:
            members = _json.fields(part)
            signature = members.pop("thoughtSignature", None)
            if not is_thought(members) and not _is_blank(members):
                kept.append(part if signature is None else _json.build(members))
        if kept == parts:
            return native
        return _message(kept) if kept else None

    def request(
        self,
        *,
        model: str,  # noqa: ARG002
        preamble: Preamble,
        pieces: Sequence[bytes | memoryview],
        mark: int,  # noqa: ARG002
        options: Mapping[str, Any],
        quirks: Quirks,
        stream: bool,  # noqa: ARG002
    ) -> bytes:
        fields = {key: option(key, value) for key, value in options.items() if value is not None}
        given = fields.pop("tools", b"[]")
        if given[:1] != b"[":
            raise InputError("The option 'tools' is a list of tools that the provider has.")
        head: dict[str, bytes] = {}
        if preamble.system and preamble.system.strip():
            head["systemInstruction"] = _json.encode({"parts": [{"text": preamble.system}]})
        tools = _json.items(given)
        if preamble.tools:
            declared = b",".join([_declared(tool, quirks) for tool in preamble.tools])
            tools.insert(0, b'{"functionDeclarations":[' + declared + b"]}")
        if tools:
            head["tools"] = b"[" + b",".join(tools) + b"]"
        sent = _joined(pieces)
        if quirks.fields or quirks.sign:
            sent = _suited(sent, quirks)
        return splice({**head, **fields}, sent, name=b"contents")

    def parse(self, body: bytes) -> Answer:
        candidate, usage = opened(body)
        if candidate is None:
            raise ValueError("it has no candidates")
        reason, why = ending(candidate)
        return finished(parts_of(candidate), reason, usage, content=array_of(candidate), why=why)

    def accumulator(self) -> Parts:
        return Parts(finished)

    def view(self, native: bytes) -> View:
        return shown(self._view(native))

    def _view(self, native: bytes) -> View:
        """The same with cards, if it has some."""
        try:
            said = _plain.decode(native)
        except (ValueError, RecursionError):
            return self._any_view(native)
        text = "".join([part.text for part in said.parts if not part.thought])
        return View(role="assistant" if said.role == "model" else said.role, text=text)

    def _any_view(self, native: bytes) -> View:
        """The same for a message of any kind."""
        fields = _json.fields(native)
        parts = [_json.fields(part) for part in _array(fields.get("parts", b"[]"))]
        results = [_json.fields(part["functionResponse"]) for part in parts if "functionResponse" in part]
        role = _json.text(fields.get("role", b"")) or ""
        if results:
            return View(
                role="tool",
                text="".join(_response_text(result.get("response", b"{}")) for result in results),
                call_id=_text(results[0], "id"),
                name=_text(results[0], "name"),
            )
        calls = [_json.fields(part["functionCall"]) for part in parts if "functionCall" in part]
        return View(
            role="assistant" if role == "model" else role,
            text="".join(_text(part, "text") for part in parts if not is_thought(part)),
            calls=tuple(
                Call(_text(call, "id") or _made_up(native, i), _text(call, "name"), _arguments(call))
                for i, call in enumerate(calls)
            ),
        )

    def usage(self, raw: bytes) -> Usage:
        try:
            said = msgspec.json.decode(raw, type=_Usage, strict=False)
        except (ValueError, RecursionError):
            return Usage()
        return Usage(
            input=(said.prompt_token_count or 0) + (said.tool_use_prompt_token_count or 0),
            output=(said.candidates_token_count or 0) + (said.thoughts_token_count or 0),
            cached=said.cached_content_token_count or 0,
        )

    def objection(self, error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:
        said = error.decode("utf-8", "replace")
        if known.void < len(natives) and _NOT_TAKEN.search(said):
            return msgspec.structs.replace(known, void=len(natives))
        if not known.sign and _NOT_SIGNED.search(said):
            return msgspec.structs.replace(known, sign=True)
        if not known.whole and "surrogate" in said:
            return msgspec.structs.replace(known, whole=True)
        names = dict.fromkeys(
            name
            for name, where in _UNKNOWN.findall(said)
            if name not in known.fields
            and (name == _SCHEMA if where == "tools" else name not in _NEEDED and _holds(natives, name))
        )
        return msgspec.structs.replace(known, fields=(*known.fields, *names)) if names else None


WIRE = Gemini()


def finished(
    parts: Sequence[bytes],
    reason: str | None,
    usage: bytes | None,
    *,
    content: bytes = b"",
    why: str = "",
    cut: bool = False,
) -> Answer:
    """An answer from parts that arrived; `cut` when they are not all. `content` is all of them as they came."""
    signed, thought, blank = _looked_at(parts)
    kept = [part for part, is_blank in zip(parts, blank, strict=True) if not is_blank]
    opaque = any(signed)
    # Nothing but what the model thought, and no way to give it back.
    empty = not opaque and all(map(operator.or_, thought, blank))
    if empty and reason in _BROKEN and not cut:
        raise Reported(_json.encode({"error": {"code": reason, "message": why or f"the answer ended with {reason}"}}))
    exact = content if content and len(kept) == len(parts) > 0 else b""
    native = b'{"role":"model","parts":' + exact + b"}" if exact else _message(kept)
    view = WIRE.view(native)
    return Answer(
        native=native,
        view=view,
        finish="calls" if view.calls else _FINISH.get(reason, "stop"),
        empty=empty,
        opaque=opaque,
        usage=None if usage in (None, b"null") else usage,
    )


class _Usage(msgspec.Struct, rename="camel"):
    prompt_token_count: int | None = 0
    tool_use_prompt_token_count: int | None = 0
    candidates_token_count: int | None = 0
    thoughts_token_count: int | None = 0
    cached_content_token_count: int | None = 0


# Parts


class _Said(msgspec.Struct, gc=False, rename="camel", forbid_unknown_fields=True):
    text: str = ""
    thought: bool = False
    thought_signature: str = ""


class _Plain(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """What most messages are: texts and thoughts."""

    role: str
    parts: list[_Said]


_plain = msgspec.json.Decoder(_Plain)
_texts = msgspec.json.Decoder(list[_Said])


def _looked_at(parts: Sequence[bytes]) -> tuple[list[bool], list[bool], list[bool]]:
    """Of each part whether it is signed, whether it is a thought, and whether it is blank."""
    try:
        said = _texts.decode(b"[" + b",".join(parts) + b"]")
    except (ValueError, RecursionError):
        seen = [_json.fields(part) for part in parts]
        return list(map(_is_signed, seen)), list(map(is_thought, seen)), list(map(_is_blank, seen))
    signed = [part.thought_signature != "" for part in said]
    return signed, [part.thought for part in said], [not (part.text or part.thought_signature) for part in said]


def _array(data: bytes) -> list[bytes]:
    return _json.items(data) if data[:1] == b"[" else []


def _parts(native: bytes) -> list[bytes]:
    return _array(_json.fields(native).get("parts", b"[]"))


def _message(parts: Sequence[bytes]) -> bytes:
    return b'{"role":"model","parts":[' + b",".join(parts) + b"]}"


def _text(members: dict[str, bytes], key: str) -> str:
    return _json.text(members.get(key, b"null")) or ""


def _arguments(call: dict[str, bytes]) -> bytes:
    given = call.get("args", b"null")
    return b"{}" if given == b"null" else given


def _made_up(native: bytes, position: int) -> str:
    """The id of a call that has none: the same whenever it is read, and as good as never that of another one."""
    return f"call_{hashlib.sha256(native).hexdigest()[:12]}_{position}"


def _is_signed(part: dict[str, bytes]) -> bool:
    return bool(_text(part, "thoughtSignature"))


def _is_blank(part: dict[str, bytes]) -> bool:
    """Whether a part has no content, and is refused when it is sent back. One with a signature is taken."""
    is_bare = all(key in _BESIDE for key in part)
    return not _is_signed(part) and (is_bare or part.get("text") in (b'""', b"null"))


def _response_text(response: bytes) -> str:
    members = _json.fields(response) if response[:1] == b"{" else {}
    said = [_json.text(members[key]) for key in ("result", "error", "output") if key in members]
    return said[0] if said and said[0] is not None else response.decode("utf-8", "replace")


# Requests

_SCHEMA = "parametersJsonSchema"


def _declared(tool: Any, quirks: Quirks) -> bytes:
    fields = {"name": _json.encode(tool.name)}
    if tool.description:
        fields["description"] = _json.encode(tool.description)
    # Servers that don't know the newer field take most schemas in the older one.
    return _json.build({**fields, "parameters" if _SCHEMA in quirks.fields else _SCHEMA: tool.schema})


class _Called(msgspec.Struct):
    """A call of the answer before some results."""

    id: str
    name: str
    position: int
    is_given: bool
    """Whether the model gave it its id."""


def _joined(pieces: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """The results of one answer as one content, in the order of its calls."""
    joined: list[bytes | memoryview] = []
    results: list[bytes] = []
    for piece in pieces:
        if bytes(piece[: len(_RESULT)]) == _RESULT:
            results.append(bytes(piece))
            continue
        if results:
            joined.append(_responses(joined, results))
            results = []
        joined.append(piece)
    return [*joined, _responses(joined, results)] if results else joined


def _responses(before: Sequence[bytes | memoryview], results: Sequence[bytes]) -> bytes:
    calls = _calls(before[-1]) if before else []
    placed: dict[int, bytes] = {}
    strays: list[bytes] = []
    for part in (part for result in results for part in _parts(result)):
        members = _json.fields(part)
        response = _json.fields(members.get("functionResponse", b"{}"))
        call = _answered(_text(response, "id"), calls)
        if call is None:
            strays.append(part)
            continue
        calls.remove(call)
        fitting = dict(response)
        if not call.is_given:
            del fitting["id"]
        if not _text(response, "name"):
            fitting["name"] = _json.encode(call.name)
        if fitting != response:
            part = _json.build({**members, "functionResponse": _json.build(fitting)})
        placed[call.position] = part
    parts = [*(placed[position] for position in sorted(placed)), *strays]
    return b'{"role":"user","parts":[' + b",".join(parts) + b"]}"


def _calls(piece: bytes | memoryview) -> list[_Called]:
    """The calls of the last content of a piece."""
    native = _json.items(b"[" + bytes(piece) + b"]")[-1]
    given = [_text(_json.fields(call), "id") for call in _function_calls(native)]
    calls = WIRE.view(native).calls
    return [_Called(call.id, call.name, i, bool(own)) for i, (call, own) in enumerate(zip(calls, given, strict=True))]


def _function_calls(native: bytes) -> list[bytes]:
    return [members["functionCall"] for members in map(_json.fields, _parts(native)) if "functionCall" in members]


def _answered(call_id: str, calls: Sequence[_Called]) -> _Called | None:
    """The call that a result answers. An id that we made up also fits when the answer is sent in another form."""
    found = next((call for call in calls if call.id == call_id), None)
    made_up = _MADE_UP.fullmatch(call_id)
    if found is None and made_up:
        found = next((call for call in calls if not call.is_given and call.position == int(made_up[1])), None)
    return found


def _suited(pieces: Sequence[bytes | memoryview], quirks: Quirks) -> list[bytes | memoryview]:
    """Contents without the fields that this server does not know, with signatures where it wants some."""
    contents = [native for piece in pieces for native in _json.items(b"[" + bytes(piece) + b"]")]
    last = max((i for i, native in enumerate(contents) if _is_said(native)), default=0)
    return [_suited_content(native, quirks, sign=quirks.sign and i > last) for i, native in enumerate(contents)]


def _is_said(native: bytes) -> bool:
    """Whether this begins a turn: the user's, and no result."""
    return WIRE.view(native).role == "user"


def _suited_content(native: bytes, quirks: Quirks, *, sign: bool) -> bytes:
    fields, made = _json.fields(native), []
    for part in _parts(native):
        members = _json.fields(part)
        for key in ("functionCall", "functionResponse"):
            if key in members:
                members[key] = _json.build(_without(_json.fields(members[key]), quirks))
        members = _without(members, quirks)
        if "functionCall" in members:
            # Of calls that were made together the first one is signed.
            if sign and not _is_signed(members):
                members["thoughtSignature"] = _STAND_IN
            sign = False
        made.append(_json.build(members))
    return _json.build({**fields, "parts": b"[" + b",".join(made) + b"]"})


def _without(members: dict[str, bytes], quirks: Quirks) -> dict[str, bytes]:
    return {key: value for key, value in members.items() if key not in quirks.fields}


def _holds(natives: Sequence[bytes], name: str) -> bool:
    return any(b'"%s"' % name.encode() in native for native in natives)
