"""Streamed chat completions: assemble the chunks into the message that an unstreamed response would have had.

Texts are joined as raw JSON string bodies, so that escapes stay unchanged and an emoji that was split between chunks is
complete again. `_GRAMMAR` says how the pieces of each key of a message are put together, and `_CHOICE_GRAMMAR` those of
the other fields of chunks and choices; see `partial.py`. Numbers are never added up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from longtalk._util import json_bytes
from longtalk.wires.deltas import Deltas
from longtalk.wires.native import BACKSLASH, array_objects, decode_piece, drop_half_character, object_fields
from longtalk.wires.openai_chat.partial import ITEMS, NAME, TEXT, PartialObject
from longtalk.wires.part_ends import read_chat_message
from longtalk.wires.protocol import Answer, ReportedError

_GRAMMAR: dict[str, Any] = {
    "role": NAME,
    "content": TEXT,
    "refusal": TEXT,
    "reasoning": TEXT,
    "reasoning_content": TEXT,
    "audio": {"data": TEXT, "transcript": TEXT},
    "tool_calls": [{"id": NAME, "type": NAME, "function": {"name": NAME, "arguments": TEXT}}],
    "reasoning_details": [{"text": TEXT, "summary": TEXT, "data": TEXT}],
}
_CHOICE_GRAMMAR: dict[str, Any] = {"logprobs": {"content": ITEMS, "refusal": ITEMS}}
_REASONING = ("reasoning_content", "reasoning")
_PADDING = "obfuscation"
"""A field of random characters that hides the length of each chunk."""


class _Frame(msgspec.Struct, gc=False):
    """The fields that every chunk of a stream repeats."""

    id: str | None = None
    object: str | None = None
    created: float | None = None
    model: str | None = None
    provider: str | None = None
    service_tier: str | None = None
    system_fingerprint: str | None = None
    obfuscation: str | None = None

    def key(self) -> tuple[Any, ...]:
        about = self.provider, self.service_tier, self.system_fingerprint
        return self.id, self.object, self.created, self.model, about


class _OpenChoice(msgspec.Struct, gc=False):
    """The fields of a choice that has not ended. Those that only some servers send are null until then."""

    finish_reason: None = None
    logprobs: None = None
    native_finish_reason: None = None
    stop_reason: None = None
    token_ids: None = None


class _Choice(_OpenChoice, forbid_unknown_fields=True):
    delta: dict[str, msgspec.Raw] = {}
    index: int = 0


class _Chunk(_Frame, forbid_unknown_fields=True):
    """A chunk that adds nothing to the answer but a delta."""

    choices: list[_Choice] = []
    usage: None = None
    error: None = None


class _TextDelta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    content: str


class _PlainChoice(_OpenChoice, gc=False, forbid_unknown_fields=True, kw_only=True):
    delta: _TextDelta
    index: Literal[0] = 0


class _TextOnlyEvent(_Frame, gc=False, forbid_unknown_fields=True, kw_only=True):
    """A typical chunk, which contains one piece of text and nothing else of interest."""

    choices: tuple[_PlainChoice]
    usage: None = None
    error: None = None


_frame_decoder = msgspec.json.Decoder(_Frame)
_chunk_decoder = msgspec.json.Decoder(_Chunk)
_plain_decoder = msgspec.json.Decoder(_TextOnlyEvent)
_Choices: TypeAlias = list[tuple[int, str | None, Mapping[str, Any], dict[str, bytes]]]
"""The index, finish reason, delta and other fields of each choice."""


class ChatAccumulator:
    """The accumulator that assembles an answer from streamed chat completion chunks."""

    started = True

    def __init__(self, build_answer: Callable[[bytes, str | None, bytes | None, bytes | None], Answer]) -> None:
        self.done = False
        self.deltas = Deltas()
        self._build_answer = build_answer
        self._message = PartialObject(_GRAMMAR)
        self._choice = PartialObject(_CHOICE_GRAMMAR)
        self._response = PartialObject({})
        self._frame: tuple[Any, ...] | None = None
        """The fields that every chunk repeats. A chunk in which they are the same has nothing new for the response."""
        self._reason: str | None = None
        self._usage: bytes | None = None
        self._held = b""
        self._has_ended_text = False
        self._expects_text = False
        """Whether the last event contained only a piece of text. If so, the fast decoder reads the next event."""

    def feed(self, data: bytes) -> str:
        if not self._expects_text or BACKSLASH in data:
            return self._feed_any(data)
        try:
            chunk = _plain_decoder.decode(data)
        except (ValueError, RecursionError):
            return self._feed_any(data)
        if chunk.key() != self._frame:
            return self._feed_any(data)
        text = chunk.choices[0].delta.content
        self._message.text("content").bodies.append(text.encode())
        return text

    def _feed_any(self, data: bytes) -> str:
        """Process an event of any kind and return the text that it adds."""
        self._expects_text = False
        if data == b"[DONE]":
            self.done = True
            held, self._held = self._held, b""
            return json_bytes.text(b'"%s"' % held) or ""
        # Some servers send blank events to keep the connection open.
        if not data.strip():
            return ""
        choices = self._read_chunk(data)
        text, had_ended = "", self.done
        for index, reason, delta, others in choices:
            if index:
                continue
            if reason:
                self._reason, self.done = reason, True
            self._choice.merge(_without_nulls(others, _OpenChoice.__struct_fields__))
            content = delta.get("content")
            if content is not None:
                text += self._decode_text(bytes(content))
                self._expects_text = len(delta) == 1 and not self._held
            self._message.merge({key: bytes(value) for key, value in delta.items()})
            if content is None or len(delta) > 1:
                self._collect_deltas(delta)
        if self.done and not had_ended:
            self._end_text()
        return text

    def _end_text(self) -> None:
        """Add the end of the text, which is before the calls, if the message has citations by now."""
        if not self._has_ended_text and self._message.member("annotations") is not None:
            members = self._message.members()
            content = members.get("content", b"null")
            text = join_text_parts(content) if content[:1] == b"[" else json_bytes.text(content)
            end = read_chat_message(json_bytes.value(json_bytes.build(members)), text or "")
            if end.citations:
                self.deltas.new.append(end)
        self._has_ended_text = True

    def _collect_deltas(self, delta: Mapping[str, Any]) -> None:
        """Collect the pieces of reasoning and of tool calls in a delta that was merged."""
        # Servers that send the same reasoning under both names are not shown twice.
        reasoning = [bytes(delta.get(key, b"")) for key in _REASONING]
        piece = next((each for each in reasoning if each[:1] == b'"' and len(each) > 2), b"")
        self.deltas.add_reasoning(piece, is_raw=True)
        if "tool_calls" in delta:
            self._end_text()
            for position, call in self._message.newest("tool_calls"):
                function = object_fields(call.get("function", b""))
                name, arguments = function.get("name", b""), function.get("arguments", b"")
                self.deltas.add_call(position, id=call.get("id", b""), name=name, arguments=arguments)

    def _read_chunk(self, data: bytes) -> _Choices:
        """Return the choices of a chunk. Keep its usage and the other fields of the response."""
        try:
            chunk = _chunk_decoder.decode(data)
            if chunk.key() == self._frame:
                return [(choice.index, None, choice.delta, {}) for choice in chunk.choices]
        except (ValueError, RecursionError):
            pass
        fields = json_bytes.fields(data)
        choices = _read_choices(fields.pop("choices", b"null"))
        usage, error = (fields.pop(key, b"null") for key in ("usage", "error"))
        if error != b"null":
            raise ReportedError(error)
        if usage != b"null":
            self._usage = usage
        fields.pop(_PADDING, None)
        self._response.merge(_without_nulls(fields, _Frame.__struct_fields__))
        try:
            self._frame = _frame_decoder.decode(data).key()
        except (ValueError, RecursionError):
            self._frame = None
        return choices

    def _build_response(self) -> bytes:
        choice = self._choice.to_json()
        return json_bytes.build({**self._response.members(), "choices": b"[%s]" % choice})

    def _decode_text(self, content: bytes) -> str:
        if content[:1] != b'"':
            return join_text_parts(content)
        text, self._held = decode_piece(self._held, content)
        return text

    def answer(self, *, interrupted: bool = False) -> Answer:
        members = self._message.members()
        if not interrupted:
            return self._build_answer(json_bytes.build(members), self._reason, self._usage, self._build_response())
        # Half a character would make strict servers reject every later request of the conversation.
        members = {key: drop_half_character(value) for key, value in members.items()}
        tool_calls = members.get("tool_calls", b"")
        calls = [call for call in json_bytes.items(tool_calls) if _is_complete(call)] if tool_calls[:1] == b"[" else []
        if calls:
            members["tool_calls"] = b"[" + b",".join(calls) + b"]"
        else:
            members.pop("tool_calls", None)
        answer = self._build_answer(json_bytes.build(members), self._reason, self._usage, self._build_response())
        is_empty = all(value in (b"null", b'""', b"[]") for key, value in members.items() if key != "role")
        return msgspec.structs.replace(answer, finish="interrupted", native=None if is_empty else answer.native)


def join_text_parts(content: bytes) -> str:
    """Return the joined text of a message's content if it is an array of parts; otherwise return ""."""
    parts = [part for part in array_objects(content) if part.get("type") == b'"text"']
    return "".join(json_bytes.text(part.get("text", b"")) or "" for part in parts)


def _without_nulls(fields: dict[str, bytes], keys: tuple[str, ...]) -> dict[str, bytes]:
    """Return the fields, except the null ones among `keys`."""
    return {key: value for key, value in fields.items() if value != b"null" or key not in keys}


def _read_choices(listed: bytes) -> _Choices:
    """Return the choices of a chunk that the fast decoder rejects, such as one with half an emoji or unknown fields."""
    choices: _Choices = []
    for item in json_bytes.items(listed) if listed != b"null" else []:
        choice = json_bytes.fields(item)
        delta = choice.pop("delta", b"{}")
        index = json_bytes.value(choice.pop("index", b"0"))
        choices.append(
            (
                index if isinstance(index, int) else 0,
                json_bytes.text(choice.get("finish_reason", b"null")),
                json_bytes.fields(delta) if delta != b"null" else {},
                choice,
            )
        )
    return choices


def _is_complete(call: bytes) -> bool:
    try:
        fields = json_bytes.fields(call)
        function = json_bytes.fields(fields["function"])
        text = json_bytes.text(function["arguments"])
        arguments = json_bytes.value(function["arguments"] if text is None else text.encode())
        return isinstance(arguments, dict) and bool(json_bytes.text(fields["id"]) and json_bytes.text(function["name"]))
    except (KeyError, ValueError):
        return False
