"""What the fixtures of stored data hold, and functions that read it through the public API.

The generator (`make_fixtures.py`) and the tests read conversations with the same functions, so the expected values are
what the code of that time returned. When the public API changes, these functions change, never the expected values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from longtalk import (
    Archive,
    Brief,
    Chat,
    Conversation,
    Economy,
    KeepAll,
    KeepLast,
    Memory,
    Recall,
    Seal,
    Summarize,
    history,
    peek,
    tool,
)
from longtalk.memory import Field, Schema
from longtalk.testing import Scripted, validate
from longtalk.transcript.transcript import Entry
from longtalk.wires import WIRES, text_if_readable

FILES = Path(__file__).parent / "files" / "0.1.0"
OWNERS = ("ada", "bob", "")
OTHER_NAME = "lesson 7/Bögen"
"""An id that is not a valid file name."""

BRIEF = Brief(
    budget=160,
    schema=Schema((Field("goal", "text"), Field("facts", cap=6), Field("open_questions", cap=3, answers="facts"))),
)
MEMORY = Memory(brief=BRIEF, outline=60, recent=60, recall=Recall(120, gate=False), limit=200)
SUMMARIZE = Summarize(over=400, to=200, length=60)
HELD = {"previous_response_id": "auto"}
POLICIES: dict[str, Any] = {
    "memory": MEMORY,
    "summary": SUMMARIZE,
    "no summary": SUMMARIZE,
    "background": SUMMARIZE,
    "economy": Economy(),
}
"""Policies by the name of a conversation or state. The others are sent whole."""
WIRE_OF = {"responses": "openai-responses", "held": "openai-responses", "anthropic": "anthropic", "gemini": "gemini"}
"""Wires by the name of a conversation or state. The others end on OpenAI's chat wire."""

SMALL = KeepLast(2)
SEAL = Seal({"2026-11": bytes(range(32))}).to(owner="ada", conversation="lesson-7")
SEALED = ("sealed", "sealed-small")


def policy_of(name: str) -> Any:
    return POLICIES.get(name, KeepAll())


def wire_of(name: str) -> str:
    return WIRE_OF.get(name, "openai-chat")


def scripted(name: str, *steps: Any) -> Scripted:
    """Return a provider on the wire that a conversation or state ends on."""
    return Scripted(*steps, wire=WIRES[wire_of(name)])


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(idempotent=True)
def look_up(word: str) -> dict[str, str]:
    """Look up a word."""
    return {"word": word, "meaning": "ein Bogen — „bow“"}


TOOLS = [add, look_up]


# Stores


def read_store(store: Any) -> dict[str, Any]:
    """Return all that a store holds, by owner and conversation, as plain JSON."""
    return plain({owner: _read_archive(Archive(store, owner=owner), store) for owner in OWNERS})


def _read_archive(archive: Archive, store: Any) -> dict[str, Any]:
    listed = {each.id: each for each in archive.conversations(limit=1_000)}
    return {
        name: {
            "created": each.created,
            "updated": each.updated,
            "entries": each.entries,
            "meta": each.meta,
            "stats": _stats(archive.stats(name), _find_estimates(archive, name, each.branches)),
            "branches": {branch: _read_branch(archive, store, name, branch) for branch in sorted(each.branches)},
        }
        for name, each in sorted(listed.items())
    }


def _read_branch(archive: Archive, store: Any, name: str, branch: str) -> dict[str, Any]:
    talk = Conversation(name, model=Scripted(), owner=archive.owner, store=store, branch=branch, policy=policy_of(name))
    metrics = talk.metrics()
    found: dict[str, Any] = {
        "history": [_said(each) for each in talk.history()],
        "metrics": [_metrics(each, _find_estimates(archive, name, [branch])) for each in metrics],
        "totals": [each.total for each in metrics],
        "manifests": {each.turn: [_run(run) for run in talk.manifest(each.turn)] for each in metrics},
        "pins": talk.pins(),
        "receipts": [_receipt(each) for each in talk.receipts()],
    }
    if name == "memory":
        tally = talk.brief.tally()
        found["brief"] = [_line(line) for line in talk.brief.lines()]
        found["archived"] = [_line(line) for line in talk.brief.archived()]
        found["tally"] = [tally.asks, tally.failures]
    return found


def without_totals(found: dict[str, Any]) -> dict[str, Any]:
    """Return what `read_store` found without the estimated lengths of requests.

    A JSONL store keeps every reported length, the others only the newest, so their estimates after a fork differ.
    """
    found = plain(found)
    for branch in (b for talks in found.values() for talk in talks.values() for b in talk["branches"].values()):
        del branch["totals"]
    return found


def own_text(each: Any) -> str:
    """Return the text of an entry of a history; empty if the entry has none, which `text` then describes."""
    own = text_if_readable(Entry(role=each.role, wire=each.wire, native=each.native, at=each.at))
    assert each.text == own or not own.strip()
    return own


def _said(each: Any) -> dict[str, Any]:
    return {
        "id": each.id,
        "turn": each.turn,
        "role": each.role,
        "text": own_text(each),
        "at": each.at,
        "native": each.native.decode(),
        "mark": each.mark,
        "meta": dict(each.meta),
        "wire": each.wire,
        "status": each.status,
    }


def _find_estimates(archive: Archive, name: str, branches: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return the tokens sent and received by which an answer that was cut off is estimated, by turn.

    The version that wrote the fixtures counted nothing for such an answer, so what was reported is compared.
    """
    found = {}
    for branch in branches:
        for each in archive.metrics(name, branch=branch):
            if each.estimated:
                reported = archive.turn(name, each.turn, branch=branch).usage
                assert each.usage.input == reported.input + each.total
                found[each.turn] = (each.total, each.usage.output - reported.output)
    return found


def _metrics(each: Any, estimates: Mapping[str, tuple[int, int]]) -> list[Any]:
    usage, (sent, received) = each.usage, estimates.get(each.turn, (0, 0))
    calls = each.calls - each.estimated
    return [
        *(each.turn, each.at, each.model, each.status, calls, each.history, each.summary),
        *(each.brief, each.outline, each.recall, each.left_out, each.cost),
        *(usage.input - sent, usage.output - received, usage.cached),
    ]


def _stats(each: Any, estimates: Mapping[str, tuple[int, int]]) -> list[Any]:
    assert each.estimated == len(estimates)
    usage, (sent, received) = each.usage, (sum(numbers) for numbers in zip((0, 0), *estimates.values(), strict=True))
    # The version that wrote the fixtures reported unknown costs as 0.
    cost = each.cost or 0.0
    counts = (each.branches, each.entries, each.bytes, dict(each.turns), dict(each.models), cost, each.unpriced)
    return [*counts, usage.input - sent, usage.output - received, usage.cached]


def _run(run: Any) -> list[Any]:
    return [run.first, run.last, run.verdict, run.reason, run.tokens]


def _receipt(each: Any) -> list[Any]:
    numbers = (each.epoch, each.at, each.before, each.after, each.carried, each.predicted, each.actual)
    return [*numbers, each.reason, each.calls, each.saved, each.dollars(each.actual)]


def _line(line: Any) -> list[Any]:
    return [line.id, line.field, line.text, line.entry, line.at]


# States


def read_state(name: str, state: bytes) -> dict[str, Any]:
    """Return all that a state holds, as plain JSON."""
    seal = SEAL if name in SEALED else None
    seen = peek(seal.open(state) if seal else state)
    found: dict[str, Any] = {
        "peek": [seen.version, seen.revision, seen.entries, seen.created, seen.updated],
        "history": [_said(each) for each in history(state, seal=seal)],
    }
    if name == "memory":
        brief = Chat(Scripted(), policy=MEMORY).brief
        found["brief"] = [_line(line) for line in brief.lines(state=state)]
        found["archived"] = [_line(line) for line in brief.archived(state=state)]
    return plain(found)


# Requests


def check_sent(request: bytes, entries: Sequence[Any], wire: str) -> None:
    """Check that a request is valid and has these entries in order: byte for byte, or as text if of another wire."""
    validate(request, wire=wire)
    start = 0
    for entry in entries:
        part = (
            _native_part(entry)
            if entry.wire == wire
            else json.dumps(own_text(entry), ensure_ascii=False)[1:-1].encode()
        )
        found = request.find(part, start)
        assert found >= 0, f"{part!r} of {entry.role} {entry.id} is not in {request[start:]!r}"
        start = found + len(part)


def _native_part(entry: Any) -> bytes:
    """Return the part of an entry's JSON that is sent unchanged."""
    native: bytes = entry.native
    if entry.wire == "openai-responses" and entry.role == "assistant":
        # Ids of items are left out when the server stores none.
        return re.sub(rb'"id":"[^"]*",', b"", native[native.index(b"[") + 1 : native.rindex(b"]")])
    if entry.wire in ("anthropic", "gemini") and entry.role == "tool":
        # Results of parallel calls go into one message.
        return native[native.index(b"[") + 1 : native.rindex(b"]")]
    return native


def plain(value: Any) -> Any:
    """Return a value as it is after a round trip through JSON."""
    return json.loads(json.dumps(value))
