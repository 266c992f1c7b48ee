"""A program that uses the service through pydantic-ai, and prints what it got as JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel


class Point(BaseModel):
    """A place on a map."""

    x: int


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def use(model: Any, settings: Any) -> list[object]:
    agent = Agent(model, instructions="Be brief.", model_settings=settings)
    first = await agent.run("I play the violin.")
    second = await agent.run("What do I play?", message_history=first.all_messages())
    seen = await agent.run(["What is this?", BinaryContent(b"\x89PNG\r\n\x1a\n", media_type="image/png")])
    async with agent.run_stream("Count.") as stream:
        streamed = "".join([piece async for piece in stream.stream_text(delta=True)])
    told = await Agent(model, tools=[add]).run("2 + 3?")
    point = await Agent(model, output_type=Point).run("Where?")
    return [first.output, second.output, seen.output, streamed, told.output, point.output.x]


async def main() -> None:
    chat = await use(OpenAIChatModel("m"), {})
    chained = {"openai_previous_response_id": "auto"}
    print(json.dumps({"chat": chat, "responses": await use(OpenAIResponsesModel("m"), chained)}))


asyncio.run(main())
