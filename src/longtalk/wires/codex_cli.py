"""Codex: `codex exec --json`. What it reports is the sum of all that its session has used: see `count`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longtalk import _json
from longtalk.wires.agent import Agent
from longtalk.wires.base import Usage
from longtalk.wires.speech import SYSTEM, Heard, counts, number, report

_STARTED = ("item.started", "item.updated")


class Codex:
    """See `Speech`."""

    name = "codex-cli"
    program = "codex"
    package = "@openai/codex"
    home = ("CODEX_HOME", "", ".codex")
    sessions = "sessions/*/*/*/rollout-*-{id}.jsonl"
    passed: tuple[str, ...] = ("CODEX_*", "OPENAI_*")
    quiet: Mapping[str, str] = {}
    repeats = False
    sums = True
    gone: tuple[bytes, ...] = (b"no rollout found", b"thread/resume failed")

    def access(self, base_url: str, key: str | None) -> tuple[list[str], dict[str, str]]:
        own = {"CODEX_API_KEY": key} if key else {}
        if not base_url:
            return [], own
        # A JSON string is a TOML string too.
        address = f'{{name="longtalk",base_url={_json.encode(base_url).decode()},wire_api="responses",'
        address += 'env_key="CODEX_API_KEY"}' if key else "requires_openai_auth=false}"
        settings = ['model_provider="longtalk"', f"model_providers.longtalk={address}"]
        return [part for setting in settings for part in ("-c", setting)], own

    def start(
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
        arguments += ["-c", f"model_instructions_file='{SYSTEM}'"] if system else []
        arguments += ["-c", "analytics.enabled=false", "-c", "feedback.enabled=false"]
        return [*arguments, *more, *(["resume", session] if session else []), "-"], {}

    def unrecorded(self) -> list[str]:
        return ["--ephemeral"]

    def hear(self, line: Mapping[str, bytes]) -> Heard:
        kind = _json.text(line.get("type", b"")) or ""
        if kind == "item.completed":
            item = _json.fields(line["item"]) if line.get("item", b"")[:1] == b"{" else {}
            said = item.get("type") == b'"agent_message"'
            return Heard(text=(_json.text(item.get("text", b"")) or "") if said else "")
        if kind == "turn.completed":
            return Heard(final=True, usage=counts(line, "usage"))
        if kind == "turn.failed":
            return Heard(final=True, error=report(line.get("error", b""), r"\bstatus (\d{3})\b"))
        if kind == "error":
            return Heard(trouble=_json.text(line.get("message", b"")) or "")
        return Heard(session=_json.text(line.get("thread_id", b"")) or "", kept=kind not in _STARTED)

    def line(self, text: str) -> bytes:
        return _json.encode({"type": "item.completed", "item": {"type": "agent_message", "text": text}})

    def count(self, raw: bytes) -> Usage:
        """Tokens of this turn: what is reported now without what was before."""
        said = _json.value(raw)
        held = said if isinstance(said, Mapping) else {}
        now, before = _counts(held.get("now", held)), _counts(held.get("before"))
        # It starts anew when it has summed up what was before.
        before = before if now.input >= before.input and now.output >= before.output else Usage()
        return Usage(
            now.input - before.input,
            now.output - before.output,
            max(0, now.cached - before.cached),
            max(0, now.written - before.written),
        )


WIRE = Agent(Codex())


def _counts(said: object) -> Usage:
    names = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_input_tokens")
    held = said if isinstance(said, Mapping) else {}
    return Usage(*(number(held.get(name)) for name in names))
