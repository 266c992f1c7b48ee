"""Small conversations with round lengths, in which each letter is a token and each call has ten."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from longtalk import Chat
from longtalk.context.compose import Context, compose
from longtalk.context.epochs import begin_epoch
from longtalk.context.measure import Terms
from longtalk.context.planning import Plan, make_plan
from longtalk.policies import Compactor, OverTokens, Policy, Strategy, View
from longtalk.testing import Scripted, says, validate
from longtalk.transcript.transcript import Entry, Transcript
from longtalk.wires import WIRES
from longtalk.wires.neutral import event
from longtalk.wires.protocol import Preamble, Quirks

WIRE = WIRES["openai-chat"]
CALL = 10


class Letters:
    """A counter for which a token is a letter."""

    def count(self, text: str) -> int:
        return len(text)


LETTERS = Letters()


def said(text: str) -> Entry:
    return Entry(role="user", wire=WIRE.name, native=WIRE.write_user(text), at=0, tokens=len(text))


def answered(text: str) -> Entry:
    native = json.dumps({"role": "assistant", "content": text}).encode()
    return Entry(role="assistant", wire=WIRE.name, native=native, at=0, tokens=len(text))


def called(*calls: tuple[str, str, str]) -> Entry:
    """Calls as (id, name, arguments)."""
    written = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id, name, arguments in calls  # noqa: A001
    ]
    native = json.dumps({"role": "assistant", "content": None, "tool_calls": written}).encode()
    return Entry(role="assistant", wire=WIRE.name, native=native, at=0, tokens=CALL)


def gave(call: str, text: str) -> Entry:
    native = WIRE.write_result(call, text, error=False)
    return Entry(role="tool", wire=WIRE.name, native=native, at=0, tokens=len(text))


def happened(text: str) -> Entry:
    return msgspec.structs.replace(event(text, source="app", at=0), tokens=len(text))


def worked(n: int, result: str = "r" * 100, *, name: str = "look") -> list[Entry]:
    """An exchange with a tool in it: 30 tokens, and those of its result."""
    call = called((f"c{n}", name, f'{{"n":{n}}}'))
    return [said(f"question {n}"[:10]), call, gave(f"c{n}", result), answered(f"answer {n:3}")]


def talked(n: int) -> list[Entry]:
    """An exchange of two messages and 20 tokens."""
    return [said(f"question {n}"[:10]), answered(f"answer {n:3}")]


def conversation(*exchanges: Sequence[Entry]) -> Transcript:
    transcript = Transcript()
    for n, entries in enumerate(exchanges):
        for i, entry in enumerate(entries):
            # An event has no speaker, so it comes in a turn of its own.
            transcript = transcript.append_to_turn(f"e{n}x{i}" if entry.kind == "event" else f"t{n}", [entry])
    return transcript


def view_of(
    transcript: Transcript, *, pinned: Sequence[int] = (), fixed: int = 0, scale: float = 1.0, window: int = 32_000
) -> View:
    """All of a conversation; `pinned` are numbers of exchanges."""
    view = View(transcript, WIRE, LETTERS, (), fixed, scale, window)
    spans = transcript.exchanges()
    return view.with_blocks([view.make_block(a, b, pinned=i in pinned) for i, (a, b) in enumerate(spans)])


def tokens(over: int, to: int | None = None, *strategies: Strategy) -> Compactor:
    return Compactor(OverTokens(over), strategies, OverTokens(over if to is None else to))


def terms(*, window: int | None = None, fixed: int = 0, answer: int = 0) -> Terms:
    return Terms(wire=WIRE, counter=LETTERS, model="m", preamble="", fixed=fixed, window=window, answer=answer)


def composed(transcript: Transcript, made: Plan) -> Context:
    context = compose(
        transcript,
        epoch=made.epoch,
        wire=WIRE,
        quirks=Quirks(),
        preamble=Preamble(),
        reader="me",
        instruction=None,
        tail=len(transcript),
    )
    validate(b'{"messages":[' + b",".join(context.pieces) + b"]}")
    return context


def sent(transcript: Transcript, policy: Policy, **of: Any) -> list[str]:
    """What the texts of a request would be."""
    return texts(composed(transcript, make_plan(transcript, policy, terms(**of))))


def texts(context: Context) -> list[str]:
    return [message["content"] or "calls" for message in json.loads(b"[" + b",".join(context.pieces) + b"]")]


def grown(policy: Policy, *exchanges: Sequence[Entry], **of: Any) -> list[list[str]]:
    """What is sent at each user's message of a conversation that goes on."""
    requests, so_far = [], Transcript()
    for n, entries in enumerate(exchanges):
        for entry in entries:
            so_far = so_far.append_to_turn(f"t{n}", [entry])
            if entry.role == "user":
                made = make_plan(so_far, policy, terms(**of))
                so_far = begin_epoch(so_far, made.epoch) if made.begins else so_far
                requests.append(texts(composed(so_far, made)))
    return requests


def asked(policy: Policy, turns: int, **of: Any) -> list[list[str]]:
    """What a chat sends in so many turns: "0", "answer 0", "1" …"""
    provider = Scripted(*[says(f"answer {n}") for n in range(turns)])
    chat = Chat(provider, policy=policy, **of)
    state = None
    for n in range(turns):
        state = chat.send(str(n), state=state).state
    return [[message["content"] for message in json.loads(body)["messages"]] for body in provider.requests]
