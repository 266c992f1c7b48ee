"""The building blocks of the provider suite: a recording provider, a scripted server, and the harness of a case.

Each case is a function that takes a `Harness` and raises `AssertionError` if the provider breaks the contract of
`longtalk.providers.base`. Run all cases with `longtalk.testing.providers.suite.check_provider`, or run them one by one
with pytest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from unittest import SkipTest

from longtalk._sync.chat.chat import Chat
from longtalk._util import json_bytes
from longtalk.events import Done, Event, Text
from longtalk.providers.base import Capabilities, Provider, StatefulProvider
from longtalk.providers.scripted.script import Step, says
from longtalk.reply import Reply
from longtalk.testing.providers.script import Respond, Script, ScriptedResponse, Serve
from longtalk.testing.report import assert_true
from longtalk.testing.wires.validate import validate
from longtalk.wires.protocol import Preamble, Quirks, Wire
from longtalk.wires.registry import AGENTS, HTTP_WIRES, find_family

Check: TypeAlias = "Callable[[Harness], None]"
Make: TypeAlias = Callable[[], Provider]

_TEXT = re.compile(rb'"(?:content|text)"\s*:\s*("(?:[^"\\]|\\.)*")')


class RecordingProvider:
    """A wrapper around a provider that records requests, answers and streams without changing them."""

    label: str
    model: str
    account: str
    wire: Wire
    capabilities: Capabilities
    defaults: Mapping[str, Any]

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        if isinstance(provider, StatefulProvider):
            self.is_current, self.open_conversation = provider.is_current, provider.open_conversation
        self.requests: list[bytes] = []
        self.answers: list[bytes] = []
        self.streams: list[Generator[bytes, None, None]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.provider, name)

    def send(self, body: bytes) -> bytes:
        self.requests.append(body)
        self.answers.append(self.provider.send(body))
        return self.answers[-1]

    def stream(self, body: bytes) -> Generator[bytes, None, None]:
        self.requests.append(body)
        self.streams.append(self.provider.stream(body))
        yield from self.streams[-1]

    def close(self) -> None:
        self.provider.close()

    def check_requests(self) -> None:
        """Raise `WireViolation` if any recorded request is invalid."""
        for request in self.requests:
            validate(request, wire=self.wire.name)


@dataclass(frozen=True)
class ScriptedServer:
    """The script of a server, and a provider that sends its requests to that server."""

    script: Script
    provider: RecordingProvider

    def add_answers(self, *texts: str, stream: bool, **fields: Any) -> None:
        """Add one answer of the model per text to the script."""
        self.script.add(*(to_response(says(text, wire=self.wire, **fields), stream=stream) for text in texts))

    def request(self, message: str = "Hello.", *, stream: bool) -> bytes:
        """Return the request that a chat would send for this message."""
        wire = self.provider.wire
        return wire.build_request(
            model=self.provider.model,
            preamble=Preamble(),
            pieces=[wire.write_user(message)],
            mark=1,
            options=self.provider.defaults,
            quirks=Quirks(),
            stream=stream,
        )

    def call(self, *, stream: bool) -> list[bytes]:
        """Call the provider directly, without a chat. Return the events of the stream, or only the response body."""
        body = self.request(stream=stream)
        return list(self.provider.stream(body)) if stream else [self.provider.send(body)]

    @property
    def wire(self) -> str:
        """The name of the wire that the script is written in."""
        return find_family(self.provider.wire) or self.provider.wire.name


@dataclass(frozen=True)
class Harness:
    """The environment of one case. Leaving `stack` closes all providers that the harness has created."""

    make: Make | None
    serve: Serve | None
    options: Mapping[str, Any]
    stack: ExitStack = field(default_factory=ExitStack)

    def provider(self) -> RecordingProvider:
        """Return a provider from `make` or, without `make`, the provider of a scripted server that echoes messages."""
        if self.make is None:
            return self.server(echo).provider
        provider = RecordingProvider(self.make())
        self.stack.callback(provider.close)
        return provider

    def server(self, respond: Callable[[str], Respond] | None = None, *, absent: bool = False) -> ScriptedServer:
        """Return a scripted server with its provider. Skip the case if there is no `serve` function.

        `respond`, given the name of the wire, returns the function that answers requests beyond the script. With
        `absent`, no server runs at the provider's address.
        """
        if self.serve is None:
            raise SkipTest("this case needs a scripted server; pass serve=")
        script = Script(absent=absent)
        provider = RecordingProvider(self.stack.enter_context(self.serve(script)))
        self.stack.callback(provider.close)
        server = ScriptedServer(script, provider)
        if server.wire not in (*HTTP_WIRES, *AGENTS):
            raise SkipTest(f"the scripted server does not speak {server.wire}; pass make=")
        script.respond = respond(server.wire) if respond else None
        return server

    def keeps_conversation(self, provider: RecordingProvider) -> bool:
        """Return whether the options ask the provider to keep the conversation itself."""
        return bool(provider.wire.session_mode({**provider.defaults, **self.options}))

    def require_full_requests(self, provider: RecordingProvider) -> None:
        """Skip the case if the provider keeps the conversation itself, since requests then have only new messages."""
        if self.keeps_conversation(provider):
            raise SkipTest("the provider keeps the conversation, so requests contain only new messages")

    def chat(self, provider: RecordingProvider, **settings: Any) -> Chat:
        return Chat(provider, options=self.options, **settings)


@dataclass(frozen=True)
class Case:
    """A test of one promise of the provider contract.

    `run` raises `AssertionError` if a provider breaks the promise, and `SkipTest` if the case can't run with it.
    """

    name: str
    check: Check
    scripted: bool = False
    """Whether the case needs a scripted server."""

    def run(
        self, make: Make | None = None, *, serve: Serve | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        harness = Harness(make, serve, options or {})
        with harness.stack:
            self.check(harness)

    def __str__(self) -> str:
        return self.name


def add_to(cases: list[Case], *, scripted: bool = False) -> Callable[[Check], Check]:
    """Return a decorator that adds the function to `cases` as a case with the function's name."""

    def add(check: Check) -> Check:
        cases.append(Case(check.__name__, check, scripted))
        return check

    return add


# Turns


def run_turn(chat: Chat, message: str, *, stream: bool = False, **given: Any) -> Reply:
    """Run a turn to its end, streamed or not, and return the reply."""
    if not stream:
        return chat.send(message, **given)
    reply, _ = stream_turn(chat, message, **given)
    return reply


def stream_turn(chat: Chat, message: str, **given: Any) -> tuple[Reply, str]:
    """Run a streamed turn to its end. Return the reply, and the joined text of all `Text` events."""
    events: list[Event] = list(chat.stream(message, **given))
    done = [event for event in events if isinstance(event, Done)]
    assert_true(len(done) == 1 and events[-1] is done[0], "the events of a stream do not end with one Done")
    return done[0].reply, "".join(event.text for event in events if isinstance(event, Text))


def list_stream_modes(provider: RecordingProvider) -> tuple[bool, ...]:
    """Return the values of the `stream` argument that the provider supports."""
    return (False, True) if provider.capabilities.streaming else (False,)


def require_streaming(provider: RecordingProvider) -> RecordingProvider:
    """Return the provider, or skip the case if the provider doesn't support streaming."""
    if not provider.capabilities.streaming:
        raise SkipTest("the provider declares that it does not support streaming")
    return provider


# Bytes


def to_response(step: Step, *, stream: bool) -> ScriptedResponse:
    """Return the answer of a scripted step as a server response: the events of a stream, or one body."""
    events = tuple(data for data in step.events if isinstance(data, bytes))
    return ScriptedResponse(events=events) if stream else ScriptedResponse(step.body)


def echo(wire: str) -> Respond:
    """Return a function that answers each request by quoting its last message.

    The usage in the answer is estimated from the size of the request.
    """

    def respond(request: bytes, stream: bool) -> ScriptedResponse:
        message = json_bytes.text(_TEXT.findall(request)[-1])
        return to_response(
            says(f"You said: {message}", wire=wire, usage=_make_usage(wire, len(request) // 4)), stream=stream
        )

    return respond


def _make_usage(wire: str, tokens: int) -> dict[str, int]:
    if wire == "gemini":
        return {"promptTokenCount": tokens, "candidatesTokenCount": 5, "totalTokenCount": tokens + 5}
    if wire == "openai-chat":
        return {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5}
    return {"input_tokens": tokens, "output_tokens": 5}


def list_exact_parts(native: bytes, wire: str) -> list[bytes]:
    """Return the parts of an answer that later requests must contain byte for byte.

    On the Responses wire, these are the values of all fields of each item except `id` and `status`; for Gemini and
    Anthropic, the parts or blocks of the message; on the chat wire, the whole message.
    """
    fields = json_bytes.fields(native)
    if wire == "openai-responses":
        items = map(json_bytes.fields, json_bytes.items(fields["output"]))
        return [value for item in items for name, value in item.items() if name not in ("id", "status")]
    lists = {"anthropic": "content", "gemini": "parts"}
    return json_bytes.items(fields[lists[wire]]) if wire in lists else [native]
