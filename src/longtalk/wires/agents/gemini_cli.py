"""The grammar of Gemini CLI: run `gemini` and read the lines of JSON that it prints.

The program prints an answer in pieces, which are stored as one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longtalk._util import json_bytes
from longtalk.usage import Usage
from longtalk.wires.agents.cli import SYSTEM_FILE, ParsedLine, error_report, token_count, usage_report
from longtalk.wires.agents.wire import AgentWire


class GeminiCli:
    """The implementation of `AgentCli` for the program `gemini`."""

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
        return [*arguments, *more], {"GEMINI_SYSTEM_MD": SYSTEM_FILE} if system else {}

    def unrecorded(self) -> list[str]:
        return []

    def parse_line(self, line: Mapping[str, bytes]) -> ParsedLine:
        kind = json_bytes.text(line.get("type", b"")) or ""
        if kind == "message":
            ours = line.get("role") != b'"assistant"'
            text = json_bytes.text(line.get("content", b"")) or ""
            return ParsedLine(kept=False) if ours else ParsedLine(text=text, partial=line.get("delta") == b"true")
        if kind != "result":
            return ParsedLine(session=json_bytes.text(line.get("session_id", b"")) or "")
        failed = line.get("status") == b'"error"'
        error = error_report(line.get("error", b""), r'"code":\s*"?(\d{3})') if failed else None
        return ParsedLine(final=True, usage=usage_report(line, "stats"), error=error)

    def line(self, text: str) -> bytes:
        return json_bytes.encode({"type": "message", "role": "assistant", "content": text})

    def usage(self, raw: bytes) -> Usage:
        said = json_bytes.value(raw)
        held = said if isinstance(said, Mapping) else {}
        return Usage(*(token_count(held.get(name)) for name in ("input_tokens", "output_tokens", "cached")))


WIRE = AgentWire(GeminiCli())
