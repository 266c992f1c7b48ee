"""The time limit of a model call, on each kind of provider. The sync twin of this file is generated."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from longtalk import AsyncChat, AsyncConversation, InputError
from longtalk.errors import StreamCut, Unreachable
from longtalk.providers.factory import connect
from longtalk.providers.http.provider import AsyncHTTP
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, says
from tests.support.fake_agents import Agents
from tests.support.fake_litellm import OK, FakeLiteLLM
from tests.support.loopback import Answer, Loopback, sse

pytestmark = pytest.mark.anyio

OVER_HTTP = ("openai", "openai-chat", "anthropic", "gemini", "compatible")


@pytest.fixture
def silent() -> Iterator[str]:
    """Run a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"


async def refuse(chat: Any, *, stream: bool = False) -> None:
    with pytest.raises(Unreachable, match="within the time limit") as caught:
        async with chat:
            if not stream:
                await chat.send("Hi.")
            else:
                async for _ in chat.stream("Hi."):
                    pass
    assert not caught.value.retryable


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", OVER_HTTP)
async def test_a_server_that_does_not_answer_in_time_is_given_up(provider: str, stream: bool, silent: str) -> None:
    await refuse(AsyncChat(f"{provider}:m", base_url=silent, api_key="k", timeout=0.05), stream=stream)


async def test_a_conversation_has_a_time_limit_too(silent: str) -> None:
    await refuse(AsyncConversation("c", model="compatible:m", base_url=silent, store=InMemory(), timeout=0.05))


async def test_it_goes_before_that_of_an_http_client(silent: str) -> None:
    async with httpx2.AsyncClient(trust_env=False, timeout=600) as client:
        await refuse(AsyncChat("compatible:m", base_url=silent, client=client, timeout=0.05))


async def test_it_goes_before_that_of_a_client_of_openai(silent: str) -> None:
    async with openai.AsyncOpenAI(base_url=silent, api_key="k", timeout=600) as client:
        await refuse(AsyncChat("openai:m", client=client, timeout=0.05))


async def test_it_goes_before_that_of_a_client_of_anthropic(silent: str) -> None:
    async with anthropic.AsyncAnthropic(base_url=silent, api_key="k", timeout=600) as client:
        await refuse(AsyncChat("anthropic:m", client=client, timeout=0.05))


async def test_a_stream_that_falls_silent_is_cut() -> None:
    events = [data for data in says("Once upon a time").events if isinstance(data, bytes)]
    with Loopback() as server:
        server.say(Answer(chunks=sse(*events[:3]), stalls=True))
        async with AsyncChat("compatible:m", base_url=server.url, timeout=2) as chat:
            with pytest.raises(StreamCut) as caught:
                async for _ in chat.stream("x"):
                    pass
    assert caught.value.partial is not None


async def test_an_agent_is_ended_after_it(agents: Agents) -> None:
    chat = AsyncChat("claude-cli", timeout=0.4)
    with pytest.raises(Unreachable, match=r"did not finish within 0\.4 seconds"):
        await chat.send("Hello. #silent")


async def test_litellm_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    litellm = FakeLiteLLM.install(monkeypatch)
    litellm.say(OK)
    await AsyncChat("litellm:acme/talker", timeout=7).send("x")
    assert litellm.asked[-1]["timeout"] == 7


async def test_the_local_model_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine:
        url, key = "http://127.0.0.1:1", "k"

    provider = connect("local", timeout=7)
    monkeypatch.setattr(provider, "_start_engine", Engine)
    inner = await provider._connect()  # type: ignore[attr-defined]
    assert isinstance(inner, AsyncHTTP)
    assert inner._timeout == 7


async def test_a_provider_object_has_its_own_limits() -> None:
    with pytest.raises(InputError, match="`timeout` is for models by name"):
        AsyncChat(AsyncScripted(), timeout=5)


@pytest.mark.parametrize("value", [0, -1, True, "5", float("nan"), float("inf"), 10**6])
async def test_it_is_a_number_of_seconds(value: Any) -> None:
    with pytest.raises(InputError, match="`timeout` must be a positive number of seconds"):
        AsyncChat("openai:m", api_key="k", timeout=value)
