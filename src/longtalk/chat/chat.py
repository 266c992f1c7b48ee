"""Chat: a turn on a state that you hold.

Hand in a message and yesterday's state, get an answer and today's state. A chat keeps nothing between calls: one
object serves any number of conversations, from any number of threads or tasks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from longtalk._util.concurrency import ASYNC
from longtalk.chat.brief import AsyncStateBrief, get_brief_config
from longtalk.chat.state import read_state, state_shedder, state_writer
from longtalk.chat.switching import check_switch
from longtalk.context.epochs import read_windows
from longtalk.context.measure import Terms
from longtalk.context.pins import pin, unpin
from longtalk.errors import BadState, InputError
from longtalk.memory.brief.edits import edit_brief, to_operations
from longtalk.notices import Notice
from longtalk.policies import KeepAll, Policy
from longtalk.policies.memory import find_memory
from longtalk.providers.base import AsyncProvider
from longtalk.providers.factory import connect
from longtalk.reply import Reply, Shed
from longtalk.state import codec as states
from longtalk.state.sealing import BoundSeal, Seal
from longtalk.tokens import CheckedCounter, Counter, counter_for
from longtalk.tools import Toolbox
from longtalk.transcript.transcript import Transcript, now
from longtalk.turn.draft import Draft, add_event, begin
from longtalk.turn.memory import RECALL_TOOL, needs_recall_tool
from longtalk.turn.message import Message, neutralize_message, parse_message
from longtalk.turn.runner import AsyncTurnRunner
from longtalk.turn.stream import AsyncStream
from longtalk.turn.summarizer import AsyncSummarizer
from longtalk.turn.summary_claims import SummaryClaim
from longtalk.wires.neutral import event
from longtalk.wires.protocol import Preamble

if TYPE_CHECKING:
    from longtalk.memory.recall.config import Recall
    from longtalk.memory.recall.index import RecallIndex
    from longtalk.models.prices import Prices


class AsyncChat:
    """A model to talk with, and how: policy, tools, options.

    `model` is a name such as "local", "ollama:MODEL" or "openai-chat:MODEL", or a provider. `tools` are typed
    Python functions. `options` go to the provider as they are (temperature, metadata …); None leaves one out.
    `policy` says what is sent of a long conversation. With `carry="context"` the state keeps only what later turns
    can reach, and what leaves it is `reply.shed`. `window` is how many tokens the model takes with its answer, where
    you know it and we don't. `counter` counts tokens, in place of the estimate for this model.
    `seal` is for states that a client holds. A state that can't be read raises `BadState`, or with
    `on_bad_state="fresh"` starts over and says so on the reply; one of more than `max_state` bytes is not read.
    A conversation that was held over another wire goes on in this one's form, or with `on_switch="raise"` not at all.
    `base_url` and `api_key` go before the environment's; `client` is an HTTP client of your own (httpx2), or one of
    OpenAI's or Anthropic's SDK, with the address and the credentials that it has.
    """

    _is_stored = False
    """Whether a store keeps the conversation between turns."""

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
    ) -> None:
        _check_choice("carry", carry, "all", "context")
        _check_choice("on_bad_state", on_bad_state, "raise", "fresh")
        _check_choice("on_switch", on_switch, "convert", "raise")
        if not hasattr(policy, "compactors") or isinstance(policy, type):
            raise InputError(f"`policy` is a policy such as KeepLast(5), not {policy!r}.")
        strategies = [strategy for each in policy.compactors for strategy in each.strategies]
        if not self._is_stored and any(getattr(strategy, "background", False) for strategy in strategies):
            raise InputError("`background` needs a store that keeps the conversation meanwhile: use Conversation.")
        if carry == "context" and not policy.compactors:
            raise InputError(
                f"`carry` can be 'context' with a policy that bounds what is sent, and {policy!r} does not."
            )
        if counter is not None and (not hasattr(counter, "count") or isinstance(counter, type)):
            raise InputError(
                f"`counter` has a method `count(text)`, as tokens.Exact('o200k') does; {counter!r} has none."
            )
        if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
            raise InputError(f"`window` is how many tokens the model takes, not {window!r}.")
        if not isinstance(max_state, int):
            raise InputError(f"`max_state` is a number of bytes, not {max_state!r}.")
        self.provider = connect(model, base_url=base_url, api_key=api_key, client=client)
        self._policy = policy
        self._carry = carry
        self.counter = CheckedCounter(counter) if counter is not None else counter_for(self.provider.label)
        self._window = window or self.provider.capabilities.window
        self._reports_unknown_model = not self.provider.capabilities.described
        """Whether the next turn reports that the model is unknown."""
        self._tools = Toolbox.from_functions(tools, allow_async=ASYNC)
        self._options = self._check_options(options)
        # What is wrong with them is said now, not in the first turn.
        self.provider.wire.session_mode(self._merge_options(None))
        self._seal = seal
        self._on_bad_state = on_bad_state
        self._on_switch = on_switch
        self._max_state = max_state

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
        seal: Seal | BoundSeal | None = None,
    ) -> Reply:
        """One turn: the answer, with the next state.

        `message` is text, parts in the provider's form, or a list that may hold `System(…)`; None goes on with a
        turn that was cut off. `system` is sent first and never stored. `instruction` is for this turn only and goes
        last, behind the message. `tools` replace the chat's own, `options` are added to its own, `seal` goes before its
        own. `max_rounds` is how often tools may be run. `brief` has texts by field, or lists of them: with this
        message, fields of the brief say that.
        """
        loop = self._begin(message, state, system, instruction, tools, options, max_rounds, brief, seal)
        events = AsyncStream(loop, handed_in=state, stream=False)
        async for _ in events:
            pass
        return events.reply

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
        seal: Seal | BoundSeal | None = None,
    ) -> AsyncStream:
        """One turn as it happens: iterate over its events, the last of which is `Done(reply)`. As `send` otherwise."""
        loop = self._begin(message, state, system, instruction, tools, options, max_rounds, brief, seal)
        return AsyncStream(loop, handed_in=state, stream=True)

    async def note(
        self,
        text: str,
        *,
        state: bytes | None = None,
        source: str = "app",
        seal: Seal | BoundSeal | None = None,
    ) -> bytes:
        """Add an event, without a model call: something that happened and that nobody said. Returns the next state.

        A state that can't be read always raises here: there is no reply to say on that it was set aside.
        """
        for what, value in (("event", text), ("source", source)):
            if not isinstance(value, str) or not value.strip():
                raise InputError(f"The {what} of a note is text that says something, not {value!r}.")
        seal = seal or self._seal
        transcript = read_state(state, seal, max_bytes=self._max_state)
        return state_writer(seal)(
            add_event(transcript, event(text, source=source, at=now()), self.provider.wire, self.counter)
        )

    async def pin(self, entry: str, *, state: bytes, seal: Seal | BoundSeal | None = None) -> bytes:
        """Keep an entry, with its exchange, whatever the policy leaves out. Returns the next state.

        `entry` is the id of one of `reply.entries`, or `reply.id` for the turn. What would leave no room for the
        conversation is refused.
        """
        seal = seal or self._seal
        return state_writer(seal)(self.pin_in(read_state(state, seal, max_bytes=self._max_state), entry).revise())

    def pin_in(self, transcript: Transcript, entry: str) -> Transcript:
        """A transcript in which an entry is pinned, if what is sent to this model has room for it."""
        terms = Terms(
            wire=self.provider.wire,
            counter=self.counter,
            model=self.provider.label,
            preamble="",
            fixed=0,
            window=read_windows(transcript).get(self.provider.label) or self._window,
            answer=0,
        )
        return pin(transcript, entry, self._policy, terms)

    async def unpin(self, entry: str, *, state: bytes, seal: Seal | BoundSeal | None = None) -> bytes:
        """Let the policy leave an entry out again. Returns the next state."""
        seal = seal or self._seal
        return state_writer(seal)(unpin(read_state(state, seal, max_bytes=self._max_state), entry).revise())

    @property
    def brief(self) -> AsyncStateBrief:
        """The brief, where the policy keeps one, to read and to change in a state."""
        return AsyncStateBrief(
            get_brief_config(self._policy),
            self.counter,
            lambda state, seal: read_state(state, seal or self._seal, max_bytes=self._max_state),
            lambda transcript, seal: state_writer(seal or self._seal)(transcript),
        )

    async def aclose(self) -> None:
        """Let go of the connections."""
        await self.provider.aclose()

    async def __aenter__(self) -> AsyncChat:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _begin(
        self,
        message: Any,
        state: bytes | None,
        system: str | None,
        instruction: str | None,
        tools: Iterable[Any] | None,
        options: Mapping[str, Any] | None,
        max_rounds: int,
        brief: Mapping[str, Any] | None,
        seal: Seal | BoundSeal | None,
    ) -> AsyncTurnRunner:
        notices = []
        seal = seal or self._seal
        try:
            transcript = read_state(state, seal, max_bytes=self._max_state)
        except BadState as problem:
            if self._on_bad_state == "raise" or problem.reason == "type":
                raise
            transcript = Transcript()
            text = f"The conversation starts over. {problem} The original bytes are in this notice's `data`."
            notices.append(Notice("bad_state", text, problem.state))
        if len(transcript.pack.array) > 0.8 * self._max_state:
            text = f"The conversation fills most of the {self._max_state} bytes that are read back: raise `max_state`."
            notices.append(Notice("state_size", text))
        shed = state_shedder(self._policy, seal) if self._carry == "context" else None
        return self.turn_on(
            transcript,
            message,
            system=system,
            instruction=instruction,
            tools=tools,
            options=options,
            max_rounds=max_rounds,
            brief=brief,
            notices=notices,
            encode=state_writer(seal),
            shed=shed,
        )

    def turn_on(
        self,
        transcript: Transcript,
        message: Any,
        *,
        system: str | None,
        instruction: str | None,
        tools: Iterable[Any] | None,
        options: Mapping[str, Any] | None,
        max_rounds: int,
        brief: Mapping[str, Any] | None = None,
        notices: Iterable[Notice] = (),
        encode: Callable[[Transcript], bytes],
        shed: Shed | None = None,
        save: Callable[[Draft], Awaitable[tuple[Notice, ...]]] | None = None,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
        later: Callable[[AsyncSummarizer, SummaryClaim], None] | None = None,
        build_index: Callable[[str, Recall, int], Awaitable[RecallIndex]] | None = None,
    ) -> AsyncTurnRunner:
        """A turn on a transcript: for whoever holds one."""
        for name, text in (("system", system), ("instruction", instruction)):
            if text is not None and not isinstance(text, str):
                raise InputError(f"`{name}` is text, not {type(text).__name__}.")
        if not isinstance(max_rounds, int) or max_rounds < 0:
            raise InputError(f"`max_rounds` is how often tools may be run, 0 or more, not {max_rounds!r}.")
        toolbox = self._tools if tools is None else Toolbox.from_functions(tools, allow_async=ASYNC)
        if needs_recall_tool(self._policy, toolbox):
            toolbox = Toolbox.from_functions([*toolbox, RECALL_TOOL], allow_async=ASYNC)
        wire = self.provider.wire
        if find_memory(self._policy):
            message = neutralize_message(message)
        entries = [] if message is None else parse_message(message, wire)
        change = None if brief is None else self._make_brief_change(transcript, brief)
        notices = [*notices, *check_switch(transcript, message, wire, self.provider.label, on_switch=self._on_switch)]
        sent = self._merge_options(options)
        preamble = Preamble(system=system, tools=tuple(toolbox))
        digest = preamble.digest()
        if wire.session_mode(sent) and instruction:
            # What the provider keeps it would keep too: it goes with what is given fresh each turn.
            preamble = Preamble(system=f"{system}\n\n{instruction}" if system else instruction, tools=tuple(toolbox))
            instruction = None
        if transcript.turns and transcript.turns[-1].preamble not in ("", digest):
            text = (
                "The system text or the tools differ from the last turn's: they are sent as given, but the provider's "
                "cache of this conversation is void, and so are thinking blocks that are bound to it."
            )
            notices.append(Notice("preamble_changed", text))
        model = self.provider.label
        draft = begin(
            transcript,
            entries,
            wire=wire,
            model=model,
            preamble=digest,
            instruction=instruction,
            counter=self.counter,
            prices=self.prices(options),
        )
        draft = msgspec.structs.replace(draft, change=change)
        if self._reports_unknown_model:
            self._reports_unknown_model = False
            notices.append(_make_unknown_model_notice(model, self._window))
        for notice in notices:
            draft = draft.notice(notice)
        return AsyncTurnRunner(
            draft,
            provider=self.provider,
            tools=toolbox,
            preamble=preamble,
            policy=self._policy,
            options=sent,
            max_rounds=max_rounds,
            window=self._window,
            encode=encode,
            shed=shed,
            save=save,
            around=around,
            later=later,
            build_index=build_index,
        )

    def _make_brief_change(self, transcript: Transcript, brief: object) -> Callable[[Transcript], Transcript]:
        """Return the function that makes a turn's changes of the brief. Raises `InputError` if they can't be made."""
        changes, config = to_operations(brief), get_brief_config(self._policy)
        edit_brief(transcript, changes, config, self.counter)
        return lambda later: edit_brief(later, changes, config, self.counter)

    def prices(self, options: Mapping[str, Any] | None = None) -> Prices | None:
        """What a model call with these options costs, if that is known."""
        known = self.provider.capabilities.prices
        if known is None:
            return None
        from longtalk.models.prices import adjust_prices

        return adjust_prices(known, self._merge_options(options))

    def _merge_options(self, options: Mapping[str, Any] | None) -> dict[str, Any]:
        return {**self.provider.defaults, **self._options, **self._check_options(options)}

    def _check_options(self, options: Mapping[str, Any] | None) -> dict[str, Any]:
        if options is not None and not (isinstance(options, Mapping) and all(isinstance(key, str) for key in options)):
            raise InputError(f"`options` is a mapping of names to values, not {options!r}.")
        taken = [key for key in options or () if key in self.provider.wire.reserved]
        if taken:
            raise InputError(f"The option {taken[0]!r} can't be set: a chat sets it by itself.")
        if options and options.get("store") is False and self.provider.wire.session_mode(options):
            raise InputError(
                "A provider can't go on with what it does not keep: leave `store` out, or the other option."
            )
        return dict(options or {})


def _make_unknown_model_notice(model: str, window: int | None) -> Notice:
    what = "its price is not known" if window else "its window and its price are not known"
    provider, _, name = model.partition(":")
    how = f'longtalk.models.register({{"provider": "{provider}", "name": "{name}", "window": …, "prices": …}})'
    return Notice("unknown_model", f"{model} is in no list of models: {what}. {how} says them.")


def _check_choice(name: str, value: object, *allowed: str) -> None:
    if value not in allowed:
        raise InputError(f"`{name}` is {' or '.join(map(repr, allowed))}, not {value!r}.")
