"""The chunks of a streamed Gemini answer, put together: every part of every chunk, in order, as it came.

Parts are never merged. A signature belongs to the part that it came in, so the pieces of a text stay as many parts.
There is no event that ends a stream: an answer is whole when a chunk has told why it ended. Chunks may still follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from longtalk import _json
from longtalk.wires.base import Answer, Reported, readable


class _Content(msgspec.Struct, gc=False):
    parts: tuple[msgspec.Raw]


class _Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: _Content
    finish_reason: None = None
    index: Literal[0] = 0


class _Plain(msgspec.Struct, gc=False, rename="camel"):
    """What most chunks are: one part and nothing else that counts."""

    candidates: tuple[_Candidate]
    usage_metadata: dict[str, msgspec.Raw] = {}
    error: None = None


class _Part(msgspec.Struct, gc=False):
    text: str
    thought: bool = False


_NULL = msgspec.Raw(b"null")
_plain = msgspec.json.Decoder(_Plain)
_part = msgspec.json.Decoder(_Part)


class Parts:
    """See `Accumulator`."""

    begun = True

    def __init__(self, finished: Callable[..., Answer]) -> None:
        self.done = False
        self._finished = finished
        self._parts: list[bytes | msgspec.Raw] = []
        """As they came, or where they are in what came, which is kept as long as this is."""
        self._reason: str | None = None
        self._why: str = ""
        self._usage: dict[str, bytes | msgspec.Raw] = {}
        self._held = b""

    def feed(self, data: bytes) -> str:
        if self._held:
            return self._take(data)
        try:
            chunk = _plain.decode(data)
            part = chunk.candidates[0].content.parts[0]
            said = _part.decode(part)
        except (ValueError, RecursionError):
            return self._take(data)
        # Some servers send a count that is none.
        if _NULL in chunk.usage_metadata.values():
            return self._take(data)
        self._usage |= chunk.usage_metadata
        self._parts.append(part)
        return "" if said.thought else said.text

    def _take(self, data: bytes) -> str:
        """A chunk of any kind."""
        # Some servers keep the line open with events that say nothing, or end it as others do.
        if not data.strip() or data == b"[DONE]":
            return ""
        candidate, usage = opened(data)
        # Counts are of the whole answer so far: the last one is right, and none is no count.
        if usage[:1] == b"{":
            self._usage |= {key: value for key, value in _json.fields(usage).items() if value != b"null"}
        if candidate is None:
            return ""
        parts = parts_of(candidate)
        text = "".join([self._read(_json.fields(part)) for part in parts])
        self._parts += parts
        reason, why = ending(candidate)
        if reason:
            self._reason, self._why, self.done = reason, why, True
            text += self._rest()
        return text

    def _read(self, part: dict[str, bytes]) -> str:
        text = part.get("text", b"")
        if text[:1] != b'"' or is_thought(part):
            return self._rest()
        said, self._held = readable(self._held, text)
        return said

    def _rest(self) -> str:
        held, self._held = self._held, b""
        return _json.text(b'"%s"' % held) or ""

    def answer(self, *, interrupted: bool = False) -> Answer:
        counts = {key: bytes(value) for key, value in self._usage.items()}
        usage = _json.build(counts) if counts else None
        parts = [bytes(part) for part in self._parts]
        answer = self._finished(parts, self._reason, usage, why=self._why, cut=interrupted)
        if not interrupted:
            return answer
        return msgspec.structs.replace(answer, finish="interrupted", native=None if answer.empty else answer.native)


def opened(data: bytes) -> tuple[dict[str, bytes] | None, bytes]:
    """The first candidate of a response or a chunk, if it has one, and the usage. Raises `Reported`."""
    fields = _json.fields(data)
    if fields.get("error", b"null") != b"null":
        raise Reported(data)
    listed = fields.get("candidates", b"[]")
    candidates = [_json.fields(each) for each in _json.items(listed if listed != b"null" else b"[]")]
    # With more than one, the others are other answers.
    first = next((each for each in candidates if each.get("index", b"0") == b"0"), None)
    feedback = fields.get("promptFeedback", b"null")
    if first is None and feedback != b"null" and "blockReason" in _json.fields(feedback):
        raise Reported(data)
    return first, fields.get("usageMetadata", b"null")


def parts_of(candidate: dict[str, bytes]) -> list[bytes]:
    """The parts of a candidate: none, when it was blocked or has already said all."""
    raw = array_of(candidate)
    return [] if raw == b"null" else _json.items(raw)


def array_of(candidate: dict[str, bytes]) -> bytes:
    """The parts as they came, as one array."""
    content = candidate.get("content", b"null")
    return b"null" if content == b"null" else _json.fields(content).get("parts", b"null")


def ending(candidate: dict[str, bytes]) -> tuple[str | None, str]:
    """Why an answer ended, and what the provider says about it."""
    reason, why = (_json.text(candidate.get(key, b"null")) for key in ("finishReason", "finishMessage"))
    return reason or None, why or ""


def is_thought(part: dict[str, bytes]) -> bool:
    """Whether a part is what the model thought, not what it said."""
    return part.get("thought") == b"true"
