"""Gemini CLI: `gemini` with its lines of JSON. It prints an answer in pieces, which are kept as one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longtalk import _json
from longtalk.wires.agent import Agent
from longtalk.wires.base import Usage
from longtalk.wires.speech import SYSTEM, Heard, counts, number, report


class Gemini:
    """See `Speech`."""

    name = "gemini-cli"
    program = "gemini"
    package = "@google/gemini-cli"
    home = ("GEMINI_CLI_HOME", ".gemini", ".gemini")
    sessions = "tmp/*/chats/session-*-{start}.json*"
    passed: tuple[str, ...] = ("GEMINI_*", "GOOGLE_*")
    quiet: Mapping[str, str] = {"GEMINI_TELEMETRY_ENABLED": "false"}
    repeats = False
    sums = False
    gone: tuple[bytes, ...] = (b"Error resuming session", b"Invalid session identifier")

    def access(self, base_url: str, key: str | None) -> tuple[list[str], dict[str, str]]:
        given = {"GOOGLE_GEMINI_BASE_URL": base_url, "GEMINI_API_KEY": key or ""}
        return [], {name: value for name, value in given.items() if value}

    def start(
        self,
        model: str,
        session: str,
        more: Sequence[str],
        *,
        system: bool,
        stream: bool,  # noqa: ARG002
    ) -> tuple[list[str], dict[str, str]]:
        arguments = ["--output-format", "stream-json", "--skip-trust"]
        arguments += ["--model", model] if model else []
        arguments += ["--resume", session] if session else []
        return [*arguments, *more], {"GEMINI_SYSTEM_MD": SYSTEM} if system else {}

    def unrecorded(self) -> list[str]:
        return []

    def hear(self, line: Mapping[str, bytes]) -> Heard:
        kind = _json.text(line.get("type", b"")) or ""
        if kind == "message":
            ours = line.get("role") != b'"assistant"'
            text = _json.text(line.get("content", b"")) or ""
            return Heard(kept=False) if ours else Heard(text=text, partial=line.get("delta") == b"true")
        if kind != "result":
            return Heard(session=_json.text(line.get("session_id", b"")) or "")
        failed = line.get("status") == b'"error"'
        error = report(line.get("error", b""), r'"code":\s*"?(\d{3})') if failed else None
        return Heard(final=True, usage=counts(line, "stats"), error=error)

    def line(self, text: str) -> bytes:
        return _json.encode({"type": "message", "role": "assistant", "content": text})

    def count(self, raw: bytes) -> Usage:
        said = _json.value(raw)
        held = said if isinstance(said, Mapping) else {}
        return Usage(*(number(held.get(name)) for name in ("input_tokens", "output_tokens", "cached")))


WIRE = Agent(Gemini())
