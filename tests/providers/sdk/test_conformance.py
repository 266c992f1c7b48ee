"""A chat over the client of a vendor's SDK passes the suite for providers: every vendor and cloud, sync and async."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import anthropic
import anyio
import httpx2
import openai
import pytest

from longtalk import AsyncChat, Chat
from longtalk.errors import InputError
from longtalk.events import Text
from longtalk.providers.scripted.script import says
from longtalk.testing.providers.script import Script, ScriptedResponse, play
from longtalk.testing.providers.suite import CASES, Blocking, check_provider, over_http
from tests.support import clouds

AWS = {"aws_region": clouds.REGION, "aws_access_key": "AKIADUMMY", "aws_secret_key": clouds.SECRET}


def client_of(kind: str, url: str, key: str, **settings: Any) -> Any:
    """A client of this kind, for an address on loopback."""
    make = {
        "OpenAI": partial(openai.OpenAI, base_url=f"{url}/v1", api_key=key),
        "AsyncOpenAI": partial(openai.AsyncOpenAI, base_url=f"{url}/v1", api_key=key),
        "AzureOpenAI": partial(openai.AzureOpenAI, azure_endpoint=url, api_version="1", api_key=key),
        "AsyncAzureOpenAI": partial(openai.AsyncAzureOpenAI, azure_endpoint=url, api_version="1", api_key=key),
        "Anthropic": partial(anthropic.Anthropic, base_url=url, api_key=key),
        "AsyncAnthropic": partial(anthropic.AsyncAnthropic, base_url=url, api_key=key),
        "AnthropicBedrock": partial(anthropic.AnthropicBedrock, base_url=url, **AWS, aws_session_token=key),
        "AsyncAnthropicBedrock": partial(anthropic.AsyncAnthropicBedrock, base_url=url, **AWS, aws_session_token=key),
        "AnthropicVertex": partial(
            anthropic.AnthropicVertex, base_url=url, region="r", project_id="p", access_token=key
        ),
        "AsyncAnthropicVertex": partial(
            anthropic.AsyncAnthropicVertex, base_url=url, region="r", project_id="p", access_token=key
        ),
    }
    return make[kind](**settings)


KINDS = [
    ("OpenAI", "openai:model"),
    ("OpenAI", "openai-chat:model"),
    ("AzureOpenAI", "openai-chat:model"),
    ("Anthropic", "anthropic:model"),
    ("AnthropicBedrock", "anthropic:model"),
    ("AnthropicVertex", "anthropic:model"),
]

QUICK = ("OpenAI", "Anthropic", "AnthropicBedrock")


def server_for(kind: str, connect: Callable[[str, str], Any]) -> Any:
    """What plays a script: the vendor, or a cloud that wants requests in another form."""
    if "Bedrock" not in kind and "Vertex" not in kind:
        return over_http(connect)

    @contextlib.contextmanager
    def serve(script: Script) -> Iterator[Any]:
        with clouds.play(script, framed="Bedrock" in kind) as cloud:
            yield connect(cloud.url, script.key)
            assert cloud.refused == []

    return serve


@pytest.fixture(scope="module")
def http() -> Iterator[httpx2.Client]:
    """One for all: making one takes longer than a case."""
    with httpx2.Client(trust_env=False, verify=False) as client:
        yield client


# Azure and Vertex differ from the vendors' own clients by address and headers only, so the thorough run is enough.
@pytest.mark.parametrize(
    ("kind", "model"),
    [pytest.param(*each, marks=[] if each[0] in QUICK else [pytest.mark.rest]) for each in KINDS],
)
def test_a_client_of_an_sdk_passes(kind: str, model: str, http: httpx2.Client) -> None:
    def connect(url: str, key: str) -> Any:
        return Chat(model, client=client_of(kind, url, key, http_client=http)).provider

    report = check_provider(serve=server_for(kind, connect))
    report.raise_for_failures()
    assert len(report.passed) == len(CASES)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "model"), KINDS)
def test_an_async_client_of_an_sdk_passes(kind: str, model: str) -> None:
    def connect(url: str, key: str) -> Any:
        http = httpx2.AsyncClient(trust_env=False, verify=False)
        client = client_of(f"Async{kind}", url, key, http_client=http)
        provider: Any = AsyncChat(model, client=client).provider
        # A client that was handed in is its owner's to close.
        provider.aclose = client.close
        return Blocking(provider)

    report = check_provider(serve=server_for(kind, connect))
    report.raise_for_failures()
    assert len(report.passed) == len(CASES)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["AsyncAnthropic", "AsyncAnthropicBedrock"])
async def test_a_turn_that_is_cancelled_lets_go_of_the_connection(kind: str) -> None:
    events = says("Once upon a time.", wire="anthropic", pieces=5).events
    script = Script(ScriptedResponse(events=events, hold=4))
    with play(script) if kind == "AsyncAnthropic" else clouds.play(script, framed=True) as place:
        url = place if isinstance(place, str) else place.url
        async with client_of(kind, url, script.key, http_client=httpx2.AsyncClient(trust_env=False)) as client:
            chat = AsyncChat("anthropic:model", client=client)
            with anyio.CancelScope() as scope:
                async for event in chat.stream("Tell me a story."):
                    if isinstance(event, Text):
                        scope.cancel()
            assert scope.cancelled_caught
            assert await anyio.to_thread.run_sync(script.disconnected.wait, script.patience)


@pytest.mark.parametrize("kind", ["OpenAI", "Anthropic", "AnthropicBedrock", "AnthropicVertex"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_client_of_the_other_kind_is_refused(kind: str, is_async: bool) -> None:
    model = "openai:model" if kind == "OpenAI" else "anthropic:model"
    other = client_of(kind if is_async else f"Async{kind}", "http://127.0.0.1:9", "key")
    right = "an async client" if is_async else "a sync client"
    with pytest.raises(InputError, match=f"`client` must be {right} here, not {type(other).__name__}"):
        (AsyncChat if is_async else Chat)(model, client=other)
