"""A state with valid checksums and any JSON inside: whatever is done with it, only typed errors are raised."""

from __future__ import annotations

import contextlib
import functools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from longtalk import (
    Chat,
    Conversation,
    Economy,
    KeepAll,
    KeepLast,
    LongtalkError,
    Memory,
    Recall,
    Summarize,
    TokenBudget,
    history,
    peek,
    tool,
)
from longtalk._util import json_bytes
from longtalk.errors import BadState
from longtalk.policies import DigestTools, Policy
from longtalk.state.codec import decode, encode
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted, says
from longtalk.transcript.transcript import Entry, Transcript, Turns, link_entries
from longtalk.transfer.conversation_export import BranchPart, ConversationExport
from longtalk.transfer.json_export import to_json
from longtalk.transfer.load import import_exports
from longtalk.transfer.markdown import to_markdown
from longtalk.wires import NAMES, WIRES
from longtalk.wires.registry import HTTP_WIRES

POLICIES: tuple[Policy, ...] = (
    KeepAll(),
    KeepLast(2),
    TokenBudget(60),
    TokenBudget(200, digest=DigestTools(keep=1)),
    Summarize(150, length=50),
    Economy(),
    Memory(),
    Memory(limit=0, recent=0, recall=Recall(200, gate=False)),
)
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, "", "x", "user", "assistant", "tool", "\ud800", [], {}, [[]], [None], [1, "x"], {"": 0}),
    *({"type": "text"}, {"type": []}, {"text": 5}, [{"type": "tool_use"}], {"id": {}}, "{", "[1e999]", '{"a":1e999}'),
    *("<MEMORY_CARD>{</MEMORY_CARD>", "data:image/png;base64,!", "a" * 300),
)


def nest(opening: str, closing: str, depth: int) -> str:
    return opening * depth + "0" + closing * depth


RAW = (
    "1e999",
    "-1e999",
    "9" * 5_000,
    "1e-999",
    "123456789012345678901234567890",
    *(nest("[", "]", depth) for depth in (90, 400, 700, 900, 950)),
    *(nest('[{"type":"tool_result","content":', "}]", depth) for depth in (90, 200, 350, 450)),
    *(nest('[{"type":"message","content":', "}]", depth) for depth in (90, 200, 350, 450)),
)


@tool(idempotent=True)
def lookup(q: str) -> str:
    """Look something up."""
    return q


def play(wire: str, policy: Policy) -> Transcript:
    """Return the transcript of a short conversation with everything that this wire has."""
    fields: dict[str, Any] = {"openai-responses": {"reasoning": ["r"]}, "openai-chat": {"odd": 1}}.get(wire) or {
        "thinking": ["hm"]
    }
    card = '<MEMORY_CARD>{"goal":"learn","facts":["Ada"]}</MEMORY_CARD>'
    script = [
        says("Let me see.", calls=[("call_1", "lookup", {"q": "bow"})], fields=fields, wire=wire),
        says(f"# Bows\n\n- A bow is long.\n\n{card}", wire=wire),
        *[says(f"And so on. {card}", fields=fields, wire=wire) for _ in range(12)],
    ]
    chat = Chat(Scripted(*script, wire=WIRES[wire], window=4_000), policy=policy, tools=[lookup])
    state = chat.note("The user opened the lesson.")
    for text in ("What is a bow?", "And a violin, as I said earlier?", "Tell me about the bow again."):
        reply = chat.send(text, state=state)
        state = reply.state
    return decode(chat.pin(reply.entries[0].id, state=state), wires=NAMES)


AGENT_TALKS = {
    "claude-cli": (
        {"role": "user", "content": "hi"},
        {"events": [{"type": "assistant", "message": {"content": [{"type": "text", "text": "Hello."}]}}]},
        {"role": "tool", "call_id": "c", "name": "f", "content": "42"},
    ),
    "gemini-cli": (
        {"role": "user", "content": "hi"},
        {"events": [{"type": "message", "role": "assistant", "content": "Hello."}, {"type": "result", "stats": {}}]},
    ),
    "codex-cli": (
        {"role": "user", "content": "hi"},
        {"events": [{"type": "item.completed", "item": {"type": "agent_message", "text": "Hello."}}]},
    ),
}


@functools.cache
def bases() -> tuple[Transcript, ...]:
    """Return conversations on every wire, under several policies."""
    made = [play(wire, policy) for wire in HTTP_WIRES for policy in (Memory(), Summarize(150, length=50), Economy())]
    for wire, messages in AGENT_TALKS.items():
        base = made[0]
        natives = [json.dumps(message).encode() for message in messages]
        entries = [
            msgspec.structs.replace(entry, wire=wire, native=natives[i % len(natives)])
            if entry.wire != "longtalk"
            else entry
            for i, entry in enumerate(base)
        ]
        made.append(msgspec.structs.replace(base, pack=Transcript().pack, fresh=tuple(entries)))
    return tuple(made)


def list_places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container in a JSON value with each of its keys or indexes."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from list_places(value[key])


def mutate(source: random.Random, data: bytes, other: bytes) -> bytes:
    """Return a JSON object with some of its values replaced, removed or taken from another one."""
    try:
        value, foreign = json.loads(data), json.loads(other)
    except ValueError:
        return data
    numbers: dict[str, str] = {}
    for _ in range(source.choice((1, 1, 1, 2, 4))):
        places = list(list_places(value))
        if not places:
            break
        inside, key = source.choice(places)
        match source.randrange(8):
            case 0:
                del inside[key]
            case 1:
                inside[key] = [inside[key]]
            case 2:
                theirs, name = source.choice(list(list_places(foreign)) or [({"x": 0}, "x")])
                inside[key] = json.loads(json.dumps(theirs[name]))
            case 3:
                mark = f"@{len(numbers)}@"
                numbers[f'"{mark}"'] = source.choice(RAW)
                inside[key] = mark
            case _:
                inside[key] = json.loads(json.dumps(source.choice(ODD)))
    text = (
        json.dumps(value, ensure_ascii=source.random() < 0.5)
        .encode("utf-8", "surrogatepass")
        .decode("utf-8", "surrogatepass")
    )
    for mark, number in numbers.items():
        text = text.replace(mark, number)
    return text.encode("utf-8", "surrogatepass")


def make_hostile(source: random.Random) -> bytes:
    """Return a state with valid checksums and arbitrary changes to its JSON."""
    made = bases()
    base, other = source.choice(made), source.choice(made)
    rate = source.choice((0.1, 0.3, 1))
    entries = []
    for entry in base:
        their = other[source.randrange(len(other))]
        changes: dict[str, Any] = {}
        if source.random() < rate:
            changes["native"] = mutate(source, entry.native, their.native)
        if source.random() < 0.05:
            changes["wire"] = source.choice(sorted(NAMES))
        if source.random() < 0.05:
            changes["role"] = source.choice(("user", "assistant", "tool", "system", "event", "", "odd"))
        if source.random() < 0.05:
            changes["mark"] = source.choice(("empty", "closed", "error", "interrupted", "length", "odd"))
        if source.random() < 0.05:
            changes["bound"] = source.choice(("", "x", "a:b"))
        if source.random() < 0.03:
            changes["kind"] = source.choice(("message", "event"))
        entries.append(msgspec.structs.replace(entry, **changes))
    records = [
        msgspec.structs.replace(
            record, data=mutate(source, record.data, source.choice(other.records or (record,)).data)
        )
        if source.random() < rate
        else record
        for record in base.records
    ]
    turns = [
        msgspec.structs.replace(turn, usage=tuple(mutate(source, raw, raw) for raw in turn.usage))
        if source.random() < rate
        else turn
        for turn in base.turns
    ]
    hostile = msgspec.structs.replace(
        base,
        pack=Transcript().pack,
        fresh=tuple(entries),
        records=tuple(records),
        turns=Turns(fresh=tuple(turns)),
    )
    return encode(hostile)


def check_request(request: bytes) -> None:
    """Check that no entry has altered the request around it: it is one JSON object, and no member occurs twice."""
    members = json_bytes.fields(request)
    assert json_bytes.build(members) == request
    assert members.get("model", b'"model"') == b'"model"'


def do_everything(source: random.Random, state: bytes) -> None:
    """Do with a state whatever an app can do with it. Only typed errors are caught."""
    wire, policy = source.choice(sorted(HTTP_WIRES)), source.choice(POLICIES)
    carry = source.choice(("all", "context")) if policy.compactors else "all"

    providers: list[Scripted] = []

    def new_chat() -> Chat:
        steps = [says("Well.", calls=[("call_9", "lookup", {"q": "x"})], wire=wire), *[says("Yes.", wire=wire)] * 9]
        provider = Scripted(*steps, wire=WIRES[wire], window=source.choice((None, 300, 4_000)))
        providers.append(provider)
        return Chat(provider, policy=policy, tools=[lookup], carry=carry)

    def send_twice() -> None:
        chat = new_chat()
        chat.send("And the bow, as I said?", state=chat.send("Go on.", state=state).state)

    def stream() -> None:
        with new_chat().stream("Go on.", state=state) as events:
            list(events)

    def export() -> None:
        transcript = decode(state, wires=NAMES)
        part = BranchPart(name="main", entries=tuple(transcript), turns=tuple(transcript.turns))
        whole = ConversationExport(id="x", branches=(part,))
        to_markdown(whole)
        to_json([whole])
        store = InMemory()
        import_exports(store, "me", [whole])
        talk = Conversation("x", model=new_chat().provider, store=store, owner="me", policy=policy)
        talk.export("md")
        talk.export("json")
        talk.metrics()
        talk.send("Go on.")
        talk.verify()

    doings: tuple[Callable[[], Any], ...] = (
        lambda: peek(state),
        lambda: history(state),
        lambda: new_chat().note("It rains.", state=state),
        lambda: new_chat().send(None, state=state),
        lambda: new_chat().pin("x", state=state),
        lambda: new_chat().brief.text(state=state),
        lambda: new_chat().brief.add("facts", "It rains.", state=state),
        send_twice,
        stream,
        export,
    )
    for doing in doings:
        with contextlib.suppress(LongtalkError):
            doing()
    for provider in providers:
        for request in provider.requests:
            check_request(request)


def attack(first: int, count: int) -> None:
    """Try this many hostile states, each made from a seed of its own."""
    for seed in range(first, first + count):
        source = random.Random(seed)
        state = make_hostile(source)
        try:
            do_everything(source, state)
        except Exception as problem:
            raise AssertionError(f"seed {seed}: {type(problem).__name__}: {problem}") from problem


def test_a_state_with_any_json_inside_raises_only_typed_errors() -> None:
    attack(0, 150)


@pytest.mark.slow
def test_thousands_of_states_with_any_json_inside_raise_only_typed_errors() -> None:
    attack(150, 3_000)


def test_a_state_with_more_open_calls_than_any_answer_has_is_refused() -> None:
    calls = b",".join(b'{"id":"%d"}' % number for number in range(20_000))
    native = b'{"role":"assistant","tool_calls":[%s]}' % calls
    entries = link_entries(None, "t", 0, [Entry(role="assistant", wire="openai-chat", native=native, at=1)])
    with pytest.raises(BadState, match="20000 open tool calls") as caught:
        Chat(Scripted(says("Yes."))).send("Go on.", state=encode(Transcript().add(entries)))
    assert caught.value.reason == "too_large"
