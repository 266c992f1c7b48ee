"""The history of a conversation: its entries in readable form, with calls, results, usage and responses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from longtalk.events import ToolCall, ToolResult
from longtalk.memory.cards.hidden import find_memory_calls, is_hidden
from longtalk.state import codec as states
from longtalk.state.sealing import BoundSeal, Seal
from longtalk.transcript.pack import Entry
from longtalk.transcript.responses import Response, read_responses, to_finish_reason
from longtalk.transcript.transcript import Turn, TurnStatus
from longtalk.usage import Usage
from longtalk.wires import NAMES, read_usage
from longtalk.wires.blocks import read_reasoning
from longtalk.wires.entries import describe_entry


class HistoryEntry(msgspec.Struct, frozen=True):
    """One entry of a conversation, with its content extracted from the provider's JSON."""

    id: str
    turn: str
    role: str
    text: str
    """The text of the entry; never empty. If the entry has no text, a note of what it has, such as `[image]`."""
    at: int
    """The time when the entry was created, in milliseconds since 1970."""
    native: bytes
    """The exact JSON of the message."""
    mark: str = ""
    """A special condition such as `interrupted`, `length` or `closed`; empty for most entries."""
    meta: Mapping[str, Any] = {}
    """The metadata that the app has stored for this entry."""
    wire: str = ""
    """The name of the wire (message format) of `native`."""
    status: str = ""
    """The status of the turn that the entry belongs to; empty if the turn is unknown."""
    calls: tuple[ToolCall, ...] = ()
    """The tool calls of an answer."""
    results: tuple[ToolResult, ...] = ()
    """The result in a tool entry."""
    model: str = ""
    """For an answer: the model that was asked, as `provider:model`."""
    finish_reason: str = ""
    """For an answer: why it ended, as in `Reply.finish_reason`, or "paused" if the provider continued it."""
    usage: Usage | None = None
    """For an answer: the tokens of its model call; None if the provider did not report them."""
    response: Response | None = None
    """For an answer: the provider's response besides the message; None if it was not stored."""
    position: int = 0
    """The position of the entry on its branch, from 0, as in a manifest."""

    @property
    def reasoning(self) -> str:
        """What the model has shown of its thinking before this answer; empty if nothing."""
        return read_reasoning(self.to_entry())

    def to_entry(self) -> Entry:
        """Return the entry as it is stored, without its id, turn and mark."""
        return Entry(role=self.role, wire=self.wire, native=self.native, at=self.at)

    @property
    def response_id(self) -> str:
        """The id that the provider gave its response; empty if there is none."""
        return self.response.id if self.response else ""

    @property
    def raw_finish_reason(self) -> str:
        """Why the answer ended, in the provider's own words; empty if that was not stored."""
        return self.response.raw_finish_reason if self.response else ""


class StoredTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A stored turn with its entries."""

    turn: Turn
    branch: str
    """The branch that it was read from."""
    status: TurnStatus
    """The status of the turn; "interrupted" for one that says it is running although no process runs it."""
    entries: tuple[HistoryEntry, ...]
    cost: float | None
    """The cost of its model calls in US dollars; None if it is unknown."""

    @property
    def text(self) -> str:
        """The text of its last answer; empty if that has none."""
        answer = next((each for each in reversed(self.entries) if each.role == "assistant"), None)
        return "" if answer is None else describe_entry(answer.to_entry())[1].text

    @property
    def usage(self) -> Usage:
        """The tokens of all its model calls."""
        wire = next((each.wire for each in self.entries if each.role == "assistant"), "")
        return sum((read_usage(raw, wire) for raw in self.turn.usage), Usage())

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls of external tools that wait for results."""
        if (self.turn.status, self.turn.finish) != ("complete", "calls"):
            return ()
        answered = {result.id for each in self.entries for result in each.results}
        return tuple(call for each in self.entries for call in each.calls if call.id not in answered)


def history(
    state: bytes, *, seal: Seal | BoundSeal | None = None, max_state: int = states.MAX_BYTES
) -> list[HistoryEntry]:
    """Return the conversation in a state as readable entries.

    A sealed state needs the `seal` that it was sealed with. `max_state` is the maximum size of the uncompressed state,
    in bytes.
    """
    if states.is_empty(state):
        return []
    transcript = states.decode(seal.open(state) if seal else state, wires=NAMES, max_bytes=max_state)
    return to_history(transcript, transcript.turns)


def to_history(
    entries: Iterable[Entry],
    turns: Iterable[Turn] = (),
    metas: Mapping[int, Mapping[str, Any]] | None = None,
    *,
    start: int = 0,
) -> list[HistoryEntry]:
    """Return these entries in readable form, without the calls of the memory tool and their results.

    `turns` are the turns that the entries belong to; they provide status, model, usage and responses. `metas` has the
    metadata of entries, by position. `start` is the position of the first entry.
    """
    known, listed = metas or {}, list(entries)
    by_id = {turn.id: turn for turn in turns}
    answers = _read_answers(listed, by_id)
    hidden = find_memory_calls(listed)
    called: dict[str, str] = {}
    read = []
    for i, entry in enumerate(listed):
        hidden_calls = hidden.get(i, frozenset())
        if is_hidden(entry, hidden_calls):
            continue
        text, view = describe_entry(entry)
        called |= {call.id: call.name for call in view.calls}
        failed = entry.condition in ("error", "closed")
        name = view.name or called.get(view.call_id, "")
        answer = answers.get(entry.id, _NO_ANSWER)
        read.append(
            HistoryEntry(
                id=entry.id,
                turn=entry.turn,
                role=entry.role,
                text=text,
                at=entry.at,
                native=entry.native,
                mark=entry.condition,
                meta=known.get(start + i, {}),
                wire=entry.wire,
                status=by_id[entry.turn].status if entry.turn in by_id else "",
                calls=tuple(
                    ToolCall(call.id, call.name, call.arguments) for call in view.calls if call.id not in hidden_calls
                ),
                results=(ToolResult(view.call_id, name, view.text, failed),) if view.call_id else (),
                model=answer.model,
                finish_reason=entry.condition
                if entry.condition in _CUT
                else to_finish_reason(answer.finish) or ("tool_calls" if view.calls else ""),
                usage=None if answer.usage is None else read_usage(answer.usage, entry.wire),
                response=answer.response,
                position=start + i,
            )
        )
    return read


class _Answer(msgspec.Struct, frozen=True):
    """The facts about one answer that its turn has stored."""

    model: str = ""
    finish: str = ""
    usage: bytes | None = None
    response: Response | None = None


_NO_ANSWER = _Answer()
_CUT = ("length", "filtered", "interrupted")


def _read_answers(entries: Sequence[Entry], turns: Mapping[str, Turn]) -> dict[str, _Answer]:
    """Return the facts that the turns have stored about the answers among these entries, by the id of the entry."""
    found: dict[str, _Answer] = {}
    by_turn: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.role == "assistant" and entry.turn in turns:
            by_turn.setdefault(entry.turn, []).append(entry)
    for name, answers in by_turn.items():
        turn = turns[name]
        # A turn of an earlier version has no responses. If it has as many usage reports as answers, they belong
        # together.
        reports = turn.usage if len(turn.usage) == len(answers) else [None] * len(answers)
        for entry, usage in zip(answers, reports, strict=True):
            finish = turn.finish if entry is answers[-1] and turn.status != "running" else ""
            found[entry.id] = _Answer(turn.model, finish, usage)
        for each in read_responses(turn):
            if each.entry in found:
                found[each.entry] = _Answer(each.model, each.finish_reason, each.usage, each)
    return found


def parse_terms(text: str) -> list[str]:
    """Split a search text into terms: text in double quotes is one phrase, and every other word is a term."""
    return ["".join(pair) for pair in re.findall(r'"([^"]+)"|([^\s"]+)', text)]
