"""Tools, rounds, retries and errors of a turn. The sync twin of this file is generated."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from longtalk import AsyncChat, Memory, ToolContext, TurnFailed, tool
from longtalk.errors import (
    AuthFailed,
    BadAnswer,
    ContextOverflow,
    Overloaded,
    RateLimited,
    RequestRefused,
    StreamCut,
    ToolError,
    TooManyRounds,
    Unreachable,
)
from longtalk.events import Checkpoint, Done, Text, ToolCall, ToolCallDelta, ToolResult
from longtalk.state.codec import decode, encode
from longtalk.testing import AsyncScripted, Step, says, validate
from longtalk.transcript.transcript import Entry
from longtalk.wires import NAMES
from longtalk.wires.entries import view_entry
from longtalk.wires.views import MessageView

pytestmark = pytest.mark.anyio


def lookup(q: str) -> str:
    """Look something up."""
    return f"about {q}"


def broken() -> str:
    """Never works."""
    raise OSError("disk on fire")


CALL = says(None, calls=[("c1", "lookup", {"q": "bows"})])
BOTH = says("Let me see.", calls=[("c1", "lookup", {"q": "bows"}), ("c2", "lookup", {"q": "strings"})])


def sent(provider: Any, i: int = -1) -> list[dict[str, Any]]:
    validate(provider.requests[i])
    messages: list[dict[str, Any]] = json.loads(provider.requests[i])["messages"]
    return messages


async def collect(stream: Any) -> list[Any]:
    return [event async for event in stream]


async def test_a_tool_is_run_and_its_result_sent() -> None:
    provider = AsyncScripted(CALL, says("Bows are …"))
    reply = await AsyncChat(provider, tools=[lookup]).send("x")
    assert reply.text == "Bows are …"
    assert sent(provider)[-1] == {"role": "tool", "tool_call_id": "c1", "content": "about bows"}


async def test_parallel_calls_are_all_answered() -> None:
    provider = AsyncScripted(BOTH, says("done"))
    await AsyncChat(provider, tools=[lookup]).send("x")
    assert {m["tool_call_id"]: m["content"] for m in sent(provider)[2:]} == {
        "c1": "about bows",
        "c2": "about strings",
    }


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_is_read_once(monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    again = []

    def view(entry: Entry) -> MessageView:
        again.append(entry.role)
        return view_entry(entry)

    monkeypatch.setattr("longtalk.wires.pairing.view_entry", view)
    chat = AsyncChat(AsyncScripted(BOTH, says("done")), tools=[lookup])
    reply = (await collect(chat.stream("x")))[-1].reply if stream else await chat.send("x")
    assert reply.text == "done"
    assert "assistant" not in again


async def test_the_whole_exchange_is_in_the_state() -> None:
    provider = AsyncScripted(BOTH, says("done"), says("ok"))
    chat = AsyncChat(provider, tools=[lookup])
    reply = await chat.send("x")
    await chat.send("y", state=reply.state)
    assert [m["role"] for m in sent(provider)] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert len(reply.raw_usage) == 2
    assert decode(reply.state, wires=NAMES).exchanges() == [(0, 5)]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (("c1", "nothing", {}), "no tool 'nothing'"),
        (("c1", "broken", {}), "disk on fire"),
        (("c1", "lookup", {"q": 3}), "q"),
        (("c1", "lookup", "{not json"), "lookup"),
    ],
)
async def test_what_goes_wrong_with_a_tool_is_told_to_the_model(call: Any, said: str) -> None:
    provider = AsyncScripted(says(None, calls=[call]), says("I see."))
    reply = await AsyncChat(provider, tools=[lookup, broken]).send("x")
    assert said in sent(provider)[-1]["content"]
    assert reply.entries[2].mark == "error"
    assert reply.text == "I see."


async def test_a_tool_can_know_its_call() -> None:
    def who(context: ToolContext) -> str:
        """Who calls."""
        return f"{context.name} {context.call_id}"

    provider = AsyncScripted(says(None, calls=[("c9", "who", {})]), says("ok"))
    await AsyncChat(provider, tools=[who]).send("x")
    assert sent(provider)[-1]["content"] == "who c9"


async def test_tools_of_a_turn_replace_those_of_the_chat() -> None:
    provider = AsyncScripted(says("a"))
    await AsyncChat(provider, tools=[lookup, broken]).send("x", tools=[lookup])
    assert [t["function"]["name"] for t in json.loads(provider.requests[0])["tools"]] == ["lookup"]


async def test_an_unsuitable_tool_is_refused_when_the_chat_is_made() -> None:
    def anything(*args: str) -> str:
        """Takes anything."""
        return ""

    with pytest.raises(ToolError, match="anything"):
        AsyncChat(AsyncScripted(), tools=[anything])


async def test_the_rounds_have_a_limit_and_the_work_is_kept() -> None:
    provider = AsyncScripted(*[says(None, calls=[(f"c{i}", "lookup", {"q": "x"})]) for i in range(4)], says("ok"))
    chat = AsyncChat(provider, tools=[lookup])
    with pytest.raises(TooManyRounds, match="max_rounds") as caught:
        await chat.send("x", max_rounds=3)
    assert len(provider.requests) == 4
    assert caught.value.partial is not None
    assert caught.value.partial.finish_reason == "failed"
    await chat.send("go on", state=caught.value.state)
    assert [m["role"] for m in sent(provider)].count("tool") == 4


async def test_an_instruction_stays_behind_the_message_while_tools_run() -> None:
    provider = AsyncScripted(CALL, says("done"))
    await AsyncChat(provider, tools=[lookup]).send("x", instruction="Be brief.")
    assert [m["role"] for m in sent(provider)] == ["user", "system", "assistant", "tool"]


async def test_an_instruction_without_a_message_goes_behind_the_events() -> None:
    provider = AsyncScripted(says("a"), says("b"))
    chat = AsyncChat(provider)
    state = await chat.note("seen", state=(await chat.send("x")).state)
    await chat.send(None, state=state, instruction="Now.")
    assert [m["content"] for m in sent(provider)][-1] == "Now."


@pytest.mark.parametrize("data", [b"{", b"{}", b"[]", b'{"text":"kept","place":1}'])
async def test_an_instruction_that_tools_stand_behind_stays_and_a_forged_one_does_no_harm(data: bytes) -> None:
    provider = AsyncScripted(CALL, says("done"), says("ok"))
    chat = AsyncChat(provider, tools=[lookup])
    transcript = decode((await chat.send("x", instruction="kept")).state, wires=NAMES)
    kept = [record for record in transcript.records if record.kind == "aside"]
    assert len(kept) == 1
    forged = msgspec.structs.replace(kept[0], data=data)
    await chat.send("y", state=encode(transcript.with_records([forged])))
    assert ("kept" in [m["content"] for m in sent(provider)]) == (b"kept" in data)


# Streams


async def test_a_stream_tells_what_happens_and_ends_with_the_reply() -> None:
    provider = AsyncScripted(BOTH, says("Both found."))
    events = await collect(AsyncChat(provider, tools=[lookup]).stream("x"))
    kinds = [type(event) for event in events if not isinstance(event, Text | ToolCallDelta)]
    assert kinds[:3] == [ToolCall, ToolCall, Checkpoint]
    assert kinds[3:] == [ToolResult, Checkpoint, ToolResult, Checkpoint, Done]
    assert "".join(e.text for e in events if isinstance(e, Text)) == "Let me see.Both found."
    assert events[-1].reply.text == "Both found."


@pytest.mark.parametrize("card", ["", "<MEMORY_CARD>{}</MEMORY_CARD>"])
async def test_a_stream_shows_no_memory_card_and_all_that_is_none(card: str) -> None:
    text = f"Play <b>. <MEMORY_CARD>{{}}</MEMORY_CARD> 1 <{card}"
    chat = AsyncChat(AsyncScripted(says(text, pieces=len(text))), policy=Memory())
    events = await collect(chat.stream("x"))
    told = [event.text for event in events if isinstance(event, Text)]
    assert told[-2:] == [" ", "<"]
    assert "".join(told) == events[-1].reply.text == "Play <b>. <MEMORY_CARD>{}</MEMORY_CARD> 1 <"


async def test_an_answer_of_a_memory_card_alone_tells_nothing() -> None:
    chat = AsyncChat(AsyncScripted(says("<MEMORY_CARD>{}</MEMORY_CARD>")), policy=Memory())
    events = await collect(chat.stream("x"))
    assert not [event for event in events if isinstance(event, Text)]
    assert events[-1].reply.text == ""


async def test_a_streamed_conversation_is_the_same_as_a_whole_one() -> None:
    whole, streamed = AsyncScripted(CALL, says("done"), says("ok")), AsyncScripted(CALL, says("done"), says("ok"))
    a = AsyncChat(whole, tools=[lookup])
    b = AsyncChat(streamed, tools=[lookup])
    first = await a.send("x")
    await a.send("y", state=first.state)
    state = (await collect(b.stream("x")))[-1].reply.state
    await collect(b.stream("y", state=state))
    assert sent(whole) == sent(streamed)


async def test_each_checkpoint_is_newer_than_the_last() -> None:
    from longtalk import peek

    events = await collect(AsyncChat(AsyncScripted(BOTH, says("done")), tools=[lookup]).stream("x"))
    states = [
        e.state if isinstance(e, Checkpoint) else e.reply.state for e in events if isinstance(e, Checkpoint | Done)
    ]
    revisions = [peek(state).revision for state in states]
    assert revisions == sorted(set(revisions))


async def test_a_turn_goes_on_from_a_checkpoint_without_repeating_a_finished_call() -> None:
    ran = []

    def count(q: str) -> str:
        """Counts."""
        ran.append(q)
        return q

    script = says(None, calls=[("c1", "count", {"q": "a"}), ("c2", "count", {"q": "b"})])
    events = await collect(AsyncChat(AsyncScripted(script, says("x")), tools=[count]).stream("x"))
    last = [e for e in events if isinstance(e, Checkpoint)][-1]
    ran.clear()
    provider = AsyncScripted(says("Done after all."))
    reply = await AsyncChat(provider, tools=[count]).send(None, state=last.state)
    assert ran == []
    assert reply.text == "Done after all."
    assert [m["role"] for m in sent(provider)] == ["user", "assistant", "tool", "tool"]
    assert len(decode(reply.state, wires=NAMES).turns) == 1


@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_started_call_is_run_again_only_if_it_may_be(idempotent: bool) -> None:
    ran = []

    @tool(idempotent=idempotent)
    def pay(amount: int) -> str:
        """Pays."""
        ran.append(amount)
        return "paid"

    script = says(None, calls=[("c1", "pay", {"amount": 3})])
    events = await collect(AsyncChat(AsyncScripted(script, says("x")), tools=[pay]).stream("x"))
    before = next(e for e in events if isinstance(e, Checkpoint))
    ran.clear()
    provider = AsyncScripted(says("ok"))
    await AsyncChat(provider, tools=[pay]).send(None, state=before.state)
    assert ran == ([3] if idempotent else [])
    assert ("paid" if idempotent else "Outcome unknown") in sent(provider)[-1]["content"]


async def test_a_new_message_on_a_checkpoint_comes_after_the_closed_calls() -> None:
    events = await collect(AsyncChat(AsyncScripted(BOTH, says("x")), tools=[lookup]).stream("x"))
    before = next(e for e in events if isinstance(e, Checkpoint))
    provider = AsyncScripted(says("ok"))
    reply = await AsyncChat(provider, tools=[lookup]).send("Never mind.", state=before.state)
    assert [m["role"] for m in sent(provider)] == ["user", "assistant", "tool", "tool", "user"]
    assert [t.status for t in decode(reply.state, wires=NAMES).turns] == ["interrupted", "complete"]
    assert decode(reply.state, wires=NAMES).exchanges() == [(0, 4), (4, 6)]


async def test_a_note_on_a_checkpoint_comes_after_the_closed_calls() -> None:
    events = await collect(AsyncChat(AsyncScripted(BOTH, says("x")), tools=[lookup]).stream("x"))
    before = next(e for e in events if isinstance(e, Checkpoint))
    provider = AsyncScripted(says("ok"))
    chat = AsyncChat(provider, tools=[lookup])
    await chat.send("y", state=await chat.note("a crash", state=before.state))
    assert [m["role"] for m in sent(provider)] == ["user", "assistant", "tool", "tool", "system", "user"]


async def test_work_of_an_earlier_run_is_kept_when_the_provider_fails() -> None:
    ran = []

    @tool(idempotent=True)
    def order(x: int) -> str:
        """Orders."""
        ran.append(x)
        return "ordered"

    script = says(None, calls=[("c1", "order", {"x": 3})])
    events = await collect(AsyncChat(AsyncScripted(script, says("x")), tools=[order]).stream("x"))
    state: Any = next(e for e in events if isinstance(e, Checkpoint)).state
    ran.clear()
    for _ in range(3):
        with pytest.raises(TurnFailed) as caught:
            await AsyncChat(AsyncScripted(RequestRefused("down")), tools=[order]).send(None, state=state)
        state = caught.value.state
    assert ran == [3]


# Errors and retries


@pytest.mark.parametrize("kind", [Overloaded, RateLimited, Unreachable])
async def test_what_may_pass_is_tried_again(kind: Any) -> None:
    provider = AsyncScripted(kind("trouble"), kind("trouble"), says("a"))
    reply = await AsyncChat(provider).send("x")
    assert reply.text == "a"
    assert provider.requests[0] == provider.requests[2]


async def test_tries_have_an_end_and_the_message_can_be_sent_again() -> None:
    provider = AsyncScripted(says("a"), *[Overloaded("trouble") for _ in range(3)])
    chat = AsyncChat(provider)
    state = (await chat.send("x")).state
    with pytest.raises(Overloaded) as caught:
        await chat.send("y", state=state)
    assert caught.value.partial is None
    assert caught.value.state == state


@pytest.mark.parametrize("kind", [AuthFailed, RequestRefused, ContextOverflow, BadAnswer])
async def test_what_would_fail_again_is_not_tried_again(kind: Any) -> None:
    provider = AsyncScripted(kind("no"))
    with pytest.raises(kind):
        await AsyncChat(provider).send("x")
    assert len(provider.requests) == 1


async def test_a_hint_beyond_a_minute_is_left_to_the_caller() -> None:
    provider = AsyncScripted(RateLimited("later", retry_after=3600.0))
    with pytest.raises(RateLimited) as caught:
        await AsyncChat(provider).send("x")
    assert caught.value.retry_after == 3600.0


async def test_a_failure_after_tools_keeps_their_results() -> None:
    provider = AsyncScripted(CALL, RequestRefused("no", status=404), says("ok"))
    chat = AsyncChat(provider, tools=[lookup])
    with pytest.raises(TurnFailed) as caught:
        await chat.send("x")
    assert caught.value.partial is not None
    assert [entry.role for entry in caught.value.partial.entries] == ["user", "assistant", "tool"]
    reply = await chat.send(None, state=caught.value.state)
    assert reply.text == "ok"
    assert [m["role"] for m in sent(provider)] == ["user", "assistant", "tool"]


async def test_a_stream_that_breaks_keeps_what_was_said_and_is_not_tried_again() -> None:
    events = (*says("Once upon a time", pieces=4).events[:3], StreamCut("cut"))
    provider = AsyncScripted(Step(b"", events), says("ok"))
    chat = AsyncChat(provider)
    with pytest.raises(StreamCut) as caught:
        await collect(chat.stream("x"))
    assert caught.value.partial is not None
    assert caught.value.partial.text == "Once upo"
    assert len(provider.requests) == 1
    await chat.send("y", state=caught.value.state)
    assert [m["role"] for m in sent(provider)] == ["user", "assistant", "user"]


async def test_a_stream_that_just_ends_is_cut() -> None:
    provider = AsyncScripted(Step(b"", says("Once upon").events[:3]))
    with pytest.raises(StreamCut, match="before the answer was complete"):
        await collect(AsyncChat(provider).stream("x"))


async def test_an_error_inside_a_stream_is_typed() -> None:
    error = b'{"error":{"type":"overloaded_error","message":"busy"}}'
    provider = AsyncScripted(Step(b"", (*says("Once upon").events[:3], error)))
    with pytest.raises(Overloaded, match="busy") as caught:
        await collect(AsyncChat(provider).stream("x"))
    assert caught.value.partial is not None


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"choices":[]}', b'{"choices":[{"message":3}]}'])
async def test_an_answer_that_is_none_is_an_error_that_shows_it(body: bytes) -> None:
    with pytest.raises(BadAnswer) as caught:
        await AsyncChat(AsyncScripted(Step(body))).send("x")
    assert caught.value.body == body


async def test_an_error_that_is_not_ours_carries_the_work_too() -> None:
    class Stopped(BaseException):
        pass

    def stop() -> str:
        """Stops everything."""
        raise Stopped

    provider = AsyncScripted(says(None, calls=[("c1", "lookup", {"q": "a"})]), says(None, calls=[("c2", "stop", {})]))
    with pytest.raises(Stopped) as caught:
        await AsyncChat(provider, tools=[lookup, stop]).send("x")
    partial: Any = caught.value.partial  # type: ignore[attr-defined]
    assert [entry.role for entry in partial.entries] == ["user", "assistant", "tool", "assistant", "tool"]
    assert partial.finish_reason == "interrupted"
    assert b"Outcome unknown" in partial.entries[-1].native


# What servers refuse


async def test_a_field_that_the_server_refuses_is_left_out_and_remembered() -> None:
    refusal = RequestRefused("no", status=400, body=b"property 'reasoning_content' is unsupported")
    provider = AsyncScripted(says("a", fields={"reasoning_content": "hm"}), refusal, says("b"), says("c"))
    chat = AsyncChat(provider)
    first = await chat.send("x")
    second = await chat.send("y", state=first.state)
    assert [notice.kind for notice in second.notices] == ["server_refused"]
    assert b"reasoning_content" not in provider.requests[2]
    third = await chat.send("z", state=second.state)
    assert b"reasoning_content" not in provider.requests[3]
    assert third.notices == ()
    assert b"reasoning_content" in decode(third.state, wires=NAMES)[1].native


async def test_a_lesson_is_for_the_server_that_taught_it() -> None:
    refusal = RequestRefused("no", status=422, body=b'{"loc":["body","messages",1,"reasoning_content"]}')
    provider = AsyncScripted(says("a", fields={"reasoning_content": "hm"}), refusal, says("b"))
    chat = AsyncChat(provider)
    state = (await chat.send("y", state=(await chat.send("x")).state)).state
    other = AsyncScripted(says("c"))
    other.label = "other:model"
    await AsyncChat(other).send("z", state=state)
    assert b"reasoning_content" in other.requests[0]


async def test_a_server_that_refuses_its_own_half_of_an_emoji_gets_a_whole_character() -> None:
    refusal = RequestRefused("no", status=400, body=b"invalid low surrogate in string")
    answer = Step(b'{"choices":[{"message":{"role":"assistant","content":"half \\ud83d"}}]}')
    provider = AsyncScripted(answer, refusal, says("b"))
    chat = AsyncChat(provider)
    await chat.send("y", state=(await chat.send("x")).state)
    assert b'"half \\ud83d"' in provider.requests[1]
    assert b'"half \\ufffd"' in provider.requests[2]


async def test_two_calls_with_one_id_are_both_answered() -> None:
    twice = says(None, calls=[("c", "lookup", {"q": "a"}), ("c", "lookup", {"q": "b"})])
    provider = AsyncScripted(twice, says("ok"))
    await AsyncChat(provider, tools=[lookup]).send("x")
    assert sorted(m["content"] for m in sent(provider)[2:]) == ["about a", "about b"]


async def test_a_server_that_wants_strict_turns_gets_them() -> None:
    refusal = RequestRefused("no", status=400, body=b"Conversation roles must alternate user/assistant/user/assistant")
    provider = AsyncScripted(refusal, says("a"))
    chat = AsyncChat(provider)
    await chat.send("x", state=await chat.note("seen"), system="S", instruction="I")
    assert [m["role"] for m in sent(provider)] == ["system", "user"]
    assert [part["text"].split("\n")[-2:][0] for part in sent(provider)[1]["content"]] == ["seen", "x", "I"]


async def test_lessons_have_an_end() -> None:
    fields = {f"x_{i}": i for i in range(50)}
    refusals = [RequestRefused("no", status=400, body=b"unknown field 'x_%d'" % i) for i in range(50)]
    provider = AsyncScripted(says("a", fields=fields), *refusals)
    chat = AsyncChat(provider)
    state = (await chat.send("x")).state
    with pytest.raises(RequestRefused):
        await chat.send("y", state=state)
    assert len(provider.requests) < 10


@pytest.mark.parametrize(
    "message",
    [
        {"role": "model", "content": "x"},
        {"role": "tool", "content": "x", "tool_call_id": "z"},
        {"role": "assistant", "content": 5},
        {"role": "assistant", "content": ["x"]},
        {"role": "assistant", "content": [{"text": "x"}]},
        {"role": "assistant", "content": "x", "tool_calls": "none"},
        {"role": "assistant", "content": None, "audio": {}},
        {"role": "assistant", "content": 5, "tool_calls": [{"id": "\ud800", "function": {"name": "f"}}]},
    ],
)
async def test_an_answer_of_an_odd_form_does_not_spoil_the_conversation(message: Any) -> None:
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
    provider = AsyncScripted(Step(body), *[says("ok")] * 2)
    chat = AsyncChat(provider)
    await chat.send("y", state=(await chat.send("x")).state)
    for request in provider.requests:
        validate(request)


async def test_a_refusal_in_a_field_that_the_server_refuses_goes_in_words() -> None:
    refusal = RequestRefused("no", status=400, body=b"property 'refusal' is unsupported")
    provider = AsyncScripted(says(None, fields={"refusal": "I can't."}), refusal, says("b"))
    chat = AsyncChat(provider)
    await chat.send("y", state=(await chat.send("x")).state)
    assert sent(provider)[1] == {"role": "assistant", "content": "I can't."}


async def test_a_refusal_that_teaches_nothing_is_an_error() -> None:
    provider = AsyncScripted(RequestRefused("no", status=400, body=b"temperature must be below 2"))
    with pytest.raises(RequestRefused):
        await AsyncChat(provider).send("x")
