"""Who makes a summary, what came of it, and when it may be tried again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longtalk._util import json_bytes
from longtalk.memory.summary import SummaryRequest
from longtalk.stores.base import Holder
from longtalk.stores.leases import identify_this_process
from longtalk.transcript.record_kinds import kind_of
from longtalk.transcript.transcript import Transcript, now
from longtalk.turn.summary_claims import (
    SummaryClaim,
    is_claimed,
    make_claim,
    make_failure_notice,
    may_ask,
    record_claim,
    record_outcome,
    take_failure_notice,
)
from tests.policies.views import conversation, talked

WANTS = SummaryRequest(stop=2, length=100, timeout=60)
GONE = msgspec.structs.replace(identify_this_process(), pid=999_999_999)
ELSEWHERE = Holder("elsewhere", "b", 1, 1)


def talk(entries: int = 4) -> Transcript:
    return conversation(*[talked(n) for n in range(entries // 2)])


def noted(attempt: SummaryClaim | dict[str, Any], entries: int = 4) -> Transcript:
    return talk(entries).add_record("attempt", json_bytes.encode(attempt), replace=True)


def last(transcript: Transcript) -> SummaryClaim:
    found = transcript.records.read_latest("attempt", SummaryClaim)
    assert found is not None
    return found


def test_without_a_failed_attempt_a_summary_may_be_requested() -> None:
    assert may_ask(talk())


@pytest.mark.parametrize(
    ("holder", "left", "may"),
    [
        (identify_this_process(), 5_000, False),
        (ELSEWHERE, 5_000, False),
        (GONE, 5_000, True),
        (None, 5_000, True),
        (identify_this_process(), -1, True),
        (ELSEWHERE, -1, True),
    ],
)
def test_while_one_process_writes_a_summary_no_other_does(holder: Holder | None, left: int, may: bool) -> None:
    assert may_ask(noted(SummaryClaim(size=4, until=now() + left, holder=holder))) is may


@pytest.mark.parametrize(("tries", "wait"), [(1, 4), (2, 8), (3, 16), (6, 128), (7, 128), (10**9, 128), (2**63, 128)])
def test_after_each_failure_it_waits_for_twice_as_many_entries(tries: int, wait: int) -> None:
    problem = SummaryClaim(size=4, problem="no", tries=tries)
    assert not may_ask(noted(problem, 4 + wait - 2))
    assert may_ask(noted(problem, 4 + wait))


def test_failures_in_a_row_are_counted_and_a_success_forgets_them() -> None:
    transcript = talk()
    for number in (1, 2, 3):
        transcript = record_outcome(transcript, "it is empty", reported=True)
        assert (last(transcript).tries, last(transcript).size) == (number, 4)
    # To claim it says nothing about what came of the others.
    transcript = record_claim(transcript, make_claim(transcript, WANTS))
    assert last(transcript).tries == 3
    transcript = record_outcome(transcript, "", reported=False)
    assert (last(transcript).tries, last(transcript).told) == (0, True)
    assert may_ask(transcript)


def test_nothing_is_kept_of_what_worked_at_once() -> None:
    assert record_outcome(talk(), "", reported=True).records == ()


def test_a_claim_says_who_makes_it_and_until_when() -> None:
    before = now()
    mine = make_claim(talk(), WANTS)
    assert mine.holder == identify_this_process()
    assert before + 60_000 < mine.until <= now() + 60_000 + 10_000
    transcript = record_claim(talk(), mine)
    assert is_claimed(transcript, mine)
    assert not may_ask(transcript)


def test_a_claim_is_one_of_its_own() -> None:
    mine = make_claim(talk(), WANTS)
    other = msgspec.structs.replace(mine, until=mine.until + 1)
    transcript = record_claim(talk(), other)
    assert not is_claimed(transcript, mine)
    assert not is_claimed(talk(), mine)
    assert not is_claimed(record_outcome(transcript, "", reported=False), other)


def test_what_failed_unseen_is_told_once() -> None:
    transcript = record_outcome(talk(), "it is empty", reported=False, usage=b'{"a":1}')
    assert last(transcript).usage == ('{"a":1}',)
    transcript, notice = take_failure_notice(transcript)
    assert notice is not None
    assert (notice.kind, notice.text) == (
        "summary_failed",
        "No summary was written, and the conversation continues without it: it is empty.",
    )
    assert last(transcript).tries == 1
    assert take_failure_notice(transcript) == (transcript, None)


def test_what_was_told_or_worked_is_no_news() -> None:
    for transcript in (
        talk(),
        record_outcome(talk(), "no", reported=True),
        record_claim(talk(), make_claim(talk(), WANTS)),
    ):
        assert take_failure_notice(transcript) == (transcript, None)


def test_a_problem_ends_with_one_full_stop() -> None:
    assert make_failure_notice("I will not.").text.endswith("without it: I will not.")


@pytest.mark.parametrize(
    "said",
    [
        {"size": -5, "problem": "x", "tries": -5},
        {"size": 10**30, "problem": "x", "tries": 10**30},
        {"size": 0, "problem": "x", "tries": -(2**63)},
        {"size": 1, "until": 2**64 - 1, "holder": {"host": "", "boot": "", "pid": -1, "started": -1}},
        {
            "size": 1,
            "until": 2**64 - 1,
            "holder": {
                "host": identify_this_process().host,
                "boot": identify_this_process().boot,
                "pid": 0,
                "started": 0,
            },
        },
        {"size": "many"},
        {"size": 1, "tries": 1.5},
        {"size": 1, "problem": "x", "told": False, "usage": ["{"]},
        [1, 2],
        None,
    ],
)
def test_an_absurd_one_stops_nothing(said: Any) -> None:
    transcript = noted(said)
    assert isinstance(may_ask(transcript), bool)
    take_failure_notice(transcript)
    # It is written again, and read.
    for after in (
        record_outcome(transcript, "no", reported=False),
        record_claim(transcript, make_claim(transcript, WANTS)),
    ):
        assert after.records[-1].kind == "attempt"
        may_ask(after)


def test_the_newest_one_counts_and_it_goes_when_something_is_redacted() -> None:
    assert kind_of("attempt").newest_only
    # What a model said instead of a summary is quoted in it.
    assert kind_of("attempt").quotes_entries
