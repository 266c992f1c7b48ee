"""The WebSocket of the Responses API, through OpenAI's own clients."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import openai
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from longtalk.errors import Overloaded
from longtalk.service.access import AccessKeys
from longtalk.service.settings import Limits, Settings
from longtalk.service.storage.in_memory import InMemoryStorage
from longtalk.testing import AsyncScripted, says
from tests.service.conftest import Serve
from tests.service.openai.test_responses import PAY, scripted
from tests.service.test_runs import Waiting

LAST = ("response.completed", "response.failed", "response.incomplete", "error")


def ask(connection: Any, **fields: Any) -> list[Any]:
    """Ask for a response, and return its events."""
    connection.response.create(model="m", **fields)
    return read(connection)


def read(connection: Any) -> list[Any]:
    events = [connection.recv()]
    while events[-1].type not in LAST:
        events.append(connection.recv())
    return events


def test_a_stored_response_has_the_events_of_a_stream_and_can_be_used_over_http(serve: Serve) -> None:
    provider = scripted("Hello, Ada.", "Hello, Ada.", "You are Ada.", "Ada.")
    client: Any = serve(m=provider).client()
    streamed = list(client.responses.create(model="m", input="I'm Ada.", stream=True))
    with client.responses.connect() as connection:
        events = ask(connection, input="I'm Ada.")
        assert [event.type for event in events] == [event.type for event in streamed]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        made = events[-1].response
        told = ask(connection, input="Who am I?", previous_response_id=made.id)[-1].response
    assert client.responses.retrieve(told.id).output_text == "You are Ada."
    client.responses.create(model="m", input="Who?", previous_response_id=told.id)
    assert b"Who am I?" in provider.requests[-1]


def test_what_is_not_stored_lives_on_its_connection_alone(serve: Serve) -> None:
    provider = scripted("Hello, Ada.", "You are Ada.", "Still Ada.")
    served = serve(m=provider)
    client: Any = served.client()
    with client.responses.connect() as connection, client.responses.connect() as other:
        made = ask(connection, input="I'm Ada.", store=False)[-1].response
        (error,) = ask(other, input="Who am I?", previous_response_id=made.id, store=False)
        assert (error.status, error.error.code) == (400, "previous_response_not_found")
        told = ask(connection, input="Who am I?", previous_response_id=made.id, store=False)[-1].response
        ask(connection, input="And now?", previous_response_id=told.id, store=False)
    assert b"I'm Ada." in provider.requests[-1]
    assert b"You are Ada." in provider.requests[-1]
    assert served.service.store.conversations("") == []
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model="m", input="Hi.", previous_response_id=told.id)


@pytest.mark.parametrize("stores", [True, False])
@pytest.mark.parametrize("said", [[], [{"role": "user", "content": "I'm Ada."}]], ids=["nothing", "a message"])
def test_a_response_follows_what_was_prepared_without_the_model(serve: Serve, said: list[Any], stores: bool) -> None:
    provider = scripted("You are Ada.", "Ada.")
    served = serve(m=provider)
    client: Any = served.client()
    with client.responses.connect() as connection, client.responses.connect() as other:
        events = ask(connection, input=said, tools=[PAY], instructions="Be brief.", generate=False, store=stores)
        assert [event.type for event in events] == ["response.created", "response.in_progress", "response.completed"]
        ready = events[-1].response
        assert (ready.output, ready.usage.total_tokens, provider.requests) == ([], 0, [])
        assert ask(other, input="Who?", previous_response_id=ready.id)[-1].error.code == "previous_response_not_found"
        told = ask(connection, input="Who am I?", previous_response_id=ready.id, store=stores)[-1].response
        last = ask(connection, input="Who?", previous_response_id=told.id, store=stores)[-1].response
    assert (told.output_text, last.output_text) == ("You are Ada.", "Ada.")
    assert [b"I'm Ada." in request for request in provider.requests] == [bool(said)] * 2
    assert len(served.service.store.conversations("")) == stores


def test_what_was_prepared_is_answered_without_more_input(serve: Serve) -> None:
    provider = scripted("Hello.", "You are Ada.")
    client: Any = serve(m=provider).client()
    first = client.responses.create(model="m", input="I'm Ada.")
    with client.responses.connect() as connection:
        ready = ask(connection, input="Who am I?", previous_response_id=first.id, generate=False)[-1].response
        told = ask(connection, input=[], previous_response_id=ready.id)[-1].response
    assert told.output_text == "You are Ada."
    assert [b"I'm Ada." in provider.requests[1], provider.requests[1].count(b"Who am I?")] == [True, 1]


def test_what_was_not_stored_can_be_continued_as_a_stored_chain(serve: Serve) -> None:
    provider = scripted("Hello, Ada.", "You are Ada.", "Ada.")
    client: Any = serve(m=provider).client()
    with client.responses.connect() as connection:
        made = ask(connection, input="I'm Ada.", store=False)[-1].response
        told = ask(connection, input="Who am I?", previous_response_id=made.id)[-1].response
    client.responses.create(model="m", input="Who?", previous_response_id=told.id)
    assert b"I'm Ada." in provider.requests[-1]


def test_the_client_runs_functions_over_one_connection(serve: Serve) -> None:
    provider = AsyncScripted(says(None, calls=[("c1", "pay", {})]), says("Paid."))
    client: Any = serve(m=provider).client()
    with client.responses.connect() as connection:
        asked = ask(connection, input="Pay.", tools=[PAY], store=False)[-1].response
        result = {"type": "function_call_output", "call_id": asked.output[0].call_id, "output": "done"}
        told = ask(connection, input=[result], tools=[PAY], store=False, previous_response_id=asked.id)[-1].response
    assert told.output_text == "Paid."


def test_a_lost_connection_does_not_end_a_stored_turn(serve: Serve) -> None:
    provider = Waiting()
    client: Any = serve(m=provider).client()
    with client.responses.connect() as connection:
        connection.response.create(model="m", input="Count.")
        events = [connection.recv()]
        while events[-1].type != "response.output_text.delta":
            events.append(connection.recv())
    provider.go.set()
    last = events[-1].sequence_number
    rest = list(client.responses.retrieve(events[0].response.id, stream=True, starting_after=last))
    assert [event.sequence_number for event in rest] == list(range(last + 1, last + 1 + len(rest)))
    assert rest[-1].response.output_text == "One two three."


def test_a_lost_connection_ends_a_turn_that_is_not_stored(serve: Serve) -> None:
    provider = Waiting()
    served = serve(m=provider)
    client: Any = served.client()
    with client.responses.connect() as connection:
        connection.response.create(model="m", input="Count.", store=False)
        connection.recv()
        assert provider.began.wait(60)
    until = time.monotonic() + 10
    while served.service.runs.active and time.monotonic() < until:
        time.sleep(0.01)
    assert served.service.runs.active == []


def test_messages_that_come_early_are_answered_in_order(serve: Serve) -> None:
    client: Any = serve(m=scripted(*[f"Answer {number}." for number in range(8)])).client()
    with client.responses.connect() as connection:
        for number in range(8):
            connection.response.create(model="m", input=f"Question {number}?")
        texts = [read(connection)[-1].response.output_text for _ in range(8)]
    assert texts == [f"Answer {number}." for number in range(8)]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("", "type"),
        ("nonsense", None),
        (b"\xff\xfe", None),
        ("[" * 100_000, None),
        ("{}", "type"),
        (json.dumps({"type": "response.steer"}), "type"),
        (json.dumps({"type": "response.create", "model": "m", "input": 5}), "input"),
        (json.dumps({"type": "response.create", "model": "m", "nonsense": 1}), "nonsense"),
        (json.dumps({"type": "response.create", "model": "m", "input": "Hi.", "background": True}), "background"),
        (json.dumps({"type": "response.create", "model": "m", "conversation": "c", "generate": False}), "conversation"),
        (json.dumps({"type": "response.create", "model": "m", "input": 5, "generate": False}), "input"),
        (json.dumps({"type": "response.create", "model": "m", "tools": [{}], "generate": False}), "tools[0].name"),
        (json.dumps({"type": "response.create", "model": "none", "generate": False}), "model"),
        (json.dumps({"type": "response.create", "model": "none", "input": "Hi."}), "model"),
    ],
)
def test_a_message_that_can_not_be_understood_is_an_error_and_the_next_one_is_answered(
    serve: Serve, message: str | bytes, param: str | None
) -> None:
    client: Any = serve(m=scripted("Hello.")).client()
    with client.responses.connect() as connection:
        connection.send_raw(message)
        (error,) = read(connection)
        assert (error.type, error.error.param, 400 <= error.status < 500) == ("error", param, True)
        assert ask(connection, input="Hi.")[-1].response.output_text == "Hello."


def test_a_provider_that_fails_before_its_answer_is_an_event_and_not_the_end(serve: Serve) -> None:
    client: Any = serve(m=AsyncScripted(Overloaded("busy", status=529, retryable=False), says("Hello."))).client()
    with client.responses.connect() as connection:
        failed = ask(connection, input="Hi.")[-1]
        assert failed.type in ("response.failed", "error")
        assert ask(connection, input="Hi.")[-1].response.output_text == "Hello."


def test_a_message_of_more_bytes_than_a_body_may_have_is_refused(serve: Serve) -> None:
    client: Any = serve(m=scripted("Hello."), settings=Settings(limits=Limits(body_bytes=500))).client()
    with client.responses.connect() as connection:
        (error,) = ask(connection, input="x" * 500)
        assert (error.status, error.error.code) == (413, "request_too_large")
        assert ask(connection, input="Hi.")[-1].response.output_text == "Hello."


def test_each_message_counts_as_a_request(serve: Serve) -> None:
    client: Any = serve(m=scripted("Hello."), settings=Settings(limits=Limits(requests_per_minute=2))).client()
    with client.responses.connect() as connection:
        ask(connection, input="Hi.")
        (error,) = ask(connection, input="Hi.")
    assert (error.status, error.error.code) == (429, "rate_limit_exceeded")
    assert int(error.error.headers["retry-after"]) >= 1


@pytest.mark.parametrize("header", [("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site")])
def test_web_pages_of_other_origins_can_not_connect(serve: Serve, header: tuple[str, str]) -> None:
    client = serve(m=scripted()).client()
    with pytest.raises(InvalidStatus) as caught, client.responses.connect(extra_headers=dict([header])):
        pass
    assert caught.value.response.status_code == 403


def test_a_name_that_points_to_this_machine_can_not_be_connected_to(serve: Serve) -> None:
    port = int(serve(m=scripted()).url.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port)) as local,
        pytest.raises(InvalidStatus) as caught,
        connect(f"ws://evil.example:{port}/v1/responses", sock=local),
    ):
        pass
    assert caught.value.response.status_code == 403


def test_a_connection_needs_a_key_and_ends_to_be_answered_when_the_key_is_revoked(serve: Serve) -> None:
    storage = InMemoryStorage()
    keys = AccessKeys(storage)
    (secret, key), _ = keys.add("ada", "ada"), keys.add("bob", "bob")
    served = serve(storage=storage, m=scripted("Hello."))
    with pytest.raises(InvalidStatus) as caught, served.client("lt_wrong").responses.connect():
        pass
    assert caught.value.response.status_code == 401
    client: Any = served.client(secret)
    with client.responses.connect() as connection:
        assert ask(connection, input="Hi.")[-1].response.output_text == "Hello."
        keys.revoke(key.id)
        (error,) = ask(connection, input="Hi.")
    assert (error.status, error.error.code) == (401, "invalid_api_key")


def test_the_async_client_connects_too(serve: Serve) -> None:
    served = serve(m=scripted("Hello, Ada."))

    async def talk() -> str:
        client = openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none")
        async with client, client.responses.connect() as connection:
            await connection.response.create(model="m", input="I'm Ada.")
            async for event in connection:
                if event.type == "response.completed":
                    return event.response.output_text
        return ""

    assert asyncio.run(talk()) == "Hello, Ada."
