"""A policy is tried on a conversation, which comes from a state or from messages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from longtalk import BadState, Chat, KeepLast, Seal
from longtalk.policies import Compactor, DropOldest, KeepAll, OverExchanges, Size, TokenBudget, View
from longtalk.state.codec import decode
from longtalk.testing import Scripted, WireViolation, says
from longtalk.testing.policies import PolicyViolation, check_policy, transcript_of
from longtalk.tokens import Estimator, of_message
from longtalk.wires import HTTP_WIRES, NAMES, WIRES


def look(q: str) -> str:
    """Look something up."""
    return f"about {q}"


def held(wire: str = "openai-chat", turns: int = 4) -> bytes:
    """The state of a conversation with an event and tools."""
    steps = [
        step
        for n in range(turns)
        for step in (says(None, calls=[(f"c{n}", "look", {"q": "bows"})], wire=wire), says(f"answer {n}", wire=wire))
    ]
    chat = Chat(Scripted(*steps, wire=WIRES[wire]), tools=[look])
    state = chat.note("It rains.")
    for n in range(turns):
        state = chat.send(f"question {n}", state=state).state
    return state


TALK: list[dict[str, Any]] = [
    message
    for n in range(6)
    for message in ({"role": "user", "content": f"question {n}"}, {"role": "assistant", "content": f"answer {n}"})
]


# Conversations


@pytest.mark.parametrize("wire", sorted(HTTP_WIRES))
def test_a_state_is_a_conversation(wire: str) -> None:
    state = held(wire)
    assert transcript_of(state) == decode(state, wires=NAMES)
    played = check_policy(KeepLast(2), transcript_of(state), wire=wire)
    assert played.requests == 8
    assert played.epochs == 2


def test_messages_are_one_as_bytes_and_as_mappings() -> None:
    natives = [json.dumps(message, separators=(",", ":")).encode() for message in TALK]
    transcript = transcript_of(TALK)
    assert transcript == transcript_of(natives) == transcript_of([*natives[:3], *TALK[3:]])
    assert [entry.native for entry in transcript] == natives
    assert [entry.role for entry in transcript] == ["user", "assistant"] * 6
    assert [entry.tokens for entry in transcript] == [of_message(native, Estimator()) for native in natives]
    assert len(transcript.exchanges()) == 6
    assert check_policy(KeepLast(2), transcript).epochs == 4


def test_bytes_of_a_message_stay_as_they_are() -> None:
    native = b'{ "role":"user",  "content":"caf\\u00e9" }'
    assert transcript_of([native])[0].native == native


def test_messages_are_of_the_wire_that_is_named() -> None:
    said = [
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
    ]
    transcript = transcript_of(said * 3, wire="anthropic")
    assert transcript.wires() == {"anthropic"}
    assert check_policy(KeepLast(1), transcript, wire="anthropic").requests == 3


def test_no_messages_are_an_empty_conversation() -> None:
    assert len(transcript_of([])) == 0
    assert check_policy(KeepAll(), transcript_of([])).requests == 0


@pytest.mark.parametrize("state", [b"", b"nonsense", Seal({"k": Seal.new_key()}).close(held(turns=1))])
def test_what_is_no_state_is_told_as_anywhere(state: bytes) -> None:
    with pytest.raises(BadState):
        transcript_of(state)


# Policies


@pytest.mark.parametrize("wrong", [KeepLast, TokenBudget, Compactor, 5, None, "KeepLast(5)", OverExchanges(5)])
def test_what_is_no_policy_is_a_violation(wrong: Any) -> None:
    with pytest.raises(PolicyViolation, match=r"is not a policy. Pass one such as KeepLast\(5\)"):
        check_policy(wrong, transcript_of(TALK))


@dataclass(frozen=True)
class Shy:
    """Fires, and does not reach what it asks for."""

    def fires(self, size: Size) -> bool:
        return size.exchanges > 2


@dataclass(frozen=True)
class Idle:
    def apply(self, view: View, limits: Compactor) -> View:
        return view


def test_a_limit_that_does_not_hold_is_a_violation() -> None:
    with pytest.raises(PolicyViolation, match=r"The request is Shy\(\): it has 3 exchanges"):
        check_policy(Compactor(Shy(), (Idle(),), Shy()), transcript_of(TALK))
    check_policy(Compactor(Shy(), (DropOldest(),), Shy()), transcript_of(TALK))


def test_a_conversation_that_no_server_would_take_is_one_of_the_wire() -> None:
    with pytest.raises(WireViolation):
        check_policy(KeepAll(), transcript_of([{"role": "user"}, TALK[1], *TALK]))
