"""Every provider behind HTTP passes the suite for providers, on every wire, whole and streamed, sync and async."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from longtalk import AsyncChat, Chat
from longtalk.events import Done, Text
from longtalk.testing.providers.harness import echo
from longtalk.testing.providers.script import Script, play
from longtalk.testing.providers.suite import CASES, Blocking, Case, check_provider, over_http
from longtalk.testing.wires.validate import validate
from tests.support import strict_anthropic, strict_chat, strict_gemini, strict_responses

# How a model of each wire is named, and what of its address is the server's.
MODELS = {
    "openai-chat": ("compatible:model", "/v1"),
    "openai-responses": ("openai:model", "/v1"),
    "anthropic": ("anthropic:model", ""),
    "gemini": ("gemini:model", ""),
}
SCRIPTED = [case.name for case in CASES if case.scripted]


def at(wire: str, url: str, key: str, chat: Callable[..., Any] = Chat, **settings: Any) -> Any:
    name, path = MODELS[wire]
    return chat(name, base_url=url + path, api_key=key, **settings)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """One for all: making one takes longer than a case."""
    import httpx2

    with httpx2.Client(trust_env=False) as client:
        yield client


@pytest.mark.parametrize("wire", MODELS)
def test_the_providers_of_all_wires_pass(wire: str, client: Any) -> None:
    report = check_provider(serve=over_http(lambda url, key: at(wire, url, key, client=client).provider))
    report.raise_for_failures()
    assert len(report.passed) == len(CASES)


def test_a_provider_that_keeps_the_conversation_is_not_asked_to_be_sent_all(client: Any) -> None:
    serve = over_http(lambda url, key: at("openai-responses", url, key, client=client).provider)
    report = check_provider(serve=serve, options={"previous_response_id": "auto"})
    report.raise_for_failures()
    assert report.skipped == (
        "each_request_extends_the_previous_one",
        "answers_are_sent_back_unchanged",
        "unknown_fields_are_sent_back_unchanged",
        "each_part_of_an_answer_is_sent_back",
    )


@pytest.mark.parametrize("blocking", [False, True])
def test_a_provider_that_creates_the_conversation_itself_passes(blocking: bool) -> None:
    with strict_responses.StrictResponses() as strict:
        address = ("openai-responses", strict.url.removesuffix("/v1"), strict_responses.KEY)

        def make() -> Any:
            return Blocking(at(*address, AsyncChat).provider) if blocking else at(*address).provider

        report = check_provider(make, options={"conversation": "auto"})
        assert strict.violations == []
        assert strict.conversations
    report.raise_for_failures()


@pytest.mark.parametrize("case", [case for case in CASES if "stream" in case.name or "thread" in case.name], ids=str)
def test_an_async_provider_passes_the_cases_with_streams_and_threads(case: Case) -> None:
    case.run(serve=over_http(lambda url, key: Blocking(at("anthropic", url, key, AsyncChat).provider)))


@pytest.mark.slow
@pytest.mark.parametrize("wire", MODELS)
def test_the_async_providers_of_all_wires_pass(wire: str) -> None:
    report = check_provider(serve=over_http(lambda url, key: Blocking(at(wire, url, key, AsyncChat).provider)))
    report.raise_for_failures()
    assert len(report.passed) == len(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("wire", MODELS)
def test_providers_with_their_own_clients_pass(wire: str) -> None:
    report = check_provider(serve=over_http(lambda url, key: at(wire, url, key).provider))
    report.raise_for_failures()
    assert len(report.passed) == len(CASES)


@pytest.mark.parametrize(
    ("wire", "server", "key"),
    [
        ("openai-chat", strict_chat.StrictChat, strict_chat.KEY),
        ("openai-responses", strict_responses.StrictResponses, strict_responses.KEY),
        ("anthropic", strict_anthropic.StrictAnthropic, strict_anthropic.KEY),
        ("gemini", strict_gemini.StrictGemini, strict_gemini.KEY),
    ],
)
def test_with_a_server_that_checks_every_rule_too(wire: str, server: Any, key: str, client: Any) -> None:
    with server() as strict:
        url = strict.url.removesuffix("/v1")
        report = check_provider(lambda: at(wire, url, key, client=client).provider)
        assert strict.violations == []
    report.raise_for_failures()
    assert list(report.skipped) == SCRIPTED


@pytest.mark.anyio
@pytest.mark.parametrize("wire", MODELS)
async def test_an_async_chat_talks_over_every_wire(wire: str) -> None:
    script = Script(respond=echo(wire))
    with play(script) as url:
        async with at(wire, url, script.key, AsyncChat) as chat:
            first = await chat.send("One.", system="S")
            async with chat.stream("Two.", state=first.state, system="S") as stream:
                async for event in stream:
                    if isinstance(event, Text):
                        break
            events = [event async for event in chat.stream("Three.", state=stream.reply.state, system="S")]
    assert first.text == "You said: One."
    assert stream.reply.finish_reason == "interrupted"
    assert isinstance(events[-1], Done)
    assert events[-1].reply.text == "You said: Three."
    assert first.usage.input < events[-1].reply.usage.input
    for request in script.requests:
        validate(request, wire=wire)
