"""The engine: a model and how to talk with it. Chats and conversations have one each, and begin their turns with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from longtalk._util.concurrency import ASYNC
from longtalk.context.epochs import read_windows
from longtalk.context.measure import Terms
from longtalk.context.pins import pin
from longtalk.context.prepare import Recipient
from longtalk.errors import InputError
from longtalk.memory.brief.edits import edit_brief, to_operations
from longtalk.memory.brief.schema import Brief
from longtalk.memory.cards import capture
from longtalk.notices import Notice
from longtalk.observation import Observer, OnEvent, check_on_event
from longtalk.policies import Policy
from longtalk.policies.base import find_brief_keeper
from longtalk.providers.base import AsyncProvider
from longtalk.providers.factory import connect
from longtalk.reply import TurnReply
from longtalk.tokens import CheckedCounter, Counter, counter_for
from longtalk.tools import Toolbox
from longtalk.transcript.transcript import Transcript
from longtalk.turn.draft import begin
from longtalk.turn.learned import read_quirks, report_unknown_model
from longtalk.turn.memory import RECALL_TOOL, needs_recall_tool
from longtalk.turn.message import neutralize_message, parse_message
from longtalk.turn.output import OutputType, add_instruction
from longtalk.turn.runner import MAX_RETRIES, AsyncTurnRunner
from longtalk.turn.session import AsyncSession
from longtalk.turn.switching import check_switch
from longtalk.turn.tool_outputs import check_nothing_waits, find_waiting_calls, parse_outputs, read_outputs
from longtalk.wires.protocol import Preamble

if TYPE_CHECKING:
    from longtalk.models.prices import Prices

R = TypeVar("R", bound=TurnReply)


class TurnArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller says with one turn."""

    message: Any
    system: str | None = None
    instruction: str | None = None
    tools: Any = None
    options: Mapping[str, Any] | None = None
    max_rounds: int = 10
    brief: Mapping[str, Any] | None = None
    output: Any = None

    def __post_init__(self) -> None:
        for name, text in (("system", self.system), ("instruction", self.instruction)):
            if text is not None and not isinstance(text, str):
                raise InputError(f"`{name}` must be text, not {type(text).__name__}.")
        if not isinstance(self.max_rounds, int) or self.max_rounds < 0:
            raise InputError(f"`max_rounds` must be 0 or a positive integer, not {self.max_rounds!r}.")


class AsyncEngine:
    """A provider, a policy, tools, options and limits: all that turns have in common. It keeps no conversation."""

    def __init__(
        self,
        model: str | AsyncProvider,
        *,
        policy: Policy,
        tools: Iterable[Any] = (),
        options: Mapping[str, Any] | None = None,
        counter: Counter | None = None,
        window: int | None = None,
        on_switch: Literal["convert", "raise"] = "convert",
        base_url: str | None = None,
        api_key: str | None = None,
        client: Any = None,
        timeout: float | None = None,
        max_retries: int = MAX_RETRIES,
        on_event: OnEvent | None = None,
    ) -> None:
        check_choice("on_switch", on_switch, "convert", "raise")
        if not hasattr(policy, "compactors") or isinstance(policy, type):
            raise InputError(f"`policy` must be a policy such as KeepLast(5), not {policy!r}.")
        if counter is not None and (not hasattr(counter, "count") or isinstance(counter, type)):
            raise InputError(
                f"`counter` must have a method `count(text)`, as tokens.Exact('o200k') does; {counter!r} has none."
            )
        if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
            raise InputError(f"`window` must be a number of tokens, at least 1, not {window!r}.")
        if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 0:
            raise InputError(f"`max_retries` is how often a model call is made again, 0 or more, not {max_retries!r}.")
        check_on_event(on_event)
        self.provider = connect(model, base_url=base_url, api_key=api_key, client=client, timeout=timeout)
        self._max_retries = max_retries
        self._on_event = on_event
        self.policy = policy
        self.counter = CheckedCounter(counter) if counter is not None else counter_for(self.provider.label)
        self._window = window or self.provider.capabilities.window
        self._tools = Toolbox.from_functions(tools, allow_async=ASYNC)
        self._options = self._check_options(options)
        # What is wrong with them is said now, not in the first turn.
        self.provider.wire.session_mode(self._merge_options(None))
        self._on_switch = on_switch

    def __repr__(self) -> str:
        tools = f", tools {', '.join(self._tools.names)}" if self._tools.names else ""
        return f"{self.provider.label} under {self.policy!r}{tools}"

    @property
    def brief(self) -> Brief:
        """The configuration of the brief. Raises `InputError` if the policy keeps none."""
        keeper = find_brief_keeper(self.policy)
        if keeper is None:
            raise InputError("There is no brief under this policy: policy=Memory() keeps one.")
        return keeper.brief

    def begin(
        self, session: AsyncSession[R], transcript: Transcript, given: TurnArguments, *, notices: Iterable[Notice] = ()
    ) -> AsyncTurnRunner[R]:
        """Return a turn on a transcript, ready to be played. Nothing has been sent or saved yet."""
        toolbox = self._tools if given.tools is None else Toolbox.from_functions(given.tools, allow_async=ASYNC)
        if needs_recall_tool(self.policy, toolbox):
            toolbox = Toolbox.from_functions([*toolbox, RECALL_TOOL], allow_async=ASYNC)
        provider, wire, message = self.provider, self.provider.wire, given.message
        if find_brief_keeper(self.policy):
            message = neutralize_message(message)
        waiting, outputs = find_waiting_calls(transcript, toolbox), read_outputs(message)
        if message is None:
            check_nothing_waits(transcript, waiting)
        # Results go on over the wire of their calls, as a turn without a message does.
        checked = None if outputs is not None else message
        change = None if given.brief is None else self._make_brief_change(transcript, given.brief)
        notices = [*notices, *check_switch(transcript, checked, wire, provider.label, on_switch=self._on_switch)]
        if outputs is not None:
            entries = parse_outputs(outputs, transcript, waiting, wire)
        else:
            entries = [] if message is None else parse_message(message, wire)
        options = self._merge_options(given.options)
        keeps_conversation = bool(wire.session_mode(options))
        preamble = Preamble(system=given.system, tools=tuple(toolbox))
        digest = preamble.digest()
        instruction = given.instruction
        output = None if given.output is None else OutputType(given.output)
        if output is not None:
            quirks = read_quirks(transcript, provider.label)
            if not provider.capabilities.structured_output or output.add_options(wire, options, quirks) is None:
                instruction = add_instruction(instruction, output.instruction)
        if keeps_conversation and instruction:
            # The provider would keep it: it goes into the system text, which is given again with each turn.
            system = f"{given.system}\n\n{instruction}" if given.system else instruction
            preamble, instruction = Preamble(system=system, tools=tuple(toolbox)), None
        if transcript.turns and transcript.turns[-1].preamble not in ("", digest):
            text = (
                "The system text or the tools differ from the last turn's: they are sent as given, but the provider's "
                "cache of this conversation is void, and so are thinking blocks that are bound to it."
            )
            notices.append(Notice("preamble_changed", text))
        draft = begin(
            transcript,
            entries,
            wire=wire,
            model=provider.label,
            preamble=digest,
            instruction=instruction,
            counter=self.counter,
            prices=self.prices(given.options),
        )
        draft = msgspec.structs.replace(draft, change=change, waiting=frozenset(call.id for call in waiting))
        for notice in notices:
            draft = draft.notice(notice)
        if not provider.capabilities.described:
            draft = report_unknown_model(draft, self._window)
        recipient = Recipient(
            preamble=preamble,
            reader=f"{provider.account} {provider.model}",
            calls_tools=provider.capabilities.tools and capture.TOOL_NAME not in toolbox.names,
            keeps_conversation=keeps_conversation,
            answers_json=output is not None,
        )
        return AsyncTurnRunner(
            draft,
            session,
            provider=provider,
            tools=toolbox,
            recipient=recipient,
            policy=self.policy,
            options=options,
            max_rounds=given.max_rounds,
            window=self._window,
            output=output,
            max_retries=self._max_retries,
            observer=Observer(
                self._on_event,
                conversation=session.conversation,
                turn=draft.turn.id,
                model=provider.label,
                read_usage=wire.read_usage,
            ),
        )

    def pin(self, transcript: Transcript, entry: str) -> Transcript:
        """Return the transcript with an entry pinned. Raises `PinRefused` if requests have no room for it."""
        terms = Terms(
            wire=self.provider.wire,
            counter=self.counter,
            model=self.provider.label,
            preamble="",
            fixed=0,
            window=read_windows(transcript).get(self.provider.label) or self._window,
            answer=0,
        )
        return pin(transcript, entry, self.policy, terms)

    def prices(self, options: Mapping[str, Any] | None = None) -> Prices | None:
        """Return what a model call with these options costs, or None if that is unknown."""
        known = self.provider.capabilities.prices
        if known is None:
            return None
        from longtalk.models.prices import adjust_prices

        return adjust_prices(known, self._merge_options(options))

    async def aclose(self) -> None:
        """Close the connections."""
        await self.provider.aclose()

    def _make_brief_change(self, transcript: Transcript, brief: object) -> Callable[[Transcript], Transcript]:
        """Return the function that makes a turn's changes of the brief. Raises `InputError` if they can't be made."""
        changes, config = to_operations(brief), self.brief
        edit_brief(transcript, changes, config, self.counter)
        return lambda later: edit_brief(later, changes, config, self.counter)

    def _merge_options(self, options: Mapping[str, Any] | None) -> dict[str, Any]:
        return {**self.provider.defaults, **self._options, **self._check_options(options)}

    def _check_options(self, options: Mapping[str, Any] | None) -> dict[str, Any]:
        if options is not None and not (isinstance(options, Mapping) and all(isinstance(key, str) for key in options)):
            raise InputError(f"`options` must be a mapping of names to values, not {options!r}.")
        taken = [key for key in options or () if key in self.provider.wire.reserved]
        if taken:
            raise InputError(f"The option {taken[0]!r} can't be set: a chat sets it by itself.")
        if options and options.get("store") is False and self.provider.wire.session_mode(options):
            raise InputError(
                "A provider can't go on with what it does not keep: leave `store` out, or the other option."
            )
        return dict(options or {})


def check_choice(name: str, value: object, *allowed: str) -> None:
    """Raise `InputError` unless a parameter has one of the allowed values."""
    if value not in allowed:
        raise InputError(f"`{name}` is {' or '.join(map(repr, allowed))}, not {value!r}.")
