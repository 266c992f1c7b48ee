"""The history of the conversation in a state."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import Chat, InputError, Seal, history
from longtalk.archive.history import to_history
from longtalk.errors import BadState
from longtalk.events import ToolResult
from longtalk.providers.scripted.script import Step
from longtalk.testing import Scripted, says
from longtalk.transcript.responses import add_response
from longtalk.transcript.transcript import Entry, Turn
from longtalk.usage import Usage
from longtalk.wires import HTTP_WIRES, WIRES
from longtalk.wires.neutral import event
from longtalk.wires.pairing import check_pairs
from tests.support.strategies import values


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


CARD = "<MEMORY_CARD>{}</MEMORY_CARD>"


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@pytest.mark.parametrize("wire", sorted(HTTP_WIRES))
def test_an_entry_has_its_calls_results_usage_model_response_and_finish(wire: str) -> None:
    model = Scripted(
        says(None, calls=[("c1", "add", {"a": 1, "b": 2})], wire=wire), says("3.", wire=wire), wire=WIRES[wire]
    )
    asked, called, result, answered = history(Chat(model, tools=[add]).send("1 + 2?").state)
    assert (asked.calls, asked.results, asked.usage, asked.response, asked.model) == ((), (), None, None, "")
    ((_, name, arguments),) = [(call.id, call.name, json.loads(call.arguments)) for call in called.calls]
    assert (name, arguments) == ("add", {"a": 1, "b": 2})
    assert called.text == f"[calls add({called.calls[0].arguments.decode()})]"
    assert result.results == (ToolResult(called.calls[0].id, "add", "3", failed=False),)
    assert [(each.finish_reason, each.model) for each in (called, answered)] == [
        ("tool_calls", "scripted:model"),
        ("stop", "scripted:model"),
    ]
    assert [each.usage and each.usage.output for each in (called, answered)] == [5, 5]
    reasons = {
        "openai-chat": ["tool_calls", "stop"],
        "anthropic": ["tool_use", "end_turn"],
        "gemini": ["STOP", "STOP"],
        "openai-responses": ["completed", "completed"],
    }
    assert [each.raw_finish_reason for each in (called, answered)] == reasons[wire]


@pytest.mark.parametrize(
    ("wire", "body", "id"),
    [
        ("openai-chat", b'{"id":"r-1","choices":[{"message":{"role":"assistant","content":"a"}}]}', "r-1"),
        ("anthropic", b'{"id":"r-1","content":[{"type":"text","text":"a"}]}', "r-1"),
        ("gemini", b'{"responseId":"r-1","candidates":[{"content":{"parts":[{"text":"a"}],"role":"model"}}]}', "r-1"),
        ("openai-responses", b'{"id":"r-1","output":[{"type":"message","content":"a"}],"instructions":"x"}', "r-1"),
        ("openai-chat", b'{"choices":[{"message":{"role":"assistant","content":"a"}}]}', ""),
    ],
)
def test_the_id_of_the_response_is_kept(wire: str, body: bytes, id: str) -> None:  # noqa: A002
    reply = Chat(Scripted(Step(body), wire=WIRES[wire])).send("x", system="secret")
    answer = history(reply.state)[1]
    assert (answer.response_id, [each.id for each in reply.responses]) == (id, [id])
    assert answer.response is not None
    assert "instructions" not in answer.response.fields


def test_a_turn_without_responses_has_its_usage_all_the_same() -> None:
    entries = [
        Entry(id="t-0", turn="t", role="user", wire="openai-chat", native=b'{"role":"user","content":"x"}', at=1),
        Entry(id="t-1", turn="t", role="assistant", wire="openai-chat", native=b'{"content":"a"}', at=1),
    ]
    turn = Turn("t", "complete", "a:b", 1, finish="length", usage=(b'{"prompt_tokens":3,"completion_tokens":2}',))
    answer = to_history(entries, [turn])[1]
    assert (answer.usage, answer.model, answer.finish_reason, answer.response) == (Usage(3, 2), "a:b", "length", None)
    unclear = msgspec.structs.replace(turn, usage=turn.usage * 2, responses=(b"nonsense", b'{"entry":"x"}'))
    assert to_history(entries, [unclear])[1].usage is None


def test_a_summary_in_between_takes_no_answer_its_usage() -> None:
    entry = Entry(id="t-1", turn="t", role="assistant", wire="openai-chat", native=b'{"content":"a"}', at=1)
    reports = (b'{"prompt_tokens":900}', b'{"prompt_tokens":3,"completion_tokens":2}')
    turn = Turn("t", "complete", "a:b", 1, usage=reports)
    turn = add_response(turn, entry=1, has_usage=True, finish="stop", native=b'{"id":"r"}')
    (answer,) = to_history([entry], [turn])
    assert (answer.usage, answer.response_id) == (Usage(3, 2), "r")


@pytest.mark.parametrize(
    ("wire", "role", "native", "text"),
    [
        ("openai-chat", "user", {"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "[image]"),
        ("anthropic", "user", {"role": "user", "content": [{"type": "image", "source": {}}]}, "[image]"),
        ("gemini", "user", {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png"}}]}, "[image]"),
        ("openai-responses", "user", {"role": "user", "content": [{"type": "input_image"}]}, "[image]"),
        ("openai-chat", "assistant", {"role": "assistant", "content": None, "refusal": "No."}, "No."),
        ("openai-chat", "assistant", {"role": "assistant", "content": None, "audio": {"id": "a"}}, "[audio]"),
        ("openai-chat", "assistant", {"role": "assistant", "content": "", "reasoning_content": "Hm."}, "[thinking]"),
        ("openai-chat", "assistant", {"role": "assistant", "content": " \n"}, "[empty]"),
        ("anthropic", "assistant", {"role": "assistant", "content": [{"type": "thinking"}]}, "[thinking]"),
        ("anthropic", "assistant", {"role": "assistant", "content": []}, "[empty]"),
        ("gemini", "assistant", {"role": "model", "parts": [{"text": "x", "thought": True}]}, "[thinking]"),
        ("openai-responses", "assistant", {"output": [{"type": "web_search_call"}]}, "[web_search_call]"),
        ("openai-chat", "tool", {"role": "tool", "tool_call_id": "c", "content": ""}, "[no output]"),
        (
            "anthropic",
            "tool",
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "image"}]}]},
            "[image]",
        ),
        ("longtalk", "system", {"text": ""}, "[empty]"),
        ("openai-chat", "user", {"role": "user", "content": CARD}, CARD),
        ("openai-chat", "assistant", {"role": "assistant", "content": CARD}, "[memory card]"),
    ],
)
def test_no_text_is_empty(wire: str, role: str, native: dict[str, Any], text: str) -> None:
    entry = Entry(id="t-0", turn="t", role=role, wire=wire, native=json.dumps(native).encode(), at=1)
    assert to_history([entry])[0].text == text


@given(st.sampled_from([*sorted(WIRES), "longtalk", "morse"]), st.binary() | values)
def test_whatever_an_entry_has_it_has_a_text(wire: str, native: bytes) -> None:
    entry = Entry(id="t-0", turn="t", role="assistant", wire=wire, native=native, at=1)
    assert to_history([entry], [Turn("t", "complete", "m", 1)])[0].text


def test_a_sealed_state_needs_its_key() -> None:
    seal = Seal({"k": Seal.new_key()})
    state = Chat(Scripted(says("a")), seal=seal).send("x").state
    assert [each.text for each in history(state, seal=seal)] == ["x", "a"]
    with pytest.raises(BadState):
        history(state)


def test_an_entry_in_an_unknown_wire_says_so() -> None:
    entry = Entry(id="t-0", turn="t", role="user", wire="morse", native=b"{}", at=1)
    (read,) = to_history([entry])
    assert (read.text, read.native) == ("[a message in the unknown format 'morse']", b"{}")
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
