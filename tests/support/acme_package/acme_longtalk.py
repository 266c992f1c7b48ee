"""A package that brings wires and providers of its own: one wire derived from another, and one grammar of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from longtalk.providers.registry import Address
from longtalk.testing import AsyncScripted, Scripted, Step, WireViolation, says
from longtalk.transcript.transcript import Entry
from longtalk.usage import Usage
from longtalk.wires.deltas import Deltas
from longtalk.wires.neutral import LONGTALK, render_neutral
from longtalk.wires.openai_chat.wire import OpenAIChat
from longtalk.wires.protocol import Answer, Preamble, Quirks, ReportedError, StatelessWire
from longtalk.wires.text import wrap_in_tag
from longtalk.wires.views import MessageView, ToolCallView, hide_cards


class Acme(OpenAIChat):
    """Chat Completions with another path and another header."""

    name = "acme"

    def path(self, model: str, *, stream: bool) -> str:
        return "/talk"

    def headers(self, key: str | None) -> dict[str, str]:
        return {"x-acme-key": key} if key else {}


ACME = Acme()
ADDRESS = Address(
    wire="acme", base_url="https://acme.example", base_url_variable="ACME_BASE_URL", key_variable="ACME_API_KEY"
)
LOST = Address(wire="nowhere", base_url="https://acme.example")
NUMBER = 7


def make_echo(model: str, *, base_url: Any, api_key: Any, client: Any, is_async: bool) -> Any:
    """Make a provider that says with what it was made."""
    given = {"model": model, "base_url": base_url, "api_key": api_key, "client": client}
    step = says(json.dumps(given))
    provider: Any = (AsyncScripted if is_async else Scripted)(step)
    provider.label, provider.model = f"acme-echo:{model}", model
    return provider


class Plain(StatelessWire):
    """A grammar of its own: {"who": "user", "says": "Hello."}."""

    name = "acme-plain"
    defaults: Mapping[str, Any] = {}
    reserved: tuple[str, ...] = ("talk",)
    binds_prefix = False

    def path(self, model: str, *, stream: bool) -> str:
        return "/plain"

    def headers(self, key: str | None) -> dict[str, str]:
        return {}

    def write_user(self, content: str | Sequence[Any]) -> bytes:
        text = content if isinstance(content, str) else "\n".join(str(part) for part in content)
        return _encode({"who": "user", "says": text})

    def is_part(self, part: Mapping[str, Any]) -> bool:
        return False

    def write_result(self, call_id: str, text: str, *, error: bool, name: str = "") -> bytes:
        return _encode({"who": "tool", "for": call_id, "says": text})

    def write_instruction(self, text: str) -> bytes:
        return _encode({"who": "system", "says": text})

    def write_answer(self, text: str, calls: Sequence[ToolCallView]) -> bytes:
        does = [{"id": call.id, "tool": call.name, "with": json.loads(call.arguments or b"{}")} for call in calls]
        return _encode({"who": "model", "says": text, **({"does": does} if does else {})})

    def quote(self, tag: str, text: str) -> bytes:
        return self.write_user(wrap_in_tag(tag, text))

    def is_plain(self, role: str) -> bool:
        return True

    def remove_opaque(self, native: bytes, *, running: bool = False) -> bytes | None:
        return native

    def redact(self, native: bytes, text: str) -> bytes:
        return _encode({**_decode(native), "says": text})

    def render(self, entry: Entry, quirks: Quirks) -> bytes | None:
        return self.write_instruction(render_neutral(entry)) if entry.wire == LONGTALK else entry.native

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
        head = {"model": model, "stream": stream, "system": preamble.system, **options}
        return _encode(head)[:-1] + b',"talk":[' + b",".join(map(bytes, pieces)) + b"]}"

    def check_request(self, body: Any) -> None:
        if any(each["who"] not in ("user", "model", "tool", "system") for each in body["talk"]):
            raise WireViolation("P1", "an unknown speaker is talking")

    def add_schema(self, options: Mapping[str, Any], output: Any) -> None:
        return None

    def parse(self, body: bytes) -> Answer:
        fields = _decode(body)
        if "turn" not in fields:
            raise ReportedError(body)
        native = _encode(fields["turn"])
        return Answer(native, self.view(native), "stop", usage=_encode(fields.get("spent", {})))

    def new_accumulator(self) -> PlainAccumulator:
        return PlainAccumulator()

    def view(self, native: bytes) -> MessageView:
        fields = _decode(native)
        calls = tuple(ToolCallView(each["id"], each["tool"], _encode(each["with"])) for each in fields.get("does", ()))
        role = {"model": "assistant"}.get(fields.get("who", ""), fields.get("who", ""))
        return hide_cards(MessageView(role, fields.get("says", ""), calls, fields.get("for", "")))

    def read_usage(self, raw: bytes) -> Usage:
        counts = json.loads(raw)
        return Usage(counts.get("in", 0), counts.get("out", 0)) if isinstance(counts, dict) else Usage()

    def learn_from_error(self, error: bytes, natives: Sequence[bytes], known: Quirks) -> Quirks | None:
        return None


class PlainAccumulator:
    """Joins the pieces of a text."""

    def __init__(self) -> None:
        self.done = False
        self.started = False
        self.deltas = Deltas()
        self._text = ""

    def feed(self, data: bytes) -> str:
        fields = _decode(data)
        self.started = True
        self.done = "done" in fields
        self._text += fields.get("add", "")
        return str(fields.get("add", ""))

    def answer(self, *, interrupted: bool = False) -> Answer:
        native = PLAIN.write_answer(self._text, ())
        return Answer(native, PLAIN.view(native), "interrupted" if interrupted else "stop")


PLAIN = Plain()
SAMPLE = Step(
    b'{"turn":{"who":"model","says":"Hello, Ada."},"spent":{"in":5,"out":3}}',
    (b'{"add":"Hello, "}', b'{"add":"Ada."}', b'{"done":true}'),
)


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _decode(data: bytes) -> dict[str, Any]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    return value
