"""Streamed Gemini answers: collect the parts of all chunks, in order and unchanged.

Parts are never merged, because a signature belongs to the part that contains it. A text that was streamed in many
pieces stays many parts. No event marks the end of a stream: the answer is complete when a chunk has a finish reason,
and more chunks may follow that one. Of any other field of the chunks, the last value counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from longtalk._util import json_bytes
from longtalk.wires.deltas import Deltas, Reasoning
from longtalk.wires.gemini.parts import is_thought
from longtalk.wires.native import decode_piece
from longtalk.wires.protocol import Answer, ReportedError


class _Content(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    parts: tuple[msgspec.Raw]
    role: Literal["model"] = "model"


class _Candidate(msgspec.Struct, gc=False, rename="camel", forbid_unknown_fields=True):
    content: _Content
    finish_reason: None = None
    index: Literal[0] = 0


class _Frame(msgspec.Struct, gc=False, rename="camel"):
    """The fields that every chunk of a stream repeats."""

    create_time: str | None = None
    model_version: str | None = None
    response_id: str | None = None

    def key(self) -> tuple[str | None, ...]:
        return self.create_time, self.model_version, self.response_id


class _OnePartChunk(_Frame, gc=False, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A typical chunk, which contains one part, the usage and nothing else of interest."""

    candidates: tuple[_Candidate]
    usage_metadata: dict[str, msgspec.Raw] = {}
    error: None = None


class _Part(msgspec.Struct, gc=False):
    text: str
    thought: bool = False


_REPEATED = ("createTime", "modelVersion", "responseId", "error", "finishReason")
"""Fields that a chunk may repeat as null, which has no meaning."""
_NULL = msgspec.Raw(b"null")
_plain_decoder = msgspec.json.Decoder(_OnePartChunk)
_frame_decoder = msgspec.json.Decoder(_Frame)
_part_decoder = msgspec.json.Decoder(_Part)


class GeminiAccumulator:
    """The accumulator that assembles an answer from streamed Gemini chunks."""

    started = True

    def __init__(self, build_answer: Callable[..., Answer]) -> None:
        self.done = False
        self.deltas = Deltas()
        self._build_answer = build_answer
        self._parts: list[bytes | msgspec.Raw] = []
        """The parts so far, as bytes or as references into the received chunks, which therefore stay in memory."""
        self._reason: str | None = None
        self._why: str = ""
        self._usage: dict[str, bytes | msgspec.Raw] = {}
        self._content: dict[str, bytes] = {}
        self._candidate: dict[str, bytes] = {}
        self._response: dict[str, bytes] = {}
        self._frame: tuple[str | None, ...] | None = None
        """The fields that every chunk repeats. A chunk in which they are the same has nothing new for the response."""
        self._held = b""

    def feed(self, data: bytes) -> str:
        if self._held:
            return self._feed_any(data)
        try:
            chunk = _plain_decoder.decode(data)
            part = chunk.candidates[0].content.parts[0]
            text_part = _part_decoder.decode(part)
        except (ValueError, RecursionError):
            return self._feed_any(data)
        # Some servers send null as a count.
        if _NULL in chunk.usage_metadata.values() or chunk.key() != self._frame:
            return self._feed_any(data)
        self._usage |= chunk.usage_metadata
        self._parts.append(part)
        if not text_part.thought:
            return text_part.text
        if text_part.text:
            self.deltas.new.append(Reasoning(text_part.text))
        return ""

    def _feed_any(self, data: bytes) -> str:
        """Process a chunk of any kind and return the text that it adds."""
        # Some servers send blank events to keep the connection open, or end with OpenAI's marker.
        if not data.strip() or data == b"[DONE]":
            return ""
        response, candidate, usage = read_response(data)
        self._response |= {key: v for key, v in response.items() if v != b"null" or key not in _REPEATED}
        try:
            self._frame = _frame_decoder.decode(data).key()
        except (ValueError, RecursionError):
            self._frame = None
        # Counts are cumulative: the last one is right, and null is not a count.
        if usage[:1] == b"{":
            self._usage |= {key: value for key, value in json_bytes.fields(usage).items() if value != b"null"}
        if candidate is None:
            return ""
        content = read_content(candidate)
        parts = list_parts_of(content)
        self._content |= content
        self._candidate |= {key: v for key, v in candidate.items() if v != b"null" or key not in _REPEATED}
        text = "".join([self._read_text(json_bytes.fields(part)) for part in parts])
        self._parts += parts
        reason, why = read_finish_reason(candidate)
        if reason:
            self._reason, self._why, self.done = reason, why, True
            text += self._release_held()
        return text

    def _read_text(self, part: dict[str, bytes]) -> str:
        text = part.get("text", b"")
        if text[:1] != b'"' or is_thought(part):
            self.deltas.add_reasoning(text)
            return self._release_held()
        piece, self._held = decode_piece(self._held, text)
        return piece

    def _release_held(self) -> str:
        held, self._held = self._held, b""
        return json_bytes.text(b'"%s"' % held) or ""

    def answer(self, *, interrupted: bool = False) -> Answer:
        counts = {key: bytes(value) for key, value in self._usage.items()}
        usage = json_bytes.build(counts) if counts else None
        parts = [bytes(part) for part in self._parts]
        answer = self._build_answer(
            parts,
            self._content,
            self._reason,
            usage,
            why=self._why,
            cut=interrupted,
            response=build_response(self._response, self._candidate),
        )
        if not interrupted:
            return answer
        return msgspec.structs.replace(answer, finish="interrupted", native=None if answer.empty else answer.native)


def read_response(data: bytes) -> tuple[dict[str, bytes], dict[str, bytes] | None, bytes]:
    """Return the fields of a response or chunk, its first candidate (None if it has none), and the usage report.

    The fields are without the candidates and the usage. Raises `ReportedError` if the response is an error, or if the
    prompt was blocked.
    """
    fields = json_bytes.fields(data)
    if fields.get("error", b"null") != b"null":
        raise ReportedError(data)
    array, usage = fields.pop("candidates", b"[]"), fields.pop("usageMetadata", b"null")
    candidates = [json_bytes.fields(each) for each in json_bytes.items(array if array != b"null" else b"[]")]
    # Further candidates are alternative answers.
    first = next((each for each in candidates if each.get("index", b"0") == b"0"), None)
    feedback = fields.get("promptFeedback", b"null")
    if first is None and feedback != b"null" and "blockReason" in json_bytes.fields(feedback):
        raise ReportedError(data)
    return fields, first, usage


def build_response(fields: dict[str, bytes], candidate: dict[str, bytes]) -> bytes:
    """Return the JSON of a response with these fields and one candidate, without its content."""
    others = {key: value for key, value in candidate.items() if key not in ("content", "index")}
    return json_bytes.build({**fields, "candidates": b"[%s]" % json_bytes.build(others)})


def read_content(candidate: dict[str, bytes]) -> dict[str, bytes]:
    """Return the fields of a candidate's content; empty if it was blocked or has no content."""
    content = candidate.get("content", b"null")
    return {} if content == b"null" else json_bytes.fields(content)


def list_parts_of(content: dict[str, bytes]) -> list[bytes]:
    """Return the parts of a content, each as its exact bytes; an empty list if it has none."""
    raw = content.get("parts", b"null")
    return [] if raw == b"null" else json_bytes.items(raw)


def read_finish_reason(candidate: dict[str, bytes]) -> tuple[str | None, str]:
    """Return the reason why the answer ended (None if it has not ended), and the provider's explanation."""
    reason, why = (json_bytes.text(candidate.get(key, b"null")) for key in ("finishReason", "finishMessage"))
    return reason or None, why or ""
