"""A chat over real HTTP, on loopback: what is on the wire. The sync twin of this file is generated."""

from __future__ import annotations

import gzip
import re
from typing import Any

import pytest

from longtalk import AsyncChat
from longtalk.errors import (
    AuthFailed,
    BadAnswer,
    ContextOverflow,
    InputError,
    Overloaded,
    RateLimited,
    StreamCut,
    TurnFailed,
    Unreachable,
)
from longtalk.events import Text
from longtalk.testing import says, validate
from tests.support.loopback import Answer, Loopback, sse

pytestmark = pytest.mark.anyio

# Everything that a careless round trip changes: number forms, escapes, key order, doubled keys, half an emoji.
ODD = rb'{"z":1e2,"a":12345678901234567,"caf\u00e9":"\u00e9\/","n":[1.0,-0.0,{}],"k":1,"k":2,"half":"\ud83d"}'
PART = rb'{"type":"text","annotations":[' + ODD + rb'],"text":"Hello \u2764"}'
CALL = (
    rb'{"odd":' + ODD + rb',"type":"function","function":{"strict":1E+2,"arguments":"{\"q\": \"caf\u00e9\"}",'
    rb'"name":"lookup"},"id":"call_1"}'
)
MESSAGE = rb'{ "content":[' + PART + rb'],"odd":' + ODD + rb',  "role":"assistant"}'
CALLING = rb'{"role":"assistant","tool_calls":[' + CALL + rb'],"content":null,"odd":' + ODD + rb"}"


def lookup(q: str) -> str:
    """Look something up."""
    return q.upper()


def chat(loopback: Loopback, **settings: Any) -> AsyncChat:
    return AsyncChat("compatible:m", base_url=loopback.url, **settings)


def body(message: bytes, finish: bytes = b"stop") -> bytes:
    return (
        b'{"id":"x","choices":[{"message":' + message + b',"finish_reason":"' + finish + b'","index":0}],'
        b'"usage":{"prompt_tokens":9,"completion_tokens":3}}'
    )


async def test_a_whole_answer_comes_back_byte_for_byte(loopback: Loopback) -> None:
    loopback.say(
        Answer(body(CALLING, b"tool_calls")), Answer(body(MESSAGE)), Answer(body(b'{"role":"assistant","content":"x"}'))
    )
    async with chat(loopback, tools=[lookup]) as c:
        reply = await c.send("a")
        await c.send("b", state=reply.state)
    assert CALLING in loopback.requests[1]
    assert CALLING in loopback.requests[2]
    assert MESSAGE in loopback.requests[2]
    assert reply.text == "Hello ❤"
    for request in loopback.requests:
        validate(request)


async def test_of_a_streamed_answer_every_object_that_arrived_whole_comes_back_byte_for_byte(
    loopback: Loopback,
) -> None:
    def chunk(delta: bytes, finish: bytes = b"null") -> bytes:
        return b'{"choices":[{"index":0,"delta":' + delta + b',"finish_reason":' + finish + b"}]}"

    first = [
        chunk(b'{"role":"assistant","content":null,"odd":' + ODD + b"}"),
        chunk(
            rb'{"tool_calls":[{"index":0,"id":"call_1","odd":'
            + ODD
            + rb',"function":{"name":"lookup","arguments":"{\"q\":"}}]}'
        ),
        chunk(rb'{"tool_calls":[{"index":0,"function":{"arguments":" \"caf\u00e9\"}"}}]}'),
        chunk(b"{}", b'"tool_calls"'),
        b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"odd":1e2}}',
        b"[DONE]",
    ]
    second = [
        chunk(rb'{"role":"assistant","content":"He\u006clo \ud83d"}'),
        chunk(rb'{"content":"\ude00!","annotations":[' + ODD + b"]}"),
        chunk(b"{}", b'"stop"'),
        b"[DONE]",
    ]
    loopback.say(
        Answer(chunks=sse(*first)), Answer(chunks=sse(*second)), Answer(body(b'{"role":"assistant","content":"x"}'))
    )
    async with chat(loopback, tools=[lookup]) as c:
        events = [event async for event in c.stream("a")]
        reply = events[-1].reply  # type: ignore[union-attr]
        await c.send("b", state=reply.state)
    assert loopback.requests[1].count(ODD) == 2
    assert rb'"arguments":"{\"q\": \"caf\u00e9\"}"' in loopback.requests[1]
    assert loopback.requests[2].count(ODD) == 3
    assert rb'"content":"He\u006clo \ud83d\ude00!"' in loopback.requests[2]
    assert "".join(event.text for event in events if isinstance(event, Text)) == reply.text == "Hello 😀!"
    assert reply.raw_usage == (b'{"prompt_tokens":9,"completion_tokens":3,"odd":1e2}',)
    for request in loopback.requests:
        validate(request)


async def test_what_is_not_unicode_comes_back_byte_for_byte(loopback: Loopback) -> None:
    message = b'{"role":"assistant","content":"bad \xff\xfe bytes"}'
    loopback.say(Answer(body(message)), Answer(body(b'{"role":"assistant","content":"x"}')))
    async with chat(loopback) as c:
        reply = await c.send("a")
        await c.send("b", state=reply.state)
    assert message in loopback.requests[1]
    assert reply.text == "bad \ufffd\ufffd bytes"


async def test_a_packed_stream_is_unpacked(loopback: Loopback) -> None:
    packed = gzip.compress(b"".join(sse(*says("Grüße aus 東京 😀").events)))  # type: ignore[arg-type]
    loopback.say(Answer(chunks=[packed[:30], packed[30:]], headers={"content-encoding": "gzip"}))
    async with chat(loopback) as c:
        texts = [event.text async for event in c.stream("a") if isinstance(event, Text)]
    assert "".join(texts) == "Grüße aus 東京 😀"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
async def test_a_stream_may_be_cut_into_any_chunks(loopback: Loopback, size: int) -> None:
    whole = b"".join(sse(*says("Grüße aus 東京 😀").events))  # type: ignore[arg-type]
    loopback.say(Answer(chunks=[whole[i : i + size] for i in range(0, len(whole), size)]))
    async with chat(loopback) as c:
        events = [event async for event in c.stream("a")]
    assert "".join(event.text for event in events if isinstance(event, Text)) == "Grüße aus 東京 😀"


async def test_each_request_begins_with_the_one_before(loopback: Loopback) -> None:
    state = None
    async with chat(loopback, options={"temperature": 0}) as c:
        for i in range(4):
            loopback.say(Answer(says(f"answer {i}").body))
            state = (await c.send(f"question {i}", state=state, system="S")).state
    for shorter, longer in zip(loopback.requests, loopback.requests[1:], strict=False):
        assert longer.startswith(shorter.removesuffix(b"]}"))


async def test_the_key_and_the_path_are_sent(loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", loopback.url)
    monkeypatch.setenv("OPENAI_API_KEY", "k1")
    loopback.say(Answer(says("a").body))
    async with AsyncChat("openai-chat:gpt-x") as c:
        await c.send("a")
    assert loopback.headers[0]["authorization"] == "Bearer k1"
    assert loopback.paths == ["/v1/chat/completions"]


async def test_a_proxy_of_the_environment_is_not_used_for_this_machine(
    loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    loopback.say(Answer(says("a").body))
    async with chat(loopback) as c:
        assert (await c.send("a")).text == "a"


async def test_a_client_of_the_callers_is_used_and_left_open(loopback: Loopback) -> None:
    import httpx2

    loopback.say(Answer(says("a").body))
    async with httpx2.AsyncClient(headers={"x-mine": "1"}) as client:
        async with chat(loopback, client=client) as c:
            await c.send("a")
        assert not client.is_closed
    assert loopback.headers[0]["x-mine"] == "1"


# Trouble


async def test_a_busy_server_is_tried_again_after_the_time_it_asks_for(loopback: Loopback) -> None:
    loopback.say(
        Answer(b'{"error":{"message":"slow down"}}', status=429, headers={"retry-after-ms": "1"}),
        Answer(b"", status=503, headers={"retry-after": "0"}),
        Answer(says("a").body),
    )
    async with chat(loopback) as c:
        assert (await c.send("a")).text == "a"
    assert len(loopback.requests) == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_a_connection_that_breaks_before_the_first_byte_is_tried_again(loopback: Loopback, stream: bool) -> None:
    good = says("a")
    answer = Answer(chunks=sse(*good.events)) if stream else Answer(good.body)  # type: ignore[arg-type]
    loopback.say(Answer(reset=True), answer)
    async with chat(loopback) as c:
        events = c.stream("a")
        if stream:
            assert [event async for event in events][-1].reply.text == "a"  # type: ignore[union-attr]
        else:
            assert (await c.send("a")).text == "a"
    assert loopback.requests[0] == loopback.requests[1]


async def test_a_connection_that_breaks_in_mid_answer_keeps_what_was_said(loopback: Loopback) -> None:
    events: Any = says("Once upon a time", pieces=4).events
    loopback.say(Answer(chunks=sse(*events[:3]), reset=True), Answer(says("ok").body))
    async with chat(loopback) as c:
        with pytest.raises(StreamCut) as caught:
            async for _ in c.stream("a"):
                pass
        assert caught.value.partial is not None
        assert caught.value.partial.text == "Once upo"
        await c.send("b", state=caught.value.state)
    validate(loopback.requests[1])
    assert len(loopback.requests) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("answer", "kind", "match"),
    [
        (Answer(b'{"error":{"message":"bad key"}}', status=401), AuthFailed, "bad key.*api_key"),
        (Answer(b'{"error":{"code":"insufficient_quota","message":"pay"}}', status=429), RateLimited, "pay"),
        (
            Answer(b"<html><h1>Bad gateway</h1>", status=502, headers={"x-should-retry": "false"}),
            Overloaded,
            "Bad gateway",
        ),
        (
            Answer(b'{"error":{"message":"maximum context length is 8192 tokens, you requested 9000"}}', status=400),
            ContextOverflow,
            "8192",
        ),
        (Answer(b"", status=302, headers={"location": "http://127.0.0.1:9/"}), TurnFailed, "302"),
        (Answer(b"<html>captive portal</html>", headers={"content-type": "text/html"}), BadAnswer, "captive portal"),
        (Answer(b""), BadAnswer, "compatible:m"),
    ],
)
async def test_trouble_is_typed(loopback: Loopback, answer: Answer, kind: Any, match: str, stream: bool) -> None:
    loopback.say(answer)
    async with chat(loopback) as c:
        with pytest.raises(kind, match=match) as caught:
            if stream:
                async for _ in c.stream("a"):
                    pass
            else:
                await c.send("a")
    assert caught.value.partial is None
    assert caught.value.state is None


async def test_a_refused_connection_names_the_address_and_the_remedy() -> None:
    async with AsyncChat("compatible:m", base_url="http://127.0.0.1:9/v1") as c:
        with pytest.raises(Unreachable, match=re.escape("http://127.0.0.1:9/v1")) as caught:
            await c.send("a")
    assert "base_url" in str(caught.value)


async def test_without_a_connection_the_server_of_a_vendor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    async with AsyncChat("openai-chat:m", api_key="k", max_retries=0) as c:
        with pytest.raises(Unreachable, match=r"No connection to api\.openai\.com, .* Check the internet connection"):
            await c.send("a")


async def test_a_cause_that_is_a_sentence_ends_once() -> None:
    import httpx2

    def hang_up(_: Any) -> Any:
        raise httpx2.RemoteProtocolError("Server disconnected without sending a response.")

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(hang_up)) as client:
        with pytest.raises(Unreachable, match=r"a response\. Check that the server is running"):
            await AsyncChat("compatible:m", base_url="http://there/v1", client=client).send("a")


async def test_an_address_that_is_none_is_named() -> None:
    async with AsyncChat("compatible:m", base_url="ftp://nowhere") as c:
        with pytest.raises(Unreachable, match="ftp://nowhere"):
            await c.send("a")


async def test_a_silent_server_is_given_up(loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setattr("longtalk.providers.http.provider.SILENCE_SECONDS", 0.05)
    release = threading.Event()
    loopback.say(Answer(chunks=[], then=lambda: release.wait(5)))
    async with chat(loopback) as c:
        with pytest.raises(Unreachable, match="No answer"):
            async for _ in c.stream("a"):
                pass
    release.set()
    assert len(loopback.requests) == 1


@pytest.mark.parametrize("key", ["sk-secr\u00e9t", "sk-sec\nret", 5])
def test_a_key_that_is_none_is_refused_and_not_quoted(key: Any) -> None:
    with pytest.raises(InputError, match="key") as caught:
        AsyncChat("openai-chat:m", api_key=key)
    assert "sk-" not in str(caught.value)


async def test_a_key_from_a_file_may_end_with_a_line(loopback: Loopback) -> None:
    loopback.say(Answer(says("a").body))
    async with chat(loopback, api_key="sk-1\n") as c:
        await c.send("x")
    assert loopback.headers[0]["authorization"] == "Bearer sk-1"


async def test_the_callers_client_has_its_own_time_limit(loopback: Loopback) -> None:
    import threading

    import httpx2

    release = threading.Event()
    loopback.say(Answer(chunks=[], then=lambda: release.wait(20)))
    async with httpx2.AsyncClient(timeout=0.1) as client:
        with pytest.raises(Unreachable, match="time limit"):
            async for _ in chat(loopback, client=client).stream("a"):
                pass
    release.set()


@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_is_asked_again_once_a_byte_of_an_answer_has_come(loopback: Loopback, stream: bool) -> None:
    half = b'data: {"choices":[{"delta":{"content":"I have thou' if stream else says("x" * 500).body[:300]
    loopback.say(*[Answer(chunks=[half], reset=True)] * 3)
    async with chat(loopback) as c:
        with pytest.raises(StreamCut):
            if stream:
                async for _ in c.stream("x"):
                    pass
            else:
                await c.send("x")
    assert len(loopback.requests) == 1


async def test_what_breaks_after_the_end_of_an_answer_does_not_take_it_away(loopback: Loopback) -> None:
    events: Any = says("all of it").events
    loopback.say(Answer(chunks=sse(*events), reset=True))
    async with chat(loopback) as c, c.stream("x") as stream:
        async for _ in stream:
            pass
    assert (stream.reply.text, stream.reply.finish_reason) == ("all of it", "stop")


async def test_a_long_error_is_read_in_part(loopback: Loopback) -> None:
    loopback.say(Answer(b"<" * 10_000_000, status=400))
    async with chat(loopback) as c:
        with pytest.raises(TurnFailed) as caught:
            await c.send("x")
    assert len(str(caught.value)) < 1000


def test_a_missing_key_names_its_variable() -> None:
    with pytest.raises(InputError, match="OPENAI_API_KEY"):
        AsyncChat("openai-chat:gpt-x")
