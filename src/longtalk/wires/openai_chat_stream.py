"""The pieces of a streamed chat completion, put together in the form that a whole one would have had.

Texts are joined as raw JSON string bodies, so that escapes stay as they came and an emoji split across pieces is
whole again. `_GRAMMAR` names the keys whose texts are joined, the names that an empty text does not take away, and
the lists whose members are matched up; of any other key the last value wins, as it came. Nothing is summed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from longtalk import _json
from longtalk.wires.base import ESCAPE, Answer, Reported, readable, without_half

_TEXT = "text"
_NAME = "name"
_GRAMMAR: dict[str, Any] = {
    "role": _NAME,
    "content": _TEXT,
    "refusal": _TEXT,
    "reasoning": _TEXT,
    "reasoning_content": _TEXT,
    "audio": {"data": _TEXT, "transcript": _TEXT},
    "tool_calls": [{"id": _NAME, "type": _NAME, "function": {"name": _NAME, "arguments": _TEXT}}],
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


class _Said(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    content: str


class _PlainChoice(msgspec.Struct, gc=False):
    delta: _Said
    finish_reason: None = None
    index: Literal[0] = 0


class _Plain(msgspec.Struct, gc=False):
    """What most chunks are: one piece of text and nothing else that counts."""

    choices: tuple[_PlainChoice]
    usage: None = None
    error: None = None


_chunk = msgspec.json.Decoder(_Chunk)
_plain = msgspec.json.Decoder(_Plain)
_Choices: TypeAlias = list[tuple[int, str | None, Mapping[str, Any]]]


class Pieces:
    """See `Accumulator`."""

    begun = True

    def __init__(self, finished: Callable[[bytes, str | None, bytes | None], Answer]) -> None:
        self.done = False
        self._finished = finished
        self._message = _Object(_GRAMMAR)
        self._reason: str | None = None
        self._usage: bytes | None = None
        self._held = b""
        self._plain = False
        """Whether the last event was a piece of text and nothing else. Then so is the next one, as a rule."""

    def feed(self, data: bytes) -> str:
        if not self._plain or ESCAPE in data:
            return self._take(data)
        try:
            text = _plain.decode(data).choices[0].delta.content
        except (ValueError, RecursionError):
            return self._take(data)
        self._message.text("content").bodies.append(text.encode())
        return text

    def _take(self, data: bytes) -> str:
        """An event of any kind."""
        self._plain = False
        if data == b"[DONE]":
            self.done = True
            held, self._held = self._held, b""
            return _json.text(b'"%s"' % held) or ""
        # Some servers keep the line open with events that say nothing.
        if not data.strip():
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
                self._plain = len(delta) == 1 and not self._held
            self._message.merge({key: bytes(value) for key, value in delta.items()})
        return text

    def _readable(self, content: bytes) -> str:
        if content[:1] != b'"':
            return text_of_parts(content)
        text, self._held = readable(self._held, content)
        return text

    def answer(self, *, interrupted: bool = False) -> Answer:
        members = self._message.members()
        if not interrupted:
            return self._finished(_json.build(members), self._reason, self._usage)
        # Half a pair that will never be whole makes strict servers refuse the conversation for ever.
        members = {key: without_half(value) for key, value in members.items()}
        listed = members.get("tool_calls", b"")
        calls = [call for call in _json.items(listed) if _whole(call)] if listed[:1] == b"[" else []
        if calls:
            members["tool_calls"] = b"[" + b",".join(calls) + b"]"
        else:
            members.pop("tool_calls", None)
        answer = self._finished(_json.build(members), self._reason, self._usage)
        unsaid = all(value in (b"null", b'""', b"[]") for key, value in members.items() if key != "role")
        return msgspec.structs.replace(answer, finish="interrupted", native=None if unsaid else answer.native)


def text_of_parts(content: bytes) -> str:
    """What a content says that is an array of parts."""
    parts = [_json.fields(part) for part in _json.items(content) if part[:1] == b"{"] if content[:1] == b"[" else []
    return "".join(_json.text(part["text"]) or "" for part in parts if part.get("type") == b'"text"' and "text" in part)


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
    try:
        fields = _json.fields(call)
        function = _json.fields(fields["function"])
        said = _json.text(function["arguments"])
        arguments = _json.value(function["arguments"] if said is None else said.encode())
        return isinstance(arguments, dict) and bool(_json.text(fields["id"]) and _json.text(function["name"]))
    except (KeyError, ValueError):
        return False


class _Object:
    """An object under way: its members in the order in which they first came."""

    def __init__(self, grammar: Mapping[str, Any]) -> None:
        self._grammar = grammar
        self._members: dict[str, Any] = {}

    def merge(self, delta: Mapping[str, bytes]) -> None:
        for key, value in delta.items():
            there = self._members.get(key)
            rule = self._grammar.get(key)
            if value == b"null" or (rule is _NAME and value == b'""'):
                self._members.setdefault(key, value)
                continue
            first = value[:1]
            if rule is _TEXT and first == b'"':
                self.text(key).bodies.append(value[1:-1])
            elif rule is _TEXT and first == b"[":
                text = self.text(key)
                text.close()
                text.parts += _json.items(value)
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

    def text(self, key: str) -> _Text:
        """The text under way of this key, which may begin here."""
        there = self._members.get(key)
        if not isinstance(there, _Text):
            there = self._members[key] = _Text()
        return there

    def members(self) -> dict[str, bytes]:
        return {
            key: member if isinstance(member, bytes) else member.json()
            for key, member in self._members.items()
            # A list that never came is left out: some servers refuse the null that others send.
            if not (member == b"null" and isinstance(self._grammar.get(key), list))
        }

    def given(self, key: str) -> bytes | None:
        """A value that is no text under way and not empty."""
        return _given(self._members, key)

    def json(self, *hidden: str) -> bytes:
        return _json.build({key: value for key, value in self.members().items() if key not in hidden})


class _Text:
    """A text under way, as bodies of JSON strings; or parts, where a server streams those."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.parts: list[bytes] = []

    def close(self) -> None:
        self.parts, self.bodies = self._all_parts(), []

    def _all_parts(self) -> list[bytes]:
        if not any(self.bodies):
            return self.parts
        return [*self.parts, _json.build({"type": b'"text"', "text": self._string()})]

    def _string(self) -> bytes:
        return b'"' + b"".join(self.bodies) + b'"'

    def json(self) -> bytes:
        return b"[" + b",".join(self._all_parts()) + b"]" if self.parts else self._string()


class _List:
    """Objects under way, matched up by their `index`, or by their `id` where a server does not number them."""

    def __init__(self, grammar: Mapping[str, Any], *, keep_index: bool) -> None:
        self._grammar = grammar
        self._keep_index = keep_index
        self._items: list[_Object] = []

    def merge(self, delta: dict[str, bytes]) -> None:
        item = self._find(delta)
        if item is None:
            item = _Object(self._grammar)
            self._items.append(item)
        item.merge(delta)

    def _find(self, delta: Mapping[str, bytes]) -> _Object | None:
        """The object that a piece goes on with; None when it begins one."""
        index, id, type = (_given(delta, key) for key in ("index", "id", "type"))  # noqa: A001
        there = [item for item in self._items if index is None or item.given("index") == index]
        if id is not None:
            there = [item for item in there if item.given("id") == id] or there
        if not there:
            return None
        last_id, last_type = there[-1].given("id"), there[-1].given("type")
        if index is None:
            begins = id != last_id if id else _is_named(delta)
        else:
            # Some servers number all of them 0: a call with another id and a name is another call.
            begins = bool(id and last_id and id != last_id) and ("function" not in self._grammar or _is_named(delta))
        return None if begins or (type and last_type and type != last_type) else there[-1]

    def json(self) -> bytes:
        hidden = () if self._keep_index else ("index",)
        return b"[" + b",".join(item.json(*hidden) for item in self._items) + b"]"


def _given(members: Mapping[str, Any], key: str) -> bytes | None:
    value = members.get(key)
    return value if isinstance(value, bytes) and value not in (b"null", b'""') else None


def _is_named(call: Mapping[str, bytes]) -> bool:
    function = call.get("function", b"")
    return function[:1] == b"{" and _given(_json.fields(function), "name") is not None
