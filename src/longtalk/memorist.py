"""What memory does in a turn: asks for cards and takes them in, recalls, and answers the tools of its own.

Under a policy that keeps no brief it does nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from longtalk._io import in_thread
from longtalk.draft import Added, Draft
from longtalk.epochs import Epoch, current, fingerprint, kept_asides, places_of
from longtalk.events import Notice
from longtalk.memory import capture
from longtalk.memory.book import Way, book_of
from longtalk.memory.head import fresh
from longtalk.memory.sentinel import neutralised
from longtalk.memory.settings import Recall, Recalled
from longtalk.plan import Plan
from longtalk.policies import Policy
from longtalk.policies.memory import Memory, memory_of
from longtalk.providers.base import AsyncProvider
from longtalk.tokens import of_message
from longtalk.tools import ArgumentError, Tool, Toolbox, ToolContext, tool
from longtalk.transcript import Transcript, now
from longtalk.wires import said
from longtalk.wires.base import Call, Preamble, quoted

if TYPE_CHECKING:
    from longtalk.memory.recall import Index

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
    found = memory_of(policy)
    return found is not None and found.config.recalls.budget > 0 and len(toolbox) > 0 and RECALL not in toolbox.names


class AsyncMemorist:
    """The memory of one turn."""

    def __init__(
        self,
        policy: Policy,
        transcript: Transcript,
        provider: AsyncProvider,
        tools: Toolbox,
        seek: Callable[[str, Recall], Awaitable[Index]] | None,
    ) -> None:
        found = memory_of(policy)
        self._config: Memory | None = found.config if found else None
        self._tools = tools
        self._seek = seek
        self.epoch = current(transcript, fingerprint(policy))
        """That of the last request, or of the next one before there was any."""
        self._can_call = provider.capabilities.tools and capture.NAME not in tools.names

    # Before a request

    async def prepared(self, draft: Draft, made: Plan, *, room: int | None, alone: bool) -> Draft:
        """A draft that knows what memory adds to this turn, in so many tokens that are left.

        A provider that keeps all is asked for a card `alone`, and would keep what is recalled: it has a tool for that.
        """
        config = self._config
        if config is None:
            return draft
        self.epoch = made.epoch
        if draft.added is not None or self._is_kept(draft):
            return draft
        asks = capture.asking(config.brief, self._way, catch_up=made.card == "catch_up") if made.card else ""
        new = fresh(book_of(draft.transcript), config.brief, draft.counter, made.epoch.summary)
        found = Recalled()
        left = None if room is None else room - made.tokens - draft.counter.count(asks + new) - _MARKS
        if config.recalls.budget and not alone:
            held = places_of(made.epoch, draft.transcript.size)
            found = await self._recalled(draft, _message(draft), held, config.recalls, left)
        parts = [quoted("recalled", found.text)] if found.text else []
        parts += [new] if new else []
        added = Added(data="\n".join(parts), request=asks, card=made.card, alone=alone, recalled=found)
        return msgspec.structs.replace(draft, added=added)

    def preamble(self, preamble: Preamble, draft: Draft, epoch: Epoch) -> Preamble:
        """What is given fresh, with memory's own tool where cards come that way in an epoch."""
        config = self._config
        if config is None:
            return preamble
        tools, system = preamble.tools, preamble.system
        if self._way_in(epoch) == "tool":
            tools = (*tools, capture.tool_of(config.brief))
        if draft.added and draft.added.alone and draft.added.request:
            system = f"{system}\n\n{draft.added.request}" if system else draft.added.request
        return Preamble(system=system, tools=tools)

    def tokens(self, draft: Draft) -> int:
        """How long what memory adds is, as counted, unless it stays and is counted with what does."""
        aside = msgspec.structs.replace(draft, instruction=None).aside
        if aside is None or self._is_kept(draft):
            return 0
        return sum(of_message(piece, draft.counter) for piece in aside.pieces(draft.wire))

    def without_recall(self, draft: Draft) -> Draft:
        """A draft of a turn that is too long."""
        if draft.added is None or self._is_kept(draft):
            return draft
        added = msgspec.structs.replace(draft.added, data="", recalled=Recalled())
        return msgspec.structs.replace(draft, added=added)

    def neutral(self, text: str) -> str:
        """What a tool has found can't pass for a card."""
        return text if self._config is None else neutralised(text)

    @property
    def _way(self) -> Way:
        return self._way_in(self.epoch)

    def _way_in(self, epoch: Epoch) -> Way:
        way = epoch.way or (self._config.capture if self._config else "")
        return "tool" if way == "tool" and self._can_call else "sentinel"

    def _is_kept(self, draft: Draft) -> bool:
        """Whether what went with this turn stays where it was."""
        place = draft.transcript.place(draft.tail - 1) + 1
        return any(aside.place == place for aside in kept_asides(draft.transcript, place - 1))

    async def _recalled(
        self, draft: Draft, message: str, exclude: frozenset[int], config: Recall, left: int | None = None
    ) -> Recalled:
        from longtalk.memory.recalled import in_transcript, recalled

        transcript, at = draft.transcript, now()
        if not message.strip():
            return Recalled()
        if self._seek is not None:
            index = await self._seek(message, config)
        else:
            index = await in_thread(lambda: in_transcript(transcript, message, config, now=at))
        return recalled(index, message, config, draft.counter, now=at, exclude=exclude, budget=left)

    # After an answer

    def heard(self, draft: Draft) -> Draft:
        """A draft that has taken in the cards of its last answer."""
        config, answer = self._config, draft.answer
        if config is None or answer is None or not (cards := answer.view.cards):
            return draft
        transcript, heard = capture.take_cards(
            draft.transcript, cards, config.brief, draft.counter, asked=_asked(draft), at=now()
        )
        return self._with(draft, transcript, heard=heard)

    def counted(self, draft: Draft) -> Draft:
        """A draft whose turn is over: an ask for a card has brought one, or not."""
        config, added = self._config, draft.added
        if config is None or added is None or not added.card:
            return draft
        transcript, way = capture.count_ask(
            draft.transcript, heard=added.heard, raw=self.epoch.raw, way=self._way, other=self._can_call
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
        return self._config is not None and name == capture.NAME and self._way == "tool"

    async def look_up(self, draft: Draft, call: Call) -> tuple[str, bool]:
        """What a call to recall something brings, and whether it failed."""
        config = self._config or Memory()
        given = _given(RECALL_TOOL, draft, call)
        if isinstance(given, ArgumentError):
            return str(given), True
        asked = msgspec.structs.replace(config.recalls, gate=False)
        found = await self._recalled(draft, given, places_of(self.epoch, draft.transcript.size), asked)
        return quoted("recalled", found.text) if found.text else "Nothing was found.", False

    def update(self, draft: Draft, call: Call) -> tuple[Draft, str, bool]:
        """A draft that has noted what a call says, what the model is told, and whether it failed."""
        config = (self._config or Memory()).brief
        given = _given(capture.tool_of(config), draft, call)
        if isinstance(given, ArgumentError):
            return draft, str(given), True
        transcript, problem = capture.take_call(
            draft.transcript, given, config, draft.counter, asked=_asked(draft), at=now()
        )
        return self._with(draft, transcript, heard=not problem), problem or "Noted.", bool(problem)

    def _with(self, draft: Draft, transcript: Transcript, *, heard: bool) -> Draft:
        added = draft.added
        if added is not None and heard:
            added = msgspec.structs.replace(added, heard=True)
        return msgspec.structs.replace(draft, transcript=transcript, added=added)


def _asked(draft: Draft) -> str:
    """For which card the model was asked in this turn, if it was."""
    return draft.added.card if draft.added else ""


def _given(tool: Tool, draft: Draft, call: Call) -> Any:
    """What a call says; the error if it can't be read."""
    try:
        return tool.bind(call.arguments, ToolContext(call_id=call.id, turn=draft.turn.id, name=call.name))()
    except ArgumentError as problem:
        return problem


def _message(draft: Draft) -> str:
    """What the user says in this turn."""
    transcript = draft.transcript
    texts: list[str] = []
    for i in range(draft.tail - 1, -1, -1):
        if transcript[i].turn != transcript[draft.tail - 1].turn:
            break
        if transcript[i].role == "user":
            texts.insert(0, said(transcript[i]))
    return "\n".join(texts)[:_MOST]
