"""openai-python, with what its helpers do beyond single requests: parsed answers, async, images, background."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pydantic
import pytest

from longtalk.testing import AsyncScripted, says
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Serve
from tests.service.openai.test_responses import PAY, scripted
from tests.service.test_runs import Waiting

DOT = "data:image/png;base64,iVBORw0KGgo="


class Point(pydantic.BaseModel):
    x: int


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_answers_are_parsed_as_a_model_of_pydantic(serve: Serve, wire: str) -> None:
    provider = scripted(*['{"x": 3}'] * 3, wire=wire)
    client: Any = serve(m=provider).client()
    assert client.responses.parse(model="m", input="Where?", text_format=Point).output_parsed == Point(x=3)
    with client.responses.stream(model="m", input="Where?", text_format=Point) as stream:
        assert stream.get_final_response().output_parsed == Point(x=3)
    messages = [{"role": "user", "content": "Where?"}]
    made = client.chat.completions.parse(model="m", messages=messages, response_format=Point)
    assert made.choices[0].message.parsed == Point(x=3)
    assert all(b"integer" in request for request in provider.requests)


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_arguments_of_functions_are_parsed_as_a_model_of_pydantic(serve: Serve, wire: str) -> None:
    calls = says(None, calls=[("c1", "Point", {"x": 3})], wire=wire)
    client: Any = serve(m=AsyncScripted(calls, calls, wire=HTTP_WIRES[wire])).client()
    messages = [{"role": "user", "content": "Where?"}]
    tools = [openai.pydantic_function_tool(Point)]
    told = client.chat.completions.parse(model="m", messages=messages, tools=tools)
    assert told.choices[0].message.tool_calls[0].function.parsed_arguments == Point(x=3)


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_images_reach_every_provider_from_both_surfaces(serve: Serve, wire: str) -> None:
    provider = scripted("A dot.", "A dot.", wire=wire)
    client: Any = serve(m=provider).client()
    parts = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": DOT, "detail": "auto"},
    ]
    client.responses.create(model="m", input=[{"role": "user", "content": parts}])
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": DOT}}]
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": parts}])
    assert all(b"iVBORw0KGgo=" in request for request in provider.requests)


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_the_async_client_does_what_the_sync_one_does(serve: Serve, wire: str) -> None:
    calls = says(None, calls=[("c1", "pay", {"sum": 5})], wire=wire)
    provider = AsyncScripted(*[says("Hello.", wire=wire)] * 3, calls, says("Paid.", wire=wire), wire=HTTP_WIRES[wire])
    url = serve(m=provider).url

    async def use() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            talk = await client.conversations.create()
            made: Any = await client.responses.create(model="m", input="Hi.", conversation=talk.id)
            texts = [made.output_text, ""]
            stream: Any = await client.responses.create(model="m", input="Hi.", conversation=talk.id, stream=True)
            async for event in stream:
                texts[1] += event.delta if event.type == "response.output_text.delta" else ""
            messages: Any = [{"role": "user", "content": "Hi."}]
            chunks: Any = await client.chat.completions.create(model="m", messages=messages, stream=True)
            texts.append("".join([chunk.choices[0].delta.content or "" async for chunk in chunks]))
            asked: Any = await client.responses.create(model="m", input="Pay.", conversation=talk.id, tools=[PAY])  # type: ignore[list-item]
            result: Any = {"type": "function_call_output", "call_id": asked.output[-1].call_id, "output": "done"}
            told: Any = await client.responses.create(model="m", input=[result], conversation=talk.id)
            items = [item.type async for item in client.conversations.items.list(talk.id, order="asc")]
            return [*texts, told.output_text, *items]

    items = [*["message"] * 5, "function_call", "function_call_output", "message"]
    assert asyncio.run(use()) == ["Hello.", "Hello.", "Hello.", "Paid.", *items]


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_a_background_response_is_resumed_polled_and_cancelled(serve: Serve, wire: str) -> None:
    slow, later = says("One two three.", pieces=3, wire=wire), says("Later.", wire=wire)
    provider = Waiting(slow, slow, later, wire=HTTP_WIRES[wire])
    client: Any = serve(m=provider).client()
    stream = client.responses.create(model="m", input="Count.", background=True, stream=True)
    first = next(iter(stream))
    stream.close()
    assert provider.began.wait(10)
    assert client.responses.retrieve(first.response.id).status == "in_progress"
    provider.go.set()
    with client.responses.stream(response_id=first.response.id, starting_after=first.sequence_number) as rest:
        assert rest.get_final_response().output_text == "One two three."
    ended = client.responses.cancel(first.response.id)
    assert (ended.status, json.loads(ended.to_json())["id"]) == ("completed", first.response.id)
    provider.began.clear()
    provider.go.clear()
    second = client.responses.create(model="m", input="Again.", background=True, previous_response_id=first.response.id)
    assert provider.began.wait(10)
    assert client.responses.cancel(second.id).status == "cancelled"
    assert client.responses.retrieve(second.id).status == "cancelled"
    third = client.responses.create(model="m", input="And now?", previous_response_id=second.id)
    assert third.output_text == "Later."
    assert b"One t" in provider.requests[2]


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_a_chain_is_compacted_and_goes_on_from_the_item(serve: Serve, wire: str) -> None:
    provider = scripted("Hello, Ada.", "You are Ada.", wire=wire)
    client: Any = serve(m=provider).client()
    first = client.responses.create(model="m", input="I'm Ada.")
    done = client.responses.compact(model="m", previous_response_id=first.id)
    assert [item.type for item in done.output] == ["compaction"]
    question = {"role": "user", "content": "Who am I?"}
    items = [item.to_dict() for item in done.output]
    told = client.responses.create(model="m", input=[*items, question])
    assert told.output_text == "You are Ada."
    assert b"I'm Ada." in provider.requests[-1]
    assert client.responses.input_tokens.count(model="m", input=[*items, question]).input_tokens > 0


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_a_chain_goes_on_over_a_websocket_and_then_over_http(serve: Serve, wire: str) -> None:
    provider = scripted("Hello.", "The violin.", "Yes.", wire=wire)
    client: Any = serve(m=provider).client()
    made: list[Any] = []
    with client.responses.connect() as connection:
        for text in ("I play the violin.", "What do I play?"):
            connection.response.create(model="m", input=text, **({"previous_response_id": made[-1].id} if made else {}))
            event = next(each for each in connection if each.type == "response.completed")
            made.append(event.response)
    last = client.responses.create(model="m", input="Really?", previous_response_id=made[-1].id)
    assert [each.output_text for each in (*made, last)] == ["Hello.", "The violin.", "Yes."]
    assert all(b"I play the violin." in request for request in provider.requests)


@pytest.mark.slow
def test_the_local_model_answers_over_both_surfaces_and_remembers(serve: Serve) -> None:
    client: Any = serve().client(timeout=300)
    short = {"model": "local", "max_output_tokens": 16, "temperature": 0}
    first = client.responses.create(**short, input="I'm Ada. I play the violin.")
    *_, last = client.responses.create(**short, input="What do I play?", previous_response_id=first.id, stream=True)
    second = last.response
    assert first.output_text.strip()
    assert second.output_text.strip()
    # The second request is the first one with more at its end: the model has that in its cache.
    assert second.usage.input_tokens > first.usage.input_tokens
    assert second.usage.input_tokens_details.cached_tokens > 0
    point = client.responses.parse(**{**short, "max_output_tokens": 64}, input="Where are you?", text_format=Point)
    assert isinstance(point.output_parsed, Point)
    messages = [{"role": "user", "content": "Hello!"}]
    chunks = client.chat.completions.create(model="local", max_tokens=16, messages=messages, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks).strip()


@pytest.mark.slow
def test_the_local_model_answers_in_conversations_in_the_background_over_a_websocket_and_after_compaction(
    serve: Serve,
) -> None:
    client: Any = serve().client(timeout=300)
    short = {"model": "local", "max_output_tokens": 16, "temperature": 0}
    talk = client.conversations.create(items=[{"role": "user", "content": "I'm Ada."}])
    first = client.responses.create(**short, input="Who am I?", conversation=talk.id)
    items = client.conversations.items.list(talk.id, order="asc").data
    assert [item.role for item in items] == ["user", "user", "assistant"]
    assert items[-1].content[0].text == first.output_text

    stream = client.responses.create(**short, input="Tell me more.", conversation=talk.id, background=True, stream=True)
    begun = next(iter(stream))
    stream.close()
    *_, last = client.responses.retrieve(begun.response.id, stream=True, starting_after=begun.sequence_number)
    assert last.response.output_text.strip()
    assert last.response.output_text == client.responses.retrieve(begun.response.id).output_text

    long = client.responses.create(model="local", input="Count to a thousand.", background=True)
    assert client.responses.cancel(long.id).status in ("cancelled", "completed")

    with client.responses.connect() as connection:
        connection.response.create(**short, input="Hello.", store=False)
        told = next(each.response for each in connection if each.type in ("response.completed", "response.incomplete"))
        connection.response.create(**short, input="Once more.", store=False, previous_response_id=told.id)
        again = next(each.response for each in connection if each.type in ("response.completed", "response.incomplete"))
    assert again.usage.input_tokens > told.usage.input_tokens

    compacted = client.responses.compact(model="local", previous_response_id=begun.response.id)
    item = compacted.output[-1].to_dict()
    assert client.responses.create(**short, input=[item, {"role": "user", "content": "Go on."}]).output_text.strip()

    async def ask() -> str:
        async with openai.AsyncOpenAI(base_url=client.base_url, api_key="none", timeout=300) as other:
            made: Any = await other.responses.create(**short, input="Hi.", conversation=talk.id)
            return str(made.output_text)

    assert asyncio.run(ask()).strip()
