"""Models by LiteLLM: what it is asked, what is made of its answers. The sync twin of this file is generated."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from typing import Any

import httpx2
import pytest

from longtalk import AsyncChat
from longtalk.errors import (
    AuthFailed,
    BadAnswer,
    ContextOverflow,
    InputError,
    Overloaded,
    ProviderError,
    RateLimited,
    RequestRefused,
    StreamCut,
    Unreachable,
)
from longtalk.events import Done, Text
from tests.support.fake_litellm import OK, FakeLiteLLM, make_chunk

pytestmark = pytest.mark.anyio

MODEL = "litellm:acme/talker"
REQUEST = httpx2.Request("POST", "http://127.0.0.1:9/")


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> FakeLiteLLM:
    return FakeLiteLLM.install(monkeypatch)


async def test_a_missing_litellm_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(InputError, match=r"longtalk\[litellm\].*not work with openai 3"):
        AsyncChat(MODEL)


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_package_that_litellm_lacks_is_named_and_not_blamed_on_the_provider(
    litellm: FakeLiteLLM, wrapped: bool
) -> None:
    missing = ModuleNotFoundError("No module named 'mcp'", name="mcp")
    litellm.say(Trouble("litellm.APIConnectionError", 500, cause=missing) if wrapped else missing)
    with pytest.raises(
        InputError, match=r"needs a package.*No module named 'mcp'\. Run pip install 'longtalk\[litellm\]'"
    ):
        await AsyncChat(MODEL).send("Hi.")


async def test_a_package_that_litellm_lacks_to_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Importer:
        def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
            return ModuleSpec(name, self) if name == "litellm" else None  # type: ignore[arg-type]

        def create_module(self, _: ModuleSpec) -> None:
            return None

        def exec_module(self, _: object) -> None:
            raise ModuleNotFoundError("No module named 'mcp'", name="mcp")

    monkeypatch.setattr(sys, "meta_path", [Importer(), *sys.meta_path])
    with pytest.raises(InputError, match=r"No module named 'mcp'.*longtalk\[litellm\]"):
        await AsyncChat(MODEL).send("Hi.")


async def test_litellm_is_called_with_chat_completions_and_without_retries(litellm: FakeLiteLLM) -> None:
    litellm.say(OK)
    chat = AsyncChat(MODEL, base_url="http://127.0.0.1:9/v1/", api_key="key", options={"num_retries": 5, "top_k": 3})
    reply = await chat.send("Hi.", system="S")
    assert reply.text == "Hello!"
    assert (reply.usage.input, reply.usage.output) == (10, 5)
    (asked,) = litellm.asked
    assert asked == {
        "model": "acme/talker",
        "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi."}],
        "top_k": 3,
        "api_key": "key",
        "api_base": "http://127.0.0.1:9/v1",
        "max_retries": 0,
        "num_retries": 0,
    }


async def test_litellm_finds_its_keys_itself(litellm: FakeLiteLLM) -> None:
    litellm.say(OK)
    await AsyncChat(MODEL).send("Hi.")
    assert litellm.asked[0]["api_key"] is None
    assert litellm.asked[0]["api_base"] is None


async def test_litellm_is_loaded_without_output_and_telemetry(
    litellm: FakeLiteLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LITELLM_LOCAL_MODEL_COST_MAP", raising=False)
    litellm.say(OK)
    await AsyncChat(MODEL).send("Hi.")
    assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
    assert not litellm.telemetry
    assert litellm.suppress_debug_info


async def test_a_stream_is_put_together_with_its_thoughts(litellm: FakeLiteLLM) -> None:
    first = {"type": "thinking", "thinking": "Let me "}
    litellm.say(
        [
            make_chunk(
                role="assistant", content="", thinking_blocks=[first], provider_specific_fields={"thinking_blocks": [1]}
            ),
            make_chunk(thinking_blocks=[{"type": "thinking", "thinking": "see."}]),
            make_chunk(thinking_blocks=[{"type": "thinking", "thinking": "", "signature": "s"}]),
            make_chunk(thinking_blocks=[{"type": "redacted_thinking", "data": "d"}]),
            make_chunk(content="Hel", provider_specific_fields={"thinking_blocks": [1], "odd": 1}),
            make_chunk(content="lo!"),
            make_chunk("stop"),
            {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}},
        ],
        OK,
    )
    chat = AsyncChat(MODEL)
    events = [event async for event in chat.stream("Hi.")]
    assert "".join(event.text for event in events if isinstance(event, Text)) == "Hello!"
    assert isinstance(events[-1], Done)
    await chat.send("And?", state=events[-1].reply.state)
    assert litellm.asked[0]["stream"] is True
    assert litellm.asked[1]["messages"][1] == {
        "role": "assistant",
        "content": "Hello!",
        "provider_specific_fields": {"odd": 1},
        "thinking_blocks": [
            {"type": "thinking", "thinking": "Let me see.", "signature": "s"},
            {"type": "redacted_thinking", "data": "d"},
        ],
    }


async def test_a_stream_that_is_left_is_closed(litellm: FakeLiteLLM) -> None:
    litellm.say([make_chunk(role="assistant", content="Hello!"), make_chunk(content=" And more."), make_chunk("stop")])
    async with AsyncChat(MODEL) as chat, chat.stream("Hi.") as stream:
        async for event in stream:
            if isinstance(event, Text):
                break
    assert stream.reply.finish_reason == "interrupted"
    assert stream.reply.text == "Hello!"
    assert litellm.closed == 1


async def test_a_stream_with_nothing_in_it_is_none(litellm: FakeLiteLLM) -> None:
    litellm.say([make_chunk("stop")])
    with pytest.raises(BadAnswer, match="sent a stream without an answer"):
        [event async for event in AsyncChat(MODEL).stream("Hi.")]


async def test_an_answer_that_a_filter_stopped_at_once_is_one(litellm: FakeLiteLLM) -> None:
    litellm.say([make_chunk("content_filter")])
    events = [event async for event in AsyncChat(MODEL).stream("Hi.")]
    assert isinstance(events[-1], Done)
    assert events[-1].reply.finish_reason == "filtered"


class Trouble(Exception):
    """As LiteLLM's own: around what it comes from."""

    def __init__(self, message: str, status: int | None = None, **more: Any) -> None:
        super().__init__(message)
        self.message = message
        if status is not None:
            self.status_code = status
        self.litellm_response_headers = more.get("headers")
        self.__cause__ = more.get("cause")


def answered(status: int, body: bytes, **headers: str) -> httpx2.HTTPStatusError:
    answer = httpx2.Response(status, content=body, headers=headers, request=REQUEST)
    return httpx2.HTTPStatusError("No.", request=REQUEST, response=answer)


def unread() -> httpx2.HTTPStatusError:
    answer = httpx2.Response(503, stream=httpx2.ByteStream(b"Oh."), request=REQUEST)
    return httpx2.HTTPStatusError("No.", request=REQUEST, response=answer)


@pytest.mark.parametrize(
    ("problem", "kind", "why"),
    [
        (
            Trouble("litellm: No", 400, cause=answered(401, b'{"error":{"message":"Wrong key"}}')),
            AuthFailed,
            "Wrong key",
        ),
        (Trouble("No", 429, cause=answered(429, b"{}", **{"retry-after": "7200"})), RateLimited, "429"),
        (
            Trouble("No", 400, cause=answered(400, b'{"error":{"message":"prompt is too long"}}')),
            ContextOverflow,
            "long",
        ),
        (Trouble("Busy now", 500, cause=unread()), Overloaded, "Busy now"),
        (Trouble("No key", 401), AuthFailed, "No key"),
        (Trouble("Which provider?", 400), RequestRefused, "Which provider"),
        (Trouble("Wait", 429, headers={"retry-after": "7200"}), RateLimited, "Wait"),
        (Trouble("No", 500, cause=httpx2.ConnectError("refused")), Unreachable, "Can't reach"),
        (Trouble("Late", 408, cause=httpx2.ReadTimeout("late")), Unreachable, "time limit"),
        (Trouble("A page", 500, cause=ValueError("Expecting value")), BadAnswer, "A page"),
        (KeyError("choices"), BadAnswer, "choices"),
    ],
)
async def test_errors_are_ours(litellm: FakeLiteLLM, problem: Exception, kind: type[ProviderError], why: str) -> None:
    litellm.say(problem)
    with pytest.raises(kind, match=why) as caught:
        await AsyncChat(MODEL).provider.send(b'{"messages":[]}')
    assert type(caught.value) is kind
    if kind is RateLimited:
        assert caught.value.retry_after == 7200.0


async def test_what_the_server_said_is_on_the_error_as_it_came(litellm: FakeLiteLLM) -> None:
    body = b'{ "error": {"message":"No.", "odd":1.0}}'
    litellm.say(Trouble("litellm: No", 400, cause=answered(400, body)))
    with pytest.raises(RequestRefused) as caught:
        await AsyncChat(MODEL).send("Hi.")
    assert caught.value.body == body
    assert caught.value.status == 400


@pytest.mark.parametrize("begun", [False, True])
async def test_no_key_is_in_an_error(litellm: FakeLiteLLM, begun: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ["an-api-key", "a-password", "from-the-environment", "among-the-options"]
    monkeypatch.setenv("ACME_API_KEY", keys[2])
    problem = Trouble(f"litellm: {keys}", 401, cause=answered(401, f'{{"error":{{"message":"{keys}"}}}}'.encode()))
    litellm.say([make_chunk(role="assistant", content="Hel"), problem] if begun else problem)
    options = {"acme_secret": keys[3]}
    chat = AsyncChat(MODEL, base_url=f"http://me:{keys[1]}@127.0.0.1:9/v1", api_key=keys[0], options=options)
    with pytest.raises(ProviderError) as caught:
        [event async for event in chat.stream("Hi.")]
    error = caught.value
    said = f"{error} {error.body!r} {error.__cause__!r} {error.__context__!r}"
    assert "[redacted]" in said
    assert not any(key in said for key in keys)


async def test_a_stream_that_breaks_keeps_what_came(litellm: FakeLiteLLM) -> None:
    litellm.say([make_chunk(role="assistant", content="Hel"), Trouble("gone", 500, cause=httpx2.ReadError("gone"))])
    with pytest.raises(StreamCut, match="gone") as caught:
        [event async for event in AsyncChat(MODEL).stream("Hi.")]
    assert caught.value.partial is not None
    assert caught.value.partial.text == "Hel"


async def test_a_stream_that_just_ends_is_cut(litellm: FakeLiteLLM) -> None:
    litellm.say([make_chunk(role="assistant", content="Hel"), make_chunk(content="lo")])
    with pytest.raises(StreamCut) as caught:
        [event async for event in AsyncChat(MODEL).stream("Hi.")]
    assert caught.value.partial is not None
    assert caught.value.partial.text == "Hello"


@pytest.mark.parametrize("received", [None, "stop"])
async def test_a_reason_that_litellm_has_made_up_is_none(litellm: FakeLiteLLM, received: str | None) -> None:
    litellm.received_finish_reason = received
    litellm.say([make_chunk(role="assistant", content="Hello"), make_chunk("stop")])
    stream = AsyncChat(MODEL).stream("Hi.")
    if received:
        assert isinstance([event async for event in stream][-1], Done)
    else:
        with pytest.raises(StreamCut):
            [event async for event in stream]


async def test_a_stream_that_does_not_begin_is_an_error_of_the_request(litellm: FakeLiteLLM) -> None:
    litellm.say([Trouble("No", 400, cause=answered(400, b"{}"))])
    with pytest.raises(RequestRefused):
        [event async for event in AsyncChat(MODEL).stream("Hi.")]


async def test_a_client_cannot_be_passed_to_litellm(litellm: FakeLiteLLM) -> None:
    async with httpx2.AsyncClient() as client:
        with pytest.raises(InputError, match="LiteLLM has its own clients"):
            AsyncChat(MODEL, client=client)
