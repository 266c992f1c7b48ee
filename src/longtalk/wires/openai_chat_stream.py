"""The pieces of a streamed chat completion, put together in the form that a whole one would have had.

Texts are joined as raw JSON string bodies, so that escapes stay as they came and an emoji split across pieces is
whole again. `_GRAMMAR` names the keys whose texts are joined and the lists whose members are matched up; of any
other key the last value wins, as it came. Nothing is summed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from longtalk import _json
from longtalk.wires.base import Answer, Reported

_TEXT = "text"
_GRAMMAR: dict[str, Any] = {
    "content": _TEXT,
    "refusal": _TEXT,
    "reasoning": _TEXT,
    "reasoning_content": _TEXT,
    "audio": {"data": _TEXT, "transcript": _TEXT},
    "tool_calls": [{"function": {"arguments": _TEXT}}],
    "reasoning_details": [{"text": _TEXT, "summary": _TEXT, "data": _TEXT}],
}


class _Choice(msgspec.Struct):
    delta: dict[str, msgspec.Raw] = {}
    finish_reason: str | None = None
    index: int = 0


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


_chunk = msgspec.json.Decoder(_Chunk)
_Choices: TypeAlias = list[tuple[int, str | None, Mapping[str, Any]]]


class Pieces:
    """See `Accumulator`."""

    def __init__(self, finished: Callable[[bytes, str | None, bytes | None], Answer]) -> None:
        self.done = False
        self._finished = finished
        self._message = _Object(_GRAMMAR)
        self._reason: str | None = None
        self._usage: bytes | None = None
        self._held = b""

    def feed(self, data: bytes) -> str:
        if data == b"[DONE]":
            self.done = True
            return ""
        try:
            chunk = _chunk.decode(data)
            choices: _Choices = [(c.index, c.finish_reason, c.delta) for c in chunk.choices]
            usage, error = bytes(chunk.usage), bytes(chunk.error)
        except (ValueError, RecursionError):
            choices, usage, error = _slowly(data)
        if error != b"null":
            raise Reported(error)
        if usage != b"null":
            self._usage = usage
        text = ""
        for index, reason, delta in choices:
            if index:
                continue
            if reason:
                self._reason, self.done = reason, True
            content = delta.get("content")
            if content is not None:
                text += self._readable(bytes(content))
            self._message.merge({key: bytes(value) for key, value in delta.items()})
        return text

    def _readable(self, content: bytes) -> str:
        if content[:1] == b"[":
            parts = [_json.fields(part) for part in _json.items(content) if part[:1] == b"{"]
            return "".join(_json.text(part.get("text", b"")) or "" for part in parts)
        if content[:1] != b'"':
            return ""
        body = self._held + content[1:-1]
        # Half a pair waits for its other half.
        before = body[:-6]
        escaped = (len(before) - len(before.rstrip(b"\\"))) % 2
        waits = not escaped and re.fullmatch(rb"\\u[dD][89abAB]..", body[-6:])
        body, self._held = (body[:-6], body[-6:]) if waits else (body, b"")
        return _json.text(b'"%s"' % body) or ""

    def answer(self, *, interrupted: bool = False) -> Answer:
        members = self._message.members()
        if interrupted:
            calls = [call for call in _json.items(members.pop("tool_calls", b"[]")) if _whole(call)]
            if calls:
                members["tool_calls"] = b"[" + b",".join(calls) + b"]"
        answer = self._finished(_json.build(members), self._reason, self._usage)
        if not interrupted:
            return answer
        unsaid = answer.empty and all(
            value in (b"null", b'""', b"[]") for key, value in members.items() if key != "role"
        )
        return msgspec.structs.replace(answer, finish="interrupted", native=None if unsaid else answer.native)


def _slowly(data: bytes) -> tuple[_Choices, bytes, bytes]:
    """The same for a chunk that the fast parser can't take: half an emoji, an odd type."""
    fields = _json.fields(data)
    choices: _Choices = []
    listed = fields.get("choices", b"[]")
    for item in _json.items(listed) if listed != b"null" else []:
        choice = _json.fields(item)
        delta = choice.get("delta", b"{}")
        index = _json.value(choice.get("index", b"0"))
        choices.append(
            (
                index if isinstance(index, int) else 0,
                _json.text(choice.get("finish_reason", b"null")),
                _json.fields(delta) if delta != b"null" else {},
            )
        )
    return choices, fields.get("usage", b"null"), fields.get("error", b"null")


def _whole(call: bytes) -> bool:
    fields = _json.fields(call)
    function = _json.fields(fields.get("function", b"{}"))
    try:
        arguments = _json.value((_json.text(function["arguments"]) or "").encode())
    except (KeyError, ValueError):
        return False
    return isinstance(arguments, dict) and bool(_json.text(fields.get("id", b""))) and "name" in function


class _Object:
    """An object under way: its members in the order in which they first came."""

    def __init__(self, grammar: Mapping[str, Any]) -> None:
        self._grammar = grammar
        self._members: dict[str, Any] = {}

    def merge(self, delta: Mapping[str, bytes]) -> None:
        for key, value in delta.items():
            there = self._members.get(key)
            if value == b"null":
                self._members.setdefault(key, value)
                continue
            rule = self._grammar.get(key)
            first = value[:1]
            if rule is _TEXT and first == b'"':
                if not isinstance(there, _Text):
                    there = self._members[key] = _Text()
                there.bodies.append(value[1:-1])
            elif rule is _TEXT and first == b"[":
                if not isinstance(there, _Text):
                    there = self._members[key] = _Text()
                there.close()
                there.parts += _json.items(value)
            elif isinstance(rule, dict) and first == b"{":
                if not isinstance(there, _Object):
                    there = self._members[key] = _Object(rule)
                there.merge(_json.fields(value))
            elif isinstance(rule, list) and first == b"[":
                if not isinstance(there, _List):
                    there = self._members[key] = _List(rule[0], keep_index=key != "tool_calls")
                for item in _json.items(value):
                    there.merge(_json.fields(item))
            else:
                self._members[key] = value

    def members(self) -> dict[str, bytes]:
        return {
            key: member if isinstance(member, bytes) else member.json()
            for key, member in self._members.items()
            # A list that never came is left out: some servers refuse the null that others send.
            if not (member == b"null" and isinstance(self._grammar.get(key), list))
        }

    def json(self) -> bytes:
        return _json.build(self.members())


class _Text:
    """A text under way, as bodies of JSON strings; or parts, where a server streams those."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.parts: list[bytes] = []

    def close(self) -> None:
        if any(self.bodies):
            self.parts.append(_json.build({"type": b'"text"', "text": self._string()}))
        self.bodies = []

    def _string(self) -> bytes:
        return b'"' + b"".join(self.bodies) + b'"'

    def json(self) -> bytes:
        if not self.parts:
            return self._string()
        self.close()
        return b"[" + b",".join(self.parts) + b"]"


class _List:
    """Objects under way, matched up by their `index`, or by their `id` where a server does not number them."""

    def __init__(self, grammar: Mapping[str, Any], *, keep_index: bool) -> None:
        self._grammar = grammar
        self._keep_index = keep_index
        self._items: list[tuple[bytes | None, bytes | None, _Object]] = []

    def merge(self, delta: dict[str, bytes]) -> None:
        index = delta.get("index") if self._keep_index else delta.pop("index", None)
        id = delta.get("id") or None  # noqa: A001
        id = None if id in (b"null", b'""') else id  # noqa: A001
        begins = id is not None or b'"name"' in delta.get("function", b"")
        for i in range(len(self._items) - 1, -1, -1):
            there_index, there_id, item = self._items[i]
            if index is None:
                same = i == len(self._items) - 1 and (not begins or (id is not None and id == there_id))
            else:
                same = index == there_index
            # A new id under an old number is a new call: some servers number all of them 0.
            if same and (id is None or there_id is None or id == there_id):
                self._items[i] = (index, there_id or id, item)
                item.merge(delta)
                return
        item = _Object(self._grammar)
        item.merge(delta)
        self._items.append((index, id, item))

    def json(self) -> bytes:
        return b"[" + b",".join(item.json() for _, _, item in self._items) + b"]"
