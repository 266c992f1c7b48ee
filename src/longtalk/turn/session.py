"""The interface between a turn and the place that keeps its conversation: the caller's state, or a stored branch."""

from __future__ import annotations

from collections.abc import Callable
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
    from longtalk.memory.recall.config import Recall, Recalled
    from longtalk.memory.recall.index import RecallIndex

R = TypeVar("R", bound=TurnReply, covariant=True)


class AsyncSession(Protocol, Generic[R]):
    """What a turn needs from the place that keeps its conversation. There are two: a state, and a branch in a store."""

    @property
    def conversation(self) -> str:
        """The id of the conversation; empty if it is not in a store."""
        ...

    @property
    def branch(self) -> str:
        """The branch that the turn is written to; empty if the conversation is not in a store."""
        ...

    @property
    def is_stored(self) -> bool:
        """Whether the conversation is in a store, so that a summary can be written after the turn."""
        ...

    async def save(self, draft: Draft) -> tuple[Notice, ...]:
        """Save the new parts of the draft if there is a store, and return notices for the caller."""
        ...

    async def release(self) -> None:
        """Let another process continue the turn from the last step that was saved."""
        ...

    def run_tool(self) -> AbstractContextManager[None]:
        """Return a context manager in which each tool of the turn is run."""
        ...

    def start_summary(self, summarizer: AsyncSummarizer, claim: SummaryClaim) -> None:
        """Start writing a summary in the background, after the turn. Called only if `is_stored` is True."""
        ...

    async def recall(
        self,
        before: Transcript,
        message: str,
        config: Recall,
        render: Callable[[RecallIndex], Recalled],
        *,
        at: int,
    ) -> Recalled:
        """Return what `render` makes of a recall index of the transcript `before` the message.

        Both the index and the rendering read the store, so neither runs on the event loop. `at` is the time of the
        message in milliseconds.
        """
        ...

    def make_checkpoint(self, transcript: Transcript) -> Checkpoint | None:
        """Return an event with a state to resume the turn from, or None if the store has all that is needed."""
        ...

    def make_reply(self, draft: Draft, *, is_complete: bool = False) -> R:
        """Return the reply of a turn as far as it has run. Only a complete turn sheds entries from its state."""
        ...
