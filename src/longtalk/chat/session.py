"""The session of a chat: a conversation in a state that the caller keeps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from longtalk._util.concurrency import run_in_thread
from longtalk.chat.state import AnySeal, state_shedder, state_writer
from longtalk.events import Checkpoint
from longtalk.notices import Notice
from longtalk.policies import Policy
from longtalk.reply import Reply
from longtalk.transcript.transcript import Transcript
from longtalk.turn.draft import Draft
from longtalk.turn.summarizer import AsyncSummarizer
from longtalk.turn.summary_claims import SummaryClaim

if TYPE_CHECKING:
    from longtalk.memory.recall.config import Recall, Recalled
    from longtalk.memory.recall.index import RecallIndex


class AsyncStateSession:
    """A session that stores nothing, because the reply and the checkpoints contain the state."""

    conversation = ""
    branch = ""
    is_stored = False

    def __init__(self, policy: Policy, seal: AnySeal, *, sheds: bool) -> None:
        self._encode = state_writer(seal)
        self._shed = state_shedder(policy, seal) if sheds else None

    async def save(self, draft: Draft) -> tuple[Notice, ...]:  # noqa: ARG002
        """Do nothing."""
        return ()

    async def release(self) -> None:
        """Do nothing."""

    def run_tool(self) -> AbstractContextManager[None]:
        """Return a context manager that does nothing."""
        return nullcontext()

    def start_summary(self, summarizer: AsyncSummarizer, claim: SummaryClaim) -> None:
        """Do nothing. This is never called, because a chat refuses policies that need it."""

    async def recall(
        self,
        before: Transcript,
        message: str,
        config: Recall,
        render: Callable[[RecallIndex], Recalled],
        *,
        at: int,
    ) -> Recalled:
        """Return what `render` makes of a recall index of the entries in the caller's state, which `before` holds."""
        from longtalk.memory.recall.search import index_transcript

        found: Recalled = await run_in_thread(lambda: render(index_transcript(before, message, config, now=at)))
        return found

    def make_checkpoint(self, transcript: Transcript) -> Checkpoint:
        """Return a checkpoint with the state so far."""
        return Checkpoint(transcript, self._encode)

    def make_reply(self, draft: Draft, *, is_complete: bool = False) -> Reply:
        """Return the reply with its state."""
        # A caller may still use an earlier state, which has all entries, so only a complete turn sheds entries.
        return Reply(draft, self._encode, self._shed if is_complete else None)
