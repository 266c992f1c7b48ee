"""What is tried with the real LiteLLM, in an environment of its own: prints what it has seen as JSON.

Run by `tests/real/test_litellm.py`, since LiteLLM and the tests need two versions of one package.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from longtalk import AsyncChat, Chat, Done
from longtalk.errors import LongtalkError
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


def conformance() -> dict[str, Any]:
    """The suite, against a server that speaks as OpenAI does."""

    def made(chat: Callable[..., Any], url: str, key: str) -> Any:
        return chat("litellm:openai/model", base_url=f"{url}/v1", api_key=key).provider

    reports = {
        "sync": check_provider(serve=over_http(lambda url, key: made(Chat, url, key))),
        "async": check_provider(serve=over_http(lambda url, key: Blocking(made(AsyncChat, url, key)))),
    }
    return {
        name: {"passed": report.passed, "failed": {each.name: str(each) for each in report.failed}}
        for name, report in reports.items()
    }


def conversation() -> dict[str, Any]:
    """Turns with tools, streams and thoughts, against a server that speaks as Anthropic does."""
    script = Script()
    with play(script) as url:
        chat = Chat("litellm:anthropic/claude-sonnet-4-5", base_url=url, api_key=script.key, tools=[look])
        calling = says("Let me look.", calls=[("toolu_1", "look", {"q": "bows"})], wire="anthropic")
        thanks = says("You are welcome.", wire="anthropic", pieces=3)
        script.add(ScriptedResponse(named(calling.body)), ScriptedResponse(named(thanks.body)))
        first = chat.send("Look up bows.", system="Be short.")
        script.add(ScriptedResponse(events=tuple(json.dumps(each).encode() for each in THINKING)))
        second = reply_of(chat, "Think.", state=first.state, system="Be short.")
        script.add(ScriptedResponse(events=thanks.events))
        third = reply_of(chat, "Thanks.", state=second.state, system="Be short.")
        # The last two say why it ends.
        script.add(*[ScriptedResponse(events=tuple(json.dumps(each).encode() for each in THINKING[:-2]))] * 3)
        cut = refused(lambda: reply_of(chat, "Think.", state=second.state, system="Be short."))
        script.clear()
        errors = [error_of(chat, script, status) for status in (400, 401, 429, 529)]
    return {
        "texts": [first.text, second.text, third.text],
        "usage": [first.usage.input, second.usage.output],
        "requests": [json.loads(request)["messages"] for request in script.requests[:4]],
        "cut": cut,
        "errors": errors,
        "unknown": refused(lambda: Chat("litellm:nonsense").send("Hi.")),
        "no key": refused(lambda: Chat("litellm:anthropic/claude-sonnet-4-5").send("Hi.")),
        "old client": refused(old_client),
    }


def look(q: str) -> str:
    """Look something up."""
    return f"about {q}"


def named(body: bytes) -> bytes:
    """LiteLLM wants to know which model has answered."""
    return body.replace(b"{", b'{"id":"msg_1","model":"m",', 1)


def reply_of(chat: Chat, message: str, **given: Any) -> Any:
    *_, last = chat.stream(message, **given)
    assert isinstance(last, Done)
    return last.reply


def error_of(chat: Chat, script: Script, status: int) -> list[Any]:
    """The error for a status, what it says, and how often the server was asked."""
    before = len(script.requests)
    body = json.dumps({"type": "error", "error": {"type": "error", "message": f"No {status}."}}).encode()
    script.add(*[ScriptedResponse(body, status=status, headers={"retry-after": "0"})] * 3)
    said = refused(lambda: chat.send("Hi."))
    script.clear()
    return [*said, len(script.requests) - before]


def refused(call: Callable[[], Any]) -> list[str]:
    try:
        call()
    except LongtalkError as problem:
        return [type(problem).__name__, str(problem)]
    return []


def old_client() -> None:
    import openai

    Chat("openai:model", client=openai.OpenAI(api_key="dummy"))


def watch(event: str, given: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(given[1], tuple):
        connected.add(str(given[1][0]))


if __name__ == "__main__":
    sys.addaudithook(watch)
    found = {"conformance": conformance, "conversation": conversation}[sys.argv[1]]()
    print(json.dumps({**found, "connected": sorted(connected)}))
