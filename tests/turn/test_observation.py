"""What `on_event` and the logger are told of turns. The sync twin of this file is generated."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from longtalk import AsyncChat, AsyncConversation, InputError, KeepLast, Memory, Summarize
from longtalk.errors import AuthFailed, ContextOverflow, Overloaded, RequestRefused, StreamCut
from longtalk.events import Text
from longtalk.observation import Observation
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, Step, says
from longtalk.usage import Usage
from longtalk.wires import HTTP_WIRES, WIRES
from tests.support.summary_model import WORDS, AsyncSummaryModel, anyio_backend  # noqa: F401

pytestmark = pytest.mark.anyio

SECRET = "the-secret-word"


def lookup(q: str) -> str:
    """Look something up."""
    return f"about {q}"


def broken(q: str) -> str:
    """Never works."""
    raise OSError(f"no {q}")


CALL = says("Let me see.", calls=[("c1", "lookup", {"q": SECRET})])


def kinds(seen: list[Observation]) -> list[str]:
    return [each.kind for each in seen]


async def play(chat: Any, message: str = "x", *, stream: bool) -> Any:
    if not stream:
        return await chat.send(message)
    events = chat.stream(message)
    async for _ in events:
        pass
    return events.reply


# Model calls and tools


@pytest.mark.parametrize("stream", [False, True])
async def test_each_model_call_and_tool_run_is_reported(stream: bool) -> None:
    seen: list[Observation] = []
    chat = AsyncChat(AsyncScripted(CALL, says("Done.")), tools=[lookup], on_event=seen.append)
    reply = await play(chat, stream=stream)
    assert kinds(seen) == ["model_call", "tool_run", "model_call", "turn"]
    assert {each.turn for each in seen} == {reply.turn_id}
    assert {each.conversation for each in seen} == {""}
    assert [each.call for each in seen] == [f"{reply.turn_id}.1", "c1", f"{reply.turn_id}.2", ""]
    assert [each.model for each in seen] == ["scripted:model", "", "scripted:model", "scripted:model"]
    assert seen[3].seconds >= seen[0].seconds + seen[2].seconds
    assert (seen[1].tool, seen[1].error) == ("lookup", "")
    assert all(each.seconds >= 0 for each in seen)


@pytest.mark.parametrize("wire", sorted(HTTP_WIRES))
@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_call_has_the_tokens_that_the_provider_reported(wire: str, stream: bool) -> None:
    seen: list[Observation] = []
    reply = await play(
        AsyncChat(AsyncScripted(says("a", wire=wire), wire=WIRES[wire]), on_event=seen.append), stream=stream
    )
    assert seen[0].usage == reply.usage
    assert seen[0].usage == Usage(input=10, output=5)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_is_reported_by_its_id(stream: bool) -> None:
    seen: list[Observation] = []
    store, provider = InMemory(), AsyncScripted(says("a"))
    talk = AsyncConversation("c7", model=provider, store=store, owner="ada", on_event=seen.append)
    await play(talk, stream=stream)
    assert [each.conversation for each in seen] == ["c7", "c7"]
    assert "ada" not in str(seen)


async def test_a_tool_that_fails_is_reported_by_the_type_of_its_error() -> None:
    seen: list[Observation] = []
    calls = says(calls=[("a", "broken", {"q": "x"}), ("b", "broken", {}), ("c", "made_up", {})])
    await AsyncChat(AsyncScripted(calls, says("ok")), tools=[broken], on_event=seen.append).send("x")
    tools = {each.call: (each.tool, each.error) for each in seen if each.kind == "tool_run"}
    assert tools == {"a": ("broken", "OSError"), "b": ("broken", "ArgumentError"), "c": ("", "unknown tool")}


async def test_a_stream_that_is_closed_is_reported_as_interrupted() -> None:
    seen: list[Observation] = []
    chat = AsyncChat(AsyncScripted(says("One two three.")), on_event=seen.append)
    async with chat.stream("x") as stream:
        async for event in stream:
            if isinstance(event, Text):
                break
    assert [(each.kind, each.error) for each in seen] == [("model_call", "interrupted"), ("turn", "interrupted")]


async def test_a_stream_that_is_cut_is_reported_with_its_error() -> None:
    seen: list[Observation] = []
    chat = AsyncChat(AsyncScripted(Step(b"", says("Once upon").events[:3])), on_event=seen.append)
    with pytest.raises(StreamCut):
        await play(chat, stream=True)
    assert [(each.kind, each.error) for each in seen] == [("model_call", "StreamCut"), ("turn", "StreamCut")]


# Retries


@pytest.mark.parametrize("stream", [False, True])
async def test_a_retry_is_reported_with_the_call_that_failed(stream: bool) -> None:
    seen: list[Observation] = []
    provider = AsyncScripted(Overloaded("trouble", retry_after=0.01), says("a"))
    reply = await play(AsyncChat(provider, on_event=seen.append), stream=stream)
    assert [(each.kind, each.error) for each in seen] == [
        ("model_call", "Overloaded"),
        ("retry", "Overloaded"),
        ("model_call", ""),
        ("turn", ""),
    ]
    assert [each.call for each in seen[:3]] == [f"{reply.turn_id}.1", f"{reply.turn_id}.1", f"{reply.turn_id}.2"]
    assert seen[1].seconds == 0.01


async def test_a_request_that_is_changed_and_sent_again_is_a_retry() -> None:
    seen: list[Observation] = []
    refused = RequestRefused("no", status=400, body=b"property 'reasoning_content' is unsupported")
    provider = AsyncScripted(says("a", fields={"reasoning_content": "hm"}), refused, says("b"))
    chat = AsyncChat(provider, on_event=seen.append)
    state = (await chat.send("x")).state
    seen.clear()
    await chat.send("y", state=state)
    assert kinds(seen) == ["model_call", "retry", "model_call", "turn"]
    assert seen[1].call == seen[0].call


async def test_what_is_not_sent_again_is_no_retry() -> None:
    seen: list[Observation] = []
    with pytest.raises(ContextOverflow):
        await AsyncChat(AsyncScripted(ContextOverflow("too long")), on_event=seen.append).send("x")
    assert kinds(seen) == ["model_call", "turn"]


@pytest.mark.parametrize("count", [0, 1, 4])
async def test_a_call_is_made_again_as_often_as_max_retries_says(count: int) -> None:
    provider = AsyncScripted(*[Overloaded("trouble") for _ in range(count + 1)])
    with pytest.raises(Overloaded):
        await AsyncChat(provider, max_retries=count).send("x")
    assert len(provider.requests) == count + 1


async def test_a_conversation_has_max_retries_too() -> None:
    provider = AsyncScripted(Overloaded("trouble"), says("a"))
    with pytest.raises(Overloaded):
        await AsyncConversation("c", model=provider, store=InMemory(), max_retries=0).send("x")


@pytest.mark.parametrize("value", [-1, True, 1.5, "2", None])
async def test_max_retries_is_a_number_of_retries(value: Any) -> None:
    with pytest.raises(InputError, match="`max_retries`, a number of retries, must be"):
        AsyncChat(AsyncScripted(), max_retries=value)


# Compaction


async def test_an_epoch_that_begins_is_reported() -> None:
    seen: list[Observation] = []
    chat, state = AsyncChat(AsyncScripted(*[says("a")] * 4), policy=KeepLast(1), on_event=seen.append), None
    for _ in range(4):
        state = (await chat.send("x", state=state)).state
    assert "epoch" in kinds(seen)


@pytest.mark.parametrize("background", [False, True])
async def test_a_summary_is_reported_with_its_tokens(background: bool) -> None:
    seen: list[Observation] = []
    policy = Summarize(2_000, length=200, background=background)
    talk = AsyncConversation("c", model=AsyncSummaryModel(), store=InMemory(), policy=policy, on_event=seen.append)
    async with talk:
        for number in range(20):
            await talk.send(f"{number}: {WORDS * 5}")
    summaries = [each for each in seen if each.kind == "summary"]
    assert summaries
    assert {(each.error, each.usage, each.conversation) for each in summaries} == {("", Usage(10, 5), "c")}


async def test_a_summary_that_is_none_is_reported_as_bad() -> None:
    seen: list[Observation] = []
    chat, state = AsyncChat(AsyncSummaryModel(""), policy=Summarize(2_000, length=200), on_event=seen.append), None
    for number in range(20):
        state = (await chat.send(f"{number}: {WORDS * 5}", state=state)).state
    assert {each.error for each in seen if each.kind == "summary"} == {"BadSummary"}


# No content, and no harm


@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_that_was_said_is_reported_or_logged(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="longtalk")
    seen: list[Observation] = []
    steps = [
        CALL,
        Overloaded(SECRET),
        says(calls=[("c2", f"no_{SECRET}", {"q": SECRET}), ("c3", "broken", {"q": SECRET})]),
        says(f"It is {SECRET}."),
    ]
    chat = AsyncChat(AsyncScripted(*steps), tools=[lookup, broken], policy=Memory(recall=0), on_event=seen.append)
    await play(chat, SECRET, stream=stream)
    assert len(seen) == 9
    assert SECRET not in repr(seen)
    assert len(caplog.records) == len(seen)
    assert SECRET not in caplog.text


async def test_an_error_of_on_event_is_logged_and_the_turn_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def on_event(_: Observation) -> None:
        raise KeyError(SECRET)

    reply = await AsyncChat(AsyncScripted(CALL, says("ok")), tools=[lookup], on_event=on_event).send("x")
    assert reply.text == "ok"
    assert caplog.text.count("on_event raised KeyError at") == 4
    assert SECRET not in caplog.text


async def test_a_failed_call_is_a_warning_and_a_good_one_is_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="longtalk")
    await AsyncChat(AsyncScripted(Overloaded("trouble", retry_after=0), says("ok"))).send("x")
    assert [(each.name, each.levelname) for each in caplog.records] == [
        ("longtalk", "WARNING"),
        ("longtalk", "WARNING"),
        ("longtalk", "INFO"),
        ("longtalk", "INFO"),
    ]
    assert "model='scripted:model'" in caplog.text
    assert "input=10 output=5" in caplog.text


async def test_usage_is_not_even_read_if_no_one_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    logging.getLogger("longtalk").setLevel(logging.CRITICAL)
    try:
        monkeypatch.setattr("longtalk.observation.Observation", None)
        with pytest.raises(AuthFailed):
            await AsyncChat(AsyncScripted(CALL, AuthFailed("no")), tools=[lookup]).send("x")
    finally:
        logging.getLogger("longtalk").setLevel(logging.NOTSET)


async def test_on_event_is_a_plain_function() -> None:
    with pytest.raises(InputError, match="`on_event` must be a plain"):
        AsyncChat(AsyncScripted(), on_event="print")  # type: ignore[arg-type]
