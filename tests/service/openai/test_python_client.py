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


def test_a_background_response_is_resumed_polled_and_cancelled(serve: Serve) -> None:
    provider = Waiting()
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
