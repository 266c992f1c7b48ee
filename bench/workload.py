"""The conversation that the benchmarks use.

A turn is a user message of 200 characters and an answer of 800. Every fifth turn also calls a tool and gets a
result of 2,000 characters. The text has the quotation marks and line breaks of prose, so that writing it as JSON has
realistic costs, and it is the same in every run.
"""

from __future__ import annotations

import functools
import json
import random
from typing import Any

MODEL = "openai-chat:bench"
USAGE = (
    b'{"prompt_tokens":1180,"completion_tokens":212,"total_tokens":1392,"prompt_tokens_details":{"cached_tokens":1024}}'
)

_WORDS = (
    "the a of and to in is that it for was on are as with they be at one have this from or had by hot but some what "
    "there we can out other were all your when up use word how said an each she which do their time if will way about "
    "many then them would write like so these her long make thing see him two has look more day could go come did my "
    "sound no most number who over know water than call first people may down side been now find"
)


def _prose(seed: str, size: int) -> str:
    source, words = random.Random(seed), _WORDS.split()
    text = ""
    while len(text) < size:
        sentence = " ".join(source.choices(words, k=source.randint(5, 14))).capitalize()
        if source.random() < 0.1:
            sentence = f'"{sentence}"'
        text += sentence + source.choice((". ", ". ", ".\n", "?\n\n"))
    return text[:size]


@functools.cache
def messages(number: int) -> list[dict[str, Any]]:
    """Return the messages of one turn in the form of the OpenAI chat wire."""
    turn: list[dict[str, Any]] = [{"role": "user", "content": _prose(f"said {number}", 200)}]
    if number % 5 == 4:
        function = {"name": "look_up", "arguments": json.dumps({"order": number, "fields": ["status", "due"]})}
        call = {"id": f"call_{number:08}", "type": "function", "function": function}
        turn.append({"role": "assistant", "content": None, "tool_calls": [call]})
        turn.append({"role": "tool", "tool_call_id": call["id"], "content": _prose(f"result {number}", 2_000)})
    turn.append({"role": "assistant", "content": _prose(f"answer {number}", 800)})
    return turn
