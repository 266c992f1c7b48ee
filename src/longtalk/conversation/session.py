"""The session of a stored conversation: a turn on a branch in a store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from longtalk._util.concurrency import Jobs, call_store
from longtalk.branches.branch import AsyncBranch
from longtalk.branches.turn_writer import AsyncTurnWriter
from longtalk.conversation.background import summarise
from longtalk.memory.profile.lines import is_private
from longtalk.notices import Notice
from longtalk.reply import StoredReply
from longtalk.stores.base import PlacedRecord
from longtalk.transcript.transcript import Transcript
from longtalk.turn.draft import Draft
from longtalk.turn.summarizer import AsyncSummarizer
from longtalk.turn.summary_claims import SummaryClaim

if TYPE_CHECKING:
    from longtalk.memory.recall.config import Recall, Recalled
    from longtalk.memory.recall.index import RecallIndex


class AsyncBranchSession:
    """A session that saves each step of a turn on a branch in the store, and searches the store."""

    is_stored = True

    def __init__(self, branch: AsyncBranch, writer: AsyncTurnWriter, jobs: Jobs) -> None:
        self._branch = branch
        self._writer = writer
        self._jobs = jobs
        self.conversation = branch.conversation

    @property
    def branch(self) -> str:
        """The branch that the turn is written to, which changes if another writer has taken over."""
        return self._writer.branch

    async def save(self, draft: Draft) -> tuple[Notice, ...]:
        """Commit the new parts of the draft."""
        return await self._writer.save(draft)

    async def release(self) -> None:
        """Give the branch back without ending the turn."""
        await self._writer.release()

    def run_tool(self) -> AbstractContextManager[None]:
        """Return a context manager that marks a tool of this turn as running."""
        return self._writer.around()

    def start_summary(self, summarizer: AsyncSummarizer, claim: SummaryClaim) -> None:
        """Start writing a summary in the background, for the branch that the turn was written to."""
        # The turn may be on another branch, if another writer has taken over.
        self._jobs.start(partial(summarise, self._branch.get_branch(self._writer.branch), summarizer, claim))

    async def recall(
        self,
        before: Transcript,
        message: str,
        config: Recall,
        render: Callable[[RecallIndex], Recalled],
        *,
        at: int,
    ) -> Recalled:
        """Return what `render` makes of an index of the branch, and of the app's lines that fell out of its brief."""
        from longtalk.archive.owner_recall import recall_from_owner
        from longtalk.memory.brief import app_lines
        from longtalk.memory.recall.search import add_fallen_lines, index_store, list_new_segments

        branch, size = self._branch, before.size
        names = (branch.owner, branch.conversation, branch.branch)

        def search() -> tuple[Recalled, list[PlacedRecord]]:
            if config.scope == "owner" and not is_private(before.records):
                meaning = config.meaning
                return recall_from_owner(branch.store, names, before, message, render, now=at, meaning=meaning), []
            index = index_store(branch.store, *names, size, message, config, now=at, records=before.records)
            if app_lines.KIND in [record.kind for record in before.records]:
                placed = branch.store.records(*names, app_lines.KIND)
                add_fallen_lines(index, before, [each.record for each in placed])
            # Rendering puts the index back into the cache, where another turn may take it.
            new = [PlacedRecord(*each) for each in list_new_segments(index)]
            return render(index), new

        found, new = await call_store(branch.store, search)
        self._writer.store_derived(new)
        recalled: Recalled = found
        return recalled

    def make_checkpoint(self, transcript: Transcript) -> None:  # noqa: ARG002
        """Return None, because the store has all that is needed to resume the turn."""
        return

    def make_reply(self, draft: Draft, *, is_complete: bool = False) -> StoredReply:  # noqa: ARG002
        """Return the reply, which contains no state."""
        return StoredReply(draft, self.branch)
