"""Clients of the vendors' own SDKs as the way to a server, on loopback. The sync twin of this file is generated."""

from __future__ import annotations

import json
import re
import socket
import traceback
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from longtalk import AsyncChat, AsyncConversation
from longtalk.errors import AuthFailed, InputError, Overloaded, RateLimited, RequestRefused, StreamCut, Unreachable
from longtalk.events import Done
from longtalk.stores.sqlite import SQLite
from longtalk.testing import says
from longtalk.testing.providers.script import Script
from tests.support import clouds, strict_responses
from tests.support.clouds import make_chunk_frame, make_frame
from tests.support.loopback import Answer, Loopback, sse

pytestmark = pytest.mark.anyio

KEY = "dummy-key"
ODD = rb'{"b":1.0,"a":[ 1e2,"caf\u00e9 \/ \ud83d",12345678901234567890,null],"b2" : -0}'
MODELS = {"openai": "openai-responses", "openai-chat": "openai-chat", "anthropic": "anthropic"}


def http() -> Any:
    """Quick to make: nothing is encrypted on the way to loopback."""
    return httpx2.AsyncClient(trust_env=False, verify=False)


def client_of(provider: str, url: str, **settings: Any) -> Any:
    settings = {"api_key": KEY, "http_client": http(), **settings}
    if provider == "anthropic":
        return anthropic.AsyncAnthropic(base_url=url.removesuffix("/v1"), **settings)
    return openai.AsyncOpenAI(base_url=url, **settings)


def answers(wire: str, text: str = "Hello!") -> tuple[Answer, Answer]:
    """Return an answer, as a body and as a stream, with unknown members."""
    step = says(text, wire=wire)
    return Answer(odd(step.body)), Answer(chunks=sse(*map(odd, step.events)))


def odd(data: bytes) -> bytes:
    places = rb'"role":"assistant"|"type":"(?:text|message|output_text)"'
    return re.sub(places, lambda found: found[0] + b',"x_odd":' + ODD, data)


def read_database(folder: Path) -> bytes:
    """Return the bytes of all files of a database."""
    return b"".join(path.read_bytes() for path in folder.glob("talks.db*"))


async def talk(chat: AsyncChat) -> list[Any]:
    """Two turns, the second of which is streamed: what was answered."""
    first = await chat.send("Hi. \x7f \u2028 😀", system="S")
    events = [event async for event in chat.stream("And?", state=first.state, system="S", options={"temperature": 0.5})]
    assert isinstance(events[-1], Done)
    return [first, events[-1].reply]


@pytest.mark.parametrize("provider", MODELS)
async def test_bytes_go_out_and_come_back_as_they_do_without_an_sdk(provider: str) -> None:
    with Loopback() as server:
        address = server.url.removesuffix("/v1") if provider == "anthropic" else server.url
        server.say(*answers(MODELS[provider]))
        async with AsyncChat(f"{provider}:model", base_url=address, api_key=KEY) as chat:
            plain = await talk(chat)
        server.say(*answers(MODELS[provider]))
        async with client_of(provider, server.url) as client, AsyncChat(f"{provider}:model", client=client) as chat:
            replies = await talk(chat)
    assert server.requests[2:] == server.requests[:2]
    assert server.paths[2:] == server.paths[:2]
    assert [reply.message.native for reply in replies] == [reply.message.native for reply in plain]
    assert all(ODD in reply.message.native for reply in replies)
    assert [reply.raw_usage for reply in replies] == [reply.raw_usage for reply in plain]
    for plain_one, other in zip(server.headers[:2], server.headers[2:], strict=True):
        assert KEY in (other["authorization"].removeprefix("Bearer "), other.get("x-api-key"))
        # The wire's own version, whichever one the SDK is made for.
        assert other.get("anthropic-version") == plain_one.get("anthropic-version")
        assert other["content-type"] == "application/json"


async def test_the_key_of_an_admin_is_not_sent_along() -> None:
    with Loopback() as server:
        server.say(answers("openai-chat")[0])
        async with client_of("openai", server.url, admin_api_key="admin-secret") as client:
            await AsyncChat("openai-chat:model", client=client).send("Hi.")
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert "admin-secret" not in str(server.headers)


@pytest.mark.parametrize("provider", MODELS)
async def test_the_sdk_tries_nothing_again(provider: str) -> None:
    with Loopback() as server:
        async with client_of(provider, server.url, max_retries=7) as client:
            chat = AsyncChat(f"{provider}:model", client=client)
            server.say(*[Answer(b'{"error":{"message":"Oh."}}', status=503, headers={"retry-after": "0"})] * 3)
            with pytest.raises(Overloaded, match=r"Oh\."):
                await chat.send("Hi.")
            assert len(server.requests) == 3
            server.say(Answer(b'{"error":{"message":"Wait."}}', status=429, headers={"retry-after": "7200"}))
            with pytest.raises(RateLimited) as caught:
                await chat.send("Hi.")
    assert len(server.requests) == 4
    assert caught.value.retry_after == 7200.0
    assert caught.value.body == b'{"error":{"message":"Wait."}}'


async def test_middleware_of_the_client_is_called() -> None:
    seen = []

    async def middleware(request: Any, call_next: Any) -> Any:
        answer = await call_next(request)
        seen.append(answer.status_code)
        return answer

    with Loopback() as server:
        server.say(*answers("anthropic"), Answer(b'{"error":{"message":"No."}}', status=400))
        async with client_of("anthropic", server.url, middleware=[middleware]) as client:
            chat = AsyncChat("anthropic:model", client=client)
            replies = await talk(chat)
            with pytest.raises(RequestRefused, match=r"No\."):
                await chat.send("Hi.")
    assert all(ODD in reply.message.native for reply in replies)
    assert seen == [200, 200, 400]


@pytest.mark.parametrize("provider", MODELS)
async def test_the_clients_time_limit_is_used(provider: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        async with client_of(provider, url, timeout=0.05) as client:
            with pytest.raises(Unreachable, match="within the time limit") as caught:
                await AsyncChat(f"{provider}:model", client=client).send("Hi.")
    assert not caught.value.retryable


async def test_a_stream_that_breaks_is_cut() -> None:
    with Loopback() as server:
        server.say(Answer(chunks=sse(*says("Hello!", wire="anthropic", pieces=3).events)[:4], reset=True))
        async with client_of("anthropic", server.url) as client:
            chat = AsyncChat("anthropic:model", client=client)
            with pytest.raises(StreamCut) as caught:
                [event async for event in chat.stream("Hi.")]
    assert "Hello!".startswith(caught.value.partial.text)


@pytest.mark.parametrize("provider", MODELS)
async def test_a_client_that_was_closed_is_told(provider: str) -> None:
    client = client_of(provider, "http://127.0.0.1:9/v1")
    await client.close()
    with pytest.raises(InputError, match=r"The client of .* is closed"):
        await AsyncChat(f"{provider}:model", client=client).send("Hi.")


async def test_an_http_client_that_was_closed_is_told() -> None:
    client = http()
    await client.aclose()
    chat = AsyncChat("openai-chat:model", client=client, base_url="http://127.0.0.1:9/v1", api_key=KEY)
    with pytest.raises(InputError, match=r"The client of .* is closed"):
        [event async for event in chat.stream("Hi.")]


@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize(("status", "kind", "why"), [(401, AuthFailed, "key"), (307, RequestRefused, "address")])
async def test_what_is_wrong_is_set_at_the_client(provider: str, status: int, kind: Any, why: str) -> None:
    with Loopback() as server:
        server.say(Answer(b'{"error":{"message":"No."}}', status=status))
        async with client_of(provider, server.url) as client:
            with pytest.raises(kind, match=f"the client's {why}") as caught:
                await AsyncChat(f"{provider}:model", client=client).send("Hi.")
    assert "api_key=" not in str(caught.value)
    assert "base_url=" not in str(caught.value)


@pytest.mark.parametrize("provider", MODELS)
async def test_a_key_that_is_refused_inside_a_stream_is_the_clients_too(provider: str) -> None:
    said = b'{"type":"error","error":{"type":"authentication_error","code":"401","message":"Wrong key."}}'
    with Loopback() as server:
        async with client_of(provider, server.url) as client:
            chat = AsyncChat(f"{provider}:model", client=client)
            server.say(Answer(chunks=sse(said)))
            with pytest.raises(AuthFailed, match=r"Wrong key\. Check the client's key\.") as caught:
                [event async for event in chat.stream("Hi.")]
    assert "api_key=" not in str(caught.value)


@pytest.mark.parametrize("provider", MODELS)
async def test_a_server_that_is_not_there_is_told_without_the_query_of_its_address(provider: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1?sig=hunter2"
    async with client_of(provider, url) as client:
        with pytest.raises(Unreachable, match="that the client's address is right") as caught:
            await AsyncChat(f"{provider}:model", client=client).provider.send(b"{}")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("provider", MODELS)
async def test_a_key_with_the_end_of_a_line_is_told_and_not_shown(provider: str) -> None:
    with Loopback() as server:
        async with client_of(provider, server.url, api_key="hunter2\n") as client:
            with pytest.raises(AuthFailed, match="invalid characters") as caught:
                await AsyncChat(f"{provider}:model", client=client).send("Hi.")
    assert server.requests == []
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


async def test_a_header_of_an_http_client_that_can_not_be_sent_is_not_shown() -> None:
    with Loopback() as server:
        async with httpx2.AsyncClient(trust_env=False, verify=False, headers={"x-key": "hunter2\n"}) as client:
            chat = AsyncChat("openai-chat:model", client=client, base_url=server.url, api_key=KEY)
            with pytest.raises(Unreachable, match="LocalProtocolError") as caught:
                await chat.provider.send(b"{}")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_credential_that_the_server_quotes_is_in_no_error_and_no_database(
    provider: str, stream: bool, tmp_path: Path
) -> None:
    headers = {"x-gateway-token": "gate/secret"}
    body = b'{"error":{"message":"Not with dummy-key","param":"gate\\/secret"},"seen":["Bearer dummy-key"]}'
    with Loopback() as server:
        server.say(Answer(body, status=401))
        store = SQLite(tmp_path / "talks.db")
        async with client_of(provider, server.url, default_headers=headers) as client:
            talk = AsyncConversation("talk", model=f"{provider}:model", client=client, store=store)
            with pytest.raises(AuthFailed, match=r"Not with \[redacted\]") as caught:
                if stream:
                    async for _ in talk.stream("Hi."):
                        pass
                else:
                    await talk.send("Hi.")
        store.close()
    said = f"{caught.value} {caught.value!r} {vars(caught.value)}".encode()
    said += read_database(tmp_path)
    for secret in (b"dummy-key", b"gate/secret", b"gate\\/secret"):
        assert secret not in said
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


async def test_missing_credentials_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with Loopback() as server:
        async with client_of("anthropic", server.url, api_key=None) as client:
            with pytest.raises(AuthFailed, match=r"anthropic:model did not send .*authentication"):
                await AsyncChat("anthropic:model", client=client).send("Hi.")
    assert server.requests == []


async def test_a_key_that_no_header_takes_is_told_and_not_shown() -> None:
    with Loopback() as server:
        async with client_of("openai", server.url, api_key="schlüssel") as client:
            with pytest.raises(AuthFailed, match=r"UnicodeEncodeError.*Check its credentials") as caught:
                await AsyncChat("openai:model", client=client).send("Hi.")
    assert server.requests == []
    problem: BaseException | None = caught.value
    while problem is not None:
        assert "schl" not in f"{problem} {problem!r} {vars(problem)}"
        problem = problem.__cause__ or problem.__context__


async def test_a_token_that_can_not_be_fetched_is_told() -> None:
    def token() -> str:
        raise OSError("not logged in")

    with Loopback() as server:
        client = openai.AsyncAzureOpenAI(
            azure_endpoint=server.url, api_version="1", azure_ad_token_provider=token, http_client=http()
        )
        async with client:
            with pytest.raises(AuthFailed, match="not logged in"):
                await AsyncChat("openai:deployed", client=client).send("Hi.")
    assert server.requests == []


async def test_tokens_are_fetched_again_and_the_account_stays() -> None:
    tokens = iter(["first", "second", "third"])
    with Loopback() as server:
        server.say(*answers("openai-chat"))
        client = openai.AsyncAzureOpenAI(
            azure_endpoint=server.url,
            api_version="1",
            azure_ad_token_provider=lambda: next(tokens),
            http_client=http(),
        )
        async with client:
            chat = AsyncChat("openai-chat:deployed", client=client)
            await talk(chat)
            assert AsyncChat("openai-chat:deployed", client=client).provider.account == chat.provider.account
    assert [headers["authorization"] for headers in server.headers] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    ("model", "settings", "path"),
    [
        ("openai-chat:deployed x", {}, "/openai/deployments/deployed%20x/chat/completions?api-version=2026-01-01"),
        (
            "openai-chat:any",
            {"azure_deployment": "mine"},
            "/openai/deployments/mine/chat/completions?api-version=2026-01-01",
        ),
        ("openai:deployed", {}, "/openai/responses?api-version=2026-01-01"),
        ("openai:deployed", {"azure_deployment": "mine"}, "/openai/responses?api-version=2026-01-01"),
    ],
)
async def test_azure_has_the_deployment_in_the_address(model: str, settings: dict[str, str], path: str) -> None:
    wire = MODELS[model.partition(":")[0]]
    with Loopback() as server:
        server.say(*answers(wire), *answers(wire))
        async with AsyncChat(model, base_url=server.url, api_key=KEY) as chat:
            await talk(chat)
        client = openai.AsyncAzureOpenAI(
            azure_endpoint=server.url.removesuffix("/v1"),
            api_version="2026-01-01",
            api_key=KEY,
            http_client=http(),
            **settings,
        )
        async with client:
            await talk(AsyncChat(model, client=client))
    assert server.paths[2:] == [path, path]
    assert server.requests[2:] == server.requests[:2]
    assert server.headers[2]["api-key"] == KEY


async def test_a_conversation_that_openai_keeps_is_begun_and_looked_at_through_the_client() -> None:
    with strict_responses.StrictResponses() as strict:
        async with client_of("openai", strict.url, api_key=strict_responses.KEY) as client:
            chat = AsyncChat("openai:model", client=client, options={"conversation": "auto"})
            first = await chat.send("One.")
            second = await chat.send("Two.", state=first.state)
        assert strict.violations == []
        assert strict.conversations
    assert second.notices == ()


AWS = {"aws_access_key": "AKIADUMMY", "aws_secret_key": clouds.SECRET, "aws_region": "us-east-1"}


@pytest.mark.parametrize(
    ("model", "kind", "settings", "credentials"),
    [
        ("anthropic:model", anthropic.AsyncAnthropicFoundry, {"api_key": KEY}, KEY),
        ("anthropic:model", anthropic.AsyncAnthropicAWS, {**AWS, "workspace_id": "w"}, "AWS4-HMAC-SHA256"),
        ("anthropic:model", anthropic.AsyncAnthropicBedrockMantle, AWS, "AWS4-HMAC-SHA256"),
        ("openai:model", openai.AsyncBedrockOpenAI, {"api_key": KEY, "aws_region": "us-east-1"}, KEY),
    ],
)
async def test_other_clients_send_a_request_as_it_is(model: str, kind: Any, settings: Any, credentials: str) -> None:
    wire = MODELS[model.partition(":")[0]]
    with Loopback() as server:
        address = server.url.removesuffix("/v1")
        server.say(*answers(wire), *answers(wire))
        async with AsyncChat(model, base_url=address, api_key=KEY) as chat:
            await talk(chat)
        async with kind(base_url=address, http_client=http(), **settings) as client:
            replies = await talk(AsyncChat(model, client=client))
    assert [reply.text for reply in replies] == ["Hello!", "Hello!"]
    assert server.requests[2:] == server.requests[:2]
    assert server.paths[2:] == server.paths[:2]
    assert credentials in str(server.headers[2])


# Clouds that want another form


def bedrock(url: str) -> Any:
    return anthropic.AsyncAnthropicBedrock(
        base_url=url,
        aws_region=clouds.REGION,
        aws_access_key="AKIADUMMY",
        aws_secret_key=clouds.SECRET,
        http_client=http(),
    )


def vertex(url: str) -> Any:
    return anthropic.AsyncAnthropicVertex(
        base_url=url, region="r", project_id="p", access_token=KEY, http_client=http()
    )


@pytest.mark.parametrize(
    ("make", "model", "paths"),
    [
        (
            bedrock,
            "eu.anthropic.claude-v1:0",
            ["/model/eu.anthropic.claude-v1:0/invoke", "/model/eu.anthropic.claude-v1:0/invoke-with-response-stream"],
        ),
        (
            bedrock,
            "arn:aws:bedrock:eu:1:application/x",
            [
                "/model/arn:aws:bedrock:eu:1:application%2Fx/invoke",
                "/model/arn:aws:bedrock:eu:1:application%2Fx/invoke-with-response-stream",
            ],
        ),
        (
            vertex,
            "claude@20260101",
            [
                "/projects/p/locations/r/publishers/anthropic/models/claude@20260101:rawPredict",
                "/projects/p/locations/r/publishers/anthropic/models/claude@20260101:streamRawPredict",
            ],
        ),
    ],
)
async def test_a_cloud_gets_its_own_form_and_the_same_messages(make: Any, model: str, paths: list[str]) -> None:
    step = says("Hello!", wire="anthropic", pieces=3)
    with Loopback() as server:
        server.say(Answer(odd(step.body)), Answer(chunks=sse(*map(odd, step.events))))
        async with AsyncChat(f"anthropic:{model}", base_url=server.url, api_key=KEY) as chat:
            plain = await talk(chat)
    script = Script()
    script.add(clouds.ScriptedResponse(odd(step.body)), clouds.ScriptedResponse(events=tuple(map(odd, step.events))))
    with clouds.play(script, framed=make is bedrock) as cloud:
        async with make(cloud.url) as client:
            replies = await talk(AsyncChat(f"anthropic:{model}", client=client))
    assert cloud.refused == []
    assert cloud.paths == paths
    for ours, theirs in zip(server.requests, cloud.requests, strict=True):
        # All but the model, the version, and for Bedrock the wish for a stream.
        rest = ours.replace(b'"model":%s,' % json.dumps(model).encode(), b"")
        rest = rest.replace(b'"stream":true,', b"") if make is bedrock else rest
        assert re.sub(rb'"anthropic_version":"[^"]*",', b"", theirs) == rest
    assert script.requests == server.requests
    assert [reply.message.native for reply in replies] == [reply.message.native for reply in plain]


async def test_trouble_inside_a_stream_of_bedrock_is_an_error_of_ours() -> None:
    trouble = make_frame(b'{"message":"Slow."}', message_type="exception", exception_type="throttlingException")
    with Loopback() as server:
        kind = {"content-type": "application/vnd.amazon.eventstream"}
        begun = [make_chunk_frame(event) for event in says("Hello!", wire="anthropic", pieces=3).events[:4]]
        server.say(Answer(chunks=[*begun, trouble], headers=kind))
        async with bedrock(server.url) as client:
            chat = AsyncChat("anthropic:model", client=client)
            with pytest.raises(RateLimited, match=r"Slow\.") as caught:
                [event async for event in chat.stream("Hi.")]
    assert "Hello!".startswith(caught.value.partial.text)


# What is refused


class Session:
    """As that of another library: it can be closed, and knows no streams of this kind."""

    async def aclose(self) -> None: ...


@pytest.mark.parametrize(
    ("client", "why"),
    [
        (openai.AsyncOpenAI, "must be an instance, not the class AsyncOpenAI"),
        (httpx2.AsyncClient, "must be an instance, not the class AsyncClient"),
        (Session(), "an httpx2.AsyncClient or a client of a vendor's SDK, not Session"),
    ],
)
async def test_what_is_no_client_is_refused(client: Any, why: str) -> None:
    with pytest.raises(InputError, match=re.escape(why)):
        AsyncChat("openai-chat:model", client=client)


@pytest.mark.parametrize(
    ("model", "settings", "why"),
    [
        ("anthropic:model", {}, "AsyncOpenAI is a client for openai and can't be used for 'anthropic:model'"),
        ("gemini:model", {}, "can't be used for 'gemini:model'"),
        ("claude-cli:model", {}, "can't be used for 'claude-cli:model'"),
        ("local", {}, "`client` is for models at a network address"),
        ("openai:model", {"base_url": "http://127.0.0.1:9"}, "leave `base_url` out"),
        ("openai:model", {"api_key": "other"}, "leave `api_key` out"),
    ],
)
async def test_what_does_not_go_together_is_refused(model: str, settings: dict[str, str], why: str) -> None:
    async with client_of("openai", "http://127.0.0.1:9/v1") as client:
        with pytest.raises(InputError, match=re.escape(why)):
            AsyncChat(model, client=client, **settings)


@pytest.mark.parametrize("provider", ["compatible", "openrouter", "ollama", "openai-chat"])
async def test_a_client_of_openai_reaches_what_speaks_the_same(provider: str) -> None:
    with Loopback() as server:
        server.say(*answers("openai-chat"))
        async with client_of("openai", server.url) as client:
            replies = await talk(AsyncChat(f"{provider}:model", client=client))
    assert [reply.text for reply in replies] == ["Hello!", "Hello!"]
    assert server.paths == ["/v1/chat/completions"] * 2


async def test_a_project_that_vertex_can_not_know_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_VERTEX_PROJECT_ID", raising=False)
    async with anthropic.AsyncAnthropicVertex(region="r", access_token=KEY, http_client=http()) as client:
        with pytest.raises(InputError, match="project_id="):
            AsyncChat("anthropic:model", client=client)


async def test_a_model_that_is_no_part_of_an_address_is_refused() -> None:
    async with vertex("http://127.0.0.1:9") as client:
        with pytest.raises(InputError, match=r"'\.\.' can't be part of an address"):
            await AsyncChat("anthropic:..", client=client).send("Hi.")


@pytest.mark.parametrize("provider", ["openai", "openai-chat", "anthropic"])
async def test_a_client_with_a_key_has_the_account_of_that_key(provider: str) -> None:
    async with client_of(provider, "http://127.0.0.1:9") as client:
        account = AsyncChat(f"{provider}:model", client=client).provider.account
    own = AsyncChat(f"{provider}:model", base_url="http://127.0.0.1:9/", api_key=KEY).provider
    other = AsyncChat(f"{provider}:model", base_url="http://127.0.0.1:9", api_key="another").provider
    assert account == own.account
    assert account != other.account


async def test_accounts_are_told_apart_and_show_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "schlüssel")
    made = [
        client_of("openai", "http://127.0.0.1:9/v1"),
        client_of("openai", "http://127.0.0.1:9/v1", api_key="another"),
        client_of("openai", "http://127.0.0.1:10/v1"),
        client_of("openai", "http://127.0.0.1:9/v1", organization="o"),
    ]
    accounts = [AsyncChat("openai:model", client=client).provider.account for client in made]
    again = AsyncChat("openai-chat:other", client=made[0]).provider.account
    assert len(set(accounts)) == 4
    assert again == accounts[0]
    assert KEY not in str(accounts)
    for client in made:
        await client.close()
