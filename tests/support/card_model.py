"""A scripted model that adds memory cards to its answers when a request asks for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from longtalk.providers.scripted.script import Step
from longtalk.testing import AsyncScripted, Scripted, says
from longtalk.tokens import Estimator, count_message
from longtalk.wires import WIRES

Respond = Callable[[str, bool], str]
"""A function that returns the answer, given the text of a request and whether it asks for a card."""


def make_answer(text: str = "All right, let us go on with that then.", card: str = '{"+facts":["a fact"]}') -> Respond:
    """Return a function that always answers with this text, and adds this card if the request asks for one."""
    return lambda _, asked: f"{text}\n<MEMORY_CARD>{card}</MEMORY_CARD>" if asked else text


class CardModel(Scripted):
    """A provider whose answers come from a function, for a sync chat."""

    def __init__(self, respond: Respond | None = None, *, wire: str = "openai-chat", window: int | None = None) -> None:
        super().__init__(wire=WIRES[wire], window=window)
        self.respond = respond or make_answer()

    def _take_step(self, body: bytes) -> Step:
        self.requests.append(body)
        return _make_step(self.respond, self.wire.name, body)


class AsyncCardModel(AsyncScripted):
    """A provider whose answers come from a function, for an async chat."""

    def __init__(self, respond: Respond | None = None, *, wire: str = "openai-chat", window: int | None = None) -> None:
        super().__init__(wire=WIRES[wire], window=window)
        self.respond = respond or make_answer()

    def _take_step(self, body: bytes) -> Step:
        self.requests.append(body)
        return _make_step(self.respond, self.wire.name, body)


def _make_step(respond: Respond, wire: str, body: bytes) -> Step:
    text = body.decode()
    return says(respond(text, asks_for_card(text)), wire=wire, usage=_make_usage(wire, count_tokens(body)))


def asks_for_card(request: str) -> bool:
    """Return whether a request asks for a card."""
    return "End your answer with a note of" in request


def count_tokens(body: bytes) -> int:
    """Return the estimated number of tokens in a request's messages."""
    return sum(count_message(json.dumps(each).encode(), Estimator()) for each in list_messages(body))


def list_messages(body: bytes) -> list[Any]:
    members = json.loads(body)
    return list(members.get("messages") or members.get("input") or members.get("contents") or [])


def list_texts(body: bytes) -> list[str]:
    """Return all strings in a request's messages."""
    return [text for message in list_messages(body) for text in _iterate_strings(message)]


def _iterate_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _iterate_strings(each)


def _make_usage(wire: str, sent: int) -> dict[str, Any]:
    if wire == "openai-chat":
        return {"prompt_tokens": sent, "completion_tokens": 9, "total_tokens": sent + 9}
    if wire == "gemini":
        return {"promptTokenCount": sent, "candidatesTokenCount": 9, "totalTokenCount": sent + 9}
    return {"input_tokens": sent, "output_tokens": 9}
