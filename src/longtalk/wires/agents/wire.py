"""The wire of command-line agents: programs that call a model themselves and have their own tools.

A message is `{"role":…,"content":"…"}`. An answer is `{"events":[…]}`: the lines that the program printed, unchanged,
without the pieces of text that a later line repeats in full and without the program's echo of the prompt.

A request is an `AgentCommand`: how to run the program, and the text for its standard input. If the program resumes a
session of its own, that text contains only the new messages. Otherwise it contains the whole conversation, quoted. A
separate module for each program defines its arguments and output format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longtalk._util import json_bytes, typed_json
from longtalk._util.lookalikes import CARD, TAGS, neutralize
from longtalk.errors import InputError
from longtalk.transcript.pack import ANSWERS
from longtalk.transcript.transcript import Entry
from longtalk.usage import Usage
from longtalk.wires.agents.cli import (
    SILENCE,
    STALE_SESSION,
    STAMP_TYPE,
    TIMEOUT,
    AgentCli,
    AgentCommand,
    ParsedLine,
    SessionStamp,
)
from longtalk.wires.deltas import Deltas
from longtalk.wires.native import array_objects, split_piece
from longtalk.wires.neutral import LONGTALK, render_neutral
from longtalk.wires.protocol import Answer, Handle, Preamble, Quirks, ReportedError
from longtalk.wires.schemas import OutputSchema
from longtalk.wires.text import wrap_in_tag
from longtalk.wires.views import MessageView, hide_cards, show_cards

OPTIONS = ("arguments", "cwd", "env", "silence", "timeout")
_LONGEST = 10**9
_ROLES = ("user", "assistant", "tool", "system", "event")
_SO_FAR = "conversation_so_far"
_OWN_TAGS = ("user", "assistant", "tool", "message", _SO_FAR)
"""The names of the tags that only a prompt for an agent has."""
_TAGS_OF_ANSWERS = (*(name for name in TAGS if name not in CARD), *_OWN_TAGS)
"""The names of the tags that are escaped in answers. What looks like a card in an answer is the model's own text."""
_COMMANDS = ("/", "?", "!", "#", "@")
"""Characters at the start of a message that make a program treat the message as a command."""


class AgentWire:
    """The wire of an agent program. See `Wire` for what each method does."""

    reserved: tuple[str, ...] = ("model", "session", "stream", "system")
    defaults: Mapping[str, Any] = {}
    binds_prefix = False
    accepts_foreign_answers = False
    reports_request_size = False

    def __init__(self, cli: AgentCli) -> None:
        self.cli = cli
        self.name = cli.name

    def path(self, model: str, *, stream: bool) -> str:  # noqa: ARG002
        return ""

    def headers(self, key: str | None) -> dict[str, str]:  # noqa: ARG002
        return {}

    def write_user(self, content: str | Sequence[Any]) -> bytes:
        parts = [content] if isinstance(content, str) else content
        if not all(isinstance(part, str) for part in parts):
            raise InputError(f"{self.name} accepts only text: pass a string.")
        return _message("user", "\n\n".join(parts))

    def is_part(self, part: Mapping[str, Any]) -> bool:
        raise InputError(f"{self.name} accepts only text, not a part with the keys {list(part)}: pass a string.")

    def write_result(self, call_id: str, content: str | Sequence[Any], *, error: bool, name: str = "") -> bytes:  # noqa: ARG002
        parts = [content] if isinstance(content, str) else content
        if not all(isinstance(part, str) for part in parts):
            raise InputError(f"{self.name} accepts only text: pass a string.")
        text = "\n\n".join(parts)
        return json_bytes.encode({"role": "tool", "call_id": call_id, "name": name, "content": text})

    def write_instruction(self, text: str) -> bytes:
        return _message("system", text)

    def quote(self, tag: str, text: str) -> bytes:
        return _message("user", wrap_in_tag(tag, text))

    def is_plain(self, role: str) -> bool:
        return role != "assistant"

    def remove_opaque(self, native: bytes, *, running: bool = False) -> bytes | None:  # noqa: ARG002
        return native

    def redact(self, native: bytes, text: str) -> bytes:
        seen = self.view(native)
        if seen.call_id:
            return self.write_result(seen.call_id, text, error=False, name=seen.name)
        return _message(seen.role, text)

    def render(self, entry: Entry, quirks: Quirks) -> bytes | None:  # noqa: ARG002
        if entry.wire == LONGTALK:
            return _message("event" if entry.kind == "event" else "system", render_neutral(entry))
        if entry.role != "assistant":
            return entry.native
        view = self.view(entry.native)
        text = (show_cards(view) if entry.is_verbatim else view).text
        return _message("assistant", text) if text.strip() else None

    def build_request(
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
            raise InputError(f"{self.name} has its own tools and can't call yours; leave `tools` out.")
        handle: Handle = options.get("session") or Handle("")
        system = preamble.system if preamble.system and preamble.system.strip() else None
        more = options.get("arguments") or ()
        arguments, variables = self.cli.build_command(model, handle.id, more, system=system is not None, stream=stream)
        stamp, _, before = handle.stamp.partition(" ")
        # `render` has removed the cards.
        views = [show_cards(self.view(each)) for piece in pieces for each in split_piece(piece)]
        command = AgentCommand(
            arguments=tuple(arguments),
            input=_render_prompt(views),
            system=system,
            variables=variables,
            env=tuple(options.get("env") or ()),
            cwd=options.get("cwd"),
            timeout=float(options.get("timeout") or TIMEOUT),
            silence=float(options.get("silence") or SILENCE),
            session=handle.id,
            stamp=stamp,
            before=_parse_earlier_usage(before),
        )
        return json_bytes.encode(command)

    def add_schema(self, options: Mapping[str, Any], output: OutputSchema) -> None:  # noqa: ARG002
        return

    def parse(self, body: bytes) -> Answer:
        lines = self.new_accumulator()
        for line in body.splitlines():
            lines.feed(line)
        if not lines.done:
            raise ValueError("the last line of the output is missing")
        return lines.answer()

    def new_accumulator(self) -> AgentAccumulator:
        return AgentAccumulator(self)

    def view(self, native: bytes) -> MessageView:
        fields = json_bytes.fields(native)
        if fields.get("events", b"")[:1] != b"[":
            role, text = (json_bytes.text(fields.get(name, b"")) or "" for name in ("role", "content"))
            call_id, name = (json_bytes.text(fields.get(name, b"")) or "" for name in ("call_id", "name"))
            return hide_cards(MessageView(role=role, text=text, call_id=call_id, name=name))
        view = MessageView(role="assistant")
        for line in array_objects(fields["events"]):
            if text := self.parse_line(line).text:
                new = hide_cards(MessageView(role="assistant", text=text))
                # A text that contains only a card does not replace the answer.
                text = view.text if new.cards and not new.text.strip() else new.text
                whole = new.whole or ((text, "") if view.cards else None)
                view = MessageView(role="assistant", text=text, cards=new.cards or view.cards, whole=whole)
        return view

    def parse_line(self, line: Mapping[str, bytes]) -> ParsedLine:
        return ParsedLine(is_stored=False) if line.get("type") == STAMP_TYPE else self.cli.parse_line(line)

    def read_usage(self, raw: bytes) -> Usage:
        try:
            return self.cli.read_usage(raw)
        except (ValueError, RecursionError):
            return Usage()

    def learn_from_error(self, error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:  # noqa: ARG002
        return None

    def session_mode(self, options: Mapping[str, Any]) -> str:
        """Return "session", because an agent always stores the conversation.

        Raises `InputError` if an option is invalid.
        """
        for name, value in options.items():
            if name not in OPTIONS:
                raise InputError(
                    f"{self.name} has no option {name!r}, only {', '.join(OPTIONS)}; pass the program's own options in "
                    "arguments=[…]."
                )
            if value is None:
                continue
            texts = isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
            if name in ("arguments", "env") and not texts:
                raise InputError(f"The option {name!r} of {self.name} must be a list of strings, not {value!r}.")
            seconds = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _LONGEST
            if name in ("timeout", "silence") and not seconds:
                raise InputError(
                    f"The option {name!r} of {self.name} must be a positive number of seconds, not {value!r}."
                )
            if name == "cwd" and not isinstance(value, str):
                raise InputError(f"The option 'cwd' of {self.name} must be the path of a folder, not {value!r}.")
        return "session"

    def quirks_for(self, options: Mapping[str, Any], known: Quirks) -> Quirks:  # noqa: ARG002
        return known

    def session_options(self, options: Mapping[str, Any], handle: Handle | None) -> Mapping[str, Any]:
        return options if handle is None else {**options, "session": handle}

    def sessionless_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        arguments = options.get("arguments") or ()
        more = [each for each in self.cli.no_session_arguments() if each not in arguments]
        return {**options, "arguments": [*arguments, *more]}

    def is_session_lost(self, error: bytes) -> bool:
        return any(words in error for words in (STALE_SESSION, *self.cli.session_lost_texts))

    def follow_answer(self, answer: bytes, pieces: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:  # noqa: ARG002
        return pieces


class AgentAccumulator:
    """The accumulator that assembles an answer from the lines that an agent prints."""

    def __init__(self, agent: AgentWire) -> None:
        self.done = False
        self.started = False
        self.deltas = Deltas()
        self._agent = agent
        self._events: list[bytes] = []
        self._pieces: list[str] = []
        """The pieces of a text, until a line repeats the text in full."""
        self._has_text = False
        self._last = ParsedLine()
        self._session = ""
        self._stamp = SessionStamp()

    def feed(self, data: bytes) -> str:
        if data[:1] != b"{":
            return ""
        fields = json_bytes.fields(data)
        if fields.get("type") == STAMP_TYPE:
            self._stamp = typed_json.decode(data, SessionStamp)
            return ""
        parsed = self._agent.parse_line(fields)
        self._session = parsed.session or self._session
        if parsed.error is not None:
            raise ReportedError(parsed.error)
        if parsed.is_partial:
            text = self._separate(parsed.text)
            self._pieces += [parsed.text] if parsed.text else []
            return text
        if not parsed.is_stored:
            return ""
        was_streamed = self._has_text if parsed.is_final else bool(self._pieces)
        if parsed.text or parsed.is_final or not self._agent.cli.repeats_text:
            self._events += [] if parsed.text else self._join_pieces()
            self._pieces.clear()
        self._events.append(data)
        if parsed.is_final:
            self.done = self.started = True
            self._last = parsed
        return "" if was_streamed else self._separate(parsed.text)

    def _separate(self, text: str) -> str:
        """Return a piece of text, with a blank line before it if it begins a new text."""
        gap = "\n\n" if text and self._has_text and not self._pieces else ""
        self._has_text = self._has_text or bool(text)
        self.started = self.started or self._has_text
        return gap + text

    def _join_pieces(self) -> list[bytes]:
        """Return a list with one line that joins the remaining pieces, or an empty list if there are none."""
        return [self._agent.cli.render_line("".join(self._pieces))] if self._pieces else []

    def answer(self, *, interrupted: bool = False) -> Answer:
        native = b'{"events":[%s]}' % b",".join([*self._events, *self._join_pieces()])
        view = self._agent.view(native)
        if interrupted:
            return Answer(native=native if view.text or view.whole else None, view=view, finish="interrupted")
        usage, before = self._last.usage, bytes(self._stamp.before)
        handle = None
        if self._session and self._stamp.stamp:
            so_far = (usage or b"").decode("utf-8", "replace") if self._agent.cli.reports_totals else ""
            handle = Handle(self._session, f"{self._stamp.stamp} {so_far}".strip())
        if usage is not None and before != b"null":
            usage = b'{"now":%s,"before":%s}' % (usage, before)
        empty = not (view.text.strip() or view.whole)
        return Answer(native=native, view=view, finish=self._last.finish, empty=empty, usage=usage, handle=handle)


def _message(role: str, text: str) -> bytes:
    return json_bytes.encode({"role": role, "content": text})


def _parse_earlier_usage(before: str) -> msgspec.Raw:
    """Return the usage that was reported after the previous answer, or null if the text is not a JSON object.

    The text comes from a stored state and is copied into the request, so nothing but a JSON object may pass.
    """
    data = before.encode("utf-8", "replace")
    try:
        json_bytes.check_object(data)
    except ValueError:
        data = b"null"
    return msgspec.Raw(data)


def _quote_earlier(seen: MessageView) -> str:
    """Return an earlier message between tags, with similar tags in its text escaped.

    The tags in other messages than answers are escaped already, unless they are Longtalk's own.
    """
    role = seen.role if seen.role in _ROLES else "user"
    text = neutralize(seen.text, _TAGS_OF_ANSWERS if role == "assistant" else _OWN_TAGS)
    # An event already has its own tags.
    return text if role == "event" else wrap_in_tag(role, text)


def _render_new(seen: MessageView) -> str:
    """Return the text of a new message, quoted if the program might take it for a command."""
    text = neutralize(seen.text, _OWN_TAGS)
    if seen.role == "system" or (seen.role == "user" and text.lstrip()[:1] in _COMMANDS):
        return wrap_in_tag(seen.role if seen.role == "system" else "message", text)
    return text


def _render_prompt(messages: Sequence[MessageView]) -> str:
    """Return the text for the program's standard input: earlier messages quoted, then the new ones.

    The new messages are those after the last answer or tool result.
    """
    answered = [i for i, message in enumerate(messages) if message.role in ANSWERS]
    new = answered[-1] + 1 if answered else 0
    parts = [_render_new(message) for message in messages[new:]]
    if new:
        earlier = "\n".join(map(_quote_earlier, messages[:new]))
        parts = [f"<{_SO_FAR}>\n{earlier}\n</{_SO_FAR}>", *(parts or ["Go on from here."])]
    return "\n\n".join(parts)
