"""Write a summary in the background, after its turn.

The summary is added to the branch if the entries that it covers are unchanged, even if another turn is running by then.
"""

from __future__ import annotations

import contextlib

from longtalk._util.concurrency import call_store, run_shielded
from longtalk.branches.branch import AsyncBranch
from longtalk.context.epochs import record_summary
from longtalk.observation import log_and_suppress
from longtalk.transcript.transcript import Transcript
from longtalk.turn import summary_claims
from longtalk.turn.summarizer import AsyncSummarizer, Outcome
from longtalk.turn.summary_claims import SummaryClaim


async def summarise(stored: AsyncBranch, summarizer: AsyncSummarizer, claim: SummaryClaim) -> None:
    """Write the summary that a turn on this branch has claimed. Save it, or the reason why it failed."""

    def check_claim(transcript: Transcript) -> Transcript:
        # Entries that were deleted, redacted or cut off in the meantime need no summary.
        if not summary_claims.is_claimed(transcript, claim):
            raise _NotHere
        return transcript

    def change(transcript: Transcript) -> Transcript:
        transcript = check_claim(transcript)
        if outcome.summary is not None:
            transcript = record_summary(transcript, outcome.summary, outcome.last)
        return summary_claims.record_outcome(
            transcript, outcome.problem, reported=False, usage=outcome.usage, cost=outcome.cost
        )

    outcome = Outcome(problem="it was cancelled before it was written; `close` waits for summaries")

    async def keep() -> None:
        await call_store(stored.store, lambda: stored.attach(change))

    # There is no caller to whom a failure of the store could be reported. The claim expires by itself.
    with log_and_suppress("summary not kept", Exception), contextlib.suppress(_NotHere):
        check_claim((await stored.load())[1])
        try:
            outcome = await summarizer.ask()
        finally:
            await run_shielded(keep)


class _NotHere(Exception):
    """Raised if the entries that the summary covers were removed or changed."""
