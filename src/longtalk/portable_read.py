"""Conversations from files, ours and others': what a file is, is told from what it holds.

Read are exports of ours (JSON, JSONL), files of the JSONL store, states, the earlier Go library's states, messages in
OpenAI's chat form (an array, a request body, fine-tuning lines), and session logs of KSI, a daemon that ran a command
line model. Messages stay the exact bytes that they were in the file. What can't go on as a conversation (a result that
answers no call, a call that was never answered) is refused by its number. Whatever is wrong is an `InputError`.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from longtalk import _json
from longtalk.draft import UNKNOWN, measured
from longtalk.errors import BadState, InputError
from longtalk.pack import ANSWERS
from longtalk.portable import Limb, Talk, check, limbs, of_json, of_jsonl
from longtalk.ranges import Ranges
from longtalk.state import SEALED, decode
from longtalk.stores.base import MAIN, KeyTaken, Moved, Placed
from longtalk.stores.folder import Damaged, groups
from longtalk.stores.ledger import Ledger
from longtalk.stores.lines import FORMAT, ConversationLine, apply, read_line
from longtalk.tokens import Estimator
from longtalk.transcript import Entry, Turn, chain, new_id
from longtalk.wires import NAMES
from longtalk.wires.base import View, closing, event
from longtalk.wires.openai_chat import WIRE, finished

EXPECTED = (
    "a Longtalk export or state, a file of the JSONL store, OpenAI chat messages as JSON or JSONL, a data export of "
    "ChatGPT or Claude, the log of llm, LangGraph's SQLite checkpoints, a session file of the OpenAI Agents SDK, or a "
    "session log of the KSI daemon"
)
_MARK = b"\xef\xbb\xbf"
_ROLES = ("system", "developer", "user", "assistant", "tool")


class _Unknown(ValueError):
    """Nothing that is known here has this form."""


def read(data: bytes, *, name: str = "import") -> list[Talk]:
    """The conversations in a file. One that has no id of its own is called `name`, several `name-1`, `name-2` …"""
    try:
        talks = _read(bytes(data), name)
        for talk in talks:
            if not _is_text(talk.id):
                raise ValueError("the name of the file is not UTF-8, and it would be called by it: give it an id")
            check(talk)
    except (ValueError, OverflowError, RecursionError, BadState, Damaged) as problem:
        what = str(problem).rstrip(".") or type(problem).__name__
        hint = f" Expected is {EXPECTED}." if isinstance(problem, _Unknown) else ""
        raise InputError(f"{name!r} can't be read as a conversation: {what}.{hint}") from None
    return talks


def _read(data: bytes, name: str) -> list[Talk]:
    if data.startswith(SEALED):
        raise ValueError("it is a sealed state: open it with its seal first")
    if data.startswith(SEALED[:3]):
        return [_state(data, name)]
    text = data.removeprefix(_MARK).strip()
    if not text:
        raise _Unknown("it is empty")
    if text[:1] == b"[":
        items = _json.items(text)
        if items and items[0][:1] != b"{":
            raise _Unknown(f"its first element is not an object but {_shown(items[0])}")
        first = _object(items[0], 1) if items else {}
        return _bodies(items, name) if "messages" in first else [_messages(items, id=name)]
    if text[:1] != b"{":
        raise _Unknown(f"it begins with {_shown(data)}")
    lines = list(_lines(text))
    try:
        first = _json.fields(lines[0][1])
    except ValueError:
        # No line of its own, so it is the beginning of a document.
        first, lines = _json.fields(text), [(1, text)]
    kind = _json.text(first.get("type", b"null"))
    if "conversations" in first and "longtalk" in first:
        return of_json(text)
    if kind == "conversation" and "format" in first:
        return [_stored(data.removeprefix(_MARK), name)]
    if kind == "conversation":
        return of_jsonl(lines)
    if "messages" in first and "version" in first and len(lines) == 1:
        return [_state(text, name)]
    if "messages" in first:
        return _bodies([line for _, line in lines], name)
    if "role" in first and kind not in (*_ASKS, _ANSWERS):
        return [_messages([line for _, line in lines], id=name)]
    return [_ksi(lines, name)]


def _is_text(name: str) -> bool:
    return name == name.encode("utf-8", "replace").decode()


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(data.split(b"\n"), 1):
        if line := line.strip():
            yield number, line


def _shown(found: bytes | str) -> str:
    """The beginning of what was found, for reading."""
    text = found[:160].decode("utf-8", "replace") if isinstance(found, bytes) else found
    plain = "".join(char if char.isprintable() else " " if char.isspace() else "\ufffd" for char in text[:40])
    if plain.count("\ufffd") * 4 > len(plain):
        return "what is no text"
    return f"'{plain}'"


def _object(data: bytes, number: int) -> dict[str, bytes]:
    if data[:1] != b"{":
        raise ValueError(f"message {number} is not an object but {_shown(data)}")
    try:
        return _json.fields(data)
    except ValueError as problem:
        raise ValueError(f"message {number} is {problem}") from None


def _grown(exchanges: Sequence[tuple[Turn, Sequence[Entry]]]) -> Limb:
    """The main branch with these turns, one after the other."""
    entries: list[Entry] = []
    for turn, members in exchanges:
        parent = entries[-1].id if entries else None
        entries += chain(parent, turn.id, 0, measured(members, Estimator()))
    return Limb(name=MAIN, entries=tuple(entries), turns=tuple(turn for turn, _ in exchanges))


# Longtalk's own


def _state(data: bytes, name: str) -> Talk:
    transcript = decode(data, wires=NAMES)
    entries = tuple(transcript)
    if transcript.shed != Ranges() or (entries and entries[0].parent is not None):
        raise ValueError("it is a state that has handed out a part of the conversation: `join` them first")
    places = {entry.id: place for place, entry in enumerate(entries)}
    here = {entry.turn for entry in entries}
    limb = Limb(
        name=MAIN,
        entries=entries,
        turns=tuple(turn for turn in transcript.turns if turn.id in here),
        records=tuple(Placed(record, places.get(record.entry, -1)) for record in transcript.records),
    )
    return Talk(id=name, created=transcript.created, updated=transcript.updated, limbs=(limb,))


def _stored(data: bytes, name: str) -> Talk:
    """A file of the JSONL store. What stands behind the last whole commit was never acknowledged."""
    whole, _ = groups(data, Path(name), 1)
    header = read_line(whole[0].lines[0]) if whole else None
    if not isinstance(header, ConversationLine):
        raise ValueError("it holds no whole commit")
    if header.format > FORMAT:
        raise ValueError(f"its format is {header.format}, and {FORMAT} is the last one known here: upgrade longtalk")
    ledger = Ledger()
    for group in whole:
        try:
            apply(ledger, [read_line(line) for line in group.lines])
        except (Moved, KeyTaken) as problem:
            raise ValueError(f"line {group.first} does not follow from those before it ({problem})") from None
    # Those that are long first: what another one shares with them is theirs.
    heads = sorted(ledger.branches(), key=lambda head: (head.branch != MAIN, -head.size, head.branch))
    paths = [_path(ledger, head.branch, head.size) for head in heads]
    known = ledger.summary(header.id)
    meta = msgspec.convert(known.meta, dict[str, Any])
    return Talk(id=header.id, created=known.created, updated=known.updated, meta=meta, limbs=limbs(paths))


def _path(ledger: Ledger, branch: str, size: int) -> Limb:
    return Limb(
        name=branch,
        entries=tuple(ledger.read(branch, 0, size).entries()),
        turns=tuple(turn for _, turn in ledger.turns(branch, 0, size)),
        records=tuple(ledger.records(branch, None)),
        metas=msgspec.convert(ledger.metas(branch, 0, size), dict[int, dict[str, Any]]),
    )


# OpenAI's chat form


def _bodies(bodies: Sequence[bytes], name: str) -> list[Talk]:
    """Objects with `messages`, each a conversation of its own."""
    talks = []
    for number, body in enumerate(bodies, 1):
        try:
            members = _json.fields(body)
            natives = _json.items(members.get("messages", b"null"))
            model = _json.text(members.get("model", b"null")) or ""
            talks.append(_messages(natives, id=name if len(bodies) == 1 else f"{name}-{number}", model=model))
        except ValueError as problem:
            raise problem if len(bodies) == 1 else ValueError(f"in conversation {number}, {problem}") from None
    return talks


def _messages(natives: Sequence[bytes], *, id: str, model: str = "") -> Talk:  # noqa: A002
    """A conversation of chat messages. A turn begins with what is said behind an answer.

    So messages that follow each other without an answer share one turn, and a system message belongs to the user's
    message behind it. Calls that the file leaves open at its end are closed, as in every turn that was cut off.
    """
    if not natives:
        raise ValueError("it holds no message")
    exchanges: list[list[Entry]] = []
    waiting: list[str] = []
    for number, native in enumerate(natives, 1):
        entry, seen = _message(native, number)
        if entry.role == "tool":
            if seen.call_id not in waiting:
                raise ValueError(f"message {number} is the result of a call that nobody made ({_shown(seen.call_id)})")
            waiting.remove(seen.call_id)
        elif waiting:
            raise ValueError(f"message {number} ({entry.role}) comes before the result of {_shown(waiting[0])}")
        if not exchanges or (entry.role not in ANSWERS and exchanges[-1][-1].role in ANSWERS):
            exchanges.append([])
        exchanges[-1].append(entry)
        waiting += [call.id for call in seen.calls]
    exchanges[-1] += [closing(WIRE, call, UNKNOWN, at=0) for call in waiting]
    made = [(_turn(members, model or "unknown"), members) for members in exchanges]
    return Talk(id=id, limbs=(_grown(made),))


def _turn(entries: Sequence[Entry], model: str) -> Turn:
    if entries[-1].role == "assistant":
        return Turn(id=new_id(), status="complete", model=model, started=0)
    return Turn(id=new_id(), status="interrupted", model=model, started=0, finish="interrupted")


def _message(native: bytes, number: int) -> tuple[Entry, View]:
    """A message that every server takes back; one that says nothing is kept, and not sent."""
    members = _object(native, number)
    where = f"message {number}"
    try:
        native.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{where} is not UTF-8") from None
    try:
        seen = WIRE.view(native)
        empty = finished(native, None, None).empty if seen.role == "assistant" else False
    except (ValueError, TypeError, AttributeError) as problem:
        raise ValueError(f"{where} is no chat message ({problem})") from None
    if seen.role not in _ROLES:
        raise ValueError(f"{where} has the role {_shown(seen.role)}, and not one of {', '.join(_ROLES)}")
    if seen.calls and seen.role != "assistant":
        raise ValueError(f"{where} ({seen.role}) calls tools, which only an assistant can")
    if not all(call.id and "\ufffd" not in call.id for call in seen.calls):
        raise ValueError(f"{where} has a call without an id")
    content = members.get("content", b"null")
    parts = [_json.value(part) for part in _json.items(content)] if content[:1] == b"[" else []
    typed = all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts)
    if content[:1] not in (b'"', b"[", b"n") or not typed:
        raise ValueError(f"the content of {where} is neither a text nor a list of parts")
    foreign = next((part["type"] for part in parts if _is_anthropic(part)), None)
    if foreign is not None:
        raise ValueError(
            f"{where} is in Anthropic's form (a part is {_shown(foreign)}), and only OpenAI's is read here"
        )
    if not parts and content[:1] != b'"':
        silent = "content" not in members and (empty or seen.role != "assistant")
        if silent or seen.role == "tool" or (seen.calls and content != b"null"):
            raise ValueError(f"{where} ({seen.role}) has no content")
        empty = empty or seen.role != "assistant"
    return Entry(role=seen.role, wire=WIRE.name, native=native, at=0, mark="empty" if empty else ""), seen


def _is_anthropic(part: dict[str, Any]) -> bool:
    """Whether a part is a block of Anthropic's messages. Mistral has parts in which a model thinks too, as lists."""
    kind: str = part["type"]
    if kind in ("image", "document"):
        return "source" in part
    if kind == "thinking":
        return not isinstance(part.get("thinking"), list)
    return kind == "redacted_thinking" or kind.endswith(("tool_use", "tool_result"))


# KSI's session logs

_ASKS, _ANSWERS = ("human", "user"), "claude"
_TEXTS = ("result", "content", "message", "prompt", "response", "text")
_OWN = ("timestamp", "process_id", "agent_id")
"""What a line has of its own when it tells the same as another."""


class _Logged:
    """A line of a log. What the command line printed is the line itself, or an object inside of it."""

    def __init__(self, line: bytes) -> None:
        members = _json.fields(line)
        inner = [members]
        while len(inner) < 4 and (found := _inside(inner[-1], "response") or _inside(inner[-1], "result")):
            inner.append(found)
        ksi = _inside(members, "ksi")
        self.layers = [*reversed(inner), ksi]
        self.kind = _json.text(members.get("type", b"null")) or ""
        self.answers = self.kind == _ANSWERS or bool(ksi and "response" in members)
        self.data = _without_text(_json.value(line))
        texts = (_said(_json.value(layer.get(key, b"null"))) for layer in self.layers for key in _TEXTS)
        self.text = next(filter(None, texts), "")
        self.at = _moment(self.get("timestamp"))

    def raw(self, key: str) -> bytes:
        """A member as JSON, the innermost first."""
        return next((layer[key] for layer in self.layers if layer.get(key, b"null") != b"null"), b"null")

    def get(self, key: str) -> Any:
        return _json.value(self.raw(key))

    @property
    def error(self) -> str:
        """What went wrong; nothing when it went well."""
        wrong, subtype = self.get("error"), str(self.get("subtype") or "")
        if not wrong and not subtype.startswith("error") and self.get("is_error") is not True:
            return ""
        return _said(wrong) or self.text or subtype or "error"


def _inside(members: dict[str, bytes], key: str) -> dict[str, bytes]:
    return _json.fields(members[key]) if members.get(key, b"")[:1] == b"{" else {}


def _said(value: Any) -> str:
    """The text of a message: itself, its parts', or its content's."""
    if isinstance(value, dict):
        return _said(value.get("text") or value.get("content") or value.get("message"))
    if isinstance(value, list):
        return "".join(map(_said, value))
    return value if isinstance(value, str) else ""


def _without_text(members: dict[str, Any]) -> dict[str, Any]:
    nested = {key: _without_text(value) for key, value in members.items() if isinstance(value, dict)}
    return {key: nested.get(key, value) for key, value in members.items() if key in nested or key not in _TEXTS}


def _moment(value: Any) -> int:
    """A time in milliseconds since 1970; 0 when it is none."""
    try:
        when = dt.datetime.fromisoformat(value) if isinstance(value, str) else None
        seconds = float(value) if when is None else when.replace(tzinfo=when.tzinfo or dt.UTC).timestamp()
    except (TypeError, ValueError, OverflowError):
        return 0
    # As seconds this is the year 5138, as milliseconds 1973.
    at = seconds if seconds > 1e11 else seconds * 1000
    return round(at) if 0 <= at < 2**47 - 1 else 0


def _ksi(lines: Sequence[tuple[int, bytes]], name: str) -> Talk:
    """A session log: what was asked and what was answered, in turn."""
    pairs: list[tuple[list[_Logged], _Logged | None]] = []
    asked: list[_Logged] = []
    last: Any = None
    skipped: Counter[str] = Counter()
    for _, line in lines:
        try:
            logged = _Logged(line)
        except ValueError:
            skipped["unreadable"] += 1
            continue
        if logged.answers:
            told = [each.text for each in asked], logged.text, {k: logged.data[k] for k in logged.data if k not in _OWN}
            # A daemon that ran the model in the background has written what it did twice.
            if told == last and logged.get("duration_ms") is not None:
                skipped["repeated"] += 1 + len(asked)
            else:
                pairs.append((asked, logged))
            asked, last = [], told
        elif logged.kind in _ASKS and logged.text:
            asked.append(logged)
        else:
            skipped[logged.kind[:40] or "without a type"] += 1
    if not pairs and (skipped or not asked):
        found = ", ".join(f"{count} {_shown(kind)}" for kind, count in skipped.most_common(5))
        raise _Unknown(f"it begins with {_shown(lines[0][1])}, and its lines are {found}")
    if asked:
        pairs.append((asked, None))
    exchanges = [_exchange(*pair) for pair in pairs]
    limb = _grown([(turn, [entry for entry, _ in members]) for turn, members in exchanges])
    data = [meta for _, members in exchanges for _, meta in members]
    sessions = [answer.get("session_id") or answer.get("sessionId") for _, answer in pairs if answer]
    return Talk(
        id=next((each for each in sessions if isinstance(each, str)), name),
        created=limb.entries[0].at,
        updated=limb.turns[-1].ended,
        meta={"import": {"from": "ksi", "skipped": skipped.total()}},
        limbs=(msgspec.structs.replace(limb, metas={place: meta for place, meta in enumerate(data) if meta}),),
    )


def _exchange(asked: Sequence[_Logged], answer: _Logged | None) -> tuple[Turn, list[tuple[Entry, dict[str, Any]]]]:
    """A turn, and its entries with what else the log says of them. The text of an error is not what a model said."""
    said = [each for each in (*asked, answer) if each is not None]
    ended = max(each.at for each in said)
    took = answer.get("duration_ms") if answer else 0
    took = round(took) if isinstance(took, int | float) and 0 <= took <= ended else 0
    started = ended - took if took or not asked else asked[0].at or ended
    entries: list[tuple[Entry, dict[str, Any]]] = []
    for each in asked:
        native = WIRE.user(each.text)
        # Both lines of an exchange were often written when it ended.
        at = min(each.at or started, ended - took)
        entries.append((Entry(role="user", wire=WIRE.name, native=native, at=at), {"ksi": each.data}))
    if not asked:
        entries.append((event("What was asked here is not in the log.", source="import", at=started), {}))
    if answer is None:
        return Turn(new_id(), "interrupted", "claude-cli", started, ended, "interrupted"), entries
    usage, named = answer.raw("usage"), str(answer.get("model") or "").removeprefix("claude-cli/")
    model, reports = f"claude-cli:{named}" if named else "claude-cli", (usage,) if usage[:1] == b"{" else ()
    turn = Turn(id=new_id(), status="complete", model=model, started=started, ended=ended, usage=reports)
    if answer.error:
        entries[-1][1]["ksi_error"] = answer.data
        return msgspec.structs.replace(turn, status="failed", finish="failed", error=answer.error), entries
    native = _json.encode({"role": "assistant", "content": answer.text})
    entry = Entry(role="assistant", wire=WIRE.name, native=native, at=ended, mark="" if answer.text else "empty")
    return turn, [*entries, (entry, {"ksi": answer.data})]
