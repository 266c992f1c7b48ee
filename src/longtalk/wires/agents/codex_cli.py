"""The grammar of Codex: run `codex exec --json` and read the lines of JSON that it prints.

Codex reports the usage of its whole session, so `read_usage` subtracts the usage reported after the previous answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longtalk._util import json_bytes
from longtalk.usage import Usage
from longtalk.wires.agents.cli import SYSTEM_FILE, ParsedLine, find_usage, to_error_report, to_token_count
from longtalk.wires.agents.wire import AgentWire
from longtalk.wires.native import object_fields

_STARTED = ("item.started", "item.updated")


class Codex:
    """The implementation of `AgentCli` for the program `codex`."""

    name = "codex-cli"
    program = "codex"
    package = "@openai/codex"
    home = ("CODEX_HOME", "", ".codex")
    sessions = "sessions/*/*/*/rollout-*-{id}.jsonl"
    passed_variables: tuple[str, ...] = ("CODEX_*", "OPENAI_*")
    quiet_variables: Mapping[str, str] = {}
    repeats_text = False
    reports_totals = True
    session_lost_texts: tuple[bytes, ...] = (b"no rollout found", b"thread/resume failed")

    def configure_access(self, base_url: str, key: str | None) -> tuple[list[str], dict[str, str]]:
        variables = {"CODEX_API_KEY": key} if key else {}
        if not base_url:
            return [], variables
        # A JSON string is a TOML string too.
        address = f'{{name="longtalk",base_url={json_bytes.encode(base_url).decode()},wire_api="responses",'
        address += 'env_key="CODEX_API_KEY"}' if key else "requires_openai_auth=false}"
        settings = ['model_provider="longtalk"', f"model_providers.longtalk={address}"]
        return [part for setting in settings for part in ("-c", setting)], variables

    def build_command(
        self,
        model: str,
        session: str,
        more: Sequence[str],
        *,
        system: bool,
        stream: bool,  # noqa: ARG002
    ) -> tuple[list[str], dict[str, str]]:
        arguments = ["exec", "--json", "--skip-git-repo-check"]
        arguments += ["-m", model] if model else []
        arguments += ["-c", f"model_instructions_file='{SYSTEM_FILE}'"] if system else []
        arguments += ["-c", "analytics.enabled=false", "-c", "feedback.enabled=false"]
        return [*arguments, *more, *(["resume", session] if session else []), "-"], {}

    def no_session_arguments(self) -> list[str]:
        return ["--ephemeral"]

    def parse_line(self, line: Mapping[str, bytes]) -> ParsedLine:
        kind = json_bytes.text(line.get("type", b"")) or ""
        if kind == "item.completed":
            item = object_fields(line.get("item", b""))
            is_message = item.get("type") == b'"agent_message"'
            return ParsedLine(text=(json_bytes.text(item.get("text", b"")) or "") if is_message else "")
        if kind == "turn.completed":
            return ParsedLine(is_final=True, usage=find_usage(line, "usage"))
        if kind == "turn.failed":
            return ParsedLine(is_final=True, error=to_error_report(line.get("error", b""), r"\bstatus (\d{3})\b"))
        if kind == "error":
            return ParsedLine(retry_reason=json_bytes.text(line.get("message", b"")) or "")
        return ParsedLine(session=json_bytes.text(line.get("thread_id", b"")) or "", is_stored=kind not in _STARTED)

    def render_line(self, text: str) -> bytes:
        return json_bytes.encode({"type": "item.completed", "item": {"type": "agent_message", "text": text}})

    def read_usage(self, raw: bytes) -> Usage:
        """Return the tokens of this answer: the reported total minus the total after the previous answer."""
        report = json_bytes.value(raw)
        members = report if isinstance(report, Mapping) else {}
        now, before = _read_counts(members.get("now", members)), _read_counts(members.get("before"))
        # The total starts again at zero after the program has compacted its session.
        before = before if now.input >= before.input and now.output >= before.output else Usage()
        return Usage(
            now.input - before.input,
            now.output - before.output,
            max(0, now.cached - before.cached),
            max(0, now.written - before.written),
        )


WIRE = AgentWire(Codex())


def _read_counts(report: object) -> Usage:
    names = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_input_tokens")
    members = report if isinstance(report, Mapping) else {}
    return Usage(*(to_token_count(members.get(name)) for name in names))
