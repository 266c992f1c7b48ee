"""The grammar of Gemini CLI: run `gemini` and read the lines of JSON that it prints.

The program prints an answer in pieces, which are stored as one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longtalk._util import json_bytes
from longtalk.usage import Usage
from longtalk.wires.agents.cli import SYSTEM_FILE, ParsedLine, find_usage, to_error_report, to_token_count
from longtalk.wires.agents.wire import AgentWire


class GeminiCli:
    """The implementation of `AgentCli` for the program `gemini`."""

    name = "gemini-cli"
    program = "gemini"
    package = "@google/gemini-cli"
    home = ("GEMINI_CLI_HOME", ".gemini", ".gemini")
    sessions = "tmp/*/chats/session-*-{start}.json*"
    passed_variables: tuple[str, ...] = ("GEMINI_*", "GOOGLE_*")
    quiet_variables: Mapping[str, str] = {"GEMINI_TELEMETRY_ENABLED": "false"}
    repeats_text = False
    reports_totals = False
    session_lost_texts: tuple[bytes, ...] = (b"Error resuming session", b"Invalid session identifier")

    def configure_access(self, base_url: str, key: str | None) -> tuple[list[str], dict[str, str]]:
        variables = {"GOOGLE_GEMINI_BASE_URL": base_url, "GEMINI_API_KEY": key or ""}
        return [], {name: value for name, value in variables.items() if value}

    def build_command(
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

    def no_session_arguments(self) -> list[str]:
        return []

    def parse_line(self, line: Mapping[str, bytes]) -> ParsedLine:
        kind = json_bytes.text(line.get("type", b"")) or ""
        if kind == "message":
            is_prompt = line.get("role") != b'"assistant"'
            text = json_bytes.text(line.get("content", b"")) or ""
            return (
                ParsedLine(is_stored=False)
                if is_prompt
                else ParsedLine(text=text, is_partial=line.get("delta") == b"true")
            )
        if kind != "result":
            return ParsedLine(session=json_bytes.text(line.get("session_id", b"")) or "")
        failed = line.get("status") == b'"error"'
        error = to_error_report(line.get("error", b""), r'"code":\s*"?(\d{3})') if failed else None
        return ParsedLine(is_final=True, usage=find_usage(line, "stats"), error=error)

    def render_line(self, text: str) -> bytes:
        return json_bytes.encode({"type": "message", "role": "assistant", "content": text})

    def read_usage(self, raw: bytes) -> Usage:
        report = json_bytes.value(raw)
        members = report if isinstance(report, Mapping) else {}
        return Usage(*(to_token_count(members.get(name)) for name in ("input_tokens", "output_tokens", "cached")))


WIRE = AgentWire(GeminiCli())
