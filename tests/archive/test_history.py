"""The history of the conversation in a state."""

from __future__ import annotations

import msgspec
import pytest

from longtalk import BadState, Chat, InputError, Seal, history
from longtalk.testing import Scripted, says
from longtalk.transcript.transcript import Entry
from longtalk.wires.neutral import event
from longtalk.wires.pairing import check_pairs


def test_a_state_can_be_read() -> None:
    chat = Chat(Scripted(says("Hello Ada."), says("b")))
    state = chat.note("tuned", state=chat.send("I'm Ada.").state, source="app")
    said = history(state)
    assert [(each.role, each.text) for each in said] == [
        ("user", "I'm Ada."),
        ("assistant", "Hello Ada."),
        ("event", "tuned"),
    ]
    assert said[0].native == b'{"role":"user","content":"I\'m Ada."}'


def test_a_sealed_state_needs_its_key() -> None:
    seal = Seal({"k": Seal.new_key()})
    state = Chat(Scripted(says("a")), seal=seal).send("x").state
    assert [each.text for each in history(state, seal=seal)] == ["x", "a"]
    with pytest.raises(BadState):
        history(state)


def test_an_entry_in_an_unknown_wire_has_no_text() -> None:
    from longtalk.archive.history import to_history

    entry = Entry(id="t-0", turn="t", role="user", wire="morse", native=b"{}", at=1)
    assert [(each.text, each.native) for each in to_history([entry])] == [("", b"{}")]
    check_pairs([entry])


@pytest.mark.parametrize(
    ("natives", "problem"),
    [
        ([b'{"role":"tool","tool_call_id":"c","content":"x"}'], "the result of an unknown tool call"),
        (
            [
                b'{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":""}}]}',
                b'{"role":"user","content":"x"}',
            ],
            "before the result of the tool call 'c'",
        ),
    ],
)
def test_calls_and_results_belong_together(natives: list[bytes], problem: str) -> None:
    entries = [
        Entry(id=f"t-{i}", turn="t", role="user", wire="openai-chat", native=native, at=1)
        for i, native in enumerate(natives)
    ]
    with pytest.raises(ValueError, match=problem):
        check_pairs(entries)


def test_an_event_between_a_call_and_its_result_is_noticed() -> None:
    call = b'{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":""}}]}'
    entries = [
        Entry(id="t-0", turn="t", role="assistant", wire="openai-chat", native=call, at=1),
        msgspec.structs.replace(event("tuned", source="app", at=1), id="t-1", turn="t"),
    ]
    with pytest.raises(ValueError, match="'t-1' comes before the result of the tool call 'c'"):
        check_pairs(entries)


def test_a_name_is_text() -> None:
    from longtalk import Archive

    with pytest.raises(InputError, match="owner of a conversation must be a string, not 7"):
        Archive(owner=7)  # type: ignore[arg-type]
