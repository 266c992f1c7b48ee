"""Agents on the command line: programs that hold a conversation with a model themselves, with tools of their own.

A message is `{"role":…,"content":"…"}`, an answer `{"events":[…]}`: the lines that the program printed, as they came,
but for pieces of what a later line says whole, and for our own words that it repeats. A request says how to run it
(`Start`), with the text for its standard input: what is new, when it goes on with a session of its own; else the whole
conversation, quoted. What each agent is called with and how it prints is in a file of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longtalk import _json
from longtalk.errors import InputError
from longtalk.pack import ANSWERS
from longtalk.transcript import Entry
from longtalk.wires.base import (
    LONGTALK,
    Answer,
    Handle,
    Preamble,
    Quirks,
    Reported,
    Usage,
    View,
    neutral_text,
    quoted,
    shown,
)
from longtalk.wires.speech import OURS, SILENCE, STALE, TIMEOUT, Heard, Ours, Speech, Start

OPTIONS = ("arguments", "cwd", "env", "silence", "timeout")
_LONGEST = 10**9
_ROLES = ("user", "assistant", "tool", "system", "event")
_SO_FAR = "conversation_so_far"
_TAGS = re.compile(rf"<(?=\s*/?\s*(?:{'|'.join(_ROLES)}|{_SO_FAR})\b)", re.IGNORECASE)
_TAGS_BUT_EVENT = re.compile(rf"<(?=\s*/?\s*(?:user|assistant|tool|system|{_SO_FAR})\b)", re.IGNORECASE)
_COMMANDS = ("/", "?", "!", "#", "@")
"""What begins with one of these may be meant for the program itself."""


class Agent:
    """See `Wire`."""

    reserved: tuple[str, ...] = ("model", "session", "stream", "system")
    defaults: Mapping[str, Any] = {}
    binds_prefix = False
    drops_opaque = True
    takes_answers = False
    measures = False

    def __init__(self, speech: Speech) -> None:
        self.speech = speech
        self.name = speech.name

    def path(self, model: str, *, stream: bool) -> str:  # noqa: ARG002
        return ""

    def headers(self, key: str | None) -> dict[str, str]:  # noqa: ARG002
        return {}

    def user(self, content: str | Sequence[Any]) -> bytes:
        parts = [content] if isinstance(content, str) else content
        if not all(isinstance(part, str) for part in parts):
            raise InputError(f"{self.name} takes text, and nothing else.")
        return _message("user", "\n\n".join(parts))

    def is_part(self, part: Mapping[str, Any]) -> bool:
        raise InputError(f"{self.name} takes text, and nothing else: this is a part with {sorted(part)}.")

    def result(self, call_id: str, text: str, *, error: bool, name: str = "") -> bytes:  # noqa: ARG002
        return _json.encode({"role": "tool", "call_id": call_id, "name": name, "content": text})

    def instruction(self, text: str) -> bytes:
        return _message("system", text)

    def quote(self, tag: str, text: str) -> bytes:
        return _message("user", quoted(tag, text))

    def is_plain(self, role: str) -> bool:
        return role != "assistant"

    def without_opaque(self, native: bytes) -> bytes | None:
        return native

    def redacted(self, native: bytes, text: str) -> bytes:
        seen = self.view(native)
        if seen.call_id:
            return self.result(seen.call_id, text, error=False, name=seen.name)
        return _message(seen.role, text)

    def render(self, entry: Entry, quirks: Quirks) -> bytes | None:  # noqa: ARG002
        if entry.wire == LONGTALK:
            return _message("event" if entry.kind == "event" else "system", neutral_text(entry))
        if entry.role != "assistant":
            return entry.native
        text = self.view(entry.native).text
        return _message("assistant", text) if text.strip() else None

    def request(
        self,
        *,
        model: str,
        preamble: Preamble,
        pieces: Sequence[bytes | memoryview],
        mark: int,  # noqa: ARG002
        options: Mapping[str, Any],
        quirks: Quirks,  # noqa: ARG002
        stream: bool,
    ) -> bytes:
        if preamble.tools:
            raise InputError(f"{self.name} has tools of its own and can't call yours: leave `tools` out.")
        handle: Handle = options.get("session") or Handle("")
        system = preamble.system if preamble.system and preamble.system.strip() else None
        more = options.get("arguments") or ()
        arguments, variables = self.speech.start(model, handle.id, more, system=system is not None, stream=stream)
        stamp, _, before = handle.stamp.partition(" ")
        start = Start(
            arguments=tuple(arguments),
            input=_prompt([self.view(each) for piece in pieces for each in _json.items(b"[%s]" % piece)]),
            system=system,
            variables=variables,
            env=tuple(options.get("env") or ()),
            cwd=options.get("cwd"),
            timeout=float(options.get("timeout") or TIMEOUT),
            silence=float(options.get("silence") or SILENCE),
            session=handle.id,
            stamp=stamp,
            before=_reported(before),
        )
        return _json.encode(start)

    def parse(self, body: bytes) -> Answer:
        lines = self.accumulator()
        for line in body.splitlines():
            lines.feed(line)
        if not lines.done:
            raise ValueError("it has no end")
        return lines.answer()

    def accumulator(self) -> Lines:
        return Lines(self)

    def view(self, native: bytes) -> View:
        fields = _json.fields(native)
        if fields.get("events", b"")[:1] != b"[":
            role, text = (_json.text(fields.get(name, b"")) or "" for name in ("role", "content"))
            call_id, name = (_json.text(fields.get(name, b"")) or "" for name in ("call_id", "name"))
            return shown(View(role=role, text=text, call_id=call_id, name=name))
        said = View(role="assistant")
        for line in _json.items(fields["events"]):
            if text := self.hear(_json.fields(line)).text:
                new = shown(View(role="assistant", text=text))
                # What has nothing but a card in it does not take the place of what was said.
                text = said.text if new.cards and not new.text.strip() else new.text
                said = View(role="assistant", text=text, cards=new.cards or said.cards)
        return said

    def hear(self, line: Mapping[str, bytes]) -> Heard:
        return Heard(kept=False) if line.get("type") == OURS else self.speech.hear(line)

    def usage(self, raw: bytes) -> Usage:
        try:
            return self.speech.count(raw)
        except (ValueError, RecursionError):
            return Usage()

    def objection(self, error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:  # noqa: ARG002
        return None

    def keeps(self, options: Mapping[str, Any]) -> str:
        """Always, whatever the options are; they are looked at here."""
        for name, value in options.items():
            if name not in OPTIONS:
                raise InputError(
                    f"{self.name} has no option {name!r}, but {', '.join(OPTIONS)}: give it to the program with "
                    "arguments=[…], if it has one."
                )
            if value is None:
                continue
            texts = isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
            if name in ("arguments", "env") and not texts:
                raise InputError(f"The option {name!r} of {self.name} is a list of texts, not {value!r}.")
            seconds = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _LONGEST
            if name in ("timeout", "silence") and not seconds:
                raise InputError(f"The option {name!r} of {self.name} is a number of seconds, not {value!r}.")
            if name == "cwd" and not isinstance(value, str):
                raise InputError(f"The option 'cwd' of {self.name} is the path of a folder, not {value!r}.")
        return "session"

    def minding(self, options: Mapping[str, Any], known: Quirks) -> Quirks:  # noqa: ARG002
        return known

    def going_on(self, options: Mapping[str, Any], handle: Handle | None) -> Mapping[str, Any]:
        return options if handle is None else {**options, "session": handle}

    def alone(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        given = options.get("arguments") or ()
        more = [each for each in self.speech.unrecorded() if each not in given]
        return {**options, "arguments": [*given, *more]}

    def forgot(self, error: bytes) -> bool:
        return any(words in error for words in (STALE, *self.speech.gone))

    def behind(self, answer: bytes, pieces: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:  # noqa: ARG002
        return pieces


class Lines:
    """See `Accumulator`."""

    def __init__(self, agent: Agent) -> None:
        self.done = False
        self.begun = False
        self._agent = agent
        self._events: list[bytes] = []
        self._pieces: list[str] = []
        """Of a text that no line has said whole so far."""
        self._spoken = False
        self._last = Heard()
        self._session = ""
        self._ours = Ours()

    def feed(self, data: bytes) -> str:
        if data[:1] != b"{":
            return ""
        fields = _json.fields(data)
        if fields.get("type") == OURS:
            self._ours = msgspec.json.decode(data, type=Ours)
            return ""
        heard = self._agent.hear(fields)
        self._session = heard.session or self._session
        if heard.error is not None:
            raise Reported(heard.error)
        if heard.partial:
            said = self._say(heard.text)
            self._pieces += [heard.text] if heard.text else []
            return said
        if not heard.kept:
            return ""
        said_before = self._spoken if heard.final else bool(self._pieces)
        if heard.text or heard.final or not self._agent.speech.repeats:
            self._events += [] if heard.text else self._unsettled()
            self._pieces.clear()
        self._events.append(data)
        if heard.final:
            self.done = self.begun = True
            self._last = heard
        return "" if said_before else self._say(heard.text)

    def _say(self, text: str) -> str:
        """One more piece of text; what is said after something else stands apart from what was said before."""
        gap = "\n\n" if text and self._spoken and not self._pieces else ""
        self._spoken = self._spoken or bool(text)
        self.begun = self.begun or self._spoken
        return gap + text

    def _unsettled(self) -> list[bytes]:
        """A line for the pieces of a text that none says whole."""
        return [self._agent.speech.line("".join(self._pieces))] if self._pieces else []

    def answer(self, *, interrupted: bool = False) -> Answer:
        native = b'{"events":[%s]}' % b",".join([*self._events, *self._unsettled()])
        view = self._agent.view(native)
        if interrupted:
            return Answer(native=native if view.text or view.cards else None, view=view, finish="interrupted")
        usage, before = self._last.usage, bytes(self._ours.before)
        handle = None
        if self._session and self._ours.stamp:
            so_far = (usage or b"").decode("utf-8", "replace") if self._agent.speech.sums else ""
            handle = Handle(self._session, f"{self._ours.stamp} {so_far}".strip())
        if usage is not None and before != b"null":
            usage = b'{"now":%s,"before":%s}' % (usage, before)
        empty = not (view.text.strip() or view.cards)
        return Answer(native=native, view=view, finish=self._last.finish, empty=empty, usage=usage, handle=handle)


def _message(role: str, text: str) -> bytes:
    return _json.encode({"role": role, "content": text})


def _reported(before: str) -> msgspec.Raw:
    """What a state says was reported before. It is put into the request as it is: nothing else may get in with it."""
    data = before.encode("utf-8", "replace")
    try:
        _json.prove(data)
    except ValueError:
        data = b"null"
    return msgspec.Raw(data)


def _told(seen: View) -> str:
    """What was said, in a frame of its own that it can't end, and with no other in it."""
    role = seen.role if seen.role in _ROLES else "user"
    if role == "event":
        # It has its own frame.
        return _TAGS_BUT_EVENT.sub("&lt;", seen.text)
    return quoted(role, _TAGS.sub("&lt;", seen.text))


def _said(seen: View) -> str:
    """What is new: a user's words as they are, unless the program would take them for a command of its own."""
    if seen.role == "system" or (seen.role == "user" and seen.text.lstrip()[:1] in _COMMANDS):
        return quoted(seen.role if seen.role == "system" else "message", seen.text)
    return seen.text


def _prompt(messages: Sequence[View]) -> str:
    """What is said on the standard input. What was answered before goes in quotes."""
    answered = [i for i, message in enumerate(messages) if message.role in ANSWERS]
    new = answered[-1] + 1 if answered else 0
    parts = [_said(message) for message in messages[new:]]
    if new:
        told = "\n".join(map(_told, messages[:new]))
        parts = [f"<{_SO_FAR}>\n{told}\n</{_SO_FAR}>", *(parts or ["Go on from here."])]
    return "\n\n".join(parts)
