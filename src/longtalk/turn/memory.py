"""Memory in a turn: recall text for the message, read the cards in answers, and answer memory's own tools.

Under a policy without a brief, nothing happens. `context/additions.py` decides what memory adds to a request.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec

from longtalk.context.additions import TurnAdditions, choose_capture_mode
from longtalk.context.epochs import Epoch, NotRecalled, find_epoch
from longtalk.context.prepare import MAX_QUERY, Prepared, find_message_start
from longtalk.context.recipient import Recipient
from longtalk.context.suffixes import find_kept_suffix
from longtalk.memory.brief.record import read_brief_record
from longtalk.memory.cards import capture
from longtalk.memory.cards.hidden import NOT_NOTED, NOTED
from longtalk.memory.recall.config import Recalled
from longtalk.notices import Notice
from longtalk.observation import log_suppressed
from longtalk.policies.base import BriefKeeper, Rules, get_profile, make_card_config
from longtalk.providers.redaction import Redactor
from longtalk.tools import ArgumentError, Tool, Toolbox, ToolContext, tool
from longtalk.transcript.transcript import Transcript, now
from longtalk.turn.draft import Draft
from longtalk.turn.learned import report_once
from longtalk.turn.session import AsyncSession
from longtalk.wires.text import wrap_in_tag
from longtalk.wires.views import ToolCallView

RECALL = "recall"


def _recall(query: Annotated[str, "What it was about, in a few words."]) -> str:
    return query


RECALL_TOOL: Tool = tool(
    _recall,
    name=RECALL,
    description="Look up what was said earlier in this conversation and is not shown any more.",
    idempotent=True,
)


def needs_recall_tool(keeper: BriefKeeper, toolbox: Toolbox) -> bool:
    """Return True if a turn that has tools should also get the recall tool."""
    return keeper.recalls.budget > 0 and len(toolbox) > 0 and RECALL not in toolbox.names


class AsyncTurnMemory:
    """The memory of one turn: recall before a request, cards and tool calls after an answer."""

    def __init__(
        self,
        rules: Rules,
        transcript: Transcript,
        recipient: Recipient,
        tools: Toolbox,
        session: AsyncSession[Any],
    ) -> None:
        self._keeper = rules.keeper
        self._recipient = recipient
        self._tools = tools
        self._session = session
        self._before = (transcript, rules.fingerprint)
        self._requested: Epoch | None = None
        """The epoch of the last request; None before the first request of the turn."""

    @property
    def is_active(self) -> bool:
        """Whether the policy keeps a brief, so that answers may end with memory cards."""
        return self._keeper is not None

    @property
    def _epoch(self) -> Epoch:
        """The epoch of the last request; before the first request of the turn, the epoch that it would continue."""
        return self._requested or find_epoch(*self._before)

    # Before a request

    async def recall(self, draft: Draft, prepared: Prepared) -> Draft:
        """Return the draft with memory's additions to this request, including text recalled for the message."""
        if self._keeper is None:
            return draft
        self._requested = prepared.plan.epoch
        draft = msgspec.structs.replace(draft, added=prepared.added)
        if self._recipient.cards == "none":
            text = (
                f"{draft.turn.model} is too small to write memory cards, so nothing is added to the brief: Memory uses "
                "outlines and recall alone. Use a larger model, such as local:1.5b, to keep a brief."
            )
            draft = report_once(draft, Notice("no_cards", text), about=draft.turn.model)
        config = prepared.recalls
        if config is None:
            return draft
        try:
            before = _truncate_before_message(draft)
            found = await self._session.recall(
                before, prepared.message, config, prepared.render_recalled, at=prepared.terms.now
            )
        except Exception as problem:
            # The turn can continue without recalled text.
            log_suppressed("recall failed", problem, where=draft.turn.id)
            cause = Redactor().redact(repr(problem))
            text = f"The history could not be searched, and the turn continues without recalled text: {cause}."
            return draft.notice(Notice("recall_failed", text))
        if not self._session.is_stored and draft.transcript.shed.entries:
            text = (
                "Only the messages that are still in the state were searched, not those that left it with reply.shed. "
                "Use Conversation, or carry='all', to search all messages."
            )
            draft = report_once(draft, Notice("recall_incomplete", text))
        return self._set_recalled(draft, found)

    def remove_recalled(self, draft: Draft) -> Draft:
        """Return the draft without recalled text, for a request that is too long."""
        if draft.added is None or find_kept_suffix(draft.transcript, draft.tail) is not None:
            return draft
        return self._set_recalled(draft, Recalled())

    # After an answer

    def apply_cards(self, draft: Draft) -> Draft:
        """Return the draft with the cards of its last answer applied to the brief."""
        keeper, answer = self._keeper, draft.answer
        # A card that was not requested may have been suggested by the user.
        if keeper is None or answer is None or not (cards := answer.view.cards) or not _get_requested_card(draft):
            return draft
        transcript, card_received = capture.apply_cards(
            draft.transcript,
            cards,
            keeper.brief,
            draft.counter,
            requested=_get_requested_card(draft),
            at=now(),
            example=keeper.example,
            profile=get_profile(keeper),
            foreign=_get_foreign_text(draft),
        )
        return self._replace_transcript(draft, transcript, card_received=card_received)

    def needs_card_request(self, draft: Draft) -> bool:
        """Return True if a card has to be requested after the answer, because this model can't add it there."""
        added = draft.added
        return self._recipient.cards == "request" and added is not None and bool(added.card) and not added.card_received

    def apply_card(self, draft: Draft, content: str) -> Draft:
        """Return the draft with a card that the model wrote in a request of its own applied to the brief."""
        if self._keeper is None:
            return draft
        # That request had the user's messages alone, and nothing from other conversations.
        transcript, card_received = capture.apply_cards(
            draft.transcript,
            [content],
            self._keeper.brief,
            draft.counter,
            requested=_get_requested_card(draft),
            at=now(),
            profile=get_profile(self._keeper),
        )
        return self._replace_transcript(draft, transcript, card_received=card_received)

    def count_card_request(self, draft: Draft) -> Draft:
        """Return the draft of a finished turn with the outcome of its card request recorded."""
        added = draft.added
        if self._keeper is None or added is None or not added.card:
            return draft
        transcript, mode = capture.record_card_outcome(
            draft.transcript,
            succeeded=added.card_received,
            raw=self._epoch.raw,
            mode=choose_capture_mode(self._keeper, self._epoch, self._recipient),
            can_switch=self._recipient.calls_tools,
        )
        draft = msgspec.structs.replace(draft, transcript=transcript)
        if mode is None:
            return draft
        how = "the tool update_memory" if mode == "tool" else "cards at the end of answers"
        text = f"Too many requests for memory cards failed. From the next epoch on, the brief is updated by {how}."
        return draft.notice(Notice("capture_changed", text))

    # Tools of its own

    def is_recall(self, name: str) -> bool:
        """Return True if the tool with this name is memory's own recall tool."""
        return self._keeper is not None and self._tools.get(name) is RECALL_TOOL

    def is_update(self, name: str) -> bool:
        """Return True if the tool with this name is the one that updates the brief."""
        if self._keeper is None or name != capture.TOOL_NAME:
            return False
        return choose_capture_mode(self._keeper, self._epoch, self._recipient) == "tool"

    async def look_up(self, draft: Draft, call: ToolCallView) -> tuple[str, bool]:
        """Return the result of a call to the recall tool, and whether the call failed."""
        from longtalk.memory.recall.search import render_recalled

        query = _parse_arguments(RECALL_TOOL, draft, call)
        if isinstance(query, ArgumentError):
            return str(query), True
        found, query = Recalled(), query[:MAX_QUERY]
        if self._keeper is not None and query.strip():
            # The result becomes a message of this conversation, so it must not quote others.
            config, at = msgspec.structs.replace(self._keeper.recalls, gate=False, scope="conversation"), now()
            sent = NotRecalled(self._epoch, draft.transcript.size)
            render = partial(
                render_recalled,
                message=query,
                config=config,
                counter=draft.counter,
                now=at,
                exclude=sent,
                corrections=read_brief_record(draft.transcript).corrections,
            )
            found = await self._session.recall(_truncate_before_message(draft), query, config, render, at=at)
        return wrap_in_tag("recalled", found.text) if found.text else "Nothing was found.", False

    def update(self, draft: Draft, call: ToolCallView) -> tuple[Draft, str, bool]:
        """Return the draft with the brief updated by a call, the result for the model, and whether the call failed."""
        if self._keeper is None:
            return draft, "There is no brief.", True
        config = self._keeper.brief
        arguments = _parse_arguments(capture.make_memory_tool(make_card_config(self._keeper)), draft, call)
        if isinstance(arguments, ArgumentError):
            return draft, f"{NOT_NOTED}{arguments}", True
        transcript, problem = capture.apply_tool_call(
            draft.transcript,
            arguments,
            config,
            draft.counter,
            requested=_get_requested_card(draft),
            at=now(),
            example=self._keeper.example,
            profile=get_profile(self._keeper),
            foreign=_get_foreign_text(draft),
        )
        return (
            self._replace_transcript(draft, transcript, card_received=not problem),
            f"{NOT_NOTED}{problem}" if problem else NOTED,
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
    """Return the kind of card that this turn requests from the model, or "" if it requests none."""
    return draft.added.card if draft.added else ""


def _get_foreign_text(draft: Draft) -> str:
    """Return what the requests of this turn quote from other conversations."""
    return draft.added.foreign if draft.added else ""


def _parse_arguments(tool: Tool, draft: Draft, call: ToolCallView) -> Any:
    """Return the tool's result for the arguments of a call, or the error if the arguments can't be parsed."""
    try:
        return tool.bind(call.arguments, ToolContext(call_id=call.id, turn=draft.turn.id, name=call.name))()
    except ArgumentError as problem:
        return problem


def _truncate_before_message(draft: Draft) -> Transcript:
    """Return the transcript before the user's message, because a search would otherwise find the message itself."""
    return draft.transcript.truncate(find_message_start(draft.transcript, draft.tail))
