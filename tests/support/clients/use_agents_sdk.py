"""A program that uses the service through the OpenAI Agents SDK, and prints what it got as JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from agents import Agent, ModelSettings, OpenAIConversationsSession, Runner, SQLiteSession, function_tool
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from openai import AsyncOpenAI
from pydantic import BaseModel


class Point(BaseModel):
    """A place on a map."""

    x: int


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def stream(agent: Agent, text: str) -> str:
    result = Runner.run_streamed(agent, text)
    events: list[Any] = [event async for event in result.stream_events()]
    deltas = [event.data for event in events if event.type == "raw_response_event"]
    return "".join(event.delta for event in deltas if event.type == "response.output_text.delta")


async def main() -> None:
    agent = Agent(name="Teacher", instructions="Be brief.", model="m")
    adder = Agent(name="Adder", model="m", tools=[add])
    found: dict[str, Any] = {}

    first = await Runner.run(agent, "I play the violin.")
    second = await Runner.run(agent, "What do I play?", previous_response_id=first.last_response_id)
    found["chain"] = [first.final_output, second.final_output]

    # With tools in a conversation that the service keeps, and in one that the client keeps.
    session = OpenAIConversationsSession()
    told = await Runner.run(adder, "2 + 3?", session=session)
    after = await Runner.run(adder, "And what was that?", session=session)
    found["conversation"] = [told.final_output, after.final_output, len(await session.get_items())]
    named = await Runner.run(adder, "2 + 3?", conversation_id=(await AsyncOpenAI().conversations.create()).id)
    chained = await Runner.run(adder, "2 + 3?", auto_previous_response_id=True)
    own = await Runner.run(adder, "2 + 3?", session=SQLiteSession("own"))
    found["tools"] = [named.final_output, chained.final_output, own.final_output]

    place = Agent(name="Guide", model="m", output_type=Point)
    found["schema"] = (await Runner.run(place, "Where?")).final_output.x
    found["stream"] = await stream(agent, "Count.")
    model = OpenAIChatCompletionsModel("m", AsyncOpenAI())
    settings = ModelSettings(include_usage=True)
    chat = Agent(name="Chat", model=model, tools=[add], model_settings=settings)
    found["chat"] = [(await Runner.run(chat, "2 + 3?")).final_output, await stream(chat, "Count.")]
    print(json.dumps(found))


asyncio.run(main())
