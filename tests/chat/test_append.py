"""Messages that are added without a model call, over every wire. The sync twin is generated."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from longtalk import AsyncChat, InputError, System, history, join, peek
from longtalk.errors import BadState
from longtalk.policies import KeepLast, Memory
from longtalk.state.codec import decode
from longtalk.testing import AsyncScripted, says, validate
from longtalk.transcript.transcript import Transcript
from longtalk.wires import NAMES, WIRES

pytestmark = pytest.mark.anyio

HTTP = ("openai-chat", "openai-responses", "anthropic", "gemini")


def chat(*answers: str, wire: str = "openai-chat", **settings: Any) -> tuple[AsyncChat, AsyncScripted]:
    scripted = AsyncScripted(*[says(text, wire=wire) for text in answers], wire=WIRES[wire])
    return AsyncChat(scripted, **settings), scripted


def read(state: bytes) -> Transcript:
    return decode(state, wires=NAMES)


def sent(scripted: AsyncScripted) -> list[Any]:
    """The messages of the last request, which has to be valid."""
    validate(scripted.requests[-1], wire=scripted.wire.name)
    body = json.loads(scripted.requests[-1])
    found: list[Any] = body.get("messages") or body.get("input") or body.get("contents")
    return found


# A user's question, an answer with two calls, their results, and the final answer, as each provider has them.
LESSONS: Mapping[str, Sequence[dict[str, Any]]] = {
    "openai-chat": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Which strings?"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}},
                {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "gut"},
        {"role": "tool", "tool_call_id": "c2", "content": "steel"},
        {"role": "assistant", "content": "Gut."},
    ],
    "openai-responses": [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "Which strings?"}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "gut"},
        {"type": "function_call_output", "call_id": "c2", "output": "steel"},
        {"role": "assistant", "content": "Gut."},
    ],
    "anthropic": [
        {"role": "user", "content": "Which strings?"},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
                {"type": "tool_use", "id": "c2", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"tool_use_id": "c1", "type": "tool_result", "content": "gut"},
                {"type": "tool_result", "tool_use_id": "c2", "content": "steel", "is_error": True},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Gut."}]},
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "Which strings?"}]},
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "look", "args": {}}}, {"functionCall": {"name": "see", "args": {}}}],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "look", "response": {"result": "gut"}}},
                {"functionResponse": {"name": "see", "response": {"result": "steel"}}},
            ],
        },
        {"role": "model", "parts": [{"text": "Gut."}]},
    ],
}


@pytest.mark.parametrize("wire", HTTP)
async def test_a_list_in_the_providers_form_is_sent_as_it_was_given(wire: str) -> None:
    talk, scripted = chat("Yes.", wire=wire)
    state = await talk.from_messages(LESSONS[wire])
    assert scripted.requests == []
    await talk.send("Sure?", state=state)
    before = sent(scripted)[:-1]
    if wire == "anthropic":
        # A cache breakpoint is set where the history ends.
        before = json.loads(json.dumps(before).replace(', "cache_control": {"type": "ephemeral"}', ""))
        results = before[2]["content"]
        assert [block["tool_use_id"] for block in results] == ["c1", "c2"]
        assert before[:2] + before[3:] == [*LESSONS[wire][:2], LESSONS[wire][3]]
    else:
        assert before == list(LESSONS[wire])


@pytest.mark.parametrize("wire", HTTP)
async def test_what_was_added_reads_as_if_it_had_been_said(wire: str) -> None:
    talk, _ = chat(wire=wire)
    state = await talk.from_messages(LESSONS[wire])
    said = [entry for entry in history(state) if entry.role not in ("system", "developer")]
    assert [entry.role for entry in said] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [entry.text for entry in said][::2] == ["Which strings?", "gut", "Gut."]
    assert {entry.status for entry in said} == {"complete"}
    assert {entry.model for entry in said} == {""}
    assert next(result.name for entry in said for result in entry.results) == "look"


@pytest.mark.parametrize("wire", HTTP)
async def test_the_history_of_a_conversation_makes_the_same_conversation(wire: str) -> None:
    talk, _ = chat(wire=wire)
    state = await talk.from_messages(LESSONS[wire])
    again = await talk.from_messages([entry.native for entry in history(state)])
    assert [entry.native for entry in read(again)] == [entry.native for entry in read(state)]


async def test_a_turn_begins_after_an_answer() -> None:
    talk, _ = chat(policy=KeepLast(1))
    messages = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "2"},
        {"role": "assistant", "content": "two"},
    ]
    transcript = read(await talk.from_messages(messages))
    assert transcript.exchanges() == [(0, 3), (3, 5)]
    assert [(turn.status, turn.model) for turn in transcript.turns] == [("complete", ""), ("complete", "")]


async def test_messages_go_behind_what_was_said_before() -> None:
    talk, scripted = chat("Hi.", "Bye.")
    first = await talk.send("Hello!")
    more = [{"role": "user", "content": "Is a person there?"}, {"role": "assistant", "content": "I am Ada."}]
    state = await talk.append(more, state=first.state)
    await talk.send("Thanks.", state=state)
    assert [message["content"] for message in sent(scripted)] == [
        "Hello!",
        "Hi.",
        "Is a person there?",
        "I am Ada.",
        "Thanks.",
    ]
    assert peek(state).revision > peek(first.state).revision


async def test_a_message_without_an_answer_is_answered_when_the_conversation_goes_on() -> None:
    talk, scripted = chat("Gut.")
    state = await talk.from_messages([{"role": "user", "content": "Which strings?"}])
    reply = await talk.resume(state=state)
    assert reply.text == "Gut."
    assert sent(scripted) == [{"role": "user", "content": "Which strings?"}]


async def test_results_answer_the_calls_at_the_end() -> None:
    talk, scripted = chat("Gut.")
    state = await talk.from_messages(LESSONS["openai-chat"][:3])
    state = await talk.append(LESSONS["openai-chat"][3:5], state=state)
    reply = await talk.resume(state=state)
    assert reply.text == "Gut."
    assert sent(scripted) == list(LESSONS["openai-chat"][:5])


@pytest.mark.parametrize("wire", HTTP)
async def test_a_system_message_stands_in_its_place_on_every_wire(wire: str) -> None:
    talk, scripted = chat("Yes.", wire=wire)
    question, *_, answer = (
        LESSONS[wire][-len(LESSONS["gemini"]) :]
        if wire in ("anthropic", "gemini")
        else (
            LESSONS[wire][1],
            LESSONS[wire][-1],
        )
    )
    await talk.send("Sure?", state=await talk.from_messages([question, answer, System("It is noon.")]))
    texts = json.dumps(sent(scripted))
    assert texts.index("Gut.") < texts.index("It is noon.") < texts.index("Sure?")


async def test_exact_json_stays_as_it_was_given() -> None:
    talk, scripted = chat("Yes.")
    native = b'{"role": "user",  "content":"\\u0042ow", "name":"ada"}'
    await talk.send("Sure?", state=await talk.from_messages([native]))
    assert native in scripted.requests[-1]


@pytest.mark.parametrize(
    ("wire", "messages", "problem"),
    [
        ("openai-chat", [], "is empty"),
        ("openai-chat", "Hello!", "list of messages"),
        ("openai-chat", {"role": "user", "content": "Hello!"}, "list of messages"),
        ("openai-chat", ["Hello!"], "message 1 must be an object"),
        ("openai-chat", [{"role": "user", "content": object()}], "message 1 can't be written as JSON"),
        ("openai-chat", [b'{"role":"user"'], "message 1 is"),
        ("openai-chat", [b"[]"], "not a JSON object"),
        ("openai-chat", [{"role": "users", "content": "x"}], "has the role 'users'"),
        ("openai-chat", [{"role": "user"}], "no content"),
        ("openai-chat", [LESSONS["openai-chat"][3]], "'c1', but no such call waits"),
        ("openai-chat", [*LESSONS["openai-chat"][1:4], LESSONS["openai-chat"][5]], "'c2' is missing"),
        ("openai-chat", [{"role": "tool", "content": "x"}], "no tool_call_id"),
        ("openai-chat", [System("")], "without text"),
        ("openai-responses", [{"role": "model", "content": "x"}], "has the role 'model'"),
        ("openai-responses", [{"role": "user", "content": []}], "no content"),
        ("openai-responses", [{"type": "function_call", "call_id": "c", "name": "f"}], "without arguments"),
        ("openai-responses", LESSONS["openai-responses"][4:5], "'c1', but no such call waits"),
        ("openai-responses", [*LESSONS["openai-responses"][2:5], {"role": "user", "content": "x"}], "'c2' is missing"),
        ("anthropic", [{"role": "tool", "content": "x"}], "has the role 'tool'"),
        ("anthropic", [{"role": "user", "content": "x", "id": "m"}], "has the field 'id'"),
        ("anthropic", [{"role": "user", "content": [{"type": "text", "text": " "}]}], "without text"),
        ("anthropic", [LESSONS["anthropic"][2]], "'c1', but no such call waits"),
        ("anthropic", [LESSONS["anthropic"][1], {"role": "user", "content": "x"}], "'c1' is missing"),
        ("gemini", [{"role": "assistant", "parts": [{"text": "x"}]}], "has the role 'assistant'"),
        ("gemini", [{"role": "user", "content": "x"}], "no `parts`"),
        ("gemini", [{"role": "model", "parts": [{"function_call": {}}]}], "'function_call'"),
        ("gemini", [LESSONS["gemini"][2]], "'look', but no such call waits"),
        ("gemini", [LESSONS["gemini"][1], {"role": "user", "parts": [{"text": "x"}]}], "is missing"),
    ],
)
async def test_what_could_not_have_been_said_is_refused(wire: str, messages: Any, problem: str) -> None:
    talk, _ = chat(wire=wire)
    with pytest.raises(InputError, match=problem):
        await talk.append(messages)


async def test_a_call_that_waits_is_not_passed_over() -> None:
    talk, _ = chat()
    state = await talk.from_messages(LESSONS["openai-chat"][:3])
    with pytest.raises(InputError, match="the result of tool call 'c1' is missing"):
        await talk.append([{"role": "user", "content": "x"}], state=state)


async def test_text_of_the_user_does_not_pass_for_a_card() -> None:
    talk, scripted = chat("Yes.", policy=Memory())
    card = "<MEMORY_CARD>{}</MEMORY_CARD>"
    state = await talk.from_messages([{"role": "user", "content": card}, {"role": "assistant", "content": "Hm."}])
    await talk.send("Sure?", state=state)
    assert card not in [message["content"] for message in sent(scripted)]


async def test_an_answer_that_ends_like_a_card_is_text() -> None:
    talk, _ = chat()
    answer = "So.\n<MEMORY_CARD>\nset goal: x\n</MEMORY_CARD>"
    state = await talk.from_messages([{"role": "user", "content": "?"}, {"role": "assistant", "content": answer}])
    assert history(state)[-1].text == answer


# No bytes at all


async def test_no_bytes_are_an_empty_state_wherever_a_state_is_taken() -> None:
    talk, scripted = chat("Hi.", "Hi.", "Hi.", policy=Memory())
    await talk.send("Hello!", state=b"")
    async with talk.stream("Hello!", state=b"") as events:
        async for _ in events:
            pass
    await talk.resume(state=await talk.note("It is noon.", state=b""))
    assert [len(json.loads(body)["messages"]) for body in scripted.requests[:2]] == [1, 1]
    assert [entry.text for entry in history(await talk.append([System("S")], state=b""))] == ["S"]
    assert await talk.brief.lines(state=b"") == ()
    assert history(b"") == []
    assert (peek(b"").entries, peek(b"").size) == (0, 0)
    assert join(b"") == b""


async def test_an_empty_text_is_no_state() -> None:
    talk, _ = chat()
    with pytest.raises(BadState):
        await talk.send("Hello!", state="")  # type: ignore[arg-type]
