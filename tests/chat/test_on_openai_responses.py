"""Conversations over the Responses wire with a server that checks every rule. The sync twin is generated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from longtalk import AsyncChat
from longtalk._util import json_bytes
from longtalk.errors import AuthFailed, BadAnswer, ContextOverflow, InputError, RequestRefused, StreamCut, TurnFailed
from longtalk.events import Done, Text
from longtalk.policies import KeepLast
from longtalk.state.codec import decode
from longtalk.wires import NAMES
from tests.support.matrix import thin
from tests.support.strict_responses import KEY, OTHER_KEY, StrictResponses

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[StrictResponses]:
    with StrictResponses() as strict:
        yield strict


def chat(server: StrictResponses, **settings: Any) -> AsyncChat:
    settings = {"tools": [lookup, fetch], "api_key": KEY, **settings}
    return AsyncChat(settings.pop("model", "openai:gpt-strict"), base_url=server.url, **settings)


def lookup(q: str = "") -> str:
    """Look something up."""
    return f"about {q}"


def fetch(q: str = "") -> str:
    """Fetch something."""
    return f"fetched {q}"


async def test_a_conversation_with_reasoning_and_tools_goes_on(server: StrictResponses) -> None:
    async with chat(server) as c:
        first = await c.send("#think #tools What is a bow?", system="S", instruction="It is noon.")
        second = await c.send("#think And a string?", state=first.state, system="S")
        third = await c.send("Thank you.", state=second.state, system="S")
    assert (server.violations, server.refusals) == ([], [])
    assert third.text == "You said: Thank you."
    assert third.usage.cached > 0
    assert third.usage.written == 3
    assert server.body()["instructions"] == "S"
    assert server.body()["store"] is False
    calls = ["reasoning", "function_call", "function_call"]
    results = ["function_call_output", "function_call_output"]
    said = ["reasoning", "message"]
    assert server.kinds() == ["user", "developer", *calls, *results, *said, "user", *said, "user"]


@pytest.mark.parametrize("stream", [False, True])
async def test_each_request_begins_with_the_bytes_of_the_one_before(server: StrictResponses, stream: bool) -> None:
    state: bytes | None = None
    async with chat(server) as c:
        for flags in ("#think", "#think #tools", "#odd #search", "#think #tool #odd", "#custom", "#refuse", ""):
            if stream:
                events = [event async for event in c.stream(f"{flags} é", state=state)]
                state = events[-1].reply.state  # type: ignore[union-attr]
            else:
                state = (await c.send(f"{flags} é", state=state)).state
    assert (server.violations, server.refusals) == ([], [])
    for earlier, later in zip(server.requests, server.requests[1:], strict=False):
        assert later.startswith(earlier[:-2])


@pytest.mark.parametrize("stream", [False, True])
async def test_items_come_back_byte_for_byte_without_their_ids(server: StrictResponses, stream: bool) -> None:
    async with chat(server, tools=[]) as c:
        if stream:
            events = [event async for event in c.stream("#odd #think #search x")]
            state = events[-1].reply.state  # type: ignore[union-attr]
        else:
            state = (await c.send("#odd #think #search x")).state
        await c.send("y", state=state)
    assert (server.violations, server.refusals) == ([], [])
    thought, searched, later, message = server.issued[:4]
    held = decode(state, wires=NAMES)[1].native
    assert [item for item in (thought, searched, later, message) if item not in held] == []
    sent = server.input()
    # What the tools of the provider did is called by its id; all else goes without, and reasoning has no status.
    assert searched in sent
    for item in (thought, later, message):
        hidden = ("id", "status") if item is thought else ("id",)
        members = {name: value for name, value in json_bytes.fields(item).items() if name not in hidden}
        assert json_bytes.build(members) in sent
    assert b'"phase":"final_answer"' in sent
    assert server.kinds() == ["user", "reasoning", "web_search_call", "later_item", "message", "user"]


async def test_what_is_streamed_is_what_is_kept(server: StrictResponses) -> None:
    async with chat(server) as c:
        events = [event async for event in c.stream("#think Hello!")]
    text = "".join(event.text for event in events if isinstance(event, Text))
    reply = events[-1].reply  # type: ignore[union-attr]
    assert text == reply.text == "You said: #think Hello!"
    assert b'"encrypted_content":"half"' not in decode(reply.state, wires=NAMES)[1].native


async def test_another_preamble_or_a_dropped_prefix_takes_no_reasoning_away(server: StrictResponses) -> None:
    state: bytes | None = None
    async with chat(server, policy=KeepLast(2, sliding=True)) as c:
        for turn in range(6):
            state = (await c.send(f"#think #tool {turn}", state=state, system=f"S{turn}")).state
    assert (server.violations, server.refusals) == ([], [])
    assert server.kinds().count("reasoning") == 3


@pytest.mark.parametrize("change", [{"api_key": OTHER_KEY}, {"model": "openai:gpt-other"}])
async def test_another_account_or_model_gets_no_reasoning_of_the_first(
    server: StrictResponses, change: dict[str, str]
) -> None:
    async with chat(server) as c:
        first = await c.send("#think #tool x")
    async with chat(server, **change) as c:
        second = await c.send("#think y", state=first.state)
    async with chat(server) as c:
        await c.send("z", state=second.state)
    assert (server.violations, server.refusals) == ([], [])
    assert [server.kinds(i).count("reasoning") for i in (-3, -2, -1)] == [1, 0, 2]


@pytest.mark.parametrize("late", [False, True])
async def test_reasoning_that_the_server_refuses_is_left_out_permanently(server: StrictResponses, late: bool) -> None:
    server.late = late
    async with chat(server) as c:
        first = await c.send("#think #tools x")
        server._seal = lambda *_: "another.key"  # type: ignore[method-assign]
        second = [event async for event in c.stream("#think y", state=first.state)][-1].reply  # type: ignore[union-attr]
        await c.send("z", state=second.state)
    assert len(server.refusals) == 1
    assert "server_refused" in [notice.kind for notice in second.notices]
    assert server.violations == []
    assert server.kinds().count("reasoning") == 1
    assert server.kinds().count("function_call") == 2


async def test_what_is_stored_is_called_by_its_id(server: StrictResponses) -> None:
    async with chat(server, options={"store": True, "include": None}) as c:
        first = await c.send("#think #tool x")
        second = await c.send("#think y", state=first.state)
        await c.send("z", state=second.state)
    assert (server.violations, server.refusals) == ([], [])
    assert "include" not in server.body()
    items = [item for item in server.body()["input"] if item.get("role") != "user"]
    assert [item["type"] for item in items if "id" not in item] == ["function_call_output"]
    assert [item.get("encrypted_content") for item in items if item["type"] == "reasoning"] == [None] * 3


@pytest.mark.parametrize("keys", [[KEY, OTHER_KEY], [KEY]])
async def test_ids_that_a_server_does_not_know_any_more_are_left_out(server: StrictResponses, keys: list[str]) -> None:
    async with chat(server, options={"store": True}) as c:
        first = await c.send("#think #tool #search x")
    server.stored[KEY].clear()
    async with chat(server, options={"store": True}, api_key=keys[-1]) as c:
        await c.send("y", state=first.state)
    assert server.violations == []
    assert len(server.refusals) == 1
    assert "Item with id" in server.refusals[0]
    # What can't go without its id goes no more, nor does the reasoning that led to it.
    assert "web_search_call" not in server.kinds()
    assert "reasoning" not in server.kinds()
    assert all("id" not in item for item in server.body()["input"])


async def test_a_model_that_encrypts_nothing_is_asked_for_nothing_encrypted(server: StrictResponses) -> None:
    server.encrypts = False
    async with chat(server, options={"include": ["message.output_text.logprobs"]}) as c:
        first = await c.send("#think x")
        await c.send("y", state=first.state)
    assert len(server.refusals) == 1
    assert server.body()["include"] == ["message.output_text.logprobs"]
    assert server.kinds() == ["user", "message", "user"]


async def test_a_field_that_a_server_does_not_know_is_left_out(server: StrictResponses) -> None:
    server.unknown = {"phase"}
    async with chat(server) as c:
        first = await c.send("x")
        second = await c.send("y", state=first.state)
    assert len(server.refusals) == 1
    assert "phase" not in server.body()["input"][1]
    assert b'"phase"' in decode(second.state, wires=NAMES)[1].native


@pytest.mark.parametrize("late", [False, True])
async def test_a_window_that_is_full_begins_a_new_epoch_also_when_a_stream_says_so(
    server: StrictResponses, late: bool
) -> None:
    server.late = late
    state: bytes | None = None
    async with chat(server) as c:
        for turn in range(4):
            state = (await c.send(f"{turn} " + "word " * 300, state=state)).state
        server.window = 7_000
        events = [event async for event in c.stream("#think and now?", state=state)]
    assert events[-1].reply.text.endswith("and now?")  # type: ignore[union-attr]
    assert len(server.refusals) == 1
    assert len(server.requests[-1]) < 7_000


async def test_a_request_that_can_only_be_too_long_says_so(server: StrictResponses) -> None:
    server.window = 10
    async with chat(server) as c:
        with pytest.raises(ContextOverflow):
            await c.send("x")


@pytest.mark.parametrize(("flag", "finish"), [("#long", "length"), ("#filter", "filtered"), ("#tool #long", "stop")])
@pytest.mark.parametrize("stream", [False, True])
async def test_how_an_answer_ends(server: StrictResponses, flag: str, finish: str, stream: bool) -> None:
    async with chat(server) as c:
        if stream:
            reply = [event async for event in c.stream(flag)][-1].reply  # type: ignore[union-attr]
        else:
            reply = await c.send(flag)
        await c.send("on", state=reply.state)
    assert reply.finish_reason == ("length" if "#long" in flag else finish)
    assert (server.violations, server.refusals) == ([], [])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_is_not_text(server: StrictResponses, stream: bool) -> None:
    async with chat(server) as c:
        if stream:
            reply = [event async for event in c.stream("#refuse")][-1].reply  # type: ignore[union-attr]
        else:
            reply = await c.send("#refuse")
        await c.send("on", state=reply.state)
    assert reply.text == ""
    assert reply.message is not None
    assert reply.message.refusal == "I can't do that."
    assert (server.violations, server.refusals) == ([], [])
    assert b"I can't do that." in server.input()


async def test_a_custom_tool_gets_its_own_kind_of_result(server: StrictResponses) -> None:
    async with chat(server, options={"tools": [{"type": "custom", "name": "lookup"}]}, tools=[]) as c:
        reply = await c.send("#custom x")
        await c.send("on", state=reply.state)
    assert (server.violations, server.refusals) == ([], [])
    assert server.kinds() == ["user", "custom_tool_call", "custom_tool_call_output", "message", "user"]


@pytest.mark.parametrize("after", range(1, 24))
async def test_a_stream_that_is_cut_anywhere_leaves_a_conversation_that_goes_on(
    server: StrictResponses, after: int
) -> None:
    server.hasty = after
    async with chat(server) as c:
        try:
            reply = [event async for event in c.stream("#think #odd #tools é\U0001f3bb x")][-1].reply  # type: ignore[union-attr]
            state = reply.state
        except (StreamCut, TurnFailed) as problem:
            state = problem.state  # type: ignore[union-attr]
        await c.send("on", state=state)
    assert (server.violations, server.refusals) == ([], [])


@pytest.mark.parametrize("options", [{}, {"store": True}, {"previous_response_id": "auto"}, {"conversation": "auto"}])
@pytest.mark.parametrize("after", thin(range(1, 14), 6, 9))
async def test_half_a_message_goes_back_without_the_reasoning_that_led_to_it(
    server: StrictResponses, after: int, options: dict[str, Any]
) -> None:
    async with chat(server, options=options) as c:
        first = await c.send("#think Hello.")
        server.hasty = after
        with pytest.raises(StreamCut) as caught:
            _ = [event async for event in c.stream("#think Is anybody there?", state=first.state)]
        reply = await c.send("on", state=caught.value.state)
    assert (server.violations, server.refusals) == ([], [])
    assert "server_refused" not in [notice.kind for notice in reply.notices]


async def test_half_a_message_is_kept(server: StrictResponses) -> None:
    server.hasty = 7
    async with chat(server) as c:
        with pytest.raises(StreamCut) as caught:
            _ = [event async for event in c.stream("Hello, you there!")]
        await c.send("on", state=caught.value.state)
    assert (server.violations, server.refusals) == ([], [])
    kept = server.body()["input"][1]
    assert (kept["status"], kept["phase"], "id" in kept) == ("incomplete", "final_answer", False)
    assert kept["content"][0]["text"] == "You said: Hello, you "


async def test_a_tool_result_is_cut_where_the_provider_would_refuse_it(server: StrictResponses) -> None:
    def lookup(q: str) -> str:
        """Look something up."""
        return "a" * 200_000 + "b" * 100_000

    async with chat(server, tools=[lookup]) as c:
        reply = await c.send("#tool x")
    assert (server.violations, server.refusals) == ([], [])
    output = server.body()["input"][-1]["output"]
    assert 250_000 < len(output) <= 256_000
    assert "characters are left out here" in output
    assert max(len(entry.native) for entry in decode(reply.state, wires=NAMES)) > 300_000


async def test_parts_go_as_they_are_given(server: StrictResponses) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
    async with chat(server) as c:
        await c.send(["Whose violin is this?", image])
    assert server.violations == []
    assert server.body()["input"] == [
        {"role": "user", "content": [{"type": "input_text", "text": "Whose violin is this?"}, image]}
    ]


@pytest.mark.parametrize("option", ["input", "instructions", "previous_response_id", "conversation", "background"])
async def test_what_a_chat_sets_or_holds_itself_is_no_option(server: StrictResponses, option: str) -> None:
    async with chat(server) as c:
        with pytest.raises(InputError, match=option):
            await c.send("x", options={option: "y"})
    assert server.requests == []


@pytest.mark.parametrize("said", [b"", b"<html>", b"{}", b"[]", b'{"id":5}', b'{"id":"conv_/../x"}'])
async def test_a_conversation_without_a_valid_id_is_a_bad_answer(server: StrictResponses, said: bytes) -> None:
    server._answer_conversation_call = lambda *_: (200, said)  # type: ignore[method-assign]
    async with chat(server, options={"conversation": "auto"}) as c:
        with pytest.raises(BadAnswer):
            await c.send("x")
    assert server.requests == []


@pytest.mark.parametrize("said", [b"{}", b'{"data":5}', b'{"data":[5]}', b'{"data":[{"id":5}]}', b'{"data":[]}'])
async def test_a_conversation_of_which_nothing_can_be_understood_is_not_gone_on_with(
    server: StrictResponses, said: bytes
) -> None:
    tell = server._answer_conversation_call
    server._answer_conversation_call = lambda method, *rest: (200, said) if method == "GET" else tell(method, *rest)  # type: ignore[method-assign]
    async with chat(server, options={"conversation": "auto"}) as c:
        first = await c.send("x")
        second = await c.send("y", state=first.state)
    assert server.violations == []
    assert "rebuilt" in [notice.kind for notice in second.notices]
    assert len(server.conversations) == 2


@pytest.mark.parametrize("streams", [False, True])
async def test_a_conversation_that_a_server_names_as_a_string_is_gone_on_with(
    server: StrictResponses, streams: bool
) -> None:
    server.names_conversation = True
    async with chat(server, options={"conversation": "auto"}) as c:
        state = None
        for words in ("one", "two", "three"):
            if streams:
                done = [event async for event in c.stream(words, state=state)][-1]
                assert isinstance(done, Done)
                reply = done.reply
            else:
                reply = await c.send(words, state=state)
            assert reply.notices == ()
            state = reply.state
    (name,) = server.conversations
    assert [json.loads(request)["conversation"] for request in server.requests] == [name] * 3
    assert (server.violations, server.refusals) == ([], [])


async def test_other_refusals_are_told(server: StrictResponses) -> None:
    async with chat(server, api_key="sk-unknown") as c:
        with pytest.raises(AuthFailed, match="Incorrect API key"):
            await c.send("x")
    async with chat(server) as c:
        with pytest.raises(RequestRefused, match="content"):
            await c.send([{"type": "image_url", "image_url": {"url": "x"}}])
    assert json.loads(server.requests[0])["model"] == "gpt-strict"


async def test_what_must_not_be_kept_can_not_be_gone_on_with(server: StrictResponses) -> None:
    for way in ("previous_response_id", "conversation"):
        with pytest.raises(InputError, match="store=False contradicts"):
            AsyncChat("openai:m", base_url=server.url, api_key=KEY, options={way: "auto", "store": False})
