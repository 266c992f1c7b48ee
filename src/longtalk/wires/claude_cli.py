"""Claude Code: `claude -p` with its lines of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longtalk import _json
from longtalk.transcript import Finish
from longtalk.wires import anthropic
from longtalk.wires.agent import Agent
from longtalk.wires.base import Usage
from longtalk.wires.speech import NO_KEY, SYSTEM, Heard, counts

_FINISH: dict[str | None, Finish] = {"max_tokens": "length", "refusal": "filtered"}


class Claude:
    """See `Speech`."""

    name = "claude-cli"
    program = "claude"
    package = "@anthropic-ai/claude-code"
    home = ("CLAUDE_CONFIG_DIR", "", ".claude")
    sessions = "projects/*/{id}.jsonl"
    passed: tuple[str, ...] = ("ANTHROPIC_*", "CLAUDE_*", "DISABLE_*")
    quiet: Mapping[str, str] = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
    }
    repeats = True
    sums = False
    gone: tuple[bytes, ...] = (b"No conversation found",)

    def access(self, base_url: str, key: str | None) -> tuple[list[str], dict[str, str]]:
        given = {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": key or ""}
        return [], {name: value for name, value in given.items() if value}

    def start(
        self, model: str, session: str, more: Sequence[str], *, system: bool, stream: bool
    ) -> tuple[list[str], dict[str, str]]:
        arguments = ["-p", "--output-format", "stream-json", "--verbose"]
        arguments += ["--include-partial-messages"] if stream else []
        arguments += ["--model", model] if model else []
        arguments += ["--system-prompt-file", SYSTEM] if system else []
        return [*arguments, *(["--resume", session] if session else []), *more], {}

    def unrecorded(self) -> list[str]:
        return ["--no-session-persistence"]

    def hear(self, line: Mapping[str, bytes]) -> Heard:
        kind = _json.text(line.get("type", b"")) or ""
        session = _json.text(line.get("session_id", b"")) or ""
        # What an agent of the agent says is not for us.
        own = line.get("parent_tool_use_id", b"null") == b"null"
        if kind == "stream_event":
            return Heard(text=_piece(line) if own else "", partial=True)
        if kind == "assistant":
            return Heard(text=_text(line) if own else "", session=session)
        if kind == "system" and line.get("subtype") == b'"api_retry"':
            return _retry(line)
        if kind != "result":
            return Heard(session=session)
        return Heard(
            text=_json.text(line.get("result", b"")) or "",
            session=session,
            final=True,
            usage=counts(line, "usage"),
            finish=_FINISH.get(_json.text(line.get("stop_reason", b"")), "stop"),
            error=_error(line) if line.get("is_error") == b"true" else None,
        )

    def line(self, text: str) -> bytes:
        said = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        return _json.encode({"type": "assistant", "message": said})

    def count(self, raw: bytes) -> Usage:
        return anthropic.WIRE.usage(raw)


WIRE = Agent(Claude())


def _piece(line: Mapping[str, bytes]) -> str:
    event = _members(line.get("event", b""))
    delta = _members(event.get("delta", b""))
    return (_json.text(delta.get("text", b"")) or "") if delta.get("type") == b'"text_delta"' else ""


def _text(line: Mapping[str, bytes]) -> str:
    message = _members(line.get("message", b""))
    # What the program says in its model's place, it says again as an error.
    if message.get("model") == b'"<synthetic>"':
        return ""
    content = message.get("content", b"")
    blocks = map(_members, _json.items(content)) if content[:1] == b"[" else ()
    return "".join(_json.text(block.get("text", b"")) or "" for block in blocks if block.get("type") == b'"text"')


def _retry(line: Mapping[str, bytes]) -> Heard:
    """It will try again, many times; with a key that is not taken that is no use."""
    status = line.get("error_status", b"null").decode("utf-8", "replace")
    said = f"{_json.text(line.get('error', b'')) or 'no answer'} ({status})"
    if status in ("401", "403"):
        return Heard(error=_json.encode({"code": status, "message": said}))
    return Heard(trouble=said)


def _error(line: Mapping[str, bytes]) -> bytes:
    errors = _json.value(line.get("errors", b"[]"))
    said = _json.text(line.get("result", b"")) or "; ".join(map(str, errors if isinstance(errors, list) else [errors]))
    said = said or _json.text(line.get("subtype", b"")) or "it failed."
    code = line.get("api_error_status", b"null").decode()
    usual = "401" if NO_KEY.search(said) else "invalid_request"
    return _json.encode({"code": code if code != "null" else usual, "message": said})


def _members(value: bytes) -> dict[str, bytes]:
    return _json.fields(value) if value[:1] == b"{" else {}
