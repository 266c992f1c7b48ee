"""A summary that is made after its turn, while nobody waits for it.

It is put beside the branch, whoever runs a turn there by then, if the branch still has what it is of.
"""

from __future__ import annotations

import contextlib

from longtalk import attempts
from longtalk._io import in_store, shielded
from longtalk.attempts import Attempt
from longtalk.epochs import summed_up
from longtalk.stored import AsyncStored
from longtalk.summarist import AsyncSummarist, Outcome
from longtalk.transcript import Transcript


async def summarise(stored: AsyncStored, summarist: AsyncSummarist, claim: Attempt) -> None:
    """Make the summary that a turn on this branch has claimed, and keep it, or what went wrong."""

    def claimed(transcript: Transcript) -> Transcript:
        # What was deleted, redacted or cut off meanwhile needs no summary.
        if not attempts.is_claimed(transcript, claim):
            raise _NotHere
        return transcript

    def change(transcript: Transcript) -> Transcript:
        transcript = claimed(transcript)
        if made.summary is not None:
            transcript = summed_up(transcript, made.summary, made.last)
        return attempts.tried(transcript, made.problem, told=False, usage=made.usage, cost=made.cost)

    made = Outcome(problem="it was cancelled before it was there: `close` waits for it")

    async def keep() -> None:
        await in_store(stored.store, lambda: stored.attach(change))

    # Nobody is there to be told that a store has failed. The claim ends by itself.
    with contextlib.suppress(Exception):
        claimed((await stored.load())[1])
        try:
            made = await summarist.ask()
        finally:
            await shielded(keep)


class _NotHere(Exception):
    """What the summary is of is not here any more."""
