"""A summary that is made after its turn, while nobody waits for it.

It is put beside the branch, whoever runs a turn there by then, if the branch still has what it is of.
"""

from __future__ import annotations

import contextlib

from longtalk._util.concurrency import call_store, run_shielded
from longtalk.branches.branch import AsyncBranch
from longtalk.context.epochs import record_summary
from longtalk.transcript.transcript import Transcript
from longtalk.turn import summary_claims
from longtalk.turn.summarizer import AsyncSummarizer, Outcome
from longtalk.turn.summary_claims import SummaryClaim


async def summarise(stored: AsyncBranch, summarizer: AsyncSummarizer, claim: SummaryClaim) -> None:
    """Make the summary that a turn on this branch has claimed, and keep it, or what went wrong."""

    def check_claim(transcript: Transcript) -> Transcript:
        # What was deleted, redacted or cut off meanwhile needs no summary.
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

    outcome = Outcome(problem="it was cancelled before it was there: `close` waits for it")

    async def keep() -> None:
        await call_store(stored.store, lambda: stored.attach(change))

    # Nobody is there to be told that a store has failed. The claim ends by itself.
    with contextlib.suppress(Exception):
        check_claim((await stored.load())[1])
        try:
            outcome = await summarizer.ask()
        finally:
            await run_shielded(keep)


class _NotHere(Exception):
    """What the summary is of is not here any more."""
