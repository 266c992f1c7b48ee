"""Chat: turns on a conversation whose state the caller keeps.

Pass a message and the last state, and get an answer and the next state. A chat keeps nothing between calls, so one
object serves any number of conversations, threads and tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from longtalk.chat.brief import AsyncStateBrief
from longtalk.chat.session import AsyncStateSession
from longtalk.chat.state import AnySeal, read_state, state_writer
from longtalk.context.exclusions import exclude, include
from longtalk.context.pins import unpin
from longtalk.errors import BadState, InputError
from longtalk.notices import Notice
from longtalk.observation import OnEvent
from longtalk.policies import KeepAll, Policy
from longtalk.providers.base import AsyncProvider
from longtalk.reply import Reply
from longtalk.state import codec as states
from longtalk.state.sealing import BoundSeal, Seal
from longtalk.tokens import Counter
from longtalk.transcript.transcript import Transcript, now
from longtalk.transfer.append import NativeMessages, append_messages, read_messages
from longtalk.transfer.shorten import shorten
from longtalk.turn.draft import add_event
from longtalk.turn.engine import AsyncEngine, TurnArguments, check_choice
from longtalk.turn.message import Message, ParsedMessage
from longtalk.turn.model_calls import MAX_RETRIES
from longtalk.turn.runner import AsyncTurnRunner
from longtalk.turn.stream import AsyncStream
from longtalk.usage import Usage
from longtalk.wires.neutral import event


class Compaction(msgspec.Struct, frozen=True):
    """A conversation that was shortened on request."""

    state: bytes
    usage: Usage
    """The tokens of the model call that has written a summary; all 0 without one."""
    notices: tuple[Notice, ...] = ()


class AsyncChat:
    """A model with a policy, tools and options. The caller passes the state of a conversation to each call.

    `model` is a name such as "local", "ollama:MODEL" or "openai-chat:MODEL", or a provider. `tools` are typed Python
    functions, or tools made with `external_tool`. `options` are passed to the provider unchanged (temperature, metadata
    …); the value None removes a default option. `policy` decides which part of a long conversation is sent. With
    `carry="context"`, the state keeps only the entries that later turns may need, and `reply.shed` has the others.
    `window` is the number of tokens that the model accepts, including its answer, in case Longtalk does not know it.
    `counter` counts tokens in place of the built-in estimate.

    `seal` is for states that are stored by a client. A state that can't be read raises `BadState`; with
    `on_bad_state="fresh"`, the conversation starts over instead, with a notice in the reply. A state of more than
    `max_state` bytes is not read. A conversation that was held over another wire is converted; with
    `on_switch="raise"`, it raises `InputError` instead.

    `base_url` and `api_key` take precedence over environment variables. `client` is your own HTTP client (httpx2), or a
    client of OpenAI's or Anthropic's SDK, whose address and credentials are then used. `timeout` is the number of
    seconds that a model call may wait for more bytes from the server. `max_retries` is the number of times that a call
    is retried if it fails before its answer begins. `on_event` is a plain function that is called with an `Observation`
    of each model call, tool run, compaction and retry. The logger "longtalk" gets them too. They contain no message
    content.
    """

    def __init__(
        self,
        model: str | AsyncProvider,
        *,
        policy: Policy = KeepAll(),  # noqa: B008
        tools: Iterable[Any] = (),
        options: Mapping[str, Any] | None = None,
        seal: Seal | BoundSeal | None = None,
        carry: Literal["all", "context"] = "all",
        on_bad_state: Literal["raise", "fresh"] = "raise",
        on_switch: Literal["convert", "raise"] = "convert",
        max_state: int = states.MAX_BYTES,
        window: int | None = None,
        counter: Counter | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        client: Any = None,
        timeout: float | None = None,
        max_retries: int = MAX_RETRIES,
        on_event: OnEvent | None = None,
    ) -> None:
        check_choice("carry", carry, "all", "context")
        check_choice("on_bad_state", on_bad_state, "raise", "fresh")
        if not isinstance(max_state, int):
            raise InputError(f"`max_state`, in bytes, must be an integer of at least 1, not {max_state!r}.")
        self._engine = AsyncEngine(
            model,
            policy=policy,
            tools=tools,
            options=options,
            counter=counter,
            window=window,
            on_switch=on_switch,
            base_url=base_url,
            api_key=api_key,
            client=client,
            timeout=timeout,
            max_retries=max_retries,
            on_event=on_event,
        )
        strategies = [strategy for each in policy.compactors for strategy in each.strategies]
        if any(getattr(strategy, "background", False) for strategy in strategies):
            raise InputError(
                "A policy with background=True needs a stored conversation: use Conversation instead of Chat."
            )
        if carry == "context" and not policy.compactors:
            raise InputError(
                f"carry='context' needs a policy that limits what is sent, such as KeepLast(10), not {policy!r}."
            )
        self._sheds = carry == "context"
        self._seal = seal
        self._on_bad_state = on_bad_state
        self._max_state = max_state

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self._engine!r}>"

    @property
    def provider(self) -> AsyncProvider:
        """The provider that answers."""
        return self._engine.provider

    async def send(
        self,
        message: Message | None,
        *,
        state: bytes | None = None,
        system: str | None = None,
        instruction: str | None = None,
        tools: Iterable[Any] | None = None,
        options: Mapping[str, Any] | None = None,
        max_rounds: int = 10,
        brief: Mapping[str, Any] | None = None,
        output: Any = None,
        seal: Seal | BoundSeal | None = None,
    ) -> Reply:
        """Run a turn, and return the answer with the next state.

        `message` is text, parts in the provider's JSON, or a list that may also contain `System(…)`; or a list of
        `ToolOutput`s for the calls that the last turn left open. None continues a turn that was cut off. `system` is
        sent first and never stored. `instruction` applies to this turn only and is sent last, after the message.
        `tools` replace the tools of the chat, `options` are added to its options, and `seal` replaces its seal.
        `max_rounds` is the maximum number of times that tools are run. `brief` maps fields of the brief to a text or a
        list of texts that they are set to. `output` is the type of the answer (a dataclass, a TypedDict, a
        `msgspec.Struct` or a pydantic model): the answer is decoded into `reply.output`, or `BadOutput` is raised.
        """
        given = TurnArguments(
            message=message,
            system=system,
            instruction=instruction,
            tools=tools,
            options=options,
            max_rounds=max_rounds,
            brief=brief,
            output=output,
        )
        events = AsyncStream(self._begin(given, state, seal), handed_in=state, stream=False)
        async for _ in events:
            pass
        return events.reply

    async def resume(
        self,
        *,
        state: bytes,
        system: str | None = None,
        instruction: str | None = None,
        tools: Iterable[Any] | None = None,
        options: Mapping[str, Any] | None = None,
        max_rounds: int = 10,
        seal: Seal | BoundSeal | None = None,
    ) -> Reply:
        """Continue a turn that was cut off, or answer messages that were added. The arguments are those of `send`."""
        return await self.send(
            None,
            state=state,
            system=system,
            instruction=instruction,
            tools=tools,
            options=options,
            max_rounds=max_rounds,
            seal=seal,
        )

    def stream(
        self,
        message: Message | None,
        *,
        state: bytes | None = None,
        system: str | None = None,
        instruction: str | None = None,
        tools: Iterable[Any] | None = None,
        options: Mapping[str, Any] | None = None,
        max_rounds: int = 10,
        brief: Mapping[str, Any] | None = None,
        output: Any = None,
        seal: Seal | BoundSeal | None = None,
    ) -> AsyncStream[Reply]:
        """Run a turn as a stream of events, the last of which is `Done(reply)`. The arguments are those of `send`."""
        given = TurnArguments(
            message=message,
            system=system,
            instruction=instruction,
            tools=tools,
            options=options,
            max_rounds=max_rounds,
            brief=brief,
            output=output,
        )
        return self.start(given, state, seal)

    def start(
        self, given: TurnArguments, state: bytes | None, seal: Seal | BoundSeal | None = None
    ) -> AsyncStream[Reply]:
        """Run the turn that these arguments describe, as a stream."""
        return AsyncStream(self._begin(given, state, seal), handed_in=state, stream=True)

    async def count_tokens(
        self,
        message: Message | None,
        *,
        state: bytes | None = None,
        system: str | None = None,
        instruction: str | None = None,
        tools: Iterable[Any] | None = None,
        options: Mapping[str, Any] | None = None,
        output: Any = None,
        seal: Seal | BoundSeal | None = None,
    ) -> int:
        """Return the number of tokens of the request that `send` would make first, without making it.

        The number is an estimate; a summary that would be written first is not counted. The arguments are those of
        `send`.
        """
        given = TurnArguments(
            message=message, system=system, instruction=instruction, tools=tools, options=options, output=output
        )
        return await self._begin(given, state, seal).count_tokens()

    async def compact(
        self,
        *,
        state: bytes,
        system: str | None = None,
        tools: Iterable[Any] | None = None,
        options: Mapping[str, Any] | None = None,
        seal: Seal | BoundSeal | None = None,
    ) -> Compaction:
        """Shorten a conversation to the targets of the policy now, even if no limit is exceeded.

        The new state has only the entries that requests would still contain, after a note with the summary or the brief
        that stands for the others. The model may be called to write a summary. The other arguments are those of `send`.
        """
        # The next message is unknown, and is not part of the result.
        message = ParsedMessage((event("", source="", at=now()),))
        runner = self._begin(TurnArguments(message=message, system=system, tools=tools, options=options), state, seal)
        epoch = await runner.compact()
        shorter = shorten(runner.draft.transcript, epoch, self._engine.counter)
        usage = sum(map(self.provider.wire.read_usage, runner.draft.turn.usage), Usage())
        return Compaction(state_writer(seal or self._seal)(shorter), usage, runner.draft.notices)

    async def note(
        self,
        text: str,
        *,
        state: bytes | None = None,
        source: str = "app",
        seal: Seal | BoundSeal | None = None,
    ) -> bytes:
        """Add an event, which happened outside the conversation, without calling the model. Return the next state.

        A state that can't be read always raises `BadState` here, because there is no reply that could report it.
        """
        for what, value in (("event", text), ("source", source)):
            if not isinstance(value, str) or not value.strip():
                raise InputError(f"The {what} of a note must be non-empty text, not {value!r}.")
        seal = seal or self._seal
        transcript = read_state(state, seal, max_bytes=self._max_state)
        return state_writer(seal)(
            add_event(transcript, event(text, source=source, at=now()), self.provider.wire, self._engine.counter)
        )

    async def append(
        self, messages: NativeMessages, *, state: bytes | None = None, seal: Seal | BoundSeal | None = None
    ) -> bytes:
        """Add messages of any role without a model call, as if they had been said. Return the next state.

        `messages` are in the provider's JSON: objects with a role, their exact JSON as bytes, or `System(…)`. Tool
        results must follow their calls, and only the last answer may have calls without results. A state that can't be
        read always raises `BadState` here.
        """
        seal = seal or self._seal
        transcript = read_state(state, seal, max_bytes=self._max_state)
        new = read_messages(messages, self.provider.wire)
        return state_writer(seal)(append_messages(transcript, new, self._engine.counter))

    async def from_messages(self, messages: NativeMessages, *, seal: Seal | BoundSeal | None = None) -> bytes:
        """Return the state of a conversation that begins with these messages. See `append`."""
        return await self.append(messages, seal=seal)

    async def pin(self, entry: str, *, state: bytes, seal: Seal | BoundSeal | None = None) -> bytes:
        """Keep an entry, with its exchange, in all requests, whatever the policy leaves out. Return the next state.

        `entry` is the id of one of `reply.entries`, or `reply.turn_id` for the whole turn. Raise `PinRefused` if the
        pinned exchanges would leave no room for the conversation.
        """
        seal = seal or self._seal
        return state_writer(seal)(self._engine.pin(read_state(state, seal, max_bytes=self._max_state), entry).revise())

    async def unpin(self, entry: str, *, state: bytes, seal: Seal | BoundSeal | None = None) -> bytes:
        """Let the policy leave out a pinned entry again. Return the next state."""
        seal = seal or self._seal
        return state_writer(seal)(unpin(read_state(state, seal, max_bytes=self._max_state), entry).revise())

    async def exclude(self, entry: str, *, state: bytes, seal: Seal | BoundSeal | None = None) -> bytes:
        """Leave an entry, with its exchange, out of all requests, whatever the policy keeps. Return the next state.

        `entry` means the same as for `pin`. The exchange stays in the state, but is neither summarized nor recalled.
        """
        seal = seal or self._seal
        return state_writer(seal)(exclude(read_state(state, seal, max_bytes=self._max_state), entry).revise())

    async def include(self, entry: str, *, state: bytes, seal: Seal | BoundSeal | None = None) -> bytes:
        """Undo the exclusion of an entry, so that it is sent again if the policy keeps it. Return the next state."""
        seal = seal or self._seal
        return state_writer(seal)(include(read_state(state, seal, max_bytes=self._max_state), entry).revise())

    @property
    def brief(self) -> AsyncStateBrief:
        """The brief, with methods to read and change it in a state. Raises `InputError` if the policy keeps none."""
        return AsyncStateBrief(
            self._engine.brief,
            self._engine.counter,
            lambda state, seal: read_state(state, seal or self._seal, max_bytes=self._max_state),
            lambda transcript, seal: state_writer(seal or self._seal)(transcript),
        )

    async def aclose(self) -> None:
        """Close the provider's connections."""
        await self._engine.aclose()

    async def __aenter__(self) -> AsyncChat:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _begin(self, given: TurnArguments, state: bytes | None, seal: AnySeal) -> AsyncTurnRunner[Reply]:
        notices = []
        seal = seal or self._seal
        try:
            transcript = read_state(state, seal, max_bytes=self._max_state)
        except BadState as problem:
            if self._on_bad_state == "raise" or problem.reason == "type":
                raise
            transcript = Transcript()
            text = (
                f"The conversation starts over, because its state can't be used. {problem} The original bytes are "
                "in this notice's `data`."
            )
            notices.append(Notice("bad_state", text, problem.state))
        if len(transcript.pack.array) > 0.8 * self._max_state:
            text = (
                f"The state has almost reached the limit of {self._max_state} bytes: raise `max_state`, or shorten "
                "the conversation."
            )
            notices.append(Notice("state_size", text))
        session = AsyncStateSession(self._engine.policy, seal, sheds=self._sheds)
        return self._engine.begin(session, transcript, given, notices=notices)
