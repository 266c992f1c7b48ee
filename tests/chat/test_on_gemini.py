"""Conversations over the Gemini wire with a server that checks every rule. The sync twin is generated."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from longtalk import AsyncChat
from longtalk.errors import AuthFailed, ContextOverflow, InputError, Overloaded, RequestRefused
from longtalk.events import Checkpoint, Done, ToolCall
from longtalk.policies import KeepLast
from longtalk.state.codec import decode, encode
from longtalk.transcript.transcript import Entry, Transcript
from longtalk.wires import NAMES
from longtalk.wires.gemini.wire import WIRE
from tests.support.strict_gemini import KEY, MODEL, OTHER_KEY, StrictGemini

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[StrictGemini]:
    with StrictGemini() as strict:
        yield strict


def chat(server: StrictGemini, model: str = MODEL, **settings: Any) -> AsyncChat:
    settings = {"tools": [lookup, fetch], "api_key": KEY, **settings}
    return AsyncChat(f"gemini:{model}", base_url=server.url, **settings)


def lookup(q: str = "") -> str:
    """Look something up."""
    return f"about {q}"


def fetch(q: str = "") -> str:
    """Fetch something."""
    return f"fetched {q}"


def refusal(message: str) -> tuple[int, bytes]:
    return 400, json.dumps({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}).encode()


def signatures(server: StrictGemini, i: int = -1) -> int:
    return sum("thoughtSignature" in part for content in server.body(i)["contents"] for part in content["parts"])


async def talked(c: AsyncChat, message: str, *, stream: bool, **more: Any) -> bytes:
    """The state behind a turn."""
    if not stream:
        return (await c.send(message, **more)).state
    events = [event async for event in c.stream(message, **more)]
    assert isinstance(events[-1], Done)
    return events[-1].reply.state


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("stream", [False, True])
async def test_two_turns_with_tools_in_parallel_and_signatures(server: StrictGemini, stream: bool, ids: bool) -> None:
    server.ids = ids
    async with chat(server) as c:
        state = await talked(c, "#think #tools #tool What is a bow?", stream=stream, system="S")
        state = await talked(c, "#tools And a string?", stream=stream, state=state, system="S")
        reply = await c.send("Thank you.", state=state, system="S")
    assert server.violations == []
    assert (reply.finish_reason, reply.text) == ("stop", "You said: Thank you..")
    assert reply.usage.cached == 2
    contents = server.body()["contents"]
    assert [content["role"] for content in contents] == ["user", *["model", "user"] * 5]
    responses = [part["functionResponse"] for part in contents[2]["parts"]]
    assert [response["name"] for response in responses] == ["lookup", "fetch"]
    assert all(("id" in response) == ids for response in responses)
    assert server.body()["systemInstruction"] == {"parts": [{"text": "S"}]}


@pytest.mark.parametrize("flags", ["#odd", "#odd #think", "#odd #tools #tool", "#odd #think #tools"])
@pytest.mark.parametrize("stream", [False, True])
async def test_parts_come_back_byte_for_byte(server: StrictGemini, flags: str, stream: bool) -> None:
    server.chunk_bytes = 7
    async with chat(server) as c:
        state = await talked(c, f"{flags} x é", stream=stream)
        issued = list(server.issued)
        await c.send("y", state=state)
    assert server.violations == []
    assert issued
    assert [part for part in issued if part not in server.requests[-1]] == []
    # A request begins with the one before it.
    heads = [request.partition(b'"contents":[')[2][: -len(b"]}")] for request in server.requests]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(heads))


async def test_results_go_in_the_order_of_their_calls_whichever_is_first(server: StrictGemini) -> None:
    server.ids = False

    def slow(q: str = "") -> str:
        """Takes its time."""
        time.sleep(0.02)
        return f"slow {q}"

    async with chat(server, tools=[slow, fetch]) as c:
        reply = await c.send("#tools x")
    assert server.violations == []
    responses = [part["functionResponse"] for part in server.body()["contents"][2]["parts"]]
    assert [(each["name"], each["response"]["result"]) for each in responses] == [
        ("slow", "slow x 0"),
        ("fetch", "fetched x 1"),
    ]
    assert len({entry.native for entry in decode(reply.state, wires=NAMES)}) == 5


async def test_signatures_stay_when_older_exchanges_go_and_the_preamble_changes(server: StrictGemini) -> None:
    state: bytes | None = None
    async with chat(server, policy=KeepLast(2, sliding=True)) as c:
        for turn in range(6):
            flags = ["", "#think", "#tools"][turn % 3]
            reply = await c.send(f"{flags} {turn}", state=state, system=f"S{turn // 2}", instruction=f"I{turn}")
            state = reply.state
    assert server.violations == []
    # One of the exchange before and two of this one, none of which was made behind the same words.
    assert signatures(server) == 2
    assert b"I4" not in server.requests[-1]
    assert b"I5" in server.requests[-1]


@pytest.mark.parametrize("other", [{"api_key": OTHER_KEY}, {"model": "gemini-other"}])
async def test_another_account_or_model_gets_no_signatures_of_the_first(
    server: StrictGemini, other: dict[str, Any]
) -> None:
    async with chat(server) as c:
        first = await c.send("#think #tools x")
    async with chat(server, **other) as c:
        second = await c.send("y", state=first.state)
        assert signatures(server) == 0
        assert "thought" not in json.dumps(server.body()["contents"])
    async with chat(server) as c:
        await c.send("z", state=second.state)
    assert server.violations == []
    # Those of the first are back, that of the other is left out.
    assert signatures(server) == 2


async def test_a_turn_that_goes_on_with_another_model_keeps_its_rounds_and_repeats_none(server: StrictGemini) -> None:
    async with chat(server) as c:
        points = [event async for event in c.stream("#tools #tool x") if isinstance(event, Checkpoint)]
    before = len(server.requests)
    async with chat(server, "gemini-other") as c:
        reply = await c.send(None, state=points[2].state)
    assert server.violations == []
    assert reply.finish_reason == "stop"
    assert server.requests[before].count(b'"functionCall"') == 2
    assert len(server.requests) == before + 2


async def test_signatures_that_the_server_refuses_are_left_out(server: StrictGemini) -> None:
    async with chat(server) as c:
        first = await c.send("#tools x")
        server.faults.append(refusal("Corrupted thought signature."))
        second = await c.send("y", state=first.state)
        third = await c.send("z", state=second.state)
    assert [notice.kind for notice in second.notices] == ["server_refused"]
    assert [signatures(server, i) for i in range(-3, 0)] == [2, 0, 1]
    assert third.notices == ()


async def test_calls_without_a_signature_get_the_stand_in_where_one_is_wanted(server: StrictGemini) -> None:
    async with chat(server) as c:
        events = [event async for event in c.stream("#tool #tool x") if isinstance(event, Checkpoint)]
        transcript = decode(events[1].state, wires=NAMES)
        bare = Transcript()
        for entry in transcript:
            native = WIRE.remove_opaque(entry.native) if entry.role == "assistant" else entry.native
            bare = bare.append_to_turn("t", [Entry(role=entry.role, wire="gemini", native=native or b"", at=1)])
        reply = await c.send(None, state=encode(bare))
    assert reply.finish_reason == "stop"
    assert len(server.violations) == 1
    assert [notice.kind for notice in reply.notices] == ["server_refused"]
    assert b'"thoughtSignature":"skip_thought_signature_validator"' in server.requests[-1]


async def test_a_field_that_the_server_does_not_know_is_left_out(server: StrictGemini) -> None:
    async with chat(server) as c:
        first = await c.send("#tools x")
        message = "Invalid JSON payload received. Unknown name \"id\" at 'contents[1].parts[0].function_call': No."
        server.faults.append(refusal(message))
        # The signature is of a part with an id, for this server.
        server._check_signatures = lambda body, reader: None  # type: ignore[method-assign]
        second = await c.send("y", state=first.state)
    assert server.violations == []
    assert [notice.kind for notice in second.notices] == ["server_refused"]
    assert '"id"' not in json.dumps(server.body()["contents"])


async def test_an_answer_that_ran_out_of_tokens_while_thinking_is_not_sent_back(server: StrictGemini) -> None:
    async with chat(server) as c:
        reply = await c.send("#long x")
        assert (reply.finish_reason, reply.text) == ("length", "")
        await c.send("y", state=reply.state)
    assert server.violations == []
    assert [content["role"] for content in server.body()["contents"]] == ["user", "user"]


async def test_events_and_instructions_are_accepted_everywhere(server: StrictGemini) -> None:
    async with chat(server) as c:
        state = await c.note("Ada is here", source="door")
        for i in range(3):
            reply = await c.send(f"#think #tools {i}", state=state, system="S", instruction=f"turn {i}")
            state = await c.note(f"event {i}", state=reply.state)
    assert server.violations == []


@pytest.mark.parametrize("stop", range(0, 40, 4))
async def test_stopping_anywhere_leaves_a_valid_conversation(server: StrictGemini, stop: int) -> None:
    async with chat(server) as c:
        seen = 0
        async with c.stream("#think #tools #tool x", system="S") as stream:
            async for event in stream:
                seen += 1
                if seen > stop or isinstance(event, Done):
                    break
        reply = await c.send("#think #tools y", state=stream.reply.state, system="S")
        await c.send("z", state=reply.state, system="S")
    assert server.violations == []


async def test_a_stream_tells_its_calls(server: StrictGemini) -> None:
    async with chat(server) as c:
        events = [event async for event in c.stream("#tools x")]
    calls = [event for event in events if isinstance(event, ToolCall)]
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [
        ("lookup", {"q": "x 0"}),
        ("fetch", {"q": "x 1"}),
    ]


async def test_a_part_is_in_the_providers_form(server: StrictGemini) -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    async with chat(server) as c:
        await c.send([picture, "What is this?"])
        with pytest.raises(InputError, match=r'such as {"text":"Hello!"}. This one has'):
            await c.send({"type": "text", "text": "x"})
    assert server.body()["contents"][0]["parts"] == [picture, {"text": "What is this?"}]


# Errors


@pytest.mark.parametrize("stream", [False, True])
async def test_a_blocked_prompt_is_an_error_with_its_reason(server: StrictGemini, stream: bool) -> None:
    blocked = b'{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 4}}'
    server.faults.append((200, [blocked] if stream else blocked))  # type: ignore[arg-type]
    async with chat(server) as c:
        with pytest.raises(RequestRefused, match=r"gemini-strict blocked the request: PROHIBITED_CONTENT") as caught:
            await talked(c, "x", stream=stream)
    assert not caught.value.retryable
    assert caught.value.body == blocked
    assert len(server.requests) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_the_model_could_not_write_is_an_error(server: StrictGemini, stream: bool) -> None:
    broken = b'{"candidates": [{"content": {}, "finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "print(x"}]}'
    server.faults.append((200, [broken] if stream else broken))  # type: ignore[arg-type]
    async with chat(server) as c:
        with pytest.raises(Overloaded, match=r"print\(x"):
            await talked(c, "x", stream=stream)


async def test_a_request_that_is_too_long_says_how_long(server: StrictGemini) -> None:
    message = "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576)."
    server.faults += [refusal(message)] * 2
    async with chat(server) as c:
        with pytest.raises(ContextOverflow) as caught:
            await c.send("x")
    assert (caught.value.tokens, caught.value.window) == (1_200_293, 1_048_576)


async def test_a_wrong_key_is_told_as_one(server: StrictGemini) -> None:
    async with chat(server, api_key="wrong") as c:
        with pytest.raises(AuthFailed, match="Check the key"):
            await c.send("x")
