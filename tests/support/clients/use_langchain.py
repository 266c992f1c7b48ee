"""A program that uses the service through langchain-openai, and prints what it got as JSON."""

from __future__ import annotations

import json

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

DOT = "data:image/png;base64,iVBORw0KGgo="


class Point(BaseModel):
    """A place on a map."""

    x: int


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def use_chat_completions() -> list[object]:
    chat = ChatOpenAI(model="m")
    hello = chat.invoke([("system", "Be brief."), ("human", "I'm Ada.")])
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": DOT}}]
    seen = chat.invoke([HumanMessage(parts)])
    streamed = "".join(str(chunk.content) for chunk in chat.stream("Count."))
    question = HumanMessage("2 + 3?")
    asked = chat.bind_tools([add]).invoke([question])
    results = [add.invoke(call) for call in asked.tool_calls]
    told = chat.bind_tools([add]).invoke([question, asked, *results])
    point = chat.with_structured_output(Point).invoke("Where?")
    return [hello.content, seen.content, streamed, results[0].content, told.content, point.x]


def use_responses() -> list[object]:
    chat = ChatOpenAI(model="m", use_responses_api=True, use_previous_response_id=True)
    messages = [HumanMessage("I play the violin.")]
    messages.append(chat.invoke(messages))
    messages.append(HumanMessage("What do I play?"))
    messages.append(chat.invoke(messages))
    streamed = "".join(chunk.text for chunk in chat.stream([*messages, HumanMessage("Count.")]))
    question = HumanMessage("2 + 3?")
    asked = chat.bind_tools([add]).invoke([question])
    results = [add.invoke(call) for call in asked.tool_calls]
    told = chat.bind_tools([add]).invoke([question, asked, *results])
    point = chat.with_structured_output(Point).invoke("Where?")
    return [messages[1].text, messages[3].text, streamed, results[0].content, told.text, point.x]


print(json.dumps({"chat": use_chat_completions(), "responses": use_responses()}))
