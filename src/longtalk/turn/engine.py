"""The engine: a provider with a policy, tools and options.

Chats and conversations each use one to begin their turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from longtalk._util.concurrency import ASYNC
from longtalk.context.epochs import read_windows
from longtalk.context.measure import Terms
from longtalk.context.pins import pin
from longtalk.context.recipient import Recipient
from longtalk.errors import InputError
from longtalk.memory.brief.edits import edit_brief, to_operations
from longtalk.memory.brief.schema import Brief
from longtalk.memory.cards import capture
from longtalk.notices import Notice
from longtalk.observation import Observer, OnEvent, check_on_event
from longtalk.policies import Policy
from longtalk.policies.base import read_rules
from longtalk.providers.base import AsyncProvider
from longtalk.providers.factory import connect
from longtalk.reply import TurnReply
from longtalk.tokens import CheckedCounter, Counter, counter_for
from longtalk.tools import Toolbox
from longtalk.transcript.transcript import Entry, Transcript
from longtalk.turn.draft import begin
from longtalk.turn.learned import read_quirks, report_unknown_model
from longtalk.turn.memory import RECALL_TOOL, needs_recall_tool
from longtalk.turn.message import ParsedMessage, parse_message
from longtalk.turn.model_calls import MAX_RETRIES
from longtalk.turn.output import OutputType, add_instruction
from longtalk.turn.runner import AsyncTurnRunner
from longtalk.turn.sent import TurnSettings
from longtalk.turn.session import AsyncSession
from longtalk.turn.switching import check_switch
from longtalk.turn.tool_outputs import check_nothing_waits, find_waiting_calls, parse_outputs, read_outputs
from longtalk.wires.pairing import find_open_calls
from longtalk.wires.protocol import Preamble

if TYPE_CHECKING:
    from longtalk.models.call_cost import Prices

R = TypeVar("R", bound=TurnReply)


class TurnArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments that a caller passes for one turn."""

    message: Any
    system: str | None = None
    instruction: str | None = None
    tools: Any = None
    options: Mapping[str, Any] | None = None
    max_rounds: int = 10
    max_tool_calls: int | None = None
    """The maximum number of calls that are run in this turn; None for no limit. Later ones get an error as result."""
    brief: Mapping[str, Any] | None = None
    output: Any = None
    turn: str | None = None
    """The id of the new turn, which must not occur in the conversation yet; None makes one."""

    def __post_init__(self) -> None:
        for name, text in (("system", self.system), ("instruction", self.instruction)):
            if text is not None and not isinstance(text, str):
                raise InputError(f"`{name}` must be a string, not {type(text).__name__}.")
        if not isinstance(self.max_rounds, int) or self.max_rounds < 0:
            raise InputError(f"`max_rounds` must be an integer of at least 0, not {self.max_rounds!r}.")


class AsyncEngine:
    """The provider, policy, tools, options and limits that all turns of a chat share. It holds no conversation."""

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
        keep_preamble: bool = True,
    ) -> None:
        check_choice("on_switch", on_switch, "convert", "raise")
        if not hasattr(policy, "compactors") or isinstance(policy, type):
            raise InputError(f"`policy` must be a policy such as KeepLast(5), not {policy!r}.")
        if counter is not None and (not hasattr(counter, "count") or isinstance(counter, type)):
            raise InputError(
                f"`counter` must have a method `count(text)`, as tokens.Exact('o200k') does; {counter!r} has none."
            )
        if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
            raise InputError(f"`window`, in tokens, must be an integer of at least 1, not {window!r}.")
        if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 0:
            raise InputError(
                f"`max_retries`, a number of retries, must be an integer of at least 0, not {max_retries!r}."
            )
        check_on_event(on_event)
        self.provider = connect(model, base_url=base_url, api_key=api_key, client=client, timeout=timeout)
        self._max_retries = max_retries
        self._on_event = on_event
        self.policy = policy
        self.rules = read_rules(policy)
        self.counter = CheckedCounter(counter) if counter is not None else counter_for(self.provider.label)
        self._window = window or self.provider.capabilities.window
        self._tools = Toolbox.from_functions(tools, allow_async=ASYNC)
        self._options = self._check_options(options)
        # Report invalid options now and not in the first turn.
        self.provider.wire.session_mode(self._merge_options(None))
        self._on_switch = on_switch
        self._keep_preamble = keep_preamble
        given = base_url is not None or client is not None
        self._own_address = given or getattr(self.provider, "own_address", False)

    def __repr__(self) -> str:
        tools = f", tools {', '.join(self._tools.names)}" if self._tools.names else ""
        return f"{self.provider.label} under {self.policy!r}{tools}"

    @property
    def brief(self) -> Brief:
        """The configuration of the brief. Raises `InputError` if the policy keeps none."""
        if self.rules.keeper is None:
            raise InputError("This policy keeps no brief: use policy=Memory().")
        return self.rules.keeper.brief

    def begin(
        self, session: AsyncSession[R], transcript: Transcript, given: TurnArguments, *, notices: Iterable[Notice] = ()
    ) -> AsyncTurnRunner[R]:
        """Return a runner for a new turn on this transcript. Nothing is sent or saved yet."""
        toolbox = self._tools if given.tools is None else Toolbox.from_functions(given.tools, allow_async=ASYNC)
        provider, wire, message, keeper = self.provider, self.provider.wire, given.message, self.rules.keeper
        if keeper is not None and needs_recall_tool(keeper, toolbox):
            toolbox = Toolbox.from_functions([*toolbox, RECALL_TOOL], allow_async=ASYNC)
        open_calls, outputs = find_open_calls(transcript), read_outputs(message)
        waiting = find_waiting_calls(open_calls, transcript, toolbox) if open_calls else ()
        if message is None:
            check_nothing_waits(transcript, waiting)
        change = None if given.brief is None else self._make_brief_change(transcript, given.brief)
        notices = [*notices, *check_switch(transcript, message, wire, provider.label, on_switch=self._on_switch)]
        entries: list[Entry] = [] if outputs is None else parse_outputs(outputs, transcript, waiting, wire)
        if isinstance(message, ParsedMessage):
            entries += message.entries
        elif outputs is None and message is not None:
            entries = parse_message(message, wire)
        options = self._merge_options(given.options)
        keeps_conversation = bool(wire.session_mode(options))
        preamble = Preamble(system=given.system, tools=tuple(toolbox))
        digest = preamble.digest()
        instruction = given.instruction
        output = None if given.output is None else OutputType.read(given.output)
        if output is not None:
            quirks = read_quirks(transcript, provider.label)
            if not provider.capabilities.structured_output or output.add_options(wire, options, quirks) is None:
                instruction = add_instruction(instruction, output.instruction)
        if keeps_conversation and instruction:
            # The provider would keep the instruction, so it is put into the system text, which is sent again with each
            # turn.
            system = f"{given.system}\n\n{instruction}" if given.system else instruction
            preamble, instruction = Preamble(system=system, tools=tuple(toolbox)), None
        last = transcript.turns.last
        if last is not None and last.preamble not in ("", digest):
            text = (
                "The system text or the tools have changed since the last turn: the provider reads the whole "
                "conversation without its cache, and earlier thoughts of the model that belong to the old text are "
                "not sent."
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
            prices=self._adjust_prices(options),
            turn=given.turn,
        )
        settings = None
        if session.is_stored:
            settings = TurnSettings(
                label=provider.label,
                model=provider.model,
                reader=f"{provider.account} {provider.model}",
                wire=wire.name,
                options={**self._options, **(given.options or {})},
                defaults=provider.defaults,
                policy=self.policy,
                preamble=Preamble(system=given.system, tools=tuple(toolbox)),
                own_address=self._own_address,
                keep_preamble=self._keep_preamble,
            )
        if open_calls or change is not None or settings is not None:
            earlier = open_calls if outputs is None else draft.open_calls()
            ids = frozenset([call.id for call in waiting])
            draft = msgspec.structs.replace(draft, change=change, earlier=earlier, waiting=ids, settings=settings)
        for notice in notices:
            draft = draft.notice(notice)
        if not provider.capabilities.described:
            draft = report_unknown_model(draft, self._window)
        recipient = Recipient(
            preamble=preamble,
            reader=f"{provider.account} {provider.model}",
            calls_tools=_can_update_memory(provider, toolbox),
            keeps_conversation=keeps_conversation,
            answers_json=output is not None,
            cards=provider.capabilities.cards,
        )
        return AsyncTurnRunner(
            draft,
            session,
            provider=provider,
            tools=toolbox,
            recipient=recipient,
            rules=self.rules,
            options=options,
            max_rounds=given.max_rounds,
            max_tool_calls=given.max_tool_calls,
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
        """Return the transcript with an entry pinned. Raise `PinRefused` if requests have no room for it."""
        terms = Terms(
            wire=self.provider.wire,
            counter=self.counter,
            model=self.provider.label,
            preamble="",
            fixed=0,
            window=min(
                (each for each in (read_windows(transcript).get(self.provider.label), self._window) if each),
                default=None,
            ),
            answer=0,
        )
        return pin(transcript, entry, self.policy, terms)

    def prices(self, options: Mapping[str, Any] | None = None) -> Prices | None:
        """Return what a model call with these options costs, or None if that is unknown."""
        return self._adjust_prices(self._merge_options(options))

    async def aclose(self) -> None:
        """Close the provider's connections."""
        await self.provider.aclose()

    def _make_brief_change(self, transcript: Transcript, brief: object) -> Callable[[Transcript], Transcript]:
        """Return a function that applies these changes to a transcript's brief.

        Raise `InputError` if they are invalid.
        """
        changes, config = to_operations(brief), self.brief
        edit_brief(transcript, changes, config, self.counter)
        return lambda later: edit_brief(later, changes, config, self.counter)

    def _adjust_prices(self, options: Mapping[str, Any]) -> Prices | None:
        known = self.provider.capabilities.prices
        if known is None:
            return None
        from longtalk.models.call_cost import adjust_prices

        return adjust_prices(known, options)

    def _merge_options(self, options: Mapping[str, Any] | None) -> dict[str, Any]:
        merged = {**self.provider.defaults, **self._options}
        return merged if options is None else {**merged, **self._check_options(options)}

    def _check_options(self, options: Mapping[str, Any] | None) -> dict[str, Any]:
        if options is not None and not (isinstance(options, Mapping) and all(isinstance(key, str) for key in options)):
            raise InputError(f"`options` must be a mapping of names to values, not {options!r}.")
        taken = [key for key in options or () if key in self.provider.wire.reserved]
        if taken:
            raise InputError(f"The option {taken[0]!r} can't be set, because Longtalk sets it: leave it out.")
        if options and options.get("store") is False and self.provider.wire.session_mode(options):
            raise InputError(
                "store=False contradicts an option that continues a conversation at the provider: leave one of "
                "them out."
            )
        return dict(options or {})


def _can_update_memory(provider: AsyncProvider, tools: Toolbox) -> bool:
    """Return True if the model can report lines for the brief by calling a tool."""
    can = provider.capabilities
    return can.tools and can.cards == "answer" and capture.TOOL_NAME not in tools.names


def check_choice(name: str, value: object, *allowed: str) -> None:
    """Raise `InputError` unless a parameter has one of the allowed values."""
    if value not in allowed:
        raise InputError(f"`{name}` must be {' or '.join(map(repr, allowed))}, not {value!r}.")
