"""What every wire has in common: the values it gives and takes, and the contract of a wire.

A wire is a provider family's JSON grammar as pure functions: entries to request bytes, response bytes to an
`Answer`, native JSON to a `View`. It never touches a socket and keeps nothing.

Events and system messages inside a conversation are stored in a grammar of our own, `LONGTALK`, since each wire
(and sometimes each model) wants them in another form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from longtalk import _json
from longtalk.errors import InputError
from longtalk.memory.sentinel import neutralised, parted
from longtalk.pack import OWN, Entry
from longtalk.tools import Tool
from longtalk.transcript import Finish

LONGTALK = OWN
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Options that say how long an answer may be."""

ESCAPE = ord("\\")
"""What begins an escape in JSON. A text without one is stored as it reads."""

# A high surrogate as an escape, not an escaped backslash and letters, before the closing quote.
_HALF = re.compile(rb'(?<!\\)((?:\\\\)*)\\u[dD][89abAB].."$')


class Call(msgspec.Struct, frozen=True):
    """A tool call that a model made."""

    id: str
    name: str
    arguments: bytes
    """JSON, as the model wrote it: it may be anything."""


class View(msgspec.Struct, frozen=True):
    """A native message, for reading."""

    role: str
    text: str = ""
    calls: tuple[Call, ...] = ()
    call_id: str = ""
    """Of a tool result: the call that it answers."""
    name: str = ""
    """Of a tool result: the tool, where the wire says it."""
    refusal: str = ""
    cards: tuple[str, ...] = ()
    """Of an answer: the contents of its memory cards, which neither text nor refusal shows."""


class Usage(msgspec.Struct, frozen=True):
    """Tokens, as the provider reported them. `input` includes what was read from and written to its cache."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    written_1h: int = 0
    """Of what was written, what is kept for an hour."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.written + other.written,
            self.written_1h + other.written_1h,
        )


class Handle(msgspec.Struct, frozen=True, omit_defaults=True):
    """A conversation that a provider keeps itself, as it was after one answer."""

    id: str
    stamp: str = ""
    """Tells whether it has gone on since, where the id does not."""


class Answer(msgspec.Struct, frozen=True):
    """One answer of a model. `native` is None when it was interrupted before anything was said."""

    native: bytes | None
    view: View
    finish: Finish
    empty: bool = False
    """Whether it has no content at all, which no provider takes back."""
    opaque: bool = False
    """Whether it has blocks that only its provider can read, and that are valid only where they were made."""
    usage: bytes | None = None
    """What the provider reported, as it came."""
    handle: Handle | None = None
    """What the provider calls the conversation up to here, if it keeps it."""


class Preamble(msgspec.Struct, frozen=True):
    """What is given fresh each turn and never stored."""

    system: str | None = None
    tools: tuple[Tool, ...] = ()

    def digest(self) -> str:
        """A short digest, to notice a change."""
        import hashlib

        parts = [(self.system or "").encode("utf-8", "surrogatepass")]
        parts += [b"\0".join((tool.name.encode(), tool.description.encode(), tool.schema)) for tool in self.tools]
        return hashlib.sha256(b"\0\0".join(parts)).hexdigest()[:16]


class Quirks(msgspec.Struct, frozen=True):
    """What a server refuses although it speaks the wire. Learnt from its errors."""

    fields: tuple[str, ...] = ()
    """Message fields that another server issued and this one does not take."""
    ids: bool = False
    """Call ids must be nine letters and digits; on the Responses wire: ids of the server's own are not taken back."""
    whole: bool = False
    """No half of a surrogate pair, as an escape or otherwise."""
    void: int = 0
    """Of so many entries of the whole conversation the opaque blocks are not taken any more."""
    sign: bool = False
    """Calls of the turn that runs need a signature, also those that have none."""
    alternate: bool = False
    """Only user and assistant in turn: no system message but the first, nothing twice in a row."""
    nameless: bool = False
    """Nothing goes by an id of the server's own. Not learnt: it depends on what a request asks for."""


class Reported(ValueError):
    """An error that the provider reports inside an answer or a stream, where a message should be."""

    def __init__(self, error: bytes) -> None:
        super().__init__("it holds an error")
        self.error = error


class Accumulator(Protocol):
    """Puts the pieces of a streamed answer together."""

    done: bool
    """Whether the answer is whole."""
    begun: bool
    """Whether anything of an answer has come. An error before that is one of the request, which can be made again."""

    def feed(self, data: bytes) -> str:
        """Take the data of one event; return the text that it adds. An error raises `Reported`."""
        ...

    def answer(self, *, interrupted: bool = False) -> Answer:
        """The answer so far, in the provider's own form. Of an interrupted one only whole calls are kept."""
        ...


class Wire(Protocol):
    """A grammar. All methods are pure; those that read raise `ValueError` for what is not of this grammar."""

    name: str
    defaults: Mapping[str, Any]
    """Options that are sent unless told otherwise."""
    reserved: tuple[str, ...]
    """Options that nobody can set, since a chat sets them by itself."""
    binds_prefix: bool
    """Whether opaque blocks are valid only behind the very bytes that stood before them, not just for their reader."""
    drops_opaque: bool
    """Whether an answer may go without them while its exchange is still open; if not, its rounds are told in words."""
    takes_answers: bool
    """Whether a conversation that the provider keeps can be told what others have answered meanwhile."""
    measures: bool
    """Whether the input that is reported is the request, and nothing that the provider adds."""

    def path(self, model: str, *, stream: bool) -> str:
        """Where requests go, below the provider's base URL."""
        ...

    def headers(self, key: str | None) -> dict[str, str]: ...

    def user(self, content: str | Sequence[Any]) -> bytes:
        """The native message for what the user said: text, or parts in the provider's form."""
        ...

    def is_part(self, part: Mapping[str, Any]) -> bool:
        """Whether this can be a part of what a user says, in the provider's form."""
        ...

    def result(self, call_id: str, text: str, *, error: bool, name: str = "") -> bytes:
        """The native message that answers a call of the tool of this name."""
        ...

    def instruction(self, text: str) -> bytes:
        """The native form of an instruction for one turn."""
        ...

    def quote(self, tag: str, text: str) -> bytes:
        """The native form of something that nobody said and that nobody has to obey: a digest of what tools did."""
        ...

    def is_plain(self, role: str) -> bool:
        """Whether a message of this role can be sent as it is, whatever stands beside it."""
        ...

    def without_opaque(self, native: bytes) -> bytes | None:
        """A message without the blocks that only its provider can read; None when nothing else is in it."""
        ...

    def redacted(self, native: bytes, text: str) -> bytes:
        """A message of the same role that says this and nothing else; its calls stay, without their arguments."""
        ...

    def render(self, entry: Entry, quirks: Quirks) -> bytes | None:
        """What to send for an entry that can't go as it is; None leaves it out."""
        ...

    def request(
        self,
        *,
        model: str,
        preamble: Preamble,
        pieces: Sequence[bytes | memoryview],
        mark: int,
        options: Mapping[str, Any],
        quirks: Quirks,
        stream: bool,
    ) -> bytes:
        """The request. `pieces` are messages, or several joined by commas; the next turn's begin with `mark` of them.

        Options can't replace what is set here.
        """
        ...

    def parse(self, body: bytes) -> Answer: ...

    def accumulator(self) -> Accumulator: ...

    def view(self, native: bytes) -> View:
        """A message for reading; an answer as `shown`."""
        ...

    def usage(self, raw: bytes) -> Usage: ...

    def objection(self, error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:
        """What this refusal teaches about the server, added to what is known; None when it teaches nothing."""
        ...

    def keeps(self, options: Mapping[str, Any]) -> str:
        """How these options ask the provider to keep the conversation; nothing if they don't."""
        ...

    def minding(self, options: Mapping[str, Any], known: Quirks) -> Quirks:
        """What is known about the server, with what a request with these options has to mind."""
        ...

    def going_on(self, options: Mapping[str, Any], handle: Handle | None) -> Mapping[str, Any]:
        """The options of a request that goes on with what the provider keeps; without a handle, that begins it."""
        ...

    def alone(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """The options of a request that the provider need not keep anything of."""
        ...

    def forgot(self, error: bytes) -> bool:
        """Whether a refusal says that the provider has no such conversation, or can't go on with it."""
        ...

    def behind(self, answer: bytes, pieces: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:
        """Pieces that go behind an answer which the provider has, and which is not among them."""
        ...


class Replayed:
    """A wire on which the whole conversation goes with every request."""

    takes_answers = True
    measures = True

    def keeps(self, options: Mapping[str, Any]) -> str:  # noqa: ARG002
        return ""

    def minding(self, options: Mapping[str, Any], known: Quirks) -> Quirks:  # noqa: ARG002
        return known

    def going_on(self, options: Mapping[str, Any], handle: Handle | None) -> Mapping[str, Any]:  # noqa: ARG002
        return options

    def alone(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return options

    def forgot(self, error: bytes) -> bool:  # noqa: ARG002
        return False

    def behind(self, answer: bytes, pieces: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:  # noqa: ARG002
        return pieces


def option(key: str, value: Any) -> bytes:
    """An option as JSON."""
    try:
        return _json.encode(value)
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(f"The option {key!r} can't be written as JSON: {problem}.") from None


def longest_answer(options: Mapping[str, Any]) -> int | None:
    """How long an answer may be, as options of any wire say it."""
    config = options.get("generationConfig")
    nested = config.get("maxOutputTokens") if isinstance(config, Mapping) else None
    wanted = [*(options.get(name) for name in LIMITS), nested]
    return next((size for size in wanted if isinstance(size, int) and size > 0), None)


def readable(held: bytes, string: bytes) -> tuple[str, bytes]:
    """The text of one more piece of a streamed JSON string, and what of it waits: half a pair for its other half."""
    if not held and string[-7:-5] != b"\\u":
        return _json.text(string) or "", b""
    body = held + string[1:-1]
    before = body[:-6]
    escaped = (len(before) - len(before.rstrip(b"\\"))) % 2
    waits = not escaped and re.fullmatch(rb"\\u[dD][89abAB]..", body[-6:])
    body, held = (before, body[-6:]) if waits else (body, b"")
    return _json.text(b'"%s"' % body) or "", held


def without_half(value: bytes) -> bytes:
    """JSON whose last string was cut off, without half a character at its end: servers refuse that for ever."""
    value = _HALF.sub(rb'\1"', value)
    try:
        value.decode()
    except UnicodeDecodeError as problem:
        if problem.reason == "unexpected end of data" or value[problem.end :] in (b'"', b""):
            return value[: problem.start] + b'"'
    return value


def shown(view: View) -> View:
    """A message as it may be shown: an answer without its memory cards. All its text is one, however it is split."""
    if view.role != "assistant" or not ("<" in view.text or "<" in view.refusal):
        return view
    (text, said), (refusal, refused) = parted(view.text), parted(view.refusal)
    return msgspec.structs.replace(view, text=text, refusal=refusal, cards=(*said, *refused))


def view_of(entry: Entry) -> View:
    """An entry for reading, whatever wire it is of."""
    from longtalk.wires import WIRES

    return WIRES[entry.wire].view(entry.native)


def so_far(wire: Wire, entries: Sequence[Entry]) -> bytes:
    """What finished rounds of tools did, in words: in place of messages that can't be sent any more."""
    lines: list[str] = []
    names: dict[str, str] = {}
    for entry in entries:
        seen = view_of(entry)
        if seen.call_id:
            lines.append(f"{names.get(seen.call_id, 'a tool')} answered: {seen.text}")
        elif seen.text.strip():
            lines.append(f"You said: {seen.text}")
        for call in seen.calls:
            names[call.id] = f"{call.name}({call.arguments.decode('utf-8', 'replace')})"
    return wire.quote("done_so_far", "\n".join(lines))


def quoted(tag: str, text: str) -> str:
    """A text between tags, which it can't end early."""
    safe = re.sub(rf"<(?=\s*/?\s*{tag}\b)", "&lt;", text, flags=re.IGNORECASE)
    return f"<{tag}>\n{safe}\n</{tag}>"


def tool_lines(entries: Sequence[Entry]) -> list[str]:
    """What tools did, a line for each call: what was called, with what, and what came back."""
    called: dict[str, str] = {}
    lines: list[str] = []
    for entry in entries:
        seen = view_of(entry)
        if seen.text.strip() and not seen.call_id:
            lines.append(f"You said: {_one_line(seen.text)}")
        for call in seen.calls:
            called[call.id] = f"{call.name}({_one_line(call.arguments.decode('utf-8', 'replace'))})"
        if seen.call_id:
            lines.append(f"{called.pop(seen.call_id, 'a tool')} → {_one_line(seen.text) or 'nothing'}")
    return [*lines, *(f"{call} → no result" for call in called.values())]


def _one_line(text: str) -> str:
    """A text in one line of at most about a hundred characters."""
    line = " ".join(text[:400].split())
    return line if len(line) <= 100 and len(text) <= 400 else f"{line[:100]}…"


def head_and_tail(text: str, keep: int) -> str:
    """A long text as its beginning and its end, with a word about what is between them."""
    if len(text) <= keep:
        return text
    head, tail = keep - keep // 3, keep // 3
    return f"{text[:head]}\n[… {len(text) - head - tail:,} characters are left out here …]\n{text[len(text) - tail :]}"


def text_of(entry: Entry) -> str:
    """What an entry says."""
    return str(_json.value(entry.native)["text"]) if entry.wire == LONGTALK else view_of(entry).text


def shortened(entry: Entry, keep: int) -> Entry:
    """A tool result or an event with its text cut to head and tail."""
    from longtalk.wires import WIRES

    text = head_and_tail(text_of(entry), keep)
    if entry.wire == LONGTALK:
        native = _json.encode({**_json.value(entry.native), "text": text})
    else:
        seen = view_of(entry)
        native = WIRES[entry.wire].result(seen.call_id, text, error=entry.mark in ("error", "closed"), name=seen.name)
    return msgspec.structs.replace(entry, native=native)


def redacted_own(entry: Entry, text: str) -> bytes:
    """An event or a system message of ours that says something else."""
    source = {"source": _json.value(entry.native)["source"]} if entry.kind == "event" else {}
    return _json.encode({**source, "text": text})


def event(text: str, *, source: str, at: int) -> Entry:
    """An event as an entry: something that the app reports and nobody said."""
    native = _json.encode({"source": source, "text": text})
    return Entry(kind="event", role="event", wire=LONGTALK, native=native, at=at)


def system(text: str, *, at: int) -> Entry:
    """A system message inside the conversation."""
    return Entry(role="system", wire=LONGTALK, native=_json.encode({"text": text}), at=at)


def splice(fields: dict[str, bytes], pieces: Sequence[bytes | memoryview], *, name: bytes = b"messages") -> bytes:
    """A request body: its fields, and the messages last under their name, all copied once."""
    parts: list[bytes | memoryview] = [_json.build(fields)[:-1], b',"%s":[' % name if fields else b'"%s":[' % name]
    for i, piece in enumerate(pieces):
        parts += (b"," if i else b"", piece)
    return b"".join((*parts, b"]}"))


def closing(wire: Wire, call_id: str, text: str, *, at: int, name: str = "") -> Entry:
    """A result that nobody gave: it closes a call that would otherwise make the conversation unsendable."""
    native = wire.result(call_id, text, error=True, name=name)
    return Entry(role="tool", wire=wire.name, native=native, at=at, mark="closed")


def neutral_text(entry: Entry) -> str:
    """How an event or a system message of ours reads.

    An event is delimited and names its source and time. Its own text can't end it early or begin another one, nor can
    it have a memory card in it.
    """
    members = _json.value(entry.native)
    if entry.kind != "event":
        return str(members["text"])
    import datetime as dt

    when = dt.datetime.fromtimestamp(entry.at / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    source = re.sub(r'[<>&"\x00-\x1f]', " ", str(members["source"]))
    text = re.sub(r"<(?=\s*/?\s*event\b)", "&lt;", neutralised(str(members["text"])), flags=re.IGNORECASE)
    return f'<event source="{source}" time="{when}">\n{text}\n</event>'
