"""Read session logs of the KSI daemon, which ran a model through a command-line tool, as conversations."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk.transcript.transcript import Entry, Turn, new_id
from longtalk.transfer.conversation_export import ConversationExport
from longtalk.transfer.read_helpers import UnknownFormat, build_main_branch, excerpt
from longtalk.wires.entries import mark_verbatim
from longtalk.wires.neutral import event
from longtalk.wires.openai_chat.wire import WIRE

_USER_TYPES, _ANSWER_TYPE = ("human", "user"), "claude"
LINE_TYPES = (*_USER_TYPES, _ANSWER_TYPE)
_TEXTS = ("result", "content", "message", "prompt", "response", "text")
_VARYING = ("timestamp", "process_id", "agent_id")
"""The keys whose values may differ between two log lines for the same answer."""


class _LogLine:
    """A parsed line of a log. What the command-line tool printed is the whole line or an object nested in it."""

    def __init__(self, line: bytes) -> None:
        members = json_bytes.fields(line)
        inner = [members]
        while len(inner) < 4 and (found := _find_object(inner[-1], "response") or _find_object(inner[-1], "result")):
            inner.append(found)
        # A provider without sessions answers with a chat completion.
        is_completion = inner[-1].get("choices", b"")[:1] == b"["
        for choice in json_bytes.items(inner[-1]["choices"])[:1] if is_completion else ():
            inner += [json_bytes.fields(choice), _find_object(json_bytes.fields(choice), "message")]
        ksi = _find_object(members, "ksi")
        self.layers = [*reversed(inner), ksi]
        self.kind = json_bytes.text(members.get("type", b"null")) or ""
        self.is_answer = self.kind == _ANSWER_TYPE or is_completion or bool(ksi and "response" in members)
        provider = json_bytes.text(ksi.get("provider", b"null"))
        self.provider = provider or ("ksi" if is_completion else "claude-cli")
        self.data = _remove_texts(json_bytes.value(line))
        texts = (_extract_text(json_bytes.value(layer.get(key, b"null"))) for layer in self.layers for key in _TEXTS)
        self.text = next(filter(None, texts), "")
        self.at = _parse_time(self.get("timestamp")) or _parse_time(self.get("created"))

    def raw(self, key: str) -> bytes:
        """Return the JSON of the member `key` in the innermost object that has it; `null` if no object has it."""
        return next((layer[key] for layer in self.layers if layer.get(key, b"null") != b"null"), b"null")

    def get(self, key: str) -> Any:
        return json_bytes.value(self.raw(key))

    @property
    def error(self) -> str:
        """The error message, if this line reports an error; otherwise empty."""
        wrong, subtype = self.get("error"), str(self.get("subtype") or "")
        if not wrong and not subtype.startswith("error") and self.get("is_error") is not True:
            return ""
        return _extract_text(wrong) or self.text or subtype or "error"


def _find_object(members: dict[str, bytes], key: str) -> dict[str, bytes]:
    return json_bytes.fields(members[key]) if members.get(key, b"")[:1] == b"{" else {}


def _extract_text(value: Any) -> str:
    """Return the text of a message, which may be a string, a list of parts or an object with content."""
    if isinstance(value, dict):
        return _extract_text(value.get("text") or value.get("content") or value.get("message"))
    if isinstance(value, list):
        return "".join(map(_extract_text, value))
    return value if isinstance(value, str) else ""


def _remove_texts(value: Any) -> Any:
    """Return a JSON value without the texts in its objects."""
    if isinstance(value, list):
        return [_remove_texts(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: _remove_texts(each) for key, each in value.items() if key not in _TEXTS or isinstance(each, dict)}


def _parse_time(value: Any) -> int:
    """Convert a time (ISO 8601, seconds or milliseconds) to milliseconds since 1970; return 0 if it is not a time."""
    try:
        when = dt.datetime.fromisoformat(value) if isinstance(value, str) else None
        seconds = float(value) if when is None else when.replace(tzinfo=when.tzinfo or dt.UTC).timestamp()
    except (TypeError, ValueError, OverflowError):
        return 0
    # 1e11 as seconds is the year 5138, as milliseconds 1973: larger values are milliseconds.
    at = seconds if seconds > 1e11 else seconds * 1000
    return round(at) if 0 <= at < 2**47 - 1 else 0


def read_ksi_log(lines: Sequence[tuple[int, bytes]], name: str) -> ConversationExport:
    """Return the conversation in a KSI session log; raise `UnknownFormat` if the lines are not from such a log."""
    pairs: list[tuple[list[_LogLine], _LogLine | None]] = []
    asked: list[_LogLine] = []
    last: Any = None
    skipped: Counter[str] = Counter()
    for _, line in lines:
        try:
            logged = _LogLine(line)
        except ValueError:
            skipped["unreadable"] += 1
            continue
        if logged.is_answer:
            data = {key: value for key, value in logged.data.items() if key not in _VARYING}
            content = [each.text for each in asked], logged.text, data
            # A daemon that ran the model in the background logged each answer twice.
            if content == last and logged.get("duration_ms") is not None:
                skipped["repeated"] += 1 + len(asked)
            else:
                pairs.append((asked, logged))
            asked, last = [], content
        elif logged.kind in _USER_TYPES and logged.text:
            asked.append(logged)
        else:
            skipped[logged.kind[:40] or "no type"] += 1
    if not pairs and (skipped or not asked):
        found = ", ".join(f"{count} × {excerpt(kind)}" for kind, count in skipped.most_common(5))
        start = excerpt(lines[0][1])
        raise UnknownFormat(f"the format is unknown (the file begins with {start}; types of its lines: {found})")
    if asked:
        pairs.append((asked, None))
    exchanges = [_build_exchange(*pair) for pair in pairs]
    part = build_main_branch([(turn, [entry for entry, _ in members]) for turn, members in exchanges])
    metas = [meta for _, members in exchanges for _, meta in members]
    sessions = [answer.get("session_id") or answer.get("sessionId") for _, answer in pairs if answer]
    return ConversationExport(
        id=next((each for each in sessions if isinstance(each, str)), name),
        created=part.entries[0].at,
        updated=part.turns[-1].ended,
        meta={"import": {"from": "ksi", "skipped": skipped.total()}},
        branches=(
            msgspec.structs.replace(part, metas={position: meta for position, meta in enumerate(metas) if meta}),
        ),
    )


def _build_exchange(
    asked: Sequence[_LogLine], answer: _LogLine | None
) -> tuple[Turn, list[tuple[Entry, dict[str, Any]]]]:
    """Return a turn and its entries, each with its metadata.

    If the answer is an error message, it becomes metadata of the last entry and the error of the turn.
    """
    ended = max(each.at for each in (*asked, answer) if each is not None)
    duration = answer.get("duration_ms") if answer else 0
    duration = round(duration) if isinstance(duration, int | float) and 0 <= duration <= ended else 0
    started = ended - duration if duration or not asked else asked[0].at or ended
    entries: list[tuple[Entry, dict[str, Any]]] = []
    for each in asked:
        native = WIRE.write_user(each.text)
        # KSI often wrote both lines of an exchange at its end, so the logged time of a question may be too late.
        at = min(each.at or started, ended - duration)
        entries.append((Entry(role="user", wire=WIRE.name, native=native, at=at), {"ksi": each.data}))
    if not asked:
        entries.append((event("The log does not contain the question.", source="import", at=started), {}))
    if answer is None:
        return Turn(new_id(), "interrupted", "claude-cli", started, ended, "interrupted"), entries
    usage, label = answer.raw("usage"), str(answer.get("model") or "").removeprefix(f"{answer.provider}/")
    model = f"{answer.provider}:{label}" if label else answer.provider
    reports = (usage,) if usage[:1] == b"{" else ()
    turn = Turn(id=new_id(), status="complete", model=model, started=started, ended=ended, usage=reports)
    if answer.error:
        entries[-1][1]["ksi_error"] = answer.data
        return msgspec.structs.replace(turn, status="failed", finish="failed", error=answer.error), entries
    native = json_bytes.encode({"role": "assistant", "content": answer.text})
    entry = Entry(role="assistant", wire=WIRE.name, native=native, at=ended, mark="" if answer.text else "empty")
    return turn, [*entries, (mark_verbatim(entry), {"ksi": answer.data})]
