"""Test summaries in place of the oldest exchanges: when one is requested, what it covers, what is sent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longtalk._util import json_bytes
from longtalk.context.epochs import begin_epoch, list_covered, record_summary
from longtalk.context.measure import Terms
from longtalk.context.pins import pin, unpin
from longtalk.context.planning import Plan, apply_plan, make_plan
from longtalk.errors import InputError
from longtalk.memory.summary import Summary
from longtalk.policies import Compactor, KeepLast, OverTokens, Policy, Summarize, SummarizeOldest
from longtalk.transcript.transcript import Record, Transcript
from tests.policies.views import answered, composed, conversation, said, talked, terms, texts, view_of

# Exchanges have 20 tokens, and the summaries 50.
LIMIT = Summarize(400, length=50)


def talk(exchanges: int = 30) -> Transcript:
    return conversation(*[talked(n) for n in range(exchanges)])


def wanted(transcript: Transcript, policy: Policy = LIMIT, **how: Any) -> int | None:
    """Up to where a summary is wanted."""
    found = make_plan(transcript, policy, terms(), **{"may_ask": True, **how}).summary_request
    return found.stop if found else None


def summarised(transcript: Transcript, policy: Policy = LIMIT, of: Terms | None = None) -> tuple[Transcript, Plan]:
    """With the summary that the policy wants, and the epoch that begins with it."""
    of = of or terms()
    made = make_plan(transcript, policy, of, may_ask=True)
    assert made.summary_request is not None
    summary = Summary(text="s" * 50, covers=list_covered(made.epoch, made.summary_request.stop), tokens=50)
    transcript = record_summary(transcript, summary, transcript[transcript.index_of(made.summary_request.stop) - 1].id)
    made = make_plan(transcript, policy, of)
    return apply_plan(transcript, made, of), made


def grown(transcript: Transcript, exchanges: int) -> Transcript:
    for n in range(exchanges):
        transcript = transcript.append_to_turn(f"more{transcript.size}", talked(n))
    return transcript


# When, and of what


def test_no_summary_is_wanted_within_the_limit() -> None:
    assert wanted(talk(20)) is None
    assert wanted(talk(21)) is not None


def test_a_summary_covers_exchanges_until_the_target_is_reached() -> None:
    # 600 tokens, 200 are aimed at: 23 exchanges have to go, since the summary has 50.
    assert wanted(talk(30)) == 46
    assert wanted(talk(30), Summarize(400, to=300, length=50)) == 36


def test_the_last_two_before_the_current_one_stay_if_the_limit_has_room() -> None:
    long = [said("q" * 50), answered("a" * 50)]
    assert wanted(conversation(*[long] * 5), Summarize(400, to=120, length=50)) == 4
    # Here it has none.
    assert wanted(conversation(*[long] * 5), Summarize(310, to=120, length=50)) == 6


def test_no_summary_is_wanted_that_would_not_shorten_the_context() -> None:
    short, long = talked(1), [said("q" * 500)]
    assert wanted(conversation(short, short, long)) is None


def test_no_summary_is_wanted_where_the_model_cannot_be_asked() -> None:
    made = make_plan(talk(), LIMIT, terms())
    assert (made.summary_request, made.begins) == (None, False)


@pytest.mark.parametrize(("background", "settled", "asks"), [(0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 1)])
def test_in_the_background_it_is_wanted_after_the_answer_else_before_the_call(
    background: int, settled: int, asks: int
) -> None:
    policy = Summarize(400, length=50, background=bool(background))
    assert (wanted(talk(), policy, settled=bool(settled)) is not None) == bool(asks)


def test_a_summary_request_has_length_timeout_and_predicted_cost() -> None:
    found = make_plan(talk(), Summarize(400, length=60, timeout=5), terms(fixed=7), may_ask=True).summary_request
    assert found is not None
    assert (found.length, found.timeout, found.predicted) == (60, 5.0, None)


# What is sent with it


def test_a_summary_replaces_what_it_covers_at_the_head() -> None:
    transcript, made = summarised(talk())
    assert made.begins
    sent = texts(composed(transcript, made))
    assert sent[0] == f"<earlier_conversation>\n{'s' * 50}\n</earlier_conversation>"
    assert len(sent) == 1 + 60 - 46
    assert [(run.first, run.last, run.verdict, run.reason) for run in composed(transcript, made).manifest] == [
        (0, 45, "summarised", "summary"),
        (46, 59, "sent", "kept"),
    ]
    assert made.tokens == 50 + 7 * 20


def test_nothing_changes_at_the_front_until_the_limit_is_reached_again() -> None:
    transcript, made = summarised(talk())
    before = texts(composed(transcript, made))
    transcript = grown(transcript, 10)
    made = make_plan(transcript, LIMIT, terms(), may_ask=True)
    assert (made.begins, made.summary_request) == (False, None)
    assert texts(composed(transcript, made))[: len(before)] == before


def test_the_next_summary_covers_what_the_first_one_did_and_more() -> None:
    transcript, _ = summarised(talk())
    transcript, made = summarised(grown(transcript, 20))
    assert made.epoch.summary is not None
    ((first, stop),) = made.epoch.summary.covers
    assert first == 0
    assert stop > 46


def test_what_was_left_out_before_is_not_said_to_be_covered() -> None:
    transcript = talk()
    made = make_plan(transcript, KeepLast(10, to=10), terms())
    cut = msgspec.structs.replace(made.epoch, policy=make_plan(talk(1), LIMIT, terms()).epoch.policy)
    transcript = grown(begin_epoch(transcript, cut), 20)
    transcript, made = summarised(transcript)
    assert made.epoch.summary is not None
    assert made.epoch.summary.covers[0][0] == 40
    assert composed(transcript, made).manifest[0].verdict == "left_out"


def test_an_existing_summary_is_used_by_another_policy() -> None:
    transcript, _ = summarised(talk())
    transcript = transcript.with_records(r for r in transcript.records if r.kind != "epoch")
    made = make_plan(transcript, Summarize(500, length=60), terms(), may_ask=True)
    assert (made.summary_request, made.begins) == (None, True)
    assert texts(composed(transcript, made))[0].startswith("<earlier_conversation>")


def test_an_existing_summary_is_not_used_before_it_is_needed() -> None:
    transcript, _ = summarised(talk())
    made = make_plan(transcript, Summarize(5_000, length=60), terms())
    assert len(texts(composed(transcript, made))) == 60


# Pins


def test_what_is_pinned_stays_beside_it() -> None:
    transcript = pin(talk(), "t3", LIMIT, terms())
    transcript, made = summarised(transcript)
    sent = texts(composed(transcript, made))
    assert sent[1:3] == ["question 3", "answer   3"]
    assert [(run.first, run.last, run.verdict) for run in composed(transcript, made).manifest][:3] == [
        (0, 5, "summarised"),
        (6, 7, "sent"),
        (8, made.epoch.raw - 1, "summarised"),
    ]


def test_what_is_unpinned_goes_without_asking_again() -> None:
    big = [said("q" * 80), answered("a" * 80)]
    policy = Summarize(400, to=380, length=50)
    transcript = conversation(big, *[talked(n) for n in range(14)])
    transcript, made = summarised(pin(transcript, "t0", policy, terms()), policy)
    assert made.epoch.pinned == ((0, 2),)
    transcript = grown(unpin(transcript, "t0"), 6)
    made = make_plan(transcript, policy, terms(), may_ask=True)
    # The summary was made of it too.
    assert (made.summary_request, made.begins) == (None, True)
    assert made.epoch.runs[0].verdict == "summarised"
    assert not composed(transcript, made).pieces[1].startswith(big[0].native)


def test_of_two_summaries_the_one_that_covers_the_other_is_used() -> None:
    less, more = (Summary(text="", covers=(span,), tokens=5) for span in ((4, 46), (0, 46)))
    view = view_of(talk())
    for there, offered, newest in ((less, more, more), (more, less, more), (None, less, less), (less, None, less)):
        assert msgspec.structs.replace(view, summary=there, latest_summary=offered).usable_summary == newest


# The window


def test_without_a_summary_the_window_is_never_exceeded() -> None:
    transcript, told = Transcript(), []
    for n in range(60):
        transcript = transcript.append_to_turn(f"t{n}", talked(n)[:1])
        made = make_plan(transcript, LIMIT, terms(window=600))
        transcript = apply_plan(transcript, made, terms(window=600))
        told += [notice.kind for notice in made.notices]
        assert made.tokens <= 600
        context = composed(transcript, made)
        assert sum(run.last + 1 - run.first for run in context.manifest) == len(transcript)
        if made.begins:
            assert context.manifest[0].reason == "more than fits into the window"
        transcript = transcript.append_to_turn(f"t{n}", talked(n)[1:])
    assert set(told) == {"window"}


def test_a_summary_that_leaves_no_room_is_left_out_before_the_conversation_stops() -> None:
    transcript = talk(3)
    long = Summary(text="s" * 500, covers=((0, 4),), tokens=500)
    transcript = record_summary(transcript, long, transcript[3].id)
    made = make_plan(transcript, Summarize(55, to=54, length=50), terms(window=300))
    assert made.tokens <= 300
    assert made.epoch.summary is None


# Hostile ones


@pytest.mark.parametrize(
    "covers",
    [((0, 10**9),), ((-5, 46),), ((20, 46), (0, 10)), (), ((46, 0),), ((0, 61),)],
)
def test_a_summary_of_what_is_not_there_is_not_taken(covers: tuple[tuple[int, int], ...]) -> None:
    transcript = talk()
    bad = Summary(text="Nothing was said.", covers=covers, tokens=5)
    transcript = transcript.with_records([Record("summary", "t0-0", 0, json_bytes.encode(bad))])
    made = make_plan(transcript, LIMIT, terms(), may_ask=True)
    assert made.summary_request is not None
    assert len(texts(composed(transcript, make_plan(transcript, LIMIT, terms())))) == 60


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("summary", None),
        ("summary", Summary(text="x", covers=((0, 10),), tokens=5)),
        ("summary", Summary(text="x", covers=((0, 46),), tokens=-(10**9))),
        ("summary", Summary(text="x", covers=((0, 10**9),), tokens=5)),
        ("tokens", -(10**9)),
    ],
)
def test_an_epoch_with_a_summary_that_can_not_be_true_is_not_believed(field: str, value: Any) -> None:
    transcript, made = summarised(talk())
    assert field in made.epoch.__struct_fields__
    other = msgspec.structs.replace(made.epoch, **{field: value})
    records = tuple(record for record in transcript.records if record.kind != "summary")
    transcript = begin_epoch(transcript.with_records(records), other)
    made = make_plan(transcript, LIMIT, terms())
    assert len(texts(composed(transcript, made))) == 60
    known = transcript.records.read_latest("epoch", type(other))
    assert known == msgspec.structs.replace(other, checked=known.checked)


# Policies


@pytest.mark.parametrize(
    "make",
    [
        lambda: Summarize(0),
        lambda: Summarize(True),
        lambda: Summarize(1.5),
        lambda: Summarize(1_000, length=49),
        lambda: Summarize(1_000, length=500),
        lambda: Summarize(1_000, to=60, length=100),
        lambda: Summarize(1_000, to=1_001),
        lambda: Summarize(10_000, timeout=0),
        lambda: Summarize(10_000, timeout=-1),
        lambda: Summarize(10_000, timeout=float("nan")),
        lambda: Summarize(10_000, timeout=float("inf")),
        lambda: Summarize(10_000, timeout=10**6),
        lambda: Summarize(10_000, timeout="60"),
        lambda: Summarize(10_000, timeout=True),
        lambda: Summarize(10_000, background="yes"),
        lambda: SummarizeOldest(keep=-1),
        lambda: SummarizeOldest(keep=True),
        lambda: SummarizeOldest(keep=1.5),
        lambda: SummarizeOldest(length="long"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any) -> None:
    with pytest.raises(InputError):
        make()


def test_summarize_oldest_can_be_used_in_custom_policies() -> None:
    own = Compactor(OverTokens(400), (SummarizeOldest(length=50, keep=5),), OverTokens(200))
    assert wanted(talk(), own) == 46
    assert wanted(talk(22), own) == 30
