"""Claims to write a summary, and their outcomes.

With a claim, two processes don't write the same summary at the same time, and a request that fails is not repeated with
every turn.
"""

from __future__ import annotations

import msgspec

from longtalk._util import json_bytes
from longtalk.memory.summary import SummaryRequest
from longtalk.notices import Notice
from longtalk.stores.base import Holder
from longtalk.stores.leases import identify_this_process, is_alive
from longtalk.transcript.transcript import Transcript, now

_GRACE = 10_000
"""The time in milliseconds that saving a summary may take, added to the time limit for writing it."""
_MOST_TRIES = 6


class SummaryClaim(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A process's claim to write a summary or, afterwards, the outcome."""

    size: int
    """The number of entries in the conversation when the summary was claimed."""
    until: int = 0
    """The time at which the claim expires, in milliseconds; 0 for an outcome."""
    holder: Holder | None = None
    """The process that writes the summary; None for an outcome."""
    problem: str = ""
    """The reason why the summary failed; empty if it did not fail."""
    told: bool = True
    """Whether the failure was reported to the caller."""
    tries: int = 0
    """The number of consecutive failures."""
    usage: tuple[str, ...] = ()
    """The usage reports of background calls, which belong to no turn."""
    cost: float | None = None
    """The cost of these calls in US dollars; None if it is unknown."""


def may_ask(transcript: Transcript) -> bool:
    """Return True if no other process is writing a summary, and enough entries were added since the last failure.

    With each consecutive failure, the number of entries that must be added doubles.
    """
    last = transcript.records.read_latest("attempt", SummaryClaim)
    if last is None:
        return True
    if last.until > now() and last.holder is not None and is_alive(last.holder):
        return False
    return not last.problem or transcript.size >= last.size + 2 ** (1 + min(last.tries, _MOST_TRIES))


def make_claim(transcript: Transcript, request: SummaryRequest) -> SummaryClaim:
    """Return a claim that reserves the writing of a summary for this process."""
    until = now() + round(1_000 * request.timeout) + _GRACE
    last = transcript.records.read_latest("attempt", SummaryClaim)
    return SummaryClaim(
        size=transcript.size, until=until, holder=identify_this_process(), tries=last.tries if last is not None else 0
    )


def record_claim(transcript: Transcript, claim: SummaryClaim) -> Transcript:
    """Return the transcript with this claim recorded."""
    return transcript.add_record("attempt", json_bytes.encode(claim), replace=True)


def is_claimed(transcript: Transcript, claim: SummaryClaim) -> bool:
    """Return True while this claim is the latest.

    As long as it is, the entries before it are unchanged: a claim is removed when they are cut off or redacted.
    """
    return transcript.records.read_latest("attempt", SummaryClaim) == claim


def record_outcome(
    transcript: Transcript, problem: str, *, reported: bool, usage: bytes | None = None, cost: float | None = None
) -> Transcript:
    """Return the transcript with the outcome of a summary recorded: `problem` is the reason for a failure, or "".

    `reported` says whether the caller already knows about the problem.
    """
    last = transcript.records.read_latest("attempt", SummaryClaim)
    if last is None and not problem:
        return transcript
    said = () if usage is None else (usage.decode("utf-8", "replace"),)
    tries = 1 + (last.tries if last is not None else 0) if problem else 0
    claim = SummaryClaim(
        size=transcript.size, problem=problem, told=reported or not problem, tries=tries, usage=said, cost=cost
    )
    return record_claim(transcript, claim)


def take_failure_notice(transcript: Transcript) -> tuple[Transcript, Notice | None]:
    """Return a notice about a failed summary, and the transcript with the failure marked as reported.

    The notice is None if there is nothing to report.
    """
    last = transcript.records.read_latest("attempt", SummaryClaim)
    if last is None or last.told:
        return transcript, None
    # Keep its cost, because the record is about to be replaced.
    known = msgspec.structs.replace(last, told=True, usage=(), cost=None)
    return record_claim(transcript, known), make_failure_notice(last.problem)


def make_failure_notice(problem: str) -> Notice:
    """Return the notice that a summary could not be written."""
    return Notice(
        "summary_failed", f"No summary was written, and the conversation continues without it: {problem.rstrip('.')}."
    )
