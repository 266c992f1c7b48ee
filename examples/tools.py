"""Stream an answer of a model that calls a Python function. The local model can't call tools, so name another one.

LONGTALK_MODEL=openai-chat:gpt-5.6 python examples/tools.py
"""

import os

from longtalk import Chat
from longtalk.events import Done, Text, ToolCall, ToolResult

LESSONS = {"monday": ["scales", "Chaconne"], "friday": ["orchestra"]}


def lessons(day: str) -> list[str]:
    """Return the lessons on a day.

    Args:
        day: the day of the week, in English
    """
    return LESSONS.get(day.lower(), [])


chat = Chat(os.environ.get("LONGTALK_MODEL", "local"), tools=[lessons], options={"max_tokens": 60})
for event in chat.stream("What do I have on Monday?"):
    if isinstance(event, Text):
        print(event.text, end="", flush=True)
    elif isinstance(event, ToolCall):
        print(f"[{event.name}({event.arguments.decode()})]")
    elif isinstance(event, ToolResult):
        print(f"[-> {event.text}]")
    elif isinstance(event, Done):
        print(f"\n[{event.reply.usage.input} tokens sent, {event.reply.usage.cached} of them cached]")
