"""Who makes a summary, and what came of it: so that nobody makes two at once, or asks again and again in vain."""

from __future__ import annotations

import msgspec

from longtalk._util import json_bytes
from longtalk.memory.summary import SummaryRequest
from longtalk.notices import Notice
from longtalk.stores.base import Holder
from longtalk.stores.leases import identify_this_process, is_alive
from longtalk.transcript.transcript import Transcript, now

_GRACE = 10_000
"""Milliseconds that a summary may take to be written down."""
_MOST_TRIES = 6


class SummaryClaim(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """That a summary is being made, or what came of it."""

    size: int
    """How many entries there were."""
    until: int = 0
    """While it is being made: when that has to be done …"""
    holder: Holder | None = None
    """… and by whom."""
    problem: str = ""
    """Why nothing came of it."""
    told: bool = True
    """Whether the caller knows that."""
    tries: int = 0
    """How many in a row came to nothing."""
    usage: tuple[str, ...] = ()
    """What the provider reported, where no turn has it …"""
    cost: float | None = None
    """… and what that is in US dollars, if that is known."""


def may_ask(transcript: Transcript) -> bool:
    """Whether a summary can be asked for: nobody else makes one, and it is not too early for another try.

    After one that came to nothing the next one waits, each time for twice as many entries.
    """
    last = transcript.records.read_latest("attempt", SummaryClaim)
    if last is None:
        return True
    if last.until > now() and last.holder is not None and is_alive(last.holder):
        return False
    return not last.problem or transcript.size >= last.size + 2 ** (1 + min(last.tries, _MOST_TRIES))


def make_claim(transcript: Transcript, request: SummaryRequest) -> SummaryClaim:
    """Return the claim of this process to write a summary."""
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

    Then the entries before it are unchanged: a claim goes when they are cut off, or when one of them is redacted.
    """
    return transcript.records.read_latest("attempt", SummaryClaim) == claim


def record_outcome(
    transcript: Transcript, problem: str, *, reported: bool, usage: bytes | None = None, cost: float | None = None
) -> Transcript:
    """Return the transcript with the outcome of a request for a summary: a problem, or an empty string.

    `reported` says whether the caller knows about the problem.
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
    """Return the transcript and the notice of a failed summary, now marked as reported; None if there is none."""
    last = transcript.records.read_latest("attempt", SummaryClaim)
    if last is None or last.told:
        return transcript, None
    # What it has cost is in the record that is replaced.
    known = msgspec.structs.replace(last, told=True, usage=(), cost=None)
    return record_claim(transcript, known), make_failure_notice(last.problem)


def make_failure_notice(problem: str) -> Notice:
    return Notice(
        "summary_failed", f"No summary was made, and the conversation goes on without it: {problem.rstrip('.')}."
    )
