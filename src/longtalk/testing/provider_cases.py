"""What the cases for providers are made of: a provider that is watched, a server that obeys, and a desk with both.

Each case is a function that takes a `Desk` and raises `AssertionError` where the provider breaks the contract of
`longtalk.providers.base`. Run them with `longtalk.testing.providers.check_provider`, or one by one with pytest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from unittest import SkipTest

from longtalk import _json
from longtalk._sync.chat import Chat
from longtalk.events import Done, Event, Text
from longtalk.providers.base import Capabilities, Keeper, Provider
from longtalk.providers.script import Step, says
from longtalk.reply import Reply
from longtalk.testing.provider_script import Act, Respond, Script, Serve
from longtalk.testing.report import holds
from longtalk.testing.validate import validate
from longtalk.wires.base import Preamble, Quirks, Wire

Check: TypeAlias = "Callable[[Desk], None]"
Make: TypeAlias = Callable[[], Provider]

_TEXT = re.compile(rb'"(?:content|text)"\s*:\s*("(?:[^"\\]|\\.)*")')


class Watched:
    """A provider that is looked at: what it is asked and what it answers are kept, and nothing is changed."""

    label: str
    model: str
    account: str
    wire: Wire
    capabilities: Capabilities
    defaults: Mapping[str, Any]

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        if isinstance(provider, Keeper):
            self.stands, self.opened = provider.stands, provider.opened
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
        """Whether its server would take all that it was asked to send."""
        for request in self.requests:
            validate(request, wire=self.wire.name)


@dataclass(frozen=True)
class Stage:
    """A provider whose server does as it is told."""

    script: Script
    provider: Watched

    def says(self, *texts: str, stream: bool, **fields: Any) -> None:
        """What the model says next."""
        self.script.add(*(act(says(text, wire=self.wire, **fields), stream=stream) for text in texts))

    def request(self, message: str = "Hello.", *, stream: bool) -> bytes:
        """A request as a chat would make it."""
        wire = self.provider.wire
        return wire.request(
            model=self.provider.model,
            preamble=Preamble(),
            pieces=[wire.user(message)],
            mark=1,
            options=self.provider.defaults,
            quirks=Quirks(),
            stream=stream,
        )

    def call(self, *, stream: bool) -> list[bytes]:
        """What the provider gives for a request, without a chat around it."""
        body = self.request(stream=stream)
        return list(self.provider.stream(body)) if stream else [self.provider.send(body)]

    @property
    def wire(self) -> str:
        return self.provider.wire.name


@dataclass(frozen=True)
class Desk:
    """Where a case works: it is given providers, and all of them are closed after it."""

    make: Make | None
    serve: Serve | None
    options: Mapping[str, Any]
    stack: ExitStack = field(default_factory=ExitStack)

    def provider(self) -> Watched:
        """One that answers: the real one, or where there is none, one that says what it was told."""
        if self.make is None:
            return self.stage(echo).provider
        watched = Watched(self.make())
        self.stack.callback(watched.close)
        return watched

    def stage(self, respond: Callable[[str], Respond] | None = None, *, absent: bool = False) -> Stage:
        """One whose server follows a script."""
        if self.serve is None:
            raise SkipTest("there is no server that follows a script")
        script = Script(absent=absent)
        watched = Watched(self.stack.enter_context(self.serve(script)))
        self.stack.callback(watched.close)
        script.respond = respond(watched.wire.name) if respond else None
        return Stage(script, watched)

    def keeps(self, provider: Watched) -> bool:
        """Whether the options ask the provider to keep the conversation itself."""
        return bool(provider.wire.keeps({**provider.defaults, **self.options}))

    def sends_all(self, provider: Watched) -> None:
        """Where the provider keeps the conversation, the case can't be tried."""
        if self.keeps(provider):
            raise SkipTest("the provider keeps the conversation, and is sent only what is new")

    def chat(self, provider: Watched, **settings: Any) -> Chat:
        return Chat(provider, options=self.options, **settings)


@dataclass(frozen=True)
class Case:
    """One promise of the contract. `run` raises when a provider does not keep it, `SkipTest` when it can't be tried."""

    name: str
    check: Check
    scripted: bool = False
    """Whether it needs a server that follows a script."""

    def run(
        self, make: Make | None = None, *, serve: Serve | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        desk = Desk(make, serve, options or {})
        with desk.stack:
            self.check(desk)

    def __str__(self) -> str:
        return self.name


def into(cases: list[Case], *, scripted: bool = False) -> Callable[[Check], Check]:
    """A decorator that makes a function one of these cases."""

    def add(check: Check) -> Check:
        cases.append(Case(check.__name__, check, scripted))
        return check

    return add


# Turns


def turn(chat: Chat, message: str, *, stream: bool = False, **given: Any) -> Reply:
    """A turn to its end."""
    if not stream:
        return chat.send(message, **given)
    reply, _ = shown(chat, message, **given)
    return reply


def shown(chat: Chat, message: str, **given: Any) -> tuple[Reply, str]:
    """A streamed turn to its end: the reply, and the text that was shown before."""
    events: list[Event] = list(chat.stream(message, **given))
    done = [event for event in events if isinstance(event, Done)]
    holds(len(done) == 1 and events[-1] is done[0], "the events of a stream do not end with Done")
    return done[0].reply, "".join(event.text for event in events if isinstance(event, Text))


def ways(provider: Watched) -> tuple[bool, ...]:
    """Not streamed, and streamed where the provider can."""
    return (False, True) if provider.capabilities.streaming else (False,)


def streaming(provider: Watched) -> Watched:
    """A provider that streams, or the case can't be tried."""
    if not provider.capabilities.streaming:
        raise SkipTest("the provider says that it does not stream")
    return provider


# Bytes


def act(step: Step, *, stream: bool) -> Act:
    events = tuple(data for data in step.events if isinstance(data, bytes))
    return Act(events=events) if stream else Act(step.body)


def echo(wire: str) -> Respond:
    """A model that says what it was told last, and counts the bytes."""

    def respond(request: bytes, stream: bool) -> Act:
        told = _json.text(_TEXT.findall(request)[-1])
        return act(says(f"You said: {told}", wire=wire, usage=_usage(wire, len(request) // 4)), stream=stream)

    return respond


def _usage(wire: str, tokens: int) -> dict[str, int]:
    if wire == "gemini":
        return {"promptTokenCount": tokens, "candidatesTokenCount": 5, "totalTokenCount": tokens + 5}
    if wire == "openai-chat":
        return {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5}
    return {"input_tokens": tokens, "output_tokens": 5}


def parts_of(native: bytes, wire: str) -> list[bytes]:
    """The bytes of an answer that have to come back unchanged.

    Of an item on the Responses wire the id stays behind, of a Gemini or Anthropic message the blocks are what came.
    """
    fields = _json.fields(native)
    if wire == "openai-responses":
        items = map(_json.fields, _json.items(fields["output"]))
        return [value for item in items for name, value in item.items() if name not in ("id", "status")]
    lists = {"anthropic": "content", "gemini": "parts"}
    return _json.items(fields[lists[wire]]) if wire in lists else [native]
