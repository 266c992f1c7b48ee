"""A model that gives memory cards when it is asked for them, for tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from longtalk.providers.scripted.script import Step
from longtalk.testing import AsyncScripted, Scripted, says
from longtalk.tokens import Estimator, count_message
from longtalk.wires import WIRES

Says = Callable[[str, bool], str]
"""What it says to a request, given its text and whether it asks for a card."""


def answer(text: str = "All right, let us go on with that then.", card: str = '{"+facts":["a fact"]}') -> Says:
    """The same text each time, with this card where one is asked for."""
    return lambda _, asked: f"{text}\n<MEMORY_CARD>{card}</MEMORY_CARD>" if asked else text


class Minding(Scripted):
    """Says what a function makes of each request."""

    def __init__(self, talk: Says | None = None, *, wire: str = "openai-chat", window: int | None = None) -> None:
        super().__init__(wire=WIRES[wire], window=window)
        self.talk = talk or answer()

    def _next(self, body: bytes) -> Step:
        self.requests.append(body)
        return _step(self.talk, self.wire.name, body)


class AsyncMinding(AsyncScripted):
    """The same for an async chat."""

    def __init__(self, talk: Says | None = None, *, wire: str = "openai-chat", window: int | None = None) -> None:
        super().__init__(wire=WIRES[wire], window=window)
        self.talk = talk or answer()

    def _next(self, body: bytes) -> Step:
        self.requests.append(body)
        return _step(self.talk, self.wire.name, body)


def _step(talk: Says, wire: str, body: bytes) -> Step:
    text = body.decode()
    return says(talk(text, asks(text)), wire=wire, usage=_usage(wire, tokens(body)))


def asks(request: str) -> bool:
    """Whether a request asks for a card."""
    return "End your answer with a note of" in request


def tokens(body: bytes) -> int:
    """How long a request is."""
    return sum(count_message(json.dumps(each).encode(), Estimator()) for each in messages(body))


def messages(body: bytes) -> list[Any]:
    members = json.loads(body)
    return list(members.get("messages") or members.get("input") or members.get("contents") or [])


def texts(body: bytes) -> list[str]:
    """All texts of a request's messages."""
    return [text for message in messages(body) for text in _strings(message)]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings(each)


def _usage(wire: str, sent: int) -> dict[str, Any]:
    if wire == "openai-chat":
        return {"prompt_tokens": sent, "completion_tokens": 9, "total_tokens": sent + 9}
    if wire == "gemini":
        return {"promptTokenCount": sent, "candidatesTokenCount": 9, "totalTokenCount": sent + 9}
    return {"input_tokens": sent, "output_tokens": 9}
