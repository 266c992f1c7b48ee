"""The grammar of Claude Code: run `claude -p` and read the lines of JSON that it prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longtalk._util import json_bytes
from longtalk.transcript.transcript import Finish
from longtalk.usage import Usage
from longtalk.wires.agents.cli import NOT_LOGGED_IN, SYSTEM_FILE, ParsedLine, find_usage
from longtalk.wires.agents.wire import AgentWire
from longtalk.wires.anthropic import wire as anthropic
from longtalk.wires.native import array_objects, object_fields

_FINISH: dict[str | None, Finish] = {"max_tokens": "length", "refusal": "filtered"}


class ClaudeCode:
    """The implementation of `AgentCli` for the program `claude`."""

    name = "claude-cli"
    program = "claude"
    package = "@anthropic-ai/claude-code"
    home = ("CLAUDE_CONFIG_DIR", "", ".claude")
    sessions = "projects/*/{id}.jsonl"
    passed_variables: tuple[str, ...] = ("ANTHROPIC_*", "CLAUDE_*", "DISABLE_*")
    quiet_variables: Mapping[str, str] = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
    }
    repeats_text = True
    reports_totals = False
    session_lost_texts: tuple[bytes, ...] = (b"No conversation found",)

    def configure_access(self, base_url: str, key: str | None) -> tuple[list[str], dict[str, str]]:
        variables = {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": key or ""}
        return [], {name: value for name, value in variables.items() if value}

    def build_command(
        self, model: str, session: str, more: Sequence[str], *, system: bool, stream: bool
    ) -> tuple[list[str], dict[str, str]]:
        arguments = ["-p", "--output-format", "stream-json", "--verbose"]
        arguments += ["--include-partial-messages"] if stream else []
        arguments += ["--model", model] if model else []
        arguments += ["--system-prompt-file", SYSTEM_FILE] if system else []
        return [*arguments, *(["--resume", session] if session else []), *more], {}

    def no_session_arguments(self) -> list[str]:
        return ["--no-session-persistence"]

    def parse_line(self, line: Mapping[str, bytes]) -> ParsedLine:
        kind = json_bytes.text(line.get("type", b"")) or ""
        session = json_bytes.text(line.get("session_id", b"")) or ""
        # Lines of a subagent are not part of the answer.
        is_own = line.get("parent_tool_use_id", b"null") == b"null"
        if kind == "stream_event":
            return ParsedLine(text=_read_piece(line) if is_own else "", is_partial=True)
        if kind == "assistant":
            return ParsedLine(text=_read_text(line) if is_own else "", session=session)
        if kind == "system" and line.get("subtype") == b'"api_retry"':
            return _parse_retry(line)
        if kind != "result":
            return ParsedLine(session=session)
        return ParsedLine(
            text=json_bytes.text(line.get("result", b"")) or "",
            session=session,
            is_final=True,
            usage=find_usage(line, "usage"),
            finish=_FINISH.get(json_bytes.text(line.get("stop_reason", b"")), "stop"),
            error=_read_error(line) if line.get("is_error") == b"true" else None,
        )

    def render_line(self, text: str) -> bytes:
        message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        return json_bytes.encode({"type": "assistant", "message": message})

    def read_usage(self, raw: bytes) -> Usage:
        return anthropic.WIRE.read_usage(raw)


WIRE = AgentWire(ClaudeCode())


def _read_piece(line: Mapping[str, bytes]) -> str:
    event = object_fields(line.get("event", b""))
    delta = object_fields(event.get("delta", b""))
    return (json_bytes.text(delta.get("text", b"")) or "") if delta.get("type") == b'"text_delta"' else ""


def _read_text(line: Mapping[str, bytes]) -> str:
    message = object_fields(line.get("message", b""))
    # A message that the program writes in place of its model is repeated as an error.
    if message.get("model") == b'"<synthetic>"':
        return ""
    blocks = array_objects(message.get("content", b""))
    return "".join(json_bytes.text(block.get("text", b"")) or "" for block in blocks if block.get("type") == b'"text"')


def _parse_retry(line: Mapping[str, bytes]) -> ParsedLine:
    """Parse a line in which the program announces a retry.

    A rejected key (status 401 or 403) becomes an error, because retrying does not help.
    """
    status = line.get("error_status", b"null").decode("utf-8", "replace")
    reason = f"{json_bytes.text(line.get('error', b'')) or 'no answer'} ({status})"
    if status in ("401", "403"):
        return ParsedLine(error=json_bytes.encode({"code": status, "message": reason}))
    return ParsedLine(retry_reason=reason)


def _read_error(line: Mapping[str, bytes]) -> bytes:
    errors = json_bytes.value(line.get("errors", b"[]"))
    message = json_bytes.text(line.get("result", b"")) or "; ".join(
        map(str, errors if isinstance(errors, list) else [errors])
    )
    message = message or json_bytes.text(line.get("subtype", b"")) or "the program failed without a message."
    code = line.get("api_error_status", b"null").decode("utf-8", "replace")
    usual = "401" if NOT_LOGGED_IN.search(message) else "invalid_request"
    return json_bytes.encode({"code": code if code != "null" else usual, "message": message})
