"""A program that uses the real LiteLLM and prints its observations as JSON.

`tests/real/test_litellm.py` runs it in an environment of its own, since LiteLLM and the tests need different versions
of one package.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from longtalk import AsyncChat, Chat
from longtalk.errors import LongtalkError
from longtalk.events import Done
from longtalk.providers.scripted.script import says
from longtalk.testing.providers.script import Script, ScriptedResponse, play
from longtalk.testing.providers.suite import Blocking, check_provider, over_http

THINKING = (
    {"type": "message_start", "message": {"id": "m", "role": "assistant", "model": "m", "content": [], "usage": {}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Let me "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "see."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig=="}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hello."}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": 9, "output_tokens": 4}},
    {"type": "message_stop"},
)
connected: set[str] = set()


def run_conformance() -> dict[str, Any]:
    """Run the conformance suite against a server with OpenAI's API."""

    def make(chat: Callable[..., Any], url: str, key: str) -> Any:
        return chat("litellm:openai/model", base_url=f"{url}/v1", api_key=key).provider

    reports = {
        "sync": check_provider(serve=over_http(lambda url, key: make(Chat, url, key))),
        "async": check_provider(serve=over_http(lambda url, key: Blocking(make(AsyncChat, url, key)))),
    }
    return {
        name: {"passed": report.passed, "failed": {each.name: str(each) for each in report.failed}}
        for name, report in reports.items()
    }


def run_conversation() -> dict[str, Any]:
    """Run turns with tools, streams, thinking and errors against a server with Anthropic's API."""
    script = Script()
    with play(script) as url:
        chat = Chat("litellm:anthropic/claude-sonnet-4-5", base_url=url, api_key=script.key, tools=[look])
        calling = says("Let me look.", calls=[("toolu_1", "look", {"q": "bows"})], wire="anthropic")
        thanks = says("You are welcome.", wire="anthropic", pieces=3)
        script.add(ScriptedResponse(add_model(calling.body)), ScriptedResponse(add_model(thanks.body)))
        first = chat.send("Look up bows.", system="Be short.")
        script.add(ScriptedResponse(events=tuple(json.dumps(each).encode() for each in THINKING)))
        second = stream_reply(chat, "Think.", state=first.state, system="Be short.")
        script.add(ScriptedResponse(events=thanks.events))
        third = stream_reply(chat, "Thanks.", state=second.state, system="Be short.")
        # The last two events have the stop reason and the end.
        script.add(*[ScriptedResponse(events=tuple(json.dumps(each).encode() for each in THINKING[:-2]))] * 3)
        cut = capture_error(lambda: stream_reply(chat, "Think.", state=second.state, system="Be short."))
        script.clear()
        errors = [provoke_error(chat, script, status) for status in (400, 401, 429, 529)]
    return {
        "texts": [first.text, second.text, third.text],
        "usage": [first.usage.input, second.usage.output],
        "requests": [json.loads(request)["messages"] for request in script.requests[:4]],
        "cut": cut,
        "errors": errors,
        "unknown": capture_error(lambda: Chat("litellm:nonsense").send("Hi.")),
        "no key": capture_error(lambda: Chat("litellm:anthropic/claude-sonnet-4-5").send("Hi.")),
        "old client": capture_error(use_old_client),
    }


def look(q: str) -> str:
    """Look something up."""
    return f"about {q}"


def add_model(body: bytes) -> bytes:
    """Return an answer with an id and a model, which LiteLLM requires."""
    return body.replace(b"{", b'{"id":"msg_1","model":"m",', 1)


def stream_reply(chat: Chat, message: str, **given: Any) -> Any:
    *_, last = chat.stream(message, **given)
    assert isinstance(last, Done)
    return last.reply


def provoke_error(chat: Chat, script: Script, status: int) -> list[Any]:
    """Return the class and message of the error for a status, and the number of requests that were sent."""
    before = len(script.requests)
    body = json.dumps({"type": "error", "error": {"type": "error", "message": f"No {status}."}}).encode()
    script.add(*[ScriptedResponse(body, status=status, headers={"retry-after": "0"})] * 3)
    error = capture_error(lambda: chat.send("Hi."))
    script.clear()
    return [*error, len(script.requests) - before]


def capture_error(call: Callable[[], Any]) -> list[str]:
    """Return the class and message of the error that a call raises, or an empty list if it raises none."""
    try:
        call()
    except LongtalkError as problem:
        return [type(problem).__name__, str(problem)]
    return []


def use_old_client() -> None:
    import openai

    Chat("openai:model", client=openai.OpenAI(api_key="dummy"))


def record_connections(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        connected.add(str(arguments[1][0]))


if __name__ == "__main__":
    sys.addaudithook(record_connections)
    found = {"conformance": run_conformance, "conversation": run_conversation}[sys.argv[1]]()
    print(json.dumps({**found, "connected": sorted(connected)}))
