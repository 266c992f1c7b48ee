"""The policy checker: which conversations it reads, and which policies it refuses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from longtalk import Chat, KeepLast, Seal
from longtalk.errors import BadState
from longtalk.policies import Compactor, DropOldest, KeepAll, OverExchanges, Size, TokenBudget, View
from longtalk.state.codec import decode
from longtalk.testing import Scripted, WireViolation, says
from longtalk.testing.policies import PolicyViolation, check_policy, transcript_of
from longtalk.tokens import Estimator, count_message
from longtalk.wires import HTTP_WIRES, NAMES, WIRES


def look(q: str) -> str:
    """Look something up."""
    return f"about {q}"


def make_state(wire: str = "openai-chat", turns: int = 4) -> bytes:
    """Return the state of a conversation with an event and tool calls."""
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
def test_a_policy_can_be_checked_on_a_state(wire: str) -> None:
    state = make_state(wire)
    assert transcript_of(state) == decode(state, wires=NAMES)
    played = check_policy(KeepLast(2), transcript_of(state), wire=wire)
    assert played.requests == 8
    assert played.epochs == 2


def test_messages_may_be_bytes_or_mappings() -> None:
    natives = [json.dumps(message, separators=(",", ":")).encode() for message in TALK]
    transcript = transcript_of(TALK)
    assert transcript == transcript_of(natives) == transcript_of([*natives[:3], *TALK[3:]])
    assert [entry.native for entry in transcript] == natives
    assert [entry.role for entry in transcript] == ["user", "assistant"] * 6
    assert [entry.tokens for entry in transcript] == [count_message(native, Estimator()) for native in natives]
    assert len(transcript.exchanges()) == 6
    assert check_policy(KeepLast(2), transcript).epochs == 4


def test_messages_in_bytes_stay_unchanged() -> None:
    native = b'{ "role":"user",  "content":"caf\\u00e9" }'
    assert transcript_of([native])[0].native == native


def test_messages_are_read_in_the_format_of_the_given_wire() -> None:
    said = [
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
    ]
    transcript = transcript_of(said * 3, wire="anthropic")
    assert transcript.wires() == {"anthropic"}
    assert check_policy(KeepLast(1), transcript, wire="anthropic").requests == 3


def test_an_empty_list_is_an_empty_conversation() -> None:
    assert len(transcript_of([])) == 0
    assert check_policy(KeepAll(), transcript_of([])).requests == 0


@pytest.mark.parametrize("state", [b"", b"nonsense", Seal({"k": Seal.new_key()}).close(make_state(turns=1))])
def test_an_invalid_state_raises_bad_state(state: bytes) -> None:
    with pytest.raises(BadState):
        transcript_of(state)


# Policies


@pytest.mark.parametrize("wrong", [KeepLast, TokenBudget, Compactor, 5, None, "KeepLast(5)", OverExchanges(5)])
def test_an_object_that_is_no_policy_is_a_violation(wrong: Any) -> None:
    with pytest.raises(PolicyViolation, match=r"is not a policy. Pass one such as KeepLast\(5\)"):
        check_policy(wrong, transcript_of(TALK))


@dataclass(frozen=True)
class OverTwoExchanges:
    """A trigger and target: more than two exchanges."""

    def fires(self, size: Size) -> bool:
        return size.exchanges > 2


@dataclass(frozen=True)
class DropNothing:
    """A strategy that leaves the view as it is."""

    def apply(self, view: View, limits: Compactor) -> View:
        return view


def test_a_policy_that_misses_its_target_is_a_violation() -> None:
    with pytest.raises(PolicyViolation, match=r"The request is OverTwoExchanges\(\): it has 3 exchanges"):
        check_policy(Compactor(OverTwoExchanges(), (DropNothing(),), OverTwoExchanges()), transcript_of(TALK))
    check_policy(Compactor(OverTwoExchanges(), (DropOldest(),), OverTwoExchanges()), transcript_of(TALK))


def test_a_conversation_that_breaks_a_wire_rule_raises_wire_violation() -> None:
    with pytest.raises(WireViolation):
        check_policy(KeepAll(), transcript_of([{"role": "user"}, TALK[1], *TALK]))
