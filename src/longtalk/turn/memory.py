"""What memory does in a turn: asks for cards and takes them in, recalls, and answers the tools of its own.

Under a policy that keeps no brief it does nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from longtalk._util.concurrency import run_in_thread
from longtalk.context.epochs import Epoch, SentPositions, TurnSuffix, find_epoch, fingerprint_policy, list_kept_suffixes
from longtalk.context.planning import Plan
from longtalk.memory.brief.record import CaptureMode, read_brief_record
from longtalk.memory.cards import capture
from longtalk.memory.head import render_unsent_app_lines
from longtalk.memory.recall.config import Recall, Recalled
from longtalk.notices import Notice
from longtalk.policies import Policy
from longtalk.policies.memory import Memory, find_memory
from longtalk.providers.base import AsyncProvider
from longtalk.providers.redaction import Redactor
from longtalk.tokens import count_message
from longtalk.tools import ArgumentError, Tool, Toolbox, ToolContext, tool
from longtalk.transcript.transcript import Transcript, now
from longtalk.turn.draft import Draft, TurnAdditions
from longtalk.wires import text_if_readable
from longtalk.wires.card_tags import neutralize_tags
from longtalk.wires.protocol import Preamble
from longtalk.wires.text import wrap_in_tag
from longtalk.wires.views import ToolCallView

if TYPE_CHECKING:
    from longtalk.memory.recall.index import RecallIndex

RECALL = "recall"
_MARKS = 30
"""Tokens, roughly, of what stands around what memory adds."""
_MOST = 4_000
"""Characters of a message that are looked at to recall something."""


def _recall(query: Annotated[str, "What it was about, in a few words."]) -> str:
    return query


RECALL_TOOL: Tool = tool(
    _recall,
    name=RECALL,
    description="Look up what was said earlier in this conversation and is not shown any more.",
    idempotent=True,
)


def needs_recall_tool(policy: Policy, toolbox: Toolbox) -> bool:
    """Return True if a turn that has tools should also get the recall tool."""
    found = find_memory(policy)
    return found is not None and found.config.recalls.budget > 0 and len(toolbox) > 0 and RECALL not in toolbox.names


class AsyncTurnMemory:
    """The memory of one turn."""

    def __init__(
        self,
        policy: Policy,
        transcript: Transcript,
        provider: AsyncProvider,
        tools: Toolbox,
        build_index: Callable[[str, Recall, int], Awaitable[RecallIndex]] | None,
    ) -> None:
        found = find_memory(policy)
        self._config: Memory | None = found.config if found else None
        self._tools = tools
        self._build_index = build_index
        self.epoch = find_epoch(transcript, fingerprint_policy(policy))
        """That of the last request, or of the next one before there was any."""
        self._can_call = provider.capabilities.tools and capture.TOOL_NAME not in tools.names

    @property
    def is_active(self) -> bool:
        """Whether the policy keeps a brief, so that answers may end with cards."""
        return self._config is not None

    # Before a request

    async def prepare_additions(self, draft: Draft, plan: Plan, *, room: int | None, alone: bool) -> Draft:
        """Return the draft with what memory adds to this turn, within `room` tokens for the request.

        `alone` is for a provider that keeps the conversation: nothing is recalled, since it would keep that too, and
        the request for a card goes into the system text.
        """
        config = self._config
        if config is None:
            return draft
        self.epoch = plan.epoch
        if draft.added is not None:
            return draft
        if (suffix := self._find_kept_suffix(draft)) is not None:
            # It goes on with what was asked for before.
            return msgspec.structs.replace(draft, added=TurnAdditions(card=capture.parse_card_request(suffix.text)))
        asks = ""
        if plan.card:
            asks = capture.render_card_request(config.brief, self._capture_mode, catch_up=plan.card == "catch_up")
        sent_data = [suffix.data for suffix in list_kept_suffixes(draft.transcript, plan.epoch.current)]
        new = render_unsent_app_lines(
            read_brief_record(draft.transcript), config.brief, draft.counter, plan.epoch.summary, sent_data
        )
        draft = msgspec.structs.replace(
            draft, added=TurnAdditions(fresh=new, request=asks, card=plan.card, alone=alone)
        )
        left = None if room is None else room - plan.tokens - draft.counter.count(asks + new) - _MARKS
        if not config.recalls.budget or alone:
            return draft
        try:
            sent = SentPositions(plan.epoch, draft.transcript.size)
            found = await self._search_history(draft, _read_message_text(draft), sent, config.recalls, left)
        except Exception as problem:
            # Nobody's turn depends on it.
            cause = Redactor().redact(repr(problem))
            text = f"What was said before could not be looked through, and the turn goes on without it: {cause}."
            return draft.notice(Notice("recall_failed", text))
        return self._set_recalled(draft, found)

    def extend_preamble(self, preamble: Preamble, draft: Draft, epoch: Epoch) -> Preamble:
        """Return the preamble with memory's tool or request for a card, if they belong there in this epoch."""
        config = self._config
        if config is None:
            return preamble
        tools, system = preamble.tools, preamble.system
        if self._choose_capture_mode(epoch) == "tool":
            tools = (*tools, capture.make_memory_tool(config.brief))
        if draft.added and draft.added.alone and draft.added.request:
            system = f"{system}\n\n{draft.added.request}" if system else draft.added.request
        return Preamble(system=system, tools=tools)

    def count_added_tokens(self, draft: Draft) -> int:
        """Return the tokens of what memory adds, or 0 if it is kept and so counted with the kept suffixes."""
        suffix = msgspec.structs.replace(draft, instruction=None).suffix
        if suffix is None or self._find_kept_suffix(draft) is not None:
            return 0
        return sum(count_message(piece, draft.counter) for piece in suffix.pieces(draft.wire))

    def remove_recalled(self, draft: Draft) -> Draft:
        """Return the draft without recalled text, for a request that is too long."""
        if draft.added is None or self._find_kept_suffix(draft) is not None:
            return draft
        return self._set_recalled(draft, Recalled())

    def neutralize(self, text: str) -> str:
        """Return a tool's text with card tags made harmless, so that it can't pass for a card."""
        return text if self._config is None else neutralize_tags(text)

    @property
    def _capture_mode(self) -> CaptureMode:
        return self._choose_capture_mode(self.epoch)

    def _choose_capture_mode(self, epoch: Epoch) -> CaptureMode:
        mode = epoch.way or (self._config.capture if self._config else "")
        return "tool" if mode == "tool" and self._can_call else "sentinel"

    def _find_kept_suffix(self, draft: Draft) -> TurnSuffix | None:
        """Return the suffix of this turn's message if it is kept in later requests."""
        position = draft.transcript.position(draft.tail - 1) + 1
        suffixes = list_kept_suffixes(draft.transcript, position - 1)
        return next((suffix for suffix in suffixes if suffix.place == position), None)

    async def _search_history(
        self, draft: Draft, message: str, exclude: SentPositions, config: Recall, left: int | None = None
    ) -> Recalled:
        from longtalk.memory.recall.search import index_transcript, render_recalled

        if not message.strip():
            return Recalled()
        # What is said now would be found first of all.
        before, at = draft.transcript.truncate(_find_message_start(draft)), now()
        if self._build_index is not None:
            index = await self._build_index(message, config, before.size)
        else:
            index = await run_in_thread(lambda: index_transcript(before, message, config, now=at))
        return render_recalled(index, message, config, draft.counter, now=at, exclude=exclude, budget=left)

    # After an answer

    def apply_cards(self, draft: Draft) -> Draft:
        """Return the draft with the cards of its last answer applied to the brief."""
        config, answer = self._config, draft.answer
        # A card that nobody asked for may be a user's idea.
        if config is None or answer is None or not (cards := answer.view.cards) or not _get_requested_card(draft):
            return draft
        transcript, card_received = capture.apply_cards(
            draft.transcript, cards, config.brief, draft.counter, requested=_get_requested_card(draft), at=now()
        )
        return self._replace_transcript(draft, transcript, card_received=card_received)

    def count_card_request(self, draft: Draft) -> Draft:
        """Return the draft of a turn that is over, with the outcome of its request for a card recorded."""
        config, added = self._config, draft.added
        if config is None or added is None or not added.card:
            return draft
        transcript, mode = capture.record_card_outcome(
            draft.transcript,
            succeeded=added.card_received,
            raw=self.epoch.raw,
            mode=self._capture_mode,
            can_switch=self._can_call,
        )
        draft = msgspec.structs.replace(draft, transcript=transcript)
        if mode is None:
            return draft
        how = "the tool update_memory" if mode == "tool" else "cards at the end of answers"
        text = f"Too many asks for what is to be remembered came to nothing: with the next epoch it goes by {how}."
        return draft.notice(Notice("capture_changed", text))

    # Tools of its own

    def is_recall(self, name: str) -> bool:
        return self._config is not None and self._tools.get(name) is RECALL_TOOL

    def is_update(self, name: str) -> bool:
        return self._config is not None and name == capture.TOOL_NAME and self._capture_mode == "tool"

    async def look_up(self, draft: Draft, call: ToolCallView) -> tuple[str, bool]:
        """What a call to recall something brings, and whether it failed."""
        config = self._config or Memory()
        query = _parse_arguments(RECALL_TOOL, draft, call)
        if isinstance(query, ArgumentError):
            return str(query), True
        ungated = msgspec.structs.replace(config.recalls, gate=False)
        sent = SentPositions(self.epoch, draft.transcript.size)
        found = await self._search_history(draft, query[:_MOST], sent, ungated)
        return wrap_in_tag("recalled", found.text) if found.text else "Nothing was found.", False

    def update(self, draft: Draft, call: ToolCallView) -> tuple[Draft, str, bool]:
        """A draft that has noted what a call says, what the model is told, and whether it failed."""
        config = (self._config or Memory()).brief
        arguments = _parse_arguments(capture.make_memory_tool(config), draft, call)
        if isinstance(arguments, ArgumentError):
            return draft, str(arguments), True
        transcript, problem = capture.apply_tool_call(
            draft.transcript, arguments, config, draft.counter, requested=_get_requested_card(draft), at=now()
        )
        return (
            self._replace_transcript(draft, transcript, card_received=not problem),
            problem or "Noted.",
            bool(problem),
        )

    def _set_recalled(self, draft: Draft, found: Recalled) -> Draft:
        return msgspec.structs.replace(
            draft, added=msgspec.structs.replace(draft.added or TurnAdditions(), recalled=found)
        )

    def _replace_transcript(self, draft: Draft, transcript: Transcript, *, card_received: bool) -> Draft:
        added = draft.added
        if added is not None and card_received:
            added = msgspec.structs.replace(added, card_received=True)
        return msgspec.structs.replace(draft, transcript=transcript, added=added)


def _get_requested_card(draft: Draft) -> str:
    """Return the kind of card that the model was asked for in this turn, or an empty string."""
    return draft.added.card if draft.added else ""


def _parse_arguments(tool: Tool, draft: Draft, call: ToolCallView) -> Any:
    """Return what the tool makes of a call's arguments, or the error if they can't be parsed."""
    try:
        return tool.bind(call.arguments, ToolContext(call_id=call.id, turn=draft.turn.id, name=call.name))()
    except ArgumentError as problem:
        return problem


def _read_message_text(draft: Draft) -> str:
    """Return the text of the user's message in this turn."""
    said_now = [draft.transcript[i] for i in range(_find_message_start(draft), draft.tail)]
    return "\n".join(text_if_readable(entry) for entry in said_now if entry.role == "user")[:_MOST]


def _find_message_start(draft: Draft) -> int:
    """Return the number of entries before the user's message."""
    i = draft.tail
    while i > 0 and draft.transcript[i - 1].turn == draft.transcript[draft.tail - 1].turn:
        i -= 1
    return i
