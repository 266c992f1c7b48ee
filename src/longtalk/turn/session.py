"""Where the conversation of a turn is kept: in a state that the caller holds, or on a branch in a store."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from longtalk.events import Checkpoint
from longtalk.notices import Notice
from longtalk.reply import TurnReply
from longtalk.transcript.transcript import Transcript
from longtalk.turn.draft import Draft
from longtalk.turn.summarizer import AsyncSummarizer
from longtalk.turn.summary_claims import SummaryClaim

if TYPE_CHECKING:
    from longtalk.memory.recall.config import Recall
    from longtalk.memory.recall.index import RecallIndex

R = TypeVar("R", bound=TurnReply, covariant=True)


class AsyncSession(Protocol, Generic[R]):
    """What a turn needs of the place where its conversation is kept. Two exist: a state, and a stored branch."""

    @property
    def conversation(self) -> str:
        """The id of the conversation; empty if no store keeps it."""
        ...

    @property
    def is_stored(self) -> bool:
        """Whether a store keeps the conversation, so that a summary can be written after the turn."""
        ...

    async def save(self, draft: Draft) -> tuple[Notice, ...]:
        """Keep what is new in the draft, if there is a store. Return notices for the caller."""
        ...

    def run_tool(self) -> AbstractContextManager[None]:
        """Return the context manager that each tool of the turn runs in."""
        ...

    def start_summary(self, summarizer: AsyncSummarizer, claim: SummaryClaim) -> None:
        """Have a summary written in the background, after the turn. Called only if `is_stored`."""
        ...

    async def build_index(self, before: Transcript, message: str, config: Recall, *, at: int) -> RecallIndex:
        """Return an index of all that was said `before`, to find what fits a message at a time in milliseconds."""
        ...

    def make_checkpoint(self, transcript: Transcript) -> Checkpoint | None:
        """Return the event from which the turn can be resumed; None if the store has what is needed."""
        ...

    def make_reply(self, draft: Draft, *, is_complete: bool = False) -> R:
        """Return the reply of a turn, as far as it has come. Only a complete turn sheds entries from its state."""
        ...
