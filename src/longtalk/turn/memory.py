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


def recalls(policy: Policy, toolbox: Toolbox) -> bool:
    """Whether a model that has tools anyhow gets one to recall with."""
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
        seek: Callable[[str, Recall, int], Awaitable[RecallIndex]] | None,
    ) -> None:
        found = find_memory(policy)
        self._config: Memory | None = found.config if found else None
        self._tools = tools
        self._seek = seek
        self.epoch = find_epoch(transcript, fingerprint_policy(policy))
        """That of the last request, or of the next one before there was any."""
        self._can_call = provider.capabilities.tools and capture.TOOL_NAME not in tools.names

    # Before a request

    async def prepared(self, draft: Draft, made: Plan, *, room: int | None, alone: bool) -> Draft:
        """A draft that knows what memory adds to this turn, in so many tokens that are left.

        A provider that keeps all is asked for a card `alone`, and would keep what is recalled: it has a tool for that.
        """
        config = self._config
        if config is None:
            return draft
        self.epoch = made.epoch
        if draft.added is not None:
            return draft
        if (kept := self._kept(draft)) is not None:
            # It goes on with what was asked for before.
            return msgspec.structs.replace(draft, added=TurnAdditions(card=capture.parse_card_request(kept.text)))
        asks = (
            capture.render_card_request(config.brief, self._way, catch_up=made.card == "catch_up") if made.card else ""
        )
        beside = [aside.data for aside in list_kept_suffixes(draft.transcript, made.epoch.current)]
        new = render_unsent_app_lines(
            read_brief_record(draft.transcript), config.brief, draft.counter, made.epoch.summary, beside
        )
        draft = msgspec.structs.replace(
            draft, added=TurnAdditions(fresh=new, request=asks, card=made.card, alone=alone)
        )
        left = None if room is None else room - made.tokens - draft.counter.count(asks + new) - _MARKS
        if not config.recalls.budget or alone:
            return draft
        try:
            held = SentPositions(made.epoch, draft.transcript.size)
            found = await self._recalled(draft, _message(draft), held, config.recalls, left)
        except Exception as problem:
            # Nobody's turn depends on it.
            text = f"What was said before could not be looked through, and the turn goes on without it: {problem!r}."
            return draft.notice(Notice("recall_failed", text))
        return self._recalling(draft, found)

    def preamble(self, preamble: Preamble, draft: Draft, epoch: Epoch) -> Preamble:
        """What is given fresh, with memory's own tool where cards come that way in an epoch."""
        config = self._config
        if config is None:
            return preamble
        tools, system = preamble.tools, preamble.system
        if self._way_in(epoch) == "tool":
            tools = (*tools, capture.make_memory_tool(config.brief))
        if draft.added and draft.added.alone and draft.added.request:
            system = f"{system}\n\n{draft.added.request}" if system else draft.added.request
        return Preamble(system=system, tools=tools)

    def tokens(self, draft: Draft) -> int:
        """How long what memory adds is, as counted, unless it stays and is counted with what does."""
        aside = msgspec.structs.replace(draft, instruction=None).aside
        if aside is None or self._kept(draft) is not None:
            return 0
        return sum(count_message(piece, draft.counter) for piece in aside.pieces(draft.wire))

    def without_recall(self, draft: Draft) -> Draft:
        """A draft of a turn that is too long."""
        if draft.added is None or self._kept(draft) is not None:
            return draft
        return self._recalling(draft, Recalled())

    def neutral(self, text: str) -> str:
        """What a tool has found can't pass for a card."""
        return text if self._config is None else neutralize_tags(text)

    @property
    def _way(self) -> CaptureMode:
        return self._way_in(self.epoch)

    def _way_in(self, epoch: Epoch) -> CaptureMode:
        way = epoch.way or (self._config.capture if self._config else "")
        return "tool" if way == "tool" and self._can_call else "sentinel"

    def _kept(self, draft: Draft) -> TurnSuffix | None:
        """What went with this turn, if it stays where it was."""
        place = draft.transcript.position(draft.tail - 1) + 1
        return next((aside for aside in list_kept_suffixes(draft.transcript, place - 1) if aside.place == place), None)

    async def _recalled(
        self, draft: Draft, message: str, exclude: SentPositions, config: Recall, left: int | None = None
    ) -> Recalled:
        from longtalk.memory.recall.search import index_transcript, render_recalled

        if not message.strip():
            return Recalled()
        # What is said now would be found first of all.
        before, at = draft.transcript.truncate(_begins(draft)), now()
        if self._seek is not None:
            index = await self._seek(message, config, before.size)
        else:
            index = await run_in_thread(lambda: index_transcript(before, message, config, now=at))
        return render_recalled(index, message, config, draft.counter, now=at, exclude=exclude, budget=left)

    # After an answer

    def heard(self, draft: Draft) -> Draft:
        """A draft that has taken in the cards of its last answer."""
        config, answer = self._config, draft.answer
        # A card that nobody asked for may be a user's idea.
        if config is None or answer is None or not (cards := answer.view.cards) or not _asked(draft):
            return draft
        transcript, heard = capture.apply_cards(
            draft.transcript, cards, config.brief, draft.counter, requested=_asked(draft), at=now()
        )
        return self._with(draft, transcript, heard=heard)

    def counted(self, draft: Draft) -> Draft:
        """A draft whose turn is over: an ask for a card has brought one, or not."""
        config, added = self._config, draft.added
        if config is None or added is None or not added.card:
            return draft
        transcript, way = capture.record_card_outcome(
            draft.transcript, succeeded=added.heard, raw=self.epoch.raw, mode=self._way, can_switch=self._can_call
        )
        draft = msgspec.structs.replace(draft, transcript=transcript)
        if way is None:
            return draft
        how = "the tool update_memory" if way == "tool" else "cards at the end of answers"
        text = f"Too many asks for what is to be remembered came to nothing: with the next epoch it goes by {how}."
        return draft.notice(Notice("capture_changed", text))

    # Tools of its own

    def is_recall(self, name: str) -> bool:
        return self._config is not None and self._tools.get(name) is RECALL_TOOL

    def is_update(self, name: str) -> bool:
        return self._config is not None and name == capture.TOOL_NAME and self._way == "tool"

    async def look_up(self, draft: Draft, call: ToolCallView) -> tuple[str, bool]:
        """What a call to recall something brings, and whether it failed."""
        config = self._config or Memory()
        given = _given(RECALL_TOOL, draft, call)
        if isinstance(given, ArgumentError):
            return str(given), True
        asked = msgspec.structs.replace(config.recalls, gate=False)
        found = await self._recalled(draft, given[:_MOST], SentPositions(self.epoch, draft.transcript.size), asked)
        return wrap_in_tag("recalled", found.text) if found.text else "Nothing was found.", False

    def update(self, draft: Draft, call: ToolCallView) -> tuple[Draft, str, bool]:
        """A draft that has noted what a call says, what the model is told, and whether it failed."""
        config = (self._config or Memory()).brief
        given = _given(capture.make_memory_tool(config), draft, call)
        if isinstance(given, ArgumentError):
            return draft, str(given), True
        transcript, problem = capture.apply_tool_call(
            draft.transcript, given, config, draft.counter, requested=_asked(draft), at=now()
        )
        return self._with(draft, transcript, heard=not problem), problem or "Noted.", bool(problem)

    def _recalling(self, draft: Draft, found: Recalled) -> Draft:
        return msgspec.structs.replace(
            draft, added=msgspec.structs.replace(draft.added or TurnAdditions(), recalled=found)
        )

    def _with(self, draft: Draft, transcript: Transcript, *, heard: bool) -> Draft:
        added = draft.added
        if added is not None and heard:
            added = msgspec.structs.replace(added, heard=True)
        return msgspec.structs.replace(draft, transcript=transcript, added=added)


def _asked(draft: Draft) -> str:
    """For which card the model was asked in this turn, if it was."""
    return draft.added.card if draft.added else ""


def _given(tool: Tool, draft: Draft, call: ToolCallView) -> Any:
    """What a call says; the error if it can't be read."""
    try:
        return tool.bind(call.arguments, ToolContext(call_id=call.id, turn=draft.turn.id, name=call.name))()
    except ArgumentError as problem:
        return problem


def _message(draft: Draft) -> str:
    """What the user says in this turn."""
    said_now = [draft.transcript[i] for i in range(_begins(draft), draft.tail)]
    return "\n".join(text_if_readable(entry) for entry in said_now if entry.role == "user")[:_MOST]


def _begins(draft: Draft) -> int:
    """How many entries there are before the user's message."""
    i = draft.tail
    while i > 0 and draft.transcript[i - 1].turn == draft.transcript[draft.tail - 1].turn:
        i -= 1
    return i
