"""The interface of a wire, and the values that pass through it.

A wire is the JSON grammar of one provider family, as pure functions. They turn entries into the bytes of a request, the
bytes of a response into an `Answer`, and a native message (one in the provider's own JSON) into a `MessageView`. A wire
does no I/O and holds no state, so one instance serves every conversation. The provider that owns the connection sends
and receives the bytes.

The methods of `Wire` follow the life of a request:

- Before the request: `write_user`, `write_result`, `write_instruction` and `quote` write native messages; `render`
  adapts stored entries.
- The request itself: `build_request` assembles the body. `Quirks` say what the server rejected earlier.
- After the request: `parse` reads a complete response; the accumulator from `new_accumulator` reads a streamed one.
  `learn_from_error` turns a rejection into `Quirks` for the next attempt.
- Provider-side sessions: some providers store the conversation themselves. `session_mode`, `session_options`,
  `sessionless_options`, `is_session_lost` and `follow_answer` support those; `StatelessWire` implements these methods
  for providers that don't store conversations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from longtalk.tools import Tool
from longtalk.transcript.pack import Entry
from longtalk.transcript.transcript import Finish
from longtalk.usage import Usage
from longtalk.wires.deltas import Deltas
from longtalk.wires.schemas import OutputSchema
from longtalk.wires.views import MessageView


class Handle(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reference to a conversation that the provider stores, as it was after a certain answer."""

    id: str
    stamp: str = ""
    """A fingerprint that changes if another client continues the conversation, for providers whose id stays the same.
    """


class Answer(msgspec.Struct, frozen=True):
    """One answer from a model."""

    native: bytes | None
    """The message in the provider's own JSON; None if the answer was interrupted before it had any content."""
    view: MessageView
    finish: Finish
    empty: bool = False
    """Whether the answer has no content at all. Providers reject such a message when it is sent back."""
    opaque: bool = False
    """Whether the answer has opaque blocks: content that only its provider can read, such as signed thinking."""
    usage: bytes | None = None
    """The provider's usage report, unchanged; None if it sent none."""
    response: bytes | None = None
    """The other fields of the response, unchanged and in their places, without the message and the usage; None if the
    wire does not keep them.
    """
    handle: Handle | None = None
    """A reference to the conversation up to this answer, if the provider stores it; else None."""


class Preamble(msgspec.Struct, frozen=True):
    """The system text and the tools, which the caller passes with every turn and which are never stored."""

    system: str | None = None
    tools: tuple[Tool, ...] = ()

    def digest(self) -> str:
        """Return a short digest that changes whenever the system text or a tool changes."""
        import hashlib

        parts = [(self.system or "").encode("utf-8", "surrogatepass")]
        if self.tools:
            parts += [
                b"\0".join((tool.name.encode(), tool.description.encode(), tool.schema, *[b"strict"] * tool.is_strict))
                for tool in self.tools
            ]
        return hashlib.sha256(b"\0\0".join(parts)).hexdigest()[:16]


class Quirks(msgspec.Struct, frozen=True):
    """What a server rejects although its wire allows it, learned from its error messages.

    A conversation stores the quirks of each server, with the values of `name=` as field names.
    """

    fields: tuple[str, ...] = ()
    """Names of message fields that the server rejects, often because another vendor introduced them."""
    strict_ids: bool = msgspec.field(default=False, name="ids")
    """For OpenAI chat: call ids must be nine letters or digits. For OpenAI Responses: item ids must not be sent back.
    """
    no_surrogates: bool = msgspec.field(default=False, name="whole")
    """The server rejects half a surrogate pair, even if it is escaped."""
    opaque_void: int = msgspec.field(default=0, name="void")
    """The number of entries, from the start of the transcript, whose opaque blocks the server no longer accepts."""
    needs_signatures: bool = msgspec.field(default=False, name="sign")
    """Tool calls of the current turn need a signature, even if the model did not sign them."""
    must_alternate: bool = msgspec.field(default=False, name="alternate")
    """User and assistant messages must alternate, and a system message is accepted only at the start."""
    no_schemas: bool = msgspec.field(default=False, name="schemaless")
    """The server rejects a schema for the answer."""
    no_server_ids: bool = msgspec.field(default=False, name="nameless")
    """Server-side ids must not be sent. This is not learned, but follows from the options of a request."""


class ReportedError(ValueError):
    """An error that the provider reports inside a response or a stream, in place of a message."""

    def __init__(self, error: bytes) -> None:
        super().__init__("the response is an error")
        self.error = error


class Accumulator(Protocol):
    """An object that assembles a streamed answer from its events."""

    done: bool
    """Whether the answer is complete."""
    started: bool
    """Whether any part of the answer has arrived. If not, a failed request can be sent again."""
    deltas: Deltas
    """The pieces of reasoning and of tool calls that the events added."""

    def feed(self, data: bytes) -> str:
        """Process the data of one event and return the text that it adds to the answer.

        Raises `ReportedError` if the event is an error.
        """
        ...

    def answer(self, *, interrupted: bool = False) -> Answer:
        """Return the answer received so far. An interrupted answer keeps only complete tool calls."""
        ...


class Wire(Protocol):
    """The JSON grammar of one provider family.

    A wire from outside the library that is not derived from one of ours also has `write_answer(text, calls)`, which
    returns a native answer with this text and these tool calls (`ToolCallView`), for conversations that come from
    another wire. It may have `check_request(body)`, which raises `longtalk.testing.WireViolation` if the provider would
    refuse a request.

    All methods are pure. Methods that read native JSON raise `ValueError` if it is not a JSON object. In a stored
    message they ignore values of the wrong type, because a state may come from an attacker; in a response, such a value
    raises `ValueError`.
    """

    name: str
    defaults: Mapping[str, Any]
    """Request options that apply unless the caller sets them."""
    reserved: tuple[str, ...]
    """Request options that the caller can't set, because the library sets them itself."""
    binds_prefix: bool
    """Whether an opaque block is valid only after the exact bytes that preceded it when it was made. If not, it is
    valid at any position for the same account and model.
    """
    accepts_foreign_answers: bool
    """Whether a conversation that the provider stores can be continued with answers from other models."""
    reports_request_size: bool
    """Whether the reported input tokens count only the request, without anything that the provider adds to it."""

    def path(self, model: str, *, stream: bool) -> str:
        """Return the URL path of a request, below the provider's base URL."""
        ...

    def headers(self, key: str | None) -> dict[str, str]: ...

    def write_user(self, content: str | Sequence[Any]) -> bytes:
        """Return a native user message. `content` is text, or a list of parts in the provider's format."""
        ...

    def is_part(self, part: Mapping[str, Any]) -> bool:
        """Return True if a mapping can be a part of a user message in the provider's format."""
        ...

    def write_result(self, call_id: str, content: str | Sequence[Any], *, error: bool, name: str = "") -> bytes:
        """Return the native result of a call to the tool `name`. `error` marks it as an error, if the wire can.

        `content` is text, or texts and parts as for `write_user`. Raises `InputError` if a result can't hold a part.
        """
        ...

    def write_instruction(self, text: str) -> bytes:
        """Return the native message for an instruction that applies to one turn."""
        ...

    def quote(self, tag: str, text: str) -> bytes:
        """Return a native message that quotes a text inside a tag, so that it is read as material and not obeyed."""
        ...

    def is_plain(self, role: str) -> bool:
        """Return True if messages of this role can be sent exactly as stored, whatever the messages around them are."""
        ...

    def remove_opaque(self, native: bytes, *, running: bool = False) -> bytes | None:
        """Return an answer without its opaque blocks, or None if it has no other content.

        `running` says that the answer belongs to the current turn. Where the provider requires an opaque block there,
        the answer gets the substitute that the provider documents.
        """
        ...

    def redact(self, native: bytes, text: str) -> bytes:
        """Return a message of the same role with `text` as its content. Tool calls stay, without their arguments."""
        ...

    def render(self, entry: Entry, quirks: Quirks) -> bytes | None:
        """Return the native JSON to send for an entry that can't be sent as stored, or None to leave the entry out."""
        ...

    def build_request(
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
        """Return the body of a request.

        Each piece is one message, or several joined by commas. The next turn's request begins with the first `mark`
        pieces, so a cache breakpoint belongs after them. `options` can't replace the fields that the wire sets itself.
        """
        ...

    def add_schema(self, options: Mapping[str, Any], output: OutputSchema) -> Mapping[str, Any] | None:
        """Return the options of a request with a schema that the answer must match.

        Returns None if the API has no option for that, or none that accepts this schema.
        """
        ...

    def parse(self, body: bytes) -> Answer:
        """Return the answer in a complete response. Raises `ReportedError` if the response is an error."""
        ...

    def new_accumulator(self) -> Accumulator:
        """Return a new accumulator for one streamed answer."""
        ...

    def view(self, native: bytes) -> MessageView:
        """Return the readable content of a message. Memory cards are separated from the text of an answer."""
        ...

    def read_usage(self, raw: bytes) -> Usage:
        """Return the token counts in a usage report. A report that can't be read counts as zero tokens."""
        ...

    def learn_from_error(self, error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:
        """Return the known quirks plus those that this error reveals, or None if it reveals none.

        `natives` are the messages of the conversation. A message field can be a quirk only if one of them has it.
        """
        ...

    def session_mode(self, options: Mapping[str, Any]) -> str:
        """Return the name of the provider-side session mode that these options select, or "" if they select none.

        Raises `InputError` if an option is invalid.
        """
        ...

    def quirks_for(self, options: Mapping[str, Any], known: Quirks) -> Quirks:
        """Return the known quirks plus those that follow from the options of a request."""
        ...

    def session_options(self, options: Mapping[str, Any], handle: Handle | None) -> Mapping[str, Any]:
        """Return the options for a request that continues a stored conversation, or starts one if `handle` is None."""
        ...

    def sessionless_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options for a request that is not part of a stored conversation."""
        ...

    def is_session_lost(self, error: bytes) -> bool:
        """Return True if an error says that the provider no longer has the conversation, or can't continue it."""
        ...

    def follow_answer(self, answer: bytes, pieces: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:
        """Return the pieces in the form that the API requires after `answer`.

        The provider stores that answer, so it is not part of the request.
        """
        ...


class StatelessWire:
    """A base class with the session methods of a wire whose every request contains the whole conversation."""

    accepts_foreign_answers = True
    reports_request_size = True

    def session_mode(self, options: Mapping[str, Any]) -> str:  # noqa: ARG002
        return ""

    def quirks_for(self, options: Mapping[str, Any], known: Quirks) -> Quirks:  # noqa: ARG002
        return known

    def session_options(self, options: Mapping[str, Any], handle: Handle | None) -> Mapping[str, Any]:  # noqa: ARG002
        return options

    def sessionless_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return options

    def is_session_lost(self, error: bytes) -> bool:  # noqa: ARG002
        return False

    def follow_answer(self, answer: bytes, pieces: Sequence[bytes | memoryview]) -> Sequence[bytes | memoryview]:  # noqa: ARG002
        return pieces
